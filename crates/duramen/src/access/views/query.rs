//! Queries of a view: which rows, in which direction, and their reductions.

use std::fmt;
use std::marker::PhantomData;

use crate::access::collection::Collection;
use crate::access::explain::{Explain, Part, show_range};
use crate::access::page::{Page, PageToken};
use crate::access::reads::sealed::Readable;
use crate::access::selection::{FarSelection, Of, Selected, Selection};
use crate::access::type_descriptor::{StoredType, TypeDescriptor};
use crate::access::views::View;
use crate::access::views::found::{
    Groups, ViewDocs, ViewEntry, ViewGroups, ViewIter, entry_of, order_of, read_document_of_row, reduced,
};
use crate::access::views::state;
use crate::catalog::entries::{Entry, OpenView};
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source};
use crate::value::range::IntoSpan;
use crate::value::span::Span;
use crate::value::tuple::{KeyFor, OwnedKey, PrefixFor, encode, prefix_end};
use crate::view::reduce::Reductions as _;
use crate::view::reducer::Reductions;

pub(crate) type Answer<V> = <<V as View>::Reduce as crate::view::reduce::Reductions>::Answer;

/// Rows of a view.
///
/// It queries a [`Db`](crate::Db), a [`Snapshot`](crate::Snapshot), a [`Transaction`](crate::Transaction), or
/// a database in another process.
///
/// A row is the view's key followed by the document's; rows are ordered by both.
///
/// # Errors
/// Every method that runs the query can return those of a [read](crate::Error#reads); `KeyTooLong` (E0202) if
/// a bound is too long; `Rebuilding` (E0802) while the view is incomplete or the documents are migrated;
/// `InvalidArgument` (E0201) if the stored collection does not fit its type.
pub struct ViewQuery<'s, V> {
    selection: Selection<'s>,
    kind: PhantomData<fn() -> V>,
}

impl<'s, V: View> ViewQuery<'s, V> {
    pub(crate) fn new(of: Of<'s>) -> Self {
        ViewQuery::of(Selection::of(of))
    }

    fn of(selection: Selection<'s>) -> Self {
        ViewQuery { selection, kind: PhantomData }
    }

