//! Opens a recovered log for writing: in a fresh segment, under a new epoch and a new incarnation.
//!
//! D1 and D6 rest here. Groups that the log does not call durable may exist in the kernel's cache only. After
//! an I/O error they may even be marked clean there without being on the disk. They are therefore copied to
//! fresh blocks, as frames that follow the newest durable frame, and synced. Only then the header of their
//! segment is written and synced, which links the copy. Before that, recovery finds the old tail; afterwards
//! the copy (see chain.rs).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, SyncMethod};

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord};
use super::log::Log;
use super::recover::Recovered;
use super::segment::Segment;
use super::spare::{SegmentFactory, check_geometry};
use super::state::{Head, State, UsedSegment};
use super::survey::{Content, Survey};
use super::writing::{draw, header_of};
use super::{Group, LogIdentity, LogPosition, LogWriteError, Record};
use crate::alarm::{invariant, locked};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, Epoch};
use crate::options::Geometry;

/// Records of one group are collected up to this many bytes before they are copied.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// Arguments of [`Log::reopen`].
#[derive(Clone, Copy)]
pub struct Continued<'a> {
    /// The result of recovery.
    pub recovered: &'a Recovered,
    /// Neither superblock needs the log before this frame. Its segments are reused, as by [`Log::recycle`].
    /// Otherwise each kill of the process would take another segment of the disk (D7).
    pub keep_from: LogPosition,
    /// The watermark of the headers that are written. What is recovered is durable then, but a log that is
    /// cut later may call durable only what it keeps for ever.
    pub marked: CommitSeq,
    /// Gives so many bytes back to a full disk, if it can (D7). Called for each segment that finds no room:
    /// the next opening would repeat a copy that was given up, with no more room.
    pub give_room: &'a dyn Fn(u64) -> Result<bool>,
}

