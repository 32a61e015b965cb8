//! One point of `growth`: a load, then the costs and answers of the database at that size.
//!
//! A load that meets a limit is stopped, and the existing rows are measured: the point is at fewer rows, and
//! marked.

use std::path::Path;
use std::time::{Duration, Instant};

use duramen_disk::memory::Random;
use duramen_lab::measure::Summary;

use super::load::{BATCH_ROWS, VALUE_BYTES, put_batch};
use super::peak::with_peak;
use crate::data::Rows;
use crate::drive::{Plan, drive};
use crate::engine::{Engine, Entry, Result, Row, Shape, Total, number_of};
use crate::job::{Job, Limits, Outcome};
use crate::machine;

/// Batches between two checks of the load's size.
const LOOK_BATCHES: u64 = 50;
/// Greater than any key.
const AFTER_ALL_KEYS: [u8; 25] = [0xff; 25];

/// Measures.
///
/// # Errors
/// Errors of the engine or the system.
pub(super) fn run(entry: &Entry, job: &Job, limits: Limits) -> Result<Outcome> {
    with_peak(|_| measure(entry, job, limits))
}

fn measure(entry: &Entry, job: &Job, limits: Limits) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let rows = if limits.in_key_order { rows.in_key_order() } else { rows };
    let (loaded, outcome) = load(entry, job, limits, &rows)?;

    let begun = Instant::now();
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let time = Duration::from_secs_f64(job.seconds);
    let (gets, gets_are_right) = gets(&*engine, &rows, job.seed, loaded, time)?;
    let sums = sums(&*engine, &rows, job.seed, loaded, time)?;
    let (rows_now, commits) = commits(&*engine, &rows, loaded, time)?;
    engine.close()?;

    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let found = engine.session()?.total(&[], &AFTER_ALL_KEYS)?;
    engine.close()?;
    let sum = (0..rows_now).map(|row| i128::from(rows.number(row))).sum();
    let expected = Total { count: rows_now, sum }.answer();
    Ok(outcome
        .with("open ms", open_seconds * 1e3)
        .with("gets/s", gets)
        .with("sums/s", sums)
        .with_all(commits)
        .answering(found.answer() ^ u64::from(!gets_are_right), expected))
}

/// Loads and closes. Returns the number of rows, and the costs.
#[allow(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn load(entry: &Entry, job: &Job, limits: Limits, rows: &Rows) -> Result<(u64, Outcome)> {
    let device = machine::device_of(&job.dir);
    let device_bytes = || device.as_deref().and_then(machine::device_written_bytes);
    let (written_before, device_before) = (machine::written_bytes(), device_bytes());
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut session = engine.session()?;
    let (begun, mut slowest, mut loaded, mut stopped) = (Instant::now(), Duration::ZERO, 0, None);
    while loaded < job.rows && stopped.is_none() {
        let batch = loaded / BATCH_ROWS;
        let batch_begun = Instant::now();
        put_batch(&mut *session, rows, batch)?;
        slowest = slowest.max(batch_begun.elapsed());
        loaded += BATCH_ROWS;
        stopped = limit_met(limits, begun.elapsed(), &job.dir, batch);
    }
    let load_seconds = begun.elapsed().as_secs_f64();
    drop(session);
    let note = engine.note();
    engine.close()?;
    let close_seconds = begun.elapsed().as_secs_f64() - load_seconds;
    machine::settle(&job.dir);
    let (written_after, device_after) = (machine::written_bytes(), device_bytes());
    let user_bytes = rows.user_bytes(loaded) as f64;
    let each = |before: Option<u64>, after: Option<u64>| Some((after? - before?) as f64 / user_bytes);
    let known = [
        ("device bytes per user byte", each(device_before, device_after)),
        ("bytes to write calls per user byte", each(written_before, written_after)),
    ];
    let known = known.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?)));
    let is_stopped = f64::from(u8::from(stopped.is_some() && loaded < job.rows));
    let said = stopped.filter(|_| loaded < job.rows).map(|why| format!("stopped at {loaded} rows: {why}"));
    let outcome = Outcome::default()
        .with("rows", loaded as f64)
        .with("stopped", is_stopped)
        .with("rows/s", loaded as f64 / load_seconds)
        .with("slowest load commit ms", slowest.as_secs_f64() * 1e3)
        .with("close s", close_seconds)
        .with("bytes on disk per user byte", machine::space_bytes(&job.dir) as f64 / user_bytes)
        .with_all(known)
        .noting(said)
        .noting(note);
    Ok((loaded, outcome))
}

