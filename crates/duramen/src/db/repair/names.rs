//! The names of fields in a repaired database: the shapes that were found, and documents in trees of bytes.
//!
//! A tree of bytes has no shapes. So documents there get the names of their fields, or made-up ones if their
//! shape is lost.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::Batch;
use super::mentions::RECOVERED;
use super::report::StoreKind;
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
    /// The shape of a number does not change. So those of old pages, of trees whose name is lost and of the
    /// log count, too, where neither tree has the number and all of these say the same. They may be of a
    /// commit that a crash has dropped.
    pub(crate) fn shapes(&mut self, uncertain: &[UncertainTree], of_log: &[LogEntry]) -> Result<()> {
        let own = [SHAPES.to_owned(), COPY.to_owned()];
        let mut found = self.own_shapes(&own)?;
        let mut guesses = Guesses::default();
        let may_have_some =
            |tree: &&UncertainTree| own.contains(&name_before(&tree.of)) || is_unnamed(&tree.of);
        let old = uncertain.iter().filter(may_have_some).map(|tree| tree.tree.clone());
        for name in old.chain(self.report.renamed.clone()).collect::<Vec<_>>() {
            self.guesses_of(&name, &mut guesses)?;
        }
        for LogEntry { key, value, .. } in of_log.iter().filter(|entry| own.contains(&entry.tree)) {
            guesses.add(key, value);
        }
        let shapes = &self.db.open_state().catalog.shapes;
        for (number, (key, stored)) in guesses.agreed() {
            if !found.contains_key(&number) && shapes.take(&key, &stored).is_ok() {
                self.guessed.insert(number);
                found.insert(number, (key, stored));
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

    /// The shapes of both trees of shapes.
    fn own_shapes(&mut self, own: &[String; 2]) -> Result<BTreeMap<u32, ShapeRow>> {
        let shapes = &self.db.open_state().catalog.shapes;
        let state = self.db.snapshot()?;
        let (mut found, mut wrong) = (BTreeMap::new(), Vec::new());
        let trees = own.iter().map(|name| state.source().tree(name)).collect::<Result<Vec<_>>>()?;
        if trees.iter().all(Option::is_some) {
            self.report.has_one_of(own);
        }
        for tree in trees.into_iter().flatten() {
            let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
            while let Some((key, stored)) = rows.next()? {
                match shapes.take(key, stored) {
                    Ok(number) => {
                        found.entry(number).or_insert_with(|| (key.to_vec(), stored.to_vec()));
                    }
                    // A row of a later release is intact, but this build cannot judge it.
                    Err(error) if error.code() == Code::Unsupported => return Err(error),
                    Err(error) => wrong.push((key.to_vec(), error)),
                }
                self.pass()?;
            }
        }
        // The other tree may have it.
        for (key, error) in wrong {
            if shapes::number_of(&key).is_none_or(|number| !found.contains_key(&number)) {
                self.leave_out(StoreKind::Own, "shapes", &key, error.message());
            }
        }
        Ok(found)
    }

    /// Adds the rows of a tree that may be one of shapes: it is if all of them read as shapes.
    fn guesses_of(&mut self, name: &str, guesses: &mut Guesses) -> Result<()> {
        let state = self.db.snapshot()?;
        let Some(tree) = state.source().tree(name)? else { return Ok(()) };
        let mut of_tree = Vec::new();
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        while let Some((key, stored)) = rows.next()? {
            if !shapes::is_row(key, stored) || of_tree.len() > ROWS_MAX {
                return Ok(());
            }
            of_tree.push((key.to_vec(), stored.to_vec()));
            self.pass()?;
        }
        of_tree.iter().for_each(|(key, stored)| guesses.add(key, stored));
        Ok(())
    }

    /// Gives documents in the trees of bytes that this repair made the names of their fields.
    pub(crate) fn names(&mut self, uncertain: &[UncertainTree]) -> Result<()> {
        let state = self.db.snapshot()?;
        let made = uncertain.iter().map(|tree| (name_before(&tree.of), tree.tree.clone()));
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
            let (named, made_up) = match with_names(shapes, stored) {
                Named::ByShape(named) => (Some(named), 0),
                // The number of its shape is no field.
                Named::ShapeIsLost => (with_made_up_names(stored), 1),
                Named::HadThem => (None, 0),
                Named::NoDocument => return Ok(false),
            };
            lack_names |= named.is_some();
            if !has_key(key, named.as_deref().unwrap_or(stored), made_up) {
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

/// A tree with more rows is none of shapes.
const ROWS_MAX: usize = 65_536;

/// The key and the value of a row of the trees of shapes.
type ShapeRow = (Vec<u8>, Vec<u8>);

/// Shapes that may be of a commit that a crash has dropped: all that were found of each number.
#[derive(Default)]
struct Guesses(BTreeMap<u32, (Vec<u8>, BTreeSet<Vec<u8>>)>);

impl Guesses {
    fn add(&mut self, key: &[u8], stored: &[u8]) {
        let Some(number) = shapes::number_of(key).filter(|_| shapes::is_row(key, stored)) else { return };
        self.0.entry(number).or_insert_with(|| (key.to_vec(), BTreeSet::new())).1.insert(stored.to_vec());
    }

    /// Those of which there is one for their number.
    fn agreed(self) -> impl Iterator<Item = (u32, ShapeRow)> {
        let one = |(number, (key, mut rows)): (u32, (Vec<u8>, BTreeSet<Vec<u8>>))| {
            let first = rows.pop_first()?;
            rows.is_empty().then_some((number, (key, first)))
        };
        self.0.into_iter().filter_map(one)
    }
}

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
        // It is one of another shape, of which the number was guessed.
        Err(_) => Named::ShapeIsLost,
    }
}

/// The name that a tree had before a repair renamed it, as far as that is known.
fn name_before(of: &str) -> String {
    of.strip_prefix(RECOVERED).unwrap_or(of).trim_end_matches('\'').to_owned()
}

/// Whether the tree had this name because its own is lost.
fn is_unnamed(of: &str) -> bool {
    name_before(of)
        .strip_prefix("tree-")
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether each element of a key is the value of a field, after so many that are made up.
fn has_key(key: &[u8], stored: &[u8], made_up: usize) -> bool {
    let named = version::split(stored).and_then(|(_, named)| Document::from_bytes(named));
    let (Ok(elements), Ok(document)) = (decode(key), named) else { return false };
    let is_field = |element: Element| {
        let wanted = Value::from(element);
        document.iter().skip(made_up).any(|(_, value)| *value == wanted)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::value::tuple::encode;

    fn row(name: &str) -> Vec<u8> {
        let names = Value::List(vec![Value::from("id"), Value::from(name)]);
        let row = Document::new().with("v", 1_u8).with("names", names).with("collection", "a");
        row.to_bytes().unwrap()
    }

    // D4: of two shapes for one number, one is of a commit that a crash has dropped. The wrong one would give
    // documents wrong names.
    #[test]
    fn shapes_that_contradict_each_other_are_not_guessed() {
        let mut guesses = Guesses::default();
        let key = |number: u64| encode(&number).unwrap();
        for (number, name) in [(5, "city"), (5, "city"), (6, "city"), (6, "town")] {
            guesses.add(&key(number), &row(name));
        }
        guesses.add(&key(7), b"no shape");
        let agreed: Vec<_> = guesses.agreed().collect();
        assert_eq!(agreed, [(5, (key(5), row("city")))]);
    }
}
