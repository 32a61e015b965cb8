//! Aggregates of documents: what is asked, and what is known of it after some of them.
//!
//! Pure. States of two sets of documents join to that of both, and can be stored, so that groups may spill.

use super::float_sum::FloatSum;
use super::order::write_value;
use super::path::Path;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::msgpack::Token;

/// A question about all documents of a group.
///
/// Nulls are left out, but a [`count`](Aggregate::count) counts documents. Of no values it is null, but a
/// count and a number of distinct values is 0. A path through every item of a list (`lines[].price`) takes
/// each item.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    kind: Kind,
    field: String,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    Distinct,
    Quantile(f64),
}

impl Aggregate {
    fn new(kind: Kind, name: &str, field: String) -> Aggregate {
        Aggregate { kind, name: format!("{name}_{field}"), field }
    }

    /// How many documents there are; named `count`.
    #[must_use]
    pub fn count() -> Aggregate {
        Aggregate { kind: Kind::Count, field: String::new(), name: "count".to_owned() }
    }

    /// The exact sum of numbers; named `sum_FIELD`.
    ///
    /// A sum of integers is an integer. If floats are among them it is the float nearest to the exact sum,
    /// whatever their order.
    #[must_use]
    pub fn sum(field: impl Into<String>) -> Aggregate {
        Aggregate::new(Kind::Sum, "sum", field.into())
    }

    /// The mean of numbers, a float: their exact sum over their count; named `mean_FIELD`.
    #[must_use]
    pub fn mean(field: impl Into<String>) -> Aggregate {
        Aggregate::new(Kind::Mean, "mean", field.into())
    }

    /// The first value in the order of [`OrderBy`](crate::find::OrderBy); named `min_FIELD`.
    #[must_use]
    pub fn min(field: impl Into<String>) -> Aggregate {
        Aggregate::new(Kind::Min, "min", field.into())
    }

    /// The last value in that order; named `max_FIELD`.
    #[must_use]
    pub fn max(field: impl Into<String>) -> Aggregate {
        Aggregate::new(Kind::Max, "max", field.into())
    }

    /// The exact number of distinct values; named `distinct_FIELD`.
    #[must_use]
    pub fn distinct(field: impl Into<String>) -> Aggregate {
        Aggregate::new(Kind::Distinct, "distinct", field.into())
    }

    /// The smallest value with at least this part of the values at or before it (nearest rank); named
    /// `q0.5_FIELD` for the median.
    #[must_use]
    pub fn quantile(field: impl Into<String>, part: f64) -> Aggregate {
        Aggregate::new(Kind::Quantile(part), &format!("q{part}"), field.into())
    }

    /// Gives the result another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Aggregate {
        self.name = name.into();
        self
    }

    /// The name of the result.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// An aggregate of the documents of a schema.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// `None` for a count.
    pub(super) path: Option<Path>,
}

impl Term {
    /// # Errors
    /// `InvalidArgument` for a field that the schema does not have, one that has no sum, and a quantile of no
    /// part between 0 and 1.
    pub(super) fn of(schema: &Schema, aggregate: &Aggregate) -> Result<Term> {
        let Aggregate { kind, field, name } = aggregate;
        let path = match kind {
            Kind::Count => None,
            _ => Some(Path::of(schema, field)?),
        };
        let column = path.as_ref().filter(|path| path.is_column()).and_then(|path| schema.kind(path.text()));
        if let (Kind::Sum | Kind::Mean, Some(ColumnType::Text | ColumnType::Bool | ColumnType::Time)) =
            (kind, column)
        {
            let kind = column.unwrap_or_default();
            return Err(Error::invalid(format!(
                "{name}: the field {field} is of type {kind}, and has no sum"
            ))
            .with_hint(format!("a minimum, maximum or quantile of {field} has an answer, and so has a number of distinct values")));
        }
        if let Kind::Quantile(part) = kind
            && !(0.0..=1.0).contains(part)
        {
            return Err(Error::invalid(format!("{part} is no part of the values of {field}"))
                .with_hint(format!("a part is a number from 0 to 1: 0.5 for the median of {field}")));
        }
        Ok(Term { kind: *kind, name: name.clone(), path })
    }

    /// Whether it needs its values in order.
    pub(super) fn is_of_sorted_values(&self) -> bool {
        matches!(self.kind, Kind::Distinct | Kind::Quantile(_))
    }

