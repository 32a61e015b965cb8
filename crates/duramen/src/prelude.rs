//! What a program needs to begin: `use duramen::prelude::*;`.

pub use crate::schema::ColumnType;
pub use crate::{
    Db, Document, Documents, Durability, Error, ErrorKind, Reads, Receipt, Result, Schema, Snapshot, Span,
    Time, Transaction, Value, doc,
};
