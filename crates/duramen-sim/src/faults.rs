//! The fault sweep: every storage call of a workload fails in every way it can, once or from then on.
//!
//! Owns the sweep and the verdict on what is recovered. Tests D1, D2, D6 and D7: whatever call fails,
//! acknowledged commits are there after a restart and after a power cut, and the state is one prefix of the
//! commit order. A failed sync ends all acknowledgement, a full disk loses nothing, and nothing panics or
//! hangs.

mod full;
mod workload;

use std::fmt;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use duramen_disk::memory::{CallCounts, CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::data_file::{SUPERBLOCK_OFFSETS, Superblock};
use duramen_engine::{CommitSeq, Durability};

use crate::contents::Contents;
use workload::{Book, Work, open};

pub use full::{FullReport, full_disk};

/// A trial that takes longer counts as hung.
const TRIAL_SECONDS_MAX: u64 = 60;

/// Where the workload's database has its pages.
const DATA: &str = "/db/data";

/// Violations beyond these are only counted.
const VIOLATIONS_TOLD_MAX: usize = 20;

/// One failure: which call, how, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The kind of call; `None` for any.
    pub kind: Option<CallKind>,
    /// Which of them.
    pub nth: u64,
    /// How it fails.
    pub effect: Effect,
    /// Whether all later ones fail, too.
    pub for_good: bool,
}

/// What a sweep found.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// Failures tried.
    pub trial_count: u64,
    /// Calls made to fail, by kind, in the order of [`CallKind::ALL`].
    pub failed_calls: [u64; CallKind::ALL.len()],
    /// Trials that poisoned the engine.
    pub poisoned_count: u64,
    /// Transactions reported as in doubt.
    pub in_doubt_count: u64,
    /// In-doubt transactions that were there after a restart.
    pub in_doubt_kept_count: u64,
    /// Transactions refused for want of room.
    pub full_count: u64,
    /// Broken promises.
    pub violation_count: u64,
    /// The first of them.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} trials: {} poisoned, {} in doubt ({} kept), {} refused as full, {} violations; calls failed:",
            self.trial_count,
            self.poisoned_count,
            self.in_doubt_count,
            self.in_doubt_kept_count,
            self.full_count,
            self.violation_count
        )?;
        for (kind, count) in CallKind::ALL.iter().zip(self.failed_calls).filter(|(_, count)| *count > 0) {
            write!(f, " {kind:?} {count}")?;
        }
        Ok(())
    }
}

impl Report {
    fn violation(&mut self, failure: &Failure, why: &str) {
        self.violation_count += 1;
        if self.violations.len() < VIOLATIONS_TOLD_MAX {
            self.violations.push(format!("{failure:?}: {why}"));
        }
    }
}

/// The ways in which a call of a kind fails.
fn effects(kind: CallKind) -> Vec<Effect> {
    match kind {
        CallKind::Write => vec![
            Effect::EIO,
            Effect::ENOSPC,
            Effect::ShortWrite(io::ErrorKind::Other),
            Effect::ShortWrite(io::ErrorKind::StorageFull),
        ],
        CallKind::Sync | CallKind::SyncDir => {
            vec![Effect::EIO, Effect::ENOSPC, Effect::SyncErrorDataGone(io::ErrorKind::Other)]
        }
        CallKind::Create | CallKind::CreateDir | CallKind::SetLen | CallKind::Reserve | CallKind::Rename => {
            vec![Effect::EIO, Effect::ENOSPC]
        }
        _ => vec![Effect::EIO],
    }
}

/// Fails every `stride`-th call, in every way.
#[must_use]
pub fn sweep(seed: u64, sync: SyncMethod, stride: usize) -> Report {
    let disk = MemDisk::new(seed);
    let mut whole = Work::new(disk.clone(), sync);
    let mut report = Report::default();
    let none = Failure { kind: None, nth: u64::MAX, effect: Effect::EIO, for_good: false };
    if whole.run().is_err() || !whole.book.violations.is_empty() {
        report.violation(&none, &format!("without a fault: {:?}", whole.book.violations));
        return report;
    }
    whole.kill();
    let counts = disk.call_counts();
    let created = calls_of_creation(seed, sync);
    for kind in CallKind::ALL {
        for nth in (0..counts.of(kind)).step_by(stride) {
            let is_creation = nth < created.of(kind);
            for effect in effects(kind).into_iter().filter(|effect| !is_beyond(kind, *effect, is_creation)) {
                for for_good in [false, true] {
                    run_trial(seed, sync, Failure { kind: Some(kind), nth, effect, for_good }, &mut report);
                }
            }
        }
    }
    // From one call on every call fails: the state that `kill -9` at that call would leave.
    for nth in (0..counts.total()).step_by(stride) {
        run_trial(seed, sync, Failure { kind: None, nth, effect: Effect::EIO, for_good: true }, &mut report);
    }
    report
}

