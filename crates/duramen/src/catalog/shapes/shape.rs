//! One shape: a number, and the names that it stands for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::layout::Layout;
use super::put_row;
use super::row::{Row, key_of};
use crate::store::Shared;
use crate::store::error::Result;
use crate::value::msgpack::write;

/// The shape of some documents.
pub(crate) struct Shape {
    number: u32,
    layout: Layout,
    /// The bytes of its row; empty for a shape that was read from its row.
    pub(super) stored: Vec<u8>,
    /// Whether its row is in a published state, and so in all later ones.
    is_published: AtomicBool,
}

impl Shape {
    /// A shape that was read from its row, of a state that is published.
    pub(super) fn of_row(row: Row) -> Shape {
        let Row { number, layout, .. } = row;
        Shape { number, layout, stored: Vec::new(), is_published: AtomicBool::new(true) }
    }

    /// A shape that this process adds.
    ///
    /// # Errors
    /// `InvalidArgument` for names that are too long.
    pub(super) fn added(row: Row) -> Result<Shape> {
        let stored = row.stored()?;
        Ok(Shape { stored, is_published: AtomicBool::new(false), ..Shape::of_row(row) })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The names of its documents.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Puts the row of a shape that this process added, in no published state yet.
    ///
    /// Two transactions may put the same row: it has the same bytes, so they do not conflict.
    ///
    /// # Errors
    /// Those of a write.
    pub(crate) fn put(&self, tx: &Shared<'_>) -> Result<()> {
        put_row(tx, &key_of(self.number)?, &self.stored)
    }

    /// Whether it is the shape of this row.
    pub(super) fn is_of(&self, row: &Row) -> bool {
        (self.number, &self.layout) == (row.number, &row.layout)
    }

    /// Whether its row is in a published state. Every transaction that uses it puts its row until then.
    pub(crate) fn is_published(&self) -> bool {
        self.is_published.load(Ordering::Acquire)
    }

    pub(super) fn publish(&self) {
        self.is_published.store(true, Ordering::Release);
    }

    /// The document with names as one of this shape; `None` unless its fields are the shape's, in its order.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(super) fn of_named(&self, named: &[u8]) -> Result<Option<Vec<u8>>> {
        self.layout.of_named(named, |stored| self.begin(stored))
    }

    /// Appends what a document of this shape begins with. Its values follow.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        write::int(out, i128::from(self.number)).expect("a number of 32 bits can be stored");
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ({})", self.number, self.layout.names().join(", "))
    }
}
