//! Duramen: a durable, transactional database inside your process.
//!
//! Structs are stored in collections, ordered by keys that you choose. Views keep counts and exact sums over
//! any range in O(log n), and are current with every write. Transactions are serialisable. A commit is on
//! disk when it returns.
//!
//! ```
//! use duramen::prelude::*;
//!
//! #[derive(Serialize, Deserialize, Collection)]
//! #[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum)))]
//! struct Order { #[key] id: u64, city: String, cents: i64 }
//!
//! fn main() -> Result<()> {
//! #   let directory = tempfile::tempdir().expect("a place for the example");
//! #   std::env::set_current_dir(directory.path()).expect("a place for the example");
//!     let db = Db::open("shop.duramen")?;
//!     db.put(&Order { id: 1, city: "Oslo".into(), cents: 1250 })?;
//!     let (orders, cents) = db.view::<SalesByCity>().key("Oslo").reduce()?;
//!     println!("{orders} order(s), {cents} cents");
//! #   assert_eq!((orders, cents), (1, 1250));
//!     Ok(())
//! }
//! ```
//!
//! Several reads and writes that belong together form a transaction. After a conflict the transaction runs
//! again.
//!
//! ```
//! # use duramen::prelude::*;
//! # #[derive(Serialize, Deserialize, Collection)]
//! # struct Account { #[key] id: u64, cents: i64 }
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! # db.put(&Account { id: 1, cents: 10 })?;
//! let left = db.transact(|tx| {
//!     let mut account: Account = tx.get(1)?.ok_or_else(|| Error::invalid("no account 1"))?;
//!     account.cents -= 5;
//!     tx.put(&account)?;
//!     Ok(account.cents)
//! })?;
//! assert_eq!(left, 5);
//! # Ok(()) }
//! ```
//!
//! Tools that do not know the types read and write the same documents by name:
//!
//! ```
//! # use duramen::prelude::*;
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let orders = db.ensure(&Schema::new("orders").key(["city", "id"]).sum(["cents"]))?;
//! orders.put(doc! { "id": 1, "city": "Oslo", "cents": 1250 })?;
//! orders.put(doc! { "id": 2, "city": "Oslo", "cents": 750 })?;
//! assert_eq!(orders.reduce(Span::prefix("Oslo")?)?.sum("cents"), Some(2000));
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening, transactions, snapshots | [`Db`], [`DbOptions`], [`Transaction`], [`Snapshot`], [`Reads`], [`LocalReads`] |
//! | functions for a database in this process or in another one | [`Store`], [`Tx`], [`Reads`] |
//! | storing a struct | [`Collection`](trait@Collection), [`Key`](macro@Key), [`AssignedKey`] |
//! | querying documents | [`Query`], [`Page`], [`IntoSpan`] |
//! | finding, ordering, grouping and joining documents by any fields | [`find`], [`Documents::find`] |
//! | querying several views at once, and what a query costs | [`Select`], [`Explain`] |
//! | views and their reductions | [`View`], [`ViewQuery`], [`view::reduce`] |
//! | views without a type, and their progress | [`DocumentView`], [`ViewSpec`], [`ViewState`], [`Documents::add_view`] |
//! | types that change | [`migrate`], [`Db::register`] |
//! | concurrent edits of the same document | [`Versioned`], [`Revision`], [`ReplaceError`] |
//! | documents without a type | [`Documents`], [`DocumentsOf`], [`Document`], [`Value`], [`doc!`], [`json`] |
//! | the schema of a collection | [`Schema`], [`schema::ColumnType`], [`ViewSpec`] |
//! | keys and their order | [`tuple`](mod@tuple), [`Span`] |
//! | bulk loads from CSV | [`cell`], [`RowBatch`] |
//! | counters, sessions, locks: key-values that expire | [`Kv`], [`Ttl`], [`kv`] |
//! | files and pictures, up to many gigabytes | [`Blobs`], [`blobs`] |
//! | plain bytes | [`ByteTree`] |
//! | asynchronous programs (feature `async`) | [`AsyncDb`](cookbook#a-web-service-with-axum) |
//! | the change feed: every change once and in order | [`Changes`], [`Change`], [`AnyChange`] |
//! | handling each change once, across crashes | [`Consumer`], [`Consuming`] |
//! | observing a database that another process has open | [`Observer`] |
//! | repairing a corrupt database | [`repair`], [`RepairReport`] |
//! | errors | [`Error`], [`Code`], [`ErrorKind`] |
//!
//! [`cookbook`] has recipes. docs/tutorial.md in the repository grows one program from the first put to
//! views.
//!
//! # Features
//!
//! All are off by default. What needs a feature says so in these pages.
//!
//! | feature | adds |
//! |---|---|
//! | `async` | [`AsyncDb`](cookbook#a-web-service-with-axum): the same methods as futures, for any runtime |
//! | `chrono` | times of `chrono` to and from [`Time`] |
//! | `jiff` | times of `jiff` to and from [`Time`] |
//! | `uuid` | `uuid::Uuid` in keys and views |
//!
//! # Errors
//!
//! Every function with a [`Result`] names the codes that it can return, such as `NoSuchTree` (E0901). A
//! [`Code`] is one cause, with a number that stays. Its [`ErrorKind`] is what a caller can do about it. Codes
//! that many functions share are listed at [`Error`].

