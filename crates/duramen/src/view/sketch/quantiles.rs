//! Approximate quantiles: counts of values in buckets whose width is relative to their values, as in
//! DDSketch.
//!
//! So an answer has at most a given relative error.
//!
//! A value is taken as a 64-bit float. Its bucket is the sign, and the magnitude's bits without the lowest
//! `shift` ones, plus one; zero is bucket 0. Buckets are in the order of values. Increasing the shift by one
//! merges pairs of neighbours, so the buckets of a shift follow from those of a smaller one.
//!
//! The stored bytes are the shift (one byte), then each nonempty bucket in order. A bucket is twice its count
//! (varint), plus one if its number follows. The number follows unless it is the previous one plus one. It is
//! a varint: for the first bucket the zigzag of its number, for the others the distance from the previous
//! one.
//!
//! **Why grouping makes no difference.** The shift is the smallest one, from 45 on, with which the buckets of
//! all values fit into 1,024 bytes.
//!
//! - More values never take fewer bytes: a new bucket costs at least the byte of its count, which is all that
//!   a shorter distance can save. A larger count is no shorter.
//! - A larger shift never takes more bytes: two buckets become one, whose count has at most one bit more than
//!   the larger of both, and distances shrink.
//!
//! So no part has a larger shift than the whole. The buckets of two parts, with the larger of their shifts,
//! are those of all values with that shift. Continuing from there to the first shift that fits ends where all
//! values together would have ended. So the output is a function of the values alone.

use std::collections::BTreeMap;

use super::{Sketch, value_of};
use crate::value::document::Value;
use crate::view::reducer::{unzigzag, zigzag};
use crate::view::sums::{append_varint, read_varint};

/// Seven bits of the mantissa remain: the relative error is at most 1/257.
const SHIFT_MIN: u8 = 45;

/// One bucket for each sign, which always fits.
const SHIFT_MAX: u8 = 63;

const BYTES_MAX: usize = 1024;

/// Counts by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quantiles {
    shift: u8,
    buckets: BTreeMap<i64, u64>,
}

impl Default for Quantiles {
    fn default() -> Self {
        Quantiles { shift: SHIFT_MIN, buckets: BTreeMap::new() }
    }
}

impl Quantiles {
    /// The maximum length of its output.
    pub(crate) const BYTES_MAX: usize = BYTES_MAX;

    fn add(&mut self, value: f64) {
        *self.buckets.entry(bucket(value, self.shift)).or_default() += 1;
        // Each bucket takes at least one byte: the buckets of more values will not fit either.
        if self.buckets.len() > BYTES_MAX {
            self.fit();
        }
    }

    /// Widens the buckets until they fit.
    fn fit(&mut self) {
        while self.buckets.len() > BYTES_MAX || self.bytes() > BYTES_MAX {
            assert!(self.shift < SHIFT_MAX, "three buckets fit");
            self.shift += 1;
            self.widen(1);
        }
    }

    /// Increases the shift.
    fn widen(&mut self, by: u8) {
        if by > 0 {
            let mut wider = BTreeMap::<i64, u64>::new();
            for (bucket, count) in &self.buckets {
                let sum = wider.entry(widened(*bucket, by)).or_default();
                *sum = sum.wrapping_add(*count);
            }
            self.buckets = wider;
        }
    }

