//! Checks views against their documents: each row of a document exists, and no other rows do.

use std::sync::Arc;

use crate::access::reads::sealed::Readable;
use crate::access::references;
use crate::access::snapshot::Snapshot;
use crate::access::views::mapped::{mapped_now, row_keys};
use crate::access::views::state::states;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::rows::ViewRows;
use crate::catalog::rows::rows;
use crate::store::KeyRange;
use crate::store::error::{Error, Result};
use crate::store::skip::is_of_disk;
use crate::value::tuple::show;

/// A view in a message.
fn called(view: &OpenView) -> String {
    let kind = if view.spec.of_reference.is_some() { "reference" } else { "view" };
    format!("the {kind} {}", view.spec.name())
}

/// The views of one collection, and the rows that its documents have made so far.
pub(crate) struct Views {
    entry: Arc<Entry>,
    /// Counts per view. An incomplete view is skipped.
    made: Vec<Option<u64>>,
}

impl Views {
    pub(crate) fn of(snapshot: &Snapshot, collection: &str) -> Result<Views> {
        let entry = snapshot.entry(collection)?;
        let states = states(snapshot, &entry)?;
        let made = states.iter().map(|state| (state.is_ready() && state.has_code).then_some(0)).collect();
        Ok(Views { entry, made })
    }

    /// Views that are ready but cannot be checked, because this program lacks their code.
    pub(crate) fn unchecked(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        let states = states(snapshot, &self.entry)?.into_iter();
        let unchecked = states.filter(|state| state.is_ready() && !state.has_code);
        Ok(unchecked.map(|state| state.view.name().to_owned()).collect())
    }

    /// The rows that a document should have in a view, from its fields or the view's code.
    fn rows(&self, snapshot: &Snapshot, view: &OpenView, key: &[u8], stored: &[u8]) -> Result<ViewRows> {
        let Some(trees) = view.coded else {
            return rows(&view.spec, &self.entry.schema, key, stored);
        };
        let (schema, is_current) = (&self.entry.schema, mapped_now(&self.entry, stored)?);
        let code = snapshot
            .open_state()
            .types
            .code(schema.name(), schema.version(), &view.spec)
            .filter(|_| is_current);
        let rows = code.map(|code| code(schema.shapes(), key, stored)).transpose()?.unwrap_or_default();
        let mapped = snapshot.source().get(trees.mapped, key)?.unwrap_or_default();
        if row_keys(&view.spec, &mapped, key)?.iter().ne(rows.keys()) {
            let name = view.spec.name();
            return Err(Error::invalid(format!(
                "the code of the view {name} makes other rows of it now: it is not the same every time, or needs a new version"
            )));
        }
        Ok(rows)
    }

    /// The problem with the rows of a document.
    pub(crate) fn problem_of(
        &mut self,
        snapshot: &Snapshot,
        key: &[u8],
        stored: &[u8],
    ) -> Result<Option<String>> {
        for (index, view) in self.entry.views.iter().enumerate() {
            let Some(made) = self.made[index] else { continue };
            let rows = match self.rows(snapshot, view, key, stored) {
                Ok(rows) => rows,
                Err(error) if is_of_disk(&error) => return Err(error),
                Err(error) => return Ok(Some(error.message().to_owned())),
            };
            self.made[index] = Some(made + rows.len() as u64);
            for (row, value) in rows {
                if snapshot.source().get(view.tree, &row)?.as_deref() != Some(&value) {
                    return Ok(Some(format!("{} lacks its row, or has another", called(view))));
                }
            }
        }
        Ok(None)
    }

    /// The references of a document that lead nowhere, as text, and whether each was checked before: then the
    /// database is wrong, and not only its data.
    pub(crate) fn dangling(
        &self,
        snapshot: &Snapshot,
        key: &[u8],
        stored: &[u8],
    ) -> Result<Vec<(String, bool)>> {
        let schema = &self.entry.schema;
        let mut found = Vec::new();
        for reference in schema.references() {
            let spec = reference.view();
            let missing = references::missing_target(snapshot, schema, reference, &spec, key, stored)?;
            let Some(target) = missing else { continue };
            let (field, to) = (reference.field(), reference.to());
            let what = format!("{field} refers to {} of {to}, which is not there", show(&target));
            found.push((what, reference.is_checked()));
        }
        Ok(found)
    }

    /// Views with rows that no document made. Call it after all documents were checked.
    pub(crate) fn surplus(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        let all = KeyRange { from: Vec::new(), to: None };
        let mut problems = Vec::new();
        for (view, made) in self.entry.views.iter().zip(&self.made) {
            let Some(made) = made else { continue };
            let count = snapshot.source().count(view.tree, &all)?;
            if count != *made {
                let name = called(view);
                problems.push(format!("{name} has {count} rows, and its documents make {made}"));
            }
        }
        Ok(problems)
    }
}
