//! Maintains views in the transaction that changes a document.
//!
//! Owns the difference between a document's old rows and its new ones, and the check of unique keys. All of
//! it is computed before anything is written. The transaction notes what it read for this, so two
//! transactions that decide on the same key conflict. left_out.rs says which views refuse no write.

use crate::access::reads::sealed::Readable;
use crate::access::references;
use crate::access::transaction::{Before, Transaction};
use crate::catalog::entries::{Entry, OpenView, ViewOf};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Shared, Source, TreeId};
use crate::value::tuple::{prefix_end, show, split};

use crate::access::views::{left_out, mapped};
use crate::catalog::rows::{ViewRows, rows};

/// The changes of a collection's views for a change of one document.
pub(crate) struct Changes<'e> {
    rows: Vec<Change<'e>>,
}

/// A row to put; without a value, a row to delete.
pub(crate) struct Change<'e> {
    pub(crate) view: &'e OpenView,
    pub(crate) tree: TreeId,
    pub(crate) row: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

impl<'e> Changes<'e> {
    /// The view changes for storing `document` under `key`, or for deleting it if `None`.
    ///
    /// # Errors
    /// `UniqueViolation`; `KeyTooLong` and `InvalidArgument` for a document that a view cannot hold. Nothing
    /// was written, except that the walk of a failed view may go back: it then reads some documents again.
    pub(crate) fn of(
        tx: &Transaction<'_>,
        entry: &'e Entry,
        key: &[u8],
        before: Before<'_>,
        document: Option<&[u8]>,
    ) -> Result<Self> {
        let mut changes = Changes { rows: Vec::new() };
        if entry.views.is_empty() {
            return Ok(changes);
        }
        let read;
        let stored = match before {
            Before::Read(stored) => stored,
            Before::Unread => {
                read = tx.shared().get(entry.tree, key)?;
                read.as_deref()
            }
        };
        if stored == document {
            return Ok(changes);
        }
        for view in &entry.views {
            let of = ViewOf { entry, view };
            let others = changes.rows.len();
            if let Err(error) = changes.add(tx, of, key, stored, document) {
                left_out::excuse(tx, of, key, error)?;
                changes.rows.truncate(others);
                changes.add(tx, of, key, stored, None)?;
            }
        }
        Ok(changes)
    }

    /// Adds the changes of one view.
    fn add(
        &mut self,
        tx: &Transaction<'_>,
        of: ViewOf<'e>,
        key: &[u8],
        stored: Option<&[u8]>,
        document: Option<&[u8]>,
    ) -> Result<()> {
        let ViewOf { entry, view } = of;
        if let Some(trees) = view.coded {
            self.rows.extend(mapped::changes(tx, of, trees, key, document)?);
            return Ok(());
        }
        let before = match stored.map(|stored| rows(&view.spec, &entry.schema, key, stored)).transpose() {
            Ok(before) => before.unwrap_or_default(),
            // Its rows are unknown, and would stay.
            Err(error) if error.is_corruption() => return Err(error),
            // A document that the view cannot hold has no rows in it.
            Err(_) => ViewRows::new(),
        };
        let after = match document {
            Some(document) => rows(&view.spec, &entry.schema, key, document)?,
            None => ViewRows::new(),
        };
        for row in before.keys().filter(|row| !after.contains_key(*row)) {
            self.rows.push(Change { view, tree: view.tree, row: row.clone(), value: None });
        }
        for (row, value) in after {
            if before.get(&row) != Some(&value) {
                check_unique(tx.shared(), entry, view, &row, key)
                    .map_err(|error| if_undeclared(tx, entry, view, error))?;
                self.rows.push(Change { view, tree: view.tree, row, value: Some(value) });
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the changes.
    ///
    /// # Errors
    /// Errors of the engine. Some of the changes may then be written.
    pub(crate) fn apply(&self, tx: &Shared<'_>) -> Result<()> {
        self.rows.iter().try_for_each(|change| change.apply(tx))
    }

    /// Writes the changes for a document that is about to be stored under `key`. A view whose building failed
    /// leaves the document out if it cannot hold it.
    ///
    /// # Errors
    /// As [`Changes::apply`].
    pub(crate) fn apply_to_write(&self, tx: &Transaction<'_>, entry: &Entry, key: &[u8]) -> Result<()> {
        let shared = tx.shared();
        for changes in self.rows.chunk_by(|one, next| std::ptr::eq(one.view, next.view)) {
            let applied = changes.iter().try_for_each(|change| change.apply(shared));
            let Err(error) = applied else { continue };
            let of = ViewOf { entry, view: changes[0].view };
            left_out::excuse(tx, of, key, error)?;
            let mut removal = Changes { rows: Vec::new() };
            removal.add(tx, of, key, shared.get(entry.tree, key)?.as_deref(), None)?;
            changes.iter().try_for_each(|change| shared.delete(change.tree, &change.row))?;
            removal.apply(shared)?;
        }
        Ok(())
    }

    /// The changes that put the rows of an existing document into one view.
    ///
    /// # Errors
    /// As [`Changes::of`].
    pub(crate) fn of_view(
        tx: &Transaction<'_>,
        of: ViewOf<'e>,
        key: &[u8],
        document: Option<&[u8]>,
    ) -> Result<Self> {
        let ViewOf { entry, view } = of;
        if let Some(trees) = view.coded {
            let rows = mapped::changes(tx, of, trees, key, document)?;
            return Ok(Changes { rows });
        }
        let mut changes = Changes { rows: Vec::new() };
        let Some(document) = document else { return Ok(changes) };
        for (row, value) in rows(&view.spec, &entry.schema, key, document)? {
            check_unique(tx.shared(), entry, view, &row, key)
                .map_err(|error| if_undeclared(tx, entry, view, error))?;
            changes.rows.push(Change { view, tree: view.tree, row, value: Some(value) });
        }
        if view.spec.of_reference.is_some() {
            references::check_targets(tx, entry, &changes, key)?;
        }
        Ok(changes)
    }

    /// The keys that the document begins to refer to, with the view of the reference.
    pub(crate) fn targets<'c>(&'c self, key: &'c [u8]) -> impl Iterator<Item = (&'e OpenView, &'c [u8])> {
        let is_new = |change: &&Change<'_>| change.view.spec.of_reference.is_some() && change.value.is_some();
        let target = |change: &'c Change<'e>| (change.view, &change.row[..change.row.len() - key.len()]);
        self.rows.iter().filter(is_new).map(target)
    }

    /// The size of the changes in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(|change| change.row.len() + change.value.as_ref().map_or(0, Vec::len)).sum()
    }
}

impl Change<'_> {
    fn apply(&self, tx: &Shared<'_>) -> Result<()> {
        match &self.value {
            Some(value) => put(tx, self.view, self.tree, &self.row, value),
            None => tx.delete(self.tree, &self.row),
        }
    }
}

