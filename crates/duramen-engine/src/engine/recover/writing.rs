//! Writes what is read of a damaged database into the new one: trees by their new ids, entries in batches.
//!
//! Owns what becomes of a value that cannot be read: its entry is lost and named, the others are not. Memory is that of one batch,
//! of one value, and of a bounded number of keys that were missed; a longer value goes through in pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::losses::{Losses, Noted};
use super::{Caller, Keep, Made, RecoverProgress, nameless};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::options::Durability;
use crate::salvage::{LostRange, Meets, Source};
use crate::transaction::Transaction;
use crate::tree::{BigReader, BigRef, ReducerSpec, StoredValue};

/// What each commit waits for. A later one builds on it, and all together are said to be whole: a group that had no room must fail
/// the commit, not be dropped behind its back.
const LEVEL: Durability = Durability::Process;

/// So many bytes of entries in one transaction.
const BATCH_BYTES: usize = 256 * 1024;

/// A value of more bytes is not held in memory.
const HELD_BYTES_MAX: u64 = 1024 * 1024;

/// So many bytes of keys are held whose values could not be had, until something replaces them. A key beyond is told as lost at once,
/// also if a later commit replaces its value.
const MISSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What such a key costs besides its bytes.
const MISSED_KEY_BYTES: usize = 64;

/// The new database, as it is filled.
pub(super) struct Writing<'a> {
    source: &'a Source,
    into: &'a Engine,
    caller: Caller<'a>,
    /// The trees that are made, by the ids they had.
    made: BTreeMap<TreeId, Made>,
    batch: Vec<Change>,
    batch_bytes: usize,
    done: RecoverProgress,
    noted: Noted,
    /// Keys whose values could not be had, until something replaces them.
    missed: BTreeMap<TreeId, Missed>,
    missed_bytes: usize,
}

/// Keys of one tree whose values could not be had.
struct Missed {
    keys: BTreeSet<Vec<u8>>,
    /// Why, of the first.
    why: String,
}

