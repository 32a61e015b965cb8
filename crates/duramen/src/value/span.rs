//! Ranges of keys, given as elements instead of bytes.
//!
//! Owns the translation of "all", "prefix" and "from .. to" into byte ranges. A partial key means every key
//! that begins with its elements: `from` includes them, `to` excludes them.
//!
//! Bounds have no directions until the view is known that they are for. An intersection therefore keeps the
//! ranges apart until then: which of two bounds is the narrower one depends on the directions.

use crate::store::KeyRange;
use crate::store::error::Result;
use crate::value::tuple::{Key, directed, encode, prefix_end};

/// A range of the keys of a collection, half-open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    range: KeyRange,
    /// Further ranges that its keys lie in.
    others: Vec<KeyRange>,
}

impl Span {
    /// Every key.
    #[must_use]
    pub fn all() -> Span {
        Span::of_encoded(KeyRange { from: Vec::new(), to: None })
    }

    /// Keys with these leading elements. `("U",)` does not match `"UA"`: elements match as a whole.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn prefix(key: impl Key) -> Result<Span> {
        let from = encode(&key)?;
        let to = Some(prefix_end(&from));
        Ok(Span::of_encoded(KeyRange { from, to }))
    }

    /// Keys from `from` on, to the end.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn from(from: impl Key) -> Result<Span> {
        Ok(Span::of_encoded(KeyRange { from: encode(&from)?, to: None }))
    }

    /// Keys before `to`.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn to(to: impl Key) -> Result<Span> {
        Ok(Span::of_encoded(KeyRange { from: Vec::new(), to: Some(encode(&to)?) }))
    }

    /// Keys from `from` on and before `to`.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn between(from: impl Key, to: impl Key) -> Result<Span> {
        Ok(Span::of_encoded(KeyRange { from: encode(&from)?, to: Some(encode(&to)?) }))
    }

    /// The keys whose encoded form lies in a range. Its bounds need not be keys.
    #[must_use]
    pub fn of_encoded(range: KeyRange) -> Span {
        Span { range, others: Vec::new() }
    }

    /// Whether it has every key.
    pub(crate) fn is_all(&self) -> bool {
        self.range.from.is_empty() && self.range.to.is_none() && self.others.is_empty()
    }

    /// The same bounds with elements in these directions, by position.
    pub(crate) fn directed(self, is_descending: impl Fn(usize) -> bool) -> Span {
        let bound = |key: Vec<u8>| {
            let directed = |key: &[u8]| directed(key, &is_descending).ok();
            // A bound after all keys with a prefix is no key itself.
            let after = || Some(prefix_end(&directed(key.strip_suffix(prefix_end(&[]).as_slice())?)?));
            directed(&key).or_else(after).unwrap_or(key)
        };
        let range = |KeyRange { from, to }| KeyRange { from: bound(from), to: to.map(bound) };
        Span { range: range(self.range), others: self.others.into_iter().map(range).collect() }
    }

    /// The intersection of both.
    #[must_use]
    pub fn and(mut self, other: Span) -> Span {
        if self.is_all() {
            return other;
        }
        if !other.is_all() {
            self.others.push(other.range);
            self.others.extend(other.others);
        }
        self
    }

    /// The range in bytes, if it is a single one.
    pub(crate) fn as_bytes(&self) -> Option<&KeyRange> {
        self.others.is_empty().then_some(&self.range)
    }

    /// The same range in bytes, with the bounds as they are: for elements that are all ascending.
    #[must_use]
    pub fn into_bytes(self) -> KeyRange {
        self.others.into_iter().fold(self.range, |both, other| {
            let to = match (both.to, other.to) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            KeyRange { from: both.from.max(other.from), to }
        })
    }
}
