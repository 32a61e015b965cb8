//! A line of the audit: an object of JSON.
//!
//! Each has the number after the one before, and that line's SHA-256: none can be changed, taken out or moved
//! without the next one telling.

use std::fmt::Write as _;

use duramen::Time;
use duramen::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The hash of a line.
pub type Hash = [u8; 32];

/// What is told of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Event {
    /// What was done: the name of the call, `login`, or `refused`.
    pub(crate) what: String,
    /// `begin` of what is about to be done, `end` of what was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<&'static str>,
    /// Of an end: the number of its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) begin: Option<u64>,
    /// Who did it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    /// From where.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) from: String,
    /// On what: the name of a user, the id of a token, a collection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) on: String,
    /// The code of the error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// How often the same happened, if not once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    n: u64,
    at: String,
    #[serde(flatten)]
    event: &'a Event,
    prev: String,
}

/// What links a line to the one before.
#[derive(Debug, Deserialize)]
pub(super) struct Link {
    pub(super) n: u64,
    pub(super) prev: String,
}

/// The text of a line, without its end.
///
/// # Errors
/// `System` (E1001), which cannot happen: texts and numbers are JSON.
pub(super) fn text(n: u64, at: Time, event: &Event, prev: &Hash) -> Result<String> {
    let line = Line { n, at: at.to_string(), event, prev: hex(prev) };
    let text = serde_json::to_string(&line)
        .map_err(|error| Error::new(Code::System, format!("a line of the audit is no JSON: {error}")))?;
    // JSON itself only escapes those of ASCII.
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\u{7f}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                // Writing to a text cannot fail.
                let _ = write!(plain, "\\u{:04x}", u32::from(char));
            }
            char => plain.push(char),
        }
    }
    Ok(plain)
}

/// The link in a line; `None` if it is no line.
pub(super) fn link(line: &[u8]) -> Option<Link> {
    serde_json::from_slice(line).ok()
}

/// The hash of a line, without its end.
pub(super) fn hash(line: &[u8]) -> Hash {
    Sha256::digest(line).into()
}

pub(super) fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::with_capacity(hash.len() * 2), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    //! Names come from clients: a line must stay one line, and a terminal must not obey it.
    use super::*;

    #[test]
    fn a_line_is_one_line_of_printable_text() {
        let on = "a\nb\u{1b}[2J\u{9b}31m\u{202e}\"\\é".to_owned();
        let event = Event { what: "put_user".to_owned(), on: on.clone(), ..Event::default() };
        let text = text(7, Time::default(), &event, &[0xab; 32]).expect("JSON");
        assert!(text.chars().all(|char| !char.is_control() && char != '\u{202e}'), "{text}");
        let parsed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((parsed["n"].as_u64(), parsed["on"].as_str()), (Some(7), Some(&on[..])));
        let link = link(text.as_bytes()).expect("a line");
        assert_eq!((link.n, link.prev), (7, "ab".repeat(32)));
        assert!(super::link(b"{}").is_none() && super::link(b"").is_none());
    }
}
