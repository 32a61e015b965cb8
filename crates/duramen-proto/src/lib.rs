//! The wire protocol of Duramen: messages and services of gRPC, and what they mean to the library.
//!
//! `proto/duramen/v1` has the definitions, with the meaning of each field. [`v1`] is the code made from them,
//! which is committed: no build needs `protoc`. [`key`], [`document`], [`query`], [`collection`], [`view`],
//! [`change`] and [`status`] translate keys, documents, queries, collections, views, changes and errors of
//! the library; [`codec`] decodes messages of strangers in bounded memory. [`freshness`] is the header that
//! lets reads on a node of a cluster see older states.
//!
//! Version 1 only gains fields and calls. Servers and clients agree on a version in `Hello`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `client` | the clients of the services |
//! | `server` | the services themselves |

pub mod change;
pub mod codec;
pub mod collection;
pub mod discovery;
pub mod document;
pub mod freshness;
pub mod key;
pub mod query;
mod shape;
pub mod status;
pub mod view;

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, reason = "generated from .proto files, which have the documentation")]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/duramen.v1.rs");
}

/// The newest version of the protocol, and the oldest that is still spoken.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The descriptors of all services and messages, encoded: for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// A message may take this many bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
