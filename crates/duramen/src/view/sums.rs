//! The built-in reducer `sums`: exact sums of named integer fields of documents, and how many were null.
//!
//! Owns the stored form of these reductions (docs/format.md, section "Documents and collections"). The tree
//! itself counts entries. Sums are exact in 128 bits: 2^63 values of 64 bits fit. Floats are not supported:
//! their sum would depend on the order of additions, and so on page splits.

#[cfg(test)]
mod tests;

use crate::store::{Reducer, ReducerSpec};

use crate::store::error::{Code, Error, Result};
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, write};
use crate::value::version;

/// The reducer's name in the catalogue.
pub const NAME: &str = "sums";

/// The version of its stored form.
pub const VERSION: u32 = 1;

/// The maximum number of summed fields of a collection: their longest reductions still fit in a node beside
/// its largest keys.
pub const FIELDS_MAX: usize = 16;

const VARINT_128_BYTES_MAX: usize = 19;
const VARINT_64_BYTES_MAX: usize = 10;
const _: () = assert!(
    FIELDS_MAX * (VARINT_128_BYTES_MAX + VARINT_64_BYTES_MAX) <= crate::store::limits::REDUCTION_BYTES_MAX,
    "the widest reduction fits in a child entry"
);

/// The stand-in for an unreadable reduction: a lone unfinished number, which is never valid.
///
/// It survives `join`, which cannot fail; decoding it is an error.
const UNREADABLE: &[u8] = &[0xff];

/// The sum over one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSum {
    /// The exact sum of the integers.
    pub sum: i128,
    /// Documents in which the field is null or absent; they count as zero.
    pub nulls: u64,
}

/// The reducer over a list of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    fields: Vec<String>,
}

impl Sums {
    /// The sums of these fields, in this order.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for more than 16 fields or one named twice.
    pub fn new(fields: &[String]) -> Result<Sums> {
        if fields.len() > FIELDS_MAX {
            return Err(Error::invalid(format!(
                "{} fields to sum, and a collection can sum {FIELDS_MAX}",
                fields.len()
            )));
        }
        if let Some(i) = (1..fields.len()).find(|&i| fields[..i].contains(&fields[i])) {
            return Err(Error::invalid(format!("the field {} is to be summed twice", fields[i])));
        }
        Ok(Sums { fields: fields.to_vec() })
    }

    /// The spec in the engine's catalogue.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for names beyond 4 GiB.
    pub fn spec(&self) -> Result<ReducerSpec> {
        let mut params = Vec::new();
        write::list(&mut params, self.fields.len())?;
        for field in &self.fields {
            write::text(&mut params, field)?;
        }
        Ok(ReducerSpec { name: NAME.to_owned(), version: VERSION, params })
    }

    /// The reducer of a spec; `None` for another one or a later version.
    #[must_use]
    pub fn from_spec(spec: &ReducerSpec) -> Option<Sums> {
        if spec.name != NAME || spec.version != VERSION {
            return None;
        }
        let mut reader = Reader::new(&spec.params);
        let Ok(Token::List(count)) = reader.next() else { return None };
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(reader.name().ok()?.into_owned());
        }
        if !reader.at_end() {
            return None;
        }
        Sums::new(&fields).ok()
    }

    /// The summed fields, in order.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The sums in a reduction, in the order of the fields. The reduction of no documents is empty: all zero.
    ///
    /// # Errors
    /// `CorruptData` (E0501) for bytes that are not a reduction over this many fields.
    pub fn decode(&self, reduction: &[u8]) -> Result<Vec<FieldSum>> {
        if reduction.is_empty() {
            return Ok(vec![FieldSum::default(); self.fields.len()]);
        }
        read(reduction, self.fields.len()).ok_or_else(|| {
            Error::new(
                Code::CorruptData,
                format!("a stored sum over {} field(s) cannot be read", self.fields.len()),
            )
        })
    }
}

impl Sums {
    fn append_all(&self, found: &[Option<i128>], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        for value in &found[..self.fields.len()] {
            append(out, FieldSum { sum: value.unwrap_or(0), nulls: u64::from(value.is_none()) });
        }
        Ok(())
    }
}

