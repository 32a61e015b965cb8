//! Values and their encodings: documents, keys and times.

pub(crate) mod byte_array;
pub(crate) mod clock;
pub(crate) mod column;
pub mod document;
pub mod json;
pub(crate) mod msgpack;
pub(crate) mod path;
pub(crate) mod range;
mod read_as;
pub(crate) mod span;
pub mod time;
pub(crate) mod ttl;
pub mod tuple;
pub(crate) mod version;

use crate::store::error::Error;

/// The error of bytes that are no document or no key. They may come from a call or from the database.
#[cold]
pub(crate) fn undecodable(what: String) -> Error {
    Error::invalid(what).with_hint(
        "correct them if they were given in the call; if they are stored, `duramen check DB` lists such documents: \
         put them again, or delete them",
    )
}
