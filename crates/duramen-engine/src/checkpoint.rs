//! Checkpoints: make a published root durable in the data file, so that the log before it can be reused.
//!
//! The order of steps carries D2 and D3: write nodes and space map; sync; write the older superblock; sync;
//! only then free blocks and recycle the log. See [`make_durable`] and the module `allocator`.

mod output;
mod reclaim;
mod store;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::alarm::{invariant, locked};
use crate::allocator::MapDraft;
use crate::catalog::{CATALOG, Root, RootEntry, TreeState, TreeTable};
use crate::data_file::{Page, SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::ids::{CommitSeq, Generation, TreeId};
use crate::tree::{
    Apply, ApplyError, Body, Change, Compacting, Loading, MergedLeaf, Node, NodePointer, NodeSink, Slot,
    StoredValue, write_leaves, write_tree,
};
use crate::wal::LogPosition;

use output::Output;
use reclaim::reclaim;
pub(crate) use store::{
    Store, UnreadValues, make_durable, read_superblocks, superblocks_left, whole_superblocks,
};
pub(crate) use value::write_value;

/// Writes checkpoints, one at a time.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    store: Arc<Store>,
    /// Held while a checkpoint or a write back runs, and while extents are freed. Contains where the
    /// reclaiming of each dropped tree goes on; `None` when all of the tree is reclaimed.
    io: Mutex<Reclaiming>,
    /// Held for a moment only.
    newest: Mutex<Newest>,
    /// Checkpoints and write backs begun, failed ones included. Each may have given nodes their page
    /// pointers.
    begun: AtomicU64,
    unreclaimed: Mutex<Unreclaimed>,
    /// Bytes of leaves written since the last checkpoint, apart from it. The pages that they replace are free
    /// after the next one.
    ahead_bytes: AtomicU64,
}

/// Dropped trees of which a page cannot be read.
#[derive(Debug, Default)]
struct Unreclaimed {
    trees: BTreeSet<TreeId>,
    /// The first error of each, until it is reported.
    untold: Vec<Error>,
}

type Reclaiming = BTreeMap<TreeId, Option<Vec<u8>>>;

/// The newest durable checkpoint and what the next one builds on.
#[derive(Debug, Clone)]
struct Newest {
    superblock: Superblock,
    /// Where replay from the older superblock begins: the log is kept from there.
    older: LogPosition,
    /// The tree of roots.
    roots: Option<Slot>,
    /// The trees of that checkpoint.
    trees: TreeTable,
}

/// The tree of roots written by a checkpoint.
struct NewRoots {
    slot: Option<Slot>,
    pointer: Option<NodePointer>,
    replaced: Vec<Arc<Node>>,
}

/// The result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointReport {
    /// The commit of the root that is now durable.
    pub seq: CommitSeq,
    /// The log before this frame is no longer needed.
    pub keep_log_from: LogPosition,
    /// Bytes given to write calls.
    pub written_bytes: u64,
}

/// Why a checkpoint did not happen.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// Nothing durable changed and a retry is possible (no room, a page that cannot be read).
    Failed(Error),
    /// A sync or the write of a superblock failed: the engine is poisoned (D6).
    Poison(Error),
}

impl From<Error> for CheckpointError {
    fn from(error: Error) -> CheckpointError {
        CheckpointError::Failed(error)
    }
}

/// Arguments of a checkpoint besides the root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointAim {
    /// The least id for trees created from now on.
    pub next_tree: TreeId,
    /// It is the last one of a clean close.
    pub clean: bool,
    /// The list of warm pages.
    pub hot: Option<crate::data_file::PagePointer>,
}

impl Checkpointer {
    /// Continues from the superblock that a database was opened with.
    #[must_use]
    pub(crate) fn new(
        store: Arc<Store>,
        superblock: Superblock,
        older: LogPosition,
        roots: Option<Slot>,
        trees: TreeTable,
    ) -> Self {
        let newest = Mutex::new(Newest { superblock, older, roots, trees });
        let (io, begun, unreclaimed) = (Mutex::default(), AtomicU64::new(0), Mutex::default());
        Checkpointer { store, io, newest, begun, unreclaimed, ahead_bytes: AtomicU64::new(0) }
    }

