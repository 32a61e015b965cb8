//! `check`: everything read, everything recomputed, every block accounted for.
//!
//! Reports damage, never mends it. D4 rests here for what is seldom read.

mod walk;

use crate::allocator::Space;
use crate::catalog::Root;
use crate::checkpoint::Store;
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::tree::Slot;

use walk::Walk;

/// Problems beyond this many are counted and not listed.
const PROBLEMS_MAX: usize = 100;

/// What `check` found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// The state that was checked.
    pub seq: CommitSeq,
    /// Trees read.
    pub trees: u64,
    /// Entries read.
    pub entries: u64,
    /// Pages read.
    pub pages: u64,
    /// Big values read.
    pub big_values: u64,
    /// Reductions that were recomputed and compared.
    pub reductions: u64,
    /// Extents (first block, blocks) in use that nothing leads to: space lost, no data. None, unless a big value is
    /// being written at this moment.
    pub unreached: Vec<(u64, u32)>,
    /// What is wrong, in words, with file and offset.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

/// Checks one root, the tree of roots, and the space map against both.
///
/// # Errors
/// Only what keeps the check from going on; damage is in the report.
pub fn check_root(store: &Store, root: &Root, roots: Option<&Slot>) -> Result<CheckReport> {
    let mut walk = Walk::new(store);
    walk.report.seq = root.seq;
    for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_none()) {
        walk.report.trees += 1;
        if let Some(slot) = &tree.slot {
            walk.tree(tree.id, slot, tree.reducer.as_deref());
        }
    }
    if let Some(roots) = roots {
        walk.tree(TreeId(u64::MAX), roots, None);
    }
    // Pages of dropped trees are given back little by little; until then they are theirs.
    for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_some()) {
        if let Some(slot) = &tree.slot {
            walk.dropped(slot, &tree.reaped_to);
        }
    }
    account(&store.space, walk)
}

fn account(space: &Space, mut walk: Walk<'_>) -> Result<CheckReport> {
    walk.reached.extend(space.unreached());
    walk.reached.sort_unstable();
    for pair in walk.reached.windows(2) {
        let [(a, a_count), (b, _)] = pair else { continue };
        if a + u64::from(*a_count) > *b {
            walk.report.problem(format!("block {b} belongs to two pages"));
        }
    }
    for (block, block_count) in &walk.reached {
        if !space.is_used(*block, *block_count) {
            walk.report.problem(format!("block {block} holds a page and is marked free"));
        }
    }
    walk.report.unreached = space.unaccounted(&walk.reached);
    Ok(walk.report)
}
