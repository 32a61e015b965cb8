//! Turns what was found at opening into what is relied on.
//!
//! D6 rests here. Bytes that no superblock covers may be in the page cache alone; after a failed sync,
//! another sync does not write them. They are removed, or written again to another file.

use std::path::Path;

use super::file::{FileWriter, discard, unreadable};
use super::frame::{FileHeader, file_path};
use super::retained::{Covered, Retained, RetainedPart, State, part_of};
use crate::alarm::invariant;
use crate::checkpoint::CheckpointError;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::ids::CommitSeq;

impl Retained {
    /// Makes what was found reliable. Removes files that are not believed. If a superblock is missing, copies
    /// what is believed beyond the other one.
    ///
    /// # Errors
    /// `Io` if the copy cannot be written or synced. Without room for it, or if the source is corrupt, that
    /// part is no longer believed: the log has those changes, though perhaps not all values.
    pub(crate) fn settle(&self, covered: Covered) -> Result<()> {
        // A killed process may have removed files without a sync.
        if self.disk.list(&self.dir).is_ok() {
            self.note_removal();
        }
        // A failure is retried before the next superblock is written.
        unless_poison(self.remove_unproven())?;
        if covered.is_alone {
            self.copy_beyond(covered.boundary)?;
            unless_poison(self.remove_unproven())?;
        }
        Ok(())
    }

    fn copy_beyond(&self, boundary: CommitSeq) -> Result<()> {
        // A single read can fail although the stored bytes are right.
        let copied = self.write_anew(boundary).or_else(|error| match error.is_corruption() {
            true => self.write_anew(boundary),
            false => Err(error),
        });
        match copied {
            Err(error) if error.kind() == ErrorKind::Full || error.is_corruption() => {
                self.state().let_go_after(boundary);
                Ok(())
            }
            written => written,
        }
    }

    /// Copies what the files hold after the boundary to a new file, durably. Earlier contents are not
    /// touched: they may be all that the disk has.
    fn write_anew(&self, boundary: CommitSeq) -> Result<()> {
        let parts: Vec<RetainedPart> =
            self.state().files.iter().filter(|file| file.through > boundary).cloned().collect();
        let Some(first) = parts.first() else { return Ok(()) };
        let after = first.after.max(boundary);
        let number = {
            let mut state = self.state();
            state.next_number += 1;
            state.next_number - 1
        };
        let header = FileHeader { identity: self.identity, number, block_bytes: self.block_bytes, after };
        let mut writer = self.create_file(header)?;
        if let Err(error) = self.copy_files(&parts, &mut writer) {
            drop(self.undo(writer));
            return Err(error);
        }
        let end = writer.end();
        let mut state = self.state();
        state.let_go_after(after);
        state.add(part_of(writer.path().to_owned(), &header, &end));
        state.found_through = end.through;
        state.tail = Some((header, end));
        state.names_synced = true;
        Ok(())
    }

    fn copy_files(&self, parts: &[RetainedPart], writer: &mut FileWriter) -> Result<()> {
        for part in parts {
            let after = writer.end().through;
            let reader = self.read(part).map_err(|error| unreadable(&part.path, error))?;
            reader.copy_to(writer, after, part.through)?;
        }
        // A failed sync is never tried again, and never taken for a full disk.
        let failed = |error: Error| Error::new(Code::System, error.message());
        writer.sync().map_err(failed)?;
        for directory in [&self.dir, &self.database_dir] {
            self.disk.sync_dir(directory).map_err(|e| failed(Error::io("sync", directory, &e)))?;
        }
        Ok(())
    }

    /// Removes the files that are not believed: the newest first, and each durably before the next.
    ///
    /// The newest of the files that were copied must not outlive one before it: the copy would seem unneeded.
    ///
    /// # Errors
    /// As [`Retained::remove_useless`].
    pub(super) fn remove_unproven(&self) -> std::result::Result<(), CheckpointError> {
        loop {
            let Some(path) = self.state().unproven.last().cloned() else { return Ok(()) };
            self.remove_durably(&path)?;
            self.state().unproven.pop();
        }
    }

