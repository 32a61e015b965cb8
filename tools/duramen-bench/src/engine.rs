//! The interface of every engine: durable writes, reads from one state, a sum over a range.
//!
//! Owns the two traits that every rival implements in its own file, and no measurements. Implementations
//! promise full durability: a call that writes returns only when its rows survive a power cut, as far as that
//! engine can promise it.

use std::path::Path;

use duramen_disk::memory::mixed;
use xxhash_rust::xxh3::xxh3_64;

use crate::data::Key;

/// Any error of an engine.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of every call here.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The requirements for opening a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Collections in it, numbered from 0.
    pub collections: usize,
    /// Whether sums over ranges are queried: an engine that can maintain them may do so.
    pub summed: bool,
    /// The memory that the engine may take, if it is bounded; else that of its setting.
    pub memory_bytes: Option<usize>,
}

impl Shape {
    /// One collection of plain rows.
    pub(crate) const ROWS: Shape = Shape { collections: 1, summed: false, memory_bytes: None };
    /// One collection whose rows are summed.
    pub(crate) const SUMMED: Shape = Shape { collections: 1, summed: true, memory_bytes: None };
    /// The five collections of W2b.
    pub(crate) const FIVE: Shape = Shape { collections: 5, summed: false, memory_bytes: None };
}

/// One record to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value; the first eight bytes are a little-endian `i64`.
    pub value: &'a [u8],
}

/// What a transaction writes to one collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The collection.
    pub collection: usize,
    /// The rows.
    pub rows: &'a [Row<'a>],
}

/// The location of a record of W2b.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The collection.
    pub collection: usize,
    /// The key.
    pub key: Key,
}

/// Keys from `from` on, before `to`, at most `limit` of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    /// The first key.
    pub from: &'a [u8],
    /// The first key after the range; `None` for no end.
    pub to: Option<&'a [u8]>,
    /// Rows at most.
    pub limit: usize,
}

impl Range<'_> {
    /// Every row.
    pub(crate) const ALL: Range<'static> = Range { from: &[], to: None, limit: usize::MAX };

    /// Whether a key that is not before `from` lies in the range.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        self.to.is_none_or(|to| key < to)
    }
}

/// Count and sum of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Total {
    /// Rows.
    pub count: u64,
    /// Sum of their numbers.
    pub sum: i128,
}

impl Total {
    /// As a number for comparison.
    pub(crate) fn answer(&self) -> u64 {
        mixed(self.count ^ xxh3_64(&self.sum.to_le_bytes()))
    }
}

/// Receives rows one after the other.
pub(crate) type See<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// The number of checkpoints so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoints {
    /// Begun.
    pub begun: u64,
    /// Durable checkpoints.
    pub ended: u64,
}

impl Checkpoints {
    /// Whether one has begun and not ended.
    pub(crate) fn are_running(self) -> bool {
        self.begun > self.ended
    }
}

/// An open database. Dropped without [`Engine::close`] it is left as it is.
pub(crate) trait Engine: Send + Sync {
    /// A session for one thread: a connection if the engine has such.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// The engine's own counters: syncs, checkpoints and the like.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Checkpoints, if the engine reports them.
    fn checkpoints(&self) -> Option<Checkpoints> {
        None
    }

    /// A remark for the reader of this run's figures.
    fn note(&self) -> Option<String> {
        None
    }

    /// Closes as a program would that ends in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The operations of one thread.
pub(crate) trait Session {
    /// Writes new rows to a collection in one durable transaction.
    fn put(&mut self, collection: usize, rows: &[Row<'_>]) -> Result<()>;

    /// Writes rows to several collections in one durable transaction, if the engine is measured so.
    fn put_parts(&mut self, parts: &[Part<'_>]) -> Result<()> {
        match parts {
            [part] => self.put(part.collection, part.rows),
            _ => Err("not measured with several collections in a transaction".into()),
        }
    }

    /// Reads three records and adds one to the number of the first two, in one durable, serialisable
    /// transaction.
    ///
    /// Retries after each conflict. Returns the number of conflicts.
    fn update(&mut self, places: &[Place; 3]) -> Result<u64>;

    /// Looks up keys of collection 0 in one state, and shows each value that exists.
    fn gets(&mut self, keys: &[Key], see: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Shows the rows of a range in the order of their keys.
    fn scan(&mut self, collection: usize, range: Range<'_>, see: &mut See<'_>) -> Result<()>;

    /// A second way to scan, if the engine has one worth comparing. Returns whether it has.
    fn scan_otherwise(&mut self, _range: Range<'_>, _see: &mut See<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Count and sum of collection 0 from one key to before another: by reading every row, unless the engine
    /// overrides it.
    fn total(&mut self, from: &[u8], to: &[u8]) -> Result<Total> {
        let mut total = Total::default();
        self.scan(0, Range { from, to: Some(to), limit: usize::MAX }, &mut |_, value| {
            total.count += 1;
            total.sum += i128::from(number_of(value));
        })?;
        Ok(total)
    }
}

/// Opens or creates an engine.
pub(crate) type Open = fn(&Path, Shape) -> Result<Box<dyn Engine>>;

/// Which workloads an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// W1 and W2.
    Commits,
    /// W1, W2 and W2b.
    Updates,
    /// All.
    All,
}

/// The description of an engine in every result.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its name in commands and tables.
    pub name: &'static str,
    /// The fastest durable setting, with the reason.
    pub setting: &'static str,
    /// Why it is left out of verdicts: acknowledged data can be lost.
    pub unsafe_because: Option<&'static str>,
    /// The workloads that it runs.
    pub scope: Scope,
    /// Whether its space is compared with B+trees.
    pub is_tree: bool,
    /// Opens or creates a database in an existing directory.
    pub open: Open,
}

/// The number in the first eight bytes of a value.
pub(crate) fn number_of(value: &[u8]) -> i64 {
    let bytes = value.first_chunk::<8>().copied().unwrap_or_default();
    i64::from_le_bytes(bytes)
}

/// A value with its number increased by one.
pub(crate) fn raised(value: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(value);
    let number = number_of(value).wrapping_add(1);
    if let Some(bytes) = into.first_chunk_mut::<8>() {
        *bytes = number.to_le_bytes();
    }
}
