//! The reads that all states share, and those of snapshots and transactions of this process.
//!
//! Of the latter it owns the list of collections, documents with their revisions, and trees of bytes. Reads
//! of many typed documents are in query.rs, reads of dynamic documents in documents.rs.

use std::sync::Arc;

use crate::access::anywhere::KvRead;
use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::deadlines::Deadline;
use crate::access::documents::DocumentsOf;
use crate::access::open_state::OpenState;
use crate::access::query::Query;
use crate::access::revision::Versioned;
use crate::access::rows::Rows;
use crate::access::select::Select;
use crate::access::selection::{Of, Target};
use crate::access::snapshot::Snapshot;
use crate::access::type_descriptor::TypeDescriptor;
use crate::access::views::View;
use crate::access::views::query::ViewQuery;
use crate::blobs::{self, BlobsOf};
use crate::catalog::entries::{self, Entry};
use crate::catalog::schema::Schema;
use crate::kv::{self, KvOf};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Source};
use crate::value::clock::Millis;
use crate::value::time::Time;
use crate::value::tuple::{KeyFor, encode};

pub(crate) mod sealed {
    use super::{Arc, Deadline, Entry, Millis, OpenState, Result, Snapshot, Source, TypeDescriptor};

    /// Sealed: the sources of reads, implemented only in this crate.
    pub trait Readable {
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn source(&self) -> &dyn Source;

        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn entry(&self, collection: &str) -> Result<Arc<Entry>>;

        /// The entry of a type's collection, for reading; `None` if it does not exist yet.
        ///
        /// Only the tree is certain to be that of this state; the rest of the entry may be of another.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn fitting(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>>;

        /// As `fitting`, but the entry is that of this state's catalogue.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn fitting_now(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>>;

        /// State that the handles of the database share.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn open_state(&self) -> &OpenState;

        /// Whether documents may be deleted while a query is read. In a transaction they may, by its own
        /// writes.
        fn may_change(&self) -> bool;

        /// The snapshot that is read, for reads by several threads. In a transaction there is none.
        fn as_snapshot(&self) -> Option<&Snapshot>;

        /// Where to note the expiry of a value that is not expired, and on which the reader relies. A
        /// snapshot answers as of its time, and notes none.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn relied_until(&self) -> Option<&Deadline> {
            None
        }

        /// The current time, read once: later calls return the same.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn now(&self) -> Millis;
    }
}

/// The reads of every state: of a [`Snapshot`], of a transaction, and of the newest state.
///
/// A function of it reads a database in this process and one in another process:
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum)))]
/// struct Order { #[key] id: u64, city: String, cents: i64 }
///
/// fn mean(state: &impl Reads, city: &str) -> Result<Option<i128>> {
///     let (orders, cents) = state.view::<SalesByCity>().key(city).reduce()?;
///     Ok((orders > 0).then(|| cents / i128::from(orders)))
/// }
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// # db.put(&Order { id: 1, city: "Oslo".into(), cents: 1250 })?;
/// assert_eq!(mean(&db.snapshot()?, "Oslo")?, Some(1250));
/// assert_eq!(db.transact(|tx| mean(tx, "Rome"))?, None);
/// # Ok(()) }
/// ```
///
/// [`LocalReads`](crate::LocalReads) has those that work in this process only.
pub trait Reads: KvRead {
    /// What its queries run on.
    #[doc(hidden)]
    fn target(&self) -> Target<'_>;

    /// The typed document under a key.
    ///
    /// # Errors
    /// As [`Query`].
    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>>;

    /// The documents of a typed collection.
    #[must_use]
    fn collection<C: Collection>(&self) -> Query<'_, C> {
        Query::new(self.target().0)
    }

    /// The rows of a view.
    #[must_use]
    fn view<V: View>(&self) -> ViewQuery<'_, V> {
        ViewQuery::new(self.target().0)
    }

    /// The key-values of a namespace.
    #[must_use]
    fn kv<'a>(&'a self, namespace: &'a str) -> KvOf<'a, Self>
    where
        Self: Sized,
    {
        KvOf { within: self, namespace }
    }
}

