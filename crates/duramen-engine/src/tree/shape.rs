//! The shape of a tree: its nodes by level, and the sizes of its entries.
//!
//! One pass that keeps the path to one leaf and a few counters. Big values are counted by their length, and
//! not read.

use super::big::BigRef;
use super::node::Body;
use super::slot::Slot;
use crate::alarm::invariant;
use crate::error::Result;
use crate::page_cache::Pages;

/// Sizes up to 2^(n + 1) - 1 bytes are counted in class n; larger ones in the last class.
pub(super) const SIZE_CLASSES: usize = 40;

/// The nodes of a tree at one height above its leaves, which are at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelShape {
    /// Nodes.
    pub nodes: u64,
    /// Items in them: entries of leaves, children of inner nodes.
    pub items: u64,
    /// Bytes of their pages as they are in memory, for nodes that are on disk.
    pub page_bytes: u64,
    /// Bytes of the blocks that these pages take. Compressed ones take fewer.
    pub block_bytes: u64,
    /// Nodes that no checkpoint holds yet.
    pub unwritten: u64,
}

/// How long keys or values are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// The sum of all lengths.
    pub sum: u64,
    /// The number of each size: class n counts 2^n to 2^(n + 1) - 1 bytes, and class 0 also empty ones.
    pub classes: [u64; SIZE_CLASSES],
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { count: 0, min: 0, max: 0, sum: 0, classes: [0; SIZE_CLASSES] }
    }
}

impl Sizes {
    fn add(&mut self, bytes: u64) {
        self.min = if self.count == 0 { bytes } else { self.min.min(bytes) };
        self.max = self.max.max(bytes);
        self.sum = self.sum.saturating_add(bytes);
        self.count += 1;
        let class = bytes.checked_ilog2().unwrap_or(0) as usize;
        self.classes[class.min(SIZE_CLASSES - 1)] += 1;
    }
}

/// The shape of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeShape {
    /// Entries.
    pub entries: u64,
    /// Levels, from the leaves up; none of an empty tree.
    pub levels: Vec<LevelShape>,
    /// Keys.
    pub keys: Sizes,
    /// Values, big ones included.
    pub values: Sizes,
    /// Values that lie outside of nodes.
    pub big_values: u64,
    /// Bytes of the values outside of nodes.
    pub big_bytes: u64,
}

/// Visits every node of a tree; after each leaf, `told` is called with the shape so far.
///
/// # Errors
/// `Corrupt` or `Io` if a page cannot be read; the error of `told`.
pub(crate) fn shape(
    pages: &Pages,
    root: Option<&Slot>,
    told: &mut dyn FnMut(&TreeShape) -> Result<()>,
) -> Result<TreeShape> {
    let mut found = TreeShape::default();
    if let Some(root) = root {
        look(pages, root, &mut found, told)?;
        let (count, entries) = (root.count, found.entries);
        invariant!(entries == count, "{entries} entries in leaves are {count} below the root");
    }
    Ok(found)
}

fn look(
    pages: &Pages,
    slot: &Slot,
    found: &mut TreeShape,
    told: &mut dyn FnMut(&TreeShape) -> Result<()>,
) -> Result<()> {
    let node = slot.pass_through(pages)?;
    let height = usize::from(node.level());
    if found.levels.len() <= height {
        found.levels.resize(height + 1, LevelShape::default());
    }
    let level = &mut found.levels[height];
    level.nodes += 1;
    match slot.page() {
        Some(page) => {
            level.page_bytes += u64::from(page.raw_bytes);
            level.block_bytes += u64::from(page.block_count) * pages.data().block_bytes() as u64;
        }
        None => level.unwritten += 1,
    }
    match node.body() {
        Body::Inner(inner) => {
            level.items += inner.len() as u64;
            inner.slots().try_for_each(|slot| look(pages, slot, found, told))
        }
        Body::Leaf(leaf) => {
            level.items += leaf.len() as u64;
            found.entries += leaf.len() as u64;
            let prefix_bytes = leaf.prefix().len();
            for index in 0..leaf.len() {
                let (suffix, value) = leaf.suffix_and_value(index);
                found.keys.add((prefix_bytes + suffix.len()) as u64);
                let bytes =
                    if value.big { BigRef::decode(value.bytes)?.len } else { value.bytes.len() as u64 };
                found.values.add(bytes);
                found.big_values += u64::from(value.big);
                let big_bytes = if value.big { bytes } else { 0 };
                found.big_bytes = found.big_bytes.saturating_add(big_bytes);
            }
            told(found)
        }
    }
}
