//! Checks documents against their collections. The engine's check knows bytes only.

mod blobs;
mod key_values;
mod requests;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::catalog::forms;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::Shapes;
use crate::store::error::{Error, Result};
use crate::store::skip::{is_of_disk, readable_from};
use crate::store::{Cursor, Direction, KeyRange, TreeId};
use crate::value::msgpack::begins_with_a_shape;
use crate::value::tuple::{Element, decode};
use crate::value::version;
pub(crate) use key_values::problem_of as problem_of_key_value;
use views::Views;

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Problems beyond this many are counted but not listed.
const PROBLEMS_MAX: usize = 100;

/// Unreadable ranges beyond this many are counted but not listed.
const UNREADABLE_MAX: usize = 1000;

/// The result of checking every document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentReport {
    /// Collections read.
    pub collections: u64,
    /// Ranges that corruption makes unreadable, in order of keys; the first thousand.
    pub unreadable: Vec<Unreadable>,
    /// The number of all unreadable ranges.
    pub unreadable_count: u64,
    /// Documents read: of a corrupt collection, all outside of its unreadable ranges.
    pub documents: u64,
    /// Namespaces of key-values read.
    pub namespaces: u64,
    /// Key-values read, including expired ones that are not deleted yet.
    pub key_values: u64,
    /// Blobs checked.
    pub blobs: u64,
    /// The problems, as text; the first hundred.
    pub problems: Vec<String>,
    /// The number of all problems.
    pub problem_count: u64,
    /// Documents that refer to documents that are not there, by references that are not fully checked yet: as
    /// text, the first hundred. No write made them; the reference was added later, or a repair lost what they
    /// refer to.
    pub dangling: Vec<String>,
    /// The number of all of these.
    pub dangling_count: u64,
    /// Views in code that were not checked, as `collection.view`, because this program lacks their code.
    pub unchecked: Vec<String>,
}

/// A range of a collection that corruption makes unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The collection.
    pub collection: String,
    /// The last key before it; `None` if it begins with the collection.
    pub after: Option<Vec<Element>>,
    /// The first key after it; `None` if it ends with the collection.
    pub before: Option<Vec<Element>>,
    /// How many documents the nodes above record for it; `None` if that is unknown.
    pub documents: Option<u64>,
    /// The first error that reading met, as text.
    pub why: String,
}

impl DocumentReport {
    /// Whether there are no problems. Documents that refer to nothing are none: they are in `dangling`.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0 && self.unreadable_count == 0
    }

    fn dangling(&mut self, what: String) {
        self.dangling_count += 1;
        if self.dangling.len() < PROBLEMS_MAX {
            self.dangling.push(what);
        }
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }

    fn unreadable(&mut self, stretch: Unreadable) {
        self.unreadable_count += 1;
        if self.unreadable.len() < UNREADABLE_MAX {
            self.unreadable.push(stretch);
        }
    }
}

/// Reads and checks every document, key-value and blob.
///
/// - Each document decodes, is stored under its own key, and its fields fit its columns. The views have its
///   rows and no others. What it refers to is there.
/// - Each key-value decodes, and the expiry index agrees.
/// - Each blob has the pieces it should, and there are no other pieces.
///
/// # Errors
/// Errors that prevented the check. Unreadable parts and wrong documents are in the report instead.
pub(crate) fn documents(snapshot: &Snapshot) -> Result<DocumentReport> {
    let mut report = DocumentReport::default();
    let schemas = match snapshot.collections() {
        Err(error) if is_of_disk(&error) => {
            report.problem(format!("the collections cannot be listed: {error}"));
            return Ok(report);
        }
        listed => listed?,
    };
    let shapes = stored_shapes(snapshot, &mut report)?;
    for schema in schemas {
        let schema = schema.decoded_by(&shapes);
        report.collections += 1;
        let views = match Views::of(snapshot, schema.name()) {
            Err(error) if is_of_disk(&error) => {
                report.problem(format!("{}: its views cannot be found: {error}", schema.name()));
                continue;
            }
            views => views?,
        };
        let unchecked = views.unchecked(snapshot)?;
        report.unchecked.extend(unchecked.iter().map(|view| format!("{}.{view}", schema.name())));
        let of_views = BTreeSet::new();
        Reader { snapshot, schema: &schema, views, of_views, report: &mut report }.collection()?;
    }
    key_values::key_values(snapshot, &mut report)?;
    blobs::blobs(snapshot, &mut report)?;
    requests::requests(snapshot, &mut report)?;
    Ok(report)
}

