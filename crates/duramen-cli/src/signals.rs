//! ^C and SIGTERM: noted, so that what is running can be finished. A second one ends the process at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Result};

/// Which signal has come, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// Notes signals from now on.
    pub(crate) fn watch() -> Result<Signals> {
        let signals = Signals::default();
        for (signal, number) in [(SIGINT, SIGINT.unsigned_abs()), (SIGTERM, SIGTERM.unsigned_abs())] {
            let seen = Arc::new(AtomicBool::new(false));
            // Order matters: the first signal finds `seen` unset, passes, and sets it for the second.
            flag::register_conditional_default(signal, Arc::clone(&seen))
                .and_then(|_| flag::register(signal, seen))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&signals.received), number as usize))
                .map_err(|error| Failure::io("watch signals of", Path::new("this process"), &error))?;
        }
        Ok(signals)
    }

    /// The number of the signal that came last.
    pub(crate) fn received(&self) -> Option<u8> {
        u8::try_from(self.received.load(Ordering::Relaxed)).ok().filter(|number| *number != 0)
    }
}
