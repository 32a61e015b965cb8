//! Views: a collection in another order, and what its documents come to.
//!
//! Owns what a declared view is: fields that make the key, fields that are kept beside it, reductions over them. It is
//! data in the catalogue, so that every program and tool that writes a document keeps the view in the same transaction.

mod build;
mod maintain;
mod query;
pub mod reduce;
mod reducer;
mod rows;
mod spec;
#[cfg(test)]
mod tests;

pub use build::Progress;
pub(crate) use build::{Step, forget};
pub(crate) use maintain::Changes;
pub use query::{Groups, ViewEntry, ViewIter, ViewQuery};
pub(crate) use reducer::Reductions;
pub(crate) use rows::rows;
pub(crate) use spec::VIEWS_MAX;
pub use spec::{Reduce, ViewSpec};

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
/// | `reduce = (Count, Sum, Max(d))` | what is kept over every range; [`reduce`] lists them. Without it, `Count` |
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
