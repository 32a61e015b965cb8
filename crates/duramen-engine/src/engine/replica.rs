//! A database as a node of a cluster: opened with Raft's log, fed with decided entries, made plain again.
//!
//! The superblock has a flag then: a program that opens the database to write would order commits that no
//! majority has decided on. Reading and observing it stays allowed. The flag is set after Raft's log is
//! there, and cleared before that is removed: a log without the flag is left over, and means nothing.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, PathKind};

use super::directory::{LOCK, lock};
use super::maintenance::Maintenance;
use super::{Engine, Hooks, copy, open};
use crate::commit::members::{self, CLUSTER, MEMBERS};
use crate::commit::{Committer, Fate, Proposer, Role};
use crate::error::{Code, Error, Result};
use crate::features::NODE_OF_A_CLUSTER;
use crate::ids::CommitSeq;
use crate::options::Options;
use crate::raft_log::{Entry, EntryId, Found, Ident, LogEnd, OrderedOn, RaftLog, RaftPlace};
use crate::transaction::Receipt;

/// The directory of Raft's log, in that of the database.
pub(super) const RAFT: &str = "raft";

/// What consensus does to the database of a node. Its calls come one after the other.
#[derive(Debug)]
pub struct Replica {
    engine: Engine,
}

/// A database that was opened as a node.
#[derive(Debug)]
pub struct OpenReplica {
    /// The database. Its transactions wait for the decision of a majority.
    pub engine: Engine,
    /// What consensus does to it.
    pub replica: Replica,
    /// Raft's log.
    pub log: RaftLog,
    /// What that log holds.
    pub found: Found,
}

/// What a database that is no node yet becomes.
#[derive(Debug, Clone, Copy)]
pub struct Founding<'a> {
    /// Which node, of which cluster.
    pub ident: Ident,
    /// The members of the cluster, as consensus writes them.
    pub members: &'a [u8],
    /// The time at which the log begins, in nanoseconds since 1970.
    pub time_ns: u64,
}

impl Engine {
    /// Opens a database as a node of a cluster.
    ///
    /// A database that is no node yet becomes the first node of a cluster with the members of `founding`: one
    /// more commit writes them, nothing else changes, and Raft's log begins after it. A node ignores it.
    ///
    /// The node follows until [`Replica::lead`]. All levels mean that a majority has the commit on its disks.
    ///
    /// # Errors
    /// Those of [opening](crate::Error#opening). `LogMissing` (E0503), `CorruptLog` (E0502) if Raft's log or
    /// the vote is gone or damaged, or does not reach to the database's last commit: the node may have
    /// forgotten something. `ReadOnly` (E0204) with [`Options::read_only`]; `InvalidArgument` (E0201) for a
    /// database that is no node, without `founding`.
    pub fn open_replica(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: Options,
        hooks: Hooks,
        founding: Option<Founding<'_>>,
        proposer: Arc<dyn Proposer>,
    ) -> Result<OpenReplica> {
        let path = path.as_ref();
        if options.read_only {
            return Err(Error::new(Code::ReadOnly, "a node of a cluster writes its database"));
        }
        if copy::has_incoming(&*disk, path)? {
            let _lock = lock(&*disk, &path.join(LOCK), &options)?;
            copy::take_over(&*disk, path)?;
        }
        copy::refuse_unfinished(&*disk, path)?;
        // Patches are merged by commits of this database alone, which a node has none of. What is no node and
        // becomes none is not made either.
        let create = options.create && founding.is_some();
        let options = Options { patches: false, create, ..options };
        let engine = open::open_as(disk, path, options, hooks, Some(proposer))?;
        let (log, found) = engine.open_raft_log(founding)?;
        let (committer, _) = engine.writer()?;
        let last = committer.published().seq;
        let (first, end) = (found.purged.id.seq, found.last.seq);
        if last < first || last > end {
            return Err(Error::new(
                Code::LogMissing,
                format!(
                    "{}: Raft's log has the entries after {first} up to {end}, and the last commit of the database is {last}",
                    path.display()
                ),
            ));
        }
        let tree = engine.snapshot()?.tree(CLUSTER)?.ok_or_else(without_members)?;
        committer.replica_begins(log.end_after(last)?, Some(tree));
        let replica = Replica { engine: engine.clone() };
        Ok(OpenReplica { engine, replica, log, found })
    }

    /// Whether it takes transactions: a node of a cluster does while it leads, and another database always.
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if it was opened so; `ForkedHandle` (E0206) in a forked process.
    pub fn takes_transactions(&self) -> Result<bool> {
        Ok(self.parts()?.0.takes_transactions())
    }

