//! Runs the deferred redo: brings the log's tail into the trees after opening.
//!
//! The first thread that needs the trees does the work, and other threads that need them wait. These are the
//! space thread, a write, a checkpoint, a check, a close, and a query too large for the overlay. Readers do
//! not wait. D3 and I1 rest here; `overlay` explains the states and the order of steps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::alarm::locked;
use crate::catalog::{Root, TreeTable};
use crate::checkpoint::Store;
use crate::commit::Committer;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::overlay::Overlay;
use crate::recovery::Tail;
use crate::snapshot::{Newest, Registration};
use crate::tree::evict;

/// The deferred redo of one database.
#[derive(Debug)]
pub(super) struct DeferredRedo {
    /// The last commit that opening found.
    seq: CommitSeq,
    is_done: AtomicBool,
    /// The number of threads that wait for it.
    waiting: AtomicUsize,
    failed: OnceLock<Error>,
    overlay: Mutex<Option<Arc<Overlay>>>,
    /// The lock is held while the work is done.
    work: Mutex<Option<Work>>,
    /// The process that opened the database. A fork of it cannot do the work.
    process: u32,
}

/// The work still to be done.
#[derive(Debug)]
struct Work {
    tail: Tail,
    store: Arc<Store>,
    threads: usize,
    served: Served,
}

/// What receives the root with all changes in it.
#[derive(Debug)]
pub(super) enum Served {
    /// A committer, which continues from it.
    Committer(Arc<Committer>),
    /// Readers of a database opened read-only.
    Readers(Arc<Newest>),
}

impl DeferredRedo {
    /// A redo with nothing to do: everything up to `seq` is in the trees.
    pub(super) fn done(seq: CommitSeq) -> Arc<DeferredRedo> {
        Arc::new(DeferredRedo {
            seq,
            is_done: AtomicBool::new(true),
            waiting: AtomicUsize::new(0),
            failed: OnceLock::new(),
            overlay: Mutex::new(None),
            work: Mutex::new(None),
            process: duramen_disk::process_id(),
        })
    }

    /// A redo of `tail` into the trees of a store, by at most `threads` threads.
    pub(super) fn of(tail: Tail, store: &Arc<Store>, threads: usize, served: Served) -> Arc<DeferredRedo> {
        let overlay = Arc::clone(tail.overlay());
        let work = Work { tail, store: Arc::clone(store), threads, served };
        let deferred_redo = Arc::new(DeferredRedo {
            seq: overlay.seq(),
            is_done: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            failed: OnceLock::new(),
            overlay: Mutex::new(Some(Arc::clone(&overlay))),
            work: Mutex::new(Some(work)),
            process: duramen_disk::process_id(),
        });
        let weak = Arc::downgrade(&deferred_redo);
        overlay
            .drain_by(Box::new(move || weak.upgrade().map_or(Ok(()), |deferred_redo| deferred_redo.wait())));
        deferred_redo
    }

    /// The last commit that opening found. It was durable before the first read was answered.
    pub(super) fn seq(&self) -> CommitSeq {
        self.seq
    }

    /// Fails if the redo has failed. Only opening the database again can repeat it.
    ///
    /// # Errors
    /// The error of the redo.
    pub(super) fn not_failed(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The overlay, until its changes are in the trees.
    pub(super) fn overlay(&self) -> Option<Arc<Overlay>> {
        locked(self.overlay.lock()).clone()
    }

    /// Registers the newest root. Returns with it the overlay, if the root lacks the changes.
    pub(super) fn hold(&self, register: impl Fn() -> Registration) -> (Registration, Option<Arc<Overlay>>) {
        loop {
            let held = register();
            if held.root().seq >= self.seq {
                return (held, None);
            }
            let overlay = self.overlay();
            // None: it was drained in between, and there is a newer root.
            if overlay.is_some() {
                return (held, overlay);
            }
        }
    }

    /// Does the work or waits for it. A waiting thread lets it use all processors.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page could not be read, now or before. Commits have ended then, and reads
    /// through the overlay go on.
    pub(super) fn wait(&self) -> Result<()> {
        if self.is_done.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.process != duramen_disk::process_id() {
            return Err(Error::forked());
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let done = self.run();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Does the work in the background. One processor is left to readers.
    ///
    /// # Errors
    /// As [`DeferredRedo::wait`].
    pub(super) fn run(&self) -> Result<()> {
        if self.is_done.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_done.load(Ordering::Acquire) {
            return Ok(());
        }
        self.not_failed()?;
        let gone = || Error::new(Code::System, "the log's tail was lost on its way into the trees");
        let Work { tail, store, threads, served } = work.take().ok_or_else(gone)?;
        let all = || if self.waiting.load(Ordering::Relaxed) > 0 { threads } else { (threads - 1).max(1) };
        let drained = catch_unwind(AssertUnwindSafe(|| {
            let _within = store.alarm.enter();
            let trees = tail.drain(&all, &mut |trees| give_memory_back(&store, trees))?;
            self.finish(&store, &served, trees);
            Ok(())
        }));
        let panicked = || {
            let message = "bringing the log into the trees panicked: this is a fault of the engine";
            Err(Error::new(Code::System, message).with_hint("report it, and open the database again"))
        };
        drained.unwrap_or_else(|_| panicked()).inspect_err(|error| {
            drop(self.failed.set(error.clone()));
            if let Served::Committer(committer) = &served {
                committer.poison(error.clone());
            }
        })
    }

    fn finish(&self, store: &Arc<Store>, served: &Served, trees: TreeTable) {
        let overlay = self.overlay().expect("it is there until it is drained");
        let root =
            |position| Arc::new(Root { seq: self.seq, rollback_epoch: 0, time_ns: 0, trees, position });
        match served {
            Served::Committer(committer) => {
                let root = root(committer.published().position.clone());
                let held = store.registry.register_root(&root).0;
                committer.replayed(&root);
                // From here on a transaction that began over the overlay can commit.
                overlay.drained(held);
            }
            Served::Readers(newest) => {
                let root = root(OnceLock::new());
                overlay.drained(store.registry.register_root(&root).0);
                newest.set(root);
            }
        }
        locked(self.overlay.lock()).take();
        self.is_done.store(true, Ordering::Release);
    }
}

/// Evicts clean nodes until memory is within its bound. Dirty nodes stay until a checkpoint writes them.
pub(super) fn give_memory_back(store: &Store, trees: &TreeTable) {
    let meter = store.pages.meter();
    let enough = || meter.eviction_target(80) == 0;
    if enough() {
        return;
    }
    for tree in trees.iter() {
        let Some(slot) = tree.slot.as_ref().filter(|_| !enough()) else { continue };
        evict((&store.pages, tree.reducer.as_deref()), slot, &[], &enough);
    }
}
