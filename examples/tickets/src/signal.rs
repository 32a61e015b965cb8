//! Wakes a waiting thread, and tells it to end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A flag that a thread waits for. Clones share it.
#[derive(Clone, Default)]
pub struct Signal(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    is_raised: bool,
    is_ended: bool,
}

impl Signal {
    /// Wakes the waiter, or lets its next wait return at once.
    pub fn raise(&self) {
        self.state().is_raised = true;
        self.0.1.notify_all();
    }

    /// Ends all waiting, for ever.
    pub fn end(&self) {
        self.state().is_ended = true;
        self.0.1.notify_all();
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.state().is_ended
    }

    /// Waits until it is raised, for at most `at_most`.
    pub fn wait(&self, at_most: Duration) {
        let is_quiet = |state: &mut State| !state.is_raised && !state.is_ended;
        let waited = self.0.1.wait_timeout_while(self.state(), at_most, is_quiet);
        let (mut state, _) = waited.expect("no thread panics while it holds the lock");
        state.is_raised = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("no thread panics while it holds the lock")
    }
}
