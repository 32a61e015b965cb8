//! Questions to a view: which rows, which way, and what they come to.

use std::fmt;
use std::marker::PhantomData;

use crate::access::collection::Collection;
use crate::access::explain::{Explain, Part, show_range};
use crate::access::page::{Page, PageToken};
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Of, Selection};
use crate::access::typed::Asked;
use crate::access::views::View;
use crate::access::views::found::{Groups, ViewDocs, ViewEntry, ViewGroups, ViewIter, entry_of, reduced};
use crate::access::views::state;
use crate::catalog::entries::{Entry, OpenView};
use crate::store::error::Result;
use crate::store::{KeyRange, Source};
use crate::value::range::IntoSpan;
use crate::value::span::Span;
use crate::value::tuple::{KeyFor, OwnedKey, PrefixFor, encode, prefix_end};
use crate::view::reduce::Reductions as _;
use crate::view::reducer::Reductions;

pub(crate) type Answer<V> = <<V as View>::Reduce as crate::view::reduce::Reductions>::Answer;

/// Rows of a view, of a [`Db`](crate::Db), a [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction).
///
/// A row is the view's key and the document's; rows are ordered by both.
///
/// # Errors
/// Every answer fails with `KeyTooLong` if a bound was too long, `Rebuilding` while the view does not hold every document,
/// `InvalidArgument` if the collection in the database does not fit its type, and with what reading the disk said.
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

    /// Of these rows, those with this key.
    #[must_use]
    pub fn key(&self, key: impl KeyFor<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(Span::prefix(key)))
    }

    /// Of these rows, those whose keys begin with these elements.
    #[must_use]
    pub fn prefix(&self, key: impl PrefixFor<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(Span::prefix(key)))
    }

    /// Of these rows, those with keys in this range. Bounds may be beginnings of keys.
    #[must_use]
    pub fn range(&self, range: impl IntoSpan<V::Key>) -> Self {
        ViewQuery::of(self.selection.within(range.into_span()))
    }

    /// From the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        ViewQuery::of(self.selection.reversed())
    }

    /// At most so many rows, or groups; what they come to is over all.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        ViewQuery::of(self.selection.limited(at_most))
    }

    /// What the rows come to, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn reduce(&self) -> Result<Answer<V>> {
        let range = self.selection.range()?;
        self.in_view(|source, _, view| reduced::<V>(source, view, &range))?.map_or_else(nothing::<V>, Ok)
    }

    /// How many rows there are, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn count(&self) -> Result<u64> {
        Ok(self.in_view(|source, _, view| self.selection.count(source, view.tree))?.unwrap_or(0))
    }

    /// How many of these rows come before those with this key, in O(log n), whether there are any or not.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn rank(&self, key: impl KeyFor<V::Key>) -> Result<u64> {
        let key = encode(&key)?;
        let end = prefix_end(&key);
        Ok(self.in_view(|source, _, view| self.selection.rank(source, view.tree, key, end))?.unwrap_or(0))
    }

    /// The row that has `index` others of this query before it, in O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn nth(&self, index: u64) -> Result<Option<ViewEntry<V>>> {
        let found = self.in_view(|source, _, view| self.selection.nth(source, view.tree, index))?;
        found.flatten().map(|(row, _)| entry_of::<V>(&row)).transpose()
    }

    /// The rows, in order, of one state.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn iter(&self) -> Result<ViewIter<V>> {
        let range = self.selection.range()?;
        let found = self.in_view(|source, _, view| self.selection.rows(source, view.tree, range))?;
        Ok(ViewIter { found: found.unwrap_or_default(), kind: PhantomData })
    }

    /// The documents of the rows, in the order of the rows, read as the iterator goes on. Each costs a get besides.
    ///
    /// # Errors
    /// As [`ViewQuery`]; `Unreadable` for a document that does not read as its type.
    pub fn iter_docs(&self) -> Result<ViewDocs<'s, V>> {
        self.docs_of(self.selection.range()?)
    }

    fn docs_of(&self, range: KeyRange) -> Result<ViewDocs<'s, V>> {
        let held = self.selection.hold()?;
        let found = asked::<V, _>(held.state(), |source, entry, view| {
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
        self.limit(1).iter_docs()?.next().transpose()
    }

    /// A page of so many rows, at least one: the first, or the one that goes on where another ended. A limit is for each page.
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<ViewEntry<V>>> {
        let range = self.selection.page_range(after)?;
        let found = self.in_view(|source, _, view| self.selection.rows(source, view.tree, range))?;
        found.unwrap_or_default().page(size, |row, _| entry_of::<V>(row))
    }

    /// As [`ViewQuery::page`], with the documents of the rows.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_docs`].
    pub fn page_docs(&self, size: usize, after: Option<&PageToken>) -> Result<Page<V::Collection>> {
        self.docs_of(self.selection.page_range(after)?)?.page(size)
    }

    /// What the rows of each group come to, group by group as the iterator goes on: rows whose keys begin with the same elements, as
    /// many as `G` has. Each group costs O(log n), however many rows it has.
    ///
    /// # Errors
    /// As [`ViewQuery`]; `InvalidArgument` if `G` has more elements than the view's key.
    pub fn iter_groups<G: OwnedKey + PrefixFor<V::Key>>(&self) -> Result<ViewGroups<'s, V, G>> {
        let (held, walk) = (self.selection.hold()?, self.selection.groups()?);
        let view = asked::<V, _>(held.state(), |_, _, view| Ok(view.clone()))?;
        Ok(ViewGroups::new(held, view, walk))
    }

    /// All groups at once.
    ///
    /// # Errors
    /// As [`ViewQuery::iter_groups`].
    pub fn group_by<G: OwnedKey + PrefixFor<V::Key>>(&self) -> Result<Groups<G, Answer<V>>> {
        self.iter_groups::<G>()?.collect()
    }

    /// Which tree is asked, and for how many rows; costs O(log n).
    ///
    /// # Errors
    /// As [`ViewQuery`].
    pub fn explain(&self) -> Result<Explain> {
        let range = self.selection.range()?;
        let what = format!("view {}, {}", V::NAME, show_range(&range));
        let rows = self.in_view(|source, _, view| source.count(view.tree, &range))?.unwrap_or(0);
        let mut explain =
            Explain::of(V::Collection::NAME, "rows of a view, in the order of its key and the document's");
        explain.parts.push(Part { what, rows, depth: 0 });
        explain.rows_max = rows.min(self.selection.limit);
        explain.cost = "reduce, count, nth, rank in O(log n), as each group; a walk for rows, a get besides for each document";
        Ok(explain)
    }

    /// Asks the view's tree; `None` if the collection is not there yet.
    fn in_view<T>(&self, ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>) -> Result<Option<T>> {
        self.selection.ask(|state| asked::<V, T>(state, ask))
    }
}

/// Asks a view's tree in a state; `None` if the collection is not there yet.
fn asked<V: View, T>(
    state: &dyn Readable,
    ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>,
) -> Result<Option<T>> {
    let Some(entry) = state.fitting_now(Asked::of::<V::Collection>())? else { return Ok(None) };
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

/// What no rows come to.
fn nothing<V: View>() -> Result<Answer<V>> {
    let parts = Reductions::of(&V::spec()).map(|reductions| reductions.decode(&[])).transpose()?;
    V::Reduce::answer(0, &parts.unwrap_or_default())
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
