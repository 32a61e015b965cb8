//! Reading and writing: the handle, transactions, snapshots, documents and queries.
//!
//! `documents` and `typed` have the same parts: reads, writes within a transaction, and `auto_commit`, where
//! each call is a transaction or a snapshot of its own.

pub(crate) mod after_commit;
pub(crate) mod anywhere;
pub(crate) mod background_work;
pub(crate) mod bytes;
pub(crate) mod codec;
pub(crate) mod collection;
pub(crate) mod deadlines;
pub(crate) mod documents;
pub(crate) mod encoded;
pub(crate) mod expiry;
pub(crate) mod explain;
pub(crate) mod far;
pub mod find;
pub(crate) mod handle;
pub(crate) mod inside;
pub(crate) mod last_handle;
pub(crate) mod open_state;
pub(crate) mod open_transaction;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod reads;
pub(crate) mod references;
pub(crate) mod revision;
pub(crate) mod row_batch;
pub(crate) mod rows;
pub(crate) mod select;
pub(crate) mod selection;
pub(crate) mod snapshot;
pub(crate) mod timings;
pub(crate) mod transaction;
pub(crate) mod tree_shape;
pub(crate) mod type_descriptor;
pub(crate) mod type_registry;
pub(crate) mod typed;
pub(crate) mod uploads;
pub(crate) mod user_rows;
pub(crate) mod views;
