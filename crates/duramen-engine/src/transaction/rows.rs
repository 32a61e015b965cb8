//! The entries of a range, lent one by one or iterated over as copies.

use std::borrow::Cow;

use std::sync::Arc;

use super::view::View;
use crate::error::Result;
use crate::ids::TreeId;
use crate::overlay::{OverlaidCursor, Overlay};
use crate::tree::{Cursor, Direction, KeyRange, Slot, StoredValue};

/// The entries of a range in order. Keeps its snapshot registered.
#[derive(Debug)]
pub struct Rows {
    view: View,
    walk: Walk,
}

#[derive(Debug)]
enum Walk {
    Tree(Cursor),
    Overlaid(Box<OverlaidCursor>),
}

/// One entry, lent until the next call.
#[derive(Debug)]
pub struct Row<'a> {
    view: &'a View,
    key: &'a [u8],
    value: StoredValue<'a>,
}

impl Rows {
    pub(super) fn new(view: View, slot: Option<&Slot>, range: KeyRange, direction: Direction) -> Rows {
        Rows { view, walk: Walk::Tree(Cursor::new(slot, range, direction)) }
    }

    pub(super) fn overlaid(
        view: View,
        slot: Option<&Slot>,
        overlay: &Arc<Overlay>,
        tree: TreeId,
        range: KeyRange,
        direction: Direction,
    ) -> Rows {
        let cursor = OverlaidCursor::new(slot, overlay, tree, range, direction);
        Rows { view, walk: Walk::Overlaid(Box::new(cursor)) }
    }

    /// The next entry, or `None` at the end of the range.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    #[expect(clippy::should_implement_trait, reason = "it lends, which an Iterator cannot; see `into_iter`")]
    pub fn next(&mut self) -> Result<Option<Row<'_>>> {
        let view = &self.view;
        let moved = match &mut self.walk {
            Walk::Tree(cursor) => cursor.next(view.pages()),
            Walk::Overlaid(cursor) => cursor.next(view.pages()),
        };
        match moved {
            Ok(None) => Ok(None),
            Ok(Some((key, value))) => Ok(Some(Row { view, key, value })),
            Err(error) => view.still_held(Err(error)),
        }
    }

    /// Moves to the next entry without lending it; `false` at the end of the range.
    ///
    /// # Errors
    /// As [`Rows::next`].
    pub fn advance(&mut self) -> Result<bool> {
        let pages = self.view.pages();
        let moved = match &mut self.walk {
            Walk::Tree(cursor) => cursor.advance(pages),
            Walk::Overlaid(cursor) => cursor.next(pages).map(|entry| entry.is_some()),
        };
        moved.or_else(|error| self.view.still_held(Err(error)))
    }

    /// Whether the value of the current entry is big: not in its page.
    #[must_use]
    pub fn is_big(&self) -> bool {
        match &self.walk {
            Walk::Tree(cursor) => cursor.is_big(),
            Walk::Overlaid(cursor) => cursor.entry().is_some_and(|(_, value)| value.big),
        }
    }

    /// The entry to which it moved last; `None` before the first and after the last.
    pub fn row(&mut self) -> Option<Row<'_>> {
        let (key, value) = match &mut self.walk {
            Walk::Tree(cursor) => {
                cursor.make_key();
                cursor.entry()
            }
            Walk::Overlaid(cursor) => cursor.entry(),
        }?;
        Some(Row { view: &self.view, key, value })
    }

    /// As [`Row::value_in_page`] of [`Rows::row`], without making its key.
    #[must_use]
    pub fn value_in_page(&self) -> Option<&[u8]> {
        let value = match &self.walk {
            Walk::Tree(cursor) => cursor.value(),
            Walk::Overlaid(cursor) => cursor.entry().map(|(_, value)| value),
        }?;
        (!value.big).then_some(value.bytes)
    }
}

impl<'a> Row<'a> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value: borrowed from its page, or read from its extents.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn value(&self) -> Result<Cow<'a, [u8]>> {
        match self.value_in_page() {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => self.view.resolve(self.value).map(Cow::Owned),
        }
    }

    /// The value if it lies in its page; `None` for a big one.
    #[must_use]
    pub fn value_in_page(&self) -> Option<&'a [u8]> {
        (!self.value.big).then_some(self.value.bytes)
    }
}

impl IntoIterator for Rows {
    type Item = Result<(Vec<u8>, Vec<u8>)>;
    type IntoIter = RowIter;

    fn into_iter(self) -> RowIter {
        RowIter { rows: self, failed: false }
    }
}

/// The entries as an iterator of copies. Ends after the first error.
#[derive(Debug)]
pub struct RowIter {
    rows: Rows,
    failed: bool,
}

impl Iterator for RowIter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let owned = |row: Row<'_>| row.value().map(|value| (row.key().to_vec(), value.into_owned()));
        let next = self.rows.next().transpose()?.and_then(owned);
        self.failed = next.is_err();
        Some(next)
    }
}
