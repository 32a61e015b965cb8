//! Jobs of reads and writes as in storage benchmarks: block size, mix, pattern, threads, queue depth.
//!
//! Owns the file and the workers. An operation in flight is a blocking call in a thread of its own. The
//! device sees the same as with asynchronous calls, and every call is timed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fresh::freshen;
use super::room::{FILL_BYTES, SPARE_BYTES, room_or_refuse};
use super::scratch::Scratch;
use super::tally::Tally;
use super::workers::together;
use duramen_disk::memory::Random;
use duramen_disk::{Disk, DurableWriteError, File, OsDisk, SyncMethod};

/// The choice of the next block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// A random block, all equally likely.
    Random,
    /// The next block. Each thread begins in its own part of the file.
    Sequential,
}

/// A job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Bytes of an operation.
    pub block_bytes: usize,
    /// Reads per hundred operations.
    pub reads_percent: usize,
    /// The pattern of blocks.
    pub pattern: Pattern,
    /// Threads.
    pub threads: usize,
    /// Operations that each thread has in flight.
    pub outstanding: usize,
    /// Bytes of the file: a multiple of a block.
    pub file_bytes: u64,
    /// Whether each write is durable before the next one of its worker.
    pub is_synced: bool,
    /// Whether to bypass the kernel's cache.
    pub is_direct: bool,
}

impl Job {
    /// Calls in flight at the same time: blocking threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.threads * self.outstanding
    }
}

/// The results of a job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Reads.
    pub reads: Tally,
    /// Writes, each with its sync where the job wants one.
    pub writes: Tally,
}

/// A job and its file, to run once or repeatedly.
#[derive(Debug)]
pub struct Mix {
    job: Job,
    /// One handle per worker, because direct calls keep a buffer with it.
    files: Vec<Arc<dyn File>>,
    scratch: Scratch,
}

impl Mix {
    /// Makes the file and fills it with incompressible bytes; `None` if `go_on` returned `false` meanwhile.
    ///
    /// # Errors
    /// `StorageFull` without enough room, before anything is written; `Unsupported` if the file system
    /// refuses direct writes; other errors of the system.
    pub fn prepare(directory: &Path, job: Job, go_on: &(dyn Fn() -> bool + Sync)) -> io::Result<Option<Mix>> {
        room_or_refuse(directory, job.file_bytes, SPARE_BYTES)?;
        let scratch = Scratch::make(directory)?;
        let sync = if job.is_direct { SyncMethod::DirectDsync } else { SyncMethod::Fdatasync };
        // Open first, so that a refusal comes before the long part.
        let files = (0..job.workers()).map(|_| scratch.open(sync)).collect::<io::Result<_>>()?;
        let file = scratch.open(SyncMethod::Fdatasync)?;
        if !fill(&*file, job.file_bytes, go_on)? {
            return Ok(None);
        }
        file.sync_data()?;
        Ok(Some(Mix { job, files, scratch }))
    }

    /// Runs the job for as long as `lasts`, or until `go_on` returns `false`. Each worker does at least one
    /// operation.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn run(&self, lasts: Duration, go_on: &(dyn Fn() -> bool + Sync)) -> io::Result<Outcome> {
        let clock = OsDisk::new();
        let lasts_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let blocks = (self.job.file_bytes / self.job.block_bytes as u64).max(1);
        let cursors: Vec<AtomicU64> = (0..self.job.threads as u64)
            .map(|thread| AtomicU64::new(blocks * thread / self.job.threads as u64))
            .collect();
        let workers: Vec<_> = self
            .files
            .iter()
            .enumerate()
            .map(|(index, file)| (file, clock.random(), index % self.job.threads))
            .collect();
        let work = |index: usize| -> io::Result<Outcome> {
            let (file, seed, thread) = &workers[index];
            let mut worker = Worker::new(&self.job, &***file, *seed);
            let started = clock.monotonic_ns();
            let mut outcome = Outcome::default();
            loop {
                let block = match self.job.pattern {
                    Pattern::Random => worker.random.bits() % blocks,
                    Pattern::Sequential => cursors[*thread].fetch_add(1, Ordering::Relaxed) % blocks,
                };
                let is_read = worker.random.chance(self.job.reads_percent, 100);
                let begun = clock.monotonic_ns();
                worker.operate(is_read, block * self.job.block_bytes as u64)?;
                let now = clock.monotonic_ns();
                let tally = if is_read { &mut outcome.reads } else { &mut outcome.writes };
                tally.add(now - begun);
                outcome.took_ns = now - started;
                if outcome.took_ns >= lasts_ns || !go_on() {
                    return Ok(outcome);
                }
            }
        };
        let mut all = Outcome::default();
        for ended in together(workers.len(), work)? {
            let one = ended?;
            all.took_ns = all.took_ns.max(one.took_ns);
            all.reads.merge(&one.reads);
            all.writes.merge(&one.writes);
        }
        // The next repetition must not pay for unsynced writes of this one.
        self.scratch.open(SyncMethod::Fdatasync)?.sync_data()?;
        Ok(all)
    }
}

/// Whether the whole file was filled.
fn fill(file: &dyn File, bytes: u64, go_on: &(dyn Fn() -> bool + Sync)) -> io::Result<bool> {
    let mut random = Random::new(OsDisk::new().random());
    let mut piece = vec![0_u8; FILL_BYTES];
    for word in piece.as_chunks_mut::<8>().0 {
        *word = random.bits().to_le_bytes();
    }
    let mut done = 0;
    while done < bytes {
        if !go_on() {
            return Ok(false);
        }
        // No piece equals the one before.
        for word in piece.as_chunks_mut::<512>().0 {
            word[..8].copy_from_slice(&random.bits().to_le_bytes());
        }
        let step = usize::try_from(bytes - done).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        file.write_at(&piece[..step], done)?;
        done += step as u64;
    }
    Ok(true)
}

/// One operation in flight.
struct Worker<'a> {
    job: &'a Job,
    file: &'a dyn File,
    random: Random,
    block: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job, file: &'a dyn File, seed: u64) -> Worker<'a> {
        let mut random = Random::new(seed);
        let mut block = vec![0; job.block_bytes];
        for word in block.as_chunks_mut::<8>().0 {
            *word = random.bits().to_le_bytes();
        }
        Worker { job, file, random, block }
    }

    fn operate(&mut self, is_read: bool, offset: u64) -> io::Result<()> {
        if is_read {
            return self.file.read_at(&mut self.block, offset);
        }
        freshen(&mut self.block);
        if !self.job.is_synced {
            return Ok(self.file.write_at(&self.block, offset)?);
        }
        self.file.write_durable_at(&self.block, offset).map_err(|error| match error {
            DurableWriteError::Write(error) => error.source,
            DurableWriteError::Sync(error) => error,
        })
    }
}
