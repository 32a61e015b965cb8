//! Snapshots: roots held by readers, registered so that their pages stay.
//!
//! Taking a snapshot writes only to a shard that a few threads share. Each shard has one hold per root; it
//! keeps alive what readers need, and stays for the next reader of the same root. I1 rests here: a snapshot
//! never changes. D3 too: pages of a registered snapshot are not reused, by this process or by the next one
//! (D8).

mod newest;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use duramen_disk::Lock;

use crate::alarm::{invariant, locked};
use crate::catalog::Root;
use crate::ids::CommitSeq;
use crate::page_cache::Pages;

pub(crate) use newest::Newest;

const SHARD_COUNT: usize = 16;
/// The locks that keep other processes out of a database.
pub(crate) type Locks = Vec<Box<dyn Lock>>;

/// The locks were released.
#[derive(Debug)]
pub(crate) struct Released;

/// The registered roots of readers.
#[derive(Debug)]
pub(crate) struct Registry {
    pages: Pages,
    shards: [Shard; SHARD_COUNT],
    /// Snapshots of commits before this one were ended to free their space.
    expired_before: AtomicU64,
    /// Roots before this commit may use pages that were freed.
    freed_to: AtomicU64,
    /// Held by every registration: otherwise the next process would reuse the pages.
    locks: OnceLock<Weak<Locks>>,
    /// For each ended rollback epoch, the last commit that was kept.
    kept: RwLock<Vec<CommitSeq>>,
    /// The engine has ended: a hold without readers is not kept for a next reader.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    users: usize,
}

/// Keeps alive what readers of one root in one shard need.
#[derive(Debug)]
struct Hold {
    registry: Arc<Registry>,
    shard: usize,
    root: Arc<Root>,
    _locks: Option<Arc<Locks>>,
}

/// Holds without readers that were replaced by another. Dropping the last hold of a root frees all that only
/// it has, which may be much. Drop it outside locks that others wait for.
#[derive(Debug, Default)]
pub(crate) struct Idle(#[expect(dead_code, reason = "kept to be dropped")] Vec<Entry>);

/// One registered reader; dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Registration {
    hold: Arc<Hold>,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT
    };
}

impl Registry {
    /// A registry without readers.
    #[must_use]
    pub(crate) fn new(pages: Pages) -> Arc<Registry> {
        let (shards, expired_before, freed_to, locks, kept, ended) = Default::default();
        Arc::new(Registry { pages, shards, expired_before, freed_to, locks, kept, ended })
    }

    /// Lets registrations made from now on keep other processes out, too.
    pub(crate) fn share_locks(&self, locks: &Arc<Locks>) {
        self.locks.set(Arc::downgrade(locks)).expect("a database is locked once");
    }

    /// The locks, for what still writes once the engine has ended. `None` where nothing is locked.
    ///
    /// # Errors
    /// They were released: another process may write.
    pub(crate) fn hold_locks(&self) -> std::result::Result<Option<Arc<Locks>>, Released> {
        self.locks.get().map(|locks| locks.upgrade().ok_or(Released)).transpose()
    }

    /// Registers the newest root, which is read while the shard is locked. A thread that frees pages sees
    /// this registration, or has freed only what a root read later does not use.
    pub(crate) fn register(self: &Arc<Registry>, newest: &Newest) -> Registration {
        self.register_and_leave(newest).0
    }

    /// The same for a caller that holds a lock: it must drop the second value after releasing that lock.
    pub(crate) fn register_and_leave(self: &Arc<Registry>, newest: &Newest) -> (Registration, Idle) {
        self.register_one(|root| newest.is(root), || newest.get())
    }

    /// Registers a root that is the newest, while nothing can replace it.
    pub(crate) fn register_root(self: &Arc<Registry>, root: &Arc<Root>) -> (Registration, Idle) {
        self.register_one(|known| Arc::ptr_eq(known, root), || Arc::clone(root))
    }

    fn register_one(
        self: &Arc<Registry>,
        is_wanted: impl Fn(&Arc<Root>) -> bool,
        wanted: impl FnOnce() -> Arc<Root>,
    ) -> (Registration, Idle) {
        let index = SHARD.with(|shard| *shard);
        let shard = &self.shards[index];
        let mut entries = locked(shard.entries.lock());
        let known = entries.iter_mut().find(|entry| is_wanted(&entry.hold.root));
        if let Some(entry) = known {
            entry.users += 1;
            let hold = Arc::clone(&entry.hold);
            return (Registration { hold }, Idle::default());
        }
        let _locks = self.hold_locks().ok().flatten();
        let root = wanted();
        // Read under the shard's lock, as the root: see `held_before_freeing`.
        let (seq, freed_to) = (root.seq, self.freed_to.load(Ordering::SeqCst));
        invariant!(seq.0 >= freed_to, "the root of commit {seq} has the pages that {freed_to} has");
        let hold = Arc::new(Hold { registry: Arc::clone(self), shard: index, root, _locks });
        let idle = take_idle(&mut entries);
        entries.push(Entry { hold: Arc::clone(&hold), users: 1 });
        (Registration { hold }, idle)
    }

