//! What a transaction read, and whether it has changed since.

use std::collections::BTreeMap;
use std::io::Read;

use super::changes::WrittenKeys;
use super::key_map::{KeyMap, SortedKeys};
use crate::catalog::Root;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::limits::KEY_BYTES_MAX;
use crate::page_cache::Pages;
use crate::tree::{BigReader, BigRef, Cursor, Direction, KeyRange, Slot, StoredValue, find};

/// Beyond this many points and ranges a whole tree counts as read: more conflicts, never a wrong answer.
const NOTES_PER_TREE_MAX: usize = 4096;

/// What a note takes in memory beside its keys, about.
const NOTE_BYTES: usize = 48;

/// Bytes of two big values that are compared at a time.
const COMPARED_BYTES: usize = 64 * 1024;

/// The read set of a transaction.
///
/// It can be bounded. Beyond the bound, trees count as read whole, the one with the longest notes first.
#[derive(Debug)]
pub(crate) struct Reads {
    trees: BTreeMap<TreeId, TreeReads>,
    /// The memory of all notes, about.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct TreeReads {
    /// The memory of the notes of this tree, about.
    bytes: usize,
    points: KeyMap<()>,
    /// Disjoint, in order of their start.
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { trees: BTreeMap::new(), bytes: 0, bytes_max: usize::MAX }
    }
}

impl Reads {
    /// Notes the lookup of a key, found or not.
    pub(crate) fn point(&mut self, tree: TreeId, key: &[u8]) {
        let reads = self.trees.entry(tree).or_default();
        // A key that is too long to be written is absent, whatever is committed.
        if key.len() <= KEY_BYTES_MAX && !reads.covers(key) && reads.points.set(key, ()).is_none() {
            let before = reads.bytes;
            reads.bytes += key.len() + NOTE_BYTES;
            reads.escalate();
            let after = reads.bytes;
            self.count_bytes(before, after);
        }
    }

    /// Notes that a range was read, counted or reduced, even if not to its end.
    pub(crate) fn range(&mut self, tree: TreeId, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let reads = self.trees.entry(tree).or_default();
        let before = reads.bytes;
        reads.add_range(range.clone());
        reads.escalate();
        let after = reads.bytes;
        self.count_bytes(before, after);
    }

