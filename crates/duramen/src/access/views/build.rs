//! Building a view from existing documents.
//!
//! Owns the walk over a collection that fills a new view, some documents per transaction, concurrently with
//! writers. A writer of a document writes its rows too. Rows are a function of the document, so the walk and
//! the writers cannot disagree. A document that changes during a step is a conflict, and the step runs again
//! over fewer documents. The progress is stored with each step, so a restart continues from there. waiting.rs
//! and in_background.rs run the steps.

use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::access::transaction::Transaction;
use crate::catalog::entries::{Entry, OpenView, ViewOf};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Source};
use crate::value::tuple::{show, successor};

use crate::access::views::maintain::Changes;
use crate::catalog::progress::{WALKS, forget_failure, walk_key};
use crate::view::spec::ViewSpec;

/// Documents per step: a step takes some milliseconds, so repeating one is cheap.
const STEP_DOCUMENTS: u64 = 500;

/// Documents per step after conflicts. So few conflict rarely. After many conflicts the engine runs the step
/// with all other commits blocked; with so few documents that is short.
const STEP_DOCUMENTS_MIN: u64 = 8;

/// Approximate bytes of rows per step, however many rows a document has.
const STEP_BYTES: usize = 256 * 1024;

/// The progress of building a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The view that is being built.
    pub view: String,
    /// Documents that the walk has passed.
    pub documents: u64,
    /// Documents in the collection.
    pub of: u64,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) progress: Progress,
    /// Whether the view holds every document now.
    pub(crate) at_end: bool,
}

impl Db {
    /// Runs a step of building a view. `None` if nothing is left to build, or another thread built it.
    pub(crate) fn build_step(&self, collection: &str, spec: &ViewSpec) -> Result<Option<Walked>> {
        self.may_commit()?;
        let _turn = self.open_state().builds.one_at_a_time();
        let Some(step) = Step::next(self.snapshot()?, collection, spec)? else { return Ok(None) };
        if !self.open_state().can_make_rows(collection, spec) {
            return Err(without_code(collection, spec));
        }
        let at_most = if self.open_state().is_simulated { 4 } else { STEP_DOCUMENTS };
        let mut next = self.open_state().builds.step_documents(at_most);
        let mut taken = next;
        let walked = self.seen_by_all().transact(|tx| {
            taken = next;
            next = (taken / 4).max(STEP_DOCUMENTS_MIN.min(at_most));
            tx.build_step(&step, taken)
        })?;
        self.open_state().builds.step_took(taken);
        self.open_state().builds.failures.forget(&spec.tree_name(collection));
        Ok(walked)
    }
}

/// The part of a collection that is walked in one transaction.
pub(crate) struct Step {
    /// Determines where the step ends. So the transaction reads no key after the last one it needs, and does
    /// not conflict with writers there.
    state: Snapshot,
    entry: std::sync::Arc<Entry>,
    spec: ViewSpec,
    /// The last document that the view covers.
    after: Option<Vec<u8>>,
    from: Vec<u8>,
    passed: u64,
    of: u64,
}

impl Step {
    /// The next step of a walk; `None` if the view is not being built.
    fn next(state: Snapshot, collection: &str, spec: &ViewSpec) -> Result<Option<Step>> {
        let entry = match state.entry(collection) {
            Err(error) if error.code() == Code::NoSuchTree => return Ok(None),
            entry => entry?,
        };
        if !entry.views.iter().any(|view| is_building(view, spec)) {
            return Ok(None);
        }
        let after = last_walked(state.source(), collection, spec)?;
        let from = after.as_deref().map_or_else(Vec::new, successor);
        let passed = state.source().rank(entry.tree, &from)?;
        let of = state.source().count(entry.tree, &KeyRange { from: Vec::new(), to: None })?;
        Ok(Some(Step { state, entry, spec: spec.clone(), after, from, passed, of }))
    }

    pub(crate) fn collection(&self) -> &str {
        self.entry.schema.name()
    }

    /// Whether it is a step of building this view.
    pub(crate) fn is_of(&self, view: &OpenView) -> bool {
        is_building(view, &self.spec)
    }

