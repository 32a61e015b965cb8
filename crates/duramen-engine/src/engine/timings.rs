//! What is slow, and what holds space: for the command line and for programs.

use std::collections::HashMap;

use super::{Engine, HeldSnapshot, Mode};
use crate::catalog::CATALOG;
use crate::commit::{HotKey, SlowCommit, Timings};
use crate::error::Result;
use crate::ids::TreeId;

impl Engine {
    /// How long the parts of commits took since the database was opened. Of a read-only database all are
    /// empty.
    #[must_use]
    pub fn timings(&self) -> Timings {
        match &self.inner.mode {
            Mode::Write { committer, .. } => committer.timed().read(),
            Mode::Read { .. } => Timings::default(),
        }
    }

    /// The commits that took longer than 250 ms, the oldest first; the newest 256 of them.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads): names of trees are looked up.
    pub fn slow_commits(&self) -> Result<Vec<SlowCommit>> {
        let Mode::Write { committer, .. } = &self.inner.mode else { return Ok(Vec::new()) };
        let slow = committer.timed().slow();
        let names = if slow.is_empty() { HashMap::new() } else { self.names()? };
        let named = slow.into_iter().map(|slow| {
            let trees = slow.trees.iter().map(|tree| name_of(&names, *tree)).collect();
            SlowCommit { trees, ..slow.commit }
        });
        Ok(named.collect())
    }

    /// The keys that most transactions conflicted over since the database was opened, 64 at most, those with
    /// the most conflicts first. Of a range that was read it is the key that was written in it. Conflicts of
    /// transactions so old that whole states were compared name no key.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads): names of trees are looked up.
    pub fn hot_keys(&self) -> Result<Vec<HotKey>> {
        let Mode::Write { committer, .. } = &self.inner.mode else { return Ok(Vec::new()) };
        let hot = committer.timed().hot();
        let names = if hot.is_empty() { HashMap::new() } else { self.names()? };
        let named = hot.into_iter().map(|hot| {
            let (conflicts, conflicts_min) = (hot.count, hot.count_min());
            HotKey { tree: name_of(&names, hot.tree), key: hot.key, conflicts, conflicts_min }
        });
        Ok(named.collect())
    }

    /// The states that snapshots, transactions and cursors hold, the oldest first. Each keeps pages from
    /// being used again that newer states have replaced.
    #[must_use]
    pub fn held_snapshots(&self) -> Vec<HeldSnapshot> {
        let held = self.inner.store.registry.held().into_iter();
        let age_of = |seq| match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance.age_of(seq),
            Mode::Read { .. } => None,
        };
        held.map(|seq| HeldSnapshot { seq, age: age_of(seq) }).collect()
    }

    fn names(&self) -> Result<HashMap<TreeId, String>> {
        let trees = self.snapshot()?.trees()?;
        Ok(trees.into_iter().map(|(name, tree)| (tree, name)).collect())
    }
}

fn name_of(names: &HashMap<TreeId, String>, tree: TreeId) -> String {
    if tree == CATALOG {
        return "names of trees".to_owned();
    }
    names.get(&tree).cloned().unwrap_or_else(|| format!("dropped tree {tree}"))
}
