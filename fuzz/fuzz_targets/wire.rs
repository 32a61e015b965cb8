//! Hostile bytes for what a server decodes: the entry point of the tests of duramen-proto.
#![no_main]

#[path = "../../crates/duramen-proto/tests/it/wire.rs"]
#[allow(dead_code, reason = "the counts are for the test")]
mod wire;

libfuzzer_sys::fuzz_target!(|input: &[u8]| drop(wire::run(input)));
