//! The documents of one collection, where each call is a transaction or a snapshot of its own.

use crate::store::Receipt;

use crate::access::documents::Reduction;
use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::access::references::{Deleted, ReferenceState};
use crate::access::rows::DocumentIter;
use crate::access::selection::Of;
use crate::access::views::by_name::DocumentView;
use crate::access::views::state::ViewState;
use crate::catalog::schema::{Reference, Schema};
use crate::store::error::Result;
use crate::value::document::Document;
use crate::value::span::Span;
use crate::value::tuple::Key;
use crate::view::spec::ViewSpec;

/// The documents of a collection of a [`Db`].
///
/// Each call is a transaction or a snapshot of its own. Inside a transaction or a snapshot use
/// [`DocumentsOf`](crate::DocumentsOf), which has the same methods.
#[derive(Debug, Clone)]
pub struct Documents {
    db: Db,
    name: String,
}

impl Documents {
    pub(crate) fn new(db: Db, name: String) -> Documents {
        Documents { db, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The collection's schema, from the catalogue.
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn schema(&self) -> Result<Schema> {
        self.db.snapshot()?.documents(&self.name).schema()
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Adds a view and builds it in the background. Returns whether no view with the same definition existed.
    ///
    /// [`Documents::build_views`] waits for the build. An existing view of the same name with another
    /// definition answers until then, and is dropped. The view is data in the catalogue: every program that
    /// opens the database maintains it.
    ///
    /// # Errors
    /// As [`Transaction::add_view`](crate::Transaction::add_view), and those of a
    /// [commit](crate::Error#commits).
    pub fn add_view(&self, view: ViewSpec) -> Result<bool> {
        self.db.transact(|tx| tx.add_view(&self.name, &view))
    }

    /// Drops a view with all its rows. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::drop_view`](crate::Transaction::drop_view), and those of a
    /// [commit](crate::Error#commits).
    pub fn drop_view(&self, view: &str) -> Result<bool> {
        self.db.transact(|tx| tx.drop_view(&self.name, view))
    }

    /// Builds a view anew in the background. The existing one answers until the new one is complete, and is
    /// then dropped.
    ///
    /// # Errors
    /// As [`Transaction::rebuild_view`](crate::Transaction::rebuild_view), and those of a
    /// [commit](crate::Error#commits).
    pub fn rebuild_view(&self, view: &str) -> Result<()> {
        self.db.transact(|tx| tx.rebuild_view(&self.name, view))
    }

    /// Adds a reference and checks the existing documents in the background. Returns whether its field had no
    /// reference with the same definition.
    ///
    /// [`Documents::build_views`] waits for the check, and returns the documents that refer to nothing.
    ///
    /// # Errors
    /// As [`Transaction::add_reference`](crate::Transaction::add_reference), and those of a
    /// [commit](crate::Error#commits).
    pub fn add_reference(&self, reference: Reference) -> Result<bool> {
        self.db.transact(|tx| tx.add_reference(&self.name, &reference))
    }

    /// Drops the reference of a field. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Transaction::drop_reference`](crate::Transaction::drop_reference), and those of a
    /// [commit](crate::Error#commits).
    pub fn drop_reference(&self, field: &str) -> Result<bool> {
        self.db.transact(|tx| tx.drop_reference(&self.name, field))
    }

    /// The collection's references, and how far each is checked.
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn references(&self) -> Result<Vec<ReferenceState>> {
        self.db.snapshot()?.documents(&self.name).references()
    }

    /// The collection's views and their build progress.
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn views(&self) -> Result<Vec<ViewState>> {
        self.db.snapshot()?.documents(&self.name).views()
    }

    /// The rows of one of its views. Each query reads the newest state.
    #[must_use]
    pub fn view(&self, name: &str) -> DocumentView<'_> {
        DocumentView::new(Of::Db(&self.db), &self.name, name)
    }

    /// Stores a document under its key columns, replacing any document under that key.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`](crate::DocumentsOf::put), and those of a [commit](crate::Error#commits).
    pub fn put(&self, document: impl Into<Document>) -> Result<Receipt> {
        let document = document.into();
        self.db.write(|tx| tx.documents(&self.name).put(document.clone()))
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`DocumentsOf::insert`](crate::DocumentsOf::insert), and those of a [commit](crate::Error#commits).
    pub fn insert(&self, document: impl Into<Document>) -> Result<Receipt> {
        let document = document.into();
        self.db.write(|tx| tx.documents(&self.name).insert(document.clone()))
    }

    /// Deletes the document under a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`DocumentsOf::delete`](crate::DocumentsOf::delete), and those of a [commit](crate::Error#commits).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.documents(&self.name).delete(&key))
    }

    /// As [`Documents::delete`], and counts the documents that followed because they referred to it.
    ///
    /// # Errors
    /// As [`Documents::delete`].
    pub fn delete_counting(&self, key: impl Key) -> Result<Deleted> {
        self.db.transact(|tx| {
            let documents = u64::from(tx.documents(&self.name).delete(&key)?);
            Ok(Deleted { documents, followed: tx.followed() })
        })
    }

    /// The document under a key.
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn get(&self, key: impl Key) -> Result<Option<Document>> {
        self.db.snapshot()?.documents(&self.name).get(key)
    }

    /// The documents of a range as of one snapshot, in key order.
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn scan(&self, span: Span) -> Result<DocumentIter> {
        self.db.snapshot()?.documents(&self.name).scan(span)
    }

    /// How many documents a range holds, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn count(&self, span: Span) -> Result<u64> {
        self.db.snapshot()?.documents(&self.name).count(span)
    }

    /// Count and sums over a range, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf::reduce`](crate::DocumentsOf::reduce).
    pub fn reduce(&self, span: Span) -> Result<Reduction> {
        self.db.snapshot()?.documents(&self.name).reduce(span)
    }

    /// How many documents have a smaller key, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn rank(&self, key: impl Key) -> Result<u64> {
        self.db.snapshot()?.documents(&self.name).rank(key)
    }

    /// The document at a position in key order, counted from 0, in O(log n).
    ///
    /// # Errors
    /// As [`DocumentsOf`](crate::DocumentsOf).
    pub fn nth(&self, index: u64) -> Result<Option<Document>> {
        self.db.snapshot()?.documents(&self.name).nth(index)
    }
}