    /// Restricts to rows with this key.
    #[must_use]
    pub fn key(&self, key: impl KeyFor<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(Span::prefix(key)))
    }

    /// Restricts to rows whose keys begin with these elements.
    #[must_use]
    pub fn prefix(&self, key: impl PrefixFor<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(Span::prefix(key)))
    }

    /// Restricts to rows with keys in this range. Bounds may be prefixes of keys.
    #[must_use]
    pub fn range(&self, range: impl IntoSpan<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(range.into_span()))
    }

    /// Reverses the order: from the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        ViewQuery::of(self.selection.reversed())
    }

    /// Limits the number of rows, or groups. A reduction still covers all rows.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        ViewQuery::of(self.selection.limited(at_most))
    }

    /// The reductions of the rows, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`]; `ReducerMissing` (E0205) if the view is reduced by code that is not registered,
    /// `ReducerPanicked` (E0208) if that code panics.
    pub fn reduce(&self) -> Result<Answer<V>> {
        if let Some(far) = self.far()? {
            let (count, reduction) = far.far.reduce(&far.rows)?;
            return decoded::<V>(count, &reduction);
        }
        let range = self.selection.lent_range()?;
        self.in_view(|source, _, view| reduced::<V>(source, view, &range))?.map_or_else(nothing::<V>, Ok)
    }

    /// How many rows there are, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn count(&self) -> Result<u64> {
        if let Some(far) = self.far()? {
            return far.count();
        }
        Ok(self.in_view(|source, _, view| self.selection.count(source, view.tree))?.unwrap_or(0))
    }

    /// How many of these rows are before those with this key, in O(log n). The key need not exist.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn rank(&self, key: impl KeyFor<V::Key>) -> Result<u64> {
        let key = encode(&key)?;
        let end = prefix_end(&key);
        if let Some(far) = self.far()? {
            return far.rank(key, end);
        }
        Ok(self.in_view(|source, _, view| self.selection.rank(source, view.tree, key, end))?.unwrap_or(0))
    }

    /// The row that has `index` others of this query before it, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn nth(&self, index: u64) -> Result<Option<ViewEntry<V>>> {
        if let Some(far) = self.far()? {
            return far.nth(index)?.map(|(row, _)| entry_of::<V>(&row)).transpose();
        }
        let found = self.in_view(|source, _, view| self.selection.nth(source, view.tree, index))?;
        found.flatten().map(|(row, _)| entry_of::<V>(&row)).transpose()
    }

    /// The rows, in order, as of one snapshot.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn iter(&self) -> Result<ViewIter<V>> {
        Ok(ViewIter { found: self.rows(self.selection.range()?, u64::MAX)?, kind: PhantomData })
    }

    /// The documents of the rows, in row order. The iterator reads as it advances; each document costs one
    /// more get.
    ///
    /// # Errors
    /// As [`ViewQuery`]; `Unreadable` (E0213) for a document that does not read as its type.
    pub fn iter_docs(&self) -> Result<ViewDocs<'s, V>> {
        self.docs_of(self.selection.range()?, u64::MAX)
    }

    fn docs_of(&self, range: KeyRange, far_limit: u64) -> Result<ViewDocs<'s, V>> {
        if let Some(far) = self.far()? {
            return Ok(ViewDocs::far(far.walk(range, far_limit, true)?));
        }
        let held = self.selection.hold()?;
        let found = in_ready_view::<V, _>(held.state(), |source, entry, view| {
            Ok((self.selection.rows(source, view.tree, range)?, entry.tree))
        })?;
        Ok(ViewDocs::new(held, found))
    }

    /// The documents of the rows, all at once.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_docs`].
    pub fn docs(&self) -> Result<Vec<V::Collection>> {
        self.iter_docs()?.collect()
    }

    /// The first document.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_docs`].
    pub fn first_doc(&self) -> Result<Option<V::Collection>> {
        let is_far = self.far()?.is_some();
        if is_far || self.selection.direction == Direction::Reverse || self.selection.limit == 0 {
            return self.limit(1).iter_docs()?.next().transpose();
        }
        let range = self.selection.lent_range()?;
        let found = self.selection.ask(|state| {
            in_ready_view::<V, _>(state, |source, entry, view| {
                let Some(row) = source.first_key(view.tree, &range)? else { return Ok(None) };
                read_document_of_row::<V>(state, entry.tree, &row)
            })
        })?;
        Ok(found.flatten())
    }

    /// A page of `size` rows, at least one: the first page, or the one after a token. A limit applies to each
    /// page.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<ViewEntry<V>>> {
        let order = order_of::<V>();
        let range = self.selection.page_range(after, &order)?;
        self.rows(range, one_more(size))?.page(size, &order, |row, _| entry_of::<V>(row))
    }

    /// As [`ViewQuery::page`], with the documents of the rows.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_docs`].
    pub fn page_docs(&self, size: usize, after: Option<&PageToken>) -> Result<Page<V::Collection>> {
        self.docs_of(self.selection.page_range(after, &order_of::<V>())?, one_more(size))?.page(size)
    }

    /// The reductions of each group, computed as the iterator advances.
    ///
    /// A group is the rows whose keys begin with the same elements, as many as `G` has. Each group costs
    /// O(log n), however many rows it has.
    ///
    /// # Errors
    /// As [`ViewQuery::reduce`]; `InvalidArgument` (E0201) if `G` has more elements than the view's key.
    pub fn iter_groups<G: OwnedKey + PrefixFor<V::Key>>(&self) -> Result<ViewGroups<'s, V, G>> {
        if let Some(far) = self.far()? {
            return Ok(ViewGroups::far(far.groups(G::ELEMENTS)?));
        }
        let (held, walk) = (self.selection.hold()?, self.selection.groups()?);
        let view = in_ready_view::<V, _>(held.state(), |_, _, view| Ok(view.clone()))?;
        Ok(ViewGroups::new(held, view, walk))
    }

    /// All groups at once.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_groups`].
    pub fn group_by<G: OwnedKey + PrefixFor<V::Key>>(&self) -> Result<Groups<G, Answer<V>>> {
        self.iter_groups::<G>()?.collect()
    }

    /// Which tree the query reads, and for how many rows. Costs O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn explain(&self) -> Result<Explain> {
        let range = self.selection.range()?;
        let what = format!("view {}, {}", V::NAME, show_range(&range));
        let rows = match self.far()? {
            Some(far) => far.far.count(&far.rows)?,
            None => self.in_view(|source, _, view| source.count(view.tree, &range))?.unwrap_or(0),
        };
        let mut explain =
            Explain::of(V::Collection::NAME, "rows of a view, in the order of its key and the document's");
        explain.parts.push(Part { what, rows, depth: 0 });
        explain.rows_max = rows.min(self.selection.limit);
        explain.cost = "reduce, count, nth, rank in O(log n), as each group; a walk for rows, a get besides for each document";
        Ok(explain)
    }

    /// The same query in another process, if the database is there.
    fn far(&self) -> Result<Option<FarSelection<'s>>> {
        if !self.selection.is_far() {
            return Ok(None);
        }
        self.selection.far(StoredType::of::<V::Collection>(), Some(&V::spec()))
    }

    /// The rows of a range. Of a database in another process at most `far_limit` are asked for.
    fn rows(&self, range: KeyRange, far_limit: u64) -> Result<Selected> {
        if let Some(far) = self.far()? {
            return far.walk(range, far_limit, false);
        }
        let found = self.in_view(|source, _, view| self.selection.rows(source, view.tree, range))?;
        Ok(found.unwrap_or_default())
    }

    /// Runs `ask` on the view's tree; `None` if the collection does not exist yet.
    fn in_view<T>(&self, ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>) -> Result<Option<T>> {
        self.selection.ask(|state| in_ready_view::<V, T>(state, ask))
    }
}

