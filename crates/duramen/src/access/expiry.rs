//! When namespaces of key-values are due for expiry: writers count their writes, and expiry reads the counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const POISON: &str = "nothing panics while the counters are locked";

/// The values of a namespace are expired once per this many writes.
pub(crate) const WRITES_A_RUN: u64 = 32;

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// Writes per namespace since its values were last expired.
    writes: Mutex<HashMap<String, u64>>,
    background_works: AtomicBool,
}

impl Expiry {
    /// Counts committed writes of a namespace.
    ///
    /// Returns the number of writes since the last run if another is due: at the first write, then every
    /// [`WRITES_A_RUN`] writes.
    pub(crate) fn wrote(&self, namespace: &str, count: u64) -> Option<u64> {
        let mut writes = self.writes.lock().expect(POISON);
        let Some(since) = writes.get_mut(namespace) else {
            writes.insert(namespace.to_owned(), 0);
            return Some(count);
        };
        *since += count;
        (*since >= WRITES_A_RUN).then(|| std::mem::take(since))
    }

    /// Sets whether background expiry is idle. If it is, the next writer must wake it.
    pub(crate) fn background_rests(&self, rests: bool) {
        self.background_works.store(!rests, Ordering::SeqCst);
    }

    /// Whether background expiry must be woken.
    pub(crate) fn is_background_resting(&self) -> bool {
        !self.background_works.load(Ordering::SeqCst)
    }
}