/// Stores a row.
fn put(tx: &Shared<'_>, view: &OpenView, tree: TreeId, row: &[u8], value: &[u8]) -> Result<()> {
    tx.put(tree, row, value).map_err(|error| match error.code() {
        Code::InvalidArgument => {
            let hint = error.hint();
            Error::new(error.code(), format!("the view {}: {}", view.spec.name, error.message()))
                .with_hint(hint)
        }
        _ => error,
    })
}

/// Refuses a row of the document under `key` if another document has the same key in a unique view.
pub(crate) fn check_unique(
    tx: &Shared<'_>,
    entry: &Entry,
    view: &OpenView,
    row: &[u8],
    key: &[u8],
) -> Result<()> {
    if !view.spec.unique {
        return Ok(());
    }
    let prefix = &row[..split(row, view.spec.key_elements())?];
    let range = KeyRange { from: prefix.to_vec(), to: Some(prefix_end(prefix)) };
    let mut cursor = tx.cursor(view.tree, range, Direction::Forward)?;
    while let Some(other) = cursor.next_key()? {
        if other != row {
            return Err(violation(entry, view, prefix, &other[prefix.len()..], key));
        }
    }
    Ok(())
}

/// A view outlives its declaration, since other programs may use it. Says how to end that.
#[cold]
fn if_undeclared(tx: &Transaction<'_>, entry: &Entry, view: &OpenView, error: Error) -> Error {
    let (collection, name) = (entry.schema.name(), view.spec.name());
    let types = &tx.open_state().types;
    if error.code() != Code::UniqueViolation
        || !entry.schema.is_typed()
        || types.is_declared(collection, &view.spec)
    {
        return error;
    }
    if types.is_named(collection, name) {
        return error.with_hint(format!(
            "this program declares the view {name} in another form, which replaces this one once it is built: call \
             Db::build_views with the type of {collection}, and write then; or choose another value"
        ));
    }
    error.with_hint(format!(
        "no type that this program has used declares the view {name}: if it is not wanted any more, drop it with \
         db.documents({collection:?}).drop_view({name:?}); or choose another value"
    ))
}

#[cold]
fn violation(entry: &Entry, view: &OpenView, prefix: &[u8], other: &[u8], key: &[u8]) -> Error {
    Error::new(
        Code::UniqueViolation,
        format!(
            "the document {} of {} has {} in the unique view {}, and the document {} has it already",
            show(key),
            entry.schema.name(),
            show(prefix),
            view.spec.name,
            show(other)
        ),
    )
    .with_hint("choose another value, or change the document that has it first; to swap the values of two documents, give one of them a third value in between")
}
