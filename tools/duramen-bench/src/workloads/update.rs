//! W2b: every transaction reads three records and updates two of them, uniformly over five collections.
//!
//! Each record begins with a counter that an update increments, so that a lost update is detected: the sum of
//! all counters must be the number of committed updates.

use std::time::Duration;

use duramen_disk::memory::Random;

use super::commits::{VALUE_BYTES, differences};
use crate::data::{Key, Rows};
use crate::drive::{Plan, drive};
use crate::engine::{Engine, Entry, Place, Range, Result, Row, Shape, number_of};
use crate::job::{Job, Outcome};

const COLLECTIONS: usize = 5;
/// Rows per filling transaction: large, because filling is not timed.
const BATCH_ROWS: usize = 5000;

/// Writes the records, all counters 0, in the order of their keys.
pub(super) fn fill(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine = (entry.open)(&job.dir, Shape::FIVE)?;
    let mut session = engine.session()?;
    let mut sorted: Vec<u64> = (0..job.rows).collect();
    sorted.sort_by_key(|row| rows.head(*row));
    for collection in 0..COLLECTIONS {
        for batch in sorted.chunks(BATCH_ROWS) {
            let made: Vec<(Key, Vec<u8>)> = batch.iter().map(|row| record(&rows, *row)).collect();
            let batch: Vec<Row<'_>> =
                made.iter().map(|(key, value)| Row { key: key.bytes(), value }).collect();
            session.put(collection, &batch)?;
        }
    }
    drop(session);
    let (count, sum) = counters(&*engine)?;
    engine.close()?;
    Ok(Outcome::default().answering(count ^ sum, job.rows * COLLECTIONS as u64))
}

fn record(rows: &Rows, row: u64) -> (Key, Vec<u8>) {
    let mut value = Vec::new();
    rows.value_with(row, 0, &mut value);
    (rows.key(row), value)
}

/// Measures.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 conflicts")]
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine = (entry.open)(&job.dir, Shape::FIVE)?;
    // Reads every record, which also warms the engine's caches.
    let (_, sum_before) = counters(&*engine)?;
    let before = engine.figures();
    let plan = Plan {
        threads: job.threads,
        warm_up: Duration::from_millis(300),
        time: Duration::from_secs_f64(job.seconds),
    };
    let driven = drive(plan, |number, pace| {
        let mut session = engine.session()?;
        let mut random = Random::new(job.seed ^ (number as u64) << 32 ^ sum_before);
        let (mut commits, mut conflicts) = (0, 0);
        pace.keep(|| {
            conflicts += session.update(&places(&rows, job.rows, &mut random))?;
            commits += 1;
            Ok(())
        })?;
        Ok((commits, conflicts))
    })?;
    let commits: u64 = driven.returned.iter().map(|(commits, _)| commits).sum();
    let conflicts: u64 = driven.returned.iter().map(|(_, conflicts)| conflicts).sum();
    let counted = differences(&before, &engine.figures(), commits);
    let (_, sum_after) = counters(&*engine)?;
    engine.close()?;
    Ok(Outcome::default()
        .with_all(driven.figures("transactions"))
        .with("conflicts each", conflicts as f64 / commits as f64)
        .with_all(counted)
        .answering(sum_after - sum_before, 2 * commits))
}

fn places(rows: &Rows, count: u64, random: &mut Random) -> [Place; 3] {
    let bound = usize::try_from(count).expect("rows fit memory");
    let mut drawn = [(0, 0); 3];
    for index in 0..3 {
        drawn[index] = loop {
            let place = (random.below(COLLECTIONS), random.below(bound) as u64);
            if !drawn[..index].contains(&place) {
                break place;
            }
        };
    }
    drawn.map(|(collection, row)| Place { collection, key: rows.key(row) })
}

/// How many records there are, and the sum of their counters.
fn counters(engine: &dyn Engine) -> Result<(u64, u64)> {
    let mut session = engine.session()?;
    let (mut count, mut sum) = (0, 0);
    for collection in 0..COLLECTIONS {
        session.scan(collection, Range::ALL, &mut |_, value| {
            count += 1;
            sum += number_of(value).unsigned_abs();
        })?;
    }
    Ok((count, sum))
}
