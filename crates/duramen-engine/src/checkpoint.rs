//! Checkpoints: a published root made durable in the data file, so that the log before it can be used again.
//!
//! Order is everything here (D2, D3): nodes and space map, sync, one superblock (never the newer one), sync; only
//! then is anything freed or recycled.

mod output;
mod reap;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::allocator::MapDraft;
use crate::catalog::{CATALOG, Root, RootEntry, TreeState, TreeTable};
use crate::data_file::{Page, SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, Generation, TreeId};
use crate::tree::{Apply, Change, Loading, Node, Place, Slot, Stop, StoredValue, write_tree};
use crate::wal::LogPosition;

use output::Output;
use reap::reap;
pub use store::{Store, UnreadValues, make_durable, read_superblocks, superblocks_left, whole_superblocks};

const POISON: &str = "nothing panics while a checkpoint is locked";

/// Writes checkpoints, one at a time.
#[derive(Debug)]
pub struct Checkpointer {
    store: Arc<Store>,
    /// Held while a checkpoint or a spill runs: where the reaping of dropped trees goes on; `None` when it is done.
    turn: Mutex<Reaping>,
    /// Held for a moment only.
    newest: Mutex<Newest>,
    /// Checkpoints and spills begun, failed ones included: each may have given nodes their places.
    begun: AtomicU64,
}

type Reaping = BTreeMap<TreeId, Option<Vec<u8>>>;

/// The newest durable checkpoint and what the next one builds on.
#[derive(Debug, Clone)]
struct Newest {
    superblock: Superblock,
    /// Where replay starts from the older superblock: the log is kept from there.
    older: LogPosition,
    /// The tree of roots.
    roots: Option<Slot>,
    /// The trees as they were at it.
    trees: TreeTable,
}

/// The tree of roots as a checkpoint writes it.
struct NewRoots {
    slot: Option<Slot>,
    place: Option<Place>,
    replaced: Vec<Arc<Node>>,
}

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The commit whose root is durable now.
    pub seq: CommitSeq,
    /// The log before this frame is no longer needed.
    pub keep_log_from: LogPosition,
    /// Bytes given to write calls.
    pub written_bytes: u64,
}

/// Why a checkpoint did not happen.
#[derive(Debug)]
pub enum CheckpointError {
    /// Nothing durable changed: it can be tried again (no room, a page that cannot be read).
    Failed(Error),
    /// A sync, or a write to a superblock, failed: the engine must not go on (D6).
    Poison(Error),
}

impl From<Error> for CheckpointError {
    fn from(error: Error) -> CheckpointError {
        CheckpointError::Failed(error)
    }
}

/// What a checkpoint is made of besides a root.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointAim {
    /// Trees created from now on get at least this id.
    pub next_tree: TreeId,
    /// The last one of a clean close.
    pub clean: bool,
    /// Where the warm pages are listed.
    pub hot: Option<crate::data_file::Location>,
}

