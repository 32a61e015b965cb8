//! Corruption as it happens: a file cut short, a range of zeroes, several flipped bits, and any of these
//! at once.

use duramen_disk::MemDisk;

use super::specimen::{DATA, DATABASE};
use super::{Report, Specimen, on_threads, trial};
use crate::contents::Dice;
use crate::corruption::files_of;
use crate::part::Part;

/// Corrupts a database `trial_count` times in a random way, a part of the trials.
///
/// Three of four trials corrupt the data file, the others any file of the database.
#[must_use]
pub fn ranges(specimen: &Specimen, seed: u64, trial_count: u64, part: Part, thread_count: usize) -> Report {
    let trials: Vec<u64> = (0..trial_count).filter(|number| part.has(*number)).collect();
    on_threads(thread_count, &trials, &|number, report| {
        let mut dice = Dice::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let disk = specimen.disk.deep_clone();
        let mut what = format!("{}, seed {seed}, trial {number}:", specimen.name);
        for _ in 0..=dice.below(2) {
            what.push_str(&corrupt(&disk, &mut dice));
        }
        trial(specimen, &disk, (&what, false), report);
    })
}

/// Corrupts one file. Returns what was done.
fn corrupt(disk: &MemDisk, dice: &mut Dice) -> String {
    let files: Vec<String> = files_of(disk).into_iter().map(|(path, _)| path).collect();
    let own = |path: &&String| path.starts_with(&format!("{DATABASE}/"));
    let any: Vec<&String> = files.iter().filter(own).collect();
    let path = match dice.below(4) {
        0 => any[usize::try_from(dice.below(any.len() as u64)).expect("small")].as_str(),
        _ => DATA,
    };
    let mut bytes = disk.read_file(path).expect("it is there");
    if bytes.is_empty() {
        return format!(" {path} is empty");
    }
    let length = bytes.len() as u64;
    let at = |dice: &mut Dice| usize::try_from(dice.below(length)).expect("an offset in memory");
    let what = match dice.below(3) {
        0 => {
            let length = at(dice);
            bytes.truncate(length);
            format!(" {path} is cut to {length:#x}")
        }
        1 => {
            let (one, other) = (at(dice), at(dice));
            let range = one.min(other)..one.max(other);
            bytes[range.clone()].fill(0);
            format!(" {path} has zeroes at {range:#x?}")
        }
        _ => {
            let count = 1 + dice.below(8);
            for _ in 0..count {
                let at = at(dice);
                bytes[at] ^= 1 << dice.below(8);
            }
            format!(" {path} has {count} flipped bits")
        }
    };
    disk.write_file(path, &bytes).expect("it is there");
    what
}
