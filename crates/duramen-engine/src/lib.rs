//! Bytes in trees: a write-ahead log, a copy-on-write B+tree with reductions, optimistic transactions,
//! checkpoints and recovery. ARCHITECTURE.md tells the life of a write and of a read.
//!
//! Modules, lowest first; a module names only modules above it in this list (duramen-sim holds us to it).

pub mod error;
pub mod ids;
pub mod limits;
pub mod options;

pub mod data_file;
pub mod wal;

mod page_cache;
mod sync;
mod threads;

mod allocator;
mod tree;

mod catalog;
mod checkpoint;
mod snapshot;
mod verify;

mod commit;

mod recovery;
mod transaction;

mod engine;

pub use duramen_disk::{Disk, SyncMethod};
pub use engine::{Engine, Event, EventHook, Hooks, Posture, Stats};
pub use error::{Code, Error, ErrorKind, Result};
pub use ids::{CommitSeq, TreeId};
pub use options::{Background, Durability, Geometry, Options};
pub use transaction::{Receipt, Row, Rows, Snapshot, Transaction, TreeInfo};
pub use tree::{Builtin, Direction, KeyRange, Reduced, Reducer, ReducerFactory, ReducerSpec, Reducers};
pub use verify::CheckReport;