/// The shapes that the state has. The open database may know more, of transactions that were rolled back.
fn stored_shapes(snapshot: &Snapshot, report: &mut DocumentReport) -> Result<Arc<Shapes>> {
    let shapes = Shapes::default();
    if let Some(problem) = shapes.load(snapshot.source())? {
        report.problem(format!("the shapes of documents: {problem}"));
    }
    Ok(Arc::new(shapes))
}

/// Reads one collection.
struct Reader<'a> {
    snapshot: &'a Snapshot,
    schema: &'a Schema,
    views: Views,
    /// The errors that reading rows of views has met. Each is one problem, whatever the number of documents.
    of_views: BTreeSet<String>,
    report: &'a mut DocumentReport,
}

impl Reader<'_> {
    /// Reads every document that can be read, around each corrupt node.
    fn collection(&mut self) -> Result<()> {
        let tree = self.snapshot.entry(self.schema.name())?.tree;
        let listed = self.report.unreadable_count;
        let (mut from, mut index, mut last) = (Vec::new(), 0, None);
        while let Some(corruption) = self.read(tree, from, &mut index, &mut last)? {
            let next = readable_from(self.snapshot.source(), tree, index)?;
            // Rows come in order of their keys. If they do not, their numbers are of no use either.
            let next = next.filter(|(_, key)| last.as_ref().is_none_or(|last| last < key));
            let Some((number, key)) = next else {
                self.read_to_the_end(tree, index, last, &corruption)?;
                break;
            };
            self.unreadable(last.as_deref(), Some(&key), Some(number - index), &corruption);
            (from, index) = (key, number);
        }
        if self.report.unreadable_count == listed && self.of_views.is_empty() {
            self.surplus()?;
        }
        Ok(())
    }

    /// Reads from a key to corruption, which is returned, or to the end.
    ///
    /// Updates the number of rows before the next one, and the last key read.
    fn read(
        &mut self,
        tree: TreeId,
        from: Vec<u8>,
        index: &mut u64,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<Error>> {
        let range = KeyRange { from, to: None };
        let mut rows = match self.snapshot.source().cursor(tree, range, Direction::Forward) {
            Err(error) if is_of_disk(&error) => return Ok(Some(error)),
            rows => rows?,
        };
        loop {
            let (key, stored) = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(None),
                Err(error) if is_of_disk(&error) => return Ok(Some(error)),
                Err(error) => return Err(error),
            };
            self.document(key, stored)?;
            *index += 1;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
    }

    /// The problem of a document. A reference that leads nowhere and was never checked is none.
    fn problem_of(&mut self, key: &[u8], stored: &[u8]) -> Result<Option<String>> {
        if let Some(problem) = problem_of(self.schema, key, stored) {
            return Ok(Some(problem));
        }
        if let Some(problem) = self.views.problem_of(self.snapshot, key, stored)? {
            return Ok(Some(problem));
        }
        for (what, was_checked) in self.views.dangling(self.snapshot, key, stored)? {
            if was_checked {
                return Ok(Some(what));
            }
            self.report.dangling(format!("{} {}: {what}", self.schema.name(), shown(key)));
        }
        Ok(None)
    }

    /// Reads from the end to corruption where no row after `last`, the row before number `index`, is found
    /// by its number.
    fn read_to_the_end(
        &mut self,
        tree: TreeId,
        index: u64,
        last: Option<Vec<u8>>,
        corruption: &Error,
    ) -> Result<()> {
        let source = self.snapshot.source();
        let mut first = None;
        match source.cursor(tree, ALL, Direction::Reverse) {
            Err(error) if is_of_disk(&error) => {}
            rows => self.read_back(rows?, last.as_deref(), &mut first)?,
        }
        let documents = match (&first, source.count(tree, &ALL)) {
            (None, Ok(count)) => count.checked_sub(index),
            _ => None,
        };
        self.unreadable(last.as_deref(), first.as_deref(), documents, corruption);
        Ok(())
    }

    fn read_back(
        &mut self,
        mut rows: Cursor,
        last: Option<&[u8]>,
        first: &mut Option<Vec<u8>>,
    ) -> Result<()> {
        loop {
            let (key, stored) = match rows.next() {
                Ok(Some((key, _))) if last.is_some_and(|last| key <= last) => return Ok(()),
                Ok(Some(row)) => row,
                Ok(None) => return Ok(()),
                Err(error) if is_of_disk(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            self.document(key, stored)?;
            let first = first.get_or_insert_default();
            first.clear();
            first.extend_from_slice(key);
        }
    }

    fn unreadable(
        &mut self,
        after: Option<&[u8]>,
        before: Option<&[u8]>,
        documents: Option<u64>,
        why: &Error,
    ) {
        let elements = |key: Option<&[u8]>| key.and_then(|key| decode(key).ok());
        self.report.unreadable(Unreadable {
            collection: self.schema.name().to_owned(),
            after: elements(after),
            before: elements(before),
            documents,
            why: why.message().to_owned(),
        });
    }

    /// Checks a document and its rows in views.
    fn document(&mut self, key: &[u8], stored: &[u8]) -> Result<()> {
        self.report.documents += 1;
        let name = self.schema.name();
        match self.problem_of(key, stored) {
            Ok(None) => {}
            Ok(Some(problem)) => self.report.problem(format!("{name} {}: {problem}", shown(key))),
            Err(error) if is_of_disk(&error) => {
                if self.of_views.insert(error.message().to_owned()) {
                    self.report.problem(format!("{name}: rows of its views cannot be read: {error}"));
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Checks for rows of views that no document has made. All documents were read.
    fn surplus(&mut self) -> Result<()> {
        let problems = match self.views.surplus(self.snapshot) {
            Err(error) if is_of_disk(&error) => vec![format!("rows of its views cannot be read: {error}")],
            problems => problems?,
        };
        problems
            .into_iter()
            .for_each(|problem| self.report.problem(format!("{}: {problem}", self.schema.name())));
        Ok(())
    }
}

/// The problem of a document, if it has one.
pub(crate) fn problem_of(schema: &Schema, key: &[u8], stored: &[u8]) -> Option<String> {
    let document = match forms::document(schema, stored) {
        Ok(document) => document,
        Err(error) => return Some(error.message().to_owned()),
    };
    // The document decoded above, so its version is known.
    let (version, body) = version::split(stored).unwrap_or((version::FIRST, stored));
    // The reducer of sums takes the first values.
    if begins_with_a_shape(body)
        && let Ok((shape, _)) = schema.shapes().split(body)
        && !shape.layout().names().starts_with(schema.sum_columns())
    {
        return Some(format!("its shape {} does not begin with the fields that are summed", shape.number()));
    }
    let Some(of_version) = schema.with_key_of(version) else {
        return Some(format!("it is of version {version}, and the collection of {}", schema.version()));
    };
    let mut own_key = Vec::new();
    if let Err(error) = of_version.write_key(&document, &mut own_key) {
        return Some(error.message().to_owned());
    }
    if own_key != key {
        return Some(format!("it is stored under a key that is not its own, {}", shown(&own_key)));
    }
    // The columns describe only documents of this version.
    if version != schema.version() {
        return None;
    }
    let mut admitted = document.clone();
    match schema.clone().admit(&mut admitted) {
        Ok(true) if !schema.is_typed() => Some("it has a field that is no column".to_owned()),
        Ok(_) if admitted.to_bytes().ok() != document.to_bytes().ok() => {
            Some("it is not stored as its columns' types are".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.message().to_owned()),
    }
}

fn shown(key: &[u8]) -> String {
    match decode(key) {
        Ok(elements) => elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        Err(_) => "(a key that cannot be read)".to_owned(),
    }
}
