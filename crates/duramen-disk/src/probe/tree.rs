//! `/sys` or `/proc`, or a recording of one, read as text.
//!
//! Owns every read of those two trees. Bounded, never blocking, never writing. Any contents of a file become
//! a value or a reason, never a panic. On systems without these trees every read is `Unsupported`.

use std::io;
use std::path::{Path, PathBuf};

use super::fact::Fact;

/// Longest text read of one file; `/proc/self/maps` of a large process is the longest.
#[cfg(unix)]
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// A reason repeats at most this many characters of a text that is not understood.
const QUOTED_CHARS_MAX: usize = 40;

/// A folder, and the name under which its files are cited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree<'a> {
    root: &'a Path,
    /// The path of `/sys`, `/proc` or a recording.
    label: &'static str,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path, label: &'static str) -> Tree<'a> {
        Tree { root, label }
    }

    /// The name under which a file is cited.
    pub(super) fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.label)
    }

    /// The text of a file, without blanks around it.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        Ok(read(&self.root.join(path))?.trim_matches([' ', '\n', '\t', '\0']).to_owned())
    }

    /// The text of a file, read by `parse`; `None` makes the fact unknown.
    pub(super) fn fact<T>(&self, path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        let source = self.name(path);
        match self.text(path) {
            Ok(text) => match parse(&text) {
                Some(value) => Fact::known(value, source),
                None => {
                    let quoted: String = text.chars().take(QUOTED_CHARS_MAX).collect();
                    Fact::unknown(format!("{source}: `{quoted}` is not understood"))
                }
            },
            Err(error) => Fact::unknown(format!("{source}: {error}")),
        }
    }

    /// The names in a folder, sorted; none if it cannot be listed.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let mut names = list(&self.root.join(path)).unwrap_or_default();
        names.sort();
        names
    }

    /// The target of a link, as it is written.
    pub(super) fn link(&self, path: &str) -> io::Result<PathBuf> {
        std::fs::read_link(self.root.join(path))
    }
}

/// Opened without blocking, in case a recording contains a pipe.
#[cfg(unix)]
fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;

    use rustix::fs::{Mode, OFlags};

    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
fn list(path: &Path) -> io::Result<Vec<String>> {
    use rustix::fs::{Mode, OFlags};

    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(not(unix))]
fn read(_path: &Path) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
fn list(_path: &Path) -> io::Result<Vec<String>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `0` or `1`.
pub(super) fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Any text that is not empty.
pub(super) fn parse_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A decimal number.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// The one of several words in brackets: `none [mq-deadline] bfq`. A single word needs no brackets.
pub(super) fn parse_chosen(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let bracketed = words.clone().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let alone = words.next().filter(|_| words.next().is_none());
    bracketed.or(alone).and_then(parse_text)
}
