//! Writes what was read of a corrupt database into the new one: trees under new ids, entries in batches.
//!
//! It owns what happens to a value that cannot be read: its entry is listed as lost, and the others are kept.
//! Memory is bounded by one batch, one value, and a limited number of missing keys. A longer value is copied
//! in pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::found::uncertain_id;
use super::losses::{Losses, Noted};
use super::{Caller, Keep, Made, RepairProgress, UncertainTree, nameless};
use crate::alarm::invariant;
use crate::catalog::{CATALOG, CatalogRow};
use crate::commit::ENTRY_BYTES;
use crate::data_file::PagePointer;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::TreeId;
use crate::options::Durability;
use crate::repair::{LostRange, Meets, Source, Unreadable};
use crate::transaction::Transaction;
use crate::tree::{BigReader, BigRef, KeyRange, ReducerSpec, StoredValue};

/// The level of each commit. Later commits build on earlier ones, and all together must be whole. A group
/// without room must fail the commit, and not be dropped after it returned.
pub(super) const LEVEL: Durability = Durability::Process;

/// Bytes of entries in one transaction.
const BATCH_BYTES: usize = 256 * 1024;

/// Larger values are not held in memory.
const HELD_BYTES_MAX: u64 = 1024 * 1024;

/// Limit in bytes for keys whose values could not be read, kept until something replaces them. A key beyond
/// it is listed as lost at once, even if a later commit replaces its value.
const MISSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The cost of such a key besides its bytes.
const MISSED_KEY_BYTES: usize = 64;

/// The new database while it is filled.
pub(super) struct Writing<'a> {
    pub(super) source: &'a Source,
    pub(super) into: &'a Engine,
    pub(super) caller: Caller<'a>,
    /// The trees in it, by their old ids.
    pub(super) made: BTreeMap<TreeId, Made>,
    batch: Vec<Change>,
    batch_bytes: usize,
    done: RepairProgress,
    pub(super) noted: Noted,
    /// Nodes that cannot be read.
    pub(super) unreadable: Unreadable,
    /// Keys whose values could not be read, until something replaces them.
    missed: BTreeMap<TreeId, Missed>,
    missed_bytes: usize,
    /// Trees with uncertain entries, by the old id of the tree that these are of.
    pub(super) uncertain: BTreeMap<TreeId, UncertainTree>,
    /// Trees without a name that may have been dropped.
    pub(super) doubtful: Vec<UncertainTree>,
}

/// Keys of one tree whose values could not be read.
struct Missed {
    keys: BTreeSet<Vec<u8>>,
    /// The reason for the first of them.
    why: String,
}

/// A pending change. Without a value it is a delete.
struct Change {
    /// The old id of the tree.
    from: TreeId,
    tree: TreeId,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Change {
    fn apply(&self, tx: &mut Transaction) -> Result<()> {
        match &self.value {
            Some(value) => tx.put(self.tree, &self.key, value),
            None => tx.delete(self.tree, &self.key),
        }
    }
}

impl<'a> Writing<'a> {
    pub(super) fn new(source: &'a Source, into: &'a Engine, caller: Caller<'a>) -> Writing<'a> {
        Writing {
            source,
            into,
            caller,
            made: BTreeMap::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            done: RepairProgress::default(),
            noted: Noted::default(),
            missed: BTreeMap::new(),
            missed_bytes: 0,
            unreadable: Unreadable::default(),
            uncertain: BTreeMap::new(),
            doubtful: Vec::new(),
        }
    }

    /// The new database.
    pub(super) fn engine(&self) -> &'a Engine {
        self.into
    }

    /// Tells the caller that it goes on.
    pub(super) fn tell(&mut self) -> Result<()> {
        (self.caller.progress)(&self.done)
    }

    /// Sets the number of entries to read.
    pub(super) fn expect(&mut self, entries: u64) {
        self.done.of = entries;
    }

