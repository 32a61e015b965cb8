//! The documents of a collection in a transaction that a server holds.

use duramen::error::Result;
use duramen::tuple::Key;
use duramen::{Document, Span};
use duramen_proto::{document, key, v1};

use super::kv;
use super::transaction::{RemoteTransaction, elements, lacks};

/// The documents of a collection, without a type, in a [`RemoteTransaction`].
#[derive(Debug)]
pub struct RemoteDocuments<'t> {
    transaction: &'t RemoteTransaction,
    collection: &'t str,
}

impl<'t> RemoteDocuments<'t> {
    pub(super) fn new(transaction: &'t RemoteTransaction, collection: &'t str) -> RemoteDocuments<'t> {
        RemoteDocuments { transaction, collection }
    }

    /// The document of a key.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads), and of the writes before it; `NoSuchTree` (E0901);
    /// `Unreachable` (E1111).
    pub fn get(&self, key: impl Key) -> Result<Option<Document>> {
        match self.transaction.session().read(v1::read::Kind::Get(self.key_of(&key)?))? {
            v1::read_result::Kind::Found(v1::Found { document: None }) => Ok(None),
            v1::read_result::Kind::Found(v1::Found { document }) => {
                document::required(document.as_ref()).map(Some)
            }
            _ => Err(lacks("document")),
        }
    }

    /// How many documents a range has.
    ///
    /// # Errors
    /// As [`RemoteDocuments::get`].
    pub fn count(&self, span: Span) -> Result<u64> {
        let range = Some(key::of_span(span));
        let collection = self.collection.to_owned();
        let of = v1::RangeOf { collection, range, ..v1::RangeOf::default() };
        match self.transaction.session().read(v1::read::Kind::Count(of))? {
            v1::read_result::Kind::Number(count) => Ok(count),
            _ => Err(lacks("count")),
        }
    }

    /// Stores a document; replaces any with the same key.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for what is no document. Errors of the write come with the next read, or
    /// with the commit.
    pub fn put(&self, document: &Document) -> Result<()> {
        let put = self.put_of(document)?;
        self.transaction.session().write(v1::operation::Kind::Put(put))
    }

    /// Stores a document, if there is none with the same key: else that is `AlreadyExists` (E0210).
    ///
    /// # Errors
    /// As [`RemoteDocuments::put`].
    pub fn insert(&self, document: &Document) -> Result<()> {
        let put = self.put_of(document)?;
        self.transaction.session().write(v1::operation::Kind::Insert(put))
    }

    /// Deletes the document of a key. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a [write](duramen::Error#writes), and of the writes before it; `NoSuchTree` (E0901);
    /// `Unreachable` (E1111).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        let delete = v1::operation::Kind::Delete(self.key_of(&key)?);
        kv::was_deleted(&self.transaction.session().write_now(delete)?)
    }

    fn put_of(&self, document: &Document) -> Result<v1::PutDocument> {
        Ok(v1::PutDocument {
            collection: self.collection.to_owned(),
            document: Some(document::of(document, v1::DocumentForm::Msgpack)?),
            want_before: false,
        })
    }

    fn key_of(&self, key: &impl Key) -> Result<v1::DocumentKey> {
        let key = Some(key::of(&elements(key)?));
        Ok(v1::DocumentKey { collection: self.collection.to_owned(), key })
    }
}
