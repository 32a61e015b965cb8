//! Entries of nodes that no pointer leads to any more.
//!
//! It owns what is taken from such a node. A current one belongs to its tree. One of which only its wholeness
//! is known is uncertain: it may be older than the checkpoint, or hold what was deleted. Its entries go to a
//! tree of their own, never into the tree that they are of. An entry of it is kept if no other node, current
//! or newer, covers its key, and only where the tree cannot be read.
//!
//! Where leaves have patches, a leaf alone is uncertain as well: what has changed since it was written is in
//! the node above it. A current node above leaves proves them, with their patches.
//!
//! The file is read once to collect, and once more to drop what newer nodes cover. What is collected lies in
//! trees of the new database, so memory is bounded.

use std::collections::BTreeMap;

use super::writing::{LEVEL, Writing};
use crate::catalog::CATALOG;
use crate::engine::Engine;
use crate::error::Result;
use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::repair::{FoundNode, Scan, Source, Standing};
use crate::transaction::Transaction;
use crate::tree::{Body, Direction, Inner, KeyRange, Leaf, Node, NodePointer, Reduction, StoredValue};

/// The name prefix of the trees with candidates, while the file is scanned; the old id follows.
const CANDIDATES: &str = "recovered/scan/";

/// Candidates deleted in one transaction.
const DELETED_AT_ONCE: usize = 1000;

/// Adds what the nodes of the file hold, where trees cannot be read. Returns the entries of current nodes.
pub(super) fn add_found(source: &Source, writing: &mut Writing<'_>) -> Result<u64> {
    let mut current = 0;
    let mut candidates = Candidates { into: writing.engine(), trees: BTreeMap::new() };
    each_leaf(source, writing, &mut |writing, id, birth, leaf| {
        match birth {
            None => current += writing.add_current(id, leaf)?,
            Some(birth) => {
                candidates.add(id, birth, leaf, &|key| writing.is_lost(id, key))?;
            }
        }
        Ok(())
    })?;
    writing.flush()?;
    if !candidates.trees.is_empty() {
        each_leaf(source, writing, &mut |_, id, birth, leaf| candidates.outdate(id, birth, leaf))?;
        candidates.settle(writing)?;
    }
    Ok(current)
}

/// Receives a leaf, with its tree and the commit that made it; `None` for a current leaf.
type MeetsLeaf<'m, 'a> = &'m mut dyn FnMut(&mut Writing<'a>, TreeId, Option<CommitSeq>, &Leaf) -> Result<()>;

/// Calls `meets` for every leaf in the file that is not known to be old, of trees that are wanted.
fn each_leaf<'a>(source: &Source, writing: &mut Writing<'a>, meets: MeetsLeaf<'_, 'a>) -> Result<()> {
    let budget = source.pages.data().file().len().map_or(0, |bytes| bytes / 512);
    let mut leaves = Leaves { source, meets, budget };
    for node in Scan::of(source.pages.data())? {
        writing.tell()?;
        if let Some(node) = node {
            leaves.node(writing, &node)?;
        }
    }
    Ok(())
}

struct Leaves<'s, 'm, 'a> {
    source: &'s Source,
    meets: MeetsLeaf<'m, 'a>,
    /// Nodes that may still be read below current ones. A hostile file could name one child many times.
    budget: u64,
}

impl<'a> Leaves<'_, '_, 'a> {
    fn node(&mut self, writing: &mut Writing<'a>, node: &FoundNode) -> Result<()> {
        let Some(id) = node.tree.tree().filter(|id| *id != CATALOG) else { return Ok(()) };
        let trees = &self.source.trees;
        let is_dropped = trees.roots.get(&id).is_some_and(|entry| entry.dropped_at.is_some());
        // A tree without a name was dropped, unless names are lost.
        let is_wanted = match writing.knows(id) {
            true => writing.takes(id),
            false => trees.lacks_names() && writing.wants(trees.uncertain.get(&id)),
        };
        if is_dropped || !is_wanted {
            return Ok(());
        }
        let may_be_patched = !node.is_inner() && self.has_patches();
        match self.source.used.standing(node, &writing.unreadable) {
            Standing::Current if writing.knows(id) && !may_be_patched => {
                let pointer = NodePointer::whole(node.pointer, Reduction::UNKNOWN);
                self.current(writing, id, &pointer, None)
            }
            Standing::Old => Ok(()),
            Standing::Current | Standing::Uncertain => {
                let pointer = NodePointer::whole(node.pointer, Reduction::UNKNOWN);
                match self.read(&pointer).as_ref().map(Node::body) {
                    Some(Body::Leaf(leaf)) => (self.meets)(writing, id, Some(node.birth), leaf),
                    Some(Body::Inner(inner)) => self.patched(writing, id, node.birth, inner),
                    None => Ok(()),
                }
            }
        }
    }

    /// The leaves below an uncertain node that have patches: as old as the node.
    fn patched(
        &mut self,
        writing: &mut Writing<'a>,
        id: TreeId,
        birth: CommitSeq,
        inner: &Inner,
    ) -> Result<()> {
        for child in inner.slots().filter_map(|slot| slot.pointer()).filter(|child| child.patch.is_some()) {
            self.budget = self.budget.saturating_sub(1);
            if self.budget == 0 {
                break;
            }
            if let Some(Body::Leaf(leaf)) = self.read(&child).as_ref().map(Node::body) {
                (self.meets)(writing, id, Some(birth), leaf)?;
            }
        }
        Ok(())
    }

    fn has_patches(&self) -> bool {
        self.source.superblock.features.contains(Features::PATCHES)
    }

