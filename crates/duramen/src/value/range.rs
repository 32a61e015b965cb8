//! Ranges of typed keys: `..`, `"Oslo"..`, `10..20`, `..="Oslo"`.
//!
//! Owns the translation into [`Span`]s. A bound may be the prefix of a key. It then means every key with that
//! prefix, which `from` and `=to` include and `to` excludes.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::store::KeyRange;
use crate::store::error::Result;
use crate::value::span::Span;
use crate::value::tuple::{PrefixFor, encode, prefix_end};

/// A range of keys of type `K`: any of Rust's ranges over keys or their prefixes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no range of keys of type `{K}`",
    note = "write `..`, `a..`, `a..b`, `..b`, `a..=b` or `..=b`, with keys or their leading elements as bounds"
)]
pub trait IntoSpan<K> {
    /// The range in bytes.
    ///
    /// # Errors
    /// As [`encode`].
    fn into_span(self) -> Result<Span>;
}

impl<K> IntoSpan<K> for RangeFull {
    fn into_span(self) -> Result<Span> {
        Ok(Span::all())
    }
}

impl<K, Q: PrefixFor<K>> IntoSpan<K> for Range<Q> {
    fn into_span(self) -> Result<Span> {
        Span::between(self.start, self.end)
    }
}

impl<K, Q: PrefixFor<K>> IntoSpan<K> for RangeFrom<Q> {
    fn into_span(self) -> Result<Span> {
        Span::from(self.start)
    }
}

impl<K, Q: PrefixFor<K>> IntoSpan<K> for RangeTo<Q> {
    fn into_span(self) -> Result<Span> {
        Span::to(self.end)
    }
}

impl<K, Q: PrefixFor<K>> IntoSpan<K> for RangeInclusive<Q> {
    fn into_span(self) -> Result<Span> {
        let to = Some(prefix_end(&encode(self.end())?));
        Ok(Span::of_encoded(KeyRange { from: encode(self.start())?, to }))
    }
}

impl<K, Q: PrefixFor<K>> IntoSpan<K> for RangeToInclusive<Q> {
    fn into_span(self) -> Result<Span> {
        Ok(Span::of_encoded(KeyRange { from: Vec::new(), to: Some(prefix_end(&encode(&self.end)?)) }))
    }
}

/// A span is used unchanged.
impl<K> IntoSpan<K> for Span {
    fn into_span(self) -> Result<Span> {
        Ok(self)
    }
}
