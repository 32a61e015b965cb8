//! Snapshots: a root held by a reader, registered so that its pages stay.
//!
//! Taking one writes to a shard that belongs to a few threads, never to something all readers share. I1 rests here
//! (a snapshot never changes) and D3 (pages of a registered snapshot are not used again, by this process
//! or by a next one: D8).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use duramen_disk::Lock;

use crate::catalog::Root;
use crate::ids::CommitSeq;

const SHARD_COUNT: usize = 16;
const POISON: &str = "nothing panics while a shard of snapshots is locked";

/// What keeps other processes out of a database.
pub type Locks = Vec<Box<dyn Lock>>;

/// The commits that registered readers look at.
#[derive(Debug, Default)]
pub struct Registry {
    shards: [Shard; SHARD_COUNT],
    /// Snapshots of commits before this one were ended to free what they held.
    expired_before: AtomicU64,
    /// Held by every registration: the next process would use the pages again.
    locks: OnceLock<Weak<Locks>>,
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
    locks: Option<Arc<Locks>>,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT
    };
}

impl Registry {
    /// Registrations made from now on keep other processes out, too.
    pub fn share_locks(&self, locks: &Arc<Locks>) {
        self.locks.set(Arc::downgrade(locks)).expect("a database is locked once");
    }

    /// Registers the root that `newest` returns. It is asked while the shard is locked: whoever frees pages
    /// either sees this registration, or has freed only what the root asked for later no longer uses.
    pub fn register(self: &Arc<Registry>, newest: impl FnOnce() -> Arc<Root>) -> Registration {
        let shard = SHARD.with(|shard| *shard);
        let mut held = self.shards[shard].held.lock().expect(POISON);
        let root = newest();
        let entry = held.entry(root.seq).or_insert_with(|| Held { count: 0, root: Arc::clone(&root) });
        entry.count += 1;
        self.shards[shard].root_count.store(held.len(), Ordering::Relaxed);
        let locks = self.locks.get().and_then(Weak::upgrade);
        Registration { registry: Arc::clone(self), shard, root, locks }
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
        let (registry, root, locks) =
            (Arc::clone(&self.registry), Arc::clone(&self.root), self.locks.clone());
        Registration { registry, shard: self.shard, root, locks }
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
