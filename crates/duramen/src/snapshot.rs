//! A state of the database that never changes, for reading.

use std::fmt;
use std::sync::Arc;

use crate::catalogue::{self, Entry};
use crate::engine::{self, Source};
use crate::error::Result;
use crate::reads::{Reads, sealed};

/// One state of the whole database. Cheap to take, never blocks a writer, and may be sent to another thread.
///
/// Its reads are the methods of [`Reads`]. While it lives, the space of what it shows is not used again.
#[derive(Clone)]
pub struct Snapshot {
    inner: engine::Snapshot,
}

impl Snapshot {
    pub(crate) fn new(inner: engine::Snapshot) -> Snapshot {
        Snapshot { inner }
    }
}

impl sealed::Readable for Snapshot {
    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        catalogue::get(&self.inner, collection)
    }
}

impl Reads for Snapshot {}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}
