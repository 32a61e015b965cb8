//! Migrations: documents of an earlier version are decoded as the type that wrote them, and converted.
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
//! A type is of version 1. One with `#[migrate_from(Old)]` is of the version of `Old` plus one; `Old` may
//! itself migrate from another type. Each document stores its version, so that two shapes are never confused.
//! The conversion is `From`, or `TryFrom` if it may fail. It must not change the key: documents under a new
//! key are another collection, to which they are copied.
//!
//! The first write, [`Db::register`] or [`Db::migrate`] of the new type begins the migration. From then on
//! the old program is refused. Documents are converted when they are read, and stored in the new form when
//! they are written; [`Db::migrate`] converts the rest. Until it is done, views answer `Rebuilding`: the rows
//! of a document are known only after its conversion. Tools can read all documents in their stored form, but
//! cannot write any.
//!
//! Each conversion is a write: it is in the change feed, as a put of the converted document.
//!
//! Once no database has documents of `Old` any more, `Old` can be removed. The type that migrated from it
//! keeps its number: `#[collection(version = 2)]`.

use std::fmt::Display;

use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::access::transaction::{Before, Transaction};
use crate::access::type_descriptor::TypeDescriptor;
use crate::catalog::entries::Entry;
use crate::catalog::progress::MIGRATIONS;
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Shared, Source};
use crate::value::tuple::{encode, show, successor};
use crate::value::version;

/// Documents per step: a step takes some milliseconds, so repeating one is cheap.
const STEP_DOCUMENTS: u64 = 200;

/// Documents per step in a simulation, whose databases are small.
const STEP_DOCUMENTS_SIMULATED: u64 = 5;

/// Approximate bytes of documents per step.
const STEP_BYTES: usize = 256 * 1024;

/// Conversion of documents of an older type, by `From` or `TryFrom`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has #[migrate_from({Old})], and there is no `From<{Old}>` for it",
    label = "no conversion from `{Old}`",
    note = "write `impl From<{Old}> for {Self}`, or `TryFrom` with an error that is `Display` where it may fail"
)]
pub trait MigratesFrom<Old>: Sized {
    /// Converts a document.
    ///
    /// # Errors
    /// `Unreadable` (E0213), with the error of the conversion.
    fn migrate_from(old: Old) -> Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<Old, New: TryFrom<Old, Error: Display>> MigratesFrom<Old> for New {
    fn migrate_from(old: Old) -> Result<New> {
        New::try_from(old).map_err(|error| {
            Error::new(Code::Unreadable, format!("it cannot be converted: {error}"))
                .with_hint("change the document, or the conversion")
        })
    }
}

/// A type with the same key as an older one.
#[diagnostic::on_unimplemented(
    message = "the key of `{Self}` is not that of `{Old}`, which it names in #[migrate_from]",
    label = "another key",
    note = "a conversion leaves the key as it is; for a new key copy the documents to a collection of another name"
)]
pub trait SameKey<Old> {}

#[diagnostic::do_not_recommend]
impl<Old: Collection, New: Collection<Key = Old::Key>> SameKey<Old> for New {}

/// Decodes a document of version `version` as `Old` or one of its ancestors, and converts it.
///
/// For `#[derive(Collection)]`.
///
/// # Errors
/// `Unreadable` (E0213) if it does not decode as its type, or cannot be converted.
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

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Documents checked so far.
    pub documents: u64,
    /// Documents in the collection.
    pub of: u64,
}

impl Db {
    /// Checks a type against its collection now instead of at its first call.
    ///
    /// Creates the collection, adds the type's fields and views, and begins a migration, as needed. A type
    /// with fewer fields than are stored takes none away before it writes.
    ///
    /// If a field holds a struct, an enum or a list, up to 64 documents are decoded, or 4 MiB.
    /// [`DbOptions::collection`](crate::DbOptions::collection) does the same at opening.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) if the type could not read every
    /// document, with the change to make; `ReducerMissing` (E0205) if a new view is reduced by code that is
    /// not registered.
    pub fn register<C: Collection>(&self) -> Result<()> {
        self.transact(|tx| tx.registered(TypeDescriptor::of::<C>()).map(drop))
    }