    /// A node that the checkpoint reaches. It proves its children where the space map says nothing of them,
    /// or where a leaf alone is uncertain.
    fn current(
        &mut self,
        writing: &mut Writing<'a>,
        id: TreeId,
        at: &NodePointer,
        above: Option<u8>,
    ) -> Result<()> {
        self.budget = self.budget.saturating_sub(1);
        if self.budget == 0 {
            return Ok(());
        }
        let Some(node) = self.read(at).filter(|node| above.is_none_or(|above| node.level() < above)) else {
            return Ok(());
        };
        match node.body() {
            Body::Leaf(leaf) => (self.meets)(writing, id, None, leaf),
            Body::Inner(inner) => inner.slots().filter_map(|slot| slot.pointer()).try_for_each(|child| {
                let is_proven = match self.source.used.says(&child.page) {
                    None => true,
                    Some(is_used) => is_used && inner.level == 1 && self.has_patches(),
                };
                if is_proven { self.current(writing, id, &child, Some(inner.level)) } else { Ok(()) }
            }),
        }
    }

    /// A node that cannot be read any more, or does not decode, is as lost as one that was not found.
    fn read(&self, at: &NodePointer) -> Option<Node> {
        Node::read(&self.source.pages, at, true).ok()
    }
}

/// The keys of a leaf, from its first to its last.
fn range_of(leaf: &Leaf) -> KeyRange {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    leaf.key_into(0, &mut from);
    leaf.key_into(leaf.len() - 1, &mut to);
    to.push(0);
    KeyRange { from, to: Some(to) }
}

/// Entries of uncertain leaves, each with the commit that made its leaf.
struct Candidates<'e> {
    into: &'e Engine,
    /// Trees of the new database, by the old id of the tree that their entries are of.
    trees: BTreeMap<TreeId, TreeId>,
}

impl Candidates<'_> {
    /// Adds the entries of a leaf that are wanted, where none of a newer leaf is there.
    fn add(
        &mut self,
        id: TreeId,
        birth: CommitSeq,
        leaf: &Leaf,
        is_wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let mut entries = Vec::new();
        for index in 0..leaf.len() {
            let mut key = Vec::new();
            leaf.key_into(index, &mut key);
            if is_wanted(&key) {
                entries.push((key, Candidate { birth, value: leaf.value(index) }.encode()));
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        let tree = match self.trees.get(&id) {
            Some(tree) => *tree,
            None => {
                let name = format!("{CANDIDATES}{id}");
                let (tree, _) = self.into.transact(LEVEL, |tx| tx.create_tree(&name, None))?;
                *self.trees.entry(id).or_insert(tree)
            }
        };
        self.into.transact(LEVEL, |tx: &mut Transaction| {
            entries.iter().try_for_each(|(key, value)| {
                let is_newer = tx.get(tree, key)?.is_none_or(|there| birth_of(&there) < birth);
                if is_newer { tx.put(tree, key, value) } else { Ok(()) }
            })
        })?;
        Ok(())
    }

    /// Removes entries that a leaf covers: all if it is current, else those of older leaves.
    fn outdate(&self, id: TreeId, birth: Option<CommitSeq>, leaf: &Leaf) -> Result<()> {
        let Some(tree) = self.trees.get(&id).copied() else { return Ok(()) };
        let mut outdated = Vec::new();
        let mut rows = self.into.snapshot()?.rows(tree, range_of(leaf), Direction::Forward)?;
        while let Some(row) = rows.next()? {
            let made = birth_of(&row.value()?);
            if birth.is_none_or(|birth| made < birth) {
                outdated.push(row.key().to_vec());
            }
            // A leaf may cover any number of keys that were deleted from its range.
            if outdated.len() == DELETED_AT_ONCE {
                self.delete(tree, &std::mem::take(&mut outdated))?;
            }
        }
        self.delete(tree, &outdated)
    }

    fn delete(&self, tree: TreeId, keys: &[Vec<u8>]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.into.transact(LEVEL, |tx| keys.iter().try_for_each(|key| tx.delete(tree, key))).map(drop)
    }

    /// Moves what is left to trees of the new database.
    fn settle(self, writing: &mut Writing<'_>) -> Result<()> {
        for (id, tree) in self.trees {
            let mut rows = self.into.snapshot()?.rows(tree, KeyRange::all(), Direction::Forward)?;
            while let Some(row) = rows.next()? {
                writing.add_uncertain(id, row.key(), Candidate::decode(&row.value()?).value)?;
            }
            drop(rows);
            writing.flush()?;
            let name = format!("{CANDIDATES}{id}");
            self.into.transact(LEVEL, |tx| tx.drop_tree(&name))?;
        }
        Ok(())
    }
}

/// A candidate's value: the commit that made its leaf, whether it is a big value, and the stored bytes.
struct Candidate<'v> {
    birth: CommitSeq,
    value: StoredValue<'v>,
}

impl<'v> Candidate<'v> {
    fn encode(&self) -> Vec<u8> {
        let head = self.birth.0.to_le_bytes();
        [&head[..], &[u8::from(self.value.big)], self.value.bytes].concat()
    }

    fn decode(bytes: &'v [u8]) -> Candidate<'v> {
        let value = StoredValue { big: bytes[8] != 0, bytes: &bytes[9..] };
        Candidate { birth: birth_of(bytes), value }
    }
}

fn birth_of(candidate: &[u8]) -> CommitSeq {
    CommitSeq(u64::from_le_bytes(candidate[..8].try_into().expect("a candidate begins with it")))
}
