//! Threads that run random transactions against one engine and record what they see.
//!
//! Owns the workload. Few keys and short ranges, so that transactions meet; every kind of question, so that every kind
//! of read is validated by somebody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use duramen_engine::{
    Builtin, CommitSeq, Direction, Durability, Engine, ErrorKind, KeyRange, Result, Transaction, TreeId,
};

use super::record::{Event, Fate, Reader, Step, ask};
use crate::contents::Dice;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Decides what each thread asks for; not how they interleave.
    pub seed: u64,
    /// Threads.
    pub thread_count: usize,
    /// Transactions of each.
    pub transaction_count: usize,
    /// Different keys of a tree.
    pub key_count: u64,
}

const NAMES: [&str; 3] = ["left", "right", "rare"];

/// Runs a workload on an empty database and returns what was recorded.
///
/// # Errors
/// The first error that is no conflict.
pub fn run(engine: &Engine, run: Run) -> Result<Vec<Event>> {
    let clock = AtomicU64::new(0);
    let events = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let worker = |thread: usize, transaction_count: usize| Worker {
        engine,
        clock: &clock,
        thread,
        transaction_count,
        key_count: run.key_count,
        dice: Dice::new(run.seed.wrapping_mul(1000) + thread as u64),
        events: Vec::new(),
    };
    let mut first = worker(run.thread_count, 1);
    first.create_first()?;
    events.lock().expect("nobody panics with it").append(&mut first.events);
    thread::scope(|scope| {
        for thread in 0..run.thread_count {
            let mut worker = worker(thread, run.transaction_count);
            let (events, failed) = (&events, &failed);
            scope.spawn(move || {
                if let Err(error) = worker.work() {
                    *failed.lock().expect("nobody panics with it") = Some(error);
                }
                events.lock().expect("nobody panics with it").append(&mut worker.events);
            });
        }
    });
    let mut last = worker(run.thread_count, 1);
    last.read_everything()?;
    events.lock().expect("nobody panics with it").append(&mut last.events);
    match failed.into_inner().expect("nobody panics with it") {
        Some(error) => Err(error),
        None => Ok(events.into_inner().expect("nobody panics with it")),
    }
}

struct Worker<'a> {
    engine: &'a Engine,
    clock: &'a AtomicU64,
    thread: usize,
    transaction_count: usize,
    key_count: u64,
    dice: Dice,
    events: Vec<Event>,
}

