//! Checks documents against their collections. The engine's check knows bytes only.

mod blobs;
mod key_values;
mod views;

use crate::access::reads::Reads;
use crate::access::snapshot::Snapshot;
use crate::catalog::compact;
use crate::catalog::schema::Schema;
use crate::store::Direction;
use crate::store::error::{Error, ErrorKind, Result};
use crate::value::tuple::{Element, decode};
use crate::value::version;
pub(crate) use key_values::problem_of as problem_of_key_value;
use views::Views;

/// Problems beyond this many are counted but not listed.
const PROBLEMS_MAX: usize = 100;

/// The result of checking every document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentReport {
    /// Collections read.
    pub collections: u64,
    /// Ranges that corruption makes unreadable, at most one per collection.
    pub unreadable: Vec<Unreadable>,
    /// Documents read. In a corrupt collection, those before the first corruption and those after the last.
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
    /// Views in code that were not checked, as `collection.view`, because this program lacks their code.
    pub unchecked: Vec<String>,
}

/// A range of a collection that corruption makes unreadable. Not every document in it need be corrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The collection.
    pub collection: String,
    /// The last key before it; `None` if it begins with the collection.
    pub after: Option<Vec<Element>>,
    /// The first key after it; `None` if it ends with the collection.
    pub before: Option<Vec<Element>>,
    /// The error that reading met, as text.
    pub why: String,
}

impl DocumentReport {
    /// Whether there are no problems.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0 && self.unreadable.is_empty()
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

/// Reads and checks every document, key-value and blob.
///
/// - Each document decodes, is stored under its own key, and its fields fit its columns. The views have its
///   rows and no others.
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
    for schema in schemas {
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
        let mut reader = Reader { snapshot, schema: &schema, views, report: &mut report };
        reader.collection()?;
    }
    key_values::key_values(snapshot, &mut report)?;
    blobs::blobs(snapshot, &mut report)?;
    Ok(report)
}

/// Whether an error is of the disk: an I/O error or corruption.
fn is_of_disk(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

/// How far a collection was read in one direction.
#[derive(Default)]
struct Reached {
    key: Option<Vec<u8>>,
    corruption: Option<Error>,
}

/// Reads one collection.
struct Reader<'a> {
    snapshot: &'a Snapshot,
    schema: &'a Schema,
    views: Views,
    report: &'a mut DocumentReport,
}

impl Reader<'_> {
    /// Reads from the start and, if corruption is in the way, from the end.
    fn collection(&mut self) -> Result<()> {
        let before = self.read(Direction::Forward, None)?;
        let Some(corruption) = before.corruption else {
            let problems = self.views.surplus(self.snapshot)?;
            problems
                .into_iter()
                .for_each(|problem| self.report.problem(format!("{}: {problem}", self.schema.name())));
            return Ok(());
        };
        let beyond = self.read(Direction::Reverse, before.key.as_deref())?;
        let elements = |key: Option<Vec<u8>>| key.and_then(|key| decode(&key).ok());
        self.report.unreadable.push(Unreadable {
            collection: self.schema.name().to_owned(),
            after: elements(before.key),
            before: elements(beyond.key),
            why: corruption.message().to_owned(),
        });
        Ok(())
    }

    /// Reads to the other end, to corruption, or to a key that was read already.
    fn read(&mut self, direction: Direction, known: Option<&[u8]>) -> Result<Reached> {
        let mut reached = Reached::default();
        let mut rows = match self.snapshot.documents(self.schema.name()).stored_rows(direction) {
            Err(error) if is_of_disk(&error) => return Ok(Reached { key: None, corruption: Some(error) }),
            rows => rows?,
        };
        loop {
            let (key, stored) = match rows.next() {
                Ok(Some((key, _))) if known == Some(key) => return Ok(reached),
                Ok(Some(row)) => row,
                Ok(None) => return Ok(reached),
                Err(error) if is_of_disk(&error) => {
                    reached.corruption = Some(error);
                    return Ok(reached);
                }
                Err(error) => return Err(error),
            };
            self.report.documents += 1;
            let problem = problem_of(self.schema, key, stored);
            let problem =
                problem.map_or_else(|| self.views.problem_of(self.snapshot, key, stored), |of| Ok(Some(of)));
            match problem {
                Ok(None) => {}
                Ok(Some(problem)) => {
                    self.report.problem(format!("{} {}: {problem}", self.schema.name(), shown(key)))
                }
                Err(error) if is_of_disk(&error) => {
                    reached.corruption = Some(error);
                    return Ok(reached);
                }
                Err(error) => return Err(error),
            }
            let last = reached.key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
    }
}

/// The problem of a document, if it has one.
pub(crate) fn problem_of(schema: &Schema, key: &[u8], stored: &[u8]) -> Option<String> {
    let document = match compact::document(schema, stored) {
        Ok(document) => document,
        Err(error) => return Some(error.message().to_owned()),
    };
    // The document decoded above, so its version is known.
    let version = version::split(stored).map_or(version::FIRST, |(version, _)| version);
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
