//! Shapes: the names and the order of the fields of documents, stored once.
//!
//! Owns the trees of shapes, and the numbers that documents name their shape by. A number means one shape for
//! the whole life of a database: rows are added, and never changed or deleted. So a change in the feed can be
//! read after its collection was dropped. docs/format.md, "Shapes".
//!
//! In one process a number is given to one shape only, also if the transaction that added it was rolled back.
//! So what is known in memory holds for every state, published or not. Lookups by number take no lock.

mod of_collection;
mod row;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, Features, KeyRange, Shared, Source};
use crate::value::msgpack::{Reader, Token};

use of_collection::Names;
pub(crate) use of_collection::{CollectionShapes, RecentShapes};
use row::{Row, key_of};
pub(crate) use shape::Shape;

/// The tree of shapes: the key is the tuple of the number, the value the stored shape.
pub(crate) const SHAPES: &str = "duramen/shapes";

/// The same rows once more: without them, documents are values without names.
pub(crate) const COPY: &str = "duramen/shapes-copy";

/// The most shapes that one collection adds. Documents of others are stored with their names.
const OF_A_COLLECTION_MAX: u32 = 255;

/// The most shapes of a database, and the most bytes of their names: all of them are in memory.
const ALL_MAX: usize = 65_536;
const ALL_NAMES_BYTES_MAX: usize = 16 * 1_024 * 1_024;

/// The most fields of a shape, and the most bytes of their names: a longer document names its fields.
const FIELDS_MAX: usize = 1_024;
const NAMES_BYTES_MAX: usize = 16 * 1_024;

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

const CHUNK: usize = 256;
const _: () = assert!(ALL_MAX.is_multiple_of(CHUNK), "chunks have room for every number");

const POISON: &str = "nothing panics while the shapes are locked";

type Chunk = Box<[OnceLock<Shape>]>;

/// The shapes of a database that is open.
pub(crate) struct Shapes {
    by_number: Box<[OnceLock<Chunk>]>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Numbers by what a shape's row has, without the name of a collection.
    numbers: HashMap<Vec<u8>, u32>,
    /// How many shapes each collection added.
    added: HashMap<String, u32>,
    /// The next number.
    next: u32,
    /// Bytes of all names.
    names_bytes: usize,
    /// Why the tree of shapes could not be read. No shape is added then.
    failed: Option<Error>,
}

impl Default for Shapes {
    fn default() -> Self {
        let by_number = (0..ALL_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Shapes { by_number, known: Mutex::default() }
    }
}

impl fmt::Debug for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shapes").field("count", &self.known().next).finish_non_exhaustive()
    }
}

impl Shapes {
    /// Reads the shapes of a state that is published, from both trees. If they cannot be read or differ, the
    /// database opens with the shapes that were found, and none is added: only documents of a shape that is
    /// missing fail.
    pub(crate) fn load(&self, source: &dyn Source) {
        let found = [SHAPES, COPY].map(|tree| self.read_all(source, tree));
        let failed = match found {
            [Ok(rows), Ok(copies)] if rows == copies => return,
            [Ok(rows), Ok(copies)] => differing(rows, copies),
            [Err(error), _] | [_, Err(error)] => error,
        };
        self.known().failed.get_or_insert(failed);
    }

    /// Reads every row of a tree of shapes. Returns how many it has.
    ///
    /// # Errors
    /// As [`Shapes::take`], and those of a read.
    pub(crate) fn read_all(&self, source: &dyn Source, tree: &str) -> Result<usize> {
        let Some(tree) = source.tree(tree)? else { return Ok(0) };
        let mut cursor = source.cursor(tree, ALL, Direction::Forward)?;
        let mut rows = 0;
        while let Some((key, stored)) = cursor.next()? {
            self.take(key, stored)?;
            rows += 1;
        }
        Ok(rows)
    }

    /// Adds a shape from its row.
    ///
    /// # Errors
    /// `CorruptData` for a row that cannot be read, or that contradicts a known shape.
    pub(crate) fn take(&self, key: &[u8], stored: &[u8]) -> Result<()> {
        let corrupt = |why: &str| {
            Error::new(Code::CorruptData, format!("a row of the tree {SHAPES} cannot be read: {why}"))
        };
        let row = Row::read(key, stored).map_err(|error| corrupt(error.message()))?;
        let mut known = self.known();
        known.next = known.next.max(row.number + 1);
        let form = row.form()?;
        let Some(place) = self.place(row.number) else { return Err(corrupt("its number is too large")) };
        if let Some(there) = place.get() {
            return if there.is_of(&row) {
                Ok(())
            } else {
                Err(corrupt("its number is that of another shape"))
            };
        }
        known.numbers.insert(form, row.number);
        known.names_bytes += row.names.iter().map(String::len).sum::<usize>();
        *known.added.entry(row.collection.clone()).or_default() += 1;
        place.get_or_init(|| Shape::of_row(row));
        Ok(())
    }

    /// The shape of a number. Takes no lock.
    ///
    /// # Errors
    /// `CorruptData` if there is none.
    pub(crate) fn of(&self, number: u32) -> Result<&Shape> {
        self.look_up(number).ok_or_else(|| self.missing(number))
    }

