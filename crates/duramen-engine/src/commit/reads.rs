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

/// Bytes of two big values that are compared at a time.
const COMPARED_BYTES: usize = 64 * 1024;

/// The read set of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    trees: BTreeMap<TreeId, TreeReads>,
}

#[derive(Debug, Default)]
struct TreeReads {
    points: KeyMap<()>,
    /// Disjoint, in order of their start.
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Reads {
    /// Notes the lookup of a key, found or not.
    pub(crate) fn point(&mut self, tree: TreeId, key: &[u8]) {
        let reads = self.of(tree);
        // A key that is too long to be written is absent, whatever is committed.
        if key.len() <= KEY_BYTES_MAX && !reads.covers(key) && reads.points.set(key, ()).is_none() {
            reads.escalate();
        }
    }

    /// Notes that a range was read, counted or reduced, even if not to its end.
    pub(crate) fn range(&mut self, tree: TreeId, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let reads = self.of(tree);
        reads.add_range(range.clone());
        reads.escalate();
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

    fn of(&mut self, tree: TreeId) -> &mut TreeReads {
        self.trees.entry(tree).or_default()
    }

    /// Whether any of these keys was read.
    pub(crate) fn touch(&self, written: &WrittenKeys) -> bool {
        self.trees.iter().any(|(tree, reads)| written.of_tree(*tree).is_some_and(|keys| reads.touch(keys)))
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
            range.to = match (range.to, to) {
                (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
                _ => None,
            };
        }
        if self.points.first_from(&range.from).is_some_and(|key| range.contains(key)) {
            let points = std::mem::take(&mut self.points);
            for (key, ()) in points.iter().filter(|(key, ())| !range.contains(key)) {
                self.points.set(key, ());
            }
        }
        debug_assert!(self.touches_no_range(&range), "ranges that were read lie apart");
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
            self.points = KeyMap::default();
            self.ranges.clear();
            self.ranges.insert(Vec::new(), None);
        }
    }

    fn touch(&self, written: &SortedKeys) -> bool {
        let is_point_written = if self.points.len() < written.len() {
            self.points.iter().any(|(key, ())| written.contains(key))
        } else {
            written.iter().any(|key| self.points.get(key).is_some())
        };
        is_point_written
            || self.ranges.iter().any(|(from, to)| {
                written.first_from(from).is_some_and(|key| to.as_deref().is_none_or(|to| key < to))
            })
    }
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
