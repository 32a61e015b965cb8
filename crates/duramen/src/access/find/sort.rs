//! Sorts records by their keys in a bounded memory.
//!
//! Owns the records: in memory up to the bound, beyond it as sorted runs in a temporary file, which are
//! merged as they are read. Of a sort with a limit only so many records are kept. Records with equal keys
//! are in no order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::spill::{BLOCK_BYTES, Run, RunReader, SpillFile, SpillPlace};
use crate::store::error::Result;

/// How much a record takes beside its bytes.
const RECORD_BYTES: usize = 64;

/// The most runs that are merged at once: each has a block in memory.
const RUNS_MAX: usize = 64;

/// Memory of a sort, unless set otherwise.
pub const SORT_BYTES_DEFAULT: usize = 64 * 1024 * 1024;

/// The least memory of a sort: the blocks of two runs.
pub const SORT_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// Records that are being collected.
pub(super) struct Sorter {
    place: SpillPlace,
    memory_bytes: usize,
    limit: usize,
    kept: Kept,
    used_bytes: usize,
    spill: Option<SpillFile>,
    runs: Vec<Run>,
}

enum Kept {
    /// As they came.
    All(Vec<Record>),
    /// The first ones, the last of them on top.
    First(BinaryHeap<Record>),
}

/// A key and its payload; ordered by the key.
type Record = (Box<[u8]>, Box<[u8]>);

impl Sorter {
    /// Keeps the first `limit` records.
    pub(super) fn new(place: SpillPlace, memory_bytes: usize, limit: Option<u64>) -> Sorter {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        Sorter {
            place,
            memory_bytes: memory_bytes.max(SORT_BYTES_MIN),
            limit: limit.unwrap_or(usize::MAX),
            kept: if limit.is_some() { Kept::First(BinaryHeap::new()) } else { Kept::All(Vec::new()) },
            used_bytes: 0,
            spill: None,
            runs: Vec::new(),
        }
    }

    /// Whether a record with this key would be kept. A caller need not make the payload of others.
    pub(super) fn wants(&self, key: &[u8]) -> bool {
        match &self.kept {
            Kept::First(heap) if heap.len() >= self.limit => {
                heap.peek().is_some_and(|(last, _)| key < last.as_ref())
            }
            _ => true,
        }
    }

    pub(super) fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        if !self.wants(key) {
            return Ok(());
        }
        self.used_bytes += key.len() + payload.len() + RECORD_BYTES;
        let record = (key.into(), payload.into());
        match &mut self.kept {
            Kept::All(records) => records.push(record),
            Kept::First(heap) => {
                heap.push(record);
                if heap.len() > self.limit {
                    let (key, payload) = heap.pop().expect("one was just pushed");
                    self.used_bytes -= key.len() + payload.len() + RECORD_BYTES;
                }
            }
        }
        if self.used_bytes > self.memory_bytes { self.write_run() } else { Ok(()) }
    }

    /// The records in order.
    pub(super) fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            return Ok(Sorted {
                left: self.limit,
                records: Records::Kept(self.take().into_iter()),
                current: None,
            });
        }
        if self.used_bytes > 0 {
            self.write_run()?;
        }
        let spill = self.spill.take().expect("there are runs");
        let merge = Merge::new(spill, &self.runs)?;
        Ok(Sorted { left: self.limit, records: Records::Merged(Box::new(merge)), current: None })
    }

    /// What is in memory, sorted.
    fn take(&mut self) -> Vec<Record> {
        self.used_bytes = 0;
        // The first of all records need not be among the first of any part: from now on all are kept.
        let mut records = match std::mem::replace(&mut self.kept, Kept::All(Vec::new())) {
            Kept::All(records) => records,
            Kept::First(heap) => heap.into_vec(),
        };
        records.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        records
    }

    fn write_run(&mut self) -> Result<()> {
        let mut records = self.take();
        records.truncate(self.limit);
        let spill = match &mut self.spill {
            Some(spill) => spill,
            None => self.spill.insert(SpillFile::create(&self.place, self.memory_bytes)?),
        };
        let run = spill.write(records.iter().map(|(key, payload)| (key.as_ref(), payload.as_ref())))?;
        self.runs.push(run);
        let runs_max = RUNS_MAX.min(self.memory_bytes / BLOCK_BYTES);
        if self.runs.len() < runs_max {
            return Ok(());
        }
        drop(records);
        let mut merged = SpillFile::create(&self.place, self.memory_bytes)?;
        let spill = self.spill.take().expect("there are runs");
        let mut merge = Merge::new(spill, &self.runs)?;
        let mut run = merged.begin();
        let mut left = self.limit;
        while left > 0 && merge.advance()? {
            let (key, payload) = merge.current();
            run.push(key, payload)?;
            left -= 1;
        }
        self.runs = vec![run.end()?];
        self.spill = Some(merged);
        Ok(())
    }
}

/// Records in order, lent one at a time.
pub(super) struct Sorted {
    records: Records,
    left: usize,
    current: Option<Record>,
}

enum Records {
    Kept(std::vec::IntoIter<Record>),
    Merged(Box<Merge>),
}

impl Sorted {
    /// The next key and payload.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match &mut self.records {
            Records::Kept(records) => {
                self.current = records.next();
                Ok(self.current.as_ref().map(|(key, payload)| (key.as_ref(), payload.as_ref())))
            }
            Records::Merged(merge) => Ok(if merge.advance()? { Some(merge.current()) } else { None }),
        }
    }

    /// Whether a temporary file is read.
    pub(super) fn is_spilled(&self) -> bool {
        matches!(self.records, Records::Merged(_))
    }
}

/// Runs as one.
struct Merge {
    spill: SpillFile,
    readers: Vec<RunReader>,
    /// The keys of the readers' current records. The first is the merge's.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    current: Option<usize>,
}

impl Merge {
    fn new(spill: SpillFile, runs: &[Run]) -> Result<Merge> {
        let mut readers: Vec<RunReader> = runs.iter().map(|run| RunReader::new(*run)).collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (at, reader) in readers.iter_mut().enumerate() {
            if reader.advance(&spill)? {
                heads.push(Reverse((reader.key().to_vec(), at)));
            }
        }
        Ok(Merge { spill, readers, heads, current: None })
    }

    fn advance(&mut self) -> Result<bool> {
        if let Some(at) = self.current.take() {
            let mut head = self.heads.peek_mut().expect("the current record is the first head");
            let Reverse((key, _)) = &mut *head;
            if self.readers[at].advance(&self.spill)? {
                key.clear();
                key.extend_from_slice(self.readers[at].key());
            } else {
                drop(std::collections::binary_heap::PeekMut::pop(head));
            }
        }
        self.current = self.heads.peek().map(|Reverse((_, at))| *at);
        Ok(self.current.is_some())
    }

    fn current(&self) -> (&[u8], &[u8]) {
        let reader = &self.readers[self.current.expect("it was advanced to")];
        (reader.key(), reader.payload())
    }
}
