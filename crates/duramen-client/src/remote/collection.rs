//! The documents of a collection in a transaction that a server holds.

use duramen::error::Result;
use duramen::tuple::{Element, Key};
use duramen::{Document, Span};
use duramen_proto::{document, key, v1};

use super::transaction::{RemoteTransaction, elements, lacks};

/// The documents of a collection, without a type, in a [`RemoteTransaction`].
#[derive(Debug)]
pub struct RemoteDocuments<'t, 'c> {
    transaction: &'t mut RemoteTransaction<'c>,
    collection: &'t str,
}

impl<'t, 'c> RemoteDocuments<'t, 'c> {
    pub(super) fn new(
        transaction: &'t mut RemoteTransaction<'c>,
        collection: &'t str,
    ) -> RemoteDocuments<'t, 'c> {
        RemoteDocuments { transaction, collection }
    }

    /// The document of a key.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads), and of the writes before it; `NoSuchTree` (E0901);
    /// `Unreachable` (E1111).
    pub fn get(&mut self, key: impl Key) -> Result<Option<Document>> {
        self.get_elements(&elements(&key)?)
    }

    pub(super) fn get_elements(&mut self, key: &[Element]) -> Result<Option<Document>> {
        match self.transaction.read(v1::read::Kind::Get(self.key_of(key)))? {
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
    pub fn count(&mut self, span: Span) -> Result<u64> {
        let range = Some(key::of_span(span));
        let of = v1::RangeOf { collection: self.collection.to_owned(), range, view: String::new() };
        match self.transaction.read(v1::read::Kind::Count(of))? {
            v1::read_result::Kind::Number(count) => Ok(count),
            _ => Err(lacks("count")),
        }
    }

    /// Stores a document; replaces any with the same key.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for what is no document. Errors of the write come with the next read, or
    /// with the commit.
    pub fn put(&mut self, document: &Document) -> Result<()> {
        let put = self.put_of(document)?;
        self.transaction.write(v1::operation::Kind::Put(put))
    }

    /// Stores a document, if there is none with the same key: else that is `AlreadyExists` (E0210).
    ///
    /// # Errors
    /// As [`RemoteDocuments::put`].
    pub fn insert(&mut self, document: &Document) -> Result<()> {
        let put = self.put_of(document)?;
        self.transaction.write(v1::operation::Kind::Insert(put))
    }

    /// Deletes the document of a key, if there is one.
    ///
    /// # Errors
    /// As [`RemoteDocuments::put`].
    pub fn delete(&mut self, key: impl Key) -> Result<()> {
        self.delete_elements(&elements(&key)?)
    }

    pub(super) fn delete_elements(&mut self, key: &[Element]) -> Result<()> {
        let key = self.key_of(key);
        self.transaction.write(v1::operation::Kind::Delete(key))
    }

    fn put_of(&self, document: &Document) -> Result<v1::PutDocument> {
        Ok(v1::PutDocument {
            collection: self.collection.to_owned(),
            document: Some(document::of(document, v1::DocumentForm::Msgpack)?),
            want_before: false,
        })
    }

    fn key_of(&self, elements: &[Element]) -> v1::DocumentKey {
        v1::DocumentKey { collection: self.collection.to_owned(), key: Some(key::of(elements)) }
    }
}
