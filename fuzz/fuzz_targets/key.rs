//! Hostile bytes for `Target::Key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Key.run(input));
