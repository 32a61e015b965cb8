//! The workload during which a storage call fails: creation, commits at every level, big values, checkpoints,
//! durable watermarks, closing and opening again.
//!
//! Owns the script and the book of what was acknowledged; never decides what a recovery must return. The same
//! disk and the same faults give the same run, so that the n-th call of a kind is always the same one. Tests
//! D6: see `probe`.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::{
    Background, Builtin, CommitSeq, Durability, Engine, Error, ErrorKind, Hooks, Options, Receipt, Result,
    Transaction,
};

use crate::contents::{Contents, Dice};
use crate::search::shapes::GEOMETRY;

/// Where the database lies.
const DATABASE: &str = "/db";

/// What was acknowledged, and what may be there in addition.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// The contents after each commit that was ordered.
    pub(crate) states: BTreeMap<CommitSeq, Contents>,
    /// A commit reported as in doubt: it may be there.
    pub(crate) in_doubt: Option<Contents>,
    /// Newest commit acknowledged at `Disk`.
    pub(crate) disk: CommitSeq,
    /// Newest commit acknowledged at `Process` or `Disk`.
    pub(crate) process: CommitSeq,
    /// Broken promises met during the run.
    pub(crate) violations: Vec<String>,
    /// Whether the engine was poisoned.
    pub(crate) poisoned: bool,
    /// Transactions refused for want of room.
    pub(crate) full_count: u64,
}

/// Tiny sizes, so that a short workload passes every kind of call.
#[must_use]
pub(crate) fn options(sync: SyncMethod) -> Options {
    Options {
        geometry: GEOMETRY,
        memory_bytes: 4 * 1024 * 1024,
        background: Background::Stepped,
        checkpoint_log_bytes: Some(u64::MAX),
        sync: Some(sync),
        ..Options::default()
    }
}

/// Opens or creates the database of a disk.
///
/// # Errors
/// As [`Engine::open`].
pub(crate) fn open(disk: &MemDisk, sync: SyncMethod) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), DATABASE, options(sync), Hooks::default())
}

/// A running workload.
pub(crate) struct Work {
    pub(crate) disk: MemDisk,
    pub(crate) sync: SyncMethod,
    pub(crate) book: Book,
    engine: Option<Engine>,
    dice: Dice,
    contents: Contents,
    weak: Option<Receipt>,
}

/// The workload cannot continue.
pub(crate) struct Stopped;

type Going = std::result::Result<(), Stopped>;

impl Work {
    /// A workload on a disk, before its first step.
    pub(crate) fn new(disk: MemDisk, sync: SyncMethod) -> Work {
        let states = BTreeMap::from([(CommitSeq(0), Contents::default())]);
        Work {
            disk,
            sync,
            book: Book { states, ..Book::default() },
            engine: None,
            dice: Dice::new(7),
            contents: Contents::default(),
            weak: None,
        }
    }

    /// Runs to the end, or until a failure ends it. The engine is still open then, unless opening failed.
    pub(crate) fn run(&mut self) -> Going {
        self.open()?;
        self.create("plain", None)?;
        self.create("sums", Some(Builtin::Sum))?;
        self.put(Durability::Disk, "plain", 0, &[20; 8])?;
        self.put(Durability::Process, "sums", 0, &[8; 10])?;
        self.put(Durability::Disk, "plain", 50, &[350])?;
        self.checkpoint()?;
        self.put(Durability::Memory, "plain", 10, &[200; 6])?;
        self.put(Durability::Disk, "sums", 20, &[1300, 8])?;
        self.idle()?;
        self.put(Durability::Process, "plain", 3, &[400, 12])?;
        self.delete("sums", 2, 3)?;
        self.checkpoint()?;
        self.put(Durability::Disk, "plain", 20, &[240; 12])?;
        self.idle()?;
        self.create("late", Some(Builtin::Max))?;
        self.put(Durability::Memory, "late", 0, &[8, 9])?;
        self.close()?;
        self.open()?;
        self.compare()?;
        self.put(Durability::Disk, "late", 1, &[320, 30])?;
        self.drop_tree("plain")?;
        self.put(Durability::Process, "late", 5, &[60; 4])?;
        self.checkpoint()?;
        self.checkpoint()?;
        self.put(Durability::Disk, "sums", 30, &[700, 8, 8])?;
        self.put(Durability::Process, "sums", 2, &[9])?;
        self.compare()?;
        self.put(Durability::Memory, "sums", 3, &[9])
    }

