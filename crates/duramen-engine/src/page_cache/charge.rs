//! What a node or a patch takes of the memory, and of the room for the next checkpoint: given back when it is
//! dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::Meter;
use crate::alarm::invariant;

/// What a patch takes in memory besides its bytes: its fields, and two allocations.
const PATCH_BYTES: usize = size_of::<PatchCharge>() + 96;

/// Flag in the bytes of a charge: the node was evicted.
const LEFT: usize = 1 << (usize::BITS - 1);

/// Flag in the dirty bytes of a charge: the latest root does not use the node.
const SUPERSEDED: usize = 1 << (usize::BITS - 1);

/// In place of the bytes of patches: the node is a leaf.
const LEAF: usize = usize::MAX;

/// One node's share of the meter; returned when the node is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Arc<Meter>,
    /// With [`LEFT`] if charged to `waiting_bytes`.
    bytes: AtomicUsize,
    /// With [`SUPERSEDED`] if it is charged to `superseded_bytes`, too.
    dirty: AtomicUsize,
    /// The part of `dirty` that is patches, or [`LEAF`].
    patch_bytes: usize,
}

/// What a checkpoint writes for a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dirty {
    /// Nothing.
    No,
    /// A leaf of so many bytes.
    Leaf(usize),
    /// Another node of so many bytes, with those of patches.
    Inner {
        /// Of the whole page.
        bytes: usize,
        /// Of the patches on it.
        patch_bytes: usize,
    },
}

impl Charge {
    /// Charges `bytes` of memory to the meter, and what a checkpoint will write for them.
    #[must_use]
    pub(crate) fn new(meter: &Arc<Meter>, bytes: usize, dirty: Dirty) -> Charge {
        meter.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        let (dirty_bytes, patch_bytes) = match dirty {
            Dirty::No => (0, 0),
            Dirty::Leaf(bytes) => (bytes, LEAF),
            Dirty::Inner { bytes, patch_bytes } => (bytes, patch_bytes.min(bytes)),
        };
        let charge = Charge {
            meter: Arc::clone(meter),
            bytes: AtomicUsize::new(bytes),
            dirty: AtomicUsize::new(dirty_bytes),
            patch_bytes,
        };
        if dirty_bytes > 0 {
            meter.dirty_bytes.fetch_add(dirty_bytes, Ordering::Relaxed);
            let (counter, bytes) =
                charge.part(dirty_bytes, &meter.dirty_patch_bytes, &meter.dirty_leaf_bytes);
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
        charge
    }

    /// What is counted besides all dirty bytes: of a leaf its own, of another node those of its patches.
    fn part<'c>(
        &self,
        dirty_bytes: usize,
        of_patches: &'c AtomicUsize,
        of_leaves: &'c AtomicUsize,
    ) -> (&'c AtomicUsize, usize) {
        if self.patch_bytes == LEAF { (of_leaves, dirty_bytes) } else { (of_patches, self.patch_bytes) }
    }

