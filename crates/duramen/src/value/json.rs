//! Exact JSON input and output: integers to 64 bits are never rounded, and a repeated name is an error.
//!
//! Owns the JSON form of documents. Bytes are base64 text; times are RFC 3339 text. Floats are the shortest
//! text that reads back the same, and never look like integers. Non-finite floats are the texts `NaN`,
//! `Infinity`, `-Infinity`. Readers that silently round `9007199254740993` would corrupt ids, so this crate
//! has its own.

mod parse;
#[cfg(test)]
mod tests;

use std::io::Write as _;

pub use parse::parse;

use crate::store::error::Result;
use crate::value::msgpack::{DEPTH_MAX, Reader, Token};

/// How many values and names of fields a text can hold at most: a bound for the memory that [`parse`] takes.
/// It reads the text once and builds nothing.
#[must_use]
pub fn parts_of(text: &str) -> usize {
    let (mut parts, mut is_inside, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = is_inside,
            b'"' => is_inside = !is_inside,
            b',' | b':' | b'[' | b'{' if !is_inside => parts += 1,
            _ => {}
        }
    }
    parts
}

/// One stored document as one line of JSON.
///
/// # Errors
/// `InvalidArgument` (E0201) for bytes that are not a document.
pub fn from_stored(document: &[u8]) -> Result<String> {
    let mut out = Vec::with_capacity(document.len() * 2);
    write_stored(document, &mut out)?;
    Ok(String::from_utf8(out).expect("every piece written was UTF-8"))
}

/// Appends one stored document as JSON, without a line end and without building it in memory.
///
/// # Errors
/// `InvalidArgument` (E0201) for bytes that are not a document; `out` then ends with a part of it.
pub fn write_stored(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut reader = Reader::new(document);
    let first = reader.next()?;
    write_token(&mut reader, first, out, DEPTH_MAX)?;
    if !reader.at_end() {
        return Err(reader.wrong("something follows the document"));
    }
    Ok(())
}

fn write_token(reader: &mut Reader<'_>, token: Token<'_>, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    match token {
        Token::Null => out.extend_from_slice(b"null"),
        Token::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Token::Int(value) => write_display(out, value),
        Token::Float(value) => write_float(out, value),
        Token::Text(value) => write_text(out, value),
        Token::UncheckedText(_) => unreachable!("next() checks text"),
        Token::Bytes(value) => {
            out.push(b'"');
            write_base64(out, value);
            out.push(b'"');
        }
        Token::Time(value) => {
            out.push(b'"');
            write_display(out, value);
            out.push(b'"');
        }
        Token::List(count) => {
            let depth = depth.checked_sub(1).ok_or_else(|| reader.wrong("it nests too deep"))?;
            out.push(b'[');
            for index in 0..count {
                if index > 0 {
                    out.push(b',');
                }
                let token = reader.next()?;
                write_token(reader, token, out, depth)?;
            }
            out.push(b']');
        }
        Token::Map(count) => {
            let depth = depth.checked_sub(1).ok_or_else(|| reader.wrong("it nests too deep"))?;
            out.push(b'{');
            for index in 0..count {
                if index > 0 {
                    out.push(b',');
                }
                write_text(out, &reader.name()?);
                out.push(b':');
                let token = reader.next()?;
                write_token(reader, token, out, depth)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn write_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a Vec takes every byte");
}

fn write_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        write!(out, "{value:?}").expect("a Vec takes every byte");
    } else {
        let text = if value.is_nan() {
            "\"NaN\""
        } else if value > 0.0 {
            "\"Infinity\""
        } else {
            "\"-Infinity\""
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends a JSON string: quotes, backslashes and control characters escaped, all else as it is.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut clean = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[clean..at]);
        clean = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => write!(out, "\\u{byte:04x}").expect("a Vec takes every byte"),
        }
    }
    out.extend_from_slice(&bytes[clean..]);
    out.push(b'"');
}

/// Appends bytes as base64 with padding (RFC 4648).
fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for position in 0..4_u32 {
            let digit = (bits >> (18 - 6 * position)) & 0x3f;
            let padding = position as usize > chunk.len();
            out.push(if padding { b'=' } else { ALPHABET[digit as usize] });
        }
    }
}
