//! Locks of the commit pipeline: the standard library's, or those of a scheduler that tries interleavings.
//!
//! Only code that waits for other threads takes its locks from here. Locks that are held for a moment and never
//! around another one are the standard library's everywhere: there is nothing to interleave.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
