//! When key-values that have expired are to be swept: counted by whoever writes them, asked by the sweeper.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const POISON: &str = "nothing panics while the counters are locked";

/// So many writes of a namespace sweep it once.
pub(crate) const WRITES_A_SWEEP: u64 = 32;

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// Writes since their namespace was swept.
    writes: Mutex<HashMap<String, u64>>,
    sweeper_works: AtomicBool,
}

impl Expiry {
    /// Counts committed writes of a namespace. When it is to be swept, at its first and after so many, returns how many there
    /// were since it was.
    pub(crate) fn wrote(&self, namespace: &str, count: u64) -> Option<u64> {
        let mut writes = self.writes.lock().expect(POISON);
        let Some(since) = writes.get_mut(namespace) else {
            writes.insert(namespace.to_owned(), 0);
            return Some(count);
        };
        *since += count;
        (*since >= WRITES_A_SWEEP).then(|| std::mem::take(since))
    }

    /// Whether the sweeper looks by itself again, says who has looked.
    pub(crate) fn sweeper_rests(&self, rests: bool) {
        self.sweeper_works.store(!rests, Ordering::SeqCst);
    }

    /// Whether the sweeper must be woken to look.
    pub(crate) fn is_sweeper_resting(&self) -> bool {
        !self.sweeper_works.load(Ordering::SeqCst)
    }
}
