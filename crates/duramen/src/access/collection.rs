//! Typed collections: what a struct must declare to be stored.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::type_descriptor::StoredType;
use crate::access::views::coded::Code;
use crate::catalog::schema::Schema;
use crate::store::error::{Code as ErrorCode, Error, Result};
use crate::value::tuple::{Encoder, OwnedKey};

/// A type whose values are the documents of a collection.
///
/// Derive it, beside `Serialize` and `Deserialize`. The key is one field or several, in their order:
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
/// struct Flight {
///     #[key]
///     carrier: String,
///     #[key]
///     departs: Time,
///     distance: u32,
///     #[serde(default)]
///     delay: Option<i32>,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// let departs = Time::parse("2013-01-01T10:00:00Z").expect("a time");
/// db.put(&Flight { carrier: "UA".into(), departs, distance: 1400, delay: Some(2) })?;
/// let flight = db.get::<Flight>(("UA", departs))?.expect("it was just put");
/// assert_eq!(flight.distance, 1400);
/// assert_eq!(db.collection::<Flight>().prefix("UA").count()?, 1);
/// # Ok(()) }
/// ```
///
/// The first write creates the collection in the database. Its name is that of the struct in `snake_case`,
/// unless `#[collection(name = "...")]` sets another.
///
/// # How documents are stored
/// Documents are stored as MessagePack values, with the number of a shape that has the field names that serde
/// writes: the names are in the database once. So every tool can show documents, and a new field with
/// `#[serde(default)]` needs no migration. A type with fewer fields than are stored skips the others when
/// reading; what it writes back has its own fields only. A type whose documents have many different sets of
/// fields stores the names in those after the 255th.
///
/// `#[collection(positional)]` stores lists without names, including structs inside, whose names are in every
/// document otherwise. Fields may then only be added at the end, with `#[serde(default)]`. Tools show the
/// names that the catalogue keeps.
///
/// # When the type changes
/// The catalogue keeps the fields of all documents. The first call of a type that could not read every
/// document fails; the error contains the change to make. [`Db::register`](crate::Db::register) checks at
/// once.
///
/// It does not keep the insides of fields, such as those of a struct in a field. Before the first write and
/// before a migration, a type with such fields decodes up to 64 of the stored documents, or 4 MiB. It is
/// refused if it reads less than half of them; the error has the key of the first that it cannot read, and
/// the path of the field.
///
/// | the change | what to write |
/// |---|---|
/// | a new field | `#[serde(default)]` above it, or an `Option` (a positional one needs the attribute) |
/// | a new field that a view has in its key or reduces | an `Option`, or [`migrate`](crate::migrate) |
/// | a field less | nothing; documents that it writes lack the field |
/// | another name in the source | `#[serde(rename = "old")]`: in documents it keeps its name |
/// | another name in documents | `#[serde(alias = "old")]`; not above the key, whose name in documents stays |
/// | a wider integer, an `Option` around a type | nothing |
/// | a field of a struct in a field | as above: default, alias, or [`migrate`](crate::migrate) |
/// | anything else but the key | `#[migrate_from(OldOrder)]`: [`migrate`](crate::migrate) |
///
/// A view is of the stored documents. Where one lacks a field, the type reads the default, and the view finds
/// null. So a type is refused that has a view of such a field, unless both mean the same: `None`, or an empty
/// list with `each`. The error disappears once every document has the field, which a migration achieves.
///
/// Views and references change with the first write of the type, [`Db::register`](crate::Db::register) or
/// [`DbOptions::collection`](crate::DbOptions::collection), and until then they are what the database has.
/// Reads of a view that has a renamed field fail with `Rebuilding` until then: call one of these at the
/// start. A view outlives its declaration, and if it is `unique` it still refuses:
/// [`drop_view`](crate::Documents::drop_view) ends that. One that is declared in another form, for example
/// without `unique`, replaces the old one once it is built, as [`Db::build_views`](crate::Db::build_views)
/// does.
///
/// # Keys
/// `#[key]` may stand above up to eight fields: integers up to 64 bits, `f64`, `bool`, `String`,
/// [`Time`](crate::Time), and types with [`#[derive(Key)]`](crate::Key). Documents are ordered by them.
/// Encoded, a key has at most 1,024 bytes. An enum chooses its order: [`EnumForm`](crate::tuple::EnumForm).
///
/// UUIDs need the feature `uuid`, and bytes are a [`ByteArray`](crate::ByteArray). Times of `chrono` and
/// `jiff` become a `Time` by `into` (features of these names).
///
/// `#[key(assigned)]` above an integer, or a struct around one, lets [`push`](crate::Db::push) assign ids.
/// Each id is assigned once, and no stored document has it; writers do not wait for each other. A transaction
/// that fails or runs again skips its ids, and so does a crash: up to 1,024. A clean close skips none.
/// `#[key(sequential)]` assigns the largest id plus one. Writers that push at the same time then conflict,
/// and one of them retries.
///
/// # References
/// `#[references(User, on_delete = cascade)]` above a field says that it holds the key of a `User`, an
/// `Option` of it, or a list of keys. If the key there has several fields it is a tuple of them, such as
/// `room: (String, u32)`. Such a document is there at every commit. A field that documents may lack is an
/// `Option` or a list: an absent one refers to nothing. The first write of the type
/// creates the collection `User` too, or checks the documents that exist.
///
/// | `on_delete` | what deleting the user does |
/// |---|---|
/// | `restrict`, or nothing | it fails with `StillReferenced` while a document refers to it |
/// | `cascade` | it deletes the documents that refer to it, and those that refer to them |
/// | `clear` | it makes the field `None`, or removes the item from the list |
///
/// What is missing is an error at the commit, so the order inside a transaction does not matter. Cascades
/// and clears act at the delete, at most 10,000 documents in a transaction.
/// [`Db::delete_counting`](crate::Db::delete_counting) counts them. A type that has the field without the
/// attribute takes the reference away at its first write, unless another type declares it that was used since
/// opening, or is in [`DbOptions::collection`](crate::DbOptions::collection). Name all types of a collection
/// there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a collection",
    label = "this type cannot be stored",
    note = "add `#[derive(Serialize, Deserialize, Collection)]` to it, and `#[key]` above the field that is its key",
    note = "a view is asked with `db.view::<..>()`",
    note = "`iter()` takes two `?`: `for order in orders.iter()? {{ let order = order?; .. }}`"
)]
pub trait Collection: Storable + 'static {
    /// The collection's name in the database.
    const NAME: &'static str;

    /// Whether documents are stored without the names of their fields.
    const POSITIONAL: bool = false;

    /// The version of its documents: one more than that of the type it migrates from.
    const VERSION: u32 = 1;

    /// The type of the key, which identifies a document.
    type Key: OwnedKey;

    /// The key of this document.
    fn key(&self) -> Self::Key;

    /// Appends the key of this document.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an element that cannot be in a key.
    fn write_key(&self, encoder: &mut Encoder<'_>) -> Result<()>;

    /// Its entry in the catalogue: name, key columns, and the column types as far as the Rust types determine
    /// them.
    fn schema() -> Schema;

    /// The code of its views in code, and of earlier versions of them.
    #[must_use]
    fn codes() -> Vec<Code> {
        Vec::new()
    }

    /// The schemas of the types that it migrates from, oldest first.
    #[must_use]
    fn older() -> Vec<Schema> {
        Vec::new()
    }

    /// The types whose documents its references name.
    #[doc(hidden)]
    #[must_use]
    fn referred_types() -> Vec<StoredType> {
        Vec::new()
    }

    /// Decodes a document of an earlier version.
    ///
    /// # Errors
    /// `Unreadable` (E0213) for an unknown version, and for a document that does not decode as its type or
    /// cannot be converted.
    fn from_version(version: u32, document: &[u8]) -> Result<Self> {
        let _ = document;
        Err(unknown_version(version))
    }
}

