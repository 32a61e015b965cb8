//! MessagePack, token by token: how documents and catalogue entries are stored.
//!
//! Owns the byte layout of documents (docs/format.md, section "Documents"): maps with field names, integers
//! in their shortest form and exact to 64 bits, floats as 64 bits, times as the timestamp extension. Pure
//! functions on bytes. Foreign bytes become errors, never panics. A length is not trusted before its bytes
//! are seen.

mod key_order;
#[cfg(test)]
mod tests;

pub(crate) use key_order::in_key_order;

use std::borrow::Cow;

use crate::store::error::{Error, Result};
use crate::value::time::Time;
use crate::value::undecodable;

/// Deepest nesting of lists and maps that is read or written.
pub(crate) const DEPTH_MAX: usize = 64;

/// The extension type of times, as the MessagePack specification sets it.
const TIMESTAMP: u8 = 0xff;

/// One token of a document. Lists and maps have the number of items (pairs) that follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
    /// A [`Token::Text`] not yet checked to be UTF-8; never returned by [`Reader::next`].
    UncheckedText(&'a [u8]),
    Bytes(&'a [u8]),
    Time(Time),
    List(usize),
    Map(usize),
}

/// The bytes of a scalar that begins with a tag; 0 where the tag alone does not say.
const SCALAR_BYTES: [u8; 256] = {
    let (mut bytes, mut tag) = ([0; 256], 0);
    while tag < 256 {
        bytes[tag] = match tag {
            0x00..=0x7f | 0xc0 | 0xc2..=0xc3 | 0xe0..=0xff => 1,
            0xa0..=0xbf => 1 + (tag.to_le_bytes()[0] & 0x1f),
            0xca => 5,
            0xcb => 9,
            0xcc..=0xd3 => 1 + (1 << (tag & 3)),
            _ => 0,
        };
        tag += 1;
    }
    bytes
};

/// What [`Reader::pass`] passed.
enum Passed {
    /// A scalar that can be shown as the name of a field: text, an integer, a bool or a time.
    Name,
    /// Another scalar.
    Other,
    List(usize),
    Map(usize),
}

/// Checks that every reader can decode a foreign document: its depth is limited, and its map keys can be
/// shown as names.
///
/// # Errors
/// `InvalidArgument` with the reason.
pub(crate) fn check(document: &[u8]) -> Result<()> {
    let mut reader = Reader::new(document);
    // Items left in the innermost open list or map, and whether names are among them. Those around it wait.
    let (mut left, mut is_map) = (1_usize, false);
    let mut around: Vec<(usize, bool)> = Vec::new();
    let mut depth = 0;
    loop {
        let is_name = is_map && left.is_multiple_of(2);
        left -= 1;
        let opened = match reader.pass()? {
            Passed::Name => None,
            _ if is_name => return Err(reader.wrong("a map has a key that cannot be shown as a name")),
            Passed::Other => None,
            Passed::List(count) => Some((count, false)),
            Passed::Map(count) => Some((2 * count, true)),
        };
        if let Some(opened) = opened {
            // Nothing follows the document itself.
            if depth > 0 {
                around.push((left, is_map));
            }
            depth += 1;
            if depth > DEPTH_MAX {
                return Err(
                    reader.wrong(&format!("lists and maps in a document nest at most {DEPTH_MAX} deep"))
                );
            }
            (left, is_map) = opened;
        }
        while left == 0 {
            let Some(outer) = around.pop() else { return Ok(()) };
            depth -= 1;
            (left, is_map) = outer;
        }
    }
}

/// How many values and names of fields bytes hold, up to the first that is none.
pub(crate) fn count_parts(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut count = 0;
    while !reader.at_end() && reader.pass().is_ok() {
        count += 1;
    }
    count
}

/// Whether a stored document begins with an integer: the number of its shape.
pub(crate) fn begins_with_a_shape(document: &[u8]) -> bool {
    matches!(document.first(), Some(0x00..=0x7f | 0xcc..=0xce))
}

/// Whether two texts of one length are the same. They are short: a call of `memcmp` takes longer on some
/// processors.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut differ = 0;
    for (one, other) in one.iter().zip(other) {
        differ |= one ^ other;
    }
    differ == 0
}

