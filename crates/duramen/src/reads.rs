//! Everything that can be read, the same from a snapshot and inside a transaction.
//!
//! Owns the list of collections, the reads of single typed documents and of trees of bytes. Those of many typed documents
//! are in query.rs, of dynamic ones in documents_of.rs.

use std::sync::Arc;

use crate::blobs::{self, BlobsOf};
use crate::catalogue::{self, Entry};
use crate::clock::Millis;
use crate::codec;
use crate::collection::Collection;
use crate::documents_of::DocumentsOf;
use crate::engine::{Direction, KeyRange, Source};
use crate::error::{Code, Error, Result};
use crate::known::Known;
use crate::kv::{self, KvOf};
use crate::query::Query;
use crate::revision::Versioned;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::select::Select;
use crate::selection::Of;
use crate::time::Time;
use crate::tuple::{KeyFor, encode};
use crate::typed::Asked;
use crate::view::{View, ViewQuery};

pub(crate) mod sealed {
    use super::{Arc, Asked, Entry, Known, Millis, Result, Source};

    /// Where reads come from; implemented here only.
    pub trait Readable {
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn source(&self) -> &dyn Source;

        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn entry(&self, collection: &str) -> Result<Arc<Entry>>;

        /// The collection of a type, to read its documents; `None` if it is not there yet. What else the entry says may be of
        /// another state.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn fitting(&self, asked: Asked) -> Result<Option<Arc<Entry>>>;

        /// The same as the catalogue of this state says it.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn fitting_now(&self, asked: Asked) -> Result<Option<Arc<Entry>>>;

        /// What the handles of the database remember together.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn known(&self) -> &Known;

        /// Whether documents may go while the answer to a query is read: in a transaction, by its own
        /// deletes.
        fn may_change(&self) -> bool;

        /// What time it is here: one time, from the first question on.
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn now(&self) -> Millis;
    }
}

/// The reads of [`Snapshot`](crate::Snapshot) and [`Transaction`](crate::Transaction).
///
/// # Errors
/// Each fails with `NoSuchTree` for a tree of bytes that is not there, unless it says otherwise, `InvalidArgument` for a
/// name that belongs to Duramen, and with what reading the disk said.
pub trait Reads: sealed::Readable {
    /// Every collection, by name.
    fn collections(&self) -> Result<Vec<Schema>> {
        catalogue::all(self.source())
    }

    /// The typed document under a key.
    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        let key = encode(&key)?;
        let Some(entry) = self.fitting(Asked::of::<C>())? else { return Ok(None) };
        let stored = self.source().get(entry.tree, &key)?;
        stored.map(|stored| codec::from_bytes(&key, &stored)).transpose()
    }

    /// The typed document under a key, and its revision.
    fn get_versioned<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<Versioned<C>>> {
        let key = encode(&key)?;
        let Some(entry) = self.fitting(Asked::of::<C>())? else { return Ok(None) };
        let Some(stored) = self.source().get(entry.tree, &key)? else { return Ok(None) };
        let (document, revision) = (codec::from_bytes(&key, &stored)?, codec::revision::<C>(&key, &stored)?);
        Ok(Some(Versioned { document, revision }))
    }

    /// The documents of a typed collection.
    #[must_use]
    fn collection<C: Collection>(&self) -> Query<'_, C>
    where
        Self: Sized,
    {
        Query::new(Of::State(self))
    }

    /// Documents by keys of several views.
    #[must_use]
    fn select<C: Collection>(&self) -> Select<'_, C>
    where
        Self: Sized,
    {
        Select::new(Of::State(self))
    }

    /// The rows of a view.
    #[must_use]
    fn view<V: View>(&self) -> ViewQuery<'_, V>
    where
        Self: Sized,
    {
        ViewQuery::new(Of::State(self))
    }

    /// The documents of a collection by name. Whether it is there is asked at each call.
    #[must_use]
    fn documents<'a>(&'a self, name: &'a str) -> DocumentsOf<'a, Self>
    where
        Self: Sized,
    {
        DocumentsOf { within: self, name }
    }

    /// The key-values of a namespace.
    #[must_use]
    fn kv<'a>(&'a self, namespace: &'a str) -> KvOf<'a, Self>
    where
        Self: Sized,
    {
        KvOf { within: self, namespace }
    }

    /// The namespaces of key-values, by name.
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
    fn blob_namespaces(&self) -> Result<Vec<String>> {
        blobs::namespaces(self.source())
    }

    /// What time it is for what expires: one time, read at the first question about it.
    fn time(&self) -> Time {
        self.now().to_time()
    }

    /// The names of the trees of bytes.
    fn byte_trees(&self) -> Result<Vec<String>> {
        let names = self.source().tree_names()?;
        Ok(names.into_iter().filter(|name| catalogue::is_users(name)).collect())
    }

    /// The value under a key of a tree of bytes; `None` also where the tree is not there.
    fn get_bytes(&self, tree: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        catalogue::check_users_name(tree)?;
        match self.source().tree(tree)? {
            Some(tree) => self.source().get(tree, key),
            None => Ok(None),
        }
    }

    /// Keys and values of a range of a tree of bytes, lent one at a time.
    fn scan_bytes(&self, tree: &str, range: KeyRange, direction: Direction) -> Result<Rows> {
        catalogue::check_users_name(tree)?;
        let tree = self.source().tree(tree)?.ok_or_else(|| {
            Error::new(Code::NoSuchTree, format!("there is no tree {tree}"))
                .with_hint("it is there from its first put on")
        })?;
        Ok(Rows::new(self.source().cursor(tree, range, direction)?))
    }

    /// How many keys of a range a tree of bytes holds; zero also where the tree is not there.
    fn count_bytes(&self, tree: &str, range: &KeyRange) -> Result<u64> {
        catalogue::check_users_name(tree)?;
        match self.source().tree(tree)? {
            Some(tree) => self.source().count(tree, range),
            None => Ok(0),
        }
    }
}
