//! Prepares segments ahead of need: zeroes over their full length, durable before the first frame.
//!
//! An overwrite of written blocks changes no metadata, so a sync of the log is one flush of the device. D7: a
//! full disk is met here, before a group is written, and changes nothing.
//!
//! Zeroes are written and synced in slices. A device with megabytes to write delays concurrent commits, so
//! the background rests between slices. No lock is held between two slices. The background can then do other
//! due work, and a writer that needs the segment at once can finish it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::{Access, Disk, File, OpenMode, SyncMethod, write_zeroes};

use super::layout::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use super::segment::{EPOCH_NONE, PreviousFrame, Segment, SegmentHeader, segment_path};
use super::state::SpareOrder;
use super::{LogIdentity, SegmentSlot};
use crate::alarm::invariant;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::limits;
use crate::options::Geometry;

/// Bytes written and synced at once in the background: a few commits' time on an ordinary disk.
pub(super) const SLICE_BYTES: u64 = 128 * 1024;

/// The same while a writer waits for the segment. Each slice costs a sync, which dominates on a slow disk.
pub(super) const HURRIED_SLICE_BYTES: u64 = 1024 * 1024;

/// A segment has at least this many blocks.
const SEGMENT_BLOCKS_MIN: u64 = 4;

/// No log has longer segments.
const SEGMENT_BYTES_LARGEST: u64 = 1 << 40;

const _: () = assert!(
    SLICE_BYTES.is_multiple_of(BLOCK_BYTES_MAX as u64)
        && HURRIED_SLICE_BYTES.is_multiple_of(BLOCK_BYTES_MAX as u64),
    "slices of zeroes end with a block of any size"
);
const _: () = assert!(
    limits::BLOCK_BYTES >= BLOCK_BYTES_MIN
        && limits::BLOCK_BYTES <= BLOCK_BYTES_MAX
        && limits::SEGMENT_BYTES_MIN >= SEGMENT_BLOCKS_MIN * limits::BLOCK_BYTES as u64
        && limits::SEGMENT_BYTES_MAX <= SEGMENT_BYTES_LARGEST,
    "a log can have the sizes that releases use"
);

/// The segment factory: where and how segments are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentFactory<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dir: &'a Path,
    pub(super) identity: LogIdentity,
    pub(super) geometry: Geometry,
    pub(super) sync: SyncMethod,
}

/// A segment under construction. Its zeroes are durable as far as they are written.
#[derive(Debug)]
pub(super) struct Making {
    order: SpareOrder,
    path: PathBuf,
    file: Arc<dyn File>,
    /// The file did not exist before.
    is_new: bool,
    zeroed: u64,
}

