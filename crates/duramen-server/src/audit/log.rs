//! Writing the files of an audit.
//!
//! A line is appended, and is on disk once a later [`Log::sync`] has returned. A write that fails is undone.
//! After a sync that failed the log is not used again: nobody knows what is on disk. Opening it anew finds
//! out.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use duramen::Time;
use duramen::error::{Code, Error, Result};

use super::chain::{self, Behind, Mark};
use super::line::{self, Event, Hash};

/// A file that has so many bytes is followed by another one.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The files that are kept.
const FILES_MAX: usize = 16;

/// The files of an audit, open for writing.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    /// The last file, and its bytes. Without lines there is none.
    file: Option<(File, u64)>,
    files: Vec<(u64, PathBuf)>,
    file_bytes_max: u64,
    next: u64,
    hash: Hash,
    /// Lines before this number are on disk.
    synced: u64,
    failed: Option<Error>,
}

impl Log {
    /// Opens the audit of a database's directory, and takes away what a power cut has left at its end: a line
    /// then says how many bytes.
    ///
    /// What does not hold together before the line of the mark was changed by somebody: it stays as it is,
    /// [verifying](chain::verify) tells it, and the next line follows that of the mark in a new file.
    ///
    /// # Errors
    /// `System` (E1001) if a file cannot be read.
    pub(super) fn open(database: &Path, mark: Option<Mark>) -> Result<Log> {
        let directory = chain::directory_of(database);
        let files = chain::files(&directory)?;
        let marked = mark.map_or((1, Hash::default()), |mark| (mark.last + 1, mark.hash));
        let mut log = Log {
            directory,
            file: None,
            files,
            file_bytes_max: FILE_BYTES_MAX,
            next: marked.0,
            hash: marked.1,
            synced: 0,
            failed: None,
        };
        let Some((first, path)) = log.files.last().cloned() else { return Ok(log) };
        let before = log.hash_before(first, mark)?;
        let part = chain::read((first, &path), before, &mut |_, _| {})?;
        if part.next < marked.0 || before.is_none() && part.next == first {
            log.next = marked.0.max(part.next);
            return Ok(log);
        }
        let failed = |error: io::Error| Error::io("open", &path, &error);
        let file = fs::OpenOptions::new().append(true).open(&path).map_err(failed)?;
        let cut = file.metadata().map_err(failed)?.len() - part.bytes;
        (log.next, log.hash) = (part.next, part.hash);
        if cut > 0 {
            file.set_len(part.bytes).map_err(failed)?;
        }
        log.file = Some((file, part.bytes));
        if cut > 0 {
            log.append(&Event { what: "cut".to_owned(), count: Some(cut), ..Event::default() })?;
        }
        Ok(log)
    }

    /// The hash of the line before the last file, as far as it is known.
    fn hash_before(&self, first: u64, mark: Option<Mark>) -> Result<Option<Hash>> {
        let of_mark = mark.filter(|mark| mark.last + 1 == first).map(|mark| mark.hash);
        match self.files.iter().rev().nth(1) {
            _ if first == 1 => Ok(Some(Hash::default())),
            _ if of_mark.is_some() => Ok(of_mark),
            None => Ok(None),
            Some((begin, path)) => {
                let part = chain::read((*begin, path), None, &mut |_, _| {})?;
                Ok((part.next == first && part.behind == Behind::Nothing).then_some(part.hash))
            }
        }
    }

    /// The line that was written last.
    pub(super) fn mark(&self) -> Option<Mark> {
        let (first, _) = self.files.first()?;
        (self.next > 1).then(|| Mark { first: *first, last: self.next - 1, hash: self.hash })
    }

    /// Appends a line. Returns its number.
    ///
    /// # Errors
    /// `DiskFull` (E0301) or `System` (E1001) if it cannot be written.
    pub(super) fn append(&mut self, event: &Event) -> Result<u64> {
        self.check()?;
        let number = self.next;
        let mut text = line::text(number, Time::now(), event, &self.hash)?;
        if text.len() as u64 >= chain::LINE_BYTES_MAX {
            return Err(Error::new(Code::TooLarge, "what is to be done has a name too long for the audit"));
        }
        let hash = line::hash(text.as_bytes());
        text.push('\n');
        if let Err(error) = self.write(text.as_bytes()) {
            // A part of a line would be in the way of the next one.
            let undone = self.file.as_ref().map_or(Ok(()), |(file, bytes)| file.set_len(*bytes));
            self.fail_if(undone)?;
            return Err(Error::io("write the audit in", &self.directory, &error));
        }
        (self.next, self.hash) = (number + 1, hash);
        Ok(number)
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let is_full =
            |(_, bytes): &(File, u64)| *bytes > 0 && bytes + text.len() as u64 > self.file_bytes_max;
        if self.file.as_ref().is_none_or(is_full) {
            self.begin_file()?;
        }
        let Some((file, bytes)) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        file.write_all(text)?;
        *bytes += text.len() as u64;
        Ok(())
    }

    /// Begins another file. The one before is on disk by then, and so is the name of the new one.
    fn begin_file(&mut self) -> io::Result<()> {
        if let Some((file, _)) = &self.file {
            file.sync_data()?;
        }
        if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&self.directory)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let path = chain::file_of(&self.directory, self.next);
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        // What a start that failed here has left.
        file.set_len(0)?;
        for directory in [Some(&*self.directory), self.directory.parent()].into_iter().flatten() {
            File::open(directory)?.sync_all()?;
        }
        self.files.push((self.next, path));
        self.file = Some((file, 0));
        Ok(())
    }

    /// Puts all lines on disk.
    ///
    /// # Errors
    /// `System` (E1001) if the system cannot.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check()?;
        if self.synced < self.next
            && let Some((file, _)) = &self.file
        {
            let synced = file.sync_data();
            self.fail_if(synced)?;
            self.synced = self.next;
        }
        Ok(())
    }

    /// Whether there are more files than are kept.
    pub(super) fn has_old_files(&self) -> bool {
        self.files.len() > FILES_MAX
    }

    /// The mark without the files that are no longer kept. Once the database has it, they can be
    /// [dropped](Log::drop_old_files).
    pub(super) fn mark_without_old_files(&self) -> Option<Mark> {
        let kept = self.files.len().saturating_sub(FILES_MAX);
        self.mark()
            .map(|mark| Mark { first: self.files.get(kept).map_or(mark.first, |(first, _)| *first), ..mark })
    }

    pub(super) fn drop_old_files(&mut self) {
        while self.has_old_files() {
            // One that stays is dropped at the next time: it is older than all that are read.
            let _ = fs::remove_file(&self.files[0].1);
            self.files.remove(0);
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail_if(&mut self, done: io::Result<()>) -> Result<()> {
        done.map_err(|error| {
            let failed = Error::io("write the audit in", &self.directory, &error).with_hint(
                "nothing that the audit must tell of is done until the server has been started again: look at the disk",
            );
            self.failed = Some(failed.clone());
            failed
        })
    }
}
