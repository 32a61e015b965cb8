//! Queries of a typed collection: which keys, in which direction, how many.
//!
//! Owns reads of many documents. A query is only a description until it is run. Run on a [`Db`](crate::Db),
//! it takes one snapshot for its answer.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::explain::{Explain, Part, show_range};
use crate::access::page::{Page, PageToken};
use crate::access::selection::{FarSelection, Of, Selected, Selection};
use crate::access::type_descriptor::{StoredType, TypeDescriptor};
use crate::catalog::entries::Entry;
use crate::catalog::shapes::Shapes;
use crate::store::error::Result;
use crate::store::{KeyRange, Source};
use crate::value::range::IntoSpan;
use crate::value::span::Span;
use crate::value::tuple::{KeyFor, OwnedKey, PrefixFor, decode, encode, successor};

/// Documents of a typed collection, of a [`Db`](crate::Db), a [`Snapshot`](crate::Snapshot), a
/// [`Transaction`](crate::Transaction), or of a database in another process.
///
/// ```
/// # use duramen::prelude::*;
/// # #[derive(Serialize, Deserialize, Collection)]
/// # struct Order { #[key] city: String, #[key] id: u64, cents: i64 }
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// for id in 1..=5 {
///     db.put(&Order { city: "Oslo".into(), id, cents: 100 })?;
/// }
/// let orders = db.collection::<Order>();
/// assert_eq!(orders.count()?, 5);
/// assert_eq!(orders.prefix("Oslo").reverse().first()?.map(|order| order.id), Some(5));
/// for order in orders.range(("Oslo", 2)..("Oslo", 4)).iter()? {
///     println!("{}", order?.id);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// Every method that runs the query can return those of a [read](crate::Error#reads); `KeyTooLong` (E0202) if
/// a bound is too long; `InvalidArgument` (E0201) if the stored collection does not fit the type;
/// `Unreadable` (E0213) if a document does not decode as it.
pub struct Query<'s, C> {
    selection: Selection<'s>,
    kind: PhantomData<fn() -> C>,
}

impl<'s, C: Collection> Query<'s, C> {
    pub(crate) fn new(of: Of<'s>) -> Self {
        Query::of(Selection::of(of))
    }

    fn of(selection: Selection<'s>) -> Self {
        Query { selection, kind: PhantomData }
    }

    /// Restricts the query to keys in this range. Bounds may be prefixes of keys.
    #[must_use]
    pub fn range(&self, range: impl IntoSpan<C::Key>) -> Self {
        Query::of(self.selection.within(range.into_span()))
    }

    /// Restricts the query to keys that begin with these elements. Elements match as a whole: `"U"` does not
    /// match `"UA"`.
    #[must_use]
    pub fn prefix(&self, key: impl PrefixFor<C::Key>) -> Self {
        Query::of(self.selection.within(Span::prefix(key)))
    }

