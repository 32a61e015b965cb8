//! Openraft's own suite for storage, over Raft's log and a database.
//!
//! The suite begins with index 0 and leaves indices out, which consensus never does: a node's log begins
//! after the commit that founds its cluster, and has no holes. So an adapter counts from there, and fills
//! holes with blank entries. It also marks what is purged as decided, which consensus does before, and tells
//! what is decided only to tests that have said it. The state takes entries that are in its own node's log
//! only: it lies over a second node, whose log gets them first.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{Engine, Founding, Hooks, Ident, OpenReplica, Options, Proposer, RaftLog, Replica};
use futures_util::{Stream, StreamExt, stream};
use openraft::entry::{EntryPayload, RaftEntry};
use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot, SnapshotMeta,
};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, RaftLogReader, RaftSnapshotBuilder, StorageError};
use openraft_rt::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;

use crate::log_store::{LogReader, LogStore};
use crate::room::Rooms;
use crate::state::{State, StateAt};
use crate::synced::Synced;
use crate::types::{Id, LogEntry, StoredMembership, VoteOf};

type Types = crate::types::Types<TokioRuntime>;

struct Silent;

impl Proposer for Silent {
    fn propose(&self, _: u64, _: Vec<duramen_engine::Entry>) {
        unreachable!("the node never leads");
    }
}

/// A node on a disk in memory.
struct OpenNode {
    engine: Engine,
    replica: Arc<Replica>,
    log: Arc<RaftLog>,
    /// The sequence of the founding commit: index 0 of the suite comes after it.
    base: u64,
}

impl OpenNode {
    fn open(seed: u64) -> OpenNode {
        let disk = Arc::new(MemDisk::with_system_clock(seed));
        let (options, hooks) = (Options::default(), Hooks::default());
        let founding = Founding { ident: Ident { cluster: 1, node: 1 }, members: b"", time_ns: 0 };
        let opened = Engine::open_replica(disk, "/db", options, hooks, Some(founding), Arc::new(Silent));
        let OpenReplica { engine, replica, log, .. } = opened.unwrap();
        let base = log.end().id.seq.0;
        OpenNode { engine, replica: Arc::new(replica), log: Arc::new(log), base }
    }
}

fn shifted(id: Id, by: u64) -> Id {
    Id { index: id.index + by, ..id }
}

/// `None` for what founded the cluster.
fn shifted_back(id: Option<Id>, by: u64) -> Option<Id> {
    id.filter(|id| id.index >= by).map(|id| Id { index: id.index - by, ..id })
}

/// Blank entries for the holes before each of these, and these.
fn without_holes(entries: Vec<LogEntry>, last: u64, by: u64) -> Vec<LogEntry> {
    let mut next = last + 1;
    let mut all = Vec::new();
    for mut entry in entries {
        entry.id = shifted(entry.id, by);
        while next < entry.id.index {
            all.push(LogEntry::new(Id { index: next, ..entry.id }, EntryPayload::Blank));
            next += 1;
        }
        next = entry.id.index + 1;
        all.push(entry);
    }
    all
}

struct Log {
    store: LogStore,
    node: OpenNode,
    by: u64,
    /// The suite has said what is committed.
    is_committed: bool,
}