impl Reducer for Sums {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        let mut found = [const { None }; FIELDS_MAX];
        let said = |error: Error| error.message().to_owned();
        let document = version::split(value).map_err(said)?.1;
        let mut reader = Reader::new(document);
        if begins_with_a_shape(document) {
            reader.skip().map_err(said)?;
            // Of every shape of such a collection, the summed fields are the first.
            for (name, found) in self.fields.iter().zip(&mut found) {
                *found = integer(name, reader.next().map_err(said)?)?;
            }
            return self.append_all(&found, out);
        }
        for _ in 0..reader.map().map_err(said)? {
            let name = reader.name_bytes().map_err(said)?;
            match self.fields.iter().position(|field| field.as_bytes() == name) {
                None => reader.skip().map_err(said)?,
                Some(index) => found[index] = integer(&self.fields[index], reader.next().map_err(said)?)?,
            }
        }
        self.append_all(&found, out)
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        match (read(left, self.fields.len()), read(right, self.fields.len())) {
            (Some(left), Some(right)) => {
                for (left, right) in left.iter().zip(&right) {
                    // Wrapping keeps `join` associative for any input; 2^63 documents do not reach it.
                    let sum = left.sum.wrapping_add(right.sum);
                    append(out, FieldSum { sum, nulls: left.nulls.wrapping_add(right.nulls) });
                }
            }
            _ => out.extend_from_slice(UNREADABLE),
        }
    }

    fn reads_keys(&self) -> bool {
        false
    }

    fn is_commutative(&self) -> bool {
        true
    }
}

/// The integer in a summed field; `None` for a null.
fn integer(name: &str, token: Token<'_>) -> std::result::Result<Option<i128>, String> {
    let kind = match token {
        Token::Int(value) => return Ok(Some(value)),
        Token::Null => return Ok(None),
        Token::Float(_) => return Err(format!("the field {name} is summed and holds a float, {FLOATS}")),
        Token::Bool(_) => "a bool",
        Token::Text(_) | Token::UncheckedText(_) => "text",
        Token::Bytes(_) => "bytes",
        Token::Time(_) => "a time",
        Token::List(_) => "a list",
        Token::Map(_) => "a map",
    };
    Err(format!("the field {name} is summed and holds {kind}; only integers are summed"))
}

/// The end of every error message about floats.
pub(crate) const FLOATS: &str =
    "whose sum depends on the order of the additions: store it as an integer of a smaller unit";

fn append(out: &mut Vec<u8>, value: FieldSum) {
    let zigzag = ((value.sum << 1) ^ (value.sum >> 127)).cast_unsigned();
    append_varint(out, zigzag);
    append_varint(out, u128::from(value.nulls));
}

/// Seven bits per byte, lowest first; the high bit means that more follow.
pub(crate) fn append_varint(out: &mut Vec<u8>, mut value: u128) {
    if let Ok(mut small) = u64::try_from(value) {
        while small >= 0x80 {
            out.push(small.to_le_bytes()[0] | 0x80);
            small >>= 7;
        }
        out.push(small.to_le_bytes()[0]);
        return;
    }
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn read(reduction: &[u8], count: usize) -> Option<Vec<FieldSum>> {
    let mut rest = reduction;
    let mut sums = Vec::with_capacity(count);
    for _ in 0..count {
        let zigzag = read_varint(&mut rest)?;
        let sum = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        let nulls = u64::try_from(read_varint(&mut rest)?).ok()?;
        sums.push(FieldSum { sum, nulls });
    }
    rest.is_empty().then_some(sums)
}

/// Reads the number at the beginning, and advances; `None` if it is unfinished or too large.
pub(crate) fn read_varint(rest: &mut &[u8]) -> Option<u128> {
    // Most numbers have at most eight bytes, and half as wide a number takes a third of the work.
    let mut small: u64 = 0;
    for (at, byte) in rest.iter().enumerate().take(8) {
        small |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *rest = &rest[at + 1..];
            return Some(small.into());
        }
    }
    let mut value: u128 = 0;
    for shift in (0..7 * VARINT_128_BYTES_MAX).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let low = u128::from(byte & 0x7f);
        let shifted = low << shift;
        if shifted >> shift != low {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
