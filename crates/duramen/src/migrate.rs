//! Types that change: documents of an earlier version are read through the type that wrote them, and converted.
//!
//! ```
//! use duramen::prelude::*;
//!
//! /// As it was: nothing but its name has changed.
//! #[derive(Serialize, Deserialize, Collection)]
//! #[collection(name = "order")]
//! struct OldOrder {
//!     #[key]
//!     id: u64,
//!     euros: f64,
//! }
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
//! #[migrate_from(OldOrder)]
//! struct Order {
//!     #[key]
//!     id: u64,
//!     cents: i64,
//! }
//!
//! impl From<OldOrder> for Order {
//!     fn from(old: OldOrder) -> Order {
//!         Order { id: old.id, cents: (old.euros * 100.0).round() as i64 }
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let db = Db::in_memory()?;
//! db.put(&OldOrder { id: 1, euros: 12.5 })?;
//! assert_eq!(db.get::<Order>(1)?, Some(Order { id: 1, cents: 1250 }));
//! db.migrate::<Order>(|_| Ok(()))?;
//! # Ok(()) }
//! ```
//!
//! A type is of version 1, and one with `#[migrate_from(Old)]` of one more than `Old`: `Old` may migrate from another, and so on. A
//! document says of which version it is, so no two shapes are ever taken for each other. The conversion is `From`, or `TryFrom`
//! where it may fail. It leaves the key as it is: documents under a new key are another collection, to which they are copied.
//!
//! The first write, [`Db::register`] or [`Db::migrate`] of the new type begins the migration. From then on the old program is
//! refused, documents are converted as they are read and stored anew as they are written, and [`Db::migrate`] does the rest. Until
//! it is done views answer `Rebuilding`: what a view says of a document is known once that is converted. Tools read all
//! documents, each as it is stored, and write none.
//!
//! Once no database has documents of `Old` any more, `Old` can go. What migrated from it keeps its number:
//! `#[collection(version = 2)]`.

use std::fmt::Display;

use crate::catalogue::Entry;
use crate::codec;
use crate::collection::Collection;
use crate::db::Db;
use crate::engine::{Direction, KeyRange, Shared, Source};
use crate::error::{Code, Error, Result};
use crate::reads::sealed::Readable;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::tuple::{encode, show, successor};
use crate::typed::Asked;
use crate::version;

/// The tree of walks: key is the encoded name of a collection, value the key of the last document that was looked at.
const WALKS: &str = "duramen/migrations";

/// So many documents a step: some milliseconds, so that a step that runs again has not cost much.
const STEP_DOCUMENTS: u64 = 200;

/// In a simulation, whose databases are small.
const STEP_DOCUMENTS_SIMULATED: u64 = 5;

/// And about so many bytes of them.
const STEP_BYTES: usize = 256 * 1024;

/// Documents of an older type can be made documents of this one: there is `From` or `TryFrom`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` says #[migrate_from({Old})], and nothing makes one of the other",
    label = "no conversion from `{Old}`",
    note = "write `impl From<{Old}> for {Self}`, or `TryFrom` with an error that is `Display` where it may fail"
)]
pub trait MigratesFrom<Old>: Sized {
    /// Converts a document.
    ///
    /// # Errors
    /// `Unreadable`, with what the conversion said.
    fn migrate_from(old: Old) -> Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<Old, New: TryFrom<Old, Error: Display>> MigratesFrom<Old> for New {
    fn migrate_from(old: Old) -> Result<New> {
        New::try_from(old).map_err(|error| {
            Error::new(Code::Unreadable, format!("it cannot be converted: {error}"))
                .with_hint("change the document, or the conversion, and go on")
        })
    }
}

/// A type whose key is that of an older one.
#[diagnostic::on_unimplemented(
    message = "the key of `{Self}` is not that of `{Old}`, from which it says #[migrate_from]",
    label = "another key",
    note = "a conversion leaves the key as it is; for a new key copy the documents to a collection of another name"
)]
pub trait SameKey<Old> {}

#[diagnostic::do_not_recommend]
impl<Old: Collection, New: Collection<Key = Old::Key>> SameKey<Old> for New {}

/// A document of version `version`, which `Old` or one of its own ancestors reads. For `#[derive(Collection)]`.
///
/// # Errors
/// `Unreadable` if it does not read as its type, or cannot be converted.
pub fn convert<Old: Collection, New: MigratesFrom<Old> + SameKey<Old>>(
    version: u32,
    document: &[u8],
) -> Result<New> {
    let old = if version == Old::VERSION {
        codec::read_body(document)?
    } else {
        Old::from_version(version, document)?
    };
    New::migrate_from(old)
}

#[cold]
pub(crate) fn unknown(version: u32) -> Error {
    Error::new(Code::Unreadable, format!("no type is known for version {version}"))
        .with_hint("a later program wrote it, or an older type is missing in the chain of #[migrate_from]")
}

/// How far a migration has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Documents that were looked at.
    pub documents: u64,
    /// Documents there are.
    pub of: u64,
}

impl Db {
    /// Holds a type against its collection now, and not at its first call: the collection is made if it is not there, grown by the
    /// type's fields and views, and its migration begins if there is one to do. [`DbOptions::collection`](crate::DbOptions::collection) does so
    /// when the database is opened.
    ///
    /// # Errors
    /// `InvalidArgument` if the type could not read every document, with what to write; those of a commit.
    pub fn register<C: Collection>(&self) -> Result<()> {
        self.transact(|tx| tx.fitted(Asked::of::<C>()).map(drop))
    }

