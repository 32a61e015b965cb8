//! The command line that repeats a run.
//!
//! Owns the position of the seed and the quoting for a shell. Pure: the caller passes the words.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// A shell command that repeats the run. `words` begin with the program and `run`; `drawn` is the seed if
/// they have none.
pub(crate) fn command_line(words: &[OsString], drawn: Option<u64>) -> String {
    let (head, rest) = words.split_at(words.len().min(2));
    let seed = drawn.map(|seed| format!("--seed {seed}"));
    let head = head.iter().map(|word| quoted(word));
    head.chain(seed).chain(rest.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

/// A word quoted for a shell. Bytes that are not text need a form that not every shell supports.
fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => format!("$'{}'", escaped(word.as_bytes())),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\\' | b'\'' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            // Three octal digits: after hexadecimal ones a following digit would be taken for a third.
            _ => write!(text, "\\{byte:03o}").expect("writing to a string does not fail"),
        }
    }
    text
}
