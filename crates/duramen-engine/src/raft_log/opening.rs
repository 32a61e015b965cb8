//! Creates and opens Raft's log.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, RwLock};

use duramen_disk::{Disk, SyncMethod};

use super::entry::{EntryId, LogEnd, decode};
use super::incarnation::{INCARNATIONS, Incarnations};
use super::queue::Queue;
use super::start::{Ident, Start, Vote};
use super::twin::Twin;
use super::view::{PLACE_PART, View};
use super::writer::{Writer, Writing};
use super::{Inner, RaftLog, bad_entry};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, DatabaseId, LogId};
use crate::options::{Background, Geometry};
use crate::threads::Threads;
use crate::wal::{Continued, Log, LogIdentity, Reading, Recovered, ReplayedRecord, draw, missing, recover};

const START: &str = "start";
const VOTE: &str = "vote";

/// Where Raft's log lies, and how it is written. The caller holds the lock of the database.
#[derive(Debug, Clone)]
pub(crate) struct RaftPlace {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) database: DatabaseId,
    pub(crate) geometry: Geometry,
    pub(crate) sync: SyncMethod,
    pub(crate) background: Background,
    /// Keeps other processes out as long as the log is open.
    pub(crate) held: Arc<dyn Any + Send + Sync>,
}

/// What an opening found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Which node it is, and of which cluster.
    pub ident: Ident,
    /// The last entry that is purged.
    pub purged: LogEnd,
    /// The newest entry that the log knows to be decided. Later ones may be decided, too.
    pub decided: CommitSeq,
    /// The last entry.
    pub last: EntryId,
    /// The vote; `None` if the node has not voted yet.
    pub vote: Option<Vote>,
    /// Pieces of an unfinished write lie after the end: the last run ended in a crash.
    pub torn: bool,
}

/// The files `start` and `vote`, and the identity of the log.
struct Twins {
    start: (Twin, Start),
    vote: (Twin, Option<Vote>),
    identity: LogIdentity,
}

