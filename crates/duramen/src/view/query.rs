//! Questions to a view: which rows, which way, and what they come to.

use std::fmt;
use std::marker::PhantomData;

use super::View;
use super::reduce::Reductions as _;
use super::reducer::{Reductions, without_code};
use super::state;
use crate::catalogue::{Entry, OpenView};
use crate::codec;
use crate::collection::Collection;
use crate::engine::{KeyRange, Source};
use crate::error::{Code, Error, Result};
use crate::range::IntoSpan;
use crate::reads::sealed::Readable;
use crate::selection::{Of, Selected, Selection};
use crate::span::Span;
use crate::tuple::{KeyFor, OwnedKey, PrefixFor, decode, encode, prefix_end, split};
use crate::typed::Asked;

type Answer<V> = <<V as View>::Reduce as super::reduce::Reductions>::Answer;
type DocumentKey<V> = <<V as View>::Collection as Collection>::Key;

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

    /// The documents of the rows, in the order of the rows. Each costs a get besides.
    ///
    /// # Errors
    /// As [`ViewQuery`]; `Unreadable` for a document that does not read as its type.
    pub fn docs(&self) -> Result<Vec<V::Collection>> {
        let range = self.selection.range()?;
        let found = self.in_view(|source, entry, view| {
            let mut rows = self.selection.rows(source, view.tree, range)?;
            let mut documents = Vec::new();
            while let Some(row) = rows.next_key()? {
                let key = &row[split(row, V::Key::ELEMENTS)?..];
                let stored = source.get(entry.tree, key)?.ok_or_else(|| lost(view, key))?;
                documents.push(codec::from_bytes(key, &stored)?);
            }
            Ok(documents)
        })?;
        Ok(found.unwrap_or_default())
    }

    /// The first document.
    ///
    /// # Errors
    /// As [`ViewQuery::docs`].
    pub fn first_doc(&self) -> Result<Option<V::Collection>> {
        Ok(self.limit(1).docs()?.pop())
    }

    /// What the rows of each group come to: rows whose keys begin with the same elements, as many as `G` has. Each group costs
    /// O(log n), however many rows it has.
    ///
    /// # Errors
    /// As [`ViewQuery`]; `InvalidArgument` if `G` has more elements than the view's key.
    pub fn group_by<G: OwnedKey + PrefixFor<V::Key>>(&self) -> Result<Groups<G, Answer<V>>> {
        let groups = self.in_view(|source, _, view| {
            self.selection.groups(source, view.tree, G::ELEMENTS, |group, rows| {
                Ok((G::from_elements(decode(group)?)?, reduced::<V>(source, view, rows)?))
            })
        })?;
        Ok(groups.unwrap_or_default())
    }

    /// Asks the view's tree; `None` if the collection is not there yet.
    fn in_view<T>(&self, ask: impl FnOnce(&dyn Source, &Entry, &OpenView) -> Result<T>) -> Result<Option<T>> {
        self.selection.ask(|state| {
            let Some(entry) = state.fitting_now(Asked::of::<V::Collection>())? else { return Ok(None) };
            ask(state.source(), &entry, ready::<V>(state, &entry)?).map(Some)
        })
    }
}

/// The view of an entry that answers for a type.
///
/// # Errors
/// `Rebuilding`.
pub(crate) fn ready<'e, V: View>(state: &dyn Readable, entry: &'e Entry) -> Result<&'e OpenView> {
    if entry.schema.is_migrating() || entry.schema.version() != V::Collection::VERSION {
        return Err(migrating::<V>());
    }
    state::answering::<V>(state, entry)
}

fn reduced<V: View>(source: &dyn Source, view: &OpenView, range: &KeyRange) -> Result<Answer<V>> {
    let Some(reductions) = &view.reductions else {
        return V::Reduce::answer(source.count(view.tree, range)?, &[]);
    };
    let reduced = source.reduce(view.tree, range).map_err(|error| without_code(&view.spec, error))?;
    let value = reduced.value.unwrap_or_default();
    V::Reduce::answer(reduced.count, &reductions.decode(&value)?)
}

/// What no rows come to.
fn nothing<V: View>() -> Result<Answer<V>> {
    let parts = Reductions::of(&V::spec()).map(|reductions| reductions.decode(&[])).transpose()?;
    V::Reduce::answer(0, &parts.unwrap_or_default())
}

fn entry_of<V: View>(row: &[u8]) -> Result<ViewEntry<V>> {
    let (key, document) = row.split_at(split(row, V::Key::ELEMENTS)?);
    Ok(ViewEntry {
        key: V::Key::from_elements(decode(key)?)?,
        document: DocumentKey::<V>::from_elements(decode(document)?)?,
    })
}

#[cold]
fn migrating<V: View>() -> Error {
    let name = V::Collection::NAME;
    Error::new(
        Code::Rebuilding,
        format!("the view {} does not hold every document: those of {name} are to be migrated", V::NAME),
    )
    .with_hint("Db::migrate converts them, and says how far it is")
}

#[cold]
pub(super) fn lost(view: &OpenView, key: &[u8]) -> Error {
    Error::new(
        Code::DamagedData,
        format!(
            "the view {} has a row of the document {}, which is not there",
            view.spec.name(),
            crate::tuple::show(key)
        ),
    )
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

/// A row of a view.
pub struct ViewEntry<V: View> {
    /// The view's key.
    pub key: V::Key,
    /// The key of the document.
    pub document: DocumentKey<V>,
}

/// Groups and what they come to, in order.
pub type Groups<G, A> = Vec<(G, A)>;

/// Rows of a view of one state, in order.
pub struct ViewIter<V> {
    found: Selected,
    kind: PhantomData<fn() -> V>,
}

impl<V: View> Iterator for ViewIter<V> {
    type Item = Result<ViewEntry<V>>;

    fn next(&mut self) -> Option<Result<ViewEntry<V>>> {
        let row = self.found.next_key().transpose()?;
        Some(row.and_then(entry_of::<V>))
    }
}
