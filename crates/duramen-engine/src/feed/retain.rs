//! Retaining: copies changes that are still needed to files before a checkpoint releases the log.
//!
//! The order of steps matters. The copied log is durable. The files and their names are synced before this
//! returns. Only then the superblock may be written after which the log, and the extents of values that it
//! names, are reused. At any power cut the copy therefore holds at least what was released.

use super::file::FileWriter;
use super::frame::FileHeader;
use super::items;
use super::names::{LoggedChange, Names};
use super::retained::{Retained, part_of};
use super::{FeedNeed, FeedRule, FeedWhat};
use crate::alarm::{invariant, locked};
use crate::checkpoint::CheckpointError;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::ids::CommitSeq;
use crate::limits::FEED_FAILING_MS_MAX;
use crate::page_cache::Pages;
use crate::tree::{BigReader, BigRef, Slot, StoredValue};
use crate::wal::{Enough, LogPlace, LogPosition, ReplayedRecord, Stretch};
use std::io::Read;

/// Bytes of a big value copied at a time.
const COPY_BYTES: usize = 64 * 1024;

/// The part of the log about to be released, and what is needed of it.
pub(crate) struct Retaining<'a> {
    /// The log.
    pub log: LogPlace<'a>,
    /// The end of the newest checkpoint. The log after it is complete.
    pub boundary: LogPosition,
    /// The catalogue there.
    pub catalogue: Option<&'a Slot>,
    /// The end of the next checkpoint. Durable.
    pub through: CommitSeq,
    /// Reads values.
    pub pages: &'a Pages,
    /// Which trees belong to the feed. All, without a rule.
    pub rule: Option<&'a dyn FeedRule>,
    /// Which consumers need what. Called after the holds of this process are read: a reader stores its need
    /// before it drops its hold.
    pub needs: &'a dyn Fn() -> Result<Vec<FeedNeed>>,
    /// Wall clock.
    pub now_ns: u64,
}

/// Needed changes that were given up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Letting {
    /// Why; `None` if none were.
    pub why: Option<Error>,
    /// Everything up to this commit is no longer kept.
    pub through: CommitSeq,
}

/// Whether a tree's changes belong to the feed.
pub(crate) fn is_source(rule: Option<&dyn FeedRule>, name: &str) -> bool {
    rule.is_none_or(|rule| rule.is_source(name))
}

impl Retained {
    /// Copies what is needed of the log up to `through`, durably, and removes unneeded files.
    ///
    /// # Errors
    /// Fails if changes cannot be retained, and the failure may be temporary or a consumer refuses writers
    /// rather than lose them. `Full` without room; else the error of reading the log or writing the file.
    /// Also what `needs` returned; a failed sync is `Poison`. The checkpoint must not go on after an error.
    pub(crate) fn retain(&self, job: &Retaining<'_>) -> std::result::Result<Letting, CheckpointError> {
        let begun_ns = self.disk.monotonic_ns();
        let mut letting = Letting::default();
        let (needs, from) = self.plan(job)?;
        // These files take room that a full disk needs.
        self.leave_nothing_useless()?;
        let Some(mut from) = from else { return Ok(letting) };
        while from < job.through {
            match self.append(job, from) {
                Ok(()) => {
                    self.state().failing_ns = None;
                    break;
                }
                Err(CheckpointError::Failed(error)) => {
                    if let Some(refuser) = self.refuser(&needs, job.through) {
                        return Err(CheckpointError::Failed(cannot_keep_for(refuser, &error)));
                    }
                    // Dropping the oldest file helps only on a full disk. Any other failure may be temporary.
                    if error.kind() != ErrorKind::Full && !self.has_failed_for_long(begun_ns) {
                        return Err(CheckpointError::Failed(cannot_keep_yet(&error)));
                    }
                    // D7: the checkpoint goes on. A consumer whose changes cannot be kept gets a gap.
                    letting.why = Some(error);
                    if self.drop_oldest().is_none() {
                        self.state().oldest = job.through;
                        break;
                    }
                    self.leave_nothing_useless()?;
                }
                Err(poison) => return Err(poison),
            }
            from = self.state().files.back().map_or(from, |file| file.through);
        }
        if let Some(bound) = self.keep_bound(&needs) {
            letting.why.get_or_insert(bound);
        }
        letting.through = self.oldest();
        self.leave_nothing_useless()?;
        Ok(letting)
    }

    /// As [`Retained::remove_useless`], but a file that cannot be removed does not hold the checkpoint back
    /// (D7).
    ///
    /// The next checkpoint tries again. After a power cut before that, the file may be reported as corrupt.
    fn leave_nothing_useless(&self) -> std::result::Result<(), CheckpointError> {
        match self.remove_useless() {
            Err(CheckpointError::Failed(_)) => Ok(()),
            done => done,
        }
    }

