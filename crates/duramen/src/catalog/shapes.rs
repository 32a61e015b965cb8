//! Shapes: the names and the order of the fields of documents, stored once.
//!
//! Owns the tree of shapes, the form of its rows, and the numbers that documents name their shape by. A number
//! means one shape for the whole life of a database: rows are added, and never changed or deleted. So a change
//! in the feed can be read after its collection was dropped. docs/format.md, "Shapes".
//!
//! In one process a number is given to one shape only, also if the transaction that added it was rolled back.
//! So what is known in memory holds for every state, published or not. Lookups by number take no lock.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, Features, KeyRange, Shared, Source};
use crate::value::document::{Document, Value};
use crate::value::msgpack::{Reader, Token, write};
use crate::value::tuple::{decode, encode};

/// The tree of shapes: the key is the tuple of the number, the value the stored shape.
pub(crate) const SHAPES: &str = "duramen/shapes";

/// The most shapes that one collection adds. Documents of others are stored with their names.
const OF_A_COLLECTION_MAX: u32 = 255;

/// The most shapes of a database.
const ALL_MAX: usize = 65_536;

/// The most fields of a shape, and the most bytes of their names: a longer document names its fields.
const FIELDS_MAX: usize = 1_024;
const NAMES_BYTES_MAX: usize = 16 * 1_024;

const CHUNK: usize = 256;
const _: () = assert!(ALL_MAX.is_multiple_of(CHUNK), "chunks have room for every number");

const POISON: &str = "nothing panics while the shapes are locked";

/// No shape, where a number is expected.
const NO_SHAPE: u32 = u32::MAX;

/// The shape of some documents.
pub(crate) struct Shape {
    number: u32,
    /// In the order in which the values are stored: first what the collection sums.
    names: Vec<String>,
    /// The positions of the names in the order in which documents show them; empty if it is the stored order.
    shown: Vec<usize>,
    /// Whether its row is in a published state, and so in all later ones.
    is_published: AtomicBool,
}

impl Shape {
    /// The names, in the order of the values.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The positions of the values in the order in which a document shows them.
    fn in_shown_order(&self) -> impl Iterator<Item = usize> {
        let is_stored_order = self.shown.is_empty();
        (0..self.names.len()).map(move |at| if is_stored_order { at } else { self.shown[at] })
    }

    /// Appends a document of this shape as a map with names. `values` has the values and nothing else.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not these values.
    pub(crate) fn write_named(&self, values: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut reader = Reader::new(values);
        write::map(out, self.names.len())?;
        if self.shown.is_empty() {
            for name in &self.names {
                write::text(out, name)?;
                out.extend_from_slice(reader.raw()?);
            }
        } else {
            let stored = self.names.iter().map(|_| reader.raw()).collect::<Result<Vec<_>>>()?;
            for at in self.in_shown_order() {
                write::text(out, &self.names[at])?;
                out.extend_from_slice(stored[at]);
            }
        }
        if reader.at_end() { Ok(()) } else { Err(reader.wrong("something follows the document")) }
    }

    /// The document with names as one of this shape, if its fields are the shape's, in its order.
    fn of_named(&self, named: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut reader = Reader::new(named);
        let Token::Map(count) = reader.next()? else { return Ok(None) };
        if count != self.names.len() {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(named.len());
        write::int(&mut out, i128::from(self.number))?;
        let mut values = Vec::new();
        for at in self.in_shown_order() {
            if reader.name_bytes()? != self.names[at].as_bytes() {
                return Ok(None);
            }
            let value = reader.raw()?;
            if self.shown.is_empty() {
                out.extend_from_slice(value);
            } else {
                values.push((at, value));
            }
        }
        values.sort_unstable_by_key(|(at, _)| *at);
        values.iter().for_each(|(_, value)| out.extend_from_slice(value));
        Ok(Some(out))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ({})", self.number, self.names.join(", "))
    }
}

/// The shape that a collection's documents had last. It is only a hint.
#[derive(Debug)]
pub(crate) struct LastShape(AtomicU32);

impl Default for LastShape {
    fn default() -> Self {
        LastShape(AtomicU32::new(NO_SHAPE))
    }
}

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
    /// Reads the shapes of a state that is published. If their tree cannot be read, the database opens: only
    /// documents of a shape that is missing then fail, and none is added.
    pub(crate) fn load(&self, source: &dyn Source) {
        if let Err(error) = self.read_all(source) {
            self.known().failed.get_or_insert(error);
        }
    }