    /// The shape that a stored document names, and the bytes of its values.
    ///
    /// # Errors
    /// `CorruptData` for a shape that is not there; `InvalidArgument` for bytes that name none.
    #[inline]
    pub(crate) fn split<'d>(&self, document: &'d [u8]) -> Result<(&Shape, &'d [u8])> {
        if let [number @ 0..=0x7f, values @ ..] = document {
            return Ok((self.of(u32::from(*number))?, values));
        }
        let mut reader = Reader::new(document);
        let Token::Int(number) = reader.next()? else { return Err(reader.wrong("a shape was wanted")) };
        let number = u32::try_from(number).map_err(|_| reader.wrong("the number of a shape was wanted"))?;
        Ok((self.of(number)?, reader.rest()))
    }

    fn look_up(&self, number: u32) -> Option<&Shape> {
        let at = number as usize;
        self.by_number.get(at / CHUNK)?.get()?[at % CHUNK].get()
    }

    /// Where the shape of a number is kept; `None` for one that no database gives.
    fn place(&self, number: u32) -> Option<&OnceLock<Shape>> {
        let at = number as usize;
        let chunk = self.by_number.get(at / CHUNK)?;
        Some(&chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect())[at % CHUNK])
    }

    #[cold]
    fn missing(&self, number: u32) -> Error {
        if let Some(failed) = &self.known().failed {
            return failed.clone();
        }
        let message =
            format!("a document has the shape {number}, and the tree {SHAPES} has none of this number");
        Error::new(Code::CorruptData, message)
    }

    /// A document with names as it is stored, with its shape; `None` if it is to keep its names.
    ///
    /// The caller must see to it that the shape's row is in the state of its transaction: [`Shape::put`].
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(crate) fn shaped(
        &self,
        of: &CollectionShapes<'_>,
        named: &[u8],
    ) -> Result<Option<(&Shape, Vec<u8>)>> {
        if let Some(shape) = self.look_up(of.recent.last())
            && let Some(stored) = shape.of_named(named)?
        {
            return Ok(Some((shape, stored)));
        }
        let Some(names) = Names::of(named)? else { return Ok(None) };
        let hash = names.hash();
        if let Some(remembered) = of.recent.of(hash) {
            let Some(shape) = remembered.and_then(|number| self.look_up(number)) else { return Ok(None) };
            if let Some(stored) = shape.of_named(named)? {
                of.recent.used(shape.number());
                return Ok(Some((shape, stored)));
            }
        }
        let shape = self.find_or_add(of, &names)?;
        of.recent.remember(hash, shape.map(Shape::number));
        let Some(shape) = shape else { return Ok(None) };
        of.recent.used(shape.number());
        Ok(shape.of_named(named)?.map(|stored| (shape, stored)))
    }

    /// The shape of these names, which is added if it is new; `None` for documents that keep them.
    fn find_or_add(&self, of: &CollectionShapes<'_>, names: &Names<'_>) -> Result<Option<&Shape>> {
        let Some((names, shown)) = names.ordered(of.sums) else { return Ok(None) };
        let mut row = Row { number: 0, names, shown, collection: of.collection.to_owned() };
        let form = row.form()?;
        let mut known = self.known();
        if let Some(number) = known.numbers.get(&form) {
            return Ok(self.look_up(*number));
        }
        let added = known.added.get(of.collection).copied().unwrap_or_default();
        let names_bytes = known.names_bytes + row.names.iter().map(String::len).sum::<usize>();
        row.number = known.next;
        let Some(place) = self.place(row.number) else { return Ok(None) };
        if added >= OF_A_COLLECTION_MAX || names_bytes > ALL_NAMES_BYTES_MAX || known.failed.is_some() {
            return Ok(None);
        }
        let shape = Shape::added(row)?;
        known.next += 1;
        known.names_bytes = names_bytes;
        known.numbers.insert(form, shape.number());
        known.added.insert(of.collection.to_owned(), added + 1);
        Ok(Some(place.get_or_init(|| shape)))
    }

    /// Notes which shapes a published state has. Later transactions need not put their rows.
    pub(crate) fn published(&self, source: &dyn Source, numbers: &[u32]) {
        let Ok(Some(tree)) = source.tree(SHAPES) else { return };
        for number in numbers {
            let row = key_of(*number).and_then(|key| source.get(tree, &key));
            if let (Ok(Some(_)), Some(shape)) = (row, self.look_up(*number)) {
                shape.publish();
            }
        }
    }

    /// The number of shapes that are known.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.known().numbers.len()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect(POISON)
    }
}

/// Puts a row into both trees of shapes, which are created if need be.
pub(crate) fn put_row(tx: &Shared<'_>, key: &[u8], stored: &[u8]) -> Result<()> {
    for name in [SHAPES, COPY] {
        let tree = match tx.tree(name)? {
            Some(tree) => tree,
            None => tx.create_tree_with_features(name, Features::SHAPES)?,
        };
        tx.put(tree, key, stored)?;
    }
    Ok(())
}

/// The trees have different numbers of rows. A row is never changed, so this is the only difference that
/// [`Shapes::take`] does not find.
pub(crate) fn differing(rows: usize, copies: usize) -> Error {
    let message =
        format!("the trees {SHAPES} and {COPY} have {rows} and {copies} rows, and should have the same");
    Error::new(Code::CorruptData, message)
}
