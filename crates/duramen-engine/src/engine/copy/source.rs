//! The entries of one state, part by part.

use std::vec::IntoIter;

use super::{CopyPart, Digest, PART_BYTES};
use crate::commit::ENTRY_BYTES;
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::transaction::{Rows, Snapshot, TreeInfo};
use crate::tree::{Direction, KeyRange};

/// One state, read part by part. It is held meanwhile, and its space with it.
#[derive(Debug)]
pub struct CopySource {
    state: Snapshot,
    entries: u64,
    trees: IntoIter<(String, TreeId)>,
    /// The tree that has begun.
    tree: Option<(String, TreeId, Rows)>,
    digest: Digest,
}

impl CopySource {
    pub(super) fn of(state: Snapshot) -> Result<CopySource> {
        let trees = state.trees()?;
        let mut entries: u64 = 0;
        for (_, id) in &trees {
            entries = entries.saturating_add(state.count(*id, &KeyRange::all())?);
        }
        Ok(CopySource { state, entries, trees: trees.into_iter(), tree: None, digest: Digest::default() })
    }

    /// The commit whose state it is.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.state.seq()
    }

    /// How many entries there are in all.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// A hash of all parts so far, which a [`CopyTarget`](super::CopyTarget) compares with its own.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest.get()
    }

    /// The tree that the last part began or belongs to.
    #[must_use]
    pub fn tree(&self) -> Option<TreeId> {
        self.tree.as_ref().map(|(_, id, _)| *id)
    }

    /// The next part; `None` after the last. `value_in_copy` gets the name of a tree and a value of it, and
    /// returns the value for the copy.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn next(&mut self, value_in_copy: &dyn Fn(&str, Vec<u8>) -> Vec<u8>) -> Result<Option<CopyPart>> {
        let part = self.read(value_in_copy)?;
        part.iter().for_each(|part| self.digest.add(part));
        Ok(part)
    }

    fn read(&mut self, value_in_copy: &dyn Fn(&str, Vec<u8>) -> Vec<u8>) -> Result<Option<CopyPart>> {
        if let Some((name, _, rows)) = &mut self.tree {
            let entries = entries(rows, &|value| value_in_copy(name, value))?;
            if !entries.is_empty() {
                return Ok(Some(CopyPart::Entries(entries)));
            }
            self.tree = None;
        }
        let Some((name, id)) = self.trees.next() else { return Ok(None) };
        let TreeInfo { reducer, features, .. } = self.state.tree_info(id)?;
        let rows = self.state.rows(id, KeyRange::all(), Direction::Forward)?;
        self.tree = Some((name.clone(), id, rows));
        Ok(Some(CopyPart::Tree { name, reducer, features }))
    }
}

/// The next entries: at least one, unless the tree is at its end.
fn entries(rows: &mut Rows, value_of: &dyn Fn(Vec<u8>) -> Vec<u8>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while bytes < PART_BYTES
        && let Some(row) = rows.next()?
    {
        let (key, value) = (row.key().to_vec(), value_of(row.value()?.into_owned()));
        bytes += key.len() + value.len() + ENTRY_BYTES;
        entries.push((key, value));
    }
    Ok(entries)
}