/// Reads tokens one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Whether a list or a map follows.
    pub(crate) fn is_before_items(&self) -> bool {
        matches!(self.bytes.get(self.at), Some(0x80..=0x9f | 0xdc..=0xdf))
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// An error with the current position.
    #[cold]
    pub(crate) fn wrong(&self, what: &str) -> Error {
        undecodable(format!("these bytes are not a document: at byte {}: {what}", self.at))
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> Result<Token<'a>> {
        match self.unchecked()? {
            Token::UncheckedText(bytes) => self.checked(bytes).map(Token::Text),
            token => Ok(token),
        }
    }

    /// The next token, which is not passed. Most are integers: these are made where the caller wants them. To
    /// copy a token right after it was made stalls the processor.
    #[inline]
    pub(crate) fn peek(&self) -> Result<Token<'a>> {
        match self.bytes.get(self.at..) {
            Some([tag @ 0x00..=0x7f, ..]) => Ok(Token::Int(i128::from(*tag))),
            Some([tag @ 0xe0..=0xff, ..]) => Ok(Token::Int(i128::from(tag.cast_signed()))),
            Some([0xcd, high, low, ..]) => Ok(Token::Int(i128::from(u16::from_be_bytes([*high, *low])))),
            Some([0xd1, high, low, ..]) => Ok(Token::Int(i128::from(i16::from_be_bytes([*high, *low])))),
            _ => self.clone().next(),
        }
    }

    /// The next token, its text not yet checked.
    fn unchecked(&mut self) -> Result<Token<'a>> {
        let [tag] = self.take::<1>()?;
        Ok(match tag {
            0x00..=0x7f => Token::Int(i128::from(tag)),
            0x80..=0x8f => Token::Map(usize::from(tag & 0x0f)),
            0x90..=0x9f => Token::List(usize::from(tag & 0x0f)),
            0xa0..=0xbf => Token::UncheckedText(self.slice(u32::from(tag & 0x1f))?),
            0xe0..=0xff => Token::Int(i128::from(tag.cast_signed())),
            0xc0 => Token::Null,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.take()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.take()?)),
            0xcc..=0xcf => Token::Int(i128::from(self.unsigned(tag - 0xcc)?)),
            0xd0..=0xd3 => Token::Int(i128::from(self.signed(tag - 0xd0)?)),
            0xc4..=0xc6 => {
                let length = self.length(tag - 0xc4)?;
                Token::Bytes(self.slice(length)?)
            }
            0xd9..=0xdb => {
                let length = self.length(tag - 0xd9)?;
                Token::UncheckedText(self.slice(length)?)
            }
            0xdc..=0xdd => Token::List(self.items(tag - 0xdc)?),
            0xde..=0xdf => Token::Map(self.items(tag - 0xde)?),
            0xd6 => self.timestamp(4)?,
            0xd7 => self.timestamp(8)?,
            0xc7 => {
                let [length] = self.take::<1>()?;
                self.timestamp(length)?
            }
            other => return Err(self.wrong(&format!("{other:#04x} begins nothing that a document holds"))),
        })
    }

    /// Skips one value of any kind, without recursion and without checking its text.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.skip_values(1)
    }

    /// Skips so many values.
    pub(crate) fn skip_values(&mut self, count: usize) -> Result<()> {
        let (mut open, mut at) = (count as u64, self.at);
        while open > 0 {
            let Some(tag) = self.bytes.get(at) else { break };
            open -= 1;
            // A branch is predicted. Without it each value waits for the length of the one before.
            if *tag < 0x80 {
                at += 1;
                continue;
            }
            let bytes = usize::from(SCALAR_BYTES[usize::from(*tag)]);
            if bytes > 0 {
                at += bytes;
                continue;
            }
            self.at = at;
            match self.pass()? {
                Passed::Name | Passed::Other => {}
                Passed::List(count) => open += count as u64,
                Passed::Map(count) => open += 2 * count as u64,
            }
            at = self.at;
        }
        self.at = at.min(self.bytes.len());
        if open > 0 || at > self.bytes.len() { Err(self.ends()) } else { Ok(()) }
    }

    /// Passes one token without making a value of it: much less work than [`Reader::next`].
    fn pass(&mut self) -> Result<Passed> {
        let tag = *self.bytes.get(self.at).ok_or_else(|| self.ends())?;
        let (bytes, passed) = match tag {
            0x00..=0x7f | 0xe0..=0xff | 0xc2 | 0xc3 => (0, Passed::Name),
            0xa0..=0xbf => (usize::from(tag & 0x1f), Passed::Name),
            0xcc..=0xd3 => (1 << (tag & 3), Passed::Name),
            0xc0 => (0, Passed::Other),
            0xca => (4, Passed::Other),
            0xcb => (8, Passed::Other),
            0x80..=0x8f => (0, Passed::Map(usize::from(tag & 0x0f))),
            0x90..=0x9f => (0, Passed::List(usize::from(tag & 0x0f))),
            _ => return self.pass_rarer(),
        };
        let end = self.at + 1 + bytes;
        if end > self.bytes.len() {
            return Err(self.ends());
        }
        self.at = end;
        Ok(passed)
    }

    fn pass_rarer(&mut self) -> Result<Passed> {
        Ok(match self.unchecked()? {
            Token::UncheckedText(_) | Token::Time(_) => Passed::Name,
            Token::List(count) => Passed::List(count),
            Token::Map(count) => Passed::Map(count),
            _ => Passed::Other,
        })
    }

    #[cold]
    fn ends(&self) -> Error {
        self.wrong("it ends in the middle of a value")
    }

    /// Skips one value and returns its bytes.
    pub(crate) fn raw(&mut self) -> Result<&'a [u8]> {
        let from = self.at;
        self.skip()?;
        Ok(&self.bytes[from..self.at])
    }

    /// Reads a map's header, or fails.
    pub(crate) fn map(&mut self) -> Result<usize> {
        match self.next()? {
            Token::Map(count) => Ok(count),
            _ => Err(self.wrong("a map was wanted")),
        }
    }

    /// Reads a key of a map, or fails.
    ///
    /// Maps in typed documents may have integers, bools or times as keys: these get the names under which
    /// they are shown.
    pub(crate) fn name(&mut self) -> Result<Cow<'a, str>> {
        Ok(match self.next()? {
            Token::Text(name) => Cow::Borrowed(name),
            Token::Int(key) => Cow::Owned(key.to_string()),
            Token::Bool(key) => Cow::Owned(key.to_string()),
            Token::Time(key) => Cow::Owned(key.to_string()),
            _ => return Err(self.wrong("the name of a field was wanted, and names are text")),
        })
    }

    /// Reads the name of a field of a document, or fails.
    pub(crate) fn text_name(&mut self) -> Result<&'a str> {
        let name = self.name_bytes()?;
        self.checked(name)
    }

    /// Whether the name of a field follows, and is this one: then it is read. After `false` the reader stands
    /// at the name or behind it. Names need not be text.
    pub(crate) fn name_is(&mut self, name: &str) -> Result<bool> {
        let name = name.as_bytes();
        // Of the usual length, it is one byte and the name.
        if let (0..32, Some([tag, rest @ ..])) = (name.len(), self.bytes.get(self.at..))
            && usize::from(*tag) == 0xa0 + name.len()
        {
            let is_it = rest.get(..name.len()).is_some_and(|found| is_same(found, name));
            if is_it {
                self.at += 1 + name.len();
            }
            return Ok(is_it);
        }
        Ok(matches!(self.unchecked()?, Token::UncheckedText(found) if found == name))
    }

    /// Reads the name of a field without checking its UTF-8, to compare it with another.
    pub(crate) fn name_bytes(&mut self) -> Result<&'a [u8]> {
        match self.unchecked()? {
            Token::UncheckedText(name) => Ok(name),
            _ => Err(self.wrong("the name of a field was wanted, and names are text")),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = self.bytes[self.at..].first_chunk::<N>().copied();
        let bytes = found.ok_or_else(|| self.ends())?;
        self.at += N;
        Ok(bytes)
    }

    fn slice(&mut self, length: u32) -> Result<&'a [u8]> {
        let found = self.bytes[self.at..].get(..length as usize);
        let slice = found.ok_or_else(|| self.ends())?;
        self.at += slice.len();
        Ok(slice)
    }

    fn checked(&self, text: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(text).map_err(|_| self.wrong("text that is not UTF-8 ends here"))
    }

    fn unsigned(&mut self, power: u8) -> Result<u64> {
        Ok(match power {
            0 => u64::from(u8::from_be_bytes(self.take()?)),
            1 => u64::from(u16::from_be_bytes(self.take()?)),
            2 => u64::from(u32::from_be_bytes(self.take()?)),
            _ => u64::from_be_bytes(self.take()?),
        })
    }

    fn signed(&mut self, power: u8) -> Result<i64> {
        Ok(match power {
            0 => i64::from(i8::from_be_bytes(self.take()?)),
            1 => i64::from(i16::from_be_bytes(self.take()?)),
            2 => i64::from(i32::from_be_bytes(self.take()?)),
            _ => i64::from_be_bytes(self.take()?),
        })
    }

    fn length(&mut self, power: u8) -> Result<u32> {
        Ok(match power {
            0 => u32::from(u8::from_be_bytes(self.take()?)),
            1 => u32::from(u16::from_be_bytes(self.take()?)),
            _ => u32::from_be_bytes(self.take()?),
        })
    }

    fn items(&mut self, power: u8) -> Result<usize> {
        Ok(self.length(power + 1)? as usize)
    }

    fn timestamp(&mut self, length: u8) -> Result<Token<'a>> {
        let [kind] = self.take::<1>()?;
        if kind != TIMESTAMP {
            return Err(self.wrong(&format!("extension {} is not known", kind.cast_signed())));
        }
        let (seconds, nanoseconds) = match length {
            4 => (i64::from(u32::from_be_bytes(self.take()?)), 0),
            8 => {
                const SECONDS_BITS: u32 = 34;
                let packed = u64::from_be_bytes(self.take()?);
                let nanoseconds = u32::try_from(packed >> SECONDS_BITS).expect("30 bits are left");
                ((packed & ((1 << SECONDS_BITS) - 1)).cast_signed(), nanoseconds)
            }
            12 => {
                let nanoseconds = u32::from_be_bytes(self.take()?);
                (i64::from_be_bytes(self.take()?), nanoseconds)
            }
            _ => return Err(self.wrong("a time takes 4, 8 or 12 bytes")),
        };
        let time =
            Time::new(seconds, nanoseconds).ok_or_else(|| self.wrong("a second has fewer nanoseconds"))?;
        Ok(Token::Time(time))
    }
}

