//! The columns of JSON documents: their types, and the few values that decide against most others.
//!
//! Integers widen to floats, and a column with values of other types together is of type any.

use duramen::schema::ColumnType;
use duramen::{Document, Value};

use super::description::RowDescription;
use super::findings::{Fallback, Findings, shortened};

/// What is known about each column so far.
#[derive(Default)]
pub(super) struct ColumnsOfValues {
    columns: Vec<Seen>,
}

struct Seen {
    name: String,
    /// The type of all values.
    kind: ColumnType,
    /// The values of each type; integers and floats count as one.
    groups: Vec<Group>,
}

struct Group {
    kind: ColumnType,
    count: u64,
    line: u64,
    first: Value,
}

impl ColumnsOfValues {
    /// Adds a document on this line.
    pub(super) fn look(&mut self, line: u64, document: &Document) {
        for (index, (name, value)) in document.iter().enumerate() {
            let at = match self.columns.get(index) {
                Some(known) if known.name == name => Some(index),
                _ => self.columns.iter().position(|known| known.name == name),
            };
            let at = at.unwrap_or_else(|| {
                let kind = ColumnType::Unknown;
                self.columns.push(Seen { name: name.to_owned(), kind, groups: Vec::new() });
                self.columns.len() - 1
            });
            self.columns[at].look(line, value);
        }
    }

    /// Whether a document had the field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// The columns with their types, as far as the user does not give them.
    pub(super) fn kinds(&self, description: &RowDescription) -> Vec<(String, ColumnType)> {
        let kind = |column: &Seen| description.given(&column.name).unwrap_or(column.kind);
        self.columns.iter().map(|column| (column.name.clone(), kind(column))).collect()
    }

    /// What the user should know about the columns.
    pub(super) fn findings(&self, description: &RowDescription, rows_of_sample: Option<usize>) -> Findings {
        let inferred = || self.columns.iter().filter(|column| description.given(&column.name).is_none());
        let is_empty =
            |column: &&Seen| column.kind == ColumnType::Unknown && !description.is_key(&column.name);
        Findings {
            fallbacks: inferred().filter_map(Seen::fallback).collect(),
            empty: inferred().filter(is_empty).map(|column| (column.name.clone(), column.kind)).collect(),
            rows_of_sample,
            change: description.change(self.columns.iter().map(|column| column.name.as_str())),
            ..Findings::default()
        }
    }
}

impl Seen {
    fn look(&mut self, line: u64, value: &Value) {
        let kind = ColumnType::of(value);
        if kind == ColumnType::Unknown {
            return;
        }
        self.kind = self.kind.join(kind);
        let group = self.groups.iter_mut().find(|group| {
            // Only numbers of both types have a common type that is not any.
            group.kind == kind || group.kind.join(kind) == ColumnType::Float
        });
        match group {
            Some(group) => {
                group.kind = group.kind.join(kind);
                group.count += 1;
            }
            None => {
                let first = match value {
                    Value::Text(text) => Value::Text(shortened(text)),
                    other => other.clone(),
                };
                self.groups.push(Group { kind, count: 1, line, first });
            }
        }
    }

    /// The report of a column of any type although at least half of its values are of one.
    fn fallback(&self) -> Option<Fallback> {
        let most = self.groups.iter().max_by_key(|group| group.count)?;
        let others = || self.groups.iter().filter(|group| group.kind != most.kind);
        let first = others().min_by_key(|group| group.line)?;
        let count: u64 = others().map(|group| group.count).sum();
        if most.kind == ColumnType::Any || most.count < count {
            return None;
        }
        Some(Fallback {
            column: self.name.clone(),
            kind: ColumnType::Any,
            instead_of: most.kind,
            line: first.line,
            value: first.first.clone(),
            problem: "",
            count,
            values: most.count + count,
            remedy: "correct the input".to_owned(),
            null_words: Vec::new(),
        })
    }
}
