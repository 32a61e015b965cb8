//! One turn of `beyond`: a load in random key order of more rows than memory holds, with their views; then
//! rows drawn at random are written over.

use std::time::Instant;

use duramen_disk::memory::{Random, mixed};

use super::load::{BATCH_ROWS, VALUE_BYTES};
use super::peak::with_peak;
use crate::data::{Digest, Rows};
use crate::engine::{Engine, Entry, Part, Range, Result, Row, Session, Shape};
use crate::job::{Bound, Job, Outcome};
use crate::machine;

/// Bytes of the key that a view adds before the row's own.
const VIEW_KEY_BYTES: usize = 8;

/// Loads, writes over, closes, and measures the costs of each.
///
/// # Errors
/// Errors of the engine or the system.
pub(super) fn run(entry: &Entry, job: &Job, bound: Bound) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let shape = Shape { collections: 1 + bound.views, summed: true, memory_bytes: Some(bound.memory_bytes) };
    machine::settle(&job.dir);
    let outcome = with_peak(|peak| {
        let engine = (entry.open)(&job.dir, shape)?;
        let load = Phase::begin();
        let mut written = Written::default();
        let mut session = engine.session()?;
        for batch in 0..job.rows / BATCH_ROWS {
            let numbered = (batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS).map(|row| (row, rows.number(row)));
            written.add(put(&mut *session, &rows, numbered, bound.views)?);
        }
        let mut outcome = load.cost(Outcome::default(), "", &written);
        if bound.replaced > 0 {
            let (phase, replaced) = (Phase::begin(), replace(&mut *session, &rows, job, bound)?);
            outcome = phase.cost(outcome, " replaced", &replaced);
            written.add((replaced.rows, replaced.bytes));
        }
        drop(session);
        let counted = engine.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure));
        let outcome = outcome.with_all(counted.collect::<Vec<_>>());
        let begun = Instant::now();
        engine.close()?;
        peak.end();
        let outcome = outcome.with("close s", begun.elapsed().as_secs_f64());
        Ok(load.cost(outcome, " in all", &written))
    })?;
    machine::settle(&job.dir);
    let space = machine::space_bytes(&job.dir);
    let engine = (entry.open)(&job.dir, shape)?;
    let found = found(&*engine, bound)?;
    engine.close()?;
    #[allow(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
    let outcome = outcome.with("MB on disk", space as f64 / 1e6);
    Ok(outcome.answering(found, expected(&rows, job, bound)))
}

/// Rows of all collections that were written, and their bytes.
#[derive(Default)]
struct Written {
    rows: u64,
    bytes: u64,
}

impl Written {
    fn add(&mut self, (rows, bytes): (u64, u64)) {
        self.rows += rows;
        self.bytes += bytes;
    }
}

/// A phase, with the counters at its begin.
struct Phase {
    begun: Instant,
    cpu_seconds: f64,
    written: Option<u64>,
}

impl Phase {
    fn begin() -> Phase {
        let (cpu_seconds, written) = (machine::cpu_seconds(), machine::written_bytes());
        Phase { begun: Instant::now(), cpu_seconds, written }
    }

    /// Adds what the phase cost so far. What the engine has not written yet is not counted.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
    fn cost(&self, outcome: Outcome, when: &str, written: &Written) -> Outcome {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rows = written.rows as f64;
        let given = machine::written_bytes().zip(self.written);
        let given = given.map(|(now, before)| (now - before) as f64 / written.bytes as f64);
        let given = given.map(|given| (format!("bytes to write calls per user byte{when}"), given));
        outcome
            .with(&format!("rows/s{when}"), rows / seconds)
            .with(&format!("cpu us each{when}"), (machine::cpu_seconds() - self.cpu_seconds) * 1e6 / rows)
            .with_all(given)
    }
}

