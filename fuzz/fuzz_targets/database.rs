//! Hostile bytes for `Target::Database`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Database.run(input));
