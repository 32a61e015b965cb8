//! Hostile bytes for `Target::Record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Record.run(input));