    /// Whether the node was evicted.
    pub(crate) fn has_left(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) & LEFT != 0
    }

    /// The meter that is charged.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The node was evicted, but its page stays in use.
    pub(crate) fn stay(&self) {
        // Loaded first: it nearly always never left, and other threads read the same cache line.
        if self.bytes.load(Ordering::Relaxed) & LEFT != 0 {
            let before = self.bytes.fetch_and(!LEFT, Ordering::Relaxed);
            if before & LEFT != 0 {
                self.meter.resident_bytes.fetch_add(before & !LEFT, Ordering::Relaxed);
                self.meter.waiting_bytes.fetch_sub(before & !LEFT, Ordering::Relaxed);
            }
        }
    }

    /// The node was evicted: it is charged to `waiting_bytes` until it is freed.
    pub(crate) fn leave(&self) {
        let before = self.bytes.fetch_or(LEFT, Ordering::Relaxed);
        if before & LEFT == 0 {
            self.meter.waiting_bytes.fetch_add(before, Ordering::Relaxed);
            self.meter.resident_bytes.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// The bytes of memory that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) & !LEFT
    }

    /// It takes so many bytes of memory more.
    fn grow(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let charged_to =
            if before & LEFT == 0 { &self.meter.resident_bytes } else { &self.meter.waiting_bytes };
        charged_to.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The node has a page on disk now: it can be evicted.
    pub(crate) fn clean(&self) {
        self.meter.evictable(self.take_dirty());
    }

    /// No checkpoint writes the node any more. Returns the bytes that one would have written for it.
    fn take_dirty(&self) -> usize {
        if self.dirty.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let dirty = self.dirty.swap(0, Ordering::Relaxed);
        let dirty_bytes = dirty & !SUPERSEDED;
        if dirty_bytes > 0 {
            let Meter { dirty_patch_bytes, dirty_leaf_bytes, .. } = &*self.meter;
            let (counter, bytes) = self.part(dirty_bytes, dirty_patch_bytes, dirty_leaf_bytes);
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
        if dirty & SUPERSEDED != 0 {
            self.take_superseded(dirty_bytes);
        }
        let before = self.meter.dirty_bytes.fetch_sub(dirty_bytes, Ordering::Relaxed);
        invariant!(before >= dirty_bytes, "{dirty_bytes} clean bytes are among {before} dirty ones");
        dirty_bytes
    }

    /// The latest root does not use the node, or uses it again.
    pub(crate) fn supersede(&self, is_superseded: bool) {
        let dirty = self.dirty.load(Ordering::Relaxed);
        let bytes = dirty & !SUPERSEDED;
        if bytes == 0 || (dirty & SUPERSEDED != 0) == is_superseded {
            return;
        }
        // A checkpoint may clean it meanwhile, and takes off what is flagged: it is added before.
        if is_superseded {
            self.add_superseded(bytes);
        }
        let exchanged = self
            .dirty
            .compare_exchange(dirty, dirty ^ SUPERSEDED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if exchanged != is_superseded {
            self.take_superseded(bytes);
        }
    }

    fn add_superseded(&self, bytes: usize) {
        self.meter.superseded_bytes.fetch_add(bytes, Ordering::Relaxed);
        let Meter { superseded_patch_bytes, superseded_leaf_bytes, .. } = &*self.meter;
        let (counter, part_bytes) = self.part(bytes, superseded_patch_bytes, superseded_leaf_bytes);
        counter.fetch_add(part_bytes, Ordering::Relaxed);
        self.meter.old_node_bytes.fetch_add(self.bytes(), Ordering::Relaxed);
    }

    fn take_superseded(&self, bytes: usize) {
        self.meter.superseded_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let Meter { superseded_patch_bytes, superseded_leaf_bytes, .. } = &*self.meter;
        let (counter, part_bytes) = self.part(bytes, superseded_patch_bytes, superseded_leaf_bytes);
        counter.fetch_sub(part_bytes, Ordering::Relaxed);
        self.meter.old_node_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }

    /// Whether it is charged for bytes that a checkpoint will write.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.take_dirty();
        let bytes = *self.bytes.get_mut();
        let charged_to =
            if bytes & LEFT == 0 { &self.meter.resident_bytes } else { &self.meter.waiting_bytes };
        charged_to.fetch_sub(bytes & !LEFT, Ordering::Relaxed);
    }
}

/// The share of a patch that is kept with the node above its leaf.
#[derive(Debug)]
pub(crate) struct PatchCharge {
    charge: Charge,
    bytes: usize,
    /// Of the filter that is kept with it.
    filter_bytes: AtomicUsize,
    /// One of the three below.
    counted: AtomicU8,
}

/// The latest root may have the patch, only older ones do, or it has left memory.
const LATEST: u8 = 0;
const OLD: u8 = 1;
const GONE: u8 = 2;

impl PatchCharge {
    /// Charges a patch of so many bytes.
    #[must_use]
    pub(crate) fn new(meter: &Arc<Meter>, bytes: usize) -> PatchCharge {
        meter.patch_bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::new(meter, bytes + PATCH_BYTES, Dirty::No);
        PatchCharge { charge, bytes, filter_bytes: AtomicUsize::new(0), counted: AtomicU8::new(LATEST) }
    }

    /// A filter of so many bytes is kept with the patch.
    pub(crate) fn keep_filter(&self, bytes: usize) {
        self.charge.grow(bytes);
        self.filter_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.charge.meter().filter_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether memory has room for one more filter.
    pub(crate) fn has_room_for_filter(&self) -> bool {
        self.charge.meter().has_room_for_filters()
    }

    /// The node above its leaf was evicted.
    pub(crate) fn leave(&self) {
        self.charge.leave();
        self.count(GONE);
    }

    /// The node above its leaf was evicted, but another version of it is in use.
    pub(crate) fn stay(&self) {
        self.charge.stay();
        if self.counted.load(Ordering::Relaxed) == GONE {
            self.count(LATEST);
        }
    }

    /// The latest root does not have the patch, or has it again.
    pub(crate) fn supersede(&self, is_superseded: bool) {
        self.count(if is_superseded { OLD } else { LATEST });
    }

    fn count(&self, as_one: u8) {
        let meter = self.charge.meter();
        let counter = |one: u8| match one {
            LATEST => Some(&meter.patch_bytes),
            OLD => Some(&meter.old_patch_bytes),
            _ => None,
        };
        // Added first: another thread may take it off again at once.
        if let Some(counter) = counter(as_one) {
            counter.fetch_add(self.bytes, Ordering::Relaxed);
        }
        if let Some(counter) = counter(self.counted.swap(as_one, Ordering::Relaxed)) {
            counter.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for PatchCharge {
    fn drop(&mut self) {
        self.count(GONE);
        self.charge.meter().filter_bytes.fetch_sub(*self.filter_bytes.get_mut(), Ordering::Relaxed);
    }
}
