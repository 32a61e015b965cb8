//! Upper bounds for any engine: a loop of write and sync, and a log without an index.
//!
//! The log is only a group commit. A thread that finds no leader leads: it writes the gathered records, waits
//! for one sync, wakes the members of the group one by one, and hands the lead to the first waiter of the
//! next group. Nothing can be read from the log, so it has no answers: it is a bound, not a rival.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use duramen_disk::{Access, Disk, DurableWriteError, File, OpenMode, OsDisk, SyncMethod, write_zeroes};
use duramen_lab::measure::{Lane, Strategy, Summary};
use xxhash_rust::xxh3::xxh3_64;

use crate::data::Rows;
use crate::drive::{Plan, drive};
use crate::engine::{Failure, Result};
use crate::job::{Job, Outcome};
use crate::workloads::commits::VALUE_BYTES;

/// The bounds: name, strategy of the raw loop, sync method of the log.
pub(crate) const BOUNDS: [(&str, Strategy, SyncMethod); 3] = [
    ("fdatasync", Strategy::ZeroedFdatasync, SyncMethod::Fdatasync),
    ("dsync", Strategy::ZeroedDsync, SyncMethod::Dsync),
    ("direct", Strategy::ZeroedDirectDsync, SyncMethod::DirectDsync),
];

/// Direct writes need whole blocks. The log writes whole blocks with every method, as Duramen's does.
const BLOCK_BYTES: usize = 4096;
/// Overwritten again and again: a larger file would only take longer to zero.
const FILE_BYTES: u64 = 64 << 20;
const POISON: &str = "nothing panics under this lock";

/// Bytes of a record of the raw loop.
pub(crate) fn record_bytes(strategy: Strategy) -> usize {
    if strategy == Strategy::ZeroedDirectDsync { BLOCK_BYTES } else { VALUE_BYTES }
}

/// The raw loop: one thread, 1 KiB (4 KiB for direct writes), zero-filled.
///
/// # Errors
/// Errors of the system; `Unsupported` if there is no such call.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
pub(crate) fn raw(job: &Job, strategy: Strategy) -> Result<Outcome> {
    let mut lane = Lane::prepare(&job.dir, strategy, record_bytes(strategy), 1 << 20)?;
    let (mut samples, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs_f64(job.seconds) {
        samples.push(lane.write()?);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let summary = Summary::of(&samples).ok_or("nothing was written")?;
    Ok(Outcome::default()
        .with("commits/s", samples.len() as f64 / seconds)
        .with("p50 us", summary.p50 as f64 / 1e3)
        .with("p99 us", summary.p99 as f64 / 1e3)
        .with("p99.9 us", summary.p999 as f64 / 1e3))
}

/// Runs W1 and W2 on the log.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn log(job: &Job, method: SyncMethod) -> Result<Outcome> {
    let log = Log::create(&job.dir.join("log"), &job.dir, method)?;
    let rows = Rows::new(job.seed, VALUE_BYTES);
    let plan = Plan {
        threads: job.threads,
        warm_up: Duration::from_millis(300),
        time: Duration::from_secs_f64(job.seconds),
    };
    let driven = drive(plan, |number, pace| {
        let (mut row, mut value, mut record) = ((number as u64) << 40, Vec::new(), Vec::new());
        pace.keep(|| {
            rows.value(row, &mut value);
            record.clear();
            record.extend_from_slice(rows.key(row).bytes());
            record.extend_from_slice(&value);
            row += 1;
            log.commit(&record)
        })
    })?;
    Ok(Outcome::default().with_all(driven.figures("commits")))
}

const WAITING: u8 = 0;
const DURABLE: u8 = 1;
const LEADS: u8 = 2;
const FAILED: u8 = 3;

/// A waiting thread, and the state that it is woken with.
struct Waiter {
    told: AtomicU8,
    thread: Thread,
}

impl Waiter {
    fn tell(&self, what: u8) {
        self.told.store(what, Ordering::Release);
        self.thread.unpark();
    }
}

#[derive(Default)]
struct Forming {
    bytes: Vec<u8>,
    waiters: Vec<Arc<Waiter>>,
    leading: bool,
    offset: u64,
}

struct Log {
    file: Arc<dyn File>,
    forming: Mutex<Forming>,
}

impl Log {
    fn create(path: &Path, dir: &Path, method: SyncMethod) -> Result<Log> {
        let disk = OsDisk::new();
        let created = disk.open(path, Access::CREATE)?;
        write_zeroes(&*created, 0, FILE_BYTES).map_err(|error| error.source)?;
        created.sync_data()?;
        disk.sync_dir(dir)?;
        let file = disk.open(path, Access { mode: OpenMode::Write, sync: method })?;
        Ok(Log { file, forming: Mutex::new(Forming::default()) })
    }

    fn commit(&self, record: &[u8]) -> Result<()> {
        let me = Arc::new(Waiter { told: AtomicU8::new(WAITING), thread: thread::current() });
        let checksum = xxh3_64(record).to_le_bytes();
        let leads = {
            let mut forming = self.forming.lock().expect(POISON);
            forming.bytes.extend_from_slice(&checksum);
            forming.bytes.extend_from_slice(record);
            forming.waiters.push(Arc::clone(&me));
            !std::mem::replace(&mut forming.leading, true)
        };
        if leads {
            return self.lead();
        }
        loop {
            match me.told.load(Ordering::Acquire) {
                WAITING => thread::park(),
                DURABLE => return Ok(()),
                LEADS => return self.lead(),
                _ => return Err("the leader's write failed".into()),
            }
        }
    }

    /// Writes one group, wakes its members, and hands over the lead.
    fn lead(&self) -> Result<()> {
        let (mut bytes, members, offset) = {
            let mut forming = self.forming.lock().expect(POISON);
            let bytes = std::mem::take(&mut forming.bytes);
            let length = bytes.len().next_multiple_of(BLOCK_BYTES) as u64;
            if forming.offset + length > FILE_BYTES {
                forming.offset = 0;
            }
            let offset = forming.offset;
            forming.offset += length;
            (bytes, std::mem::take(&mut forming.waiters), offset)
        };
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let written = self.file.write_durable_at(&bytes, offset).map_err(|error| -> Failure {
            match error {
                DurableWriteError::Write(error) => error.source.into(),
                DurableWriteError::Sync(error) => error.into(),
            }
        });
        // The next group is on its way to the disk before this one's members are awake.
        let next = {
            let mut forming = self.forming.lock().expect(POISON);
            let next = forming.waiters.first().cloned();
            forming.leading = next.is_some();
            next
        };
        if let Some(next) = next {
            next.tell(LEADS);
        }
        let told = if written.is_ok() { DURABLE } else { FAILED };
        let me = thread::current().id();
        members.iter().filter(|member| member.thread.id() != me).for_each(|member| member.tell(told));
        written
    }
}
