//! Reads the change feed of an open database: retained files first, then the log, then waiting for more.
//!
//! A reader runs beside the writer and never blocks it. A checkpoint may release what is being read. If bytes
//! look corrupt and the replay position of the newest checkpoint has moved, they are read again from their
//! new place.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Engine, Mode};
use crate::commit::{Watch, Woken};
use crate::error::{Code, Error, Result};
use crate::feed::{
    FeedCommit, FeedHold, FeedStats, FileReader, LiveReader, RetainedPart, Wanted, ahead, cannot_read,
    is_source,
};
use crate::ids::{CommitSeq, DatabaseId};
use crate::tree::Slot;
use crate::wal::{LogPlace, LogPosition};

/// Bytes of changes read ahead, plus one commit.
const BATCH_BYTES: usize = 256 * 1024;

/// Selects trees by name.
pub type Wants = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Reads the feed from a position. While it lives, unread changes are kept for it, within the bound of the
/// feed.
pub struct FeedReader {
    engine: Engine,
    hold: FeedHold,
    wants: Wants,
    /// Everything wanted up to this commit was handed out.
    position: CommitSeq,
    /// Everything up to this commit was read into the batch.
    read: CommitSeq,
    batch: VecDeque<FeedCommit>,
    live: Option<LiveReader>,
    file: Option<(u64, FileReader)>,
    stop: FeedStop,
    /// Its number for callbacks in [`Watch`].
    watcher: u64,
}

/// Stops one reader's waiting, from any thread.
#[derive(Clone)]
pub struct FeedStop {
    engine: Engine,
    asked: Arc<AtomicBool>,
}

impl fmt::Debug for FeedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedReader").field("position", &self.position).finish_non_exhaustive()
    }
}

impl fmt::Debug for FeedStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedStop").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Engine {
    /// Reads the changes after a commit, of trees with wanted names.
    ///
    /// # Errors
    /// `FeedGap` (E0804) if some of them are no longer kept, or if there is no such commit;
    /// `CorruptFeed` (E0505) if they are corrupt; `ForkedHandle` (E0206) in a forked process.
    pub fn feed(&self, after: CommitSeq, wants: Wants) -> Result<FeedReader> {
        let hold = self.hold_feed(after)?;
        let stop = FeedStop { engine: self.clone(), asked: Arc::default() };
        Ok(FeedReader {
            engine: self.clone(),
            hold,
            wants,
            position: after,
            read: after,
            batch: VecDeque::new(),
            live: None,
            file: None,
            stop,
            watcher: self.watch().map_or(0, Watch::new_reader),
        })
    }

    /// Keeps the changes after a commit while the hold lives, within the bound of the feed.
    ///
    /// # Errors
    /// As [`Engine::feed`].
    pub fn hold_feed(&self, after: CommitSeq) -> Result<FeedHold> {
        self.same_process()?;
        let newest = self.newest_seq();
        if after > newest {
            return Err(ahead(after, newest, self.inner.feed.oldest()));
        }
        self.inner.feed.hold(after)
    }

    /// The identity of the database, which its positions in the feed belong to.
    #[must_use]
    pub fn database_id(&self) -> DatabaseId {
        self.inner.log_identity.database
    }

    /// What the feed holds, and its consumers.
    #[must_use]
    pub fn feed_stats(&self) -> FeedStats {
        let log_from = self.feed_boundary().0.seq;
        FeedStats { log_from, newest: self.durable_seq(), ..self.inner.feed.stats() }
    }

    /// Newest commit that survives a power cut.
    fn durable_seq(&self) -> CommitSeq {
        let found = self.inner.deferred_redo.seq();
        match &self.inner.mode {
            Mode::Write { committer, .. } => committer.acknowledged_through().max(found),
            Mode::Read { .. } => found,
        }
    }

    fn newest_seq(&self) -> CommitSeq {
        let durable = self.durable_seq();
        match &self.inner.mode {
            Mode::Write { committer, .. } => committer.latest().seq.max(durable),
            Mode::Read { .. } => durable,
        }
    }

    /// The replay position of the newest checkpoint, and the catalogue there. The log is complete after it.
    fn feed_boundary(&self) -> (LogPosition, Option<Slot>) {
        match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance.checkpointer().boundary(),
            Mode::Read { superblock, catalogue, .. } => (superblock.replay, catalogue.clone()),
        }
    }

    fn log_place(&self) -> LogPlace<'_> {
        let inner = &*self.inner;
        LogPlace {
            disk: &*inner.disk,
            dir: &inner.wal_dir,
            identity: inner.log_identity,
            geometry: &inner.store.geometry,
        }
    }

    fn watch(&self) -> Option<&Watch> {
        match &self.inner.mode {
            Mode::Write { committer, .. } => Some(committer.watch()),
            Mode::Read { .. } => None,
        }
    }

    /// Whether no newer commit can become durable through this handle.
    fn is_at_its_end(&self) -> bool {
        match &self.inner.mode {
            Mode::Write { committer, .. } => committer.usable().is_err(),
            Mode::Read { .. } => true,
        }
    }
}

