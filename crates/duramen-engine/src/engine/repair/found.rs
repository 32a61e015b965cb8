//! Writes entries that were found without pointers to their nodes: current ones into their tree,
//! uncertain ones into a tree beside it.

use super::Keep;
use super::writing::{LEVEL, Writing};
use crate::error::Result;
use crate::features::Features;
use crate::ids::TreeId;
use crate::limits::KEY_BYTES_MAX;
use crate::repair::Meets;
use crate::tree::{KeyRange, Leaf, StoredValue};

/// The name prefix of trees with uncertain entries; the name of the tree that they are of follows.
const UNCERTAIN: &str = "recovered/uncertain/";

/// A tree with entries that may be older than the checkpoint, or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncertainTree {
    /// The name of the tree that they are of, as far as it is known; else `tree-` and a number.
    pub of: String,
    /// The tree in the new database.
    pub tree: String,
    /// Entries in it.
    pub entries: u64,
    /// Entries that were found, and are left out because their big values cannot be read.
    pub unreadable: u64,
}

/// The id under which the tree with uncertain entries of a tree is kept. No tree has such an id.
pub(super) fn uncertain_id(id: TreeId) -> TreeId {
    TreeId(id.0 | 1 << 63)
}

impl Writing<'_> {
    /// Whether entries of a tree that is not in the new database are wanted.
    pub(super) fn wants(&self, name: Option<&String>) -> bool {
        name.is_none_or(|name| (self.caller.keep)(name) == Keep::Entries)
    }

    /// Whether an entry may have been in a node that cannot be read.
    pub(super) fn is_lost(&self, id: TreeId, key: &[u8]) -> bool {
        self.made.get(&id).is_none_or(|made| self.noted.is_in_gap(&made.name, key))
    }

    /// Adds the entries of a current leaf, unless they are there. Returns how many.
    pub(super) fn add_current(&mut self, id: TreeId, leaf: &Leaf) -> Result<u64> {
        let Some((made, name)) = self.made.get(&id).map(|made| (made.id, made.name.clone())) else {
            return Ok(0);
        };
        let (mut key, entries) = (Vec::new(), leaf.len() as u64);
        leaf.key_into(0, &mut key);
        if !self.noted.is_in_gap(&name, &key) || self.into.get(made, &key)?.is_some() {
            return Ok(0);
        }
        self.noted.found(&name, &key, entries);
        for index in 0..leaf.len() {
            leaf.key_into(index, &mut key);
            self.of_tree(id).entry(&key, leaf.value(index))?;
        }
        Ok(entries)
    }

    /// Adds an uncertain entry, unless the tree itself has its key. One whose value cannot be read is
    /// left out.
    pub(super) fn add_uncertain(&mut self, id: TreeId, key: &[u8], value: StoredValue<'_>) -> Result<()> {
        if let Some(made) = self.made.get(&id)
            && self.into.get(made.id, key)?.is_some()
        {
            return Ok(());
        }
        if !self.uncertain.contains_key(&id) {
            self.begin_uncertain(id)?;
        }
        let is_put = self.put(uncertain_id(id), key, value)?.is_none();
        if let Some(uncertain) = self.uncertain.get_mut(&id).filter(|_| !is_put) {
            uncertain.unreadable += 1;
        }
        Ok(())
    }

    fn begin_uncertain(&mut self, id: TreeId) -> Result<()> {
        let known = self.made.get(&id).map(|made| &made.name).or(self.source.trees.uncertain.get(&id));
        let of = known.cloned().unwrap_or_else(|| format!("tree-{id}"));
        let mut tree = format!("{UNCERTAIN}{of}");
        if tree.len() >= KEY_BYTES_MAX {
            tree = format!("{UNCERTAIN}tree-{id}");
        }
        while self.made.values().any(|made| made.name == tree) {
            tree.push('\'');
        }
        self.make(uncertain_id(id), tree.clone(), (None, Features::NONE), true)?;
        self.uncertain.insert(id, UncertainTree { of, tree, entries: 0, unreadable: 0 });
        Ok(())
    }

    /// The trees with uncertain entries, the newest first. The log has removed from them what it changed;
    /// a tree of which nothing is left is dropped.
    pub(super) fn uncertain_trees(&mut self) -> Result<Vec<UncertainTree>> {
        self.flush()?;
        let mut found = Vec::new();
        for (id, mut uncertain) in std::mem::take(&mut self.uncertain).into_iter().rev() {
            let Some(made) = self.made.get(&uncertain_id(id)) else { continue };
            uncertain.entries = self.into.snapshot()?.count(made.id, &KeyRange::all())?;
            if uncertain.entries + uncertain.unreadable == 0 {
                self.into.transact(LEVEL, |tx| tx.drop_tree(&uncertain.tree))?;
            } else {
                found.push(uncertain);
            }
        }
        found.append(&mut self.doubtful);
        Ok(found)
    }
}
