//! Waiting until Raft's log has an entry on this node's disk.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use duramen_engine::{CommitSeq, RaftLog};
use futures_channel::oneshot::{Sender, channel};

/// The log, and what waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    log: Arc<RaftLog>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The entries that are waited for.
type Waiting = Vec<(CommitSeq, Sender<()>)>;

impl Synced {
    pub(crate) fn new(log: Arc<RaftLog>) -> Synced {
        Synced { log, waiting: Arc::default() }
    }

    /// Waits until everything up to this entry survives a power cut here.
    ///
    /// # Errors
    /// If the log has failed or was closed.
    pub(crate) async fn wait(&self, seq: CommitSeq) -> io::Result<()> {
        loop {
            let (sender, is_synced) = channel();
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((seq, sender));
            // After the waiting is noted: what is synced later tells it.
            if self.log.synced() >= seq {
                return Ok(());
            }
            if let Some(failure) = self.log.failure() {
                return Err(io::Error::other(failure));
            }
            is_synced.await.map_err(|_| io::Error::other("Raft's log was closed"))?;
        }
    }

    /// The log was synced, or has failed.
    pub(crate) fn tell(&self) {
        let (synced, has_failed) = (self.log.synced(), self.log.failure().is_some());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let told: Vec<_> = waiting.extract_if(.., |(seq, _)| *seq <= synced || has_failed).collect();
        drop(waiting);
        // One that waits no more needs not to be told.
        told.into_iter().for_each(|(_, sender)| sender.send(()).unwrap_or_default());
    }
}
