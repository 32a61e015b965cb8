//! Revisions: optimistic concurrency control for documents that are read, edited and written back.
//!
//! Nothing is stored. A revision is a hash of the stored document, so it costs no space. A document that was
//! changed and changed back has the same revision. The order of the entries in a map does not count.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use crate::access::collection::Collection;
use crate::store::error::{Code, Error};
use crate::value::msgpack::in_key_order;

/// The contents of a document, as a hash. Its text is 32 hexadecimal digits, for a form or a header `ETag`.
///
/// The order of the entries in a map does not count, so a `HashMap` may be a field. A `HashSet` is stored as
/// a list, whose order counts. Converting a document of an earlier version writes the set in another order
/// each time. So until that document is migrated, each read of it gives another revision. Declare such a
/// field as `BTreeSet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision(u128);

impl Revision {
    /// The revision of a document without its version prefix.
    ///
    /// Bytes that are no document have a revision, too: reading them is what reports the error.
    pub(crate) fn of(document: &[u8]) -> Revision {
        match in_key_order(document) {
            Ok(ordered) => Revision(xxh3_128(&ordered)),
            Err(_) => Revision(xxh3_128(document)),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Revision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Revision, Error> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number
            .map(Revision)
            .ok_or_else(|| Error::invalid(format!("{text:?} is no revision: it has 32 hexadecimal digits")))
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Revision, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| serde::de::Error::custom(error.message()))
    }
}

/// A document and the revision it was read at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<C> {
    /// The document.
    pub document: C,
    /// Its revision.
    pub revision: Revision,
}

/// Why a document was not replaced.
#[derive(Debug)]
pub enum ReplaceError<C> {
    /// The document has changed: its current contents, or `None` if it was deleted.
    Changed(Option<Box<Versioned<C>>>),
    /// Any other error.
    Failed(Error),
}

impl<C> From<Error> for ReplaceError<C> {
    fn from(error: Error) -> Self {
        ReplaceError::Failed(error)
    }
}

impl<C: Collection> From<ReplaceError<C>> for Error {
    fn from(error: ReplaceError<C>) -> Error {
        match error {
            ReplaceError::Failed(error) => error,
            ReplaceError::Changed(current) => {
                let now = if current.is_some() { "has changed" } else { "was deleted" };
                Error::new(
                    Code::DocumentChanged,
                    format!("the document of {} {now} since the revision that was given", C::NAME),
                )
                .with_hint("look at what it is now, and write again with the revision it has")
            }
        }
    }
}

impl<C: Collection> fmt::Display for ReplaceError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceError::Failed(error) => error.fmt(f),
            ReplaceError::Changed(_) => write!(f, "the document of {} has changed", C::NAME),
        }
    }
}

impl<C: Collection + fmt::Debug> std::error::Error for ReplaceError<C> {}
