//! The reductions that a view can keep, as types: their inputs and answers.
//!
//! | in `reduce = (...)` | over | answers |
//! |---|---|---|
//! | `Count` | rows | `u64` |
//! | `Sum`, `Sum(field)` | integers; null counts 0 | `i128`, exact |
//! | `Mean`, `Mean(field)` | integers; nulls left out | `Option<f64>` |
//! | `Min`, `Min(field)` | anything that can be in a key, up to 40 bytes; nulls left out | `Option<T>` |
//! | `Max`, `Max(field)` | the same | `Option<T>` |
//! | `TopK(k)`, `TopK(k, field)` | the same; k is 1 to 32 | `Vec<T>`: the k largest, the largest first, with repetitions |
//! | `BottomK(k)`, `BottomK(k, field)` | the same | `Vec<T>`: the k smallest, the smallest first |
//! | `Distinct`, `Distinct(field)` | anything that can be in a key; nulls left out | `u64`: the approximate number of distinct values. The standard error is 2.3 % |
//! | `Quantiles`, `Quantiles(field)` | numbers, no NaN; nulls left out | [`Distribution`]: quantiles with a stated maximum relative error: 0.4 % unless magnitudes vary widely |
//! | `With(Mine)`, `With(Mine, field)` | what `Mine` takes; nulls left out | what [`Mine`](crate::view::monoid::Monoid) answers |
//!
//! Several answer as a tuple, in their order; one alone answers bare, without a tuple around it. A document
//! with a value of more than 40 bytes is refused by `Min`, `Max`, `TopK` and `BottomK`.
//!
//! The reductions of one view may take at most 4,096 bytes per child; a view that could need more is refused.
//! A number takes up to 31 bytes, an element 52, `TopK(k)` 12 and 41 k, `Distinct` 1,549 (usually 250 to
//! 900), `Quantiles` 1,036 (usually 200 to 800). Reductions are stored beside every child of every node, so
//! long ones cost space and writes: docs/decisions/0016.
//!
//! The reductions do not include the documents with the largest values, because keys may be long. For these
//! use a view whose last key field is the value, and `prefix(..).reverse().limit(k).docs()`.
//!
//! No reduction sums floats: the sum would depend on page splits. Store an integer of a smaller unit.

use std::collections::{BTreeSet, HashSet};
use std::marker::PhantomData;

use crate::store::error::Result;
use crate::value::tuple::OwnedElement;
use crate::view::kinds::Reduce;
use crate::view::monoid::{Monoid, state};
use crate::view::reducer::{Outcome, Part, element, unreadable};
use crate::view::sketch::{self, Distribution, Sketch, Top};

/// How many rows there are.
#[derive(Debug)]
pub struct Count;

/// The exact sum of integers.
#[derive(Debug)]
pub struct Sum;

/// The mean of integers.
#[derive(Debug)]
pub struct Mean;

/// The smallest value.
#[derive(Debug)]
pub struct Min<T>(PhantomData<T>);

/// The largest value.
#[derive(Debug)]
pub struct Max<T>(PhantomData<T>);

/// The `K` largest values.
#[derive(Debug)]
pub struct TopK<T, const K: usize>(PhantomData<T>);

/// The `K` smallest values.
#[derive(Debug)]
pub struct BottomK<T, const K: usize>(PhantomData<T>);

/// The approximate number of distinct values.
#[derive(Debug)]
pub struct Distinct;

impl Distinct {
    /// The relative standard deviation of the answer: two answers of three are within it.
    pub const STANDARD_ERROR: f64 = 0.023;
}

/// The approximate distribution of the values.
#[derive(Debug)]
pub struct Quantiles;

/// The answer of a reduction in code.
#[derive(Debug)]
pub struct With<M>(PhantomData<M>);

/// A field that can be summed exactly. For `#[derive(Collection)]`.
#[diagnostic::on_unimplemented(
    message = "a view cannot sum `{Self}`",
    note = "integers of up to 64 bits are summed exactly; a sum of floats would depend on where pages are split: store an \
            integer of a smaller unit"
)]
pub trait Summed {}

