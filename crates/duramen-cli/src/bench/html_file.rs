//! The report's file: fails before the measurements if it cannot be created; written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// A file that is written under a temporary name and renamed at the end. If dropped before, it leaves
/// nothing.
#[derive(Debug)]
pub(super) struct HtmlFile {
    target: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl HtmlFile {
    /// Creates the temporary file. An existing target must be a file, possibly through a link.
    pub(super) fn begin(path: &Path) -> Result<HtmlFile> {
        let target = match fs::symlink_metadata(path) {
            Ok(found) => match fs::canonicalize(path) {
                Err(error) if error.kind() == ErrorKind::NotFound && found.is_symlink() => {
                    let text = format!("{} is a link to what is not there", path.display());
                    return Err(Failure::data(text, "remove the link, or name another file after --html"));
                }
                resolved => resolved.map_err(|error| Failure::io("write the report", path, &error))?,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(Failure::io("write the report", path, &error)),
        };
        if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
            let text = format!("{} is there and is not a file", path.display());
            return Err(Failure::data(text, "name another file after --html"));
        }
        let Some(name) = target.file_name() else {
            let text = format!("{} is not the name of a file", path.display());
            return Err(Failure::data(text, "name a file after --html"));
        };
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.part", std::process::id()));
        let temporary = target.with_file_name(beside);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(|error| Failure::io("write the report", path, &error))?;
        Ok(HtmlFile { target, temporary, file })
    }

    /// Writes the report and renames it to its target.
    pub(super) fn finish(mut self, html: &str) -> Result<()> {
        self.file
            .write_all(html.as_bytes())
            .and_then(|()| self.file.sync_all())
            .and_then(|()| fs::rename(&self.temporary, &self.target))
            .map_err(|error| Failure::io("write the report", &self.target, &error))
    }
}

impl Drop for HtmlFile {
    fn drop(&mut self) {
        // Absent if it was renamed; otherwise there is no caller left to return an error to.
        drop(fs::remove_file(&self.temporary));
    }
}
