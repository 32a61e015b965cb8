//! Keys of typed collections: which types can be decoded, and which values may stand for which types.
//!
//! Owns no encoding: [`encode`](super::encode) writes, [`decode`](super::decode) reads. The traits here
//! say which Rust type may be used where the key was declared with another. All integers are encoded alike,
//! so any integer type may be used for any other.

use std::cmp::Reverse;

use super::{AsElement, Element, Key};
use crate::store::error::{Error, Result};
use crate::value::byte_array::ByteArray;
use crate::value::column::ColumnType;
use crate::value::time::Time;

/// An element of a key that can be decoded.
///
/// `#[derive(Key)]` implements it for a struct around one such element, and for an enum without fields that
/// has chosen how it is stored and ordered ([`EnumForm`](crate::tuple::EnumForm)).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key, nor be ordered in a view",
    note = "u8 to u64, i8 to i64, f64, bool, String and `Time` can, and types with #[derive(Key)]; a usize becomes a u64, \
            and a u128 a `ByteArray<16>` of its `to_be_bytes`",
    note = "a list is the last key field of a view with `each`: view(ByTag, key = tags, each)",
    note = "bytes are a `duramen::ByteArray<16>`; `Uuid` needs the feature `uuid`; other times become a `Time` by `into`",
    note = "an enum needs #[derive(duramen::Key)], and #[key(by_number)] or #[key(by_name)] to choose its order"
)]
pub trait OwnedElement: AsElement + ElementFor<Self> + Sized {
    /// The column type of such elements.
    const COLUMN: ColumnType;

    /// Whether they are descending, as `Reverse` is. Such a field is no part of the key of a collection.
    const IS_DESCENDING: bool = false;

    /// The value of an element.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an element of another type, or an integer that does not fit.
    fn from_element(element: Element) -> Result<Self>;
}

/// A whole key that can be decoded: an element, or a tuple of up to eight.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a collection or view",
    note = "an element can (u8 to u64, i8 to i64, String, `Time`, a type with #[derive(Key)]), and a tuple of up to \
            eight; a usize becomes a u64, and a u128 a `ByteArray<16>` of its `to_be_bytes`",
    note = "a list is the last key field of a view with `each`: view(ByTag, key = tags, each)",
    note = "bytes are a `duramen::ByteArray<16>`; `Uuid` needs the feature `uuid`; other times become a `Time` by `into`",
    note = "an enum needs #[derive(duramen::Key)], and #[key(by_number)] or #[key(by_name)] to choose its order"
)]
pub trait OwnedKey: KeyFor<Self> + PrefixFor<Self> + Sized {
    /// How many elements it has.
    const ELEMENTS: usize;

    /// The key of these elements.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if their number is wrong, or one of them has another type.
    fn from_elements(elements: Vec<Element>) -> Result<Self>;
}

/// An element that may stand for one of type `K`: `&str` for `String`, any integer for any other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand for `{K}` in a key",
    note = "ask with a value of the type that the collection's key has there",
    note = "where a view's key is descending the value is in a `Reverse`: `(\"Oslo\", Reverse(5))`"
)]
pub trait ElementFor<K>: AsElement {}

/// A key that may stand for one of type `K`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key of this collection or view, whose key is `{K}`",
    label = "not a `{K}`",
    note = "give as many elements as the key has, of the same types, as a tuple: `(\"Oslo\", 1)`; `&str` stands for `String`",
    note = "`.prefix(..)` of a collection or a view finds all documents whose keys begin with the first elements",
    note = "only a view with `nulls` takes `None`: view(ByOwner, key = owner, nulls); it takes other values as they are, \
            `.key(\"ann\")`"
)]
pub trait KeyFor<K>: Key {}

/// The leading elements of a key of type `K`, or all of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no beginning of the key of this collection or view, which is `{K}`",
    note = "give leading elements of the key, of the same types: `\"Oslo\"` or `(\"Oslo\", 1)` for `(String, u64)`"
)]
pub trait PrefixFor<K>: Key {}

/// The error of an element that is not what was expected.
#[must_use]
#[cold]
pub fn unexpected(found: &Element, expected: &str) -> Error {
    Error::invalid(format!("a key holds {found}, and {expected} was expected there")).with_hint(
        "give the key the type that it was stored with; an enum by name needs a variant for each stored name",
    )
}

