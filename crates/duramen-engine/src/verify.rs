//! `check`: reads everything, recomputes everything, and accounts for every block.
//!
//! It reports corruption and never repairs it. D4 rests here for pages that are seldom read.

mod walk;

use std::collections::BTreeMap;

use crate::allocator::TreeBlocks;
use crate::catalog::Root;
use crate::checkpoint::{Store, whole_superblocks};
use crate::error::Result;
use crate::ids::{CommitSeq, Generation, TreeId};
use crate::tree::Slot;

use walk::Walk;

/// Problems beyond this many are counted and not listed.
const PROBLEMS_MAX: usize = 100;

/// The result of `check`.
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
    /// Commits read from the log: those after the newest checkpoint.
    pub log_commits: u64,
    /// Superblocks that can be read, of two. A crash during a checkpoint may leave one unreadable, and the
    /// next checkpoint rewrites it. Otherwise one is corrupt, and the database depends on the other.
    pub superblocks: u64,
    /// Used extents (first block, blocks) that nothing references: lost space, no lost data.
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

    /// Notes a problem.
    pub fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

/// A check in progress.
///
/// It has two parts, so that checkpoints wait only for the first, short one. The root's registration keeps
/// its pages for the second.
pub(crate) struct Check<'a> {
    walk: Walk<'a>,
    /// The blocks that the root's trees must account for, as of the beginning.
    of_trees: TreeBlocks,
}

impl<'a> Check<'a> {
    /// Walks what checkpoints move, while none runs: the tree of roots, what is left of dropped trees, and
    /// the pending-free list. `reclaiming` holds the key at which reclaiming each dropped tree continues;
    /// `None` if nothing is left.
    #[must_use]
    pub(crate) fn begin(
        store: &'a Store,
        root: &Root,
        roots: Option<&Slot>,
        reclaiming: &BTreeMap<TreeId, Option<Vec<u8>>>,
    ) -> Check<'a> {
        let mut walk = Walk::new(store);
        walk.report.seq = root.seq;
        if let Some(roots) = roots {
            // The tree of roots is internal: its entries do not count.
            let entries = walk.report.entries;
            walk.tree(TreeId(u64::MAX), roots, None);
            walk.report.entries = entries;
        }
        // Pages of dropped trees are reclaimed in slices. Until then the trees own them.
        for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_some()) {
            let from = reclaiming.get(&tree.id).map_or(Some(&tree.reclaimed_to), Option::as_ref);
            if let (Some(slot), Some(from)) = (&tree.slot, from) {
                walk.dropped(slot, from);
            }
        }
        // Taken at one moment without a running checkpoint, so that later checkpoints do not change it. The
        // root never changes: its trees reference all of this whenever they are walked.
        let mut of_trees = store.space.of_trees(root.seq);
        of_trees.remove(&walk.reached);
        walk.reached.extend(store.space.unreached(root.seq));
        Check { walk, of_trees }
    }

    /// Adds the result of reading the log: its last commit, which must not be before `durable`, and the
    /// number of commits.
    pub(crate) fn log(&mut self, read: Result<(CommitSeq, u64)>, durable: CommitSeq) {
        let report = &mut self.walk.report;
        match read {
            Ok((last, commits)) => {
                report.log_commits = commits;
                if last < durable {
                    report.problem(format!("the log ends after commit {last}, and {durable} was durable"));
                }
            }
            Err(error) => report.problem(error.message().to_owned()),
        }
    }

    /// Checks the superblocks, while no checkpoint runs. The newest has the generation `newest`.
    pub(crate) fn superblocks(&mut self, newest: Generation) {
        let data = self.walk.store().pages.data();
        let report = &mut self.walk.report;
        match whole_superblocks(&**data.file(), data.path()) {
            Ok(whole) => {
                report.superblocks = whole.len() as u64;
                if !whole.contains(&newest) {
                    report
                        .problem(format!("{}: the newest superblock cannot be read", data.path().display()));
                }
            }
            Err(error) => report.problem(error.message().to_owned()),
        }
    }

    /// Walks the root's trees and accounts for every block. `is_at_rest` is called after the walk. If a
    /// checkpoint or a write-back has begun since, nodes of the root may have got blocks that belonged to
    /// other pages at the beginning; only the trees are compared with each other then.
    #[must_use]
    pub(crate) fn finish(self, root: &Root, is_at_rest: &dyn Fn() -> bool) -> CheckReport {
        let Check { mut walk, of_trees } = self;
        let begun = walk.reached.len();
        for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_none()) {
            walk.report.trees += 1;
            if let Some(slot) = &tree.slot {
                walk.tree(tree.id, slot, tree.reducer.as_deref());
            }
        }
        let mut held_against = walk.reached[if is_at_rest() { 0 } else { begun }..].to_vec();
        held_against.sort_unstable();
        for pair in held_against.windows(2) {
            let [(a, a_count), (b, _)] = pair else { continue };
            if a.saturating_add(u64::from(*a_count)) > *b {
                walk.report.problem(format!("block {b} belongs to two pages"));
            }
        }
        walk.report.unreached = of_trees.not_in(&walk.reached[begun..]);
        walk.report
    }
}
