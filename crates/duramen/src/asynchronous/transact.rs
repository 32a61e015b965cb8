//! A transaction in steps.
//!
//! A thread of the pool runs and orders it; the flusher waits for it. If the rest is slow or calls the
//! program, it runs on the pool again.
//!
//! Owns the retries. After a conflict the engine runs the transaction again. If the log had no room for it,
//! or for a commit that it read, it never happened. It then runs once more as a whole on its thread, as a
//! blocking call does that makes room.

use std::sync::{Arc, Mutex};

use crate::store::{Durability, Receipt};

use super::AsyncDb;
use super::task::Step;
use crate::access::after_commit::AfterCommit;
use crate::access::handle::{Db, UnderWay};
use crate::access::open_transaction::OpenTransaction;
use crate::access::transaction::Transaction;
use crate::store::error::{Code, Error, Result};

/// Runs a transaction, and leaves the waiting to the flusher.
pub(super) fn begin<S: Send + 'static, T: Send + 'static>(
    db: Db,
    mut state: S,
    mut run: impl FnMut(&mut S, &mut Transaction<'_>) -> Result<T> + Send + 'static,
) -> Step<(S, T, Receipt)> {
    let level = db.durability();
    if level == Durability::Memory {
        return to_the_end(&db, state, run);
    }
    match db.transact_and_wait_later(|tx| run(&mut state, tx)) {
        Err(error) => Step::Done(Err(error)),
        Ok(UnderWay { out, receipt, effects }) => Step::Until(
            receipt,
            level,
            Box::new(move |waited| match waited {
                Ok(receipt) => finished(&db, effects, (state, out, receipt)),
                // The log had no room for it or for a commit that it read: neither has happened.
                Err(error) if error.code() == Code::DiskFull => {
                    Step::Again(Box::new(move || to_the_end(&db, state, run)))
                }
                Err(error) => Step::Done(Err(error)),
            }),
        ),
    }
}

/// Orders a transaction that rested, and leaves the waiting to the flusher.
pub(super) fn commit(open: OpenTransaction, level: Durability) -> Step<Receipt> {
    if level == Durability::Memory {
        return Step::Done(open.commit_at(level));
    }
    let UnderWay { out: db, receipt, effects } = match open.commit_and_wait_later(level) {
        Ok(under_way) => under_way,
        Err(error) => return Step::Done(Err(error)),
    };
    let then = move |waited: Result<Receipt>| match waited {
        Ok(receipt) => finished(&db, effects, receipt),
        Err(error) => Step::Done(Err(error)),
    };
    Step::Until(receipt, level, Box::new(then))
}

/// The work after a commit: what is slow or calls the program goes to the pool.
fn finished<T: Send + 'static>(db: &Db, effects: AfterCommit, out: T) -> Step<T> {
    match db.finish_in_part(effects) {
        None => Step::Done(Ok(out)),
        Some(rest) => Step::Again(Box::new(move || {
            rest();
            Step::Done(Ok(out))
        })),
    }
}

/// Runs it as a blocking call does.
fn to_the_end<S, T>(
    db: &Db,
    mut state: S,
    mut run: impl FnMut(&mut S, &mut Transaction<'_>) -> Result<T>,
) -> Step<(S, T, Receipt)> {
    let done = db.transact_with_receipt(|tx| run(&mut state, tx));
    Step::Done(done.map(|(out, receipt)| (state, out, receipt)))
}

/// A transaction whose closure has an error type of its own.
pub(super) async fn with_own_error<T: Send + 'static, E: From<Error> + Send + 'static>(
    db: &AsyncDb,
    mut run: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, E> + Send + 'static,
) -> std::result::Result<T, E> {
    let own = Arc::new(Mutex::new(None));
    let of_run = Arc::clone(&own);
    let lock = |own: &Mutex<Option<E>>, error: Option<E>| {
        // Dropped after the lock is released, because it is the program's.
        std::mem::replace(&mut *own.lock().expect("nothing panics while it is set"), error)
    };
    let done = db
        .transact(move |tx| {
            drop(lock(&of_run, None));
            run(tx).map_err(|error| {
                tx.wants_to_run_again().unwrap_or_else(|| {
                    drop(lock(&of_run, Some(error)));
                    Error::invalid("the closure of the transaction failed")
                })
            })
        })
        .await;
    done.map_err(|error| lock(&own, None).unwrap_or_else(|| E::from(error)))
}
