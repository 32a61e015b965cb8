//! What runs beside the work of a test, until that is over.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. What runs until the flag is set ends then, also if the work panicked.
#[derive(Debug)]
pub struct UntilDropped<'a>(pub &'a AtomicBool);

impl Drop for UntilDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