    /// The newest durable superblock.
    pub(crate) fn superblock(&self) -> Superblock {
        self.newest().superblock.clone()
    }

    /// The commit of the older superblock: both lead to it or to a later one.
    pub(crate) fn older_checkpoint(&self) -> CommitSeq {
        self.newest().older.seq
    }

    /// Sets the flags of what builds may write to the database, from the next checkpoint on.
    pub(crate) fn set_write_features(&self, bits: u64) {
        self.newest().superblock.write_features = bits;
    }

    /// Bytes of leaves written since the last checkpoint, apart from it.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes.load(Ordering::Relaxed)
    }

    /// The tree of roots on disk.
    pub(crate) fn roots(&self) -> Option<Slot> {
        self.newest().roots.clone()
    }

    /// The end of the newest durable checkpoint in the log, and its catalogue.
    pub(crate) fn boundary(&self) -> (LogPosition, Option<Slot>) {
        let newest = self.newest();
        let catalogue = newest.trees.get(CATALOG).and_then(|tree| tree.slot.clone());
        (newest.superblock.replay, catalogue)
    }

    /// Evicts root nodes of the newest checkpoint that neither a newer root nor a held one uses.
    ///
    /// What only they hold leaves memory too: no eviction of those roots would reach it. The checkpoint keeps
    /// such trees only to compare them with newer ones; nothing reads them.
    pub(crate) fn let_go_of_replaced(&self, newest: &Root, held: &[Arc<Root>]) {
        let trees = self.newest().trees.clone();
        let slot_of = |trees: &TreeTable, id| trees.get(id).and_then(|tree| tree.slot.clone());
        for id in newest.trees.changed_since(&trees) {
            let Some((tree, slot)) = trees.get(id).zip(slot_of(&trees, id)) else { continue };
            if !slot.is_resident() {
                continue;
            }
            let is_used = |root: &Arc<Root>| slot_of(&root.trees, id).is_some_and(|held| held.shares(&slot));
            if !held.iter().any(is_used) {
                slot.evict(&self.store.pages, tree.reducer.as_deref());
            }
        }
    }

    /// Calls `look` while no checkpoint runs, with the tree of roots and the progress of reclaiming.
    pub(crate) fn at_rest<T>(&self, look: impl FnOnce(Option<&Slot>, &Reclaiming) -> T) -> T {
        let reclaiming = self.io();
        let roots = self.roots();
        look(roots.as_ref(), &reclaiming)
    }

    /// The number of checkpoints and write backs begun. While it is unchanged, no node got a page pointer.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Makes `root` the newest checkpoint. Its log must be durable. Calls `between` after each slice of
    /// writes, without a lock that a commit needs.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub(crate) fn run(
        &self,
        root: &Root,
        aim: CheckpointAim,
        between: &mut dyn FnMut(),
    ) -> std::result::Result<CheckpointReport, CheckpointError> {
        let mut reclaiming = self.io();
        self.begun.fetch_add(1, Ordering::SeqCst);
        let newest = self.newest().clone();
        let position = *root.position.get().expect("a published root knows its place in the log");
        // Replay begins there: what the trees lack of the log before it would be lost (D1).
        invariant!(position.seq == root.seq, "commit {} is the last of root {}", position.seq, root.seq);
        let replay = newest.superblock.replay;
        invariant!(root.seq >= replay.seq, "root {} is not before checkpoint {}", root.seq, replay.seq);
        if root.seq > replay.seq {
            self.store.defer_free_unread(root.seq);
        }
        let generation = newest.superblock.generation.next();
        let mut output = Output::new(&self.store, between);
        let (new_roots, draft) = self.write_all(&newest, &mut reclaiming, root, generation, &mut output)?;
        let written_bytes = output.written_bytes();
        drop(output);
        let NewRoots { slot: roots, pointer: roots_pointer, .. } = new_roots;
        self.sync()?;
        let superblock = Superblock {
            features: features_of(&root.trees) | self.store.pages.data().features(),
            generation,
            replay: position,
            marked: position.seq,
            roots: roots_pointer.map(|pointer| pointer.page),
            space: Some(draft.index),
            hot: aim.hot,
            end_block: draft.end_block,
            next_tree: aim.next_tree,
            clean: aim.clean,
            ..newest.superblock.clone()
        };
        // What was written while an invariant broke must not become the newest.
        self.store.space.is_sound().map_err(CheckpointError::Poison)?;
        self.store.alarm.check()?;
        check_succession(&newest.superblock, &superblock);
        self.write_superblock(&superblock)?;
        self.store.space.adopt(draft);
        let next = Newest { superblock, older: replay, roots, trees: root.trees.clone() };
        let before = std::mem::replace(&mut *self.newest(), next);
        self.release_through(replay.seq);
        self.ahead_bytes.store(0, Ordering::Relaxed);
        drop(reclaiming);
        // After unlocking: it may be the last owner of a large tree of roots, and freeing that takes long.
        drop(before);
        Ok(CheckpointReport { seq: root.seq, keep_log_from: replay, written_bytes })
    }

    /// The commit of the older superblock: what only roots before it use is free.
    pub(crate) fn freed_to(&self) -> CommitSeq {
        self.newest().older.seq
    }

    /// Frees extents that snapshots no longer hold. Returns the number of blocks that only snapshots still
    /// hold. Waits for a checkpoint that runs.
    pub(crate) fn release(&self) -> u64 {
        // A checkpoint in between frees up to a later commit. Nothing may be freed up to an earlier one then.
        let _one_at_a_time = self.io();
        let older = self.newest().older;
        self.release_through(older.seq)
    }

    /// The caller holds the lock `io`.
    fn release_through(&self, boundary: CommitSeq) -> u64 {
        let registry = &self.store.registry;
        self.store.space.release(boundary, || registry.held_before_freeing(boundary))
    }

    /// Writes back every node of a root, so that it can leave memory. Durable only with the next checkpoint.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(crate) fn write_back(&self, root: &Root, between: &mut dyn FnMut()) -> Result<()> {
        let _one_at_a_time = self.io();
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut output = Output::new(&self.store, between);
        for tree in root.trees.iter() {
            if let Some(slot) = &tree.slot {
                output.begin_tree(tree.id);
                write_tree(&self.store.pages, slot, tree.reducer.as_deref(), &mut output)?;
            }
        }
        output.flush()
    }

    /// Writes the dirty leaves of a root, so that they can leave memory. Durable only with the next
    /// checkpoint.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(crate) fn write_leaves(&self, root: &Root) -> Result<()> {
        let _one_at_a_time = self.io();
        self.begun.fetch_add(1, Ordering::SeqCst);
        let between = &mut || ();
        let mut output = Output::new(&self.store, between);
        for tree in root.trees.iter() {
            let Some(slot) = tree.slot.as_ref().filter(|_| tree.dropped_at.is_none()) else { continue };
            output.begin_tree(tree.id);
            write_leaves(&self.store.pages, slot, tree.reducer.as_deref(), &mut output)?;
        }
        output.flush()?;
        self.ahead_bytes.fetch_add(output.written_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes leaves that a commit will put into a tree. Durable only with the checkpoint of that commit.
    ///
    /// # Errors
    /// `Full` or `Io`; the extents of all of them are free again.
    pub(crate) fn write_ahead(&self, tree: TreeId, leaves: &[MergedLeaf]) -> Result<()> {
        let _one_at_a_time = self.io();
        let between = &mut || ();
        let mut output = Output::ahead(&self.store, between, tree);
        let written = leaves.iter().try_for_each(|leaf| {
            let Body::Leaf(body) = leaf.node.body() else { unreachable!("a merged leaf is a leaf") };
            let page = body.page().expect("a merged leaf has no patch");
            output.put(&leaf.node, page, leaf.reduction.clone()).map(drop)
        });
        let written = written.and_then(|()| output.flush());
        let written_bytes = if written.is_ok() { output.written_bytes() } else { 0 };
        self.ahead_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        drop(output);
        written.inspect_err(|_| {
            let pages = leaves.iter().filter_map(MergedLeaf::page);
            self.store.space.value_aborted(&pages.collect::<Vec<_>>());
        })
    }

    /// Writes everything but the superblock.
    fn write_all(
        &self,
        newest: &Newest,
        reclaiming: &mut Reclaiming,
        root: &Root,
        generation: Generation,
        output: &mut Output<'_>,
    ) -> Result<(NewRoots, MapDraft)> {
        let new_roots = self.write_roots(newest, reclaiming, root, output)?;
        let gone = new_roots.replaced.iter().filter_map(|node| node.page()).map(|page| page.extent());
        let put = &mut |page: &Page, block| output.put_at(page, block);
        let draft = self.store.space.draft(root.seq, generation, gone.collect(), put)?;
        let roots = new_roots.pointer.as_ref().map(|pointer| pointer.page.extent());
        let covers = self.store.space.check_covers(&draft, roots);
        if let Err(error) = covers.and_then(|()| output.finish()) {
            self.store.space.discard(&draft);
            return Err(error);
        }
        Ok((new_roots, draft))
    }

    /// Writes the trees that changed since the newest checkpoint, and the tree of roots.
    fn write_roots(
        &self,
        newest: &Newest,
        reclaiming: &mut Reclaiming,
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
                .map(|tree| self.write_entry(newest, root, reclaiming, tree, output))
                .transpose()?
                .flatten();
            rows.push((id.0.to_be_bytes().to_vec(), entry.map(|entry| entry.encode())));
        }
        debug_assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "the rows of the roots are in order, each once");
        let changes: Vec<Change<'_>> = rows
            .iter()
            .map(|(key, entry)| Change {
                key,
                value: entry.as_ref().map(|bytes| StoredValue { big: false, bytes }),
            })
            .collect();
        let aimed_end = self.store.space.aimed_end();
        if changes.is_empty() && aimed_end.is_none() {
            let pointer = newest.roots.as_ref().and_then(Slot::pointer);
            return Ok(NewRoots { slot: newest.roots.clone(), pointer, replaced: Vec::new() });
        }
        output.flush()?;
        output.begin_roots();
        let mut apply = Apply::new(pages, &self.store.geometry, root.seq, Loading::Allowed);
        let mut roots = apply.tree(newest.roots.as_ref(), &changes).map_err(ApplyError::into_error)?;
        if let (Some(slot), Some(end_block)) = (&roots, aimed_end) {
            let compacting = Compacting { end_block, packs: true };
            let compacted = apply.compacted(slot, &[], None, compacting);
            roots = Some(compacted.map_err(ApplyError::into_error)?);
        }
        let replaced = apply.replaced;
        let pointer = roots.as_ref().map(|slot| write_tree(pages, slot, None, output)).transpose()?;
        Ok(NewRoots { slot: roots, pointer, replaced })
    }

    /// Writes one tree and returns its entry; `None` once a dropped tree is reclaimed completely.
    fn write_entry(
        &self,
        newest: &Newest,
        root: &Root,
        reclaiming: &mut Reclaiming,
        tree: &TreeState,
        output: &mut Output<'_>,
    ) -> Result<Option<RootEntry>> {
        let slot = tree.slot.as_ref();
        let reducer = tree.reducer.as_deref();
        output.begin_tree(tree.id);
        let pointer = slot.map(|slot| write_tree(&self.store.pages, slot, reducer, output)).transpose()?;
        let mut reclaimed_to = Vec::new();
        if let Some(slot) = slot.filter(|_| tree.dropped_at.is_some()) {
            output.flush()?;
            let start = reclaiming.get(&tree.id).unwrap_or(&Some(tree.reclaimed_to.clone())).clone();
            // The older superblock still lists what this checkpoint reclaims (D3). Its free is deferred under
            // this commit, and one commit reclaims one slice.
            let next = match start {
                Some(start) if root.seq > newest.superblock.replay.seq => {
                    let reclaimed = reclaim(&self.store, slot, &start, tree.has_big_values, root.seq);
                    self.or_later(tree.id, reclaimed, start)
                }
                start => start,
            };
            reclaiming.insert(tree.id, next.clone());
            let Some(next) = next else { return Ok(None) };
            reclaimed_to = next;
        }
        Ok(Some(RootEntry {
            spec: tree.spec.clone(),
            features: tree.features,
            pointer,
            count: tree.len(),
            has_big_values: tree.has_big_values,
            dropped_at: tree.dropped_at,
            reclaimed_to,
        }))
    }

    /// Where reclaiming a tree goes on. A page that cannot be read does not end the checkpoint: the next one
    /// tries again, from `start`.
    fn or_later(&self, tree: TreeId, reclaimed: Result<Option<Vec<u8>>>, start: Vec<u8>) -> Option<Vec<u8>> {
        let mut unreclaimed = locked(self.unreclaimed.lock());
        match reclaimed {
            Ok(next) => {
                unreclaimed.trees.remove(&tree);
                next
            }
            Err(error) => {
                if unreclaimed.trees.insert(tree) {
                    let message = format!("cannot reclaim the dropped tree {tree} yet: {}", error.message());
                    unreclaimed.untold.push(Error::new(error.code(), message));
                }
                Some(start)
            }
        }
    }

    /// Whether the last attempt to reclaim a dropped tree could read its pages.
    pub(crate) fn can_reclaim(&self, tree: TreeId) -> bool {
        !locked(self.unreclaimed.lock()).trees.contains(&tree)
    }

    /// Errors of reclaiming that were not taken yet: one for each tree, until its pages can be read again.
    pub(crate) fn take_unreclaimed(&self) -> Vec<Error> {
        std::mem::take(&mut locked(self.unreclaimed.lock()).untold)
    }

    /// Dropped trees that are reclaimed completely: the roots may forget them.
    pub(crate) fn reclaimed(&self) -> Vec<TreeId> {
        self.io().iter().filter(|(_, next)| next.is_none()).map(|(id, _)| *id).collect()
    }

    /// Forgets the progress of trees that the roots have forgotten.
    pub(crate) fn forgotten(&self, ids: &[TreeId]) {
        let mut reclaiming = self.io();
        for id in ids {
            let left = reclaiming.remove(id).flatten();
            invariant!(left.is_none(), "tree {id} is reclaimed before it is forgotten, up to {left:?}");
        }
    }

    fn sync(&self) -> std::result::Result<(), CheckpointError> {
        self.store.pages.data().sync().map_err(CheckpointError::Poison)
    }

    /// Writes the older of the two superblocks and syncs. The other one stays intact meanwhile (D2).
    fn write_superblock(&self, superblock: &Superblock) -> std::result::Result<(), CheckpointError> {
        let data = self.store.pages.data();
        let slot = usize::from(superblock.generation.0 % 2 == 1);
        let bytes = superblock.encode();
        invariant!(superblock.reads_back(&bytes), "superblock {} reads back", superblock.generation);
        let failed =
            |e: std::io::Error| CheckpointError::Poison(Error::io("write a superblock of", data.path(), &e));
        data.file().write_at(&bytes, SUPERBLOCK_OFFSETS[slot]).map_err(|error| failed(error.into()))?;
        self.sync()
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        locked(self.newest.lock())
    }

    fn io(&self) -> MutexGuard<'_, Reclaiming> {
        locked(self.io.lock())
    }
}

