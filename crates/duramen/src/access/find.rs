//! Finding documents by conditions on their fields, along the best access path.
//!
//! Owns the query and its iterator. `condition` is what documents must satisfy; `plan` chooses the access
//! path and never reads; `scan` reads along it. [`DocumentsOf::find`] and [`Documents::find`] begin one.
//!
//! ```
//! use duramen::find::{AccessPath, Condition, Operator};
//! use duramen::prelude::*;
//! use duramen::view::ViewSpec;
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let flights = Schema::new("flights").key(["id"]).view(ViewSpec::new("by_delay", ["delay"]));
//! let flights = db.ensure(&flights)?;
//! for (id, delay) in [(1, 70), (2, -5), (3, 90)] {
//!     flights.put(doc! { "id": id, "delay": delay, "carrier": if id < 3 { "UA" } else { "AA" } })?;
//! }
//!
//! let schema = flights.schema()?;
//! let late = Condition::new(&schema, "delay", Operator::GreaterOrEqual, 60)?;
//! let united = Condition::parse(&schema, "carrier=UA")?;
//! let find = flights.find([late, united]);
//!
//! let plan = find.plan()?;
//! assert_eq!(plan.path, AccessPath::View { name: "by_delay".into(), fields: vec!["delay".into()] });
//! assert_eq!(plan.path_shown(), "the view by_delay: delay >= 60");
//! assert_eq!((plan.read_count, plan.document_count, plan.is_exact), (2, 3, false));
//! assert_eq!(plan.helpful_view, ["carrier", "delay"]);
//!
//! let found = find.iter()?.collect::<Result<Vec<_>>>()?;
//! assert_eq!(found[0].get("id"), Some(&Value::from(1)));
//! # Ok(()) }
//! ```
//!
//! # Costs
//! Choosing the access path takes O(log n) for each view of the collection, without reading a document. Then
//! every document along the path is read, and those that satisfy all conditions are returned. Along a view
//! each document costs one more get. [`FindPlan::read_count`] is the number of reads, and
//! [`FindPlan::helpful_view`] the key of a view with which it would be smaller.

mod compare;
mod condition;
mod path;
mod plan;
mod scan;

use std::fmt;

use crate::access::documents::DocumentsOf;
use crate::access::documents::auto_commit::Documents;
use crate::access::reads::Reads;
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Held, Of};
use crate::access::views::state::answering_by_name;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::schema::ColumnType;
use crate::store::error::{Code, Result};
use crate::store::{Direction, TreeId};
use crate::value::document::Document;
use crate::value::span::Span;
use plan::{Index, IndexRange, along, choose, helpful_view};
use scan::Scan;

pub use condition::{Condition, Operator};
pub use plan::{AccessPath, FindPlan};

/// A query for documents that satisfy conditions, of a [`Db`](crate::Db), a [`Snapshot`](crate::Snapshot) or
/// a [`Transaction`](crate::Transaction).
///
/// Without [`Find::view`] and [`Find::range`] the key or a view is chosen whose leading fields the conditions
/// restrict the most; without such an index all documents are read. A view that is being built, has a row for
/// each item of a list, or is in code is not chosen. Neither is one that may lack documents that satisfy the
/// conditions: a document without one of a view's fields has no row in it.
///
/// Documents are returned in the order of the access path.
///
/// In a transaction the access path may depend on counts of the whole collection. The transaction then
/// conflicts with every concurrent write of the collection.
///
/// # Errors
/// Every method that plans or runs the query can fail: with `NoSuchTree` if the collection, or the view that
/// was given, does not exist; with `Rebuilding` while that view is incomplete; with `InvalidArgument` for a
/// condition on a field that the collection does not have; with `KeyTooLong` if a condition's value is too
/// long for an index; and with errors of reading the disk.
#[derive(Clone)]
pub struct Find<'s> {
    of: Of<'s>,
    collection: &'s str,
    conditions: Vec<Condition>,
    view: Option<String>,
    span: Option<Span>,
    direction: Direction,
}

/// The next document that a [`FindIter`] found, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A document that satisfies the conditions.
    Found(Document),
    /// As many documents were read as allowed, and none of them satisfies the conditions.
    Unfinished,
    /// There are no more documents.
    End,
}

