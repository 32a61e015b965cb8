//! Raft's log, as consensus sees it.
//!
//! Appends, votes and cuts go through one queue of the engine, in the order in which they were asked for.
//! That order matters: a saved vote counts as proof that what was appended before it is synced, too.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};

use duramen_engine::{Code, CommitSeq, Done, Error, RaftLog, Vote};
use futures_channel::oneshot;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};

use crate::runtime::Runtime;
use crate::synced::Synced;
use crate::types::{Id, LogEntry, Types, VoteOf, id_of, stored_vote, vote_of};

/// Bytes of entries in one message to a follower, unless one entry is longer.
const MESSAGE_BYTES: usize = 1 << 20;

/// The log and the vote of a node.
pub(crate) struct LogStore {
    reader: LogReader,
    synced: Synced,
}

/// Reads the log and the vote.
#[derive(Debug, Clone)]
pub(crate) struct LogReader {
    log: Arc<RaftLog>,
    vote: Arc<Mutex<Option<Vote>>>,
}

impl LogStore {
    /// The log and the vote that an opening found.
    pub(crate) fn new(log: Arc<RaftLog>, vote: Option<Vote>, synced: Synced) -> LogStore {
        LogStore { reader: LogReader { log, vote: Arc::new(Mutex::new(vote)) }, synced }
    }
}

impl<R: Runtime> RaftLogStorage<Types<R>> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types<R>>> {
        let (purged, end) = (self.reader.log.purged().id, self.reader.log.end().id);
        Ok(LogState { last_purged_log_id: Some(id_of(purged)), last_log_id: Some(id_of(end)) })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> io::Result<()> {
        let vote = stored_vote(vote);
        let log = Arc::clone(&self.reader.log);
        carried_out(move |done| log.save_vote(vote, done)).await?;
        *self.reader.vote.lock().unwrap_or_else(PoisonError::into_inner) = Some(vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<Id>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        self.reader.log.decide(CommitSeq(committed.index)).map_err(io::Error::other)
    }

    async fn read_committed(&mut self) -> io::Result<Option<Id>> {
        let decided = self.reader.log.decided();
        let end = self.reader.log.end_after(decided).map_err(io::Error::other)?;
        Ok(Some(id_of(end.id)))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types<R>>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut before_ns = self.reader.log.end().time_ns;
        let stored: Vec<_> = entries
            .into_iter()
            .map(|entry| {
                let entry = entry.into_stored(before_ns);
                before_ns = entry.time_ns;
                entry
            })
            .collect();
        let synced = self.synced.clone();
        let done: Done = Box::new(move |result| {
            synced.tell();
            flushed.io_completed(result.map_err(io::Error::other));
        });
        self.reader.log.append(stored, done).map_err(io::Error::other)
    }

    async fn truncate_after(&mut self, last: Option<Id>) -> io::Result<()> {
        let log = Arc::clone(&self.reader.log);
        let kept = last.map_or(log.purged().id.seq, |last| CommitSeq(last.index));
        if kept >= log.end().id.seq {
            return Ok(());
        }
        // It may read the disk.
        carried_out_beside::<R>(move |done| log.cut_after(kept, done)).await
    }

    async fn purge(&mut self, purged: Id) -> io::Result<()> {
        let log = Arc::clone(&self.reader.log);
        // It may read the disk.
        carried_out_beside::<R>(move |done| log.purge(CommitSeq(purged.index), done)).await
    }
}

impl<R: Runtime> RaftLogReader<Types<R>> for LogReader {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> io::Result<Vec<LogEntry>> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let after = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(after) => *after,
            Bound::Unbounded => u64::MAX,
        };
        let mut entries = Vec::new();
        let mut next = first;
        loop {
            let found = self.read::<R>(next, after, usize::MAX).await?;
            let Some(last) = found.last() else { return Ok(entries) };
            next = last.id.index + 1;
            entries.extend(found);
        }
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf>> {
        let vote = *self.vote.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(vote.map(vote_of))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        if start <= self.log.purged().id.seq.0 {
            // What follows would not follow the entry before `start`.
            return Ok(Vec::new());
        }
        self.read::<R>(start, end, MESSAGE_BYTES).await
    }
}

impl LogReader {
    /// The entries of this range that the log has: all, or some from the first on.
    async fn read<R: Runtime>(&self, first: u64, after: u64, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        let first = first.max(self.log.purged().id.seq.0 + 1);
        let after = after.min(self.log.end().id.seq.0 + 1);
        if first >= after {
            return Ok(Vec::new());
        }
        let range = CommitSeq(first)..CommitSeq(after);
        let found = if self.log.is_in_memory(range.start) {
            self.log.entries(range, bytes_max)
        } else {
            let log = Arc::clone(&self.log);
            R::run_blocking(move || log.entries(range, bytes_max)).await?
        };
        // Purged or cut meanwhile: nothing is there, and that is no failure.
        let has_gone = |error: &Error| {
            error.code() == Code::InvalidArgument
                && (CommitSeq(first) <= self.log.purged().id.seq || CommitSeq(first) > self.log.end().id.seq)
        };
        let found = match found {
            Err(error) if has_gone(&error) => return Ok(Vec::new()),
            found => found.map_err(io::Error::other)?,
        };
        found.into_iter().map(|entry| LogEntry::from_stored(entry).map_err(io::Error::other)).collect()
    }
}

/// As [`carried_out`], asked on a thread that may wait.
async fn carried_out_beside<R: Runtime>(
    ask: impl FnOnce(Done) -> duramen_engine::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (done, is_done) = oneshot::channel();
    let asked = move || ask(Box::new(move |result| drop(done.send(result))));
    R::run_blocking(asked).await?.map_err(io::Error::other)?;
    let result = is_done.await.map_err(|_| io::Error::other("Raft's log was closed"))?;
    result.map_err(io::Error::other)
}

/// Waits until something that is asked of the log survives a power cut.
async fn carried_out(ask: impl FnOnce(Done) -> duramen_engine::Result<()>) -> io::Result<()> {
    let (done, is_done) = oneshot::channel();
    ask(Box::new(move |result| drop(done.send(result)))).map_err(io::Error::other)?;
    let result = is_done.await.map_err(|_| io::Error::other("Raft's log was closed"))?;
    result.map_err(io::Error::other)
}
