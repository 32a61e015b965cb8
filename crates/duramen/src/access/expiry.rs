//! When namespaces of key-values are due for a sweep: writers count their writes, and the sweep reads the
//! counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const POISON: &str = "nothing panics while the counters are locked";

/// A namespace is swept once per this many writes.
pub(crate) const WRITES_A_SWEEP: u64 = 32;

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// Writes per namespace since its last sweep.
    writes: Mutex<HashMap<String, u64>>,
    sweeper_works: AtomicBool,
}

impl Expiry {
    /// Counts committed writes of a namespace.
    ///
    /// Returns the number of writes since the last sweep if a sweep is due: at the first write, then every
    /// [`WRITES_A_SWEEP`] writes.
    pub(crate) fn wrote(&self, namespace: &str, count: u64) -> Option<u64> {
        let mut writes = self.writes.lock().expect(POISON);
        let Some(since) = writes.get_mut(namespace) else {
            writes.insert(namespace.to_owned(), 0);
            return Some(count);
        };
        *since += count;
        (*since >= WRITES_A_SWEEP).then(|| std::mem::take(since))
    }

    /// Sets whether the background sweep is idle. An idle sweep must be woken by the next writer.
    pub(crate) fn sweeper_rests(&self, rests: bool) {
        self.sweeper_works.store(!rests, Ordering::SeqCst);
    }

    /// Whether the background sweep must be woken.
    pub(crate) fn is_sweeper_resting(&self) -> bool {
        !self.sweeper_works.load(Ordering::SeqCst)
    }
}
