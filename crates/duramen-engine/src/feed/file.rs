//! One retained file: writing it frame by frame, and reading it the same way.
//!
//! D4 rests here: a frame is used only after its checksum and its link to the previous frame are checked.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::{Access, Disk, File};

use super::frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, Fault, FileHeader, FrameHeader, FramePlace};
use super::items::{self, Source};
use super::{FeedCommit, Wanted, frame};
use crate::alarm::invariant;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::ids::CommitSeq;
use crate::limits::FEED_FRAME_BYTES;
use crate::wal::LogIdentity;

/// The end of the complete part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileEnd {
    /// Offset of the next frame.
    pub offset: u64,
    /// Checksum of the last frame, or of the header.
    pub previous: u128,
    /// Every change up to this commit is in the file.
    pub through: CommitSeq,
    /// Commit time of the newest change.
    pub time_ns: u64,
}

/// A retained file being written.
#[derive(Debug)]
pub(crate) struct FileWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    header: FileHeader,
    end: FileEnd,
    /// Its durable end; `None` before the first sync.
    durable: Option<FileEnd>,
    payload: Vec<u8>,
}

impl FileWriter {
    /// Creates a file. Its name is durable once its directory is synced.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, header: FileHeader) -> Result<FileWriter> {
        let path = frame::file_path(dir, header.number);
        let file = disk.open(&path, Access::CREATE).map_err(|e| Error::io("create", &path, &e))?;
        let (mut bytes, previous) = header.encode();
        bytes.resize(header.block_bytes as usize, 0);
        let end = FileEnd { offset: bytes.len() as u64, previous, through: header.after, time_ns: 0 };
        let written = file.write_at(&bytes, 0);
        if let Err(error) = written {
            // Remove the begun file: a full disk needs its blocks.
            drop(disk.remove(&path));
            return Err(Error::io("write", &path, &error.source));
        }
        Ok(FileWriter { file, path, header, end, durable: None, payload: Vec::new() })
    }

    /// Continues after the complete part of a file, and cuts off a torn end.
    pub(crate) fn reopen(
        disk: &dyn Disk,
        dir: &Path,
        header: FileHeader,
        end: FileEnd,
    ) -> Result<FileWriter> {
        let path = frame::file_path(dir, header.number);
        let file = disk.open(&path, Access::WRITE).map_err(|e| Error::io("open", &path, &e))?;
        file.set_len(end.offset).map_err(|e| Error::io("cut", &path, &e))?;
        Ok(FileWriter { file, path, header, end, durable: Some(end), payload: Vec::new() })
    }

    /// Its end.
    pub(crate) fn end(&self) -> FileEnd {
        self.end
    }

    /// Its header.
    pub(crate) fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether none of it is durable yet.
    pub(crate) fn is_new(&self) -> bool {
        self.durable.is_none()
    }

    /// Undoes what was written since the last sync. Returns the file as it was then, if it existed and can be
    /// cut.
    pub(crate) fn undone(mut self, disk: &dyn Disk) -> Option<FileWriter> {
        let Some(end) = self.durable else {
            // A full disk needs its blocks. It is not in the list of files, so it is never read.
            drop(disk.remove(&self.path));
            return None;
        };
        self.payload.clear();
        self.end = end;
        self.file.set_len(end.offset).is_ok().then_some(self)
    }

    /// Adds bytes of a commit.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // Without room this would never end.
            invariant!(self.payload.len() < FEED_FRAME_BYTES, "a full frame is written before more is added");
            let room = FEED_FRAME_BYTES - self.payload.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.payload.extend_from_slice(now);
            bytes = later;
            if self.payload.len() == FEED_FRAME_BYTES {
                self.write_frame(false)?;
            }
        }
        Ok(())
    }

    /// Notes the commit time of the next bytes.
    pub(crate) fn at_time(&mut self, time_ns: u64) {
        self.end.time_ns = self.end.time_ns.max(time_ns);
    }

    /// Ends with a commit: everything up to it is in the file.
    pub(crate) fn end_with(&mut self, through: CommitSeq) -> Result<()> {
        self.end.through = through;
        self.write_frame(true)
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        invariant!(
            self.payload.is_empty(),
            "all bytes of file {} are in frames before its sync, but for {}",
            self.header.number,
            self.payload.len()
        );
        invariant!(
            self.durable.is_none_or(|durable| durable.offset <= self.end.offset),
            "file {} ends at {:#x}, after what is durable",
            self.header.number,
            self.end.offset
        );
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, &e))?;
        self.durable = Some(self.end);
        Ok(())
    }

    fn write_frame(&mut self, whole: bool) -> Result<()> {
        let FileEnd { offset, previous, through, time_ns } = self.end;
        let block = u64::from(self.header.block_bytes);
        invariant!(
            offset >= block && offset.is_multiple_of(block),
            "a frame of file {} begins with a block after the first, not at {offset:#x}",
            self.header.number
        );
        invariant!(
            whole || self.payload.len() == FEED_FRAME_BYTES,
            "a frame of {} bytes in the middle of a commit is full",
            self.payload.len()
        );
        let payload_bytes =
            u32::try_from(self.payload.len()).expect("a frame is bounded by FEED_FRAME_BYTES");
        let header = FrameHeader { payload_bytes, whole, through, time_ns, previous };
        let place = FramePlace { identity: self.header.identity, number: self.header.number, offset };
        let (mut bytes, checksum) = header.encode(&self.payload, &place);
        bytes.resize(bytes.len().next_multiple_of(self.header.block_bytes as usize), 0);
        debug_assert_eq!(FrameHeader::decode(&bytes, FEED_FRAME_BYTES as u64), Ok(header), "it reads back");
        self.file.write_at(&bytes, offset).map_err(|e| Error::io("write", &self.path, &e.source))?;
        // Written out frame by frame, so that the sync at the end is short and delays concurrent commits
        // little.
        let count = bytes.len() as u64;
        self.file.write_out(offset, count).map_err(|e| Error::io("write out", &self.path, &e))?;
        self.end.offset = offset + count;
        self.end.previous = checksum;
        self.payload.clear();
        Ok(())
    }
}

