//! Raft's log: entries that a majority decides on, and the vote. The only log that is synced before an
//! acknowledgement in a cluster, and the only one that is ever cut.
//!
//! It lies over a second instance of the write-ahead log; the index of an entry is the sequence of the commit
//! that it becomes. It knows nothing of consensus: which entries, votes and cuts are right is decided above.
//!
//! **One queue.** Appends, votes and cuts are carried out by one thread in the order in which they were asked
//! for, whatever they are. A consensus engine takes a saved vote for proof that what was appended before it
//! is synced, too. What is asked for is seen at once by [`RaftLog::entries`]; it survives a power cut when
//! its `done` is called.
//!
//! **Decided is not synced.** The watermark of a frame says what is synced here *and* decided, in segment
//! headers, in those of spare segments, and where an opening goes on. An engine's own log calls everything
//! durable that is synced. Here a later cut would look like a loss, and the node would be taken for one that
//! has forgotten (D5).
//!
//! **Errors are final.** After a failed write, sync or cut the log refuses everything: what is on disk is in
//! doubt, and the next opening looks (D6).
//!
//! Reading order: [`Entry`], [`RaftLog`], `view` (what readers see), `writer` (what reaches the disk), `room`
//! (full disks), `twin` (the vote), `incarnation` (older copies of a directory). Format:
//! docs/format.md, "Raft's log".

mod entry;
mod incarnation;
mod opening;
mod queue;
mod room;
mod start;
#[cfg(test)]
mod tests;
mod twin;
mod view;
mod writer;

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub use entry::{Entry, EntryId, EntryKind, LogEnd, OrderedOn};
pub(crate) use incarnation::INCARNATIONS;
pub use incarnation::Incarnation;
pub use opening::Found;
pub(crate) use opening::RaftPlace;
pub use room::{EntriesFor, Room};
pub use start::{Ident, Vote};

use crate::alarm::locked;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::raft_log::entry::{Stored, decode};
use crate::raft_log::incarnation::Incarnations;
use crate::raft_log::queue::{Queue, Work};
use crate::raft_log::view::View;
use crate::raft_log::writer::Writer;
use crate::threads::Threads;
use crate::wal::{Enough, Record, Stretch};

/// Called once what was asked for survives a power cut, or has failed for good. It may ask for more.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// An open Raft log.
#[derive(Debug)]
pub struct RaftLog {
    inner: Arc<Inner>,
    threads: Mutex<Option<Threads>>,
    /// Keeps other processes out.
    _held: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct Inner {
    view: Mutex<View>,
    queue: Queue,
    writer: Writer,
    incarnations: Incarnations,
    /// Bytes of appends that wait, and of room that is held.
    promised: AtomicUsize,
}

impl RaftLog {
    /// Appends entries, the first following the last one. They can be read at once.
    ///
    /// `done` is called unless this returns an error. Appends that wait together share one write and one
    /// sync.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if they do not follow: by sequence, or by a term or time that falls;
    /// `TooLarge` (E0203) for an entry of more than 64 MiB; `EnginePoisoned` (E0601) after a failure.
    pub fn append(&self, entries: Vec<Entry>, done: Done) -> Result<()> {
        self.inner.queue.ask(|| {
            let records = self.inner.view_now().append(entries)?;
            let bytes = bytes_of(&records);
            self.inner.promised.fetch_add(bytes, Ordering::AcqRel);
            Ok(Work::Append { records, done })
        })
    }

    /// Saves the vote.
    ///
    /// # Errors
    /// `EnginePoisoned` (E0601) after a failure.
    pub fn save_vote(&self, vote: Vote, done: Done) -> Result<()> {
        self.inner.queue.ask(|| Ok(Work::Vote { vote, done }))
    }

    /// Takes back all entries after `kept`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if one of them is decided: the log refuses everything from here on, since
    /// consensus has lost the cluster's history then. `EnginePoisoned` (E0601) after a failure; those of
    /// reading the entry.
    pub fn cut_after(&self, kept: CommitSeq, done: Done) -> Result<()> {
        self.inner.queue.ask(|| {
            let last = self.inner.view_now().end.id.seq;
            let end = if kept <= last { Some(self.inner.end_after(kept)?) } else { None };
            let mut view = self.inner.view_now();
            let decided = view.decided;
            if kept < decided {
                let error =
                    Error::invalid(format!("entry {decided} is decided, and {kept} should be the last"));
                self.inner.queue.fail(&error);
                return Err(error);
            }
            let Some(end) = end else {
                return Err(Error::invalid(format!("the log is cut after {kept}, and ends with {last}")));
            };
            view.cut(end);
            Ok(Work::Cut { kept, done })
        })
    }

