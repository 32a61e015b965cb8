//! The results of a query of a view: rows, their documents, groups and reductions.
//!
//! Owns the iterators. Each holds the state that it began in, and one row of it in memory.

use std::marker::PhantomData;
use std::vec;

use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::far::FarGroup;
use crate::access::page::{Page, PageToken};
use crate::access::reads::sealed::Readable;
use crate::access::selection::{GroupWalk, Held, Selected};
use crate::access::views::View;
use crate::access::views::query::{Answer, decoded};
use crate::catalog::entries::OpenView;
use crate::store::error::{Code, Error, Result};
use crate::store::{KeyRange, Source, TreeId};
use crate::value::tuple::{OwnedKey, ascending, decode, show, split, split_unread, values};
use crate::view::ViewSpec;
use crate::view::reduce::Reductions as _;
use crate::view::reducer::without_code;

type DocumentKey<V> = <<V as View>::Collection as Collection>::Key;

/// The name of the order of a view's rows, for page tokens.
///
/// A token says nothing once the directions of the view have changed.
pub(crate) fn order_of<V: View>() -> String {
    order_by(V::Collection::NAME, &V::spec())
}

/// As [`order_of`], for a view that is known by its definition.
pub(crate) fn order_by(collection: &str, spec: &ViewSpec) -> String {
    let mut order = format!("{collection}.{}", spec.name());
    for field in spec.key_fields().iter().filter(|field| field.is_descending()) {
        order.push_str(&format!(" {field}"));
    }
    order
}

/// A row of a view.
pub struct ViewEntry<V: View> {
    /// The view's key.
    pub key: V::Key,
    /// The key of the document.
    pub document: DocumentKey<V>,
}

/// Groups and their reductions, in order.
pub type Groups<G, A> = Vec<(G, A)>;

pub(crate) fn entry_of<V: View>(row: &[u8]) -> Result<ViewEntry<V>> {
    let (key, document) = row.split_at(split(row, V::Key::ELEMENTS)?);
    Ok(ViewEntry {
        key: V::Key::from_elements(decode(key)?)?,
        document: DocumentKey::<V>::from_elements(values(document)?)?,
    })
}

pub(crate) fn reduced<V: View>(source: &dyn Source, view: &OpenView, range: &KeyRange) -> Result<Answer<V>> {
    let Some(reductions) = &view.reductions else {
        return V::Reduce::answer(source.count(view.tree, range)?, &[]);
    };
    let reduced = source.reduce(view.tree, range).map_err(|error| without_code(&view.spec, error))?;
    let value = reduced.value.unwrap_or_default();
    V::Reduce::answer(reduced.count, &reductions.decode(&value)?)
}

/// Rows of a view as of one snapshot, in order.
pub struct ViewIter<V> {
    pub(crate) found: Selected,
    pub(crate) kind: PhantomData<fn() -> V>,
}

impl<V: View> Iterator for ViewIter<V> {
    type Item = Result<ViewEntry<V>>;

    fn next(&mut self) -> Option<Result<ViewEntry<V>>> {
        let row = self.found.next_key().transpose()?;
        Some(row.and_then(entry_of::<V>))
    }
}

/// Documents of a view's rows, in row order, as of one snapshot.
pub struct ViewDocs<'s, V> {
    rows: Selected,
    documents: Documents<'s>,
    /// The last row, for the token of a page that ends there.
    last: Vec<u8>,
    kind: PhantomData<fn() -> V>,
}

/// Where the documents of rows are.
enum Documents<'s> {
    /// The collection does not exist yet.
    Nowhere,
    In(Held<'s>, TreeId),
    /// They come with the rows, with the names of their fields.
    InRows,
}

impl<'s, V: View> ViewDocs<'s, V> {
    pub(crate) fn new(held: Held<'s>, found: Option<(Selected, TreeId)>) -> Self {
        let (rows, documents) = match found {
            Some((rows, tree)) => (rows, Documents::In(held, tree)),
            None => (Selected::default(), Documents::Nowhere),
        };
        ViewDocs { rows, documents, last: Vec::new(), kind: PhantomData }
    }

    /// Those of another process.
    pub(crate) fn far(rows: Selected) -> Self {
        ViewDocs { rows, documents: Documents::InRows, last: Vec::new(), kind: PhantomData }
    }

    fn next_document(&mut self) -> Result<Option<V::Collection>> {
        loop {
            let document = match &self.documents {
                Documents::Nowhere => return Ok(None),
                Documents::In(held, documents) => {
                    let Some(row) = self.rows.next_key()? else { return Ok(None) };
                    row.clone_into(&mut self.last);
                    read_document_of_row::<V>(held.state(), *documents, row)?
                }
                Documents::InRows => {
                    let Some((row, named)) = self.rows.next()? else { return Ok(None) };
                    row.clone_into(&mut self.last);
                    Some(codec::from_named(&ascending(&row[split_unread(row, V::Key::ELEMENTS)?..])?, named)?)
                }
            };
            if document.is_some() {
                return Ok(document);
            }
        }
    }

