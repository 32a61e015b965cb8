//! Reads frames ahead of the chain, as far as their heads follow; several threads check their parts.
//!
//! Decides nothing. The chain takes the frames in order, as if it had just read each. Frames after the first
//! incomplete one, or after one that another segment continues, are dropped unused. The result therefore
//! does not depend on the number of threads. One thread reads nothing ahead and does all work in the calling
//! thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::buffer::SLICE_BYTES_MAX;
use super::frame::Part;
use super::layout::to_usize;
use super::survey::{FoundFile, FoundFrame, Survey};
use crate::alarm::invariant;
use crate::error::{Error, Result};
use crate::ids::Epoch;
use crate::threads::side_by_side;

/// Below this many bytes of frames, threads cost more than they save.
const SHARED_BYTES_MIN: u64 = 256 * 1024;

/// How a log is read.
pub struct Reading<'a, N> {
    /// The number of threads that share the work.
    pub threads: usize,
    /// With more than one thread: about how many bytes of frames are in memory before the first is delivered.
    pub ahead_bytes: usize,
    /// Called for each record while its bytes are in memory, in any order and in any thread.
    pub note: &'a (dyn Fn(&[u8]) -> N + Sync),
}

/// The parts of a frame.
pub(super) enum Parts<N> {
    /// One of them does not match its checksum in the frame's table.
    Broken,
    /// Checked and in memory, each with the note for it if it is a complete record.
    Held(Vec<(Vec<u8>, Option<N>)>),
    /// Checked, and too long to keep in memory.
    Checked,
}

/// Frames whose heads follow one another.
pub(super) struct Heads {
    pub(super) frames: Vec<FoundFrame>,
    /// Why the frame after them cannot be read. The chain fails with it, unless another segment continues it
    /// first.
    pub(super) failed: Option<Error>,
}

/// What the next frame must continue, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) epoch: Epoch,
    pub(super) incarnation: u128,
    pub(super) checksum: u128,
    pub(super) offset: u64,
}

impl Reading<'static, ()> {
    /// Frame by frame, in the calling thread.
    pub const IN_TURN: Reading<'static, ()> = Reading { threads: 1, ahead_bytes: 0, note: &|_| () };
}

impl<N: Send> Reading<'_, N> {
    /// The frames of a segment whose heads follow: none if the first does not, at most one with one thread.
    /// Stops after a frame that another segment continues.
    pub(super) fn heads(
        &self,
        survey: &Survey,
        file: &FoundFile,
        link: Link,
        is_continued: &dyn Fn(&FoundFrame) -> bool,
    ) -> Heads {
        let bytes_max = if self.threads > 1 { self.ahead_bytes as u64 } else { 0 };
        let mut heads = Heads { frames: Vec::new(), failed: None };
        let mut next = link;
        loop {
            match survey.frame_at(file, next.offset) {
                Ok(Some(frame)) if next.leads_to(&frame) => {
                    next = Link { checksum: frame.checksum, offset: frame.end_offset, ..next };
                    let is_last = is_continued(&frame);
                    heads.frames.push(frame);
                    if is_last {
                        return heads;
                    }
                }
                Ok(_) => return heads,
                Err(error) => return Heads { failed: Some(error), ..heads },
            }
            if next.offset - link.offset >= bytes_max {
                return heads;
            }
        }
    }

    /// The parts of each of these frames, in their order.
    pub(super) fn parts(&self, file: &FoundFile, frames: &[FoundFrame]) -> Vec<Result<Parts<N>>> {
        let bytes: u64 = frames.iter().map(|frame| frame.header.frame_bytes()).sum();
        let is_worth_it = bytes >= SHARED_BYTES_MIN.min(self.ahead_bytes as u64);
        let threads = if is_worth_it { self.threads.min(frames.len()).max(1) } else { 1 };
        let next = AtomicUsize::new(0);
        let mut done: Vec<_> = side_by_side(&vec![(); threads], |()| {
            let mut mine = Vec::new();
            let mut room = Vec::new();
            // One frame at a time, so that a thread that is held up takes fewer.
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(frame) = frames.get(index) else { return mine };
                mine.push((index, self.parts_of(file, frame, &mut room)));
            }
        })
        .into_iter()
        .flatten()
        .collect();
        // The chain would end at a frame that was left out.
        invariant!(done.len() == frames.len(), "{} frames are read, of {}", done.len(), frames.len());
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, parts)| parts).collect()
    }

    /// Checks all parts before any is used. `room` is a buffer that is reused.
    fn parts_of(&self, file: &FoundFile, frame: &FoundFrame, room: &mut Vec<u8>) -> Result<Parts<N>> {
        let payload_bytes = to_usize(frame.header.payload_bytes);
        if payload_bytes > SLICE_BYTES_MAX {
            return long_parts(file, frame, room);
        }
        if let [part] = &frame.parts[..] {
            // The payload is the record.
            let mut bytes = vec![0; payload_bytes];
            file.read(&mut bytes, frame.payload_offset)?;
            let is_whole = xxh3_128(&bytes) == part.checksum;
            return Ok(if is_whole { Parts::Held(vec![self.noted(part, bytes)]) } else { Parts::Broken });
        }
        room.resize(payload_bytes, 0);
        file.read(room, frame.payload_offset)?;
        let mut rest = &room[..];
        let mut parts = Vec::with_capacity(frame.parts.len());
        for part in &frame.parts {
            let (bytes, after) = rest.split_at(to_usize(part.bytes));
            rest = after;
            if xxh3_128(bytes) != part.checksum {
                return Ok(Parts::Broken);
            }
            parts.push(self.noted(part, bytes.to_vec()));
        }
        invariant!(rest.is_empty(), "the parts of a frame checked add up to {payload_bytes} bytes");
        Ok(Parts::Held(parts))
    }

    fn noted(&self, part: &Part, bytes: Vec<u8>) -> (Vec<u8>, Option<N>) {
        let note = (part.first && part.last).then(|| (self.note)(&bytes));
        (bytes, note)
    }
}

impl Link {
    fn leads_to(&self, frame: &FoundFrame) -> bool {
        frame.header.epoch == self.epoch
            && frame.header.incarnation == self.incarnation
            && frame.header.previous_checksum == self.checksum
    }
}

fn long_parts<N>(file: &FoundFile, frame: &FoundFrame, room: &mut Vec<u8>) -> Result<Parts<N>> {
    room.resize(SLICE_BYTES_MAX, 0);
    let mut offset = frame.payload_offset;
    for part in &frame.parts {
        let mut hasher = Xxh3::new();
        let end = offset + part.bytes;
        while offset < end {
            let count = to_usize(end - offset).min(SLICE_BYTES_MAX);
            file.read(&mut room[..count], offset)?;
            hasher.update(&room[..count]);
            offset += count as u64;
        }
        if hasher.digest128() != part.checksum {
            return Ok(Parts::Broken);
        }
    }
    Ok(Parts::Checked)
}