    pub(super) fn start(&self) -> State {
        match self.kind {
            Kind::Count | Kind::Distinct | Kind::Quantile(_) => State::Count(0),
            Kind::Sum | Kind::Mean => State::Total(Total::default()),
            Kind::Min | Kind::Max => State::Best(None),
        }
    }

    /// Adds a document. Calls `sorted` with each value of a term of sorted values.
    pub(super) fn add(
        &self,
        state: &mut State,
        schema: &Schema,
        document: &Document,
        sorted: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        let Some(path) = &self.path else {
            state.count_one();
            return Ok(());
        };
        let mut added = Ok(());
        path.any(schema, document, &mut |value| {
            if *value != Value::Null {
                added = self.add_value(state, value, sorted);
            }
            added.is_err()
        });
        added
    }

    /// As [`Term::add`], of the term's field as it is stored: a scalar. Of a count it does not matter.
    pub(super) fn add_scalar(
        &self,
        state: &mut State,
        found: &Token<'_>,
        sorted: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        match state {
            _ if self.path.is_none() => {
                state.count_one();
                Ok(())
            }
            _ if *found == Token::Null => Ok(()),
            State::Total(total) => total.add(found).ok_or_else(|| self.no_number(&Value::of_scalar(*found))),
            State::Count(_) | State::Best(_) => self.add_value(state, &Value::of_scalar(*found), sorted),
        }
    }

    fn add_value(
        &self,
        state: &mut State,
        value: &Value,
        sorted: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        match state {
            State::Count(_) => {
                state.count_one();
                sorted(value)
            }
            State::Total(total) => total.add(&value.token()).ok_or_else(|| self.no_number(value)),
            State::Best(best) => {
                let mut key = Vec::new();
                write_value(value, false, &mut key);
                self.keep(best, key, value);
                Ok(())
            }
        }
    }

    /// The error of a value that cannot be summed.
    #[cold]
    fn no_number(&self, value: &Value) -> Error {
        let (field, kind) = (self.path.as_ref().map_or("", Path::text), value.kind());
        Error::invalid(format!("{}: the field {field} holds {kind} in a document, not a number", self.name))
            .with_hint(format!("leave such documents out with a condition that only numbers satisfy, such as '{field}>=-1e308'"))
    }

    fn keep(&self, best: &mut Option<(Vec<u8>, Value)>, key: Vec<u8>, value: &Value) {
        let is_better =
            |own: &[u8]| if self.kind == Kind::Min { key.as_slice() < own } else { key.as_slice() > own };
        if best.as_ref().is_none_or(|(own, _)| is_better(own)) {
            *best = Some((key, value.clone()));
        }
    }

    /// Joins the state of other documents.
    pub(super) fn join(&self, state: &mut State, other: State) {
        match (state, other) {
            (State::Count(own), State::Count(other)) => *own += other,
            (State::Total(own), State::Total(other)) => own.join(&other),
            (State::Best(best), State::Best(Some((key, value)))) => self.keep(best, key, &value),
            _ => {}
        }
    }

    /// The answer, for terms that need no sorted values.
    ///
    /// # Errors
    /// `InvalidArgument` for a sum beyond 64 bits.
    pub(super) fn answer(&self, state: &State) -> Result<Value> {
        Ok(match state {
            State::Count(count) => Value::from(*count),
            State::Total(total) if self.kind == Kind::Mean => total.mean(),
            State::Total(total) => total.sum(&self.name)?,
            State::Best(best) => best.as_ref().map_or(Value::Null, |(_, value)| value.clone()),
        })
    }
}

/// What is known of an aggregate after some documents.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// Documents, or values that are not null.
    Count(u64),
    Total(Total),
    /// The first or last value, after the bytes of its order.
    Best(Option<(Vec<u8>, Value)>),
}

impl State {
    /// So many documents.
    pub(super) fn of_count(count: u64) -> State {
        State::Count(count)
    }

    /// So many integers with this sum.
    pub(super) fn of_sum(count: u64, sum: i128) -> State {
        State::Total(Total { count, ints: sum, floats: None })
    }
}

/// A sum and a count.
#[derive(Debug, Clone, Default)]
pub(super) struct Total {
    count: u64,
    ints: i128,
    /// The sum of the floats, if there are any.
    floats: Option<Box<FloatSum>>,
}

