//! The B+tree: immutable nodes, changed by building new ones along the paths that change.
//!
//! Owns the shape of nodes, lookup, cursors, reductions, the application of sorted changes, and the writing
//! of dirty nodes. It knows neither transactions nor the log. I1 rests here (a root never changes), and D3 (a
//! node that has a page on disk is never written again).

mod apply;
mod big;
mod bounds;
mod compact;
mod cursor;
mod evict;
mod filter;
mod heads;
mod inner;
mod leaf;
mod merge;
mod node;
mod patch;
mod pointer;
mod range;
mod read;
mod reduce;
mod reducer;
mod separators;
mod shape;
mod slot;
mod stale;
mod stored_patch;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use apply::{Apply, ApplyError, Change, Loading, Patches, Prebuilt};
pub(crate) use big::{BigReader, BigRef};
pub(crate) use compact::{Compacting, Group, GroupWalk, Moved};
pub(crate) use cursor::Cursor;
pub use cursor::Direction;
pub(crate) use evict::{evict, warm_keys};
pub(crate) use inner::{Inner, page_bytes_max as inner_page_bytes_max};
pub(crate) use leaf::{Leaf, StoredValue};
pub(crate) use merge::{MergeSlice, MergedFrom, MergedLeaf, Merging, patch_lengths};
pub(crate) use node::{Body, DeferredPage, Node};
pub(crate) use pointer::{NodePointer, Reduction};
pub use range::KeyRange;
pub(crate) use read::{count, find, first_key, nth};
pub use reduce::Reduced;
pub(crate) use reduce::{fresh_reduction, reduce};
pub(crate) use reducer::one as entry_reduction;
pub use reducer::{Builtin, Combined, Reducer, ReducerFactory, ReducerSpec, Reducers, Running};
pub(crate) use shape::shape;
pub use shape::{LevelShape, Sizes, TreeShape};
pub(crate) use slot::Slot;
pub(crate) use stale::stale_keys;
pub(crate) use stored_patch::StoredPatch;
pub(crate) use write::{NodeSink, write_leaves, write_tree};