    /// The next documents; without an end, all remaining ones.
    fn range(&self, documents_max: u64) -> Result<KeyRange> {
        let last = self.state.source().nth(self.entry.tree, self.passed + documents_max - 1)?;
        Ok(KeyRange { from: self.from.clone(), to: last.map(|(key, _)| successor(&key)) })
    }

    /// Puts the rows of the step's documents; `None` if another thread advanced the walk meanwhile.
    pub(crate) fn walk(
        &self,
        within: &Transaction<'_>,
        of: ViewOf<'_>,
        documents_max: u64,
    ) -> Result<Option<Walked>> {
        let tx = within.shared();
        let walks = match tx.tree(WALKS)? {
            Some(tree) => tree,
            None => tx.create_tree(WALKS, None)?,
        };
        let name = walk_key(self.collection(), &self.spec)?;
        if tx.get(walks, &name)? != self.after {
            return Ok(None);
        }
        let range = self.range(documents_max)?;
        let mut cursor = tx.cursor(of.entry.tree, range.clone(), Direction::Forward)?;
        let (mut last, mut bytes, mut documents) = (None, 0, self.passed);
        while let Some((key, document)) = cursor.next()? {
            bytes += put_rows(within, of, key, Some(document))?;
            documents += 1;
            last = Some(key.to_vec());
            if bytes >= STEP_BYTES {
                break;
            }
        }
        let at_end = bytes < STEP_BYTES && range.to.is_none();
        match last {
            _ if at_end => tx.delete(walks, &name)?,
            Some(last) => tx.put(walks, &name, &last)?,
            // The step's documents are gone: the end of its range serves as well as the last document's key.
            None => tx.put(walks, &name, range.to.as_deref().expect("it has an end"))?,
        }
        forget_failure(tx, self.collection(), &self.spec)?;
        let progress = Progress { view: self.spec.name.clone(), documents, of: self.of.max(documents) };
        Ok(Some(Walked { progress, at_end }))
    }
}

/// Puts the rows of one document. Returns their bytes.
pub(crate) fn put_rows(
    tx: &Transaction<'_>,
    of: ViewOf<'_>,
    key: &[u8],
    document: Option<&[u8]>,
) -> Result<usize> {
    let changes = Changes::of_view(tx, of, key, document).map_err(|error| {
        if matches!(error.code(), Code::UniqueViolation | Code::Unreadable) || error.is_retryable() {
            return error;
        }
        let hint = error.hint();
        let message =
            format!("the document {} of {}: {}", show(key), of.entry.schema.name(), error.message());
        Error::new(error.code(), message).with_hint(hint)
    })?;
    changes.apply(tx.shared())?;
    Ok(changes.bytes())
}

/// The error of a view that only a program with its code can build.
#[cold]
pub(crate) fn without_code(collection: &str, spec: &ViewSpec) -> Error {
    let version = spec.code_version().unwrap_or_default();
    Error::new(
        Code::Unsupported,
        format!("the view {} of {collection} is in code, and version {version} of it is not here", spec.name()),
    )
    .with_hint("use the collection's type in the program that has the code: it builds the view, or take the view away with drop_view")
}

fn is_building(view: &OpenView, spec: &ViewSpec) -> bool {
    view.spec.same_rows(spec) && !view.spec.ready
}

/// How far the walk of a view has come.
pub(crate) fn progress(source: &dyn Source, entry: &Entry, spec: &ViewSpec) -> Result<Progress> {
    let last = last_walked(source, entry.schema.name(), spec)?;
    let documents = match last {
        Some(last) => source.rank(entry.tree, &successor(&last))?,
        None => 0,
    };
    let of = source.count(entry.tree, &KeyRange { from: Vec::new(), to: None })?;
    Ok(Progress { view: spec.name.clone(), documents, of })
}

fn last_walked(source: &dyn Source, collection: &str, spec: &ViewSpec) -> Result<Option<Vec<u8>>> {
    match source.tree(WALKS)? {
        Some(walks) => source.get(walks, &walk_key(collection, spec)?),
        None => Ok(None),
    }
}
