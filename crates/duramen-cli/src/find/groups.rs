//! `find --group-by` and the aggregates: one row for each group of documents.

use duramen::find::{FindPlan, Step};
use duramen::schema::{Column, ColumnType};
use duramen::{Document, Schema, Value};
use duramen_proto::{query, v1};

use super::{LOOK_ROWS, THREAD_LOOK_ROWS_MIN, THREADS_LOOK_ROWS, results};
use crate::args::{AggregateFlags, FindArgs};
use crate::backend::{self, Reading, unexpected};
use crate::failure::{Failure, Result};
use crate::names::listed;
use crate::numbers::counted;
use crate::output::{Output, printable, shell_word};
use crate::signals::Signals;

/// Whether the arguments ask for groups instead of documents.
pub(super) fn are_wanted(args: &FindArgs) -> bool {
    let AggregateFlags { sum, mean, min, max, distinct, quantile } = &args.aggregates;
    let flags = [sum, mean, min, max, distinct, quantile];
    !args.group_by.is_empty() || flags.iter().any(|fields| !fields.is_empty())
}

/// An aggregate, with its name and the type of its results.
struct Named {
    aggregate: v1::Aggregate,
    name: String,
    kind: ColumnType,
}

fn aggregates(schema: &Schema, args: &FindArgs) -> Result<Vec<Named>> {
    use v1::AggregateKind as Kind;
    let AggregateFlags { sum, mean, min, max, distinct, quantile } = &args.aggregates;
    let of = |field: &str| schema.kind(field).unwrap_or(ColumnType::Any);
    let mut asked = vec![(Kind::Count, String::new(), 0.0, ColumnType::Int)];
    for (kind, fields) in
        [(Kind::Sum, sum), (Kind::Mean, mean), (Kind::Min, min), (Kind::Max, max), (Kind::Distinct, distinct)]
    {
        let result = |field: &str| match kind {
            Kind::Mean => ColumnType::Float,
            Kind::Distinct => ColumnType::Int,
            _ => of(field),
        };
        asked.extend(fields.iter().flatten().map(|field| (kind, field.clone(), 0.0, result(field))));
    }
    for text in quantile.iter().flatten() {
        let (field, part) = self::quantile(text)?;
        let kind = of(&field);
        asked.push((Kind::Quantile, field, part, kind));
    }
    let named = |(of, field, part, kind): (Kind, String, f64, ColumnType)| {
        let aggregate = v1::Aggregate { kind: of.into(), field, part };
        Ok(Named { name: query::aggregate(&aggregate)?.name().to_owned(), aggregate, kind })
    };
    asked.into_iter().map(named).collect()
}

/// The groups that the arguments ask for.
pub(super) fn grouping(schema: &Schema, args: &FindArgs) -> Result<v1::Grouping> {
    let fields = args.group_by.iter().flatten().cloned().collect();
    let aggregates = aggregates(schema, args)?.into_iter().map(|named| named.aggregate).collect();
    Ok(v1::Grouping { fields, aggregates })
}

/// The field of a quantile, and the part of its values.
pub(super) fn quantile(text: &str) -> Result<(String, f64)> {
    let (field, written) = text.rsplit_once(':').unwrap_or((text, ""));
    let part = written.trim_start_matches(['p', 'P']).parse::<f64>().ok();
    match part {
        Some(part) if (0.0..=1.0).contains(&part) => return Ok((field.to_owned(), part)),
        _ => {}
    }
    let percent = part.filter(|part| *part > 1.0 && *part <= 100.0);
    let meant = percent.map_or(0.5, |percent| percent / 100.0);
    let which = if meant == 0.5 { format!("the median of {field}") } else { format!("{written} of 100") };
    let list = listed(&[format!("{field}:{meant}")]);
    Err(Failure::usage(
        format!("{text:?} is no quantile: its part is from 0 to 1"),
        format!("`--quantile {}` is {which}", shell_word(&list)),
    ))
}

/// The names of the results: the fields of the groups, then the aggregates.
pub(super) fn names(schema: &Schema, args: &FindArgs) -> Result<(Vec<String>, Vec<String>)> {
    let named = aggregates(schema, args)?.into_iter().map(|named| named.name).collect();
    Ok((args.group_by.iter().flatten().cloned().collect(), named))
}

/// Prints the groups.
pub(super) fn show(
    db: &Reading,
    schema: &Schema,
    query: &v1::Find,
    plan: &FindPlan,
    args: &FindArgs,
    out: Output,
) -> Result<()> {
    let aggregates = aggregates(schema, args)?;
    let mut found = Found::of(db, query)?;
    let fields = args
        .group_by
        .iter()
        .flatten()
        .map(|field| (field.clone(), schema.kind(field).unwrap_or(ColumnType::Any)));
    let results = aggregates.into_iter().map(|named| (named.name, named.kind));
    let columns: Vec<Column> = fields.chain(results).map(|(name, kind)| Column { name, kind }).collect();
    let count = results::write(schema, &columns, &mut || found.next(), u64::MAX, args.format, out)?;
    found.check_signal(out)?;
    let limited = if Some(count) == args.limit { ", the limit" } else { "" };
    out.note(&format!(
        "{}{limited}; {} read by {}",
        counted(count, "group"),
        counted(found.groups.read_count(), "document"),
        printable(&plan.path_shown())
    ));
    Ok(())
}

/// How many documents satisfy the conditions.
pub(super) fn count(db: &Reading, query: &v1::Find, out: Output) -> Result<u64> {
    let grouping = v1::Grouping { fields: Vec::new(), aggregates: vec![v1::Aggregate::default()] };
    let mut found = Found::of(db, &v1::Find { grouping: Some(grouping), ..query.clone() })?;
    let counted = found.next()?;
    found.check_signal(out)?;
    let counted = counted.as_ref().and_then(|counted| counted.get("count"));
    match counted {
        Some(Value::Int(count)) => u64::try_from(*count).map_err(|_| unexpected("a negative count")),
        _ => Err(unexpected("no count")),
    }
}

/// The groups, until a signal comes.
struct Found {
    groups: backend::Found,
    signals: Signals,
}

impl Found {
    fn of(db: &Reading, query: &v1::Find) -> Result<Found> {
        Ok(Found { groups: db.find(query)?, signals: Signals::watch()? })
    }

    /// Fails if a signal ended the query.
    fn check_signal(&self, out: Output) -> Result<()> {
        let Some(number) = self.signals.received() else { return Ok(()) };
        let read = counted(self.groups.read_count(), "document");
        out.note(&format!("stopped by signal {number} after {read} read"));
        Err(Failure::signal(number))
    }

    fn next(&mut self) -> Result<Option<Document>> {
        loop {
            if self.signals.received().is_some() {
                return Ok(None);
            }
            let look_rows = match self.groups.threads() {
                1 => LOOK_ROWS,
                threads => THREADS_LOOK_ROWS.max(threads as u64 * THREAD_LOOK_ROWS_MIN),
            };
            match self.groups.next_within(look_rows)? {
                Step::Found(group) => return Ok(Some(group)),
                Step::Unfinished => {}
                Step::End => return Ok(None),
            }
        }
    }
}
