//! Reads for a server of this database: bounds are among encoded keys, and rows are returned as encoded keys.
//!
//! A client's typed query is answered by these. The client knows the types, has checked that they fit, and
//! names the generation of a view; if it names none, the newest complete one answers.

use std::sync::Arc;

use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Of, Selection};
use crate::access::views::found::document_of;
use crate::access::views::state::answering_generation;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::forms;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source, TreeId};
use crate::value::span::Span;
use crate::value::tuple::{ascending, split_unread, successor};
use crate::value::version;
use crate::view::reducer::without_code;

/// The document under a key, with the names of its fields.
///
/// # Errors
/// As [`DocumentsOf::get`](crate::DocumentsOf::get).
#[doc(hidden)]
pub fn get_named<S: LocalReads>(state: &S, collection: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let entry = state.entry(collection)?;
    let Some(stored) = state.source().get(entry.tree, key)? else { return Ok(None) };
    let mut document = Vec::new();
    name(&entry, &stored, &mut document)?;
    Ok(Some(document))
}

/// Rows of a collection or of one of its views.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct EncodedRows<'a> {
    /// The collection.
    pub collection: &'a str,
    /// The view; empty for documents.
    pub view: &'a str,
    /// Its generation; `None` for the newest one that is complete.
    pub generation: Option<u64>,
    /// Among the encoded keys.
    pub range: KeyRange,
    /// From the first row, or from the last.
    pub direction: Direction,
}

impl EncodedRows<'_> {
    /// How many there are, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentView`](crate::DocumentView).
    pub fn count<S: LocalReads>(&self, state: &S) -> Result<u64> {
        let (_, tree, _) = self.tree(state)?;
        state.source().count(tree, &self.range)
    }

    /// The rows from the one on that has so many others before it, in O(log n); none if there are not so
    /// many.
    ///
    /// # Errors
    /// As [`DocumentView`](crate::DocumentView).
    pub fn skip<S: LocalReads>(mut self, state: &S, rows: u64) -> Result<Option<Self>> {
        let (_, tree, _) = self.tree(state)?;
        let Some((first, _)) = self.selection(state).nth(state.source(), tree, rows)? else {
            return Ok(None);
        };
        match self.direction {
            Direction::Forward => self.range.from = first,
            Direction::Reverse => self.range.to = Some(successor(&first)),
        }
        Ok(Some(self))
    }

    /// How many rows of a view there are, and what the nodes of its tree keep of them, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentView::reduce`](crate::DocumentView::reduce).
    pub fn reduce<S: LocalReads>(&self, state: &S) -> Result<(u64, Vec<u8>)> {
        let (_, tree, view) = self.tree(state)?;
        reduced(state.source(), tree, view.as_ref(), &self.range)
    }

    /// The same of each group: rows whose keys begin with the same so many elements. `each` returns whether
    /// it wants another one.
    ///
    /// # Errors
    /// As [`DocumentView::group_by`](crate::DocumentView::group_by); what `each` returned.
    pub fn for_each_group<S: LocalReads>(
        &self,
        state: &S,
        elements: usize,
        mut each: impl FnMut(Vec<u8>, u64, Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let (_, tree, view) = self.tree(state)?;
        let mut walk = self.selection(state).groups()?;
        while let Some((group, rows)) = walk.next(state.source(), tree, elements)? {
            let (count, reduction) = reduced(state.source(), tree, view.as_ref(), &rows)?;
            if !each(group, count, reduction)? {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with every key, and its document if they are wanted: with the names of its fields. `each`
    /// returns whether it wants another one.
    ///
    /// # Errors
    /// As [`DocumentView`](crate::DocumentView); what `each` returned.
    pub fn for_each<S: LocalReads>(
        &self,
        state: &S,
        with_documents: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let (entry, tree, view) = self.tree(state)?;
        let mut rows = self.selection(state).rows(state.source(), tree, self.range.clone())?;
        if !with_documents {
            while let Some(row) = rows.next_key()? {
                if !each(row, &[])? {
                    break;
                }
            }
            return Ok(());
        }
        let mut document = Vec::new();
        while let Some((row, stored)) = rows.next()? {
            document.clear();
            match &view {
                None => name(&entry, stored, &mut document)?,
                Some(view) => {
                    let key = &*ascending(&row[split_unread(row, view.spec.key_elements())?..])?;
                    match document_of(state, entry.tree, self.collection, key)? {
                        Some(stored) => name(&entry, &stored, &mut document)?,
                        None => continue,
                    }
                }
            }
            if !each(row, &document)? {
                break;
            }
        }
        Ok(())
    }

    fn selection<'s>(&self, state: &'s dyn Readable) -> Selection<'s> {
        let all = Selection::of(Of::State(state)).within(Ok(Span::of_encoded(self.range.clone())));
        if self.direction == Direction::Reverse { all.reversed() } else { all }
    }

    fn tree<S: LocalReads>(&self, state: &S) -> Result<(Arc<Entry>, TreeId, Option<OpenView>)> {
        let entry = state.entry(self.collection)?;
        if self.view.is_empty() {
            let tree = entry.tree;
            return Ok((entry, tree, None));
        }
        let view = answering_generation(state, &entry, self.view, self.generation)?.clone();
        Ok((entry, view.tree, Some(view)))
    }
}

fn reduced(
    source: &dyn Source,
    tree: TreeId,
    view: Option<&OpenView>,
    range: &KeyRange,
) -> Result<(u64, Vec<u8>)> {
    let Some(view) = view.filter(|view| view.reductions.is_some()) else {
        return Ok((source.count(tree, range)?, Vec::new()));
    };
    let reduced = source.reduce(tree, range).map_err(|error| without_code(&view.spec, error))?;
    Ok((reduced.count, reduced.value.unwrap_or_default()))
}

/// Appends a stored document with the names of its fields.
fn name(entry: &Entry, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let (version, document) = version::split(stored)?;
    if !forms::name(&entry.schema, version, document, out)? {
        out.extend_from_slice(document);
    }
    Ok(())
}