impl<T: ElementFor<K> + ?Sized, K> ElementFor<K> for &T {}
#[diagnostic::do_not_recommend]
impl<T: KeyFor<K> + ?Sized, K> KeyFor<K> for &T {}
impl<T: PrefixFor<K> + ?Sized, K> PrefixFor<K> for &T {}
impl<T: ElementFor<K>, K> ElementFor<Option<K>> for Option<T> {}

impl<T: OwnedElement> OwnedElement for Option<T> {
    const COLUMN: ColumnType = T::COLUMN;
    const IS_DESCENDING: bool = T::IS_DESCENDING;

    fn from_element(element: Element) -> Result<Option<T>> {
        match element {
            Element::Null => Ok(None),
            element => T::from_element(element).map(Some),
        }
    }
}

/// The other traits of every element: it is a key by itself, and a prefix of tuples. For `#[derive(Key)]`.
#[doc(hidden)]
#[macro_export]
macro_rules! key_element {
    ($kind:ty) => {
        impl $crate::tuple::Key for $kind {
            fn write(&self, encoder: &mut $crate::tuple::Encoder<'_>) -> $crate::Result<()> {
                $crate::tuple::AsElement::append(self, encoder)
            }
        }

        $crate::__key_element!($kind);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __key_element {
    ($kind:ty) => {
        impl $crate::tuple::OwnedKey for $kind {
            const ELEMENTS: usize = 1;

            fn from_elements(elements: Vec<$crate::tuple::Element>) -> $crate::Result<Self> {
                let (element,): (Self,) = $crate::tuple::OwnedKey::from_elements(elements)?;
                Ok(element)
            }
        }

        impl $crate::tuple::ElementFor<$kind> for $kind {}
        impl $crate::tuple::ElementFor<::core::option::Option<$kind>> for $kind {}
        $crate::__key_stands_for!($kind, $kind);
        $crate::__key_begins!($kind);
    };
}

/// An element that stands for another also does so as a whole key.
#[doc(hidden)]
#[macro_export]
macro_rules! __key_stands_for {
    ($asked:ty, $kept:ty) => {
        #[diagnostic::do_not_recommend]
        impl $crate::tuple::KeyFor<$kept> for $asked {}
        impl $crate::tuple::PrefixFor<$kept> for $asked {}
        #[diagnostic::do_not_recommend]
        impl $crate::tuple::KeyFor<::core::option::Option<$kept>> for $asked {}
        impl $crate::tuple::PrefixFor<::core::option::Option<$kept>> for $asked {}
    };
}

/// An element is a prefix of every tuple whose first element it can be.
#[doc(hidden)]
#[macro_export]
macro_rules! __key_begins {
    ($kind:ty) => {
        $crate::__key_begins!($kind; __A);
        $crate::__key_begins!($kind; __A, __B);
        $crate::__key_begins!($kind; __A, __B, __C);
        $crate::__key_begins!($kind; __A, __B, __C, __D);
        $crate::__key_begins!($kind; __A, __B, __C, __D, __E);
        $crate::__key_begins!($kind; __A, __B, __C, __D, __E, __F);
        $crate::__key_begins!($kind; __A, __B, __C, __D, __E, __F, __G);
        $crate::__key_begins!($kind; __A, __B, __C, __D, __E, __F, __G, __H);
    };
    ($kind:ty; $first:ident $(, $rest:ident)*) => {
        #[allow(non_camel_case_types, reason = "names that no type of the user's has")]
        impl<$first $(, $rest)*> $crate::tuple::PrefixFor<($first, $($rest,)*)> for $kind
        where
            $kind: $crate::tuple::ElementFor<$first>,
        {
        }
    };
}

macro_rules! owned {
    ($($kind:ty, $column:ident, |$element:ident| $taken:expr, $expected:literal;)*) => {$(
        impl OwnedElement for $kind {
            const COLUMN: ColumnType = ColumnType::$column;

            fn from_element($element: Element) -> Result<Self> {
                match $taken {
                    Some(value) => Ok(value),
                    None => Err(unexpected(&$element, $expected)),
                }
            }
        }
    )*};
}

macro_rules! taken {
    ($element:ident, $kind:ident) => {
        match &$element {
            Element::$kind(value) => Some(value.clone()),
            _ => None,
        }
    };
}

fn integer<T: TryFrom<i128>>(element: &Element) -> Option<T> {
    match element {
        Element::Int(value) => T::try_from(*value).ok(),
        _ => None,
    }
}

owned! {
    i8, Int, |element| integer(&element), "an integer of 8 bits";
    i16, Int, |element| integer(&element), "an integer of 16 bits";
    i32, Int, |element| integer(&element), "an integer of 32 bits";
    i64, Int, |element| integer(&element), "an integer of 64 bits";
    u8, Int, |element| integer(&element), "an integer of 8 bits, not negative";
    u16, Int, |element| integer(&element), "an integer of 16 bits, not negative";
    u32, Int, |element| integer(&element), "an integer of 32 bits, not negative";
    u64, Int, |element| integer(&element), "an integer of 64 bits, not negative";
    bool, Bool, |element| taken!(element, Bool), "a bool";
    f64, Float, |element| taken!(element, Float), "a float";
    String, Text, |element| taken!(element, Text), "text";
    Time, Time, |element| taken!(element, Time), "a time";
    Element, Any, |element| Some(element.clone()), "an element";
}

macro_rules! elements {
    ($($kind:ty),*) => {$( __key_element!($kind); )*};
}

elements!(i8, i16, i32, i64, u8, u16, u32, u64, bool, f64, String, Time, Element);

macro_rules! stand_for {
    ($($asked:ty),* => $kept:ty) => {$(
        impl ElementFor<$kept> for $asked {}
        impl ElementFor<Option<$kept>> for $asked {}
        __key_stands_for!($asked, $kept);
    )*};
}

stand_for!(i16, i32, i64, u8, u16, u32, u64 => i8);
stand_for!(i8, i32, i64, u8, u16, u32, u64 => i16);
stand_for!(i8, i16, i64, u8, u16, u32, u64 => i32);
stand_for!(i8, i16, i32, u8, u16, u32, u64 => i64);
stand_for!(i8, i16, i32, i64, u16, u32, u64 => u8);
stand_for!(i8, i16, i32, i64, u8, u32, u64 => u16);
stand_for!(i8, i16, i32, i64, u8, u16, u64 => u32);
stand_for!(i8, i16, i32, i64, u8, u16, u32 => u64);
stand_for!(str => String);
#[cfg(feature = "uuid")]
elements!(uuid::Uuid);
__key_begins!(str);

/// As `__key_begins`, for a type with a parameter.
macro_rules! begins {
    ([$($parameter:tt)+] $kind:ty; [$($rest:ident)*]) => {};
    ([$($parameter:tt)+] $kind:ty; [$($rest:ident)*] $next:ident $($more:ident)*) => {
        impl<$($parameter)+, First, $($rest),*> PrefixFor<(First, $($rest,)*)> for $kind
        where
            $kind: ElementFor<First>,
        {
        }

        begins!([$($parameter)+] $kind; [$($rest)* $next] $($more)*);
    };
}

impl<T: OwnedElement> OwnedKey for Option<T> {
    const ELEMENTS: usize = 1;

    fn from_elements(elements: Vec<Element>) -> Result<Self> {
        let (element,): (Self,) = OwnedKey::from_elements(elements)?;
        Ok(element)
    }
}

impl<T: ElementFor<K>, K> ElementFor<Reverse<K>> for Reverse<T> {}
impl<T: ElementFor<K>, K> KeyFor<Reverse<K>> for Reverse<T> {}
impl<T: ElementFor<K>, K> PrefixFor<Reverse<K>> for Reverse<T> {}
begins!([T: AsElement] Reverse<T>; [] A B C D E F G H);

impl<T: OwnedElement> OwnedElement for Reverse<T> {
    const COLUMN: ColumnType = T::COLUMN;
    const IS_DESCENDING: bool = true;

    fn from_element(element: Element) -> Result<Reverse<T>> {
        match element {
            Element::Descending(inside) => T::from_element(*inside).map(Reverse),
            element => Err(unexpected(&element, "a descending element")),
        }
    }
}

impl<T: OwnedElement> OwnedKey for Reverse<T> {
    const ELEMENTS: usize = 1;

    fn from_elements(elements: Vec<Element>) -> Result<Self> {
        let (element,): (Self,) = OwnedKey::from_elements(elements)?;
        Ok(element)
    }
}

// Only of the same type, so that the type of a bare `None` is known.
impl<T: OwnedElement> KeyFor<Option<T>> for Option<T> {}
impl<T: OwnedElement> PrefixFor<Option<T>> for Option<T> {}
begins!([T: AsElement] Option<T>; [] A B C D E F G H);

impl<const N: usize> OwnedKey for ByteArray<N> {
    const ELEMENTS: usize = 1;

    fn from_elements(elements: Vec<Element>) -> Result<Self> {
        let (element,): (Self,) = OwnedKey::from_elements(elements)?;
        Ok(element)
    }
}

impl<const N: usize> ElementFor<ByteArray<N>> for ByteArray<N> {}
impl<const N: usize> ElementFor<Option<ByteArray<N>>> for ByteArray<N> {}
impl<const N: usize> ElementFor<Option<ByteArray<N>>> for [u8; N] {}
impl<const N: usize> KeyFor<Option<ByteArray<N>>> for ByteArray<N> {}
impl<const N: usize> KeyFor<Option<ByteArray<N>>> for [u8; N] {}
impl<const N: usize> PrefixFor<Option<ByteArray<N>>> for ByteArray<N> {}
impl<const N: usize> PrefixFor<Option<ByteArray<N>>> for [u8; N] {}
impl<const N: usize> KeyFor<ByteArray<N>> for ByteArray<N> {}
impl<const N: usize> PrefixFor<ByteArray<N>> for ByteArray<N> {}
impl<const N: usize> ElementFor<ByteArray<N>> for [u8; N] {}
impl<const N: usize> KeyFor<ByteArray<N>> for [u8; N] {}
impl<const N: usize> PrefixFor<ByteArray<N>> for [u8; N] {}
begins!([const N: usize] ByteArray<N>; [] A B C D E F G H);
begins!([const N: usize] [u8; N]; [] A B C D E F G H);

macro_rules! tuples {
    ($(($($name:ident $asked:ident),+) $count:literal;)*) => {$(
        impl<$($name: OwnedElement),+> OwnedKey for ($($name,)+) {
            const ELEMENTS: usize = $count;

            fn from_elements(elements: Vec<Element>) -> Result<Self> {
                let found = elements.len();
                if found != $count {
                    return Err(Error::invalid(format!(
                        "a key has {found} element(s), and {} were expected", $count
                    )));
                }
                let mut elements = elements.into_iter();
                Ok(($($name::from_element(elements.next().expect("they were counted"))?,)+))
            }
        }

        impl<$($name, $asked: ElementFor<$name>),+> KeyFor<($($name,)+)> for ($($asked,)+) {}
    )*};
}

tuples! {
    (A P) 1;
    (A P, B Q) 2;
    (A P, B Q, C R) 3;
    (A P, B Q, C R, D S) 4;
    (A P, B Q, C R, D S, E T) 5;
    (A P, B Q, C R, D S, E T, F U) 6;
    (A P, B Q, C R, D S, E T, F U, G V) 7;
    (A P, B Q, C R, D S, E T, F U, G V, H W) 8;
}

/// A tuple is a prefix of every longer one, and of itself.
macro_rules! beginnings {
    ([$($name:ident $asked:ident),+] [$($rest:ident),*]) => {
        impl<$($name, $asked: ElementFor<$name>,)+ $($rest),*> PrefixFor<($($name,)+ $($rest,)*)>
            for ($($asked,)+)
        {
        }
    };
    ([$($given:tt)+] [$($rest:ident),*] $next:ident $($more:ident)*) => {
        beginnings!([$($given)+] [$($rest),*]);
        beginnings!([$($given)+] [$($rest,)* $next] $($more)*);
    };
}

beginnings!([A P] [] B C D E F G H);
beginnings!([A P, B Q] [] C D E F G H);
beginnings!([A P, B Q, C R] [] D E F G H);
beginnings!([A P, B Q, C R, D S] [] E F G H);
beginnings!([A P, B Q, C R, D S, E T] [] F G H);
beginnings!([A P, B Q, C R, D S, E T, F U] [] G H);
beginnings!([A P, B Q, C R, D S, E T, F U, G V] [] H);
beginnings!([A P, B Q, C R, D S, E T, F U, G V, H W] []);