    /// The time by the log of a cluster, in nanoseconds since 1970. It runs on the leader; on other nodes it
    /// is that of the last commit. `None` in a database that is no node.
    #[must_use]
    pub fn log_time_ns(&self) -> Option<u64> {
        self.parts().ok().and_then(|(committer, _)| committer.log_time_ns())
    }

    /// In a node of a cluster: the lineage of its published state. Another one begins with each leadership of
    /// this node, and with each order that is given up; what was handed out in an order that may never have
    /// happened is void then. `None` in a database that is no node.
    #[must_use]
    pub fn lineage(&self) -> Option<u64> {
        self.parts().ok().and_then(|(committer, _)| committer.lineage())
    }

    /// Opens Raft's log. A database that is no node yet becomes one.
    fn open_raft_log(&self, founding: Option<Founding<'_>>) -> Result<(RaftLog, Found)> {
        let (_, maintenance) = self.writer()?;
        let (inner, place) = (&self.inner, self.raft_place());
        if maintenance.checkpointer().superblock().write_features & NODE_OF_A_CLUSTER == 0 {
            let founding = founding.ok_or_else(|| {
                Error::invalid(format!("{} is no node of a cluster", inner.path.display())).with_hint(
                    "make it the first one with `duramen serve DB --cluster init`, or join a cluster with a directory that does not exist",
                )
            })?;
            clear(&*place.disk, &inner.path, &place.dir)?;
            place.create(founding.ident, None, self.found_cluster(founding)?)?;
            mark(maintenance, NODE_OF_A_CLUSTER)?;
            return place.open();
        }
        let (log, found) = place.open()?;
        if maintenance.checkpointer().older_checkpoint() <= found.purged.id.seq {
            // The power may have failed before the older superblock had the flag. If the newer one rots then,
            // the database is opened as one without a log and a vote, and both are removed.
            mark(maintenance, NODE_OF_A_CLUSTER)?;
        }
        Ok((log, found))
    }

    /// Where Raft's log of this database is.
    pub(super) fn raft_place(&self) -> RaftPlace {
        let inner = &self.inner;
        RaftPlace {
            disk: Arc::clone(&inner.disk),
            dir: inner.path.join(RAFT),
            database: inner.log_identity.database,
            geometry: inner.store.geometry,
            sync: inner.sync.0,
            background: inner.options.background,
            held: Arc::clone(&inner.locks) as Arc<_>,
        }
    }

    /// Commits the members of a new cluster. Returns the entry that its log begins after. It is durable with
    /// the next checkpoint.
    fn found_cluster(&self, Founding { members, time_ns, .. }: Founding<'_>) -> Result<LogEnd> {
        let (committer, _) = self.writer()?;
        let snapshot = self.snapshot()?;
        let tree = snapshot.tree(CLUSTER)?;
        let last = EntryId { term: 0, seq: snapshot.seq() };
        let end = LogEnd { id: last, time_ns, ..LogEnd::default() };
        let row = tree.map(|tree| snapshot.get(tree, MEMBERS)).transpose()?.flatten();
        if row.is_some_and(|row| row == members::encode(last, members)) {
            // The power failed right after this commit.
            return Ok(end);
        }
        committer.replica_begins(end, tree);
        let entry = committer.founding_entry(tree, members, time_ns);
        committer.apply_decided(std::slice::from_ref(&entry))?;
        Ok(LogEnd { id: entry.id, time_ns, ..LogEnd::default() })
    }
}

impl Replica {
    /// Applies decided entries, the first following the last one that was applied. Returns once they are
    /// published, and in the engine's log without a sync: Raft's log must have them on its disk.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if they do not follow. `DiskFull` (E0301): those before are applied, and
    /// after [`Replica::end`] the call may be repeated. `CorruptLog` (E0502), `CorruptData` (E0501), `System`
    /// (E1001) if what they change cannot be read; `OutcomeUnknown` (E0401), `EnginePoisoned` (E0601) after a
    /// failed write.
    pub fn apply(&self, entries: &[Entry]) -> Result<()> {
        self.committer()?.apply_decided(entries)
    }