impl Checkpointer {
    /// Goes on from the superblock a database was opened with.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        superblock: Superblock,
        older: LogPosition,
        roots: Option<Slot>,
        trees: TreeTable,
    ) -> Self {
        let newest = Mutex::new(Newest { superblock, older, roots, trees });
        Checkpointer { store, turn: Mutex::default(), newest, begun: AtomicU64::new(0) }
    }

    /// The newest durable superblock.
    pub fn superblock(&self) -> Superblock {
        self.newest().superblock.clone()
    }

    /// The tree of roots as it lies on disk.
    pub fn roots(&self) -> Option<Slot> {
        self.newest().roots.clone()
    }

    /// Where the newest durable checkpoint ends in the log, and the catalogue there.
    pub fn boundary(&self) -> (LogPosition, Option<Slot>) {
        let newest = self.newest();
        let catalogue = newest.trees.get(CATALOG).and_then(|tree| tree.slot.clone());
        (newest.superblock.replay, catalogue)
    }

    /// The trees of the newest checkpoint are kept to be told from newer ones, and nobody reads them: where a newer root has
    /// replaced one, its root node, with all that only it holds, need not stay in memory.
    pub fn let_go_of_replaced(&self, newest: &Root) {
        let trees = self.newest().trees.clone();
        for id in newest.trees.changed_since(&trees) {
            if let Some(slot) = trees.get(id).and_then(|tree| tree.slot.as_ref()) {
                slot.evict();
            }
        }
    }

    /// Calls `look` while no checkpoint runs, with the tree of roots and with where the reaping of dropped trees goes on.
    pub fn at_rest<T>(&self, look: impl FnOnce(Option<&Slot>, &Reaping) -> T) -> T {
        let reaping = self.turn();
        let roots = self.roots();
        look(roots.as_ref(), &reaping)
    }

    /// How many checkpoints and spills have begun: while it stays the same, no node was given its place.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Makes `root`, whose log is durable, the newest checkpoint. `between` is called after each slice of writes,
    /// with nothing locked that a commit needs.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn run(
        &self,
        root: &Root,
        aim: CheckpointAim,
        between: &mut dyn FnMut(),
    ) -> std::result::Result<CheckpointReport, CheckpointError> {
        let mut reaping = self.turn();
        self.begun.fetch_add(1, Ordering::SeqCst);
        let newest = self.newest().clone();
        if root.seq > newest.superblock.replay.seq {
            self.store.retire_unread(root.seq);
        }
        let position = *root.position.get().expect("a published root knows its place in the log");
        assert!(position.seq >= root.seq, "the log holds the root's last commit");
        let generation = newest.superblock.generation.next();
        let mut output = Output::new(&self.store, between);
        let (new_roots, draft) = self.write_all(&newest, &mut reaping, root, generation, &mut output)?;
        let written_bytes = output.written_bytes();
        drop(output);
        let NewRoots { slot: roots, place: roots_place, .. } = new_roots;
        self.sync()?;
        let superblock = Superblock {
            generation,
            replay: position,
            marked: position.seq,
            roots: roots_place.map(|place| place.location),
            space: Some(draft.index),
            hot: aim.hot,
            end_block: draft.end_block,
            next_tree: aim.next_tree,
            clean: aim.clean,
            ..newest.superblock.clone()
        };
        // A map that was contradicted while it was written must not become the newest.
        self.store.space.is_sound().map_err(CheckpointError::Poison)?;
        self.write_superblock(&superblock)?;
        self.store.space.adopt(draft);
        let older = newest.superblock.replay;
        *self.newest() = Newest { superblock, older, roots, trees: root.trees.clone() };
        drop(reaping);
        let registry = &self.store.registry;
        self.store.space.release(older.seq, || registry.held());
        Ok(CheckpointReport { seq: root.seq, keep_log_from: older, written_bytes })
    }

    /// Frees what snapshots held and hold no more; returns the blocks that they alone still hold.
    pub fn release(&self) -> u64 {
        let older = self.newest().older;
        let registry = &self.store.registry;
        self.store.space.release(older.seq, || registry.held())
    }

    /// Gives every node of a root a place, so that it can leave memory; durable only with the next checkpoint.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub fn spill(&self, root: &Root, between: &mut dyn FnMut()) -> Result<()> {
        let _one_at_a_time = self.turn();
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut output = Output::new(&self.store, between);
        for tree in root.trees.iter() {
            if let Some(slot) = &tree.slot {
                write_tree(&self.store.pages, slot, tree.reducer.as_deref(), &mut output)?;
            }
        }
        output.flush()
    }

    /// Writes everything but the superblock.
    fn write_all(
        &self,
        newest: &Newest,
        reaping: &mut Reaping,
        root: &Root,
        generation: Generation,
        output: &mut Output<'_>,
    ) -> Result<(NewRoots, MapDraft)> {
        let new_roots = self.write_roots(newest, reaping, root, output)?;
        let gone =
            new_roots.replaced.iter().filter_map(|node| node.place()).map(|place| place.location.extent());
        let put = &mut |page: &Page, block| output.put_at(page, block);
        let draft = self.store.space.draft(root.seq, generation, gone.collect(), put)?;
        if let Err(error) = output.finish() {
            self.store.space.discard(&draft);
            return Err(error);
        }
        Ok((new_roots, draft))
    }

    /// Writes what changed since the newest checkpoint, and the tree of roots.
    fn write_roots(
        &self,
        newest: &Newest,
        reaping: &mut Reaping,
        root: &Root,
        output: &mut Output<'_>,
    ) -> Result<NewRoots> {
        let pages = &self.store.pages;
        let mut rows: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut changed = root.trees.changed_since(&newest.trees);
        changed.extend(root.trees.iter().filter(|tree| tree.dropped_at.is_some()).map(|tree| tree.id));
        changed.sort_unstable();
        changed.dedup();
        output.flush()?;
        for id in changed {
            let entry = root
                .trees
                .get(id)
                .map(|tree| self.write_entry((newest, root), reaping, tree, output))
                .transpose()?
                .flatten();
            rows.push((id.0.to_be_bytes().to_vec(), entry.map(|entry| entry.encode())));
        }
        let changes: Vec<Change<'_>> = rows
            .iter()
            .map(|(key, entry)| Change {
                key,
                value: entry.as_ref().map(|bytes| StoredValue { big: false, bytes }),
            })
            .collect();
        if changes.is_empty() {
            let place = newest.roots.as_ref().and_then(Slot::place);
            return Ok(NewRoots { slot: newest.roots.clone(), place, replaced: Vec::new() });
        }
        output.flush()?;
        output.begin_roots();
        let mut apply = Apply::new(pages, &self.store.geometry, root.seq, Loading::Allowed);
        let roots = apply.tree(newest.roots.as_ref(), &changes).map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::Missing => unreachable!("loading is allowed"),
        })?;
        let replaced = apply.replaced;
        let place = roots.as_ref().map(|slot| write_tree(pages, slot, None, output)).transpose()?;
        Ok(NewRoots { slot: roots, place, replaced })
    }

    /// Writes one tree and describes it; `None` once a dropped tree has given everything back.
    fn write_entry(
        &self,
        (newest, root): (&Newest, &Root),
        reaping: &mut Reaping,
        tree: &TreeState,
        output: &mut Output<'_>,
    ) -> Result<Option<RootEntry>> {
        let slot = tree.slot.as_ref();
        let reducer = tree.reducer.as_deref();
        let place = slot.map(|slot| write_tree(&self.store.pages, slot, reducer, output)).transpose()?;
        let mut reaped_to = Vec::new();
        if let Some(slot) = slot.filter(|_| tree.dropped_at.is_some()) {
            output.flush()?;
            let start = reaping.get(&tree.id).unwrap_or(&Some(tree.reaped_to.clone())).clone();
            // What this checkpoint gives back, the older superblock still lists (D3): it is retired at this commit, and
            // one commit gives back one slice.
            let next = match start {
                Some(start) if root.seq > newest.superblock.replay.seq => {
                    let reaped = reap(&self.store, slot, &start, tree.has_big_values, root.seq);
                    // A page that cannot be read does not end the checkpoint. The next one tries again.
                    reaped.unwrap_or(Some(start))
                }
                start => start,
            };
            reaping.insert(tree.id, next.clone());
            let Some(next) = next else { return Ok(None) };
            reaped_to = next;
        }
        Ok(Some(RootEntry {
            spec: tree.spec.clone(),
            place,
            count: tree.len(),
            has_big_values: tree.has_big_values,
            dropped_at: tree.dropped_at,
            reaped_to,
        }))
    }

    /// Dropped trees that have given everything back: the roots may forget them.
    pub fn reaped(&self) -> Vec<TreeId> {
        self.turn().iter().filter(|(_, next)| next.is_none()).map(|(id, _)| *id).collect()
    }

    /// The roots have forgotten these trees.
    pub fn forgotten(&self, ids: &[TreeId]) {
        let mut reaping = self.turn();
        for id in ids {
            reaping.remove(id);
        }
    }

    fn sync(&self) -> std::result::Result<(), CheckpointError> {
        self.store.pages.data().sync().map_err(CheckpointError::Poison)
    }

    /// Writes the older of the two superblocks and syncs. D2: the other one is whole all the while.
    fn write_superblock(&self, superblock: &Superblock) -> std::result::Result<(), CheckpointError> {
        let data = self.store.pages.data();
        let slot = usize::from(superblock.generation.0 % 2 == 1);
        let failed =
            |e: std::io::Error| CheckpointError::Poison(Error::io("write a superblock of", data.path(), &e));
        data.file()
            .write_at(&superblock.encode(), SUPERBLOCK_OFFSETS[slot])
            .map_err(|error| failed(error.into()))?;
        self.sync()
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().expect(POISON)
    }

    fn turn(&self) -> MutexGuard<'_, Reaping> {
        self.turn.lock().expect(POISON)
    }
}
