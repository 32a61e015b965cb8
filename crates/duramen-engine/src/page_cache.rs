//! What is in memory and how much of it: the meter to which every node and every buffered write is charged,
//! and the reading of pages from disk.
//!
//! A node in memory is owned by the slots that lead to it (see `tree`), so there is no page table. This
//! module counts, reads and verifies. It never chooses what to evict; `tree::evict` does. The bounds for
//! writers are described at [`DirtyBounds`].

mod charge;
mod epochs;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::alarm::invariant;
use crate::data_file::{DataFile, Page, PageKind, PagePointer};
use crate::error::Result;
use crate::limits::{QUEUE_MEMORY_PART, WRITES_BYTES_FREE, WRITES_MEMORY_PART};
use crate::options::GiveBack;

use epochs::{Epochs, Evicted};

pub(crate) use charge::{Charge, Dirty, PatchCharge};
pub(crate) use epochs::Pin;

/// Nodes may take this part of `memory_bytes`, in percent; the rest is for buffers and write sets.
///
/// The part is larger where the rest would exceed `BESIDES_BYTES`: what an engine takes besides hardly
/// depends on `memory_bytes`.
const NODES_PERCENT: usize = 55;
const NODES_PERCENT_MAX: usize = 80;
const BESIDES_BYTES: usize = 29 << 20;

/// When a checkpoint begins, this part of what nodes may take is left to clean ones: inner nodes, which every
/// read needs, and what is read meanwhile. `CLEAN_PART` applies where memory is large, `CLEAN_PERCENT_MAX`
/// where it is small, and `CLEAN_BESIDE_PATCHES_PERCENT` the more, the more of what is dirty is patches.
const CLEAN_BYTES: usize = 20 << 20;
const CLEAN_PART: usize = 16;
const CLEAN_PERCENT_MAX: usize = 55;

/// Where all that is dirty is patches, exactly this part is left to clean nodes: less than
/// `CLEAN_PERCENT_MAX` where memory is small, as the leaves of patches are clean, and more than `CLEAN_BYTES`
/// where it is large, as nodes above many patches are large.
const CLEAN_BESIDE_PATCHES_PERCENT: usize = 20;

/// Commits wait when nodes that only a checkpoint can free take this part of what nodes may take, in percent.
const WAIT_AT_PERCENT: usize = 109;

/// Nodes and buffered writes together may take this part, in percent. Nodes give way, but keep
/// `NODES_PERCENT_MIN`.
const SHARED_PERCENT: usize = 85;
const NODES_PERCENT_MIN: usize = 10;

/// Buffers on shelves, ready for the next page, may take this part, in percent: about what one eviction
/// frees.
const IDLE_PERCENT: usize = 6;

/// Nodes are evicted from this part of the bound on, in percent.
const EVICT_FROM_PERCENT: usize = 90;

/// Nothing is evicted while more than this part of the bound was evicted and not freed, in percent.
///
/// More eviction would free nothing, and what is read again would be in memory twice. It is more than one
/// eviction frees.
const WAITING_PERCENT_MAX: usize = 25;

/// After an eviction this part of the bound may be read in before the next one, which frees as much if it
/// can.
const EVICT_STEP_PART: usize = 16;

/// Filters may take this part of what nodes may take.
const FILTERS_PART: usize = 6;

/// So many calls that allow an eviction are in vain where nothing has become clean and nothing was read in.
const CALLS_WITHOUT_EVICTION: usize = 64;

/// More than can be evicted: the last eviction found enough.
const EVICTABLE: usize = usize::MAX / 2;

