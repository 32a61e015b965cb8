//! What is in memory and how much of it: the meter that every node and every buffered write is charged to, and the
//! door through which nodes come from disk.
//!
//! A node in memory is owned by the slots that lead to it (see `tree`), so there is no table of frames: this
//! module only counts, reads and checks. It never decides what to evict (the sweeper in `tree` does).

mod epochs;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::data_file::{DataFile, Location, Page, PageKind};
use crate::error::Result;
use crate::limits::{QUEUE_MEMORY_PART, WRITES_BYTES_FREE, WRITES_MEMORY_PART};

use epochs::{Epochs, Evicted};

pub use epochs::Pin;

/// Of `memory_bytes`, nodes may take this part, in percent; the rest is for buffers and write sets. More where what an
/// engine takes besides, about as much whatever the memory, leaves it to them.
const NODES_PERCENT: usize = 55;
const NODES_PERCENT_MAX: usize = 80;
const BESIDES_BYTES: usize = 29 << 20;

/// Of what nodes may take, this part is left to clean ones when a checkpoint begins: inner nodes, which every read needs, and
/// what is read meanwhile. More where memory is large, in parts; less where it is small, in percent.
const CLEAN_BYTES: usize = 20 << 20;
const CLEAN_PART: usize = 16;
const CLEAN_PERCENT_MAX: usize = 55;

/// Commits wait when nodes that only a checkpoint frees take this part of what nodes may take, in percent.
const WAIT_AT_PERCENT: usize = 109;

/// Nodes and buffered writes together may take this part; nodes give way, but not below their last part.
const SHARED_PERCENT: usize = 85;
const NODES_PERCENT_MIN: usize = 10;

/// Buffers that wait for their next page may take this part, in percent: about what one sweep frees.
const IDLE_PERCENT: usize = 6;

/// Memory is swept from this part of the bound on, in percent.
const SWEEP_FROM_PERCENT: usize = 90;

/// Where so much of the bound was evicted and waits for readers to leave, evicting more frees nothing, and what is wanted again
/// comes in a second time: nothing is evicted, in percent. More than one sweep lets go of.
const WAITING_PERCENT_MAX: usize = 25;

/// After a sweep that found little, this part of the bound may come in before the next.
const SWEEP_STEP_PART: usize = 32;

/// Bytes of nodes in memory, and how many bytes those will take on disk that are not there yet.
pub struct Meter {
    resident_bytes: AtomicUsize,
    /// Nodes that were evicted and wait for readers that may have found them.
    waiting_bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
    pages_read: AtomicU64,
    /// Writes of open transactions.
    written_bytes: AtomicUsize,
    /// Records of ordered commits that are not in the log.
    queued_bytes: AtomicUsize,
    memory_bytes: usize,
    nodes_bytes_max: usize,
    dirty_bounds: DirtyBounds,
    /// A sweep by whoever reads a page is worth while from here on.
    sweep_from_bytes: AtomicUsize,
    sweeper: OnceLock<Sweeper>,
    epochs: Epochs,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resident, dirty) = (self.resident_bytes(), self.dirty_bytes());
        f.debug_struct("Meter")
            .field("resident_bytes", &resident)
            .field("dirty_bytes", &dirty)
            .finish_non_exhaustive()
    }
}

/// Gives memory back; called by whoever finds too much of it taken.
type Sweeper = Box<dyn Fn() + Send + Sync>;

/// Bounds for the bytes of memory that only a checkpoint can free.
#[derive(Debug, Clone, Copy)]
pub struct DirtyBounds {
    /// A checkpoint begins.
    pub checkpoint_from: usize,
    /// Commits are delayed.
    pub delay_from: usize,
    /// Commits wait.
    pub wait_at: usize,
}

