//! `duramen top --at`: the figures of a database, as its server tells them.

use std::time::Instant;

use duramen::{Document, ErrorKind, Value, doc};
use duramen_proto::v1;

use super::{NAP, print, rest};
use crate::args::TopArgs;
use crate::backend::{Reading, figures, unexpected};
use crate::failure::{Failure, Result};
use crate::numbers::{bytes, grouped, rate};
use crate::output::Output;
use crate::signals::Signals;

/// What a server told, and when.
struct Told {
    facts: Document,
    stats: v1::StatsReply,
    at: Instant,
}

/// Runs the command. A look for which the server has no time is told, and the next one is tried.
pub(super) fn run(args: &TopArgs, out: Output) -> Result<()> {
    let (reading, signals) = (Reading::open(&args.database)?, Signals::watch()?);
    let mut before = ask(&reading)?;
    let (mut looks, mut looked_at) = (0, before.at);
    while args.count.is_none_or(|count| looks < count) {
        rest(args.interval.saturating_sub(looked_at.elapsed()).max(NAP), &signals)?;
        looked_at = Instant::now();
        match ask(&reading) {
            Ok(now) => {
                match out.is_json() {
                    true => out.object("top", as_json(&before, &now))?,
                    false => print(&as_text(&before, &now), out)?,
                }
                before = now;
            }
            Err(Failure::Said(said)) if said.code.kind() == ErrorKind::Unavailable => {
                out.warning(&said.message, &said.hint);
            }
            Err(failure) => return Err(failure),
        }
        looks += 1;
    }
    Ok(())
}

fn ask(reading: &Reading) -> Result<Told> {
    let (facts, stats) = reading.facts()?;
    let stats = stats.ok_or_else(|| unexpected("no figures of commits"))?;
    Ok(Told { facts, stats, at: Instant::now() })
}

fn as_json(before: &Told, now: &Told) -> Document {
    let mut shown = doc! {
        "seconds": (now.at - before.at).as_secs_f64(),
        "durable": now.stats.durable,
        "commits": now.stats.durable.saturating_sub(before.stats.durable),
        "data": doc! { "used_bytes": now.number("data", "used_bytes") },
        "log_bytes": now.number("log", "bytes"),
    };
    figures::add_to(&mut shown, &now.stats);
    shown
}

fn as_text(before: &Told, now: &Told) -> String {
    let durable = now.stats.durable;
    let commits = durable.saturating_sub(before.stats.durable);
    let shown = |size: Option<u64>| size.map_or_else(|| "unknown".to_owned(), bytes);
    let mut text = format!(
        "commits     {} a second; commit {} is durable\ndata        {} used\nlog         {}\n",
        grouped(rate(commits, now.at - before.at)),
        grouped(durable),
        shown(now.number("data", "used_bytes")),
        shown(now.number("log", "bytes")),
    );
    for (name, figures) in figures::as_text(&now.stats) {
        text.push_str(&format!("{name}: {figures}\n"));
    }
    text
}

impl Told {
    /// A number among the facts, if the server tells it.
    fn number(&self, of: &str, name: &str) -> Option<u64> {
        match self.facts.get(of)? {
            Value::Map(fields) => match fields.get(name)? {
                Value::Int(number) => u64::try_from(*number).ok(),
                _ => None,
            },
            _ => None,
        }
    }
}
