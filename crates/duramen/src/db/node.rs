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
use crate::store::{Founding, Ident, NodeHead, NodeTarget, OpenReplica, Proposer};

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

/// Begins a new node of a cluster, with the state of another one. What an earlier call has left unfinished in
/// the directory is removed.
///
/// # Errors
/// `AlreadyExists` (E0210) if something else is there; `InvalidArgument` (E0201) if the log is to lie
/// elsewhere; those of [opening](crate::Error#opening).
pub fn begin_node(
    options: DbOptions,
    disk: Arc<dyn Disk>,
    path: &Path,
    head: NodeHead,
    ident: Ident,
) -> Result<NodeTarget> {
    let (options, hooks) = options.for_copy()?;
    NodeTarget::begin(disk, path, options, hooks, head, ident)
}

/// Begins a copy that takes the place of the state of a node: see [`NodeTarget::begin_anew`].
///
/// # Errors
/// As [`NodeTarget::begin_anew`].
pub fn begin_node_anew(
    options: DbOptions,
    disk: Arc<dyn Disk>,
    path: &Path,
    head: NodeHead,
) -> Result<Option<NodeTarget>> {
    let (options, hooks) = options.for_copy()?;
    NodeTarget::begin_anew(disk, path, options, hooks, head)
}
