//! The database, as consensus sees it: what is decided is applied, in order.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use duramen_engine::{Code, Entry, LogEnd, Replica};
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, RaftSnapshotBuilder};

use crate::members;
use crate::room::Rooms;
use crate::runtime::Runtime;
use crate::synced::Synced;
use crate::types::{Id, StoredMembership, Types, id_of};

/// A full disk is looked at this often.
const FULL_DISK_LOOK: Duration = Duration::from_millis(200);

/// Entries that are applied at once.
const APPLIED_MAX: usize = 1024;

/// The state of a node.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Consensus ends some time after its node, and does not keep its database open.
    replica: Weak<Replica>,
    synced: Synced,
    rooms: Arc<Rooms>,
}

/// Names the state after an entry. It has no content: a node that needs the state fetches it from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateAt {
    pub(crate) end: LogEnd,
}

impl State {
    pub(crate) fn new(replica: &Arc<Replica>, synced: Synced, rooms: Arc<Rooms>) -> State {
        State { replica: Arc::downgrade(replica), synced, rooms }
    }

    fn replica(&self) -> io::Result<Arc<Replica>> {
        self.replica.upgrade().ok_or_else(|| io::Error::other("the node has stopped"))
    }

    async fn apply_group<R: Runtime>(&self, group: Vec<EntryResponder<Types<R>>>) -> io::Result<()> {
        let mut before_ns = self.replica()?.end().map_err(io::Error::other)?.time_ns;
        let (mut entries, mut responders) = (Vec::with_capacity(group.len()), Vec::new());
        for (entry, responder) in group {
            let entry: Entry = entry.into_stored(before_ns);
            before_ns = entry.time_ns;
            entries.push(entry);
            responders.extend(responder);
        }
        let Some(last) = entries.last() else { return Ok(()) };
        // Consensus applies what a majority has synced, of which this node may be none: after a power cut its
        // database would be ahead of Raft's log.
        self.synced.wait(last.id.seq).await?;
        self.apply_when_there_is_room::<R>(Arc::from(entries)).await?;
        responders.into_iter().for_each(|responder| responder.send(()));
        Ok(())
    }

    /// Applies entries. On a full disk they wait: they are decided, and consensus would end without them.
    async fn apply_when_there_is_room<R: Runtime>(&self, entries: Arc<[Entry]>) -> io::Result<()> {
        loop {
            let (replica, entries) = (self.replica()?, Arc::clone(&entries));
            let apply = move || {
                let end = replica.end()?;
                let left = entries.iter().position(|entry| entry.id.seq > end.id.seq);
                left.map_or(Ok(()), |left| replica.apply(&entries[left..]))
            };
            match R::run_blocking(apply).await? {
                Err(error) if error.code() == Code::DiskFull => self.rooms.applying_waits(true),
                applied => {
                    self.rooms.applying_waits(false);
                    return applied.map_err(io::Error::other);
                }
            }
            R::sleep(FULL_DISK_LOOK).await;
        }
    }

    fn meta<R: Runtime>(&self) -> io::Result<(LogEnd, SnapshotMetaOf<Types<R>>)> {
        let replica = self.replica()?;
        let (end, named, bytes) = loop {
            let end = replica.end().map_err(io::Error::other)?;
            let (named, bytes) = replica.members().map_err(io::Error::other)?;
            // Otherwise they were named after that end.
            if named.seq <= end.id.seq {
                break (end, named, bytes);
            }
        };
        let last_membership = if bytes.is_empty() {
            StoredMembership::default()
        } else {
            let membership = members::decode(&bytes).map_err(io::Error::other)?;
            StoredMembership::new(Some(id_of(named)), membership)
        };
        Ok((end, SnapshotMeta { last_log_id: Some(id_of(end.id)), last_membership }))
    }

    async fn snapshot<R: Runtime>(&self) -> io::Result<SnapshotOf<Types<R>, StateAt>> {
        let state = self.clone();
        // It reads a row of the database.
        let (end, meta) = R::run_blocking(move || state.meta::<R>()).await??;
        Ok(Snapshot { meta, snapshot: StateAt { end } })
    }
}

impl<R: Runtime> RaftStateMachine<Types<R>> for State {
    type SnapshotData = StateAt;
    type SnapshotBuilder = State;

    async fn applied_state(&mut self) -> io::Result<(Option<Id>, StoredMembership)> {
        let meta = self.meta::<R>()?.1;
        Ok((meta.last_log_id, meta.last_membership))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types<R>>>> + Unpin + OptionalSend,
    {
        let mut groups = entries.ready_chunks(APPLIED_MAX);
        while let Some(group) = groups.next().await {
            self.apply_group::<R>(group.into_iter().collect::<io::Result<_>>()?).await?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> State {
        self.clone()
    }

    /// Never: a node that needs the state of a peer fetches it, and starts anew with it.
    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types<R>>, _: StateAt) -> io::Result<()> {
        Err(io::Error::other("a running node takes no state of another"))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types<R>, StateAt>>> {
        self.snapshot::<R>().await.map(Some)
    }
}

impl<R: Runtime> RaftSnapshotBuilder<Types<R>> for State {
    type SnapshotData = StateAt;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types<R>, StateAt>> {
        self.snapshot::<R>().await
    }
}