impl<'a, S: Reads> DocumentsOf<'a, S> {
    /// The documents that satisfy all conditions; all documents if there are none.
    ///
    /// In a transaction its own writes are found too.
    #[must_use]
    pub fn find(&self, conditions: impl IntoIterator<Item = Condition>) -> Find<'a> {
        Find::new(Of::State(self.within), self.name, conditions)
    }
}

impl Documents {
    /// The documents that satisfy all conditions; all documents if there are none. Each query runs on a
    /// snapshot of its own.
    #[must_use]
    pub fn find(&self, conditions: impl IntoIterator<Item = Condition>) -> Find<'_> {
        Find::new(Of::Db(self.db()), self.name(), conditions)
    }
}

impl<'s> Find<'s> {
    fn new(of: Of<'s>, collection: &'s str, conditions: impl IntoIterator<Item = Condition>) -> Find<'s> {
        let conditions =
            conditions.into_iter().flat_map(|condition: Condition| condition.parts().to_vec()).collect();
        Find { of, collection, conditions, view: None, span: None, direction: Direction::Forward }
    }

    /// Reads along this view instead of choosing an access path. Conditions on its leading fields still
    /// restrict the path.
    ///
    /// Documents without a row in the view are then not found. A document with several rows in it is found
    /// several times.
    #[must_use]
    pub fn view(&self, name: impl Into<String>) -> Self {
        Find { view: Some(name.into()), ..self.clone() }
    }

    /// Reads along this range instead of choosing an access path: of the view that [`Find::view`] gives, else
    /// of the collection's key. Bounds may be prefixes of keys.
    #[must_use]
    pub fn range(&self, span: Span) -> Self {
        let span = match self.span.clone() {
            Some(before) => before.and(span),
            None => span,
        };
        Find { span: Some(span), ..self.clone() }
    }

    /// Reverses the order: from the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        Find { direction, ..self.clone() }
    }

    /// The access path and its cost, without reading a document.
    ///
    /// Costs O(log n) for each view of the collection. In a transaction it counts the whole collection, and
    /// so conflicts with every concurrent write of the collection.
    ///
    /// # Errors
    /// As [`Find`].
    pub fn plan(&self) -> Result<FindPlan> {
        let held = self.of.hold()?;
        let (state, entry) = (held.state(), held.state().entry(self.collection)?);
        let range = self.index_range(state, &entry)?;
        let is_exact = range.is_exact();
        let is_given = self.view.is_some() || self.span.is_some();
        let helpful = if is_exact || is_given { Vec::new() } else { helpful_view(&self.conditions) };
        Ok(FindPlan {
            collection: self.collection.to_owned(),
            conditions: self.conditions.clone(),
            path: range.path(),
            read_count: count_all(state, &range)?,
            document_count: count(state, entry.tree, Span::all())?,
            is_exact,
            helpful_view: if helpful == range.fields() { Vec::new() } else { helpful },
        })
    }

    /// The documents, in the order of the access path, as of one snapshot. The iterator reads as it advances;
    /// memory stays constant.
    ///
    /// In a transaction it finds the writes before this call. Whether it finds later ones depends on the
    /// access path.
    ///
    /// # Errors
    /// As [`Find`].
    pub fn iter(&self) -> Result<FindIter<'s>> {
        let held = self.of.hold()?;
        let (state, entry) = (held.state(), held.state().entry(self.collection)?);
        let range = self.index_range(state, &entry)?;
        let scan = Scan::new(entry, range, self.direction);
        let mut fields: Vec<String> = Vec::new();
        for condition in &self.conditions {
            condition.paths(&mut |path| fields.push(path.field().to_owned()));
        }
        fields.sort_unstable();
        fields.dedup();
        Ok(FindIter { held, conditions: self.conditions.clone(), fields, scan, read_count: 0 })
    }

    /// How many documents satisfy the conditions.
    ///
    /// Costs O(log n), without reading a document, if the conditions restrict the access path and nothing
    /// else ([`FindPlan::is_exact`]). Otherwise every document along the path is read.
    ///
    /// # Errors
    /// As [`Find`], and as [`FindIter::next_within`].
    pub fn count(&self) -> Result<u64> {
        let held = self.of.hold()?;
        let (state, entry) = (held.state(), held.state().entry(self.collection)?);
        let range = self.index_range(state, &entry)?;
        if range.is_exact() {
            return count_all(state, &range);
        }
        self.iter()?.try_fold(0, |count, found| found.map(|_| count + 1))
    }

    /// The range of the key or of a view that is read.
    fn index_range(&self, state: &dyn Readable, entry: &Entry) -> Result<IndexRange> {
        self.conditions.iter().try_for_each(|condition| condition.check(&entry.schema))?;
        let given = match &self.view {
            Some(name) => Some(index_of(entry, answering_by_name(state, entry, name)?)),
            None => self.span.is_some().then(|| key_of(entry)),
        };
        if let Some(index) = given {
            let span = self.span.clone().unwrap_or_else(Span::all);
            return along(&index, &self.conditions, &span);
        }
        choose(&key_of(entry), &views_of(state, entry)?, &self.conditions, |view| {
            // A document has at most one row: if the counts are equal, every document has one.
            Ok(count(state, view.tree, Span::all())? == count(state, entry.tree, Span::all())?)
        })
    }
}