    fn bytes(&self) -> usize {
        let mut out = Vec::with_capacity(2 * BYTES_MAX);
        self.write_to(&mut out);
        out.len()
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.push(self.shift);
        let mut before = None;
        for (&bucket, &count) in &self.buckets {
            let number = match before {
                None => Some(zigzag(i128::from(bucket))),
                Some(before) if before + 1 == bucket => None,
                Some(before) => Some(zigzag(i128::from(bucket - before)) >> 1),
            };
            append_varint(out, (u128::from(count) << 1) | u128::from(number.is_some()));
            number.into_iter().for_each(|number| append_varint(out, number));
            before = Some(bucket);
        }
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Quantiles> {
        let (&shift, mut rest) = bytes.split_first()?;
        let mut buckets = BTreeMap::new();
        let mut before: Option<i64> = None;
        while !rest.is_empty() {
            let word = read_varint(&mut rest)?;
            let bucket = match (before, word & 1) {
                (None, 1) => i64::try_from(unzigzag(read_varint(&mut rest)?)).ok()?,
                (None, _) => return None,
                (Some(before), 0) => before.checked_add(1)?,
                (Some(before), _) => before.checked_add(i64::try_from(read_varint(&mut rest)?).ok()?)?,
            };
            if before.is_some_and(|before| before >= bucket) || bucket.unsigned_abs() > 1 << (63 - SHIFT_MIN)
            {
                return None;
            }
            buckets.insert(bucket, u64::try_from(word >> 1).ok().filter(|count| *count > 0)?);
            before = Some(bucket);
        }
        (SHIFT_MIN..=SHIFT_MAX).contains(&shift).then_some(Quantiles { shift, buckets })
    }
}

impl Sketch for Quantiles {
    fn value(&mut self, stored: &[u8]) -> Result<(), String> {
        let value = match value_of(stored)? {
            #[allow(
                clippy::cast_precision_loss,
                reason = "a sixteenth digit is far below the width of a bucket"
            )]
            Value::Int(number) => number as f64,
            Value::Float(number) if !number.is_nan() => number,
            Value::Float(_) => return Err("a view has quantiles of a field that holds a NaN".to_owned()),
            other => {
                return Err(format!(
                    "a view has quantiles of a field that holds {}; numbers have them",
                    other.kind()
                ));
            }
        };
        self.add(value);
        Ok(())
    }

    fn merge(&mut self, bytes: &[u8]) -> Option<()> {
        let mut more = Quantiles::read(bytes)?;
        let shift = self.shift.max(more.shift);
        self.widen(shift - self.shift);
        more.widen(shift - more.shift);
        self.shift = shift;
        for (bucket, count) in more.buckets {
            let sum = self.buckets.entry(bucket).or_default();
            *sum = sum.wrapping_add(count);
        }
        if self.buckets.len() > BYTES_MAX {
            self.fit();
        }
        Some(())
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.fit();
        self.write_to(out);
    }
}

fn bucket(value: f64, shift: u8) -> i64 {
    let magnitude = value.abs().to_bits();
    if magnitude == 0 {
        return 0;
    }
    let bucket = i64::try_from(magnitude >> shift).expect("a magnitude has 63 bits") + 1;
    if value < 0.0 { -bucket } else { bucket }
}

fn widened(bucket: i64, by: u8) -> i64 {
    match bucket {
        0 => 0,
        bucket => bucket.signum() * (((bucket.abs() - 1) >> by) + 1),
    }
}

/// The answer of [`Quantiles`](crate::view::reduce::Quantiles): the distribution of a range's values, with a
/// maximum relative error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    sketch: Quantiles,
}

impl Distribution {
    pub(crate) fn of(sketch: Quantiles) -> Distribution {
        Distribution { sketch }
    }

    /// How many values there are; nulls are left out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.sketch.buckets.values().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The maximum relative error of a quantile: 0.0039 at best.
    ///
    /// It doubles, or more, if magnitudes vary so widely that their buckets do not fit into 1,024 bytes. It
    /// does not hold near zero, below 2.3e-308.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        match 52_i32 - i32::from(self.sketch.shift) {
            bits if bits >= 0 => 1.0 / (f64::from(1_u32 << bits) * 2.0 + 1.0),
            _ => 1.0,
        }
    }

    /// The approximate `q`-quantile: of `n` values in order, the one with `q * (n - 1)` others before it,
    /// rounded down.
    ///
    /// `None` if there are no values, or `q` is not from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let mut before = ((q * (count - 1) as f64) as u64).min(count - 1);
        for (bucket, count) in &self.sketch.buckets {
            if before < *count {
                return Some(middle(*bucket, self.sketch.shift));
            }
            before -= count;
        }
        None
    }

    /// The approximate median.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }
}

/// The number with the smallest maximum relative distance to all values of a bucket.
fn middle(bucket: i64, shift: u8) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let least = (bucket.unsigned_abs() - 1) << shift;
    let end = least + (1 << shift);
    let infinity = f64::INFINITY.to_bits();
    let middle = if least >= infinity {
        f64::INFINITY
    } else {
        let (from, to) = (f64::from_bits(least), f64::from_bits(end.min(infinity - 1)));
        from * (2.0 / (1.0 + from / to))
    };
    if bucket < 0 { -middle } else { middle }
}
