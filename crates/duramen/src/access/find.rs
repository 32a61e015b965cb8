//! Finding documents by conditions on their fields, along the best access path.
//!
//! Owns the query. `condition` is what documents must satisfy; `plan` chooses the access path and never
//! reads; `scan` reads along it; `found` is the iterator. [`DocumentsOf::find`] and [`Documents::find`] begin
//! one.
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
//!
//! #[derive(Deserialize)]
//! struct Flight {
//!     carrier: String,
//!     delay: i32,
//! }
//!
//! let flight = found[0].to::<Flight>()?;
//! assert_eq!((flight.carrier.as_str(), flight.delay), ("UA", 70));
//! # Ok(()) }
//! ```
//!
//! # Costs
//! Choosing the access path takes O(log n) for each view of the collection, without reading a document. Then
//! every document along the path is read, and those that satisfy all conditions are returned. Along a view
//! each document costs one more get. [`FindPlan::read_count`] is the number of reads, and
//! [`FindPlan::helpful_view`] the key of a view with which it would be smaller.

mod aggregate;
mod compare;
mod condition;
mod cursor;
mod field_set;
mod filter;
mod float_sum;
mod found;
mod gather;
mod group;
mod group_table;
mod join;
mod order;
mod path;
mod plan;
mod ranges;
mod reduced;
mod scan;
mod sort;
pub(crate) mod spill;
mod stored_fields;

use std::fmt;
use std::sync::Arc;

use crate::access::documents::DocumentsOf;
use crate::access::documents::auto_commit::Documents;
use crate::access::page::{Page, PageToken};
use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::selection::Of;
use crate::access::views::state::answering_by_name;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, TreeId};
use crate::value::document::{Document, Value};
use crate::value::span::Span;
use cursor::Running;
use filter::{Filter, Terms};
use found::{Finding, Projection, Stage, needs};
use join::Joined;
use order::SortOrder;
use path::Path;
use plan::{Index, IndexField, IndexRange, along, choose, helpful_view, in_order, ordered_instead};
use scan::Scan;
use sort::Sorter;

pub use aggregate::Aggregate;
pub use condition::{Condition, Operator};
pub use cursor::FindCursor;
pub use found::{FindIter, Step};
pub use group::{GroupIter, Grouped};
pub use join::Join;
pub use order::OrderBy;
pub use plan::{AccessPath, FindPlan, Sorting};
pub use sort::{SORT_BYTES_DEFAULT, SORT_BYTES_MIN};

/// The most threads of a query.
pub const THREADS_MAX: usize = 32;

/// The least memory of each of several threads: that of its groups, and of a sort in which they are spilled.
const THREAD_BYTES_MIN: usize = 4 * SORT_BYTES_MIN;

/// A query for documents that satisfy conditions, of a [`Db`](crate::Db), a [`Snapshot`](crate::Snapshot) or
/// a [`Transaction`](crate::Transaction).
///
/// Without [`Find::view`] and [`Find::range`] the key or a view is chosen whose leading fields the conditions
/// restrict the most; without such an index all documents are read. A view that is being built, has a row for
/// each item of a list, or is in code is not chosen. Neither is one that may lack documents that satisfy the
/// conditions: a document without one of a view's fields has no row in it.
///
/// Documents are returned in the order of the access path, unless [`Find::order_by`] sets another.
///
/// In a transaction the access path may depend on counts of the whole collection. The transaction then
/// conflicts with every concurrent write of the collection.
///
/// # Errors
/// Every method that plans or runs the query can fail: with `NoSuchTree` if the collection, or the view that
/// was given, does not exist; with `Rebuilding` while that view is incomplete; with `InvalidArgument` for a
/// condition or an order on a field that the collection does not have; with `KeyTooLong` if a condition's
/// value is too long for an index; and with errors of reading the disk.
#[derive(Clone)]
pub struct Find<'s> {
    of: Of<'s>,
    collection: &'s str,
    conditions: Vec<Condition>,
    joins: Vec<Join>,
    view: Option<String>,
    span: Option<Span>,
    direction: Direction,
    order: Vec<OrderBy>,
    limit: Option<u64>,
    /// Whether pages are read one after the other, each from its own place in the access path.
    in_pages: bool,
    fields: Option<Vec<String>>,
    memory_bytes: usize,
    threads: usize,
}

