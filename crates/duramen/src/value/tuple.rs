//! Order-preserving keys: tuples of typed elements as bytes that compare as the tuples do.
//!
//! Owns the encoding of every key of every collection. It is part of the file format and frozen.
//! docs/format.md, section "Keys", defines it byte by byte; golden vectors in the tests pin it. The type
//! codes are those of FoundationDB's tuple layer, so that there is another implementation to test against;
//! `time` is our own.
//!
//! Never accesses a disk; never panics on foreign bytes. Accepts only canonical encodings: decoding and
//! encoding again gives the same bytes.

mod decode;
mod directions;
mod encode;
mod enums;
mod owned;
#[cfg(test)]
mod tests;
#[cfg(feature = "uuid")]
mod uuids;

use std::cmp::Ordering;
use std::fmt;

use crate::store::limits::KEY_BYTES_MAX;

pub use decode::decode;
pub(crate) use decode::{split, split_unread};
pub(crate) use directions::{ascending, directed, values};
pub use encode::{AsElement, Encoder, Key};
#[doc(hidden)]
pub use enums::{AnyForm, FormOf, KnownForm};
pub use enums::{EnumElement, EnumForm, unknown_number};
pub use owned::{ElementFor, KeyFor, OwnedElement, OwnedKey, PrefixFor, unexpected};

use crate::store::error::{Code, Error, Result};
use crate::value::time::Time;

/// One typed element of a key.
///
/// Elements of different types are ordered by type: null, bytes, text, tuple, integer, float, bool, uuid,
/// time. Descending elements have the opposite order, and come after all others.
#[derive(Debug, Clone)]
pub enum Element {
    /// Nothing; before everything else.
    Null,
    /// Bytes, compared as bytes; a prefix comes first.
    Bytes(Vec<u8>),
    /// Text, compared as its UTF-8 bytes, which is the order of code points.
    Text(String),
    /// A tuple inside the tuple, compared element by element; a prefix comes first.
    Tuple(Vec<Element>),
    /// An integer from `i64::MIN` to `u64::MAX`, in one order.
    Int(i128),
    /// A float in IEEE total order: -NaN, -inf, ..., -0.0, 0.0, ..., inf, NaN.
    Float(f64),
    /// False before true.
    Bool(bool),
    /// A UUID, compared as its 16 bytes.
    Uuid([u8; 16]),
    /// A point in time.
    Time(Time),
    /// Another element, in the opposite order. It is not inside of tuples, nor inside of another one.
    Descending(Box<Element>),
}

impl Element {
    /// The element without a direction.
    pub(crate) fn ascending(self) -> Element {
        match self {
            Element::Descending(element) => *element,
            element => element,
        }
    }

    /// The element in a direction.
    pub(crate) fn directed(self, is_descending: bool) -> Element {
        match self {
            Element::Descending(_) => self,
            element if is_descending => Element::Descending(Box::new(element)),
            element => element,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Null => 0,
            Element::Bytes(_) => 1,
            Element::Text(_) => 2,
            Element::Tuple(_) => 3,
            Element::Int(_) => 4,
            Element::Float(_) => 5,
            Element::Bool(_) => 6,
            Element::Uuid(_) => 7,
            Element::Time(_) => 8,
            Element::Descending(_) => 9,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Bytes(a), Element::Bytes(b)) => a.cmp(b),
            (Element::Text(a), Element::Text(b)) => a.cmp(b),
            (Element::Tuple(a), Element::Tuple(b)) => a.cmp(b),
            (Element::Int(a), Element::Int(b)) => a.cmp(b),
            (Element::Float(a), Element::Float(b)) => a.total_cmp(b),
            (Element::Bool(a), Element::Bool(b)) => a.cmp(b),
            (Element::Uuid(a), Element::Uuid(b)) => a.cmp(b),
            (Element::Time(a), Element::Time(b)) => a.cmp(b),
            (Element::Descending(a), Element::Descending(b)) => b.cmp(a),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl fmt::Display for Element {
    /// Readable form for messages. It cannot be parsed back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Null => f.write_str("null"),
            Element::Bytes(bytes) => write_hex(f, bytes),
            Element::Uuid(bytes) => write_hex(f, bytes),
            Element::Text(text) => f.write_str(text),
            Element::Tuple(elements) => {
                f.write_str("(")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index > 0 { "," } else { "" })?;
                }
                f.write_str(")")
            }
            Element::Int(value) => value.fmt(f),
            Element::Float(value) => write!(f, "{value:?}"),
            Element::Bool(value) => value.fmt(f),
            Element::Time(time) => time.fmt(f),
            Element::Descending(element) => element.fmt(f),
        }
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// The bytes of a key.
///
/// # Errors
/// `KeyTooLong` (E0202) beyond 1,024 bytes; `InvalidArgument` (E0201) for an integer that does not fit in 64
/// bits.
pub fn encode(key: &(impl Key + ?Sized)) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(64);
    key.write(&mut Encoder::new(&mut out))?;
    check_length(&out)?;
    Ok(out)
}

