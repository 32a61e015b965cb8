//! The compile errors for the likeliest mistakes.
//!
//! Part of their text is the compiler's, so they are compared only with the compiler version below. To
//! regenerate them: `TRYBUILD=overwrite cargo test -p duramen compile_errors`, read every one, and change the
//! version.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

/// The compiler that the texts were taken from.
const COMPILER: &str = "rustc 1.95.0";

#[test]
fn likely_mistakes_are_explained() {
    let found = Command::new("rustc").arg("--version").output().unwrap().stdout;
    let found = String::from_utf8_lossy(&found);
    if !found.starts_with(COMPILER) {
        let skipped =
            format!("words of compile errors — they are those of {COMPILER}, and this is {}", found.trim());
        println!("skipped: {skipped}");
        if let Some(list) = std::env::var_os("DURAMEN_TEST_SKIPS") {
            let mut list = OpenOptions::new().append(true).create(true).open(list).unwrap();
            writeln!(list, "{skipped}").unwrap();
        }
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