    /// The sequences of all registered roots with pages that must stay. A root of dropped commits needs none:
    /// its sequence was reused, and its readers get `Conflict`.
    pub(crate) fn held(&self) -> Vec<CommitSeq> {
        let expired = self.expired_before.load(Ordering::SeqCst);
        let roots = self.roots();
        let holds = |root: &&Arc<Root>| root.seq.0 >= expired && self.is_kept(root.seq, root.rollback_epoch);
        roots.iter().filter(holds).map(|root| root.seq).collect()
    }

    /// As [`held`](Self::held), for a thread that is about to free pages: those that neither the returned
    /// roots nor any root of commit `boundary` or later uses.
    ///
    /// D3: no root before `boundary` may be registered from here on. A thread that looked for the newest root
    /// earlier holds the lock of its shard until it is registered, so its root is in the list.
    pub(crate) fn held_before_freeing(&self, boundary: CommitSeq) -> Vec<CommitSeq> {
        let held = self.held();
        self.freed_to.fetch_max(boundary.0, Ordering::SeqCst);
        held
    }

    /// Drops every commit after this one and begins a new rollback epoch. Readers of the dropped roots fail
    /// from here on.
    pub(crate) fn drop_after(&self, kept: CommitSeq) {
        locked(self.kept.write()).push(kept);
    }

    /// Whether the commit with this sequence and rollback epoch was not dropped.
    pub(crate) fn is_kept(&self, seq: CommitSeq, rollback_epoch: u64) -> bool {
        let since = usize::try_from(rollback_epoch).expect("64-bit targets only");
        locked(self.kept.read())[since..].iter().all(|kept| *kept >= seq)
    }

    /// All registered roots, oldest first, each once.
    pub(crate) fn roots(&self) -> Vec<Arc<Root>> {
        let mut roots: BTreeMap<(CommitSeq, u64), Arc<Root>> = BTreeMap::new();
        for shard in &self.shards {
            for entry in locked(shard.entries.lock()).iter().filter(|entry| entry.users > 0) {
                let root = &entry.hold.root;
                roots.entry((root.seq, root.rollback_epoch)).or_insert_with(|| Arc::clone(root));
            }
        }
        roots.into_values().collect()
    }

    /// Drops roots without readers in every shard where one of them is no longer the newest.
    pub(crate) fn let_go_before(&self, newest: CommitSeq) {
        for shard in &self.shards {
            let mut entries = locked(shard.entries.lock());
            let outdated = entries.iter().any(|entry| entry.users == 0 && entry.hold.root.seq < newest);
            let idle = if outdated { take_idle(&mut entries) } else { Idle::default() };
            drop(entries);
            drop(idle);
        }
    }

    /// Ends with the engine: from now on a root is kept only while a reader holds it.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        for shard in &self.shards {
            let mut entries = locked(shard.entries.lock());
            let idle = take_idle(&mut entries);
            drop(entries);
            drop(idle);
        }
        self.pages.meter().free_evicted();
    }

    /// Ends every snapshot of a commit before `seq`.
    pub(crate) fn expire_before(&self, seq: CommitSeq) {
        self.expired_before.fetch_max(seq.0, Ordering::SeqCst);
    }
}

fn take_idle(entries: &mut Vec<Entry>) -> Idle {
    Idle(entries.extract_if(.., |entry| entry.users == 0).collect())
}

impl Registration {
    /// The registered root.
    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.hold.root
    }

    /// The store of its pages.
    pub(crate) fn pages(&self) -> &Pages {
        &self.hold.registry.pages
    }

    /// Whether it was ended to free its space.
    pub(crate) fn is_expired(&self) -> bool {
        self.hold.root.seq.0 < self.hold.registry.expired_before.load(Ordering::Relaxed)
    }

    /// Whether its commits were dropped. Nothing keeps its pages then.
    pub(crate) fn is_dropped(&self) -> bool {
        let Hold { registry, root, .. } = &*self.hold;
        !registry.is_kept(root.seq, root.rollback_epoch)
    }

    fn shard(&self) -> &Shard {
        &self.hold.registry.shards[self.hold.shard]
    }
}

impl Clone for Registration {
    fn clone(&self) -> Registration {
        let mut entries = locked(self.shard().entries.lock());
        let entry = entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.hold, &self.hold));
        let entry = entry.expect("a registered root is in its shard");
        invariant!(entry.users > 0, "the root of commit {} has a reader", self.hold.root.seq);
        entry.users += 1;
        Registration { hold: Arc::clone(&self.hold) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let shard = self.shard();
        let mut entries = locked(shard.entries.lock());
        let Some(entry) = entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.hold, &self.hold)) else {
            return;
        };
        // Another panic while one unwinds would end the process.
        let is_counted = entry.users > 0 || std::thread::panicking();
        invariant!(is_counted, "the root of commit {} has a reader that leaves", self.hold.root.seq);
        entry.users = entry.users.saturating_sub(1);
        if entry.users > 0 {
            return;
        }
        let gone = self.hold.registry.ended.load(Ordering::SeqCst);
        let idle = if gone { take_idle(&mut entries) } else { Idle::default() };
        drop(entries);
        drop(idle);
        if gone {
            // Freed here, since no later call may come: the rest would keep itself alive for ever.
            self.hold.registry.pages.meter().free_evicted();
        }
    }
}