    /// Reads every row of the tree of shapes.
    ///
    /// # Errors
    /// As [`Shapes::take`], and those of a read.
    pub(crate) fn read_all(&self, source: &dyn Source) -> Result<()> {
        let Some(tree) = source.tree(SHAPES)? else { return Ok(()) };
        let all = KeyRange { from: Vec::new(), to: None };
        let mut cursor = source.cursor(tree, all, Direction::Forward)?;
        while let Some((key, stored)) = cursor.next()? {
            self.take(key, stored)?;
        }
        Ok(())
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
            let is_same = there.names == row.names && there.shown == row.shown;
            return if is_same { Ok(()) } else { Err(corrupt("its number is that of another shape")) };
        }
        known.numbers.insert(form, row.number);
        *known.added.entry(row.collection).or_default() += 1;
        let is_published = AtomicBool::new(true);
        let shape = Shape { number: row.number, names: row.names, shown: row.shown, is_published };
        place.get_or_init(|| shape);
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
    /// The caller must see to it that the shape's row is in the state of its transaction: [`Shapes::put`].
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(crate) fn shaped(
        &self,
        of: &CollectionShapes<'_>,
        named: &[u8],
    ) -> Result<Option<(&Shape, Vec<u8>)>> {
        let last = of.last.0.load(Ordering::Relaxed);
        if let Some(shape) = self.look_up(last)
            && let Some(stored) = shape.of_named(named)?
        {
            return Ok(Some((shape, stored)));
        }
        let Some(shape) = self.find_or_add(of, named)? else { return Ok(None) };
        of.last.0.store(shape.number, Ordering::Relaxed);
        Ok(shape.of_named(named)?.map(|stored| (shape, stored)))
    }

    fn find_or_add(&self, of: &CollectionShapes<'_>, named: &[u8]) -> Result<Option<&Shape>> {
        let Some((names, shown)) = order(of.sums, named)? else { return Ok(None) };
        let row = Row { number: 0, names, shown, collection: of.collection.to_owned() };
        let form = row.form()?;
        let mut known = self.known();
        if let Some(number) = known.numbers.get(&form) {
            return Ok(self.look_up(*number));
        }
        let added = known.added.get(of.collection).copied().unwrap_or_default();
        let number = known.next;
        let is_full = added >= OF_A_COLLECTION_MAX || number as usize >= ALL_MAX || known.failed.is_some();
        if is_full {
            return Ok(None);
        }
        known.next += 1;
        known.numbers.insert(form, number);
        known.added.insert(row.collection, added + 1);
        let is_published = AtomicBool::new(false);
        let shape = Shape { number, names: row.names, shown: row.shown, is_published };
        Ok(self.place(number).map(|place| place.get_or_init(|| shape)))
    }

    /// Puts the row of a shape that is in no published state yet. Returns whether it did.
    ///
    /// Two transactions may put the same row: it has the same bytes, so they do not conflict.
    pub(crate) fn put(&self, tx: &Shared<'_>, shape: &Shape, collection: &str) -> Result<bool> {
        if shape.is_published.load(Ordering::Acquire) {
            return Ok(false);
        }
        let (names, shown) = (shape.names.clone(), shape.shown.clone());
        let row = Row { number: shape.number, names, shown, collection: collection.to_owned() };
        put_row(tx, &encode(&u64::from(shape.number))?, &row.stored()?)?;
        Ok(true)
    }

