//! Enums as elements of keys: how a type with `#[derive(Key)]` has chosen to be stored and ordered.
//!
//! Owns what the derive of a collection can learn about the enum in a field. The derive of the enum writes
//! the conversions; names and numbers on disk follow from it alone.

use std::marker::PhantomData;

use crate::store::error::{Code, Error};

/// An enum with `#[derive(Key)]`. The derive implements it.
pub trait EnumElement {
    /// How its values are stored.
    const FORM: EnumForm;
}

/// How the values of an enum are stored and ordered, in keys, views and documents alike.
///
/// The enum chooses with `#[derive(Key)]`. The order of declaration is none of the choices: a variant added
/// in the middle would reorder what is stored.
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
/// #[key(by_number)]
/// #[serde(into = "u8", try_from = "u8")]
/// enum Priority {
///     Low = 1,
///     Medium = 2,
///     High = 3,
/// }
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(ByTeam, key = team, reduce = Max(priority)))]
/// struct Ticket {
///     #[key]
///     id: u64,
///     team: String,
///     priority: Priority,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// db.put(&Ticket { id: 1, team: "web".into(), priority: Priority::High })?;
/// db.put(&Ticket { id: 2, team: "web".into(), priority: Priority::Medium })?;
/// assert_eq!(db.view::<ByTeam>().key("web").reduce()?, Some(Priority::High));
/// # Ok(()) }
/// ```
///
/// By number, serde's `into` and `try_from` name the integer type; the derive makes both conversions. A
/// stored number without a variant is an error when it is read. By name, `serde(rename)` and
/// `serde(rename_all)` apply, and the enum above would be ordered High, Low, Medium. An enum whose values are
/// stored in one form is refused in the other.
///
/// The derive also makes the enum a [`Value`](crate::Value) in its stored form, for documents without types
/// and conditions: `Condition::new(&schema, "priority", Operator::Equal, Priority::High)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnumForm {
    /// The names of its variants, in the order of their bytes: `#[key(by_name)]`.
    Name,
    /// Numbers that the source gives, in their order, as this integer type: `#[key(by_number)]`.
    Number(&'static str),
}

impl<T: EnumElement> EnumElement for Option<T> {
    const FORM: EnumForm = T::FORM;
}

/// The error of a stored number that no variant has.
#[must_use]
#[cold]
pub fn unknown_number(kind: &str, number: i128, variants: &str) -> Error {
    let message = format!("{number} is no {kind}, which has {variants}");
    Error::new(Code::Unreadable, message).with_hint(format!(
        "a program with more variants wrote it: add the variant with this number to {kind}, or store another value"
    ))
}

/// A type whose form is asked.
#[doc(hidden)]
#[derive(Debug)]
pub struct FormOf<T>(PhantomData<T>);

impl<T> FormOf<T> {
    /// The question.
    #[must_use]
    pub fn new() -> FormOf<T> {
        FormOf(PhantomData)
    }
}

impl<T> Default for FormOf<T> {
    fn default() -> FormOf<T> {
        FormOf::new()
    }
}

/// The answer for an enum. Method calls prefer it to [`AnyForm`], which needs one more reference.
#[doc(hidden)]
pub trait KnownForm {
    /// How its values are stored.
    fn form(&self) -> Option<EnumForm>;
}

impl<T: EnumElement> KnownForm for FormOf<T> {
    fn form(&self) -> Option<EnumForm> {
        Some(T::FORM)
    }
}

/// The answer for every other type.
#[doc(hidden)]
pub trait AnyForm {
    /// Nothing.
    fn form(&self) -> Option<EnumForm>;
}

impl<T> AnyForm for &FormOf<T> {
    fn form(&self) -> Option<EnumForm> {
        None
    }
}

/// How the values of a type are stored if it is an enum with `#[derive(Key)]`. For `#[derive(Collection)]`.
#[doc(hidden)]
#[macro_export]
macro_rules! __enum_form {
    ($kind:ty) => {{
        #[allow(unused_imports, reason = "one of them answers")]
        use $crate::tuple::{AnyForm as _, KnownForm as _};
        #[allow(clippy::needless_borrow, reason = "the type decides which trait answers")]
        (&$crate::tuple::FormOf::<$kind>::new()).form()
    }};
}
