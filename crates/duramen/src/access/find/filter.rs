//! Documents of a scan that satisfy the conditions, with their counterparts of other collections.
//!
//! Decodes what the conditions test first, and of the documents that satisfy them what the query needs.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::condition::Condition;
use super::join::Joined;
use super::path::Path;
use super::scan::Scan;
use crate::access::selection::Held;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::Shape;
use crate::store::error::Result;
use crate::value::document::{Document, Value};

/// What a query needs of the documents that it finds.
#[derive(Debug)]
pub(super) enum Needs {
    Whole,
    Fields(FieldSet),
}

/// What reading one more document came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Found,
    Passed,
    End,
}

/// What documents must satisfy, and what they are joined with.
pub(super) struct Terms {
    /// The fields of the documents, those that are joined included.
    pub(super) schema: Schema,
    /// Conditions on a document's own fields.
    pub(super) before: Vec<Condition>,
    pub(super) joins: Vec<Joined>,
    /// Conditions that need what is joined.
    pub(super) after: Vec<Condition>,
}

impl Terms {
    /// Whether every document that satisfies the own conditions is found.
    pub(super) fn keeps_all(&self) -> bool {
        self.after.is_empty() && self.joins.iter().all(|join| join.is_left)
    }
}

pub(super) struct Filter<'s> {
    held: Held<'s>,
    scan: Scan,
    terms: Terms,
    /// The fields that the conditions test.
    tested: FieldSet,
    needs: Needs,
    /// The fields that were tested last.
    tested_last: Document,
    current: Document,
    read_count: u64,
}

impl<'s> Filter<'s> {
    pub(super) fn new(held: Held<'s>, scan: Scan, terms: Terms, mut needs: Needs) -> Filter<'s> {
        let mut tested = FieldSet::default();
        terms.before.iter().for_each(|condition| condition.paths(&mut |path| tested.add(path)));
        if let Needs::Fields(fields) = &mut needs {
            terms.joins.iter().flat_map(Joined::paths).for_each(|path| fields.add(path));
            terms.after.iter().for_each(|condition| condition.paths(&mut |path| fields.add(path)));
        }
        let (tested_last, current) = Default::default();
        Filter { held, scan, terms, tested, needs, tested_last, current, read_count: 0 }
    }

    pub(super) fn advance(&mut self) -> Result<Read> {
        if !self.scan.advance(self.held.state())? {
            return Ok(Read::End);
        }
        self.read_count += 1;
        let Terms { schema, before, joins, after } = &self.terms;
        if !before.is_empty() {
            self.scan.fields(&self.tested, &mut self.tested_last)?;
            if !before.iter().all(|condition| condition.holds(schema, &self.tested_last)) {
                return Ok(Read::Passed);
            }
        }
        match &self.needs {
            Needs::Whole => self.current = self.scan.document()?,
            Needs::Fields(fields) => self.scan.fields(fields, &mut self.current)?,
        }
        for join in joins {
            let found = join.counterpart(self.held.state(), schema, &self.current)?;
            if found.is_none() && !join.is_left {
                return Ok(Read::Passed);
            }
            self.current.set(join.name(), found.unwrap_or(Value::Null));
        }
        let is_found = after.iter().all(|condition| condition.holds(schema, &self.current));
        Ok(if is_found { Read::Found } else { Read::Passed })
    }

    /// How many documents were read.
    pub(super) fn read_count(&self) -> u64 {
        self.read_count
    }

    /// The fields of the documents, those that are joined included.
    pub(super) fn schema(&self) -> &Schema {
        &self.terms.schema
    }

    /// Where the scan is.
    pub(super) fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The key of the document that was found.
    pub(super) fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// The document that was found, as far as it is needed.
    pub(super) fn document(&self) -> &Document {
        &self.current
    }

    /// The whole document that was found, as it would be stored.
    pub(super) fn stored(&self) -> Result<Cow<'_, [u8]>> {
        if self.terms.joins.is_empty() {
            return self.scan.named();
        }
        let mut document = self.scan.document()?;
        for join in &self.terms.joins {
            document.set(join.name(), self.current.get(join.name()).cloned().unwrap_or_default());
        }
        document.to_bytes().map(Cow::Owned)
    }

    pub(super) fn take(&mut self) -> Document {
        std::mem::take(&mut self.current)
    }
}

/// Names of fields of documents, each once.
#[derive(Debug, Default)]
pub(super) struct FieldSet {
    names: Vec<String>,
    /// Where the fields are in the shape of the document that was read last.
    last: RefCell<Option<(u32, Arc<[usize]>)>>,
}

impl FieldSet {
    pub(super) fn add(&mut self, path: &Path) {
        if !self.names.iter().any(|field| field == path.field()) {
            self.names.push(path.field().to_owned());
        }
    }

    /// Whether it has a field, under any name that the field has had.
    pub(super) fn has(&self, schema: &Schema, name: &[u8]) -> bool {
        self.names.iter().any(|own| schema.same_field(name, own.as_bytes()))
    }

    /// The positions of its fields among the values of a shape, rising, and whether the document before this
    /// one was of the same shape.
    pub(super) fn positions(&self, schema: &Schema, shape: &Shape) -> (Arc<[usize]>, bool) {
        let mut last = self.last.borrow_mut();
        if let Some((number, positions)) = &*last
            && *number == shape.number()
        {
            return (Arc::clone(positions), true);
        }
        let is_wanted = |position: &usize| self.has(schema, shape.names()[*position].as_bytes());
        let positions: Arc<[usize]> = (0..shape.names().len()).filter(is_wanted).collect();
        *last = Some((shape.number(), Arc::clone(&positions)));
        (positions, false)
    }

    /// The document that was read last has no shape.
    pub(super) fn forget_positions(&self) {
        *self.last.borrow_mut() = None;
    }
}