impl DirtyBounds {
    fn new(nodes_bytes_max: usize) -> DirtyBounds {
        let percent = nodes_bytes_max / 100;
        let clean = CLEAN_BYTES.max(nodes_bytes_max / CLEAN_PART).min(percent * CLEAN_PERCENT_MAX);
        let checkpoint_from = nodes_bytes_max - clean;
        let wait_at = percent * WAIT_AT_PERCENT;
        let delay_from = checkpoint_from + (wait_at - checkpoint_from) / 7 * 3;
        DirtyBounds { checkpoint_from, delay_from, wait_at }
    }
}

impl Meter {
    fn new(memory_bytes: usize) -> Meter {
        let percent = memory_bytes / 100;
        let left = memory_bytes.saturating_sub(BESIDES_BYTES);
        let bytes_max = left.clamp(percent * NODES_PERCENT, percent * NODES_PERCENT_MAX);
        Meter {
            nodes_bytes_max: bytes_max,
            dirty_bounds: DirtyBounds::new(bytes_max),
            written_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            memory_bytes,
            resident_bytes: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            dirty_bytes: AtomicUsize::new(0),
            pages_read: AtomicU64::new(0),
            sweep_from_bytes: AtomicUsize::new(bytes_max / 100 * SWEEP_FROM_PERCENT),
            sweeper: OnceLock::new(),
            epochs: Epochs::default(),
        }
    }

    /// What is found in memory from here on stays until the pin goes, though others evict it. For one lookup, not longer.
    pub fn pin(&self) -> Pin<'_> {
        self.epochs.pin()
    }

    /// The same for whoever may hold a lock that others wait for: nothing is freed when it goes.
    pub fn pin_under_locks(&self) -> Pin<'_> {
        self.epochs.pin_under_locks()
    }

    /// Whether a pin keeps what is charged to this meter.
    pub fn keeps(&self, pin: &Pin<'_>) -> bool {
        pin.is_of(&self.epochs)
    }

    /// Frees what was evicted once nobody who may have found it before is still pinned.
    pub fn free_later(&self, evicted: Evicted) {
        self.epochs.free_later(evicted);
    }

    /// Frees what was evicted, as far as nobody looks at it.
    pub fn free_evicted(&self) {
        self.epochs.free();
    }

    /// Bytes by which nodes are over a part of their bound.
    pub fn excess(&self, percent: usize) -> usize {
        self.resident_bytes().saturating_sub(self.bytes_max() / 100 * percent)
    }

    /// Bytes to be evicted until nodes take that part of their bound. None while much that was evicted is not freed yet: it
    /// would free nothing now.
    pub fn eviction_target(&self, percent: usize) -> usize {
        let waits_much = || self.waiting_bytes() > self.bytes_max() / 100 * WAITING_PERCENT_MAX;
        if waits_much() {
            self.free_evicted();
            if waits_much() {
                return 0;
            }
        }
        self.excess(percent)
    }

    /// Whether so much is buffered that nodes may take less than their part.
    fn nodes_give_way(&self) -> bool {
        self.bytes_max() < self.nodes_bytes_max
    }

    /// Bytes of memory that only a checkpoint can free. Changed leaves share the pages they began as, so what they will take on
    /// disk may be more than they take here.
    pub fn unfreeable_bytes(&self) -> usize {
        self.dirty_bytes().min(self.resident_bytes())
    }

    /// From where on that is too much.
    pub fn dirty_bounds(&self) -> DirtyBounds {
        self.dirty_bounds
    }

    /// What nodes may take as long as little is buffered.
    pub fn nodes_bytes_max(&self) -> usize {
        self.nodes_bytes_max
    }

    /// What nodes may take now.
    fn bytes_max(&self) -> usize {
        let percent = self.memory_bytes / 100;
        let left = (percent * SHARED_PERCENT).saturating_sub(self.buffered_bytes());
        left.clamp(percent * NODES_PERCENT_MIN, self.nodes_bytes_max)
    }

    /// Bytes of writes that wait to be committed or written.
    pub fn buffered_bytes(&self) -> usize {
        self.written_bytes.load(Ordering::Relaxed) + self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Whether so much is ordered and not in the log that no more should come without waiting itself.
    pub fn queues_much(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) > self.memory_bytes / QUEUE_MEMORY_PART
    }

    /// Sets what gives memory back, once.
    pub fn set_sweeper(&self, sweeper: Sweeper) {
        assert!(self.sweeper.set(sweeper).is_ok(), "one sweeper an engine");
    }

    /// Gives memory back before more is taken, if there is too much in memory. Where a sweep finds little to give
    /// back (all is dirty, or in use), the next waits until more has come in: memory goes over its bound rather
    /// than every read through all of it.
    pub fn make_room(&self) {
        if self.sweep_due()
            && let Some(sweep) = self.sweeper.get()
        {
            sweep();
        }
    }

    /// Whether a sweep may find something to give back.
    pub fn sweep_due(&self) -> bool {
        self.resident_bytes() > self.sweep_from_bytes.load(Ordering::Relaxed)
    }

    /// A sweep has ended.
    pub fn swept(&self) {
        self.free_evicted();
        let next = self.sweep_floor().max(self.resident_bytes() + self.bytes_max() / SWEEP_STEP_PART);
        self.sweep_from_bytes.store(next, Ordering::Relaxed);
    }

    /// Something has become clean, or time has passed: a sweep may find more than the last one did.
    pub fn sweep_anew(&self) {
        self.sweep_from_bytes.store(self.sweep_floor(), Ordering::Relaxed);
    }

    fn sweep_floor(&self) -> usize {
        self.bytes_max() / 100 * SWEEP_FROM_PERCENT
    }

    /// Bytes of all nodes in memory.
    pub fn resident_bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of nodes that were evicted, and are in memory until those have left who may have found them before.
    pub fn waiting_bytes(&self) -> usize {
        // A node may stay after all between the two steps of its leaving: for that moment the sum is below zero.
        let bytes = self.waiting_bytes.load(Ordering::Relaxed);
        if bytes > isize::MAX as usize { 0 } else { bytes }
    }

    /// Bytes that the nodes without a place on disk will take there, in whole blocks.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Pages read from disk since the engine was opened.
    pub fn pages_read(&self) -> u64 {
        self.pages_read.load(Ordering::Relaxed)
    }
}