    /// Notes that everything up to an entry is decided. It is written with the next frame, or after
    /// 100 ms unless the disk is full.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) beyond the last entry.
    pub fn decide(&self, seq: CommitSeq) -> Result<()> {
        let mut view = self.inner.view_now();
        let last = view.end.id.seq;
        if seq > last {
            return Err(Error::invalid(format!("entry {seq} is decided, and the log ends with {last}")));
        }
        view.decided = view.decided.max(seq);
        drop(view);
        self.inner.queue.wake();
        Ok(())
    }

    /// Lets go of the entries up to this one: their segments are used again. Nothing is done for entries that
    /// are purged already.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if one of them is not decided; `EnginePoisoned` (E0601) after a failure;
    /// those of reading the entry.
    pub fn purge(&self, through: CommitSeq, done: Done) -> Result<()> {
        self.inner.queue.ask(|| {
            let (decided, synced) = {
                let view = self.inner.view_now();
                (view.decided, view.synced)
            };
            if through > decided.min(synced) {
                return Err(Error::invalid(format!(
                    "entries up to {through} are purged, and {decided} is decided, {synced} on disk"
                )));
            }
            let purged = self.inner.end_after(through)?;
            Ok(Work::Purge { purged, done })
        })
    }

    /// Whether letting go of the entries up to this one would free a segment.
    ///
    /// # Errors
    /// As [`RaftLog::entries`].
    pub fn would_free(&self, through: CommitSeq) -> Result<bool> {
        if through <= self.purged().id.seq {
            return Ok(false);
        }
        // After an opening it is not known where entries lie until they are read.
        self.inner.end_after(through)?;
        let view = self.inner.view_now();
        let begins = view.places().last().map(|place| place.epoch);
        Ok(Some(view.place_before(through.next()).epoch) > begins)
    }

    /// An entry after which about so many bytes of log are left: whole segments count, and at least the last
    /// purged entry is returned. After an opening it is not known where entries lie: a call reads part of the
    /// log then, and a later one returns more.
    ///
    /// # Errors
    /// As [`RaftLog::entries`].
    pub fn end_before_last(&self, bytes: u64) -> Result<CommitSeq> {
        let log = &self.inner.writer.log;
        let (purged, found, next) = {
            let view = self.inner.view_now();
            let mut after = None;
            let found = view.places().find(|place| {
                let is_far = log.bytes_from(place) >= bytes;
                if !is_far {
                    after = Some(**place);
                }
                is_far
            });
            (view.purged.id.seq, found.copied(), after)
        };
        let Some(found) = found else { return Ok(purged) };
        let through = found.seq.max(purged);
        let end = next.map_or(self.end().id.seq, |next| next.seq);
        if log.bytes_from(&found) >= bytes.saturating_mul(2) && through.next() < end {
            // Places are noted on the way to the entry in the middle. The next call goes by them.
            self.inner.end_after(CommitSeq(through.0.midpoint(end.0)))?;
        }
        Ok(through)
    }

    /// The entries of a range: at least the first, then as many as fit into `bytes_max`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if the first is purged or not there yet; `CorruptLog` (E0502), `LogMissing`
    /// (E0503), `System` (E1001) if it cannot be read.
    pub fn entries(&self, range: Range<CommitSeq>, bytes_max: usize) -> Result<Vec<Entry>> {
        let stored = self.inner.read(range.start, CommitSeq(range.end.0.saturating_sub(1)), bytes_max)?;
        Ok(stored.into_iter().map(|stored| stored.entry).collect())
    }

    /// Whether [`RaftLog::entries`] from this one on would not read the disk.
    #[must_use]
    pub fn is_in_memory(&self, first: CommitSeq) -> bool {
        first >= self.inner.view_now().cached_from()
    }

    /// The end that the log had, or has, after this entry: its id, and the hash over all up to it.
    ///
    /// # Errors
    /// As [`RaftLog::entries`]; the last purged entry is known, too.
    pub fn end_after(&self, seq: CommitSeq) -> Result<LogEnd> {
        self.inner.end_after(seq)
    }

