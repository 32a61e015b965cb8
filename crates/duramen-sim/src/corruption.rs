//! The corruption sweep: small databases are corrupted in every place, opened, and read in full.
//!
//! Owns the corruptions and the verdict. Tests D3, D4 and D5: after any corruption each answer is right, or
//! an error that names what is wrong. It is never a wrong answer, never an older state without an error, and
//! never a panic. Only groups after the newest durable watermark of a killed database may be missing, and
//! then exactly from one commit on.

mod build;
mod rearrange;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use duramen_disk::MemDisk;
use duramen_engine::{Code, CommitSeq, Durability, Engine, Error};

use crate::contents::{Contents, Dice};
use crate::part::Part;

pub use build::{Specimen, closed, files_of, killed};
pub use rearrange::rearrangements;

/// After so many trials with right answers, one continues with writes.
const GO_ON_EVERY: u64 = 24;

/// Room for the log's next segments, but not for what opening reserves ahead in the data file.
const ROOM_BYTES: u64 = 64 * 1024;

/// Violations beyond these are only counted.
const VIOLATIONS_TOLD_MAX: usize = 20;

/// What a sweep found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Corruptions tried.
    pub trial_count: u64,
    /// Trials in which all answers were right.
    pub right_count: u64,
    /// Of those, trials that continued with writes and were right afterwards.
    pub went_on_count: u64,
    /// Trials in which opening failed with an error that names the file.
    pub refused_count: u64,
    /// Trials that opened and refused some answers with such an error; the others were right.
    pub partly_refused_count: u64,
    /// Trials that opened at an older commit, where that is allowed.
    pub older_count: u64,
    /// Answers compared.
    pub answer_count: u64,
    /// Broken promises.
    pub violation_count: u64,
    /// The first of them, each with what was corrupted.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} trials, {} answers: {} right ({} went on), {} refused at open, {} refused in part, {} older, {} violations",
            self.trial_count,
            self.answer_count,
            self.right_count,
            self.went_on_count,
            self.refused_count,
            self.partly_refused_count,
            self.older_count,
            self.violation_count
        )
    }
}

impl Report {
    /// Adds the report of another part of the sweep.
    pub fn add(&mut self, other: Report) {
        self.trial_count += other.trial_count;
        self.right_count += other.right_count;
        self.went_on_count += other.went_on_count;
        self.refused_count += other.refused_count;
        self.partly_refused_count += other.partly_refused_count;
        self.older_count += other.older_count;
        self.answer_count += other.answer_count;
        self.violation_count += other.violation_count;
        let room = VIOLATIONS_TOLD_MAX.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.into_iter().take(room));
    }

    fn violation(&mut self, what: &str, why: &str) {
        self.violation_count += 1;
        if self.violations.len() < VIOLATIONS_TOLD_MAX {
            self.violations.push(format!("{what}: {why}"));
        }
    }
}

/// Which bits are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// One of each byte, drawn from the seed.
    OnePerByte,
    /// All eight of each byte.
    All,
}

/// Flips bits of every byte in a part of the sweep, one at a time, on so many threads.
#[must_use]
pub fn flips(specimen: &Specimen, seed: u64, bits: Bits, part: Part, thread_count: usize) -> Report {
    let total = Mutex::new(Report::default());
    thread::scope(|scope| {
        for share in 0..thread_count {
            let total = &total;
            scope.spawn(move || {
                let report = flips_of_share(specimen, seed, bits, part.share(share, thread_count));
                total.lock().expect("no trial panics outside its own guard").add(report);
            });
        }
    });
    total.into_inner().expect("as above")
}

fn flips_of_share(specimen: &Specimen, seed: u64, bits: Bits, share: Part) -> Report {
    let mut report = Report::default();
    let mut dice = Dice::new(seed);
    for (path, bytes) in specimen.files() {
        for offset in 0..bytes.len() {
            let one = (dice.bits() & 7) as u8;
            if !share.has(offset as u64) {
                continue;
            }
            for bit in (0..8).filter(|bit| bits == Bits::All || *bit == one) {
                let disk = specimen.disk.deep_clone();
                disk.flip_bit(&path, offset as u64, bit).expect("the byte is there");
                let what =
                    || format!("{}, seed {seed}: {path} @ {offset:#x}: bit {bit} flipped", specimen.name);
                trial(specimen, &disk, specimen.floor, &what, &mut report);
            }
        }
    }
    report
}

