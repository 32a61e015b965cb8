//! Epochs: when a node that was taken out of memory may be freed, while readers look at nodes without counting references.
//!
//! A reader is counted where its thread counts, under the epoch it came in. What is taken out in an epoch is freed two
//! epochs later: the epoch goes on only once nobody is left who came in under the one before, so by then whoever could
//! have seen it has gone.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const SHARD_COUNT: usize = 32;
const POISON: &str = "nothing panics while the list of what was taken out is locked";

/// Readers and what waits for them.
#[derive(Default)]
pub struct Epochs {
    epoch: AtomicUsize,
    shards: [Shard; SHARD_COUNT],
    taken_out: Mutex<Vec<TakenOut>>,
    /// Whether anything was taken out and is not freed.
    waits: AtomicBool,
}

/// Readers by the epoch they came in, of three that can be told apart.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicUsize; 3]);

struct TakenOut {
    epoch: usize,
    what: Arc<dyn Any + Send + Sync>,
}

/// A reader at work.
pub struct Pin<'a> {
    epochs: &'a Epochs,
    readers: &'a AtomicUsize,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT
    };
}

impl Epochs {
    /// Comes in: what is found from here on stays until the pin goes, whoever takes it out.
    pub fn pin(&self) -> Pin<'_> {
        let shard = &self.shards[SHARD.with(|shard| *shard)];
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let readers = &shard.0[epoch % 3];
            readers.fetch_add(1, Ordering::SeqCst);
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return Pin { epochs: self, readers };
            }
            readers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Keeps what no reader can find any more for those who have found it.
    pub fn free_later(&self, what: Arc<dyn Any + Send + Sync>) {
        let mut taken_out = self.taken_out.lock().expect(POISON);
        taken_out.push(TakenOut { epoch: self.epoch.load(Ordering::SeqCst), what });
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Frees what nobody looks at any more.
    fn free(&self) {
        // Whoever comes while somebody frees goes on without.
        let Ok(mut taken_out) = self.taken_out.try_lock() else { return };
        let mut epoch = self.epoch.load(Ordering::SeqCst);
        while taken_out.iter().any(|taken| taken.epoch + 2 > epoch) {
            let before = (epoch + 2) % 3;
            if self.shards.iter().any(|shard| shard.0[before].load(Ordering::SeqCst) > 0) {
                break;
            }
            epoch += 1;
            self.epoch.store(epoch, Ordering::SeqCst);
        }
        let free: Vec<TakenOut> = taken_out.extract_if(.., |taken| taken.epoch + 2 <= epoch).collect();
        self.waits.store(!taken_out.is_empty(), Ordering::Relaxed);
        drop(taken_out);
        free.into_iter().for_each(|taken| drop(taken.what));
    }
}

impl Pin<'_> {
    /// Whether it keeps what is taken out of these.
    pub fn is_of(&self, epochs: &Epochs) -> bool {
        std::ptr::eq(self.epochs, epochs)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::SeqCst);
        if self.epochs.waits.load(Ordering::Relaxed) {
            self.epochs.free();
        }
    }
}

#[cfg(test)]
mod tests {
    //! What was taken out stays while somebody who came in before looks, and goes when nobody does.
    use super::*;

    #[test]
    fn what_was_taken_out_outlives_those_who_came_before() {
        let epochs = Epochs::default();
        let what: Arc<dyn Any + Send + Sync> = Arc::new(5_u8);
        let early = epochs.pin();
        epochs.free_later(Arc::clone(&what));
        drop(epochs.pin());
        let late = epochs.pin();
        drop(epochs.pin());
        assert_eq!(Arc::strong_count(&what), 2, "somebody may look at it");
        drop(early);
        drop(late);
        drop(epochs.pin());
        assert_eq!(Arc::strong_count(&what), 1, "nobody can look at it");
    }

    #[test]
    fn nobody_waits_for_a_reader_that_comes_later_than_what_was_taken_out() {
        let epochs = Epochs::default();
        let mut kept = Vec::new();
        let mut readers = Vec::new();
        for round in 0..10_u8 {
            let what: Arc<dyn Any + Send + Sync> = Arc::new(round);
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
}
