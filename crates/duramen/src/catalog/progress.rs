//! Rows with the progress of work on a collection: builds of views, their failures, migrations.
//!
//! Owns their names, and removes them with the view or collection that they are about. The work itself is in
//! higher layers.

use crate::store::error::Result;
use crate::store::{Shared, Source};
use crate::value::tuple::encode;
use crate::view::spec::ViewSpec;

/// The tree of walks: key is the name of a view's tree, value the key of the last document that the view
/// covers.
pub(crate) const WALKS: &str = "duramen/builds";

/// The tree of failures: key is the name of a view's tree, value the reason why it is not built, as text.
pub(crate) const FAILURES: &str = "duramen/build-failures";

/// The tree of migrations: key is the encoded name of a collection, value the key of the last document that
/// was checked.
pub(crate) const MIGRATIONS: &str = "duramen/migrations";

/// The key of a view in the trees of walks and of failures.
pub(crate) fn walk_key(collection: &str, spec: &ViewSpec) -> Result<Vec<u8>> {
    encode(spec.tree_name(collection).as_str())
}

/// Removes the walk of a view that was dropped.
pub(crate) fn forget_build(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    forget_failure(tx, collection, spec)?;
    match tx.tree(WALKS)? {
        Some(walks) => tx.delete(walks, &walk_key(collection, spec)?),
        None => Ok(()),
    }
}

/// Removes the failure of a view that was built or dropped.
pub(crate) fn forget_failure(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    let Some(stored) = tx.tree(FAILURES)? else { return Ok(()) };
    let key = walk_key(collection, spec)?;
    if tx.get(stored, &key)?.is_some() { tx.delete(stored, &key) } else { Ok(()) }
}

/// Removes the progress of a migration: another one begins, or the collection was dropped.
pub(crate) fn forget_migration(tx: &Shared<'_>, collection: &str) -> Result<()> {
    match tx.tree(MIGRATIONS)? {
        Some(walks) => tx.delete(walks, &encode(collection)?),
        None => Ok(()),
    }
}
