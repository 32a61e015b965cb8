//! Queries over several views of a collection: documents in all of them, in any, or in none.
//!
//! Owns the query; select/merge.rs finds the documents. A row of a view is the view's key followed by the
//! document's. So rows with one whole view key are in document order, and several views can be merged while
//! they are read. Memory holds one key per view. Rows of a range of view keys are in another order and would
//! have to be sorted. So the type of the query allows only one whole key per view.

mod merge;

use std::fmt;
use std::marker::PhantomData;

use crate::access::collection::Collection;
use crate::access::explain::{Explain, Part, Ran};
use crate::access::handle::Db;
use crate::access::page::{Page, PageToken};
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Held, Of};
use crate::access::type_descriptor::TypeDescriptor;
use crate::access::views::View;
use crate::access::views::found;
use crate::access::views::query;
use crate::catalog::entries::{Entry, OpenView};
use crate::store::error::Result;
use crate::store::{Direction, TreeId};
use crate::value::tuple::{KeyFor, OwnedKey, decode, encode};
use merge::{Bound, Merge, Work};

/// Documents of a collection by keys of several of its views.
///
/// It queries a [`Db`], a [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction).
///
/// ```
/// # use duramen::prelude::*;
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(ByCarrier, key = carrier), view(ByOrigin, key = origin))]
/// struct Flight { #[key] id: u64, carrier: String, origin: String }
///
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// for (id, carrier, origin) in [(1, "UA", "EWR"), (2, "AA", "EWR"), (3, "UA", "JFK")] {
///     db.put(&Flight { id, carrier: carrier.into(), origin: origin.into() })?;
/// }
/// let found = db.select::<Flight>().by::<ByCarrier>("UA").and::<ByOrigin>("EWR").to_vec()?;
/// assert_eq!(found.iter().map(|flight| flight.id).collect::<Vec<_>>(), [1]);
/// # Ok(()) }
/// ```
///
/// It is evaluated from left to right: `by(a).or(b).and(c)` is `(a or b) and c`. Before the first term it
/// selects every document. Documents are returned in key order.
///
/// # Costs
/// The view with the fewest rows leads; the others seek to its position. About as many rows are read as the
/// smallest view has, each in O(log n) at worst. Memory does not grow with the number of results. Ranges of
/// view keys are not supported: their rows are not in document order.
///
/// # Errors
/// Every method that runs the query can return those of a [read](crate::Error#reads); `KeyTooLong` (E0202) if
/// a key is too long; `Rebuilding` (E0802) while a view is incomplete or the documents are migrated;
/// `InvalidArgument` (E0201) if the stored collection does not fit the type.
pub struct Select<'s, C> {
    of: Of<'s>,
    terms: Result<Terms>,
    direction: Direction,
    limit: u64,
    kind: PhantomData<fn() -> C>,
}

/// The expression.
#[derive(Clone)]
enum Terms {
    Every,
    Rows(Rows),
    All(Vec<Terms>),
    Any(Vec<Terms>),
    Without(Box<Terms>, Box<Terms>),
}

/// The rows of a view with one key.
#[derive(Clone)]
struct Rows {
    view: &'static str,
    find: for<'e> fn(&dyn Readable, &'e Entry) -> Result<&'e OpenView>,
    key: Vec<u8>,
}

impl Db {
    /// Documents by keys of several views.
    #[must_use]
    pub fn select<C: Collection>(&self) -> Select<'_, C> {
        Select::new(Of::Db(self))
    }
}

impl<'s, C: Collection> Select<'s, C> {
    pub(crate) fn new(of: Of<'s>) -> Self {
        Select {
            of,
            terms: Ok(Terms::Every),
            direction: Direction::Forward,
            limit: u64::MAX,
            kind: PhantomData,
        }
    }

