//! Free page buffers, kept for later pages of about the same length.
//!
//! Nodes of all lengths are created and dropped all the time. The general allocator would cut their buffers
//! up for small, long-lived objects, and the process would take almost twice the memory of its nodes
//! (docs/decisions/0004). So buffers have few sizes and are reused whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::alarm::locked;
use crate::limits::LEAF_BYTES_MAX;

/// Sizes of buffers are multiples of this.
const STEP_BYTES: usize = 2048;

/// Longer pages are rare and get buffers from the general allocator.
const SHELF_COUNT: usize = 20;

const _: () =
    assert!(SHELF_COUNT * STEP_BYTES >= 2 * LEAF_BYTES_MAX, "every usual node gets a pooled buffer");

/// Unused buffers by size.
#[derive(Debug)]
pub struct Buffers {
    shelves: [Mutex<Vec<Vec<u8>>>; SHELF_COUNT],
    idle_bytes: AtomicUsize,
    idle_bytes_max: AtomicUsize,
}

impl Buffers {
    /// Empty. Keeps nothing until [`Buffers::keep_at_most`] sets a limit.
    pub fn new() -> Arc<Buffers> {
        let (shelves, idle_bytes, idle_bytes_max) = Default::default();
        Arc::new(Buffers { shelves, idle_bytes, idle_bytes_max })
    }

    /// Sets how many bytes of unused buffers are kept.
    pub fn keep_at_most(&self, bytes: usize) {
        self.idle_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// A buffer with room for `bytes`. Its contents are left over from its last use.
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let kept = self.shelf(bytes).and_then(|shelf| locked(shelf.lock()).pop());
        match kept {
            Some(buffer) => {
                let capacity = buffer.capacity();
                let idle_bytes = self.idle_bytes.fetch_sub(capacity, Ordering::Relaxed);
                debug_assert!(capacity >= bytes, "a buffer of {capacity} bytes has room for {bytes}");
                debug_assert!(idle_bytes >= capacity, "{capacity} idle bytes are among {idle_bytes}");
                buffer
            }
            None => Vec::with_capacity(bytes.next_multiple_of(STEP_BYTES)),
        }
    }

    /// Returns a buffer for reuse.
    pub fn give(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        let is_ours = bytes.is_multiple_of(STEP_BYTES);
        let Some(shelf) = self.shelf(bytes).filter(|_| is_ours) else { return };
        if self.idle_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
            > self.idle_bytes_max.load(Ordering::Relaxed)
        {
            self.idle_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        locked(shelf.lock()).push(buffer);
    }

    fn shelf(&self, bytes: usize) -> Option<&Mutex<Vec<Vec<u8>>>> {
        self.shelves.get(bytes.div_ceil(STEP_BYTES).checked_sub(1)?)
    }
}