/// A retained file being read, from its beginning.
#[derive(Debug)]
pub(crate) struct FileReader {
    file: Arc<dyn File>,
    path: PathBuf,
    header: FileHeader,
    file_bytes: u64,
    /// How far frames were read.
    end: FileEnd,
    /// The same at the end of the last frame that ends a commit.
    whole: FileEnd,
    payload: Vec<u8>,
    at: usize,
}

impl FileReader {
    /// Opens a file and checks its header; `None` if its creation was cut short before the header.
    ///
    /// # Errors
    /// `Corrupt` if it is not the file of this number and database; `Unsupported` for a later format; `Io`.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, identity: LogIdentity) -> Result<Option<FileReader>> {
        let file = disk.open(path, Access::READ).map_err(|e| Error::io("open", path, &e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, &e))?;
        let mut bytes = vec![0; FILE_HEADER_BYTES];
        if file_bytes < FILE_HEADER_BYTES as u64 {
            return Ok(None);
        }
        file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, &e))?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (header, previous) = FileHeader::decode(&bytes).map_err(|fault| match fault {
            Fault::Bad(what) => corrupt(path, 0, &what),
            Fault::Later(version) => {
                let message = format!("{}: feed format {version} is of a later release", path.display());
                Error::new(Code::Unsupported, message).with_hint("open it with the release that wrote it")
            }
        })?;
        if header.identity != identity {
            return Err(corrupt(path, 0, "the file belongs to another database"));
        }
        if Some(header.number) != frame::number_of(path) || !header.block_bytes.is_power_of_two() {
            return Err(corrupt(
                path,
                0,
                &format!("the file is number {}: files were exchanged", header.number),
            ));
        }
        let offset = u64::from(header.block_bytes).max(FILE_HEADER_BYTES as u64);
        let end = FileEnd { offset, previous, through: header.after, time_ns: 0 };
        let path = path.to_owned();
        Ok(Some(FileReader { file, path, header, file_bytes, end, whole: end, payload: Vec::new(), at: 0 }))
    }

    /// Its header.
    pub(crate) fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Its length when it was opened.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Goes to the frame that ends with commit `through`, or to the last before it that ends a commit.
    ///
    /// Returns that position, and the error (`Corrupt` or `Io`) that kept it from going on.
    pub(crate) fn scan(mut self, through: CommitSeq) -> (FileEnd, Option<Error>) {
        loop {
            let whole = self.whole;
            if whole.through == through {
                return (whole, None);
            }
            if self.end.offset + FRAME_HEADER_BYTES as u64 > self.file_bytes {
                let rest = self.end.offset < self.file_bytes || self.end.offset > whole.offset;
                return (whole, rest.then(|| self.bad("a frame is cut off")));
            }
            match self.read_frame() {
                Ok(()) if self.whole.through > through => {
                    let what = format!("no frame ends with commit {through}");
                    return (whole, Some(corrupt(&self.path, whole.offset, &what)));
                }
                Ok(()) => self.payload.clear(),
                Err(error) => return (whole, Some(error)),
            }
        }
    }

    /// The next commit after `after` and up to `through` with a wanted change; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt`, also if the file ends before `through`; `Io`.
    pub(crate) fn next(
        &mut self,
        after: CommitSeq,
        through: CommitSeq,
        wants: &dyn Fn(&str) -> bool,
    ) -> Result<Option<FeedCommit>> {
        loop {
            while self.at == self.payload.len() {
                // What follows may be torn, or a write in progress.
                if self.whole.through >= through && self.whole == self.end {
                    return Ok(None);
                }
                self.read_frame()?;
            }
            let commit = items::read(self, wants)?;
            // It is in the next file too, and is delivered from there.
            if commit.seq > through {
                return Ok(None);
            }
            // A change in two places is delivered once, by its sequence.
            if commit.seq > after && !commit.changes.is_empty() {
                return Ok(Some(commit));
            }
        }
    }

    /// Reads on as far as wanted and appends commits to `out`. Advances `read` with them, also before an
    /// error: everything up to it was examined.
    ///
    /// # Errors
    /// As [`FileReader::next`].
    pub(crate) fn read(
        &mut self,
        wanted: &Wanted<'_>,
        out: &mut VecDeque<FeedCommit>,
        read: &mut CommitSeq,
    ) -> Result<()> {
        let mut bytes = 0;
        while bytes < wanted.bytes_max {
            let Some(commit) = self.next(*read, wanted.through, wanted.wants)? else {
                *read = wanted.through;
                break;
            };
            *read = commit.seq;
            bytes += commit.changes.iter().map(|change| change.what.bytes()).sum::<usize>();
            out.push_back(commit);
        }
        Ok(())
    }

    /// Copies the frames after commit `after` to another file, up to the one that ends with `through`.
    ///
    /// # Errors
    /// `Corrupt`, also if no frame ends with `after` or the file cannot be read; `Io` and `Full` from
    /// writing.
    pub(crate) fn copy_to(
        mut self,
        writer: &mut FileWriter,
        after: CommitSeq,
        through: CommitSeq,
    ) -> Result<()> {
        while self.whole.through < through || self.whole != self.end {
            let begins_at = self.whole.through;
            self.read_frame().map_err(|error| unreadable(&self.path, error))?;
            let payload = std::mem::take(&mut self.payload);
            if begins_at < after && self.whole.through > after {
                return Err(corrupt(
                    &self.path,
                    self.end.offset,
                    &format!("no frame ends with commit {after}"),
                ));
            }
            if begins_at >= after {
                writer.at_time(self.end.time_ns);
                writer.push(&payload)?;
                if self.whole == self.end {
                    writer.end_with(self.whole.through)?;
                }
            }
        }
        Ok(())
    }

    fn read_frame(&mut self) -> Result<()> {
        let FileEnd { offset, previous, .. } = self.end;
        if offset == self.file_bytes {
            self.file_bytes = self.file.len().map_err(|e| Error::io("measure", &self.path, &e))?;
        }
        let bad = |what: &str| corrupt(&self.path, offset, what);
        let read = |bytes: &mut [u8], offset| {
            self.file.read_at(bytes, offset).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => bad("a frame is cut off"),
                _ => Error::io("read", &self.path, &e),
            })
        };
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        read(&mut bytes, offset)?;
        let header = FrameHeader::decode(&bytes, FEED_FRAME_BYTES as u64).map_err(|what| bad(&what))?;
        bytes.resize(FRAME_HEADER_BYTES + header.payload_bytes as usize, 0);
        read(&mut bytes[FRAME_HEADER_BYTES..], offset + FRAME_HEADER_BYTES as u64)?;
        let place = FramePlace { identity: self.header.identity, number: self.header.number, offset };
        let checksum = FrameHeader::verify(&bytes, &place).map_err(|what| bad(&what))?;
        if header.previous != previous {
            return Err(bad("the frame does not follow the one before it"));
        }
        self.payload.drain(..self.at);
        self.at = 0;
        self.payload.extend_from_slice(&bytes[FRAME_HEADER_BYTES..]);
        let count = (bytes.len() as u64).next_multiple_of(u64::from(self.header.block_bytes));
        self.end = FileEnd {
            offset: offset + count,
            previous: checksum,
            through: header.through,
            time_ns: header.time_ns,
        };
        if header.whole {
            self.whole = self.end;
        }
        Ok(())
    }
}

