//! Hostile bytes for `Target::Schema`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Schema.run(input));
