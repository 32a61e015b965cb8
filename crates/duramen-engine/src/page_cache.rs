//! What is in memory and how much of it: the meter that every node is charged to, and the door through which
//! nodes come from disk.
//!
//! A node in memory is owned by the slots that lead to it (see `tree`), so there is no table of frames: this
//! module only counts, reads and checks. It never decides what to evict (the sweeper in `tree` does).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::data_file::{DataFile, Location, Page, PageKind};
use crate::error::Result;

/// Of `memory_bytes`, nodes may take this part, in percent; the rest is for buffers, read and write sets.
const NODES_PERCENT: usize = 75;

/// A reader that finds memory over its bound waits for the sweeper at most this long.
const READER_WAIT: Duration = Duration::from_millis(5);

/// Bytes of nodes in memory, and how many of them are not on disk yet.
#[derive(Debug)]
pub struct Meter {
    resident_bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
    pages_read: AtomicU64,
    bytes_max: usize,
    waits: bool,
    swept: Mutex<()>,
    changed: Condvar,
}

const POISON: &str = "nothing panics while the meter is locked";

impl Meter {
    fn new(memory_bytes: usize, waits: bool) -> Meter {
        Meter {
            resident_bytes: AtomicUsize::new(0),
            dirty_bytes: AtomicUsize::new(0),
            pages_read: AtomicU64::new(0),
            bytes_max: memory_bytes / 100 * NODES_PERCENT,
            waits,
            swept: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Bytes by which nodes are over a part of their bound.
    pub fn excess(&self, percent: usize) -> usize {
        self.resident_bytes().saturating_sub(self.bytes_max / 100 * percent)
    }

    /// Memory was given back.
    pub fn relieved(&self) {
        self.changed.notify_all();
    }

    /// Waits a moment for memory; whoever reads a page is asked to.
    fn hold_back(&self) {
        if self.waits && self.excess(100) > 0 {
            let guard = self.swept.lock().expect(POISON);
            drop(self.changed.wait_timeout(guard, READER_WAIT).expect(POISON));
        }
    }

    /// Bytes of all nodes in memory.
    pub fn resident_bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of nodes that have no place on disk.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Pages read from disk since the engine was opened.
    pub fn pages_read(&self) -> u64 {
        self.pages_read.load(Ordering::Relaxed)
    }
}

/// One node's share of the meter; given back when the node is dropped.
#[derive(Debug)]
pub struct Charge {
    meter: Arc<Meter>,
    bytes: usize,
    dirty: AtomicUsize,
}

impl Charge {
    /// Charges `bytes` to the meter, as dirty or clean.
    #[must_use]
    pub fn new(meter: &Arc<Meter>, bytes: usize, dirty: bool) -> Charge {
        let dirty_bytes = if dirty { bytes } else { 0 };
        meter.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        meter.dirty_bytes.fetch_add(dirty_bytes, Ordering::Relaxed);
        Charge { meter: Arc::clone(meter), bytes, dirty: AtomicUsize::new(dirty_bytes) }
    }

    /// The node has a place on disk now.
    pub fn clean(&self) {
        let dirty_bytes = self.dirty.swap(0, Ordering::Relaxed);
        self.meter.dirty_bytes.fetch_sub(dirty_bytes, Ordering::Relaxed);
    }

    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clean();
        self.meter.resident_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The data file and the meter: all that is needed to bring a page into memory.
#[derive(Debug, Clone)]
pub struct Pages {
    data: DataFile,
    meter: Arc<Meter>,
}

impl Pages {
    /// Over an open data file, with a target for memory. Where a sweeper runs, readers wait for it when there is
    /// too much in memory.
    #[must_use]
    pub fn new(data: DataFile, memory_bytes: usize, sweeper_runs: bool) -> Pages {
        Pages { data, meter: Arc::new(Meter::new(memory_bytes, sweeper_runs)) }
    }

    /// The file pages come from.
    #[must_use]
    pub fn data(&self) -> &DataFile {
        &self.data
    }

    /// What nodes are charged to.
    #[must_use]
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Reads and checks one page (D4).
    ///
    /// # Errors
    /// As [`DataFile::read`].
    pub fn read(&self, location: &Location, kind: PageKind) -> Result<Page> {
        self.meter.pages_read.fetch_add(1, Ordering::Relaxed);
        self.meter.hold_back();
        self.data.read(location, kind)
    }
}
