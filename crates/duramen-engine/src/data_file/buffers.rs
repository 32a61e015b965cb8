//! Buffers of pages that were given back, kept for the next pages of about the same length.
//!
//! Nodes come and go all the time, in every length. Given back to the general allocator, their buffers are cut up
//! for small things that stay, and a process takes almost twice the memory that its nodes do (docs/decisions/0004). So
//! buffers have few sizes and are handed on whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const POISON: &str = "nothing panics while a shelf is locked";

/// Sizes of buffers are multiples of this.
const STEP_BYTES: usize = 2048;

/// Longer pages are rare, and get buffers of their own from the general allocator.
const SHELF_COUNT: usize = 20;

/// Buffers nobody uses at the moment, by size.
#[derive(Debug)]
pub struct Buffers {
    shelves: [Mutex<Vec<Vec<u8>>>; SHELF_COUNT],
    idle_bytes: AtomicUsize,
    idle_bytes_max: AtomicUsize,
}

impl Buffers {
    /// None yet. Keeps nothing until [`Buffers::keep_at_most`] says how much.
    pub fn new() -> Arc<Buffers> {
        let (shelves, idle_bytes, idle_bytes_max) = Default::default();
        Arc::new(Buffers { shelves, idle_bytes, idle_bytes_max })
    }

    /// Sets how many bytes may wait for their next use.
    pub fn keep_at_most(&self, bytes: usize) {
        self.idle_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// A buffer with room for `bytes`; what is in it is left over from its last use.
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let kept = self.shelf(bytes).and_then(|shelf| shelf.lock().expect(POISON).pop());
        match kept {
            Some(buffer) => {
                self.idle_bytes.fetch_sub(buffer.capacity(), Ordering::Relaxed);
                buffer
            }
            None => Vec::with_capacity(bytes.next_multiple_of(STEP_BYTES)),
        }
    }

    /// Takes a buffer back.
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
        shelf.lock().expect(POISON).push(buffer);
    }

    fn shelf(&self, bytes: usize) -> Option<&Mutex<Vec<Vec<u8>>>> {
        self.shelves.get(bytes.div_ceil(STEP_BYTES).checked_sub(1)?)
    }
}