    /// Bounds the memory of the notes. One note a tree is always kept.
    pub(crate) fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.fit();
    }

    /// The memory of the notes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn count_bytes(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
        if self.bytes > self.bytes_max {
            self.fit();
        }
    }

    /// Lets trees count as read whole until the notes take no more than they may.
    fn fit(&mut self) {
        while self.bytes > self.bytes_max {
            let longest = self.trees.values_mut().max_by_key(|reads| reads.bytes);
            let Some(reads) = longest.filter(|reads| !reads.is_whole()) else { return };
            self.bytes -= reads.bytes;
            reads.read_whole();
            self.bytes += reads.bytes;
        }
    }

    /// Whether nothing was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// The number of points and ranges.
    pub(crate) fn count(&self) -> usize {
        self.trees.values().map(|reads| reads.points.len() + reads.ranges.len()).sum()
    }

    /// Whether a tree that was read exists in only one of the roots.
    pub(crate) fn see_other_trees(&self, old: &Root, new: &Root) -> bool {
        let is_there =
            |root: &Root, id: TreeId| root.trees.get(id).is_some_and(|tree| tree.dropped_at.is_none());
        self.trees.keys().any(|id| is_there(old, *id) != is_there(new, *id))
    }

    /// Whether any of these keys was read.
    pub(crate) fn touch(&self, written: &WrittenKeys) -> bool {
        self.touched(written).is_some()
    }

    /// The first of these keys that was read.
    pub(crate) fn touched<'w>(&self, written: &'w WrittenKeys) -> Option<(TreeId, &'w [u8])> {
        self.trees.iter().find_map(|(tree, reads)| {
            let key = written.of_tree(*tree).and_then(|keys| reads.touched(keys))?;
            Some((*tree, key))
        })
    }

    /// Whether anything that was read differs between two roots. It compares values: a value that was changed
    /// and changed back is no conflict.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read.
    pub(crate) fn differ(&self, pages: &Pages, old: &Root, new: &Root) -> Result<bool> {
        for (tree, reads) in &self.trees {
            let slot = |root: &Root| root.trees.get(*tree).and_then(|tree| tree.slot.clone());
            let (before, after) = (slot(old), slot(new));
            if same_tree(before.as_ref(), after.as_ref()) {
                continue;
            }
            for (key, ()) in reads.points.iter() {
                let value = |slot: Option<&Slot>| find(pages, slot, key, |v| (v.big, v.bytes.to_vec()));
                match (value(before.as_ref())?, value(after.as_ref())?) {
                    (None, None) => {}
                    (Some((big, bytes)), Some((new_big, new_bytes))) => {
                        let (old, new) = (stored(big, &bytes), stored(new_big, &new_bytes));
                        if !same_value(pages, old, new)? {
                            return Ok(true);
                        }
                    }
                    _ => return Ok(true),
                }
            }
            for (from, to) in &reads.ranges {
                let range = KeyRange { from: from.clone(), to: to.clone() };
                if range_differs(pages, before.as_ref(), after.as_ref(), &range)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl TreeReads {
    fn covers(&self, key: &[u8]) -> bool {
        let before =
            self.ranges.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key)));
        before.last().is_some_and(|(_, to)| to.as_deref().is_none_or(|to| key < to))
    }

    /// Adds a range and merges it with those it touches.
    fn add_range(&mut self, mut range: KeyRange) {
        let before = self.ranges.range(..=range.from.clone()).next_back();
        if let Some((from, to)) = before
            && to.as_ref().is_none_or(|to| *to >= range.from)
        {
            range.from.clone_from(from);
        }
        let touched: Vec<Vec<u8>> = self
            .ranges
            .range(range.from.clone()..)
            .take_while(|(from, _)| range.to.as_ref().is_none_or(|to| *from <= to))
            .map(|(from, _)| from.clone())
            .collect();
        for from in touched {
            let to = self.ranges.remove(&from).flatten();
            self.bytes -= range_bytes((&from, &to));
            range.to = match (range.to, to) {
                (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
                _ => None,
            };
        }
        if self.points.first_from(&range.from).is_some_and(|key| range.contains(key)) {
            let points = std::mem::take(&mut self.points);
            for (key, ()) in points.iter() {
                if range.contains(key) {
                    self.bytes -= key.len() + NOTE_BYTES;
                } else {
                    self.points.set(key, ());
                }
            }
        }
        debug_assert!(self.touches_no_range(&range), "ranges that were read lie apart");
        self.bytes += range_bytes((&range.from, &range.to));
        self.ranges.insert(range.from, range.to);
    }

    /// Whether no range overlaps or adjoins this one. `covers` looks at one range only.
    fn touches_no_range(&self, range: &KeyRange) -> bool {
        let before = self.ranges.range(..=range.from.clone()).next_back();
        let after = self.ranges.range(range.from.clone()..).next();
        before.is_none_or(|(_, to)| to.as_ref().is_some_and(|to| *to < range.from))
            && after.is_none_or(|(from, _)| range.to.as_ref().is_some_and(|to| to < from))
    }

    fn escalate(&mut self) {
        if self.points.len() + self.ranges.len() > NOTES_PER_TREE_MAX {
            self.read_whole();
        }
    }

    /// From here on the whole tree counts as read.
    fn read_whole(&mut self) {
        self.points = KeyMap::default();
        self.ranges.clear();
        self.ranges.insert(Vec::new(), None);
        self.bytes = NOTE_BYTES;
    }

    fn is_whole(&self) -> bool {
        self.ranges.first_key_value().is_some_and(|(from, to)| from.is_empty() && to.is_none())
    }

    fn touched<'w>(&self, written: &'w SortedKeys) -> Option<&'w [u8]> {
        let point = if self.points.len() < written.len() {
            self.points.iter().find_map(|(key, ())| written.find(key))
        } else {
            written.iter().find(|key| self.points.get(key).is_some())
        };
        point.or_else(|| {
            self.ranges.iter().find_map(|(from, to)| {
                written.first_from(from).filter(|key| to.as_deref().is_none_or(|to| *key < to))
            })
        })
    }
}

