//! The command line that does a run again.
//!
//! Owns where the seed is put and how words are quoted for a shell. It is pure: the caller has the words.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// What a shell runs to do it all again. `words` begin with the program and `run`; `drawn` is the seed, if they have none.
pub(crate) fn command_line(words: &[OsString], drawn: Option<u64>) -> String {
    let (head, rest) = words.split_at(words.len().min(2));
    let seed = drawn.map(|seed| format!("--seed {seed}"));
    let head = head.iter().map(|word| quoted(word));
    head.chain(seed).chain(rest.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it. Bytes that are no text need a quoting that not every shell has.
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
            // Three octal digits: with hexadecimal ones a digit that follows would be taken for a third.
            _ => write!(text, "\\{byte:03o}").expect("writing to a string does not fail"),
        }
    }
    text
}