    /// Converts all documents of earlier versions, some per transaction.
    ///
    /// Readers and writers continue meanwhile. After a restart or an error it continues where it was. If
    /// nothing is left to convert, it costs one read.
    ///
    /// Each converted document is in the change feed, as after any write.
    ///
    /// Until it returns, a unique view does not refuse a second document with the key of one that is not
    /// converted yet: run it before writers are let in.
    ///
    /// # Errors
    /// As [`Db::register`], and those of [writing a document](crate::Error#documents). `Unreadable` (E0213)
    /// with the key of a document that cannot be converted, and the path of the field: correct the older type
    /// or the conversion, and call again. `UniqueViolation` (E0214) with the keys of two
    /// documents that would have the same key in a unique view: change or delete one, and call again. An
    /// error from `progress` stops the walk.
    pub fn migrate<C: Collection>(&self, mut progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        while let Some(done) = self.migrate_step::<C>()? {
            progress(&done)?;
        }
        Ok(())
    }

    /// One step of a migration, in a transaction of its own; `None` if nothing is left to convert.
    pub(crate) fn migrate_step<C: Collection>(&self) -> Result<Option<Progress>> {
        let entry = self.transact(|tx| tx.registered(TypeDescriptor::of::<C>()))?;
        if !entry.schema.is_migrating() {
            return Ok(None);
        }
        let mut at_a_time =
            if self.open_state().is_simulated { STEP_DOCUMENTS_SIMULATED } else { STEP_DOCUMENTS };
        loop {
            let step = Step::next(&self.snapshot()?, &entry, at_a_time)?;
            match self.transact(|tx| tx.migrate_step::<C>(&step)) {
                // Documents with many rows in views make the transaction too large.
                Err(error) if error.code() == Code::TooLarge && at_a_time > 1 => at_a_time /= 2,
                done => return done.map(|()| Some(step.progress)),
            }
        }
    }
}

/// The part of a collection that is converted in one transaction.
struct Step {
    version: u32,
    /// The last document that was checked.
    after: Option<Vec<u8>>,
    /// The next documents; without an end, all remaining ones.
    range: KeyRange,
    progress: Progress,
}

impl Step {
    /// The next step, as determined by a snapshot. So the transaction reads no key after the last one it
    /// needs, and does not conflict with writers there.
    fn next(state: &Snapshot, entry: &Entry, at_a_time: u64) -> Result<Step> {
        let source = state.source();
        let after = match source.tree(MIGRATIONS)? {
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

    /// The step's documents of earlier versions, converted; and the last document checked, `None` at the end
    /// of the collection.
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
            let document = codec::from_bytes::<C>(entry.schema.shapes(), key, stored)
                .and_then(|new| codec::to_bytes(&new));
            let document = document.map_err(with_way_on)?;
            bytes += document.len();
            found.push(Converted { key: key.to_vec(), document });
            if bytes >= STEP_BYTES {
                return Ok((found, Some(key.to_vec())));
            }
        }
        // The step's documents may be gone: the end of its range serves as well as the last document's key.
        Ok((found, self.range.to.clone()))
    }
}

struct Converted {
    key: Vec<u8>,
    document: Vec<u8>,
}

impl Transaction<'_> {
    /// Stores the documents of a step in their new form.
    ///
    /// The last step ends the migration in the same transaction. It has read the collection to its end, and
    /// so conflicts with writers there.
    fn migrate_step<C: Collection>(&self, step: &Step) -> Result<()> {
        let entry = self.fitted(TypeDescriptor::of::<C>())?;
        let shared = self.shared();
        let walks = match shared.tree(MIGRATIONS)? {
            Some(tree) => tree,
            None => shared.create_tree(MIGRATIONS, None)?,
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
            self.write(&entry, key, Before::Unread, Some(document))
                .map_err(|error| named(error, &entry, key))?;
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

/// The error of a document that cannot be converted, with what to do then.
fn with_way_on(error: Error) -> Error {
    let hint = format!(
        "{}; then call Db::migrate again: it goes on behind the documents that are converted",
        error.hint()
    );
    Error::new(error.code(), error.message()).with_hint(hint)
}

/// The error of a converted document that cannot be stored. An error about two documents names them already.
fn named(error: Error, entry: &Entry, key: &[u8]) -> Error {
    if !matches!(error.code(), Code::InvalidArgument | Code::KeyTooLong) {
        return error;
    }
    let message =
        format!("the document {} of {}, converted: {}", show(key), entry.schema.name(), error.message());
    Error::new(error.code(), message).with_hint(error.hint())
}
