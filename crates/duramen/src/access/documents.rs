//! The documents of one collection, as a snapshot or a transaction sees them.
//!
//! Owns the reads of documents. Counts, ranks and reductions are computed from the nodes of the tree in O(log
//! n), never by a scan. The writes are in documents/writes.rs.

pub(crate) mod auto_commit;
pub(crate) mod writes;

use crate::access::reads::LocalReads;
use crate::access::references;
use crate::access::references::ReferenceState;
use crate::access::rows::{DocumentIter, Rows};
use crate::access::selection::Of;
use crate::access::views::by_name::DocumentView;
use crate::access::views::state;
use crate::access::views::state::ViewState;
use crate::catalog::forms;
use crate::catalog::schema::Schema;
use crate::store::Direction;
use crate::store::error::{Code, Error, Result};
use crate::value::document::Document;
use crate::value::span::Span;
use crate::value::tuple::{Key, encode};
use crate::view::sums::FieldSum;

/// The documents of a collection in a [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction).
///
/// It comes from [`documents`](crate::LocalReads::documents). In a transaction it also has the writes.
///
/// It consists of two borrows and costs nothing to make. Each call looks up the collection by name. In a
/// snapshot each lookup reads the catalogue; in a transaction only the first one does, through any handle.
/// Writes take `&self`, so handles of several collections can be held at a time. Calls that create or drop a
/// collection need the transaction exclusively, so no handle can be held across them.
///
/// # Errors
/// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) for an unknown collection;
/// `KeyTooLong` (E0202) for a key beyond 1,024 bytes; `InvalidArgument` (E0201) for an integer in a key that
/// does not fit in 64 bits.
#[derive(Debug)]
pub struct DocumentsOf<'a, S> {
    pub(crate) within: &'a S,
    pub(crate) name: &'a str,
}

impl<S: LocalReads> DocumentsOf<'_, S> {
    /// The collection's schema, from the catalogue.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn schema(&self) -> Result<Schema> {
        Ok(self.within.entry(self.name)?.schema.clone())
    }

    /// The number of the collection's tree. A collection that was dropped and created again has another one.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn tree_number(&self) -> Result<u64> {
        Ok(self.within.entry(self.name)?.tree.0)
    }

    /// The collection's views and their build progress.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn views(&self) -> Result<Vec<ViewState>> {
        let mut states = state::states(self.within, &*self.within.entry(self.name)?)?;
        states.retain(|state| state.view.of_reference.is_none());
        Ok(states)
    }

    /// The collection's references, and how far each is checked.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn references(&self) -> Result<Vec<ReferenceState>> {
        references::states(self.within, &*self.within.entry(self.name)?)
    }

    /// The rows of one of its views. Each call checks that the view exists.
    #[must_use]
    pub fn view(&self, name: &str) -> DocumentView<'_> {
        DocumentView::new(Of::State(self.within), self.name, name)
    }

    /// The document under a key.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn get(&self, key: impl Key) -> Result<Option<Document>> {
        let entry = self.within.entry(self.name)?;
        let stored = self.within.source().get(entry.tree, &encode(&key)?)?;
        stored.as_deref().map(|stored| forms::document(&entry.schema, stored)).transpose()
    }

    /// The documents of a range, in order of their keys.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn scan(&self, span: Span) -> Result<DocumentIter> {
        Ok(DocumentIter::new(self.rows(span, Direction::Forward)?))
    }

    /// The stored documents of a range, in either direction, lent one at a time.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn rows(&self, span: Span, direction: Direction) -> Result<Rows> {
        let entry = self.within.entry(self.name)?;
        Ok(Rows::of(self.within.source().cursor(entry.tree, span.into_bytes(), direction)?, entry))
    }

    /// How many documents a range holds, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn count(&self, span: Span) -> Result<u64> {
        let tree = self.within.entry(self.name)?.tree;
        self.within.source().count(tree, &span.into_bytes())
    }

    /// Count and sums over a range, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`]; `Rebuilding` (E0802) while the documents are migrated.
    pub fn reduce(&self, span: Span) -> Result<Reduction> {
        let entry = self.within.entry(self.name)?;
        let range = span.into_bytes();
        let reducer = entry.schema.reducer()?;
        if reducer.fields().is_empty() {
            return Ok(Reduction {
                count: self.within.source().count(entry.tree, &range)?,
                sums: Vec::new(),
            });
        }
        if entry.schema.is_migrating() {
            let name = self.name;
            return Err(Error::new(Code::Rebuilding, format!("the documents of {name} are being migrated"))
                .with_hint("its sums are those of one version once the program that has the type has called Db::migrate"));
        }
        let reduced = self.within.source().reduce(entry.tree, &range)?;
        let sums = reducer.decode(&reduced.value.unwrap_or_default())?;
        Ok(Reduction { count: reduced.count, sums: reducer.fields().iter().cloned().zip(sums).collect() })
    }

    /// How many documents have a smaller key, in O(log n): the index at which the key is or would be.
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn rank(&self, key: impl Key) -> Result<u64> {
        let tree = self.within.entry(self.name)?.tree;
        self.within.source().rank(tree, &encode(&key)?)
    }

    /// The document at a position in key order, counted from 0, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`].
    pub fn nth(&self, index: u64) -> Result<Option<Document>> {
        let entry = self.within.entry(self.name)?;
        let found = self.within.source().nth(entry.tree, index)?;
        found.map(|(_, stored)| forms::document(&entry.schema, &stored)).transpose()
    }
}

/// The reductions of a range: how many documents, and the sums of the collection's summed columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    count: u64,
    sums: Vec<(String, FieldSum)>,
}

impl Reduction {
    /// Documents in the range.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact sum of a column; `None` if the collection does not sum it.
    #[must_use]
    pub fn sum(&self, column: &str) -> Option<i128> {
        self.field(column).map(|field| field.sum)
    }

    /// Documents whose column is null or absent; `None` if the collection does not sum it.
    #[must_use]
    pub fn nulls(&self, column: &str) -> Option<u64> {
        self.field(column).map(|field| field.nulls)
    }

    /// Every summed column, in the collection's order.
    pub fn sums(&self) -> impl ExactSizeIterator<Item = (&str, FieldSum)> {
        self.sums.iter().map(|(name, sum)| (name.as_str(), *sum))
    }

    fn field(&self, column: &str) -> Option<FieldSum> {
        self.sums.iter().find(|(name, _)| name == column).map(|(_, sum)| *sum)
    }
}
