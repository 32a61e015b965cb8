//! Prepares segments ahead of need: zeroes over their full length, durable before the first frame.
//!
//! An overwrite of written blocks changes no metadata, so that a sync of the log is one flush of the device.
//! D7: a full disk is met here, before a group is written, and leaves everything as it was.
//!
//! Zeroes go to the disk slice by slice, with rests between them where nobody waits: a device that has megabytes to write makes
//! the commits beside them wait.

use std::io;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk, OpenMode, SyncMethod, write_zeroes};

use super::segment::{EPOCH_NONE, PreviousFrame, Segment, SegmentHeader, segment_path};
use super::state::SpareOrder;
use super::{LogIdentity, SegmentSlot};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// What is written and synced at once: a few commits' time for an ordinary disk.
const SLICE_BYTES: u64 = 128 * 1024;

/// Where and how segments are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workshop<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dir: &'a Path,
    pub(super) identity: LogIdentity,
    pub(super) geometry: Geometry,
    pub(super) sync: SyncMethod,
}

impl Workshop<'_> {
    /// Creates or finishes a segment file, all zeroes but for a header that says so, and durable, name included.
    /// Where there is no room for one of the size that was asked for, a smaller one is made.
    pub(super) fn make(&self, order: SpareOrder) -> Result<Arc<Segment>> {
        self.make_with_rests(order, &mut |_| ())
    }

    /// The same; `rest` is called between slices, with the nanoseconds that the last one took.
    pub(super) fn make_with_rests(
        &self,
        mut order: SpareOrder,
        rest: &mut dyn FnMut(u64),
    ) -> Result<Arc<Segment>> {
        let block = self.geometry.block_bytes as u64;
        loop {
            let made = self.make_once(order, rest);
            let full = made.as_ref().is_err_and(|error| error.code() == Code::DiskFull);
            if !full || order.bytes <= self.geometry.segment_bytes_min {
                return made;
            }
            let half = (order.bytes / 2).next_multiple_of(block);
            order.bytes = half.max(self.geometry.segment_bytes_min);
        }
    }

    fn make_once(&self, order: SpareOrder, rest: &mut dyn FnMut(u64)) -> Result<Arc<Segment>> {
        let path = segment_path(self.dir, order.slot);
        let mode = match self.disk.kind(&path) {
            Ok(None) => OpenMode::CreateNew,
            Ok(Some(_)) => OpenMode::Write,
            Err(error) => return Err(Error::io("look at", &path, &error)),
        };
        let made = self.zero(&path, mode, order, rest).map_err(|error| Error::io("prepare", &path, &error));
        if made.is_err() && mode == OpenMode::CreateNew {
            // What was begun takes room that a full disk needs. If it stays, the next attempt or the next open
            // finds a file without a header and finishes it.
            let _ = self.disk.remove(&path);
        }
        made
    }

    fn zero(
        &self,
        path: &Path,
        mode: OpenMode,
        order: SpareOrder,
        rest: &mut dyn FnMut(u64),
    ) -> io::Result<Arc<Segment>> {
        let file = self.disk.open(path, Access { mode, sync: self.sync })?;
        if file.len()? > order.bytes {
            file.set_len(order.bytes)?;
        }
        file.reserve(0, order.bytes)?;
        let mut zeroed = 0;
        while zeroed < order.bytes {
            let begun = self.disk.monotonic_ns();
            let bytes = SLICE_BYTES.min(order.bytes - zeroed);
            write_zeroes(&*file, zeroed, bytes)?;
            file.sync_data()?;
            zeroed += bytes;
            if zeroed < order.bytes {
                rest(self.disk.monotonic_ns().saturating_sub(begun));
            }
        }
        // The header only after the zeroes are durable: whoever finds it may use the segment as it is.
        file.write_at(&self.first_block(&self.unused_header(order.slot, order.bytes, CommitSeq(0))), 0)?;
        file.sync_data()?;
        self.disk.sync_dir(self.dir)?;
        Ok(Arc::new(Segment { slot: order.slot, path: path.to_owned(), bytes: order.bytes, file }))
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

    /// The header of a segment ready for use; it may bear witness to what was durable when it was written.
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
    if !block.is_power_of_two() || !(512..=65536).contains(&block) {
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
    if !is_whole || min < 4 * block as u64 || max < min || max > 1 << 40 {
        return Err(Error::invalid(format!(
            "log segments of {min} to {max} bytes, want multiples of {block} and at least four"
        )));
    }
    Ok(())
}
