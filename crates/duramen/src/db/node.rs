//! A database as a node of a cluster, for the crate that runs consensus.
//!
//! A node writes while it leads. What a database keeps in memory beside its trees is of the leadership then,
//! or follows what is decided: ids (`catalog::ids`), names of fields (`catalog::shapes`), the time
//! (`value::clock`), uploads, users, the jobs of the background.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use crate::access::handle::Db;
use crate::db::options::DbOptions;
use crate::store::error::Result;
use crate::store::{CommitSeq, CopyTarget, Founding, OpenReplica, Proposer};

/// Opens a database as a node of a cluster: see [`OpenReplica`]. One that is no node yet becomes the first of
/// a cluster, as `founding` says.
///
/// # Errors
/// Those of [opening](crate::Error#opening); `LogMissing` (E0503), `CorruptLog` (E0502) if Raft's log or the
/// vote is gone or damaged; `ReadOnly` (E0204); `InvalidArgument` (E0201) for a database that is no node,
/// without `founding`.
pub fn open_node(
    options: DbOptions,
    disk: Arc<dyn Disk>,
    path: &Path,
    founding: Option<Founding<'_>>,
    proposer: Arc<dyn Proposer>,
) -> Result<(Db, OpenReplica)> {
    options.open_node_on(disk, path, founding, proposer)
}

/// Begins a copy that becomes a node of a cluster, of the state of a commit with so many entries. What an
/// earlier call has left unfinished in the directory is removed.
///
/// # Errors
/// `AlreadyExists` (E0210) if something else is there; those of [opening](crate::Error#opening).
pub fn begin_node(
    options: DbOptions,
    disk: Arc<dyn Disk>,
    path: &Path,
    of: (CommitSeq, u64),
) -> Result<CopyTarget> {
    options.begin_copy_on(disk, path, |disk, path, options, hooks| {
        CopyTarget::begin_node(disk, path, options, hooks, of)
    })
}
