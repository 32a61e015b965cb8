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

use super::chain::{self, Behind, Mark, Part};
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
    /// The first line that is kept: of the mark, so that files which are missing stay missing.
    first: u64,
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
    /// What does not hold together, or is not what the mark says, was changed by somebody: it stays as it is,
    /// [verifying](chain::verify) tells it, and the next line is in a new file behind all that is there.
    ///
    /// # Errors
    /// `System` (E1001) if a file cannot be read.
    pub(super) fn open(database: &Path, mark: Option<Mark>) -> Result<Log> {
        let directory = chain::directory_of(database);
        let files = chain::files(&directory)?;
        let (next, hash) = mark.map_or((1, Hash::default()), |mark| (mark.last + 1, mark.hash));
        let first = mark.map(|mark| mark.first).or(files.first().map(|(first, _)| *first));
        let mut log = Log {
            directory,
            file: None,
            first: first.unwrap_or(next),
            files,
            file_bytes_max: FILE_BYTES_MAX,
            next,
            hash,
            synced: 0,
            failed: None,
        };
        log.go_on(mark)?;
        Ok(log)
    }

    /// Finds the end, from the file that has the line of the mark on.
    fn go_on(&mut self, mark: Option<Mark>) -> Result<()> {
        let from = mark.map_or(1, |mark| mark.last);
        let begin = self.files.iter().rposition(|(first, _)| *first <= from).unwrap_or(0);
        let mut at_mark = mark.is_none();
        let mut last: Option<Part> = None;
        let mut is_whole = true;
        for (first, path) in &self.files[begin..] {
            let known = last.as_ref().map(|part| part.hash).or((*first == 1).then(Hash::default));
            is_whole &=
                last.as_ref().is_none_or(|part| part.next == *first && part.behind == Behind::Nothing);
            let mut look = |number, hash: &Hash| {
                at_mark |= mark.is_some_and(|mark| mark.last == number && mark.hash == *hash);
            };
            let part = chain::read((*first, path), known, &mut look)?;
            self.next = self.next.max(part.next).max(first + 1);
            last = Some(part);
        }
        let (Some(part), Some((_, path))) = (last, self.files.last()) else { return Ok(()) };
        if !is_whole || !at_mark || (part.behind != Behind::Nothing && chain::has_line(path, part.bytes)?) {
            return Ok(());
        }
        let failed = |error: io::Error| Error::io("open", path, &error);
        let file = fs::OpenOptions::new().append(true).open(path).map_err(failed)?;
        let cut = file.metadata().map_err(failed)?.len() - part.bytes;
        if cut > 0 {
            file.set_len(part.bytes).map_err(failed)?;
        }
        (self.next, self.hash, self.file) = (part.next, part.hash, Some((file, part.bytes)));
        if cut > 0 {
            self.append(&Event { what: "cut".to_owned(), count: Some(cut), ..Event::default() })?;
        }
        Ok(())
    }

    /// The line that was written last.
    pub(super) fn mark(&self) -> Option<Mark> {
        (self.next > 1).then_some(Mark { first: self.first, last: self.next - 1, hash: self.hash })
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
        let is_full =
            |(_, bytes): &(File, u64)| *bytes > 0 && bytes + text.len() as u64 > self.file_bytes_max;
        if self.file.as_ref().is_none_or(is_full) {
            self.begin_file()?;
        }
        let (file, bytes) = self.file.as_mut().expect("a file was begun");
        if let Err(error) = file.write_all(text.as_bytes()) {
            // A part of a line would be in the way of the next one.
            let undone = file.set_len(*bytes);
            self.fail_if(undone)?;
            return Err(self.cannot("write the audit in", &error));
        }
        *bytes += text.len() as u64;
        (self.next, self.hash) = (number + 1, hash);
        Ok(number)
    }

    /// Begins another file. The one before is on disk by then, and so is the name of the new one.
    fn begin_file(&mut self) -> Result<()> {
        let synced = self.file.as_ref().map_or(Ok(()), |(file, _)| file.sync_data());
        self.fail_if(synced)?;
        let path = chain::file_of(&self.directory, self.next);
        let file = create(&self.directory, &path);
        let file = file.map_err(|error| self.cannot("begin a file of the audit in", &error))?;
        let sync = |directory: &Path| File::open(directory)?.sync_all();
        let synced = sync(&self.directory).and_then(|()| self.directory.parent().map_or(Ok(()), sync));
        self.fail_if(synced)?;
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
        if !self.is_synced()
            && let Some((file, _)) = &self.file
        {
            let synced = file.sync_data();
            self.fail_if(synced)?;
            self.synced = self.next;
        }
        Ok(())
    }

    /// Whether all lines are on disk.
    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.next
    }

    /// Whether there are more files than are kept.
    pub(super) fn has_old_files(&self) -> bool {
        self.files.len() > FILES_MAX
    }

    /// The mark without the files that are no longer kept. Once the database has it, they can be
    /// [dropped](Log::drop_old_files).
    pub(super) fn mark_without_old_files(&self) -> Option<Mark> {
        let mark = self.mark()?;
        let old = self.files.len().saturating_sub(FILES_MAX);
        let kept = self.files.get(old).filter(|_| old > 0);
        Some(Mark { first: kept.map_or(mark.first, |(first, _)| *first), ..mark })
    }

    /// Removes the files before those that the database's mark keeps.
    pub(super) fn drop_old_files(&mut self, mark: &Mark) {
        self.first = mark.first;
        // One that cannot be removed stays with those behind it: a gap would be a fault.
        while self.files.get(1).is_some_and(|(second, _)| *second <= mark.first)
            && fs::remove_file(&self.files[0].1).is_ok()
        {
            self.files.remove(0);
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Nothing was written.
    fn cannot(&self, what: &'static str, error: &io::Error) -> Error {
        let error = Error::io(what, &self.directory, error);
        match error.code() {
            Code::DiskFull => error.with_hint(
                "nothing was changed: free some space on this disk and repeat; deleting rows frees none, since the database keeps its files",
            ),
            _ => error,
        }
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

/// A new file, in a directory of this user's.
fn create(directory: &Path, path: &Path) -> io::Result<File> {
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(directory)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // An empty one is left by a start that failed here.
    if file.metadata()?.len() > 0 { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    //! Old files go, and what is left is still proven.
    use super::*;

    #[test]
    fn files_follow_one_another_and_the_oldest_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = |mark| Log::open(directory.path(), mark).expect("opened");
        let mut log = open(None);
        log.file_bytes_max = 1_000;
        for _ in 0..200 {
            log.append(&Event { what: "x".repeat(100), ..Event::default() }).expect("written");
        }
        assert!(log.files.len() > FILES_MAX && log.has_old_files());
        let mark = log.mark_without_old_files().expect("there are lines");
        assert!(mark.first > 1 && mark.last == 200);
        log.drop_old_files(&mark);
        assert_eq!((log.files.len(), log.files[0].0), (FILES_MAX, mark.first));
        let verify = |mark| chain::verify(directory.path(), Some(mark)).expect("read");
        assert_eq!(verify(mark).fault, None);
        drop(log);
        let mut log = open(Some(mark));
        log.file_bytes_max = 1_000;
        for _ in 0..20 {
            log.append(&Event { what: "y".repeat(100), ..Event::default() }).expect("written");
        }
        let later = log.mark().expect("there are lines");
        assert_eq!((later.first, later.last, verify(later).fault), (mark.first, 220, None));
        // The oldest file that is kept is lost: no start makes that good.
        fs::remove_file(&log.files[0].1).expect("removed");
        drop(log);
        let log = open(Some(later));
        assert!(verify(log.mark().expect("there are lines")).fault.is_some());
    }
}
