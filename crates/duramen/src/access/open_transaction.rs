//! A transaction that rests between calls: what a server holds for a client, or a program for a user who
//! thinks.
//!
//! Owns what happens between begin and commit where no closure runs: what is carried from call to call, and
//! what a panic in a call leaves behind.

use std::fmt;

use crate::access::after_commit::AfterCommit;
use crate::access::deadlines::Count;
use crate::access::handle::Db;
#[cfg(feature = "async")]
use crate::access::handle::UnderWay;
use crate::access::inside::{self, Inside};
use crate::access::references;
use crate::access::transaction::{Noted, Transaction};
use crate::store::error::{Error, Result};
use crate::store::{self, CommitSeq, Durability, Receipt};

/// A transaction that is used in several calls, from any thread, and commits with
/// [`OpenTransaction::commit`]. Dropped, it rolls back. It comes from [`Db::begin`].
///
/// ```
/// # use duramen::prelude::*;
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let mut order = db.begin()?;
/// let left: i64 = order.with(|tx| tx.kv("stock").get("apples"))?.unwrap_or(10);
/// // Other transactions commit meanwhile.
/// order.with(|tx| tx.kv("stock").put("apples", &(left - 1)))?;
/// match order.commit() {
///     Ok(receipt) => assert_eq!(receipt.durability(), Durability::Disk),
///     Err(error) if error.is_retryable() => println!("something it read has changed: begin again"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
///
/// [`Db::transact`] is simpler where one closure does it all: it runs the closure again after a conflict.
///
/// It blocks no one. It reads the state that was published when it began, without commits that a full log
/// could still take back. At the commit it conflicts (E0101) if something that it read has changed, or if a
/// key-value that it read or wrote has expired meanwhile.
///
/// While it is open it holds its state like a [`Snapshot`](crate::Snapshot), its writes take memory that all
/// transactions share, and its handle keeps the database open: give it a time limit.
pub struct OpenTransaction {
    db: Db,
    inner: store::Transaction,
    noted: Noted,
    /// A closure panicked, and nobody knows what it has done.
    is_broken: bool,
}

impl OpenTransaction {
    pub(crate) fn new(db: Db, inner: store::Transaction) -> OpenTransaction {
        OpenTransaction { db, inner, noted: Noted::default(), is_broken: false }
    }

    /// Runs a closure in the transaction.
    ///
    /// An error of the closure does not end the transaction: what it wrote before the error stays written. If
    /// the error came halfway through one write, such as a document of which a view has only a part of the
    /// rows, every later call and the commit return it.
    ///
    /// # Errors
    /// What the closure returned. `InvalidArgument` (E0201) if a closure panicked earlier.
    pub fn with<T>(&mut self, run: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.not_broken()?;
        self.is_broken = true;
        let state = self.db.open_state();
        let mut transaction = Transaction::new(&mut self.inner, state, std::mem::take(&mut self.noted));
        let out = match transaction.failed() {
            Some(error) => Err(error),
            None => {
                let _is_inside = Inside::enter(state);
                run(&mut transaction)
            }
        };
        self.noted = transaction.into_noted();
        self.inner.release_copies();
        self.is_broken = false;
        out
    }

    /// Commits, and waits for the level of the handle that began it.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits). It does not run again by itself: after `WriteConflict`
    /// (E0101) begin anew. `InvalidArgument` (E0201) if a closure panicked.
    pub fn commit(self) -> Result<Receipt> {
        let level = self.db.durability();
        self.commit_at(level)
    }

    /// As [`OpenTransaction::commit`], at another level.
    pub(crate) fn commit_at(self, level: Durability) -> Result<Receipt> {
        let (db, inner, effects) = self.settled()?;
        let receipt = inner.commit(level)?;
        db.at(level).finish(effects);
        Ok(receipt)
    }

    /// Orders the commit at a level. The receipt waits; then call [`Db::finish_in_part`].
    #[cfg(feature = "async")]
    pub(crate) fn commit_and_wait_later(self, level: Durability) -> Result<UnderWay<Db>> {
        let (db, inner, effects) = self.settled()?;
        let receipt = inner.commit_and_wait_later(level)?;
        Ok(UnderWay { out: db.at(level), receipt, effects })
    }

    /// Everything before the commit of the engine.
    fn settled(self) -> Result<(Db, store::Transaction, AfterCommit)> {
        self.not_broken()?;
        let OpenTransaction { db, mut inner, noted, .. } = self;
        let state = db.open_state();
        inside::refuse(state)?;
        let transaction = Transaction::new(&mut inner, state, noted);
        references::settle(&transaction)?;
        if let Some(error) = transaction.failed() {
            return Err(error);
        }
        let noted = transaction.into_noted();
        noted.deadlines().hold(Count::ReadAndWritten, &mut inner, state);
        Ok((db, inner, noted.into_effects()))
    }

    /// The commit whose state it reads.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.inner.base_seq()
    }

    fn not_broken(&self) -> Result<()> {
        if !self.is_broken {
            return Ok(());
        }
        Err(Error::invalid("a closure of this transaction panicked")
            .with_hint("drop it, which rolls back, and begin again"))
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction").finish_non_exhaustive()
    }
}

const _: () = {
    const fn send<T: Send + 'static>() {}
    send::<OpenTransaction>();
};
