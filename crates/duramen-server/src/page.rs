//! Page tokens: where the next page of a query begins.
//!
//! A token names what it is of, and a position. It holds nothing that its owner could not ask for.

use duramen::error::{Error, Result};
use duramen::tuple::{decode, encode};
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

/// What page tokens are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pages {
    tree: u64,
    query: u64,
}

impl Pages {
    /// Of a query on a tree; without what may be different from page to page.
    pub(crate) fn of(tree: u64, query: &impl Message) -> Pages {
        Pages { tree, query: xxh3_64(&query.encode_to_vec()) }
    }

    /// The token behind an encoded key.
    pub(crate) fn token(&self, key: &[u8]) -> Vec<u8> {
        [&self.tree.to_be_bytes(), &self.query.to_be_bytes(), key].concat()
    }

    /// The encoded key in a token; `None` for an empty one.
    pub(crate) fn position(&self, token: &[u8]) -> Result<Option<Vec<u8>>> {
        let wrong = |why: &str| {
            Err(Error::invalid(format!("the page token cannot be used: {why}"))
                .with_hint("begin again without one"))
        };
        if token.is_empty() {
            return Ok(None);
        }
        let Some((head, key)) = token.split_first_chunk::<16>() else { return wrong("it is too short") };
        if *head != self.token(&[])[..] {
            return wrong("it is of another collection or namespace, range or direction");
        }
        match decode(key).and_then(|elements| encode(&elements)) {
            Ok(encoded) if encoded == key && !key.is_empty() => Ok(Some(encoded)),
            _ => wrong("its position is no key"),
        }
    }
}
