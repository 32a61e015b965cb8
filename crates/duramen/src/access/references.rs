//! Enforces references: a document refers only to documents that are there (decision 0032).
//!
//! Each reference has a view that the database keeps, with a row for each key that a document refers to.
//! Every row of it has its target: writers and the walk that builds it check that before they add a row, and
//! a delete of the target acts on the rows that it finds. Both read what the other writes, so of two
//! concurrent transactions one conflicts.
//!
//! A target that is missing when a document is stored, and rows that are left when a target is deleted, are
//! looked at again at the commit. So the order of writes inside a transaction does not matter.

mod cascade;
mod errors;
mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use cascade::delete;
pub(crate) use errors::dangling;
use errors::still_referenced;
pub(crate) use link::{check_target, link, unlink_dropped};

use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::access::views::maintain::Changes;
use crate::access::views::state::{ViewPhase, state_of};
use crate::access::views::{build, failures};
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::reference::{Reference, Referrer};
use crate::catalog::rows::rows;
use crate::catalog::schema::Schema;
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange};
use crate::value::tuple::prefix_end;
use crate::view::spec::ViewSpec;

/// The maximum number of documents that deletes of one transaction delete or change through references.
pub(crate) const FOLLOWED_MAX: u64 = 10_000;

/// Documents that an error names.
const NAMED_MAX: usize = 5;

/// What deletes of a transaction did to documents that referred to the deleted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Followed {
    /// Documents that were deleted with them (`on_delete = cascade`).
    pub cascaded: u64,
    /// Documents of which a field or several were cleared (`on_delete = clear`).
    pub cleared: u64,
}

/// What a delete did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Documents that the call named and that were there.
    pub documents: u64,
    /// What it did to documents that referred to them.
    pub followed: Followed,
}

/// A reference of a collection, and how far it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceState {
    /// The collection whose documents refer.
    pub collection: String,
    /// The reference.
    pub reference: Reference,
    /// Whether every document was checked, or how many were.
    pub phase: ViewPhase,
    /// The error of the last attempt to check them, as text. The background work retries.
    pub failed: Option<String>,
}

impl ReferenceState {
    /// Whether every document was checked.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.phase == ViewPhase::Ready
    }
}

/// What a transaction must still find out before it commits.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Keys of collections under which there must be a document or no reference to one.
    keys: BTreeMap<(String, Vec<u8>), Cause>,
    pub(crate) followed: Followed,
    /// Documents whose fields were cleared: one is counted once.
    cleared: BTreeSet<(String, Vec<u8>)>,
}

impl Unsettled {
    /// Counts a document whose field was cleared.
    fn clears(&mut self, collection: &str, key: &[u8]) {
        let is_new = self.cleared.insert((collection.to_owned(), key.to_vec()));
        self.followed.cleared += u64::from(is_new);
    }
}

/// Why a key is looked at again.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// A document was stored that refers to it.
    Stored,
    /// The document under it was deleted.
    Deleted,
}

/// The references of a collection, and how far each is checked.
pub(crate) fn states(state: &dyn Readable, entry: &Entry) -> Result<Vec<ReferenceState>> {
    let mut states = Vec::new();
    for reference in entry.schema.references() {
        let Some(view) = entry.kept_view(reference.field()) else { continue };
        let of_view = state_of(state, entry, view)?;
        states.push(ReferenceState {
            collection: of_view.collection,
            reference: reference.clone(),
            phase: of_view.phase,
            failed: of_view.failed,
        });
    }
    Ok(states)
}

/// Checks that the documents exist that a stored document refers to. A missing one is looked up again at the
/// commit.
pub(crate) fn require_targets(
    tx: &Transaction<'_>,
    entry: &Entry,
    changes: &Changes<'_>,
    key: &[u8],
) -> Result<()> {
    each_missing(tx, entry, changes, key, |reference, target| {
        let key = (reference.to().to_owned(), target.to_vec());
        tx.unsettled().borrow_mut().keys.entry(key).or_insert(Cause::Stored);
        Ok(())
    })
}

/// Checks the targets of rows that a walk adds.
///
/// # Errors
/// `MissingTarget`, naming the document.
pub(crate) fn check_targets(
    tx: &Transaction<'_>,
    entry: &Entry,
    changes: &Changes<'_>,
    key: &[u8],
) -> Result<()> {
    each_missing(tx, entry, changes, key, |reference, target| {
        Err(dangling(entry, reference, 1, &[(key.to_vec(), target.to_vec())]))
    })
}

/// Calls `found` with each key that the new rows of a document refer to and that no document has.
fn each_missing(
    tx: &Transaction<'_>,
    entry: &Entry,
    changes: &Changes<'_>,
    key: &[u8],
    mut found: impl FnMut(&Reference, &[u8]) -> Result<()>,
) -> Result<()> {
    for (view, target) in changes.targets(key) {
        let Some(reference) = entry.schema.reference_of(&view.spec.name) else { continue };
        if !exists(tx, reference.to(), target)? {
            found(reference, target)?;
        }
    }
    Ok(())
}