/// The limit that stops a load, if it is met.
fn limit_met(limits: Limits, elapsed: Duration, dir: &Path, batch: u64) -> Option<String> {
    if elapsed.as_secs() >= limits.seconds {
        return Some(format!("{} minutes have passed", limits.seconds / 60));
    }
    let looks = batch.is_multiple_of(LOOK_BATCHES);
    (looks && machine::space_bytes(dir) >= limits.bytes)
        .then(|| format!("its files take {} GB", limits.bytes / 1_000_000_000))
}

/// Random gets per second by one thread, each with its own state; and whether every value was right.
fn gets(engine: &dyn Engine, rows: &Rows, seed: u64, loaded: u64, time: Duration) -> Result<(f64, bool)> {
    let plan = Plan { threads: 1, warm_up: time / 5, time };
    let bound = usize::try_from(loaded)?;
    let driven = drive(plan, |_, pace| {
        let mut session = engine.session()?;
        let mut random = Random::new(seed);
        let mut wrong = 0_u64;
        pace.keep(|| {
            let row = random.below(bound) as u64;
            let mut found = None;
            session.gets(&[rows.key(row)], &mut |value| found = Some((value.len(), number_of(value))))?;
            wrong += u64::from(found != Some((VALUE_BYTES, rows.number(row))));
            Ok(())
        })?;
        Ok(wrong)
    })?;
    Ok((driven.rate(), driven.returned.iter().all(|wrong| *wrong == 0)))
}

/// Counts and sums per second over random tenths of the keys, by one thread.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 queries")]
fn sums(engine: &dyn Engine, rows: &Rows, seed: u64, loaded: u64, time: Duration) -> Result<f64> {
    let end = rows.heads_end(loaded);
    let width = end / 10;
    let mut session = engine.session()?;
    let (mut random, mut count, begun) = (Random::new(seed), 0_u64, Instant::now());
    while count == 0 || begun.elapsed() < time {
        let from = random.bits() % (end - width);
        session.total(&from.to_be_bytes(), &(from + width).to_be_bytes())?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Single durable commits of a new row each.
///
/// Returns the resulting number of rows and the commit times: with a concurrent checkpoint and without one,
/// if the engine reports checkpoints.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 commits")]
fn commits(
    engine: &dyn Engine,
    rows: &Rows,
    loaded: u64,
    time: Duration,
) -> Result<(u64, Vec<(String, f64)>)> {
    let mut session = engine.session()?;
    let (mut next, mut value, begun) = (loaded, Vec::new(), Instant::now());
    let (mut all, mut beside, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    while begun.elapsed() < time {
        rows.value(next, &mut value);
        let key = rows.key(next);
        let checkpoints = engine.checkpoints();
        let commit_begun = Instant::now();
        session.put(0, &[Row { key: key.bytes(), value: &value }])?;
        let took = u64::try_from(commit_begun.elapsed().as_nanos())?;
        next += 1;
        all.push(took);
        match (checkpoints, engine.checkpoints()) {
            (Some(before), Some(after)) if before.are_running() || before != after => beside.push(took),
            (Some(_), Some(_)) => alone.push(took),
            _ => {}
        }
    }
    let mut figures = vec![("commits/s".to_owned(), all.len() as f64 / begun.elapsed().as_secs_f64())];
    for (samples, when) in [(&all, ""), (&alone, " alone"), (&beside, " beside a checkpoint")] {
        let Some(summary) = Summary::of(samples) else { continue };
        let us = |what: &str, ns: u64| (format!("commit {what} us{when}"), ns as f64 / 1e3);
        figures.extend([us("p99", summary.p99), us("p99.9", summary.p999), us("max", summary.max)]);
        figures.push((format!("commits timed{when}"), samples.len() as f64));
    }
    Ok((next, figures))
}