impl FeedReader {
    /// The next commit that changed something wanted. `None` if there is none yet; it never waits.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes); `FeedGap` (E0804) if this reader fell behind what
    /// may be kept. It can be called again.
    #[allow(clippy::should_implement_trait, reason = "an iterator that ends and goes on again")]
    pub fn next(&mut self) -> Result<Option<FeedCommit>> {
        if self.batch.is_empty() {
            self.fill()?;
        }
        let next = self.batch.pop_front();
        self.position = match &next {
            Some(commit) if !self.batch.is_empty() => commit.seq,
            _ => self.read,
        };
        Ok(next)
    }

    /// Confirms everything handed out: it need not be kept for this reader. Calling [`FeedReader::next`] does
    /// not confirm it.
    pub fn done(&self) {
        self.hold.advance(self.position);
    }

    /// Everything up to this commit was handed out. A later reader can continue from here.
    #[must_use]
    pub fn position(&self) -> CommitSeq {
        self.position
    }

    /// Waits until there may be something new, or for a time limit. Returns whether there may be. It returns
    /// `false` at the end if the database is closed, poisoned or read-only, and after [`FeedStop::stop`]. It
    /// also ends while writers are refused and this reader keeps files that it has read and not
    /// [confirmed](FeedReader::done).
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let Some(watch) = self.engine.watch() else { return self.is_behind() };
        let disk = &self.engine.inner.disk;
        watch.wait(&|| self.need_not_wait(), at_most, &|| disk.monotonic_ns());
        let may_go_on = self.is_behind() || (self.holds_writers_up() && !self.engine.is_at_its_end());
        may_go_on && !self.stop.is_asked()
    }

    /// Calls `woken` once, when there may be something new, or when [`FeedReader::wait`] would return because
    /// nothing more can come. Calls it at once if that holds already. A later call replaces the pending one.
    /// A dropped reader is not called. A committing thread calls it, so it must return soon.
    pub fn call_when_more(&self, woken: Woken) {
        match self.engine.watch() {
            Some(watch) => watch.call(self.watcher, &|| self.need_not_wait(), woken),
            None => woken(),
        }
    }

    /// The cause, if no more will come because the database is poisoned. `None` if this reader was stopped.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        let Mode::Write { committer, .. } = &self.engine.inner.mode else { return None };
        let cause = committer.poison_cause().filter(|_| !self.stop.is_asked())?;
        Some(Error::poisoned(cause.message()))
    }

    /// Lets another reader's stopper end this reader's waiting. This reader replaces that one.
    #[must_use]
    pub fn with_stopper(mut self, stop: FeedStop) -> FeedReader {
        self.stop = stop;
        self
    }

    /// Whether it was stopped, or nothing newer can come through this handle and everything was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.stop.is_asked() || (!self.is_behind() && self.engine.is_at_its_end())
    }

    /// A handle that stops this reader's waiting.
    #[must_use]
    pub fn stopper(&self) -> FeedStop {
        self.stop.clone()
    }

    fn need_not_wait(&self) -> bool {
        self.is_behind() || self.stop.is_asked() || self.holds_writers_up() || self.engine.is_at_its_end()
    }

    fn holds_writers_up(&self) -> bool {
        let feed = &self.engine.inner.feed;
        feed.refusal().is_some()
            && self.hold.after() < self.position
            && self.hold.after() < self.engine.feed_boundary().0.seq
    }

    fn is_behind(&self) -> bool {
        !self.batch.is_empty() || self.read < self.engine.durable_seq()
    }

    fn fill(&mut self) -> Result<()> {
        loop {
            let durable = self.engine.durable_seq();
            if self.read >= durable || !self.batch.is_empty() {
                return Ok(());
            }
            let (boundary, catalogue) = self.engine.feed_boundary();
            let files_end = boundary.seq.max(self.engine.inner.feed.found_through());
            let filled = if self.read < files_end {
                self.fill_from_files()
            } else {
                self.fill_from_log((boundary, catalogue.as_ref()), durable)
            };
            // What was read may have been released meanwhile, and retained elsewhere.
            let has_moved = self.engine.feed_boundary().0 != boundary;
            match filled {
                Ok(()) if has_moved && self.live.as_ref().is_some_and(|live| live.saw_corruption) => {
                    self.begin_again();
                }
                Ok(()) => {
                    self.read = self.live.as_ref().map_or(self.read, |live| self.read.max(live.seq()));
                }
                Err(_) if has_moved => self.begin_again(),
                Err(error) => {
                    self.begin_again();
                    return Err(error);
                }
            }
        }
    }

    /// Restarts reading the sources from the last commit handed out.
    fn begin_again(&mut self) {
        self.batch.clear();
        self.live = None;
        self.file = None;
        self.read = self.position;
    }

    fn fill_from_log(&mut self, from: (LogPosition, Option<&Slot>), durable: CommitSeq) -> Result<()> {
        let inner = Arc::clone(&self.engine.inner);
        let pages = &inner.store.pages;
        self.file = None;
        let mut live = match self.live.take() {
            Some(live) => live,
            None => LiveReader::begin(pages, from.0, from.1)?,
        };
        let before = live.seq();
        let wants = |name: &str| is_source(inner.feed_rule.as_deref(), name) && (self.wants)(name);
        let wanted = Wanted { after: self.read, through: durable, bytes_max: BATCH_BYTES, wants: &wants };
        live.read(&self.engine.log_place(), pages, &wanted, &mut self.batch)?;
        if live.seq() == before {
            let message = format!(
                "{}: the log ends after commit {before}, and {durable} is durable",
                inner.wal_dir.display()
            );
            return Err(Error::new(Code::CorruptLog, message));
        }
        self.live = Some(live);
        Ok(())
    }

    fn fill_from_files(&mut self) -> Result<()> {
        self.live = None;
        // A single read can fail, and the file may have been removed since it was looked up.
        self.fill_from_file().or_else(|_| self.fill_from_file())
    }

    fn fill_from_file(&mut self) -> Result<()> {
        let feed = &self.engine.inner.feed;
        let Some(part) = feed.part_after(self.read) else { return Err(feed.gap(self.read)) };
        let Err(error) = self.read_file(&part) else { return Ok(()) };
        self.file = None;
        match error.is_corruption() {
            // What was read before the error is returned first.
            _ if !self.batch.is_empty() => Ok(()),
            true => Err(cannot_read(self.read, error.message(), part.through)),
            false => Err(error.goes_on(part.through)),
        }
    }

    fn read_file(&mut self, part: &RetainedPart) -> Result<()> {
        let file = match &mut self.file {
            Some((number, file)) if *number == part.number => file,
            _ => &mut self.file.insert((part.number, self.engine.inner.feed.read(part)?)).1,
        };
        let wanted =
            Wanted { after: self.read, through: part.through, bytes_max: BATCH_BYTES, wants: &*self.wants };
        file.read(&wanted, &mut self.batch, &mut self.read)
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        if let Some(watch) = self.engine.watch() {
            watch.forget(self.watcher);
        }
    }
}

impl FeedStop {
    /// Stops the waiting for good.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::SeqCst);
        if let Some(watch) = self.engine.watch() {
            watch.wake();
        }
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}
