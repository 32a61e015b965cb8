//! Encodes typed elements as key bytes.
//!
//! Owns the writing half of the tuple encoding and the traits by which Rust values become keys. Allocates
//! only in the caller's buffer.

use std::cmp::Reverse;

use super::{Element, code};
use crate::store::error::{Error, Result};
use crate::value::time::Time;

/// Appends elements to a buffer, one after the other, without a copy of any.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
}

impl<'a> Encoder<'a> {
    /// Writes at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Encoder { out, depth: 0 }
    }

    /// Appends a null.
    pub fn null(&mut self) {
        self.out.push(code::NULL);
        if self.depth > 0 {
            self.out.push(code::ESCAPE);
        }
    }

    /// Appends a bool.
    pub fn bool(&mut self, value: bool) {
        self.out.push(if value { code::TRUE } else { code::FALSE });
    }

    /// Appends an integer of any sign.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) outside of `i64::MIN..=u64::MAX`.
    pub fn int(&mut self, value: i128) -> Result<()> {
        if let Ok(positive) = u64::try_from(value) {
            self.uint(positive);
            return Ok(());
        }
        let signed = i64::try_from(value)
            .map_err(|_| Error::invalid(format!("the integer {value} does not fit in 64 bits")))?;
        self.negative(signed.unsigned_abs());
        Ok(())
    }

    /// Appends a signed integer.
    pub fn i64(&mut self, value: i64) {
        if value < 0 { self.negative(value.unsigned_abs()) } else { self.uint(value.unsigned_abs()) }
    }

    /// Appends an unsigned integer: code by length, then big-endian without leading zeroes.
    pub fn uint(&mut self, value: u64) {
        let length = byte_length(value);
        self.out.push(code::INT_ZERO + length);
        self.out.extend_from_slice(&value.to_be_bytes()[usize::from(8 - length)..]);
    }

    /// A negative integer is the ones' complement of its magnitude, and its code falls with its length.
    fn negative(&mut self, magnitude: u64) {
        let length = byte_length(magnitude);
        self.out.push(code::INT_ZERO - length);
        self.out.extend_from_slice(&(!magnitude).to_be_bytes()[usize::from(8 - length)..]);
    }

    /// Appends a float. Every bit pattern keeps its position in the total order.
    pub fn float(&mut self, value: f64) {
        const SIGN: u64 = 1 << 63;
        let bits = value.to_bits();
        let ordered = if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
        self.out.push(code::FLOAT);
        self.out.extend_from_slice(&ordered.to_be_bytes());
    }

    /// Appends text.
    pub fn text(&mut self, value: &str) {
        self.out.push(code::TEXT);
        self.escaped(value.as_bytes());
    }

    /// Appends bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.out.push(code::BYTES);
        self.escaped(value);
    }

    /// A NUL becomes `00 ff` and the end is `00`: so "a" < "a\0" < "a\u{1}", whatever follows.
    fn escaped(&mut self, value: &[u8]) {
        if value.contains(&0) {
            for &byte in value {
                self.out.push(byte);
                if byte == 0 {
                    self.out.push(code::ESCAPE);
                }
            }
        } else {
            self.out.extend_from_slice(value);
        }
        self.out.push(code::END);
    }

    /// Appends a UUID.
    pub fn uuid(&mut self, value: [u8; 16]) {
        self.out.push(code::UUID);
        self.out.extend_from_slice(&value);
    }

    /// Appends a point in time: seconds with the sign bit turned, then nanoseconds, both big-endian.
    pub fn time(&mut self, value: Time) {
        const SIGN: u64 = 1 << 63;
        self.out.push(code::TIME);
        self.out.extend_from_slice(&(value.seconds().cast_unsigned() ^ SIGN).to_be_bytes());
        self.out.extend_from_slice(&value.nanoseconds().to_be_bytes());
    }

    /// Appends a tuple as one element.
    ///
    /// # Errors
    /// As [`Encoder::element`].
    pub fn tuple(&mut self, elements: &[Element]) -> Result<()> {
        self.out.push(code::TUPLE);
        self.depth += 1;
        for element in elements {
            self.element(element)?;
        }
        self.depth -= 1;
        self.out.push(code::END);
        Ok(())
    }

    /// Appends the element that `write` appends, in the opposite order.
    ///
    /// Its bytes are the complement of the ascending ones. A text is ended by two bytes: one could be taken
    /// for a NUL if a null follows. The first byte is less than `ff`, which is after every element.
    ///
    /// # Errors
    /// As `write`; `InvalidArgument` (E0201) inside of a tuple, and for a second direction.
    pub(crate) fn descending(&mut self, write: impl FnOnce(&mut Encoder<'_>) -> Result<()>) -> Result<()> {
        let from = self.out.len();
        write(self)?;
        let Some(first) = self.out.get(from).copied().filter(|first| *first <= code::TIME && self.depth == 0)
        else {
            return Err(Error::invalid("a descending element is inside of another, or of a tuple")
                .with_hint("only whole elements of a key have a direction, and one each"));
        };
        self.out[from..].iter_mut().for_each(|byte| *byte = !*byte);
        self.out[from] = code::DESCENDING_SUM - first;
        if code::has_end(first) {
            self.out.push(code::DESCENDING_END);
        }
        Ok(())
    }

    /// Appends an element of any type.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer that does not fit in 64 bits, and for a descending element
    /// inside of another one.
    pub fn element(&mut self, element: &Element) -> Result<()> {
        match element {
            Element::Null => self.null(),
            Element::Bytes(value) => self.bytes(value),
            Element::Text(value) => self.text(value),
            Element::Tuple(elements) => return self.tuple(elements),
            Element::Int(value) => return self.int(*value),
            Element::Float(value) => self.float(*value),
            Element::Bool(value) => self.bool(*value),
            Element::Uuid(value) => self.uuid(*value),
            Element::Time(value) => self.time(*value),
            Element::Descending(inside) => return self.descending(|encoder| encoder.element(inside)),
        }
        Ok(())
    }
}

