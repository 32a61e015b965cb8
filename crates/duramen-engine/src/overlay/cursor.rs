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
    /// The next entry of the tree, once it was read.
    ahead: Ahead,
    /// The entry lent last, if it came from the tree.
    lent: Entry,
}

#[derive(Debug)]
enum Ahead {
    Unknown,
    Known(Entry),
    End,
}

#[derive(Debug, Default)]
struct Entry {
    key: Vec<u8>,
    big: bool,
    value: Vec<u8>,
}

enum Source {
    /// The entry of the tree comes next.
    Below,
    /// The change with this index comes next. With `true` it replaces the entry of the tree.
    Change(usize, bool),
    Over,
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
            ahead: Ahead::Unknown,
            lent: Entry::default(),
        }
    }

    /// The next entry, lent until the next call.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read; the cursor then stays where it is.
    pub(crate) fn next(&mut self, pages: &Pages) -> Result<Option<(&[u8], StoredValue<'_>)>> {
        loop {
            self.look_ahead(pages)?;
            match self.next_source() {
                Source::Over => return Ok(None),
                Source::Below => {
                    let Ahead::Known(entry) = std::mem::replace(&mut self.ahead, Ahead::Unknown) else {
                        unreachable!("the next is an entry")
                    };
                    self.lent = entry;
                    let Entry { key, big, value } = &self.lent;
                    return Ok(Some((key, StoredValue { big: *big, bytes: value })));
                }
                Source::Change(index, replaces) => {
                    if replaces {
                        self.ahead = Ahead::Unknown;
                    }
                    match self.direction {
                        Direction::Forward => self.from += 1,
                        Direction::Reverse => self.to -= 1,
                    }
                    if self.overlay.changes().of_tree(self.tree).get(index).value.is_none() {
                        continue;
                    }
                    let change = self.overlay.changes().of_tree(self.tree).get(index);
                    return Ok(change.value.map(|value| (change.key, value)));
                }
            }
        }
    }

    fn look_ahead(&mut self, pages: &Pages) -> Result<()> {
        if matches!(self.ahead, Ahead::Unknown) {
            self.ahead = match self.below.next(pages)? {
                None => Ahead::End,
                Some((key, value)) => {
                    Ahead::Known(Entry { key: key.to_vec(), big: value.big, value: value.bytes.to_vec() })
                }
            };
        }
        Ok(())
    }

    /// Which comes next. For equal keys it is the change.
    fn next_source(&self) -> Source {
        let index = match self.direction {
            Direction::Forward => self.from,
            Direction::Reverse => self.to.wrapping_sub(1),
        };
        let change = (self.from < self.to).then(|| self.overlay.changes().of_tree(self.tree).get(index));
        match (&self.ahead, change) {
            (Ahead::Known(_), None) => Source::Below,
            (Ahead::Known(entry), Some(change)) => {
                let order = match self.direction {
                    Direction::Forward => entry.key.as_slice().cmp(change.key),
                    Direction::Reverse => change.key.cmp(&entry.key),
                };
                if order.is_lt() { Source::Below } else { Source::Change(index, order.is_eq()) }
            }
            (_, Some(_)) => Source::Change(index, false),
            (_, None) => Source::Over,
        }
    }
}