/// A field that has quantiles. For `#[derive(Collection)]`.
#[diagnostic::on_unimplemented(
    message = "a view has no quantiles of `{Self}`",
    note = "integers and floats have them: `TopK` and `BottomK` take anything that has an order"
)]
pub trait Measured {}

/// A field that a reduction in code takes. For `#[derive(Collection)]`.
#[diagnostic::on_unimplemented(
    message = "the reduction `{M}` does not take `{Self}`",
    note = "its `Monoid::Value` is another type than that of the field"
)]
pub trait TakenBy<M> {}

impl<M: Monoid> TakenBy<M> for M::Value {}

/// A field with a row for each of its items. For `#[derive(Collection)]`.
#[diagnostic::on_unimplemented(
    message = "a view cannot have a row for each item of `{Self}`",
    note = "`each` takes a Vec, a BTreeSet or a HashSet as the last key field"
)]
pub trait Each {
    /// What it holds.
    type Item;
}

macro_rules! summed {
    ($($kind:ty),*) => {$( impl Summed for $kind {} )*};
}

macro_rules! measured {
    ($($kind:ty),*) => {$( impl Measured for $kind {} )*};
}

measured!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, usize, f32, f64);
summed!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

impl<T> Each for Vec<T> {
    type Item = T;
}

impl<T> Each for BTreeSet<T> {
    type Item = T;
}

impl<T, S> Each for HashSet<T, S> {
    type Item = T;
}

/// One reduction of a view. [The module](self) lists those there are.
pub trait Reduction {
    /// What it answers.
    type Answer;

    /// Whether the tree stores something for it. The tree counts rows anyway.
    const KEPT: bool;

    /// What the tree stores for it over a value.
    #[must_use]
    fn kept(value: usize) -> Option<Reduce>;

    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(count: u64, part: Option<&Part<'_>>) -> Result<Self::Answer>;
}

impl Reduction for Count {
    type Answer = u64;
    const KEPT: bool = false;

    fn kept(_: usize) -> Option<Reduce> {
        None
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(count: u64, _: Option<&Part<'_>>) -> Result<u64> {
        Ok(count)
    }
}

fn sum(part: Option<&Part<'_>>) -> i128 {
    match part.map(|part| &part.outcome) {
        Some(Outcome::Sum(sum)) => *sum,
        _ => 0,
    }
}

impl Reduction for Sum {
    type Answer = i128;
    const KEPT: bool = true;

    fn kept(value: usize) -> Option<Reduce> {
        Some(Reduce::Sum(value))
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(_: u64, part: Option<&Part<'_>>) -> Result<i128> {
        Ok(sum(part))
    }
}

impl Reduction for Mean {
    type Answer = Option<f64>;
    const KEPT: bool = true;

    fn kept(value: usize) -> Option<Reduce> {
        Some(Reduce::Sum(value))
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    #[allow(clippy::cast_precision_loss, reason = "a mean is the nearest float")]
    fn answer(_: u64, part: Option<&Part<'_>>) -> Result<Option<f64>> {
        let seen = part.map_or(0, |part| part.seen);
        Ok((seen > 0).then(|| sum(part) as f64 / seen as f64))
    }
}

macro_rules! extremes {
    ($($kind:ident),*) => {$(
        impl<T: OwnedElement> Reduction for $kind<T> {
            type Answer = Option<T>;
            const KEPT: bool = true;

            fn kept(value: usize) -> Option<Reduce> {
                Some(Reduce::$kind(value))
            }

            #[allow(private_interfaces, reason = "nobody else implements it")]
            fn answer(_: u64, part: Option<&Part<'_>>) -> Result<Option<T>> {
                let Some(part) = part else { return Ok(None) };
                element(&part.outcome)?.map(T::from_element).transpose()
            }
        }
    )*};
}

extremes!(Min, Max);

/// In a view in code, a reduction over a value other than the first: `At<Sum, 1>` over the second.
#[derive(Debug)]
pub struct At<R, const VALUE: usize>(PhantomData<R>);

impl<R: Reduction, const VALUE: usize> Reduction for At<R, VALUE> {
    type Answer = R::Answer;
    const KEPT: bool = R::KEPT;

