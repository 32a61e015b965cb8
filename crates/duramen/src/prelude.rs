//! The usual imports: `use duramen::prelude::*;`.

#[cfg(feature = "async")]
pub use crate::AsyncDb;
pub use crate::catalog::schema::ColumnType;
pub use crate::{
    Collection, Db, Document, Documents, Durability, Error, ErrorKind, Key, LocalReads, Nested, Reads,
    Receipt, ReplaceError, Result, Schema, Snapshot, Span, Store, Time, Transaction, Ttl, Tx, Value, View,
    doc,
};
pub use serde::{Deserialize, Serialize};
pub use std::cmp::Reverse;
