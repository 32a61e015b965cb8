//! Deletes a document, and does to those that refer to it what their references say (decision 0032).
//!
//! Owns the set of documents that a delete reaches, and its limit. A queue takes the place of recursion. A
//! document is in it once, by however many references it is reached. Fields are cleared last, so a document
//! that is deleted is not stored without its fields before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::errors::too_many;
use super::{Cause, FOLLOWED_MAX, check_complete, range_of};
use crate::access::reads::sealed::Readable;
use crate::access::transaction::{Before, Transaction};
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::reference::{self, OnDelete, Referrer};
use crate::store::Direction;
use crate::store::error::Result;
use crate::value::version;

/// Keys of documents by collection.
#[derive(Debug, Default)]
struct Places {
    keys: BTreeMap<String, BTreeSet<Vec<u8>>>,
    count: u64,
}

impl Places {
    /// Adds a document. Returns whether it is new.
    fn add(&mut self, collection: &str, key: &[u8]) -> bool {
        if self.has(collection, key) {
            return false;
        }
        self.keys.entry(collection.to_owned()).or_default().insert(key.to_vec());
        self.count += 1;
        true
    }

    fn has(&self, collection: &str, key: &[u8]) -> bool {
        self.keys.get(collection).is_some_and(|keys| keys.contains(key))
    }

    fn remove(&mut self, collection: &str, key: &[u8]) {
        self.count -= u64::from(self.keys.get_mut(collection).is_some_and(|keys| keys.remove(key)));
    }
}

/// A delete, and what it reaches.
struct Cascade<'t, 'd> {
    tx: &'t Transaction<'d>,
    /// The document that was to be deleted.
    root: (&'t Entry, &'t [u8]),
    /// What earlier deletes of the transaction reached.
    before: u64,
    /// Documents that are deleted, the first one included.
    deleted: Places,
    /// Of those, the ones that are still there.
    next: VecDeque<(String, Vec<u8>)>,
    /// Other documents, whose fields are to be cleared.
    cleared: Places,
}

/// Deletes a document that others may refer to, and does to those what their references say. Returns whether
/// it was there.
///
/// # Errors
/// `Rebuilding` if a reference to it is not checked yet; `TooLarge` for more than [`FOLLOWED_MAX`] documents.
pub(crate) fn delete(tx: &Transaction<'_>, entry: &Entry, key: &[u8]) -> Result<bool> {
    let Some(stored) = tx.stored(entry, key)? else { return Ok(false) };
    let followed = tx.unsettled().borrow().followed;
    let mut cascade = Cascade {
        tx,
        root: (entry, key),
        before: followed.cascaded + followed.cleared,
        deleted: Places::default(),
        next: VecDeque::new(),
        cleared: Places::default(),
    };
    cascade.deleted.add(entry.schema.name(), key);
    tx.write_one(entry, key, Before::Read(Some(&stored)), None)?;
    cascade.follow(entry, key)?;
    while let Some((collection, key)) = cascade.next.pop_front() {
        let entry = tx.entry(&collection)?;
        let Some(stored) = tx.stored(&entry, &key)? else { continue };
        tx.write_one(&entry, &key, Before::Read(Some(&stored)), None)?;
        tx.unsettled().borrow_mut().followed.cascaded += 1;
        cascade.follow(&entry, &key)?;
    }
    cascade.clear()?;
    Ok(true)
}

impl Cascade<'_, '_> {
    /// Notes what is to be done to the documents that refer to a deleted one.
    fn follow(&mut self, target: &Entry, key: &[u8]) -> Result<()> {
        let tx = self.tx;
        for Referrer { collection, field } in target.schema.referred_by() {
            let entry = tx.entry(collection)?;
            let (Some(reference), Some(view)) = (entry.schema.reference_of(field), entry.kept_view(field))
            else {
                continue;
            };
            check_complete(tx, &entry, view)?;
            match reference.action() {
                OnDelete::Restrict if super::referring(tx, view, key, 1)?.is_empty() => {}
                OnDelete::Restrict => {
                    let key = (target.schema.name().to_owned(), key.to_vec());
                    tx.unsettled().borrow_mut().keys.insert(key, Cause::Deleted);
                }
                action => self.reach(view, key, collection, action)?,
            }
        }
        Ok(())
    }

    /// Adds the documents that refer to a key to those that are deleted or cleared.
    ///
    /// The rows of a key are of different documents, so no more are read than the limit allows documents.
    fn reach(&mut self, view: &OpenView, key: &[u8], collection: &str, action: OnDelete) -> Result<()> {
        let mut cursor = self.tx.source().cursor(view.tree, range_of(key), Direction::Forward)?;
        while let Some(row) = cursor.next_key()? {
            let referring = &row[key.len()..];
            if action == OnDelete::Clear {
                if !self.deleted.has(collection, referring) {
                    self.cleared.add(collection, referring);
                }
            } else if self.deleted.add(collection, referring) {
                self.cleared.remove(collection, referring);
                self.next.push_back((collection.to_owned(), referring.to_vec()));
            }
            // The first document is not counted.
            if self.before + self.deleted.count - 1 + self.cleared.count > FOLLOWED_MAX {
                return Err(too_many(self.root.0, self.root.1, self.before > 0));
            }
        }
        Ok(())
    }

    /// Takes the deleted documents out of the fields that refer to them.
    fn clear(&self) -> Result<()> {
        let documents = self.cleared.keys.iter();
        for (collection, key) in documents.flat_map(|(name, keys)| keys.iter().map(move |key| (name, key))) {
            let entry = self.tx.entry(collection)?;
            let Some(stored) = self.tx.stored(&entry, key)? else { continue };
            let mut document = version::split(&stored)?.1.to_vec();
            let references = entry.schema.references().iter();
            for reference in references.filter(|reference| reference.action() == OnDelete::Clear) {
                let is_gone = |target: &[u8]| self.deleted.has(reference.to(), target);
                document = reference::cleared(reference, &entry.schema, &document, &is_gone)?;
            }
            self.tx.write_one(&entry, key, Before::Read(Some(&stored)), Some(&document))?;
            self.tx.unsettled().borrow_mut().clears(collection, key);
        }
        Ok(())
    }
}