const _: () = assert!(
    NODES_PERCENT_MIN <= NODES_PERCENT && NODES_PERCENT <= NODES_PERCENT_MAX,
    "the bounds of what nodes may take are in order"
);
const _: () = assert!(
    NODES_PERCENT_MAX <= SHARED_PERCENT && SHARED_PERCENT + IDLE_PERCENT < 100,
    "nodes, buffered writes and idle buffers fit into the memory together"
);
const _: () = assert!(
    CLEAN_BESIDE_PATCHES_PERCENT <= CLEAN_PERCENT_MAX
        && CLEAN_PERCENT_MAX < 100
        && CLEAN_PERCENT_MAX + WAIT_AT_PERCENT > 100,
    "a checkpoint begins before commits wait"
);
const _: () = assert!(
    EVICT_FROM_PERCENT + 100 / EVICT_STEP_PART <= 100 && IDLE_PERCENT < WAITING_PERCENT_MAX,
    "eviction begins a step before the bound, and what one frees does not stop the next"
);

/// Bytes of nodes in memory, and the bytes that dirty nodes will take on disk.
pub(crate) struct Meter {
    resident_bytes: AtomicUsize,
    /// Nodes that were evicted and that readers may still use.
    waiting_bytes: AtomicUsize,
    /// Of dirty nodes, with the patches that their pages will have.
    dirty_bytes: AtomicUsize,
    /// The part of `dirty_bytes` of nodes that the latest root does not use.
    superseded_bytes: AtomicUsize,
    /// The part of `dirty_bytes` that is patches, and that of `superseded_bytes`.
    dirty_patch_bytes: AtomicUsize,
    superseded_patch_bytes: AtomicUsize,
    /// The part of `dirty_bytes` that is leaves, and that of `superseded_bytes`.
    dirty_leaf_bytes: AtomicUsize,
    superseded_leaf_bytes: AtomicUsize,
    /// What dirty nodes that the latest root does not use take in memory. Versions of a node share most of
    /// it.
    old_node_bytes: AtomicUsize,
    /// What a checkpoint may still write of nodes that the latest root does not use, at most.
    writing_bytes: AtomicUsize,
    /// Patches that are kept with the nodes above their leaves.
    patch_bytes: AtomicUsize,
    /// Patches that only older roots have.
    old_patch_bytes: AtomicUsize,
    /// Filters that are kept with patches, once for each patch that has one.
    filter_bytes: AtomicUsize,
    /// See `GiveBack::kept_patch_percent`.
    kept_patch_percent: AtomicUsize,
    pages_read: AtomicU64,
    /// Writes of open transactions.
    written_bytes: AtomicUsize,
    /// Records of ordered commits that are not in the log.
    queued_bytes: AtomicUsize,
    /// The target for all memory; can change while the database is open.
    memory_bytes: AtomicUsize,
    /// An eviction by a thread that reads a page is worthwhile from here on.
    evict_from_bytes: AtomicUsize,
    /// Bytes that can be evicted since an eviction found nothing more.
    evictable_bytes: AtomicUsize,
    evictor: OnceLock<Evictor>,
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

/// Frees memory; called by a thread that finds too much of it in use.
type Evictor = Box<dyn Fn() + Send + Sync>;

/// Bounds for the bytes of memory that only a checkpoint can free: the throttle of writers.
///
/// [`Meter::unfreeable_bytes`] is compared with the last two bounds, and what is dirty of the latest root
/// with the first:
/// - `checkpoint_from`: the thread `duramen-space` writes dirty leaves and merges patches, and begins a
///   checkpoint if that is not enough. Commits run at full speed. The room up to the bound of all nodes
///   stays clean, so that reads during the checkpoint find something to evict.
/// - `delay_from`, 3/7 of the way to `wait_at`: each commit requests the same and pauses once
///   (`Throttle::wait`), 50 us to 5 ms, longer the more is dirty. The background writes back what only old
///   snapshots hold.
/// - `wait_at`: commits wait in steps of 5 ms until less is dirty. If the last checkpoint failed, they fail
///   with its error.
///
/// A commit first evicts ([`Meter::make_room`]), which may be enough. Then it passes the throttle, and only
/// then takes the order lock: the checkpoint that ends the wait needs that lock, too. A commit of deletes
/// alone is not delayed, nor is any commit of a stepped engine. A transaction with many leaves to change
/// waits until all of them fit (`Throttle::wait_for_room`). It waits for at most two checkpoints, because
/// other commits may take the memory that these free.
///
/// What breaks without a step:
/// - Without the pause, commits reach `wait_at` at full speed and then all stop until the checkpoint ends.
/// - Versions that only old snapshots hold are dirty, but no checkpoint writes them. Without their
///   write-back, commits at `wait_at` wait for ever (decision 0008: 12 writers in 4 MiB).
/// - Patched leaves share a page, yet each version counts as a whole page to be written. Without the cap at
///   the resident bytes, commits would wait for memory that is not in use.
/// - Patches take most of the room where they are many, and their leaves are clean. Where memory is small and
///   the bounds did not grow with the part of patches, each checkpoint would write all patches for few new
///   ones (decision 0038).
/// - Without the error of the failed checkpoint, commits would wait for ever on a full disk.
/// - While a checkpoint runs, commits count the old and the new version of what it writes. If its end did not
///   clear their requests, another checkpoint would follow at once.
///
/// Buffered writes have bounds of their own. Open transactions beyond `WRITES_MEMORY_PART` fail
/// ([`Buffered`]). Beyond `QUEUE_MEMORY_PART`, commits at level `Memory` wait for their group
/// ([`Meter::queues_much`]). Both kinds of bytes reduce what nodes may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirtyBounds {
    /// From here on a checkpoint begins.
    pub checkpoint_from: usize,
    /// From here on commits are delayed.
    pub delay_from: usize,
    /// From here on commits wait.
    pub wait_at: usize,
}

