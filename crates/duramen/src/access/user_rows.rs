//! The rows of a server in trees of the database's own: its users and their tokens, and how far its audit has
//! come.
//!
//! What they mean is the server's; docs/format.md, section "Users". Here they are bytes. No call of a program
//! or a client names the trees. Backups and repairs keep them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::handle::Db;
use super::reads::LocalReads;
use super::reads::sealed::Readable;
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source as _, TreeMark};

/// The tree of users and tokens.
const USERS: &str = "duramen/users";

/// The tree of the audit: a row for each database whose server wrote one, copies included.
const AUDIT: &str = "duramen/audit";

/// All rows, in order of their keys.
///
/// # Errors
/// Those of a [read](crate::Error#reads).
pub fn user_rows(within: &impl LocalReads) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let source = within.source();
    let Some(tree) = source.tree(USERS)? else { return Ok(Vec::new()) };
    let all = KeyRange { from: Vec::new(), to: None };
    let (mut cursor, mut rows) = (source.cursor(tree, all, Direction::Forward)?, Vec::new());
    while let Some((key, value)) = cursor.next()? {
        rows.push((key.to_vec(), value.to_vec()));
    }
    Ok(rows)
}

/// The row of a key.
///
/// # Errors
/// Those of a [read](crate::Error#reads).
pub fn user_row(within: &impl LocalReads, key: &[u8]) -> Result<Option<Vec<u8>>> {
    row(within, USERS, key)
}

/// The row of a database's audit.
///
/// # Errors
/// Those of a [read](crate::Error#reads).
pub fn audit_row(within: &impl LocalReads, database: &[u8]) -> Result<Option<Vec<u8>>> {
    row(within, AUDIT, database)
}

fn row(within: &impl LocalReads, tree: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let source = within.source();
    source.tree(tree)?.map_or(Ok(None), |tree| source.get(tree, key))
}

/// Stores a row.
///
/// # Errors
/// Those of a [write](crate::Error#writes).
pub fn put_user_row(tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<()> {
    put_row(tx, USERS, key, value)?;
    told(tx);
    Ok(())
}

/// Stores the row of a database's audit.
///
/// # Errors
/// Those of a [write](crate::Error#writes).
pub fn put_audit_row(tx: &mut Transaction<'_>, database: &[u8], value: &[u8]) -> Result<()> {
    put_row(tx, AUDIT, database, value)
}

fn put_row(tx: &mut Transaction<'_>, tree: &str, key: &[u8], value: &[u8]) -> Result<()> {
    let shared = tx.shared();
    let tree = match shared.tree(tree)? {
        Some(tree) => tree,
        None => shared.create_tree(tree, None)?,
    };
    shared.put(tree, key, value)
}

/// Deletes a row. Returns whether it was there.
///
/// # Errors
/// Those of a [write](crate::Error#writes).
pub fn delete_user_row(tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
    let shared = tx.shared();
    let Some(tree) = shared.tree(USERS)? else { return Ok(false) };
    if shared.get(tree, key)?.is_none() {
        return Ok(false);
    }
    shared.delete(tree, key)?;
    told(tx);
    Ok(true)
}

/// A number that is another one after a commit has changed rows.
pub fn user_rows_version(db: &Db) -> u64 {
    let state = db.open_state();
    if db.engine().lineage().is_some()
        && let Ok(snapshot) = db.snapshot()
        && state.users.is_another(&snapshot)
    {
        // It was changed on another node of the cluster, or here: that is not told apart.
        state.user_rows_version.fetch_add(1, Ordering::AcqRel);
    }
    state.user_rows_version.load(Ordering::Acquire)
}

/// The tree of users as it was seen last, in a node of a cluster.
#[derive(Debug, Default)]
pub(crate) struct SeenUsers {
    mark: Mutex<Option<TreeMark>>,
}

impl SeenUsers {
    /// Whether a snapshot has other rows than were seen last. They are noted.
    fn is_another(&self, snapshot: &Snapshot) -> bool {
        let mut mark = self.mark.lock().expect("nothing panics while the mark is locked");
        if mark.as_ref().is_some_and(|mark| snapshot.is_as_marked(mark)) {
            return false;
        }
        let tree = snapshot.source().tree(USERS).ok().flatten();
        let now = tree.and_then(|tree| snapshot.mark(tree));
        // Without a tree there are no rows, and there were none.
        let is_another = now.is_some() || mark.is_some();
        *mark = now;
        is_another
    }
}

/// The version changes once the transaction has committed.
fn told(tx: &mut Transaction<'_>) {
    let version = Arc::clone(&tx.open_state().user_rows_version);
    tx.after_commit(move || {
        version.fetch_add(1, Ordering::AcqRel);
    });
}