/// The writing half: each function appends one token.
pub(crate) mod write {
    use super::{Error, Result, TIMESTAMP, Time};

    pub(crate) fn null(out: &mut Vec<u8>) {
        out.push(0xc0);
    }

    pub(crate) fn bool(out: &mut Vec<u8>, value: bool) {
        out.push(if value { 0xc3 } else { 0xc2 });
    }

    /// Appends an integer in the shortest form. Fails outside of `i64::MIN..=u64::MAX`.
    pub(crate) fn int(out: &mut Vec<u8>, value: i128) -> Result<()> {
        if let Ok(positive) = u64::try_from(value) {
            unsigned(out, positive);
            return Ok(());
        }
        let signed = i64::try_from(value)
            .map_err(|_| Error::invalid(format!("the integer {value} does not fit in 64 bits")))?;
        negative(out, signed);
        Ok(())
    }

    fn unsigned(out: &mut Vec<u8>, value: u64) {
        if let Ok(byte) = u8::try_from(value) {
            if byte >= 0x80 {
                out.push(0xcc);
            }
            out.push(byte);
        } else if let Ok(short) = u16::try_from(value) {
            out.push(0xcd);
            out.extend_from_slice(&short.to_be_bytes());
        } else if let Ok(word) = u32::try_from(value) {
            out.push(0xce);
            out.extend_from_slice(&word.to_be_bytes());
        } else {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }

    fn negative(out: &mut Vec<u8>, value: i64) {
        if let Ok(byte) = i8::try_from(value) {
            if byte < -32 {
                out.push(0xd0);
            }
            out.push(byte.cast_unsigned());
        } else if let Ok(short) = i16::try_from(value) {
            out.push(0xd1);
            out.extend_from_slice(&short.to_be_bytes());
        } else if let Ok(word) = i32::try_from(value) {
            out.push(0xd2);
            out.extend_from_slice(&word.to_be_bytes());
        } else {
            out.push(0xd3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }

    pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
        out.push(0xcb);
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn text(out: &mut Vec<u8>, value: &str) -> Result<()> {
        match u8::try_from(value.len()) {
            Ok(length @ 0..32) => out.push(0xa0 | length),
            _ => length(out, [0xd9, 0xda, 0xdb], value.len())?,
        }
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    pub(crate) fn bytes(out: &mut Vec<u8>, value: &[u8]) -> Result<()> {
        length(out, [0xc4, 0xc5, 0xc6], value.len())?;
        out.extend_from_slice(value);
        Ok(())
    }

    /// Appends a time as the 96-bit timestamp, whatever its value: one form only.
    pub(crate) fn time(out: &mut Vec<u8>, value: Time) {
        out.extend_from_slice(&[0xc7, 12, TIMESTAMP]);
        out.extend_from_slice(&value.nanoseconds().to_be_bytes());
        out.extend_from_slice(&value.seconds().to_be_bytes());
    }

    pub(crate) fn list(out: &mut Vec<u8>, count: usize) -> Result<()> {
        match u8::try_from(count) {
            Ok(count @ 0..16) => out.push(0x90 | count),
            _ => items(out, [0xdc, 0xdd], count)?,
        }
        Ok(())
    }

    pub(crate) fn map(out: &mut Vec<u8>, count: usize) -> Result<()> {
        match u8::try_from(count) {
            Ok(count @ 0..16) => out.push(0x80 | count),
            _ => items(out, [0xde, 0xdf], count)?,
        }
        Ok(())
    }

    fn length(out: &mut Vec<u8>, tags: [u8; 3], length: usize) -> Result<()> {
        if let Ok(byte) = u8::try_from(length) {
            out.extend_from_slice(&[tags[0], byte]);
            return Ok(());
        }
        items(out, [tags[1], tags[2]], length)
    }

    fn items(out: &mut Vec<u8>, tags: [u8; 2], count: usize) -> Result<()> {
        if let Ok(short) = u16::try_from(count) {
            out.push(tags[0]);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            let word = u32::try_from(count).map_err(|_| {
                Error::invalid("text, bytes, lists and maps in a document hold less than 4 GiB")
            })?;
            out.push(tags[1]);
            out.extend_from_slice(&word.to_be_bytes());
        }
        Ok(())
    }
}
