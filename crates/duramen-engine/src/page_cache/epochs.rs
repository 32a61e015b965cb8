//! Epochs: when an evicted node may be freed, while readers use nodes without counting references.
//!
//! The algorithm, its memory ordering and the interleavings are described in `tree/slot.rs`. Freeing never
//! waits: a reader that leaves, an eviction, or the background thread frees what can be freed.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::alarm::{invariant, locked, locked_if_free};

const SHARD_COUNT: usize = 32;
/// An evicted object that readers may still use.
pub(super) type Evicted = Arc<dyn Any + Send + Sync>;

/// Counters of readers, and evicted objects that are not freed yet.
#[derive(Default)]
pub(crate) struct Epochs {
    epoch: AtomicUsize,
    shards: [Shard; SHARD_COUNT],
    /// In order of the epochs in which they were evicted.
    evicted: Mutex<VecDeque<(usize, Evicted)>>,
    /// Whether any evicted object is not freed yet.
    waits: AtomicBool,
    /// The shard in which the last check found a reader: the next check begins there.
    blocked: AtomicUsize,
}

/// Numbers of readers by epoch modulo 3: the previous epoch, the current one and the next.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicUsize; 3]);

/// A pinned reader: what it finds is not freed until the pin is dropped, even if it is evicted.
pub(crate) struct Pin<'a> {
    epochs: &'a Epochs,
    readers: &'a AtomicUsize,
    /// Whether dropping the pin frees what can be freed.
    frees: bool,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT
    };
}

impl Epochs {
    /// Pins a reader. For one lookup at most: nothing evicted meanwhile can be freed.
    pub(crate) fn pin(&self) -> Pin<'_> {
        Pin { epochs: self, readers: self.count_in(), frees: true }
    }

    /// As [`Epochs::pin`], for a thread that may hold a lock: dropping the pin frees nothing.
    pub(crate) fn pin_under_locks(&self) -> Pin<'_> {
        Pin { epochs: self, readers: self.count_in(), frees: false }
    }

    /// Counts this thread among the readers of the current epoch; returns the counter.
    fn count_in(&self) -> &AtomicUsize {
        let shard = &self.shards[SHARD.with(|shard| *shard)];
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let readers = &shard.0[epoch % 3];
            readers.fetch_add(1, Ordering::SeqCst);
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return readers;
            }
            readers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Keeps an object that new readers cannot find, until the readers that may have found it have left.
    pub(crate) fn free_later(&self, what: Evicted) {
        let mut evicted = locked(self.evicted.lock());
        let epoch = self.epoch.load(Ordering::SeqCst);
        let newest = evicted.back().map_or(0, |(newest, _)| *newest);
        invariant!(newest <= epoch, "an eviction in epoch {epoch} follows those of {newest}");
        let waits = self.waits.load(Ordering::SeqCst);
        invariant!(waits != evicted.is_empty(), "{} objects wait, as noted: {waits}", evicted.len());
        evicted.push_back((epoch, what));
        self.waits.store(true, Ordering::SeqCst);
    }

    /// Frees the objects that no reader can use any more.
    pub(crate) fn free(&self) {
        if !self.waits.load(Ordering::SeqCst) {
            return;
        }
        // A thread that finds another one freeing goes on without waiting.
        let Some(mut evicted) = locked_if_free(self.evicted.try_lock()) else { return };
        let Some(newest) = evicted.back().map(|(epoch, _)| *epoch) else { return };
        let mut epoch = self.epoch.load(Ordering::SeqCst);
        invariant!(newest <= epoch, "an object evicted in epoch {newest} is there in epoch {epoch}");
        while epoch < newest + 2 && self.all_left((epoch + 2) % 3) {
            epoch += 1;
            self.epoch.store(epoch, Ordering::SeqCst);
        }
        debug_assert!(evicted.iter().is_sorted_by_key(|(epoch, _)| *epoch), "the oldest are freed first");
        let count = evicted.partition_point(|(evicted_in, _)| evicted_in + 2 <= epoch);
        let free: Vec<(usize, Evicted)> = evicted.drain(..count).collect();
        self.waits.store(!evicted.is_empty(), Ordering::SeqCst);
        drop(evicted);
        drop(free);
    }

    /// Whether no reader is counted in any shard for this epoch (modulo 3).
    fn all_left(&self, epoch: usize) -> bool {
        let first = self.blocked.load(Ordering::Relaxed);
        let somebody = (0..SHARD_COUNT)
            .map(|at| (first + at) % SHARD_COUNT)
            .find(|shard| self.shards[*shard].0[epoch].load(Ordering::SeqCst) > 0);
        if let Some(shard) = somebody {
            self.blocked.store(shard, Ordering::Relaxed);
        }
        somebody.is_none()
    }
}

