//! When a checkpoint is due, and what comes before and after it: the sync of the log, what the feed keeps,
//! and the space that it frees.

use std::sync::atomic::Ordering;

use super::Maintenance;
use super::merging::Cold;
use crate::alarm::{invariant, locked};
use crate::catalog::TreeState;
use crate::checkpoint::{CheckpointAim, CheckpointReport};
use crate::data_file::PagePointer;
use crate::engine::event::Event;
use crate::error::{Error, Result};
use crate::feed::Letting;
use crate::ids::TreeId;
use crate::snapshot::Registration;
use crate::wal::SyncFailure;

/// A checkpoint starts when the log since the last one exceeds this part of the memory, or this many bytes.
/// Opening must read that log.
const LOG_MEMORY_PART: u64 = 4;
const LOG_BYTES_MAX: u64 = 256 << 20;

/// A checkpoint starts when leaves written since the last one take this part of the file, and as much as the
/// memory: it frees the pages that they replaced.
const REPLACED_PART: u64 = 4;

/// The purpose of a checkpoint.
#[derive(Debug, Clone, Copy)]
struct Aim {
    /// It is the last one, of a clean close.
    clean: bool,
    /// Patches are merged before it.
    merges: bool,
    /// The list of hot pages.
    hot: Option<PagePointer>,
    /// The other superblock names this checkpoint, too. This many bytes are then kept free ahead in the data
    /// file.
    twin_spare_bytes: Option<u64>,
}

impl Maintenance {
    /// Whether a checkpoint should start now.
    pub(in crate::engine) fn checkpoint_due(&self) -> bool {
        let meter = self.store.pages.meter();
        let asked = self.committer.throttle.take_request(&self.store);
        let lags = self.committer.published().seq > self.checkpointer.superblock().replay.seq;
        (asked
            || meter.latest_dirty_bytes() >= meter.dirty_bounds().checkpoint_from
            || self.committer.log_bytes() >= self.checkpoint_log_bytes()
            || self.replaced_much())
            && (lags || asked)
    }

    /// Makes the published root the newest checkpoint, then frees pages and recycles log as far as that
    /// allows.
    ///
    /// # Errors
    /// Any error of writing it. A failed sync has poisoned the engine; otherwise it can be tried again.
    pub(in crate::engine) fn checkpoint(&self, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.tell_checkpoint(Aim { clean: false, merges: true, hot: None, twin_spare_bytes: None }, between)
    }

