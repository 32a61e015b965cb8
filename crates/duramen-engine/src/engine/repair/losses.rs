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

/// Unreadable ranges of nodes that are remembered, to tell what a node that is found later fills. Beyond
/// them a range is joined with the one before it: more entries than needed are then kept as uncertain.
const GAPS_MAX: usize = 100_000;

/// Losses noted so far.
#[derive(Debug, Default)]
pub(super) struct Noted {
    ranges: Vec<LostRange>,
    trees: BTreeMap<String, TreeLoss>,
    /// Ranges of nodes that cannot be read, by tree and the last readable key before them.
    gaps: BTreeMap<String, BTreeMap<Option<Vec<u8>>, Gap>>,
    gap_count: usize,
}

/// A range of nodes that cannot be read.
#[derive(Debug)]
struct Gap {
    before: Option<Vec<u8>>,
    /// Entries in it; `None` if unknown.
    entries: Option<u64>,
    /// Entries of it that were found without their pointers.
    found: u64,
    /// Unreadable ranges that it stands for.
    ranges: u64,
}

impl Gap {
    /// Whether nothing of it is missing.
    fn is_filled(&self) -> bool {
        self.entries == Some(self.found)
    }
}

impl Noted {
    pub(super) fn add(&mut self, range: LostRange) {
        let new = || TreeLoss { tree: range.tree.clone(), ..TreeLoss::default() };
        let tree = self.trees.entry(range.tree.clone()).or_insert_with(new);
        tree.ranges += 1;
        tree.entries += range.entries.unwrap_or(0);
        tree.may_be_more |= range.entries.is_none();
        // A single entry whose value cannot be read is no gap: its node is whole.
        if range.after.is_none() || range.after != range.before {
            self.add_gap(&range);
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push(range);
        }
    }

    fn add_gap(&mut self, range: &LostRange) {
        let gaps = self.gaps.entry(range.tree.clone()).or_default();
        if self.gap_count >= GAPS_MAX
            && let Some(mut last) = gaps.last_entry()
        {
            let last = last.get_mut();
            last.before.clone_from(&range.before);
            last.entries = last.entries.zip(range.entries).map(|(one, other)| one + other);
            last.ranges += 1;
            return;
        }
        self.gap_count += 1;
        let gap = Gap { before: range.before.clone(), entries: range.entries, found: 0, ranges: 1 };
        gaps.insert(range.after.clone(), gap);
    }

    /// Whether any range of nodes cannot be read.
    pub(super) fn has_gaps(&self) -> bool {
        self.gap_count > 0
    }

    /// Whether an entry of a tree may have been in a node that cannot be read.
    pub(super) fn is_in_gap(&self, tree: &str, key: &[u8]) -> bool {
        let before = self.gaps.get(tree).and_then(|gaps| gaps.range(..Some(key.to_vec())).next_back());
        before.is_some_and(|(_, gap)| gap.before.as_deref().is_none_or(|before| key < before))
    }

    /// Notes entries of a current node that was found without its pointer, from `key` on.
    pub(super) fn found(&mut self, tree: &str, key: &[u8], entries: u64) {
        let Some(gaps) = self.gaps.get_mut(tree) else { return };
        if let Some((_, gap)) = gaps.range_mut(..Some(key.to_vec())).next_back() {
            gap.found = gap.found.saturating_add(entries);
        }
    }

    /// Forgets the losses of a tree that was dropped.
    pub(super) fn forget(&mut self, tree: &str) {
        if self.trees.remove(tree).is_some() {
            self.ranges.retain(|range| range.tree != tree);
        }
        if let Some(gaps) = self.gaps.remove(tree) {
            self.gap_count -= gaps.len();
        }
    }

    /// What is lost after all that was found.
    pub(super) fn finish(mut self) -> Losses {
        for (name, gaps) in &self.gaps {
            let Some(tree) = self.trees.get_mut(name) else { continue };
            for gap in gaps.values() {
                tree.entries = tree.entries.saturating_sub(gap.entries.unwrap_or(0).min(gap.found));
                tree.ranges -= if gap.is_filled() { gap.ranges } else { 0 };
            }
        }
        let gaps = &self.gaps;
        self.ranges.retain_mut(|range| {
            let gap = gaps.get(&range.tree).and_then(|gaps| gaps.get(&range.after));
            let Some(gap) = gap.filter(|gap| gap.before == range.before) else { return true };
            range.entries = range.entries.map(|entries| entries.saturating_sub(gap.found));
            !gap.is_filled()
        });
        self.trees.retain(|_, tree| tree.ranges > 0);
        Losses { ranges: self.ranges, trees: self.trees.into_values().collect() }
    }
}