/// Opens a corrupt disk, reads everything, and judges.
pub(crate) fn trial(
    specimen: &Specimen,
    disk: &MemDisk,
    floor: CommitSeq,
    what: &dyn Fn() -> String,
    report: &mut Report,
) {
    report.trial_count += 1;
    let judged = catch_unwind(AssertUnwindSafe(|| judge(specimen, disk, floor, report)));
    match judged {
        Ok(Ok(())) => {}
        Ok(Err(why)) => report.violation(&what(), &why),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            report.violation(&what(), &format!("panicked: {text}"));
        }
    }
}

fn judge(specimen: &Specimen, disk: &MemDisk, floor: CommitSeq, report: &mut Report) -> Result<(), String> {
    // Opening reserves room ahead in the data file if it can; a trial that only reads is faster without.
    disk.set_capacity(Some(disk.used_bytes() + ROOM_BYTES));
    let engine = match build::open(disk, report.trial_count.is_multiple_of(2)) {
        Ok(engine) => engine,
        Err(error) => {
            report.refused_count += 1;
            return is_named(&error);
        }
    };
    let outcome = ask(specimen, &engine, floor, report);
    let outcome = outcome.and_then(|contents| match contents {
        Some(contents) if report.right_count.is_multiple_of(GO_ON_EVERY) => {
            report.went_on_count += 1;
            go_on(&engine, disk, contents, report)
        }
        _ => Ok(()),
    });
    engine.abandon();
    outcome
}

/// Compares with the state of the commit that the engine reports; returns the contents if every answer was
/// right.
fn ask(
    specimen: &Specimen,
    engine: &Engine,
    floor: CommitSeq,
    report: &mut Report,
) -> Result<Option<Contents>, String> {
    let snapshot = engine.snapshot().map_err(|error| format!("no snapshot: {error}"))?;
    let (seq, last) = (snapshot.seq(), specimen.last());
    let Some(contents) = specimen.states.get(&seq).filter(|_| seq >= floor) else {
        return Err(format!("an older state in silence: commit {seq}, want {last}, at least {floor}"));
    };
    let comparison = contents.compare(&snapshot);
    report.answer_count += comparison.answer_count;
    if let Some(wrong) = comparison.wrong {
        return Err(format!("a wrong answer at commit {seq}: {wrong}"));
    }
    comparison.errors.iter().try_for_each(is_named)?;
    if !comparison.errors.is_empty() {
        report.partly_refused_count += 1;
        return Ok(None);
    }
    if seq < last {
        report.older_count += 1;
    } else {
        report.right_count += 1;
    }
    Ok(Some(contents.clone()))
}

/// Writes, checkpoints, closes and opens again: a corruption that no read met may still cause an error, which
/// names it.
fn go_on(engine: &Engine, disk: &MemDisk, mut contents: Contents, report: &mut Report) -> Result<(), String> {
    disk.set_capacity(None);
    let key = b"sums-900".to_vec();
    let value = Dice::new(1).value(8);
    let written = engine.transact(Durability::Disk, |transaction| {
        let id = transaction.tree("sums")?.expect("all was right a moment ago");
        transaction.put(id, &key, &value)
    });
    match written {
        Ok(_) => drop(contents.tree_mut("sums").rows.insert(key, value)),
        Err(error) => return is_named(&error),
    }
    if let Err(error) = engine.checkpoint().and_then(|()| engine.checkpoint()).and_then(|()| engine.close()) {
        return is_named(&error);
    }
    let engine = match build::open(&disk.deep_clone(), true) {
        Ok(engine) => engine,
        Err(error) => return is_named(&error).map_err(|why| format!("at the next open: {why}")),
    };
    let snapshot = engine.snapshot().map_err(|error| format!("no snapshot: {error}"))?;
    let comparison = contents.compare(&snapshot);
    engine.abandon();
    report.answer_count += comparison.answer_count;
    if let Some(wrong) = comparison.wrong {
        return Err(format!("a wrong answer after going on: {wrong}"));
    }
    comparison.errors.iter().try_for_each(is_named)
}

/// Whether an error names what is wrong; corruption of a page or a frame needs file and offset.
fn is_named(error: &Error) -> Result<(), String> {
    let message = error.message();
    let names_file = message.contains("/db/");
    match error.code() {
        Code::CorruptData | Code::CorruptLog if names_file && message.contains(" @ 0x") => Ok(()),
        Code::CorruptSuperblock | Code::LogMissing if names_file => Ok(()),
        Code::NotADatabase | Code::NoSuchDatabase | Code::Unsupported if message.contains("/db") => Ok(()),
        code => Err(format!("an error that does not name the corruption: {code} {message}")),
    }
}
