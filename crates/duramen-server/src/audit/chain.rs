//! Reading the files of an audit, and telling whether they are what was written.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Seek as _};
use std::path::{Path, PathBuf};

use duramen::error::{Error, Result};

use super::line::{self, Hash};

/// The directory of the audit in that of the database.
const DIRECTORY: &str = "audit";

/// How the name of a file ends; before stands the number of its first line.
const EXTENSION: &str = "jsonl";

/// A line is shorter: what clients send is cut.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 20;

/// How far an audit has come, as a row of the database keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The first line that is kept.
    pub first: u64,
    /// The last line when the row was written.
    pub last: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What the files of an audit have shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The number of the first line, and of the last; 0 and 0 without any.
    pub first: u64,
    /// The last line.
    pub last: u64,
    /// How many lines at the end the row of the database does not vouch for: it is written once a minute.
    pub after_mark: u64,
    /// Whether a line at the end is not whole: it was being written, or the power failed then.
    pub is_torn: bool,
    /// The first fault: which file, and what is wrong there.
    pub fault: Option<String>,
}

/// The lines of one file, as far as they hold together.
#[derive(Debug)]
pub(super) struct Part {
    /// The number after that of the last line, and its hash.
    pub(super) next: u64,
    pub(super) hash: Hash,
    /// Bytes of these lines.
    pub(super) bytes: u64,
    /// What is behind them.
    pub(super) behind: Behind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    /// Bytes without an end of line.
    Torn,
    Fault(String),
}

pub(super) fn directory_of(database: &Path) -> PathBuf {
    database.join(DIRECTORY)
}

/// The file that begins with a line.
pub(super) fn file_of(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}.{EXTENSION}"))
}

/// The files of an audit and the numbers of their first lines, in order.
///
/// # Errors
/// `System` (E1001) if the directory cannot be read.
pub(super) fn files(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |error: io::Error| Error::io("read", directory, &error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (Some(number), true) = (number, path.extension().is_some_and(|end| end == EXTENSION)) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file from its first line on. `before` is the hash of the line before, if it is known; `look` sees
/// the number and the hash of each line.
///
/// # Errors
/// `System` (E1001) if the file cannot be read.
pub(super) fn read(
    (first, path): (u64, &Path),
    before: Option<Hash>,
    look: &mut dyn FnMut(u64, &Hash),
) -> Result<Part> {
    let failed = |error: io::Error| Error::io("read", path, &error);
    let mut lines = BufReader::new(File::open(path).map_err(failed)?);
    let mut part = Part { next: first, hash: before.unwrap_or_default(), bytes: 0, behind: Behind::Nothing };
    let (mut line, mut before) = (Vec::new(), before);
    loop {
        line.clear();
        let count =
            io::Read::take(&mut lines, LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        if count == 0 {
            return Ok(part);
        }
        let fault = match line.pop_if(|last| *last == b'\n') {
            None if (count as u64) < LINE_BYTES_MAX => {
                part.behind = Behind::Torn;
                return Ok(part);
            }
            None => Some("is too long for a line".to_owned()),
            Some(_) => fault_of(&line, part.next, before.as_ref()),
        };
        if let Some(fault) = fault {
            part.behind = Behind::Fault(format!("{}: line {} {fault}", path.display(), part.next));
            return Ok(part);
        }
        part.hash = line::hash(&line);
        before = Some(part.hash);
        look(part.next, &part.hash);
        part.next += 1;
        part.bytes += count as u64;
    }
}

/// Whether a whole line of an audit stands behind an offset of a file.
///
/// # Errors
/// `System` (E1001) if the file cannot be read.
pub(super) fn has_line(path: &Path, offset: u64) -> Result<bool> {
    let failed = |error: io::Error| Error::io("read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(io::SeekFrom::Start(offset)).map_err(failed)?;
    let (mut lines, mut line) = (BufReader::new(file), Vec::new());
    loop {
        line.clear();
        let count =
            io::Read::take(&mut lines, LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        match line.pop_if(|last| *last == b'\n') {
            _ if count == 0 => return Ok(false),
            Some(_) if line::link(&line).is_some() => return Ok(true),
            _ => {}
        }
    }
}

/// What is wrong with a line that should have this number and follow the line of this hash.
fn fault_of(line: &[u8], number: u64, before: Option<&Hash>) -> Option<String> {
    let Some(link) = line::link(line) else { return Some("is not one that was written".to_owned()) };
    if link.n != number {
        return Some(format!("is missing: line {} stands there", link.n));
    }
    match before {
        Some(before) if link.prev != line::hex(before) => {
            Some(format!("does not follow line {}: one of the two was changed", number - 1))
        }
        _ => None,
    }
}

/// Reads all files of the audit of a database's directory, and holds them against the mark.
///
/// A line that was changed, is missing or stands elsewhere is a fault, and so is an end that was cut off
/// before the line of the mark. Lines after it were written in the last minute, or after the last stop of the
/// server: that nothing is missing behind them nobody knows.
///
/// # Errors
/// `System` (E1001) if a file cannot be read.
pub fn verify(database: &Path, mark: Option<Mark>) -> Result<Verified> {
    let files = files(&directory_of(database))?;
    let first = files.first().map_or(0, |(first, _)| *first);
    let mut verified = Verified { first, last: 0, after_mark: 0, is_torn: false, fault: None };
    let mut at_mark = None;
    let mut before = (first == 1).then(Hash::default);
    let mut next = first;
    for (index, (begin, path)) in files.iter().enumerate() {
        if *begin != next {
            let what = if *begin > next { "are missing" } else { "are there twice" };
            let (from, to) = (next.min(*begin), next.max(*begin) - 1);
            verified.fault = Some(format!("{}: lines {from} to {to} {what}", path.display()));
            return Ok(verified);
        }
        let mut look = |number, hash: &Hash| {
            if mark.is_some_and(|mark| mark.last == number) {
                at_mark = Some(*hash);
            }
        };
        let part = read((*begin, path), before, &mut look)?;
        (next, before) = (part.next, Some(part.hash));
        verified.last = next.saturating_sub(1);
        match part.behind {
            Behind::Nothing => {}
            Behind::Torn if index + 1 == files.len() => verified.is_torn = true,
            Behind::Torn => verified.fault = Some(format!("{}: line {next} is not whole", path.display())),
            Behind::Fault(fault) => verified.fault = Some(fault),
        }
        if verified.fault.is_some() {
            return Ok(verified);
        }
    }
    verified.fault = mark.and_then(|mark| fault_at(&mark, &verified, at_mark));
    verified.after_mark = verified.last.saturating_sub(mark.map_or(0, |mark| mark.last));
    Ok(verified)
}

/// What the mark says that the files do not.
fn fault_at(mark: &Mark, verified: &Verified, at_mark: Option<Hash>) -> Option<String> {
    let Verified { first, last, .. } = *verified;
    if *verified == (Verified { first: 0, last: 0, after_mark: 0, is_torn: false, fault: None }) {
        return Some(format!("lines {} to {} are missing", mark.first, mark.last));
    }
    if first > mark.first {
        return Some(format!("lines {} to {} are missing", mark.first, first - 1));
    }
    if last < mark.last {
        return Some(format!("the end is cut off: lines {} to {} are missing", last + 1, mark.last));
    }
    match at_mark {
        Some(hash) if hash == mark.hash => None,
        _ => Some(format!("line {} was changed: the database has another hash of it", mark.last)),
    }
}