impl SegmentFactory<'_> {
    /// Creates or finishes a segment file: all zeroes but for the header of an unused segment. It is durable,
    /// name included. If a segment of that size does not fit, a smaller one is made.
    pub(super) fn make(&self, order: SpareOrder) -> Result<Arc<Segment>> {
        let mut making = self.begin(order)?;
        loop {
            if let Some(segment) = self.go_on(&mut making, HURRIED_SLICE_BYTES)? {
                return Ok(segment);
            }
        }
    }

    /// Begins a segment: its file has its length and its blocks are reserved; nothing is written yet.
    pub(super) fn begin(&self, mut order: SpareOrder) -> Result<Making> {
        loop {
            let begun = self.begin_once(order);
            let is_full = begun.as_ref().is_err_and(|error| error.code() == Code::DiskFull);
            match self.smaller(order) {
                Some(smaller) if is_full => order = smaller,
                _ => return begun,
            }
        }
    }

    /// Writes the next slice of zeroes and waits until it is durable. Returns the segment after the last
    /// slice.
    ///
    /// After an error nothing of the segment is left. If the disk was full, a smaller one is begun, if there
    /// is a smaller size.
    pub(super) fn go_on(&self, making: &mut Making, slice_bytes: u64) -> Result<Option<Arc<Segment>>> {
        let error = match self.zero_slice(making, slice_bytes) {
            Ok(made) => return Ok(made),
            Err(error) => Error::io("prepare", &making.path, &error),
        };
        self.give_up(making);
        match self.smaller(making.order) {
            Some(smaller) if error.code() == Code::DiskFull => {
                *making = self.begin(smaller)?;
                Ok(None)
            }
            _ => Err(error),
        }
    }

    /// Gives up a segment, because its blocks are needed on a full disk. If the file stays, the next attempt
    /// or the next open finds it without a header and finishes it.
    pub(super) fn give_up(&self, making: &Making) {
        let _ = if making.is_new { self.disk.remove(&making.path) } else { making.file.set_len(0) };
    }

    fn smaller(&self, order: SpareOrder) -> Option<SpareOrder> {
        let min = self.geometry.segment_bytes_min;
        let half = (order.bytes / 2).next_multiple_of(self.geometry.block_bytes as u64);
        (order.bytes > min).then(|| SpareOrder { bytes: half.max(min), ..order })
    }

    fn begin_once(&self, order: SpareOrder) -> Result<Making> {
        let block = self.geometry.block_bytes as u64;
        invariant!(
            order.bytes.is_multiple_of(block) && order.bytes >= SEGMENT_BLOCKS_MIN * block,
            "a segment of {} bytes is whole blocks of {block}, and at least {SEGMENT_BLOCKS_MIN}",
            order.bytes
        );
        let path = segment_path(self.dir, order.slot);
        let is_new = match self.disk.kind(&path) {
            Ok(found) => found.is_none(),
            Err(error) => return Err(Error::io("look at", &path, &error)),
        };
        let mode = if is_new { OpenMode::CreateNew } else { OpenMode::Write };
        let open = || -> io::Result<Arc<dyn File>> {
            let file = self.disk.open(&path, Access { mode, sync: self.sync })?;
            // The file is empty on the disk before it gets another length. Otherwise a power cut can leave
            // the header of its last use in a file of another length, which opening reports as corruption
            // (D1).
            if !is_new && file.len()? != order.bytes {
                file.set_len(0)?;
                file.sync_data()?;
            }
            file.reserve(0, order.bytes)?;
            Ok(file)
        };
        open().map(|file| Making { order, path: path.clone(), file, is_new, zeroed: 0 }).map_err(|error| {
            if is_new {
                let _ = self.disk.remove(&path);
            }
            Error::io("prepare", &path, &error)
        })
    }

    fn zero_slice(&self, making: &mut Making, slice_bytes: u64) -> io::Result<Option<Arc<Segment>>> {
        let Making { order: SpareOrder { slot, bytes }, path, file, zeroed, .. } = making;
        // Zeroes would go over the frames of a segment that is handed out.
        invariant!(*zeroed < *bytes, "segment {} of {bytes} bytes is not handed out yet", slot.0);
        let slice = slice_bytes.min(*bytes - *zeroed);
        write_zeroes(&**file, *zeroed, slice)?;
        file.sync_data()?;
        *zeroed += slice;
        if zeroed < bytes {
            return Ok(None);
        }
        // The header is written only after the zeroes are durable: a segment with this header is used as it
        // is.
        file.write_at(&self.first_block(&self.unused_header(*slot, *bytes, CommitSeq(0))), 0)?;
        file.sync_data()?;
        self.disk.sync_dir(self.dir)?;
        let file = Arc::clone(file);
        Ok(Some(Arc::new(Segment { slot: *slot, path: path.clone(), bytes: *bytes, file })))
    }

    /// Opens a segment that was prepared or used before.
    pub(super) fn open(&self, slot: SegmentSlot, bytes: u64) -> Result<Arc<Segment>> {
        let path = segment_path(self.dir, slot);
        let file = self
            .disk
            .open(&path, Access { mode: OpenMode::Write, sync: self.sync })
            .map_err(|error| Error::io("open", &path, &error))?;
        Ok(Arc::new(Segment { slot, path, bytes, file }))
    }

    /// A header and the zeroes that fill its block.
    pub(super) fn first_block(&self, header: &SegmentHeader) -> Vec<u8> {
        let mut block = header.encode().to_vec();
        block.resize(self.geometry.block_bytes, 0);
        block
    }

    /// The header of a segment that is ready for use, with the durable watermark at the time of writing.
    pub(super) fn unused_header(
        &self,
        slot: SegmentSlot,
        bytes: u64,
        durable_seq: CommitSeq,
    ) -> SegmentHeader {
        SegmentHeader {
            identity: self.identity,
            slot,
            epoch: EPOCH_NONE,
            incarnation: 0,
            segment_bytes: bytes,
            block_bytes: block_bytes(&self.geometry),
            first_seq: CommitSeq(0),
            durable_seq,
            previous: PreviousFrame::default(),
        }
    }
}

/// The block size as headers hold it.
pub(super) fn block_bytes(geometry: &Geometry) -> u32 {
    u32::try_from(geometry.block_bytes).expect("check_geometry bounds it")
}

/// Refuses sizes that a log cannot work with.
pub(super) fn check_geometry(geometry: &Geometry, sync: SyncMethod) -> Result<()> {
    let block = geometry.block_bytes;
    if !block.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block) {
        return Err(Error::invalid(format!("block of {block} bytes, want a power of two from 512 to 65536")));
    }
    if sync == SyncMethod::DirectDsync && (block as u64) < duramen_disk::DIRECT_ALIGN_BYTES {
        return Err(Error::invalid(format!(
            "direct writes need blocks of {} bytes",
            duramen_disk::DIRECT_ALIGN_BYTES
        )));
    }
    let (min, max) = (geometry.segment_bytes_min, geometry.segment_bytes_max);
    let is_whole = min.is_multiple_of(block as u64) && max.is_multiple_of(block as u64);
    if !is_whole || min < SEGMENT_BLOCKS_MIN * block as u64 || max < min || max > SEGMENT_BYTES_LARGEST {
        return Err(Error::invalid(format!(
            "log segments of {min} to {max} bytes, want multiples of {block} and at least four"
        )));
    }
    Ok(())
}
