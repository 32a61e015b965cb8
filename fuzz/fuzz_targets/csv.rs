//! Hostile bytes for `Target::Csv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Csv.run(input));
