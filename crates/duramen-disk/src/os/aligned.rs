//! Aligned memory for reads and writes past the kernel's cache, without unsafe code.
//!
//! Owns oversized vectors and the aligned part of each. It never touches a file. No promise rests here.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::DIRECT_ALIGN_BYTES;

/// [`DIRECT_ALIGN_BYTES`] as a size in memory.
pub(super) const ALIGN_BYTES: usize = 4096;
const _: () = assert!(ALIGN_BYTES as u64 == DIRECT_ALIGN_BYTES);

/// The longest buffer that is kept for the next call.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// One spare buffer per file: a log has one writer, so it nearly always suffices.
#[derive(Debug, Default)]
pub(super) struct AlignedPool {
    spare: Mutex<Option<Vec<u8>>>,
}

impl AlignedPool {
    /// Lends `bytes` of aligned memory with unspecified contents.
    pub(super) fn with<T>(&self, bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut memory = spare.filter(|memory| memory.len() >= bytes + ALIGN_BYTES).unwrap_or_else(|| {
            // Zeroed memory from the system is not touched, so the excess allocation costs no pages.
            vec![0; bytes + ALIGN_BYTES]
        });
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        let result = work(&mut memory[start..start + bytes]);
        if memory.len() <= KEPT_BYTES_MAX {
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
        }
        result
    }
}

/// Whether memory is aligned for the device.
pub(super) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN_BYTES)
}

/// A byte count as a length in memory.
pub(super) fn index(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}