/// Writes over rows drawn at random, with another number in each.
fn replace(session: &mut dyn Session, rows: &Rows, job: &Job, bound: Bound) -> Result<Written> {
    let (mut drawn, mut written) = (drawn(job), Written::default());
    for _ in 0..bound.replaced / BATCH_ROWS {
        let batch = (0..BATCH_ROWS).zip(&mut drawn).map(|(_, row)| (row, replaced(rows, row)));
        written.add(put(session, rows, batch, 0)?);
    }
    Ok(written)
}

/// The rows that are written over, in their order.
fn drawn(job: &Job) -> impl Iterator<Item = u64> + use<> {
    let (mut random, rows) = (Random::new(job.seed), job.rows);
    std::iter::from_fn(move || Some(random.bits() % rows))
}

/// The number of a row that was written over.
fn replaced(rows: &Rows, row: u64) -> i64 {
    rows.number(row) + 1
}

/// Writes rows and their rows in views, in one durable transaction. Returns how many, and their bytes.
fn put(
    session: &mut dyn Session,
    rows: &Rows,
    numbered: impl Iterator<Item = (u64, i64)>,
    views: usize,
) -> Result<(u64, u64)> {
    let mut made: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new(); 1 + views];
    for (row, number) in numbered {
        let mut value = Vec::with_capacity(VALUE_BYTES);
        rows.value_with(row, number, &mut value);
        for (view, rows_of_view) in made[1..].iter_mut().enumerate() {
            rows_of_view.push((view_key(rows, row, view), number.to_le_bytes().to_vec()));
        }
        made[0].push((rows.key(row).bytes().to_vec(), value));
    }
    let all: Vec<Vec<Row<'_>>> =
        made.iter().map(|rows| rows.iter().map(|(key, value)| Row { key, value }).collect()).collect();
    let parts = all.iter().enumerate().map(|(collection, rows)| Part { collection, rows });
    session.put_parts(&parts.collect::<Vec<_>>())?;
    let rows = all.iter().flatten();
    Ok((rows.clone().count() as u64, rows.map(|row| (row.key.len() + row.value.len()) as u64).sum()))
}

/// The key of a row in a view: eight bytes in another random order, then the row's key.
fn view_key(rows: &Rows, row: u64, view: usize) -> Vec<u8> {
    let head = mixed(rows.head(row) ^ (view as u64 + 1));
    let key = rows.key(row);
    let mut bytes = Vec::with_capacity(VIEW_KEY_BYTES + key.bytes().len());
    bytes.extend_from_slice(&head.to_be_bytes());
    bytes.extend_from_slice(key.bytes());
    bytes
}

/// The hash of all rows that are there.
fn found(engine: &dyn Engine, bound: Bound) -> Result<u64> {
    let mut session = engine.session()?;
    let mut answer = 0;
    for collection in 0..=bound.views {
        let mut digest = Digest::default();
        session.scan(collection, Range::ALL, &mut |key, value| digest.see(key, value))?;
        answer = mixed(answer ^ digest.answer());
    }
    Ok(answer)
}

/// The hash of all rows that must be there.
fn expected(rows: &Rows, job: &Job, bound: Bound) -> u64 {
    let mut is_replaced = vec![false; usize::try_from(job.rows).unwrap_or_default()];
    let count = usize::try_from(bound.replaced / BATCH_ROWS * BATCH_ROWS).unwrap_or_default();
    for row in drawn(job).take(count) {
        is_replaced[usize::try_from(row).unwrap_or_default()] = true;
    }
    let mut digests = vec![Digest::default(); 1 + bound.views];
    let mut value = Vec::new();
    for (row, is_replaced) in (0..).zip(is_replaced) {
        let number = if is_replaced { replaced(rows, row) } else { rows.number(row) };
        rows.value_with(row, number, &mut value);
        digests[0].add(rows.head(row), &value);
        for (view, digest) in digests[1..].iter_mut().enumerate() {
            let key = view_key(rows, row, view);
            let head = key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            digest.add(head, &rows.number(row).to_le_bytes());
        }
    }
    digests.iter().fold(0, |answer, digest| mixed(answer ^ digest.answer()))
}
