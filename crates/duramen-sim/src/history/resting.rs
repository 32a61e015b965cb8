//! Transactions that rest between calls: begun by one thread, continued and committed by any.
//!
//! Owns the pool of those that rest. They begin at the published root, and so are old by the time of their
//! commits: beside them the other threads commit.

use std::sync::Mutex;

use duramen_engine::{CommitSeq, Durability, Error, ErrorKind, Result, Transaction, TreeId};

use super::record::{Fate, Step};
use super::run::{Worker, writes};

/// So many rest at once.
const RESTING_MAX: usize = 12;

/// A limit for the notes of reads that some of them exceed.
const NOTES_BYTES: usize = 200;

/// A transaction that rests.
pub(super) struct Rested {
    transaction: Transaction,
    began: u64,
    base: CommitSeq,
    ids: Vec<TreeId>,
    steps: Vec<Step>,
}

/// The transactions that rest, of all threads.
pub(super) type Pool = Mutex<Vec<Rested>>;

impl Worker<'_> {
    /// Begins a transaction that rests, or goes on with one of those that do.
    pub(super) fn rest_or_go_on(&mut self) -> Result<()> {
        match self.take_rested(RESTING_MAX) {
            Some(full) => self.end_rested(full),
            None if self.dice.below(2) == 0 => self.begin_rested(),
            None => match self.take_rested(0) {
                None => self.begin_rested(),
                Some(rested) if self.dice.below(3) == 0 => self.end_rested(rested),
                Some(rested) => self.go_on(rested),
            },
        }
    }

    /// Ends all that rest.
    pub(super) fn end_all_rested(&mut self) -> Result<()> {
        while let Some(rested) = self.take_rested(0) {
            self.end_rested(rested)?;
        }
        Ok(())
    }

    /// One of those that rest, if there are more than so many.
    fn take_rested(&mut self, count: usize) -> Option<Rested> {
        let mut pool = self.resting.lock().expect("nobody panics with it");
        if pool.len() <= count {
            return None;
        }
        let index = self.dice.index(pool.len());
        Some(pool.swap_remove(index))
    }

    fn begin_rested(&mut self) -> Result<()> {
        let began = self.tick();
        let mut transaction = self.engine.begin_published()?;
        if self.dice.below(3) == 0 {
            transaction.limit_reads(NOTES_BYTES);
        }
        let (base, ids, steps) = (transaction.base_seq(), Vec::new(), Vec::new());
        let mut rested = Rested { transaction, began, base, ids, steps };
        let found = self.look_up(&mut rested.transaction, &mut rested.steps);
        match found {
            Ok(ids) => rested.ids = ids,
            Err(error) => return self.refused(rested, error),
        }
        self.go_on(rested)
    }

    /// A read or two, and perhaps a write.
    fn go_on(&mut self, mut rested: Rested) -> Result<()> {
        match self.call(&mut rested) {
            Ok(()) => {
                self.resting.lock().expect("nobody panics with it").push(rested);
                Ok(())
            }
            Err(error) => self.refused(rested, error),
        }
    }

    fn call(&mut self, rested: &mut Rested) -> Result<()> {
        let Rested { transaction, ids, steps, .. } = rested;
        for _ in 0..1 + self.dice.below(2) {
            self.read(transaction, ids, steps)?;
        }
        if self.dice.below(3) == 0 {
            let id = ids[self.dice.index(ids.len())];
            self.write(transaction, id, steps)?;
        }
        Ok(())
    }

    fn end_rested(&mut self, mut rested: Rested) -> Result<()> {
        // Some only read.
        if self.dice.below(6) > 0 {
            let id = rested.ids[self.dice.index(rested.ids.len())];
            let Rested { transaction, steps, .. } = &mut rested;
            if let Err(error) = self.write(transaction, id, steps) {
                return self.refused(rested, error);
            }
        }
        let level = self.level();
        let Rested { transaction, began, base, steps, .. } = rested;
        let began_at = self.listener.begins();
        let outcome = transaction.commit(level);
        self.count_one();
        match outcome {
            Ok(receipt) if steps.iter().any(writes) => {
                let is_published = level >= Durability::Process;
                self.committed(&receipt, began, began_at, is_published, steps);
            }
            Ok(receipt) => {
                self.listener.ended(&receipt, None);
                // It read what was published when it began, as a snapshot does.
                self.note(began, base, Fate::Snapshot, false, steps);
            }
            Err(error) => return self.refused_at(began, base, steps, error),
        }
        self.note_rest();
        Ok(())
    }

    fn refused(&mut self, rested: Rested, error: Error) -> Result<()> {
        let Rested { transaction, began, base, steps, .. } = rested;
        drop(transaction);
        self.count_one();
        self.refused_at(began, base, steps, error)
    }

    fn refused_at(&mut self, began: u64, base: CommitSeq, steps: Vec<Step>, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Conflict {
            return Err(error);
        }
        self.note(began, base, Fate::Conflicted, false, steps);
        self.note_rest();
        Ok(())
    }
}
