//! A small file of two copies, each with a checksum: what must never fall back to an older state.
//!
//! Both copies are written and synced, one after the other, before a write returns. If slots were written in
//! turn, one rotten slot would bring back what was there before: an older vote, and with it a second vote in
//! the same term. With two equal copies a rotten one changes nothing. Both unreadable is an error: the caller
//! may have forgotten something then.
//!
//! Considered: the superblocks' way, the newer of two slots. It keeps what was before the newest write, which
//! a checkpoint may fall back to and a vote may not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::{Access, Disk, File};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};
use crate::wal::LogIdentity;

/// Where the copies lie. No device writes blocks so long that one write could tear both.
const COPY_OFFSETS: [u64; 2] = [0, 64 * 1024];

const MAGIC: [u8; 8] = *b"DURATWIN";
const VERSION: u32 = 1;
/// Bytes of a copy. It lies in one sector, which devices write whole.
const COPY_BYTES: usize = 512;
const CHECKSUM_AT: usize = COPY_BYTES - 16;
const HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 32;

/// Bytes that a copy has room for.
pub(super) const CONTENT_BYTES_MAX: usize = CHECKSUM_AT - HEAD_BYTES;

/// A file of two copies.
#[derive(Debug)]
pub(super) struct Twin {
    file: Arc<dyn File>,
    path: PathBuf,
    identity: LogIdentity,
    /// Counts writes: the copy with the larger number is the newer one.
    count: u64,
}

impl Twin {
    /// Creates the file. Its content is durable once the directory is synced.
    ///
    /// # Errors
    /// `System` (E1001); `DiskFull` (E0301).
    pub(super) fn create(
        disk: &dyn Disk,
        path: &Path,
        identity: LogIdentity,
        content: &[u8],
    ) -> Result<Twin> {
        let file = disk.open(path, Access::CREATE).map_err(|error| Error::io("create", path, &error))?;
        let mut twin = Twin { file, path: path.to_owned(), identity, count: 0 };
        twin.write(content)?;
        Ok(twin)
    }

    /// Opens the file, and makes both copies equal to the newer one: a write may have been cut short. The one
    /// that can be read is not touched: the power may fail in this, too.
    ///
    /// # Errors
    /// `CorruptLog` (E0502) if neither copy can be read; `System` (E1001).
    pub(super) fn open(disk: &dyn Disk, path: &Path, identity: LogIdentity) -> Result<(Twin, Vec<u8>)> {
        let file = disk.open(path, Access::WRITE).map_err(|error| Error::io("open", path, &error))?;
        let copies = COPY_OFFSETS.map(|offset| read_copy(&*file, offset, identity));
        let newest = copies.iter().flatten().max_by_key(|(count, _)| *count).cloned();
        let Some((count, content)) = newest else {
            return Err(Error::corrupt_log(path, 0, "neither of the two copies can be read"));
        };
        let twin = Twin { file, path: path.to_owned(), identity, count };
        for (offset, copy) in COPY_OFFSETS.into_iter().zip(copies) {
            if copy.is_none_or(|copy| copy != (count, content.clone())) {
                twin.write_copy(offset, &content)?;
            }
        }
        Ok((twin, content))
    }

    /// Replaces the content. It survives a power cut once this returns, and one rotten copy.
    ///
    /// # Errors
    /// `System` (E1001): the content is in doubt, and the file must not be used any more.
    pub(super) fn write(&mut self, content: &[u8]) -> Result<()> {
        self.count += 1;
        for offset in COPY_OFFSETS {
            self.write_copy(offset, content)?;
        }
        Ok(())
    }

    fn write_copy(&self, offset: u64, content: &[u8]) -> Result<()> {
        let copy = encode_copy(self.count, self.identity, content);
        let written = self.file.write_at(&copy, offset);
        written.map_err(|error| Error::io("write", &self.path, &error.source))?;
        // Before the other copy is touched: a power cut tears one of them at most.
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, &error))
    }
}

