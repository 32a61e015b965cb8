//! Queries of a view by its name, for tools without types: keys as elements, documents as [`Document`]s.

use std::fmt;

use crate::access::selection::{Of, Selected, Selection};
use crate::access::views::found::document_of;
use crate::access::views::state::answering_by_name;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::forms;
use crate::store::error::Result;
use crate::store::{KeyRange, Source};
use crate::value::document::{Document, Value};
use crate::value::msgpack::Reader;
use crate::value::span::Span;
use crate::value::tuple::{
    Element, Key, ascending, directed, encode, prefix_end, split, split_unread, values,
};
use crate::view::kinds::Reduce;
use crate::view::reducer::{Part, without_code};
use crate::view::spec::ViewSpec;

/// Rows of a view by its name, from [`Documents::view`](crate::Documents::view) or
/// [`DocumentsOf::view`](crate::DocumentsOf::view).
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::view::{Reduce, ViewSpec};
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let orders = db.ensure(&Schema::new("orders").key(["id"]))?;
/// orders.add_view(ViewSpec::new("by_city", ["city"]).values(["cents"]).reduce([Reduce::Sum(0)]))?;
/// orders.put(doc! { "id": 1, "city": "Oslo", "cents": 1250 })?;
/// let oslo = orders.view("by_city").key("Oslo");
/// assert_eq!(oslo.reduce()?.parts[0].value, Value::from(1250));
/// assert_eq!(oslo.docs()?[0].get("id"), Some(&Value::from(1)));
/// # Ok(()) }
/// ```
///
/// The newest complete view of the name answers.
///
/// Keys and bounds are values without directions; the view has them. Ranges are in the order of the view: of
/// a descending element from the largest value to the smallest.
///
/// # Errors
/// Every method that runs the query can return those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if
/// the collection or the view does not exist; `KeyTooLong` (E0202) if a bound is too long;
/// `Rebuilding` (E0802) while the view is incomplete or the documents are migrated.
#[derive(Clone)]
pub struct DocumentView<'s> {
    selection: Selection<'s>,
    collection: &'s str,
    name: String,
}

/// A row of a view, as elements and values.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewRow {
    /// The view's key.
    pub key: Vec<Element>,
    /// The key of the document.
    pub document: Vec<Element>,
    /// The values that the view keeps in the row, in the order of its definition.
    pub values: Vec<Value>,
}

/// The reductions of rows of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewReduction {
    /// How many rows there are.
    pub count: u64,
    /// Each reduction of the view, in the order of its definition.
    pub parts: Vec<ReducedPart>,
}

/// The result of one reduction.
#[derive(Debug, Clone, PartialEq)]
pub struct ReducedPart {
    /// Which reduction.
    pub reduce: Reduce,
    /// The field that it reduces, if the view names one.
    pub field: Option<String>,
    /// How many values there were, without nulls.
    pub seen: u64,
    /// The result; null for a minimum or maximum of no values.
    pub value: Value,
}

impl<'s> DocumentView<'s> {
    pub(crate) fn new(of: Of<'s>, collection: &'s str, name: &str) -> Self {
        DocumentView { selection: Selection::of(of), collection, name: name.to_owned() }
    }

    fn with(&self, selection: Selection<'s>) -> Self {
        DocumentView { selection, collection: self.collection, name: self.name.clone() }
    }

    /// Restricts to rows with this key, or to rows whose keys begin with these elements.
    #[must_use]
    pub fn key(&self, key: impl Key) -> Self {
        self.with(self.selection.within(Span::prefix(key)))
    }

    /// Restricts to rows whose keys begin with these elements.
    #[must_use]
    pub fn prefix(&self, key: impl Key) -> Self {
        self.key(key)
    }

    /// Restricts to rows with keys in this span. Bounds may be prefixes of keys.
    #[must_use]
    pub fn range(&self, span: Span) -> Self {
        self.with(self.selection.within(Ok(span)))
    }

