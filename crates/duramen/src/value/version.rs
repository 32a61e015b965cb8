//! The version prefix of a stored document, from version 2 on.
//!
//! Owns the prefix: a byte that begins no MessagePack value, then the version in groups of seven bits. A
//! document without prefix is of version 1. So each document defines its own decoding, and which views have
//! its rows, at any point of a migration.

use std::borrow::Cow;

use crate::store::error::Result;
use crate::value::undecodable;

/// A byte with which no MessagePack value begins.
const MARK: u8 = 0xc1;

/// The version of documents without a prefix.
pub(crate) const FIRST: u32 = 1;

/// The version of a stored document, and the document itself.
///
/// # Errors
/// `InvalidArgument` for an invalid prefix.
pub(crate) fn split(stored: &[u8]) -> Result<(u32, &[u8])> {
    let [MARK, rest @ ..] = stored else { return Ok((FIRST, stored)) };
    let mut version: u32 = 0;
    for (index, byte) in rest.iter().enumerate().take(5) {
        let bits = u32::from(byte & 0x7f);
        let shifted = bits << (7 * index);
        if shifted >> (7 * index) != bits {
            break;
        }
        version |= shifted;
        if byte & 0x80 == 0 {
            if version <= FIRST || (*byte == 0 && index > 0) {
                break;
            }
            return Ok((version, &rest[index + 1..]));
        }
    }
    Err(undecodable("these bytes are not a document: its version cannot be read".to_owned()))
}

/// A document in stored form.
pub(crate) fn join(version: u32, document: &[u8]) -> Cow<'_, [u8]> {
    if version == FIRST {
        return Cow::Borrowed(document);
    }
    let mut stored = Vec::with_capacity(document.len() + 6);
    stored.push(MARK);
    let mut left = version;
    while left >= 0x80 {
        stored.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    stored.push(left.to_le_bytes()[0]);
    stored.extend_from_slice(document);
    Cow::Owned(stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{join, split};

    // The prefix is on disk.
    #[test]
    fn a_version_goes_before_the_document_and_the_first_goes_without_saying() {
        for (version, stored) in [
            (1, &b"\x80"[..]),
            (2, b"\xc1\x02\x80"),
            (127, b"\xc1\x7f\x80"),
            (128, b"\xc1\x80\x01\x80"),
            (u32::MAX, b"\xc1\xff\xff\xff\xff\x0f\x80"),
        ] {
            assert_eq!(&join(version, b"\x80")[..], stored);
            assert_eq!(split(stored).unwrap(), (version, &b"\x80"[..]));
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for garbage in [
            &b"\xc1"[..],
            b"\xc1\x00\x80",
            b"\xc1\x01\x80",
            b"\xc1\x82\x00\x80",
            b"\xc1\x80",
            b"\xc1\xff\xff\xff\xff\x1f\x80",
            b"\xc1\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(split(garbage).is_err(), "{garbage:x?}");
        }
    }
}
