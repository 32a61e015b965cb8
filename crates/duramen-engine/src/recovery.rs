//! Opening: the newest checkpoint, then the log after it.
//!
//! Intermediate states are not needed. Of all changes in the log, the last one to each key counts. They are
//! sorted and applied in bulk, or handed on as a [`Tail`], the deferred redo, which an overlay serves until
//! it is applied. D2 rests here (records are replayed whole, in order, without gaps), and D4 and D5
//! (corruption is reported, nothing is cut).

mod replay;

use std::path::Path;
use std::sync::Arc;

use duramen_disk::File;

use crate::alarm::Alarm;
use crate::allocator::Space;
use crate::catalog::{CATALOG, RootEntry, TreeState, TreeTable};
use crate::checkpoint::{Store, UnreadValues, read_superblocks};
use crate::data_file::{DataFile, Superblock};
use crate::error::{Code, Error, Result};
use crate::features::NODE_OF_A_CLUSTER;
use crate::ids::TreeId;
use crate::options::Options;
use crate::page_cache::Pages;
use crate::snapshot::Registry;
use crate::tree::{Cursor, Direction, KeyRange, Reducers, Slot};
use crate::wal::LogPosition;

pub(crate) use replay::{Replay, Replayed, Tail, replay};

/// The newest checkpoint of a database, in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The data file with its allocator, readers and reducers.
    pub store: Arc<Store>,
    /// The newest superblock.
    pub superblock: Superblock,
    /// The position from which the older superblock would replay. The newest's if the older one cannot be
    /// read.
    pub older: LogPosition,
    /// The other superblock cannot be read, or a copy took its place. It may have been the newer one.
    pub is_alone: bool,
    /// The other superblock or its space map cannot be read. What it leads to is not held; it must be
    /// overwritten.
    pub leads_nowhere: bool,
    /// The tree of roots.
    pub roots: Option<Slot>,
    /// The trees of the checkpoint.
    pub trees: TreeTable,
}

/// Reads the newest checkpoint.
///
/// # Errors
/// `NotADatabase`, `Unsupported`, `Corrupt`, `Io`.
pub(crate) fn load(
    file: Arc<dyn File>,
    path: &Path,
    options: &Options,
    as_node: bool,
    reducers: &Reducers,
) -> Result<Loaded> {
    let (superblock, older) = read_superblocks(&file, path)?;
    check_features(&superblock, path, options, as_node)?;
    check_length(&file, &superblock, path)?;
    let data = DataFile::new(file, path, superblock.database, superblock.geometry.block_bytes)
        .compressing(options.compress);
    data.note(superblock.features.of_pages());
    let space = match &superblock.space {
        Some(index) => Space::load(data.clone(), index, options.give_back)?,
        None => Space::new(data.clone(), options.give_back),
    };
    let mut leads_nowhere = older.is_none();
    if let Some(index) = older.as_ref().and_then(|older| older.space) {
        match space.hold(&index, superblock.replay.seq) {
            Err(error) if error.is_corruption() => leads_nowhere = true,
            held => held?,
        }
    }
    let pages = Pages::new(data, options.memory_bytes);
    pages.meter().set_kept_patch_percent(options.give_back.kept_patch_percent);
    let store = Arc::new(Store {
        alarm: Alarm::new(),
        registry: Registry::new(pages.clone()),
        pages,
        space,
        reducers: reducers.clone(),
        geometry: superblock.geometry,
        unread: UnreadValues::default(),
        patches: options.patches,
        give_back: options.give_back,
    });
    let (roots, trees) = load_trees(&store, &superblock)?;
    let is_alone = older.as_ref().is_none_or(|older| older.generation == superblock.generation);
    let older = older.map_or(superblock.replay, |older| older.replay);
    Ok(Loaded { store, superblock, older, is_alone, leads_nowhere, roots, trees })
}

fn check_features(superblock: &Superblock, path: &Path, options: &Options, as_node: bool) -> Result<()> {
    let known = if as_node { NODE_OF_A_CLUSTER } else { 0 };
    if superblock.write_features & !known == 0 || options.read_only {
        return Ok(());
    }
    if superblock.write_features == NODE_OF_A_CLUSTER {
        let message = format!("{} is a node of a cluster: others decide on its commits", path.display());
        return Err(Error::new(Code::IsReplica, message)
            .with_hint("open it read-only, serve it as the node that it is with `duramen serve`, or take it out of its cluster with `duramen cluster detach`"));
    }
    let message = format!("{} has features that only a later release may write to", path.display());
    Err(Error::new(Code::Unsupported, message)
        .with_hint("open it read-only, or use the release that wrote it"))
}

/// Reports a file that was cut short at opening, not at the first read of a missing page.
fn check_length(file: &Arc<dyn File>, superblock: &Superblock, path: &Path) -> Result<()> {
    let bytes = file.len().map_err(|e| Error::io("measure", path, &e))?;
    let needed = superblock.end_block.saturating_mul(superblock.geometry.block_bytes as u64);
    if bytes >= needed {
        return Ok(());
    }
    let what = format!("the file is cut short: {bytes} bytes, the newest checkpoint reaches to {needed}");
    Err(Error::corrupt_data(path, bytes, what))
}

fn load_trees(store: &Store, superblock: &Superblock) -> Result<(Option<Slot>, TreeTable)> {
    let mut trees = TreeTable::default();
    let mut roots = None;
    if let Some(pointer) = superblock.roots {
        let slot = Slot::of_unknown_count(&store.pages, pointer)?;
        let mut rows = Cursor::new(Some(&slot), KeyRange::all(), Direction::Forward);
        while let Some((key, value)) = rows.next(&store.pages)? {
            let tree = decode_tree(store, key, value.bytes).ok_or_else(|| {
                let offset = store.pages.data().offset(pointer.block);
                Error::corrupt_data(store.pages.data().path(), offset, "an entry of the tree of roots")
            })?;
            trees.set(tree.id, Some(tree));
        }
        roots = Some(slot);
    }
    if trees.get(CATALOG).is_none() {
        trees.set(CATALOG, Some(TreeState::empty(CATALOG, None, &store.reducers)));
    }
    Ok((roots, trees))
}

fn decode_tree(store: &Store, key: &[u8], value: &[u8]) -> Option<TreeState> {
    let id = Some(TreeId(u64::from_be_bytes(key.try_into().ok()?))).filter(|id| id.is_plausible())?;
    let entry = RootEntry::decode(value)?;
    let slot = entry.pointer.map(|pointer| Slot::on_disk(store.pages.meter(), entry.count, pointer));
    let empty = TreeState::empty(id, entry.spec, &store.reducers);
    Some(TreeState {
        slot,
        features: entry.features,
        has_big_values: entry.has_big_values,
        dropped_at: entry.dropped_at,
        reclaimed_to: entry.reclaimed_to,
        ..empty
    })
}
