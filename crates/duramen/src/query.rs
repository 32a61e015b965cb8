//! Questions to a typed collection: which keys, which way, how many.
//!
//! Owns the reads of many documents. A query is a description until it is asked; asked of a [`Db`](crate::Db), it takes
//! one snapshot for its answer.

use std::fmt;
use std::marker::PhantomData;

use crate::catalogue::Entry;
use crate::codec;
use crate::collection::Collection;
use crate::db::Db;
use crate::engine::{Cursor, Direction, KeyRange, Source};
use crate::error::Result;
use crate::page::{Page, PageToken};
use crate::range::IntoSpan;
use crate::reads::sealed::Readable;
use crate::span::Span;
use crate::tuple::{KeyFor, OwnedKey, PrefixFor, decode, encode, successor};
use crate::typed::Asked;

/// Documents of a typed collection, of a [`Db`], a [`Snapshot`](crate::Snapshot) or a
/// [`Transaction`](crate::Transaction).
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
/// Every answer fails with `KeyTooLong` if a bound was too long, with `InvalidArgument` if the collection in the
/// database does not fit the type or a document does not read as it, and with what reading the disk said.
pub struct Query<'s, C> {
    of: Of<'s>,
    span: Result<Span>,
    direction: Direction,
    limit: u64,
    kind: PhantomData<fn() -> C>,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) enum Of<'s> {
    Db(&'s Db),
    State(&'s dyn Readable),
}

impl Of<'_> {
    /// Calls `ask` with a state: the one there is, or the newest.
    pub(crate) fn ask<T>(self, ask: impl FnOnce(&dyn Readable) -> Result<T>) -> Result<T> {
        match self {
            Of::Db(db) => ask(&db.snapshot()?),
            Of::State(state) => ask(state),
        }
    }
}

impl<'s, C: Collection> Query<'s, C> {
    pub(crate) fn new(of: Of<'s>) -> Self {
        Query { of, span: Ok(Span::all()), direction: Direction::Forward, limit: u64::MAX, kind: PhantomData }
    }

    /// Of these documents, those with keys in this range. Bounds may be beginnings of keys.
    #[must_use]
    pub fn range(&self, range: impl IntoSpan<C::Key>) -> Self {
        self.within(range.into_span())
    }

    /// Of these documents, those whose keys begin with these elements. They match as a whole: `"U"` is no beginning of
    /// `"UA"`.
    #[must_use]
    pub fn prefix(&self, key: impl PrefixFor<C::Key>) -> Self {
        self.within(Span::prefix(key))
    }

    fn within(&self, span: Result<Span>) -> Self {
        Query { span: span.and_then(|span| Ok(self.span.clone()?.and(span))), ..self.clone() }
    }

