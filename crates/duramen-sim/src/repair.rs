//! The repair sweep: small databases are corrupted in every place and repaired, and the result is compared.
//!
//! Owns the corruptions and the verdict. Tests D4 and D2: after any single corruption there is a new, sound
//! database. Each of its rows is one that the old database had at the commit in the report. Each missing row
//! lies in a range that the report names. The corrupt database is unchanged, byte for byte.

pub(crate) mod specimen;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use duramen::{Code, RepairReport, Store};
use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault};

use crate::contents::Dice;
use crate::corruption::files_of;
use crate::part::Part;

pub use specimen::{DATABASE, REPAIRED, Rows, Specimen, Stored, closed, killed, open, options};

/// Violations beyond these are only counted.
const VIOLATIONS_TOLD_MAX: usize = 20;

/// What a sweep found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Corruptions tried.
    pub trial_count: u64,
    /// Trials without a loss.
    pub whole_count: u64,
    /// Trials that lost rows, and reported them.
    pub rows_lost_count: u64,
    /// Trials that lost commits, and reported them.
    pub commits_lost_count: u64,
    /// Trials that lost names of trees: their rows are there under other names, or missing.
    pub names_lost_count: u64,
    /// Lost rows in all trials.
    pub lost_row_count: u64,
    /// The most rows lost in one trial that lost no names.
    pub lost_rows_max: u64,
    /// Broken promises.
    pub violation_count: u64,
    /// The first of them, each with what was corrupted.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} trials: {} whole, {} lost rows ({} in all, {} at most), {} commits, {} names; {} violations",
            self.trial_count,
            self.whole_count,
            self.rows_lost_count,
            self.lost_row_count,
            self.lost_rows_max,
            self.commits_lost_count,
            self.names_lost_count,
            self.violation_count
        )
    }
}

impl Report {
    /// Adds the report of another part of the sweep.
    pub fn add(&mut self, other: Report) {
        self.trial_count += other.trial_count;
        self.whole_count += other.whole_count;
        self.rows_lost_count += other.rows_lost_count;
        self.commits_lost_count += other.commits_lost_count;
        self.names_lost_count += other.names_lost_count;
        self.lost_row_count += other.lost_row_count;
        self.lost_rows_max = self.lost_rows_max.max(other.lost_rows_max);
        self.violation_count += other.violation_count;
        let room = VIOLATIONS_TOLD_MAX.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.into_iter().take(room));
    }
}

/// Flips a bit of every `every`-th byte in a part of the sweep, one at a time, on so many threads.
///
/// The seed decides which bytes, and which bit of each.
#[must_use]
pub fn flips(specimen: &Specimen, seed: u64, every: u64, part: Part, thread_count: usize) -> Report {
    let mut spots = Vec::new();
    let mut dice = Dice::new(seed);
    for (path, bytes) in files_of(&specimen.disk) {
        for offset in 0..bytes.len() as u64 {
            let bit = (dice.bits() & 7) as u8;
            if dice.below(every) == 0 && part.has(offset) {
                spots.push((path.clone(), offset, bit));
            }
        }
    }
    let total = Mutex::new(Report::default());
    thread::scope(|scope| {
        for share in 0..thread_count {
            let (total, spots) = (&total, &spots);
            scope.spawn(move || {
                let mut report = Report::default();
                for (path, offset, bit) in spots.iter().skip(share).step_by(thread_count) {
                    let disk = specimen.disk.deep_clone();
                    disk.flip_bit(path, *offset, *bit).expect("the byte is there");
                    let what = format!("{}, seed {seed}: {path} @ {offset:#x}: bit {bit}", specimen.name);
                    trial(specimen, &disk, (&what, true), &mut report);
                }
                total.lock().expect("no trial panics outside its own guard").add(report);
            });
        }
    });
    total.into_inner().expect("as above")
}

/// Zeroes blocks of the data file, cuts the file short, and lets reads fail once, one at a time.
#[must_use]
pub fn blocks(specimen: &Specimen) -> Report {
    let mut report = Report::default();
    let data = specimen.disk.read_file(specimen::DATA).expect("it is there");
    for block in (0..data.len() / specimen::BLOCK_BYTES).rev() {
        let offset = block * specimen::BLOCK_BYTES;
        let mut zeroed = data.clone();
        zeroed[offset..offset + specimen::BLOCK_BYTES].fill(0);
        let cut = &data[..offset];
        for (what, bytes) in [("zeroes", &zeroed[..]), ("the end", cut)] {
            let is_one_page = what == "zeroes";
            let disk = specimen.disk.deep_clone();
            disk.write_file(specimen::DATA, bytes).expect("it is there");
            let what = format!("{}: block {block} is {what}", specimen.name);
            trial(specimen, &disk, (&what, is_one_page), &mut report);
        }
    }
    for read in 0..200 {
        let disk = specimen.disk.deep_clone();
        disk.set_faults(Fault::new(CallKind::Read, read, Effect::EIO).on(DATABASE));
        let what = format!("{}: read {read} fails", specimen.name);
        trial(specimen, &disk, (&what, true), &mut report);
        if disk.fault_hit_count() == 0 {
            break;
        }
    }
    report
}

