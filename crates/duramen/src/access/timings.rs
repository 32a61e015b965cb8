//! What is slow, what conflicts, and what holds space, by the names that users see.

use std::collections::HashMap;

use crate::access::handle::Db;
use crate::store::error::Result;
use crate::store::{HeldSnapshot, HotKey, SlowCommit, Timings};

impl Db {
    /// How long the parts of commits took since the database was opened: order, queue, write, sync, publish.
    /// Subtract an earlier reading with [`Histogram::since`](crate::Histogram::since).
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// db.kv("v").put("k", &1)?;
    /// let sync = db.timings().sync;
    /// println!("{} syncs, of which 99 % take {:?} at most", sync.count(), sync.quantile(0.99));
    /// # assert!(sync.count() > 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.engine().timings()
    }

    /// The commits that took longer than 250 ms, with the part of them that did, the oldest first; the newest
    /// 256 of them.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn slow_commits(&self) -> Result<Vec<SlowCommit>> {
        let mut slow = self.engine().slow_commits()?;
        let names = if slow.is_empty() { HashMap::new() } else { self.tree_names()? };
        slow.iter_mut().flat_map(|commit| &mut commit.trees).for_each(|tree| shown(&names, tree));
        Ok(slow)
    }

    /// The keys that transactions conflicted over most since the database was opened, 64 at most, as the
    /// bytes under which they are stored.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn hot_keys(&self) -> Result<Vec<HotKey>> {
        let mut hot = self.engine().hot_keys()?;
        let names = if hot.is_empty() { HashMap::new() } else { self.tree_names()? };
        hot.iter_mut().for_each(|hot| shown(&names, &mut hot.tree));
        Ok(hot)
    }

    /// The states that snapshots, open transactions and cursors hold, with their ages, the oldest first.
    /// Space that newer states have replaced is not used again while an older one needs it.
    #[must_use]
    pub fn held_snapshots(&self) -> Vec<HeldSnapshot> {
        self.engine().held_snapshots()
    }

    /// The names that users see, by the trees' own.
    fn tree_names(&self) -> Result<HashMap<String, String>> {
        let trees = self.snapshot()?.trees()?;
        Ok(trees.into_iter().map(|named| (named.tree, named.name)).collect())
    }
}

fn shown(names: &HashMap<String, String>, tree: &mut String) {
    if let Some(name) = names.get(tree) {
        tree.clone_from(name);
    }
}