impl DirtyBounds {
    /// The bounds where patches are `patch_percent` of what only a checkpoint can free.
    fn new(nodes_bytes_max: usize, patch_percent: usize) -> DirtyBounds {
        let percent = nodes_bytes_max / 100;
        let clean_percent =
            CLEAN_PERCENT_MAX - (CLEAN_PERCENT_MAX - CLEAN_BESIDE_PATCHES_PERCENT) * patch_percent / 100;
        let beside_patches = percent * CLEAN_BESIDE_PATCHES_PERCENT * patch_percent / 100;
        let clean = CLEAN_BYTES.max(nodes_bytes_max / CLEAN_PART).max(beside_patches);
        let clean = clean.min(percent * clean_percent);
        let checkpoint_from = nodes_bytes_max - clean;
        let wait_at = percent * WAIT_AT_PERCENT;
        let delay_from = checkpoint_from + (wait_at - checkpoint_from) / 7 * 3;
        DirtyBounds { checkpoint_from, delay_from, wait_at }
    }
}

/// The bytes that nodes may take while little is buffered.
fn nodes_bytes_max(memory_bytes: usize) -> usize {
    let percent = memory_bytes / 100;
    let left = memory_bytes.saturating_sub(BESIDES_BYTES);
    left.clamp(percent * NODES_PERCENT, percent * NODES_PERCENT_MAX)
}

impl Meter {
    fn new(memory_bytes: usize) -> Meter {
        Meter {
            written_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(memory_bytes),
            resident_bytes: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            dirty_bytes: AtomicUsize::new(0),
            superseded_bytes: AtomicUsize::new(0),
            dirty_patch_bytes: AtomicUsize::new(0),
            superseded_patch_bytes: AtomicUsize::new(0),
            dirty_leaf_bytes: AtomicUsize::new(0),
            superseded_leaf_bytes: AtomicUsize::new(0),
            old_node_bytes: AtomicUsize::new(0),
            writing_bytes: AtomicUsize::new(0),
            patch_bytes: AtomicUsize::new(0),
            old_patch_bytes: AtomicUsize::new(0),
            filter_bytes: AtomicUsize::new(0),
            kept_patch_percent: AtomicUsize::new(GiveBack::default().kept_patch_percent),
            pages_read: AtomicU64::new(0),
            evict_from_bytes: AtomicUsize::new(nodes_bytes_max(memory_bytes) / 100 * EVICT_FROM_PERCENT),
            evictable_bytes: AtomicUsize::new(EVICTABLE),
            evictor: OnceLock::new(),
            epochs: Epochs::default(),
        }
    }

