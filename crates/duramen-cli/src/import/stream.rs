//! Bytes of an input that may block, such as a pipe whose other end is idle.
//!
//! A separate thread reads them, so that the consumer can check signals meanwhile: a read cannot be
//! cancelled.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use crate::signals::Signals;

/// How often a waiting consumer checks signals.
const TICK: Duration = Duration::from_millis(50);

/// The size of one read: as much as a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks read ahead.
const CHUNKS_MAX: usize = 4;

type Chunk = io::Result<Vec<u8>>;

/// The bytes until a signal comes. A read then fails with [`Stopped`].
pub(super) struct Stream {
    chunks: Receiver<Chunk>,
    chunk: Cursor<Vec<u8>>,
    ended: bool,
    signals: Signals,
}

/// The error of a read that a signal has ended, with its number.
#[derive(Debug)]
pub(super) struct Stopped(pub(super) u8);

impl Stream {
    pub(super) fn new(mut raw: Box<dyn Read + Send>, signals: Signals) -> Stream {
        let (sender, chunks) = mpsc::sync_channel(CHUNKS_MAX);
        // Never joined: it may wait for input for ever, and ends with the process.
        thread::spawn(move || while hand_on(&mut *raw, &sender) {});
        Stream { chunks, chunk: Cursor::default(), ended: false, signals }
    }

    /// Waits for a chunk; an empty one is the end.
    fn next(&self) -> Chunk {
        loop {
            if let Some(number) = self.signals.received() {
                return Err(io::Error::other(Stopped(number)));
            }
            match self.chunks.recv_timeout(TICK) {
                Ok(chunk) => return chunk,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the input thread stopped unexpectedly"));
                }
            }
        }
    }
}

/// Reads once and sends the chunk. Returns whether there may be more.
fn hand_on(raw: &mut dyn Read, chunks: &SyncSender<Chunk>) -> bool {
    let mut chunk = vec![0; CHUNK_BYTES];
    match raw.read(&mut chunk) {
        Ok(count) => {
            chunk.truncate(count);
            chunks.send(Ok(chunk)).is_ok() && count > 0
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
        Err(error) => {
            // The receiver has gone, and so has the import.
            let _ = chunks.send(Err(error));
            false
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(buffer)?;
            if count > 0 || buffer.is_empty() || self.ended {
                return Ok(count);
            }
            self.chunk = Cursor::new(self.next()?);
            self.ended = self.chunk.get_ref().is_empty();
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by signal {}", self.0)
    }
}

impl std::error::Error for Stopped {}

#[cfg(test)]
mod tests {
    //! Bytes pass unchanged, whatever the sizes of the reads; an error is passed on.
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 17).map(|at| at.to_le_bytes()[0]).collect();
        let mut stream = Stream::new(Box::new(Cursor::new(bytes.clone())), Signals::default());
        let mut found = Vec::new();
        stream.read_to_end(&mut found).unwrap();
        assert_eq!(found, bytes);
        assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0, "the end is the end");
    }

    #[test]
    fn a_read_that_fails_fails_here() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("unplugged"))
            }
        }
        let mut stream = Stream::new(Box::new(Broken), Signals::default());
        assert_eq!(stream.read(&mut [0; 9]).unwrap_err().to_string(), "unplugged");
    }
}
