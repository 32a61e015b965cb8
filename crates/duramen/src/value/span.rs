//! Ranges of keys, given as elements instead of bytes.
//!
//! Owns the translation of "all", "prefix" and "from .. to" into byte ranges. A partial key means every key
//! that begins with its elements: `from` includes them, `to` excludes them.

use crate::store::KeyRange;
use crate::store::error::Result;
use crate::value::tuple::{Key, directed, encode, prefix_end};

/// A range of the keys of a collection, half-open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    range: KeyRange,
}

impl Span {
    /// Every key.
    #[must_use]
    pub fn all() -> Span {
        Span { range: KeyRange { from: Vec::new(), to: None } }
    }

    /// Keys with these leading elements. `("U",)` does not match `"UA"`: elements match as a whole.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn prefix(key: impl Key) -> Result<Span> {
        let from = encode(&key)?;
        let to = Some(prefix_end(&from));
        Ok(Span { range: KeyRange { from, to } })
    }

    /// Keys from `from` on, to the end.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn from(from: impl Key) -> Result<Span> {
        Ok(Span { range: KeyRange { from: encode(&from)?, to: None } })
    }

    /// Keys before `to`.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn to(to: impl Key) -> Result<Span> {
        Ok(Span { range: KeyRange { from: Vec::new(), to: Some(encode(&to)?) } })
    }

    /// Keys from `from` on and before `to`.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn between(from: impl Key, to: impl Key) -> Result<Span> {
        Ok(Span { range: KeyRange { from: encode(&from)?, to: Some(encode(&to)?) } })
    }

    pub(crate) fn of_bytes(range: KeyRange) -> Span {
        Span { range }
    }

    /// The same bounds with elements in these directions, by position.
    pub(crate) fn directed(self, is_descending: impl Fn(usize) -> bool) -> Span {
        let bound = |key: Vec<u8>| {
            let directed = |key: &[u8]| directed(key, &is_descending).ok();
            // A bound after all keys with a prefix is no key itself.
            let after = || Some(prefix_end(&directed(key.strip_suffix(prefix_end(&[]).as_slice())?)?));
            directed(&key).or_else(after).unwrap_or(key)
        };
        let KeyRange { from, to } = self.range;
        Span { range: KeyRange { from: bound(from), to: to.map(bound) } }
    }

    /// The intersection of both.
    #[must_use]
    pub fn and(self, other: Span) -> Span {
        let to = match (self.range.to, other.range.to) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Span { range: KeyRange { from: self.range.from.max(other.range.from), to } }
    }

    /// The same range in bytes.
    #[must_use]
    pub fn into_bytes(self) -> KeyRange {
        self.range
    }
}
