//! W5 and W6: W3's rows, read in order: all of them, a hundred rows from random starts, and sums over a
//! tenth.

use std::time::{Duration, Instant};

use duramen_disk::memory::{Random, mixed};

use super::load::VALUE_BYTES;
use crate::data::{Digest, Rows};
use crate::engine::{Engine, Entry, Range, Result, See, Session, Shape};
use crate::job::{Job, Outcome};
use crate::reference::Reference;

/// Rows of a short range.
pub(super) const RANGE_ROWS: usize = 100;
/// Ranges whose rows are compared with the reference.
const RANGES_CHECKED: u64 = 200;
/// Sums that are compared with the reference.
const SUMS_CHECKED: u64 = 5;

type Scan = fn(&mut dyn Session, Range<'_>, &mut See<'_>) -> Result<bool>;

fn plainly(session: &mut dyn Session, range: Range<'_>, see: &mut See<'_>) -> Result<bool> {
    session.scan(0, range, see).map(|()| true)
}

fn otherwise(session: &mut dyn Session, range: Range<'_>, see: &mut See<'_>) -> Result<bool> {
    session.scan_otherwise(range, see)
}

/// Measures W5.
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let reference = Reference::new(rows, job.rows);
    let right_all = Digest::of_first(&rows, job.rows).answer();
    let mut outcome = Outcome::default();
    let (mut answer, mut expected) = (None, 0);
    let ways: [(Scan, &str, &str); 2] =
        [(plainly, "rows/s", "ranges/s"), (otherwise, "rows/s by iterator", "ranges/s by iterator")];
    for (scan, rows_name, ranges_name) in ways {
        let mut session = engine.session()?;
        // Warms up, and determines whether the engine has this way.
        if !scan(&mut *session, Range::ALL, &mut |_, _| ())? {
            continue;
        }
        let (rate, found) = whole(&mut *session, scan, job.seconds)?;
        outcome = outcome.with(rows_name, rate);
        let (rate, found_ranges, right_ranges) = ranges(&mut *session, scan, job, &reference)?;
        outcome = outcome.with(ranges_name, rate);
        expected = mixed(right_all ^ mixed(right_ranges));
        let here = mixed(found ^ mixed(found_ranges));
        // A wrong answer of either way is the one that is reported.
        answer = answer.filter(|before| *before != expected).or(Some(here));
    }
    engine.close()?;
    Ok(outcome.answering(answer.ok_or("no way to scan")?, expected))
}

/// Rows per second over whole scans, and the answer of the last.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 rows")]
fn whole(session: &mut dyn Session, scan: Scan, seconds: f64) -> Result<(f64, u64)> {
    let begun = Instant::now();
    let mut rows = 0;
    loop {
        let mut found = Digest::default();
        scan(session, Range::ALL, &mut |key, value| found.see(key, value))?;
        rows += found.rows();
        let elapsed = begun.elapsed().as_secs_f64();
        if elapsed >= seconds {
            return Ok((rows as f64 / elapsed, found.answer()));
        }
    }
}

/// Ranges per second, the digest of the checked ranges, and the right digest.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 ranges")]
fn ranges(
    session: &mut dyn Session,
    scan: Scan,
    job: &Job,
    reference: &Reference,
) -> Result<(f64, u64, u64)> {
    let starts = |seed| Random::new(mixed(seed));
    let mut random = starts(job.seed);
    let (mut answer, mut count) = (0, 0);
    let begun = Instant::now();
    while count < RANGES_CHECKED || begun.elapsed() < Duration::from_secs_f64(job.seconds) {
        let from = random.bits().to_be_bytes();
        let mut found = Digest::default();
        let range = Range { from: &from, to: None, limit: RANGE_ROWS };
        scan(session, range, &mut |key, value| found.see(key, value))?;
        if count < RANGES_CHECKED {
            answer = mixed(answer ^ found.answer());
        }
        count += 1;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let mut random = starts(job.seed);
    let right = (0..RANGES_CHECKED)
        .fold(0, |right, _| mixed(right ^ reference.range(random.bits(), RANGE_ROWS).answer()));
    Ok((rate, answer, right))
}

/// A random tenth of all keys, as the heads of its first key and of the first key after it.
pub(super) fn tenth(random: &mut Random) -> (u64, u64) {
    let width = u64::MAX / 10;
    let from = random.bits() % (u64::MAX - width);
    (from, from + width)
}

/// Measures W6.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 queries")]
pub(super) fn sums(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let engine: Box<dyn Engine> = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut session = engine.session()?;
    session.scan(0, Range::ALL, &mut |_, _| ())?;
    let mut random = Random::new(job.seed);
    let (mut answer, mut count) = (0, 0);
    let begun = Instant::now();
    while count < SUMS_CHECKED || begun.elapsed() < Duration::from_secs_f64(job.seconds) {
        let (from, to) = tenth(&mut random);
        let total = session.total(&from.to_be_bytes(), &to.to_be_bytes())?;
        if count < SUMS_CHECKED {
            answer = mixed(answer ^ total.answer());
        }
        count += 1;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    drop(session);
    engine.close()?;
    let reference = Reference::new(rows, job.rows);
    let mut random = Random::new(job.seed);
    let expected = (0..SUMS_CHECKED).fold(0, |right, _| {
        let (from, to) = tenth(&mut random);
        mixed(right ^ reference.total(from, to).answer())
    });
    Ok(Outcome::default().with("queries/s", rate).answering(answer, expected))
}
