//! Documents of a scan that satisfy the conditions, with their counterparts of other collections.
//!
//! Tests the conditions first, on the stored bytes if they are on whole fields, and decodes of the documents
//! that satisfy them what the query needs.

use std::borrow::Cow;
use std::sync::Arc;

use super::condition::Condition;
use super::field_set::FieldSet;
use super::join::Joined;
use super::path::Path;
use super::scan::Scan;
use super::stored_fields::{FieldFinder, StoredFields};
use crate::access::reads::sealed::Readable;
use crate::catalog::schema::Schema;
use crate::store::error::Result;
use crate::value::document::{Document, Value};

/// What a query needs of the documents that it finds.
#[derive(Debug, Clone)]
pub(super) enum Needs {
    Whole,
    Fields(FieldSet),
    /// As [`Needs::Fields`], but scalars are read where they are stored, if all of the fields are scalars.
    Stored(FieldFinder, FieldSet),
}

/// A document that was found, as far as it is needed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'f> {
    Document(&'f Document),
    /// The fields of [`Needs::Stored`].
    Stored(StoredFields<'f>),
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

pub(super) struct Filter {
    scan: Scan,
    terms: Arc<Terms>,
    /// The fields that the conditions test, each of one; `None` unless all are on whole fields.
    stored_tests: Option<FieldFinder>,
    /// The fields that the conditions test, where they cannot be tested as they are stored.
    tested: FieldSet,
    needs: Needs,
    /// The fields that were tested last.
    tested_last: Document,
    current: Document,
    read_count: u64,
}

impl Filter {
    pub(super) fn new(scan: Scan, terms: Terms, mut needs: Needs) -> Filter {
        let mut tested = FieldSet::default();
        terms.before.iter().for_each(|condition| condition.paths(&mut |path| tested.add(path)));
        let paths: Option<Vec<&Path>> = terms.before.iter().map(Condition::one_path).collect();
        let stored_tests = paths.and_then(|paths| FieldFinder::new(paths.into_iter().map(Some)));
        if let Needs::Stored(_, fields) = &mut needs
            && !(terms.joins.is_empty() && terms.after.is_empty())
        {
            needs = Needs::Fields(std::mem::take(fields));
        }
        if let Needs::Fields(fields) = &mut needs {
            terms.joins.iter().flat_map(Joined::paths).for_each(|path| fields.add(path));
            terms.after.iter().for_each(|condition| condition.paths(&mut |path| fields.add(path)));
        }
        let (tested_last, current) = Default::default();
        let terms = Arc::new(terms);
        Filter { scan, terms, stored_tests, tested, needs, tested_last, current, read_count: 0 }
    }

    /// Another filter that shares the ranges of the scan with this one: each document is read by one of them.
    pub(super) fn beside(&self) -> Filter {
        let (tested_last, current) = Default::default();
        Filter {
            scan: self.scan.beside(),
            terms: Arc::clone(&self.terms),
            stored_tests: self.stored_tests.clone(),
            tested: self.tested.clone(),
            needs: self.needs.clone(),
            tested_last,
            current,
            read_count: 0,
        }
    }

    /// Goes to the next document and tests it. `state` is the same in every call.
    pub(super) fn advance(&mut self, state: &dyn Readable) -> Result<Read> {
        if !self.scan.advance(state)? {
            return Ok(Read::End);
        }
        self.read_count += 1;
        if !self.holds_before()? {
            return Ok(Read::Passed);
        }
        let Terms { schema, joins, after, .. } = &*self.terms;
        match &mut self.needs {
            Needs::Whole => self.current = self.scan.document()?,
            Needs::Fields(fields) => self.scan.fields(fields, &mut self.current)?,
            Needs::Stored(..) => return Ok(Read::Found),
        }
        for join in joins {
            let found = join.counterpart(state, schema, &self.current)?;
            if found.is_none() && !join.is_left {
                return Ok(Read::Passed);
            }
            self.current.set(join.name(), found.unwrap_or(Value::Null));
        }
        let is_found = after.iter().all(|condition| condition.holds(schema, &self.current));
        Ok(if is_found { Read::Found } else { Read::Passed })
    }

    /// Whether the conditions on a document's own fields hold.
    fn holds_before(&mut self) -> Result<bool> {
        let Terms { schema, before, .. } = &*self.terms;
        if before.is_empty() {
            return Ok(true);
        }
        if let Some(finder) = &mut self.stored_tests
            && let Some((shape, values)) = self.scan.shaped()?
            && let Some(all_hold) =
                finder.all_pass(schema, shape, values, |index, found| before[index].test_scalar(found))?
        {
            return Ok(all_hold);
        }
        self.scan.fields(&mut self.tested, &mut self.tested_last)?;
        Ok(before.iter().all(|condition| condition.holds(schema, &self.tested_last)))
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
    pub(super) fn scan(&mut self) -> &mut Scan {
        &mut self.scan
    }

    /// The document that was found, as far as it is needed. Not of [`Needs::Stored`].
    pub(super) fn document(&self) -> &Document {
        &self.current
    }

    /// The schema of the documents, the one that was found ([`Filter::document`]), and its key.
    pub(super) fn document_and_key(&mut self) -> (&Schema, &Document, &[u8]) {
        (&self.terms.schema, &self.current, self.scan.key())
    }

    /// The document that was found, as far as it is needed, with the fields of the documents.
    pub(super) fn found(&mut self) -> Result<(&Schema, Found<'_>)> {
        let schema = &self.terms.schema;
        let Needs::Stored(finder, fields) = &mut self.needs else {
            return Ok((schema, Found::Document(&self.current)));
        };
        if let Some((shape, values)) = self.scan.shaped()?
            && let Some(stored) = finder.find(schema, shape, values)?
        {
            return Ok((schema, Found::Stored(stored)));
        }
        self.scan.fields(fields, &mut self.current)?;
        Ok((schema, Found::Document(&self.current)))
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
