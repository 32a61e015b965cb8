//! The set of retained files: which exist, what they cover, and which readers hold what.
//!
//! Invariants: the files cover one range of commits without a gap, at least up to the end of the newest
//! checkpoint, and are removed oldest first. If a file ends too early or is missing, the file before the gap
//! is taken to cover it. A reader gets the corruption there, and the commit to continue from.
//!
//! D6 rests here. Changes after the position in the newest superblock were copied for a checkpoint that
//! never completed. They may be in the page cache alone, where a failed sync leaves them marked clean. The
//! log still has them, and they are copied again from there. If a superblock is missing, the log may lack
//! some values, and the file is copied instead (`settle`).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use duramen_disk::{Access, Disk};

use super::file::{FileEnd, FileReader, FileWriter, corrupt, relied_on_through};
use super::frame::{FileHeader, file_path, number_of};
use super::{FeedBounds, FeedNeed, FeedStats, cannot_read, gap};
use crate::alarm::{invariant, locked};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::CommitSeq;
use crate::limits::{FEED_BYTES_MAX_DEFAULT, FEED_FILE_BYTES, FEED_FRAME_BYTES};
use crate::wal::LogIdentity;

/// The name of the directory inside the database.
pub(crate) const FEED_DIR: &str = "feed";

/// A file holds at most this part of all that may be kept, so that dropping the oldest drops little.
const FILE_PART: u64 = 8;

const _: () = assert!(FEED_FRAME_BYTES as u64 * FILE_PART <= FEED_FILE_BYTES, "a file takes several frames");
const _: () = assert!(FEED_FILE_BYTES * FILE_PART <= FEED_BYTES_MAX_DEFAULT, "the bound is several files");

/// The retained files of an open database.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) database_dir: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) identity: LogIdentity,
    pub(super) block_bytes: u32,
    pub(super) bounds: FeedBounds,
    state: Mutex<State>,
    /// Held while the needs are collected. A hold that begins meanwhile waits for the result.
    pub(super) finding_needs: Mutex<()>,
    /// Held through retaining: the file being written.
    pub(super) writer: Mutex<Option<FileWriter>>,
}

/// A retained file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetainedPart {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub path: PathBuf,
    /// It holds every change after this commit,
    pub after: CommitSeq,
    /// up to this one.
    pub through: CommitSeq,
    /// Where its frames end at most.
    pub end_offset: u64,
    /// An upper bound of the commit time of its newest commit.
    pub time_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) files: VecDeque<RetainedPart>,
    /// Everything after this commit can be read, from files or from the log, as far as these are whole.
    pub(super) oldest: CommitSeq,
    /// How far the believable files reached when the database was opened.
    pub(super) found_through: CommitSeq,
    pub(super) next_number: u64,
    /// Files to be removed, oldest first.
    pub(super) dropped: VecDeque<PathBuf>,
    /// Useless files still to be removed, in any order.
    pub(super) junk: Vec<PathBuf>,
    /// Files after those that are believed, in order. They must be removed before a file is written, or they
    /// would seem to follow it.
    pub(super) unproven: Vec<PathBuf>,
    /// A file was removed without a successful sync. After a power cut it could be back, and a newer one be
    /// gone.
    pub(super) removal_unsynced: bool,
    /// The file that can be continued, and its end.
    pub(super) tail: Option<(FileHeader, FileEnd)>,
    /// The directories were synced since the database was opened.
    pub(super) names_synced: bool,
    /// Files that a checkpoint relied on and whose header is corrupt.
    corrupt: Vec<CorruptFile>,
    pub(super) refusal: Option<String>,
    /// While retaining fails: the times of the first and the last failure, on the disk's clock.
    pub(super) failing_ns: Option<(u64, u64)>,
    holds: BTreeMap<u64, CommitSeq>,
    next_hold: u64,
}

/// What the superblocks prove about the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Covered {
    /// The end of the newest checkpoint: files were synced up to there before its superblock was written.
    pub boundary: CommitSeq,
    /// The other superblock cannot be read, or became a copy; it may have been the newer one. Then the log
    /// may lack what the files have. They are read as far as they are complete, and copied before anything
    /// relies on them.
    pub is_alone: bool,
}

impl Covered {
    /// The files are believed up to this commit.
    fn believed(self) -> CommitSeq {
        if self.is_alone { CommitSeq(u64::MAX) } else { self.boundary }
    }
}

/// Files that opened, oldest first.
type Readers = VecDeque<(PathBuf, FileReader)>;

