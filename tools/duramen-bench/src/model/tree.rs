//! A tree of leaves below level-1 nodes, of which only sizes are kept, and what its checkpoints would write.

use std::collections::BTreeMap;

// Sizes in bytes, as in the engine.
const LEAF_BYTES_MAX: usize = 16 * 1024;
const BLOCK_BYTES: usize = 4096;
const PAGE_BYTES: usize = 32;
/// Of a child in the page of its parent: separator, pointer, count and reduction.
const CHILD_BYTES: usize = 72;
const PARENT_BYTES_MAX: usize = 16 * 1024;
/// Of a patch beside its entries.
const PATCH_BYTES: usize = 16;

/// Changes since the last checkpoint may take this part of the room for changes, in percent.
const FRESH_PERCENT: usize = 45;

/// Where changes of leaves are kept between checkpoints, and how they are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Design {
    /// A changed leaf is kept and written whole.
    Leaves,
    /// Changes are kept beside an evictable leaf; a checkpoint writes the leaf.
    PatchesInMemory,
    /// Changes are kept and written with the parent; the fullest are merged into their leaves.
    PatchesInParents,
    /// As before, but a checkpoint writes what is new of a parent, up to so many times.
    PatchesInRuns(usize),
}

impl Design {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Design::Leaves => "leaves, as today",
            Design::PatchesInMemory => "patches in memory",
            Design::PatchesInParents => "patches in parents",
            Design::PatchesInRuns(_) => "patches in runs",
        }
    }
}

#[derive(Debug, Default)]
struct Leaf {
    /// Keys as ranks among all keys of the run, sorted.
    keys: Vec<u32>,
    /// Bytes of changes that its page does not have.
    patch: usize,
}

#[derive(Debug, Default)]
struct Parent {
    leaves: Vec<Leaf>,
    is_changed: bool,
    /// Bytes of changes since the last checkpoint.
    fresh: usize,
    runs: usize,
}

/// What checkpoints wrote.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) leaf_bytes: u64,
    pub(crate) parent_bytes: u64,
    pub(crate) checkpoints: u64,
    /// The most bytes of changes, or of changed leaves, that were in memory.
    pub(crate) changes_max: usize,
}

impl Written {
    pub(crate) fn bytes(&self) -> u64 {
        self.leaf_bytes + self.parent_bytes
    }
}

pub(crate) struct Tree {
    design: Design,
    entry_bytes: usize,
    /// Bytes of changes, or of changed leaves, that memory has room for.
    room: usize,
    parents: BTreeMap<u32, Parent>,
    /// Bytes of changes in memory.
    patches: usize,
    /// Of them since the last checkpoint.
    fresh: usize,
    pub(crate) written: Written,
}

fn blocks(bytes: usize) -> u64 {
    (bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES) as u64
}

impl Tree {
    pub(crate) fn new(design: Design, entry_bytes: usize, room: usize) -> Tree {
        let parent = Parent { leaves: vec![Leaf::default()], ..Parent::default() };
        let parents = BTreeMap::from([(0, parent)]);
        Tree { design, entry_bytes, room, parents, patches: 0, fresh: 0, written: Written::default() }
    }

    /// Puts a row.
    pub(crate) fn put(&mut self, key: u32) {
        let entry = self.entry_bytes;
        let (first, parent) = self.parents.range_mut(..=key).next_back().expect("the first begins at 0");
        let first = *first;
        parent.is_changed = true;
        let at = parent.leaves.partition_point(|leaf| leaf.keys.first().is_some_and(|first| *first <= key));
        let at = at.saturating_sub(1);
        let is_last = at + 1 == parent.leaves.len();
        let leaf = &mut parent.leaves[at];
        let whole = (leaf.keys.len() * entry).next_multiple_of(BLOCK_BYTES);
        if let Err(place) = leaf.keys.binary_search(&key) {
            leaf.keys.insert(place, key);
        }
        // What is kept in memory for this change.
        let more = match self.design {
            Design::Leaves if leaf.patch == 0 => whole.max(BLOCK_BYTES),
            Design::Leaves => 0,
            _ => entry + if leaf.patch == 0 { PATCH_BYTES } else { 0 },
        };
        leaf.patch += more;
        parent.fresh += more;
        self.patches += more;
        self.fresh += more;
        if leaf.keys.len() * entry + PAGE_BYTES > LEAF_BYTES_MAX {
            let is_append = is_last && leaf.keys.last() == Some(&key);
            self.split(first, at, is_append);
        }
        self.written.changes_max = self.written.changes_max.max(self.patches);
        let is_due = match self.design {
            Design::Leaves | Design::PatchesInMemory => self.patches >= self.room,
            Design::PatchesInParents | Design::PatchesInRuns(_) => {
                self.fresh >= self.room / 100 * FRESH_PERCENT
            }
        };
        if is_due {
            self.checkpoint();
        }
    }