fn exists(state: &dyn Readable, collection: &str, key: &[u8]) -> Result<bool> {
    let entry = match state.entry(collection) {
        Err(error) if error.code() == Code::NoSuchTree => return Ok(false),
        entry => entry?,
    };
    Ok(state.source().get(entry.tree, key)?.is_some())
}

/// Checks that the rows of a reference's view are those of all documents.
///
/// A reference whose check failed has rows of the documents that were checked, and of those stored since. It
/// stays so until the missing documents are put or the reference is dropped; deletes must go on meanwhile.
fn check_complete(tx: &Transaction<'_>, entry: &Entry, view: &OpenView) -> Result<()> {
    let (collection, field) = (entry.schema.name(), &view.spec.name);
    if entry.schema.is_migrating() {
        let message = format!(
            "it is not known which documents of {collection} refer to the deleted one by {field}: they are to be migrated"
        );
        return Err(Error::new(Code::Rebuilding, message)
            .with_hint("Db::migrate converts them and reports its progress; then delete again"));
    }
    if view.spec.ready || failures::is_stored(tx.shared(), collection, &view.spec)? {
        return Ok(());
    }
    let progress = build::progress(tx.source(), entry, &view.spec)?;
    let message = format!(
        "it is not known which documents of {collection} refer to the deleted one by {field}: {} of {} are checked",
        progress.documents, progress.of
    );
    Err(Error::new(Code::Rebuilding, message).with_hint(
        "they are being checked in the background; Db::build_views waits until they are; then delete again",
    ))
}

/// The keys of the first documents that refer to a key.
fn referring(tx: &Transaction<'_>, view: &OpenView, key: &[u8], at_most: usize) -> Result<Vec<Vec<u8>>> {
    let mut cursor = tx.source().cursor(view.tree, range_of(key), Direction::Forward)?;
    let mut found = Vec::new();
    while found.len() < at_most
        && let Some(row) = cursor.next_key()?
    {
        found.push(row[key.len()..].to_vec());
    }
    Ok(found)
}

/// The rows of documents that refer to a key.
fn range_of(key: &[u8]) -> KeyRange {
    KeyRange { from: key.to_vec(), to: Some(prefix_end(key)) }
}

/// Checks what a transaction left to its commit.
///
/// # Errors
/// `MissingTarget` or `StillReferenced`.
#[inline]
pub(crate) fn settle(tx: &Transaction<'_>) -> Result<()> {
    if tx.unsettled().borrow().keys.is_empty() {
        return Ok(());
    }
    settle_keys(tx)
}

#[cold]
fn settle_keys(tx: &Transaction<'_>) -> Result<()> {
    let keys = std::mem::take(&mut tx.unsettled().borrow_mut().keys);
    for ((collection, key), cause) in keys {
        if exists(tx, &collection, &key)? {
            continue;
        }
        let Some(target) = tx.find(&collection)? else { continue };
        let mut left = Vec::new();
        let mut total = 0;
        for Referrer { collection, field } in target.schema.referred_by() {
            let entry = tx.entry(collection)?;
            let Some(view) = entry.kept_view(field) else { continue };
            total += tx.source().count(view.tree, &range_of(&key))?;
            let room = NAMED_MAX - left.len();
            let first = referring(tx, view, &key, room)?;
            left.extend(first.into_iter().map(|key| (Arc::clone(&entry), field.clone(), key)));
        }
        let Some((entry, field, first)) = left.first() else { continue };
        return Err(match (cause, entry.schema.reference_of(field)) {
            (Cause::Stored, Some(reference)) => dangling(entry, reference, total, &[(first.clone(), key)]),
            _ => still_referenced(&target, &key, total, &left),
        });
    }
    Ok(())
}

/// All documents that refer to nothing by a reference, in one error. `None` if there are none.
///
/// Reads every document.
pub(crate) fn all_dangling(
    state: &dyn Readable,
    entry: &Entry,
    reference: &Reference,
) -> Result<Option<Error>> {
    let all = KeyRange { from: Vec::new(), to: None };
    let mut cursor = state.source().cursor(entry.tree, all, Direction::Forward)?;
    let (mut total, mut first) = (0, Vec::new());
    let spec = reference.view();
    while let Some((key, stored)) = cursor.next()? {
        let Some(target) = missing_target(state, &entry.schema, reference, &spec, key, stored)? else {
            continue;
        };
        total += 1;
        if first.len() < NAMED_MAX {
            first.push((key.to_vec(), target));
        }
    }
    Ok((total > 0).then(|| dangling(entry, reference, total, &first)))
}

/// The first key that a document refers to without a document under it.
pub(crate) fn missing_target(
    state: &dyn Readable,
    schema: &Schema,
    reference: &Reference,
    spec: &ViewSpec,
    key: &[u8],
    stored: &[u8],
) -> Result<Option<Vec<u8>>> {
    // What cannot be a key is an error of the view.
    let Ok(rows) = rows(spec, schema, key, stored) else { return Ok(None) };
    for row in rows.into_keys() {
        let target = &row[..row.len() - key.len()];
        if !exists(state, reference.to(), target)? {
            return Ok(Some(target.to_vec()));
        }
    }
    Ok(None)
}