impl Total {
    fn add(&mut self, value: &Token<'_>) -> Option<()> {
        match value {
            // 2^63 integers of 64 bits do not overflow it.
            Token::Int(value) => self.ints += value,
            Token::Float(value) => self.floats.get_or_insert_with(|| Box::new(FloatSum::new())).add(*value),
            _ => return None,
        }
        self.count += 1;
        Some(())
    }

    fn join(&mut self, other: &Total) {
        self.count += other.count;
        self.ints += other.ints;
        if let Some(floats) = &other.floats {
            self.floats.get_or_insert_with(|| Box::new(FloatSum::new())).merge(floats);
        }
    }

    /// The sum as a float.
    fn float(&self) -> f64 {
        let mut sum = self.floats.as_deref().cloned().unwrap_or_else(FloatSum::new);
        sum.add_int(self.ints);
        sum.value()
    }

    fn sum(&self, name: &str) -> Result<Value> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        if self.floats.is_some() {
            return Ok(Value::Float(self.float()));
        }
        let fits = i64::try_from(self.ints).is_ok() || u64::try_from(self.ints).is_ok();
        if !fits {
            return Err(Error::invalid(format!(
                "{name} is {}, which no integer of 64 bits holds",
                self.ints
            ))
            .with_hint("ask for the mean and the count, or group the documents into smaller sums"));
        }
        Ok(Value::Int(self.ints))
    }

    fn mean(&self) -> Value {
        #[allow(clippy::cast_precision_loss, reason = "2^53 documents are not stored")]
        let count = self.count as f64;
        if self.count == 0 { Value::Null } else { Value::Float(self.float() / count) }
    }
}

impl State {
    fn count_one(&mut self) {
        if let State::Count(count) = self {
            *count += 1;
        }
    }

    /// About how much memory it takes beside itself.
    pub(super) fn extra_bytes(&self) -> usize {
        match self {
            State::Total(Total { floats: Some(_), .. }) => size_of::<FloatSum>(),
            State::Best(Some((key, _))) => 2 * key.len(),
            _ => 0,
        }
    }

    /// The state as a value, for [`State::from_value`].
    pub(super) fn to_value(&self) -> Value {
        match self {
            State::Count(count) => Value::from(*count),
            State::Total(total) => Value::from(vec![
                Value::from(total.count),
                Value::from(total.ints.to_string()),
                total.floats.as_ref().map_or(Value::Null, |floats| Value::from(floats.to_bytes())),
            ]),
            State::Best(best) => Value::from(best.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()),
        }
    }

    /// A stored state of a term.
    pub(super) fn from_value(term: &Term, value: Value) -> Option<State> {
        Some(match (term.start(), value) {
            (State::Count(_), Value::Int(count)) => State::Count(count.try_into().ok()?),
            (State::Total(_), Value::List(parts)) => {
                let [Value::Int(count), Value::Text(ints), floats] = <[Value; 3]>::try_from(parts).ok()?
                else {
                    return None;
                };
                let floats = match floats {
                    Value::Bytes(bytes) => Some(Box::new(FloatSum::from_bytes(&bytes)?)),
                    _ => None,
                };
                State::Total(Total { count: count.try_into().ok()?, ints: ints.parse().ok()?, floats })
            }
            (State::Best(_), Value::List(mut best)) => State::Best(best.pop().map(|value| {
                let mut key = Vec::new();
                write_value(&value, false, &mut key);
                (key, value)
            })),
            _ => return None,
        })
    }
}

/// The rank of a quantile among so many values, from 1 on.
pub(super) fn nearest_rank(part: f64, count: u64) -> u64 {
    #[allow(clippy::cast_precision_loss, reason = "2^53 documents are not stored")]
    let at = part * count as f64;
    // 0.55 of 100 is 55, though the product of the floats is a little more.
    let is_whole = (at - at.round()).abs() < 1e-9 * at.max(1.0);
    let rank = if is_whole { at.round() } else { at.ceil() };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the count")]
    let rank = rank as u64;
    rank.clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    //! A rank that is one off is another value.
    use super::*;

    #[test]
    fn a_quantile_is_at_the_nearest_rank() {
        for (part, count, rank) in [
            (0.0, 5, 1),
            (1.0, 5, 5),
            (0.5, 5, 3),
            (0.5, 4, 2),
            (0.55, 100, 55),
            (0.56, 100, 56),
            (0.9, 10, 9),
            (0.901, 10, 10),
            (0.5, 1, 1),
            (0.29, 100, 29),
        ] {
            assert_eq!(nearest_rank(part, count), rank, "{part} of {count}");
        }
    }
}
