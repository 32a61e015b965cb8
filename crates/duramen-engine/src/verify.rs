//! `check`: everything read, everything recomputed, every block accounted for.
//!
//! Reports damage, never mends it. D4 rests here for what is seldom read.

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
    /// Commits read from the log: those behind the newest checkpoint.
    pub log_commits: u64,
    /// Superblocks that can be read, of two. After a cut in the middle of a checkpoint one may not be, and the next
    /// checkpoint writes it anew; otherwise one is damaged, and nothing would help if the other were.
    pub superblocks: u64,
    /// Extents (first block, blocks) in use that nothing leads to: space lost, no data.
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

/// A check under way.
///
/// In two parts, so that checkpoints wait only for the first, short one; the root's registration keeps its pages for
/// the second.
pub struct Check<'a> {
    walk: Walk<'a>,
    /// What the root's trees have to lead to, as it was at the beginning.
    of_trees: TreeBlocks,
}

impl<'a> Check<'a> {
    /// Walks what checkpoints move, with none running: the tree of roots, what is left of dropped trees (`reaping` says
    /// where giving them back goes on; `None` for those that have nothing left), and what waits to be free.
    #[must_use]
    pub fn begin(
        store: &'a Store,
        root: &Root,
        roots: Option<&Slot>,
        reaping: &BTreeMap<TreeId, Option<Vec<u8>>>,
    ) -> Check<'a> {
        let mut walk = Walk::new(store);
        walk.report.seq = root.seq;
        if let Some(roots) = roots {
            // The engine's own tree: its entries are not the user's.
            let entries = walk.report.entries;
            walk.tree(TreeId(u64::MAX), roots, None);
            walk.report.entries = entries;
        }
        // Pages of dropped trees are given back little by little; until then they are theirs.
        for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_some()) {
            let from = reaping.get(&tree.id).map_or(Some(&tree.reaped_to), Option::as_ref);
            if let (Some(slot), Some(from)) = (&tree.slot, from) {
                walk.dropped(slot, from);
            }
        }
        // Of one moment with no checkpoint running: what later ones write, free and move is not in it. The root never changes, so
        // its trees lead to all of this whenever they are walked.
        let mut of_trees = store.space.of_trees(root.seq);
        of_trees.remove(&walk.reached);
        walk.reached.extend(store.space.unreached(root.seq));
        Check { walk, of_trees }
    }

    /// Takes what reading the log came to: its last commit, and how many there are. Not to be before `durable`.
    pub fn log(&mut self, read: Result<(CommitSeq, u64)>, durable: CommitSeq) {
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

    /// Looks at the superblocks, with no checkpoint running. The newest is that of generation `newest`.
    pub fn superblocks(&mut self, newest: Generation) {
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

    /// Walks the root's trees, and accounts for every block. `is_at_rest` is asked after the walk: where a checkpoint or a spill
    /// has begun since the beginning, a node of the root may have been given blocks that were somebody else's then, and only
    /// the trees are held against each other.
    #[must_use]
    pub fn finish(self, root: &Root, is_at_rest: &dyn Fn() -> bool) -> CheckReport {
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
            if a + u64::from(*a_count) > *b {
                walk.report.problem(format!("block {b} belongs to two pages"));
            }
        }
        walk.report.unreached = of_trees.not_in(&walk.reached[begun..]);
        walk.report
    }
}