    /// Removes the files that were let go of: the oldest first, and each durably before the next. A crash
    /// leaves no hole between those that are left.
    ///
    /// D7: goes on after a file that can be neither removed nor emptied, or the feed would grow beyond its
    /// bound. After the next opening a reader of that file gets an error at its end, with the commit to
    /// continue from, and `check` names the file.
    ///
    /// # Errors
    /// As [`Retained::remove_useless`].
    pub(super) fn remove_dropped(&self) -> std::result::Result<(), CheckpointError> {
        let (mut stuck_count, mut failed) = (0, Ok(()));
        loop {
            let Some(path) = self.state().dropped.get(stuck_count).cloned() else { return failed };
            self.note_removal();
            if let Err(error) = self.discard(&path) {
                stuck_count += 1;
                failed = Err(error.into());
                continue;
            }
            self.sync_removals()?;
            self.state().dropped.retain(|dropped| *dropped != path);
        }
    }

    fn remove_durably(&self, path: &Path) -> std::result::Result<(), CheckpointError> {
        self.note_removal();
        self.discard(path)?;
        self.sync_removals()
    }

    /// Removes a file that is not relied on, or empties it.
    fn discard(&self, path: &Path) -> Result<()> {
        let is_useless = !self.state().relies_on(path);
        invariant!(is_useless, "{} is needed by nothing when it is removed", path.display());
        discard(&*self.disk, path)
    }

    /// Creates a file. If the creation fails, the file is removed; a power cut may bring it back in part.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn create_file(&self, header: FileHeader) -> Result<FileWriter> {
        let created = FileWriter::create(&*self.disk, &self.dir, header);
        created.inspect_err(|_| self.state().junk.push(file_path(&self.dir, header.number)))
    }

    /// Drops what was written to a file since its last sync. A new file is removed; a power cut may bring it
    /// back in part.
    pub(super) fn undo(&self, writer: FileWriter) -> Option<FileWriter> {
        if writer.is_new() {
            self.state().junk.push(writer.path().to_owned());
        }
        writer.undone(&*self.disk)
    }

    /// Notes that a file was removed and its directory not synced.
    pub(super) fn note_removal(&self) {
        self.state().removal_unsynced = true;
    }

    /// Removes the files that no checkpoint relied on, durably, before a superblock is written that covers
    /// the commits in them. They would then look like files that it relied on.
    ///
    /// # Errors
    /// `Failed` if one can be neither removed nor emptied, or the directory cannot be opened; `Poison` if its
    /// sync failed.
    pub(super) fn remove_useless(&self) -> std::result::Result<(), CheckpointError> {
        self.sync_removals()?;
        let mut failed = None;
        for removed in [self.remove_dropped(), self.remove_unproven()] {
            match removed {
                Err(CheckpointError::Failed(error)) => failed = Some(error),
                done => done?,
            }
        }
        let mut junk = std::mem::take(&mut self.state().junk);
        if !junk.is_empty() {
            self.note_removal();
        }
        junk.retain(|path| self.discard(path).map_err(|error| failed = Some(error)).is_err());
        self.state().junk.append(&mut junk);
        self.sync_removals()?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Syncs removals of files, before a superblock is written that does without them. A removed file that
    /// came back would seem to be the only one, and would end too early.
    ///
    /// # Errors
    /// As [`Retained::remove_useless`].
    pub(super) fn sync_removals(&self) -> std::result::Result<(), CheckpointError> {
        if !self.state().removal_unsynced {
            return Ok(());
        }
        match self.disk.list(&self.dir) {
            Ok(_) => {
                let synced = self.disk.sync_dir(&self.dir);
                synced.map_err(|e| CheckpointError::Poison(Error::io("sync", &self.dir, &e)))?;
            }
            // No sync was attempted, so none has failed: the process may be out of file descriptors.
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("list", &self.dir, &e).into());
            }
            Err(_) => {}
        }
        self.state().removal_unsynced = false;
        Ok(())
    }
}

/// The error of a sync. Any other failure passes: it is tried again.
fn unless_poison(done: std::result::Result<(), CheckpointError>) -> Result<()> {
    match done {
        Err(CheckpointError::Poison(error)) => Err(error),
        _ => Ok(()),
    }
}

impl State {
    /// Of what was found, gives up what comes after a commit: it is neither read nor continued.
    fn let_go_after(&mut self, through: CommitSeq) {
        while self.files.back().is_some_and(|file| file.after >= through) {
            let file = self.files.pop_back().expect("there is a last one");
            self.unproven.insert(0, file.path);
        }
        match self.files.back_mut() {
            Some(last) => last.through = last.through.min(through),
            None => self.oldest = self.oldest.max(through),
        }
        self.found_through = self.found_through.min(through);
        self.tail = None;
    }
}
