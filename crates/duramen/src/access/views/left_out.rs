//! Views whose building failed refuse no write.
//!
//! A view that is being built refuses a document that it cannot hold, as a complete view does: else its
//! building would fail later. Once building has failed because of a document, the view is of no use until the
//! documents are changed. Until then a write of a document that the view cannot hold succeeds. The document
//! has no rows in the view, and the walk goes back to before it, in the same transaction. So a view is
//! complete only if it holds every document.
//!
//! A concurrent step of the walk removes the failure and moves the walk. The transaction has read both, so
//! one of the two conflicts.

use crate::access::transaction::Transaction;
use crate::access::views::failures;
use crate::catalog::entries::ViewOf;
use crate::catalog::progress::{WALKS, walk_key};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Source};

/// Lets a write go on that `error` refused, if the view's building had failed before. The caller removes the
/// rows of the document under `key`.
///
/// # Errors
/// `error`, if the view was built, or its building has not failed.
#[cold]
pub(crate) fn excuse(tx: &Transaction<'_>, of: ViewOf<'_>, key: &[u8], error: Error) -> Result<()> {
    let (spec, collection) = (&of.view.spec, of.entry.schema.name());
    // A reference is checked at every write, whatever its walk has found.
    let is_of_reference = spec.of_reference.is_some();
    if spec.ready
        || is_of_reference
        || !is_of_the_document(&error)
        || !failures::is_stored(tx.shared(), collection, spec)?
    {
        return Err(error);
    }
    walk_again_from(tx, of, key)
}

/// Whether a view refused the document, and not the transaction or the database the write.
fn is_of_the_document(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::InvalidArgument
            | Code::KeyTooLong
            | Code::UniqueViolation
            | Code::Unreadable
            | Code::ReducerPanicked
    )
}

/// Moves the walk to before the document under `key`, if it has passed that.
fn walk_again_from(tx: &Transaction<'_>, of: ViewOf<'_>, key: &[u8]) -> Result<()> {
    let (tx, entry) = (tx.shared(), of.entry);
    let Some(walks) = tx.tree(WALKS)? else { return Ok(()) };
    let name = walk_key(entry.schema.name(), &of.view.spec)?;
    if tx.get(walks, &name)?.is_none_or(|last| last.as_slice() < key) {
        return Ok(());
    }
    let earlier = KeyRange { from: Vec::new(), to: Some(key.to_vec()) };
    match tx.cursor(entry.tree, earlier, Direction::Reverse)?.next_key()? {
        Some(previous) => tx.put(walks, &name, previous),
        None => tx.delete(walks, &name),
    }
}