    /// Splits a leaf: both halves are new, and kept whole until they are written.
    fn split(&mut self, first: u32, at: usize, is_append: bool) {
        let parent = self.parents.get_mut(&first).expect("it was found");
        let leaf = &mut parent.leaves[at];
        let before = leaf.patch;
        let middle = if is_append { leaf.keys.len() - 1 } else { leaf.keys.len() / 2 };
        let mut right = Leaf { keys: leaf.keys.split_off(middle), patch: 0 };
        leaf.patch = leaf.keys.len() * self.entry_bytes;
        right.patch = right.keys.len() * self.entry_bytes;
        let after = leaf.patch + right.patch;
        parent.leaves.insert(at + 1, right);
        parent.fresh = (parent.fresh + after).saturating_sub(before);
        self.fresh = (self.fresh + after).saturating_sub(before);
        self.patches = self.patches + after - before;
        if parent.leaves.len() * CHILD_BYTES > PARENT_BYTES_MAX {
            self.split_parent(first);
        }
    }

    fn split_parent(&mut self, first: u32) {
        let parent = self.parents.get_mut(&first).expect("it was found");
        let middle = parent.leaves.len() / 2;
        let leaves = parent.leaves.split_off(middle);
        let fresh = parent.fresh / 2;
        parent.fresh -= fresh;
        parent.runs = usize::MAX;
        let at = leaves[0].keys[0];
        self.parents.insert(at, Parent { leaves, is_changed: true, fresh, runs: usize::MAX });
    }

    /// Writes what changed, and merges the fullest patches until there is room for those of the next
    /// checkpoint.
    pub(crate) fn checkpoint(&mut self) {
        let (entry, keep) = (self.entry_bytes, self.room / 100 * (100 - FRESH_PERCENT));
        let merge_from = match self.design {
            Design::Leaves | Design::PatchesInMemory => 1,
            Design::PatchesInParents | Design::PatchesInRuns(_) => self.merge_from(keep),
        };
        for parent in self.parents.values_mut() {
            for leaf in &mut parent.leaves {
                // A leaf that was never written, or whose changes are half of it, is written.
                let bytes = leaf.keys.len() * entry + PAGE_BYTES;
                if leaf.patch > 0 && (leaf.patch >= merge_from || leaf.patch * 2 >= bytes) {
                    self.written.leaf_bytes += blocks(bytes);
                    self.patches -= leaf.patch;
                    leaf.patch = 0;
                    parent.is_changed = true;
                }
            }
            if !parent.is_changed {
                continue;
            }
            let patches = match self.design {
                Design::Leaves | Design::PatchesInMemory => 0,
                _ => parent.leaves.iter().map(|leaf| leaf.patch).sum::<usize>(),
            };
            let all = PAGE_BYTES + parent.leaves.len() * CHILD_BYTES + patches;
            let run = PAGE_BYTES + parent.fresh.min(patches);
            match self.design {
                Design::PatchesInRuns(most) if parent.runs < most && 2 * run < all => {
                    parent.runs += 1;
                    self.written.parent_bytes += blocks(run);
                }
                _ => {
                    parent.runs = 0;
                    self.written.parent_bytes += blocks(all);
                }
            }
            (parent.is_changed, parent.fresh) = (false, 0);
        }
        self.fresh = 0;
        self.written.checkpoints += 1;
    }

    /// The bytes of changes from which on leaves are merged, so that at most `keep` are left.
    fn merge_from(&self, keep: usize) -> usize {
        let mut sizes: Vec<usize> = self
            .parents
            .values()
            .flat_map(|parent| parent.leaves.iter().map(|leaf| leaf.patch).filter(|patch| *patch > 0))
            .collect();
        sizes.sort_unstable();
        let (mut left, mut at) = (self.patches, sizes.len());
        while left > keep && at > 0 {
            at -= 1;
            left -= sizes[at];
        }
        if at == sizes.len() { usize::MAX } else { sizes[at] }
    }
}