    /// Pins a reader: what it finds in memory stays until the pin is dropped, even if evicted. For one lookup
    /// at most.
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.epochs.pin()
    }

    /// As [`Meter::pin`], for a thread that may hold a lock: dropping the pin frees nothing.
    pub(crate) fn pin_under_locks(&self) -> Pin<'_> {
        self.epochs.pin_under_locks()
    }

    /// Whether a pin protects what is charged to this meter.
    pub(crate) fn keeps(&self, pin: &Pin<'_>) -> bool {
        pin.is_of(&self.epochs)
    }

    /// Frees an evicted object once no reader that may have found it is pinned.
    pub(crate) fn free_later(&self, evicted: Evicted) {
        self.epochs.free_later(evicted);
    }

    /// Frees the evicted objects that no reader can use any more.
    pub(crate) fn free_evicted(&self) {
        self.epochs.free();
    }

    /// Bytes by which nodes exceed a part of their bound.
    pub(crate) fn excess(&self, percent: usize) -> usize {
        self.resident_bytes().saturating_sub(self.bytes_max() / 100 * percent)
    }

    /// Bytes to evict until nodes take that part of their bound. Zero while much that was evicted is not
    /// freed yet: more eviction would free nothing now.
    pub(crate) fn eviction_target(&self, percent: usize) -> usize {
        let waits_much = || self.waiting_bytes() > self.bytes_max() / 100 * WAITING_PERCENT_MAX;
        if waits_much() {
            self.free_evicted();
            if waits_much() {
                return 0;
            }
        }
        self.excess(percent)
    }

    /// Bytes that one eviction frees at least, if it finds them: what may have come in since the last, or
    /// what exceeds the bound.
    pub(crate) fn eviction_bytes_min(&self) -> usize {
        (self.bytes_max() / EVICT_STEP_PART).max(self.excess(100))
    }

    /// Whether so much is buffered that nodes must take less than `nodes_bytes_max`.
    fn nodes_give_way(&self) -> bool {
        self.bytes_max() < self.nodes_bytes_max()
    }

    /// Bytes of memory that only a checkpoint, or the end of an older root, can free.
    ///
    /// Patched leaves share their pages, so that what they will take on disk may be more than what they take
    /// in memory.
    pub(crate) fn unfreeable_bytes(&self) -> usize {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let older = of(&self.old_node_bytes).saturating_add(of(&self.old_patch_bytes));
        self.latest_dirty_bytes().saturating_add(older).min(self.resident_bytes())
    }

    /// Bytes of memory that a checkpoint of the latest root would free.
    pub(crate) fn latest_dirty_bytes(&self) -> usize {
        self.latest_bytes().min(self.resident_bytes())
    }

    /// Bytes that a checkpoint of the latest root writes at most: dirty nodes, with all of their patches.
    ///
    /// While a commit is applied, two versions of what it changes count. They share most patches, so a patch
    /// counts once.
    fn latest_bytes(&self) -> usize {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let of_dirty = of(&self.dirty_patch_bytes).saturating_sub(of(&self.superseded_patch_bytes));
        self.whole_dirty_bytes() + of_dirty.min(self.patch_bytes())
    }

    /// A root is taken and written from now on: what is dirty may be superseded before it is written. Room is
    /// kept for both until the guard is dropped.
    #[must_use]
    pub(crate) fn writing(&self) -> Writing<'_> {
        self.writing_bytes.store(self.all_dirty_bytes(), Ordering::Relaxed);
        Writing(self)
    }

    /// Changes the part of their room that patches may take after a checkpoint.
    pub(crate) fn set_kept_patch_percent(&self, percent: usize) {
        self.kept_patch_percent.store(percent, Ordering::Relaxed);
    }

    /// The bytes that patches may take after some were merged. New patches take the rest of their room, which
    /// they share with what else is dirty.
    pub(crate) fn kept_patch_bytes(&self) -> usize {
        let room = DirtyBounds::new(self.nodes_bytes_max(), 100).checkpoint_from;
        let kept = room / 100 * self.kept_patch_percent.load(Ordering::Relaxed);
        kept - self.whole_dirty_bytes().min(kept / 2)
    }

    /// The bounds that [`Meter::unfreeable_bytes`] is compared with.
    pub(crate) fn dirty_bounds(&self) -> DirtyBounds {
        let (all, whole) = (self.latest_bytes(), self.whole_dirty_bytes());
        let part = (all.saturating_sub(whole) * 100).checked_div(all).unwrap_or_default();
        DirtyBounds::new(self.nodes_bytes_max(), part.min(100))
    }

    /// The bytes that nodes may take while little is buffered.
    pub(crate) fn nodes_bytes_max(&self) -> usize {
        nodes_bytes_max(self.memory_bytes())
    }

    /// The target for all memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The bytes that nodes may take now.
    fn bytes_max(&self) -> usize {
        let memory_bytes = self.memory_bytes();
        let percent = memory_bytes / 100;
        let left = (percent * SHARED_PERCENT).saturating_sub(self.buffered_bytes());
        left.clamp(percent * NODES_PERCENT_MIN, nodes_bytes_max(memory_bytes))
    }

    /// Bytes of writes that are not committed yet, or not written to the log.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.written_bytes.load(Ordering::Relaxed) + self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Whether so many ordered commits are not in the log that every further commit must wait for its group.
    pub(crate) fn queues_much(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) > self.memory_bytes() / QUEUE_MEMORY_PART
    }

    /// Sets the function that frees memory, once.
    pub(crate) fn set_evictor(&self, evictor: Evictor) {
        invariant!(self.evictor.set(evictor).is_ok(), "an engine has one evictor");
    }

    /// Evicts before more memory is taken, if too much is in use. After an eviction that found little to
    /// evict (all is dirty, or in use), the next one waits until more was read in. Memory then exceeds its
    /// bound, but reads do not each walk the whole cache.
    pub(crate) fn make_room(&self) {
        if self.eviction_due()
            && let Some(evict) = self.evictor.get()
        {
            evict();
        }
    }

    /// Whether an eviction may find something to evict.
    pub(crate) fn eviction_due(&self) -> bool {
        self.resident_bytes() > self.evict_from_bytes.load(Ordering::Relaxed)
            && self.evictable_bytes.load(Ordering::Relaxed) > self.bytes_max() / EVICT_STEP_PART
    }

    /// Notes that nodes of so many bytes can be evicted from now on, at most: what is dropped again is not
    /// taken off.
    pub(crate) fn evictable(&self, bytes: usize) {
        if self.evictable_bytes.load(Ordering::Relaxed) < EVICTABLE {
            self.evictable_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that an eviction has ended, and whether it found enough.
    pub(crate) fn evicted(&self, enough: bool) {
        self.free_evicted();
        self.evictable_bytes.store(if enough { EVICTABLE } else { 0 }, Ordering::Relaxed);
        let next = self.eviction_floor().max(self.resident_bytes() + self.bytes_max() / EVICT_STEP_PART);
        self.evict_from_bytes.store(next, Ordering::Relaxed);
    }

    /// Allows the next eviction: something has become clean, or time has passed.
    pub(crate) fn evict_again(&self) {
        // What was in use may not be any more.
        self.evictable(self.bytes_max() / EVICT_STEP_PART / CALLS_WITHOUT_EVICTION);
        self.evict_from_bytes.store(self.eviction_floor(), Ordering::Relaxed);
    }

    /// Whether nodes take so much memory that some are evicted when others come in.
    pub(crate) fn is_full(&self) -> bool {
        self.resident_bytes() > self.eviction_floor()
    }

    fn eviction_floor(&self) -> usize {
        self.bytes_max() / 100 * EVICT_FROM_PERCENT
    }

    /// Bytes of all nodes in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of evicted nodes, in memory until the readers that may have found them have left.
    pub(crate) fn waiting_bytes(&self) -> usize {
        // `Charge::stay` may run between the two steps of `Charge::leave`: for that moment the sum is below
        // zero.
        let bytes = self.waiting_bytes.load(Ordering::Relaxed);
        if bytes > isize::MAX as usize { 0 } else { bytes }
    }

    /// Bytes that checkpoints will write at most, in whole blocks: the dirty nodes of the latest root, and
    /// what is left of a root that is being written. All patches of a dirty node are written again.
    pub(crate) fn dirty_bytes(&self) -> usize {
        let superseded = self.superseded_bytes.load(Ordering::Relaxed);
        self.latest_bytes() + superseded.min(self.writing_bytes.load(Ordering::Relaxed))
    }

    /// Bytes of all dirty nodes, those that only older roots hold included, with the patches of each.
    pub(crate) fn all_dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of dirty nodes of the latest root, without patches.
    pub(crate) fn whole_dirty_bytes(&self) -> usize {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let latest = of(&self.dirty_bytes).saturating_sub(of(&self.superseded_bytes));
        let patches = of(&self.dirty_patch_bytes).saturating_sub(of(&self.superseded_patch_bytes));
        latest.saturating_sub(patches)
    }

    /// Bytes of dirty leaves of the latest root.
    pub(crate) fn leaf_dirty_bytes(&self) -> usize {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        of(&self.dirty_leaf_bytes).saturating_sub(of(&self.superseded_leaf_bytes))
    }

    /// Whether what is kept after a checkpoint has room for all patches, those of older roots included.
    pub(crate) fn keeps_all_patches(&self) -> bool {
        self.patch_bytes() + self.old_patch_bytes.load(Ordering::Relaxed) <= self.kept_patch_bytes()
    }

    /// Bytes of the patches that nodes in memory keep.
    pub(crate) fn patch_bytes(&self) -> usize {
        self.patch_bytes.load(Ordering::Relaxed)
    }

    /// Whether more filters may be made. Nothing but the end of their patches frees them.
    pub(crate) fn has_room_for_filters(&self) -> bool {
        self.filter_bytes.load(Ordering::Relaxed) < self.nodes_bytes_max() / FILTERS_PART
    }

    /// Pages read from disk since the engine was opened.
    pub(crate) fn pages_read(&self) -> u64 {
        self.pages_read.load(Ordering::Relaxed)
    }
}

/// While a root is written.
pub(crate) struct Writing<'a>(&'a Meter);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing_bytes.store(0, Ordering::Relaxed);
    }
}