impl fmt::Debug for Find<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Find")
            .field("collection", &self.collection)
            .field("conditions", &self.conditions)
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

/// Documents that satisfy the conditions of a [`Find`], as of one snapshot, in the order of the access path.
pub struct FindIter<'s> {
    held: Held<'s>,
    conditions: Vec<Condition>,
    /// The fields that the conditions test.
    fields: Vec<String>,
    scan: Scan,
    read_count: u64,
}

impl FindIter<'_> {
    /// How many documents were read so far, results included.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.read_count
    }

    /// Reads until a document satisfies the conditions, but at most `read_max` documents.
    ///
    /// A program that must stay responsive, also while nothing is found, calls this in a loop instead of
    /// [`Iterator::next`].
    ///
    /// # Errors
    /// `System` (E1001) if the disk cannot be read. `CorruptData` (E0501) for a corrupt page, and for a row
    /// of a view without its document.
    pub fn next_within(&mut self, read_max: u64) -> Result<Step> {
        for _ in 0..read_max {
            if !self.scan.advance(self.held.state())? {
                return Ok(Step::End);
            }
            self.read_count += 1;
            if self.is_wanted()? {
                return self.scan.document().map(Step::Found);
            }
        }
        Ok(Step::Unfinished)
    }

    /// Whether the current document satisfies the conditions.
    fn is_wanted(&self) -> Result<bool> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let (schema, document) = (self.scan.schema(), self.scan.fields(&self.fields)?);
        Ok(self.conditions.iter().all(|condition| condition.holds(schema, &document)))
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

/// The collection's key as an index.
fn key_of(entry: &Entry) -> Index {
    let fields = entry.schema.key_columns().to_vec();
    let elements = fields.len();
    Index { view: None, tree: entry.tree, elements, typed: typed(entry, &fields), fields }
}

/// A view as an index.
fn index_of(entry: &Entry, view: &OpenView) -> Index {
    let spec = &view.spec;
    let mut fields = spec.key_fields().to_vec();
    if spec.is_each() {
        // Its rows have an item of the list, and a condition compares the whole list.
        fields.pop();
    }
    Index {
        view: Some(spec.name().to_owned()),
        tree: view.tree,
        elements: spec.key_elements(),
        typed: typed(entry, &fields),
        fields,
    }
}

/// Which of these fields are columns with a type.
fn typed(entry: &Entry, fields: &[String]) -> Vec<bool> {
    let is_typed = |field: &String| {
        entry.schema.kind(field).is_some_and(|kind| !matches!(kind, ColumnType::Any | ColumnType::Unknown))
    };
    fields.iter().map(is_typed).collect()
}

/// The complete views with at most one row for a document.
fn views_of(state: &dyn Readable, entry: &Entry) -> Result<Vec<Index>> {
    let mut names: Vec<&str> = entry.views.iter().map(|view| view.spec.name()).collect();
    names.dedup();
    let mut views = Vec::new();
    for name in names {
        match answering_by_name(state, entry, name) {
            Ok(view) if view.spec.is_each() || view.spec.code_version().is_some() => {}
            Ok(view) => views.push(index_of(entry, view)),
            Err(error) if error.code() == Code::Rebuilding => {}
            Err(error) => return Err(error),
        }
    }
    Ok(views)
}

/// How many rows the ranges of an index hold.
fn count_all(state: &dyn Readable, range: &IndexRange) -> Result<u64> {
    range.spans.iter().map(|span| count(state, range.index.tree, span.clone())).sum()
}

/// How many rows of a tree a span holds.
fn count(state: &dyn Readable, tree: TreeId, span: Span) -> Result<u64> {
    state.source().count(tree, &span.into_bytes())
}