struct Reader {
    reader: LogReader,
    by: u64,
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Reader;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let LogState { last_purged_log_id, last_log_id } =
            RaftLogStorage::<Types>::get_log_state(&mut self.store).await?;
        Ok(LogState {
            last_purged_log_id: shifted_back(last_purged_log_id, self.by),
            last_log_id: shifted_back(last_log_id, self.by),
        })
    }

    async fn get_log_reader(&mut self) -> Reader {
        let reader = RaftLogStorage::<Types>::get_log_reader(&mut self.store).await;
        Reader { reader, by: self.by }
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> io::Result<()> {
        RaftLogStorage::<Types>::save_vote(&mut self.store, vote).await
    }

    async fn save_committed(&mut self, committed: Option<Id>) -> io::Result<()> {
        self.is_committed = true;
        let committed = committed.map(|id| shifted(id, self.by));
        RaftLogStorage::<Types>::save_committed(&mut self.store, committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<Id>> {
        let committed = RaftLogStorage::<Types>::read_committed(&mut self.store).await?;
        Ok(shifted_back(committed, self.by).filter(|_| self.is_committed))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let last = self.node.log.end().id.seq.0;
        let entries = without_holes(entries.into_iter().collect(), last, self.by);
        RaftLogStorage::<Types>::append(&mut self.store, entries, flushed).await
    }

    async fn truncate_after(&mut self, last: Option<Id>) -> io::Result<()> {
        let last = last.map(|id| shifted(id, self.by));
        RaftLogStorage::<Types>::truncate_after(&mut self.store, last).await
    }

    async fn purge(&mut self, purged: Id) -> io::Result<()> {
        let last = self.node.log.end().id.seq.0;
        if shifted(purged, self.by).index > last {
            let missing = LogEntry::new(purged, EntryPayload::Blank);
            let (sender, flushed) = Types::oneshot();
            self.append(vec![missing], IOFlushed::signal(sender)).await?;
            flushed.await.expect("the log calls back")?;
        }
        let purged = shifted(purged, self.by);
        RaftLogStorage::<Types>::save_committed(&mut self.store, Some(purged)).await?;
        RaftLogStorage::<Types>::purge(&mut self.store, purged).await
    }
}

impl RaftLogReader<Types> for Reader {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> io::Result<Vec<LogEntry>> {
        let moved = |bound: Bound<&u64>| bound.map(|index| index + self.by);
        let range = (moved(range.start_bound()), moved(range.end_bound()));
        let found = RaftLogReader::<Types>::try_get_log_entries(&mut self.reader, range).await?;
        Ok(found.into_iter().filter_map(|entry| back(entry, self.by)).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf>> {
        RaftLogReader::<Types>::read_vote(&mut self.reader).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        let (start, end) = (start + self.by, end + self.by);
        let found = RaftLogReader::<Types>::limited_get_log_entries(&mut self.reader, start, end).await?;
        Ok(found.into_iter().filter_map(|entry| back(entry, self.by)).collect())
    }
}

fn back(mut entry: LogEntry, by: u64) -> Option<LogEntry> {
    entry.id = shifted_back(Some(entry.id), by)?;
    Some(entry)
}

/// The state, over a node of its own.
struct Database {
    state: State,
    store: LogStore,
    node: Arc<OpenNode>,
    by: u64,
}

impl Database {
    fn meta(&self, meta: SnapshotMetaOf<Types>) -> SnapshotMetaOf<Types> {
        let named = shifted_back(*meta.last_membership.log_id(), self.by);
        let last_membership = if named.is_some() {
            StoredMembership::new(named, meta.last_membership.membership().clone())
        } else {
            StoredMembership::default()
        };
        SnapshotMeta { last_log_id: shifted_back(meta.last_log_id, self.by), last_membership }
    }
}

impl RaftStateMachine<Types> for Database {
    type SnapshotData = StateAt;
    type SnapshotBuilder = Database;

    async fn applied_state(&mut self) -> io::Result<(Option<Id>, StoredMembership)> {
        let (last_log_id, last_membership) =
            RaftStateMachine::<Types>::applied_state(&mut self.state).await?;
        let meta = self.meta(SnapshotMeta { last_log_id, last_membership });
        Ok((meta.last_log_id, meta.last_membership))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let entries: Vec<LogEntry> = entries.map(|entry| entry.unwrap().0).collect().await;
        let last = self.node.log.end().id.seq.0;
        let entries = without_holes(entries, last, self.by);
        RaftLogStorage::<Types>::append(&mut self.store, entries.clone(), IOFlushed::noop()).await?;
        let entries = stream::iter(entries.into_iter().map(|entry| Ok((entry, None))));
        RaftStateMachine::<Types>::apply(&mut self.state, entries).await
    }

    async fn get_snapshot_builder(&mut self) -> Database {
        let synced = Synced::new(Arc::clone(&self.node.log));
        let store = LogStore::new(Arc::clone(&self.node.log), None, synced);
        Database { state: self.state.clone(), store, node: Arc::clone(&self.node), by: self.by }
    }

    /// A running node takes no state of another. All that the suite has in its states is members.
    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<Types>, _: StateAt) -> io::Result<()> {
        let named = meta.last_membership.log_id().unwrap();
        let members = EntryPayload::Membership(meta.last_membership.membership().clone());
        let entries =
            [LogEntry::new(named, members), LogEntry::new(meta.last_log_id.unwrap(), EntryPayload::Blank)];
        self.apply(stream::iter(entries.map(|entry| Ok((entry, None))))).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, StateAt>>> {
        let found = RaftStateMachine::<Types>::get_current_snapshot(&mut self.state).await?;
        let found = found.map(|Snapshot { meta, snapshot }| Snapshot { meta: self.meta(meta), snapshot });
        Ok(found.filter(|found| found.meta.last_log_id.is_some()))
    }
}

impl RaftSnapshotBuilder<Types> for Database {
    type SnapshotData = StateAt;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, StateAt>> {
        let found = RaftSnapshotBuilder::<Types>::build_snapshot(&mut self.state).await?;
        Ok(Snapshot { meta: self.meta(found.meta), snapshot: found.snapshot })
    }
}

struct Builder;

impl StoreBuilder<Types, Log, Database, Vec<Engine>> for Builder {
    async fn build(&self) -> Result<(Vec<Engine>, Log, Database), StorageError<Types>> {
        let (of_log, of_state) = (OpenNode::open(1), OpenNode::open(2));
        let engines = vec![of_log.engine.clone(), of_state.engine.clone()];
        let by = of_log.base + 1;
        let store = LogStore::new(Arc::clone(&of_log.log), None, Synced::new(Arc::clone(&of_log.log)));
        let synced = Synced::new(Arc::clone(&of_state.log));
        let rooms = Arc::new(Rooms::new(Arc::new(MemDisk::new(3)), PathBuf::from("/")));
        let database = Database {
            state: State::new(&of_state.replica, synced.clone(), Arc::clone(&rooms)),
            store: LogStore::new(Arc::clone(&of_state.log), None, synced),
            by: of_state.base + 1,
            node: Arc::new(of_state),
        };
        Ok((engines, Log { store, node: of_log, by, is_committed: false }, database))
    }
}

#[test]
fn openrafts_suite_passes() {
    TokioRuntime::new(2).block_on(Suite::test_all(Builder)).unwrap();
}