// Set only by the host of documentation, whose compiler is a nightly: pages then name the feature they need.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The derive macros name the crate as programs do.
#[cfg(test)]
extern crate self as duramen;

mod access;
#[cfg(feature = "async")]
mod asynchronous;
pub mod blobs;
mod catalog;
pub mod cookbook;
mod db;
mod feed;
pub mod kv;
pub mod prelude;
pub mod requests;
mod store;
mod value;
pub mod view;
#[doc(hidden)]
pub mod wire;

pub use access::find;
pub use catalog::{cell, schema};
pub use db::migrate;
pub use store::error;
pub use value::{document, json, time, tuple};
pub use view::sums;

pub use access::anywhere::{Store, Tx};
pub use access::bytes::ByteTree;
pub use access::collection::{AssignedKey, Collection, IdKey, IdOrder, KeyOf, Storable};
pub use access::documents::auto_commit::Documents;
pub use access::documents::{DocumentsOf, Reduction};
pub use access::explain::{Explain, Part, Ran};
pub use access::handle::Db;
pub use access::open_transaction::OpenTransaction;
pub use access::page::{Page, PageToken};
pub use access::query::{KeyIter, Query, TypedIter};
pub use access::reads::{LocalReads, Reads};
pub use access::references::{Deleted, Followed, ReferenceState};
pub use access::revision::{ReplaceError, Revision, Versioned};
pub use access::row_batch::RowBatch;
pub use access::rows::{DocumentIter, LentDocument, Rows};
pub use access::select::{Select, SelectIter, SelectKeys};
pub use access::snapshot::Snapshot;
pub use access::transaction::Transaction;
pub use access::tree_shape::{Holds, KeptReduction, NamedTree};
#[doc(hidden)]
pub use access::type_descriptor::StoredType;
#[cfg(feature = "async")]
pub use asynchronous::{AsyncChangeIter, AsyncChanges, AsyncDb};
pub use blobs::Blobs;
pub use catalog::entries::Origin;
pub use catalog::schema::{OnDelete, Reference, Referrer, Schema};
pub use db::backup::CopyProgress;
pub use db::compact::{CompactProgress, Compacted, HeldSnapshot, HoldingConsumer};
pub use db::options::DbOptions;
pub use db::repair::{
    LeftOut, Lost, Missing, RepairProgress, RepairReport, RepairStage, Repaired, StoreKind, UncertainRows,
    WaitingView, repair,
};
pub use db::verify::{DocumentReport, Unreadable};
pub use feed::changes::{AnyChange, AnyChanged, Change, ChangeIter, ChangeStop, Changed, Changes, Delivered};
pub use feed::consumer::{Consumer, ConsumerOptions, ConsumerState, Consuming};
pub use feed::observer::{ObserveFrom, Observed, Observer, ObserverOptions};
pub use feed::outside::FeedPosition;
pub use kv::{Kv, Ttl};
pub use store::error::{Code, Error, ErrorKind, Result};
pub use value::byte_array::ByteArray;
pub use value::document::{Document, Value};
pub use value::range::IntoSpan;
pub use value::span::Span;
pub use value::time::Time;
pub use value::tuple::Key;
pub use view::nested::Nested;
pub use view::{DocumentView, View, ViewPhase, ViewQuery, ViewSpec, ViewState};

/// ```
/// use duramen::prelude::*;
///
/// #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
/// struct UserId(u64);
///
/// #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
/// #[key(by_name)]
/// enum Role {
///     Admin,
///     Guest,
/// }
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(ByRole, key = role))]
/// struct User {
///     #[key]
///     id: UserId,
///     role: Role,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// db.put(&User { id: UserId(7), role: Role::Admin })?;
/// assert!(db.get::<User>(UserId(7))?.is_some());
/// assert_eq!(db.view::<ByRole>().key(Role::Admin).count()?, 1);
/// # Ok(()) }
/// ```
///
/// [`EnumForm`](tuple::EnumForm) explains both orders of an enum, and has an example by number.
pub use duramen_derive::Key;
pub use duramen_derive::{Collection, Nested};
pub use duramen_disk::{Disk, FileSystem, MemDisk, OsDisk, PathKind, SyncMethod, probe, sync_choice};
pub use duramen_engine::ids::{CommitSeq, DatabaseId};
pub use duramen_engine::{
    CheckReport, CommitStats, Direction, Durability, DurabilityStatus, Event, FeedStats, Geometry, Histogram,
    HotKey, KeyRange, LevelShape, LogStats, LostCommits, Receipt, RecoveryStats, Reducer, ReducerSpec, Sizes,
    SlowCommit, SpaceStats, Stats, Timings, TreeShape,
};

/// Compiles the examples of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the repository's README. A packaged crate does not have it, nor runs doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadme;

/// Compiles the example of the page on queries.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/queries.md")]
struct Queries;
