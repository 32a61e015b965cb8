//! Hostile lines for the shell's division into words.
#![no_main]

#[path = "../../crates/duramen-cli/src/shell/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(line) = std::str::from_utf8(input) {
        let _ = words::split(line);
    }
});
