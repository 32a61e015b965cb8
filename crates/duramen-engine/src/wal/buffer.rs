//! A buffer aligned for direct I/O, and a writer that sends a frame through it.
//!
//! A frame up to the buffer's size is one write. A longer one is written in slices, so that memory is
//! bounded.

use duramen_disk::{DurableWriteError, File};

use super::layout::BLOCK_BYTES_MAX;
use crate::alarm::invariant;
use crate::limits;

/// The largest single write.
pub(super) const SLICE_BYTES_MAX: usize = limits::BIG_VALUE_EXTENT_BYTES;

/// The alignment that direct I/O needs on every device in use.
const ALIGNMENT_BYTES: usize = 4096;

const _: () = assert!(SLICE_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES));
const _: () = assert!(SLICE_BYTES_MAX.is_power_of_two(), "a size rounded up to a power of two stays a slice");
const _: () =
    assert!(SLICE_BYTES_MAX.is_multiple_of(BLOCK_BYTES_MAX), "a slice ends with a block of any size");
const _: () = assert!(
    (ALIGNMENT_BYTES as u64).is_multiple_of(duramen_disk::DIRECT_ALIGN_BYTES),
    "the buffer is aligned for direct writes"
);

/// Bytes to be written, aligned in memory.
#[derive(Debug, Default)]
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    filled: usize,
    capacity: usize,
}

impl AlignedBuffer {
    /// Makes the buffer empty and able to hold `bytes`, but never more than [`SLICE_BYTES_MAX`].
    pub(super) fn prepare(&mut self, bytes: u64) {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(ALIGNMENT_BYTES, SLICE_BYTES_MAX);
        let wanted = wanted.next_power_of_two();
        if self.capacity < wanted {
            self.memory = vec![0; wanted + ALIGNMENT_BYTES];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT_BYTES).min(ALIGNMENT_BYTES);
            self.capacity = wanted;
        }
        self.filled = 0;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled]
    }

    /// Copies as much of `bytes` as fits and returns the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = bytes.len().min(self.capacity - self.filled);
        let at = self.start + self.filled;
        self.memory[at..at + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        &bytes[count..]
    }

    fn take_zeroes(&mut self, count: usize) -> usize {
        let count = count.min(self.capacity - self.filled);
        let at = self.start + self.filled;
        self.memory[at..at + count].fill(0);
        self.filled += count;
        count
    }
}

/// Sends bytes to consecutive offsets of a file through a buffer.
#[derive(Debug)]
pub(super) struct SliceWriter<'a> {
    file: &'a dyn File,
    buffer: &'a mut AlignedBuffer,
    offset: u64,
    /// The number of writes to the file.
    pub(super) write_count: u64,
}

impl<'a> SliceWriter<'a> {
    pub(super) fn new(file: &'a dyn File, buffer: &'a mut AlignedBuffer, offset: u64) -> SliceWriter<'a> {
        buffer.filled = 0;
        SliceWriter { file, buffer, offset, write_count: 0 }
    }

    /// Where the bytes appended so far end in the file.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.buffer.filled as u64
    }

    /// Appends bytes, writing whenever the buffer is full.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), DurableWriteError> {
        let mut rest = self.buffer.take(bytes);
        while !rest.is_empty() {
            self.flush(false)?;
            rest = self.buffer.take(rest);
        }
        Ok(())
    }

    /// Appends zeroes.
    pub(super) fn push_zeroes(&mut self, count: usize) -> Result<(), DurableWriteError> {
        let mut left = count - self.buffer.take_zeroes(count);
        while left > 0 {
            self.flush(false)?;
            left -= self.buffer.take_zeroes(left);
        }
        Ok(())
    }

    /// Writes the rest. With `durable` and no earlier write: one durable write. Returns whether it was
    /// durable.
    pub(super) fn finish(&mut self, durable: bool) -> Result<bool, DurableWriteError> {
        let durable = durable && self.write_count == 0;
        self.flush(durable)?;
        Ok(durable)
    }

    fn flush(&mut self, durable: bool) -> Result<(), DurableWriteError> {
        let bytes = self.buffer.bytes();
        // Without room in the buffer, appending would never end.
        invariant!(!bytes.is_empty(), "the buffer of the log was made ready for a write");
        invariant!(
            bytes.as_ptr().align_offset(ALIGNMENT_BYTES) == 0,
            "the buffer of the log begins at a multiple of {ALIGNMENT_BYTES} bytes"
        );
        if durable {
            self.file.write_durable_at(bytes, self.offset)?;
        } else {
            self.file.write_at(bytes, self.offset).map_err(DurableWriteError::Write)?;
        }
        self.offset += bytes.len() as u64;
        self.buffer.filled = 0;
        self.write_count += 1;
        Ok(())
    }
}