impl Log {
    /// Continues a log where [`repair`](super::recover) ended. Afterwards everything recovered is durable.
    ///
    /// Costs a sync for each replayed segment, a copy of the groups not known durable, and two syncs. Each
    /// segment that the copy supersedes costs another sync.
    ///
    /// # Errors
    /// `DiskFull` (E0301) if no segment can be prepared; `System` (E1001). The log on disk remains as
    /// recoverable as before.
    pub fn reopen(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        identity: LogIdentity,
        geometry: Geometry,
        sync: SyncMethod,
        continued: Continued<'_>,
    ) -> Result<Log> {
        check_geometry(&geometry, sync)?;
        let factory = SegmentFactory { disk: &**disk, dir, identity, geometry, sync };
        // A process killed while it made a segment may have left a file name only in the kernel's cache (D1).
        disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))?;
        let sorted = sort_files(&factory, continued)?;
        for segment in &sorted.replayed {
            segment.file.sync_data().map_err(|error| Error::io("sync", &segment.path, &error))?;
        }
        let (state, superseded) = state_after(&factory, continued, sorted);
        let first = state.head.clone();
        let log = Log::assemble(disk, &factory, state);
        log.go_on_in(&first, continued, superseded)?;
        Ok(log)
    }

    /// Takes back every commit after `kept`, which no watermark covers. Afterwards what is kept is durable,
    /// and the log goes on after it.
    ///
    /// One thread writes the log, and calls this. `from` is a frame that the log calls durable, near the end
    /// or far from it: the log is read from there on. Segments before `keep_from` are reused.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a commit that a watermark covers. Otherwise as [`Log::reopen`], and the
    /// log refuses all further writes: on disk it is as before, or cut.
    pub fn cut_after(
        &self,
        kept: CommitSeq,
        from: &LogPosition,
        keep_from: LogPosition,
    ) -> Result<LogPosition> {
        self.sync().map_err(|failure| failure.0)?;
        // A segment under construction is one of the files that are looked at.
        let mut making = locked(self.preparing.lock());
        let recovered = self.found_through(kept, from)?;
        let marked = recovered.marked_seq;
        let continued = Continued { recovered: &recovered, keep_from, marked, give_room: &|_| Ok(false) };
        *making = None;
        let cut = self.begin_again(continued).and_then(|(first, superseded)| {
            drop(making);
            self.go_on_in(&first, continued, superseded)
        });
        if let Err(error) = &cut {
            self.state().fail(error);
        }
        cut.map(|()| recovered.anchor.position)
    }

    /// What recovery would find, but that nothing follows `kept`.
    fn found_through(&self, kept: CommitSeq, from: &LogPosition) -> Result<Recovered> {
        let survey = Survey::load(&*self.disk, &self.dir, self.identity, &self.geometry)?;
        let mut chain = Chain::start(&survey, from)?;
        chain.run(&Reading::IN_TURN, &mut |_, ()| Ok(()))?;
        if chain.marked_seq > kept || chain.last.seq < kept {
            return Err(Error::invalid(format!(
                "the log ends with commit {}, and is durable through {}: it cannot be cut after {kept}",
                chain.last.seq, chain.marked_seq
            )));
        }
        let epochs = survey.files.iter().filter_map(|file| file.header()).map(|header| header.epoch);
        let epoch_max = epochs.fold(self.current_epoch(), Epoch::max);
        Ok(Recovered {
            last_seq: kept,
            marked_seq: chain.marked_seq,
            unmarked_group_count: chain.unmarked_group_count(),
            record_count: chain.record_count,
            record_bytes: chain.record_bytes,
            torn: false,
            from: *from,
            anchor: chain.anchor,
            next_epoch: epoch_max.next(),
            on_chain: chain.ends.iter().map(Option::is_some).collect(),
            survey,
        })
    }

    /// Takes on the state that an opening would begin with.
    fn begin_again(&self, continued: Continued<'_>) -> Result<(Head, Vec<Arc<Segment>>)> {
        let factory = self.factory();
        let sorted = sort_files(&factory, continued)?;
        let (state, superseded) = state_after(&factory, continued, sorted);
        let first = state.head.clone();
        let mut before = self.state();
        let stats = before.stats;
        *before = State { stats, ..state };
        Ok((first, superseded))
    }

    /// Copies what is kept after the newest durable frame, then links the copy.
    fn go_on_in(&self, first: &Head, continued: Continued<'_>, superseded: Vec<Arc<Segment>>) -> Result<()> {
        self.copy_unmarked(continued)?;
        let factory = self.factory();
        let header = header_of(&factory, first, continued.marked);
        let write = first.segment.file.write_at(&factory.first_block(&header), 0);
        write.map_err(|error| Error::io("write", &first.segment.path, &error.source))?;
        first.segment.file.sync_data().map_err(|error| Error::io("sync", &first.segment.path, &error))?;
        self.free_superseded(superseded, continued.marked)
    }

    /// Frees the segments that the copy supersedes. Their headers become those of unused segments.
    ///
    /// With their old headers, the next opening could not tell whether the header that supersedes them is on
    /// the disk, and would keep them. Each process that is killed before its first commit would take another
    /// segment of the disk (D7). The header that supersedes them must be durable first (D1).
    fn free_superseded(&self, superseded: Vec<Arc<Segment>>, marked: CommitSeq) -> Result<()> {
        superseded.iter().for_each(|segment| self.witness_in(segment, marked));
        if !superseded.is_empty() {
            self.sync().map_err(|failure| failure.0)?;
        }
        self.state().ready.extend(superseded);
        Ok(())
    }

    /// Copies and syncs what follows the newest durable frame. Commit times stay the same.
    fn copy_unmarked(&self, continued: Continued<'_>) -> Result<()> {
        let recovered = continued.recovered;
        let mut chain = Chain::start(&recovered.survey, &recovered.anchor.position)?;
        let mut copy = Copy {
            log: self,
            give_room: continued.give_room,
            durable: recovered.anchor.position.seq,
            begun: false,
            time_ns: 0,
            bytes: 0,
            records: Vec::new(),
        };
        chain.run(&Reading::IN_TURN, &mut |record, ()| match record.seq <= recovered.last_seq {
            true => copy.add(record),
            false => Ok(()),
        })?;
        copy.flush()?;
        if self.position().seq != recovered.last_seq {
            let message = format!("{}: the log changed while it was opened", self.dir.display());
            return Err(Error::new(Code::System, message));
        }
        self.sync().map_err(|failure| failure.0)?;
        Ok(())
    }
}

