//! Everything that can be read, the same from a snapshot and inside a transaction.
//!
//! Owns the reads of documents by name of collection. Counts, ranks and reductions are answered from the nodes of
//! the tree in O(log n), never by a scan.

use std::sync::Arc;

use crate::catalogue::{self, Entry};
use crate::document::Document;
use crate::engine::{Direction, KeyRange, Source};
use crate::error::{Code, Error, Result};
use crate::rows::{Documents, Rows};
use crate::schema::Schema;
use crate::span::Span;
use crate::sums::FieldSum;
use crate::tuple::{Key, encode};

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

pub(crate) mod sealed {
    use super::{Arc, Entry, Result, Source};

    /// Where reads come from; implemented here only.
    pub trait Readable {
        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn source(&self) -> &dyn Source;

        #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
        fn entry(&self, collection: &str) -> Result<Arc<Entry>>;
    }
}

/// The reads of [`Snapshot`](crate::Snapshot) and [`Transaction`](crate::Transaction).
///
/// # Errors
/// Each fails with `NoSuchTree` for an unknown collection, `KeyTooLong` for a key beyond 1,024 bytes, and with what
/// reading the disk said.
pub trait Reads: sealed::Readable {
    /// Every collection, by name.
    fn collections(&self) -> Result<Vec<Schema>> {
        catalogue::all(self.source())
    }

    /// What the catalogue says about a collection.
    fn schema(&self, collection: &str) -> Result<Schema> {
        Ok(self.entry(collection)?.schema.clone())
    }

    /// The document under a key.
    fn get(&self, collection: &str, key: impl Key) -> Result<Option<Document>> {
        let tree = self.entry(collection)?.tree;
        let stored = self.source().get(tree, &encode(&key)?)?;
        stored.as_deref().map(Document::from_bytes).transpose()
    }

    /// The documents of a range, in order of their keys.
    fn scan(&self, collection: &str, span: Span) -> Result<Documents> {
        let tree = self.entry(collection)?.tree;
        Ok(Documents::new(self.source().cursor(tree, span.into_bytes(), Direction::Forward)?))
    }

    /// The stored documents of a range, either way, lent one at a time.
    fn rows(&self, collection: &str, span: Span, direction: Direction) -> Result<Rows> {
        let tree = self.entry(collection)?.tree;
        Ok(Rows::new(self.source().cursor(tree, span.into_bytes(), direction)?))
    }

    /// How many documents a range holds.
    fn count(&self, collection: &str, span: Span) -> Result<u64> {
        let tree = self.entry(collection)?.tree;
        self.source().count(tree, &span.into_bytes())
    }

    /// How many documents have a smaller key; where the key is or would be.
    fn rank(&self, collection: &str, key: impl Key) -> Result<u64> {
        let tree = self.entry(collection)?.tree;
        self.source().rank(tree, &encode(&key)?)
    }

    /// The document with this many before it.
    fn nth(&self, collection: &str, index: u64) -> Result<Option<Document>> {
        let tree = self.entry(collection)?.tree;
        let found = self.source().nth(tree, index)?;
        found.map(|(_, stored)| Document::from_bytes(&stored)).transpose()
    }

    /// Count and sums over a range.
    fn reduce(&self, collection: &str, span: Span) -> Result<Reduction> {
        let entry = self.entry(collection)?;
        let range = span.into_bytes();
        let reducer = entry.schema.reducer()?;
        if reducer.fields().is_empty() {
            return Ok(Reduction { count: self.source().count(entry.tree, &range)?, sums: Vec::new() });
        }
        let reduced = self.source().reduce(entry.tree, &range)?;
        let sums = reducer.decode(&reduced.value.unwrap_or_default())?;
        Ok(Reduction { count: reduced.count, sums: reducer.fields().iter().cloned().zip(sums).collect() })
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
