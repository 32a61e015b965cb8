//! W8: commit times during a checkpoint of about 256 MiB. For comparison, the raw loop while as many bytes
//! are written to another file as a checkpoint writes them.
//!
//! Memory and log are so large that no checkpoint begins on its own: only the requested one runs.

use std::path::Path;
use std::time::{Duration, Instant};

use duramen_disk::{Access, Disk, File, OsDisk};
use duramen_engine::Options;
use duramen_lab::measure::{Lane, Strategy, Summary};

use super::commits::VALUE_BYTES;
use crate::bound;
use crate::data::{Digest, Rows};
use crate::engine::{Engine, Entry, Failure, Range, Result, Row, Session, Shape};
use crate::engines::duramen;
use crate::job::{Job, Outcome};

/// Bytes of dirty pages for a checkpoint to write.
const DIRTY_BYTES: u64 = 256 << 20;
/// A checkpoint starts when a quarter of the memory is dirty: this is six times the dirty bytes.
const MEMORY_BYTES: usize = 1536 << 20;
const BATCH_ROWS: u64 = 1000;
/// The size of one write call of a checkpoint, which then waits for the device.
const SLICE_BYTES: usize = 256 << 10;

/// With fewer samples the p99.9 is the maximum.
const P999_COMMITS: usize = 1000;

/// Times of commits, and of the work that ran beside the second half of them.
#[derive(Default)]
struct Times {
    before: Vec<u64>,
    during: Vec<u64>,
    runs: u32,
    ran: Duration,
}

impl Times {
    /// Times `commit` for `time`, then for as long as `beside` runs.
    fn take(
        &mut self,
        time: Duration,
        mut commit: impl FnMut() -> Result<()>,
        beside: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        let mut timed = |into: &mut Vec<u64>| -> Result<()> {
            let begun = Instant::now();
            commit()?;
            into.push(u64::try_from(begun.elapsed().as_nanos())?);
            Ok(())
        };
        let begun = Instant::now();
        while begun.elapsed() < time {
            timed(&mut self.before)?;
        }
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let running = scope.spawn(beside);
            while !running.is_finished() {
                timed(&mut self.during)?;
            }
            running.join().map_err(|_| Failure::from("what ran beside the commits panicked"))?
        })?;
        self.ran += begun.elapsed();
        self.runs += 1;
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
    fn outcome(&self, bytes: u64) -> Result<Outcome> {
        let mut outcome = Outcome::default()
            .with("commits during", self.during.len() as f64)
            .with("MB beside", bytes as f64 / 1e6 / f64::from(self.runs))
            .with("s beside", self.ran.as_secs_f64() / f64::from(self.runs));
        for (samples, when) in [(&self.before, "before"), (&self.during, "during")] {
            let summary = Summary::of(samples).ok_or("nothing was committed")?;
            for (name, ns) in [("p99", summary.p99), ("p99.9", summary.p999), ("max", summary.max)] {
                outcome = outcome.with(&format!("{name} us {when}"), ns as f64 / 1e3);
            }
        }
        let few = self.during.len() < P999_COMMITS;
        Ok(outcome.noting(few.then(|| "so few commits beside it that p99.9 is the slowest".to_owned())))
    }
}

/// Duramen: dirties pages by bulk transactions, times single commits, then times them beside a checkpoint.
/// Repeats until checkpoints have run for the requested time.
pub(super) fn run(entry: &Entry, job: &Job) -> Result<Outcome> {
    let options =
        Options { memory_bytes: MEMORY_BYTES, checkpoint_log_bytes: Some(u64::MAX), ..Options::default() };
    let database = duramen::open_with(&job.dir, Shape::ROWS, options)?;
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let time = Duration::from_secs_f64(job.seconds);
    let (mut times, mut next, mut bytes) = (Times::default(), 0, 0);
    let mut session = database.session()?;
    while times.ran < time {
        while database.engine.stats().dirty_bytes < DIRTY_BYTES {
            put(&mut *session, &rows, &mut next, BATCH_ROWS)?;
        }
        let before = database.checkpoint_bytes();
        let commit = || put(&mut *session, &rows, &mut next, 1);
        times.take(time, commit, || Ok(database.engine.checkpoint()?))?;
        bytes += database.checkpoint_bytes() - before;
    }
    drop(session);
    let note = database.note();
    Box::new(database).close()?;

    let engine = (entry.open)(&job.dir, Shape::ROWS)?;
    let mut found = Digest::default();
    engine.session()?.scan(0, Range::ALL, &mut |key, value| found.see(key, value))?;
    engine.close()?;
    let outcome = times.outcome(bytes)?.noting(note);
    Ok(outcome.answering(found.answer(), Digest::of_first(&rows, next).answer()))
}

fn put(session: &mut dyn Session, rows: &Rows, next: &mut u64, count: u64) -> Result<()> {
    let made: Vec<_> = (*next..*next + count)
        .map(|row| {
            let mut value = Vec::with_capacity(VALUE_BYTES);
            rows.value(row, &mut value);
            (rows.key(row), value)
        })
        .collect();
    let batch: Vec<Row<'_>> = made.iter().map(|(key, value)| Row { key: key.bytes(), value }).collect();
    *next += count;
    session.put(0, &batch)
}

/// The raw loop, before and while another thread writes and syncs a file as a checkpoint does.
///
/// # Errors
/// Errors of the system; `Unsupported` if there is no such call.
pub(super) fn raw(job: &Job, strategy: Strategy) -> Result<Outcome> {
    let mut lane = Lane::prepare(&job.dir, strategy, bound::record_bytes(strategy), 1 << 20)?;
    let path = job.dir.join("beside");
    let time = Duration::from_secs_f64(job.seconds);
    let mut times = Times::default();
    let file = OsDisk::new().open(&path, Access::CREATE)?;
    while times.ran < time {
        // Like a growing data file: no block is allocated yet.
        file.set_len(0)?;
        crate::machine::settle(Path::new(&job.dir));
        let commit = || -> Result<()> { Ok(lane.write().map(drop)?) };
        times.take(time, commit, || write_beside(&*file))?;
    }
    times.outcome(DIRTY_BYTES * u64::from(times.runs))
}

fn write_beside(file: &dyn File) -> Result<()> {
    let slice = vec![0x5a; SLICE_BYTES];
    for offset in (0..DIRTY_BYTES).step_by(SLICE_BYTES) {
        file.write_at(&slice, offset).map_err(|error| error.source)?;
        file.write_out(offset, SLICE_BYTES as u64)?;
    }
    Ok(file.sync_data()?)
}
