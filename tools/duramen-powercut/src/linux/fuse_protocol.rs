//! The part of the FUSE protocol for a directory with a file per drive: decodes requests, encodes answers.
//!
//! Owns the layouts of `linux/fuse.h`. Pure: it touches no device. The drive's server decides what a request
//! does.

#![allow(
    clippy::host_endian_bytes,
    reason = "the kernel speaks to a process of the same machine, in that machine's order"
)]

/// The root directory.
pub(crate) const ROOT: u64 = 1;
/// The file of the first drive; the next drive has the next number.
const FIRST_DRIVE: u64 = 2;
/// The largest write or read of one request.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The buffer for reading the device: a request and its headers.
pub(crate) const BUFFER_BYTES: usize = REQUEST_BYTES_MAX + (64 << 10);

const HEADER_BYTES: usize = 40;
/// The newest supported minor version.
const MINOR: u32 = 38;
const FUSE_ASYNC_READ: u32 = 1;
const FUSE_BIG_WRITES: u32 = 1 << 5;
const FUSE_ASYNC_DIO: u32 = 1 << 15;
const FUSE_MAX_PAGES: u32 = 1 << 22;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// A request of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Init {
        major: u32,
        readahead_bytes_max: u32,
        flags: u32,
    },
    Lookup {
        parent: u64,
        name: &'a [u8],
    },
    Attributes {
        node: u64,
    },
    Open {
        node: u64,
    },
    OpenDirectory,
    ReadDirectory,
    Read {
        node: u64,
        offset: u64,
        bytes: usize,
    },
    Write {
        node: u64,
        offset: u64,
        bytes: &'a [u8],
    },
    Sync {
        node: u64,
    },
    FileSystem,
    /// Close and flush requests, which succeed and do nothing.
    Nothing,
    /// Requests without an answer.
    Silent,
    /// Operations that this file system does not support.
    Unknown,
}

/// The file of a drive, by the drive's index.
pub(crate) fn node(drive: usize) -> u64 {
    FIRST_DRIVE + drive as u64
}

/// The index of the drive with this file, if there is one.
pub(crate) fn drive(node: u64) -> Option<usize> {
    usize::try_from(node.checked_sub(FIRST_DRIVE)?).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The number of a request and its contents; `None` if it is truncated.
pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Request<'_>)> {
    let (opcode, unique, node) = (word(bytes, 4)?, long(bytes, 8)?, long(bytes, 16)?);
    let body = bytes.get(HEADER_BYTES..)?;
    let request = match opcode {
        1 => Request::Lookup { parent: node, name: body.split(|byte| *byte == 0).next()? },
        3 | 4 => Request::Attributes { node },
        14 => Request::Open { node },
        15 => Request::Read { node, offset: long(body, 8)?, bytes: usize::try_from(word(body, 16)?).ok()? },
        16 => {
            let count = usize::try_from(word(body, 16)?).ok()?;
            Request::Write { node, offset: long(body, 8)?, bytes: body.get(40..40 + count)? }
        }
        17 => Request::FileSystem,
        18 | 25 | 29 | 38 => Request::Nothing,
        20 => Request::Sync { node },
        26 => Request::Init {
            major: word(body, 0)?,
            readahead_bytes_max: word(body, 8)?,
            flags: word(body, 12)?,
        },
        27 => Request::OpenDirectory,
        28 => Request::ReadDirectory,
        2 | 36 | 41 | 42 => Request::Silent,
        _ => Request::Unknown,
    };
    Some((unique, request))
}

/// An answer under construction.
struct Answer(Vec<u8>);

impl Answer {
    fn word(mut self, value: u32) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn long(mut self, value: u64) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn zeroes(mut self, count: usize) -> Answer {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    fn attributes(self, node: u64, size_bytes: u64) -> Answer {
        let (mode, bytes) = if node == ROOT { (0o040_700, 0) } else { (0o100_600, size_bytes) };
        let numbered = self.long(node).long(bytes).long(bytes / 512).zeroes(3 * 8 + 3 * 4);
        // Mode, links, user, group, device, block size, flags.
        numbered.word(mode).word(1).word(0).word(0).word(0).word(4096).word(0)
    }
}

/// A whole answer: the header and what follows it. `error` is 0 or an errno.
pub(crate) fn answer(unique: u64, error: i32, payload: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(16 + payload.len()).expect("an answer is about as long as a request");
    let mut whole = Vec::with_capacity(16 + payload.len());
    whole.extend_from_slice(&bytes.to_ne_bytes());
    whole.extend_from_slice(&(-error).to_ne_bytes());
    whole.extend_from_slice(&unique.to_ne_bytes());
    whole.extend_from_slice(payload);
    whole
}

/// Direct I/O in parallel; no cache of writes in the kernel.
pub(crate) fn init(readahead_bytes_max: u32, offered: u32) -> Vec<u8> {
    let wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES;
    let write_bytes_max = u32::try_from(REQUEST_BYTES_MAX).expect("it is a small constant");
    let background = 64_u32 | 48 << 16;
    let head = Answer(Vec::new()).word(7).word(MINOR).word(readahead_bytes_max).word(wanted & offered);
    // Both 16-bit pairs are written as one word. The second is the maximum pages of a request, and no
    // alignment.
    let (background, pages) = if cfg!(target_endian = "little") {
        (background, write_bytes_max / 4096)
    } else {
        (background.rotate_left(16), (write_bytes_max / 4096) << 16)
    };
    head.word(background).word(write_bytes_max).word(1).word(pages).zeroes(32).0
}

pub(crate) fn entry(node: u64, size_bytes: u64) -> Vec<u8> {
    // The generation, and how long name and attributes may be cached: an hour.
    let head = Answer(Vec::new()).long(node).long(0).long(3600).long(3600).word(0).word(0);
    head.attributes(node, size_bytes).0
}

pub(crate) fn attributes(node: u64, size_bytes: u64) -> Vec<u8> {
    Answer(Vec::new()).long(3600).word(0).word(0).attributes(node, size_bytes).0
}

pub(crate) fn opened_disk() -> Vec<u8> {
    Answer(Vec::new()).long(0).word(FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES).word(0).0
}

pub(crate) fn opened_directory() -> Vec<u8> {
    Answer(Vec::new()).zeroes(16).0
}

pub(crate) fn written(bytes: usize) -> Vec<u8> {
    Answer(Vec::new()).word(u32::try_from(bytes).expect("a write fits a request")).word(0).0
}

pub(crate) fn file_system() -> Vec<u8> {
    Answer(Vec::new()).zeroes(80).0
}
