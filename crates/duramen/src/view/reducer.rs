//! The reductions of a view over its rows, as the engine keeps them in the nodes of the view's tree.
//!
//! Owns their stored form: those of the spec one after the other, each as the number of values it has seen (varint), and
//! if there were any, what they come to. A sum is a zigzag varint of 128 bits; the smallest and the largest are elements of
//! a key, with their length (varint) before them. Nulls are not seen.

use duramen_engine::{Reducer, ReducerSpec};

use super::spec::{REDUCTIONS_MAX, Reduce, ViewSpec};
use crate::document::Value;
use crate::error::{Code, Error, Result};
use crate::msgpack::{Reader, Token, write};
use crate::sums::{append_varint, read_varint};
use crate::tuple::{Element, Encoder};

/// The name under which the engine's catalogue knows the reducer.
const NAME: &str = "view";

/// The version of its stored form.
const VERSION: u32 = 1;

/// Longest smallest or largest element: a longer one is refused.
const ELEMENT_BYTES_MAX: usize = 40;

const PART_BYTES_MAX: usize = 10 + 2 + ELEMENT_BYTES_MAX;
const _: () = assert!(
    REDUCTIONS_MAX * PART_BYTES_MAX <= duramen_engine::limits::REDUCTION_BYTES_MAX,
    "the widest reductions fit in a child entry"
);

/// What a reduction becomes that could not be read: an unfinished number. It stays so under `join`, which cannot fail.
const UNREADABLE: &[u8] = &[0xff];

/// The reductions of one view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reductions {
    parts: Vec<Reduce>,
}

/// What one reduction has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// How many values there were, nulls left out.
    pub(crate) seen: u64,
    pub(crate) outcome: Outcome<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    Nothing,
    Sum(i128),
    Element(&'a [u8]),
}

impl Reductions {
    pub(crate) fn of(spec: &ViewSpec) -> Option<Reductions> {
        (!spec.reduce.is_empty()).then(|| Reductions { parts: spec.reduce.clone() })
    }

    /// How the engine's catalogue names it.
    pub(crate) fn spec(&self) -> Result<ReducerSpec> {
        let mut params = Vec::new();
        write::list(&mut params, self.parts.len())?;
        for part in &self.parts {
            let kind = match part {
                Reduce::Sum(_) => 0,
                Reduce::Min(_) => 1,
                Reduce::Max(_) => 2,
            };
            write::int(&mut params, kind)?;
            write::int(&mut params, part.value() as i128)?;
        }
        Ok(ReducerSpec { name: NAME.to_owned(), version: VERSION, params })
    }

    /// The reducer of a spec, or `None` if it names another or one of a later version.
    pub(crate) fn from_spec(spec: &ReducerSpec) -> Option<Reductions> {
        if spec.name != NAME || spec.version != VERSION {
            return None;
        }
        let mut reader = Reader::new(&spec.params);
        let Ok(Token::List(count @ 1..=REDUCTIONS_MAX)) = reader.next() else { return None };
        let mut next = || match reader.next() {
            Ok(Token::Int(number)) => usize::try_from(number).ok(),
            _ => None,
        };
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, value) = (next()?, next()?);
            parts.push(match kind {
                0 => Reduce::Sum(value),
                1 => Reduce::Min(value),
                2 => Reduce::Max(value),
                _ => return None,
            });
        }
        reader.at_end().then_some(Reductions { parts })
    }

    /// What a reduction says; that of no row is no bytes.
    ///
    /// # Errors
    /// `DamagedData` for bytes that are no reduction of this view.
    pub(crate) fn decode<'a>(&self, reduction: &'a [u8]) -> Result<Vec<Part<'a>>> {
        if reduction.is_empty() {
            return Ok(vec![Part { seen: 0, outcome: Outcome::Nothing }; self.parts.len()]);
        }
        read(&self.parts, reduction)
            .ok_or_else(|| Error::new(Code::DamagedData, "a stored reduction of a view cannot be read"))
    }
}