/// A change on its way; without a value it is a delete.
struct Change {
    /// The id that the tree had.
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
            done: RecoverProgress::default(),
            noted: Noted::default(),
            missed: BTreeMap::new(),
            missed_bytes: 0,
        }
    }

    /// There are so many entries to read.
    pub(super) fn expect(&mut self, entries: u64) {
        self.done.of = entries;
    }

    pub(super) fn lose(&mut self, range: LostRange) {
        self.noted.add(range);
    }

    /// Whether entries of the tree that had this id are taken.
    pub(super) fn takes(&self, id: TreeId) -> bool {
        self.made.get(&id).is_some_and(|made| made.takes)
    }

    /// Whether a tree that had this id was made, or is not wanted.
    pub(super) fn knows(&self, id: TreeId) -> bool {
        self.made.contains_key(&id)
    }

    /// Makes a tree, if it is wanted.
    pub(super) fn begin_tree(&mut self, id: TreeId, name: &str, spec: Option<ReducerSpec>) -> Result<()> {
        let takes = match (self.caller.keep)(name) {
            Keep::Nothing => {
                let made = Made { name: name.to_owned(), id: TreeId(0), spec, takes: false };
                self.made.insert(id, made);
                return Ok(());
            }
            keep => keep == Keep::Entries,
        };
        self.make(id, name.to_owned(), spec, takes)
    }

    /// Makes a tree whose name is lost; returns what it is called now. Its reducer is that of a name that nobody knows: left out.
    pub(super) fn begin_nameless(&mut self, id: TreeId) -> Result<String> {
        let is_taken = |name: &str| self.made.values().any(|made| made.name == name);
        let name = nameless(id, &is_taken);
        self.make(id, name.clone(), None, true)?;
        Ok(name)
    }

    fn make(&mut self, from: TreeId, name: String, spec: Option<ReducerSpec>, takes: bool) -> Result<()> {
        self.flush()?;
        let create = |tx: &mut Transaction| tx.create_tree_as_known(&name, spec.clone());
        let (id, _) = self.into.transact(LEVEL, create)?;
        self.made.insert(from, Made { name, id, spec, takes });
        Ok(())
    }

    /// Drops the tree that had this id.
    pub(super) fn drop_tree(&mut self, id: TreeId) -> Result<()> {
        self.flush()?;
        let Some(made) = self.made.get_mut(&id) else { return Ok(()) };
        made.takes = false;
        if std::mem::take(&mut made.id) != TreeId(0) {
            let name = made.name.clone();
            self.into.transact(LEVEL, |tx| tx.drop_tree(&name))?;
        }
        self.noted.forget(&made.name);
        if let Some(missed) = self.missed.remove(&id) {
            self.missed_bytes -= missed.keys.iter().map(|key| missed_bytes(key)).sum::<usize>();
        }
        Ok(())
    }

    /// What takes the entries of the tree that had this id.
    pub(super) fn of_tree(&mut self, id: TreeId) -> OfTree<'_, 'a> {
        OfTree { writing: self, id }
    }

    /// Applies a change of the log.
    pub(super) fn change(&mut self, id: TreeId, key: &[u8], value: Option<StoredValue<'_>>) -> Result<()> {
        if !self.takes(id) {
            return Ok(());
        }
        self.replaced(id, key);
        let Some(value) = value else { return self.push(id, key, None) };
        if let Some(why) = self.put(id, key, value)? {
            // What was there before is not what is there now.
            self.push(id, key, None)?;
            self.miss(id, key, why);
        }
        Ok(())
    }

    /// The value of an entry could not be had: it is lost, unless something replaces it.
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

    /// Something stands at this key, or nothing is to stand there: what could not be had before is no loss.
    fn replaced(&mut self, id: TreeId, key: &[u8]) {
        if self.missed.get_mut(&id).is_some_and(|missed| missed.keys.remove(key)) {
            self.missed_bytes -= missed_bytes(key);
        }
    }

    /// Puts an entry; returns what keeps its value from being read, if anything does.
    fn put(&mut self, id: TreeId, key: &[u8], value: StoredValue<'_>) -> Result<Option<String>> {
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
            let mut told = Told { reader, failed: &mut failed };
            let len = tx.put_stream(made.id, key, &mut told)?;
            if len != big.len {
                failed = Some(format!("a value of {len} bytes, want {}", big.len));
                return Err(Error::new(Code::DamagedData, "the value is cut short"));
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
        self.batch_bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.batch.push(Change { from, tree: made.id, key: key.to_vec(), value });
        if self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Commits what is waiting.
    pub(super) fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
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

    /// Some entry is refused by its tree's reducer: the others are not to suffer for it.
    fn one_by_one(&mut self, batch: &[Change]) -> Result<()> {
        // Of each entry, what became of its last change: what was refused may be replaced in the same batch.
        let mut refused = BTreeMap::new();
        for change in batch {
            let entry = (change.from, &change.key);
            match self.into.transact(LEVEL, |tx| change.apply(tx)) {
                Ok(_) => drop(refused.remove(&entry)),
                Err(error) if is_of_an_entry(&error) => {
                    // What the checkpoint has there is older than what is lost.
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

    /// Takes back the trees whose names are lost where the log drops trees of which it is not known which they were: what is
    /// gone must not come back. Returns the names of those that stay.
    pub(super) fn settle_nameless(
        &mut self,
        nameless: Vec<(TreeId, String)>,
        unknown_drops: u64,
    ) -> Result<Vec<String>> {
        self.flush()?;
        if unknown_drops > 0 {
            for (id, name) in &nameless {
                self.drop_tree(*id)?;
                self.lose(LostRange {
                    tree: name.clone(),
                    after: None,
                    before: None,
                    entries: self.source.trees.roots.get(id).map(|entry| entry.count),
                    why: format!(
                        "after the checkpoint {unknown_drops} name(s) that may be among the lost ones were dropped, or given to a new tree: what was dropped may be this"
                    ),
                });
            }
            return Ok(Vec::new());
        }
        Ok(nameless.into_iter().map(|(_, name)| name).collect())
    }

    /// What is lost in all.
    pub(super) fn into_losses(mut self) -> Result<Losses> {
        self.flush()?;
        for (id, Missed { keys, why }) in std::mem::take(&mut self.missed) {
            keys.iter().for_each(|key| self.lose_entry(id, key, &why));
        }
        Ok(self.noted.finish())
    }
}

fn missed_bytes(key: &[u8]) -> usize {
    key.len() + MISSED_KEY_BYTES
}

/// Whether an error is about one entry, and not about the database.
fn is_of_an_entry(error: &Error) -> bool {
    matches!(error.code(), Code::InvalidArgument | Code::ReducerPanicked)
}

/// Takes the entries of one tree.
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

    fn lost(&mut self, range: LostRange) -> Result<()> {
        self.writing.done.entries += range.entries.unwrap_or(0);
        let tree = self.writing.made.get(&self.id).map_or_else(String::new, |made| made.name.clone());
        self.writing.lose(LostRange { tree, ..range });
        Ok(())
    }
}

/// A value that is being read, and what kept it from that.
struct Told<'t> {
    reader: BigReader,
    failed: &'t mut Option<String>,
}

impl Read for Told<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer).inspect_err(|error| *self.failed = Some(error.to_string()))
    }
}
