//! What the handles of an open database remember together: catalogue entries that were decoded, types that were
//! held against them and the views they declare, counters of assigned ids, the clock, why views are not built, what is to be
//! swept and what is not yet, and whom to wake when there is work.
//!
//! Owns no truth: every transaction reads the entry's bytes, so that what is remembered is used only while the
//! catalogue still says the same.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::blobs::BlobId;
use crate::catalog::entries::Entry;
use crate::value::clock::Clock;
use crate::store::{TreeMark, Worker};
use crate::catalog::ids::IdCounter;
use crate::kv::WRITES_A_SWEEP;
use crate::access::typed::Asked;
use crate::value::version;
use crate::access::views::coded::{Code, RowsOf};
use crate::access::views::failures::Failures;
use crate::view::spec::ViewSpec;

const POISON: &str = "nothing panics while what is known is locked";

/// Shared by all clones of a [`Db`](crate::Db), its snapshots and transactions.
#[derive(Debug)]
pub(crate) struct Known {
    clock: Clock,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    types: Mutex<HashMap<TypeId, Fitting>>,
    counters: Mutex<HashMap<&'static str, Arc<IdCounter>>>,
    /// Writes of key-values since their namespace was swept.
    kv_writes: Mutex<HashMap<String, u64>>,
    /// Blobs on their way in.
    uploads: Mutex<HashSet<BlobId>>,
    /// What the types that were used say of their collections.
    declared: Mutex<HashMap<TypeId, Declared>>,
    pub(crate) failures: Failures,
    building: Mutex<()>,
    /// How many documents the last step of a build took.
    step_documents: AtomicU64,
    /// The database is small, and what is done to it must be the same every time: work is done in steps of few documents.
    is_simulated: bool,
    worker: OnceLock<Worker>,
    sweeper_works: AtomicBool,
}

/// What a type says of its collection.
#[derive(Debug)]
struct Declared {
    collection: &'static str,
    /// The version of the documents that it writes.
    version: u32,
    views: Vec<ViewSpec>,
    codes: Vec<Code>,
}

/// What a type may do with the collection that an entry describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Read: the type says more than the entry, which must grow before it writes.
    Reads,
    /// Read and write.
    Writes,
}

/// The entry that a type was held against, and fits.
#[derive(Debug)]
struct Fitting {
    entry: Arc<Entry>,
    fits: Fits,
    /// A state of the catalogue in which the entry was found.
    seen: Option<TreeMark>,
}

impl Known {
    /// Nothing is known yet.
    pub(crate) fn new(clock: Clock, is_simulated: bool) -> Known {
        Known {
            clock,
            entries: Mutex::default(),
            types: Mutex::default(),
            counters: Mutex::default(),
            kv_writes: Mutex::default(),
            uploads: Mutex::default(),
            declared: Mutex::default(),
            failures: Failures::default(),
            building: Mutex::default(),
            step_documents: AtomicU64::default(),
            is_simulated,
            worker: OnceLock::new(),
            sweeper_works: AtomicBool::default(),
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// What time it is.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks at or changes the list of blobs on their way in.
    pub(crate) fn uploads<T>(&self, with: impl FnOnce(&mut HashSet<BlobId>) -> T) -> T {
        with(&mut lock(&self.uploads))
    }

    /// Counts committed writes of a namespace. When it is to be swept, at its first and after so many, returns how many there
    /// were since it was.
    pub(crate) fn wrote_kv(&self, namespace: &str, count: u64) -> Option<u64> {
        let mut writes = lock(&self.kv_writes);
        let Some(since) = writes.get_mut(namespace) else {
            writes.insert(namespace.to_owned(), 0);
            return Some(count);
        };
        *since += count;
        (*since >= WRITES_A_SWEEP).then(|| std::mem::take(since))
    }

    /// The entry of a collection as it was read last.
    pub(crate) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        lock(&self.entries).get(name).cloned()
    }

    /// Remembers an entry of a published state. If it says something else than before, every type is held against it
    /// again: another may have made documents what it cannot read.
    pub(crate) fn remember_entry(&self, entry: &Arc<Entry>) {
        let name = entry.schema.name();
        let mut entries = lock(&self.entries);
        match entries.get_mut(name) {
            Some(known) if Arc::ptr_eq(known, entry) => return,
            Some(known) => known.clone_from(entry),
            None => drop(entries.insert(name.to_owned(), Arc::clone(entry))),
        }
        drop(entries);
        lock(&self.types).retain(|_, known| known.entry.schema.name() != name);
    }

    /// The entry that a type fits, to read and write, as of some state.
    pub(crate) fn fitting(&self, kind: TypeId) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        types.get(&kind).filter(|known| known.fits == Fits::Writes).map(|known| Arc::clone(&known.entry))
    }