    fn tell_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.committer.not_alone()?;
        self.tell(&Event::CheckpointBegins);
        // Patches that are not merged are written all the same.
        if let Err(error) = if aim.merges { self.merge_patches(Cold::First) } else { Ok(()) } {
            self.failed(error);
        }
        let result = self.try_checkpoint(aim, between);
        let let_go = locked(self.let_go.lock()).take();
        let_go.iter().for_each(|event| self.tell(event));
        for error in self.checkpointer.take_unreclaimed() {
            self.tell(&Event::BackgroundFailed(error));
        }
        if let Ok(report) = &result {
            self.tell(&Event::Checkpoint { seq: report.seq, written_bytes: report.written_bytes });
        }
        self.committer.throttle.checkpoint_ended(result.as_ref().err().cloned());
        result
    }

    /// Makes room in memory if too much is dirty, then writes a checkpoint if one is due, and names it in
    /// both superblocks. The log before it and the pages it replaced can then be reused at once.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub(in crate::engine) fn checkpoint_when_due(&self) -> Result<()> {
        let relieved = self.merge_on_request().and_then(|()| self.relieve_memory());
        if !self.checkpoint_due() {
            return relieved;
        }
        let twin_spare_bytes = Some(self.spare_bytes());
        let aim = Aim { clean: false, merges: true, hot: None, twin_spare_bytes };
        self.tell_checkpoint(aim, &mut || ()).map(|_| ())
    }

    /// Writes a checkpoint and names it in both superblocks. What it replaced can then be reused at once.
    /// This many bytes are kept free ahead in the data file.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub(in crate::engine) fn checkpoint_twice(&self, spare_bytes: u64) -> Result<()> {
        let aim = Aim { clean: false, merges: false, hot: None, twin_spare_bytes: Some(spare_bytes) };
        self.tell_checkpoint(aim, &mut || ()).map(|_| ())
    }

    /// Writes the last checkpoint and gives back what a closed database does not need: pages that only the
    /// previous checkpoint held, room kept ahead, and log segments.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub(in crate::engine) fn last_checkpoint(&self, hot: Option<PagePointer>) -> Result<()> {
        self.committer.end_in_current_segment()?;
        let rest = self.rest_spare_bytes();
        let aim = Aim { clean: true, merges: false, hot, twin_spare_bytes: Some(rest) };
        self.tell_checkpoint(aim, &mut || ())?;
        // Only now are the small segments free that the log used since the checkpoint before.
        if self.committer.begin_smallest_segment()? {
            match self.tell_checkpoint(aim, &mut || ()) {
                Err(error) if self.committer.poison_cause().is_some() => return Err(error),
                Err(error) => self.failed(error),
                Ok(_) => {}
            }
        }
        self.cut_to_rest()?;
        // A database that was open for a moment has less. On a full disk the room that there is must do.
        drop(self.store.space.keep_back(self.rest_spare_bytes()));
        // Only while no group is written: a group on its way has already chosen its segments.
        let trimmed = self.committer.as_leader(|| self.committer.log().trim())?;
        trimmed.map_err(|SyncFailure(error)| {
            self.committer.poison(error.clone());
            error
        })
    }

    fn try_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        let _within = self.store.alarm.enter();
        let _alone = locked(self.one_at_a_time.lock());
        self.store.alarm.check()?;
        self.let_go_of_old_roots();
        let begun_ns = self.disk.monotonic_ns();
        let _writing = self.store.pages.meter().writing();
        let held = self.committer.hold_published();
        // The superblock may name only commits that are durable in the log.
        self.committer.sync_through(held.root().seq).map_err(Error::of_no_commit)?;
        let (end, durable) = (held.root().position.get().copied(), self.committer.durable());
        let named = end.map(|end| end.seq);
        let is_durable = named.is_some_and(|named| named <= durable);
        invariant!(is_durable, "a superblock names {named:?}, and {durable} is durable");
        // Before copying for the feed: log written meanwhile counts for the next checkpoint.
        let log_bytes = self.committer.restart_log_bytes();
        let retained = self.retain_for_feed(&held);
        retained.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        // The roots may list these for long.
        let reclaimed = self.checkpointer.reclaimed();
        let Aim { clean, hot, twin_spare_bytes, .. } = aim;
        let named = CheckpointAim { next_tree: self.committer.next_tree(), clean, hot };
        let written = self.write_once(&held, named, self.spare_bytes(), between);
        let mut report = written.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        // D3: a second checkpoint of the same root would reclaim the same slice of a dropped tree again.
        let is_left = |tree: &TreeState| tree.dropped_at.is_some() && !reclaimed.contains(&tree.id);
        let reclaims = held.root().trees.iter().any(|tree| is_left(tree));
        if let Some(spare_bytes) = twin_spare_bytes.filter(|_| !reclaims) {
            // The first checkpoint is durable all the same, and the older superblock keeps its own.
            match self.write_once(&held, named, spare_bytes, &mut || ()) {
                Ok(second) => {
                    let twin = second.keep_log_from;
                    invariant!(Some(twin) == end, "both superblocks replay from {end:?}, not {twin:?}");
                    report.written_bytes += second.written_bytes;
                }
                Err(error) if self.committer.poison_cause().is_some() => return Err(error),
                Err(error) => self.failed(error),
            }
        }
        drop(held);
        self.forget_reclaimed();
        self.store.pages.meter().evict_again();
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.committer.timed().checkpointed(self.disk.monotonic_ns().saturating_sub(begun_ns));
        Ok(report)
    }

    /// Keeps the log, and what only the log names, for the feed. This comes before the superblock names a
    /// later replay position (D1, D3).
    fn retain_for_feed(&self, held: &Registration) -> Result<()> {
        match self.feeding.retain(&self.store, &self.checkpointer, &self.committer, held) {
            Ok(Letting { why: Some(why), through }) => {
                *locked(self.let_go.lock()) = Some(Event::FeedLetGo { through, why });
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.poison_if_a_sync_failed(failure)),
        }
    }

    /// Writes a checkpoint of a root. If the newest checkpoint already has that root, it costs a superblock,
    /// a few pages of the space map and two syncs. Both superblocks agree then.
    fn write_once(
        &self,
        held: &Registration,
        aim: CheckpointAim,
        spare_bytes: u64,
        between: &mut dyn FnMut(),
    ) -> Result<CheckpointReport> {
        let mut evict_too = || {
            self.evict();
            between();
        };
        let written = self.checkpointer.run(held.root(), aim, &mut evict_too);
        let report = written.map_err(|failure| self.poison_if_a_sync_failed(failure))?;
        self.committer.log().recycle(&report.keep_log_from);
        self.give_space_back(spare_bytes)?;
        Ok(report)
    }

    /// Lets the roots forget the trees that are reclaimed, unless a commit is under way. This comes after the
    /// last checkpoint of a root that lists them: it would name them again.
    fn forget_reclaimed(&self) {
        let reclaimed = self.checkpointer.reclaimed();
        if !reclaimed.is_empty() {
            self.committer.forget_trees(&reclaimed);
            let gone = |id: &TreeId| self.committer.published().trees.get(*id).is_none();
            self.checkpointer.forgotten(&reclaimed.into_iter().filter(gone).collect::<Vec<_>>());
        }
    }

    /// Whether leaves written since the last checkpoint have replaced much of the file.
    fn replaced_much(&self) -> bool {
        let bytes = self.checkpointer.ahead_bytes();
        let file_bytes = || self.store.space.stats().file_blocks * self.store.geometry.block_bytes as u64;
        bytes >= self.memory_bytes() && bytes >= file_bytes() / REPLACED_PART
    }

    /// A checkpoint starts when the log since the last one has this many bytes.
    fn checkpoint_log_bytes(&self) -> u64 {
        self.checkpoint_log_bytes.unwrap_or(LOG_BYTES_MAX.min(self.memory_bytes() / LOG_MEMORY_PART))
    }
}
