//! Rows of an import, stored in a database that is local or served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::{Code, Durability, Error, LocalReads as _, RowBatch, Schema};
use duramen_client::FailedBatch;
use duramen_proto::{collection, v1};

use super::Writing;
use super::served::{Served, asked, level_of, seq_of};
use crate::failure::{Failure, Result};

/// A batch that a server could not take, or to which it gave no answer, is sent again after this time, unless
/// the server names another one, and for at most so long.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_WITHIN: Duration = Duration::from_secs(30);

/// A batch of so many rows has a request id: what a server remembers of it has a limit.
const ROWS_OF_REQUESTS: usize = 1_000;

/// Rows for a collection, to be stored in one transaction.
pub(crate) struct RowsToStore<'a> {
    pub(crate) collection: &'a str,
    pub(crate) rows: &'a RowBatch,
    /// The collection is created, or gets the columns that it lacks.
    pub(crate) ensure: Option<&'a Schema>,
    /// Documents with the same keys are replaced.
    pub(crate) replace: bool,
    pub(crate) level: Durability,
    /// Set once the command is to end: nothing is sent again then.
    pub(crate) stop: &'a AtomicBool,
}

/// What has become of rows.
pub(crate) enum StoredRowBatch {
    /// All are stored, by the commit of this number.
    Committed(u64),
    /// Nothing is: this row has a key that is there already.
    KeyExists(usize),
}