    /// Notes a failure of an attempt that began at `begun_ns`. Returns whether attempts in close succession
    /// have failed for longer than a temporary failure would last.
    fn has_failed_for_long(&self, begun_ns: u64) -> bool {
        const LONG_NS: u64 = FEED_FAILING_MS_MAX * 1_000_000;
        let now_ns = self.disk.monotonic_ns();
        let mut state = self.state();
        // A long pause without attempts proves nothing about the time in between.
        let goes_on = state.failing_ns.filter(|(_, last_ns)| begun_ns.saturating_sub(*last_ns) < LONG_NS);
        let since_ns = goes_on.map_or(now_ns, |(since_ns, _)| since_ns);
        state.failing_ns = Some((since_ns, now_ns));
        now_ns.saturating_sub(since_ns) >= LONG_NS
    }

    /// Removes files that are no longer needed, without a checkpoint. Decides again whether to refuse
    /// writers.
    ///
    /// # Errors
    /// What `needs` returned, or that a file cannot be removed; nothing is lost then. A failed sync is
    /// `Poison`.
    pub(crate) fn review(
        &self,
        needs: &dyn Fn() -> Result<Vec<FeedNeed>>,
        now_ns: u64,
    ) -> std::result::Result<(), CheckpointError> {
        let _one_at_a_time = locked(self.finding_needs.lock());
        let held = self.state().held_from();
        let needs = needs()?;
        self.remove_unneeded(&needs, held, now_ns);
        self.keep_bound(&needs);
        self.remove_dropped()
    }

    /// The consumers' needs, and the commit to copy the log from; `None` if no copy is needed.
    fn plan(&self, job: &Retaining<'_>) -> Result<(Vec<FeedNeed>, Option<CommitSeq>)> {
        let _one_at_a_time = locked(self.finding_needs.lock());
        let held = self.state().held_from();
        let needs = (job.needs)()?;
        self.remove_unneeded(&needs, held, job.now_ns);
        let mut state = self.state();
        let needed = state.needed_from(&needs, held);
        let copied = state.files.back().map(|file| file.through);
        let keeps_all = self.bounds.retain_bytes > 0 || self.bounds.retain_age_ns > 0;
        if !keeps_all {
            state.let_go_of_corrupt(needs.iter().map(|need| need.after).chain(held).min());
        }
        let all = keeps_all.then(|| copied.unwrap_or(job.boundary.seq));
        let floor = needed.into_iter().chain(all).min().filter(|floor| *floor < job.through);
        // The files follow each other without a gap, so what lies between two needs is kept too.
        let from = floor.map(|floor| copied.unwrap_or(floor.max(job.boundary.seq)));
        if state.files.is_empty() {
            // A request for older changes must get a gap from now on, not half of them.
            state.oldest = state.oldest.max(from.unwrap_or(job.through));
        }
        drop(state);
        Ok((needs, from))
    }

    /// Copies the log after `from` into the current file, and begins another one when that is full.
    fn append(&self, job: &Retaining<'_>, from: CommitSeq) -> std::result::Result<(), CheckpointError> {
        invariant!(
            job.boundary.seq <= from && from < job.through,
            "the log after commit {} still has what follows {from}, up to {}",
            job.boundary.seq,
            job.through
        );
        let mut writer = locked(self.writer.lock());
        if writer.as_ref().is_none_or(|writer| writer.end().offset >= self.file_bytes_wanted()) {
            *writer = None;
            *writer = Some(self.begin_file(from)?);
        }
        if let Some(writer) = &*writer {
            invariant!(
                writer.end().through == from,
                "file {} reaches to commit {}, from which the log is copied: {from}",
                writer.header().number,
                writer.end().through
            );
        }
        let copied = self.copy(job, from, &mut writer);
        if let Err(CheckpointError::Failed(error)) = &copied {
            let undone = writer.take().and_then(|writer| self.undo(writer));
            // The next attempt uses another place on the disk, unless the disk is full.
            *writer = undone.filter(|_| error.kind() == ErrorKind::Full);
        }
        copied
    }

