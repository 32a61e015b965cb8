//! Threads that run random transactions against one engine and record what they see.
//!
//! Owns the workload. Few keys and short ranges, so that transactions conflict; every kind of query, so that
//! every kind of read is validated.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use duramen_engine::{
    Builtin, CommitSeq, Direction, Durability, Engine, ErrorKind, KeyRange, Receipt, Result, Transaction,
    TreeId,
};

use super::listener::Listener;
use super::record::{Event, Fate, Reader, Step, ask};
use super::resting::Pool;
use crate::contents::Dice;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Decides what each thread does; not how they interleave.
    pub seed: u64,
    /// Threads.
    pub thread_count: usize,
    /// Transactions of each.
    pub transaction_count: usize,
    /// Different keys of a tree.
    pub key_count: u64,
    /// The kind of transactions.
    pub manner: Manner,
}

/// The kind of transactions in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// Short, with few big values.
    #[default]
    Short,
    /// One of eight lets some ninety other commits pass between its reads and its writes. It is then older
    /// than everything in the ring of recent commits. One of three values is big.
    Old,
    /// As `Short`; every fourth receipt is waited for later, some transactions on.
    Later,
    /// As `Short`; beside these, transactions rest between calls, and any thread goes on with them.
    Resting,
}

/// Commits of other threads that an old transaction waits for.
const OLD_COMMITS: u64 = 90;

/// Kinds of queries: all, and those of an old transaction. A rank or an index covers a long range, in which
/// something has always changed.
const QUESTIONS: u64 = 12;
const QUESTIONS_OLD: u64 = 6;

/// One value of so many is big.
const BIG_IN_SHORT: u64 = 30;
const BIG_IN_OLD: u64 = 3;

/// A receipt is waited for once so many are held.
const HELD_MAX: usize = 4;

const NAMES: [&str; 3] = ["left", "right", "rare"];

/// Runs a workload on an empty database and returns what was recorded.
///
/// # Errors
/// The first error other than a conflict.
pub fn run(engine: &Engine, run: Run) -> Result<Vec<Event>> {
    run_heard(engine, run, &())
}

/// As [`run`], with a listener.
///
/// # Errors
/// As [`run`].
pub fn run_heard(engine: &Engine, run: Run, listener: &dyn Listener) -> Result<Vec<Event>> {
    let crowd = Crowd { commits: AtomicU64::new(0), busy: AtomicUsize::new(run.thread_count) };
    let clock = AtomicU64::new(0);
    let events = Mutex::new(Vec::new());
    let resting = Pool::default();
    let failed = Mutex::new(None);
    let worker = |thread: usize, transaction_count: usize| Worker {
        engine,
        listener,
        clock: &clock,
        crowd: &crowd,
        manner: run.manner,
        thread,
        transaction_count,
        key_count: run.key_count,
        dice: Dice::new(run.seed.wrapping_mul(1000) + thread as u64),
        questions: QUESTIONS,
        resting: &resting,
        events: Vec::new(),
        held: Vec::new(),
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
                worker.crowd.busy.fetch_sub(1, Ordering::Relaxed);
                events.lock().expect("nobody panics with it").append(&mut worker.events);
            });
        }
    });
    let mut last = worker(run.thread_count, 1);
    last.end_all_rested()?;
    last.read_everything()?;
    events.lock().expect("nobody panics with it").append(&mut last.events);
    match failed.into_inner().expect("nobody panics with it") {
        Some(error) => Err(error),
        None => Ok(events.into_inner().expect("nobody panics with it")),
    }
}

/// State shared by the threads.
struct Crowd {
    /// Transactions that have ended.
    commits: AtomicU64,
    /// Threads that make commits: neither at their end nor waiting for commits of others.
    busy: AtomicUsize,
}

impl Crowd {
    /// Waits until so many transactions have ended, while another thread is working. The last busy one never
    /// waits.
    fn wait_for_others(&self, count: u64) {
        let until = self.commits.load(Ordering::Relaxed) + count;
        if self.busy.fetch_sub(1, Ordering::Relaxed) > 1 {
            while self.commits.load(Ordering::Relaxed) < until && self.busy.load(Ordering::Relaxed) > 0 {
                thread::yield_now();
            }
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Worker<'a> {
    pub(super) engine: &'a Engine,
    pub(super) listener: &'a dyn Listener,
    clock: &'a AtomicU64,
    crowd: &'a Crowd,
    manner: Manner,
    thread: usize,
    transaction_count: usize,
    key_count: u64,
    pub(super) dice: Dice,
    /// Kinds of queries used at present.
    questions: u64,
    pub(super) resting: &'a Pool,
    events: Vec<Event>,
    /// Receipts that are waited for later.
    held: Vec<Receipt>,
}

/// Whether a step writes.
pub(super) fn writes(step: &Step) -> bool {
    matches!(step, Step::Put(..) | Step::Delete(..) | Step::Create(..) | Step::Drop(..))
}

impl Worker<'_> {
    /// Notes that a transaction has ended.
    pub(super) fn count_one(&self) {
        self.crowd.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tick(&self) -> u64 {
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
                // In either manner, all of these fit into one transaction.
                self.write_some(&mut transaction, id, &mut steps, BIG_IN_SHORT)?;
            }
        }
        let began_at = self.listener.begins();
        let receipt = transaction.commit(Durability::Disk)?;
        self.listener.ended(&receipt, Some(began_at));
        self.note(began, receipt.seq(), Fate::Committed, true, steps);
        Ok(())
    }

