//! The source of rows: a file or standard input, gzip or not, without its byte order mark.
//!
//! A regular file can be read twice; everything else once.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gunzip::{self, Gunzip, Trailing};
use super::stream::{Stopped, Stream};
use crate::failure::{Failure, Result};
use crate::signals::Signals;

/// Its name on the command line.
const STANDARD_INPUT: &str = "-";
const BUFFER_BYTES: usize = 256 * 1024;
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Bytes of an input, without compression and byte order mark.
pub(super) type Reader = Box<dyn BufRead + Send>;

/// An input, found and opened.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    file: Option<File>,
    bytes_read: Arc<AtomicU64>,
    bytes_total: Option<u64>,
    signals: Signals,
}

impl Input {
    /// Finds and opens a file; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Input> {
        let mut input = Input {
            path: path.to_owned(),
            file: None,
            bytes_read: Arc::default(),
            bytes_total: None,
            signals: Signals::default(),
        };
        if path == Path::new(STANDARD_INPUT) {
            return Ok(input);
        }
        let failed = |error: io::Error| Failure::io("read", path, &error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Failure::data(
                format!("{} is a directory, and import reads a file", path.display()),
                "name a CSV or NDJSON file, or - for standard input",
            ));
        }
        if metadata.is_file() {
            input.bytes_total = Some(metadata.len());
        }
        input.file = Some(file);
        Ok(input)
    }

    /// The same input, with waits that a signal ends.
    pub(super) fn until(self, signals: Signals) -> Input {
        Input { signals, ..self }
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        if self.path == Path::new(STANDARD_INPUT) {
            "standard input".to_owned()
        } else {
            self.path.display().to_string()
        }
    }

    /// Whether it is a regular file, which can be read twice.
    pub(super) fn is_regular(&self) -> bool {
        self.bytes_total.is_some()
    }

    /// The regular file, for a format that is not read from its start to its end.
    #[cfg(feature = "parquet")]
    pub(super) fn whole_file(&self) -> Result<File> {
        if !self.is_regular() {
            return Err(Failure::usage(
                format!("{} is no regular file, and Parquet ends with its index", self.name()),
                "store it in a file, and import that",
            ));
        }
        File::open(&self.path).map_err(|error| Failure::io("read", &self.path, &error))
    }

    /// Bytes read from it so far, compressed if it is.
    pub(super) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }

    /// Its size, if it has one.
    pub(super) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    /// Its bytes from the start. A non-regular input yields them once.
    pub(super) fn reader(&mut self) -> Result<Reader> {
        let failed = |error: io::Error| Failure::io("read", &self.path, &error);
        let raw: Box<dyn Read + Send> = if self.is_regular() {
            Box::new(File::open(&self.path).map_err(failed)?)
        } else {
            let waiting: Box<dyn Read + Send> = match self.file.take() {
                Some(file) => Box::new(file),
                None => Box::new(io::stdin()),
            };
            Box::new(Stream::new(waiting, self.signals.clone()))
        };
        self.bytes_read.store(0, Ordering::Relaxed);
        let counted = Counted { inner: raw, count: Arc::clone(&self.bytes_read) };
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, counted);
        let name = self.name();
        let unread = |error: io::Error| read_failure(&name, &error);
        let mut reader: Reader = if fill(&mut plain).map_err(unread)?.starts_with(&gunzip::MAGIC) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, Gunzip::new(plain)))
        } else {
            Box::new(plain)
        };
        let marked = fill(&mut *reader).map_err(unread)?.starts_with(&BYTE_ORDER_MARK);
        if marked {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        Ok(reader)
    }
}

/// The buffered bytes, at least one read's worth. An interrupted read is repeated.
fn fill(reader: &mut dyn BufRead) -> io::Result<&[u8]> {
    loop {
        match reader.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    reader.fill_buf()
}

/// The failure of a read, with a likely cause.
pub(super) fn read_failure(name: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref();
    if let Some(Stopped(number)) = inner.and_then(|inner| inner.downcast_ref()) {
        return Failure::signal(*number);
    }
    match error.kind() {
        _ if inner.is_some_and(|inner| inner.is::<Trailing>()) => {
            Failure::data(format!("{name}: {error}"), "cut off what follows, or fetch the file again")
        }
        io::ErrorKind::UnexpectedEof => Failure::data(
            format!("{name} ends in the middle of its gzip stream"),
            "the file was cut: fetch it again",
        ),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            Failure::data(format!("{name} is a corrupt gzip stream: {error}"), "fetch the file again")
        }
        _ => Failure::io("read", Path::new(name), error),
    }
}

struct Counted {
    inner: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
