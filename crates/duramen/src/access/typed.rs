//! Documents of Rust types: writes within a transaction, and the shorthands of [`Db`](crate::Db). Reads of
//! both are in reads.rs and query.rs.

mod auto_commit;
pub(crate) mod encoded;
mod writes;
