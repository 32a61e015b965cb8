//! Transactions recorded in the model: every commit made through here is in the history, in order.
//!
//! Owns the history of one run. Commits may be made inside another commit's sync, as the disk's hook calls
//! back. So the history is locked for moments only, never across a call of the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duramen_disk::MemDisk;
use duramen_engine::{Builtin, Durability, Engine, Error, Geometry, Receipt, Transaction, TreeId};

use super::model::{Effect, History, State, TreeModel};

/// A disk and the history of the database on it.
#[derive(Debug)]
pub struct Writer {
    /// The disk, recording.
    pub disk: MemDisk,
    history: Mutex<History>,
    failure: Mutex<Option<String>>,
}

/// A transaction and its changes.
#[derive(Debug)]
pub struct Draft {
    transaction: Transaction,
    geometry: Geometry,
    effects: Vec<Effect>,
}

/// A transaction being filled, whatever owns it.
#[derive(Debug)]
pub struct Filling<'a> {
    /// The transaction.
    pub transaction: &'a mut Transaction,
    /// Sizes of the database.
    pub geometry: Geometry,
    /// Its changes so far.
    pub effects: &'a mut Vec<Effect>,
}

/// An error of the engine, with the operation that failed.
pub fn failed(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("{doing}: {} {error}", error.code())
}

impl Draft {
    /// Begins a transaction.
    ///
    /// # Errors
    /// The engine's error.
    pub fn begin(engine: &Engine) -> Result<Draft, String> {
        let transaction = engine.begin().map_err(failed("begin"))?;
        Ok(Draft { transaction, geometry: engine.durability_status().geometry, effects: Vec::new() })
    }

    /// A view of the transaction for filling it.
    pub fn filling(&mut self) -> Filling<'_> {
        Filling { transaction: &mut self.transaction, geometry: self.geometry, effects: &mut self.effects }
    }

    /// The changes of the transaction.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
}

impl Filling<'_> {
    /// Puts a value; in a tree without a reducer, `streamed` values piece by piece.
    ///
    /// # Errors
    /// The engine's error.
    pub fn put(
        &mut self,
        tree: &TreeModel,
        key: Vec<u8>,
        value: Vec<u8>,
        streamed: bool,
    ) -> duramen_engine::Result<()> {
        if streamed && !tree.sums {
            self.transaction.put_stream(tree.id, &key, &mut &value[..])?;
        } else {
            self.transaction.put(tree.id, &key, &value)?;
        }
        self.effects.push(Effect::Put { tree: tree.id, key, value: value.into() });
        Ok(())
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// The engine's error.
    pub fn delete(&mut self, tree: TreeId, key: Vec<u8>) -> duramen_engine::Result<()> {
        self.transaction.delete(tree, &key)?;
        self.effects.push(Effect::Delete { tree, key });
        Ok(())
    }

    /// Creates a tree.
    ///
    /// # Errors
    /// The engine's error.
    pub fn create(&mut self, name: &str, sums: bool) -> duramen_engine::Result<TreeModel> {
        let reducer = sums.then(|| Builtin::Sum.spec());
        let id = self.transaction.create_tree(name, reducer)?;
        self.effects.push(Effect::Create { name: name.to_owned(), id, sums });
        Ok(TreeModel { id, sums, rows: Arc::default() })
    }

    /// Drops a tree.
    ///
    /// # Errors
    /// The engine's error.
    pub fn drop_tree(&mut self, name: &str) -> duramen_engine::Result<()> {
        self.transaction.drop_tree(name)?;
        self.effects.push(Effect::Drop { name: name.to_owned() });
        Ok(())
    }
}

impl Writer {
    /// For a disk whose database is at the history's newest state.
    #[must_use]
    pub fn new(disk: MemDisk, history: History) -> Writer {
        Writer { disk, history: Mutex::new(history), failure: Mutex::new(None) }
    }

    /// The history.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest state that the model has.
    #[must_use]
    pub fn latest(&self) -> State {
        self.history().latest().clone()
    }

    /// Commits and updates the history; `None` if the transaction met a conflict or wrote nothing.
    ///
    /// # Errors
    /// The engine's error.
    pub fn commit(&self, draft: Draft, level: Durability) -> Result<Option<u64>, String> {
        if draft.effects.is_empty() {
            return draft.transaction.commit(level).map(|_| None).map_err(failed("commit of nothing"));
        }
        self.begin(draft.effects);
        self.end(draft.transaction.commit(level))
    }

    /// Notes in the history that a commit begins.
    pub fn begin(&self, effects: Vec<Effect>) {
        self.history().begin(effects, self.disk.recorded_len());
    }

    /// Notes in the history how the innermost commit in progress ended; `None` if it met a conflict.
    ///
    /// # Errors
    /// The engine's error.
    pub fn end(&self, outcome: Result<Receipt, Error>) -> Result<Option<u64>, String> {
        match outcome {
            Ok(receipt) => {
                let mut history = self.history();
                history.committed(receipt.seq().0);
                if receipt.durability() == Durability::Disk {
                    history.promise(self.disk.recorded_len(), receipt.seq().0);
                }
                Ok(Some(receipt.seq().0))
            }
            Err(error) if error.is_retryable() => {
                self.history().refused();
                Ok(None)
            }
            Err(error) => Err(failed("commit")(error)),
        }
    }

    /// A commit that the engine reports as durable is promised, too.
    pub fn note_durable(&self, engine: &Engine) {
        let durable = engine.stats().commit.durable.0;
        self.history().promise(self.disk.recorded_len(), durable);
    }

    /// Runs the background work that is due, and notes its empty commits. Returns whether there were any.
    ///
    /// # Errors
    /// The engine's error.
    pub fn step(&self, engine: &Engine) -> Result<bool, String> {
        let began_at = self.disk.recorded_len();
        engine.step().map_err(failed("step"))?;
        let published = engine.stats().commit.published.0;
        let mut history = self.history();
        let is_new = published > history.last_seq();
        history.nothing_until(published, began_at);
        Ok(is_new)
    }

    /// Notes the empty commits that a compaction or merges of patches have made since the last operation of
    /// the history.
    pub fn made_empty(&self, engine: &Engine, began_at: usize) {
        let published = engine.stats().commit.published.0;
        self.history().nothing_until(published, began_at);
    }

    /// Promises everything committed so far, from now on.
    pub fn promise_all(&self) {
        let mut history = self.history();
        let last = history.last_seq();
        history.promise(self.disk.recorded_len(), last);
    }

    /// Notes a failure where no error can be returned: inside a sync.
    pub fn fail(&self, what: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    /// Returns the noted failure, if any.
    ///
    /// # Errors
    /// The noted failure.
    pub fn verdict(&self) -> Result<(), String> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(what) => Err(what),
            None => Ok(()),
        }
    }

    /// Ends the recording and returns the history.
    #[must_use]
    pub fn take_history(&self) -> History {
        std::mem::replace(&mut *self.history(), History::starting(0, State::default()))
    }
}
