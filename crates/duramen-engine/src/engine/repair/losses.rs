//! Records what could not be read: the first key ranges one by one, and the total of each tree.

use std::collections::BTreeMap;

use crate::repair::LostRange;

/// So many ranges are listed. Beyond them only the totals count.
const RANGES_MAX: usize = 1000;

/// The total loss of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeLoss {
    /// Its name.
    pub tree: String,
    /// Number of ranges that cannot be read.
    pub ranges: u64,
    /// Entries in these ranges, as far as known.
    pub entries: u64,
    /// The number of entries in some range is unknown: there may be more.
    pub may_be_more: bool,
}

/// What is lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The first ranges.
    pub ranges: Vec<LostRange>,
    /// The totals of all ranges, by tree.
    pub trees: Vec<TreeLoss>,
}

/// Losses noted so far.
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

    /// Forgets the losses of a tree that was dropped.
    pub(super) fn forget(&mut self, tree: &str) {
        if self.trees.remove(tree).is_some() {
            self.ranges.retain(|range| range.tree != tree);
        }
    }

    pub(super) fn finish(self) -> Losses {
        Losses { ranges: self.ranges, trees: self.trees.into_values().collect() }
    }
}