    /// From the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        Query { direction, ..self.clone() }
    }

    /// At most so many.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Query { limit: self.limit.min(at_most), ..self.clone() }
    }

    /// The documents, in order, of one state. It is read as the iterator goes on, and never held in memory as a whole.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn iter(&self) -> Result<TypedIter<C>> {
        Ok(TypedIter { found: self.found(self.span.clone()?.into_bytes())?, kind: PhantomData })
    }

    /// The keys, in order, without decoding documents.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn keys(&self) -> Result<KeyIter<C>> {
        Ok(KeyIter { found: self.found(self.span.clone()?.into_bytes())?, kind: PhantomData })
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
        let range = self.span.clone()?.into_bytes();
        let counted = self.in_tree(|source, entry| source.count(entry.tree, &range))?;
        Ok(counted.unwrap_or(0).min(self.limit))
    }

    /// The document that has `index` others of this query before it, in O(log n).
    ///
    /// # Errors
    /// As [`Query`].
    pub fn nth(&self, index: u64) -> Result<Option<C>> {
        if index >= self.limit {
            return Ok(None);
        }
        let range = self.span.clone()?.into_bytes();
        let found = self.in_tree(|source, entry| {
            let (before, inside) = (source.rank(entry.tree, &range.from)?, source.count(entry.tree, &range)?);
            if index >= inside {
                return Ok(None);
            }
            let index = match self.direction {
                Direction::Forward => before + index,
                Direction::Reverse => before + inside - 1 - index,
            };
            source.nth(entry.tree, index)
        })?;
        found.flatten().map(|(key, stored)| codec::from_bytes(&key, &stored)).transpose()
    }

    /// How many documents of this query come before a key, in O(log n), whether it is there or not.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn rank(&self, key: impl KeyFor<C::Key>) -> Result<u64> {
        let key = encode(&key)?;
        let KeyRange { from, to } = self.span.clone()?.into_bytes();
        let before = match self.direction {
            Direction::Forward => {
                let end = to.filter(|to| *to < key).unwrap_or(key);
                KeyRange { from, to: Some(end) }
            }
            Direction::Reverse => KeyRange { from: from.max(successor(&key)), to },
        };
        let counted = self.in_tree(|source, entry| source.count(entry.tree, &before))?;
        Ok(counted.unwrap_or(0).min(self.limit))
    }

    /// A page of so many documents, at least one: the first, or the one that goes on where another ended. A limit is for each
    /// page.
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
        let mut range = self.span.clone()?.into_bytes();
        if let Some(after) = after {
            match self.direction {
                Direction::Forward => range.from = range.from.max(successor(after.key())),
                Direction::Reverse => {
                    let end = range.to.filter(|to| to.as_slice() < after.key());
                    range.to = Some(end.unwrap_or_else(|| after.key().to_vec()));
                }
            }
        }
        let size = size.max(1);
        let mut found = self.found(range)?;
        let mut items = Vec::with_capacity(size.min(1024));
        let mut last = None;
        while items.len() < size {
            let Some((key, stored)) = found.next()? else { return Ok(Page { items, next: None }) };
            items.push(codec::from_bytes(key, stored)?);
            if items.len() == size {
                last = Some(PageToken::after(key));
            }
        }
        let more = found.next()?.is_some();
        Ok(Page { items, next: last.filter(|_| more) })
    }

    fn found(&self, range: KeyRange) -> Result<Found> {
        let direction = self.direction;
        let cursor = self.in_tree(|source, entry| source.cursor(entry.tree, range, direction))?;
        Ok(Found { cursor, left: self.limit })
    }

    /// Asks the collection's tree; `None` if it is not there yet.
    fn in_tree<T>(&self, ask: impl FnOnce(&dyn Source, &Entry) -> Result<T>) -> Result<Option<T>> {
        self.of.ask(|state| {
            let entry = state.fitting(Asked::of::<C>())?;
            entry.map(|entry| ask(state.source(), &entry)).transpose()
        })
    }
}

impl<C> Clone for Query<'_, C> {
    fn clone(&self) -> Self {
        Query { span: self.span.clone(), kind: PhantomData, ..*self }
    }
}

impl<C: Collection> fmt::Debug for Query<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("collection", &C::NAME)
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

/// Entries on their way to being documents or keys.
struct Found {
    cursor: Option<Cursor>,
    left: u64,
}

impl Found {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some(cursor) = self.cursor.as_mut().filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        cursor.next()
    }

    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        let Some(cursor) = self.cursor.as_mut().filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        cursor.next_key()
    }
}

/// Typed documents of one state, in order.
pub struct TypedIter<C> {
    found: Found,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for TypedIter<C> {
    type Item = Result<C>;

    fn next(&mut self) -> Option<Result<C>> {
        let found = self.found.next().transpose()?;
        Some(found.and_then(|(key, stored)| codec::from_bytes(key, stored)))
    }
}

/// Keys of a typed collection, in order.
pub struct KeyIter<C> {
    found: Found,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for KeyIter<C> {
    type Item = Result<C::Key>;

    fn next(&mut self) -> Option<Result<C::Key>> {
        let found = self.found.next_key().transpose()?;
        Some(found.and_then(|key| C::Key::from_elements(decode(key)?)))
    }
}
