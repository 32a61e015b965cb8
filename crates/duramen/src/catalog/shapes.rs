//! Shapes: the names and the order of the fields of documents, stored once.
//!
//! Owns the trees of shapes, and the numbers that documents name their shape by. A number means one shape for
//! the whole life of a database: rows are added, and never changed or deleted. So a change in the feed can be
//! read after its collection was dropped. docs/format.md, "Shapes".
//!
//! In one process a number is given to one shape only, also if the transaction that added it was rolled back.
//! So what is known in memory holds for every state, published or not. Lookups by number take no lock. In a
//! node of a cluster other processes give numbers, too: `decided`.

mod decided;
mod layout;
mod of_collection;
mod row;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::error::{Code, Error, Result};
use crate::store::skip::readable_rows;
use crate::store::{Engine, Features, Shared, Source};
use crate::value::msgpack::{Reader, Token, begins_with_a_shape};

use decided::OfNode;
pub(crate) use layout::Layout;
pub(crate) use of_collection::{CollectionShapes, LastShape};
use of_collection::{Names, hash_of};
use row::{Row, key_of};
pub(crate) use shape::Shape;

/// The tree of shapes: the key is the tuple of the number, the value the stored shape.
pub(crate) const SHAPES: &str = "duramen/shapes";

/// The same rows once more: without them, documents are values without names.
pub(crate) const COPY: &str = "duramen/shapes-copy";

/// The most shapes that one collection adds. Documents of others are stored with their names.
const OF_A_COLLECTION_MAX: u32 = 255;

/// The most shapes of a database, and the most bytes that their names take in memory, each with what it takes
/// besides.
const ALL_MAX: usize = 65_536;
const ALL_NAMES_BYTES_MAX: usize = 16 * 1_024 * 1_024;
const NAME_OVERHEAD_BYTES: usize = 48;

/// The most fields of a shape, and the most bytes of their names: a longer document names its fields.
pub(crate) const FIELDS_MAX: usize = 1_024;
const NAMES_BYTES_MAX: usize = 16 * 1_024;

const CHUNK: usize = 256;
const _: () = assert!(ALL_MAX.is_multiple_of(CHUNK), "chunks have room for every number");

const POISON: &str = "nothing panics while the shapes are locked";

type Chunk = Box<[OnceLock<Shape>]>;

/// The shapes of a database that is open.
pub(crate) struct Shapes {
    by_number: Box<[OnceLock<Chunk>]>,
    known: RwLock<Known>,
    /// Documents get no shape.
    keeps_names: AtomicBool,
    /// Of a node of a cluster.
    of_node: OnceLock<OfNode>,
}

#[derive(Default)]
struct Known {
    /// Numbers by a hash of the names, in the order in which documents show them.
    by_names: HashMap<u64, Vec<u32>>,
    /// How many shapes each collection added.
    added: HashMap<String, u32>,
    /// The next number.
    next: u32,
    /// What the names take in memory.
    names_bytes: usize,
    /// Why the trees of shapes cannot be trusted. No shape is added then: its number may be in use.
    failed: Option<Error>,
}

impl Known {
    /// Whether a collection may add a shape whose names take so many bytes.
    fn has_room(&self, collection: &str, names_bytes: usize) -> bool {
        let added = self.added.get(collection).copied().unwrap_or_default();
        let is_within = self.names_bytes.saturating_add(names_bytes) <= ALL_NAMES_BYTES_MAX;
        added < OF_A_COLLECTION_MAX && is_within && self.failed.is_none()
    }

    fn note(&mut self, shape: &Shape, collection: &str) {
        self.by_names.entry(hash_of(shape.layout().shown_names())).or_default().push(shape.number());
        self.names_bytes += bytes_of(shape.layout().shown_names());
        *self.added.entry(collection.to_owned()).or_default() += 1;
    }
}

fn bytes_of<'n>(names: impl Iterator<Item = &'n str>) -> usize {
    names.map(|name| name.len() + NAME_OVERHEAD_BYTES).sum()
}

