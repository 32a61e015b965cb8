//! The demo's three queries, answered from the nodes of the tree without reading the rows.

use std::time::Instant;

use duramen::{Db, Document, LocalReads, Snapshot, Span, Time, Value, doc};

use super::{COLLECTION, answer, say};
use crate::failure::{Failure, Result};
use crate::numbers::{grouped, time};
use crate::output::{Output, align_right, new_table};
use crate::read::shown;

/// Carriers by code, as the sample has them.
const CARRIERS: [(&str, &str); 16] = [
    ("9E", "Endeavor"),
    ("AA", "American"),
    ("AS", "Alaska"),
    ("B6", "JetBlue"),
    ("DL", "Delta"),
    ("EV", "ExpressJet"),
    ("F9", "Frontier"),
    ("FL", "AirTran"),
    ("HA", "Hawaiian"),
    ("MQ", "Envoy"),
    ("OO", "SkyWest"),
    ("UA", "United"),
    ("US", "US Airways"),
    ("VX", "Virgin"),
    ("WN", "Southwest"),
    ("YV", "Mesa"),
];

/// Runs all three, prints a table for each, returns the answers.
pub(super) fn ask(db: &Db, out: Output) -> Result<Vec<Value>> {
    let snapshot = db.snapshot()?;
    Ok(vec![
        Value::Map(late_carriers(&snapshot, out)?),
        Value::Map(first_week(&snapshot, out)?),
        Value::Map(middle_row(&snapshot, out)?),
    ])
}

fn late_carriers(snapshot: &Snapshot, out: Output) -> Result<Document> {
    let question = "Which airline lost the most minutes at departure?";
    let begun = Instant::now();
    let mut totals = carrier_totals(snapshot)?;
    let first = begun.elapsed();
    let begun = Instant::now();
    carrier_totals(snapshot)?;
    let again = begun.elapsed();
    totals.sort_by_key(|total| std::cmp::Reverse(total.minutes));
    let mut table = new_table(&["carrier", "", "flights", "minutes late in all"]);
    for total in totals.iter().take(5) {
        let (flights, minutes) = (grouped(total.flights), grouped(total.minutes));
        table.add_row([total.code.to_owned(), total.name.to_owned(), flights, minutes]);
    }
    align_right(&mut table, [2, 3]);
    let took = format!("in {}; asked again, with every sum in its node, in {}", time(first), time(again));
    say(out, &format!("1. {question}\n{table}\n   16 sums over 27,004 rows {took}\n"))?;
    let Some(worst) = totals.first() else { return Ok(answer(question, doc! {})) };
    let fields =
        doc! { "carrier": worst.code, "flights": worst.flights, "dep_delay": Value::Int(worst.minutes) };
    Ok(answer(question, fields))
}

struct CarrierTotal {
    code: &'static str,
    name: &'static str,
    flights: u64,
    minutes: i128,
}

fn carrier_totals(snapshot: &Snapshot) -> Result<Vec<CarrierTotal>> {
    let total = |(code, name): (&'static str, &'static str)| {
        let total = snapshot.documents(COLLECTION).reduce(Span::prefix(code)?)?;
        Ok(CarrierTotal { code, name, flights: total.count(), minutes: total.sum("dep_delay").unwrap_or(0) })
    };
    CARRIERS.into_iter().map(total).collect()
}

fn first_week(snapshot: &Snapshot, out: Output) -> Result<Document> {
    let question = "How did United fare day by day in the first week?";
    let begun = Instant::now();
    let mut table = new_table(&["day", "flights", "minutes late in all"]);
    let (mut flights, mut minutes) = (0, 0);
    for day in 1..=7 {
        let from = ("UA", midnight(day)?);
        let to = ("UA", midnight(day + 1)?);
        let total = snapshot.documents(COLLECTION).reduce(Span::between(from, to)?)?;
        let late = total.sum("dep_delay").unwrap_or(0);
        table.add_row([format!("2013-01-{day:02}"), grouped(total.count()), grouped(late)]);
        flights += total.count();
        minutes += late;
    }
    let took = begun.elapsed();
    align_right(&mut table, [1, 2]);
    say(
        out,
        &format!("2. {question}\n{table}\n   7 ranges of the key (carrier, hour, ...) in {}\n", time(took)),
    )?;
    Ok(answer(question, doc! { "flights": flights, "dep_delay": Value::Int(minutes) }))
}

/// Midnight in UTC, the time zone of the sample's hours.
fn midnight(day: u32) -> Result<Time> {
    Time::parse(&format!("2013-01-{day:02}T00:00:00Z"))
        .ok_or_else(|| Failure::data(format!("January has no day {day}"), "this is a bug: please report it"))
}

fn middle_row(snapshot: &Snapshot, out: Output) -> Result<Document> {
    let question = "Which flight stands in the middle of all of them?";
    let begun = Instant::now();
    let flights = snapshot.documents(COLLECTION);
    let index = flights.count(Span::all())? / 2;
    let row = flights.nth(index)?.unwrap_or_default();
    let field = |name: &str| row.get(name).cloned().unwrap_or_default();
    let key: Vec<_> = ["carrier", "time_hour", "flight", "origin"]
        .iter()
        .filter_map(|name| field(name).to_element())
        .collect();
    let rank = flights.rank(key)?;
    let took = begun.elapsed();
    let mut table = new_table(&["place", "carrier", "flight", "from", "to", "hour"]);
    let place = grouped(index + 1);
    table.add_row([
        place,
        shown(&field("carrier")),
        shown(&field("flight")),
        shown(&field("origin")),
        shown(&field("dest")),
        shown(&field("time_hour")),
    ]);
    let agrees = if rank == index { "rank and nth agree" } else { "rank and nth disagree, which is a bug" };
    say(
        out,
        &format!(
            "3. {question}\n{table}\n   found by its place, and its place by its key ({agrees}), in {}\n",
            time(took)
        ),
    )?;
    Ok(answer(
        question,
        doc! { "place": index + 1, "rank": rank, "carrier": field("carrier"), "flight": field("flight") },
    ))
}
