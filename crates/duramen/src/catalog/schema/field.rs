//! Fields of documents as Rust types write and read them: the *shape* that the catalogue keeps beside the
//! columns.
//!
//! Owns which Rust types can read what others wrote. Columns define what a tool may do with a value; fields
//! define what a type must be to read every document.

use std::any::TypeId;

use crate::value::time::Time;
use crate::value::tuple::EnumForm;

/// A field of a typed collection's documents.
///
/// In a type's schema it describes what the type writes and can read. In the catalogue, what documents may
/// hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub(crate) name: String,
    /// The Rust type without an `Option` around it; empty if a user's function writes it.
    pub(crate) kind: String,
    pub(crate) nullable: bool,
    /// Whether every document has it.
    pub(crate) always: bool,
    /// Other names: in a type's schema those it also reads, in the catalogue those that documents may have.
    pub(crate) also: Vec<String>,
    /// Whether the type reads documents without it. The catalogue does not keep this.
    pub(crate) default: bool,
    /// Whether the type reads a value, and no null, from documents without it. The catalogue does not keep
    /// this.
    pub(crate) filled: bool,
    /// The form of an enum, and its type as written in the source. The catalogue does not keep this.
    pub(crate) form: Option<(EnumForm, String)>,
}

impl Field {
    /// A field of type `T`, called `written` in the source. For `#[derive(Collection)]`.
    #[must_use]
    pub fn of<T: 'static>(name: &str, written: &str) -> Field {
        let (kind, nullable) = known::<T>().map_or_else(
            || match written.strip_prefix("Option<").and_then(|inside| inside.strip_suffix('>')) {
                Some(inside) => (inside, true),
                None => (written, false),
            },
            |(kind, nullable)| (kind, nullable),
        );
        Field {
            name: name.to_owned(),
            kind: kind.to_owned(),
            nullable,
            always: true,
            also: Vec::new(),
            default: false,
            filled: false,
            form: None,
        }
    }

    /// Records how an enum is stored: one by number is described as its integer.
    #[must_use]
    pub fn in_form(mut self, form: Option<EnumForm>) -> Field {
        self.form = form.map(|form| (form, self.kind.clone()));
        if let Some(EnumForm::Number(integer)) = form {
            integer.clone_into(&mut self.kind);
        }
        self
    }

    /// Marks a value that a function writes: its form is unknown.
    #[must_use]
    pub fn custom(mut self) -> Field {
        self.kind.clear();
        self
    }

    /// Marks a field that is not always written.
    #[must_use]
    pub fn sometimes(mut self) -> Field {
        self.always = false;
        self
    }

    /// Marks a field that documents need not have for the type to read them.
    #[must_use]
    pub fn default(mut self) -> Field {
        self.default = true;
        self
    }

    /// Marks a field for which the type makes a value where documents do not have it. A function may make any
    /// value, others make none for an `Option`.
    #[must_use]
    pub fn filled(mut self, by_function: bool) -> Field {
        self.filled = by_function || !self.nullable;
        self
    }

    /// Adds names under which the type also reads the field.
    #[must_use]
    pub fn also<const N: usize>(mut self, names: [&str; N]) -> Field {
        self.also = names.map(str::to_owned).into();
        self
    }

    /// The field without what the catalogue does not keep.
    pub(crate) fn to_keep(&self) -> Field {
        Field { default: false, filled: false, form: None, ..self.clone() }
    }

    /// Whether the catalogue can compare its values with those of another type.
    pub(crate) fn is_compared(&self) -> bool {
        is_known(&self.kind)
    }

    /// Whether this is one of its names.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|also| also == name)
    }

    /// Its names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [self.name.as_str()].into_iter().chain(self.also.iter().map(String::as_str))
    }

    /// Whether this is an enum whose values are stored in the other form: names in one, numbers in the other.
    pub(crate) fn is_other_form(&self, held: &Field) -> bool {
        match &self.form {
            Some((EnumForm::Name, _)) => range(&held.kind).is_some(),
            Some((EnumForm::Number(_), source)) => held.kind == *source,
            None => false,
        }
    }

    /// Whether a field of this type reads every value of another.
    pub(crate) fn reads(&self, held: &Field) -> bool {
        if self.is_other_form(held) {
            return false;
        }
        let null = self.nullable || !held.nullable || !is_known(&self.kind);
        null && reads(&self.kind, &held.kind)
    }

    /// The type as written in source code.
    pub(crate) fn type_name(&self) -> String {
        match (self.kind.as_str(), self.nullable) {
            ("", _) => "written by a function".to_owned(),
            (kind, true) => format!("Option<{kind}>"),
            (kind, false) => kind.to_owned(),
        }
    }

    /// Extends the field to what this type writes too.
    pub(crate) fn widen(&mut self, own: &Field) {
        self.nullable |= own.nullable;
        self.always &= own.always;
        if is_known(&self.kind) && reads(&own.kind, &self.kind) {
            self.kind.clone_from(&own.kind);
        }
    }
}

/// The integer types and their ranges.
const INTEGERS: [(&str, i128, i128); 10] = [
    ("i8", i8::MIN as i128, i8::MAX as i128),
    ("i16", i16::MIN as i128, i16::MAX as i128),
    ("i32", i32::MIN as i128, i32::MAX as i128),
    ("i64", i64::MIN as i128, i64::MAX as i128),
    ("isize", i64::MIN as i128, i64::MAX as i128),
    ("u8", 0, u8::MAX as i128),
    ("u16", 0, u16::MAX as i128),
    ("u32", 0, u32::MAX as i128),
    ("u64", 0, u64::MAX as i128),
    ("usize", 0, u64::MAX as i128),
];

const OTHERS: [&str; 6] = ["f32", "f64", "bool", "String", "char", "Time"];

/// The name of a known type, and whether an `Option` is around it.
fn known<T: 'static>() -> Option<(&'static str, bool)> {
    macro_rules! first {
        ($($kind:ty => $name:literal),*) => {$(
            if TypeId::of::<T>() == TypeId::of::<$kind>() {
                return Some(($name, false));
            }
            if TypeId::of::<T>() == TypeId::of::<Option<$kind>>() {
                return Some(($name, true));
            }
        )*};
    }
    first!(
        i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64", isize => "isize", u8 => "u8", u16 => "u16", u32 => "u32",
        u64 => "u64", usize => "usize", f32 => "f32", f64 => "f64", bool => "bool", String => "String", char => "char",
        Time => "Time"
    );
    None
}

fn range(kind: &str) -> Option<(i128, i128)> {
    INTEGERS.iter().find(|(name, ..)| *name == kind).map(|(_, min, max)| (*min, *max))
}

fn is_known(kind: &str) -> bool {
    range(kind).is_some() || OTHERS.contains(&kind)
}

/// Whether one type can read every value that another wrote. Types that are not known here count as readable.
fn reads(own: &str, held: &str) -> bool {
    if own == held || !is_known(own) || !is_known(held) {
        return true;
    }
    match (range(own), range(held)) {
        (Some((min, max)), Some((held_min, held_max))) => min <= held_min && held_max <= max,
        _ => (own, held) == ("f64", "f32") || (own, held) == ("String", "char"),
    }
}
