//! W1, W2 and W9: every transaction writes one new record, of 1 KiB or 256 KiB, and is durable when it
//! returns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::data::{Digest, Rows};
use crate::drive::{Plan, drive};
use crate::engine::{Entry, Range, Result, Row, Shape};
use crate::job::{Job, Outcome};

/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 1024;

/// Bytes of a value of W9.
pub(crate) const BIG_VALUE_BYTES: usize = 256 << 10;

/// Measures with values of this many bytes, then reopens the database and reads every record.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 commits")]
pub(crate) fn run(entry: &Entry, job: &Job, value_bytes: usize) -> Result<Outcome> {
    let rows = Rows::new(job.seed, value_bytes);
    let engine = (entry.open)(&job.dir, Shape::ROWS)?;
    let next = AtomicU64::new(0);
    let before = engine.figures();
    let plan = Plan {
        threads: job.threads,
        warm_up: Duration::from_millis(300),
        time: Duration::from_secs_f64(job.seconds),
    };
    let driven = drive(plan, |_, pace| {
        let mut session = engine.session()?;
        let mut value = Vec::new();
        pace.keep(|| {
            let row = next.fetch_add(1, Ordering::Relaxed);
            rows.value(row, &mut value);
            session.put(0, &[Row { key: rows.key(row).bytes(), value: &value }])
        })
    })?;
    let commits = next.load(Ordering::Relaxed);
    let counted = differences(&before, &engine.figures(), commits);
    let note = engine.note();
    engine.close()?;

    let engine = (entry.open)(&job.dir, Shape::ROWS)?;
    let mut found = Digest::default();
    engine.session()?.scan(0, Range::ALL, &mut |key, value| found.see(key, value))?;
    engine.close()?;
    Ok(Outcome::default()
        .with_all(driven.figures("commits"))
        .with("commits in all", commits as f64)
        .with_all(counted)
        .noting(note)
        .answering(found.answer(), Digest::of_first(&rows, commits).answer()))
}

/// The engine's counters meanwhile, and syncs per commit if it counts syncs.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 commits")]
pub(crate) fn differences(
    before: &[(&'static str, f64)],
    after: &[(&'static str, f64)],
    commits: u64,
) -> Vec<(String, f64)> {
    let pairs = before.iter().zip(after);
    let mut figures: Vec<_> =
        pairs.map(|((name, before), (_, after))| ((*name).to_owned(), after - before)).collect();
    if let Some((_, syncs)) = figures.iter().find(|(name, _)| name.starts_with("syncs")) {
        figures.push(("syncs each".to_owned(), syncs / commits as f64));
    }
    figures
}
