//! Full disks: entries that a node cannot write are refused before consensus hears of them. It would end with
//! an append that fails.
//!
//! A follower without room takes no entries, and goes on with heartbeats and votes. Its answers say how much
//! room it has. The leader orders what takes room only while a majority of the voters has some; what frees
//! room has a segment of the log that is kept for it. A leader whose own disk is full lets a node with room
//! lead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use duramen_disk::Disk;
use duramen_engine::{Code, Entry, Error, RaftLog, Replica, Result};
use openraft::ServerState;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::retain::free_bytes;
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;

/// A disk with less than this is soon full.
const LOW_BYTES: u64 = 32 << 20;
/// A leader looks this often whether it should let another node lead.
const LOOK: Duration = Duration::from_millis(500);
/// After this time it tries again.
const AGAIN: Duration = Duration::from_secs(3);

/// How much a node can still write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    #[default]
    Enough,
    /// Soon nothing that takes room.
    Low,
    /// Nothing that takes room.
    Full,
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
    others: Mutex<BTreeMap<u64, Space>>,
    /// This node, and the voters: while they change, those before and after.
    voters: Mutex<(u64, Vec<BTreeSet<u64>>)>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Rooms {
        let (others, voters) = Default::default();
        Rooms { log: OnceLock::new(), disk, path, applying_waits: AtomicBool::new(false), others, voters }
    }

    /// The log of the node.
    pub(crate) fn of_log(&self, log: &Arc<RaftLog>) {
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
        if is_full || self.applying_waits.load(Ordering::Relaxed) {
            return Space::Full;
        }
        // What is not known does not count.
        let is_low = free_bytes(&*self.disk, &self.path).is_ok_and(|free| free < LOW_BYTES);
        if is_low { Space::Low } else { Space::Enough }
    }

    /// What another node has said of itself.
    pub(crate) fn tells(&self, node: u64, space: Space) {
        locked(&self.others).insert(node, space);
    }

    fn of(&self, node: u64) -> Space {
        locked(&self.others).get(&node).copied().unwrap_or_default()
    }

    /// Whether another node has last said that it takes nothing that needs room.
    pub(crate) fn is_full(&self, other: u64) -> bool {
        self.of(other) == Space::Full
    }

    /// Whether this one takes nothing that needs room.
    pub(crate) fn own_is_full(&self) -> bool {
        self.own() == Space::Full
    }

    /// Whether a majority of the voters can write what takes room.
    fn has_majority(&self) -> bool {
        let (own, voters) = locked(&self.voters).clone();
        let can_write = |voter: &u64| {
            if *voter == own { self.own() < Space::Full } else { self.of(*voter) < Space::Full }
        };
        voters.iter().all(|of| of.iter().filter(|voter| can_write(voter)).count() > of.len() / 2)
    }

    /// As [`duramen_engine::Proposer::make_room`].
    pub(crate) fn make_room(&self, entries: &[Entry], frees: bool) -> Result<()> {
        let Some(log) = self.log() else { return Ok(()) };
        let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
        // They are proposed at once, and nothing else is.
        drop(log.hold_room(entries.len(), bytes, frees)?);
        if frees || self.has_majority() {
            return Ok(());
        }
        let what = "a majority of the cluster's nodes has no room on their disks";
        Err(Error::new(Code::DiskFull, what)
            .with_hint("make room there: `duramen cluster status` shows which; deletes still pass"))
    }

    /// Holds room for entries of the leader.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn hold<R: Runtime>(
        &self,
        node: u64,
        entries: usize,
        bytes: usize,
    ) -> std::result::Result<duramen_engine::Room, String> {
        let log = self.log().ok_or("the node has stopped")?;
        // Whether they free room only the leader knows: it sends what takes room while there is some.
        if let Some(room) = log.has_room(entries, bytes, true) {
            return Ok(room);
        }
        let made = R::run_blocking(move || log.hold_room(entries, bytes, true)).await;
        let made = made.map_err(|error| error.to_string())?;
        made.map_err(|error| {
            format!("node {node} has no room for {bytes} bytes of entries: {}", error.message())
        })
    }

    /// Lets another node lead while the disk of this one is full, as long as the node runs.
    pub(crate) async fn give_way<R: Runtime>(
        self: Arc<Self>,
        raft: openraft::Raft<Types<R>, State>,
        replica: Weak<Replica>,
    ) {
        let mut refusals = 0;
        loop {
            Types::<R>::sleep(LOOK).await;
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
            if now.state != ServerState::Leader || !(has_refused || self.own_is_full()) {
                continue;
            }
            let last = now.last_log_index;
            let lags = |node: u64| {
                let matched = now.replication.as_ref().and_then(|all| all.get(&node).copied().flatten());
                matched.map(|matched| matched.index) < last
            };
            let mut others = now.membership_config.voter_ids().filter(|voter| *voter != now.id);
            let Some(to) = others.find(|voter| self.of(*voter) == Space::Enough && !lags(*voter)) else {
                continue;
            };
            if raft.trigger().transfer_leader(to).await.is_err() {
                return;
            }
            Types::<R>::sleep(AGAIN).await;
        }
    }
}