    /// Reverses the order: from the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        Query::of(self.selection.reversed())
    }

    /// Limits the number of documents.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Query::of(self.selection.limited(at_most))
    }

    /// The documents, in order, as of one snapshot. The iterator reads as it advances; memory stays constant.
    /// It takes two `?`: `for order in orders.iter()? { let order = order?; .. }`.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn iter(&self) -> Result<TypedIter<C>> {
        let (found, shapes) = self.begin(self.selection.range()?, u64::MAX)?;
        Ok(TypedIter { found, shapes, kind: PhantomData })
    }

    /// The keys, in order, without decoding documents.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn keys(&self) -> Result<KeyIter<C>> {
        let range = self.selection.range()?;
        let found = match self.far()? {
            Some(far) => far.walk(range, u64::MAX, false)?,
            None => self.found(range)?,
        };
        Ok(KeyIter { found, kind: PhantomData })
    }

    /// All documents at once.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn to_vec(&self) -> Result<Vec<C>> {
        self.iter()?.collect()
    }

    /// The first document.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn first(&self) -> Result<Option<C>> {
        self.limit(1).iter()?.next().transpose()
    }

    /// How many documents there are, in O(log n).
    ///
    /// # Errors
    /// As [`Query`].
    pub fn count(&self) -> Result<u64> {
        if let Some(far) = self.far()? {
            return far.count();
        }
        Ok(self.in_tree(|source, entry| self.selection.count(source, entry.tree))?.unwrap_or(0))
    }

    /// The document that has `index` others of this query before it, in O(log n).
    ///
    /// # Errors
    /// As [`Query`].
    pub fn nth(&self, index: u64) -> Result<Option<C>> {
        if let Some(far) = self.far()? {
            let found = far.nth(index)?;
            return found.map(|(key, named)| codec::from_named(&key, &named)).transpose();
        }
        let found = self.in_tree(|source, entry| self.selection.nth(source, entry.tree, index))?;
        let shapes = self.shapes()?;
        found.flatten().map(|(key, stored)| codec::from_bytes(&shapes, &key, &stored)).transpose()
    }

    /// How many documents of this query are before a key, in O(log n). The key need not exist.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn rank(&self, key: impl KeyFor<C::Key>) -> Result<u64> {
        let key = encode(&key)?;
        let end = successor(&key);
        if let Some(far) = self.far()? {
            return far.rank(key, end);
        }
        Ok(self.in_tree(|source, entry| self.selection.rank(source, entry.tree, key, end))?.unwrap_or(0))
    }

    /// A page of `size` documents, at least one: the first page, or the one after a token. A limit applies to
    /// each page.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Serialize, Deserialize, Collection)]
    /// # struct Order { #[key] id: u64 }
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # for id in 0..5 { db.put(&Order { id })?; }
    /// let first = db.collection::<Order>().page(3, None)?;
    /// let second = db.collection::<Order>().page(3, first.next.as_ref())?;
    /// assert_eq!((first.items.len(), second.items.len(), second.next), (3, 2, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Query`].
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<C>> {
        let range = self.selection.page_range(after, C::NAME)?;
        // One more tells whether there is a next page.
        let (mut found, shapes) = self.begin(range, (size.max(1) as u64).saturating_add(1))?;
        found.page(size, C::NAME, |key, stored| read(shapes.as_deref(), key, stored))
    }

    /// Which tree the query reads, and for how many documents. Costs O(log n).
    ///
    /// # Errors
    /// As [`Query`].
    pub fn explain(&self) -> Result<Explain> {
        let range = self.selection.range()?;
        let what = format!("documents, {}", show_range(&range));
        let rows = match self.far()? {
            Some(far) => far.far.count(&far.rows)?,
            None => self.in_tree(|source, entry| source.count(entry.tree, &range))?.unwrap_or(0),
        };
        let mut explain = Explain::of(C::NAME, "documents, in the order of their keys");
        explain.parts.push(Part { what, rows, depth: 0 });
        explain.rows_max = rows.min(self.selection.limit);
        explain.cost = "count, nth, rank, first in O(log n); a walk for the documents";
        Ok(explain)
    }

    /// The same query in another process, if the database is there.
    fn far(&self) -> Result<Option<FarSelection<'s>>> {
        self.selection.far(StoredType::of::<C>(), None)
    }

    /// Begins to read the documents of a range. Of a database in another process at most `far_limit` are
    /// asked for.
    fn begin(&self, range: KeyRange, far_limit: u64) -> Result<(Selected, Option<Arc<Shapes>>)> {
        match self.far()? {
            Some(far) => Ok((far.walk(range, far_limit, true)?, None)),
            None => Ok((self.found(range)?, Some(self.shapes()?))),
        }
    }

    fn found(&self, range: KeyRange) -> Result<Selected> {
        let found = self.in_tree(|source, entry| self.selection.rows(source, entry.tree, range))?;
        Ok(found.unwrap_or_default())
    }

    /// By which its documents are decoded.
    fn shapes(&self) -> Result<Arc<Shapes>> {
        self.selection.ask(|state| Ok(Arc::clone(&state.open_state().catalog.shapes)))
    }

    /// Runs `ask` on the collection's tree; `None` if the collection does not exist yet.
    fn in_tree<T>(&self, ask: impl FnOnce(&dyn Source, &Entry) -> Result<T>) -> Result<Option<T>> {
        self.selection.ask(|state| {
            let entry = state.fitting(TypeDescriptor::of::<C>())?;
            entry.map(|entry| ask(state.source(), &entry)).transpose()
        })
    }
}

impl<C> Clone for Query<'_, C> {
    fn clone(&self) -> Self {
        Query { selection: self.selection.clone(), kind: PhantomData }
    }
}

impl<C: Collection> fmt::Debug for Query<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("collection", &C::NAME)
            .field("range", &self.selection.range())
            .finish_non_exhaustive()
    }
}

/// Typed documents as of one snapshot, in order.
pub struct TypedIter<C> {
    found: Selected,
    /// By which documents are decoded; those of another process have their names.
    shapes: Option<Arc<Shapes>>,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for TypedIter<C> {
    type Item = Result<C>;

    fn next(&mut self) -> Option<Result<C>> {
        let found = self.found.next().transpose()?;
        Some(found.and_then(|(key, stored)| read(self.shapes.as_deref(), key, stored)))
    }
}

fn read<C: Collection>(shapes: Option<&Shapes>, key: &[u8], stored: &[u8]) -> Result<C> {
    match shapes {
        Some(shapes) => codec::from_bytes(shapes, key, stored),
        None => codec::from_named(key, stored),
    }
}

/// Keys of a typed collection, in order.
pub struct KeyIter<C> {
    found: Selected,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for KeyIter<C> {
    type Item = Result<C::Key>;

    fn next(&mut self) -> Option<Result<C::Key>> {
        let found = self.found.next_key().transpose()?;
        Some(found.and_then(|key| C::Key::from_elements(decode(key)?)))
    }
}
