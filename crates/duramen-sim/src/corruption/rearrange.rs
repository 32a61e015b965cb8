//! Corruption by valid bytes in wrong places: pages swapped, parts rolled back to an older state, files of
//! another database, files cut.
//!
//! Owns these corruptions; the sweep owns the verdict. A rolled-back part is what a disk leaves that
//! acknowledged a write and lost it (D4).

use std::collections::BTreeMap;

use duramen_disk::MemDisk;
use duramen_engine::CommitSeq;

use super::build::{Specimen, files_of};
use super::{Report, trial};
use crate::contents::Dice;

const BLOCK: usize = 512;
const DATA: &str = "/db/data";
const WAL: &str = "/db/wal/";

/// Tries every rearrangement of a database.
#[must_use]
pub fn rearrangements(specimen: &Specimen, seed: u64) -> Report {
    let mut run = Run { specimen, seed, report: Report::default() };
    run.swapped_blocks();
    run.superblocks();
    run.cut_files();
    run.missing_files();
    run.of_a_stranger();
    for (name, earlier) in &specimen.earlier {
        run.set_back_parts(name, earlier);
        run.set_back_files(name, earlier);
    }
    run.report
}

struct Run<'a> {
    specimen: &'a Specimen,
    seed: u64,
    report: Report,
}

impl Run<'_> {
    fn try_files(&mut self, what: &str, changed: &[(&str, &[u8])]) {
        let disk = self.specimen.disk.deep_clone();
        for (path, bytes) in changed {
            disk.write_file(path, bytes).expect("a file or a new one");
        }
        self.try_disk(what, &disk, self.specimen.marked);
    }

    fn try_disk(&mut self, what: &str, disk: &MemDisk, floor: CommitSeq) {
        let what = || format!("{}, seed {}: {what}", self.specimen.name, self.seed);
        trial(self.specimen, disk, floor, &what, &mut self.report);
    }

    fn swapped_blocks(&mut self) {
        let mut dice = Dice::new(self.seed);
        for (path, bytes) in self.specimen.files() {
            let block_count = bytes.len() / BLOCK;
            for first in 0..block_count {
                for _ in 0..4 {
                    let second = dice.index(block_count);
                    let mut swapped = bytes.clone();
                    for at in 0..BLOCK {
                        swapped.swap(first * BLOCK + at, second * BLOCK + at);
                    }
                    if swapped != bytes {
                        let what = format!("{path}: blocks {first} and {second} swapped");
                        self.try_files(&what, &[(&path, &swapped)]);
                    }
                }
            }
        }
    }

    fn superblocks(&mut self) {
        let data = self.specimen.disk.read_file(DATA).expect("it is there");
        let (one, other) = (0..BLOCK, 16384..16384 + BLOCK);
        let mut swapped = data.clone();
        swapped[one.clone()].copy_from_slice(&data[other.clone()]);
        swapped[other.clone()].copy_from_slice(&data[one.clone()]);
        self.try_files("superblocks swapped", &[(DATA, &swapped)]);
        for (name, from, to) in [("the first", &one, &other), ("the second", &other, &one)] {
            let mut copied = data.clone();
            copied.copy_within(from.clone(), to.start);
            self.try_files(&format!("{name} superblock twice"), &[(DATA, &copied)]);
            let mut zeroed = data.clone();
            zeroed[from.clone()].fill(0);
            self.try_files(&format!("{name} superblock zeroed"), &[(DATA, &zeroed)]);
        }
        let mut zeroed = data;
        zeroed[one].fill(0);
        zeroed[other].fill(0);
        self.try_files("both superblocks zeroed", &[(DATA, &zeroed)]);
    }

    fn cut_files(&mut self) {
        for (path, bytes) in self.specimen.files() {
            for block in 0..bytes.len().div_ceil(BLOCK) {
                let at = block * BLOCK;
                self.try_files(&format!("{path} cut at {at:#x}"), &[(&path, &bytes[..at])]);
                let mut zeroed = bytes.clone();
                zeroed[at..].fill(0);
                if zeroed != bytes {
                    self.try_files(&format!("{path} zeroed from {at:#x}"), &[(&path, &zeroed)]);
                }
            }
        }
    }

    fn missing_files(&mut self) {
        for path in self.specimen.files().into_iter().map(|(path, _)| path).chain(["/db/wal".to_owned()]) {
            let disk = self.specimen.disk.deep_clone();
            disk.delete(&path).expect("it is there");
            self.try_disk(&format!("{path} deleted"), &disk, self.specimen.marked);
        }
        let disk = self.specimen.disk.deep_clone();
        for (path, _) in self.specimen.files().iter().filter(|(path, _)| path.starts_with(WAL)) {
            disk.delete(path).expect("it is there");
        }
        self.try_disk("all segments deleted", &disk, self.specimen.marked);
    }

    fn of_a_stranger(&mut self) {
        let stranger = self.specimen.stranger.clone();
        let disk = replaced(&self.specimen.disk, &stranger, WAL);
        self.try_disk("another database's log", &disk, self.specimen.marked);
        let disk = replaced(&self.specimen.disk, &stranger, DATA);
        self.try_disk("another database's data", &disk, self.specimen.marked);
        for (path, bytes) in files_of(&stranger) {
            if self.specimen.disk.read_file(&path).is_ok() {
                self.try_files(&format!("another database's {path} alone"), &[(&path, &bytes)]);
            }
        }
    }

    /// Each sector, each 4 KiB and each segment rolled back: a lost write.
    fn set_back_parts(&mut self, name: &str, earlier: &MemDisk) {
        let before: BTreeMap<String, Vec<u8>> = files_of(earlier).into_iter().collect();
        for (path, bytes) in self.specimen.files() {
            let Some(old) = before.get(&path) else { continue };
            // A segment that a clean close has emptied has no parts.
            for length in [BLOCK, 4096, bytes.len().max(1)] {
                for at in (0..bytes.len()).step_by(length) {
                    let end = (at + length).min(bytes.len());
                    let Some(part) = old.get(at..end).filter(|part| **part != bytes[at..end]) else {
                        continue;
                    };
                    if path == DATA && length == bytes.len() {
                        continue;
                    }
                    let mut set_back = bytes.clone();
                    set_back[at..end].copy_from_slice(part);
                    let what = format!("{path} @ {at:#x}: {length} bytes as in {name}");
                    self.try_files(&what, &[(&path, &set_back)]);
                }
            }
        }
    }

    /// `data` alone and `wal/` alone rolled back. A killed database's log can then end anywhere after the
    /// checkpoint: the evidence of later commits is lost with it.
    fn set_back_files(&mut self, name: &str, earlier: &MemDisk) {
        let disk = replaced(&self.specimen.disk, earlier, DATA);
        self.try_disk(&format!("data alone as in {name}"), &disk, self.specimen.marked);
        let disk = replaced(&self.specimen.disk, earlier, WAL);
        self.try_disk(&format!("wal/ alone as in {name}"), &disk, self.specimen.checkpoint);
    }
}

/// A disk on which the files whose paths begin with `start` are those of another disk.
fn replaced(disk: &MemDisk, other: &MemDisk, start: &str) -> MemDisk {
    let disk = disk.deep_clone();
    for (path, _) in files_of(&disk).iter().filter(|(path, _)| path.starts_with(start)) {
        disk.delete(path).expect("it is there");
    }
    for (path, bytes) in files_of(other).iter().filter(|(path, _)| path.starts_with(start)) {
        disk.write_file(path, bytes).expect("a new file");
    }
    disk
}