impl Drop for Meter {
    /// Every charge and every share holds the meter: all of them were given back before.
    fn drop(&mut self) {
        let nodes = [&mut self.resident_bytes, &mut self.waiting_bytes, &mut self.dirty_bytes];
        let nodes = nodes.map(|counter| *counter.get_mut());
        let parts = [
            &mut self.superseded_bytes,
            &mut self.dirty_patch_bytes,
            &mut self.superseded_patch_bytes,
            &mut self.dirty_leaf_bytes,
            &mut self.superseded_leaf_bytes,
            &mut self.old_node_bytes,
            &mut self.patch_bytes,
            &mut self.old_patch_bytes,
            &mut self.filter_bytes,
        ];
        let parts = parts.map(|counter| *counter.get_mut());
        debug_assert_eq!((nodes, parts), ([0; 3], [0; 9]), "no node is charged to a meter that is dropped");
        let buffered = [*self.written_bytes.get_mut(), *self.queued_bytes.get_mut()];
        debug_assert_eq!(buffered, [0; 2], "no write is buffered when the meter is dropped");
    }
}

/// One transaction's share of the meter: writes that are neither in a tree nor in the log yet.
#[derive(Debug)]
pub(crate) struct Buffered {
    meter: Arc<Meter>,
    bytes: usize,
    /// The commit is ordered, and waits for the log alone.
    is_queued: bool,
    /// It may grow whatever other transactions hold: it runs alone, and they wait for it.
    is_alone: bool,
}

