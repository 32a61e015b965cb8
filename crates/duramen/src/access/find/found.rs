//! The iterator over what a query finds: filtered, ordered, limited, and with the fields that were asked for.

use super::field_set::FieldSet;
use super::filter::{Filter, Needs, Read};
use super::order::SortOrder;
use super::path::Path;
use super::sort::{Sorted, Sorter};
use crate::access::page::PageToken;
use crate::access::reads::sealed::Readable;
use crate::access::selection::Held;
use crate::catalog::schema::Schema;
use crate::store::error::Result;
use crate::value::document::{Document, Value};

/// Documents that satisfy the conditions of a [`Find`](crate::find::Find), as of one snapshot, in its order.
pub struct FindIter<'s> {
    held: Held<'s>,
    finding: Finding,
}

/// A query on its way. `state` is the same in every call, and there while it [reads](Finding::reads).
pub(super) struct Finding {
    documents: Filter,
    projection: Option<Projection>,
    stage: Stage,
    /// How many more documents are wanted.
    left: u64,
    is_spilled: bool,
}

/// Why there is a state.
pub(super) const HELD: &str = "it is held while documents are read";

/// The next document that a [`FindIter`] found, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A document that satisfies the conditions.
    Found(Document),
    /// As many documents were read as allowed, and none was found, or a sort needs more of them.
    Unfinished,
    /// There are no more documents.
    End,
}

/// What the iterator does with the documents of the scan.
pub(super) enum Stage {
    /// They come in the right order.
    Direct,
    /// They are collected to be sorted.
    Gather(SortOrder, Sorter),
    Sorted(Sorted),
    End,
}

/// The fields of documents that were asked for.
#[derive(Debug, Clone)]
pub(super) struct Projection(Vec<Path>);

impl Projection {
    /// # Errors
    /// `InvalidArgument` for a field that the schema does not have.
    pub(super) fn of(schema: &Schema, fields: &[String]) -> Result<Projection> {
        fields.iter().map(|field| Path::of(schema, field)).collect::<Result<_>>().map(Projection)
    }

    pub(super) fn paths(&self) -> &[Path] {
        &self.0
    }

    /// A document with each path as a field; what is absent is null.
    fn apply(&self, schema: &Schema, document: &Document) -> Document {
        let value = |path: &Path| {
            if !path.is_each() {
                return path.value(schema, document).clone();
            }
            let mut items = Vec::new();
            path.any(schema, document, &mut |value| {
                items.push(value.clone());
                false
            });
            Value::List(items)
        };
        let mut projected = Document::new();
        self.0.iter().for_each(|path| projected.set(path.text(), value(path)));
        projected
    }
}

/// What a query needs of every document that it finds. A sort needs whole documents only of those it keeps.
pub(super) fn needs(projection: Option<&Projection>, order: &SortOrder) -> Needs {
    if projection.is_none() && order.is_empty() {
        return Needs::Whole;
    }
    let mut fields = FieldSet::default();
    let projected = projection.map(Projection::paths).unwrap_or_default();
    projected.iter().chain(order.paths()).for_each(|path| fields.add(path));
    Needs::Fields(fields)
}

impl<'s> FindIter<'s> {
    pub(super) fn new(held: Held<'s>, finding: Finding) -> FindIter<'s> {
        FindIter { held, finding }
    }

    /// How many documents were read so far, results included.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.finding.read_count()
    }

    /// Whether a sort exceeded its memory and uses a temporary file. Known once the first document is found.
    #[must_use]
    pub fn is_spilled(&self) -> bool {
        self.finding.is_spilled
    }

    /// Reads until a document is found, but at most `read_max` documents.
    ///
    /// A program that must stay responsive, also while nothing is found, calls this in a loop instead of
    /// [`Iterator::next`].
    ///
    /// # Errors
    /// `System` (E1001) if the disk cannot be read. `CorruptData` (E0501) for a corrupt page, and for a row
    /// of a view without its document. A sort larger than its memory also fails with `ReadOnly` (E0204) if
    /// there is no directory for its temporary file, and with `DiskFull` (E0301) if that has no room.
    pub fn next_within(&mut self, read_max: u64) -> Result<Step> {
        self.finding.next_within(Some(self.held.state()), read_max)
    }

    /// Whether documents come in the order of the scan.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.finding.stage, Stage::Direct)
    }

    /// Where the document that was found last is in the order of the scan.
    pub(super) fn token(&mut self) -> PageToken {
        let scan = self.finding.documents.scan();
        let order = scan.order();
        PageToken::after(scan.position(), &order)
    }
}

impl Finding {
    pub(super) fn new(
        documents: Filter,
        projection: Option<Projection>,
        stage: Stage,
        limit: Option<u64>,
    ) -> Finding {
        Finding { documents, projection, stage, left: limit.unwrap_or(u64::MAX), is_spilled: false }
    }

    pub(super) fn read_count(&self) -> u64 {
        self.documents.read_count()
    }

    /// Whether documents are still to be read.
    pub(super) fn reads(&self) -> bool {
        matches!(self.stage, Stage::Direct | Stage::Gather(..))
    }

    /// # Errors
    /// As [`FindIter::next_within`].
    pub(super) fn next_within(&mut self, state: Option<&dyn Readable>, read_max: u64) -> Result<Step> {
        for _ in 0..read_max {
            if self.left == 0 {
                self.stage = Stage::End;
            }
            match &mut self.stage {
                Stage::End => return Ok(Step::End),
                Stage::Sorted(sorted) => {
                    let Some((_, stored)) = sorted.next()? else {
                        self.stage = Stage::End;
                        continue;
                    };
                    self.left -= 1;
                    return Document::from_bytes(stored).map(Step::Found);
                }
                Stage::Direct => match self.documents.advance(state.expect(HELD))? {
                    Read::End => self.stage = Stage::End,
                    Read::Passed => {}
                    Read::Found => {
                        self.left -= 1;
                        return Ok(Step::Found(self.take()));
                    }
                },
                Stage::Gather(..) => self.gather(state.expect(HELD))?,
            }
        }
        Ok(Step::Unfinished)
    }

    /// Adds one document to the sort, or ends it.
    fn gather(&mut self, state: &dyn Readable) -> Result<()> {
        let Stage::Gather(order, sorter) = &mut self.stage else { return Ok(()) };
        match self.documents.advance(state)? {
            Read::Passed => {}
            Read::Found => {
                let (schema, document, own_key) = self.documents.document_and_key();
                let mut key = Vec::with_capacity(64);
                order.write_key(schema, document, own_key, &mut key);
                if sorter.wants(&key) {
                    match &self.projection {
                        Some(fields) => sorter.push(&key, &fields.apply(schema, document).to_bytes()?)?,
                        None => sorter.push(&key, &self.documents.stored()?)?,
                    }
                }
            }
            Read::End => {
                let Stage::Gather(_, sorter) = std::mem::replace(&mut self.stage, Stage::End) else {
                    return Ok(());
                };
                let sorted = sorter.finish()?;
                self.is_spilled = sorted.is_spilled();
                self.stage = Stage::Sorted(sorted);
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Document {
        match &self.projection {
            Some(fields) => fields.apply(self.documents.schema(), self.documents.document()),
            None => self.documents.take(),
        }
    }
}

impl Iterator for FindIter<'_> {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Result<Document>> {
        loop {
            match self.next_within(u64::MAX) {
                Ok(Step::Found(document)) => return Some(Ok(document)),
                Ok(Step::Unfinished) => {}
                Ok(Step::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