/// What holds of a superblock that follows another (D2, D3): nothing goes back, and it covers what it names.
fn check_succession(before: &Superblock, next: &Superblock) {
    let (old, new) = (before.generation, next.generation);
    invariant!(new.0 == old.0 + 1, "checkpoint {new} follows {old}");
    let (old, new) = (before.replay.seq, next.replay.seq);
    invariant!(new >= old, "replay begins at commit {new}, not before {old}");
    let place = |superblock: &Superblock| (superblock.replay.epoch.0, superblock.replay.offset);
    let (old, new) = (place(before), place(next));
    invariant!(new >= old, "replay begins at epoch and offset {new:?}, not before {old:?}");
    let (old, new) = (before.next_tree, next.next_tree);
    invariant!(new >= old, "the next tree is {new}, and {old} may have been given");
    let stays = |feature| !before.features.contains(feature) || next.features.contains(feature);
    invariant!(stays(Features::LZ4_PAGES), "pages that were compressed before are still there");
    invariant!(stays(Features::PATCHES), "patches that were written before are still there");
    let end_block = next.end_block;
    for page in [next.roots, next.space].iter().flatten() {
        let (block, block_count) = page.extent();
        let is_before = block.saturating_add(u64::from(block_count)) <= end_block;
        invariant!(is_before, "the page at block {block} lies before the end, {end_block}");
    }
}

/// What a build must know to read these trees. Costs a look at each.
fn features_of(trees: &TreeTable) -> Features {
    trees.iter().fold(Features::NONE, |features, tree| features | tree.features)
}