    /// The entry whose documents a type reads, as of some state.
    pub(crate) fn readable(&self, kind: TypeId) -> Option<Arc<Entry>> {
        lock(&self.types).get(&kind).map(|known| Arc::clone(&known.entry))
    }

    /// The entry whose documents a type reads in a state of this catalogue.
    pub(crate) fn readable_in(&self, kind: TypeId, is_of: impl Fn(&TreeMark) -> bool) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        let known = types.get(&kind).filter(|known| known.seen.as_ref().is_some_and(is_of));
        known.map(|known| Arc::clone(&known.entry))
    }

    /// Remembers that a type fits an entry of a published state, and in which state of the catalogue that was seen.
    pub(crate) fn remember_fitting(
        &self,
        kind: TypeId,
        entry: &Arc<Entry>,
        fits: Fits,
        seen: Option<TreeMark>,
    ) {
        let mut types = lock(&self.types);
        match types.get_mut(&kind).filter(|known| Arc::ptr_eq(&known.entry, entry)) {
            Some(known) => {
                known.seen = seen.or(known.seen.take());
                known.fits = if known.fits == Fits::Writes { Fits::Writes } else { fits };
            }
            None => {
                types.insert(kind, Fitting { entry: Arc::clone(entry), fits, seen });
            }
        }
    }

    /// Learns what a type declares. Returns whether that is news.
    pub(crate) fn declare(&self, asked: Asked) -> bool {
        let mut declared = lock(&self.declared);
        if declared.contains_key(&asked.kind) {
            return false;
        }
        let views = asked.schema().views().to_vec();
        let (collection, version, codes) = (asked.name, asked.version, asked.codes());
        declared.insert(asked.kind, Declared { collection, version, views, codes });
        true
    }

    /// Whether a type that was used since the database was opened declares a view with these terms.
    pub(crate) fn is_declared(&self, collection: &str, view: &ViewSpec) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        of_collection.flat_map(|of| &of.views).any(|known| known.same_terms(view))
    }

    /// The code of a view, if a type that was used has it: one of documents of this version, for others read them otherwise.
    pub(crate) fn code(&self, collection: &str, version: u32, view: &ViewSpec) -> Option<RowsOf> {
        let declared = lock(&self.declared);
        let of_version = declared.values().filter(|of| of.collection == collection && of.version == version);
        of_version.flat_map(|of| &of.codes).find(|code| code.spec.same_terms(view)).map(|code| code.rows)
    }

    /// Whether rows of a view can be made of documents: not without the code of one in code.
    pub(crate) fn can_make_rows(&self, collection: &str, view: &ViewSpec) -> bool {
        if view.code_version().is_none() {
            return true;
        }
        let version = self.entry(collection).map_or(version::FIRST, |entry| entry.schema.version());
        self.code(collection, version, view).is_some()
    }

    /// Whether a program says that a view is followed by another one, and may answer for it.
    pub(crate) fn is_followed(&self, collection: &str, view: &ViewSpec, by: &ViewSpec) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        let is_followed = |code: &Code| {
            code.spec.same_terms(view) && code.followed_by.as_ref().is_some_and(|next| next.same_terms(by))
        };
        of_collection.flat_map(|of| &of.codes).any(is_followed)
    }

    /// Held by whoever builds a view: one step at a time, or two would conflict at every step.
    pub(crate) fn building(&self) -> MutexGuard<'_, ()> {
        // What is guarded is a turn and no data: a panic leaves nothing half done.
        self.building.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many documents a step of a build is to take: as many as may be, and where others get in between, about as many as went
    /// well last.
    pub(crate) fn step_documents(&self, at_most: u64) -> u64 {
        match self.step_documents.load(Ordering::Relaxed) {
            0 => at_most,
            last => last.saturating_mul(2).min(at_most),
        }
    }

    /// A step took so many documents.
    pub(crate) fn step_took(&self, documents: u64) {
        self.step_documents.store(documents, Ordering::Relaxed);
    }

    /// Who works in the background, once and for all.
    pub(crate) fn work_by(&self, worker: Worker) {
        self.worker.get_or_init(|| worker);
    }

    /// Whether the sweeper of key-values looks by itself again, says who has looked.
    pub(crate) fn sweeper_rests(&self, rests: bool) {
        self.sweeper_works.store(!rests, Ordering::SeqCst);
    }

    /// Whether the sweeper of key-values must be woken to look.
    pub(crate) fn is_sweeper_resting(&self) -> bool {
        !self.sweeper_works.load(Ordering::SeqCst)
    }

    /// There is work to do.
    pub(crate) fn wake(&self) {
        if let Some(worker) = self.worker.get() {
            worker.wake();
        }
    }

    /// The counter of a collection's ids.
    pub(crate) fn counter(&self, collection: &'static str) -> Arc<IdCounter> {
        Arc::clone(lock(&self.counters).entry(collection).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}
