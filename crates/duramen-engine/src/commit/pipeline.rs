//! Writes a group to the log, syncs, and publishes. Only the leader calls what writes: see `lead.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::group::Forming;
use super::timings::{GroupTimes, Timed};
use super::watch::Watch;
use super::watermarks::Watermarks;
use crate::alarm::invariant;
use crate::allocator::DeferredExtent;
use crate::catalog::Root;
use crate::checkpoint::Store;
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::snapshot::Newest;
use crate::wal::{Group, Log, LogPosition, LogWriteError, Record, SyncFailure};

/// The log, and the root that is published.
#[derive(Debug)]
pub(super) struct Pipeline {
    store: Arc<Store>,
    pub(super) log: Log,
    /// What new snapshots read. Set by the leader, or under the order lock while no thread leads.
    pub(super) published: Newest,
    pub(super) watermarks: Watermarks,
    /// Wakes readers of the change feed that wait for a durable commit.
    pub(super) watch: Watch,
    /// How long commits take.
    pub(super) timed: Timed,
    groups: AtomicU64,
}

impl Pipeline {
    /// Continues after `root`, which is durable and in the log.
    #[must_use]
    pub(super) fn new(store: Arc<Store>, log: Log, root: Arc<Root>) -> Pipeline {
        let watermarks = Watermarks::new(root.seq);
        let (watch, timed, groups) = Default::default();
        Pipeline { store, log, published: Newest::new(root), watermarks, watch, timed, groups }
    }

    /// Number of groups written.
    pub(super) fn group_count(&self) -> u64 {
        self.groups.load(Ordering::Relaxed)
    }

    /// Writes the group, syncs if a member wants it, and publishes `root`, which has its commits.
    pub(super) fn write_group(&self, group: &Forming, root: &Arc<Root>) -> Result<()> {
        self.store.alarm.check()?;
        group.check_members();
        if group.is_empty() {
            return if group.wants_sync { self.sync_log() } else { Ok(()) };
        }
        let before = self.published.get();
        self.check_continues(group, &before, root);
        let (written, times) = match self.write_log(group) {
            Err(error) if group.wants_sync && self.store.alarm.cause().is_none() => {
                // Threads that wait for a sync also wait for commits before this group, which must not depend
                // on its room.
                self.sync_log()?;
                return Err(error);
            }
            written => written?,
        };
        if let Some(cause) = self.store.alarm.cause() {
            return Err(self.in_doubt(cause.clone()));
        }
        self.defer_free(group);
        check_follows(&before, root, written);
        invariant!(root.position.set(written).is_ok(), "the root of commit {} is written once", root.seq);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.published.set(Arc::clone(root));
        // After it: a thread woken for a commit finds it in a snapshot.
        if group.wants_sync {
            self.note_durable(root.seq);
        }
        self.timed.published(group, times, self.log.now_ns(), || self.log.wall_ns());
        Ok(())
    }

    /// Makes segments until these records, and a mark before them, have room in the log.
    pub(super) fn make_room(&self, records: &[Record], use_reserve: bool) -> Result<()> {
        let group = Group { records, durable: self.watermarks.durable(), use_reserve };
        self.log.make_room(&group).map_err(|error| self.log_failed(&error))
    }

    /// Writes and syncs a durable watermark: every commit through `durable` is durable.
    pub(super) fn write_mark(&self, durable: CommitSeq) -> Result<()> {
        let known = self.watermarks.durable();
        invariant!(durable <= known, "a watermark covers commit {durable}, and {known} is durable");
        self.log.write_mark(durable).map_err(|error| self.log_failed(&error))?;
        self.sync_log()?;
        self.watermarks.set_marked(durable);
        Ok(())
    }

    /// Lets the log go on in its smallest segment, and the published root end there. Returns whether it does:
    /// a log without a smaller segment, or that refuses the write, stays where it is.
    pub(super) fn begin_smallest_segment(&self) -> Result<bool> {
        let before = self.published.get();
        let written = match self.log.begin_smallest_segment(self.watermarks.durable()) {
            Ok(Some(written)) => written,
            Err(error) if error.is_in_doubt() => return Err(self.in_doubt(error.error().clone())),
            Ok(None) | Err(_) => return Ok(false),
        };
        self.move_end(&before, written.position);
        Ok(true)
    }

    /// Whether no commit of the published root is in the log's current segment.
    fn is_segment_without_commit(&self) -> bool {
        let root = self.published.get();
        root.position.get().is_some_and(|end| end.epoch < self.log.current_epoch())
    }

    /// Lets the published root end in the log's current segment, after a durable watermark there.
    ///
    /// Each opening goes on in a new segment. A checkpoint of a root that ends in an older one would keep
    /// both, and openings without a commit would use up the segments of a full disk (D7).
    pub(super) fn end_in_current_segment(&self) -> Result<()> {
        let before = self.published.get();
        if !self.is_segment_without_commit() {
            return Ok(());
        }
        match self.write_mark(self.watermarks.durable()) {
            Ok(()) => self.move_end(&before, self.log.position()),
            Err(error) if self.store.alarm.cause().is_some() => return Err(error),
            // Without room for the frame the root ends where it did.
            Err(_) => {}
        }
        Ok(())
    }