/// What is read, and whether it comes in the order that was asked for.
struct Chosen {
    range: IndexRange,
    direction: Direction,
    /// What is left to be sorted by; nothing if the order is that of the access path.
    sort: SortOrder,
    sorting: Sorting,
}

impl<'a, S: LocalReads> DocumentsOf<'a, S> {
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
        Find {
            of,
            collection,
            conditions,
            joins: Vec::new(),
            view: None,
            span: None,
            direction: Direction::Forward,
            order: Vec::new(),
            limit: None,
            in_pages: false,
            fields: None,
            memory_bytes: SORT_BYTES_DEFAULT,
            threads: 1,
        }
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

    /// Adds conditions. With [`Find::join`] they may be on what is joined: make them with [`Find::schema`].
    #[must_use]
    pub fn and(&self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        let more = conditions.into_iter().flat_map(|condition: Condition| condition.parts().to_vec());
        Find { conditions: self.conditions.iter().cloned().chain(more).collect(), ..self.clone() }
    }

    /// Joins each document with the one of another collection whose key its fields have: a get for each.
    ///
    /// Joins follow one another, and a later one may be by what an earlier one found.
    #[must_use]
    pub fn join(&self, join: Join) -> Self {
        let joins = self.joins.iter().cloned().chain([join]).collect();
        Find { joins, ..self.clone() }
    }

    /// The schema of the documents that are found: the collection's, with a field for each join.
    ///
    /// # Errors
    /// As [`Find`].
    pub fn schema(&self) -> Result<Schema> {
        let held = self.of.hold()?;
        let entry = held.state().entry(self.collection)?;
        Ok(self.joined(held.state(), &entry)?.0)
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

    /// Orders the documents by these fields, instead of along the access path.
    ///
    /// Null comes first. Values of different types are in the order of elements of keys, but integers and
    /// floats are one order by their numeric value. Equal documents are in the order of their keys, in the
    /// direction of the last field.
    ///
    /// The documents are sorted in memory ([`Find::memory_bytes`]), and beyond it in a temporary file. With
    /// [`Find::limit`] only so many are kept. Nothing is sorted if the access path has the order.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// use duramen::find::OrderBy;
    ///
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # let flights = db.ensure(&Schema::new("flights").key(["id"]))?;
    /// # for (id, delay) in [(1, 70), (2, -5), (3, 90)] {
    /// #     flights.put(doc! { "id": id, "delay": delay })?;
    /// # }
    /// let late = flights.find([]).order_by([OrderBy::descending("delay")]).limit(1).fields(["id"]);
    /// assert_eq!(late.iter()?.collect::<Result<Vec<_>>>()?, [doc! { "id": 3 }]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn order_by(&self, order: impl IntoIterator<Item = OrderBy>) -> Self {
        Find { order: order.into_iter().collect(), ..self.clone() }
    }

