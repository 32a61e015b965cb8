//! Why views are not built.
//!
//! A failure is kept in two places. The database stores failures caused by documents, so that other programs
//! and the next start can report them. Memory holds the result of the last attempt, also if nothing can be
//! stored, and the time of the next attempt.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::catalog::entries::OpenView;
use crate::store::error::{Error, ErrorKind, Result};
use crate::store::{Shared, Source, TreeId};

use crate::catalog::progress::{FAILURES, walk_key};
use crate::view::spec::ViewSpec;

const POISON: &str = "nothing panics while the failures are locked";

/// The delay before a failed build is retried. It doubles with each failure.
const AGAIN: Duration = Duration::from_millis(500);

/// The maximum delay: a user may have changed the document that caused the failure.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// Failures since opening, by the name of the view's tree. A failure applies only to the tree with the stored
/// id.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Mutex<HashMap<String, Failure>>,
}

#[derive(Debug)]
struct Failure {
    tree: TreeId,
    why: Error,
    times: u32,
    /// When to retry, on the disk's monotonic clock. `None` without a clock: retried at the next call that
    /// builds views.
    again_ns: Option<u64>,
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Failure>> {
        self.last.lock().expect(POISON)
    }

    /// Notes a failure. With a clock, a time for the retry is set.
    pub(crate) fn note(&self, name: &str, tree: TreeId, why: &Error, now_ns: Option<u64>) {
        let mut last = self.lock();
        let times = last.get(name).filter(|failure| failure.tree == tree).map_or(0, |failure| failure.times);
        let rest = AGAIN.saturating_mul(1 << times.min(16)).min(AGAIN_MAX);
        let rest_ns = u64::try_from(rest.as_nanos()).expect("a minute fits");
        let again_ns = now_ns.map(|now| now.saturating_add(rest_ns));
        let times = times.saturating_add(1);
        last.insert(name.to_owned(), Failure { tree, why: why.clone(), times, again_ns });
    }

    /// Removes the failure after a success.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// When to retry; `None` if the view did not fail.
    pub(crate) fn again_ns(&self, name: &str, tree: TreeId) -> Option<u64> {
        self.of(name, tree, |failure| failure.again_ns.unwrap_or(0))
    }

    fn of<T>(&self, name: &str, tree: TreeId, read: impl FnOnce(&Failure) -> T) -> Option<T> {
        self.lock().get(name).filter(|failure| failure.tree == tree).map(read)
    }
}

/// Why a view is not built, if it was tried and failed.
pub(crate) fn why(
    source: &dyn Source,
    failures: &Failures,
    collection: &str,
    view: &OpenView,
) -> Result<Option<String>> {
    let why = |failure: &Failure| failure.why.message().to_owned();
    if let Some(why) = failures.of(&view.spec.tree_name(collection), view.tree, why) {
        return Ok(Some(why));
    }
    let Some(stored) = source.tree(FAILURES)? else { return Ok(None) };
    let why = source.get(stored, &walk_key(collection, &view.spec)?)?;
    Ok(why.map(|why| String::from_utf8_lossy(&why).into_owned()))
}

/// Whether a failure is worth storing: documents persist over a restart, a full disk may not.
pub(crate) fn is_of_documents(error: &Error) -> bool {
    error.kind() == ErrorKind::Invalid
}

/// Whether the database stores that building this view failed.
pub(crate) fn is_stored(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<bool> {
    let Some(stored) = tx.tree(FAILURES)? else { return Ok(false) };
    Ok(tx.get(stored, &walk_key(collection, spec)?)?.is_some())
}

/// Stores why a view is not built.
pub(crate) fn note(tx: &Shared<'_>, collection: &str, spec: &ViewSpec, why: &str) -> Result<()> {
    let stored = match tx.tree(FAILURES)? {
        Some(tree) => tree,
        None => tx.create_tree(FAILURES, None)?,
    };
    let key = walk_key(collection, spec)?;
    if tx.get(stored, &key)?.as_deref() == Some(why.as_bytes()) {
        return Ok(());
    }
    tx.put(stored, &key, why.as_bytes())
}