    /// Publishes the same root with another end in the log: of a frame without a commit, written after it.
    fn move_end(&self, before: &Root, end: LogPosition) {
        invariant!(end.seq == before.seq, "no commit is written beside the leader");
        self.published.set(Arc::new(Root {
            seq: before.seq,
            rollback_epoch: before.rollback_epoch,
            time_ns: before.time_ns,
            trees: before.trees.clone(),
            position: OnceLock::from(end),
        }));
    }

    /// A group leads from the published root to the one that will be published (D2), before it is written.
    fn check_continues(&self, group: &Forming, before: &Root, root: &Root) {
        let (count, from, to) = (group.records().len() as u64, before.seq, root.seq);
        invariant!(from.0.checked_add(count) == Some(to.0), "{count} commits lead from {from} to {to}");
        let last = group.records().last().map(|record| record.seq);
        invariant!(last == Some(to), "a group that ends at {last:?} makes root {to}");
        let durable = self.watermarks.durable();
        invariant!(durable <= from, "what is durable is published: {durable}, {from}");
    }

    fn write_log(&self, group: &Forming) -> Result<(LogPosition, GroupTimes)> {
        let batch = |durable| Group { records: group.records(), durable, use_reserve: !group.takes_room };
        let durable = self.watermarks.durable();
        // Sync the commits written before this group first. They need not wait until a segment is made for
        // it.
        if durable < self.published.get().seq && self.log.lacks_segment(&batch(durable)) {
            self.sync_log()?;
        }
        let batch = batch(self.watermarks.durable());
        let begun_ns = self.log.now_ns();
        let written = if group.wants_sync { self.log.write_and_sync(&batch) } else { self.log.write(&batch) };
        let written = written.map_err(|error| self.log_failed(&error))?;
        self.watermarks.written(written.bytes, group.wants_sync);
        let (sync_began_ns, has_sync) = (written.sync_began_ns, group.wants_sync);
        let ended_ns = self.log.now_ns();
        Ok((written.position, GroupTimes { begun_ns, sync_began_ns, ended_ns, has_sync }))
    }

    /// Syncs the log, beside a thread that writes it: what is published now is durable then.
    pub(super) fn sync_beside(&self) -> Result<()> {
        let written = self.published.get().seq;
        self.log.sync().map_err(|SyncFailure(error)| self.in_doubt(error))?;
        self.note_durable(written);
        Ok(())
    }

    /// Syncs the log. Everything published is durable then.
    fn sync_log(&self) -> Result<()> {
        // Only the leader writes, so the published root covers all that is written.
        let written = self.published.get().seq;
        match self.log.sync() {
            Ok(LogPosition { seq: synced, .. }) => {
                invariant!(synced >= written, "the log is synced through {synced}, {written} is published");
                self.watermarks.all_synced();
                self.note_durable(written);
                Ok(())
            }
            Err(SyncFailure(error)) => Err(self.in_doubt(error)),
        }
    }

    /// Maps a failed write to its consequence: a clean failure drops the group, any other poisons (D6, D7).
    fn log_failed(&self, error: &LogWriteError) -> Error {
        match error {
            LogWriteError::Full(error) | LogWriteError::Refused(error) => error.clone(),
            LogWriteError::InDoubt(error) => self.in_doubt(error.clone()),
        }
    }

    fn in_doubt(&self, cause: Error) -> Error {
        let error = Error::in_doubt(&cause);
        self.store.alarm.raise_and_call(cause);
        error
    }

    /// Notes that every commit through `seq` is durable, and wakes the readers that wait for it.
    pub(super) fn note_durable(&self, seq: CommitSeq) {
        self.watermarks.set_durable(seq);
        self.watch.wake();
    }

    /// Defers the free of the pages that a published group replaced: puts them on the pending-free list.
    fn defer_free(&self, group: &Forming) {
        let mut extents: Vec<DeferredExtent> = Vec::new();
        for member in group.members() {
            extents.extend(
                member
                    .replaced
                    .iter()
                    .filter_map(|node| node.defer_free(member.seq))
                    .map(DeferredExtent::from),
            );
            for value in &member.dropped_values {
                self.store.defer_free_value(value, member.seq);
            }
        }
        if !extents.is_empty() {
            self.store.space.defer_free(extents);
        }
    }
}

/// A root that is published comes after the one before it, in the order and in the log (D2, I1).
pub(super) fn check_follows(before: &Root, root: &Root, written: LogPosition) {
    let (from, to) = (before.seq, root.seq);
    invariant!(from < to, "root {to} is published after {from}");
    invariant!(written.seq == to, "root {to} ends where its log does, at {}", written.seq);
    let place = |position: &LogPosition| (position.epoch, position.offset);
    let is_after = before.position.get().is_some_and(|before| place(before) < place(&written));
    invariant!(is_after, "the log of root {to} lies after that of {from}: {:?}", place(&written));
}
