//! The account of what could not be read: the first stretches one by one, and each tree's in all.

use std::collections::BTreeMap;

use crate::salvage::LostRange;

/// So many stretches are listed; of the others only each tree's total is told.
const RANGES_MAX: usize = 1000;

/// What a tree has lost in all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeLoss {
    /// Its name.
    pub tree: String,
    /// How many stretches of it cannot be read.
    pub ranges: u64,
    /// Entries that were in them, as far as that is known.
    pub entries: u64,
    /// Of some stretch nothing says how many entries it had: there may be more.
    pub may_be_more: bool,
}

/// What is lost.
#[derive(Debug, Default)]
pub struct Losses {
    /// The first stretches.
    pub ranges: Vec<LostRange>,
    /// All of them, by tree.
    pub trees: Vec<TreeLoss>,
}

/// Losses as they come.
#[derive(Debug, Default)]
pub(super) struct Noted {
    ranges: Vec<LostRange>,
    trees: BTreeMap<String, TreeLoss>,
}

impl Noted {
    pub(super) fn add(&mut self, range: LostRange) {
        let new = || TreeLoss { tree: range.tree.clone(), ..TreeLoss::default() };
        let tree = self.trees.entry(range.tree.clone()).or_insert_with(new);
        tree.ranges += 1;
        tree.entries += range.entries.unwrap_or(0);
        tree.may_be_more |= range.entries.is_none();
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push(range);
        }
    }

    /// Forgets what a tree has lost that is gone.
    pub(super) fn forget(&mut self, tree: &str) {
        if self.trees.remove(tree).is_some() {
            self.ranges.retain(|range| range.tree != tree);
        }
    }

    pub(super) fn finish(self) -> Losses {
        Losses { ranges: self.ranges, trees: self.trees.into_values().collect() }
    }
}
