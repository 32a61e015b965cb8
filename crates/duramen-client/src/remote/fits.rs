//! The types that were fitted to collections of the server.
//!
//! Owns what is known of each: the definition of its collection, and the mark that goes with its calls. The
//! server refuses a call whose mark is not that of the definition any more; then it is read again.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use duramen::Schema;
use duramen::error::{Code, Result};
use duramen::wire::StoredType;
use duramen_proto::v1;

use super::repeatable;
use super::transaction::lacks;
use crate::client::Client;

/// The collection of a type, as it was fitted.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    /// `None` if it does not exist.
    pub(super) schema: Option<Arc<Schema>>,
    /// Empty if it does not exist.
    pub(super) mark: Bytes,
    /// Whether the collection has all that the type declares.
    may_write: bool,
}

/// Shared by the transactions of a connection.
#[derive(Debug)]
pub(super) struct Fits {
    client: Client,
    known: Mutex<HashMap<TypeId, (&'static str, Fitted)>>,
}

impl Fits {
    pub(super) fn new(client: Client) -> Fits {
        Fits { client, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TypeId, (&'static str, Fitted)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is known of a collection.
    pub(super) fn forget(&self, collection: &str) {
        self.lock().retain(|_, (name, _)| *name != collection);
    }

    /// The collection of a type that reads.
    ///
    /// # Errors
    /// As [`StoredType::check`]; those of a call.
    pub(super) fn reading(&self, of: StoredType) -> Result<Fitted> {
        if let Some((_, fitted)) = self.lock().get(&of.id()) {
            return Ok(fitted.clone());
        }
        let fitted = match self.client.collections(vec![of.name().to_owned()]) {
            Ok(collections) => {
                let collection = collections.into_iter().next().ok_or_else(|| lacks("collection"))?;
                let fitted = Fitted::of(&collection, false)?;
                if let Some(schema) = &fitted.schema {
                    of.check(schema, &|| Ok(self.count(of)? == 0))?;
                }
                fitted
            }
            Err(error) if error.code() == Code::NoSuchTree => {
                Fitted { schema: None, mark: Bytes::new(), may_write: false }
            }
            Err(error) => return Err(error),
        };
        self.remember(of, &fitted);
        Ok(fitted)
    }

    /// The collection of a type that writes. It gets what the type declares.
    ///
    /// # Errors
    /// As [`Fits::reading`]; those of [`duramen::Transaction::put`].
    pub(super) fn writing(&self, of: StoredType) -> Result<Fitted> {
        let known = self.reading(of)?;
        if known.may_write {
            return Ok(known);
        }
        if let Some(schema) = &known.schema
            && of.looks_inside(schema)
        {
            of.read_sample(self.count(of)?, |index| self.nth(of, index))?;
        }
        let definitions = of.definitions()?.into_iter().map(Bytes::from).collect();
        let request = v1::EnsureTypeRequest { definitions, level: v1::Level::Disk.into() };
        // Nothing of the caller was sent.
        let reply = self.client.ensure_type(request).map_err(repeatable)?;
        let fitted = Fitted::of(&reply.collection.ok_or_else(|| lacks("collection"))?, true)?;
        self.remember(of, &fitted);
        Ok(fitted)
    }

    fn remember(&self, of: StoredType, fitted: &Fitted) {
        self.lock().insert(of.id(), (of.name(), fitted.clone()));
    }

    fn count(&self, of: StoredType) -> Result<u64> {
        let of = v1::RangeOf { collection: of.name().to_owned(), ..v1::RangeOf::default() };
        match self.one(v1::read::Kind::Count(of))? {
            v1::read_result::Kind::Number(count) => Ok(count),
            _ => Err(lacks("count")),
        }
    }

    fn nth(&self, of: StoredType, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (collection, with_documents) = (of.name().to_owned(), true);
        let rows = v1::RowsOf { collection, with_documents, skip: index, limit: 1, ..v1::RowsOf::default() };
        match self.one(v1::read::Kind::Rows(rows))? {
            v1::read_result::Kind::Rows(found) => {
                Ok(found.rows.into_iter().next().map(|row| (row.key.to_vec(), row.document.to_vec())))
            }
            _ => Err(lacks("document")),
        }
    }

    fn one(&self, kind: v1::read::Kind) -> Result<v1::read_result::Kind> {
        let reads = vec![v1::Read { kind: Some(kind) }];
        let reply = self.client.read(v1::ReadRequest { reads, ..v1::ReadRequest::default() })?;
        reply.results.into_iter().next().and_then(|result| result.kind).ok_or_else(|| lacks("result"))
    }
}

impl Fitted {
    fn of(collection: &v1::Collection, may_write: bool) -> Result<Fitted> {
        let schema = Some(Arc::new(Schema::from_bytes(&collection.definition)?));
        Ok(Fitted { schema, mark: collection.mark.clone(), may_write })
    }

    /// What a call of the type carries.
    pub(super) fn mark_of(&self, of: StoredType) -> v1::SchemaMark {
        v1::SchemaMark { collection: of.name().to_owned(), mark: self.mark.clone() }
    }
}