/// The smallest byte string greater than `key`.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The bound above every key whose leading elements are those encoded in `prefix`.
///
/// Half-open: `prefix <= key < prefix_end(prefix)` holds exactly for those keys. No element begins with
/// `0xff`. A text or bytes element that continues after an escaped NUL continues with `0xff`, so it is
/// correctly outside.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(prefix.len() + 1);
    end.extend_from_slice(prefix);
    end.push(0xff);
    end
}

/// A key in readable form, for messages.
pub(crate) fn show(key: &[u8]) -> String {
    let shown =
        |elements: Vec<Element>| elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    decode(key).map_or_else(|_| "that key".to_owned(), shown)
}

/// Returns an error for a key that is too long.
pub(crate) fn check_length(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::new(
            Code::KeyTooLong,
            format!("the key takes {} bytes, and a key may take {KEY_BYTES_MAX}", key.len()),
        )
        .with_hint("use shorter columns as the key"));
    }
    Ok(())
}

/// The first byte of each ascending element, by type. The order of the codes is the order of the types.
mod code {
    pub(super) const NULL: u8 = 0x00;
    pub(super) const BYTES: u8 = 0x01;
    pub(super) const TEXT: u8 = 0x02;
    pub(super) const TUPLE: u8 = 0x05;
    /// The integer zero; `INT_ZERO + n` and `INT_ZERO - n` begin positive and negative ones of n bytes.
    pub(super) const INT_ZERO: u8 = 0x14;
    pub(super) const INT_BYTES_MAX: u8 = 8;
    pub(super) const INT_MIN: u8 = INT_ZERO - INT_BYTES_MAX;
    pub(super) const INT_MAX: u8 = INT_ZERO + INT_BYTES_MAX;
    pub(super) const FLOAT: u8 = 0x21;
    pub(super) const FALSE: u8 = 0x26;
    pub(super) const TRUE: u8 = 0x27;
    pub(super) const UUID: u8 = 0x30;
    pub(super) const TIME: u8 = 0x40;
    /// Ends text, bytes and tuples.
    pub(super) const END: u8 = 0x00;
    /// After a 0x00: it was a NUL (in text and bytes) or a null (in a tuple), not the end.
    pub(super) const ESCAPE: u8 = 0xff;
    /// The sum of an element's first byte and that of its descending form, which is never 0xff.
    pub(super) const DESCENDING_SUM: u8 = 0xfe;
    /// The least first byte of a descending element.
    pub(super) const DESCENDING_MIN: u8 = DESCENDING_SUM - TIME;
    /// Ends descending text, bytes and tuples, after the complement of [`END`].
    pub(super) const DESCENDING_END: u8 = 0xff;

    /// Whether elements that begin so end with [`END`].
    pub(super) fn has_end(code: u8) -> bool {
        matches!(code, BYTES | TEXT | TUPLE)
    }
}