/// Groups being copied from the old tail to the fresh segment.
struct Copy<'a> {
    log: &'a Log,
    give_room: &'a dyn Fn(u64) -> Result<bool>,
    durable: CommitSeq,
    begun: bool,
    time_ns: u64,
    bytes: usize,
    records: Vec<Record>,
}

impl Copy<'_> {
    fn add(&mut self, replayed: ReplayedRecord) -> Result<()> {
        if replayed.commit_time_ns != self.time_ns || self.bytes + replayed.bytes.len() > COPY_BYTES_MAX {
            self.flush()?;
        }
        self.time_ns = replayed.commit_time_ns;
        self.bytes += replayed.bytes.len();
        let mut record = Record::new(replayed.bytes);
        record.seq = replayed.seq;
        record.derived = replayed.derived;
        self.records.push(record);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        if !self.begun {
            // A mark frame goes first. A group too long for the fresh segment would begin in the one after
            // it. That one's header would continue the old log at once, before its frames are synced.
            self.write(&[])?;
            self.begun = true;
        }
        let records = std::mem::take(&mut self.records);
        self.bytes = 0;
        self.write(&records)
    }

    fn write(&self, records: &[Record]) -> Result<()> {
        let group = Group { records, durable: self.durable, use_reserve: true };
        loop {
            match self.log.write_at_time(&group, self.time_ns, false) {
                Ok(_) => return Ok(()),
                // Nothing of this group was written.
                Err(LogWriteError::Full(_)) if (self.give_room)(self.log.geometry.segment_bytes_min)? => {}
                Err(error) => return Err(error.error().clone()),
            }
        }
    }
}

/// The state of a log that goes on after the newest durable frame, in a fresh segment, and the segments that
/// the copy of the rest supersedes.
fn state_after(
    factory: &SegmentFactory<'_>,
    continued: Continued<'_>,
    sorted: Sorted,
) -> (State, Vec<Arc<Segment>>) {
    let recovered = continued.recovered;
    let anchor = recovered.anchor;
    let newest = sorted.used.last().map_or(anchor.position.epoch, |used| used.epoch);
    invariant!(
        newest.max(anchor.position.epoch) < recovered.next_epoch,
        "epoch {} is later than {newest}",
        recovered.next_epoch
    );
    invariant!(
        anchor.position.seq <= recovered.last_seq,
        "the log goes on at commit {}, not after {}",
        anchor.position.seq,
        recovered.last_seq
    );
    let mut state = State::new(Head {
        segment: sorted.fresh,
        epoch: recovered.next_epoch,
        incarnation: draw(factory.disk),
        offset: factory.geometry.block_bytes as u64,
        last: anchor.position,
        commit_time_ns: anchor.commit_time_ns,
    });
    state.used.splice(0..0, sorted.used);
    state.ready = sorted.ready;
    state.unfinished = sorted.unfinished;
    state.slot_last = state.slot_last.max(sorted.slot_last);
    state.kept_from = continued.keep_from.epoch.min(recovered.from.epoch);
    let count = state.used.len() + state.ready.len() + state.unfinished.len() + sorted.superseded.len();
    invariant!(
        count as u64 == state.slot_last.0,
        "each of the {} segments of the log has one use, not {count}",
        state.slot_last.0
    );
    (state, sorted.superseded)
}

/// The files of the directory by their further use.
struct Sorted {
    fresh: Arc<Segment>,
    replayed: Vec<Arc<Segment>>,
    used: Vec<UsedSegment>,
    ready: VecDeque<Arc<Segment>>,
    /// Newer than the newest frame known durable: the copy takes their place once the header of the fresh
    /// segment is durable.
    superseded: Vec<Arc<Segment>>,
    unfinished: VecDeque<super::SegmentSlot>,
    slot_last: super::SegmentSlot,
}