    /// Restricts to documents with this key in a view. The same as [`Select::and`]; as the first term it
    /// reads better.
    #[must_use]
    pub fn by<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.and::<V>(key)
    }

    /// Restricts to documents that also have this key in a view.
    #[must_use]
    pub fn and<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.with::<V>(key, |before, new| match before {
            Terms::Every => new,
            Terms::All(mut terms) => {
                terms.push(new);
                Terms::All(terms)
            }
            one => Terms::All(vec![one, new]),
        })
    }

    /// Adds the documents with this key in a view.
    #[must_use]
    pub fn or<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.with::<V>(key, |before, new| match before {
            Terms::Every => Terms::Every,
            Terms::Any(mut terms) => {
                terms.push(new);
                Terms::Any(terms)
            }
            one => Terms::Any(vec![one, new]),
        })
    }

    /// Excludes the documents with this key in a view.
    #[must_use]
    pub fn and_not<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.with::<V>(key, |before, new| Terms::Without(Box::new(before), Box::new(new)))
    }

    fn with<V: View<Collection = C>>(
        &self,
        key: impl KeyFor<V::Key>,
        join: impl FnOnce(Terms, Terms) -> Terms,
    ) -> Self {
        let rows = |key| Terms::Rows(Rows { view: V::NAME, find: query::ready::<V>, key });
        let terms = self.terms.clone().and_then(|before| Ok(join(before, rows(encode(&key)?))));
        Select { terms, ..self.clone() }
    }

    /// Reverses the order: from the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        Select { direction, ..self.clone() }
    }

    /// Limits the number of documents.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Select { limit: self.limit.min(at_most), ..self.clone() }
    }

    /// The documents, in order, as of one snapshot. The iterator finds them as it advances.
    ///
    /// # Errors
    /// As [`Select`]; `Unreadable` (E0213) for a document that does not read as its type.
    pub fn iter(&self) -> Result<SelectIter<'s, C>> {
        Ok(SelectIter { found: self.found(Bound::Start)?, kind: PhantomData })
    }

    /// The keys of the documents, in order, without reading the documents.
    ///
    /// # Errors
    /// As [`Select`].
    pub fn keys(&self) -> Result<SelectKeys<'s, C>> {
        Ok(SelectKeys { found: self.found(Bound::Start)?, kind: PhantomData })
    }

    /// All documents at once.
    ///
    /// # Errors
    /// As [`Select::iter`].
    pub fn to_vec(&self) -> Result<Vec<C>> {
        self.iter()?.collect()
    }

    /// The first document.
    ///
    /// # Errors
    /// As [`Select::iter`].
    pub fn first(&self) -> Result<Option<C>> {
        self.limit(1).iter()?.next().transpose()
    }

    /// How many documents there are. A single view answers in O(log n); several views are scanned.
    ///
    /// # Errors
    /// As [`Select`].
    pub fn count(&self) -> Result<u64> {
        let mut found = self.found(Bound::Start)?;
        if let Some(rows) = found.exactly()? {
            return Ok(rows.min(self.limit));
        }
        let mut count = 0;
        while found.next_key()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// A page of `size` documents, at least one: the first page, or the one after a token. A limit applies to
    /// each page.
    ///
    /// # Errors
    /// As [`Select::iter`].
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<C>> {
        let mut found = self.found(after.map_or(Bound::Start, |_| Bound::After))?;
        if let Some(after) = after {
            found.at = after.key_in(C::NAME)?.to_vec();
        }
        let size = size.max(1);
        let mut items = Vec::with_capacity(size.min(1024));
        while items.len() < size {
            match found.next_document()? {
                Some(document) => items.push(document),
                None => return Ok(Page { items, next: None }),
            }
        }
        let last = PageToken::after(&found.at, C::NAME);
        let more = found.next_key()?.is_some();
        Ok(Page { items, next: more.then_some(last) })
    }

    /// Which trees the query reads, and for how many rows, without running it. Each number costs O(log n).
    ///
    /// # Errors
    /// As [`Select`].
    pub fn explain(&self) -> Result<Explain> {
        let found = self.found(Bound::Start)?;
        let mut explain = Explain::of(C::NAME, "documents, in the order of their keys");
        match (&self.terms, &found.merge) {
            (Ok(terms), Some(merge)) => {
                let rows = merge.explain(&mut explain.parts);
                explain.rows_max = rows.min(self.limit);
                explain.walks = !matches!(terms, Terms::Every | Terms::Rows(_));
            }
            _ => explain.rows_max = 0,
        }
        explain.cost = match explain.walks {
            true => "a walk that merges the views, the smallest first; memory for one key of each",
            false => "count in O(log n); a walk for documents",
        };
        Ok(explain)
    }

    /// As [`Select::explain`], but also runs the query for all keys and reports what that took.
    ///
    /// # Errors
    /// As [`Select`].
    pub fn explain_run(&self) -> Result<Explain> {
        let mut explain = self.explain()?;
        let mut found = self.found(Bound::Start)?;
        let mut documents = 0;
        while found.next_key()?.is_some() {
            documents += 1;
        }
        let Work { rows, seeks } = found.work;
        explain.ran = Some(Ran { documents, rows, seeks });
        Ok(explain)
    }

    fn found(&self, bound: Bound) -> Result<Found<'s>> {
        let terms = self.terms.clone()?;
        let held = self.of.hold()?;
        let entry = held.state().fitting_now(TypeDescriptor::of::<C>())?;
        let merge = match &entry {
            Some(entry) => Some(self.plan(&held, entry, &terms)?),
            None => None,
        };
        let documents = entry.map(|entry| entry.tree);
        Ok(Found { held, documents, merge, at: Vec::new(), bound, left: self.limit, work: Work::default() })
    }

    fn plan(&self, held: &Held<'s>, entry: &Entry, terms: &Terms) -> Result<Merge> {
        let all = |terms: &[Terms]| {
            terms.iter().map(|term| self.plan(held, entry, term)).collect::<Result<Vec<_>>>()
        };
        let source = held.state().source();
        Ok(match terms {
            Terms::Every => Merge::rows(source, entry.tree, Vec::new(), None, self.direction)?,
            Terms::Rows(rows) => {
                let view = (rows.find)(held.state(), entry)?;
                let named = Some((rows.view, &view.spec));
                Merge::rows(source, view.tree, rows.key.clone(), named, self.direction)?
            }
            Terms::All(terms) => Merge::all(all(terms)?),
            Terms::Any(terms) => Merge::any(all(terms)?),
            Terms::Without(these, those) => {
                Merge::without(self.plan(held, entry, these)?, self.plan(held, entry, those)?)
            }
        })
    }
}

