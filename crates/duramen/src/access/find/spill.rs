//! A temporary file of sorted runs, for sorts and groups larger than their memory.
//!
//! Owns the file: it has no name as soon as it is open, so nothing is left over after a crash. Its bytes are
//! written in blocks with checksums: corruption is an error, never a wrong order.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use duramen_disk::{Access, Disk, File};
use xxhash_rust::xxh3::xxh3_64;

use crate::store::error::{Code, Error, Result};

/// Where temporary files of queries are made.
#[derive(Debug, Clone)]
pub(crate) struct SpillPlace {
    pub(crate) disk: Arc<dyn Disk>,
    /// `None`: the database is read-only, and no directory was given.
    pub(crate) directory: Option<PathBuf>,
}

/// Bytes of a block, of which each run that is read has one in memory.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;

/// A block's length and checksum before it.
const HEADER_BYTES: usize = 4 + 8;

/// A file without a name, written from its begin to its end.
pub(super) struct SpillFile {
    file: Arc<dyn File>,
    path: PathBuf,
    bytes: u64,
}

/// Some records in a spill file, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    offset: u64,
    bytes: u64,
}

impl SpillFile {
    /// # Errors
    /// `ReadOnly` if there is no directory for it; `System` or `DiskFull` if it cannot be made.
    pub(super) fn create(place: &SpillPlace, memory_bytes: usize) -> Result<SpillFile> {
        let Some(directory) = &place.directory else {
            let message = format!(
                "the query needs more than {memory_bytes} bytes of memory, and a database opened read-only has no \
                 directory for temporary files"
            );
            return Err(Error::new(Code::ReadOnly, message).with_hint(
                "name one (DbOptions::spill_dir), allow more memory (Find::memory_bytes), or set a limit",
            ));
        };
        let path = directory.join(format!("query-{:016x}.tmp", place.disk.random()));
        let file =
            place.disk.open(&path, Access::CREATE).map_err(|error| Error::io("create", &path, &error))?;
        place.disk.remove(&path).map_err(|error| Error::io("remove", &path, &error))?;
        Ok(SpillFile { file, path, bytes: 0 })
    }

    /// Appends a run.
    pub(super) fn write<'r>(&mut self, records: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<Run> {
        let mut run = self.begin();
        records.into_iter().try_for_each(|(key, payload)| run.push(key, payload))?;
        run.end()
    }

    /// A run that is written record by record.
    pub(super) fn begin(&mut self) -> RunWriter<'_> {
        let offset = self.bytes;
        RunWriter { file: self, offset, block: Vec::with_capacity(BLOCK_BYTES) }
    }
}

/// A run that is being written.
pub(super) struct RunWriter<'f> {
    file: &'f mut SpillFile,
    offset: u64,
    block: Vec<u8>,
}

impl RunWriter<'_> {
    pub(super) fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        if self.block.is_empty() {
            self.block.resize(HEADER_BYTES, 0);
        }
        for part in [key, payload] {
            let length = u32::try_from(part.len())
                .map_err(|_| Error::invalid("a document of 4 GiB cannot be sorted"))?;
            self.block.extend_from_slice(&length.to_le_bytes());
        }
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(payload);
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn end(mut self) -> Result<Run> {
        self.flush()?;
        Ok(Run { offset: self.offset, bytes: self.file.bytes - self.offset })
    }

    fn flush(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let (header, records) = self.block.split_at_mut(HEADER_BYTES);
        let length = u32::try_from(records.len())
            .map_err(|_| Error::invalid("a document of 4 GiB cannot be sorted"))?;
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..].copy_from_slice(&xxh3_64(records).to_le_bytes());
        let SpillFile { file, path, bytes } = &mut *self.file;
        file.write_at(&self.block, *bytes).map_err(|error| Error::io("write", path, &error.source))?;
        *bytes += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

/// The records of a run, one after the other.
pub(super) struct RunReader {
    run: Run,
    block: Vec<u8>,
    at: usize,
    /// The current record: where its key and its payload end.
    key_from: usize,
    key_end: usize,
    end: usize,
}

impl RunReader {
    pub(super) fn new(run: Run) -> RunReader {
        RunReader { run, block: Vec::new(), at: 0, key_from: 0, key_end: 0, end: 0 }
    }

