//! What was asked of Raft's log and is not carried out, in its order; and the failure that ended the log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::Done;
use super::entry::LogEnd;
use super::start::Vote;
use crate::alarm::locked;
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::limits::MARK_IDLE_MS;
use crate::wal::Record;

/// Something to carry out.
pub(super) enum Work {
    Append { records: Vec<Record>, done: Done },
    Vote { vote: Vote, done: Done },
    Cut { kept: CommitSeq, done: Done },
    Purge { purged: LogEnd, done: Done },
}

impl Work {
    pub(super) fn into_done(self) -> Done {
        match self {
            Work::Append { done, .. }
            | Work::Vote { done, .. }
            | Work::Cut { done, .. }
            | Work::Purge { done, .. } => done,
        }
    }
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// A lock of its own: a failure may be found while work is added.
    failure: Mutex<Option<Error>>,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    /// The thread that writes has something to look at, now or soon: more is decided, or soon will be.
    woken: bool,
    ends: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    /// Adds work. `make` changes what readers see, in the order of the queue.
    pub(super) fn ask(&self, make: impl FnOnce() -> Result<Work>) -> Result<()> {
        let mut state = locked(self.state.lock());
        self.check()?;
        let work = make()?;
        state.work.push_back(work);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the work that is carried out next: all appends up to something else, or one other piece.
    pub(super) fn next(&self) -> Vec<Work> {
        let mut state = locked(self.state.lock());
        let is_append = |work: &Work| matches!(work, Work::Append { .. });
        let appends = state.work.iter().take_while(|work| is_append(work)).count();
        let count = appends.max(1).min(state.work.len());
        // Soon they are decided. A thread that waits for that with a limit need not be woken by it.
        state.woken |= appends > 0;
        state.work.drain(..count).collect()
    }

    /// Waits until there is work, or for so long that an idle log is marked in time. Returns `false` once
    /// the log ends.
    pub(super) fn wait(&self) -> bool {
        let state = locked(self.state.lock());
        let mut state = if state.work.is_empty() && !state.woken && !state.ends {
            locked(self.changed.wait(state))
        } else {
            state
        };
        if state.work.is_empty() && state.woken && !state.ends {
            // Soon a frame may say what is decided.
            let idle = Duration::from_millis(MARK_IDLE_MS);
            let is_idle = |state: &mut State| state.work.is_empty() && !state.ends;
            state = locked(self.changed.wait_timeout_while(state, idle, is_idle)).0;
        }
        // What was to be looked at is looked at now.
        state.woken = false;
        !state.ends
    }

    /// Lets the thread that writes look what is due.
    pub(super) fn wake(&self) {
        let mut state = locked(self.state.lock());
        let was_woken = std::mem::replace(&mut state.woken, true);
        drop(state);
        if !was_woken {
            self.changed.notify_all();
        }
    }

    /// Ends the thread that writes.
    pub(super) fn end(&self) {
        locked(self.state.lock()).ends = true;
        self.changed.notify_all();
    }

    /// The log refuses everything from now on. Only the first failure counts.
    pub(super) fn fail(&self, error: &Error) {
        locked(self.failure.lock()).get_or_insert_with(|| error.clone());
    }

    /// Why the log refuses everything, if it does.
    pub(super) fn failure(&self) -> Option<Error> {
        locked(self.failure.lock()).clone()
    }

    /// Fails if the log refuses everything.
    pub(super) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), |cause| Err(Error::poisoned(cause.message())))
    }
}
