//! Building views in the background: one step of one view at a time.

use std::time::Duration;

use crate::access::background_work::Outlook;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::references;
use crate::access::snapshot::Snapshot;
use crate::catalog::entries;
use crate::store::TreeId;
use crate::store::error::{Code, Error, ErrorKind, Result};

use crate::access::views::build::Progress;
use crate::access::views::failures;
use crate::access::views::mapped;
use crate::view::spec::ViewSpec;

/// A view that lacks documents.
pub(crate) struct Unbuilt {
    pub(crate) collection: String,
    pub(crate) spec: ViewSpec,
    pub(crate) tree: TreeId,
}

impl Unbuilt {
    /// Runs one small step for it. Returns the progress of the walk, if it was a step of one.
    pub(crate) fn step(&self, db: &Db) -> Result<Option<Progress>> {
        if self.spec.ready {
            db.map_step(&self.collection, &self.spec)?;
            return Ok(None);
        }
        Ok(db.build_step(&self.collection, &self.spec)?.map(|walked| walked.progress))
    }

    /// The error of a step, about all documents that a reference cannot have, not only the first. Reads every
    /// document of the collection.
    pub(crate) fn about_all(&self, db: &Db, error: Error) -> Error {
        if error.code() != Code::MissingTarget {
            return error;
        }
        self.dangling(db).ok().flatten().unwrap_or(error)
    }

    fn dangling(&self, db: &Db) -> Result<Option<Error>> {
        let state = db.snapshot()?;
        let entry = state.entry(&self.collection)?;
        match entry.schema.reference_of(self.spec.name()) {
            Some(reference) => references::all_dangling(&state, &entry, reference),
            None => Ok(None),
        }
    }

    /// Notes the error that stopped its build.
    pub(crate) fn note(&self, db: &Db, error: &Error, now_ns: Option<u64>) {
        if is_at_end(error) || error.code() == Code::Unsupported {
            return;
        }
        let Unbuilt { collection, spec, tree } = self;
        db.open_state().builds.failures.note(&spec.tree_name(collection), *tree, error, now_ns);
        if failures::is_of_documents(error) {
            // If the failure cannot be stored, this program still reports it from memory.
            drop(db.write(|tx| tx.note_failure(collection, spec, error.message())));
        }
    }

    /// When to retry, if it failed.
    fn again_ns(&self, db: &Db) -> Option<u64> {
        db.open_state().builds.failures.again_ns(&self.spec.tree_name(&self.collection), self.tree)
    }
}

/// Runs a step of a view that is to be built, if there is one. A failed view pauses, and the others continue.
///
/// # Errors
/// Errors that kept it from working at all. Errors of a single view are noted with the view.
pub(crate) fn step(db: &Db, now_ns: u64) -> Result<Outlook> {
    let mut again_ns = None;
    for view in unbuilt(&db.snapshot()?)? {
        // A view whose code this program lacks cannot be built here.
        if !db.open_state().can_make_rows(&view.collection, &view.spec) {
            continue;
        }
        let failed_until_ns = view.again_ns(db);
        let due_ns = failed_until_ns.unwrap_or(0);
        if due_ns > now_ns {
            again_ns = Some(again_ns.unwrap_or(due_ns).min(due_ns));
            continue;
        }
        let Err(error) = view.step(db) else { return Ok(Outlook::More) };
        if is_at_end(&error) {
            return Err(error);
        }
        // Attempts after the first name one document: each may be a minute after the last.
        let error = if failed_until_ns.is_none() { view.about_all(db, error) } else { error };
        view.note(db, &error, Some(now_ns));
        let due_ns = view.again_ns(db).unwrap_or(now_ns);
        again_ns = Some(again_ns.unwrap_or(due_ns).min(due_ns));
        db.tell(error);
    }
    Ok(match again_ns {
        Some(again_ns) => Outlook::Due(Duration::from_nanos(again_ns.saturating_sub(now_ns))),
        None => Outlook::Nothing,
    })
}

/// Whether there is anything to build.
pub(crate) fn has_work(db: &Db) -> Result<bool> {
    let unbuilt = unbuilt(&db.snapshot()?)?;
    Ok(unbuilt.iter().any(|view| db.open_state().can_make_rows(&view.collection, &view.spec)))
}

fn unbuilt(state: &Snapshot) -> Result<Vec<Unbuilt>> {
    let mut found = Vec::new();
    for collection in entries::names(state.source())? {
        found.extend(unbuilt_of(state, &collection)?);
    }
    Ok(found)
}

/// The views of a collection that lack documents.
pub(crate) fn unbuilt_of(state: &Snapshot, collection: &str) -> Result<Vec<Unbuilt>> {
    let mut found = Vec::new();
    for view in &state.entry(collection)?.views {
        if !view.spec.ready || mapped::waiting(state.source(), view)? > 0 {
            let (collection, spec) = (collection.to_owned(), view.spec.clone());
            found.push(Unbuilt { collection, spec, tree: view.tree });
        }
    }
    Ok(found)
}

/// Whether an error is about one view, so that others may still succeed.
pub(crate) fn is_of_a_view(error: &Error) -> bool {
    (failures::is_of_documents(error) || error.code() == Code::Rebuilding) && !is_at_end(error)
}

/// Whether no further step can succeed.
fn is_at_end(error: &Error) -> bool {
    matches!(error.code(), Code::Closed | Code::ForkedHandle | Code::ReadOnly)
        || error.kind() == ErrorKind::Poisoned
}
