//! W7: the time after `kill -9` during a load until a new process has answered a get, a range and a sum.

use std::time::Instant;

use duramen_disk::memory::{Random, mixed};

use super::load::{BATCH_ROWS, VALUE_BYTES};
use super::scans::{RANGE_ROWS, tenth};
use crate::data::{Digest, Rows};
use crate::engine::{Entry, Range, Result, Shape};
use crate::job::{Job, Outcome};
use crate::reference::Reference;

/// Opens the database that was left, and queries it; `job.rows` is the number of acknowledged rows.
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let mut random = Random::new(job.seed ^ job.rows);
    let last = job.rows - 1;
    let (start, (from, to)) = (random.bits(), tenth(&mut random));

    let begun = Instant::now();
    let ms = || begun.elapsed().as_secs_f64() * 1e3;
    let engine = (entry.open)(&job.dir, Shape::SUMMED)?;
    let mut session = engine.session()?;
    let opened = ms();
    let mut got = Digest::default();
    session.gets(&[rows.key(last)], &mut |value| got.add(rows.head(last), value))?;
    let get = ms();
    let mut range = Digest::default();
    let wanted = Range { from: &start.to_be_bytes(), to: None, limit: RANGE_ROWS };
    session.scan(0, wanted, &mut |key, value| range.see(key, value))?;
    let ranged = ms();
    let total = session.total(&from.to_be_bytes(), &to.to_be_bytes())?;
    let reduced = ms();

    let mut all = Digest::default();
    session.scan(0, Range::ALL, &mut |key, value| all.see(key, value))?;
    drop(session);
    engine.close()?;
    let answer = mixed(got.answer() ^ mixed(range.answer() ^ mixed(total.answer() ^ all.answer())));
    // The commit in progress may exist as a whole.
    let possible = [job.rows, job.rows + BATCH_ROWS].map(|count| {
        let reference = Reference::new(rows, count);
        let (mut got, mut value) = (Digest::default(), Vec::new());
        rows.value(last, &mut value);
        got.add(rows.head(last), &value);
        let range = reference.range(start, RANGE_ROWS).answer();
        let rest = reference.total(from, to).answer() ^ Digest::of_first(&rows, count).answer();
        mixed(got.answer() ^ mixed(range ^ mixed(rest)))
    });
    let expected = if answer == possible[1] { possible[1] } else { possible[0] };
    Ok(Outcome::default()
        .with("open ms", opened)
        .with("first get ms", get)
        .with("first range ms", ranged)
        .with("first sum ms", reduced)
        .answering(answer, expected))
}
