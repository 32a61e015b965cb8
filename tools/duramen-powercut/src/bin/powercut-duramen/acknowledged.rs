//! Parses the loader's standard output, which no cut reaches: commits with their sequence, and backups.
//!
//! Owns the format of these lines.
//!
//! - `open P`: a process has opened the database, and found commits up to P.
//! - `ack WRITER NUMBER LEVEL SEQ`: this commit of a writer returned at that level, with the sequence SEQ.
//! - `backup NAME WRITER:COUNT ...`: a backup returned. COUNT commits of each writer had returned before it
//!   was begun.
//! - `gone NAME`: the backup is being removed.
//! - `compacted BYTES`: a compaction returned or was stopped, and has moved so many. The check ignores it.
//!
//! A line that was cut short acknowledges nothing.

use std::collections::BTreeMap;
use std::path::Path;

use duramen::Durability;

use crate::wrong::Outcome;

/// A commit that returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Its sequence.
    pub(crate) seq: u64,
    /// Whether it must survive a power cut.
    pub(crate) is_durable: bool,
}

/// The number of commits of each writer.
pub(crate) type Counts = BTreeMap<u32, u64>;

/// Everything that was acknowledged and still holds.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    /// By writer and number.
    pub(crate) commits: BTreeMap<(u32, u64), Commit>,
    /// Backups by name; `None` for one that is being removed.
    pub(crate) backups: BTreeMap<String, Option<Counts>>,
}

pub(crate) fn open_line(found: u64) -> String {
    format!("open {found}\n")
}

pub(crate) fn commit_line(writer: u32, number: u64, claimed: Durability, seq: u64) -> String {
    let level = match claimed {
        Durability::Memory => "memory",
        Durability::Process => "process",
        Durability::Disk => "disk",
    };
    format!("ack {writer} {number} {level} {seq}\n")
}

pub(crate) fn backup_line(name: &str, counts: &Counts) -> String {
    let counts: String = counts.iter().map(|(writer, count)| format!(" {writer}:{count}")).collect();
    format!("backup {name}{counts}\n")
}

pub(crate) fn gone_line(name: &str) -> String {
    format!("gone {name}\n")
}

pub(crate) fn compacted_line(moved_bytes: u64) -> String {
    format!("compacted {moved_bytes}\n")
}

impl Acknowledged {
    pub(crate) fn of_file(path: &Path) -> Outcome<Acknowledged> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("acknowledgements: {error}"))?;
        Acknowledged::of_lines(&text)
    }

    pub(crate) fn of_lines(text: &str) -> Outcome<Acknowledged> {
        let mut all = Acknowledged::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            all.read(line)?;
        }
        Ok(all)
    }

    fn read(&mut self, line: &str) -> Outcome<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{line:?}: {error}"));
        let writer_of = |text: &str| text.parse::<u32>().map_err(|error| format!("{line:?}: {error}"));
        match words[..] {
            ["open", found] => self.found(number(found)?)?,
            ["ack", writer, count, level, seq] => {
                let commit = Commit { seq: number(seq)?, is_durable: level == "disk" };
                self.commits.insert((writer_of(writer)?, number(count)?), commit);
            }
            ["backup", name, ref counts @ ..] => {
                let pairs = counts.iter().filter_map(|pair| pair.split_once(':'));
                let counts = pairs.map(|(writer, count)| Ok((writer_of(writer)?, number(count)?)));
                self.backups.insert(name.to_owned(), Some(counts.collect::<Result<_, String>>()?));
            }
            ["gone", name] => drop(self.backups.insert(name.to_owned(), None)),
            _ => {}
        }
        Ok(())
    }

    /// A database was opened whose newest commit is this one: later ones are gone, and their sequences may be
    /// reused.
    pub(crate) fn found(&mut self, newest: u64) -> Outcome<()> {
        for ((writer, number), commit) in &self.commits {
            if commit.seq > newest && commit.is_durable {
                return Err(format!(
                    "commit {number} of writer {writer} (sequence {}) was acknowledged as durable; the \
                     newest recovered sequence is {newest}",
                    commit.seq
                )
                .into());
            }
        }
        self.commits.retain(|_, commit| commit.seq <= newest);
        Ok(())
    }
}