    /// Ends like a killed process: the lock is released, nothing is written.
    pub(crate) fn kill(&mut self) {
        self.weak = None;
        if let Some(engine) = self.engine.take() {
            engine.abandon();
        }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the script opens before it works")
    }

    fn open(&mut self) -> Going {
        match open(&self.disk, self.sync) {
            Ok(engine) => {
                self.engine = Some(engine);
                let seq = self.engine().stats().commit.published;
                self.arrived(seq)
            }
            Err(_) => Err(Stopped),
        }
    }

    /// The commit that an opening finds must be in the book.
    fn arrived(&mut self, seq: CommitSeq) -> Going {
        if let Some(contents) = self.book.states.get(&seq)
            && seq >= self.book.process
        {
            self.contents = contents.clone();
            return Ok(());
        }
        self.violation(format!("opened at commit {seq}, acknowledged was {}", self.book.process));
        Err(Stopped)
    }

    fn violation(&mut self, what: String) {
        self.book.violations.push(what);
    }

    fn commit(
        &mut self,
        level: Durability,
        body: impl FnOnce(&mut Transaction, &mut Contents, &mut Dice) -> Result<()>,
    ) -> Going {
        let mut next = self.contents.clone();
        let begun = self.engine().begin();
        let result = begun.and_then(|mut transaction| {
            body(&mut transaction, &mut next, &mut self.dice)?;
            transaction.commit(level)
        });
        match result {
            Ok(receipt) => {
                self.committed(&receipt, level, next);
                if level != Durability::Disk {
                    self.weak = Some(receipt);
                }
                Ok(())
            }
            Err(error) => self.refused(&error, Some(next)),
        }
    }

    fn committed(&mut self, receipt: &Receipt, level: Durability, contents: Contents) {
        let seq = receipt.seq();
        let before = *self.book.states.keys().next_back().expect("the empty state is there");
        if seq != before.next() {
            self.violation(format!("commit {seq} follows commit {before}"));
        }
        if level == Durability::Disk {
            self.book.disk = seq;
        }
        if level >= Durability::Process {
            self.book.process = seq;
        }
        self.book.states.insert(seq, contents.clone());
        self.contents = contents;
    }

    /// Handles an error: in doubt and poisoned end the workload, any other error changed nothing.
    fn refused(&mut self, error: &Error, next: Option<Contents>) -> Going {
        match error.kind() {
            ErrorKind::InDoubt => {
                self.book.in_doubt = next;
                if self.engine().durability_status().poisoned.is_none() {
                    self.violation(format!("in doubt and not poisoned: {error}"));
                }
            }
            ErrorKind::Full => self.book.full_count += 1,
            ErrorKind::Io | ErrorKind::Poisoned => {}
            kind => self.violation(format!("a storage call failed and the error is {kind:?}: {error}")),
        }
        if self.engine().durability_status().poisoned.is_some() {
            self.probe();
            return Err(Stopped);
        }
        self.read_all();
        Ok(())
    }

    /// D6: a poisoned engine acknowledges nothing and still serves reads.
    fn probe(&mut self) {
        self.book.poisoned = true;
        for level in [Durability::Disk, Durability::Process, Durability::Memory] {
            let refused = self.engine().transact(level, |transaction| transaction.create_tree("never", None));
            match refused.map_err(|error| error.kind()) {
                Err(ErrorKind::Poisoned | ErrorKind::InDoubt) => {}
                other => self.violation(format!("poisoned, and a commit at {level:?} says {other:?}")),
            }
        }
        if self.engine().checkpoint().is_ok() {
            self.violation("poisoned, and a checkpoint succeeds".to_owned());
        }
        let weak =
            self.weak.take().filter(|receipt| receipt.seq() > self.engine().durability_status().durable);
        if let Some(weak) = weak
            && (weak.wait(Durability::Disk).is_ok() || weak.durability() == Durability::Disk)
        {
            self.violation(format!("poisoned, and commit {} became durable", weak.seq()));
        }
        self.read_all();
    }

