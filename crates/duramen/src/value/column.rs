//! Columns and their types: which values fit, and which types widen to which.

use std::any::TypeId;
use std::fmt;

use crate::store::error::{Error, Result};
use crate::value::document::Value;
use crate::value::time::Time;
use crate::value::tuple::EnumForm;

/// A column of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name of the field.
    pub name: String,
    /// The type of its values, besides null.
    pub kind: ColumnType,
}

/// The type of a column's values. Null fits every type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ColumnType {
    /// Only nulls so far: the first value decides.
    #[default]
    Unknown,
    /// Integers of 64 bits.
    Int,
    /// Floats. Integers that a float represents exactly are converted.
    Float,
    /// Text.
    Text,
    /// True and false.
    Bool,
    /// Points in time. RFC 3339 text is converted, and a date without a time: to its midnight in UTC.
    Time,
    /// Anything: lists, maps, bytes, or values of several types.
    Any,
}

impl ColumnType {
    /// Every type that can be requested by name.
    pub const NAMED: [ColumnType; 6] = [
        ColumnType::Int,
        ColumnType::Float,
        ColumnType::Text,
        ColumnType::Bool,
        ColumnType::Time,
        ColumnType::Any,
    ];

    /// Its name, as it is stored and as `--type` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Unknown => "unknown",
            ColumnType::Int => "int",
            ColumnType::Float => "float",
            ColumnType::Text => "text",
            ColumnType::Bool => "bool",
            ColumnType::Time => "time",
            ColumnType::Any => "any",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ColumnType> {
        if name == "unknown" {
            return Some(ColumnType::Unknown);
        }
        ColumnType::NAMED.into_iter().find(|kind| kind.name() == name)
    }

    /// The type of a column whose first value this is.
    #[must_use]
    pub fn of(value: &Value) -> ColumnType {
        match value {
            Value::Null => ColumnType::Unknown,
            Value::Bool(_) => ColumnType::Bool,
            Value::Int(_) => ColumnType::Int,
            Value::Float(_) => ColumnType::Float,
            Value::Text(_) => ColumnType::Text,
            Value::Time(_) => ColumnType::Time,
            Value::Bytes(_) | Value::List(_) | Value::Map(_) => ColumnType::Any,
        }
    }

    /// The column type of a Rust type; `Any` for types not known here. For `#[derive(Collection)]`.
    #[must_use]
    pub fn of_type<T: 'static>() -> ColumnType {
        fn is<T: 'static, K: 'static>() -> bool {
            TypeId::of::<T>() == TypeId::of::<K>() || TypeId::of::<T>() == TypeId::of::<Option<K>>()
        }
        let integers = [
            is::<T, i8>,
            is::<T, i16>,
            is::<T, i32>,
            is::<T, i64>,
            is::<T, isize>,
            is::<T, u8>,
            is::<T, u16>,
            is::<T, u32>,
            is::<T, u64>,
            is::<T, usize>,
        ];
        if integers.iter().any(|is_this| is_this()) {
            ColumnType::Int
        } else if is::<T, f64>() || is::<T, f32>() {
            ColumnType::Float
        } else if is::<T, bool>() {
            ColumnType::Bool
        } else if is::<T, String>() || is::<T, char>() {
            ColumnType::Text
        } else if is::<T, Time>() {
            ColumnType::Time
        } else {
            ColumnType::Any
        }
    }

    /// The column type of a field that is an enum in this form. For `#[derive(Collection)]`.
    ///
    /// Names were `Any` before enums chose, and stay so: a collection that exists keeps its columns (D9).
    #[must_use]
    pub fn in_form(self, form: Option<EnumForm>) -> ColumnType {
        if let Some(EnumForm::Number(_)) = form { ColumnType::Int } else { self }
    }

    /// The narrowest type for values of both: integers and floats are floats, other pairs `Any`.
    #[must_use]
    pub fn join(self, other: ColumnType) -> ColumnType {
        match (self, other) {
            (a, b) if a == b => a,
            (ColumnType::Unknown, kind) | (kind, ColumnType::Unknown) => kind,
            (ColumnType::Int, ColumnType::Float) | (ColumnType::Float, ColumnType::Int) => ColumnType::Float,
            _ => ColumnType::Any,
        }
    }

    /// Whether a value fits, after a lossless conversion: integers become floats, text becomes times.
    pub fn admit(self, value: &mut Value) -> bool {
        if matches!(value, Value::Null) || matches!(self, ColumnType::Any | ColumnType::Unknown) {
            return true;
        }
        let made = match (self, &*value) {
            (ColumnType::Float, Value::Int(number)) => exact_float(*number).map(Value::Float),
            (ColumnType::Float, Value::Text(text)) => non_finite(text).map(Value::Float),
            (ColumnType::Time, Value::Text(text)) => Time::parse_in_column(text).map(Value::Time),
            _ => return ColumnType::of(value) == self,
        };
        match made {
            Some(made) => {
                *value = made;
                true
            }
            None => false,
        }
    }
}

/// The float of the same value, where there is one.
pub(crate) fn exact_float(number: i128) -> Option<f64> {
    const EXACT: i128 = 1 << f64::MANTISSA_DIGITS;
    let shift = number.unsigned_abs().checked_ilog2().unwrap_or(0).saturating_sub(f64::MANTISSA_DIGITS - 1);
    let odd = number >> shift;
    if odd << shift != number || odd.abs() > EXACT {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "at most 53 bits are left, which a float holds")]
    let value = odd as f64 * 2_f64.powi(i32::try_from(shift).ok()?);
    Some(value)
}

/// The texts that represent floats that JSON cannot express.
fn non_finite(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

impl Column {
    /// Makes a value fit. Returns whether the column learned its type.
    pub(crate) fn admit(&mut self, value: &mut Value) -> Result<bool> {
        if self.kind == ColumnType::Unknown {
            self.kind = ColumnType::of(value);
            return Ok(self.kind != ColumnType::Unknown);
        }
        if self.kind.admit(value) {
            return Ok(false);
        }
        Err(Error::invalid(format!(
            "the field {} holds {}, and its column holds {}",
            self.name,
            value.kind(),
            self.kind
        )))
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
