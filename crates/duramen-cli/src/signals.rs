//! ^C and SIGTERM: recorded, so that the running work can be finished. A second one ends the process at once.
//!
//! The process has one set of flags, shared by all watchers: a shell watches once for each of its commands.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Result};

/// The signal that has come, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
    /// For each signal, whether it has come.
    seen: [Arc<AtomicBool>; 2],
}

static OF_PROCESS: OnceLock<Signals> = OnceLock::new();

impl Signals {
    /// Records signals from now on, and forgets earlier ones.
    pub(crate) fn watch() -> Result<Signals> {
        let known = OF_PROCESS.get();
        let signals = known.cloned().unwrap_or_default();
        signals.received.store(0, Ordering::Relaxed);
        signals.seen.iter().for_each(|seen| seen.store(false, Ordering::Relaxed));
        if known.is_none() {
            signals.register()?;
            // Only one thread runs commands, so no other has set it meanwhile.
            OF_PROCESS.get_or_init(|| signals.clone());
        }
        Ok(signals)
    }

    fn register(&self) -> Result<()> {
        for (signal, seen) in [SIGINT, SIGTERM].into_iter().zip(&self.seen) {
            // Order matters: the first signal finds `seen` unset, passes, and sets it for the second.
            flag::register_conditional_default(signal, Arc::clone(seen))
                .and_then(|_| flag::register(signal, Arc::clone(seen)))
                .and_then(|_| {
                    flag::register_usize(signal, Arc::clone(&self.received), signal.unsigned_abs() as usize)
                })
                .map_err(|error| Failure::io("watch signals of", Path::new("this process"), &error))?;
        }
        Ok(())
    }

    /// Lets the next signal end the process, when no work needs finishing.
    pub(crate) fn rest() {
        if let Some(signals) = OF_PROCESS.get() {
            signals.seen.iter().for_each(|seen| seen.store(true, Ordering::Relaxed));
        }
    }

    /// The number of the signal that came last.
    pub(crate) fn received(&self) -> Option<u8> {
        u8::try_from(self.received.load(Ordering::Relaxed)).ok().filter(|number| *number != 0)
    }
}
