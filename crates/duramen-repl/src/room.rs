//! Full disks: entries that a node cannot write are refused before consensus hears of them. It would end with
//! an append that fails.
//!
//! A follower without room takes no entries, and goes on with heartbeats and votes. Its answers say how much
//! room it has. The leader orders what takes room only while a majority of the voters has some; what frees
//! room has a segment of the log that is kept for it. A leader whose own disk is full lets a node with room
//! lead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use duramen_disk::Disk;
use duramen_engine::{
    Code, CommitSeq, EntriesFor, Entry, EntryId, Error, LogEnd, RaftLog, Replica, Result, Room,
};
use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::node::GONE_AFTER;
use crate::retain::free_bytes;
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;
use crate::wire::{Append, Lacking};

/// A disk with less than this is soon full.
const LOW_BYTES: u64 = 32 << 20;
/// A group of less bytes has room wherever a segment is kept for deletes.
const SMALL_BYTES: usize = 64 << 10;
/// A leader looks this often whether it should let another node lead.
const LOOK: Duration = Duration::from_millis(500);
/// It tries again after so many looks.
const AGAIN_LOOKS: u32 = 6;

/// How much a node can still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    /// Nothing that takes room.
    pub(crate) is_full: bool,
    /// What is free on its disk.
    pub(crate) free_bytes: u64,
}

impl Space {
    fn takes(self, bytes: usize) -> bool {
        // Groups may leave the rest of a segment, and the database writes what the log has written.
        !self.is_full && (bytes <= SMALL_BYTES || self.free_bytes / 4 >= bytes as u64)
    }
}

/// What a node knows of the room on its disk, and of that on the disks of others.
#[derive(Debug)]
pub(crate) struct Rooms {
    /// Once it is open.
    log: OnceLock<Weak<RaftLog>>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Entries that are decided wait until the database has room for them.
    applying_waits: AtomicBool,
    /// What was free on the disk at the last look.
    free_bytes: AtomicU64,
    /// What others have said, and when, by the disk's monotonic clock.
    others: Mutex<BTreeMap<u64, (Space, u64)>>,
    /// This node, and the voters: while they change, those before and after.
    voters: Mutex<(u64, Vec<BTreeSet<u64>>)>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Rooms {
        let (log, applying_waits, others, voters) = Default::default();
        // What is not known does not count.
        Rooms { log, disk, path, applying_waits, free_bytes: AtomicU64::new(u64::MAX), others, voters }
    }

    /// The log of the node is open.
    pub(crate) fn set_log(&self, log: &Arc<RaftLog>) {
        self.log.get_or_init(|| Arc::downgrade(log));
    }

    fn log(&self) -> Option<Arc<RaftLog>> {
        self.log.get()?.upgrade()
    }

    /// Decided entries wait for room, or do not any more.
    pub(crate) fn applying_waits(&self, waits: bool) {
        self.applying_waits.store(waits, Ordering::Relaxed);
    }

    /// How much this node can still write.
    pub(crate) fn own(&self) -> Space {
        let is_full = self.log().is_some_and(|log| log.is_full());
        let is_full = is_full || self.applying_waits.load(Ordering::Relaxed);
        Space { is_full, free_bytes: self.free_bytes.load(Ordering::Relaxed) }
    }

    /// What another node has just said of itself.
    pub(crate) fn tells(&self, node: u64, space: Space) {
        locked(&self.others).insert(node, (space, self.disk.monotonic_ns()));
    }

    /// What another node has said of itself a moment ago.
    fn told_by(&self, node: u64) -> Option<Space> {
        let (space, at_ns) = *locked(&self.others).get(&node)?;
        let ago = Duration::from_nanos(self.disk.monotonic_ns().saturating_sub(at_ns));
        (ago < GONE_AFTER).then_some(space)
    }

    /// Whether another node has just said that it takes nothing that needs room.
    pub(crate) fn is_full(&self, other: u64) -> bool {
        self.told_by(other).is_some_and(|space| space.is_full)
    }

    /// Whether this one takes nothing that needs room.
    pub(crate) fn own_is_full(&self) -> bool {
        self.own().is_full
    }

    /// Fails unless a majority of the voters has just said that it can write what takes so much room.
    fn ask_majority(&self, bytes: usize) -> Result<()> {
        let known = locked(&self.voters);
        let (own, voters) = &*known;
        let space = |voter: &u64| if voter == own { Some(self.own()) } else { self.told_by(*voter) };
        for of in voters {
            let told: Vec<Option<Space>> = of.iter().map(space).collect();
            let takes = told.iter().flatten().filter(|space| space.takes(bytes)).count();
            let unknown = told.iter().filter(|space| space.is_none()).count();
            if takes > of.len() / 2 {
                continue;
            }
            if takes + unknown > of.len() / 2 {
                // A node that was suspended has heard of none for a while.
                let what = "no majority has said of late how much room it has";
                return Err(Error::new(Code::NoQuorum, what)
                    .with_hint("nothing was changed: look at `duramen cluster status`, and try again"));
            }
            let what = "no majority of the cluster's nodes has room for it on their disks";
            return Err(Error::new(Code::DiskFull, what)
                .with_hint("make room there: `duramen cluster status` shows where; small deletes pass"));
        }
        Ok(())
    }