fn calls_of_creation(seed: u64, sync: SyncMethod) -> CallCounts {
    let disk = MemDisk::new(seed);
    open(&disk, sync).expect("a healthy disk").abandon();
    disk.call_counts()
}

/// A directory whose journal dropped a name that it still shows cannot be repaired from outside.
///
/// The call that creates the database gets an error, and a file system that does this (ext4, xfs) shuts
/// itself down.
fn is_beyond(kind: CallKind, effect: Effect, is_creation: bool) -> bool {
    is_creation && kind == CallKind::SyncDir && matches!(effect, Effect::SyncErrorDataGone(_))
}

/// Runs one failure, in a separate thread so that a hang is found.
pub fn run_trial(seed: u64, sync: SyncMethod, failure: Failure, report: &mut Report) {
    let (tell, told) = mpsc::channel();
    let trial = thread::spawn(move || drop(tell.send(trial(seed, sync, failure))));
    report.trial_count += 1;
    match told.recv_timeout(Duration::from_secs(TRIAL_SECONDS_MAX)) {
        Ok(outcome) => {
            drop(trial.join());
            outcome.add_to(report, &failure);
        }
        Err(mpsc::RecvTimeoutError::Timeout) => report.violation(&failure, "hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => report.violation(&failure, "panicked"),
    }
}

struct Outcome {
    book: Book,
    hit_count: u64,
    in_doubt_kept: bool,
}

impl Outcome {
    fn add_to(&self, report: &mut Report, failure: &Failure) {
        if let Some(kind) = failure.kind {
            report.failed_calls[kind as usize] += self.hit_count;
        }
        report.poisoned_count += u64::from(self.book.poisoned);
        report.in_doubt_count += u64::from(self.book.in_doubt.is_some());
        report.in_doubt_kept_count += u64::from(self.in_doubt_kept);
        report.full_count += self.book.full_count;
        for violation in &self.book.violations {
            report.violation(failure, violation);
        }
        if self.hit_count == 0 {
            report.violation(failure, "the call was never made");
        }
    }
}

fn trial(seed: u64, sync: SyncMethod, failure: Failure) -> Outcome {
    let disk = MemDisk::new(seed);
    let fault = match failure.kind {
        Some(kind) => Fault::new(kind, failure.nth, failure.effect),
        None => Fault::any(failure.nth, failure.effect),
    };
    disk.set_faults(if failure.for_good { fault.for_good() } else { fault });
    let mut work = Work::new(disk.clone(), sync);
    // Where it stopped does not matter: the book has what was acknowledged until then.
    let _ = work.run();
    let hit_count = disk.fault_hit_count();
    let cuts = [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: seed ^ failure.nth }];
    let images = cuts.map(|choice| (choice, disk.crash(&choice)));
    work.kill();
    let mut book = std::mem::take(&mut work.book);
    for (choice, image) in images {
        let floor = book.disk;
        recover(&image, sync, floor, &format!("after a power cut, {choice:?}"), &mut book);
    }
    disk.set_faults(FaultPlan::none());
    let floor = book.process;
    let seq = recover(&disk, sync, floor, "after a restart", &mut book);
    let newest = *book.states.keys().next_back().expect("the empty state is there");
    Outcome { in_doubt_kept: seq > Some(newest), book, hit_count }
}

/// Opens, compares, commits once more, cuts the power and opens again: what was readable must have been
/// durable.
fn recover(
    disk: &MemDisk,
    sync: SyncMethod,
    floor: CommitSeq,
    when: &str,
    book: &mut Book,
) -> Option<CommitSeq> {
    let mut told = Vec::new();
    let seq = reopen(disk, sync, floor, book, &mut told);
    if let Some(seq) = seq {
        // The power fails right after opening: a client may have read what the restart served.
        let served = disk.crash(&CrashChoice::None);
        let before = told.len();
        reopen(&served, sync, seq, book, &mut told);
        for why in &mut told[before..] {
            why.insert_str(0, "and a power cut right after: ");
        }
        if let Err(why) = commit_and_cut(disk, sync).and_then(|()| lose_newest_superblock(disk, sync)) {
            told.push(why);
        }
    }
    book.violations.extend(told.into_iter().map(|why| format!("{when}: {why}")));
    seq
}

