//! Duramen: a durable, transactional database inside your process.
//!
//! Documents in collections, ordered by keys you choose; counts, ranks and exact sums over any range in O(log n);
//! serialisable transactions; and a commit that is on disk when it returns.
//!
//! ```
//! use duramen::prelude::*;
//!
//! fn main() -> Result<()> {
//! #   let directory = tempfile::tempdir().expect("a place for the example");
//! #   std::env::set_current_dir(directory.path()).expect("a place for the example");
//!     let db = Db::open("shop.duramen")?;
//!     let orders = db.ensure(&Schema::new("orders").key(["city", "id"]).sum(["cents"]))?;
//!     orders.put(doc! { "id": 1, "city": "Oslo", "cents": 1250 })?;
//!     orders.put(doc! { "id": 2, "city": "Oslo", "cents": 750 })?;
//!     let oslo = orders.reduce(Span::prefix("Oslo")?)?;
//!     println!("{} orders, {} cents", oslo.count(), oslo.sum("cents").unwrap_or(0));
//! #   assert_eq!((oslo.count(), oslo.sum("cents")), (2, Some(2000)));
//!     Ok(())
//! }
//! ```
//!
//! Several reads and writes that belong together are a transaction; it runs again after a conflict.
//!
//! ```
//! # use duramen::prelude::*;
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! # db.ensure(&Schema::new("accounts").key(["id"]))?.put(doc! { "id": 1, "cents": 10 })?;
//! let left = db.transact(|tx| {
//!     let accounts = tx.documents("accounts");
//!     let mut account = accounts.get(1)?.ok_or_else(|| Error::invalid("no account 1"))?;
//!     let Some(Value::Int(cents)) = account.get("cents").cloned() else {
//!         return Err(Error::invalid("account 1 holds no cents"));
//!     };
//!     account.set("cents", Value::Int(cents - 5));
//!     accounts.put(account)?;
//!     Ok(cents - 5)
//! })?;
//! assert_eq!(left, 5);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening, transactions, snapshots | [`Db`], [`DbOptions`], [`Transaction`], [`Snapshot`], [`Reads`] |
//! | reading and writing documents | [`Documents`], [`DocumentsOf`], [`Span`] |
//! | what a collection is | [`Schema`], [`schema::ColumnType`] |
//! | documents and JSON | [`Document`], [`Value`], [`doc!`], [`json`] |
//! | keys and their order | [`tuple`](mod@tuple) |
//! | bulk loads from CSV | [`cell`], [`RowBatch`] |
//! | plain bytes | [`ByteTree`] |
//! | what went wrong | [`Error`], [`ErrorKind`] |

mod bytes;
mod catalogue;
pub mod cell;
mod db;
pub mod document;
mod documents;
mod documents_of;
mod engine;
pub mod error;
pub mod json;
mod msgpack;
mod options;
pub mod prelude;
mod reads;
mod rows;
pub mod schema;
mod snapshot;
mod span;
pub mod sums;
pub mod time;
mod transaction;
pub mod tuple;
mod verify;

pub use bytes::ByteTree;
pub use db::Db;
pub use document::{Document, Value};
pub use documents::Documents;
pub use documents_of::{DocumentsOf, Reduction};
pub use error::{Code, Error, ErrorKind, Result};
pub use options::DbOptions;
pub use reads::Reads;
pub use rows::{DocumentIter, RowBatch, Rows};
pub use schema::Schema;
pub use snapshot::Snapshot;
pub use span::Span;
pub use time::Time;
pub use transaction::Transaction;
pub use verify::{DocumentReport, Unreadable};

pub use duramen_disk::{Disk, FileSystem, MemDisk, OsDisk, PathKind, SyncMethod, measure, probe};
pub use duramen_engine::ids::{CommitSeq, DatabaseId};
pub use duramen_engine::{
    CheckReport, CommitStats, Direction, Durability, Event, Geometry, KeyRange, LogStats, Posture, Receipt,
    RecoveryStats, Reducer, ReducerSpec, SpaceStats, Stats,
};

/// The example of the README compiles. Only the repository has it: a packaged crate runs no doctests of its own.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