    fn copy(
        &self,
        job: &Retaining<'_>,
        from: CommitSeq,
        writer: &mut Option<FileWriter>,
    ) -> std::result::Result<(), CheckpointError> {
        const WRITING: &str = "one is being written";
        let mut names = Names::load(job.pages, job.catalogue)?;
        let mut poison = false;
        let mut failed = |failure| {
            poison = matches!(failure, CheckpointError::Poison(_));
            into_error(failure)
        };
        let stretch = Stretch { from: job.boundary, through: job.through };
        let mut last = job.boundary.seq;
        let read = job.log.read(&stretch, &mut |record| {
            invariant!(record.seq == last.next(), "commit {} follows {last} in the log", record.seq);
            last = record.seq;
            if record.seq > job.through {
                return Ok(Enough::Yes);
            }
            let is_new = record.seq > from;
            let current = writer.as_mut().expect(WRITING);
            if is_new {
                current.at_time(record.commit_time_ns);
            }
            copy_record(
                &record,
                &mut names,
                &|name| is_new && is_source(job.rule, name),
                job.pages,
                current,
            )?;
            if is_new && record.seq < job.through && current.end().offset >= self.file_bytes_wanted() {
                self.finish_file(current, record.seq).map_err(&mut failed)?;
                *writer = Some(self.begin_file(record.seq).map_err(&mut failed)?);
            }
            Ok(Enough::No)
        });
        match read {
            Err(error) if poison => return Err(CheckpointError::Poison(error)),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        if last < job.through {
            let message = format!(
                "{}: the log ends after commit {last}, and {} is durable",
                job.log.dir.display(),
                job.through
            );
            return Err(Error::new(Code::CorruptLog, message).into());
        }
        self.finish_file(writer.as_mut().expect(WRITING), job.through)
    }

    /// Begins a new file for the changes after a commit, or continues the last file found.
    fn begin_file(&self, after: CommitSeq) -> std::result::Result<FileWriter, CheckpointError> {
        let is_last = match self.remove_unproven() {
            Err(CheckpointError::Failed(_)) => false,
            done => done.map(|()| true)?,
        };
        let (tail, number) = {
            let mut state = self.state();
            (state.tail.take(), state.next_number)
        };
        // What cannot be removed would seem to follow the tail, and is passed over in front of a new file.
        if let Some((header, end)) = tail.filter(|_| is_last)
            && end.through == after
            && end.offset < self.file_bytes_wanted()
        {
            return Ok(FileWriter::reopen(&*self.disk, &self.dir, header, end)?);
        }
        match self.disk.create_dir(&self.dir) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create", &self.dir, &e).into()),
        }
        self.state().next_number += 1;
        let header = FileHeader { identity: self.identity, number, block_bytes: self.block_bytes, after };
        Ok(self.create_file(header)?)
    }

    /// Ends the file with a commit, makes it and its name durable, and shows it to readers.
    fn finish_file(
        &self,
        writer: &mut FileWriter,
        through: CommitSeq,
    ) -> std::result::Result<(), CheckpointError> {
        invariant!(
            writer.end().through <= through,
            "file {} goes on from commit {} to {through}",
            writer.header().number,
            writer.end().through
        );
        writer.end_with(through)?;
        // A file found at opening may have its name in the page cache only.
        let syncs_names = writer.is_new() || !self.state().names_synced;
        writer.sync().map_err(CheckpointError::Poison)?;
        for directory in [&self.dir, &self.database_dir].into_iter().filter(|_| syncs_names) {
            let synced = self.disk.sync_dir(directory);
            synced.map_err(|e| CheckpointError::Poison(Error::io("sync", directory, &e)))?;
        }
        let part = part_of(writer.path().to_owned(), writer.header(), &writer.end());
        let mut state = self.state();
        state.names_synced = true;
        state.add(part);
        Ok(())
    }

    /// Lets go of files, oldest first, that neither a reader nor a bound keeps.
    fn remove_unneeded(&self, needs: &[FeedNeed], held: Option<CommitSeq>, now_ns: u64) {
        loop {
            let state = self.state();
            let Some(oldest) = state.files.front() else { return };
            let is_needed = state.needed_from(needs, held).is_some_and(|after| after < oldest.through);
            let newer_bytes = state.file_bytes() - oldest.end_offset;
            let age_ns = now_ns.saturating_sub(oldest.time_ns);
            if is_needed || age_ns < self.bounds.retain_age_ns || newer_bytes < self.bounds.retain_bytes {
                return;
            }
            let unneeded = oldest.number;
            drop(state);
            let gone = self.drop_oldest();
            invariant!(gone == Some(unneeded), "file {unneeded} is let go of, not {gone:?}");
        }
    }

    /// Drops the oldest files while the feed exceeds its bound, unless a consumer refuses writers instead.
    /// Returns an error if any were dropped.
    fn keep_bound(&self, needs: &[FeedNeed]) -> Option<Error> {
        let mut dropped = None;
        loop {
            let state = self.state();
            let bytes = state.file_bytes();
            let through = state.files.front().map(|file| file.through);
            drop(state);
            let Some(through) = through.filter(|_| bytes > self.bounds.bytes_max) else { break };
            if let Some(refuser) = self.refuser(needs, through) {
                let why = format!(
                    "the consumer {:?} has read up to commit {} and wants nothing to be lost: the feed holds {bytes} bytes \
                     for it, and may hold {}",
                    refuser.name, refuser.after, self.bounds.bytes_max
                );
                self.state().refusal = Some(why);
                return dropped;
            }
            let message = format!("the feed held {bytes} bytes, and may hold {}", self.bounds.bytes_max);
            dropped = Some(Error::new(Code::FeedFull, message));
            self.drop_oldest();
        }
        self.state().refusal = None;
        dropped
    }

