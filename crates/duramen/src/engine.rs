//! The door to the engine: the one file of this crate that makes its calls.
//!
//! Owns the translation between documents' needs (named trees, ranges, reductions) and the engine's interface, so
//! that a change there is a change here and nowhere else.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;
use duramen_engine::{Engine, Reducer, ReducerSpec, Reducers};

pub(crate) use duramen_engine::{Cursor, Direction, KeyRange, Options, Snapshot, Transaction};
pub(crate) use duramen_engine::ids::TreeId;

use crate::error::Result;
use crate::sums::Sums;

/// Opens an engine that knows the reducers of this crate.
pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path, options: Options, mut reducers: Reducers) -> Result<Engine> {
    reducers.register(Arc::new(|spec: &ReducerSpec| {
        Sums::from_spec(spec).map(|sums| Arc::new(sums) as Arc<dyn Reducer>)
    }));
    Engine::open(disk, path, options, reducers)
}

/// What can be read, from a snapshot or inside a transaction.
pub(crate) trait Source {
    fn tree(&self, name: &str) -> Result<Option<TreeId>>;
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn count(&self, tree: TreeId, range: &KeyRange) -> Result<u64>;
    fn rank(&self, tree: TreeId, key: &[u8]) -> Result<u64>;
    fn nth(&self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>>;
    fn reduce(&self, tree: TreeId, range: &KeyRange) -> Result<Vec<u8>>;
    fn cursor(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Cursor>;
    fn tree_names(&self) -> Result<Vec<String>>;
}

macro_rules! source {
    ($kind:ty) => {
        impl Source for $kind {
            fn tree(&self, name: &str) -> Result<Option<TreeId>> {
                <$kind>::tree(self, name)
            }

            fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
                <$kind>::get(self, tree, key)
            }

            fn count(&self, tree: TreeId, range: &KeyRange) -> Result<u64> {
                <$kind>::count(self, tree, range)
            }

            fn rank(&self, tree: TreeId, key: &[u8]) -> Result<u64> {
                <$kind>::rank(self, tree, key)
            }

            fn nth(&self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
                <$kind>::nth(self, tree, index)
            }

            fn reduce(&self, tree: TreeId, range: &KeyRange) -> Result<Vec<u8>> {
                <$kind>::reduce(self, tree, range)
            }

            fn cursor(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Cursor> {
                <$kind>::cursor(self, tree, range, direction)
            }

            fn tree_names(&self) -> Result<Vec<String>> {
                Ok(<$kind>::trees(self)?.into_iter().map(|(name, _)| name).collect())
            }
        }
    };
}

source!(Snapshot);
source!(Transaction);
