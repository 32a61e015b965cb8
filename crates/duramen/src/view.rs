//! Views: a collection in another order, and what its documents come to.
//!
//! Owns what a declared view is: fields that make the key, fields that are kept beside it, reductions over them. It is
//! data in the catalogue, so that every program and tool that writes a document keeps the view in the same transaction.

mod build;
mod by_name;
mod coded;
mod failures;
mod found;
mod in_background;
mod kinds;
mod laws;
mod maintain;
mod mapped;
mod mend;
mod monoid;
mod query;
pub mod reduce;
mod reducer;
mod rows;
mod shown;
mod sketch;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub use build::Progress;
pub(crate) use build::{Step, WALKS, Walked, forget, put_rows};
pub use by_name::{DocumentView, ReducedPart, ViewReduction, ViewRow, ViewRowIter};
pub(crate) use coded::RowsOf;
pub use coded::{Code, CodedView, Emitter, RowValue};
pub(crate) use failures::{FAILURES, Failures, forget as forget_failure, note as note_failure};
pub(crate) use found::document_of;
pub use found::{Groups, ViewDocs, ViewEntry, ViewGroups, ViewIter};
pub(crate) use in_background::{has_work, step as background_step};
pub use kinds::Reduce;
pub use laws::assert_monoid;
pub(crate) use maintain::Changes;
pub(crate) use mapped::{mapped_now, row_keys};
pub(crate) use mend::put_again;
pub(crate) use monoid::Codes;
pub use monoid::Monoid;
pub use query::ViewQuery;
pub(crate) use query::ready;
pub(crate) use reducer::{Reductions, without_code};
pub(crate) use rows::{ViewRows, rows};
pub use sketch::Distribution;
pub use spec::ViewSpec;
pub(crate) use spec::{GENERATIONS_MAX, TREES as VIEW_TREES, VIEWS_MAX};
pub use state::{ViewPhase, ViewState};
pub(crate) use state::{states, unknown};

use crate::collection::Collection;
use crate::tuple::OwnedKey;

/// A view of a typed collection, declared in its derive:
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum)))]
/// struct Order {
///     #[key]
///     id: u64,
///     city: String,
///     cents: i64,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// db.put(&Order { id: 1, city: "Oslo".into(), cents: 1250 })?;
/// let (orders, cents) = db.view::<SalesByCity>().key("Oslo").reduce()?;
/// assert_eq!((orders, cents), (1, 1250));
/// # Ok(()) }
/// ```
///
/// It is current inside the transaction that changes a document, and a reduction over any range of it costs O(log n).
///
/// | in `view(...)` | what it says |
/// |---|---|
/// | the first word | the name of the type that stands for the view; in the database it is called so in `snake_case` |
/// | `key = a`, `key = (a, b)` | the fields that make its key. A document whose field is null or absent has no row. With the document's own key a row's key has at most 1,024 bytes |
/// | `each` | the last key field is a list, and the document has a row for each of its items |
/// | `value = c` | the field that reductions without one of their own take |
/// | `reduce = (Count, Sum, Max(d), TopK(5, d))` | what is kept over every range; [`reduce`] lists them. Without it, `Count` |
/// | `unique` | no two documents may have the same key: the second is refused with `UniqueViolation` |
pub trait View: 'static {
    /// Whose view it is.
    type Collection: Collection;

    /// What its rows are ordered by, before the key of the document.
    type Key: OwnedKey;

    /// Its reductions.
    type Reduce: reduce::Reductions;

    /// The view's name in the database.
    const NAME: &'static str;

    /// What the catalogue keeps of it.
    fn spec() -> ViewSpec;
}