/// The epochs of segments after the newest frame known durable that a segment header links to.
///
/// An interrupted copy leaves segments that no header links to, since the header of the segment before them
/// is written last. They are reused at once. Otherwise each interrupted opening would need as much room
/// again.
fn linked_beyond_anchor(recovered: &Recovered) -> BTreeSet<Epoch> {
    let anchor = recovered.anchor.position.epoch;
    let headers = recovered.survey.files.iter().filter_map(|file| match &file.content {
        Content::Used(header) if header.epoch > anchor => Some((header.epoch, header.previous.epoch)),
        _ => None,
    });
    let mut linked = BTreeSet::new();
    // A segment continues an older one.
    for (epoch, previous) in headers.collect::<BTreeMap<_, _>>() {
        if previous <= anchor || linked.contains(&previous) {
            linked.insert(epoch);
        }
    }
    linked
}

/// The error of an opening that finds no segment and no room for one.
fn without_room(error: Error, factory: &SegmentFactory<'_>) -> Error {
    if error.code() != Code::DiskFull {
        return error;
    }
    let bytes = factory.geometry.segment_bytes_min;
    let message = format!("{}; a file of the log needs {bytes} bytes", error.message());
    Error::new(Code::DiskFull, message).with_hint(
        "free that many bytes on the disk of the log, or move the files of the log to another disk and name that directory (`--wal DIR`, `DbOptions::wal_dir`)",
    )
}

fn sort_files(factory: &SegmentFactory<'_>, continued: Continued<'_>) -> Result<Sorted> {
    let Continued { recovered, keep_from, give_room, marked: _ } = continued;
    let needed_from = keep_from.epoch.min(recovered.from.epoch);
    let anchor = recovered.anchor.position.epoch;
    let linked = linked_beyond_anchor(recovered);
    let mut replayed = Vec::new();
    let mut used = Vec::new();
    let mut ready = VecDeque::new();
    let mut superseded = Vec::new();
    let mut outdated = Vec::new();
    let mut unfinished = VecDeque::new();
    for (file, &on_chain) in recovered.survey.files.iter().zip(&recovered.on_chain) {
        match &file.content {
            Content::Headless(_) | Content::Misfit { .. } => unfinished.push_back(file.slot),
            Content::Unused { .. } => ready.push_back(factory.open(file.slot, file.bytes)?),
            // Newer than the newest durable frame. Off the chain, the segment that replaced it may have a
            // header that never reached the disk; after a power cut this one would be the log (D1).
            Content::Used(header)
                if header.epoch > anchor && (on_chain || linked.contains(&header.epoch)) =>
            {
                let segment = factory.open(file.slot, file.bytes)?;
                if on_chain {
                    replayed.push(Arc::clone(&segment));
                }
                superseded.push(segment);
            }
            // Newer than the start and not on the chain: left over from a crash. No superblock needs it.
            Content::Used(header) if !on_chain && header.epoch > recovered.from.epoch => {
                ready.push_back(factory.open(file.slot, file.bytes)?);
            }
            Content::Used(header) if header.epoch < needed_from => {
                outdated.push(factory.open(file.slot, file.bytes)?);
            }
            // Older than the start: the older superblock may need it.
            Content::Used(header) => {
                let segment = factory.open(file.slot, file.bytes)?;
                if on_chain {
                    replayed.push(Arc::clone(&segment));
                }
                used.push(UsedSegment { epoch: header.epoch, segment });
            }
        }
    }
    used.sort_by_key(|used| used.epoch);
    ready.extend(outdated);
    let mut slot_last = recovered.survey.files.last().map_or(super::SegmentSlot(0), |file| file.slot);
    let fresh = match ready.pop_front() {
        Some(segment) => segment,
        None => {
            let slot = unfinished.pop_front().unwrap_or(super::SegmentSlot(slot_last.0 + 1));
            slot_last = slot_last.max(slot);
            let order = super::state::spare_order(slot, &factory.geometry);
            match factory.make(order) {
                Err(error)
                    if error.code() == Code::DiskFull && give_room(factory.geometry.segment_bytes_min)? =>
                {
                    factory.make(order)?
                }
                made => made.map_err(|error| without_room(error, factory))?,
            }
        }
    };
    Ok(Sorted { fresh, replayed, used, ready, superseded, unfinished, slot_last })
}
