//! Values and their encodings: documents, keys and times.

pub(crate) mod clock;
pub(crate) mod column;
pub mod document;
pub mod json;
pub(crate) mod msgpack;
pub(crate) mod range;
pub(crate) mod span;
pub mod time;
pub mod tuple;
pub(crate) mod version;