/// Of the bytes of a charge: they are of an evicted node.
const LEFT: usize = 1 << (usize::BITS - 1);

/// One node's share of the meter; given back when the node is dropped.
#[derive(Debug)]
pub struct Charge {
    meter: Arc<Meter>,
    /// With [`LEFT`] where it is charged to what waits.
    bytes: AtomicUsize,
    dirty: AtomicUsize,
}

impl Charge {
    /// Charges `bytes` of memory to the meter, and what a checkpoint will write for them.
    #[must_use]
    pub fn new(meter: &Arc<Meter>, bytes: usize, dirty_bytes: usize) -> Charge {
        meter.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        if dirty_bytes > 0 {
            meter.dirty_bytes.fetch_add(dirty_bytes, Ordering::Relaxed);
        }
        Charge {
            meter: Arc::clone(meter),
            bytes: AtomicUsize::new(bytes),
            dirty: AtomicUsize::new(dirty_bytes),
        }
    }

    /// What it is charged to.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// What was evicted stays after all.
    pub fn stay(&self) {
        // Looked at first: nearly always it never left, and others read the same line.
        if self.bytes.load(Ordering::Relaxed) & LEFT != 0 {
            let before = self.bytes.fetch_and(!LEFT, Ordering::Relaxed);
            if before & LEFT != 0 {
                self.meter.resident_bytes.fetch_add(before & !LEFT, Ordering::Relaxed);
                self.meter.waiting_bytes.fetch_sub(before & !LEFT, Ordering::Relaxed);
            }
        }
    }