/// What the note of a range takes in memory, about.
fn range_bytes((from, to): (&Vec<u8>, &Option<Vec<u8>>)) -> usize {
    from.len() + to.as_ref().map_or(0, Vec::len) + NOTE_BYTES
}

fn same_tree(old: Option<&Slot>, new: Option<&Slot>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => old.same_as(new),
        _ => false,
    }
}

fn range_differs(pages: &Pages, old: Option<&Slot>, new: Option<&Slot>, range: &KeyRange) -> Result<bool> {
    let mut old = Cursor::new(old, range.clone(), Direction::Forward);
    let mut new = Cursor::new(new, range.clone(), Direction::Forward);
    loop {
        match (old.next(pages)?, new.next(pages)?) {
            (None, None) => return Ok(false),
            (Some((a, old)), Some((b, new))) if a == b && same_value(pages, old, new)? => {}
            _ => return Ok(true),
        }
    }
}

fn stored(big: bool, bytes: &[u8]) -> StoredValue<'_> {
    StoredValue { big, bytes }
}

/// Whether two values are the same. Compaction moves big values: another place is no other value.
fn same_value(pages: &Pages, old: StoredValue<'_>, new: StoredValue<'_>) -> Result<bool> {
    if old == new || !(old.big && new.big) {
        return Ok(old == new);
    }
    let (old, new) = (BigRef::decode(old.bytes)?, BigRef::decode(new.bytes)?);
    if old.len != new.len {
        return Ok(false);
    }
    let (mut old, mut new) = (BigReader::open(pages, &old)?, BigReader::open(pages, &new)?);
    let (mut ours, mut theirs) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    loop {
        let count = old.read(&mut ours).map_err(of_a_value)?;
        new.read_exact(&mut theirs[..count]).map_err(of_a_value)?;
        if count == 0 || ours[..count] != theirs[..count] {
            return Ok(count == 0);
        }
    }
}

fn of_a_value(error: std::io::Error) -> Error {
    error
        .downcast::<Error>()
        .unwrap_or_else(|error| Error::new(Code::System, format!("cannot read a big value: {error}")))
}

#[cfg(test)]
mod tests {
    //! The memory of the notes is counted as they are added, merged and replaced.
    use super::*;

    fn counted_anew(reads: &Reads) -> usize {
        let of_tree = |reads: &TreeReads| {
            let points: usize = reads.points.iter().map(|(key, ())| key.len() + NOTE_BYTES).sum();
            points + reads.ranges.iter().map(range_bytes).sum::<usize>()
        };
        reads.trees.values().map(of_tree).sum()
    }

    #[test]
    fn the_memory_of_notes_is_counted() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        for bytes_max in [usize::MAX, 5_000, 300, 0] {
            let mut reads = Reads::default();
            reads.limit(bytes_max);
            for _ in 0..3_000 {
                let (tree, from) = (TreeId(100 + next(3)), next(1_000));
                let key = |number: u64| {
                    format!("{number:0>4}{}", "x".repeat(usize::from(number.is_multiple_of(3)))).into_bytes()
                };
                match next(4) {
                    0 => reads.range(tree, &KeyRange { from: key(from), to: Some(key(from + next(9))) }),
                    1 if next(200) == 0 => reads.range(tree, &KeyRange { from: key(from), to: None }),
                    _ => reads.point(tree, &key(from)),
                }
                assert_eq!(reads.bytes(), counted_anew(&reads));
                assert!(reads.bytes() <= bytes_max.max(3 * NOTE_BYTES), "one note a tree at least");
            }
        }
    }
}