    /// Compares the whole published state; only failing reads may return errors.
    fn read_all(&mut self) {
        let snapshot = match self.engine().snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return self.violation(format!("no snapshot: {error}")),
        };
        let newest = *self.book.states.keys().next_back().expect("the empty state is there");
        if snapshot.seq() != newest {
            return self.violation(format!("snapshots see commit {}, want {newest}", snapshot.seq()));
        }
        let comparison = self.book.states[&newest].compare(&snapshot);
        if let Some(wrong) = comparison.wrong {
            self.violation(format!("a wrong answer at commit {newest}: {wrong}"));
        }
        for error in comparison.errors.iter().filter(|error| error.kind() != ErrorKind::Io) {
            self.violation(format!("a read says {:?}: {error}", error.kind()));
        }
    }

    fn compare(&mut self) -> Going {
        self.read_all();
        Ok(())
    }

    fn settle(&mut self, result: Result<()>) -> Going {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.refused(&error, None),
        }
    }

    fn checkpoint(&mut self) -> Going {
        let result = self.engine().checkpoint();
        self.settle(result)
    }

    /// Idle long enough for a durable watermark, and for weak commits to be synced.
    fn idle(&mut self) -> Going {
        for _ in 0..3 {
            let result = self.engine().step();
            self.settle(result)?;
            self.disk.advance_clock(1_100_000_000);
        }
        Ok(())
    }

    fn close(&mut self) -> Going {
        let result = self.engine().close();
        let poisoned = self.engine().durability_status().poisoned.is_some();
        self.weak = None;
        if poisoned {
            if result.is_ok() {
                self.violation("closing a poisoned database returns no error".to_owned());
            }
            self.book.poisoned = true;
            return Err(Stopped);
        }
        if let Err(error) = result
            && !matches!(error.kind(), ErrorKind::Full | ErrorKind::Io)
        {
            self.violation(format!("closing says {:?}: {error}", error.kind()));
        }
        self.engine = None;
        Ok(())
    }

    fn create(&mut self, name: &str, reducer: Option<Builtin>) -> Going {
        self.commit(Durability::Disk, |transaction, contents, _| {
            transaction.create_tree(name, reducer.map(Builtin::spec))?;
            contents.tree_mut(name).reducer = reducer;
            Ok(())
        })
    }

    fn drop_tree(&mut self, name: &str) -> Going {
        if self.contents.tree(name).is_none() {
            return Ok(());
        }
        self.commit(Durability::Disk, |transaction, contents, _| {
            transaction.drop_tree(name)?;
            contents.drop_tree(name);
            Ok(())
        })
    }

    /// Puts values of these lengths under keys from `first` on; a tree that could not be created is skipped.
    fn put(&mut self, level: Durability, name: &str, first: u64, lengths: &[usize]) -> Going {
        if self.contents.tree(name).is_none() {
            return Ok(());
        }
        self.commit(level, |transaction, contents, dice| {
            let id = transaction.tree(name)?.expect("the model has it");
            for (key, length) in (first..).zip(lengths) {
                let (key, value) = (format!("{name}-{key:03}").into_bytes(), dice.value(*length));
                transaction.put(id, &key, &value)?;
                contents.tree_mut(name).rows.insert(key, value);
            }
            Ok(())
        })
    }

    fn delete(&mut self, name: &str, first: u64, count: u64) -> Going {
        if self.contents.tree(name).is_none() {
            return Ok(());
        }
        self.commit(Durability::Disk, |transaction, contents, _| {
            let id = transaction.tree(name)?.expect("the model has it");
            for key in first..first + count {
                let key = format!("{name}-{key:03}").into_bytes();
                transaction.delete(id, &key)?;
                contents.tree_mut(name).rows.remove(&key);
            }
            Ok(())
        })
    }
}
