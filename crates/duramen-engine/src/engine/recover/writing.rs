//! Writes what is read of a damaged database into the new one: trees by their new ids, entries in batches.
//!
//! Owns what becomes of a value that cannot be read: its entry is lost and named, the others are not. Memory is that of one batch
//! and of one value; a longer value goes through in pieces.

use std::collections::BTreeMap;
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

/// So many bytes of entries in one transaction.
const BATCH_BYTES: usize = 256 * 1024;

/// A value of more bytes is not held in memory.
const HELD_BYTES_MAX: u64 = 1024 * 1024;

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
    /// Values of the log that could not be read, until something replaces them.
    unread: BTreeMap<(TreeId, Vec<u8>), String>,
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
            unread: BTreeMap::new(),
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
        let (id, _) = self.into.transact(Durability::Memory, create)?;
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
            self.into.transact(Durability::Memory, |tx| tx.drop_tree(&name))?;
        }
        self.noted.forget(&made.name);
        self.unread.retain(|(tree, _), _| *tree != id);
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
        if !self.unread.is_empty() {
            self.unread.remove(&(id, key.to_vec()));
        }
        let Some(value) = value else { return self.push(id, key, None) };
        if let Some(why) = self.put(id, key, value)? {
            // What was there before is not what is there now.
            self.unread.insert((id, key.to_vec()), why);
            self.push(id, key, None)?;
        }
        Ok(())
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
        let written = self.into.transact(Durability::Memory, |tx| {
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
        match self.into.transact(Durability::Memory, all) {
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
        for change in batch {
            match self.into.transact(Durability::Memory, |tx| change.apply(tx)) {
                Ok(_) => {}
                Err(error) if is_of_an_entry(&error) => {
                    self.lose_entry(change.from, &change.key, error.message());
                }
                Err(error) => return Err(error),
            }
        }
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
                        "{unknown_drops} tree(s) whose names are lost were dropped after the checkpoint: it may be one of them"
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
        for ((id, key), why) in std::mem::take(&mut self.unread) {
            self.lose_entry(id, &key, &why);
        }
        Ok(self.noted.finish())
    }
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
