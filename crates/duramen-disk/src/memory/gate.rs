//! A gate that holds syncs until it is opened, to test what runs during a sync.
//!
//! Owns the waiting. It never fails a sync and never waits by time.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The hook that a sync calls before it takes effect, with the path it syncs. The sync waits until it
/// returns.
pub type Blocker = Arc<dyn Fn(&Path) + Send + Sync>;

/// Blocks syncs while closed.
///
/// Give [`SyncGate::blocker`] to [`MemDisk::set_blocker`](super::MemDisk::set_blocker).
pub struct SyncGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    closed: bool,
    waiting_count: usize,
}

impl fmt::Debug for SyncGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncGate").field("state", &self.state).finish_non_exhaustive()
    }
}

impl SyncGate {
    /// A closed gate.
    #[must_use]
    pub fn closed() -> Arc<SyncGate> {
        let state = Mutex::new(GateState { closed: true, waiting_count: 0 });
        Arc::new(SyncGate { state, changed: Condvar::new() })
    }

    /// The hook for syncs of paths that contain `path_part` (empty: all).
    #[must_use]
    pub fn blocker(self: &Arc<SyncGate>, path_part: &str) -> Blocker {
        let (gate, path_part) = (Arc::clone(self), path_part.to_owned());
        Arc::new(move |path| {
            if path.to_string_lossy().contains(path_part.as_str()) {
                gate.pass();
            }
        })
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting_count += 1;
        self.changed.notify_all();
        let mut state =
            self.changed.wait_while(state, |state| state.closed).unwrap_or_else(PoisonError::into_inner);
        state.waiting_count -= 1;
    }

    /// Waits until at least this many syncs are blocked.
    pub fn wait_blocked(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.waiting_count < count));
    }

    /// The number of syncs that are blocked.
    #[must_use]
    pub fn blocked_count(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting_count
    }

    /// Lets all syncs through, present and later ones.
    pub fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = false;
        self.changed.notify_all();
    }

    /// Blocks later syncs.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }
}
