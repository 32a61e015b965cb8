//! The trees of one root by id: a radix tree of which an older root keeps its own branches.
//!
//! Owns the cost of changing one tree among many: a path is copied, whatever ids were ever given.

use std::sync::Arc;

use super::TreeState;
use crate::alarm::invariant;
use crate::ids::TreeId;

const FANOUT_BITS: u32 = 4;
const FANOUT: usize = 1 << FANOUT_BITS;

/// Levels that the largest id needs above the trees' own.
const HEIGHT_MAX: u32 = u64::BITS / FANOUT_BITS - 1;

const _: () = assert!(u64::BITS.is_multiple_of(FANOUT_BITS), "the levels take an id apart without a rest");

type Slots<T> = [Option<Arc<T>>; FANOUT];

#[derive(Debug, Clone)]
enum Branch {
    Inner(Slots<Branch>),
    Trees(Slots<TreeState>),
}

/// All trees by id. A copy shares everything; changing one tree of it copies a path of O(log of the largest
/// id).
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeTable {
    top: Option<Arc<Branch>>,
    /// Levels above the trees' own.
    height: u32,
}

impl TreeTable {
    /// The tree with this id.
    #[must_use]
    pub(crate) fn get(&self, id: TreeId) -> Option<&Arc<TreeState>> {
        let mut branch = self.top.as_deref().filter(|_| id.0 <= last_id(self.height))?;
        let mut height = self.height;
        loop {
            match branch {
                Branch::Trees(trees) => return trees[slot_at(id, 0)].as_ref(),
                Branch::Inner(branches) => branch = branches[slot_at(id, height)].as_deref()?,
            }
            height -= 1;
        }
    }

    /// Puts a tree in, or takes one out.
    pub(crate) fn set(&mut self, id: TreeId, tree: Option<TreeState>) {
        let own = tree.as_ref().map_or(id, |tree| tree.id);
        invariant!(own == id, "tree {own} is found under its id, not {id}");
        let is_there = tree.is_some();
        while id.0 > last_id(self.height) {
            *self = self.raised();
        }
        match tree {
            Some(tree) => put(&mut self.top, self.height, id, tree),
            None => take(&mut self.top, self.height, id),
        }
        debug_assert!(self.get(id).is_some() == is_there, "tree {id} is found as it was put: {is_there}");
    }

    /// All trees in order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TreeState>> {
        Iter { path: self.top.as_deref().map(|top| (top, 0)).into_iter().collect() }
    }

    /// The ids whose state differs from an older table's, in order. Branches that both share are not looked
    /// into.
    #[must_use]
    pub(crate) fn changed_since(&self, older: &TreeTable) -> Vec<TreeId> {
        let (mut mine, mut theirs) = (self.clone(), older.clone());
        while mine.height < theirs.height {
            mine = mine.raised();
        }
        while theirs.height < mine.height {
            theirs = theirs.raised();
        }
        let mut changed = Vec::new();
        compare(mine.top.as_ref(), theirs.top.as_ref(), &mut changed);
        changed.sort_unstable();
        debug_assert!(changed.windows(2).all(|ids| ids[0] < ids[1]), "each tree once: {changed:?}");
        changed
    }

    /// The same trees with room for larger ids.
    fn raised(&self) -> TreeTable {
        invariant!(self.height < HEIGHT_MAX, "{} levels have room for every id", self.height);
        let top = self.top.as_ref().map(|top| {
            let mut branches = Slots::default();
            branches[0] = Some(Arc::clone(top));
            Arc::new(Branch::Inner(branches))
        });
        TreeTable { top, height: self.height + 1 }
    }
}

/// The largest id a table of this height has room for.
fn last_id(height: u32) -> u64 {
    1u64.checked_shl((height + 1) * FANOUT_BITS).map_or(u64::MAX, |count| count - 1)
}

fn slot_at(id: TreeId, height: u32) -> usize {
    usize::try_from((id.0 >> (height * FANOUT_BITS)) % FANOUT as u64).expect("less than FANOUT")
}

fn put(branch: &mut Option<Arc<Branch>>, height: u32, id: TreeId, tree: TreeState) {
    let new = || match height {
        0 => Arc::new(Branch::Trees(Slots::default())),
        _ => Arc::new(Branch::Inner(Slots::default())),
    };
    match Arc::make_mut(branch.get_or_insert_with(new)) {
        Branch::Trees(trees) => trees[slot_at(id, 0)] = Some(Arc::new(tree)),
        Branch::Inner(branches) => put(&mut branches[slot_at(id, height)], height - 1, id, tree),
    }
}

fn take(branch: &mut Option<Arc<Branch>>, height: u32, id: TreeId) {
    let Some(there) = branch else { return };
    let is_empty = match Arc::make_mut(there) {
        Branch::Trees(trees) => {
            trees[slot_at(id, 0)] = None;
            trees.iter().all(Option::is_none)
        }
        Branch::Inner(branches) => {
            take(&mut branches[slot_at(id, height)], height - 1, id);
            branches.iter().all(Option::is_none)
        }
    };
    if is_empty {
        *branch = None;
    }
}

fn compare(mine: Option<&Arc<Branch>>, theirs: Option<&Arc<Branch>>, changed: &mut Vec<TreeId>) {
    match (mine.map(|branch| &**branch), theirs.map(|branch| &**branch)) {
        (None, None) => {}
        (Some(a), Some(b)) if std::ptr::eq(a, b) => {}
        (Some(Branch::Inner(a)), Some(Branch::Inner(b))) => {
            a.iter().zip(b).for_each(|(a, b)| compare(a.as_ref(), b.as_ref(), changed));
        }
        (Some(Branch::Trees(a)), Some(Branch::Trees(b))) => {
            let differing = a.iter().zip(b).filter(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => !Arc::ptr_eq(a, b),
                (a, b) => a.is_some() != b.is_some(),
            });
            changed.extend(differing.filter_map(|(a, b)| a.as_ref().or(b.as_ref())).map(|tree| tree.id));
        }
        (Some(only), None) | (None, Some(only)) => {
            changed.extend(Iter { path: vec![(only, 0)] }.map(|tree| tree.id));
        }
        (Some(_), Some(_)) => unreachable!("both tables have one height"),
    }
}

/// The branches on the way to the next tree, and which slot of each comes next.
struct Iter<'a> {
    path: Vec<(&'a Branch, usize)>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Arc<TreeState>;

    fn next(&mut self) -> Option<&'a Arc<TreeState>> {
        loop {
            let (branch, next) = self.path.last_mut()?;
            let (branch, index) = (*branch, *next);
            if index == FANOUT {
                self.path.pop();
                continue;
            }
            *next += 1;
            match branch {
                Branch::Trees(trees) => {
                    if let Some(tree) = &trees[index] {
                        return Some(tree);
                    }
                }
                Branch::Inner(branches) => {
                    self.path.extend(branches[index].as_deref().map(|branch| (branch, 0)));
                }
            }
        }
    }
}
