//! Locks of the commit pipeline: those of the standard library, or of a scheduler that tries interleavings.
//!
//! Only code that waits for other threads takes its locks from here. Locks held briefly, with no other lock
//! taken under them, are those of the standard library everywhere: they have no interleavings to try.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