impl<C> Clone for Select<'_, C> {
    fn clone(&self) -> Self {
        Select {
            of: self.of,
            terms: self.terms.clone(),
            direction: self.direction,
            limit: self.limit,
            kind: PhantomData,
        }
    }
}

impl<C: Collection> fmt::Debug for Select<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("collection", &C::NAME).finish_non_exhaustive()
    }
}

/// The state of an iteration.
struct Found<'s> {
    held: Held<'s>,
    /// The tree of documents; `None` if the collection does not exist yet.
    documents: Option<TreeId>,
    merge: Option<Merge>,
    /// The last key that was found.
    at: Vec<u8>,
    bound: Bound,
    left: u64,
    work: Work,
}

impl Found<'_> {
    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        let Some(merge) = self.merge.as_mut().filter(|_| self.left > 0) else { return Ok(None) };
        let source = self.held.state().source();
        let found = merge.seek(source, &mut self.at, self.bound, &mut self.work)?;
        self.bound = Bound::After;
        self.left -= 1;
        if found.is_none() {
            self.left = 0;
            return Ok(None);
        }
        Ok(Some(&self.at))
    }

    fn next_document<C: Collection>(&mut self) -> Result<Option<C>> {
        while self.next_key()?.is_some() {
            let documents = self.documents.expect("a key was found, so the collection is there");
            if let Some(document) = found::read_document(self.held.state(), documents, &self.at)? {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    /// The exact number of documents, if the tree's counts determine it.
    fn exactly(&self) -> Result<Option<u64>> {
        Ok(match &self.merge {
            None => Some(0),
            Some(merge) => merge.exactly(),
        })
    }
}

/// Selected documents as of one snapshot, in order.
pub struct SelectIter<'s, C> {
    found: Found<'s>,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for SelectIter<'_, C> {
    type Item = Result<C>;

    fn next(&mut self) -> Option<Result<C>> {
        self.found.next_document().transpose()
    }
}

/// Keys of selected documents, in order.
pub struct SelectKeys<'s, C> {
    found: Found<'s>,
    kind: PhantomData<fn() -> C>,
}

impl<C: Collection> Iterator for SelectKeys<'_, C> {
    type Item = Result<C::Key>;

    fn next(&mut self) -> Option<Result<C::Key>> {
        let found = self.found.next_key().transpose()?;
        Some(found.and_then(|key| C::Key::from_elements(decode(key)?)))
    }
}

impl Part {
    fn of(view: Option<&'static str>, key: &[u8], rows: u64, depth: usize) -> Part {
        match view {
            Some(view) => {
                Part { what: format!("view {view}, key {}", crate::value::tuple::show(key)), rows, depth }
            }
            None => Part { what: "every document".to_owned(), rows, depth },
        }
    }
}
