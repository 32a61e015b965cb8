//! Snapshots: a root held by a reader, registered so that its pages stay.
//!
//! Taking one writes to a shard that belongs to a few threads, never to something all readers share. I1 rests here
//! (a snapshot never changes) and D3 (pages of a registered snapshot are not used again).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::catalog::Root;
use crate::ids::CommitSeq;

const SHARD_COUNT: usize = 16;
const POISON: &str = "nothing panics while a shard of snapshots is locked";

/// The commits that registered readers look at.
#[derive(Debug, Default)]
pub struct Registry {
    shards: [Shard; SHARD_COUNT],
    /// Snapshots of commits before this one were ended to free what they held.
    expired_before: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    held: Mutex<BTreeMap<CommitSeq, Held>>,
    /// Roots in `held`, to be read without the lock.
    root_count: AtomicUsize,
}

#[derive(Debug)]
struct Held {
    count: usize,
    root: Arc<Root>,
}

/// A place in the registry; given back when dropped.
#[derive(Debug)]
pub struct Registration {
    registry: Arc<Registry>,
    shard: usize,
    root: Arc<Root>,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT
    };
}

impl Registry {
    /// Registers the root that `newest` returns. It is asked while the shard is locked: whoever frees pages
    /// either sees this registration, or has freed only what the root asked for later no longer uses.
    pub fn register(self: &Arc<Registry>, newest: impl FnOnce() -> Arc<Root>) -> Registration {
        let shard = SHARD.with(|shard| *shard);
        let mut held = self.shards[shard].held.lock().expect(POISON);
        let root = newest();
        let entry = held.entry(root.seq).or_insert_with(|| Held { count: 0, root: Arc::clone(&root) });
        entry.count += 1;
        self.shards[shard].root_count.store(held.len(), Ordering::Relaxed);
        Registration { registry: Arc::clone(self), shard, root }
    }

    /// Whether nothing is registered, as far as can be seen without a lock.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.root_count.load(Ordering::Relaxed) == 0)
    }

    /// The commits of all registered roots.
    pub fn held(&self) -> Vec<CommitSeq> {
        let expired = self.expired_before.load(Ordering::SeqCst);
        let shards = self.shards.iter();
        shards
            .flat_map(|s| s.held.lock().expect(POISON).keys().copied().collect::<Vec<_>>())
            .filter(|seq| seq.0 >= expired)
            .collect()
    }

    /// All registered roots, oldest first, each once.
    pub fn roots(&self) -> Vec<Arc<Root>> {
        let mut roots: BTreeMap<CommitSeq, Arc<Root>> = BTreeMap::new();
        for shard in &self.shards {
            for (seq, held) in shard.held.lock().expect(POISON).iter() {
                roots.entry(*seq).or_insert_with(|| Arc::clone(&held.root));
            }
        }
        roots.into_values().collect()
    }

    /// Ends every snapshot of a commit before `seq`.
    pub fn expire_before(&self, seq: CommitSeq) {
        self.expired_before.fetch_max(seq.0, Ordering::SeqCst);
    }
}

impl Registration {
    /// The registered root.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Whether it was ended to free what it held.
    pub fn is_expired(&self) -> bool {
        self.root.seq.0 < self.registry.expired_before.load(Ordering::Relaxed)
    }
}

impl Clone for Registration {
    fn clone(&self) -> Registration {
        let mut held = self.registry.shards[self.shard].held.lock().expect(POISON);
        held.get_mut(&self.root.seq).expect("a registered root is in its shard").count += 1;
        Registration { registry: Arc::clone(&self.registry), shard: self.shard, root: Arc::clone(&self.root) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut held = self.registry.shards[self.shard].held.lock().expect(POISON);
        let Some(entry) = held.get_mut(&self.root.seq) else { return };
        entry.count -= 1;
        if entry.count == 0 {
            held.remove(&self.root.seq);
            self.registry.shards[self.shard].root_count.store(held.len(), Ordering::Relaxed);
        }
    }
}
