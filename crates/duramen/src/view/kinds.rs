//! The reductions that a view can keep, as data.
//!
//! They are stored in the catalogue entry of the collection, and in the parameters of the reducer of the
//! view's tree.
//!
//! Owns both stored forms, and the maximum size of each reduction.

use std::fmt;

use crate::store::error::Result;
use crate::value::document::Value;
use crate::value::msgpack::{Reader, Token, write};
use crate::view::monoid::Monoid;
use crate::view::sketch::{Distinct, Quantiles, Sketch, Top};
use crate::view::spec::{integer, text};

/// The maximum number of reductions of one view.
pub(crate) const REDUCTIONS_MAX: usize = 8;

/// The maximum length of a minimum or maximum element; longer ones are an error.
pub(crate) const ELEMENT_BYTES_MAX: usize = 40;

/// The maximum number of values that `TopK` and `BottomK` keep.
const TOP_MAX: usize = 32;

/// The maximum lengths of the name and of the state of a reduction in code.
const CODE_NAME_BYTES_MAX: usize = 64;
const CODE_BYTES_MAX: usize = 2048;

/// The maximum length of the number of values and the length of the rest.
const HEAD_BYTES_MAX: usize = 10 + 2;

/// A reduction of a view over one of its values. Every view counts its rows without one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduce {
    /// The exact sum of integers.
    Sum(usize),
    /// The smallest value.
    Min(usize),
    /// The largest value.
    Max(usize),
    /// The largest values: the value to reduce, and how many to keep, at most 32.
    TopK(usize, usize),
    /// The smallest values, likewise.
    BottomK(usize, usize),
    /// The approximate number of distinct values.
    Distinct(usize),
    /// Approximate quantiles.
    Quantiles(usize),
    /// A reduction in code: [`Monoid`].
    Code {
        /// The value that it reduces.
        value: usize,
        /// Its name.
        name: String,
        /// Its version.
        version: u32,
        /// The maximum length of its stored state.
        bytes_max: usize,
    },
}

impl Reduce {
    /// A reduction in code over a value.
    #[must_use]
    pub fn code<M: Monoid>(value: usize) -> Reduce {
        Reduce::Code { value, name: M::NAME.to_owned(), version: M::VERSION, bytes_max: M::BYTES_MAX }
    }

    /// Its name in the catalogue, and its number in the parameters of the reducer.
    fn kind(&self) -> (&'static str, u64) {
        match self {
            Reduce::Sum(_) => ("sum", 0),
            Reduce::Min(_) => ("min", 1),
            Reduce::Max(_) => ("max", 2),
            Reduce::TopK(..) => ("top", 3),
            Reduce::BottomK(..) => ("bottom", 4),
            Reduce::Distinct(_) => ("distinct", 5),
            Reduce::Quantiles(_) => ("quantiles", 6),
            Reduce::Code { .. } => ("code", 7),
        }
    }

