//! Pages of a query, and the tokens that continue them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::error::Error;
use crate::value::tuple;

/// A part of what a query finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<PageToken>,
}

/// Where a page ended: a position among the keys, not a number of rows to skip.
///
/// Inserts and deletes between two pages make no item appear twice and hide none. The next page costs O(log
/// n).
///
/// Its text (hexadecimal digits) can be put in a link. It contains the last key in readable form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageToken(Vec<u8>);

impl PageToken {
    pub(crate) fn after(key: &[u8]) -> PageToken {
        PageToken(key.to_vec())
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for PageToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<PageToken, Error> {
        let wrong =
            || Error::invalid(format!("{text:?} is no place to go on from: take what the last page gave"));
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let digits = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
        let key = digits.collect::<Result<Vec<u8>, _>>().map_err(|_| wrong())?;
        tuple::decode(&key).map_err(|_| wrong())?;
        Ok(PageToken(key))
    }
}

impl Serialize for PageToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PageToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PageToken, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| serde::de::Error::custom(error.message()))
    }
}
