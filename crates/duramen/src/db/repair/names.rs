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
use crate::catalog::shapes::{self, COPY, FIELDS_MAX, SHAPES, Shapes};
use crate::store::error::{Code, Result};
use crate::store::{Direction, LogEntry, Source, TreeId, UncertainTree};
use crate::value::document::{Document, Value};
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, write};
use crate::value::tuple::{Element, decode};
use crate::value::version;

impl Mending<'_> {
    /// Collects the shapes from every tree that may have some, and puts them into both of theirs.
    ///
    /// The shape of a number does not change. So those of old pages and of trees whose name is lost count,
    /// too, after those that are where they should be, and so do those that the log puts there.
    pub(crate) fn shapes(&mut self, uncertain: &[UncertainTree], of_log: &[LogEntry]) -> Result<()> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let source = state.source();
        let may_have_some =
            |tree: &&UncertainTree| [SHAPES, COPY].contains(&&*tree.of) || is_unnamed(&tree.of);
        let old = uncertain.iter().filter(may_have_some).map(|tree| tree.tree.clone());
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
                    Ok(number) => {
                        found.entry(number).or_insert_with(|| (key.to_vec(), stored.to_vec()));
                    }
                    // A row of a later release is intact, but this build cannot judge it.
                    Err(error) if error.code() == Code::Unsupported => return Err(error),
                    Err(error) if own.contains(&name) => {
                        self.leave_out(Store::Own, "shapes", key, error.message());
                    }
                    Err(_) => {}
                }
                self.pass()?;
            }
        }
        for LogEntry { key, value, .. } in of_log.iter().filter(|entry| own.contains(&entry.tree)) {
            if let Ok(number) = shapes.take(key, value) {
                found.entry(number).or_insert_with(|| (key.clone(), value.clone()));
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
        let rows: Vec<_> = found.into_values().collect();
        for part in rows.chunks(ROWS_OF_A_TRANSACTION) {
            self.db.transact(|tx| {
                part.iter().try_for_each(|(key, stored)| shapes::put_row(tx.shared(), key, stored))
            })?;
        }
        Ok(())
    }

    /// Gives documents in the trees of bytes that this repair made the names of their fields.
    pub(crate) fn names(&mut self, uncertain: &[UncertainTree]) -> Result<()> {
        let state = self.db.snapshot()?;
        let made = uncertain.iter().map(|tree| (tree.of.clone(), tree.tree.clone()));
        let renamed =
            self.report.renamed.iter().map(|name| (name[RECOVERED.len()..].to_owned(), name.clone()));
        for (of, name) in made.chain(renamed).collect::<Vec<_>>() {
            let Some(tree) = state.source().tree(&name)? else { continue };
            let is_of_a_collection = of.starts_with(ROWS) || self.of_collections.contains(&name);
            if is_of_a_collection || is_unnamed(&of) && self.has_documents(tree)? {
                self.name(tree)?;
            }
        }
        Ok(())
    }

    /// Whether every value of a tree is a document with its own key among its fields, and not all have names.
    /// A few bytes may look like a document that are none.
    fn has_documents(&mut self, tree: TreeId) -> Result<bool> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        let mut lack_names = false;
        while let Some((key, stored)) = rows.next()? {
            let named = match with_names(shapes, stored) {
                Named::ByShape(named) => Some(named),
                Named::ShapeIsLost => with_made_up_names(stored),
                Named::HadThem => None,
                Named::NoDocument => return Ok(false),
            };
            lack_names |= named.is_some();
            if !has_key(key, named.as_deref().unwrap_or(stored)) {
                return Ok(false);
            }
            self.pass()?;
        }
        Ok(lack_names)
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

/// Whether the tree had this name because its own is lost.
fn is_unnamed(of: &str) -> bool {
    of.strip_prefix("tree-").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether each element of a key is the value of a field.
fn has_key(key: &[u8], stored: &[u8]) -> bool {
    let named = version::split(stored).and_then(|(_, named)| Document::from_bytes(named));
    let (Ok(elements), Ok(document)) = (decode(key), named) else { return false };
    let is_field = |element: Element| {
        let wanted = Value::from(element);
        document.iter().any(|(_, value)| *value == wanted)
    };
    !elements.is_empty() && elements.into_iter().all(is_field)
}

/// A document whose shape is lost: its number as the field `shape`, and its values as `1`, `2` and so on.
fn with_made_up_names(stored: &[u8]) -> Option<Vec<u8>> {
    let (_, document) = version::split(stored).ok()?;
    let mut reader = Reader::new(document);
    let mut values = Vec::new();
    while !reader.at_end() {
        if values.len() > FIELDS_MAX {
            return None;
        }
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
