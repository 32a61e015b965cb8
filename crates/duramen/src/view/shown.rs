//! Results of reductions as document values: for tools, which know a view by its catalogue entry.

use crate::store::error::Result;
use crate::value::document::{Document, Value};
use crate::view::kinds::Reduce;
use crate::view::reducer::{Outcome, element, unreadable};
use crate::view::sketch::{Distinct, Distribution, Quantiles, Sketch, Top};

/// The parts of a distribution that are shown.
const SHOWN: [(&str, f64); 7] =
    [("min", 0.0), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

impl Reduce {
    /// The result of a reduction: a number, a value, a list of the best ones, or a map of quantiles with
    /// their relative error.
    ///
    /// The result of a reduction in code is null: only the code can decode it.
    ///
    /// # Errors
    /// `CorruptData` for an invalid result.
    pub(crate) fn shown(&self, outcome: &Outcome<'_>) -> Result<Value> {
        Ok(match (self, outcome) {
            (_, Outcome::Sum(sum)) => Value::Int(*sum),
            (Reduce::Sum(_) | Reduce::Distinct(_), Outcome::Nothing) => Value::Int(0),
            (Reduce::TopK(..) | Reduce::BottomK(..), Outcome::Nothing) => Value::List(Vec::new()),
            (_, Outcome::Nothing) | (Reduce::Code { .. }, _) => Value::Null,
            (Reduce::TopK(..) | Reduce::BottomK(..), Outcome::Bytes(bytes)) => {
                Value::List(Top::elements(bytes)?.into_iter().map(Value::from).collect())
            }
            (Reduce::Distinct(_), Outcome::Bytes(bytes)) => {
                Value::from(Distinct::estimate(bytes).ok_or_else(unreadable)?)
            }
            (Reduce::Quantiles(_), Outcome::Bytes(bytes)) => quantiles(bytes)?,
            (_, Outcome::Bytes(_)) => element(outcome)?.map_or(Value::Null, Value::from),
        })
    }
}

fn quantiles(bytes: &[u8]) -> Result<Value> {
    let mut sketch = Quantiles::default();
    sketch.merge(bytes).ok_or_else(unreadable)?;
    let all = Distribution::of(sketch);
    let mut shown = Document::new();
    for (name, q) in SHOWN {
        shown = shown.with(name, all.quantile(q).map_or(Value::Null, Value::Float));
    }
    Ok(Value::Map(shown.with("relative_error", all.relative_error())))
}
