//! Writes of typed documents.
//!
//! Owns the typed methods of a [`Transaction`]: which of them read before they write, and what they return.
//! The shorthands of [`Db`](crate::Db) are in typed/auto_commit.rs.

use crate::access::codec::{self, Stored};
use crate::access::collection::{AssignedKey, Collection, IdKey, IdOrder};
use crate::access::documents::writes::already_there;
use crate::access::reads::Reads;
use crate::access::revision::{ReplaceError, Revision, Versioned};
use crate::access::transaction::{Before, Transaction};
use crate::access::type_descriptor::TypeDescriptor;
use crate::catalog::ids;
use crate::store::error::{Code, Error, Result};
use crate::value::range::IntoSpan;
use crate::value::tuple::{KeyFor, encode, show};

impl Transaction<'_> {
    /// Stores a document, replacing any with its key.
    ///
    /// # Errors
    /// Those of [writing a document](crate::Error#documents); `InvalidArgument` (E0201) if it cannot be
    /// stored, or the collection in the database does not fit its type; `KeyTooLong` (E0202);
    /// `ReducerMissing` (E0205) if a new view is reduced by code that is not registered.
    pub fn put<C: Collection>(&mut self, document: &C) -> Result<()> {
        let Stored { key, document } = codec::store(document)?;
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        self.write(&entry, &key, Before::Unread, Some(&document))
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `AlreadyExists` (E0210) if there is one.
    pub fn insert<C: Collection>(&mut self, document: &C) -> Result<()> {
        let Stored { key, document } = codec::store(document)?;
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        if self.stored(&entry, &key)?.is_some() {
            return Err(already_there(C::NAME, &key));
        }
        self.write(&entry, &key, Before::Read(None), Some(&document))
    }

    /// Replaces the document with the same key, which must exist.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `NoSuchKey` (E0903) if there is none.
    pub fn update<C: Collection>(&mut self, document: &C) -> Result<()> {
        let Stored { key, document } = codec::store(document)?;
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        let before = self.stored(&entry, &key)?;
        if before.is_none() {
            return Err(Error::new(Code::NoSuchKey, format!("{} has no document {}", C::NAME, show(&key)))
                .with_hint("put() stores it whether or not there is one"));
        }
        self.write(&entry, &key, Before::Read(before.as_deref()), Some(&document))
    }

    /// Replaces a document if its revision has not changed since it was read.
    ///
    /// Of two concurrent edits of the same document, the second fails.
    ///
    /// Returns the new revision.
    ///
    /// # Errors
    /// [`ReplaceError::Changed`] with the document as it is now; else as [`Transaction::put`], also
    /// `Unreadable` (E0213) if that document does not decode as its type.
    pub fn replace<C: Collection>(
        &mut self,
        document: &C,
        revision: Revision,
    ) -> std::result::Result<Revision, ReplaceError<C>> {
        let Stored { key, document } = codec::store(document)?;
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        let stored = self.stored(&entry, &key)?;
        let shapes = entry.schema.shapes();
        let now = stored.as_deref().map(|stored| codec::revision::<C>(shapes, &key, stored)).transpose()?;
        if now != Some(revision) {
            let versioned = |stored: Vec<u8>| {
                let (document, revision) =
                    (codec::from_bytes(shapes, &key, &stored)?, codec::revision::<C>(shapes, &key, &stored)?);
                Ok::<_, Error>(Box::new(Versioned { document, revision }))
            };
            return Err(ReplaceError::Changed(stored.map(versioned).transpose()?));
        }
        self.write(&entry, &key, Before::Read(stored.as_deref()), Some(&document))?;
        Ok(Revision::of(&document))
    }

    /// Changes a document in place and returns the new document; `None` if there is none.
    ///
    /// # Errors
    /// What `change` returned; `InvalidArgument` (E0201) if it changed the key; `Unreadable` (E0213) if the
    /// document does not decode as its type; else as [`Transaction::put`].
    pub fn modify<C: Collection>(
        &mut self,
        key: impl KeyFor<C::Key>,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<Option<C>> {
        let key = encode(&key)?;
        if self.fits(TypeDescriptor::of::<C>())?.is_none() {
            return Ok(None);
        }
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        let Some(stored) = self.stored(&entry, &key)? else { return Ok(None) };
        let mut document: C = codec::from_bytes(entry.schema.shapes(), &key, &stored)?;
        change(&mut document)?;
        let changed = codec::store(&document)?;
        if changed.key != key {
            return Err(Error::invalid(format!(
                "the document {} of {} was to be changed, and its key was changed to {}",
                show(&key),
                C::NAME,
                show(&changed.key)
            ))
            .with_hint("to give a document another key, delete it and put it under the new one"));
        }
        if !codec::is_stored::<C>(entry.schema.shapes(), &stored, &changed.document)? {
            self.write(&entry, &key, Before::Read(Some(&stored)), Some(&changed.document))?;
        }
        Ok(Some(document))
    }

    /// Changes the document with the key of `or_else`, or stores `or_else` if there is none.
    ///
    /// # Errors
    /// As [`Transaction::modify`].
    pub fn upsert<C: Collection>(
        &mut self,
        or_else: &C,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<()> {
        match self.modify::<C>(or_else.key(), change)? {
            Some(_) => Ok(()),
            None => self.put(or_else),
        }
    }

    /// Assigns a new key to a document, stores it, and returns it. The key was never assigned before.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` (E0201) when the ids have run out.
    pub fn push<C: AssignedKey>(&mut self, mut document: C) -> Result<C> {
        self.push_in(&mut document)?;
        Ok(document)
    }

    /// As [`Transaction::push`], but borrows the document, which a retry of the transaction needs again.
    pub(crate) fn push_in<C: AssignedKey>(&mut self, document: &mut C) -> Result<()> {
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        loop {
            let id = match C::ORDER {
                IdOrder::Spread => self.spread_id(C::NAME, entry.tree)?,
                IdOrder::Sequential => {
                    self.last_id(entry.tree)?.checked_add(1).ok_or_else(|| ids::run_out(C::NAME))?
                }
            };
            document.set_key(C::Key::from_id(id).ok_or_else(|| ids::run_out(C::NAME))?);
            let Stored { key, document: stored } = codec::store(document)?;
            if self.stored(&entry, &key)?.is_none() {
                return self.write(&entry, &key, Before::Read(None), Some(&stored));
            }
            // A program stored this key itself. No key follows the last one, so the second round is the last.
            self.pass_ids(C::NAME, entry.tree)?;
        }
    }

    /// Deletes a document. Returns whether it was there.
    ///
    /// What refers to it follows: [`Transaction::followed`] counts that.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes), of these `TooLarge` (E0203) if more than 10,000 documents
    /// follow; `InvalidArgument` (E0201) if the collection in the database does not fit the type;
    /// `KeyTooLong` (E0202); `Rebuilding` (E0802) while a reference to it is being checked.
    pub fn delete<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<bool> {
        let key = encode(&key)?;
        let Some(entry) = self.fits(TypeDescriptor::of::<C>())? else { return Ok(false) };
        let before = self.stored(&entry, &key)?;
        if before.is_none() {
            return Ok(false);
        }
        self.write(&entry, &key, Before::Read(before.as_deref()), None)?;
        Ok(true)
    }

    /// Deletes a document and returns it.
    ///
    /// # Errors
    /// As [`Transaction::delete`]; `Unreadable` (E0213) if the document does not decode as its type.
    pub fn take<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        let taken = self.get::<C>(&key)?;
        if taken.is_some() {
            self.delete::<C>(key)?;
        }
        Ok(taken)
    }

    /// Deletes the first documents of a range, at most `at_most`. Returns how many were deleted.
    ///
    /// Fewer than `at_most` means that none is left. Delete large ranges in several transactions this way.
    ///
    /// # Errors
    /// As [`Transaction::delete`]; `TooLarge` (E0203) for more than a transaction can hold.
    pub fn delete_range<C: Collection>(&mut self, range: impl IntoSpan<C::Key>, at_most: u64) -> Result<u64> {
        let span = range.into_span()?;
        let Some(entry) = self.fits(TypeDescriptor::of::<C>())? else { return Ok(0) };
        self.delete_span(&entry, span, at_most)
    }
}