    /// Reads the final state, to its last row.
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
            match self.dice.below(8) {
                0 => self.snapshot()?,
                1 | 2 if self.manner == Manner::Later => self.transaction_and_wait_later()?,
                1..=6 if self.manner == Manner::Resting => self.rest_or_go_on()?,
                _ => self.transaction()?,
            }
            self.listener.rests(&mut self.dice);
        }
        self.wait_for_held(0)
    }

    /// Queries a snapshot, lets time pass, and repeats the queries.
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
        let level = self.level();
        let began = self.tick();
        let mut transaction = self.engine.begin()?;
        let base = transaction.base_seq();
        let mut steps = Vec::new();
        let outcome = match self.body(&mut transaction, &mut steps) {
            Ok(()) => {
                let began_at = self.listener.begins();
                transaction.commit(level).map(|receipt| (receipt, began_at))
            }
            Err(error) => Err(error),
        };
        self.count_one();
        match outcome {
            Ok((receipt, began_at)) => {
                let is_published = level >= Durability::Process;
                self.committed(&receipt, began, began_at, is_published, steps);
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.note(began, base, Fate::Conflicted, false, steps);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn level(&mut self) -> Durability {
        [Durability::Memory, Durability::Process, Durability::Disk, Durability::Disk][self.dice.index(4)]
    }

    pub(super) fn committed(
        &mut self,
        receipt: &Receipt,
        began: u64,
        began_at: usize,
        is_published: bool,
        steps: Vec<Step>,
    ) {
        if steps.iter().any(writes) {
            self.listener.ended(receipt, Some(began_at));
            self.note(began, receipt.seq(), Fate::Committed, is_published, steps);
        } else {
            self.listener.ended(receipt, None);
            self.note(began, receipt.seq(), Fate::Read, true, steps);
        }
    }

    /// A transaction that is ordered and returns: its receipt is waited for some transactions later.
    fn transaction_and_wait_later(&mut self) -> Result<()> {
        let level = self.level();
        let (engine, listener) = (self.engine, self.listener);
        let began = self.tick();
        let mut steps = Vec::new();
        let began_at = listener.begins();
        let written = engine.transact_and_wait_later(level, |tx| {
            // What an attempt that met a conflict has read belongs to no commit.
            steps.clear();
            self.body(tx, &mut steps)?;
            let id = self.look_up(tx, &mut steps)?[0];
            self.write(tx, id, &mut steps)
        });
        self.count_one();
        let ((), receipt) = written?;
        self.committed(&receipt, began, began_at, false, steps);
        self.held.push(receipt);
        self.wait_for_held(HELD_MAX)
    }

    /// Waits for receipts until no more than so many are held.
    fn wait_for_held(&mut self, count: usize) -> Result<()> {
        while self.held.len() > count {
            let index = self.dice.index(self.held.len());
            let receipt = self.held.swap_remove(index).waited(Durability::Disk)?;
            self.listener.ended(&receipt, None);
        }
        Ok(())
    }

    fn body(&mut self, transaction: &mut Transaction, steps: &mut Vec<Step>) -> Result<()> {
        let is_old = self.manner == Manner::Old && self.dice.below(8) == 0;
        self.questions = if is_old { QUESTIONS_OLD } else { QUESTIONS };
        let ids = self.look_up(transaction, steps)?;
        if self.dice.below(20) == 0 {
            self.make_or_drop(transaction, steps)?;
            return Ok(());
        }
        for _ in 0..1 + self.dice.below(3) {
            self.read(transaction, &ids, steps)?;
        }
        // Other threads may commit here, on one processor too.
        if self.dice.below(4) == 0 {
            thread::yield_now();
        }
        if is_old {
            self.crowd.wait_for_others(OLD_COMMITS);
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

    pub(super) fn look_up(&mut self, reader: &mut dyn Reader, steps: &mut Vec<Step>) -> Result<Vec<TreeId>> {
        let mut ids = Vec::new();
        // The rare tree is looked up seldom: every lookup conflicts with its creation.
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

    pub(super) fn read(
        &mut self,
        reader: &mut dyn Reader,
        ids: &[TreeId],
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let tree = ids[self.dice.index(ids.len())];
        let question = match self.dice.below(self.questions) {
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

    pub(super) fn write(
        &mut self,
        transaction: &mut Transaction,
        tree: TreeId,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let big_in = if self.manner == Manner::Old { BIG_IN_OLD } else { BIG_IN_SHORT };
        self.write_some(transaction, tree, steps, big_in)
    }

    fn write_some(
        &mut self,
        transaction: &mut Transaction,
        tree: TreeId,
        steps: &mut Vec<Step>,
        big_in: u64,
    ) -> Result<()> {
        let key = self.key();
        if self.dice.below(3) == 0 {
            transaction.delete(tree, &key)?;
            steps.push(Step::Delete(tree, key));
        } else {
            let length = if self.dice.below(big_in) == 0 { 700 } else { 12 };
            let value = self.dice.value(length);
            transaction.put(tree, &key, &value)?;
            steps.push(Step::Put(tree, key, value));
        }
        Ok(())
    }

    pub(super) fn note(
        &mut self,
        began: u64,
        seq: CommitSeq,
        fate: Fate,
        is_published: bool,
        steps: Vec<Step>,
    ) {
        let ended = self.tick();
        let (thread, has_rested) = (self.thread, false);
        self.events.push(Event { thread, began, ended, seq, fate, is_published, has_rested, steps });
    }

    /// Notes that the transaction noted last has rested.
    pub(super) fn note_rest(&mut self) {
        self.events.last_mut().expect("it was noted").has_rested = true;
    }
}