    /// The name that tools show.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().0
    }

    /// The index of the value that it reduces.
    #[must_use]
    pub fn value(&self) -> usize {
        match self {
            Reduce::Sum(value)
            | Reduce::Min(value)
            | Reduce::Max(value)
            | Reduce::TopK(value, _)
            | Reduce::BottomK(value, _)
            | Reduce::Distinct(value)
            | Reduce::Quantiles(value)
            | Reduce::Code { value, .. } => *value,
        }
    }

    /// Its maximum length in a child entry.
    pub(crate) fn bytes_max(&self) -> usize {
        HEAD_BYTES_MAX
            + match self {
                Reduce::Sum(_) => 19,
                Reduce::Min(_) | Reduce::Max(_) => ELEMENT_BYTES_MAX,
                Reduce::TopK(_, k) | Reduce::BottomK(_, k) => k.saturating_mul(1 + ELEMENT_BYTES_MAX),
                Reduce::Distinct(_) => Distinct::BYTES_MAX,
                Reduce::Quantiles(_) => Quantiles::BYTES_MAX,
                Reduce::Code { bytes_max, .. } => *bytes_max,
            }
    }

    /// Checks the reduction. The error is a sentence that begins with the view's name.
    pub(crate) fn validate(&self) -> std::result::Result<(), String> {
        match self {
            Reduce::TopK(_, k) | Reduce::BottomK(_, k) if !(1..=TOP_MAX).contains(k) => {
                Err(format!("keeps the {k} largest or smallest values, and can keep 1 to {TOP_MAX}"))
            }
            Reduce::Code { name, .. } if name.is_empty() || name.len() > CODE_NAME_BYTES_MAX => {
                Err(format!("has a reduction in code that needs a name of 1 to {CODE_NAME_BYTES_MAX} bytes"))
            }
            Reduce::Code { name, bytes_max, .. } if !(1..=CODE_BYTES_MAX).contains(bytes_max) => {
                Err(format!(
                    "has the reduction {name} of up to {bytes_max} bytes, and it can have 1 to {CODE_BYTES_MAX}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The sketch that collects its values. `None` for reductions without one, and for code, which is not
    /// known here.
    pub(crate) fn sketch(&self) -> Option<Box<dyn Sketch>> {
        match self {
            Reduce::TopK(_, k) => Some(Box::new(Top::largest(*k))),
            Reduce::BottomK(_, k) => Some(Box::new(Top::smallest(*k))),
            Reduce::Distinct(_) => Some(Box::<Distinct>::default()),
            Reduce::Quantiles(_) => Some(Box::<Quantiles>::default()),
            Reduce::Sum(_) | Reduce::Min(_) | Reduce::Max(_) | Reduce::Code { .. } => None,
        }
    }

    /// The form in the catalogue entry of the collection.
    pub(crate) fn to_value(&self) -> Value {
        let mut parts = vec![Value::from(self.kind().0), Value::from(self.value() as u64)];
        match self {
            Reduce::TopK(_, k) | Reduce::BottomK(_, k) => parts.push(Value::from(*k as u64)),
            Reduce::Code { name, version, bytes_max, .. } => parts.extend([
                Value::from(name.as_str()),
                Value::from(u64::from(*version)),
                Value::from(*bytes_max as u64),
            ]),
            _ => {}
        }
        Value::List(parts)
    }

    /// Decodes the form in the catalogue entry; `None` for something else.
    pub(crate) fn from_value(value: &Value) -> Option<Reduce> {
        let Value::List(parts) = value else { return None };
        let number = |index: usize| usize::try_from(integer(parts.get(index)?)?).ok();
        let (kind, of) = (text(parts.first()?)?, number(1)?);
        let (reduce, length) = match kind.as_str() {
            "sum" => (Reduce::Sum(of), 2),
            "min" => (Reduce::Min(of), 2),
            "max" => (Reduce::Max(of), 2),
            "top" => (Reduce::TopK(of, number(2)?), 3),
            "bottom" => (Reduce::BottomK(of, number(2)?), 3),
            "distinct" => (Reduce::Distinct(of), 2),
            "quantiles" => (Reduce::Quantiles(of), 2),
            "code" => {
                let (name, version) = (text(parts.get(2)?)?, u32::try_from(number(3)?).ok()?);
                (Reduce::Code { value: of, name, version, bytes_max: number(4)? }, 5)
            }
            _ => return None,
        };
        (parts.len() == length).then_some(reduce)
    }

    /// Appends the form in the parameters of the tree's reducer.
    pub(crate) fn write(&self, params: &mut Vec<u8>) -> Result<()> {
        write::int(params, i128::from(self.kind().1))?;
        write::int(params, self.value() as i128)?;
        match self {
            Reduce::TopK(_, k) | Reduce::BottomK(_, k) => write::int(params, *k as i128),
            Reduce::Code { name, version, bytes_max, .. } => {
                write::text(params, name)?;
                write::int(params, i128::from(*version))?;
                write::int(params, *bytes_max as i128)
            }
            _ => Ok(()),
        }
    }

    /// Decodes the form in the reducer's parameters; `None` for something else.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Reduce> {
        fn number(reader: &mut Reader<'_>) -> Option<usize> {
            match reader.next() {
                Ok(Token::Int(number)) => usize::try_from(number).ok(),
                _ => None,
            }
        }
        let (kind, of) = (number(reader)?, number(reader)?);
        let reduce = match kind {
            0 => Reduce::Sum(of),
            1 => Reduce::Min(of),
            2 => Reduce::Max(of),
            3 => Reduce::TopK(of, number(reader)?),
            4 => Reduce::BottomK(of, number(reader)?),
            5 => Reduce::Distinct(of),
            6 => Reduce::Quantiles(of),
            7 => {
                let name = reader.name().ok()?.into_owned();
                let version = u32::try_from(number(reader)?).ok()?;
                Reduce::Code { value: of, name, version, bytes_max: number(reader)? }
            }
            _ => return None,
        };
        reduce.validate().is_ok().then_some(reduce)
    }
}

/// Its name in the catalogue.
impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reduce::TopK(_, k) | Reduce::BottomK(_, k) => write!(f, "{} {k}", self.kind().0),
            Reduce::Code { name, .. } => f.write_str(name),
            _ => f.write_str(self.kind().0),
        }
    }
}
