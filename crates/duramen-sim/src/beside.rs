//! What runs beside the work of a test, until that is over.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also by a panic. A thread that runs until the flag is set then ends.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
