//! `duramen top`: the figures of a database that another process has open, observed from outside.

mod served;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use duramen::{AnyChanged, Code, CommitSeq, Document, ObserveFrom, Observed, Observer, Value, doc};
use duramen_proto::v1;

use crate::args::TopArgs;
use crate::backend::figures::{self, Holder};
use crate::failure::{Failure, Result};
use crate::numbers::{bytes, grouped, rate, time};
use crate::output::{Output, align_right, new_table};
use crate::signals::Signals;
use crate::watch::{named, observe};

/// The maximum delay until a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// What the figures of a server may take.
const STATS_WITHIN: Duration = Duration::from_secs(1);

/// Rows of the table of stores that are written to.
const BUSIEST: usize = 12;

/// Writes to one collection, namespace or tree since the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    puts: u64,
    deletes: u64,
    bytes: u64,
}

/// The findings of one look, and their period.
struct Look {
    now: Observed,
    commits: u64,
    lasted: Duration,
    written: BTreeMap<(&'static str, String), Written>,
    /// Changes up to this commit were counted.
    counted: CommitSeq,
    /// Some changes were released before they could be counted.
    has_gap: bool,
    holder: Option<String>,
    /// How commits fare, if the holder serves the database.
    stats: Option<v1::StatsReply>,
}

/// Runs the command.
pub(crate) fn run(args: &TopArgs, out: Output) -> Result<()> {
    if args.database.at.is_some() {
        return served::run(args, out);
    }
    let mut observer = observe(&args.database, None, ObserveFrom::Now)?;
    let signals = Signals::watch()?;
    let mut before = (observer.look()?, Instant::now());
    let (mut looks, mut serving) = (0, Holder::default());
    while args.count.is_none_or(|count| looks < count) {
        rest(args.interval.saturating_sub(before.1.elapsed()).max(NAP), &signals)?;
        let stats = serving.stats(&args.database.db, args.interval.min(STATS_WITHIN));
        let look = Look { stats, ..look(&mut observer, &before, args.interval)? };
        before = (look.now, Instant::now());
        match out.is_json() {
            true => out.object("top", as_json(&look))?,
            false => print(&as_text(&args.database.db, &look), out)?,
        }
        looks += 1;
    }
    Ok(())
}

fn rest(interval: Duration, signals: &Signals) -> Result<()> {
    let until = Instant::now() + interval;
    loop {
        if let Some(number) = signals.received() {
            return Err(Failure::signal(number));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(NAP));
    }
}

/// Counts the writes since the last look, until the next look is due at the latest.
fn look(observer: &mut Observer, before: &(Observed, Instant), at_most: Duration) -> Result<Look> {
    let begun = Instant::now();
    let mut written: BTreeMap<(&'static str, String), Written> = BTreeMap::new();
    let mut has_gap = false;
    while begun.elapsed() < at_most {
        let change = match observer.next() {
            Ok(Some(change)) => change,
            Ok(None) => break,
            Err(error) if matches!(error.code(), Code::FeedGap | Code::CorruptFeed | Code::Unreadable) => {
                has_gap = true;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (kind, name) = named(&change.origin);
        let counts = written.entry((kind, name.to_owned())).or_default();
        match &change.what {
            AnyChanged::Put { key, value } => {
                counts.puts += 1;
                counts.bytes += (key.len() + value.len()) as u64;
            }
            AnyChanged::Deleted { .. } => counts.deletes += 1,
            AnyChanged::Created | AnyChanged::Dropped => {}
        }
    }
    let now = observer.look()?;
    let commits = now.durable.0.saturating_sub(before.0.durable.0);
    let holder = observer.holder().filter(|holder| !now.clean || !is_gone(holder));
    let counted = observer.position();
    Ok(Look { now, commits, lasted: before.1.elapsed(), written, counted, has_gap, holder, stats: None })
}

/// The time since the newest durable commit; `None` if none was read yet.
fn age(now: &Observed) -> Option<Duration> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    (now.durable_at_ns > 0).then(|| since_1970.saturating_sub(Duration::from_nanos(now.durable_at_ns)))
}

fn as_json(look: &Look) -> Document {
    let now = &look.now;
    let seconds = look.lasted.as_secs_f64();
    let written = look.written.iter().map(|((kind, name), counts)| {
        let counts = doc! { "puts": counts.puts, "deletes": counts.deletes, "bytes": counts.bytes };
        let of = Document::new().with(*kind, name.as_str());
        Value::Map(counts.iter().fold(of, |of, (name, value)| of.with(name, value.clone())))
    });
    let mut shown = doc! {
        "seconds": seconds,
        "holder": look.holder.as_deref().map_or(Value::Null, Value::from),
        "clean": now.clean,
        "durable": now.durable.0,
        "commits": look.commits,
        "checkpoint": doc! { "count": now.checkpoint, "seq": now.checkpoint_seq.0 },
        "data": doc! {
            "used_bytes": now.space.used_blocks * now.block_bytes,
            "waiting_bytes": now.space.waiting_blocks * now.block_bytes,
            "end_bytes": now.space.end_block * now.block_bytes,
        },
        "log_bytes": now.log_bytes,
        "feed_bytes": now.feed_bytes,
        "counted": look.counted.0,
        "has_gap": look.has_gap,
        "written": Value::List(written.collect()),
    };
    if let Some(stats) = &look.stats {
        figures::add_to(&mut shown, stats);
    }
    shown
}

/// Prints a look; on a terminal in the place of the one before.
fn print(text: &str, out: Output) -> Result<()> {
    let mut stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return out.line(text);
    }
    // Cursor home, each line cleared to its end, then everything below cleared.
    let lines = text.replace('\n', "\x1b[K\n");
    write!(stdout, "\x1b[H{lines}\x1b[K\n\x1b[J")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::output(&error))
}

/// Whether the process that a holder names has ended, if the system can tell.
fn is_gone(holder: &str) -> bool {
    let number =
        holder.strip_prefix("process ").filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    number.is_some_and(|number| Path::new("/proc/self").exists() && !Path::new("/proc").join(number).exists())
}

fn as_text(db: &Path, look: &Look) -> String {
    let now = &look.now;
    let block = |count: u64| bytes(count * now.block_bytes);
    let holder = match (&look.holder, now.clean) {
        (None, true) => "closed; no writes since".to_owned(),
        (Some(holder), true) => format!("no writes since it was closed; last opened to write by {holder}"),
        (Some(holder), false) if is_gone(holder) => format!("left unclosed by {holder}, which has ended"),
        (Some(holder), false) => format!("last opened to write by {holder}"),
        (None, false) => "the process that has it open is unknown".to_owned(),
    };
    let last = age(now).map_or(String::new(), |age| format!(", the last {} ago", time(age)));
    let mut text = format!(
        "{}: {holder}\n\
         commits     {} a second; commit {} is durable{last}\n\
         checkpoint  {}, up to commit {}; {} after it in the log\n\
         data        {} used, {} waiting to be let go of; the file reaches to {}\n\
         log         {}; changes kept: {}\n",
        db.display(),
        grouped(rate(look.commits, look.lasted)),
        grouped(now.durable.0),
        grouped(now.checkpoint),
        grouped(now.checkpoint_seq.0),
        grouped(now.durable.0.saturating_sub(now.checkpoint_seq.0)),
        block(now.space.used_blocks),
        block(now.space.waiting_blocks),
        block(now.space.end_block),
        bytes(now.log_bytes),
        bytes(now.feed_bytes),
    );
    if look.counted < now.durable {
        let (counted, durable) = (grouped(look.counted.0), grouped(now.durable.0));
        text.push_str(&format!("counted so far: up to commit {counted} of {durable}\n"));
    }
    if look.has_gap {
        text.push_str("some changes went away before they could be counted\n");
    }
    text.push_str(&busiest(look));
    for (name, figures) in look.stats.iter().flat_map(figures::as_text) {
        text.push_str(&format!("{name}: {figures}\n"));
    }
    text
}

fn busiest(look: &Look) -> String {
    if look.written.is_empty() {
        return String::new();
    }
    let mut rows: Vec<_> = look.written.iter().collect();
    rows.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.puts + counts.deletes), *name));
    let mut table = new_table(&["written to", "puts a second", "deletes", "bytes"]);
    align_right(&mut table, 1..4);
    for ((kind, name), counts) in rows.iter().take(BUSIEST) {
        let a_second = |count| rate(count, look.lasted);
        table.add_row([
            format!("{kind} {}", crate::output::printable(name)),
            grouped(a_second(counts.puts)),
            grouped(a_second(counts.deletes)),
            bytes(a_second(counts.bytes)),
        ]);
    }
    let more = rows.len().saturating_sub(BUSIEST);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    format!("{table}{more}\n")
}