/// The reads of a [`Snapshot`](crate::Snapshot) and a [`Transaction`](crate::Transaction) that work only in
/// the process that has the database open, beside those of [`Reads`].
pub trait LocalReads: Reads + sealed::Readable {
    /// Every collection, by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    fn collections(&self) -> Result<Vec<Schema>> {
        entries::all(self.source(), &self.open_state().catalog.shapes)
    }

    /// The typed document under a key, and its revision.
    ///
    /// # Errors
    /// As [`Query`](crate::Query).
    fn get_versioned<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<Versioned<C>>> {
        let key = encode(&key)?;
        let Some(entry) = self.fitting(TypeDescriptor::of::<C>())? else { return Ok(None) };
        let Some(stored) = self.source().get(entry.tree, &key)? else { return Ok(None) };
        let shapes = entry.schema.shapes();
        let document = codec::from_bytes(shapes, &key, &stored)?;
        let revision = codec::revision::<C>(shapes, &key, &stored)?;
        Ok(Some(Versioned { document, revision }))
    }

    /// Queries documents by keys of several views.
    #[must_use]
    fn select<C: Collection>(&self) -> Select<'_, C>
    where
        Self: Sized,
    {
        Select::new(Of::State(self))
    }

    /// The documents of a collection by name. Each call checks that the collection exists.
    #[must_use]
    fn documents<'a>(&'a self, name: &'a str) -> DocumentsOf<'a, Self>
    where
        Self: Sized,
    {
        DocumentsOf { within: self, name }
    }

    /// The namespaces of key-values, by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    fn kv_namespaces(&self) -> Result<Vec<String>> {
        kv::namespaces(self.source())
    }

    /// The blobs of a namespace.
    #[must_use]
    fn blobs<'a>(&'a self, namespace: &'a str) -> BlobsOf<'a, Self>
    where
        Self: Sized,
    {
        BlobsOf { within: self, namespace }
    }

    /// The namespaces of blobs, by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    fn blob_namespaces(&self) -> Result<Vec<String>> {
        blobs::namespaces(self.source())
    }

    /// The time used for expiry, read once at the first call that needs it.
    fn time(&self) -> Time {
        self.now().to_time()
    }

    /// The names of the trees of bytes.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    fn byte_trees(&self) -> Result<Vec<String>> {
        let names = self.source().tree_names()?;
        Ok(names.into_iter().filter(|name| entries::is_users(name)).collect())
    }

    /// The value under a key of a tree of bytes; `None` also if the tree does not exist.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a reserved name.
    fn get_bytes(&self, tree: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        entries::check_users_name(tree)?;
        match self.source().tree(tree)? {
            Some(tree) => self.source().get(tree, key),
            None => Ok(None),
        }
    }

    /// Keys and values of a range of a tree of bytes, lent one at a time.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if there is no such tree;
    /// `InvalidArgument` (E0201) for a reserved name.
    fn scan_bytes(&self, tree: &str, range: KeyRange, direction: Direction) -> Result<Rows> {
        entries::check_users_name(tree)?;
        let tree = self.source().tree(tree)?.ok_or_else(|| {
            Error::new(Code::NoSuchTree, format!("there is no tree {tree}"))
                .with_hint("it is there from its first put on")
        })?;
        Ok(Rows::new(self.source().cursor(tree, range, direction)?))
    }

    /// How many keys of a range a tree of bytes holds; zero also if the tree does not exist.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a reserved name.
    fn count_bytes(&self, tree: &str, range: &KeyRange) -> Result<u64> {
        entries::check_users_name(tree)?;
        match self.source().tree(tree)? {
            Some(tree) => self.source().count(tree, range),
            None => Ok(0),
        }
    }
}
