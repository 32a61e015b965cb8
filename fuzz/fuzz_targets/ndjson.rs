//! Hostile bytes for `Target::Ndjson`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Ndjson.run(input));
