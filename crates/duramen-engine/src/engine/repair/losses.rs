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
        tree.entries = tree.entries.saturating_add(range.entries.unwrap_or(0));
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
            last.entries = last.entries.zip(range.entries).map(|(one, other)| one.saturating_add(other));
            last.ranges += 1;
            return;
        }
        self.gap_count += 1;
        let gap = Gap { before: range.before.clone(), entries: range.entries, found: 0, ranges: 1 };
        gaps.insert(range.after.clone(), gap);
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

#[cfg(test)]
mod tests {
    //! What is found later must not be reported as lost, and what is still lost must be.
    use super::*;

    fn gap(after: u8, before: u8, entries: Option<u64>) -> LostRange {
        let why = "corrupt".to_owned();
        LostRange { tree: "t".to_owned(), after: Some(vec![after]), before: Some(vec![before]), entries, why }
    }

    #[test]
    fn what_was_found_is_no_longer_lost() {
        let mut noted = Noted::default();
        noted.add(gap(10, 20, Some(5)));
        noted.add(gap(30, 40, Some(7)));
        noted.add(gap(50, 60, None));
        // A single entry is no gap: nothing can fill it.
        noted.add(gap(70, 70, Some(1)));
        let inside = [10, 11, 19, 20, 35, 55, 70].map(|key| noted.is_in_gap("t", &[key]));
        assert_eq!(inside, [false, true, true, false, true, true, false]);
        assert!(!noted.is_in_gap("u", &[11]));

        noted.found("t", &[11], 5);
        noted.found("t", &[31], 3);
        noted.found("t", &[51], 9);
        let Losses { ranges, trees } = noted.finish();
        let left: Vec<_> = ranges.iter().map(|range| (range.after.clone(), range.entries)).collect();
        assert_eq!(left, [(Some(vec![30]), Some(4)), (Some(vec![50]), None), (Some(vec![70]), Some(1))]);
        let total = TreeLoss { tree: "t".to_owned(), ranges: 3, entries: 5, may_be_more: true };
        assert_eq!(trees, [total]);
    }

    #[test]
    fn a_tree_of_which_all_was_found_has_lost_nothing() {
        let mut noted = Noted::default();
        noted.add(gap(10, 20, Some(5)));
        noted.found("t", &[12], 2);
        noted.found("t", &[15], 3);
        let Losses { ranges, trees } = noted.finish();
        assert_eq!((ranges.len(), trees.len()), (0, 0));
    }
}