impl Writing {
    /// The collection of this name, if there is one.
    pub(crate) fn find_schema(&self, name: &str) -> Result<Option<Schema>> {
        let found = match self {
            Writing::Local(db) => db.documents(name).schema(),
            Writing::Served(served) => served.definition(name),
        };
        match found {
            Ok(schema) => Ok(Some(schema)),
            Err(error) if error.code() == Code::NoSuchTree => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a collection, or gives it the columns that it lacks. Returns the number of the commit.
    pub(crate) fn ensure(&self, schema: &Schema, level: Durability) -> Result<u64> {
        match self {
            Writing::Local(db) => {
                let (_, receipt) = db.transact_with_receipt(|tx| tx.ensure(schema))?;
                Ok(receipt.seq().0)
            }
            Writing::Served(served) => served.ensure(schema, level),
        }
    }

    /// Stores rows.
    pub(crate) fn store(&self, batch: &RowsToStore<'_>) -> Result<StoredRowBatch> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.store(batch),
        };
        let mut in_the_way = None;
        let stored = db.transact_with_receipt(|tx| {
            if let Some(schema) = batch.ensure {
                tx.ensure(schema)?;
            }
            let documents = tx.documents(batch.collection);
            if batch.replace {
                return documents.put_rows(batch.rows);
            }
            in_the_way = documents.insert_rows(batch.rows)?;
            match in_the_way {
                None => Ok(()),
                Some(_) => Err(duramen::Error::new(Code::AlreadyExists, "a key exists already")),
            }
        });
        match (stored, in_the_way) {
            (Ok(((), receipt)), _) => Ok(StoredRowBatch::Committed(receipt.seq().0)),
            (Err(error), Some(index)) if error.code() == Code::AlreadyExists => {
                Ok(StoredRowBatch::KeyExists(index))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// How often the log was synced since the database was opened, by all its writers; `None` if a server
    /// does not say.
    pub(crate) fn sync_count(&self) -> Option<u64> {
        match self {
            Writing::Local(db) => Some(db.stats().log.sync_count),
            Writing::Served(served) => {
                let stats = served.stats().ok()?;
                stats.timings.iter().find(|of| of.part == "sync").map(|of| of.count)
            }
        }
    }
}

impl Served {
    fn ensure(&self, schema: &Schema, level: Durability) -> Result<u64> {
        let ensure = v1::operation::Kind::Ensure(collection::ensure(schema));
        Ok(seq_of(asked(self.client.batch(batch_of(vec![ensure], level)))?.receipt))
    }

    fn store(&self, batch: &RowsToStore<'_>) -> Result<StoredRowBatch> {
        let ensure = batch.ensure.map(|schema| v1::operation::Kind::Ensure(collection::ensure(schema)));
        let before = usize::from(ensure.is_some());
        let put = |index| {
            let mut stored = Vec::new();
            batch.rows.write_document(index, &mut stored)?;
            let put = v1::PutDocument {
                collection: batch.collection.to_owned(),
                document: Some(v1::Document { form: Some(v1::document::Form::Msgpack(stored.into())) }),
                want_before: false,
            };
            Ok(if batch.replace { v1::operation::Kind::Put(put) } else { v1::operation::Kind::Insert(put) })
        };
        let rows = (0..batch.rows.len()).map(put);
        let operations = ensure.into_iter().map(Ok).chain(rows).collect::<Result<Vec<_>>>()?;
        let mut request = batch_of(operations, batch.level);
        if batch.rows.len() <= ROWS_OF_REQUESTS
            && let Some(write) = &mut request.write
        {
            write.request_id = self.client.new_request_id()?;
        }
        let failed = match self.until_it_is_taken(request, batch.stop) {
            Ok(reply) => return Ok(StoredRowBatch::Committed(seq_of(reply.receipt))),
            Err(failed) => failed,
        };
        let row = failed.operation.and_then(|number| number.checked_sub(1 + before));
        match (row, failed.error.code()) {
            (Some(row), Code::AlreadyExists) if row < batch.rows.len() => Ok(StoredRowBatch::KeyExists(row)),
            (_, Code::WriteConflict) => Err(Failure::from(failed.error).hinted(
                "other writers change what its rows need: use --batch 256, which always ends, and --threads 1",
            )),
            _ => asked(Err(failed.error)),
        }
    }

    /// Sends a batch again while the server cannot take it, which changes nothing, and while it gives no
    /// answer, if the batch has a request id.
    fn until_it_is_taken(
        &self,
        request: v1::BatchRequest,
        stop: &AtomicBool,
    ) -> std::result::Result<v1::BatchReply, FailedBatch> {
        let until = Instant::now() + AGAIN_WITHIN;
        let has_id = request.write.as_ref().is_some_and(|write| !write.request_id.is_empty());
        let mut is_in_doubt = false;
        loop {
            let failed = match self.client.try_batch(request.clone()) {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let is_transient = match failed.error.code() {
                Code::Overloaded | Code::DeadlinePassed | Code::Draining | Code::WriteConflict => true,
                Code::OutcomeUnknown => has_id,
                _ => false,
            };
            is_in_doubt |= failed.error.code() == Code::OutcomeUnknown;
            let after = failed.retry_after.unwrap_or(AGAIN_AFTER).min(AGAIN_WITHIN);
            let is_over = stop.load(Ordering::Relaxed) || Instant::now() + after > until;
            if !is_transient || is_over {
                return Err(if is_in_doubt { in_doubt(failed) } else { failed });
            }
            thread::sleep(after);
        }
    }
}

/// The failure of a batch of which an earlier try may have been committed. A key that exists tells that none
/// was: the id of a committed one would have been known.
fn in_doubt(failed: FailedBatch) -> FailedBatch {
    if let Code::AlreadyExists | Code::OutcomeUnknown = failed.error.code() {
        return failed;
    }
    let what = format!("the batch may or may not be stored: {}", failed.error.message());
    let error = Error::new(Code::OutcomeUnknown, what).with_hint(failed.error.hint());
    FailedBatch { error, ..failed }
}

fn batch_of(operations: Vec<v1::operation::Kind>, level: Durability) -> v1::BatchRequest {
    let operation = |kind| v1::Operation { kind: Some(kind) };
    v1::BatchRequest {
        write: Some(v1::Write { level: level_of(level).into(), ..v1::Write::default() }),
        operations: operations.into_iter().map(operation).collect(),
        ..v1::BatchRequest::default()
    }
}

#[cfg(test)]
mod tests {
    //! An import that says that nothing is stored is repeated, and would store rows twice.
    use super::*;

    #[test]
    fn a_batch_that_was_in_doubt_stays_so_unless_a_later_try_shows_that_it_was_not_committed() {
        let after_doubt = |code| {
            let error = Error::new(code, "why").with_hint("what to do");
            in_doubt(FailedBatch { error, operation: Some(2), retry_after: None })
        };
        for code in [Code::Overloaded, Code::Draining, Code::Forbidden, Code::OutcomeUnknown] {
            let failed = after_doubt(code);
            assert_eq!(
                (failed.error.code(), failed.error.hint().as_ref()),
                (Code::OutcomeUnknown, "what to do")
            );
        }
        assert_eq!(after_doubt(Code::AlreadyExists).error.code(), Code::AlreadyExists);
    }
}
