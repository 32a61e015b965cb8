//! Pages of a query, and the tokens that continue them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

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
/// Its text (hexadecimal digits, a dot, hexadecimal digits) can be put in a link. It contains the last key in
/// readable form. A query of another collection or view refuses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageToken {
    key: Vec<u8>,
    /// The order of rows to which the key belongs; `None` in tokens of earlier releases.
    order: Option<u32>,
}

impl PageToken {
    /// The end of a page: a key in the order of the rows of `order`, a collection or view by name.
    pub(crate) fn after(key: &[u8], order: &str) -> PageToken {
        PageToken { key: key.to_vec(), order: Some(hash_of(order)) }
    }

    /// Where the next page in the order of the rows of `order` begins.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a token of another order: its key says nothing there.
    pub(crate) fn key_in(&self, order: &str) -> Result<&[u8], Error> {
        if self.order.is_some_and(|own| own != hash_of(order)) {
            let message = format!("the page token is not one of {order}, but of another collection or view");
            return Err(
                Error::invalid(message).with_hint("pass the token that the last page of this query returned")
            );
        }
        Ok(&self.key)
    }
}

/// The hash of the name of a collection or view.
fn hash_of(name: &str) -> u32 {
    let [a, b, c, d, ..] = xxh3_64(name.as_bytes()).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        self.order.map_or(Ok(()), |order| write!(f, ".{order:08x}"))
    }
}

impl FromStr for PageToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<PageToken, Error> {
        let wrong =
            || Error::invalid(format!("{text:?} is no page token: pass the one that the last page returned"));
        let (text, order) = match text.split_once('.') {
            Some((key, order)) if order.len() == 8 => {
                (key, Some(u32::from_str_radix(order, 16).map_err(|_| wrong())?))
            }
            Some(_) => return Err(wrong()),
            None => (text, None),
        };
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let digits = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
        let key = digits.collect::<Result<Vec<u8>, _>>().map_err(|_| wrong())?;
        tuple::decode(&key).map_err(|_| wrong())?;
        Ok(PageToken { key, order })
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
