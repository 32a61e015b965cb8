//! W4: warm random gets of W3's rows: with a state each, and a hundred per state.

use std::time::Duration;

use duramen_disk::memory::Random;

use super::load::VALUE_BYTES;
use crate::data::{Digest, Key, Rows};
use crate::drive::{Plan, drive};
use crate::engine::{Engine, Entry, Range, Result, Shape, number_of};
use crate::job::{Job, Outcome};

/// Gets of fixed keys whose values are hashed before the timing.
const HASHED_GETS: usize = 1000;

/// Measures.
#[allow(clippy::cast_precision_loss, reason = "a hundred is far below 2^53")]
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    engine.session()?.scan(0, Range::ALL, &mut |_, _| ())?;
    let (mut answer, expected) = hashed(&*engine, &rows, job)?;
    let mut outcome = Outcome::default();
    for threads in [1, 2] {
        for (batch, name) in [(1, "gets/s"), (100, "gets/s by 100")] {
            let (rate, right) = timed(&*engine, &rows, job, threads, batch)?;
            outcome = outcome.with(&format!("{name} {threads}T"), rate * batch as f64);
            answer ^= u64::from(!right);
        }
    }
    let counted = engine.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure));
    outcome = outcome.with_all(counted);
    engine.close()?;
    Ok(outcome.answering(answer, expected))
}

fn hashed(engine: &dyn Engine, rows: &Rows, job: &Job) -> Result<(u64, u64)> {
    let mut session = engine.session()?;
    let mut random = Random::new(job.seed);
    let (mut found, mut right, mut value) = (Digest::default(), Digest::default(), Vec::new());
    for _ in 0..HASHED_GETS {
        let row = drawn(&mut random, job.rows);
        session.gets(&[rows.key(row)], &mut |value| found.add(rows.head(row), value))?;
        rows.value(row, &mut value);
        right.add(rows.head(row), &value);
    }
    Ok((found.answer(), right.answer()))
}

/// Gets per second, and whether the values were right, by the sum of their numbers.
fn timed(engine: &dyn Engine, rows: &Rows, job: &Job, threads: usize, batch: usize) -> Result<(f64, bool)> {
    let plan =
        Plan { threads, warm_up: Duration::from_millis(100), time: Duration::from_secs_f64(job.seconds) };
    let driven = drive(plan, |number, pace| {
        let mut session = engine.session()?;
        let mut random = Random::new(job.seed ^ (number as u64 + 1) << 40);
        let mut keys: Vec<Key> = Vec::with_capacity(batch);
        let (mut found, mut right) = (0_i64, 0_i64);
        pace.keep(|| {
            keys.clear();
            for _ in 0..batch {
                let row = drawn(&mut random, job.rows);
                right = right.wrapping_add(rows.number(row));
                keys.push(rows.key(row));
            }
            session.gets(&keys, &mut |value| {
                let whole = value.len() == VALUE_BYTES;
                found = found.wrapping_add(if whole { number_of(value) } else { 1 });
            })
        })?;
        Ok(found == right)
    })?;
    Ok((driven.rate(), driven.returned.iter().all(|right| *right)))
}

fn drawn(random: &mut Random, rows: u64) -> u64 {
    random.below(usize::try_from(rows).expect("rows fit memory")) as u64
}