    pub(super) fn lose(&mut self, range: LostRange) {
        self.noted.add(range);
    }

    /// Whether entries of the tree with this old id are copied.
    pub(super) fn takes(&self, id: TreeId) -> bool {
        self.made.get(&id).is_some_and(|made| made.takes)
    }

    /// Whether the tree with this old id was created, or is not wanted.
    pub(super) fn knows(&self, id: TreeId) -> bool {
        self.made.contains_key(&id)
    }

    /// Creates a tree, if it is wanted.
    pub(super) fn begin_tree(&mut self, name: &str, row: &CatalogRow) -> Result<()> {
        let CatalogRow { id, spec, features } = row.clone();
        let takes = match (self.caller.keep)(name) {
            Keep::Nothing => {
                let made = Made { name: name.to_owned(), id: TreeId(0), spec, takes: false };
                self.made.insert(id, made);
                return Ok(());
            }
            keep => keep == Keep::Entries,
        };
        self.make(id, name.to_owned(), (spec, features), takes)
    }

    /// Creates a tree whose name is lost, and returns its new name. Its reducer is lost with the name.
    pub(super) fn begin_nameless(&mut self, id: TreeId) -> Result<String> {
        let is_taken = |name: &str| self.made.values().any(|made| made.name == name);
        let known = self.source.trees.uncertain.get(&id);
        let name = nameless(id, known.filter(|name| self.wants(Some(name))), &is_taken);
        self.make(id, name.clone(), (None, Features::NONE), true)?;
        Ok(name)
    }

    pub(super) fn make(
        &mut self,
        from: TreeId,
        name: String,
        (spec, features): (Option<ReducerSpec>, Features),
        takes: bool,
    ) -> Result<()> {
        self.flush()?;
        let create = |tx: &mut Transaction| tx.create_tree_as_known(&name, spec.clone(), features);
        let (id, _) = self.into.transact(LEVEL, create)?;
        self.made.insert(from, Made { name, id, spec, takes });
        Ok(())
    }

    /// Drops the tree with this old id.
    pub(super) fn drop_tree(&mut self, id: TreeId) -> Result<()> {
        self.flush()?;
        let Some(made) = self.made.get_mut(&id) else { return Ok(()) };
        made.takes = false;
        if std::mem::take(&mut made.id) != TreeId(0) {
            let name = made.name.clone();
            self.into.transact(LEVEL, |tx| tx.drop_tree(&name))?;
        }
        self.noted.forget(&made.name);
        if let Some(uncertain) = self.uncertain.remove(&id) {
            self.made.remove(&uncertain_id(id));
            self.into.transact(LEVEL, |tx| tx.drop_tree(&uncertain.tree))?;
        }
        if let Some(missed) = self.missed.remove(&id) {
            self.missed_bytes -= missed.keys.iter().map(|key| missed_bytes(key)).sum::<usize>();
        }
        Ok(())
    }

    /// The receiver of entries for the tree with this old id.
    pub(super) fn of_tree(&mut self, id: TreeId) -> OfTree<'_, 'a> {
        OfTree { writing: self, id }
    }

    /// Applies a change of the log.
    pub(super) fn change(&mut self, id: TreeId, key: &[u8], value: Option<StoredValue<'_>>) -> Result<()> {
        if !self.takes(id) {
            return Ok(());
        }
        self.replaced(id, key);
        if self.uncertain.contains_key(&id) {
            self.push(uncertain_id(id), key, None)?;
        }
        let Some(value) = value else { return self.push(id, key, None) };
        if let Some(why) = self.put(id, key, value)? {
            // The checkpoint's value at this key is outdated.
            self.push(id, key, None)?;
            self.miss(id, key, why);
        }
        Ok(())
    }

