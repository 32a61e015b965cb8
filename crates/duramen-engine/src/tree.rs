//! The B+tree: immutable nodes, changed by building new ones along the paths that change.
//!
//! Owns the shape of nodes, lookup, cursors, reductions, the application of sorted changes, and the writing
//! of dirty nodes. It knows neither transactions nor the log. I1 rests here (a root never changes), and D3 (a
//! node that has a page on disk is never written again).

mod apply;
mod big;
mod cursor;
mod evict;
mod heads;
mod inner;
mod leaf;
mod node;
mod patch;
mod place;
mod range;
mod read;
mod reduce;
mod reducer;
mod separators;
mod shape;
mod slot;
mod stale;
#[cfg(test)]
mod tests;
mod write;

pub use apply::{Apply, ApplyError, Change, Loading};
pub use big::{BigReader, BigRef};
pub use cursor::{Cursor, Direction};
pub use evict::{evict, warm_keys};
pub use inner::page_bytes_max as inner_page_bytes_max;
pub use leaf::{Leaf, StoredValue};
pub use node::{Body, DeferredPage, Node};
pub use place::{Place, Reduction};
pub use range::KeyRange;
pub use read::{count, find, nth};
pub use reduce::{Reduced, fresh_reduction, reduce};
pub use reducer::one as entry_reduction;
pub use reducer::{Builtin, Combined, Reducer, ReducerFactory, ReducerSpec, Reducers, Running};
pub use shape::{LevelShape, Sizes, TreeShape, shape};
pub use slot::Slot;
pub use stale::stale_keys;
pub use write::{NodeSink, write_tree};