impl Reducer for Reductions {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        let mut values = Vec::new();
        let mut rest = Reader::new(value);
        while !rest.at_end() {
            values.push(rest.raw().map_err(|error| error.message().to_owned())?);
        }
        for part in &self.parts {
            let stored = values.get(part.value()).ok_or("a row keeps fewer values than its view")?;
            let value = Value::from_stored(stored).map_err(|error| error.message().to_owned())?;
            one(*part, &value, out)?;
        }
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        let (Some(left), Some(right)) = (read(&self.parts, left), read(&self.parts, right)) else {
            out.extend_from_slice(UNREADABLE);
            return;
        };
        for (part, (left, right)) in self.parts.iter().zip(left.iter().zip(&right)) {
            let outcome = match (&left.outcome, &right.outcome) {
                (Outcome::Nothing, outcome) | (outcome, Outcome::Nothing) => outcome.clone(),
                // Wrapping keeps join associative whatever comes; 2^63 rows do not reach it.
                (Outcome::Sum(left), Outcome::Sum(right)) => Outcome::Sum(left.wrapping_add(*right)),
                (Outcome::Element(left), Outcome::Element(right)) => Outcome::Element(match part {
                    Reduce::Min(_) => (*left).min(*right),
                    _ => (*left).max(*right),
                }),
                _ => unreachable!("both were read as the same kind"),
            };
            append(out, &Part { seen: left.seen.wrapping_add(right.seen), outcome });
        }
    }

    fn reads_keys(&self) -> bool {
        false
    }
}

/// The reduction of one value.
fn one(part: Reduce, value: &Value, out: &mut Vec<u8>) -> std::result::Result<(), String> {
    let mut element = Vec::new();
    let outcome = match (part, value) {
        (_, Value::Null) => Outcome::Nothing,
        (Reduce::Sum(_), Value::Int(number)) => Outcome::Sum(*number),
        (Reduce::Sum(_), other) => {
            return Err(format!(
                "a view sums a field that holds {}; only integers are summed exactly",
                other.kind()
            ));
        }
        (Reduce::Min(_) | Reduce::Max(_), value) => {
            let of = value.to_element().ok_or_else(|| "a view orders a field that holds a map".to_owned())?;
            Encoder::new(&mut element).element(&of).map_err(|error| error.message().to_owned())?;
            if element.len() > ELEMENT_BYTES_MAX {
                return Err(format!(
                    "a view keeps the smallest or largest of values of up to {ELEMENT_BYTES_MAX} bytes, and this one has {}",
                    element.len()
                ));
            }
            Outcome::Element(&element)
        }
    };
    let seen = u64::from(outcome != Outcome::Nothing);
    append(out, &Part { seen, outcome });
    Ok(())
}

fn append(out: &mut Vec<u8>, part: &Part<'_>) {
    append_varint(out, u128::from(part.seen));
    match part.outcome {
        Outcome::Nothing => {}
        Outcome::Sum(sum) => append_varint(out, ((sum << 1) ^ (sum >> 127)).cast_unsigned()),
        Outcome::Element(element) => {
            append_varint(out, element.len() as u128);
            out.extend_from_slice(element);
        }
    }
}

fn read<'a>(parts: &[Reduce], mut rest: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let mut read = Vec::with_capacity(parts.len());
    for part in parts {
        let seen = u64::try_from(read_varint(&mut rest)?).ok()?;
        let outcome = match part {
            _ if seen == 0 => Outcome::Nothing,
            Reduce::Sum(_) => {
                let zigzag = read_varint(&mut rest)?;
                Outcome::Sum((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
            }
            Reduce::Min(_) | Reduce::Max(_) => {
                let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                let (element, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Outcome::Element(element)
            }
        };
        read.push(Part { seen, outcome });
    }
    rest.is_empty().then_some(read)
}

/// The element of a reduction.
pub(crate) fn element(outcome: &Outcome<'_>) -> Result<Option<Element>> {
    match outcome {
        Outcome::Element(bytes) => Ok(crate::tuple::decode(bytes)?.pop()),
        _ => Ok(None),
    }
}
