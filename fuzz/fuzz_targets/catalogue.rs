//! Hostile bytes for `Target::Catalogue`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| duramen_sim::fuzz::Target::Catalogue.run(input));
