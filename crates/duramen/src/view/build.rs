//! Views of documents that are already there.
//!
//! Owns the walk over a collection that fills a new view, some documents in a transaction, while others write: whoever writes a
//! document writes its rows, and rows are a function of the document, so that the walk and the writers cannot disagree; a
//! document that changes under a step is a conflict, and the step runs again. How far the walk has come is stored with each
//! step: a restart goes on from there.

use crate::catalogue::{Entry, OpenView};
use crate::collection::Collection;
use crate::db::Db;
use crate::engine::{Direction, KeyRange, Shared, Source};
use crate::error::{Error, Result};
use crate::reads::sealed::Readable;
use crate::snapshot::Snapshot;
use crate::tuple::{encode, show, successor};
use crate::typed::Asked;

use super::maintain;
use super::rows::rows;
use super::spec::ViewSpec;

/// The tree of walks: key is the name of a view's tree, value the key of the last document that is in it.
const WALKS: &str = "duramen/builds";

/// So many documents a step: some milliseconds, so that a step that runs again has not cost much.
const STEP_DOCUMENTS: u64 = 500;

/// And about so many bytes of rows, however many a document makes.
const STEP_BYTES: usize = 256 * 1024;

/// How far the building of a view has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The view that is being built.
    pub view: String,
    /// Documents that the walk has passed.
    pub documents: u64,
    /// Documents there are.
    pub of: u64,
}

impl Db {
    /// Builds the views of a collection that do not hold every document yet, and returns once they do. Others may read and
    /// write meanwhile; a view that is being built answers `Rebuilding`. After a restart it goes on where it was.
    ///
    /// # Errors
    /// `UniqueViolation` naming two documents with the same key of a unique view: change one, and build again. What
    /// `progress` returned: the walk stops there. Those of a commit.
    pub fn build_views<C: Collection>(
        &self,
        mut progress: impl FnMut(&Progress) -> Result<()>,
    ) -> Result<()> {
        let asked = Asked::of::<C>();
        let mut entry = self.transact(|tx| tx.fitted(asked))?;
        while let Some(view) = entry.views.iter().find(|view| !view.spec.ready) {
            let step = Step::next(&self.snapshot()?, &entry, view)?;
            entry = self.transact(|tx| tx.build_step(asked, &view.spec, &step))?;
            progress(&step.progress)?;
        }
        let own = asked.schema();
        let there =
            |spec: &ViewSpec| entry.views.iter().any(|view| view.spec.ready && view.spec.same_terms(spec));
        match own.views().iter().find(|spec| !there(spec)) {
            None => Ok(()),
            Some(spec) => Err(Error::invalid(format!(
                "the view {} of {} was built, and replaced by another of its name",
                spec.name(),
                own.name()
            ))
            .with_hint(
                "two types declare a view of this name with other terms: give one of them another name",
            )),
        }
    }
}

/// The part of a collection that is walked in one transaction.
pub(crate) struct Step {
    /// The last document that is in the view.
    after: Option<Vec<u8>>,
    /// The documents to come; without an end, all that are left.
    range: KeyRange,
    progress: Progress,
}

impl Step {
    /// Where a walk goes on, by a state: the transaction then reads no key behind the last one it needs, and does not
    /// conflict with who writes there.
    fn next(state: &Snapshot, entry: &Entry, view: &OpenView) -> Result<Step> {
        let source = state.source();
        let after = match source.tree(WALKS)? {
            Some(walks) => source.get(walks, &walk_key(entry, view)?)?,
            None => None,
        };
        let from = after.as_deref().map_or_else(Vec::new, successor);
        let passed = source.rank(entry.tree, &from)?;
        let of = source.count(entry.tree, &KeyRange { from: Vec::new(), to: None })?;
        let last = source.nth(entry.tree, passed + STEP_DOCUMENTS - 1)?;
        let documents = if last.is_some() { passed + STEP_DOCUMENTS } else { of };
        let range = KeyRange { from, to: last.map(|(key, _)| successor(&key)) };
        Ok(Step { after, range, progress: Progress { view: view.spec.name.clone(), documents, of } })
    }

    /// Puts the rows of the step's documents. Returns whether the walk is at its end; `None` if another has walked here.
    pub(crate) fn walk(&self, tx: &Shared<'_>, entry: &Entry, view: &OpenView) -> Result<Option<bool>> {
        let walks = match tx.tree(WALKS)? {
            Some(tree) => tree,
            None => tx.create_tree(WALKS, None)?,
        };
        let name = walk_key(entry, view)?;
        if tx.get(walks, &name)? != self.after {
            return Ok(None);
        }
        let mut cursor = tx.cursor(entry.tree, self.range.clone(), Direction::Forward)?;
        let (mut last, mut bytes) = (None, 0);
        while let Some((key, document)) = cursor.next()? {
            bytes += self.document(tx, entry, view, key, document)?;
            last = Some(key.to_vec());
            if bytes >= STEP_BYTES {
                break;
            }
        }
        let at_end = bytes < STEP_BYTES && self.range.to.is_none();
        match last {
            _ if at_end => tx.delete(walks, &name)?,
            Some(last) => tx.put(walks, &name, &last)?,
            // What the step was to walk is gone: its end is as good as the last document's key.
            None => tx.put(walks, &name, self.range.to.as_deref().expect("it has an end"))?,
        }
        Ok(Some(at_end))
    }

    /// Puts the rows of one document. Returns their bytes.
    fn document(
        &self,
        tx: &Shared<'_>,
        entry: &Entry,
        view: &OpenView,
        key: &[u8],
        document: &[u8],
    ) -> Result<usize> {
        let named = |error: Error| {
            let hint = error.hint();
            let message =
                format!("the document {} of {}: {}", show(key), entry.schema.name(), error.message());
            Error::new(error.code(), message).with_hint(hint)
        };
        let mut bytes = 0;
        for (row, value) in rows(&view.spec, entry.schema.compact_fields(), key, document).map_err(named)? {
            maintain::check_unique(tx, entry, view, &row, key)?;
            maintain::put(tx, view, &row, &value)?;
            bytes += row.len() + value.len();
        }
        Ok(bytes)
    }
}

/// Forgets the walk of a view that is gone.
pub(crate) fn forget(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    match tx.tree(WALKS)? {
        Some(walks) => tx.delete(walks, &encode(spec.tree_name(collection).as_str())?),
        None => Ok(()),
    }
}

fn walk_key(entry: &Entry, view: &OpenView) -> Result<Vec<u8>> {
    encode(view.spec.tree_name(entry.schema.name()).as_str())
}
