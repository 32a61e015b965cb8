//! Connects to a database that another process serves.
//!
//! [`Remote`] is such a database with the types and closures of the library: it is a
//! [`Store`](duramen::Store), as [`Db`](duramen::Db) is. [`Address`] says where it is: a directory, a socket,
//! a host and a port, with TLS or without. [`Client`] makes calls of the protocol and waits for the answers;
//! errors are those of the library, with their codes.

#![allow(
    clippy::disallowed_methods,
    reason = "a client reads the files that a server has put into the directory of the database"
)]

mod address;
mod backup;
mod blobs;
mod client;
mod connect;
mod link;
mod remote;
mod runtime;
mod stream;
mod users;

pub use address::{Address, TlsFiles};
pub use blobs::{Downloaded, Uploading};
pub use client::{Client, FailedBatch, Scanned, Watched};
pub use duramen_proto::freshness::Freshness;
pub use remote::{
    AsyncRemote, Remote, RemoteBlobIter, RemoteBlobReader, RemoteBlobWriter, RemoteBlobs, RemoteBlobsOf,
    RemoteConsumer, RemoteDocuments, RemoteSnapshot, RemoteTransaction, RemoteUpload,
};
pub use stream::{FailedStep, TransactionStream};
