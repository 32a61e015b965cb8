//! Where the frames of a log lie (docs/format.md): so that a bit of a certain one can be flipped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Result, failed};

const BLOCK_BYTES: usize = 4096;
const HEADER_BYTES: u64 = 160;
const PART_BYTES: u64 = 40;

/// A frame of a log.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) segment: PathBuf,
    /// Where its last byte lies in the segment.
    pub(crate) last_byte: u64,
    epoch: u64,
    last_seq: u64,
    durable_seq: u64,
    has_commits: bool,
}

/// The frames of a log, the oldest first.
pub(crate) fn of(log: &Path) -> Result<Vec<Frame>> {
    let mut frames = Vec::new();
    for segment in segments(log)? {
        let bytes = fs::read(&segment).map_err(|error| failed("read", &segment.display(), &error))?;
        let epoch = number(&bytes, 48);
        // Frames of another epoch are left from an earlier use of the file; one of epoch 0 is not used.
        let mut offset = BLOCK_BYTES;
        while epoch > 0 && bytes.get(offset + 16..offset + 20) == Some(b"DuFr") {
            let head = &bytes[offset..];
            if number(head, 40) != epoch {
                break;
            }
            let parts = number(head, 24) & u64::from(u32::MAX);
            let size = HEADER_BYTES + PART_BYTES * parts + number(head, 32);
            frames.push(Frame {
                segment: segment.clone(),
                last_byte: offset as u64 + size - 1,
                epoch,
                last_seq: number(head, 64),
                durable_seq: number(head, 72),
                has_commits: parts > 0,
            });
            offset += usize::try_from(size).map_err(|_| "a frame is too long")?.next_multiple_of(BLOCK_BYTES);
        }
    }
    frames.sort_by_key(|frame| (frame.epoch, frame.last_byte));
    Ok(frames)
}

/// The newest frame, which none marks as durable.
pub(crate) fn unmarked(log: &Path) -> Result<Frame> {
    of(log)?.pop().ok_or_else(|| format!("{} has no frame", log.display()))
}

/// The newest frame of commits that a later one marks as durable.
pub(crate) fn marked(log: &Path) -> Result<Frame> {
    let frames = of(log)?;
    let durable = frames.last().map_or(0, |last| last.durable_seq);
    let is_marked = |frame: &Frame| frame.has_commits && frame.last_seq <= durable;
    let found = frames.into_iter().rev().find(is_marked);
    found.ok_or_else(|| format!("{} has no frame that is marked", log.display()))
}

/// The segments of a log.
pub(crate) fn segments(log: &Path) -> Result<Vec<PathBuf>> {
    let failing = |error: std::io::Error| failed("list", &log.display(), &error);
    let entries = fs::read_dir(log).map_err(failing)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.map_err(failing)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    paths.sort();
    Ok(paths)
}

/// The 64-bit number at an offset; 0 behind the end.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}