    /// The last entry.
    #[must_use]
    pub fn end(&self) -> LogEnd {
        self.inner.view_now().end
    }

    /// The last entry that is purged.
    #[must_use]
    pub fn purged(&self) -> LogEnd {
        self.inner.view_now().purged
    }

    /// Everything up to this one survives a power cut.
    #[must_use]
    pub fn synced(&self) -> CommitSeq {
        self.inner.view_now().synced
    }

    /// Everything up to this one is known to be decided.
    #[must_use]
    pub fn decided(&self) -> CommitSeq {
        self.inner.view_now().decided
    }

    /// This opening of the node's directory.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnations.own()
    }

    /// The newest known incarnation of another node.
    #[must_use]
    pub fn incarnation_of(&self, node: u64) -> Option<Incarnation> {
        self.inner.incarnations.of(node)
    }

    /// Notes the incarnation of another node. Returns a different one if that is known to be the newest: the
    /// node that was met is an older copy, or one of two. Syncs a file if the node was opened since it was
    /// met last.
    ///
    /// # Errors
    /// `System` (E1001): the log refuses everything from here on.
    pub fn meet(&self, node: u64, met: Incarnation) -> Result<Option<Incarnation>> {
        let newest = self.inner.incarnations.meet(node, met);
        newest.inspect_err(|error| self.inner.queue.fail(error))
    }

    /// The directory is an older copy of the node, or one of two: no later opening succeeds, and this log
    /// refuses everything for this reason.
    ///
    /// # Errors
    /// `System` (E1001): a later opening may succeed.
    pub fn retire(&self, why: &Error) -> Result<()> {
        let kept = self.inner.incarnations.retire();
        self.inner.queue.fail(why);
        kept
    }

