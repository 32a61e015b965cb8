//! Why views are not built, for whoever asks them.
//!
//! Owns two places. In the database lies what the documents are to blame for, so that other programs and the next start can tell;
//! in memory what came of the last try, also where nothing can be stored, and when to try again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::catalog::entries::OpenView;
use crate::store::error::{Error, ErrorKind, Result};
use crate::store::{Shared, Source, TreeId};

use crate::catalog::progress::{FAILURES, walk_key};
use crate::view::spec::ViewSpec;

const POISON: &str = "nothing panics while the failures are locked";

/// A build that failed is tried again after this long, then after twice as long, and so on.
const AGAIN: Duration = Duration::from_millis(500);

/// At the latest after this long: somebody may have changed the document that was in the way.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// What went wrong since the database was opened, by the name of the view's tree; a tree that took the name of another has no part in it.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Mutex<HashMap<String, Failure>>,
}

#[derive(Debug)]
struct Failure {
    tree: TreeId,
    why: Error,
    times: u32,
    /// When to try again, on the disk's monotonic clock; not before somebody asks, without one.
    again_ns: Option<u64>,
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Failure>> {
        self.last.lock().expect(POISON)
    }

    /// Notes a failure. With a clock, it is tried again after a while.
    pub(crate) fn note(&self, name: &str, tree: TreeId, why: &Error, now_ns: Option<u64>) {
        let mut last = self.lock();
        let times = last.get(name).filter(|failure| failure.tree == tree).map_or(0, |failure| failure.times);
        let rest = AGAIN.saturating_mul(1 << times.min(16)).min(AGAIN_MAX);
        let rest_ns = u64::try_from(rest.as_nanos()).expect("a minute fits");
        let again_ns = now_ns.map(|now| now.saturating_add(rest_ns));
        let times = times.saturating_add(1);
        last.insert(name.to_owned(), Failure { tree, why: why.clone(), times, again_ns });
    }

    /// It went well.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// When to try again; `None` for what did not fail.
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

/// Whether it is worth storing: documents stay as they are over a restart, full disks and the like need not.
pub(crate) fn is_of_documents(error: &Error) -> bool {
    error.kind() == ErrorKind::Invalid
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