impl Default for Shapes {
    fn default() -> Self {
        let by_number = (0..ALL_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Shapes {
            by_number,
            known: RwLock::default(),
            keeps_names: AtomicBool::default(),
            of_node: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shapes").field("next", &self.known().next).finish_non_exhaustive()
    }
}

impl Shapes {
    /// Reads the shapes of a state that is published: what can be read of both trees. Returns the problem, if
    /// there is one. None is added then, and only documents of a shape that is missing fail.
    ///
    /// # Errors
    /// Errors that are no corruption.
    pub(crate) fn load(&self, source: &dyn Source) -> Result<Option<Error>> {
        let (mut numbers, mut problem) = (Vec::new(), None);
        for name in [SHAPES, COPY] {
            let mut of_tree = BTreeSet::new();
            if let Some(tree) = source.tree(name)? {
                let corruption = readable_rows(source, tree, &mut |key, stored| {
                    match self.take(key, stored) {
                        Ok(number) => drop(of_tree.insert(number)),
                        // The row is intact, and may say what this build cannot know.
                        Err(error) if error.code() == Code::Unsupported => return Err(error),
                        Err(error) => drop(problem.get_or_insert(error)),
                    }
                    Ok(())
                })?;
                problem = problem.or(corruption);
            }
            numbers.push(of_tree);
        }
        if numbers[0] != numbers[1] {
            let differ = || {
                let message =
                    format!("the trees {SHAPES} and {COPY} have different rows, and should have the same");
                Error::new(Code::CorruptData, message)
            };
            problem.get_or_insert_with(differ);
        }
        self.known_mut().failed.clone_from(&problem);
        Ok(problem)
    }

    /// Adds a shape from its row, and returns its number.
    ///
    /// # Errors
    /// `CorruptData` for a row that cannot be read, or that contradicts a known shape; `Unsupported` for one
    /// of a later release.
    pub(crate) fn take(&self, key: &[u8], stored: &[u8]) -> Result<u32> {
        let corrupt = |why: &str| {
            Error::new(Code::CorruptData, format!("a row of the tree {SHAPES} cannot be read: {why}"))
        };
        let row = Row::read(key, stored).map_err(|error| match error.code() {
            Code::Unsupported => error,
            _ => corrupt(error.message()),
        })?;
        let number = row.number;
        let mut known = self.known_mut();
        known.next = known.next.max(number + 1);
        let Some(place) = self.place(number) else { return Err(corrupt("its number is too large")) };
        if let Some(there) = place.get() {
            let is_same = there.is_of(&row);
            return if is_same { Ok(number) } else { Err(corrupt("its number is that of another shape")) };
        }
        if known.names_bytes.saturating_add(bytes_of(row.layout.names().iter().map(String::as_str)))
            > ALL_NAMES_BYTES_MAX
        {
            return Err(corrupt("there are more names than a database has"));
        }
        let collection = row.collection.clone();
        known.note(place.get_or_init(|| Shape::of_row(row)), &collection);
        Ok(number)
    }

    /// These are the shapes of a database that is a node of a cluster.
    pub(crate) fn are_of_node(&self, engine: Engine) {
        self.of_node.get_or_init(|| OfNode(engine));
    }

    /// The shape of a number. Takes no lock.
    ///
    /// # Errors
    /// `CorruptData` if there is none.
    pub(crate) fn of(&self, number: u32) -> Result<&Shape> {
        match self.look_up(number) {
            Some(shape) => Ok(shape),
            None => self.read_or_miss(number),
        }
    }

    /// The shape of a number that is not known. In a node of a cluster another node may have added it.
    #[cold]
    fn read_or_miss(&self, number: u32) -> Result<&Shape> {
        if let Some(node) = self.of_node.get() {
            node.read(self)?;
        }
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

    /// The error of a document whose shape is not there. Its number must not be given to another one.
    #[cold]
    fn missing(&self, number: u32) -> Error {
        let message =
            format!("a document has the shape {number}, and the tree {SHAPES} has none of this number");
        let error = Error::new(Code::CorruptData, message);
        let mut known = self.known_mut();
        known.next = known.next.max(number.saturating_add(1));
        known.failed.get_or_insert_with(|| error.clone());
        error
    }

    /// A document with names as it is stored, with its shape; `None` if it is to stay as it is.
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
        if self.keeps_names.load(Ordering::Relaxed) || begins_with_a_shape(named) {
            return Ok(None);
        }
        if let Some(shape) = self.look_up(of.last.number())
            && let Some(stored) = shape.of_named(named)?
        {
            return Ok(Some((shape, stored)));
        }
        let Some(names) = Names::of(named)? else { return Ok(None) };
        let Some(shape) = self.find_or_add(of, &names)? else { return Ok(None) };
        of.last.set(shape.number());
        Ok(shape.of_named(named)?.map(|stored| (shape, stored)))
    }

    /// The shape of documents of this layout; `None` if they are to keep their names.
    ///
    /// As for [`Shapes::shaped`], the caller must see to the shape's row.
    ///
    /// # Errors
    /// In a node of a cluster those of a commit.
    pub(crate) fn of_layout(&self, of: &CollectionShapes<'_>, layout: &Layout) -> Result<Option<&Shape>> {
        if self.keeps_names.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(names) = Names::of_layout(layout) else { return Ok(None) };
        let shape = self.find_or_add(of, &names)?;
        Ok(shape.filter(|shape| shape.layout() == layout))
    }

    /// Stores documents with their names from now on.
    pub(crate) fn keep_names(&self) {
        self.keeps_names.store(true, Ordering::Relaxed);
    }

    /// The shape of these names, which is added if it is new; `None` for documents that keep them.
    fn find_or_add(&self, of: &CollectionShapes<'_>, names: &Names<'_>) -> Result<Option<&Shape>> {
        let hash = names.hash();
        let known = self.known();
        if let Some(shape) = self.find(&known, hash, of, names) {
            return Ok(Some(shape));
        }
        // Most documents of a collection that has used up its shapes end here.
        if !known.has_room(of.collection, names.bytes()) {
            return Ok(None);
        }
        drop(known);
        match self.of_node.get() {
            Some(node) => node.find_or_add(self, of, names),
            None => Ok(self.add(hash, of, names)),
        }
    }

    /// Adds the shape of these names, unless another thread has.
    fn add(&self, hash: u64, of: &CollectionShapes<'_>, names: &Names<'_>) -> Option<&Shape> {
        let layout = names.layout(of.sums)?;
        let mut known = self.known_mut();
        if let Some(shape) = self.find(&known, hash, of, names) {
            return Some(shape);
        }
        let number = known.next;
        let row = Row { number, layout, collection: of.collection.to_owned() };
        if !known.has_room(of.collection, bytes_of(row.layout.names().iter().map(String::as_str))) {
            return None;
        }
        let (place, shape) = (self.place(number)?, Shape::added(row).ok()?);
        known.next += 1;
        let shape = place.get_or_init(|| shape);
        known.note(shape, of.collection);
        Some(shape)
    }

    /// The known shape of these names that the collection can use.
    fn find(&self, known: &Known, hash: u64, of: &CollectionShapes<'_>, names: &Names<'_>) -> Option<&Shape> {
        let candidates = known.by_names.get(&hash)?.iter().filter_map(|number| self.look_up(*number));
        candidates
            .into_iter()
            .find(|shape| shape.layout().is_for(of.sums) && names.are(shape.layout().shown_names()))
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

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().expect(POISON)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().expect(POISON)
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

/// The number in the key of a row.
pub(crate) fn number_of(key: &[u8]) -> Option<u32> {
    row::number_of(key).ok()
}

/// Whether this is a row of the trees of shapes.
pub(crate) fn is_row(key: &[u8], stored: &[u8]) -> bool {
    Row::read(key, stored).is_ok()
}
