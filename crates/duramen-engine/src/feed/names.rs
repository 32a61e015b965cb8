//! The name of a tree when a record was written.
//!
//! It comes from the catalogue at the start of a range of the log and the records' own changes to it. Changes
//! of trees that no longer exist keep their names that way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::FeedWhat;
use crate::catalog::{CATALOG, CatalogRow};
use crate::commit::{RecordChange, decode_record};
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::page_cache::Pages;
use crate::tree::{Cursor, Direction, KeyRange, Slot, StoredValue};
use crate::wal::ReplayedRecord;

/// Names of trees at one position of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    by_id: HashMap<TreeId, Arc<str>>,
    by_name: BTreeMap<Arc<str>, TreeId>,
}

/// A change in a record, as the log holds it.
#[derive(Debug)]
pub(super) enum LoggedChange<'a> {
    /// To a tree.
    Tree(FeedWhat),
    /// To a key: its new value; `None` if it was deleted.
    Key(&'a [u8], Option<StoredValue<'a>>),
}

/// Called with each change, and the id and name of its tree.
pub(super) type ChangeSink<'t> = dyn FnMut(TreeId, &Arc<str>, LoggedChange<'_>) -> Result<()> + 't;

impl Names {
    /// Reads the names in a catalogue.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if it cannot be read.
    pub(super) fn load(pages: &Pages, catalogue: Option<&Slot>) -> Result<Names> {
        let mut names = Names::default();
        let mut rows = Cursor::new(catalogue, KeyRange::all(), Direction::Forward);
        while let Some((key, value)) = rows.next(pages)? {
            let row = CatalogRow::decode(value.bytes);
            let (Some(row), Ok(name)) = (row, std::str::from_utf8(key)) else {
                return Err(Error::new(Code::CorruptData, "an entry of the catalogue cannot be read"));
            };
            names.set(Arc::from(name), Some(row.id));
        }
        Ok(names)
    }

    /// The tree that has this name.
    pub(super) fn tree(&self, name: &str) -> Option<TreeId> {
        self.by_name.get(name).copied()
    }

    fn set(&mut self, name: Arc<str>, id: Option<TreeId>) -> Option<TreeId> {
        let before = match id {
            Some(id) => {
                self.by_id.insert(id, Arc::clone(&name));
                self.by_name.insert(name, id)
            }
            None => self.by_name.remove(&name),
        };
        let gone = before.filter(|before| Some(*before) != id)?;
        self.by_id.remove(&gone);
        Some(gone)
    }

    /// Calls `tell` for a record's changes to wanted trees, and applies its changes to names.
    ///
    /// # Errors
    /// `Corrupt` if the record makes no sense; what `tell` returned.
    pub(super) fn pass(
        &mut self,
        record: &ReplayedRecord,
        wants: &dyn Fn(&str) -> bool,
        tell: &mut ChangeSink<'_>,
    ) -> Result<()> {
        let mut changes: Vec<RecordChange<'_>> = Vec::new();
        let bad = |what: &str| {
            Error::new(
                Code::CorruptLog,
                format!("the log record of commit {} cannot be read: {what}", record.seq),
            )
        };
        decode_record(&record.bytes, &mut |change| changes.push(change)).map_err(bad)?;
        let mut of: Option<(TreeId, Arc<str>, bool)> = None;
        for change in &changes {
            if change.tree == CATALOG {
                self.pass_name(change, wants, tell)
                    .map_err(|error| error.unwrap_or_else(|| bad("a name of a tree")))?;
                continue;
            }
            if of.as_ref().is_none_or(|(id, ..)| *id != change.tree) {
                let name = self.by_id.get(&change.tree);
                let name =
                    name.ok_or_else(|| bad(&format!("a change of tree {}, which has no name", change.tree)))?;
                of = Some((change.tree, Arc::clone(name), wants(name)));
            }
            if let Some((id, name, true)) = &of {
                tell(*id, name, LoggedChange::Key(change.key, change.value))?;
            }
        }
        Ok(())
    }

    /// Applies one change of the catalogue. `Err(None)`: it makes no sense.
    fn pass_name(
        &mut self,
        change: &RecordChange<'_>,
        wants: &dyn Fn(&str) -> bool,
        tell: &mut ChangeSink<'_>,
    ) -> std::result::Result<(), Option<Error>> {
        let (name, row) = change.naming().map_err(|_| None)?;
        let (name, id): (Arc<str>, _) = (Arc::from(name), row.map(|row| row.id));
        let is_new = id.is_some_and(|id| !self.by_id.contains_key(&id));
        let gone = self.set(Arc::clone(&name), id);
        if !wants(&name) {
            return Ok(());
        }
        if let Some(gone) = gone {
            tell(gone, &name, LoggedChange::Tree(FeedWhat::Dropped))?;
        }
        if let Some(id) = id.filter(|_| is_new) {
            tell(id, &name, LoggedChange::Tree(FeedWhat::Created))?;
        }
        Ok(())
    }
}