    /// Reverses the order: from the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        self.with(self.selection.reversed())
    }

    /// Limits the number of rows, or groups. A reduction still covers all rows.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        self.with(self.selection.limited(at_most))
    }

    /// The definition of the view that answers.
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn spec(&self) -> Result<ViewSpec> {
        self.ask(|_, _, view| Ok(view.spec.clone()))
    }

    /// How many rows there are, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn count(&self) -> Result<u64> {
        self.ask(|source, _, view| self.selection_in(view)?.count(source, view.tree))
    }

    /// The reductions of the rows, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentView`]; `ReducerMissing` (E0205) if the view is reduced by code that is not registered,
    /// `ReducerPanicked` (E0208) if that code panics.
    pub fn reduce(&self) -> Result<ViewReduction> {
        self.ask(|source, _, view| reduced(source, view, &self.selection_in(view)?.range()?))
    }

    /// The reductions of each group: rows whose keys begin with the same `elements` elements.
    ///
    /// Each group costs O(log n), however many rows it has.
    ///
    /// # Errors
    /// As [`DocumentView::reduce`]; `InvalidArgument` (E0201) for more elements than a row has.
    pub fn group_by(&self, elements: usize) -> Result<Vec<(Vec<Element>, ViewReduction)>> {
        let mut groups = Vec::new();
        self.for_each_group(elements, |group, reduction| {
            groups.push((group, reduction));
            Ok(())
        })?;
        Ok(groups)
    }

    /// As [`DocumentView::group_by`], handing each group to a closure: all of them need not fit in memory.
    ///
    /// # Errors
    /// As [`DocumentView::group_by`]; the error of `each`, which ends it.
    pub fn for_each_group(
        &self,
        elements: usize,
        mut each: impl FnMut(Vec<Element>, ViewReduction) -> Result<()>,
    ) -> Result<()> {
        self.ask(|source, _, view| {
            let mut walk = self.selection_in(view)?.groups()?;
            while let Some((group, rows)) = walk.next(source, view.tree, elements)? {
                each(values(&group)?, reduced(source, view, &rows)?)?;
            }
            Ok(())
        })
    }

    /// How many of these rows are before those with this key, in O(log n). The key need not exist.
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn rank(&self, key: impl Key) -> Result<u64> {
        let key = encode(&key)?;
        self.ask(|source, _, view| {
            let key = directed(&key, |position| view.spec.is_descending(position))?;
            let end = prefix_end(&key);
            self.selection_in(view)?.rank(source, view.tree, key, end)
        })
    }

    /// The row that has `index` others of this query before it, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn nth(&self, index: u64) -> Result<Option<ViewRow>> {
        self.ask(|source, _, view| {
            let found = self.selection_in(view)?.nth(source, view.tree, index)?;
            found.map(|(row, value)| row_of(view.spec.key_elements(), &row, &value)).transpose()
        })
    }

    /// The rows, in order, as of one snapshot. The iterator reads as it advances; memory stays constant.
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn rows(&self) -> Result<ViewRowIter> {
        self.ask(|source, _, view| {
            let selection = self.selection_in(view)?;
            let found = selection.rows(source, view.tree, selection.range()?)?;
            Ok(ViewRowIter { found, elements: view.spec.key_elements() })
        })
    }

    /// The documents of the rows, in row order. Each document costs one more get.
    ///
    /// # Errors
    /// As [`DocumentView`].
    pub fn docs(&self) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        self.for_each(|_, document| {
            documents.push(document);
            Ok(())
        })?;
        Ok(documents)
    }

    /// Calls `each` with every row and its document, in row order, as of one snapshot. Memory stays constant.
    ///
    /// # Errors
    /// As [`DocumentView`], and any error of `each`, which stops the iteration.
    pub fn for_each(&self, mut each: impl FnMut(ViewRow, Document) -> Result<()>) -> Result<()> {
        self.selection.ask(|state| {
            let entry = state.entry(self.collection)?;
            let view = answering_by_name(state, &entry, &self.name)?;
            let selection = self.selection_in(view)?;
            let mut rows = selection.rows(state.source(), view.tree, selection.range()?)?;
            let elements = view.spec.key_elements();
            while let Some((row, value)) = rows.next()? {
                let key = &*ascending(&row[split_unread(row, elements)?..])?;
                if let Some(stored) = document_of(state, entry.tree, self.collection, key)? {
                    each(row_of(elements, row, value)?, forms::document(&entry.schema, &stored)?)?;
                }
            }
            Ok(())
        })
    }

    /// The selection with its bounds in the directions of the view.
    fn selection_in(&self, view: &OpenView) -> Result<Selection<'s>> {
        self.selection.directed(&view.spec)
    }

    fn ask<T>(&self, ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>) -> Result<T> {
        self.selection.ask(|state| {
            let entry = state.entry(self.collection)?;
            let view = answering_by_name(state, &entry, &self.name)?;
            ask(state.source(), &entry, view)
        })
    }
}

fn reduced(source: &dyn Source, view: &OpenView, range: &KeyRange) -> Result<ViewReduction> {
    let Some(reductions) = &view.reductions else {
        return Ok(ViewReduction { count: source.count(view.tree, range)?, parts: Vec::new() });
    };
    let reduced = source.reduce(view.tree, range).map_err(|error| without_code(&view.spec, error))?;
    let value = reduced.value.unwrap_or_default();
    let parts = view.spec.reduce.iter().zip(reductions.decode(&value)?);
    let parts = parts.map(|(reduce, part)| part_of(&view.spec, reduce, &part)).collect::<Result<_>>()?;
    Ok(ViewReduction { count: reduced.count, parts })
}

fn part_of(spec: &ViewSpec, reduce: &Reduce, part: &Part<'_>) -> Result<ReducedPart> {
    let field = spec.values.get(reduce.value()).cloned();
    Ok(ReducedPart { reduce: reduce.clone(), field, seen: part.seen, value: reduce.shown(&part.outcome)? })
}

fn row_of(elements: usize, row: &[u8], value: &[u8]) -> Result<ViewRow> {
    let (key, document) = row.split_at(split(row, elements)?);
    let mut kept = Vec::new();
    let mut rest = Reader::new(value);
    while !rest.at_end() {
        kept.push(Value::from_stored(rest.raw()?)?);
    }
    Ok(ViewRow { key: values(key)?, document: values(document)?, values: kept })
}

impl fmt::Debug for DocumentView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentView")
            .field("collection", &self.collection)
            .field("view", &self.name)
            .field("range", &self.selection.range())
            .finish_non_exhaustive()
    }
}

/// Rows of a view as of one snapshot, in order.
pub struct ViewRowIter {
    found: Selected,
    elements: usize,
}

impl Iterator for ViewRowIter {
    type Item = Result<ViewRow>;

    fn next(&mut self) -> Option<Result<ViewRow>> {
        let row = self.found.next().transpose()?;
        Some(row.and_then(|(row, value)| row_of(self.elements, row, value)))
    }
}