    pub(crate) fn page(mut self, size: usize) -> Result<Page<V::Collection>> {
        let size = size.max(1);
        let mut items = Vec::with_capacity(size.min(1024));
        while items.len() < size {
            match self.next_document()? {
                Some(document) => items.push(document),
                None => return Ok(Page { items, next: None }),
            }
        }
        let more = self.rows.next_key()?.is_some();
        Ok(Page { items, next: more.then(|| PageToken::after(&self.last, &order_of::<V>())) })
    }
}

impl<V: View> Iterator for ViewDocs<'_, V> {
    type Item = Result<V::Collection>;

    fn next(&mut self) -> Option<Result<V::Collection>> {
        self.next_document().transpose()
    }
}

/// Groups of a view's rows and their reductions, as of one snapshot.
pub struct ViewGroups<'s, V, G> {
    groups: WalkedGroups<'s>,
    kind: PhantomData<fn() -> (V, G)>,
}

enum WalkedGroups<'s> {
    /// The collection does not exist yet.
    Nothing,
    In(Held<'s>, Box<OpenView>, GroupWalk),
    /// Those of another process.
    Far(vec::IntoIter<FarGroup>),
}

impl<'s, V: View, G: OwnedKey> ViewGroups<'s, V, G> {
    pub(crate) fn new(held: Held<'s>, view: Option<OpenView>, walk: GroupWalk) -> Self {
        let groups = match view {
            Some(view) => WalkedGroups::In(held, Box::new(view), walk),
            None => WalkedGroups::Nothing,
        };
        ViewGroups { groups, kind: PhantomData }
    }

    /// Those of another process.
    pub(crate) fn far(groups: Vec<FarGroup>) -> Self {
        ViewGroups { groups: WalkedGroups::Far(groups.into_iter()), kind: PhantomData }
    }

    fn next_group(&mut self) -> Result<Option<(G, Answer<V>)>> {
        let (group, answer) = match &mut self.groups {
            WalkedGroups::Nothing => return Ok(None),
            WalkedGroups::In(held, view, walk) => {
                let source = held.state().source();
                let Some((group, rows)) = walk.next(source, view.tree, G::ELEMENTS)? else { return Ok(None) };
                let answer = reduced::<V>(source, view, &rows)?;
                (group, answer)
            }
            WalkedGroups::Far(groups) => {
                let Some(FarGroup { key, count, reduction }) = groups.next() else { return Ok(None) };
                (key, decoded::<V>(count, &reduction)?)
            }
        };
        Ok(Some((G::from_elements(decode(&group)?)?, answer)))
    }
}

impl<V: View, G: OwnedKey> Iterator for ViewGroups<'_, V, G> {
    type Item = Result<(G, Answer<V>)>;

    fn next(&mut self) -> Option<Result<(G, Answer<V>)>> {
        self.next_group().transpose()
    }
}

/// The document of a row of a view, decoded.
///
/// # Errors
/// As [`read_document`].
pub(crate) fn read_document_of_row<V: View>(
    state: &dyn Readable,
    documents: TreeId,
    row: &[u8],
) -> Result<Option<V::Collection>> {
    let key = &*ascending(&row[split_unread(row, V::Key::ELEMENTS)?..])?;
    read_document(state, documents, key)
}

/// As [`document_of`], decoded.
///
/// # Errors
/// As [`document_of`]; `Unreadable` if it does not decode as its type.
pub(crate) fn read_document<C: Collection>(
    state: &dyn Readable,
    documents: TreeId,
    key: &[u8],
) -> Result<Option<C>> {
    let shapes = &state.open_state().catalog.shapes;
    let read = codec::read(state.source(), shapes, documents, key)?;
    if read.is_none() && !state.may_change() { Err(lost(C::NAME, key)) } else { Ok(read) }
}

/// The document that a row names; `None` if a transaction has deleted it since the query began.
///
/// # Errors
/// `CorruptData` if it is not there in a snapshot, which never changes.
pub(crate) fn document_of(
    state: &dyn Readable,
    documents: TreeId,
    collection: &str,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let stored = state.source().get(documents, key)?;
    if stored.is_none() && !state.may_change() { Err(lost(collection, key)) } else { Ok(stored) }
}

#[cold]
pub(crate) fn lost(collection: &str, key: &[u8]) -> Error {
    let document = show(key);
    Error::new(
        Code::CorruptData,
        format!("a view of {collection} has a row of the document {document}, which is not there"),
    )
}
