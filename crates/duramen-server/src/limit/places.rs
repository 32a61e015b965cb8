//! Calls under way: each class has places of its own, so that scans do not keep point reads out, nor these
//! the answer to "are you alive".

use std::sync::Arc;

use duramen::error::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::budget::overloaded;
use super::{Limits, WAIT};

/// Places of health, reflection and the first call of a client.
const CONTROL: usize = 64;

/// What a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Control,
    /// Point reads and batches.
    Calls,
    /// Scans, which last.
    Bulk,
}

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Places {
    control: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(limits: &Limits, cores: usize) -> Places {
        let of = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Places {
            control: of(CONTROL),
            calls: of(limits.calls_per_core.saturating_mul(cores)),
            bulk: of(limits.scans),
        }
    }

    /// A place, at the latest after 100 ms.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if none is free by then.
    pub(crate) async fn take(&self, class: Class) -> Result<Place> {
        let places = match class {
            Class::Control => &self.control,
            Class::Calls => &self.calls,
            Class::Bulk => &self.bulk,
        };
        let permit = match Arc::clone(places).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                timeout(WAIT, Arc::clone(places).acquire_owned()).await.ok().and_then(|taken| taken.ok())
            }
        };
        permit.map(|permit| Place { _permit: permit }).ok_or_else(|| overloaded("place"))
    }
}

#[cfg(test)]
mod tests {
    //! A scan must not keep a point read out.
    use super::*;
    use duramen::Code;

    #[test]
    fn classes_have_places_of_their_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let limits = Limits { scans: 1, calls_per_core: 1, ..Limits::default() };
        let places = Places::new(&limits, 1);
        runtime.block_on(async {
            let scan = places.take(Class::Bulk).await.expect("free");
            assert_eq!(places.take(Class::Bulk).await.expect_err("taken").code(), Code::Overloaded);
            places.take(Class::Calls).await.expect("free");
            drop(scan);
            places.take(Class::Bulk).await.expect("given back");
        });
    }
}
