//! `find --group-by` and the aggregates: one row for each group of documents.

use duramen::find::{Aggregate, Find, FindPlan, GroupIter, Grouped, Step};
use duramen::schema::{Column, ColumnType};
use duramen::{Document, Schema, Value};

use super::{LOOK_ROWS, THREAD_LOOK_ROWS_MIN, THREADS_LOOK_ROWS, order, results};
use crate::args::{AggregateFlags, FindArgs};
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

/// The aggregates, each with the type of its results.
fn aggregates(schema: &Schema, args: &FindArgs) -> Result<Vec<(Aggregate, ColumnType)>> {
    let AggregateFlags { sum, mean, min, max, distinct, quantile } = &args.aggregates;
    let kind = |field: &String| schema.kind(field).unwrap_or(ColumnType::Any);
    let mut found = vec![(Aggregate::count(), ColumnType::Int)];
    found.extend(sum.iter().flatten().map(|field| (Aggregate::sum(field), kind(field))));
    found.extend(mean.iter().flatten().map(|field| (Aggregate::mean(field), ColumnType::Float)));
    found.extend(min.iter().flatten().map(|field| (Aggregate::min(field), kind(field))));
    found.extend(max.iter().flatten().map(|field| (Aggregate::max(field), kind(field))));
    found.extend(distinct.iter().flatten().map(|field| (Aggregate::distinct(field), ColumnType::Int)));
    for text in quantile.iter().flatten() {
        let (field, part) = self::quantile(text)?;
        let kind = kind(&field);
        found.push((Aggregate::quantile(field, part), kind));
    }
    Ok(found)
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
    let named = aggregates(schema, args)?.iter().map(|(aggregate, _)| aggregate.name().to_owned()).collect();
    Ok((args.group_by.iter().flatten().cloned().collect(), named))
}

/// How the groups are found.
pub(super) fn plan(schema: &Schema, find: &Find<'_>, args: &FindArgs) -> Result<FindPlan> {
    Ok(grouped(find, &aggregates(schema, args)?, args)?.plan()?)
}

fn grouped<'s>(
    find: &Find<'s>,
    aggregates: &[(Aggregate, ColumnType)],
    args: &FindArgs,
) -> Result<Grouped<'s>> {
    let grouped = find
        .group_by(args.group_by.iter().flatten(), aggregates.iter().map(|(aggregate, _)| aggregate.clone()));
    let grouped = grouped.order_by(order(args)?);
    Ok(args.limit.map_or_else(|| grouped.clone(), |limit| grouped.limit(limit)))
}

/// Prints the groups.
pub(super) fn show(
    schema: &Schema,
    find: &Find<'_>,
    plan: &FindPlan,
    args: &FindArgs,
    out: Output,
) -> Result<()> {
    let aggregates = aggregates(schema, args)?;
    let mut found = Found::of(&grouped(find, &aggregates, args)?)?;
    let fields = args
        .group_by
        .iter()
        .flatten()
        .map(|field| (field.clone(), schema.kind(field).unwrap_or(ColumnType::Any)));
    let results = aggregates.iter().map(|(aggregate, kind)| (aggregate.name().to_owned(), *kind));
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
pub(super) fn count(find: &Find<'_>, out: Output) -> Result<u64> {
    let none: [&str; 0] = [];
    let mut found = Found::of(&find.group_by(none, [Aggregate::count()]))?;
    let counted = found.next()?;
    found.check_signal(out)?;
    let counted = counted.as_ref().and_then(|counted| counted.get("count"));
    let Some(Value::Int(count)) = counted else { unreachable!("it was asked for") };
    Ok((*count).try_into().expect("a count of documents"))
}

/// The groups, until a signal comes.
struct Found<'a> {
    groups: GroupIter<'a>,
    signals: Signals,
}

impl<'a> Found<'a> {
    fn of(grouped: &Grouped<'a>) -> Result<Found<'a>> {
        Ok(Found { groups: grouped.iter()?, signals: Signals::watch()? })
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