    /// Notes a key whose value could not be read. It is lost unless something replaces it.
    fn miss(&mut self, id: TreeId, key: &[u8], why: String) {
        let bytes = missed_bytes(key);
        if self.missed_bytes + bytes > MISSED_BYTES_MAX {
            return self.lose_entry(id, key, &why);
        }
        let missed = self.missed.entry(id).or_insert_with(|| Missed { keys: BTreeSet::new(), why });
        if missed.keys.insert(key.to_vec()) {
            self.missed_bytes += bytes;
        }
    }

    /// Forgets a missing key: a later change replaces or deletes it.
    fn replaced(&mut self, id: TreeId, key: &[u8]) {
        if self.missed.get_mut(&id).is_some_and(|missed| missed.keys.remove(key)) {
            self.missed_bytes -= missed_bytes(key);
        }
    }

    /// Puts an entry. Returns the reason if its value cannot be read.
    pub(super) fn put(&mut self, id: TreeId, key: &[u8], value: StoredValue<'_>) -> Result<Option<String>> {
        if !value.big {
            self.push(id, key, Some(value.bytes.to_vec()))?;
            return Ok(None);
        }
        let big = match BigRef::decode(value.bytes) {
            Ok(big) => big,
            Err(error) => return Ok(Some(error.message().to_owned())),
        };
        let is_whole = self.made.get(&id).is_some_and(|made| made.spec.is_some());
        if big.len > HELD_BYTES_MAX && !is_whole {
            return self.put_in_pieces(id, key, &big);
        }
        match big.read(&self.source.pages) {
            Ok(bytes) => self.push(id, key, Some(bytes)).map(|()| None),
            Err(error) => Ok(Some(error.message().to_owned())),
        }
    }

    fn put_in_pieces(&mut self, id: TreeId, key: &[u8], big: &BigRef) -> Result<Option<String>> {
        self.flush()?;
        let Some(made) = self.made.get(&id) else { return Ok(None) };
        let mut failed = None;
        let written = self.into.transact(LEVEL, |tx| {
            let reader = BigReader::open(&self.source.pages, big).inspect_err(|error| {
                failed = Some(error.message().to_owned());
            })?;
            let mut told = NotingReader { reader, failed: &mut failed };
            let len = tx.put_stream(made.id, key, &mut told)?;
            if len != big.len {
                failed = Some(format!("a value of {len} bytes, want {}", big.len));
                return Err(Error::new(Code::CorruptData, "the value is cut short"));
            }
            Ok(len)
        });
        match (written, failed) {
            (_, Some(why)) => Ok(Some(why)),
            (written, None) => {
                self.done.bytes += written?.0;
                self.done.entries += 1;
                (self.caller.progress)(&self.done)?;
                Ok(None)
            }
        }
    }

    fn push(&mut self, from: TreeId, key: &[u8], value: Option<Vec<u8>>) -> Result<()> {
        let Some(made) = self.made.get(&from) else { return Ok(()) };
        invariant!(made.id != CATALOG, "entries of {:?} go into a tree of their own", made.name);
        self.batch_bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.batch.push(Change { from, tree: made.id, key: key.to_vec(), value });
        let memory_bytes = self.batch_bytes + self.batch.len() * ENTRY_BYTES;
        if memory_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Commits the pending changes.
    pub(super) fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            invariant!(self.batch_bytes == 0, "an empty batch has no {} bytes", self.batch_bytes);
            return (self.caller.progress)(&self.done);
        }
        let all = |tx: &mut Transaction| batch.iter().try_for_each(|change| change.apply(tx));
        match self.into.transact(LEVEL, all) {
            Ok(_) => {}
            Err(error) if is_of_an_entry(&error) => self.one_by_one(&batch)?,
            Err(error) => return Err(error),
        }
        self.done.bytes += std::mem::take(&mut self.batch_bytes) as u64;
        self.done.entries += batch.len() as u64;
        (self.caller.progress)(&self.done)
    }