/// A file whose header is corrupt or missing, or cannot be read.
#[derive(Debug)]
struct CorruptFile {
    number: u64,
    path: PathBuf,
    /// What is wrong with it.
    flaw: String,
    /// Where it ended, if anything relied on it.
    until: CommitSeq,
}

/// Keeps changes for a reader of this process until it is dropped.
#[derive(Debug)]
pub struct FeedHold {
    retained: Arc<Retained>,
    id: u64,
}

impl Retained {
    /// Finds the files of a database. Changes nothing.
    ///
    /// # Errors
    /// `Unsupported` if a file is of a later format; `Io`. Corruption is reported to readers that need what
    /// is corrupt.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        database_dir: &Path,
        identity: LogIdentity,
        block_bytes: usize,
        bounds: FeedBounds,
        covered: Covered,
    ) -> Result<Arc<Retained>> {
        let retained = Retained {
            disk: Arc::clone(disk),
            database_dir: database_dir.to_owned(),
            dir: database_dir.join(FEED_DIR),
            identity,
            block_bytes: u32::try_from(block_bytes).expect("the geometry was checked"),
            bounds,
            state: Mutex::new(State { next_number: 1, oldest: covered.boundary, ..State::default() }),
            finding_needs: Mutex::new(()),
            writer: Mutex::new(None),
        };
        let numbers = retained.numbers()?;
        if !numbers.is_empty() {
            let found = retained.look_at(&numbers, covered)?;
            *retained.state() = found;
        }
        Ok(Arc::new(retained))
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        let names = match self.disk.list(&self.dir) {
            Ok(names) => names,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", &self.dir, &e)),
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What the files hold, as far as what follows the trees confirms it.
    fn look_at(&self, numbers: &[u64], covered: Covered) -> Result<State> {
        let boundary = covered.boundary;
        let mut state = State { next_number: numbers[numbers.len() - 1] + 1, ..State::default() };
        let (mut readers, corrupt) = self.open_files(numbers, covered, &mut state)?;
        self.find_tail(&mut readers, covered, &mut state)?;
        join_older(readers, &mut state);
        for file in corrupt {
            self.judge(file, &mut state);
        }
        if let Some((tail, _)) = &state.tail
            && state.corrupt.iter().any(|file| file.number > tail.number)
        {
            // That file may be readable again later. It would deliver what is appended to the tail once more.
            state.tail = None;
        }
        state.oldest = state.files.front().map_or(boundary, |file| file.after);
        state.found_through = state.files.back().map_or(boundary, |file| file.through);
        invariant!(state.is_gapless(), "the files found cover one range: {:?}", state.files);
        invariant!(
            boundary <= state.found_through,
            "the files reach to commit {}, and to the checkpoint of {boundary}",
            state.found_through
        );
        Ok(state)
    }

    /// Opens the files, oldest first. Those without contents go to `state`.
    fn open_files(
        &self,
        numbers: &[u64],
        covered: Covered,
        state: &mut State,
    ) -> Result<(Readers, Vec<CorruptFile>)> {
        let mut readers = Readers::new();
        let mut corrupt = Vec::new();
        for number in numbers {
            let path = file_path(&self.dir, *number);
            match self.open_file(&path)? {
                Ok(reader) if reader.header().after >= covered.believed() => state.unproven.push(path),
                Ok(reader) => readers.push_back((path, reader)),
                Err(flaw) => {
                    corrupt.push(CorruptFile { number: *number, path, flaw, until: covered.boundary });
                }
            }
        }
        for file in &mut corrupt {
            file.until = end_of(file.number, &readers, covered.boundary);
        }
        Ok((readers, corrupt))
    }

    /// Opens a file, or returns what is wrong with its header. Reads the header twice, since a single read
    /// can fail although the stored bytes are right.
    ///
    /// # Errors
    /// `Unsupported` for a later format; `Io` if the file cannot be opened. Bytes that cannot be read count
    /// as corrupt, so that the database opens all the same.
    fn open_file(&self, path: &Path) -> Result<std::result::Result<FileReader, String>> {
        let mut flaw = String::new();
        for _ in 0..2 {
            flaw = match FileReader::open(&*self.disk, path, self.identity) {
                Ok(Some(reader)) => return Ok(Ok(reader)),
                Ok(None) => corrupt(path, 0, "the file has no header").message().to_owned(),
                Err(error) if error.is_corruption() || error.kind() == ErrorKind::Io => {
                    error.message().to_owned()
                }
                Err(error) => return Err(error),
            };
        }
        self.disk.open(path, Access::READ).map_err(|e| Error::io("open", path, &e))?;
        Ok(Err(flaw))
    }

    /// Where the whole part of a file ends. If something would be given up after that, reads a second time,
    /// since a single read can fail.
    fn end_of_file(&self, path: &Path, reader: FileReader, covered: Covered) -> Result<FileEnd> {
        let (end, flaw) = reader.scan(covered.believed());
        let is_suspect = covered.is_alone && flaw.is_some();
        if let Some(Ok(reader)) = is_suspect.then(|| self.open_file(path)).transpose()? {
            let (again, _) = reader.scan(covered.believed());
            return Ok(if again.through > end.through { again } else { end });
        }
        Ok(end)
    }

    /// Finds the newest file with contents. Only that one may be torn; a crash before the first frame leaves
    /// files without.
    fn find_tail(&self, readers: &mut Readers, covered: Covered, state: &mut State) -> Result<()> {
        let boundary = covered.boundary;
        while let Some((path, reader)) = readers.pop_back() {
            let (header, file_bytes) = (*reader.header(), reader.file_bytes());
            let end = self.end_of_file(&path, reader, covered)?;
            // Without contents; or a copy of what follows the boundary, while what it was made of still
            // exists: the copy may be in the page cache alone.
            if header.after >= boundary
                && (end.through == header.after
                    || covered.is_alone && self.is_copy(readers, covered, end.through)?)
            {
                state.unproven.insert(0, path);
                continue;
            }
            let mut part = part_of(path, &header, &end);
            if end.time_ns == 0 {
                // It is not known, and the older files are taken to be no newer.
                part.time_ns = self.disk.wall_ns();
            }
            if end.through < boundary {
                // Nothing is added to it.
                (part.through, part.end_offset) = (boundary, file_bytes);
            } else {
                state.tail = Some((header, end));
            }
            state.files.push_front(part);
            return Ok(());
        }
        Ok(())
    }

    /// Decides whether a file without a readable header is corruption. It is not if no checkpoint relied on
    /// the file: its frames are for a checkpoint that did not come. A corrupt file is kept: a consumer may
    /// need it.
    fn judge(&self, mut file: CorruptFile, state: &mut State) {
        let block_bytes = u64::from(self.block_bytes);
        let (disk, number, until) = (&*self.disk, file.number, file.until);
        let judge = || relied_on_through(disk, &file.path, self.identity, number, block_bytes, until);
        match judge().or_else(|_| judge()) {
            Ok(None) => state.junk.push(file.path),
            Ok(Some(through)) => {
                file.until = through;
                state.corrupt.push(file);
            }
            // It cannot be read, and may be corrupt.
            Err(_) => state.corrupt.push(file),
        }
    }

    /// Whether any of these files reaches to this commit beyond the boundary.
    fn is_copy(&self, files: &Readers, covered: Covered, through: CommitSeq) -> Result<bool> {
        for (path, reader) in files.iter().rev() {
            let is_last = reader.header().after < covered.boundary;
            if let Ok(reader) = self.open_file(path)?
                && self.end_of_file(path, reader, covered)?.through >= through
            {
                return Ok(true);
            }
            if is_last {
                break;
            }
        }
        Ok(false)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(self.state.lock())
    }

    /// The file with the changes after a commit, if there is one.
    pub(crate) fn part_after(&self, after: CommitSeq) -> Option<RetainedPart> {
        let state = self.state();
        state.files.iter().find(|file| file.after <= after && after < file.through).cloned()
    }

    /// Up to this commit, changes are read from files, even if the log reaches further back.
    ///
    /// If only the older superblock is left, the files reach beyond it. The log after it still exists. But
    /// values that it replaced before the newer checkpoint may have lost their extents, since that
    /// checkpoint's space map lacks them.
    pub(crate) fn found_through(&self) -> CommitSeq {
        self.state().found_through
    }

    /// Opens one of the files.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    pub(crate) fn read(&self, part: &RetainedPart) -> Result<FileReader> {
        let reader = FileReader::open(&*self.disk, &part.path, self.identity)?;
        let reader = reader.ok_or_else(|| corrupt(&part.path, 0, "the file is empty"))?;
        // A writer that had removed all files begins with the first number again.
        if reader.header().after != part.after {
            let what = format!("the file begins after commit {}, want {}", reader.header().after, part.after);
            return Err(corrupt(&part.path, 0, &what));
        }
        Ok(reader)
    }

    /// The error for a reader that needs changes after a commit that are kept nowhere.
    pub(crate) fn gap(&self, after: CommitSeq) -> Error {
        let state = self.state();
        match state.corrupt_after(after) {
            Some(file) => cannot_read(after, &file.flaw, state.oldest),
            None => gap(after, state.oldest),
        }
    }

    /// Everything after this commit can be read.
    pub(crate) fn oldest(&self) -> CommitSeq {
        self.state().oldest
    }

    /// Keeps the changes after a commit while the hold lives, within the bound of the feed.
    ///
    /// # Errors
    /// `FeedGap` if they are gone already; `CorruptFeed`.
    pub(crate) fn hold(self: &Arc<Retained>, after: CommitSeq) -> Result<FeedHold> {
        let _one_at_a_time = locked(self.finding_needs.lock());
        let mut state = self.state();
        if after < state.oldest {
            drop(state);
            return Err(self.gap(after));
        }
        let id = state.next_hold;
        state.next_hold += 1;
        state.holds.insert(id, after);
        Ok(FeedHold { retained: Arc::clone(self), id })
    }

    /// The files and the holds on them. The caller fills in the other fields of [`FeedStats`].
    pub(crate) fn stats(&self) -> FeedStats {
        let state = self.state();
        let mut held: Vec<CommitSeq> = state.holds.values().copied().collect();
        held.sort_unstable();
        FeedStats {
            file_count: state.files.len() as u64,
            file_bytes: state.file_bytes(),
            oldest: state.oldest,
            held,
            refusal: state.refusal.clone(),
            ..FeedStats::default()
        }
    }

    /// Why writers are refused; `None` if they are not.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    /// Whether there is nothing that could be removed.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.files.is_empty() && state.dropped.is_empty() && state.refusal.is_none()
    }

    /// Reads every file and returns what is wrong with them. A file that cannot be read is a problem like a
    /// corrupt one.
    pub(crate) fn check(&self) -> Vec<String> {
        let (files, mut problems) = {
            let state = self.state();
            let corrupt = state.corrupt.iter().map(|file| file.flaw.clone());
            (state.files.clone(), corrupt.collect::<Vec<_>>())
        };
        for part in files {
            let reader = match self.read(&part) {
                Ok(reader) => reader,
                // The file was removed in the meantime.
                Err(_) if self.part_after(part.after).is_none_or(|now| now.number != part.number) => continue,
                Err(error) => {
                    problems.push(error.message().to_owned());
                    continue;
                }
            };
            let (end, flaw) = reader.scan(part.through);
            if end.through < part.through {
                let flaw = flaw.unwrap_or_else(|| corrupt(&part.path, end.offset, "the file ends early"));
                let flaw = flaw.message();
                problems.push(format!("{flaw}; it reaches to commit {}, want {}", end.through, part.through));
            }
        }
        problems
    }

    /// The approximate size of a file.
    pub(super) fn file_bytes_wanted(&self) -> u64 {
        FEED_FILE_BYTES.min(self.bounds.bytes_max / FILE_PART)
    }
}

