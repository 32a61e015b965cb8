//! The entries of a range, merged from a tree and the changes over it. For equal keys the change wins.

use std::sync::Arc;

use super::Overlay;
use crate::error::Result;
use crate::ids::TreeId;
use crate::page_cache::Pages;
use crate::tree::{Cursor, Direction, KeyRange, Slot, StoredValue};

/// Iterates over a range of one tree, merged with an overlay's changes.
#[derive(Debug)]
pub(crate) struct OverlaidCursor {
    below: Cursor,
    overlay: Arc<Overlay>,
    tree: TreeId,
    direction: Direction,
    /// The indexes of the remaining changes, `to` excluded.
    from: usize,
    to: usize,
    /// Whether the entry of the tree to which `below` moved last was lent, or replaced: it moves on before
    /// the next entry.
    is_below_passed: bool,
    at: Source,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// The entry of the tree.
    Below,
    /// The change with this index. With `true` it replaces the entry of the tree.
    Change(usize, bool),
    /// No entry: before the first one and after the last.
    Nothing,
}

impl OverlaidCursor {
    /// A cursor before the first entry of a range.
    #[must_use]
    pub(crate) fn new(
        below: Option<&Slot>,
        overlay: &Arc<Overlay>,
        tree: TreeId,
        range: KeyRange,
        direction: Direction,
    ) -> OverlaidCursor {
        let (from, to) = overlay.changes().of_tree(tree).bounds(&range);
        OverlaidCursor {
            below: Cursor::new(below, range, direction),
            overlay: Arc::clone(overlay),
            tree,
            direction,
            from,
            to,
            is_below_passed: true,
            at: Source::Nothing,
        }
    }

    /// Moves to the next entry, and lends it until the next call.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read; the next call then tries again.
    pub(crate) fn next(&mut self, pages: &Pages) -> Result<Option<(&[u8], StoredValue<'_>)>> {
        self.at = Source::Nothing;
        loop {
            if self.is_below_passed {
                self.below.next(pages)?;
                self.is_below_passed = false;
            }
            let next = self.next_source();
            match next {
                Source::Nothing => return Ok(None),
                Source::Below => self.is_below_passed = true,
                Source::Change(index, replaces) => {
                    self.is_below_passed = replaces;
                    match self.direction {
                        Direction::Forward => self.from += 1,
                        Direction::Reverse => self.to -= 1,
                    }
                    if self.overlay.changes().of_tree(self.tree).get(index).value.is_none() {
                        continue;
                    }
                }
            }
            self.at = next;
            return Ok(self.entry());
        }
    }

    /// The entry to which it moved last; `None` before the first and after the last.
    pub(crate) fn entry(&self) -> Option<(&[u8], StoredValue<'_>)> {
        match self.at {
            Source::Nothing => None,
            Source::Below => self.below.entry(),
            Source::Change(index, _) => {
                let change = self.overlay.changes().of_tree(self.tree).get(index);
                change.value.map(|value| (change.key, value))
            }
        }
    }

    /// Which comes next. For equal keys it is the change.
    fn next_source(&self) -> Source {
        let index = match self.direction {
            Direction::Forward => self.from,
            Direction::Reverse => self.to.wrapping_sub(1),
        };
        let change = (self.from < self.to).then(|| self.overlay.changes().of_tree(self.tree).get(index));
        match (self.below.entry(), change) {
            (Some(_), None) => Source::Below,
            (Some((key, _)), Some(change)) => {
                let order = match self.direction {
                    Direction::Forward => key.cmp(change.key),
                    Direction::Reverse => change.key.cmp(key),
                };
                if order.is_lt() { Source::Below } else { Source::Change(index, order.is_eq()) }
            }
            (None, Some(_)) => Source::Change(index, false),
            (None, None) => Source::Nothing,
        }
    }
}