    /// A consumer that needs changes from before `through` and refuses writers rather than lose them.
    fn refuser<'a>(&self, needs: &'a [FeedNeed], through: CommitSeq) -> Option<&'a FeedNeed> {
        let state = self.state();
        let is_before = |need: &FeedNeed| state.reads_from(need.after).is_some_and(|after| after < through);
        needs.iter().find(|need| need.refuses_writers && is_before(need))
    }

    /// Lets go of the oldest file. Returns its number, if there was one.
    fn drop_oldest(&self) -> Option<u64> {
        let gone = self.state().let_go_of_oldest()?;
        let mut writer = locked(self.writer.lock());
        if writer.as_ref().is_some_and(|writer| writer.header().number == gone.number) {
            *writer = None;
        }
        Some(gone.number)
    }
}

fn into_error(failure: CheckpointError) -> Error {
    match failure {
        CheckpointError::Failed(error) | CheckpointError::Poison(error) => error,
    }
}

/// The error of a checkpoint that will be retried before anything is lost.
fn cannot_keep_yet(error: &Error) -> Error {
    let message = format!("cannot retain changes for the feed: {}", error.message());
    let seconds = FEED_FAILING_MS_MAX / 1000;
    Error::new(error.code(), message).with_hint(format!(
        "nothing is lost yet, and the checkpoint is tried again: see to it that the directory `feed` of the database can be written \
         (permissions, free file descriptors, the disk's errors in the system's log). After {seconds} seconds the oldest changes are let go \
         of, unless their consumer refuses writers"
    ))
}

fn cannot_keep_for(refuser: &FeedNeed, error: &Error) -> Error {
    let is_full = error.kind() == ErrorKind::Full;
    let (code, mend) = if is_full {
        (Code::DiskFull, "free some space on the disk")
    } else {
        (error.code(), "fix what keeps the feed from being written")
    };
    let message = format!(
        "cannot retain changes for the consumer {:?}, which has read up to commit {} and wants nothing to be lost: {}",
        refuser.name,
        refuser.after,
        error.message()
    );
    Error::new(code, message).with_hint(format!("let it read on, unregister it, or {mend}"))
}

fn copy_record(
    record: &ReplayedRecord,
    names: &mut Names,
    wants: &dyn Fn(&str) -> bool,
    pages: &Pages,
    writer: &mut FileWriter,
) -> Result<()> {
    let mut of = None;
    names.pass(record, wants, &mut |tree, name, told| {
        if of.is_none() {
            writer.push(&items::begin(record.seq, record.commit_time_ns))?;
        }
        if of != Some(tree) {
            writer.push(&items::tree(tree, name))?;
            of = Some(tree);
        }
        match told {
            LoggedChange::Tree(FeedWhat::Dropped) => writer.push(&items::dropped()),
            LoggedChange::Tree(_) => writer.push(&items::created()),
            LoggedChange::Key(key, None) => writer.push(&items::deleted(key)),
            LoggedChange::Key(key, Some(value)) => copy_value(key, value, pages, writer),
        }
    })?;
    if of.is_some() { writer.push(&items::end()) } else { Ok(()) }
}

/// Copies a value. Its own extents may be reused once the superblock is written.
fn copy_value(key: &[u8], value: StoredValue<'_>, pages: &Pages, writer: &mut FileWriter) -> Result<()> {
    if !value.big {
        writer.push(&items::put(key, value.bytes.len() as u64))?;
        return writer.push(value.bytes);
    }
    let big = BigRef::decode(value.bytes)?;
    if let Err(error) = check_value(&big, pages) {
        return if error.is_corruption() { writer.push(&items::lost(key)) } else { Err(error) };
    }
    writer.push(&items::put(key, big.len))?;
    let mut reader = BigReader::open(pages, &big)?;
    let mut piece = vec![0; COPY_BYTES];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => writer.push(&piece[..count])?,
            Err(error) => {
                return Err(Error::new(Code::System, format!("cannot copy a value for the feed: {error}")));
            }
        }
    }
}

/// Reads a whole value first, so that a corrupt one is recorded as lost instead of copied in part.
fn check_value(big: &BigRef, pages: &Pages) -> Result<()> {
    let mut bytes = 0;
    for extent in big.extents(pages)? {
        bytes += pages.read(&extent, crate::data_file::PageKind::ValueExtent)?.payload().len() as u64;
    }
    if bytes == big.len { Ok(()) } else { Err(Error::new(Code::CorruptData, "a value of another length")) }
}