impl Pin<'_> {
    /// Whether the pin belongs to these epochs.
    pub(crate) fn is_of(&self, epochs: &Epochs) -> bool {
        std::ptr::eq(self.epochs, epochs)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let before = self.readers.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a reader that leaves was counted");
        if self.frees {
            self.epochs.free();
        }
    }
}

#[cfg(test)]
mod tests {
    //! An evicted object stays while a reader that may have found it is pinned, and is freed afterwards.
    use super::*;

    #[test]
    fn what_was_evicted_outlives_those_who_came_before() {
        let epochs = Epochs::default();
        let what: Evicted = Arc::new(5_u8);
        let early = epochs.pin();
        epochs.free_later(Arc::clone(&what));
        drop(epochs.pin());
        let late = epochs.pin();
        drop(epochs.pin());
        assert_eq!(Arc::strong_count(&what), 2, "somebody may look at it");
        drop(early);
        drop(late);
        assert_eq!(Arc::strong_count(&what), 1, "nobody can look at it");
    }

    #[test]
    fn whoever_may_hold_locks_frees_nothing() {
        let epochs = Epochs::default();
        let what: Evicted = Arc::new(5_u8);
        epochs.free_later(Arc::clone(&what));
        drop(epochs.pin_under_locks());
        assert_eq!(Arc::strong_count(&what), 2);
        epochs.free();
        assert_eq!(Arc::strong_count(&what), 1);
    }

    #[test]
    fn nobody_waits_for_a_reader_that_comes_later_than_what_was_evicted() {
        let epochs = Epochs::default();
        let mut kept = Vec::new();
        let mut readers = Vec::new();
        for round in 0..10_u8 {
            let what: Evicted = Arc::new(round);
            epochs.free_later(Arc::clone(&what));
            kept.push(what);
            readers.push(epochs.pin());
            if readers.len() > 1 {
                readers.remove(0);
            }
        }
        let freed = kept.iter().filter(|what| Arc::strong_count(what) == 1).count();
        assert!(freed >= 6, "{freed} of 10, though no reader stayed for more than a round");
    }

    #[test]
    fn an_eviction_in_an_epoch_before_the_last_raises_the_alarm() {
        let epochs = Epochs::default();
        epochs.free_later(Arc::new(1_u8));
        locked(epochs.evicted.lock())[0].0 = 5;
        let cause = crate::alarm::cause_of(|| epochs.free_later(Arc::new(2_u8)));
        assert!(cause.contains("an eviction in epoch 0 follows those of 5"), "{cause}");
    }

    #[test]
    fn many_threads_see_nothing_freed_while_they_look() {
        let epochs = Epochs::default();
        let found: Mutex<Option<Arc<AtomicUsize>>> = Mutex::default();
        crate::threads::side_by_side(&[0, 1, 2], |role| {
            for round in 0..if cfg!(miri) { 40 } else { 4000 } {
                if role == 0 {
                    let next = Some(Arc::new(AtomicUsize::new(round)));
                    let before = std::mem::replace(&mut *found.lock().unwrap(), next);
                    if let Some(before) = before {
                        epochs.free_later(before);
                    }
                } else {
                    let pin = epochs.pin();
                    // As a reader finds a node: without counting a reference.
                    let seen = found.lock().unwrap().as_ref().map(Arc::downgrade);
                    std::thread::yield_now();
                    assert!(seen.is_none_or(|seen| seen.strong_count() > 0), "freed under a pin");
                    drop(pin);
                }
            }
        });
    }
}