    /// Goes to the next record. `false` after the last.
    pub(super) fn advance(&mut self, spill: &SpillFile) -> Result<bool> {
        if self.at == self.block.len() {
            if self.run.bytes == 0 {
                return Ok(false);
            }
            self.read_block(spill)?;
        }
        let mut length = || {
            let bytes = self.block[self.at..].first_chunk::<4>().copied();
            self.at += 4;
            // A block has whole records: its checksum was right.
            u32::from_le_bytes(bytes.expect("a record begins with its lengths")) as usize
        };
        let (key, payload) = (length(), length());
        self.key_from = self.at;
        self.key_end = self.key_from + key;
        self.end = self.key_end + payload;
        self.at = self.end;
        Ok(true)
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.block[self.key_from..self.key_end]
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.block[self.key_end..self.end]
    }

    fn read_block(&mut self, spill: &SpillFile) -> Result<()> {
        let read = |buffer: &mut [u8], offset| {
            spill.file.read_at(buffer, offset).map_err(|error| Error::io("read", &spill.path, &error))
        };
        let mut header = [0; HEADER_BYTES];
        read(&mut header, self.run.offset)?;
        let (length, sum) = header.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
        let whole = (HEADER_BYTES + length) as u64;
        let is_inside = length > 0 && whole <= self.run.bytes;
        self.block.resize(if is_inside { length } else { 0 }, 0);
        if is_inside {
            read(&mut self.block, self.run.offset + HEADER_BYTES as u64)?;
        }
        if !is_inside || xxh3_64(&self.block) != sum {
            let what = "a block of a query's temporary file has changed since it was written";
            return Err(Error::corrupt_data(&spill.path, self.run.offset, what)
                .with_hint("run the query again; if it happens again, the disk or the memory is failing"));
        }
        self.run = Run { offset: self.run.offset + whole, bytes: self.run.bytes - whole };
        self.at = 0;
        Ok(())
    }
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillFile").field("path", &self.path).field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    //! What is read back is what was written, or an error.
    use super::*;
    use duramen_disk::MemDisk;
    use std::path::Path;

    const PATH: &str = "/spill";

    /// A file with a name, so that it can be damaged.
    fn named(disk: &MemDisk) -> SpillFile {
        let file = disk.open(Path::new(PATH), Access::CREATE).unwrap();
        SpillFile { file, path: PATH.into(), bytes: 0 }
    }

    fn records() -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..2000_u32).map(|n| (n.to_be_bytes().to_vec(), vec![0xab; (n % 300) as usize])).collect()
    }

    fn written(spill: &mut SpillFile) -> Run {
        let records = records();
        spill.write(records.iter().map(|(key, payload)| (key.as_slice(), payload.as_slice()))).unwrap()
    }

    fn read(spill: &SpillFile, run: Run) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut reader = RunReader::new(run);
        let mut found = Vec::new();
        while reader.advance(spill)? {
            found.push((reader.key().to_vec(), reader.payload().to_vec()));
        }
        Ok(found)
    }

    #[test]
    fn runs_are_read_as_they_were_written() {
        let disk = MemDisk::new(1);
        let mut spill = named(&disk);
        let (one, other) = (written(&mut spill), written(&mut spill));
        assert_eq!(read(&spill, other).unwrap(), records());
        assert_eq!(read(&spill, one).unwrap(), records());
        let empty = spill.begin().end().unwrap();
        assert!(read(&spill, empty).unwrap().is_empty());
    }

    #[test]
    fn a_flipped_bit_is_an_error() {
        for offset in [0, 3, 5, 11, 12, 20, 5000, BLOCK_BYTES as u64 + 400] {
            let disk = MemDisk::new(1);
            let mut spill = named(&disk);
            let run = written(&mut spill);
            disk.flip_bit(PATH, offset, 3).unwrap();
            let error = read(&spill, run).unwrap_err();
            assert!(matches!(error.code(), Code::CorruptData | Code::System), "{offset}: {error}");
        }
    }

    #[test]
    fn the_file_has_no_name_and_needs_a_directory() {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
        disk.create_dir(Path::new("/db")).unwrap();
        let place = SpillPlace { disk: Arc::clone(&disk), directory: Some("/db".into()) };
        let mut spill = SpillFile::create(&place, 1).unwrap();
        let run = written(&mut spill);
        assert!(disk.list(Path::new("/db")).unwrap().is_empty());
        assert_eq!(read(&spill, run).unwrap(), records());
        let error = SpillFile::create(&SpillPlace { disk, directory: None }, 1).unwrap_err();
        assert!(error.code() == Code::ReadOnly && error.hint().contains("spill_dir"), "{error}");
    }
}
