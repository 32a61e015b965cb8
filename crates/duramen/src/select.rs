//! Questions to several views of a collection at once: documents that are in all of them, in any, in none.
//!
//! Owns what is asked; select/merge.rs finds it. Every row of a view is the view's key and the document's, so rows with one
//! whole key are in the order of documents, and what several views say is merged as it is read: in memory lies one key for
//! each view, whatever is found. Rows of a range of keys are in another order, and would have to be kept and sorted: so a
//! view is asked for one whole key here, and the type says so.

mod merge;

use std::fmt;
use std::marker::PhantomData;

use crate::catalogue::{Entry, OpenView};
use crate::codec;
use crate::collection::Collection;
use crate::db::Db;
use crate::engine::{Direction, TreeId};
use crate::error::Result;
use crate::explain::{Explain, Part, Ran};
use crate::page::{Page, PageToken};
use crate::reads::sealed::Readable;
use crate::selection::{Held, Of};
use crate::tuple::{KeyFor, OwnedKey, decode, encode};
use crate::typed::Asked;
use crate::view::{self, View};
use merge::{Bound, Merge, Work};

/// Documents of a collection by keys of several of its views, of a [`Db`], a [`Snapshot`](crate::Snapshot) or a
/// [`Transaction`](crate::Transaction).
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
/// It is read from left to right: `by(a).or(b).and(c)` is `(a or b) and c`. Before the first word it is every document. Documents
/// come in the order of their keys.
///
/// # Costs
/// The view with the fewest rows leads, and the others are asked to go on where it is: in the end about as many rows are read as the
/// smallest has, each at O(log n) at worst. Memory does not grow with what is found. Ranges of view keys cannot be asked for
/// here: their rows are not in the order of documents.
///
/// # Errors
/// Every answer fails with `KeyTooLong` if a key was too long, `Rebuilding` while a view does not hold every document,
/// `InvalidArgument` if the collection in the database does not fit the type, and with what reading the disk said.
pub struct Select<'s, C> {
    of: Of<'s>,
    terms: Result<Terms>,
    direction: Direction,
    limit: u64,
    kind: PhantomData<fn() -> C>,
}

/// What is asked for.
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

    /// Of these documents, those with this key in a view. The first word reads better so; else the same as [`Select::and`].
    #[must_use]
    pub fn by<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.and::<V>(key)
    }

    /// Of these documents, those with this key in a view, too.
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

    /// These documents, and those with this key in a view.
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

    /// Of these documents, those without this key in a view.
    #[must_use]
    pub fn and_not<V: View<Collection = C>>(&self, key: impl KeyFor<V::Key>) -> Self {
        self.with::<V>(key, |before, new| Terms::Without(Box::new(before), Box::new(new)))
    }

    fn with<V: View<Collection = C>>(
        &self,
        key: impl KeyFor<V::Key>,
        join: impl FnOnce(Terms, Terms) -> Terms,
    ) -> Self {
        let rows = |key| Terms::Rows(Rows { view: V::NAME, find: view::ready::<V>, key });
        let terms = self.terms.clone().and_then(|before| Ok(join(before, rows(encode(&key)?))));
        Select { terms, ..self.clone() }
    }

    /// From the last to the first.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        Select { direction, ..self.clone() }
    }

    /// At most so many.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Select { limit: self.limit.min(at_most), ..self.clone() }
    }

    /// The documents, in order, of one state. They are found as the iterator goes on.
    ///
    /// # Errors
    /// As [`Select`]; `Unreadable` for a document that does not read as its type.
    pub fn iter(&self) -> Result<SelectIter<'s, C>> {
        Ok(SelectIter { found: self.found(Bound::Start)?, kind: PhantomData })
    }

    /// The keys of the documents, in order, without reading these.
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

    /// How many documents there are. One view alone answers in O(log n); several are walked through.
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

    /// A page of so many documents, at least one: the first, or the one that goes on where another ended. A limit is for each
    /// page.
    ///
    /// # Errors
    /// As [`Select::iter`].
    pub fn page(&self, size: usize, after: Option<&PageToken>) -> Result<Page<C>> {
        let mut found = self.found(after.map_or(Bound::Start, |_| Bound::After))?;
        if let Some(after) = after {
            found.at = after.key().to_vec();
        }
        let size = size.max(1);
        let mut items = Vec::with_capacity(size.min(1024));
        while items.len() < size {
            match found.next_document()? {
                Some(document) => items.push(document),
                None => return Ok(Page { items, next: None }),
            }
        }
        let last = PageToken::after(&found.at);
        let more = found.next_key()?.is_some();
        Ok(Page { items, next: more.then_some(last) })
    }

    /// What would be asked, and of how many rows, without asking for any: each number costs O(log n).
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

    /// As [`Select::explain`], having found all keys: with what that took.
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
        let entry = held.state().fitting_now(Asked::of::<C>())?;
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
                Merge::rows(source, view.tree, rows.key.clone(), Some(rows.view), self.direction)?
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

/// Documents on their way.
struct Found<'s> {
    held: Held<'s>,
    /// The tree of documents; `None` if the collection is not there yet.
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
            if let Some(stored) = view::document_of(self.held.state(), documents, C::NAME, &self.at)? {
                return codec::from_bytes(&self.at, &stored).map(Some);
            }
        }
        Ok(None)
    }

    /// How many there are, if the tree knows.
    fn exactly(&self) -> Result<Option<u64>> {
        Ok(match &self.merge {
            None => Some(0),
            Some(merge) => merge.exactly(),
        })
    }
}

/// Selected documents of one state, in order.
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
            Some(view) => Part { what: format!("view {view}, key {}", crate::tuple::show(key)), rows, depth },
            None => Part { what: "every document".to_owned(), rows, depth },
        }
    }
}