    /// The last entry that is applied.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn end(&self) -> Result<LogEnd> {
        Ok(self.committer()?.replica_end())
    }

    /// The members of the cluster: the last entry that named them, and what it says.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `CorruptData` (E0501) if they cannot be read.
    pub fn members(&self) -> Result<(EntryId, Vec<u8>)> {
        let snapshot = self.engine.snapshot()?;
        let tree = snapshot.tree(CLUSTER)?.ok_or_else(without_members)?;
        members::decode(&snapshot.get(tree, MEMBERS)?.ok_or_else(without_members)?)
    }

    /// An opening begins with this commit or a later one: entries up to it may be purged.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn checkpointed(&self) -> Result<CommitSeq> {
        let (_, maintenance) = self.engine.writer()?;
        Ok(maintenance.checkpointer().older_checkpoint())
    }

    /// How many commits were refused since the disk has no room: more than a while ago says that it still has
    /// none.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn refusals_for_room(&self) -> Result<u64> {
        Ok(self.committer()?.refusals_for_room())
    }

    /// Takes transactions from now on: this node leads in `term`, and everything that was ever decided is
    /// applied, up to `end`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if the last entry that is applied is another one.
    pub fn lead(&self, term: u64, end: LogEnd) -> Result<()> {
        self.committer()?.lead_in(term, end)
    }

    /// Takes no transactions from now on. What was proposed may still be decided: see [`Replica::fate`].
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn follow(&self) -> Result<()> {
        self.committer()?.follow_others();
        Ok(())
    }

    /// Consensus has refused the group whose first entry was ordered so. It never happens, and is run again
    /// by calls that run a closure. Transactions wait until [`Replica::lead`]. Nothing is done for a group
    /// that is not undecided any more.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn refused(&self, first: &OrderedOn) -> Result<()> {
        self.committer()?.proposal_refused(first);
        Ok(())
    }

    /// Why the database takes no more commits, if it does not: it was closed, or a write failed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.committer().and_then(|committer| committer.usable()).err()
    }

    /// What this node does with transactions.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn role(&self) -> Result<Role> {
        Ok(self.committer()?.role())
    }

    /// Whether a transaction would find its place at once: this node leads, and no group is undecided.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn is_open(&self) -> Result<bool> {
        Ok(self.committer()?.is_open())
    }

    /// What became of a commit of this process.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process.
    pub fn fate(&self, receipt: &Receipt) -> Result<Fate> {
        Ok(self.committer()?.fate(receipt.ordered()))
    }

    /// Makes the database a plain one again, with every commit that is applied, and closes it. Raft's log is
    /// closed and removed: the node is gone from its cluster, which must know that.
    ///
    /// # Errors
    /// Those of a [checkpoint](crate::Error#checkpoints): the node is still one, and Raft's log is closed. If
    /// the process ends before its next checkpoint, the database may be plain all the same.
    pub fn detach(&self, log: &RaftLog) -> Result<()> {
        let (committer, maintenance) = self.engine.writer()?;
        committer.follow_others();
        log.abandon();
        if let Err(error) = mark(maintenance, 0) {
            // A later checkpoint must not write it: the node would be taken for none, and forget its vote.
            maintenance.checkpointer().set_write_features(NODE_OF_A_CLUSTER);
            return Err(error);
        }
        let inner = &self.engine.inner;
        clear(&*inner.disk, &inner.path, &inner.path.join(RAFT))?;
        self.engine.close()
    }

    fn committer(&self) -> Result<&Arc<Committer>> {
        Ok(self.engine.parts()?.0)
    }
}

fn without_members() -> Error {
    Error::new(Code::CorruptData, "the database is a node of a cluster, and does not say of which members")
}

/// Writes these flags to both superblocks.
fn mark(maintenance: &Maintenance, write_features: u64) -> Result<()> {
    maintenance.checkpointer().set_write_features(write_features);
    // Each names the newest state in the older superblock.
    for _ in 0..2 {
        maintenance.checkpoint(&mut || ())?;
    }
    Ok(())
}

/// Leaves an empty directory for Raft's log: what lies there is of a node that this database is not.
pub(super) fn clear(disk: &dyn Disk, path: &Path, dir: &Path) -> Result<()> {
    let kind = disk.kind(dir).map_err(|error| Error::io("look at", dir, &error))?;
    if kind != Some(PathKind::Directory) {
        disk.create_dir(dir).map_err(|error| Error::io("create", dir, &error))?;
    }
    let mut files = disk.list(dir).map_err(|error| Error::io("list", dir, &error))?;
    // `start` first: without it there is no log.
    files.sort_by_key(|file| !file.ends_with("start"));
    for file in files.iter().map(|file| dir.join(file)) {
        disk.remove(&file).map_err(|error| Error::io("remove", &file, &error))?;
    }
    for dir in [dir, path] {
        disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))?;
    }
    Ok(())
}
