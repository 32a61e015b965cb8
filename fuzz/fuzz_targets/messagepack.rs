//! Hostile bytes for `Target::MessagePack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::MessagePack.run(input));
