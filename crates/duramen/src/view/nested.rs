//! Structs inside of documents, whose fields may be in the keys of views.

/// A field of a struct inside of documents: its stored name, and its type. `#[derive(Nested)]` implements it
/// for each field, and views then name it by a path:
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Serialize, Deserialize, Nested)]
/// struct Address {
///     city: String,
///     floor: Option<i32>,
/// }
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(ByCity, key = (home.city, desc(at))))]
/// struct Person {
///     #[key]
///     id: u64,
///     home: Option<Address>,
///     at: u64,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// for (id, at) in [(1, 10), (2, 20), (3, 30)] {
///     db.put(&Person { id, home: Some(Address { city: "Oslo".into(), floor: None }), at })?;
/// }
/// let newest = db.view::<ByCity>().prefix("Oslo").docs()?;
/// assert_eq!(newest.iter().map(|person| person.id).collect::<Vec<_>>(), [3, 2, 1]);
/// let until = db.view::<ByCity>().prefix("Oslo").range(..=("Oslo", Reverse(20)));
/// assert_eq!(until.count()?, 2);
/// # Ok(()) }
/// ```
///
/// A path names fields as Rust does; what is stored is the name that serde writes. Fields with an alias, and
/// those that serde writes by a function, are in no path: a view finds a part by one name. Neither are those
/// that serde may leave out, or reads a default for: a view finds null there. An `Option` or a list may be
/// left out or have a default, unless a function makes it.
///
/// `FIELD` is a number that stands for the field's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no such field for the path of a view",
    label = "not a field that a path can name",
    note = "write the name of one of its fields as in Rust; the number in `Nested<..>` stands for the name that was written",
    note = "`{Self}` needs #[derive(duramen::Nested)], if it does not have it",
    note = "fields with an alias or a default, and those that serde may leave out or writes by a function, are in no path"
)]
pub trait Nested<const FIELD: u64> {
    /// Its type, without an `Option` around it.
    type Kind;

    /// Its name in stored documents.
    const NAME: &'static str;
}

impl<const FIELD: u64, T: Nested<FIELD>> Nested<FIELD> for Option<T> {
    type Kind = T::Kind;
    const NAME: &'static str = T::NAME;
}

impl<const FIELD: u64, T: Nested<FIELD>> Nested<FIELD> for Box<T> {
    type Kind = T::Kind;
    const NAME: &'static str = T::NAME;
}