impl Source for FileReader {
    fn take(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut left = count;
        while left > 0 {
            if self.at == self.payload.len() {
                self.read_frame()?;
                continue;
            }
            let rest = &self.payload[self.at..];
            let now = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
            out.extend_from_slice(&rest[..now]);
            self.at += now;
            left -= now as u64;
        }
        Ok(out)
    }

    fn skip(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            if self.at == self.payload.len() {
                self.read_frame()?;
                continue;
            }
            let rest = self.payload.len() - self.at;
            let now = usize::try_from(count).map_or(rest, |count| count.min(rest));
            self.at += now;
            count -= now as u64;
        }
        Ok(())
    }

    fn bad(&self, what: &str) -> Error {
        corrupt(&self.path, self.end.offset, what)
    }
}

/// The newest commit up to which a checkpoint relied on a file with a corrupt header: the end of its last
/// complete frame that ends with commit `until` or earlier. `until` is the end of the newest checkpoint, or
/// the beginning of the next file.
///
/// `None` if there is no such frame. The power was cut while the file was created, and its frames belong to a
/// checkpoint that never completed. Its header is then not corruption.
///
/// # Errors
/// `Io`.
pub(super) fn relied_on_through(
    disk: &dyn Disk,
    path: &Path,
    identity: LogIdentity,
    number: u64,
    block_bytes: u64,
    until: CommitSeq,
) -> Result<Option<CommitSeq>> {
    let file = disk.open(path, Access::READ).map_err(|e| Error::io("open", path, &e))?;
    let file_bytes = file.len().map_err(|e| Error::io("measure", path, &e))?;
    if file_bytes < FILE_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let read = |offset: u64, count: usize| {
        let mut bytes = vec![0; count];
        file.read_at(&mut bytes, offset).map_err(|e| Error::io("read", path, &e)).map(|()| bytes)
    };
    if let Ok((header, _)) = FileHeader::decode(&read(0, FILE_HEADER_BYTES)?) {
        // A valid header: of another database, of another file, or of this file, which can be read again.
        let is_beyond = header.identity == identity && header.number == number && header.after >= until;
        return Ok((!is_beyond).then_some(until));
    }
    let mut newest = None;
    let mut offset = block_bytes.max(FILE_HEADER_BYTES as u64);
    while offset + FRAME_HEADER_BYTES as u64 <= file_bytes {
        let frame = FrameHeader::decode(&read(offset, FRAME_HEADER_BYTES)?, FEED_FRAME_BYTES as u64);
        if let Some(frame) = frame.ok().filter(|frame| frame.whole && frame.through <= until) {
            let count = FRAME_HEADER_BYTES + frame.payload_bytes as usize;
            let place = FramePlace { identity, number, offset };
            if offset + count as u64 <= file_bytes
                && FrameHeader::verify(&read(offset, count)?, &place).is_ok()
            {
                newest = newest.max(Some(frame.through));
                offset += (count as u64).next_multiple_of(block_bytes) - block_bytes;
            }
        }
        offset += block_bytes;
    }
    Ok(newest)
}

/// Removes a file, or empties it durably if its name cannot be removed. An empty file is never trusted.
///
/// # Errors
/// `Io` if it can be neither removed nor emptied.
pub(super) fn discard(disk: &dyn Disk, path: &Path) -> Result<()> {
    let Err(error) = disk.remove(path) else { return Ok(()) };
    if error.kind() == std::io::ErrorKind::NotFound {
        return Ok(());
    }
    let emptied = disk.open(path, Access::WRITE).and_then(|file| {
        file.set_len(0)?;
        file.sync_data()
    });
    emptied.map_err(|_| Error::io("remove", path, &error))
}

/// Treats a failed read as corruption.
pub(super) fn unreadable(path: &Path, error: Error) -> Error {
    if error.kind() == ErrorKind::Io { corrupt(path, 0, error.message()) } else { error }
}

/// Corruption in a retained file.
pub(super) fn corrupt(path: &Path, offset: u64, what: &str) -> Error {
    Error::new(Code::CorruptFeed, format!("{} @ {offset:#x}: {what}", path.display()))
}