impl State {
    /// Adds a file, or the new end of the newest one.
    pub(super) fn add(&mut self, part: RetainedPart) {
        invariant!(
            part.number < self.next_number,
            "file {} has a number given out, below {}",
            part.number,
            self.next_number
        );
        match self.files.back_mut().filter(|last| last.number == part.number) {
            Some(last) => {
                invariant!(
                    last.after == part.after && last.through <= part.through,
                    "file {} of commits {} to {} goes on to commit {}",
                    part.number,
                    last.after,
                    last.through,
                    part.through
                );
                invariant!(
                    last.end_offset <= part.end_offset,
                    "file {} grows from {} bytes to {}",
                    part.number,
                    last.end_offset,
                    part.end_offset
                );
                *last = part;
            }
            None => {
                if let Some(last) = self.files.back() {
                    invariant!(
                        last.number < part.number && last.through == part.after,
                        "file {} after commit {} follows file {} to commit {}",
                        part.number,
                        part.after,
                        last.number,
                        last.through
                    );
                }
                self.files.push_back(part);
            }
        }
        debug_assert!(self.is_gapless(), "the files cover one range: {:?}", self.files);
    }

    /// Whether each file begins where the one before it ends, and has a higher number.
    fn is_gapless(&self) -> bool {
        let follows = |a: &RetainedPart, b: &RetainedPart| a.number < b.number && a.through == b.after;
        self.files.iter().zip(self.files.iter().skip(1)).all(|(a, b)| follows(a, b))
    }

