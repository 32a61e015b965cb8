//! Opens a recovered log for writing: in a fresh segment, under a new epoch and a new incarnation.
//!
//! D1 and D6 rest here. What the log itself does not call durable may be in the kernel's cache only, and after an
//! I/O error may even be marked clean there without being on the disk; so those groups are not trusted where
//! they stand. They are copied to fresh blocks, as frames that follow the newest frame known durable, and synced;
//! only then the segment's header is written, and synced, that makes the copy the log. Until then recovery finds
//! the old tail, afterwards the copy, because a segment that continues a frame goes before what follows it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, SyncMethod};

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord};
use super::log::Log;
use super::recover::Recovered;
use super::segment::Segment;
use super::spare::{Workshop, check_geometry};
use super::state::{Head, State, UsedSegment};
use super::survey::Content;
use super::writing::{draw, header_of};
use super::{Group, LogIdentity, LogPosition, LogWriteError, Record};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, Epoch};
use crate::options::Geometry;

/// Records of one group are collected up to this many bytes before they are copied.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// What a log is continued with.
#[derive(Clone, Copy)]
pub struct Continued<'a> {
    /// The log as it was found.
    pub recovered: &'a Recovered,
    /// The log before this frame is needed by neither superblock: its segments are used again, as [`Log::recycle`] lets them
    /// be. A process that is killed again and again would take another one of the disk each time (D7).
    pub keep_from: LogPosition,
    /// Gives so many bytes back to a full disk, if it can: there may be no room for another segment (D7). Asked for each segment
    /// that is refused: a copy that was given up would be begun again by the next opening, which has no more room than this one.
    pub give_room: &'a dyn Fn(u64) -> Result<bool>,
}

impl Log {
    /// Continues a log where [`recover`](super::recover) ended. Afterwards all that was recovered is durable.
    ///
    /// Costs a sync a replayed segment, a copy of the groups not known durable, and two syncs.
    ///
    /// # Errors
    /// `DiskFull` if no segment can be prepared; what the system said. The log on disk is as recoverable as before.
    pub fn reopen(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        identity: LogIdentity,
        geometry: Geometry,
        sync: SyncMethod,
        continued: Continued<'_>,
    ) -> Result<Log> {
        let recovered = continued.recovered;
        check_geometry(&geometry, sync)?;
        let workshop = Workshop { disk: &**disk, dir, identity, geometry, sync };
        // A run killed while it made a segment may have left one whose name only the kernel's cache holds (D1).
        disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))?;
        let sorted = sort_files(&workshop, continued)?;
        for segment in &sorted.replayed {
            segment.file.sync_data().map_err(|error| Error::io("sync", &segment.path, &error))?;
        }
        let first = Head {
            segment: Arc::clone(&sorted.fresh),
            epoch: recovered.next_epoch,
            incarnation: draw(&**disk),
            offset: geometry.block_bytes as u64,
            last: recovered.anchor.position,
            commit_time_ns: recovered.anchor.commit_time_ns,
        };
        let mut state = State::new(first.clone());
        state.used.splice(0..0, sorted.used);
        state.ready = sorted.ready;
        state.unfinished = sorted.unfinished;
        state.slot_last = state.slot_last.max(sorted.slot_last);
        let log = Log::assemble(disk, &workshop, state);
        log.copy_unmarked(continued)?;

        let header = header_of(&workshop, &first, recovered.last_seq);
        let write = first.segment.file.write_at(&workshop.first_block(&header), 0);
        write.map_err(|error| Error::io("write", &first.segment.path, &error.source))?;
        first.segment.file.sync_data().map_err(|error| Error::io("sync", &first.segment.path, &error))?;
        log.state().ready.extend(sorted.superseded);
        Ok(log)
    }

    /// Writes again, and syncs, what follows the newest frame known durable. Commit times stay.
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
        chain.run(&Reading::IN_TURN, &mut |record, ()| copy.add(record))?;
        copy.flush()?;
        if self.position().seq != recovered.last_seq {
            let message = format!("{}: the log changed while it was opened", self.dir.display());
            return Err(Error::new(Code::System, message));
        }
        self.sync().map_err(|failure| failure.0)?;
        Ok(())
    }
}

/// Groups on their way from the old tail to the fresh segment.
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
            // A mark goes first: a group too long for the fresh segment would begin in the one after it, and that
            // one's header would continue the old log at once, before its frames are synced.
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

/// The files of the directory by what becomes of them.
struct Sorted {
    fresh: Arc<Segment>,
    replayed: Vec<Arc<Segment>>,
    used: Vec<UsedSegment>,
    ready: VecDeque<Arc<Segment>>,
    /// To be used again once the header of the fresh segment is durable.
    superseded: Vec<Arc<Segment>>,
    unfinished: VecDeque<super::SegmentSlot>,
    slot_last: super::SegmentSlot,
}

/// The epochs of segments behind the newest frame known durable that headers lead to, whichever of these are durable. A copy that was
/// interrupted leaves segments without one: the header of the segment before them is written last. They are used again at once, or each
/// interrupted opening would need as much room once more.
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

fn sort_files(workshop: &Workshop<'_>, continued: Continued<'_>) -> Result<Sorted> {
    let Continued { recovered, keep_from, give_room } = continued;
    let needed_from = keep_from.epoch.min(recovered.from.epoch);
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
            Content::Unused { .. } => ready.push_back(workshop.open(file.slot, file.bytes)?),
            // Newer than the newest frame known durable and not on the chain: the segment that leads elsewhere may be one whose
            // header never reached the disk. Then this one is what a power cut leaves (D1).
            Content::Used(header) if !on_chain && linked.contains(&header.epoch) => {
                superseded.push(workshop.open(file.slot, file.bytes)?);
            }
            // Newer than the start and not on the chain: left over from a crash, and of no use to any superblock.
            Content::Used(header) if !on_chain && header.epoch > recovered.from.epoch => {
                ready.push_back(workshop.open(file.slot, file.bytes)?);
            }
            Content::Used(header) if header.epoch < needed_from => {
                outdated.push(workshop.open(file.slot, file.bytes)?);
            }
            // Older than the start: the older superblock may need it.
            Content::Used(header) => {
                let segment = workshop.open(file.slot, file.bytes)?;
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
            let order = super::state::spare_order(slot, &workshop.geometry);
            match workshop.make(order) {
                Err(error)
                    if error.code() == Code::DiskFull && give_room(workshop.geometry.segment_bytes_min)? =>
                {
                    workshop.make(order)?
                }
                made => made?,
            }
        }
    };
    Ok(Sorted { fresh, replayed, used, ready, superseded, unfinished, slot_last })
}