fn trial(specimen: &Specimen, disk: &MemDisk, (what, is_one_page): (&str, bool), report: &mut Report) {
    report.trial_count += 1;
    let judged = catch_unwind(AssertUnwindSafe(|| judge(specimen, disk, is_one_page, report)));
    let why = match judged {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            format!("panicked: {text}")
        }
    };
    report.violation_count += 1;
    if report.violations.len() < VIOLATIONS_TOLD_MAX {
        report.violations.push(format!("{what}: {why}"));
    }
}

/// Repairs a corrupt disk, and compares the new database with what was stored.
fn judge(specimen: &Specimen, disk: &MemDisk, is_one_page: bool, report: &mut Report) -> Result<(), String> {
    let before = old_files(disk);
    let repaired = options().repair_on(Arc::new(disk.clone()), DATABASE, REPAIRED, |_| Ok(()));
    if old_files(disk) != before {
        return Err("the corrupt database was written to".to_owned());
    }
    let told = match repaired {
        Ok(told) => told,
        // Cut so short that not even one superblock is left.
        Err(error)
            if error.code() == Code::CorruptSuperblock
                && before.iter().any(|(_, bytes)| bytes.is_empty()) =>
        {
            return Ok(());
        }
        Err(error) => return Err(format!("not repaired: {} {error}", error.code())),
    };
    let new = specimen::open(disk, REPAIRED).map_err(|error| format!("it does not open: {error}"))?;
    let found = Stored::of(&new).map_err(|error| format!("it cannot be read: {error}"))?;
    let states = new.view_states().map_err(|error| format!("its views: {error}"))?;
    drop(new);
    if told.seq < specimen.floor && told.lost_commits.is_none() {
        return Err(format!("an older state in silence: commit {}, want {}", told.seq, specimen.floor));
    }
    let compared = specimen.at(told.seq).into_iter().map(|wanted| compare(&told, wanted, &found));
    let missing = compared.reduce(|one, other| one.or(other)).expect("at least one state")?;
    let names_lost = has_lost_names(&told);
    if !names_lost && !states.iter().all(duramen::ViewState::is_ready) {
        return Err(format!("a view is not built: {:?}", told.views_waiting));
    }
    if told.is_whole() && missing > 0 {
        return Err(format!("{missing} rows are missing in silence"));
    }
    report.lost_row_count += missing;
    if names_lost {
        report.names_lost_count += 1;
    } else if told.lost_commits.is_some() {
        report.commits_lost_count += 1;
    } else if missing > 0 {
        if is_one_page && told.lost.len() > 1 {
            return Err(format!("one page is corrupt, and {} stretches are lost", told.lost.len()));
        }
        report.rows_lost_count += 1;
        report.lost_rows_max = report.lost_rows_max.max(missing);
        if missing > told.lost_rows() {
            return Err(format!("{missing} rows are missing, and {} were told of", told.lost_rows()));
        }
    } else {
        report.whole_count += u64::from(told.is_whole());
    }
    Ok(())
}

fn old_files(disk: &MemDisk) -> Vec<(String, Vec<u8>)> {
    files_of(disk).into_iter().filter(|(path, _)| path.starts_with(&format!("{DATABASE}/"))).collect()
}

/// Whether anything was lost that identifies trees.
fn has_lost_names(told: &RepairReport) -> bool {
    !told.renamed.is_empty() || told.lost.iter().any(|lost| lost.store == Store::Own)
}

/// Compares each row with what was stored; returns how many are missing. Each missing row must be explained.
fn compare(told: &RepairReport, wanted: &Stored, found: &Stored) -> Result<u64, String> {
    for ((store, name), rows) in &found.rows {
        // These hold rows of another tree, and it is unknown which one.
        if told.renamed.contains(name) {
            let doomed = |value: &Vec<u8>| value.ends_with(specimen::DOOMED.as_bytes());
            if !wanted.rows.contains_key(&(Store::KeyValues, "doomed".to_owned()))
                && rows.values().any(doomed)
            {
                return Err(format!("{name}: what was dropped is back"));
            }
            continue;
        }
        let known = wanted.rows.get(&(*store, name.clone()));
        for (key, value) in rows {
            match known.and_then(|known| known.get(key)) {
                None => return Err(format!("{store:?} {name}: a row that was not there: {key:02x?}")),
                Some(known) if known != value => {
                    return Err(format!("{store:?} {name}: another value than was stored: {key:02x?}"));
                }
                Some(_) => {}
            }
        }
    }
    let nothing = Rows::new();
    let mut missing = 0;
    for ((store, name), rows) in &wanted.rows {
        let there = found.rows.get(&(*store, name.clone())).unwrap_or(&nothing);
        for key in rows.keys().filter(|key| !there.contains_key(*key)) {
            missing += 1;
            if !is_explained(told, *store, name, key) {
                return Err(format!("{store:?} {name}: the row {key:02x?} is missing in silence: {told:?}"));
            }
        }
    }
    Ok(missing)
}

fn is_explained(told: &RepairReport, store: Store, name: &str, key: &[u8]) -> bool {
    let left_out =
        || told.left_out.iter().any(|one| (one.store, one.name.as_str(), &one.key[..]) == (store, name, key));
    let lost = told.lost.iter().filter(|lost| lost.store == store && lost.name == name).any(|lost| {
        let is_it = lost.after.as_deref() == Some(key) && lost.before.as_deref() == Some(key);
        let after = lost.after.as_deref().is_none_or(|after| after < key);
        let before = lost.before.as_deref().is_none_or(|before| key < before);
        is_it || (after && before)
    });
    lost || left_out() || has_lost_names(told)
}
