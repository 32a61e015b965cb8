//! Line numbers of CSV records, whatever ends the lines: LF, CR LF or CR.
//!
//! The reader of CSV counts LFs, and takes the LF of a CR LF for the start of the next record. So the line
//! of a record needs the byte at which its reading stopped.

use std::io::{self, Read};

use csv::{ByteRecord, Position};

/// Bytes passed through, with a copy of the latest chunk: that of which the reader of CSV consumes.
pub(super) struct Latest<R> {
    inner: R,
    chunk: Vec<u8>,
    /// Bytes before the chunk.
    before: u64,
}

impl<R> Latest<R> {
    pub(super) fn new(inner: R) -> Latest<R> {
        Latest { inner, chunk: Vec::new(), before: 0 }
    }

    /// The last byte before this position; `None` after the end of the input.
    fn last_before(&self, position: u64) -> Option<u8> {
        let index = position.checked_sub(self.before + 1)?;
        self.chunk.get(usize::try_from(index).ok()?).copied()
    }
}

impl<R: Read> Read for Latest<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.before += self.chunk.len() as u64;
        self.chunk.clear();
        self.chunk.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// Counts the lines that the reader of CSV does not count.
#[derive(Default)]
pub(super) struct LineNumbers {
    /// Lines that ended with a CR alone.
    bare: u64,
    /// Whether the previous record ended with a CR, of which an LF may follow.
    after_cr: bool,
}

impl LineNumbers {
    /// Corrects the position of the record that was read from `latest` up to `end`.
    pub(super) fn correct<R>(&mut self, record: &mut ByteRecord, end: &Position, latest: &Latest<R>) {
        let Some(mut start) = record.position().cloned() else { return };
        let last = latest.last_before(end.byte());
        let ends = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        // What is left are the ends of empty lines, and the LF of a CR LF.
        let mut skipped = (end.line() - start.line()).saturating_sub(u64::from(last == Some(b'\n')));
        if skipped > 0 {
            skipped = skipped.saturating_sub(ends(record.as_slice()));
        }
        self.bare += u64::from(self.after_cr && skipped == 0);
        self.after_cr = last == Some(b'\r');
        start.set_line(start.line() + skipped + self.bare);
        record.set_position(Some(start));
    }
}