fn reopen(
    disk: &MemDisk,
    sync: SyncMethod,
    floor: CommitSeq,
    book: &Book,
    told: &mut Vec<String>,
) -> Option<CommitSeq> {
    let engine = match open(disk, sync) {
        Ok(engine) => engine,
        Err(error) => {
            told.push(format!("does not open: {} {error}", error.code()));
            return None;
        }
    };
    let snapshot = engine.snapshot().expect("it was just opened");
    let seq = snapshot.seq();
    let newest = *book.states.keys().next_back().expect("the empty state is there");
    let contents: Option<&Contents> = match &book.in_doubt {
        Some(contents) if seq == newest.next() => Some(contents),
        _ => book.states.get(&seq),
    };
    match contents {
        _ if seq < floor => told.push(format!("is at commit {seq}, acknowledged was {floor}")),
        None => told.push(format!("is at commit {seq}, which never was")),
        Some(contents) => {
            let comparison = contents.compare(&snapshot);
            told.extend(comparison.wrong.map(|wrong| format!("a wrong answer at commit {seq}: {wrong}")));
            told.extend(comparison.errors.first().map(|error| format!("a read fails: {error}")));
            match engine.check() {
                Ok(report) if report.is_clean() => {}
                Ok(report) => told.push(format!("check finds {:?}", report.problems)),
                Err(error) => told.push(format!("check fails: {error}")),
            }
        }
    }
    drop(snapshot);
    engine.abandon();
    Some(seq)
}

/// Loses the superblock of a checkpoint made after recovery: the older one and the log must lead to the same
/// state.
///
/// The checkpoint must not have overwritten the only valid superblock.
fn lose_newest_superblock(disk: &MemDisk, sync: SyncMethod) -> Result<(), String> {
    let failed = |what: &str, error: &dyn fmt::Display| format!("{what} after recovery: {error}");
    let engine = open(disk, sync).map_err(|error| failed("does not open for a checkpoint", &error))?;
    // Values are written to blocks that hold nothing needed.
    let put = engine.transact(Durability::Disk, |tx| {
        let tree = tx.create_tree("behind", None)?;
        (0..8u8).try_for_each(|key| tx.put(tree, &[key], &[key; 900]))
    });
    let written = put.and_then(|_| engine.checkpoint());
    let cut = disk.crash(&CrashChoice::None);
    engine.abandon();
    written.map_err(|error| failed("takes no checkpoint", &error))?;
    let data = cut.read_file(DATA).map_err(|error| failed("cannot be read", &error))?;
    let generation = |offset: u64| {
        let at = usize::try_from(offset).expect("superblocks lie at the start");
        Superblock::decode(data.get(at..)?).ok().map(|found| found.generation)
    };
    let newest =
        SUPERBLOCK_OFFSETS.into_iter().max_by_key(|offset| generation(*offset)).expect("there are two");
    cut.flip_bit(DATA, newest + 100, 1).map_err(|error| failed("cannot be flipped", &error))?;
    let engine = open(&cut, sync).map_err(|error| failed("has one superblock only: without it,", &error))?;
    let found = engine.snapshot().and_then(|snapshot| snapshot.tree("behind"));
    let report = engine.check();
    engine.abandon();
    match (found, report) {
        (Ok(Some(_)), Ok(report)) if report.is_clean() => Ok(()),
        (found, report) => Err(format!("from the older superblock: {found:?}, check {report:?}")),
    }
}

/// A commit acknowledged after recovery survives a power cut.
fn commit_and_cut(disk: &MemDisk, sync: SyncMethod) -> Result<(), String> {
    let engine = open(disk, sync).map_err(|error| format!("does not open a second time: {error}"))?;
    let receipt = engine.transact(Durability::Disk, |transaction| transaction.create_tree("after", None));
    let cut = disk.crash(&CrashChoice::None);
    engine.abandon();
    let (id, _) = receipt.map_err(|error| format!("takes no commit: {error}"))?;
    let engine =
        open(&cut, sync).map_err(|error| format!("does not open after a commit and a cut: {error}"))?;
    let found = engine.snapshot().and_then(|snapshot| snapshot.tree("after"));
    engine.abandon();
    match found {
        Ok(found) if found == Some(id) => Ok(()),
        Ok(_) => Err("lost a commit acknowledged after recovery".to_owned()),
        Err(error) => Err(format!("cannot be read after a commit and a cut: {error}")),
    }
}