/// What serde writes and reads, as documents are. Every type with both of its derives is.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written and read as a document",
    label = "serde's derives are missing here",
    note = "write `#[derive(Serialize, Deserialize, Collection)]` above it; `duramen::prelude` has all three"
)]
pub trait Storable: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Storable for T {}

/// The key of a collection: the type of a field with `#[references(..)]`, without an `Option` or a list
/// around it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the key of `{C}`, to which the field refers",
    label = "another type than the key of `{C}`",
    note = "a reference holds the key of a document: `User::Key`, `Option` of it, or a `Vec` of it",
    note = "to a key of several fields the field is a tuple of them, in their order: `room: (String, u32)`"
)]
pub trait KeyOf<C> {}

#[diagnostic::do_not_recommend]
impl<C: Collection<Key = K>, K: OwnedKey> KeyOf<C> for K {}

/// A collection whose keys are assigned by [`push`](crate::Db::push). Derived by `#[key(assigned)]` or
/// `#[key(sequential)]`.
#[diagnostic::on_unimplemented(
    message = "the keys of `{Self}` are not assigned",
    note = "write `#[key(assigned)]` above its key, which must be an integer, or store it with `put` or `insert`"
)]
pub trait AssignedKey: Collection<Key: IdKey> {
    /// The order in which ids are assigned.
    const ORDER: IdOrder;

    /// Sets the document's key.
    fn set_key(&mut self, key: Self::Key);
}

/// The order in which ids are assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOrder {
    /// From a counter in memory: rising in the order of `push`, never repeated, with gaps after a rollback or
    /// a restart. Writers neither wait for each other nor conflict.
    Spread,
    /// The last document's id plus one, read in the transaction: rising in the order of commits. Concurrent
    /// pushes conflict, and one runs again. The id of a deleted last document is assigned again.
    Sequential,
}

/// An integer that can be an assigned id, or a struct around one with `#[derive(Key)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an assigned key",
    note = "an assigned key is a u64, an i64 or a u32, or a struct around one with #[derive(Key)]"
)]
pub trait IdKey: OwnedKey {
    /// The id as this type; `None` if it does not fit.
    fn from_id(id: u64) -> Option<Self>;

    /// The key as an id; `None` for a negative one.
    fn to_id(self) -> Option<u64>;
}

macro_rules! id_keys {
    ($($kind:ty),*) => {$(
        impl IdKey for $kind {
            fn from_id(id: u64) -> Option<Self> {
                id.try_into().ok()
            }

            fn to_id(self) -> Option<u64> {
                self.try_into().ok()
            }
        }
    )*};
}

id_keys!(u64, i64, u32);

#[cold]
pub(crate) fn unknown_version(version: u32) -> Error {
    Error::new(ErrorCode::Unreadable, format!("no type is known for version {version}"))
        .with_hint("a later program wrote it, or an older type is missing in the chain of #[migrate_from]")
}
