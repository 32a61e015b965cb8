//! Shapes in a node of a cluster: a shape is decided by a majority before a document names it.
//!
//! A number that was given in a transaction may go to another shape there: the transaction never happened,
//! and another node leads. So a new shape gets its number in a commit of its own, which runs inside the
//! transaction that wants it. What is known in memory is decided, as in other databases; a shape that is not
//! known was decided since on another node, and is read from the published state.

use std::fmt;

use super::of_collection::{CollectionShapes, Names};
use super::row::{Row, key_of};
use super::{SHAPES, Shape, Shapes, put_row};
use crate::store::error::{Code, Error, ErrorKind, Result};
use crate::store::{Direction, Durability, Engine, KeyRange, Shared, Source};

/// The database of a node, whose shapes these are.
pub(super) struct OfNode(pub(super) Engine);

impl fmt::Debug for OfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfNode").finish()
    }
}

impl OfNode {
    /// Takes the shapes that were decided since the last look.
    ///
    /// # Errors
    /// Those of a read, and of [`Shapes::take`].
    pub(super) fn read(&self, shapes: &Shapes) -> Result<()> {
        take_new(shapes, &self.0.snapshot()?)
    }

    /// The shape of these names, decided now if it is new; `None` for documents that keep their names.
    ///
    /// # Errors
    /// Those of a commit. The transaction that wants the shape must fail with them.
    pub(super) fn find_or_add<'s>(
        &self,
        shapes: &'s Shapes,
        of: &CollectionShapes<'_>,
        names: &Names<'_>,
    ) -> Result<Option<&'s Shape>> {
        let Some(layout) = names.layout(of.sums) else { return Ok(None) };
        let hash = names.hash();
        let added = self.0.transact(Durability::Disk, |tx| {
            let tx = Shared::new(tx);
            take_new(shapes, &tx)?;
            let known = shapes.known();
            if shapes.find(&known, hash, of, names).is_some() || !known.has_room(of.collection, names.bytes())
            {
                return Ok(None);
            }
            let row =
                Row { number: known.next, layout: layout.clone(), collection: of.collection.to_owned() };
            drop(known);
            if shapes.place(row.number).is_none() {
                return Ok(None);
            }
            let (key, stored) = (key_of(row.number)?, row.stored()?);
            put_row(&tx, &key, &stored)?;
            Ok(Some((key, stored)))
        });
        match added {
            Ok((Some((key, stored)), _)) => drop(shapes.take(&key, &stored)?),
            Ok((None, _)) => {}
            // The transaction that wants it holds the order of commits.
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(None),
            Err(error) => return Err(of_the_outer(error)),
        }
        Ok(shapes.find(&shapes.known(), hash, of, names))
    }
}

/// Takes the rows of a decided state that follow those known.
fn take_new(shapes: &Shapes, source: &dyn Source) -> Result<()> {
    let Some(tree) = source.tree(SHAPES)? else { return Ok(()) };
    let from = key_of(shapes.known().next)?;
    let mut cursor = source.cursor(tree, KeyRange { from, to: None }, Direction::Forward)?;
    while let Some((key, stored)) = cursor.next()? {
        shapes.take(key, stored)?;
    }
    Ok(())
}

/// The error of the transaction that wants a shape: whatever became of the shape, it did not happen.
fn of_the_outer(error: Error) -> Error {
    if error.kind() != ErrorKind::InDoubt {
        return error;
    }
    Error::new(Code::NoQuorum, "no majority has decided on the names of the fields of a new kind of document")
}