    /// Commits a batch entry by entry. A reducer refuses one of them, and the others must not be lost with
    /// it.
    fn one_by_one(&mut self, batch: &[Change]) -> Result<()> {
        // Keep the outcome of the last change to each entry: the same batch may replace a refused one.
        let mut refused = BTreeMap::new();
        for change in batch {
            let entry = (change.from, &change.key);
            match self.into.transact(LEVEL, |tx| change.apply(tx)) {
                Ok(_) => drop(refused.remove(&entry)),
                Err(error) if is_of_an_entry(&error) => {
                    // The checkpoint's value is older than the lost one.
                    self.into.transact(LEVEL, |tx| tx.delete(change.tree, &change.key))?;
                    refused.insert(entry, error.message().to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        refused.into_iter().for_each(|((id, key), why)| self.miss(id, key, why));
        Ok(())
    }

    fn lose_entry(&mut self, id: TreeId, key: &[u8], why: &str) {
        let tree = self.made.get(&id).map_or_else(String::new, |made| made.name.clone());
        let at = Some(key.to_vec());
        self.lose(LostRange { tree, after: at.clone(), before: at, entries: Some(1), why: why.to_owned() });
    }

    /// Returns the names of the trees whose own names are lost. If the log dropped names that may have been
    /// theirs, any of them may be dropped: all are uncertain then.
    pub(super) fn settle_nameless(
        &mut self,
        nameless: Vec<(TreeId, String)>,
        unknown_drops: u64,
    ) -> Result<Vec<String>> {
        self.flush()?;
        if unknown_drops == 0 {
            return Ok(nameless.into_iter().map(|(_, name)| name).collect());
        }
        let state = self.into.snapshot()?;
        for (id, tree) in nameless {
            let Some(made) = self.made.get(&id) else { continue };
            let entries = state.count(made.id, &KeyRange::all())?;
            let of = format!("tree-{id}");
            self.doubtful.push(UncertainTree { of, tree, entries, unreadable: 0 });
        }
        Ok(Vec::new())
    }

    /// All losses.
    pub(super) fn into_losses(mut self) -> Result<Losses> {
        self.flush()?;
        for (id, Missed { keys, why }) in std::mem::take(&mut self.missed) {
            keys.iter().for_each(|key| self.lose_entry(id, key, &why));
            self.missed_bytes -= keys.iter().map(|key| missed_bytes(key)).sum::<usize>();
        }
        let left = self.missed_bytes;
        invariant!(left == 0, "every missing key is listed, and {left} bytes of them are left");
        Ok(self.noted.finish())
    }
}

fn missed_bytes(key: &[u8]) -> usize {
    key.len() + MISSED_KEY_BYTES
}

/// Whether an error concerns one entry and not the database.
fn is_of_an_entry(error: &Error) -> bool {
    matches!(error.code(), Code::InvalidArgument | Code::ReducerPanicked)
}

/// Receives the entries of one tree.
pub(super) struct OfTree<'w, 'a> {
    writing: &'w mut Writing<'a>,
    id: TreeId,
}

impl Meets for OfTree<'_, '_> {
    fn entry(&mut self, key: &[u8], value: StoredValue<'_>) -> Result<()> {
        if let Some(why) = self.writing.put(self.id, key, value)? {
            self.writing.done.entries += 1;
            self.writing.lose_entry(self.id, key, &why);
        }
        Ok(())
    }

    fn unreadable(&mut self, at: &PagePointer) {
        self.writing.unreadable.add(at);
    }

    fn lost(&mut self, range: LostRange) -> Result<()> {
        let entries = &mut self.writing.done.entries;
        *entries = entries.saturating_add(range.entries.unwrap_or(0));
        let tree = self.writing.made.get(&self.id).map_or_else(String::new, |made| made.name.clone());
        self.writing.lose(LostRange { tree, ..range });
        Ok(())
    }
}

/// A reader of a value that notes its failure.
struct NotingReader<'t> {
    reader: BigReader,
    failed: &'t mut Option<String>,
}

impl Read for NotingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer).inspect_err(|error| *self.failed = Some(error.to_string()))
    }
}
