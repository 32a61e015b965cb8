//! Queries and maintenance of views: typed and by name, in a snapshot or inside a transaction.

pub(crate) mod build;
pub(crate) mod builds;
pub(crate) mod by_name;
pub(crate) mod coded;
pub(crate) mod failures;
pub(crate) mod found;
pub(crate) mod left_out;
pub(crate) mod maintain;
pub(crate) mod mapped;
pub(crate) mod mend;
pub(crate) mod query;
pub(crate) mod state;

use std::any::TypeId;

use crate::access::collection::Collection;
use crate::catalog::entries::OpenView;
use crate::value::tuple::OwnedKey;
use crate::view::ViewSpec;
use crate::view::reduce;

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
/// It is current within the transaction that changes a document. A reduction over any range of it costs O(log
/// n).
///
/// | in `view(...)` | meaning |
/// |---|---|
/// | the first word | the name of the type that stands for the view; in the database it is called so in `snake_case` |
/// | `key = a`, `key = (a, b)` | the fields that make its key. A document whose field is null or absent has no row, unless `nulls` is there. With the document's own key a row's key has at most 1,024 bytes |
/// | `key = (home.city, desc(at))` | a field of a struct with `#[derive(Nested)]`, and one whose largest value comes first. A `desc` element is a [`Reverse`](std::cmp::Reverse) in the view's key |
/// | `each` | the last key field is a list, and the document has a row for each of its different items: one that is in the list twice has one row, and counts once. `key = lines[].product, each` takes a field of each item |
/// | `value = c` | the field that reductions without one of their own take |
/// | `reduce = (Count, Sum, Max(d), TopK(5, d))` | what is kept over every range; [`reduce`] lists them. Without it, `Count`. Several answer as a tuple, and one alone answers bare |
/// | `nulls` | a key field that is an `Option` keeps it in the view's key, and documents with `None` have a row, before all others: `db.view::<ByAssignee>().key(None)`. Parts of fields are an `Option` then, and with `each` a document without items has a row with `None` |
/// | `unique` | no two documents may have the same key: the second is refused with `UniqueViolation` |
///
/// Without a range a reduction is of the whole collection. A view that is only for that takes any field as
/// its key: `view(Total, key = id, value = cents, reduce = Sum)`, and `db.view::<Total>().reduce()?`.
///
/// With `nulls` and a key of several elements, a `None` at its beginning has a type: of
/// `key = (assignee, desc(at))` the rows without an assignee, newest first, are `.prefix(None::<u64>)`.
///
/// Ranges are in the order of the view. With a descending element that is from the largest value to the
/// smallest: of a view with the key `(city, desc(at))` the rows of Oslo from day 9 back to day 4 are
/// `.range(("Oslo", Reverse(9))..=("Oslo", Reverse(4)))`, and those since day 4
/// `.prefix("Oslo").range(..=("Oslo", Reverse(4)))`. If the last element is descending, rows with equal keys
/// are in descending order of the documents' keys: `reverse` gives the opposite order to the end.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a view",
    note = "a view is declared with its collection, `#[collection(view(ByCity, key = city))]`, and asked by its own name: \
            `db.view::<ByCity>()`",
    note = "the documents of a collection are `db.collection::<Order>()`"
)]
pub trait View: 'static {
    /// The collection of the view.
    type Collection: Collection;

    /// The key of its rows. Rows with equal keys are ordered by the key of the document.
    type Key: OwnedKey;

    /// Its reductions.
    type Reduce: reduce::Reductions;

    /// The view's name in the database.
    const NAME: &'static str;

    /// The definition that the catalogue keeps.
    fn spec() -> ViewSpec;
}

impl OpenView {
    /// Whether a type's definition of the view equals that in the catalogue.
    pub(crate) fn is_of<V: View>(&self) -> bool {
        if self.asked_as.get() == Some(&TypeId::of::<V>()) {
            return true;
        }
        let same = self.spec.name() == V::NAME && self.spec.same_terms(&V::spec());
        if same {
            // A second type with the same definition may have been noted first.
            self.asked_as.get_or_init(TypeId::of::<V>);
        }
        same
    }
}