    /// Converts the documents of earlier versions, some in a transaction, and returns once there are none. Others may read and
    /// write meanwhile. After a restart, or an error, it goes on where it was. Done already, it costs one read.
    ///
    /// Until it returns, a unique view does not refuse a second document with the key of one that is not
    /// converted yet: run it before writers are let in.
    ///
    /// # Errors
    /// `Unreadable` naming a document that cannot be converted, `UniqueViolation` naming two that would have the same key of a unique
    /// view: change or delete one, and go on. What `progress` returned: the walk stops there. Those of [`Db::register`].
    pub fn migrate<C: Collection>(&self, mut progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        while let Some(done) = self.migrate_step::<C>()? {
            progress(&done)?;
        }
        Ok(())
    }

    /// One step of a migration, in a transaction of its own; `None` if there is nothing left to do.
    pub(crate) fn migrate_step<C: Collection>(&self) -> Result<Option<Progress>> {
        let entry = self.transact(|tx| tx.fitted(Asked::of::<C>()))?;
        if !entry.schema.is_migrating() {
            return Ok(None);
        }
        let mut at_a_time =
            if self.known().is_simulated() { STEP_DOCUMENTS_SIMULATED } else { STEP_DOCUMENTS };
        loop {
            let step = Step::next(&self.snapshot()?, &entry, at_a_time)?;
            match self.transact(|tx| tx.migrate_step::<C>(&step)) {
                // Documents with many rows in views.
                Err(error) if error.code() == Code::TooLarge && at_a_time > 1 => at_a_time /= 2,
                done => return done.map(|()| Some(step.progress)),
            }
        }
    }
}

/// The part of a collection that is converted in one transaction.
struct Step {
    version: u32,
    /// The last document that was looked at.
    after: Option<Vec<u8>>,
    /// The documents to come; without an end, all that are left.
    range: KeyRange,
    progress: Progress,
}

impl Step {
    /// Where a walk goes on, by a state: the transaction then reads no key behind the last one it needs, and does not
    /// conflict with who writes there.
    fn next(state: &Snapshot, entry: &Entry, at_a_time: u64) -> Result<Step> {
        let source = state.source();
        let after = match source.tree(WALKS)? {
            Some(walks) => source.get(walks, &encode(entry.schema.name())?)?,
            None => None,
        };
        let from = after.as_deref().map_or_else(Vec::new, successor);
        let passed = source.rank(entry.tree, &from)?;
        let of = source.count(entry.tree, &KeyRange { from: Vec::new(), to: None })?;
        let last = source.nth(entry.tree, passed + at_a_time - 1)?;
        let documents = if last.is_some() { passed + at_a_time } else { of };
        let range = KeyRange { from, to: last.map(|(key, _)| successor(&key)) };
        Ok(Step { version: entry.schema.version(), after, range, progress: Progress { documents, of } })
    }

    /// The documents of the step that are of an earlier version, converted; and the last one that was looked at, `None` at
    /// the end of the collection.
    fn converted<C: Collection>(
        &self,
        tx: &Shared<'_>,
        entry: &Entry,
    ) -> Result<(Vec<Converted>, Option<Vec<u8>>)> {
        let mut cursor = tx.cursor(entry.tree, self.range.clone(), Direction::Forward)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some((key, stored)) = cursor.next()? {
            if version::split(stored)?.0 == self.version {
                continue;
            }
            let document = codec::to_bytes(&codec::from_bytes::<C>(key, stored)?)?;
            bytes += document.len();
            found.push(Converted { key: key.to_vec(), document });
            if bytes >= STEP_BYTES {
                return Ok((found, Some(key.to_vec())));
            }
        }
        // What the step was to look at may be gone: its end is as good as the last document's key.
        Ok((found, self.range.to.clone()))
    }
}

struct Converted {
    key: Vec<u8>,
    document: Vec<u8>,
}

impl Transaction<'_> {
    /// Stores the documents of a step in their new form. The last step ends the migration in the same transaction: it has read
    /// the collection to its end, and so conflicts with whoever writes there.
    fn migrate_step<C: Collection>(&self, step: &Step) -> Result<()> {
        let entry = self.fitted(Asked::of::<C>())?;
        let shared = self.shared();
        let walks = match shared.tree(WALKS)? {
            Some(tree) => tree,
            None => shared.create_tree(WALKS, None)?,
        };
        let name = encode(entry.schema.name())?;
        let is_next = entry.schema.is_migrating()
            && entry.schema.version() == step.version
            && shared.get(walks, &name)? == step.after;
        if !is_next {
            return Ok(());
        }
        let (documents, last) = step.converted::<C>(shared, &entry)?;
        for Converted { key, document } in &documents {
            self.write(&entry, key, Some(document)).map_err(|error| named(error, &entry, key))?;
        }
        let Some(last) = last else {
            let mut schema = entry.schema.clone();
            schema.end_migration();
            shared.delete(walks, &name)?;
            return self.grow(&entry, schema).map(drop);
        };
        shared.put(walks, &name, &last)
    }
}

/// The error of a converted document that cannot be stored; one about two documents names them already.
fn named(error: Error, entry: &Entry, key: &[u8]) -> Error {
    if !matches!(error.code(), Code::InvalidArgument | Code::KeyTooLong) {
        return error;
    }
    let message =
        format!("the document {} of {}, converted: {}", show(key), entry.schema.name(), error.message());
    Error::new(error.code(), message).with_hint(error.hint())
}

/// Forgets how far a migration has come: another begins, or the collection is gone.
pub(crate) fn forget(tx: &Shared<'_>, collection: &str) -> Result<()> {
    match tx.tree(WALKS)? {
        Some(walks) => tx.delete(walks, &encode(collection)?),
        None => Ok(()),
    }
}
