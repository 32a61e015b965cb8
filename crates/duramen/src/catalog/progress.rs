//! Rows that tell how far the work on a collection has come: views that are built, failures of that, migrations.
//!
//! Owns their names and that they go with what they tell of. The work itself is above.

use crate::store::error::Result;
use crate::store::{Shared, Source};
use crate::value::tuple::encode;
use crate::view::spec::ViewSpec;

/// The tree of walks: key is the name of a view's tree, value the key of the last document that is in it.
pub(crate) const WALKS: &str = "duramen/builds";

/// The tree of failures: key is the name of a view's tree, value why it is not built, in words.
pub(crate) const FAILURES: &str = "duramen/build-failures";

/// The tree of walks: key is the encoded name of a collection, value the key of the last document that was looked at.
pub(crate) const MIGRATIONS: &str = "duramen/migrations";

/// What a view is called in the trees of walks and of failures.
pub(crate) fn walk_key(collection: &str, spec: &ViewSpec) -> Result<Vec<u8>> {
    encode(spec.tree_name(collection).as_str())
}

/// Forgets the walk of a view that is gone.
pub(crate) fn forget_build(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    forget_failure(tx, collection, spec)?;
    match tx.tree(WALKS)? {
        Some(walks) => tx.delete(walks, &walk_key(collection, spec)?),
        None => Ok(()),
    }
}

/// It went well, or the view is gone.
pub(crate) fn forget_failure(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    let Some(stored) = tx.tree(FAILURES)? else { return Ok(()) };
    let key = walk_key(collection, spec)?;
    if tx.get(stored, &key)?.is_some() { tx.delete(stored, &key) } else { Ok(()) }
}

/// Forgets how far a migration has come: another begins, or the collection is gone.
pub(crate) fn forget_migration(tx: &Shared<'_>, collection: &str) -> Result<()> {
    match tx.tree(MIGRATIONS)? {
        Some(walks) => tx.delete(walks, &encode(collection)?),
        None => Ok(()),
    }
}
