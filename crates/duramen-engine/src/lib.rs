//! Bytes in trees: a write-ahead log, a copy-on-write B+tree with reductions, optimistic transactions,
//! checkpoints and recovery. ARCHITECTURE.md describes a write and a read step by step.
//!
//! Modules are listed by layers, lowest first. A module names only its own layer and those above it in this
//! list; a test in duramen-sim checks that.
//!
//! # Features
//!
//! Both are for tests, and off by default. Neither is in the pages of the documentation's host.
//!
//! | feature | does |
//! |---|---|
//! | `shuttle` | runs the locks of the commit pipeline under a scheduler that tries interleavings |
//! | `testing` | makes the modules of the file formats public, for the tests of duramen-sim |

mod alarm;
pub mod error;
pub mod features;
pub mod ids;
pub mod limits;
pub mod options;
mod sync;
mod threads;

#[cfg(feature = "testing")]
pub mod data_file;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "public with the feature `testing`: tests pin the format of the files")]
mod data_file;
#[cfg(feature = "testing")]
pub mod wal;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "public with the feature `testing`: tests pin the format of the files")]
mod wal;

mod raft_log;

mod histogram;
mod page_cache;

mod allocator;
mod tree;

mod catalog;
mod checkpoint;
mod snapshot;
mod verify;

mod commit;
mod overlay;

mod feed;
mod recovery;
mod repair;
mod transaction;

mod engine;

pub use allocator::SpaceStats;
pub use commit::{CommitStats, Condition, Fate, HotKey, Proposer, Role, SlowCommit, Timings};
pub use duramen_disk::{Disk, SyncMethod};
pub use engine::{CompactProgress, CompactReport, HeldSnapshot};
pub use engine::{CopyPart, CopyProgress, CopySource, CopyTarget, NodeHead, NodeTarget};
pub use engine::{DurabilityStatus, Engine, Event, EventHook, Hooks, RecoveryStats, Stats};
pub use engine::{FeedReader, FeedStop, Wants, Woken};
pub use engine::{FoundEntries, Keep, LostCommits, Repair, RepairProgress, TreeLoss, UncertainTree};
pub use engine::{Founding, OpenReplica, Replica};
pub use engine::{ObserveFrom, Observed, Observer};
pub use error::{Code, Error, ErrorKind, Result};
pub use features::Features;
pub use feed::{FeedChange, FeedCommit, FeedHold, FeedNeed, FeedRule, FeedStats, FeedWhat};
pub use histogram::Histogram;
pub use ids::{CommitSeq, TreeId};
#[doc(hidden)]
pub use options::GiveBack;
pub use options::{Background, Durability, Geometry, Options};
pub use raft_log::{
    Done, EntriesFor, Entry, EntryId, EntryKind, Found, Ident, Incarnation, LogEnd, OrderedOn, RaftLog, Room,
    Vote,
};
pub use repair::{LogEntry, LostRange};
pub use threads::{Rest, Worker, processors, side_by_side};
pub use transaction::{Receipt, Row, Rows, Snapshot, Transaction, TreeInfo, TreeMark};
pub use tree::{
    Builtin, Combined, Direction, KeyRange, LevelShape, Reduced, Reducer, ReducerFactory, ReducerSpec,
    Reducers, Running, Sizes, TreeShape,
};
pub use verify::CheckReport;
pub use wal::LogStats;
