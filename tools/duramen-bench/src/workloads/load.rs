//! W3: rows of 100-byte values in random key order, 1,000 per durable commit. And the same load for W7, which
//! reports its acknowledged rows and is killed.

use std::time::Instant;

use crate::data::{Digest, Key, Rows};
use crate::engine::{Entry, Range, Result, Row, Session, Shape};
use crate::job::{Job, Outcome};
use crate::machine;
use crate::output;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// Rows of a commit.
pub(super) const BATCH_ROWS: u64 = 1000;

/// Loads, closes, and measures the costs.
#[allow(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    machine::settle(&job.dir);
    let device = machine::device_of(&job.dir);
    let device_bytes = || device.as_deref().and_then(machine::device_written_bytes);
    let (written_before, device_before) = (machine::written_bytes(), device_bytes());

    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut session = engine.session()?;
    let begun = Instant::now();
    for batch in 0..job.rows / BATCH_ROWS {
        put_batch(&mut *session, &rows, batch)?;
    }
    let load_seconds = begun.elapsed().as_secs_f64();
    drop(session);
    let counted = engine.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure));
    let counted: Vec<_> = counted.collect();
    let begun = Instant::now();
    engine.close()?;
    let close_seconds = begun.elapsed().as_secs_f64();
    machine::settle(&job.dir);
    let (written_after, device_after) = (machine::written_bytes(), device_bytes());
    let resident = machine::resident_bytes_max();
    let space = machine::space_bytes(&job.dir);

    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut found = Digest::default();
    engine.session()?.scan(0, Range::ALL, &mut |key, value| found.see(key, value))?;
    engine.close()?;
    let user_bytes = rows.user_bytes(job.rows) as f64;
    let each = |before: Option<u64>, after: Option<u64>| Some((after? - before?) as f64 / user_bytes);
    let known = [
        ("bytes to write calls per user byte", each(written_before, written_after)),
        ("device bytes per user byte", each(device_before, device_after)),
        ("peak resident MB", resident.map(|bytes| bytes as f64 / 1e6)),
    ];
    let known = known.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?)));
    Ok(Outcome::default()
        .with("rows/s", job.rows as f64 / load_seconds)
        .with("close s", close_seconds)
        .with("MB on disk", space as f64 / 1e6)
        .with_all(known)
        .with_all(counted)
        .answering(found.answer(), Digest::of_first(&rows, job.rows).answer()))
}

/// Loads until it is killed, and reports the acknowledged rows after each commit.
pub(super) fn doomed(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut session = engine.session()?;
    for batch in 0.. {
        put_batch(&mut *session, &rows, batch)?;
        output::acknowledged((batch + 1) * BATCH_ROWS);
    }
    Ok(Outcome::default())
}

/// Writes the rows of one durable transaction.
pub(super) fn put_batch(session: &mut dyn Session, rows: &Rows, batch: u64) -> Result<()> {
    let made = (batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS).map(|row| {
        let mut value = Vec::with_capacity(VALUE_BYTES);
        rows.value(row, &mut value);
        (rows.key(row), value)
    });
    let made: Vec<(Key, Vec<u8>)> = made.collect();
    let batch: Vec<Row<'_>> = made.iter().map(|(key, value)| Row { key: key.bytes(), value }).collect();
    session.put(0, &batch)
}
