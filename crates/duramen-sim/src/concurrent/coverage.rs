//! The kinds of runs and of cuts that a search with threads must meet.
//!
//! Owns their names and counts. `live` decides what a run does, `search::cuts` which choices are tried.

use duramen_disk::memory::{OpInfo, OpKind};
use duramen_engine::{Background, SyncMethod};

use super::live::{options_of, run_of};
use crate::history::Manner;
use crate::search::kinds::Kind;
use crate::search::phases::{is_data, is_segment, is_superblock};
use crate::search::report::METHODS;

/// Whether an operation is of a kind.
type Fits = fn(&OpInfo) -> bool;

/// The last operation before a cut.
const CALLS: [(&str, Fits); 10] = [
    ("a cut after a write to the log", |op| op.kind == OpKind::Write && is_segment(op)),
    ("a cut after a sync of the log", |op| op.kind == OpKind::Sync && is_segment(op)),
    ("a cut after a page write", |op| op.kind == OpKind::Write && is_data(op) && !is_superblock(op)),
    ("a cut after a superblock write", |op| op.kind == OpKind::Write && is_superblock(op)),
    ("a cut after a sync of the data file", |op| op.kind == OpKind::Sync && is_data(op)),
    ("a cut after the data file was cut short", |op| op.kind == OpKind::SetLen && is_data(op)),
    ("a cut after a file was made", |op| op.kind == OpKind::Create),
    ("a cut after space was reserved", |op| op.kind == OpKind::Reserve),
    ("a cut after a sync of a directory", |op| op.kind == OpKind::SyncDir),
    ("a cut after an acknowledgement", |op| op.kind == OpKind::Mark),
];

/// The kinds of transactions in a run.
const MANNERS: [(Manner, &str); 3] = [
    (Manner::Short, "a life of short transactions"),
    (Manner::Old, "a life with old transactions"),
    (Manner::Later, "a life with receipts that wait later"),
];

/// Commits whose calls returned with each level, in the order of `Durability`.
const LEVELS: [&str; 3] = ["a commit at level Memory", "a commit at level Process", "a commit at level Disk"];

/// Commits of each of `LEVELS`.
pub(super) type Levels = [u64; LEVELS.len()];

/// The counts of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    levels: Levels,
    manners: [u64; MANNERS.len()],
    own_threads: u64,
    stepped: u64,
    separate: u64,
    methods: [u64; METHODS.len()],
    calls: [u64; CALLS.len()],
    kinds: [u64; Kind::ALL.len()],
}

impl Coverage {
    pub(super) fn of_life(seed: u64, levels: Levels) -> Coverage {
        let has_threads = options_of(seed).background == Background::Threads;
        let manner = run_of(seed).manner;
        Coverage {
            levels,
            manners: MANNERS.map(|(known, _)| u64::from(known == manner)),
            own_threads: u64::from(has_threads),
            stepped: u64::from(!has_threads),
            ..Coverage::default()
        }
    }

    /// Counts a distinct cut by how the database was opened, by the operation before it and by its choice.
    pub(super) fn cut(&mut self, sync: SyncMethod, separate: bool, last: Option<&OpInfo>, kind: Kind) {
        for (count, (method, _)) in self.methods.iter_mut().zip(METHODS) {
            *count += u64::from(method == sync);
        }
        for (count, (_, fits)) in self.calls.iter_mut().zip(CALLS) {
            *count += u64::from(last.is_some_and(fits));
        }
        self.separate += u64::from(separate);
        self.second_cut(kind);
    }

    /// Counts a second cut by its choice.
    pub(super) fn second_cut(&mut self, kind: Kind) {
        self.kinds[kind as usize] += 1;
    }

    /// Each count with its words.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let levels = self.levels.into_iter().zip(LEVELS);
        let manners = self.manners.into_iter().zip(MANNERS.map(|(_, name)| name));
        let lives = [
            (self.own_threads, "a life with the engine's own threads"),
            (self.stepped, "a life whose background is stepped"),
            (self.separate, "a cut with the log on a disk of its own"),
        ];
        let methods = self.methods.into_iter().zip(METHODS.map(|(_, name)| name));
        let calls = self.calls.into_iter().zip(CALLS.map(|(name, _)| name));
        let kinds = self.kinds.into_iter().zip(Kind::ALL.iter().map(|kind| kind.name()));
        levels.chain(manners).chain(lives).chain(methods).chain(calls).chain(kinds)
    }

    /// Adds another's counts.
    pub(super) fn add(&mut self, other: &Coverage) {
        self.own_threads += other.own_threads;
        self.stepped += other.stepped;
        self.separate += other.separate;
        let mine = self.levels.iter_mut().chain(&mut self.manners).chain(&mut self.methods);
        let theirs = other.levels.iter().chain(&other.manners).chain(&other.methods);
        let mine = mine.chain(&mut self.calls).chain(&mut self.kinds);
        for (mine, theirs) in mine.zip(theirs.chain(&other.calls).chain(&other.kinds)) {
            *mine += theirs;
        }
    }
}
