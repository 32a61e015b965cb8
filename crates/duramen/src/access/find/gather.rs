//! Reading all documents that a query finds into a table of groups, with one thread or several.
//!
//! Each thread has a filter and a table of its own, and takes the next range of the scan when it has read
//! one. Between two calls there are no threads, so that a caller may stop at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::filter::{Filter, Read};
use super::group_table::{Groups, Table};
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::store::error::Result;
use crate::store::side_by_side;

/// Threads are started only in a call that has so many documents for each: fewer are read faster by one.
const READS_PER_THREAD_MIN: u64 = 4_096;

/// Documents after which a thread looks whether another one has failed.
const LOOK_READS: u64 = 1_024;

/// Documents that are being read into groups.
pub(super) struct Gathering {
    readers: Vec<Reader>,
}

/// What one thread reads, and the groups of it.
struct Reader {
    documents: Filter,
    table: Table,
    is_at_end: bool,
}

impl Gathering {
    /// Reads a scan with a reader for each table. There are several only in a snapshot.
    pub(super) fn new(documents: Filter, tables: Vec<Table>) -> Gathering {
        let filters: Vec<Filter> = tables.iter().skip(1).map(|_| documents.beside()).collect();
        let readers = std::iter::once(documents)
            .chain(filters)
            .zip(tables)
            .map(|(documents, table)| Reader { documents, table, is_at_end: false })
            .collect();
        Gathering { readers }
    }

    /// How many documents were read.
    pub(super) fn read_count(&self) -> u64 {
        self.readers.iter().map(|reader| reader.documents.read_count()).sum()
    }

    /// How many threads would read now.
    pub(super) fn threads(&self) -> usize {
        self.readers.iter().filter(|reader| !reader.is_at_end).count().max(1)
    }

    /// Reads at most `read_max` documents. `true` if there are no more. After an error what was read is not
    /// complete. `state` is the same in every call.
    ///
    /// # Errors
    /// As [`FindIter::next_within`](crate::find::FindIter::next_within), and those of the aggregates.
    pub(super) fn read(&mut self, state: &dyn Readable, read_max: u64) -> Result<bool> {
        let (mut reading, mut left): (Vec<&mut Reader>, _) =
            (self.readers.iter_mut().filter(|reader| !reader.is_at_end).collect(), read_max);
        if let Some(snapshot) = state.as_snapshot()
            && reading.len() > 1
            && read_max / reading.len() as u64 >= READS_PER_THREAD_MIN
        {
            let each = read_max / reading.len() as u64;
            let shared: Vec<Mutex<&mut Reader>> = reading.drain(..).map(Mutex::new).collect();
            let has_failed = AtomicBool::new(false);
            let read = |reader: &Mutex<&mut Reader>| {
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                reader.read_beside_others(snapshot, each, &has_failed)
            };
            side_by_side(&shared.iter().collect::<Vec<_>>(), read).into_iter().collect::<Result<()>>()?;
        }
        for reader in reading {
            let before = reader.documents.read_count();
            reader.read(state, left)?;
            left -= reader.documents.read_count() - before;
        }
        Ok(self.readers.iter().all(|reader| reader.is_at_end))
    }

    /// The groups of all that was read.
    pub(super) fn finish(self) -> Result<Groups> {
        Table::finish(self.readers.into_iter().map(|reader| reader.table).collect())
    }
}

/// Sets a flag unless its thread has done its part: after an error, and after a panic.
struct SetUnlessDone<'f> {
    has_failed: &'f AtomicBool,
    is_done: bool,
}

impl Drop for SetUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Reader {
    /// Reads at most `read_max` documents, or until another reader has failed.
    fn read_beside_others(
        &mut self,
        snapshot: &Snapshot,
        read_max: u64,
        has_failed: &AtomicBool,
    ) -> Result<()> {
        let (mut left, mut part) = (read_max, SetUnlessDone { has_failed, is_done: false });
        while left > 0 && !self.is_at_end && !has_failed.load(Ordering::Relaxed) {
            let some = left.min(LOOK_READS);
            self.read(snapshot, some)?;
            left -= some;
        }
        part.is_done = true;
        Ok(())
    }

    /// Reads at most `read_max` documents.
    fn read(&mut self, state: &dyn Readable, read_max: u64) -> Result<()> {
        for _ in 0..read_max {
            match self.documents.advance(state)? {
                Read::Passed => {}
                Read::Found => {
                    let (schema, found) = self.documents.found()?;
                    self.table.add(schema, found)?;
                }
                Read::End => {
                    self.is_at_end = true;
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Two threads of which one reads everything would be one.
    use super::*;
    use crate::access::find::field_set::FieldSet;
    use crate::access::find::filter::Needs;
    use crate::access::reads::LocalReads;
    use crate::{Db, Schema, doc};

    #[test]
    fn each_reader_reads_its_part_of_a_call() {
        let db = Db::options().background(false).in_memory().unwrap();
        let rows = db.ensure(&Schema::new("rows").key(["id"])).unwrap();
        let count = 5 * READS_PER_THREAD_MIN;
        db.transact(|tx| (0..count).try_for_each(|id| tx.documents("rows").put(doc! { "id": id }))).unwrap();
        let find = rows.find([]);
        let held = find.of.hold().unwrap();
        let (entry, terms) = find.terms(held.state()).unwrap();
        let (scan, _) = find.scan(held.state(), entry, &terms).unwrap();
        assert_eq!(scan.divide(held.state().as_snapshot().unwrap(), 2).unwrap(), 2);
        let place = held.state().open_state().spill.clone();
        let table = |_| Table::new(place.clone(), 1 << 20, Vec::new(), Vec::new());
        let needs = Needs::Fields(FieldSet::default());
        let filter = Filter::new(scan, terms, needs);
        let mut gathering = Gathering::new(filter, (0..2).map(table).collect());
        let read_counts = |gathering: &Gathering| {
            gathering.readers.iter().map(|reader| reader.documents.read_count()).collect::<Vec<_>>()
        };
        let each = READS_PER_THREAD_MIN;
        for (read_max, expected) in
            [(2 * each, [each, each]), (2 * each - 1, [3 * each - 1, each]), (100, [3 * each + 99, each])]
        {
            assert!(!gathering.read(held.state(), read_max).unwrap());
            assert_eq!(read_counts(&gathering), expected);
        }
        assert!(gathering.read(held.state(), u64::MAX).unwrap());
        assert_eq!(gathering.read_count(), count);
    }
}