    /// Whether changes are read from a file of this name, or may be needed from it.
    pub(super) fn relies_on(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path) || self.corrupt.iter().any(|file| file.path == path)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.end_offset).sum()
    }

    /// The oldest position that an open reader holds.
    pub(super) fn held_from(&self) -> Option<CommitSeq> {
        self.holds.values().copied().min()
    }

    /// The oldest position that is needed, among those that are not lost already.
    pub(super) fn needed_from(&self, needs: &[FeedNeed], held: Option<CommitSeq>) -> Option<CommitSeq> {
        let needs = needs.iter().map(|need| need.after);
        needs.chain(held).filter_map(|after| self.reads_from(after)).min()
    }

    /// The position from which a reader at this position continues: after a corrupt file if it is at one.
    /// `None` if the changes after it are lost.
    pub(super) fn reads_from(&self, after: CommitSeq) -> Option<CommitSeq> {
        let goes_on = self.corrupt_after(after).map_or(after, |_| self.oldest);
        (goes_on >= self.oldest).then_some(goes_on)
    }

    /// The corrupt file between this position and the first position from which everything can be read.
    fn corrupt_after(&self, after: CommitSeq) -> Option<&CorruptFile> {
        self.corrupt.iter().find(|file| after < file.until && file.until == self.oldest)
    }

    /// Releases corrupt files that end before everything that is needed and still there.
    pub(super) fn let_go_of_corrupt(&mut self, needed_from: Option<CommitSeq>) {
        let oldest = self.oldest;
        let is_needed = |until: CommitSeq| until >= oldest && needed_from.is_some_and(|from| from < until);
        self.keep_corrupt(|file| is_needed(file.until));
    }

    fn keep_corrupt(&mut self, is_kept: impl Fn(&CorruptFile) -> bool) {
        let (kept, gone) = std::mem::take(&mut self.corrupt).into_iter().partition(is_kept);
        self.corrupt = kept;
        self.junk.extend(Vec::into_iter(gone).map(|file| file.path));
    }

    /// Removes the oldest file from the list.
    pub(super) fn let_go_of_oldest(&mut self) -> Option<RetainedPart> {
        let gone = self.files.pop_front()?;
        self.dropped.push_back(gone.path.clone());
        // What kept this one has kept those before it.
        self.keep_corrupt(|file| file.until > gone.after);
        self.oldest = self.oldest.max(self.files.front().map_or(gone.through, |file| file.after));
        if self.files.is_empty() {
            self.tail = None;
        }
        Some(gone)
    }
}