fn encode_copy(count: u64, identity: LogIdentity, content: &[u8]) -> [u8; COPY_BYTES] {
    let length = u32::try_from(content.len()).expect("the content of a twin is short");
    let mut copy = [0; COPY_BYTES];
    copy[..8].copy_from_slice(&MAGIC);
    copy[8..12].copy_from_slice(&VERSION.to_le_bytes());
    copy[12..16].copy_from_slice(&length.to_le_bytes());
    copy[16..24].copy_from_slice(&count.to_le_bytes());
    copy[24..40].copy_from_slice(&identity.database.0.to_le_bytes());
    copy[40..HEAD_BYTES].copy_from_slice(&identity.log.0.to_le_bytes());
    copy[HEAD_BYTES..HEAD_BYTES + content.len()].copy_from_slice(content);
    let checksum = xxh3_128(&copy[..CHECKSUM_AT]);
    copy[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    copy
}

/// The count and the content of a copy; `None` if it cannot be read.
fn read_copy(file: &dyn File, offset: u64, identity: LogIdentity) -> Option<(u64, Vec<u8>)> {
    let mut copy = [0; COPY_BYTES];
    file.read_at(&mut copy, offset).ok()?;
    let word = |at: usize| u32::from_le_bytes(copy[at..at + 4].try_into().expect("four bytes"));
    let content = copy[HEAD_BYTES..CHECKSUM_AT].get(..usize::try_from(word(12)).ok()?)?;
    let count = u64::from_le_bytes(copy[16..24].try_into().expect("eight bytes"));
    // Every field is covered by comparing with what would have been written.
    (copy == encode_copy(count, identity, content)).then(|| (count, content.to_vec()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use duramen_disk::MemDisk;
    use duramen_disk::memory::CrashChoice;

    use super::*;
    use crate::error::Code;
    use crate::ids::{DatabaseId, LogId};

    const IDENTITY: LogIdentity = LogIdentity { database: DatabaseId(1), log: LogId(2) };

    fn path() -> &'static Path {
        Path::new("/twin")
    }

    fn contents(disk: &MemDisk) -> Vec<u8> {
        Twin::open(disk, path(), IDENTITY).unwrap().1
    }

    fn flip(disk: &MemDisk, offset: u64) {
        let file = disk.open(path(), Access::WRITE).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, offset).unwrap();
        file.write_at(&[byte[0] ^ 1], offset).unwrap();
        file.sync_data().unwrap();
    }

    #[test]
    fn one_rotten_copy_changes_nothing_and_both_are_an_error() {
        for rotten in COPY_OFFSETS {
            let disk = MemDisk::new(1);
            let mut twin = Twin::create(&disk, path(), IDENTITY, b"first").unwrap();
            twin.write(b"second").unwrap();
            flip(&disk, rotten + 60);
            assert_eq!(contents(&disk), b"second", "the copy at {rotten} is rotten");
            // Opening has mended it.
            flip(&disk, COPY_OFFSETS[0] + COPY_OFFSETS[1] - rotten + 60);
            assert_eq!(contents(&disk), b"second");
            COPY_OFFSETS.iter().for_each(|offset| flip(&disk, offset + 17));
            let error = Twin::open(&disk, path(), IDENTITY).unwrap_err();
            assert_eq!(error.code(), Code::CorruptLog);
        }
    }

    #[test]
    fn a_file_of_another_log_is_not_read() {
        let disk = MemDisk::new(1);
        Twin::create(&disk, path(), IDENTITY, b"first").unwrap();
        let other = LogIdentity { log: LogId(3), ..IDENTITY };
        assert!(Twin::open(&disk, path(), other).is_err());
    }

    #[test]
    fn what_a_write_returned_for_survives_a_power_cut_at_every_operation() {
        let disk = MemDisk::new(1);
        let mut twin = Twin::create(&disk, path(), IDENTITY, &[0]).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.record();
        let mut returned = vec![(0, 0u8)];
        for content in 1..6u8 {
            twin.write(&[content]).unwrap();
            returned.push((disk.recorded_len(), content));
        }
        let trace = disk.stop_recording();
        let mut cursor = trace.cursor();
        loop {
            let cut = cursor.at();
            let least = returned.iter().rfind(|(at, _)| *at <= cut).unwrap().1;
            for seed in 0..8 {
                let found = contents(&cursor.image(&CrashChoice::Random { seed }))[0];
                assert!((least..=least + 1).contains(&found), "{found} after {least} was written, cut {cut}");
            }
            if !cursor.advance() {
                return;
            }
        }
    }
}
