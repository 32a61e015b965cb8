//! The names of fields in a repaired database: the shapes that were found, and documents in trees of bytes.
//!
//! A tree of bytes has no shapes. So documents there get the names of their fields, or made-up ones if their
//! shape is lost.

use std::collections::BTreeMap;

use super::batch::Batch;
use super::mentions::RECOVERED;
use super::report::Store;
use super::{ALL, Mending};
use crate::access::reads::sealed::Readable;
use crate::catalog::entries::ROWS;
use crate::catalog::forms;
use crate::catalog::shapes::{self, COPY, SHAPES, Shapes};
use crate::store::error::Result;
use crate::store::{Direction, Source, TreeId, UncertainTree};
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, write};
use crate::value::version;

impl Mending<'_> {
    /// Collects the shapes from every tree that may have some, and puts them into both of theirs.
    ///
    /// None is out of date: the shape of a number never changes. So those of old pages and of trees whose name
    /// is lost count too, after those that are where they should be.
    pub(crate) fn shapes(&mut self, uncertain: &[UncertainTree]) -> Result<()> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let source = state.source();
        let is_of_shapes = |tree: &&UncertainTree| tree.of == SHAPES || tree.of == COPY;
        let old = uncertain.iter().filter(is_of_shapes).map(|tree| tree.tree.clone());
        let own = [SHAPES.to_owned(), COPY.to_owned()];
        let mut found = BTreeMap::new();
        let is_there = |name: &String| Ok(source.tree(name)?.is_some());
        if own.iter().map(is_there).collect::<Result<Vec<bool>>>()? == [true, true] {
            self.report.has_one_of(&own);
        }
        for name in own.iter().cloned().chain(old).chain(self.report.renamed.clone()) {
            let Some(tree) = source.tree(&name)? else { continue };
            let mut rows = source.cursor(tree, ALL, Direction::Forward)?;
            while let Some((key, stored)) = rows.next()? {
                match shapes.take(key, stored) {
                    Ok(()) => {
                        found.entry(key.to_vec()).or_insert_with(|| stored.to_vec());
                    }
                    Err(error) if own.contains(&name) => {
                        self.leave_out(Store::Own, "shapes", key, error.message());
                    }
                    Err(_) => {}
                }
                self.pass()?;
            }
        }
        self.db.transact(|tx| {
            for name in &own {
                if tx.shared().tree(name)?.is_some() {
                    tx.shared().drop_tree(name)?;
                }
            }
            Ok(())
        })?;
        let rows: Vec<_> = found.into_iter().collect();
        for part in rows.chunks(ROWS_OF_A_TRANSACTION) {
            self.db.transact(|tx| {
                part.iter().try_for_each(|(key, stored)| shapes::put_row(tx.shared(), key, stored))
            })?;
        }
        Ok(())
    }

    /// Gives documents in trees of bytes the names of their fields.
    pub(crate) fn names(&mut self) -> Result<()> {
        let state = self.db.snapshot()?;
        let of_collections = [format!("{RECOVERED}{ROWS}"), format!("{RECOVERED}uncertain/{ROWS}")];
        for name in state.source().tree_names()? {
            if !name.starts_with(RECOVERED) {
                continue;
            }
            let is_of_a_collection = self.of_collections.contains(&name)
                || of_collections.iter().any(|prefix| name.starts_with(prefix));
            let Some(tree) = state.source().tree(&name)? else { continue };
            if is_of_a_collection || self.has_documents(tree)? {
                self.name(tree)?;
            }
        }
        Ok(())
    }

    /// Whether every value of a tree is a document, and one of them names a shape. Few bytes may look like a
    /// document that are none; all values of a tree hardly do.
    fn has_documents(&mut self, tree: TreeId) -> Result<bool> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        let mut have_shapes = false;
        while let Some((_, stored)) = rows.next()? {
            match with_names(shapes, stored) {
                Named::ByShape(_) => have_shapes = true,
                Named::HadThem => {}
                Named::ShapeIsLost | Named::NoDocument => return Ok(false),
            }
            self.pass()?;
        }
        Ok(have_shapes)
    }

    fn name(&mut self, tree: TreeId) -> Result<()> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        let mut batch = Batch::new(self.db);
        while let Some((key, stored)) = rows.next()? {
            let named = match with_names(shapes, stored) {
                Named::ByShape(named) => Some(named),
                Named::ShapeIsLost => with_made_up_names(stored),
                Named::HadThem | Named::NoDocument => None,
            };
            if let Some(named) = named {
                batch.put(tree, key.to_vec(), named)?;
            }
            self.pass()?;
        }
        batch.commit()
    }
}

const ROWS_OF_A_TRANSACTION: usize = 256;

/// A stored value, as a document with names.
enum Named {
    ByShape(Vec<u8>),
    HadThem,
    ShapeIsLost,
    NoDocument,
}

fn with_names(shapes: &Shapes, stored: &[u8]) -> Named {
    let Ok((_, document)) = version::split(stored) else { return Named::NoDocument };
    if !begins_with_a_shape(document) {
        let is_map = matches!(Reader::new(document).next(), Ok(Token::Map(_)));
        return if is_map { Named::HadThem } else { Named::NoDocument };
    }
    if shapes.split(document).is_err() {
        return Named::ShapeIsLost;
    }
    let mut named = Vec::new();
    match forms::name_by_shape(shapes, document, &mut named) {
        Ok(()) => Named::ByShape(named),
        Err(_) => Named::NoDocument,
    }
}

/// A document whose shape is lost: its number as the field `shape`, and its values as `1`, `2` and so on.
fn with_made_up_names(stored: &[u8]) -> Option<Vec<u8>> {
    let (_, document) = version::split(stored).ok()?;
    let mut reader = Reader::new(document);
    let mut values = Vec::new();
    while !reader.at_end() {
        values.push(reader.raw().ok()?);
    }
    let mut named = Vec::new();
    write::map(&mut named, values.len()).ok()?;
    for (number, value) in values.into_iter().enumerate() {
        let name = if number == 0 { "shape".to_owned() } else { number.to_string() };
        write::text(&mut named, &name).ok()?;
        named.extend_from_slice(value);
    }
    Some(named)
}
