//! The repair sweep: small databases are corrupted in every place and repaired, and the result is compared.
//!
//! Owns the corruptions and the verdict. Tests D4 and D2: after any corruption there is a new, sound
//! database. Each of its rows is one that the old database had at the commit in the report. Each missing
//! row lies in a range that the report names. No row is missing whose page is whole and was reached by
//! the newest checkpoint: at the least it is among the uncertain ones. These lie apart, and each was a
//! row at some time. The corrupt database is unchanged, byte for byte.

mod judge;
mod pages;
mod ranges;
pub(crate) mod specimen;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault};

use crate::contents::Dice;
use crate::corruption::files_of;
use crate::part::Part;

pub use ranges::ranges;
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
    /// Rows of current pages that no pointer led to any more, in all trials.
    pub found_row_count: u64,
    /// Uncertain rows in all trials.
    pub uncertain_row_count: u64,
    /// Leaves set back to an older page, in all trials.
    pub set_back_count: u64,
    /// Whole pages that the checkpoint reached, whose rows had to be there, in all trials.
    pub whole_page_count: u64,
    /// Broken promises.
    pub violation_count: u64,
    /// The first of them, each with what was corrupted.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} trials: {} whole, {} lost rows ({} in all, {} at most), {} commits, {} names; \
             {} rows found, {} uncertain, {} whole pages; {} violations",
            self.trial_count,
            self.whole_count,
            self.rows_lost_count,
            self.lost_row_count,
            self.lost_rows_max,
            self.commits_lost_count,
            self.names_lost_count,
            self.found_row_count,
            self.uncertain_row_count,
            self.whole_page_count,
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
        self.found_row_count += other.found_row_count;
        self.uncertain_row_count += other.uncertain_row_count;
        self.set_back_count += other.set_back_count;
        self.whole_page_count += other.whole_page_count;
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
    on_threads(thread_count, &spots, &|(path, offset, bit), report| {
        let disk = specimen.disk.deep_clone();
        disk.flip_bit(path, *offset, *bit).expect("the byte is there");
        let what = format!("{}, seed {seed}: {path} @ {offset:#x}: bit {bit}", specimen.name);
        trial(specimen, &disk, (&what, true), report);
    })
}

/// Runs trials on so many threads.
fn on_threads<T: Sync>(thread_count: usize, trials: &[T], run: &(dyn Fn(&T, &mut Report) + Sync)) -> Report {
    let total = Mutex::new(Report::default());
    thread::scope(|scope| {
        for share in 0..thread_count {
            let total = &total;
            scope.spawn(move || {
                let mut report = Report::default();
                trials.iter().skip(share).step_by(thread_count).for_each(|trial| run(trial, &mut report));
                total.lock().expect("no trial panics outside its own guard").add(report);
            });
        }
    });
    total.into_inner().expect("as above")
}

/// Zeroes blocks of the data file, cuts the file short, sets leaves back to older pages, and lets reads fail
/// once, one at a time.
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
    for (number, leaf) in specimen.leaves().iter().enumerate() {
        // A write that was lost: an older page lies there, whole.
        let place = leaf.offset..leaf.offset + leaf.page.len();
        let older = specimen.earlier.iter().filter_map(|earlier| earlier.get(place.clone()));
        for older in older.filter(|older| *older != leaf.page && older.starts_with(b"DPAG")) {
            let mut set_back = data.clone();
            set_back[place.clone()].copy_from_slice(older);
            let disk = specimen.disk.deep_clone();
            disk.write_file(specimen::DATA, &set_back).expect("it is there");
            let what = format!("{}: leaf {number} at {:#x} is an older one", specimen.name, leaf.offset);
            trial(specimen, &disk, (&what, true), &mut report);
            report.set_back_count += 1;
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
    let judged = catch_unwind(AssertUnwindSafe(|| judge::judge(specimen, disk, is_one_page, report)));
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
