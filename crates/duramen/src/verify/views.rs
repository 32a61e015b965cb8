//! Whether views are what their documents say: each row of a document is there, and as many as there are belong to one.

use std::sync::Arc;

use crate::catalogue::Entry;
use crate::engine::KeyRange;
use crate::error::Result;
use crate::reads::sealed::Readable;
use crate::snapshot::Snapshot;
use crate::view::rows;

/// The views of one collection, and the rows that its documents made so far.
pub(super) struct Views {
    entry: Arc<Entry>,
    /// By view; a view that is being built is passed over.
    made: Vec<u64>,
}

impl Views {
    pub(super) fn of(snapshot: &Snapshot, collection: &str) -> Result<Views> {
        let entry = snapshot.entry(collection)?;
        let made = vec![0; entry.views.len()];
        Ok(Views { entry, made })
    }

    /// What is wrong with the rows of a document.
    pub(super) fn problem_of(
        &mut self,
        snapshot: &Snapshot,
        key: &[u8],
        stored: &[u8],
    ) -> Result<Option<String>> {
        let compact = self.entry.schema.compact_fields();
        for (view, made) in
            self.entry.views.iter().zip(&mut self.made).filter(|(view, _)| view.spec.is_ready())
        {
            let rows = match rows(&view.spec, compact, key, stored) {
                Ok(rows) => rows,
                Err(error) => return Ok(Some(error.message().to_owned())),
            };
            for (row, value) in rows {
                *made += 1;
                if snapshot.source().get(view.tree, &row)?.as_deref() != Some(&value) {
                    return Ok(Some(format!("the view {} lacks its row, or has another", view.spec.name())));
                }
            }
        }
        Ok(None)
    }

    /// Views with rows that no document made; to be asked once every document was looked at.
    pub(super) fn surplus(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        let all = KeyRange { from: Vec::new(), to: None };
        let mut problems = Vec::new();
        for (view, made) in self.entry.views.iter().zip(&self.made).filter(|(view, _)| view.spec.is_ready()) {
            let count = snapshot.source().count(view.tree, &all)?;
            if count != *made {
                let name = view.spec.name();
                problems.push(format!("the view {name} has {count} rows, and its documents make {made}"));
            }
        }
        Ok(problems)
    }
}