    /// Returns at most this many documents.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Find { limit: Some(self.limit.map_or(at_most, |before| before.min(at_most))), ..self.clone() }
    }

    /// Returns only these fields: columns, or parts of values under the names of their paths. What a document
    /// does not have is null; a path through every item of a list (`lines[].price`) becomes a list.
    #[must_use]
    pub fn fields<T: Into<String>>(&self, fields: impl IntoIterator<Item = T>) -> Self {
        Find { fields: Some(fields.into_iter().map(Into::into).collect()), ..self.clone() }
    }

    /// How much memory a sort, or the groups of a query, may take, in bytes; [`SORT_BYTES_DEFAULT`] unless
    /// set, and at least [`SORT_BYTES_MIN`]. Beyond it sorted parts go to a temporary file without a name, in
    /// the database's directory or in that of [`DbOptions::spill_dir`](crate::DbOptions::spill_dir).
    #[must_use]
    pub fn memory_bytes(&self, bytes: usize) -> Self {
        Find { memory_bytes: bytes.max(SORT_BYTES_MIN), ..self.clone() }
    }

    /// With how many threads documents are read to be counted or grouped: 1 unless set, at most
    /// [`THREADS_MAX`].
    ///
    /// Several threads pay off from some ten thousand documents on. They share [`Find::memory_bytes`], and
    /// there is one for each 2 MiB of it at most. Since each thread may have all groups, a temporary file is
    /// needed earlier. The answers are the same; but of maps with the same fields in another order, which are
    /// equal here, any one may be shown, and of several errors any one is returned.
    ///
    /// One thread reads for [`Find::iter`], in a transaction, for numbers of distinct values and quantiles,
    /// and where there is no directory for a temporary file.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # use duramen::find::{Aggregate, Condition};
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # let flights = db.ensure(&Schema::new("flights").key(["id"]))?;
    /// # for id in 0..7 { flights.put(doc! { "id": id, "delay": 10 * id })?; }
    /// let late = flights.find([Condition::parse(&flights.schema()?, "delay>=50")?]).threads(2);
    /// assert_eq!(late.count()?, 2);
    /// assert_eq!(late.aggregate([Aggregate::sum("delay")])?, doc! { "sum_delay": 110 });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn threads(&self, at_most: usize) -> Self {
        Find { threads: at_most.clamp(1, THREADS_MAX), ..self.clone() }
    }

    /// So many threads that each has enough memory.
    fn threads_in_memory(&self) -> usize {
        self.threads.min(self.memory_bytes / THREAD_BYTES_MIN).max(1)
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
        let state = held.state();
        let (entry, terms) = self.terms(state)?;
        let Chosen { range, sorting, .. } = self.choose(state, &entry, &terms)?;
        let is_exact = range.is_exact() && terms.keeps_all();
        let is_given = self.view.is_some() || self.span.is_some();
        let helpful = if is_exact || is_given { Vec::new() } else { helpful_view(&terms.before) };
        Ok(FindPlan {
            collection: self.collection.to_owned(),
            conditions: self.conditions.clone(),
            path: range.path(),
            read_count: count_all(state, &range)?,
            document_count: count(state, entry.tree, Span::all())?,
            is_exact,
            sorting,
            limit: self.limit,
            helpful_view: if helpful == range.fields() { Vec::new() } else { helpful },
        })
    }

    /// The documents, as of one snapshot. The iterator reads as it advances, and memory stays constant. If it
    /// has to sort, it reads all documents before it returns the first.
    ///
    /// In a transaction it finds the writes before this call. Whether it finds later ones depends on the
    /// access path.
    ///
    /// # Errors
    /// As [`Find`].
    pub fn iter(&self) -> Result<FindIter<'s>> {
        self.iter_after(None)
    }

    /// The documents, as [`Find::iter`] gives them, with the snapshot that they are of.
    ///
    /// # Errors
    /// As [`Find`]; `InvalidArgument` (E0201) in a transaction, whose state ends with it.
    pub fn cursor(&self) -> Result<FindCursor> {
        FindCursor::of(self.of, |state| Ok(Running::Documents(Box::new(self.finding(state, None)?))))
    }

    /// The documents after a token, which only a query that sorts nothing has.
    fn iter_after(&self, after: Option<&PageToken>) -> Result<FindIter<'s>> {
        let held = self.of.hold()?;
        let finding = self.finding(held.state(), after)?;
        Ok(FindIter::new(held, finding))
    }

    fn finding(&self, state: &dyn Readable, after: Option<&PageToken>) -> Result<Finding> {
        let (entry, terms) = self.terms(state)?;
        let projection = match &self.fields {
            Some(fields) => Some(Projection::of(&terms.schema, fields)?),
            None => None,
        };
        let (mut scan, sort) = self.scan(state, entry, &terms)?;
        if let Some(after) = after {
            let order = scan.order();
            scan.go_on_after(after.key_in(&order)?);
        }
        let needs = needs(projection.as_ref(), &sort);
        let stage = match sort.is_empty() {
            true => Stage::Direct,
            false => {
                let place = state.open_state().spill.clone();
                Stage::Gather(sort, Sorter::new(place, self.memory_bytes, self.limit))
            }
        };
        Ok(Finding::new(Filter::new(scan, terms, needs), projection, stage, self.limit))
    }

    /// A page of `size` documents, at least one: the first page, or the one after a token. A limit applies to
    /// each page.
    ///
    /// The token is a position in the access path, which must have the order of the query: [`Find::order_by`]
    /// needs a view in that order. A page costs as much as [`Find::iter`] for as many documents, and begins
    /// where the page before ended. Which path is chosen may depend on how many documents there are. If that
    /// changes between two pages, the token is refused: name the view with [`Find::view`] to exclude it.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # use duramen::find::Condition;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # let flights = db.ensure(&Schema::new("flights").key(["id"]))?;
    /// # for id in 0..7 { flights.put(doc! { "id": id, "carrier": if id < 5 { "UA" } else { "AA" } })?; }
    /// let united = flights.find([Condition::parse(&flights.schema()?, "carrier=UA")?]);
    /// let first = united.page(3, None)?;
    /// let second = united.page(3, first.next.as_ref())?;
    /// assert_eq!((first.items.len(), second.items.len(), second.next), (3, 2, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Find`] and [`FindIter::next_within`]; `InvalidArgument` (E0201) for a query that has to sort, and
    /// for a token of another collection or access path.
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<Document>> {
        let size = size.max(1);
        // One more tells whether there is a next page.
        let paged = Find { in_pages: true, ..self.limit((size as u64).saturating_add(1)) };
        let mut found = paged.iter_after(after)?;
        if !found.is_direct() {
            return Err(Error::invalid("a query that has to sort has no pages").with_hint(
                "add a view whose key begins with the fields of the order, or use `limit` for the first documents",
            ));
        }
        let mut items = Vec::with_capacity(size.min(1024));
        let mut last = None;
        while let Some(document) = found.next().transpose()? {
            if items.len() == size {
                return Ok(Page { items, next: last });
            }
            items.push(document);
            if items.len() == size {
                last = Some(found.token());
            }
        }
        Ok(Page { items, next: None })
    }

    /// How many documents satisfy the conditions, up to [`Find::limit`].
    ///
    /// Costs O(log n), without reading a document, if the conditions restrict the access path and nothing
    /// else ([`FindPlan::is_exact`]). Otherwise the documents along the path are read, by as many threads as
    /// [`Find::threads`] allows; with a limit by one, which stops there.
    ///
    /// # Errors
    /// As [`Find`], and as [`FindIter::next_within`].
    pub fn count(&self) -> Result<u64> {
        let held = self.of.hold()?;
        let state = held.state();
        let (entry, terms) = self.terms(state)?;
        let range = self.index_range(state, &entry, &terms.before)?;
        if range.is_exact() && terms.keeps_all() {
            return Ok(count_all(state, &range)?.min(self.limit.unwrap_or(u64::MAX)));
        }
        let unordered = Find { order: Vec::new(), ..self.fields([] as [&str; 0]) };
        if self.limit.is_some() {
            return unordered.iter()?.try_fold(0, |count, found| found.map(|_| count + 1));
        }
        let counted = unordered.aggregate([Aggregate::count()])?;
        let Some(Value::Int(count)) = counted.get("count") else { unreachable!("it was asked for") };
        Ok((*count).try_into().expect("a count of documents"))
    }

    /// The schema of what is found, and the joins.
    fn joined(&self, state: &dyn Readable, entry: &Entry) -> Result<(Schema, Vec<Joined>)> {
        let mut schema = entry.schema.clone();
        let joins =
            self.joins.iter().map(|join| Joined::of(state, &mut schema, join)).collect::<Result<_>>()?;
        Ok((schema, joins))
    }

    /// The collection, and what its documents must satisfy.
    fn terms(&self, state: &dyn Readable) -> Result<(Arc<Entry>, Terms)> {
        let entry = state.entry(self.collection)?;
        let (schema, joins) = self.joined(state, &entry)?;
        self.conditions.iter().try_for_each(|condition| condition.check(&schema))?;
        let is_own = |condition: &Condition| {
            let mut is_own = true;
            condition.paths(&mut |path| is_own &= joins.iter().all(|join| join.name() != path.field()));
            is_own
        };
        let (before, after) = self.conditions.iter().cloned().partition(is_own);
        Ok((entry, Terms { schema, before, joins, after }))
    }

    /// The documents along the access path, and what is left to be sorted by.
    fn scan(&self, state: &dyn Readable, entry: Arc<Entry>, terms: &Terms) -> Result<(Scan, SortOrder)> {
        let Chosen { range, direction, sort, .. } = self.choose(state, &entry, terms)?;
        Ok((Scan::new(entry, range, direction), sort))
    }

    /// What is read, in which direction, and what has to be sorted.
    fn choose(&self, state: &dyn Readable, entry: &Entry, terms: &Terms) -> Result<Chosen> {
        let mut range = self.index_range(state, entry, &terms.before)?;
        let turned = |direction| match (self.direction, direction) {
            (Direction::Forward, direction) => direction,
            (Direction::Reverse, Direction::Forward) => Direction::Reverse,
            (Direction::Reverse, Direction::Reverse) => Direction::Forward,
        };
        let order: Vec<OrderBy> = self
            .order
            .iter()
            .map(|by| OrderBy { field: by.field.clone(), direction: turned(by.direction) })
            .collect();
        let sort = SortOrder::of(&terms.schema, &order)?;
        if sort.is_empty() {
            return Ok(Chosen { range, direction: self.direction, sort, sorting: Sorting::None });
        }
        let is_given = self.view.is_some() || self.span.is_some();
        let counted = &mut |tree, span| count(state, tree, span);
        let mut along = in_order(&range, &sort, counted)?;
        if let Some(limit) = self.limit
            && !is_given
            && along.is_none()
        {
            let read_count = count_all(state, &range)?;
            let indexes = [vec![key_of(entry)], views_of(state, entry)?].concat();
            let is_complete = |view: &Index| is_complete(state, entry, view);
            let is_short = terms.keeps_all() && (self.in_pages || limit < read_count);
            let instead =
                ordered_instead(&indexes, &terms.before, &sort, &range, is_short, is_complete, counted)?;
            if let Some(instead) = instead {
                along = in_order(&instead, &sort, counted)?;
                range = instead;
            }
        }
        Ok(match along {
            Some(direction) => {
                Chosen { range, direction, sort: SortOrder::default(), sorting: Sorting::AlongPath }
            }
            None => {
                let sorting = match self.limit {
                    Some(limit) => Sorting::First { limit, memory_bytes: self.memory_bytes },
                    None => Sorting::All { memory_bytes: self.memory_bytes },
                };
                Chosen { range, direction: Direction::Forward, sort, sorting }
            }
        })
    }

    /// The range of the key or of a view that is read.
    fn index_range(
        &self,
        state: &dyn Readable,
        entry: &Entry,
        conditions: &[Condition],
    ) -> Result<IndexRange> {
        if let Some(name) = &self.view {
            let view = answering_by_name(state, entry, name)?;
            let span = self.span.clone().unwrap_or_else(Span::all);
            let span = span.directed(|position| view.spec.is_descending(position));
            return along(&index_of(entry, view), conditions, &span);
        }
        if let Some(span) = &self.span {
            return along(&key_of(entry), conditions, span);
        }
        choose(&key_of(entry), &views_of(state, entry)?, conditions, |view| is_complete(state, entry, view))
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

/// The collection's key as an index.
fn key_of(entry: &Entry) -> Index {
    let fields: Vec<IndexField> = entry
        .schema
        .key_columns()
        .iter()
        .map(|name| IndexField {
            path: Path::of_field(name),
            is_typed: is_typed(entry, name),
            is_descending: false,
        })
        .collect();
    Index { view: None, tree: entry.tree, elements: fields.len(), is_descending: false, fields }
}

/// A view as an index.
fn index_of(entry: &Entry, view: &OpenView) -> Index {
    let spec = &view.spec;
    let mut fields: Vec<IndexField> = spec
        .key_fields()
        .iter()
        .map(|field| IndexField {
            path: field.as_path().clone(),
            is_typed: !field.is_path() && is_typed(entry, field.name()),
            is_descending: field.is_descending(),
        })
        .collect();
    if spec.is_each() {
        // Its rows have an item of the list, and a condition compares the whole list.
        fields.pop();
    }
    Index {
        view: Some(spec.name().to_owned()),
        tree: view.tree,
        elements: spec.key_elements(),
        is_descending: spec.is_descending(spec.key_elements()),
        fields,
    }
}

/// Whether a field is a column with a type.
fn is_typed(entry: &Entry, field: &str) -> bool {
    entry.schema.kind(field).is_some_and(|kind| !matches!(kind, ColumnType::Any | ColumnType::Unknown))
}

/// The complete views with at most one row for a document.
fn views_of(state: &dyn Readable, entry: &Entry) -> Result<Vec<Index>> {
    let mut names: Vec<&str> = entry.own_views().map(|view| view.spec.name()).collect();
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

/// Whether a view has a row for every document. One has at most one row: then the counts are equal.
fn is_complete(state: &dyn Readable, entry: &Entry, view: &Index) -> Result<bool> {
    Ok(count(state, view.tree, Span::all())? == count(state, entry.tree, Span::all())?)
}

/// How many rows the ranges of an index hold.
fn count_all(state: &dyn Readable, range: &IndexRange) -> Result<u64> {
    range.spans.iter().map(|span| count(state, range.index.tree, span.clone())).sum()
}

/// How many rows of a tree a span holds.
fn count(state: &dyn Readable, tree: TreeId, span: Span) -> Result<u64> {
    state.source().count(tree, &span.into_bytes())
}
