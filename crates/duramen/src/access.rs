//! Reading and writing: the handle, transactions, snapshots, documents and what is asked of them.

pub(crate) mod bytes;
pub(crate) mod codec;
pub(crate) mod collection;
pub(crate) mod document_writes;
pub(crate) mod documents;
pub(crate) mod documents_of;
pub(crate) mod explain;
pub(crate) mod handle;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod reads;
pub(crate) mod revision;
pub(crate) mod rows;
pub(crate) mod select;
pub(crate) mod selection;
pub(crate) mod snapshot;
pub(crate) mod transaction;
pub(crate) mod tree_shape;
pub(crate) mod typed;
pub(crate) mod typed_db;
pub(crate) mod typed_writes;
pub(crate) mod views;