    /// As [`duramen_engine::Proposer::make_room`].
    pub(crate) fn make_room(&self, entries: &[Entry], frees: bool) -> Result<()> {
        let Some(log) = self.log() else { return Ok(()) };
        let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
        let wanted = if frees { EntriesFor::Deletes } else { EntriesFor::Puts };
        // They are proposed at once, and nothing else is.
        drop(log.hold_room(entries.len(), bytes, wanted)?);
        if frees && bytes <= SMALL_BYTES { Ok(()) } else { self.ask_majority(bytes) }
    }

    /// Whether the log has this entry for sure. A leader that got no answer sends it again, and it needs no
    /// room then.
    pub(crate) fn has(&self, id: EntryId) -> bool {
        let Some(log) = self.log() else { return false };
        let end = log.end().id;
        let is_there = || log.is_in_memory(id.seq) && log.end_after(id.seq).is_ok_and(|there| there.id == id);
        id == end || id.seq < end.seq && is_there()
    }

    /// Holds room for what the log lacks of entries of the leader, and for the cut before them if it has
    /// other ones in their place.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn hold<R: Runtime>(
        &self,
        node: u64,
        append: &Append,
    ) -> std::result::Result<Option<Room>, String> {
        let log = self.log().ok_or("the node has stopped")?;
        let Some(lacking) = append.lacking(|id| self.has(id)) else { return Ok(None) };
        let Lacking { first, entries, bytes } = lacking;
        let may_cut = first.seq <= log.end().id.seq;
        if entries == 0 && !may_cut {
            return Ok(None);
        }
        // Whether others free room only the leader knows: it sends what takes room while there is some.
        let wanted = if append.are_of_consensus() { EntriesFor::Consensus } else { EntriesFor::Deletes };
        if !may_cut && let Some(room) = log.has_room(entries, bytes, wanted) {
            return Ok(Some(room));
        }
        let hold = move || {
            // What is purged is the same everywhere.
            let is_other = |there: LogEnd| there.id != first;
            let cuts =
                may_cut && first.seq > log.purged().id.seq && log.end_after(first.seq).is_ok_and(is_other);
            match cuts {
                true => log.hold_room_to_cut(CommitSeq(first.seq.0 - 1), entries, bytes).map(Some),
                false if entries == 0 => Ok(None),
                false => log.hold_room(entries, bytes, wanted).map(Some),
            }
        };
        let held = R::run_blocking(hold).await.map_err(|error| error.to_string())?;
        held.map_err(|error| {
            let what = format!("node {node} has no room for {bytes} bytes of entries and what they replace");
            format!("{what}: {}", error.message())
        })
    }

    /// Lets another node lead while the disk of this one is full, as long as the node runs.
    pub(crate) async fn give_way<R: Runtime>(
        self: Arc<Self>,
        raft: openraft::Raft<Types<R>, State>,
        replica: Weak<Replica>,
    ) {
        let (mut refusals, mut looks) = (0, AGAIN_LOOKS);
        loop {
            let rooms = Arc::clone(&self);
            if R::run_blocking(move || rooms.look()).await.is_err() {
                return;
            }
            let now = raft.metrics().borrow_watched().clone();
            if now.running_state.is_err() {
                return;
            }
            let voters = now.membership_config.membership().get_joint_config().clone();
            *locked(&self.voters) = (now.id, voters);
            let Some(Ok(found)) = replica.upgrade().map(|replica| replica.refusals_for_room()) else {
                return;
            };
            let has_refused = found > std::mem::replace(&mut refusals, found);
            let own = self.own();
            let is_short = own.is_full || has_refused && own.free_bytes < LOW_BYTES;
            looks += 1;
            if is_short
                && looks > AGAIN_LOOKS
                && let Some(to) = self.successor(&now)
            {
                looks = 0;
                if raft.trigger().transfer_leader(to).await.is_err() {
                    return;
                }
            }
            Types::<R>::sleep(LOOK).await;
        }
    }

    /// Looks what is free on the disk.
    fn look(&self) {
        let free = free_bytes(&*self.disk, &self.path).unwrap_or(u64::MAX);
        self.free_bytes.store(free, Ordering::Relaxed);
    }

    /// A node that can lead in the place of this one: it votes, has everything, and has room.
    fn successor<R: Runtime>(&self, now: &RaftMetrics<Types<R>>) -> Option<u64> {
        if now.state != ServerState::Leader {
            return None;
        }
        let has_all = |node: u64| {
            let matched = now.replication.as_ref().and_then(|all| all.get(&node).copied().flatten());
            matched.map(|matched| matched.index) >= now.last_log_index
        };
        let has_room = |node: u64| {
            self.told_by(node).is_some_and(|space| !space.is_full && space.free_bytes >= LOW_BYTES)
        };
        let mut others = now.membership_config.voter_ids().filter(|voter| *voter != now.id);
        others.find(|voter| has_room(*voter) && has_all(*voter))
    }
}