/// A page, and a row that tells whether there is a next one.
fn one_more(size: usize) -> u64 {
    (size.max(1) as u64).saturating_add(1)
}

/// Runs a closure on a view's tree in a state; `None` if the collection does not exist yet.
fn in_ready_view<V: View, T>(
    state: &dyn Readable,
    ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>,
) -> Result<Option<T>> {
    let Some(entry) = state.fitting_now(TypeDescriptor::of::<V::Collection>())? else { return Ok(None) };
    ask(state.source(), &entry, ready::<V>(state, &entry)?).map(Some)
}

/// The view of an entry that answers for a type.
///
/// # Errors
/// `Rebuilding`.
pub(crate) fn ready<'e, V: View>(state: &dyn Readable, entry: &'e Entry) -> Result<&'e OpenView> {
    if entry.schema.is_migrating() || entry.schema.version() != V::Collection::VERSION {
        return Err(state::migrating(V::Collection::NAME, V::NAME));
    }
    state::answering::<V>(state, entry)
}

/// The reductions of no rows.
fn nothing<V: View>() -> Result<Answer<V>> {
    decoded::<V>(0, &[])
}

/// The reductions of rows, from what the nodes of the view's tree keep of them.
pub(crate) fn decoded<V: View>(count: u64, reduction: &[u8]) -> Result<Answer<V>> {
    let reductions = Reductions::of(&V::spec());
    let parts = reductions.as_ref().map(|reductions| reductions.decode(reduction)).transpose()?;
    V::Reduce::answer(count, &parts.unwrap_or_default())
}

impl<V> Clone for ViewQuery<'_, V> {
    fn clone(&self) -> Self {
        ViewQuery { selection: self.selection.clone(), kind: PhantomData }
    }
}

impl<V: View> fmt::Debug for ViewQuery<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewQuery")
            .field("view", &V::NAME)
            .field("range", &self.selection.range())
            .finish_non_exhaustive()
    }
}