impl Worker<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn create_first(&mut self) -> Result<()> {
        let began = self.tick();
        let mut transaction = self.engine.begin()?;
        let mut steps = Vec::new();
        for name in &NAMES[..2] {
            let id = transaction.create_tree(name, Some(Builtin::Sum.spec()))?;
            steps.push(Step::Create(Arc::from(*name), id));
            for _ in 0..self.key_count / 2 {
                self.write(&mut transaction, id, &mut steps)?;
            }
        }
        let seq = transaction.commit(Durability::Disk)?.seq();
        self.note(began, seq, Fate::Committed, true, steps);
        Ok(())
    }

    /// The state that is left, to its last row.
    fn read_everything(&mut self) -> Result<()> {
        let began = self.tick();
        let mut snapshot = self.engine.snapshot()?;
        let trees = ask(&mut snapshot, Step::Trees(Vec::new()))?;
        let mut steps = vec![trees.clone()];
        if let Step::Trees(trees) = trees {
            for (_, id) in trees {
                let all = Step::Rows(id, KeyRange::all(), Direction::Forward, usize::MAX, Vec::new());
                steps.push(ask(&mut snapshot, all)?);
            }
        }
        self.note(began, snapshot.seq(), Fate::Snapshot, false, steps);
        Ok(())
    }

    fn work(&mut self) -> Result<()> {
        for _ in 0..self.transaction_count {
            if self.dice.below(8) == 0 {
                self.snapshot()?;
            } else {
                self.transaction()?;
            }
        }
        Ok(())
    }

    /// Asks a snapshot, lets time pass, and asks the same again.
    fn snapshot(&mut self) -> Result<()> {
        let began = self.tick();
        let mut snapshot = self.engine.snapshot()?;
        let seq = snapshot.seq();
        let mut steps = Vec::new();
        let ids = self.look_up(&mut snapshot, &mut steps)?;
        for _ in 0..3 {
            self.read(&mut snapshot, &ids, &mut steps)?;
        }
        self.transaction()?;
        for step in steps.clone() {
            steps.push(ask(&mut snapshot, step)?);
        }
        self.note(began, seq, Fate::Snapshot, false, steps);
        Ok(())
    }

    fn transaction(&mut self) -> Result<()> {
        let level =
            [Durability::Memory, Durability::Process, Durability::Disk, Durability::Disk][self.dice.index(4)];
        let began = self.tick();
        let mut transaction = self.engine.begin()?;
        let base = transaction.base_seq();
        let mut steps = Vec::new();
        self.body(&mut transaction, &mut steps)?;
        let wrote = steps
            .iter()
            .any(|step| matches!(step, Step::Put(..) | Step::Delete(..) | Step::Create(..) | Step::Drop(..)));
        match transaction.commit(level) {
            Ok(receipt) if wrote => {
                let is_published = level >= Durability::Process;
                self.note(began, receipt.seq(), Fate::Committed, is_published, steps);
            }
            Ok(receipt) => self.note(began, receipt.seq(), Fate::Read, true, steps),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.note(began, base, Fate::Conflicted, false, steps);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn body(&mut self, transaction: &mut Transaction, steps: &mut Vec<Step>) -> Result<()> {
        let ids = self.look_up(transaction, steps)?;
        if self.dice.below(20) == 0 {
            self.make_or_drop(transaction, steps)?;
            return Ok(());
        }
        for _ in 0..1 + self.dice.below(3) {
            self.read(transaction, &ids, steps)?;
        }
        // Others may commit here, on one processor too.
        if self.dice.below(4) == 0 {
            thread::yield_now();
        }
        if self.dice.below(4) == 0 {
            return Ok(());
        }
        for _ in 0..1 + self.dice.below(2) {
            let id = ids[self.dice.index(ids.len())];
            self.write(transaction, id, steps)?;
        }
        if self.dice.below(3) == 0 {
            self.read(transaction, &ids, steps)?;
            let id = ids[self.dice.index(ids.len())];
            self.write(transaction, id, steps)?;
        }
        Ok(())
    }

    fn look_up(&mut self, reader: &mut dyn Reader, steps: &mut Vec<Step>) -> Result<Vec<TreeId>> {
        let mut ids = Vec::new();
        // The rare one is looked up seldom: whoever did conflicts with its creation.
        let name_count = if self.dice.below(6) == 0 { 3 } else { 2 };
        for name in &NAMES[..name_count] {
            let step = ask(reader, Step::Tree(Arc::from(*name), None))?;
            if let Step::Tree(_, Some(id)) = &step {
                ids.push(*id);
            }
            steps.push(step);
        }
        Ok(ids)
    }

    fn make_or_drop(&mut self, transaction: &mut Transaction, steps: &mut Vec<Step>) -> Result<()> {
        let name: Arc<str> = Arc::from(NAMES[2]);
        let step = ask(transaction, Step::Tree(Arc::clone(&name), None))?;
        let found = matches!(step, Step::Tree(_, Some(_)));
        steps.push(step);
        if found {
            transaction.drop_tree(&name)?;
            steps.push(Step::Drop(name));
        } else {
            let id = transaction.create_tree(&name, Some(Builtin::Sum.spec()))?;
            steps.push(Step::Create(name, id));
            self.write(transaction, id, steps)?;
        }
        steps.push(ask(transaction, Step::Trees(Vec::new()))?);
        Ok(())
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{:04}", self.dice.below(self.key_count)).into_bytes()
    }

    fn range(&mut self) -> KeyRange {
        let from = self.dice.below(self.key_count);
        let to = from + 1 + self.dice.below(4);
        KeyRange::between(format!("k{from:04}"), format!("k{to:04}"))
    }

    fn read(&mut self, reader: &mut dyn Reader, ids: &[TreeId], steps: &mut Vec<Step>) -> Result<()> {
        let tree = ids[self.dice.index(ids.len())];
        let question = match self.dice.below(12) {
            0..=3 => Step::Get(tree, self.key(), None),
            4 | 5 => {
                let to = if self.dice.below(2) == 0 { Direction::Forward } else { Direction::Reverse };
                Step::Rows(tree, self.range(), to, usize::MAX, Vec::new())
            }
            6 => {
                let from = KeyRange { from: self.key(), to: None };
                Step::Rows(tree, from, Direction::Forward, 2, Vec::new())
            }
            7 => Step::Count(tree, self.range(), 0),
            8 => Step::Rank(tree, self.key(), 0),
            9 => Step::Nth(tree, self.dice.below(self.key_count), None),
            10 => Step::Trees(Vec::new()),
            _ => Step::Sum(tree, self.range(), None),
        };
        steps.push(ask(reader, question)?);
        Ok(())
    }

    fn write(&mut self, transaction: &mut Transaction, tree: TreeId, steps: &mut Vec<Step>) -> Result<()> {
        let key = self.key();
        if self.dice.below(3) == 0 {
            transaction.delete(tree, &key)?;
            steps.push(Step::Delete(tree, key));
        } else {
            let length = if self.dice.below(30) == 0 { 700 } else { 12 };
            let value = self.dice.value(length);
            transaction.put(tree, &key, &value)?;
            steps.push(Step::Put(tree, key, value));
        }
        Ok(())
    }

    fn note(&mut self, began: u64, seq: CommitSeq, fate: Fate, is_published: bool, steps: Vec<Step>) {
        let ended = self.tick();
        self.events.push(Event { thread: self.thread, began, ended, seq, fate, is_published, steps });
    }
}
