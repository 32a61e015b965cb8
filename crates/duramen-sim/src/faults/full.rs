//! A disk that fills up: nothing is lost, deletes and checkpoints go on, and room brings commits back (D7).
//!
//! Owns the run and its verdict.

use duramen_disk::memory::CrashChoice;
use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::{CommitSeq, Durability, Engine, ErrorKind};

use super::workload::open;
use crate::contents::{Contents, Dice};

/// The result of filling a disk.
#[derive(Debug, Default, Clone)]
pub struct FullReport {
    /// Transactions refused.
    pub refused_count: u64,
    /// Commits of the whole run.
    pub commit_count: u64,
    /// Commits that succeeded again once there was room.
    pub resumed_count: u64,
    /// Broken promises.
    pub violations: Vec<String>,
}

struct Filling {
    disk: MemDisk,
    engine: Engine,
    dice: Dice,
    contents: Contents,
    newest: CommitSeq,
    report: FullReport,
}

/// Fills a disk with `room_bytes` beyond a small database, deletes, checkpoints, makes room, writes again.
#[must_use]
pub fn full_disk(seed: u64, sync: SyncMethod, room_bytes: u64) -> FullReport {
    let disk = MemDisk::new(seed);
    let engine = open(&disk, sync).expect("a healthy disk");
    let mut filling = Filling {
        disk,
        engine,
        dice: Dice::new(seed),
        contents: Contents::default(),
        newest: CommitSeq(0),
        report: FullReport::default(),
    };
    filling.create();
    for _ in 0..4 {
        filling.put().expect("a healthy disk");
    }
    filling.disk.set_capacity(Some(filling.disk.used_bytes() + room_bytes));
    filling.fill();
    filling.empty(sync);
    filling.disk.set_capacity(None);
    for _ in 0..8 {
        match filling.put() {
            Ok(()) => filling.report.resumed_count += 1,
            Err(kind) => filling.violation(format!("there is room, and a commit says {kind:?}")),
        }
    }
    filling.look("after there was room");
    filling.cut(sync);
    filling.report
}

impl Filling {
    fn violation(&mut self, what: String) {
        self.report.violations.push(what);
    }

    fn create(&mut self) {
        let created =
            self.engine.transact(Durability::Disk, |transaction| transaction.create_tree("t", None));
        self.newest = created.expect("a healthy disk").1.seq();
        let _ = self.contents.tree_mut("t");
    }

    /// One transaction of a few rows, one of them big; returns its error if it fails.
    fn put(&mut self) -> Result<(), ErrorKind> {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = [600, 250, 5000, 100]
            .into_iter()
            .map(|length| (format!("{:05}", self.dice.below(90_000)).into_bytes(), self.dice.value(length)))
            .collect();
        let written = self.engine.transact(Durability::Disk, |transaction| {
            let id = transaction.tree("t")?.expect("it was created");
            rows.iter().try_for_each(|(key, value)| transaction.put(id, key, value))
        });
        let (_, receipt) = written.map_err(|error| error.kind())?;
        self.contents.tree_mut("t").rows.extend(rows);
        self.committed(receipt.seq());
        Ok(())
    }

    fn committed(&mut self, seq: CommitSeq) {
        self.report.commit_count += 1;
        if seq != self.newest.next() {
            self.violation(format!("commit {seq} follows commit {}", self.newest));
        }
        self.newest = seq;
    }

    /// Commits until several in a row are refused; checkpoints in between, which must work on a full disk.
    fn fill(&mut self) {
        let mut refused_in_a_row = 0;
        for round in 0..4000 {
            match self.put() {
                Ok(()) => refused_in_a_row = 0,
                Err(ErrorKind::Full) => {
                    refused_in_a_row += 1;
                    self.report.refused_count += 1;
                    self.look("after a refusal");
                }
                Err(kind) => return self.violation(format!("the disk is full, and a commit says {kind:?}")),
            }
            if refused_in_a_row > 0 || round % 16 == 7 {
                self.checkpoint("while the disk fills");
            }
            if refused_in_a_row > 3 {
                return;
            }
        }
        self.violation("the disk never filled".to_owned());
    }

    fn checkpoint(&mut self, when: &str) {
        if let Err(error) = self.engine.checkpoint() {
            self.violation(format!("{when}: a checkpoint says {:?}: {error}", error.kind()));
        }
    }

    /// Deletes row by row until half is gone; every delete must work on the full disk.
    fn empty(&mut self, sync: SyncMethod) {
        let keys: Vec<Vec<u8>> =
            self.contents.tree("t").map(|tree| tree.rows.keys().cloned().collect()).unwrap_or_default();
        for (index, key) in keys.iter().step_by(2).enumerate() {
            let deleted = self.engine.transact(Durability::Disk, |transaction| {
                let id = transaction.tree("t")?.expect("it was created");
                transaction.delete(id, key)
            });
            match deleted {
                Ok((_, receipt)) => {
                    self.contents.tree_mut("t").rows.remove(key);
                    self.committed(receipt.seq());
                }
                Err(error) => {
                    let kind = error.kind();
                    return self.violation(format!("delete {index} on a full disk says {kind:?}: {error}"));
                }
            }
            if index % 2 == 1 {
                self.checkpoint("while deleting");
            }
        }
        self.checkpoint("after deleting");
        self.look("after deleting");
        self.cut(sync);
    }

    fn look(&mut self, when: &str) {
        let snapshot = self.engine.snapshot().expect("nothing is forked");
        let comparison = self.contents.compare(&snapshot);
        if let Some(wrong) = comparison.wrong {
            self.violation(format!("{when}: a wrong answer: {wrong}"));
        }
        if let Some(error) = comparison.errors.first() {
            self.violation(format!("{when}: a read fails: {error}"));
        }
        if let Some(cause) = self.engine.durability_status().poisoned {
            self.violation(format!("{when}: poisoned: {cause}"));
        }
    }

    /// Checks that all of it survives a power cut.
    fn cut(&mut self, sync: SyncMethod) {
        let image = self.disk.crash(&CrashChoice::None);
        match open(&image, sync) {
            Ok(engine) => {
                let snapshot = engine.snapshot().expect("it was just opened");
                let comparison = self.contents.compare(&snapshot);
                if comparison.wrong.is_some() || !comparison.errors.is_empty() {
                    let error = comparison.errors.first().map(ToString::to_string);
                    self.violation(format!("after a power cut: {:?} {error:?}", comparison.wrong));
                }
                engine.abandon();
            }
            Err(error) => self.violation(format!("after a power cut: does not open: {error}")),
        }
    }
}