/// Where a file ended: at the boundary, or where the next one begins. A file that overlaps it was given up
/// and could not be removed.
fn end_of(number: u64, readers: &Readers, boundary: CommitSeq) -> CommitSeq {
    let mut headers = readers.iter().map(|(_, reader)| reader.header());
    headers.find(|header| header.number > number).map_or(boundary, |next| next.after.min(boundary))
}

/// Puts the older files in front of the newest one.
fn join_older(mut older: Readers, state: &mut State) {
    while let Some((path, reader)) = older.pop_back() {
        let header = *reader.header();
        let next = &state.files[0];
        if header.after >= next.after {
            // The next file is a copy, and contains all of this one.
            state.unproven.insert(0, path);
            continue;
        }
        // This file must end where the next begins. A reader of it finds out whether it does, or whether a
        // file is missing.
        let end = FileEnd { offset: u64::MAX, previous: 0, through: next.after, time_ns: next.time_ns };
        let mut part = part_of(path, &header, &end);
        part.end_offset = reader.file_bytes();
        state.files.push_front(part);
    }
}

pub(super) fn part_of(path: PathBuf, header: &FileHeader, end: &FileEnd) -> RetainedPart {
    RetainedPart {
        number: header.number,
        path,
        after: header.after,
        through: end.through,
        end_offset: end.offset,
        time_ns: end.time_ns,
    }
}

impl FeedHold {
    /// The changes after this commit are kept.
    pub fn after(&self) -> CommitSeq {
        self.retained.state().holds.get(&self.id).copied().unwrap_or_default()
    }

    /// Releases changes up to this commit.
    pub fn advance(&self, after: CommitSeq) {
        if let Some(held) = self.retained.state().holds.get_mut(&self.id) {
            *held = after.max(*held);
        }
    }
}

impl Drop for FeedHold {
    fn drop(&mut self) {
        self.retained.state().holds.remove(&self.id);
    }
}
