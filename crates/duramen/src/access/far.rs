//! Typed queries of a database that another process has open.
//!
//! Owns the questions that a query asks there. The client library answers them with messages to a server,
//! which answers by [`encoded`](super::encoded). Keys and bounds are encoded here, and rows are decoded here:
//! only this process knows the types.

use crate::access::type_descriptor::StoredType;
use crate::access::views::state;
use crate::catalog::schema::Schema;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange};
use crate::view::ViewSpec;

/// A state of a database in another process.
#[doc(hidden)]
pub trait Far {
    /// The document under a key, with the names of its fields.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn get(&self, of: StoredType, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// How many rows a range has; the limit says nothing here.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn count(&self, rows: &FarRows) -> Result<u64>;

    /// The row that has `index` others of the range before it, and its document if it is one.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn nth(&self, rows: &FarRows, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>>;

    /// The rows, with their documents or without.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn rows(&self, rows: FarRows, with_documents: bool) -> Result<Box<dyn FarCursor>>;

    /// How many rows there are, and what the nodes of the view's tree keep of them.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn reduce(&self, rows: &FarRows) -> Result<(u64, Vec<u8>)>;

    /// The same of each group: rows whose keys begin with the same so many elements. The limit is of groups.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn groups(&self, rows: &FarRows, elements: usize) -> Result<Vec<FarGroup>>;
}

/// Rows on their way from another process.
#[doc(hidden)]
pub trait FarCursor: Send {
    /// The next key, and the document, empty if none was wanted; `None` after the last.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `Unreachable` (E1111).
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}

/// A group of rows of a view.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarGroup {
    /// The elements that its rows begin with, encoded.
    pub key: Vec<u8>,
    /// How many rows it has.
    pub count: u64,
    /// What the nodes of the view's tree keep of them.
    pub reduction: Vec<u8>,
}

/// Rows of a collection, or of one of its views.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct FarRows {
    /// The type of the documents.
    pub of: StoredType,
    /// The view; without one, documents.
    pub view: Option<ViewSpec>,
    /// Of encoded keys.
    pub range: KeyRange,
    /// From the first row, or from the last.
    pub direction: Direction,
    /// At most so many.
    pub limit: u64,
}

impl FarRows {
    /// The view's name; empty for documents.
    #[must_use]
    pub fn view_name(&self) -> &str {
        self.view.as_ref().map_or("", ViewSpec::name)
    }

    /// The generation of the view that answers for the type; `None` for documents. Whether it is complete is
    /// found out there.
    ///
    /// # Errors
    /// `Rebuilding` (E0802) if the collection has no view with these terms.
    pub fn generation(&self, stored: &Schema) -> Result<Option<u64>> {
        let Some(view) = &self.view else { return Ok(None) };
        let same =
            || stored.views().iter().filter(|known| known.name() == view.name() && known.same_terms(view));
        let newest = same().filter(|known| known.is_ready()).max_by_key(|known| known.generation);
        match newest.or_else(|| same().max_by_key(|known| known.generation)) {
            Some(known) => Ok(Some(known.generation)),
            None => Err(state::not_registered(stored, view)),
        }
    }
}