impl RaftPlace {
    /// The identity under which `start` is read: it names the log.
    fn unnamed(&self) -> LogIdentity {
        LogIdentity { database: self.database, log: LogId(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether a log was created here.
    ///
    /// # Errors
    /// `System` (E1001).
    pub(crate) fn is_there(&self) -> Result<bool> {
        is_there(&*self.disk, &self.path(START))
    }

    /// Creates an empty log of a node that goes on after `purged`, and has voted so. All is durable but the
    /// directory's own name; a creation that was cut short is begun anew.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is a log with entries; `DiskFull` (E0301); `System` (E1001).
    pub(crate) fn create(&self, ident: Ident, vote: Option<Vote>, purged: LogEnd) -> Result<()> {
        let disk = &*self.disk;
        let identity = LogIdentity { database: self.database, log: LogId(draw(disk)) };
        for name in [VOTE, "start.new", INCARNATIONS, "incarnations.new"] {
            remove_if_there(disk, &self.path(name))?;
        }
        let seq = purged.id.seq;
        let (log, place) = Log::create(&self.disk, &self.dir, identity, self.geometry, self.sync, seq)?;
        drop(log);
        let vote = vote.map_or_else(|| Vote::NONE.to_vec(), |vote| vote.encode().to_vec());
        Twin::create(disk, &self.path(VOTE), identity, &vote)?;
        let start = Start { log: identity.log, ident, purged, place };
        let (fresh, named) = (self.path("start.new"), self.path(START));
        Twin::create(disk, &fresh, self.unnamed(), &start.encode())?;
        // Everything else has a durable name before this one: with it, the log is there.
        self.sync_names()?;
        disk.rename(&fresh, &named).map_err(|error| Error::io("rename", &fresh, &error))?;
        self.sync_names()
    }

    fn sync_names(&self) -> Result<()> {
        self.disk.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, &error))
    }

    fn twins(&self) -> Result<Twins> {
        if !self.is_there()? {
            return Err(missing(&self.path(START), "Raft's log"));
        }
        let (start_twin, start) = Twin::open(&*self.disk, &self.path(START), self.unnamed())?;
        let start = Start::decode(&start).ok_or_else(|| no_content(&self.path(START)))?;
        let identity = LogIdentity { database: self.database, log: start.log };
        if !is_there(&*self.disk, &self.path(VOTE))? {
            return Err(missing(&self.path(VOTE), "the vote of this node"));
        }
        let (vote_twin, vote) = Twin::open(&*self.disk, &self.path(VOTE), identity)?;
        let vote = Vote::decode(&vote).ok_or_else(|| no_content(&self.path(VOTE)))?;
        Ok(Twins { start: (start_twin, start), vote: (vote_twin, vote), identity })
    }

    /// Which node it is and its vote, if its log does not have an entry, which is decided. The log stays as
    /// it is.
    ///
    /// # Errors
    /// As [`RaftPlace::open`].
    pub(crate) fn lacks(&self, decided: LogEnd) -> Result<Option<(Ident, Option<Vote>)>> {
        let Twins { start: (_, start), vote: (_, vote), identity } = self.twins()?;
        let mut has_it = decided.id.seq <= start.purged.id.seq;
        self.replay(identity, &start, &mut |end| has_it |= end == decided)?;
        Ok((!has_it).then_some((start.ident, vote)))
    }

    /// Opens the log.
    ///
    /// # Errors
    /// `LogMissing` (E0503), `CorruptLog` (E0502): the log or the vote is gone or damaged. The node may have
    /// forgotten something then. `DiskFull` (E0301); `System` (E1001).
    pub(crate) fn open(&self) -> Result<(RaftLog, Found)> {
        let Twins { start: (start_twin, start), vote: (vote_twin, vote), identity } = self.twins()?;
        let (recovered, end) = self.replay(identity, &start, &mut |_| ())?;
        let decided = recovered.marked_seq.max(start.purged.id.seq);
        let continued = Continued {
            recovered: &recovered,
            keep_from: start.place,
            marked: decided,
            give_room: &|_| Ok(false),
        };
        let log = Log::reopen(&self.disk, &self.dir, identity, self.geometry, self.sync, continued)?;
        let Start { ident, purged, .. } = start;
        let incarnations = Incarnations::open(&*self.disk, &self.dir, ident)?;
        let found = Found { ident, purged, decided, last: end.id, vote, torn: recovered.torn };
        let writer = Writer {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            identity,
            geometry: self.geometry,
            writing: Mutex::new(Writing {
                start: (start_twin, start),
                vote: vote_twin,
                marked: decided,
                written_at_ns: log.now_ns(),
                bytes_since_place: 0,
            }),
            log,
            layout: RwLock::default(),
        };
        let view = Mutex::new(View::new(
            start.purged,
            end,
            decided,
            start.place,
            self.geometry.segment_bytes_min / PLACE_PART,
        ));
        let inner = Arc::new(Inner {
            view,
            queue: Queue::default(),
            writer,
            incarnations,
            promised: AtomicUsize::new(0),
        });
        let threads = self.start_threads(&inner)?;
        Ok((RaftLog { inner, threads: Mutex::new(threads), _held: Arc::clone(&self.held) }, found))
    }

    /// Reads the whole log, checks that its entries follow one another, and tells each.
    fn replay(
        &self,
        identity: LogIdentity,
        start: &Start,
        told: &mut dyn FnMut(LogEnd),
    ) -> Result<(Recovered, LogEnd)> {
        let mut end = LogEnd { id: EntryId { seq: start.place.seq, ..start.purged.id }, ..start.purged };
        let purged = start.purged.id.seq;
        let mut visit = |record: ReplayedRecord, ()| {
            let seq = record.seq;
            let (stored, before) = decode(seq, &record.bytes).map_err(|what| bad_entry(seq, what))?;
            // The entries before it are purged: what they follow is not known.
            if seq > purged && (before != end.chain || stored.entry.id.term < end.id.term) {
                return Err(bad_entry(seq, "it does not follow the entry before it"));
            }
            end = stored.end();
            if seq == purged && end != start.purged {
                return Err(bad_entry(seq, "it is not the entry that was purged"));
            }
            told(end);
            Ok(())
        };
        let recovered = recover(
            &*self.disk,
            &self.dir,
            identity,
            &self.geometry,
            &start.place,
            &Reading::IN_TURN,
            &mut visit,
        )?;
        if recovered.last_seq < purged {
            let message = format!(
                "{}: Raft's log ends with entry {}, and knows of {purged}",
                self.dir.display(),
                recovered.last_seq
            );
            return Err(Error::new(Code::LogMissing, message));
        }
        Ok((recovered, end))
    }

    fn start_threads(&self, inner: &Arc<Inner>) -> Result<Option<Threads>> {
        if self.background == Background::Stepped {
            inner.writer.log.hurry();
            return Ok(None);
        }
        let mut threads = Threads::new();
        let (of_log, of_spares) = (Arc::clone(inner), Arc::clone(inner));
        let gave_up = |inner: &Arc<Inner>| {
            let inner = Arc::clone(inner);
            move |error: Error| inner.queue.fail(&error)
        };
        threads.start(
            "duramen-raft",
            move || {
                while of_log.queue.wait() {
                    of_log.step();
                }
            },
            gave_up(inner),
        )?;
        threads.start("duramen-raft-spare", move || of_spares.writer.make_spare(), gave_up(inner))?;
        Ok(Some(threads))
    }
}

pub(super) fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    Ok(disk.kind(path).map_err(|error| Error::io("look at", path, &error))?.is_some())
}

/// Removes a file that an earlier call has left.
pub(super) fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    if is_there(disk, path)? {
        disk.remove(path).map_err(|error| Error::io("remove", path, &error))?;
    }
    Ok(())
}

pub(super) fn no_content(path: &Path) -> Error {
    Error::corrupt_log(path, 0, "the file is whole, and its content is of another kind")
}
