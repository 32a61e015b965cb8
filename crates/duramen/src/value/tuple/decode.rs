//! Decodes key bytes of any origin into typed elements.
//!
//! Owns the reading half of the tuple encoding. Accepts exactly what the encoder writes: a shorter or longer
//! form of the same value is an error, so equal keys are equal bytes.

use crate::store::limits::KEY_BYTES_MAX;

use super::{Element, check_length, code};
use crate::store::error::{Error, Result};
use crate::value::time::Time;
use crate::value::undecodable;

/// The elements of a key.
///
/// # Errors
/// `KeyTooLong` (E0202) beyond 1,024 bytes; `InvalidArgument` (E0201), naming the byte, for bytes that no key
/// has.
pub fn decode(bytes: &[u8]) -> Result<Vec<Element>> {
    // The limit on the length also limits the depth: each level takes at least one byte.
    const _: () = assert!(KEY_BYTES_MAX <= 4096, "recursion is bounded by the length of a key");
    check_length(bytes)?;
    let mut reader = Reader { bytes, at: 0, is_outermost: true };
    let mut elements = Vec::new();
    while let Some(tag) = reader.peek() {
        reader.at += 1;
        elements.push(reader.element(tag)?);
    }
    Ok(elements)
}

/// How many bytes the first `count` elements of a key take.
///
/// # Errors
/// As [`decode`]; `InvalidArgument` if there are fewer.
pub(crate) fn split(bytes: &[u8], count: usize) -> Result<usize> {
    bytes_of(bytes, count, |reader, tag| reader.element(tag).map(drop))
}

/// As [`split`], for rows of a view that lead to documents: no text is looked at, so any bytes may be in it.
///
/// # Errors
/// `InvalidArgument` for bytes in which an element does not end, or fewer elements.
pub(crate) fn split_unread(bytes: &[u8], count: usize) -> Result<usize> {
    bytes_of(bytes, count, |reader, tag| reader.pass(tag))
}

