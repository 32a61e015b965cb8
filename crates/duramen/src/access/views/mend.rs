//! Reductions that are not on disk because a program without their code wrote the rows.
//!
//! Writes them once the code is available again. Answers are right before too: a reader computes what is
//! missing. Rows are put again unchanged, some per transaction. A crash or a concurrent writer merely leaves
//! fewer to do.

use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::catalog::entries::{Entry, OpenView};
use crate::store::error::Result;
use crate::store::{Shared, Source};
use crate::value::tuple::successor;

/// Rows per transaction. Each is in another leaf, so each costs a leaf.
const STEP_ROWS: usize = 100;

impl Db {
    /// Writes the missing reductions of a collection's views to disk.
    pub(crate) fn mend_views(&self, collection: &str) -> Result<()> {
        let entry = self.snapshot()?.entry(collection)?;
        entry.views.iter().try_for_each(|view| self.mend_view(&entry, view))
    }

    fn mend_view(&self, entry: &Entry, view: &OpenView) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let rows = self.snapshot()?.stale_rows(view, &from, STEP_ROWS)?;
            let Some(last) = rows.last() else { return Ok(()) };
            self.transact(|tx| tx.put_rows_again(entry, view, &rows))?;
            from = successor(last);
        }
    }
}

/// Puts rows that still exist again, unchanged.
pub(crate) fn put_again(tx: &Shared<'_>, entry: &Entry, view: &OpenView, rows: &[Vec<u8>]) -> Result<()> {
    // The view may have been replaced meanwhile.
    if tx.tree(&view.spec.tree_name(entry.schema.name()))? != Some(view.tree) {
        return Ok(());
    }
    for row in rows {
        if let Some(value) = tx.get(view.tree, row)? {
            tx.put(view.tree, row, &value)?;
        }
    }
    Ok(())
}
