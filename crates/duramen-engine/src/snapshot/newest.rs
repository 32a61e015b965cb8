//! The newest root: replaced by every commit, and looked up by every reader without a write that others see.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use crate::alarm::{invariant, locked};
use crate::catalog::Root;

/// A root that gives way to a newer one.
#[derive(Debug)]
pub(crate) struct Newest {
    /// Where the root lies: to be compared with, never to be followed.
    address: AtomicPtr<Root>,
    root: Mutex<Arc<Root>>,
}

impl Newest {
    /// Beginning with a root.
    #[must_use]
    pub(crate) fn new(root: Arc<Root>) -> Newest {
        Newest { address: AtomicPtr::new(Arc::as_ptr(&root).cast_mut()), root: Mutex::new(root) }
    }

    /// The root.
    #[must_use]
    pub(crate) fn get(&self) -> Arc<Root> {
        Arc::clone(&*locked(self.root.lock()))
    }

    /// Replaces it. I1: never by an older one. Sequences go back only where a rollback epoch begins.
    pub(crate) fn set(&self, root: Arc<Root>) {
        let mut newest = locked(self.root.lock());
        let (old, new) = (Newest::age(&newest), Newest::age(&root));
        invariant!(new >= old, "epoch and commit of the newest root grow: {new:?} follows {old:?}");
        let address = Arc::as_ptr(&root).cast_mut();
        let before = std::mem::replace(&mut *newest, root);
        self.address.store(address, Ordering::Release);
        drop(newest);
        // It may be the last to hold much: release it when no thread waits for the lock.
        drop(before);
    }

    fn age(root: &Root) -> (u64, u64) {
        (root.rollback_epoch, root.seq.0)
    }

    /// Whether it is this one, which the caller holds: so no other root can lie where it does.
    #[must_use]
    pub(crate) fn is(&self, root: &Arc<Root>) -> bool {
        Arc::as_ptr(root) == self.address.load(Ordering::Acquire).cast_const()
    }
}