    /// It was evicted: it is freed as soon as nobody looks at it any more, and waits until then.
    pub fn leave(&self) {
        let before = self.bytes.fetch_or(LEFT, Ordering::Relaxed);
        if before & LEFT == 0 {
            self.meter.waiting_bytes.fetch_add(before, Ordering::Relaxed);
            self.meter.resident_bytes.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// The node has a place on disk now.
    pub fn clean(&self) {
        if self.dirty.load(Ordering::Relaxed) > 0 {
            let dirty_bytes = self.dirty.swap(0, Ordering::Relaxed);
            self.meter.dirty_bytes.fetch_sub(dirty_bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clean();
        let bytes = *self.bytes.get_mut();
        let charged_to =
            if bytes & LEFT == 0 { &self.meter.resident_bytes } else { &self.meter.waiting_bytes };
        charged_to.fetch_sub(bytes & !LEFT, Ordering::Relaxed);
    }
}

/// One transaction's share of the meter for what it has written and no tree or log holds yet.
#[derive(Debug)]
pub struct Buffered {
    meter: Arc<Meter>,
    bytes: usize,
    /// It is ordered, and waits for the log alone.
    is_queued: bool,
    /// It may grow whatever others hold: it runs alone, and they wait for it.
    is_alone: bool,
}

impl Buffered {
    /// Of nothing yet.
    #[must_use]
    pub fn new(meter: &Arc<Meter>) -> Buffered {
        Buffered { meter: Arc::clone(meter), bytes: 0, is_queued: false, is_alone: false }
    }

    /// Of a transaction that runs alone: what others hold does not stop it.
    #[must_use]
    pub fn alone(meter: &Arc<Meter>) -> Buffered {
        let mut buffered = Buffered::new(meter);
        buffered.is_alone = true;
        buffered
    }

    /// Asks for so many bytes in all; `false` if all transactions together would buffer too much. Asks in steps, so
    /// that small transactions share nothing.
    #[must_use]
    pub fn may_grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes.max(WRITES_BYTES_FREE) {
            return true;
        }
        let others = self.meter.written_bytes.load(Ordering::Relaxed).saturating_sub(self.bytes);
        if others + bytes > self.meter.memory_bytes / WRITES_MEMORY_PART && !self.is_alone {
            return false;
        }
        self.set(bytes + WRITES_BYTES_FREE);
        true
    }

    /// Hands the share on.
    #[must_use]
    pub fn take(&mut self) -> Buffered {
        let bytes = std::mem::take(&mut self.bytes);
        let (is_queued, is_alone) = (self.is_queued, self.is_alone);
        Buffered { meter: Arc::clone(&self.meter), bytes, is_queued, is_alone }
    }

    /// From here on it is a record of so many bytes, on its way to the log.
    pub fn queue(&mut self, bytes: usize) {
        self.set(0);
        self.is_queued = true;
        self.set(bytes);
    }

    fn counter(&self) -> &AtomicUsize {
        if self.is_queued { &self.meter.queued_bytes } else { &self.meter.written_bytes }
    }

    fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.counter().fetch_add(bytes - self.bytes, Ordering::Relaxed);
            if self.meter.nodes_give_way() {
                self.meter.sweep_anew();
            }
        } else {
            self.counter().fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The data file and the meter: all that is needed to bring a page into memory.
#[derive(Debug, Clone)]
pub struct Pages {
    data: DataFile,
    meter: Arc<Meter>,
}

impl Pages {
    /// Over an open data file, with a target for memory.
    #[must_use]
    pub fn new(data: DataFile, memory_bytes: usize) -> Pages {
        data.buffers().keep_at_most(memory_bytes / 100 * IDLE_PERCENT);
        Pages { data, meter: Arc::new(Meter::new(memory_bytes)) }
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
        self.meter.make_room();
        self.data.read(location, kind)
    }
}