    /// Why the log refuses everything, if it does.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.inner.queue.failure()
    }

    /// Carries out what was asked for, and what is due. For logs without threads.
    ///
    /// # Errors
    /// `EnginePoisoned` (E0601) after the failure for which the log refuses everything.
    pub fn step(&self) -> Result<()> {
        self.inner.step();
        self.inner.writer.make_spare();
        self.inner.queue.check()
    }

    /// Carries out the next piece of what was asked for, if there is one: all appends that wait together, a
    /// vote, a cut or a purge. For logs without threads.
    pub fn step_once(&self) {
        self.inner.work();
    }

    /// Carries out what was asked for, marks what is decided, and ends: everything later is refused.
    ///
    /// # Errors
    /// `EnginePoisoned` (E0601) after the failure for which the log refuses everything.
    pub fn close(&self) -> Result<()> {
        self.stop_threads();
        self.inner.step();
        self.inner.mark(true);
        let result = self.inner.queue.check();
        self.abandon();
        result
    }

    fn stop_threads(&self) {
        self.inner.writer.log.end_preparing();
        self.inner.queue.end();
        drop(locked(self.threads.lock()).take());
    }

    /// Ends at once, as a crash would. What was asked for and not carried out has failed, and so does
    /// everything later.
    pub fn abandon(&self) {
        self.stop_threads();
        let error = Error::new(Code::Closed, "Raft's log was closed before it was carried out");
        self.inner.queue.fail(&error);
        loop {
            let left = self.inner.queue.next();
            if left.is_empty() {
                return;
            }
            left.into_iter().for_each(|work| work.into_done()(Err(error.clone())));
        }
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Inner {
    fn view_now(&self) -> MutexGuard<'_, View> {
        locked(self.view.lock())
    }

    /// Carries out everything that was asked for, then what is due.
    fn step(&self) {
        while self.work() {}
        self.mark(false);
        self.give_space_back();
    }

    /// Gives the space of a segment back, if many are ready.
    fn give_space_back(&self) {
        if self.queue.check().is_err() {
            return;
        }
        let given = self.writer.lock().give_space_back();
        if let Err(error) = given {
            self.queue.fail(&error);
        }
    }

    /// Carries out the next piece of work. Returns whether there was one.
    fn work(&self) -> bool {
        let mut writing = self.writer.lock();
        let batch = self.queue.next();
        if batch.is_empty() {
            return false;
        }
        let result = self.queue.check().and_then(|()| writing.carry_out(&batch, &self.view));
        if let Err(error) = &result {
            self.queue.fail(error);
        }
        for work in &batch {
            if let Work::Append { records, .. } = work {
                self.promised.fetch_sub(bytes_of(records), Ordering::AcqRel);
            }
        }
        drop(writing);
        batch.into_iter().for_each(|work| work.into_done()(result.clone()));
        true
    }

    /// Writes a watermark if more is decided than the last one says, and nothing was written for a while.
    fn mark(&self, now: bool) {
        if self.queue.check().is_err() {
            return;
        }
        let marked = self.writer.lock().mark(&self.view, now);
        match marked {
            Ok(true) => self.queue.wake(),
            Ok(false) => {}
            Err(error) => self.queue.fail(&error),
        }
    }

    fn end_after(&self, seq: CommitSeq) -> Result<LogEnd> {
        {
            let view = self.view_now();
            if let Some(end) = [view.end, view.purged].into_iter().find(|end| end.id.seq == seq) {
                return Ok(end);
            }
        }
        let found = self.read(seq, seq, 0)?;
        Ok(found.first().expect("at least the first").end())
    }

    fn read(&self, first: CommitSeq, last: CommitSeq, bytes_max: usize) -> Result<Vec<Stored>> {
        if let Some(found) = self.read_cached(first, last, bytes_max)? {
            return Ok(found);
        }
        // From the place on to what is learned: a cut in between would move the entries.
        let _layout = locked(self.writer.layout.read());
        loop {
            // Purged or cut meanwhile, or in memory after all.
            if let Some(found) = self.read_cached(first, last, bytes_max)? {
                return Ok(found);
            }
            let (stretch, last) = {
                let view = self.view_now();
                // What is not in memory is on disk.
                let last = CommitSeq(last.0.min(view.cached_from().0 - 1));
                (Stretch { from: view.place_before(first), through: last }, last)
            };
            let found = self.read_from(&stretch, first, last, bytes_max)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Entries that are in memory, if the first of them is.
    fn read_cached(
        &self,
        first: CommitSeq,
        last: CommitSeq,
        bytes_max: usize,
    ) -> Result<Option<Vec<Stored>>> {
        let view = self.view_now();
        let (purged, end) = (view.purged.id.seq, view.end.id.seq);
        if first <= purged || first > end || last < first {
            return Err(Error::invalid(format!(
                "entries {first} to {last} are asked for, and the log has those after {purged} up to {end}"
            )));
        }
        Ok(Some(view.cached(first, last, bytes_max)).filter(|found| !found.is_empty()))
    }

    /// Reads from a place on. Without an entry it has found a place nearer to the first.
    fn read_from(
        &self,
        stretch: &Stretch,
        first: CommitSeq,
        last: CommitSeq,
        bytes_max: usize,
    ) -> Result<Vec<Stored>> {
        let place_bytes = self.view_now().place_bytes();
        let (mut found, mut bytes, mut passed_bytes, mut is_full) = (Vec::<Stored>::new(), 0, 0, false);
        let next = self.writer.read(stretch, &mut |record| {
            let length = record.bytes.len();
            if record.seq < first {
                passed_bytes += length as u64;
                let is_far = passed_bytes >= place_bytes && record.seq.next() < first;
                return Ok(if is_far { Enough::Yes } else { Enough::No });
            }
            // The rest of the frame comes, too.
            is_full |= record.seq > last || !found.is_empty() && bytes + length > bytes_max;
            if is_full {
                return Ok(Enough::Yes);
            }
            bytes += length;
            let bad = |what: &str| bad_entry(record.seq, what);
            let (stored, before) = decode(record.seq, &record.bytes).map_err(bad)?;
            if found.last().is_some_and(|last| last.chain != before) {
                return Err(bad("it does not follow the entry before it"));
            }
            found.push(stored);
            Ok(if record.seq == last { Enough::Yes } else { Enough::No })
        })?;
        if found.is_empty() {
            if next.seq <= stretch.from.seq {
                let what = format!("Raft's log has no entry {first} after {}", stretch.from.seq);
                return Err(Error::new(Code::LogMissing, what));
            }
            self.view_now().learn(next);
        }
        Ok(found)
    }
}

pub(super) fn bad_entry(seq: CommitSeq, what: &str) -> Error {
    Error::new(Code::CorruptLog, format!("entry {seq} of Raft's log cannot be read: {what}"))
}

/// What appended records take, at most.
fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes().len() + room::ENTRY_BYTES).sum()
}