impl Buffered {
    /// Holds no bytes yet.
    #[must_use]
    pub(crate) fn new(meter: &Arc<Meter>) -> Buffered {
        Buffered { meter: Arc::clone(meter), bytes: 0, is_queued: false, is_alone: false }
    }

    /// For a transaction that runs alone: what others hold does not limit it.
    #[must_use]
    pub(crate) fn alone(meter: &Arc<Meter>) -> Buffered {
        let mut buffered = Buffered::new(meter);
        buffered.is_alone = true;
        buffered
    }

    /// Requests so many bytes in all; `false` if all transactions together would buffer too much.
    ///
    /// Bytes are charged in steps, so that small transactions write no shared counter.
    #[must_use]
    pub(crate) fn may_grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes.max(WRITES_BYTES_FREE) {
            return true;
        }
        let others = self.meter.written_bytes.load(Ordering::Relaxed).saturating_sub(self.bytes);
        if others + bytes > self.meter.memory_bytes() / WRITES_MEMORY_PART && !self.is_alone {
            return false;
        }
        self.set(bytes + WRITES_BYTES_FREE);
        true
    }

    /// Moves the share out.
    #[must_use]
    pub(crate) fn take(&mut self) -> Buffered {
        let bytes = std::mem::take(&mut self.bytes);
        let (is_queued, is_alone) = (self.is_queued, self.is_alone);
        Buffered { meter: Arc::clone(&self.meter), bytes, is_queued, is_alone }
    }

    /// From now on the share is a record of so many bytes, on its way to the log.
    pub(crate) fn queue(&mut self, bytes: usize) {
        invariant!(!self.is_queued, "a record of {bytes} bytes is queued once");
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
                self.meter.evict_again();
            }
        } else {
            let returned = self.bytes - bytes;
            let before = self.counter().fetch_sub(returned, Ordering::Relaxed);
            invariant!(before >= returned, "{returned} bytes given back are among {before} buffered");
        }
        self.bytes = bytes;
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The data file and the meter: all that is needed to read a page into memory.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    data: DataFile,
    meter: Arc<Meter>,
}

impl Pages {
    /// Over an open data file, with a memory target.
    #[must_use]
    pub(crate) fn new(data: DataFile, memory_bytes: usize) -> Pages {
        let pages = Pages { data, meter: Arc::new(Meter::new(memory_bytes)) };
        pages.set_memory_bytes(memory_bytes);
        pages
    }

    /// Changes the memory target. After a lower one the next eviction and the next checkpoint free what is
    /// too much.
    pub(crate) fn set_memory_bytes(&self, memory_bytes: usize) {
        self.data.buffers().keep_at_most(memory_bytes / 100 * IDLE_PERCENT);
        self.meter.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.meter.evictable(EVICTABLE);
        self.meter.evict_again();
    }

    /// The data file.
    #[must_use]
    pub(crate) fn data(&self) -> &DataFile {
        &self.data
    }

    /// The meter that nodes are charged to.
    #[must_use]
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Reads and checks one page (D4).
    ///
    /// # Errors
    /// As [`DataFile::read`].
    pub(crate) fn read(&self, pointer: &PagePointer, kind: PageKind) -> Result<Page> {
        self.meter.pages_read.fetch_add(1, Ordering::Relaxed);
        self.meter.make_room();
        self.data.read(pointer, kind)
    }
}
