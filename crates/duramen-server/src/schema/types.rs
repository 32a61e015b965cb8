//! The definitions of types that clients send.

use duramen::Value;
use duramen::error::{Code, Error, Result};
use duramen::wire::TypeDefinition;
use duramen_proto::{document, v1};

/// The most definitions of a call: those of a type and of those to which it refers.
const DEFINITIONS_MAX: usize = 64;

/// Their most bytes.
const BYTES_MAX: usize = 256 << 10;

/// The memory that they take once they are decoded.
///
/// # Errors
/// `TooLarge` (E0203) for too many of them, or too long ones.
pub(super) fn cost(request: &v1::EnsureTypeRequest) -> Result<usize> {
    let bytes: usize = request.definitions.iter().map(bytes::Bytes::len).sum();
    if request.definitions.len() > DEFINITIONS_MAX || bytes > BYTES_MAX {
        let what =
            format!("a call takes {DEFINITIONS_MAX} definitions of types, of {BYTES_MAX} bytes together");
        return Err(Error::new(Code::TooLarge, what).with_hint("give the type fewer references or fields"));
    }
    let parts = request.definitions.iter().map(|definition| Value::parts_of_msgpack(definition));
    // A definition is a document with another one in it, of at most as many parts as it has bytes.
    Ok(parts.sum::<usize>() * document::PART_BYTES + bytes * document::PART_BYTES)
}

/// The definitions.
///
/// # Errors
/// `InvalidArgument` (E0201) for one that is none.
pub(super) fn definitions(request: &v1::EnsureTypeRequest) -> Result<Vec<TypeDefinition>> {
    request.definitions.iter().map(|bytes| TypeDefinition::from_bytes(bytes)).collect()
}
