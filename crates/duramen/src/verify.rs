//! Whether documents are what their collections say: beyond the engine's check, which knows bytes only.

use crate::document::Document;
use crate::engine::Direction;
use crate::error::Result;
use crate::reads::Reads;
use crate::schema::Schema;
use crate::snapshot::Snapshot;
use crate::span::Span;

/// Problems beyond this many are counted and not listed.
const PROBLEMS_MAX: usize = 100;

/// What a look at every document found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentReport {
    /// Collections read.
    pub collections: u64,
    /// Documents read.
    pub documents: u64,
    /// What is wrong, in words; the first hundred.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl DocumentReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

/// Reads every document of every collection: it decodes, lies under its own key, and each field has its column's type.
///
/// # Errors
/// What reading the disk said; documents that are wrong are in the report.
pub(crate) fn documents(snapshot: &Snapshot) -> Result<DocumentReport> {
    let mut report = DocumentReport::default();
    for schema in snapshot.collections()? {
        report.collections += 1;
        let mut rows = snapshot.rows(schema.name(), Span::all(), Direction::Forward)?;
        while let Some((key, stored)) = rows.next()? {
            report.documents += 1;
            if let Some(problem) = problem_of(&schema, key, stored) {
                report.problem(format!("{} {}: {problem}", schema.name(), shown(key)));
            }
        }
    }
    Ok(report)
}

fn problem_of(schema: &Schema, key: &[u8], stored: &[u8]) -> Option<String> {
    let document = match Document::from_bytes(stored) {
        Ok(document) => document,
        Err(error) => return Some(error.message().to_owned()),
    };
    let mut own_key = Vec::new();
    if let Err(error) = schema.write_key(&document, &mut own_key) {
        return Some(error.message().to_owned());
    }
    if own_key != key {
        return Some(format!("it lies under a key that is not its own, {}", shown(&own_key)));
    }
    let mut admitted = document.clone();
    match schema.clone().admit(&mut admitted) {
        Ok(true) => Some("it has a field that is no column".to_owned()),
        Ok(false) if admitted.to_bytes().ok().as_deref() != Some(stored) => {
            Some("it is not stored as its columns' types are".to_owned())
        }
        Ok(false) => None,
        Err(error) => Some(error.message().to_owned()),
    }
}

fn shown(key: &[u8]) -> String {
    match crate::tuple::decode(key) {
        Ok(elements) => elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        Err(_) => "(a key that cannot be read)".to_owned(),
    }
}