/// Bytes of a magnitude without its leading zeroes; zero has none.
fn byte_length(magnitude: u64) -> u8 {
    let bits = u64::BITS - magnitude.leading_zeros();
    u8::try_from(bits.div_ceil(8)).expect("64 bits are 8 bytes")
}

/// A value that can be one element of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a key",
    note = "u8 to u64, i8 to i64, f64, bool, text, bytes, `Time`, `Option` of these, `Element` and types with \
            #[derive(Key)] can; a usize becomes a u64, and a u128 a `ByteArray<16>` of its `to_be_bytes`"
)]
pub trait AsElement {
    /// Appends itself.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer that does not fit in 64 bits.
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()>;
}

/// A value that can be a key, or the leading elements of one: an element or a tuple of up to eight.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    note = "use an element (`1`, `\"UA\"`) or a tuple of elements (`(\"UA\", 1545)`)"
)]
pub trait Key {
    /// Appends its elements.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer that does not fit in 64 bits.
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()>;
}

macro_rules! elements {
    ($($kind:ty, |$value:ident, $encoder:ident| $body:expr;)*) => {$(
        impl AsElement for $kind {
            fn append(&self, $encoder: &mut Encoder<'_>) -> Result<()> {
                let $value = self;
                $body;
                Ok(())
            }
        }

        impl Key for $kind {
            fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
                self.append(encoder)
            }
        }
    )*};
}

elements! {
    i8, |v, e| e.i64(i64::from(*v));
    i16, |v, e| e.i64(i64::from(*v));
    i32, |v, e| e.i64(i64::from(*v));
    i64, |v, e| e.i64(*v);
    u8, |v, e| e.uint(u64::from(*v));
    u16, |v, e| e.uint(u64::from(*v));
    u32, |v, e| e.uint(u64::from(*v));
    u64, |v, e| e.uint(*v);
    bool, |v, e| e.bool(*v);
    f64, |v, e| e.float(*v);
    str, |v, e| e.text(v);
    String, |v, e| e.text(v);
    [u8], |v, e| e.bytes(v);
    Vec<u8>, |v, e| e.bytes(v);
    Time, |v, e| e.time(*v);
    Element, |v, e| e.element(v)?;
}

/// Bytes, as a slice of them.
impl<const N: usize> AsElement for [u8; N] {
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.as_slice().append(encoder)
    }
}

impl<const N: usize> Key for [u8; N] {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.append(encoder)
    }
}

impl<T: AsElement + ?Sized> AsElement for &T {
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        (**self).append(encoder)
    }
}

impl<T: AsElement> AsElement for Option<T> {
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        match self {
            Some(value) => value.append(encoder),
            None => {
                encoder.null();
                Ok(())
            }
        }
    }
}

impl<T: AsElement> Key for Option<T> {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.append(encoder)
    }
}

impl<T: AsElement> AsElement for Reverse<T> {
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        encoder.descending(|encoder| self.0.append(encoder))
    }
}

impl<T: AsElement> Key for Reverse<T> {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.append(encoder)
    }
}

impl<T: Key + ?Sized> Key for &T {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        (**self).write(encoder)
    }
}

impl Key for () {
    fn write(&self, _: &mut Encoder<'_>) -> Result<()> {
        Ok(())
    }
}

impl Key for [Element] {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.iter().try_for_each(|element| encoder.element(element))
    }
}

impl Key for Vec<Element> {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.as_slice().write(encoder)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+);)*) => {$(
        impl<$($name: AsElement),+> Key for ($($name,)+) {
            fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
                $(self.$index.append(encoder)?;)+
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}