    /// Notes which shapes a published state has. Later transactions need not put their rows.
    pub(crate) fn published(&self, source: &dyn Source, numbers: &[u32]) {
        let Ok(Some(tree)) = source.tree(SHAPES) else { return };
        for number in numbers {
            let row = encode(&u64::from(*number)).and_then(|key| source.get(tree, &key));
            if let (Ok(Some(_)), Some(shape)) = (row, self.look_up(*number)) {
                shape.is_published.store(true, Ordering::Release);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect(POISON)
    }
}

/// Puts a row into the tree of shapes, which is created if need be.
pub(crate) fn put_row(tx: &Shared<'_>, key: &[u8], stored: &[u8]) -> Result<()> {
    let tree = match tx.tree(SHAPES)? {
        Some(tree) => tree,
        None => tx.create_tree_with_features(SHAPES, Features::SHAPES)?,
    };
    tx.put(tree, key, stored)
}

impl Shape {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// What the shapes of a collection depend on.
pub(crate) struct CollectionShapes<'e> {
    pub(crate) collection: &'e str,
    /// The fields that it sums. Their values are the first of every shape: a reducer knows no shapes.
    pub(crate) sums: &'e [String],
    pub(crate) last: &'e LastShape,
}

/// The names of a document's fields in the order to store them, and their positions in the order shown.
///
/// `None` for a document that keeps its names: one without a field that is summed, or with too many.
fn order(sums: &[String], named: &[u8]) -> Result<Option<(Vec<String>, Vec<usize>)>> {
    let mut reader = Reader::new(named);
    let Token::Map(count) = reader.next()? else { return Ok(None) };
    if count == 0 || count > FIELDS_MAX {
        return Ok(None);
    }
    let (mut shown, mut bytes) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let name = reader.text_name()?;
        bytes += name.len();
        shown.push(name);
        reader.skip()?;
    }
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    let is_repeated = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let sums_all = sums.iter().all(|sum| sorted.binary_search(&sum.as_str()).is_ok());
    if bytes > NAMES_BYTES_MAX || is_repeated || !sums_all {
        return Ok(None);
    }
    let others = shown.iter().copied().filter(|name| sums.iter().all(|sum| sum != name));
    let names: Vec<&str> = sums.iter().map(String::as_str).chain(others).collect();
    let position = |name: &&str| names.iter().position(|own| own == name).expect("every name is stored");
    let positions: Vec<usize> = shown.iter().map(position).collect();
    let is_stored_order = positions.iter().enumerate().all(|(at, position)| at == *position);
    let names = names.into_iter().map(str::to_owned).collect();
    Ok(Some((names, if is_stored_order { Vec::new() } else { positions })))
}

/// A row of the tree of shapes.
struct Row {
    number: u32,
    names: Vec<String>,
    shown: Vec<usize>,
    /// The collection that added it.
    collection: String,
}

impl Row {
    /// What makes two shapes the same.
    fn form(&self) -> Result<Vec<u8>> {
        let mut document = Document::new();
        let names = self.names.iter().map(|name| Value::from(name.as_str())).collect();
        document.set("names", Value::List(names));
        if !self.shown.is_empty() {
            let shown = self.shown.iter().map(|at| Value::Int(*at as i128)).collect();
            document.set("shown", Value::List(shown));
        }
        document.to_bytes()
    }

    fn stored(&self) -> Result<Vec<u8>> {
        let mut document = Document::new().with("v", 1_u8);
        for (name, value) in Document::from_bytes(&self.form()?)?.iter() {
            document.set(name, value.clone());
        }
        document.set("collection", self.collection.as_str());
        document.to_bytes()
    }

    fn read(key: &[u8], stored: &[u8]) -> Result<Row> {
        let wrong = |what: &str| Error::invalid(what.to_owned());
        let number = match decode(key)?.as_slice() {
            [element] => Value::from(element.clone()),
            _ => return Err(wrong("its key is not one number")),
        };
        let Value::Int(number) = number else { return Err(wrong("its key is no number")) };
        let number = u32::try_from(number).map_err(|_| wrong("its number is too large"))?;
        if number as usize >= ALL_MAX {
            return Err(wrong("its number is too large"));
        }
        let mut document = Document::from_bytes(stored)?;
        if document.remove("v") != Some(Value::Int(1)) {
            return Err(wrong("it is of another version"));
        }
        let list = |value: Option<Value>| match value {
            Some(Value::List(values)) => Ok(values),
            None => Ok(Vec::new()),
            Some(_) => Err(wrong("a list was wanted")),
        };
        let texts = |values: Vec<Value>| -> Result<Vec<String>> {
            let text = |value| {
                if let Value::Text(text) = value { Ok(text) } else { Err(wrong("a name is no text")) }
            };
            values.into_iter().map(text).collect()
        };
        let names = texts(list(document.remove("names"))?)?;
        let position = |value| match value {
            Value::Int(at) => usize::try_from(at).map_err(|_| wrong("a position is too large")),
            _ => Err(wrong("a position is no number")),
        };
        let shown = list(document.remove("shown"))?.into_iter().map(position).collect::<Result<Vec<_>>>()?;
        let mut sorted = shown.clone();
        sorted.sort_unstable();
        let is_order = shown.is_empty() || sorted.iter().copied().eq(0..names.len());
        let Some(Value::Text(collection)) = document.remove("collection") else {
            return Err(wrong("it names no collection"));
        };
        let mut unique: Vec<&String> = names.iter().collect();
        unique.sort_unstable();
        let is_repeated = unique.windows(2).any(|pair| pair[0] == pair[1]);
        if names.is_empty() || names.len() > FIELDS_MAX || is_repeated || !is_order {
            return Err(wrong("its names are not those of a document"));
        }
        Ok(Row { number, names, shown, collection })
    }
}