    fn kept(_: usize) -> Option<Reduce> {
        R::kept(VALUE)
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(count: u64, part: Option<&Part<'_>>) -> Result<R::Answer> {
        R::answer(count, part)
    }
}

/// The bytes of a sketch.
fn sketched<'a>(part: Option<&Part<'a>>) -> Option<&'a [u8]> {
    match part?.outcome {
        Outcome::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

macro_rules! best {
    ($($kind:ident),*) => {$(
        impl<T: OwnedElement, const K: usize> Reduction for $kind<T, K> {
            type Answer = Vec<T>;
            const KEPT: bool = true;

            fn kept(value: usize) -> Option<Reduce> {
                Some(Reduce::$kind(value, K))
            }

            #[allow(private_interfaces, reason = "nobody else implements it")]
            fn answer(_: u64, part: Option<&Part<'_>>) -> Result<Vec<T>> {
                Top::elements(sketched(part).unwrap_or_default())?.into_iter().map(T::from_element).collect()
            }
        }
    )*};
}

best!(TopK, BottomK);

impl Reduction for Distinct {
    type Answer = u64;
    const KEPT: bool = true;

    fn kept(value: usize) -> Option<Reduce> {
        Some(Reduce::Distinct(value))
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(_: u64, part: Option<&Part<'_>>) -> Result<u64> {
        let Some(bytes) = sketched(part) else { return Ok(0) };
        sketch::Distinct::estimate(bytes).ok_or_else(unreadable)
    }
}

impl Reduction for Quantiles {
    type Answer = Distribution;
    const KEPT: bool = true;

    fn kept(value: usize) -> Option<Reduce> {
        Some(Reduce::Quantiles(value))
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(_: u64, part: Option<&Part<'_>>) -> Result<Distribution> {
        let mut all = sketch::Quantiles::default();
        if let Some(bytes) = sketched(part) {
            all.merge(bytes).ok_or_else(unreadable)?;
        }
        Ok(Distribution::of(all))
    }
}

impl<M: Monoid> Reduction for With<M> {
    type Answer = M::Answer;
    const KEPT: bool = true;

    fn kept(value: usize) -> Option<Reduce> {
        Some(Reduce::code::<M>(value))
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(_: u64, part: Option<&Part<'_>>) -> Result<M::Answer> {
        let stored = sketched(part).map(|bytes| state::<M>(bytes).ok_or_else(unreadable));
        Ok(M::answer(stored.transpose()?))
    }
}

/// The reductions of a view: a tuple of up to eight.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tuple of reductions",
    note = "one reduction needs its comma: `type Reduce = (reduce::Count,);`",
    note = "several are `(reduce::Count, reduce::Sum)`, up to eight; `duramen::view::reduce` lists them"
)]
pub trait Reductions {
    /// Their answers: a tuple, or the answer alone if there is only one.
    type Answer;

    /// What the tree stores for them over the first value.
    #[must_use]
    fn kept() -> Vec<Reduce>;

    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(count: u64, parts: &[Part<'_>]) -> Result<Self::Answer>;
}

impl<A: Reduction> Reductions for (A,) {
    type Answer = A::Answer;

    fn kept() -> Vec<Reduce> {
        A::kept(0).into_iter().collect()
    }

    #[allow(private_interfaces, reason = "nobody else implements it")]
    fn answer(count: u64, parts: &[Part<'_>]) -> Result<A::Answer> {
        A::answer(count, parts.first())
    }
}

macro_rules! tuples {
    ($(($($name:ident),+);)*) => {$(
        impl<$($name: Reduction),+> Reductions for ($($name,)+) {
            type Answer = ($($name::Answer,)+);

            fn kept() -> Vec<Reduce> {
                [$($name::kept(0)),+].into_iter().flatten().collect()
            }

            #[allow(private_interfaces, reason = "nobody else implements it")]
            fn answer(count: u64, parts: &[Part<'_>]) -> Result<Self::Answer> {
                let mut parts = parts.iter();
                Ok(($($name::answer(count, if $name::KEPT { parts.next() } else { None })?,)+))
            }
        }
    )*};
}

tuples! {
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
    (A, B, C, D, E, F, G);
    (A, B, C, D, E, F, G, H);
}