fn bytes_of(
    bytes: &[u8],
    count: usize,
    mut pass: impl FnMut(&mut Reader<'_>, u8) -> Result<()>,
) -> Result<usize> {
    let mut reader = Reader { bytes, at: 0, is_outermost: true };
    for _ in 0..count {
        let tag = reader.peek().ok_or_else(|| reader.wrong("it has too few elements"))?;
        reader.at += 1;
        pass(&mut reader, tag)?;
    }
    Ok(reader.at)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether elements may be descending: not those inside of others.
    is_outermost: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn wrong(&self, what: &str) -> Error {
        undecodable(format!("these bytes are not a key: at byte {}: {what}", self.at))
    }

    fn element(&mut self, tag: u8) -> Result<Element> {
        match tag {
            code::NULL => Ok(Element::Null),
            code::BYTES => Ok(Element::Bytes(self.escaped()?)),
            code::TEXT => {
                let bytes = self.escaped()?;
                let text =
                    String::from_utf8(bytes).map_err(|_| self.wrong("text that is not UTF-8 ends here"))?;
                Ok(Element::Text(text))
            }
            code::TUPLE => self.tuple(),
            code::INT_MIN..=code::INT_MAX => self.int(tag),
            code::FLOAT => {
                const SIGN: u64 = 1 << 63;
                let ordered = u64::from_be_bytes(self.take()?);
                let bits = if ordered & SIGN != 0 { ordered ^ SIGN } else { !ordered };
                Ok(Element::Float(f64::from_bits(bits)))
            }
            code::FALSE => Ok(Element::Bool(false)),
            code::TRUE => Ok(Element::Bool(true)),
            code::UUID => Ok(Element::Uuid(self.take()?)),
            code::TIME => self.time(),
            code::DESCENDING_MIN..=code::DESCENDING_SUM if self.is_outermost => self.descending(tag),
            other => {
                self.at -= 1;
                Err(self.wrong(&format!("{other:#04x} begins no element")))
            }
        }
    }

    /// Passes an element. Text and bytes are not made.
    fn pass(&mut self, tag: u8) -> Result<()> {
        match tag {
            code::BYTES | code::TEXT => self.pass_escaped(),
            _ => self.element(tag).map(drop),
        }
    }

    fn pass_escaped(&mut self) -> Result<()> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(length) = rest.iter().position(|&byte| byte == code::END) else {
                return Err(self.wrong("text or bytes without an end"));
            };
            self.at += length + 1;
            if self.peek() != Some(code::ESCAPE) {
                return Ok(());
            }
            self.at += 1;
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = self.bytes[self.at..].first_chunk::<N>().copied();
        let bytes = found.ok_or_else(|| self.wrong(&format!("{N} bytes wanted, the key ends before")))?;
        self.at += N;
        Ok(bytes)
    }

    fn escaped(&mut self) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        loop {
            let rest = &self.bytes[self.at..];
            let Some(length) = rest.iter().position(|&byte| byte == code::END) else {
                return Err(self.wrong("text or bytes without an end"));
            };
            value.extend_from_slice(&rest[..length]);
            self.at += length + 1;
            if self.peek() != Some(code::ESCAPE) {
                return Ok(value);
            }
            value.push(0);
            self.at += 1;
        }
    }

    /// The complement of the bytes is an ascending element.
    fn descending(&mut self, tag: u8) -> Result<Element> {
        let code = code::DESCENDING_SUM - tag;
        let mut inside: Vec<u8> = self.bytes[self.at - 1..].iter().map(|byte| !byte).collect();
        inside[0] = code;
        let mut reader = Reader { bytes: &inside, at: 1, is_outermost: false };
        let element = reader.element(code).map_err(|_| {
            self.wrong(&format!("the descending element that {tag:#04x} begins cannot be read"))
        })?;
        self.at += reader.at - 1;
        if code::has_end(code) {
            if self.peek() != Some(code::DESCENDING_END) {
                return Err(self.wrong("a descending element without an end"));
            }
            self.at += 1;
        }
        Ok(Element::Descending(Box::new(element)))
    }

    fn tuple(&mut self) -> Result<Element> {
        let was_outermost = std::mem::replace(&mut self.is_outermost, false);
        let mut elements = Vec::new();
        loop {
            let tag = self.peek().ok_or_else(|| self.wrong("a tuple without an end"))?;
            self.at += 1;
            if tag != code::END {
                elements.push(self.element(tag)?);
            } else if self.peek() == Some(code::ESCAPE) {
                self.at += 1;
                elements.push(Element::Null);
            } else {
                self.is_outermost = was_outermost;
                return Ok(Element::Tuple(elements));
            }
        }
    }

    fn int(&mut self, tag: u8) -> Result<Element> {
        let length = usize::from(tag.abs_diff(code::INT_ZERO));
        let rest = &self.bytes[self.at..];
        let digits = rest.get(..length).ok_or_else(|| self.wrong("an integer is cut short"))?;
        let negative = tag < code::INT_ZERO;
        let magnitude = digits
            .iter()
            .fold(0_u64, |value, &byte| value << 8 | u64::from(if negative { !byte } else { byte }));
        let leading = if negative { 0xff } else { 0x00 };
        if digits.first() == Some(&leading) {
            return Err(self.wrong("an integer has a shorter form"));
        }
        if negative && magnitude > i64::MIN.unsigned_abs() {
            return Err(self.wrong("an integer is less than 64 bits hold"));
        }
        self.at += length;
        let value = i128::from(magnitude);
        Ok(Element::Int(if negative { -value } else { value }))
    }

    fn time(&mut self) -> Result<Element> {
        const SIGN: u64 = 1 << 63;
        let seconds = (u64::from_be_bytes(self.take()?) ^ SIGN).cast_signed();
        let nanoseconds = u32::from_be_bytes(self.take()?);
        let time =
            Time::new(seconds, nanoseconds).ok_or_else(|| self.wrong("a second has fewer nanoseconds"))?;
        Ok(Element::Time(time))
    }
}
