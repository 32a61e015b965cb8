//! `find --group-by` and the aggregates: one row for each group of documents.

use std::io::Write;

use duramen::find::{Aggregate, Find, FindPlan, GroupIter, Grouped, Step};
use duramen::schema::{Column, ColumnType};
use duramen::{Document, Schema};

use super::{LOOK_ROWS, order};
use crate::args::{AggregateFlags, FindArgs};
use crate::failure::{Failure, Result};
use crate::numbers::counted;
use crate::output::{Output, flush, printable};
use crate::read::Grid;
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
    found.extend(sum.iter().map(|field| (Aggregate::sum(field), kind(field))));
    found.extend(mean.iter().map(|field| (Aggregate::mean(field), ColumnType::Float)));
    found.extend(min.iter().map(|field| (Aggregate::min(field), kind(field))));
    found.extend(max.iter().map(|field| (Aggregate::max(field), kind(field))));
    found.extend(distinct.iter().map(|field| (Aggregate::distinct(field), ColumnType::Int)));
    for text in quantile {
        let parsed =
            text.rsplit_once(':').and_then(|(field, part)| Some((field.to_owned(), part.parse().ok()?)));
        let (field, part) = parsed.ok_or_else(|| {
            Failure::usage(
                format!("{text:?} is no quantile"),
                "write FIELD:PART with a part from 0 to 1: `dep_delay:0.5` is the median",
            )
        })?;
        let kind = kind(&field);
        found.push((Aggregate::quantile(field, part), kind));
    }
    Ok(found)
}

/// The names of the results: the fields of the groups, then the aggregates.
pub(super) fn names(schema: &Schema, args: &FindArgs) -> Result<(Vec<String>, Vec<String>)> {
    let named = aggregates(schema, args)?.iter().map(|(aggregate, _)| aggregate.name().to_owned()).collect();
    Ok((args.group_by.clone(), named))
}

fn grouped<'s>(
    find: &Find<'s>,
    aggregates: &[(Aggregate, ColumnType)],
    args: &FindArgs,
) -> Result<Grouped<'s>> {
    let grouped = find.group_by(&args.group_by, aggregates.iter().map(|(aggregate, _)| aggregate.clone()));
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
    let mut found = Found { groups: grouped(find, &aggregates, args)?.iter()?, signals: Signals::watch()? };
    let fields =
        args.group_by.iter().map(|field| (field.clone(), schema.kind(field).unwrap_or(ColumnType::Any)));
    let results = aggregates.iter().map(|(aggregate, kind)| (aggregate.name().to_owned(), *kind));
    let columns: Vec<Column> = fields.chain(results).map(|(name, kind)| Column { name, kind }).collect();
    let count = if out.is_json() {
        let mut stream = out.stream();
        let mut count = 0;
        while let Some(group) = found.next()? {
            writeln!(stream, "{}", group.to_json()?).map_err(|error| Failure::output(&error))?;
            count += 1;
        }
        flush(&mut stream)?;
        count
    } else {
        Grid::new(&columns).show(|| found.next(), u64::MAX, out)?
    };
    if let Some(number) = found.signals.received() {
        out.note(&format!("stopped by signal {number} after {}", counted(count, "group")));
        return Err(Failure::signal(number));
    }
    let limited = if Some(count) == args.limit { ", the limit" } else { "" };
    out.note(&format!(
        "{}{limited}; {} read by {}",
        counted(count, "group"),
        counted(found.groups.read_count(), "document"),
        printable(&plan.path_shown())
    ));
    Ok(())
}

/// The groups, until a signal comes.
struct Found<'a> {
    groups: GroupIter<'a>,
    signals: Signals,
}

impl Found<'_> {
    fn next(&mut self) -> Result<Option<Document>> {
        loop {
            if self.signals.received().is_some() {
                return Ok(None);
            }
            match self.groups.next_within(LOOK_ROWS)? {
                Step::Found(group) => return Ok(Some(group)),
                Step::Unfinished => {}
                Step::End => return Ok(None),
            }
        }
    }
}
