//! The rows of views in code: the rows of each document, and the documents that wait for the code.
//!
//! A view in code has two more trees. `mapped` stores which rows a document has, so that they can be removed
//! without the code that made them, even if that code has changed. `unmapped` holds the keys of documents
//! that a program without the code has written. These have no rows, and the view does not answer until they
//! have. Both trees change in the transaction that changes the document.

use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::catalog::entries::{CodedTrees, Entry, OpenView, ViewOf};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Source};
use crate::value::tuple::{show, split};
use crate::value::version;

use crate::access::views::build::without_code;
use crate::access::views::maintain::{Change, check_unique};
use crate::catalog::rows::ViewRows;
use crate::view::spec::ViewSpec;

/// Documents mapped per transaction.
const STEP_DOCUMENTS: usize = 200;

/// The changes that set the rows of a view in code to those of `document`, or to none if there is none.
///
/// Without the code, the document is noted as waiting for it.
///
/// # Errors
/// `UniqueViolation`; errors of the code; errors of reading. Nothing was written.
pub(crate) fn changes<'e>(
    tx: &Transaction<'_>,
    of: ViewOf<'e>,
    trees: CodedTrees,
    key: &[u8],
    document: Option<&[u8]>,
) -> Result<Vec<Change<'e>>> {
    let ViewOf { entry, view } = of;
    let code = tx.open_state().types.code(entry.schema.name(), entry.schema.version(), &view.spec);
    let tx = tx.shared();
    let change = |tree, row: Vec<u8>, value| Change { view, tree, row, value };
    let mapped = tx.get(trees.mapped, key)?;
    let before = row_keys(&view.spec, mapped.as_deref().unwrap_or_default(), key)?;
    let is_current = document.map_or(Ok(false), |document| mapped_now(entry, document))?;
    let after = match (document, code) {
        (Some(document), Some(code)) if is_current => code(entry.schema.shapes(), key, document)?,
        _ => ViewRows::new(),
    };
    let mut changes = Vec::new();
    for row in before.iter().filter(|row| !after.contains_key(*row)) {
        changes.push(change(view.tree, row.clone(), None));
    }
    let mut keys = Vec::new();
    for (row, value) in after {
        keys.extend_from_slice(&row[..row.len() - key.len()]);
        if before.binary_search(&row).is_err() || tx.get(view.tree, &row)?.as_ref() != Some(&value) {
            check_unique(tx, entry, view, &row, key)?;
            changes.push(change(view.tree, row, Some(value)));
        }
    }
    if mapped.as_deref().unwrap_or_default() != keys {
        let keys = (!keys.is_empty()).then_some(keys);
        changes.push(change(trees.mapped, key.to_vec(), keys));
    }
    let waits = is_current && code.is_none();
    if waits != tx.get(trees.unmapped, key)?.is_some() {
        changes.push(change(trees.unmapped, key.to_vec(), waits.then(Vec::new)));
    }
    Ok(changes)
}

/// Whether a document has rows in views in code. A document of an earlier version gets them with its
/// conversion.
pub(crate) fn mapped_now(entry: &Entry, document: &[u8]) -> Result<bool> {
    Ok(version::split(document)?.0 == entry.schema.version())
}

/// The keys of a document's rows, from its entry in `mapped`: the view's keys one after the other, in their
/// order.
///
/// # Errors
/// `CorruptData` for an invalid entry.
pub(crate) fn row_keys(spec: &ViewSpec, mut mapped: &[u8], key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut rows = Vec::new();
    while !mapped.is_empty() {
        let end = split(mapped, spec.key_elements()).map_err(|_| {
            let what = format!("what rows of the view {} the document {} has", spec.name(), show(key));
            Error::new(Code::CorruptData, format!("{what} cannot be read"))
        })?;
        let (row, rest) = mapped.split_at(end);
        rows.push([row, key].concat());
        mapped = rest;
    }
    rows.sort_unstable();
    Ok(rows)
}

/// How many documents wait for the code of a view.
pub(crate) fn waiting(source: &dyn Source, view: &OpenView) -> Result<u64> {
    match view.coded {
        Some(trees) => source.count(trees.unmapped, &KeyRange { from: Vec::new(), to: None }),
        None => Ok(0),
    }
}

impl Db {
    /// Maps some of the documents that wait for the code of a view. Returns whether there were any.
    pub(crate) fn map_step(&self, collection: &str, spec: &ViewSpec) -> Result<bool> {
        self.may_commit()?;
        let _turn = self.open_state().builds.one_at_a_time();
        let (state, mut keys) = (self.snapshot()?, Vec::new());
        let entry = state.entry(collection)?;
        let view = entry.views.iter().find(|view| view.spec.same_rows(spec));
        let Some(trees) = view.and_then(|view| view.coded) else { return Ok(false) };
        if !self.open_state().can_make_rows(collection, spec) {
            return Err(without_code(collection, spec));
        }
        let all = KeyRange { from: Vec::new(), to: None };
        let mut cursor = state.source().cursor(trees.unmapped, all, Direction::Forward)?;
        while keys.len() < STEP_DOCUMENTS
            && let Some(key) = cursor.next_key()?
        {
            keys.push(key.to_vec());
        }
        let mut documents_max = if self.open_state().is_simulated { 3 } else { STEP_DOCUMENTS };
        loop {
            let mut taken = 0;
            let done = self.seen_by_all().transact(|tx| {
                taken = keys.len().min(documents_max);
                documents_max = (taken / 4).max(1);
                keys[..taken].iter().try_for_each(|key| tx.map_again(collection, spec, key))
            });
            // Fewer documents take less memory. A single document that is too large is an error.
            match done {
                Err(error) if error.code() == Code::TooLarge && taken > 1 => {}
                done => break done?,
            }
        }
        self.open_state().builds.failures.forget(&spec.tree_name(collection));
        Ok(!keys.is_empty())
    }
}
