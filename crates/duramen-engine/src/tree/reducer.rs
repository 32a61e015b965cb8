//! Reducers: named, versioned monoids over entries, kept in the nodes of a tree.

mod combined;
mod fold;

use std::fmt;
use std::sync::Arc;

pub use combined::Combined;
pub(crate) use fold::{Fold, one};

/// Turns entries into small values that can be joined, so that a range is computed from the nodes above it.
///
/// `join` must be associative bit for bit: the result must not depend on how nodes are split. Entries come in
/// key order.
pub trait Reducer: Send + Sync {
    /// Appends the reduction of one entry to `out` (which is empty).
    ///
    /// # Errors
    /// The reason why the entry has none. The call that puts the entry fails with `InvalidArgument` (E0201).
    fn one(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String>;

    /// Appends the reduction of `left` followed by `right` to `out` (which is empty).
    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>);

    /// Whether [`Reducer::one`] reads keys. If not, it may be given empty ones, and ranges are reduced
    /// faster.
    fn reads_keys(&self) -> bool {
        true
    }

    /// Whether [`Reducer::join`] gives the same bytes in any order of entries, not of neighbours alone. What
    /// is new in a leaf is then joined to the leaf's reduction, and the leaf need not be read.
    fn is_commutative(&self) -> bool {
        false
    }

    /// An incremental join, for reductions that are costly to decode and encode at every step.
    ///
    /// Its result must be what [`Reducer::one`] and [`Reducer::join`] give from left to right, bit for bit.
    fn running(&self) -> Option<Box<dyn Running + '_>> {
        None
    }
}

/// An incremental join of entries and reductions from left to right: see [`Reducer::running`].
pub trait Running {
    /// Adds one entry on the right.
    ///
    /// # Errors
    /// The reason, as for [`Reducer::one`].
    fn entry(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), String>;

    /// Adds a reduction on the right.
    fn reduction(&mut self, reduction: &[u8]);

    /// Appends the reduction of everything added, at least one item, to `out` (which is empty).
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Which reducer a tree has: stored in the catalogue, looked up at every open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReducerSpec {
    /// Its name, as registered.
    pub name: String,
    /// Its version; a reducer whose results change needs a new one.
    pub version: u32,
    /// Its parameters, in its own encoding.
    pub params: Vec<u8>,
}

/// Makes the reducer for a spec, or returns `None` for an unknown one.
pub type ReducerFactory = Arc<dyn Fn(&ReducerSpec) -> Option<Arc<dyn Reducer>> + Send + Sync>;

/// The registered reducers, found by their specs.
#[derive(Clone, Default)]
pub struct Reducers {
    factories: Vec<ReducerFactory>,
}

impl fmt::Debug for Reducers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reducers").field("factories", &self.factories.len()).finish()
    }
}

impl Reducers {
    /// Adds a factory. Factories are tried before the built-in reducers, in the order added.
    pub fn register(&mut self, factory: ReducerFactory) {
        self.factories.push(factory);
    }

    /// Finds the reducer of a spec.
    #[must_use]
    pub fn find(&self, spec: &ReducerSpec) -> Option<Arc<dyn Reducer>> {
        let own = self.factories.iter().find_map(|factory| factory(spec));
        own.or_else(|| Builtin::find(spec))
            .or_else(|| Combined::find(spec, self).map(|combined| Arc::new(combined) as Arc<dyn Reducer>))
    }
}

/// The built-in reducers, over values of at least eight bytes read as little-endian `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// The exact sum, as `i128`.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Builtin {
    /// The spec for creating a tree.
    #[must_use]
    pub fn spec(self) -> ReducerSpec {
        let name = match self {
            Builtin::Sum => "sum-i64",
            Builtin::Min => "min-i64",
            Builtin::Max => "max-i64",
        };
        ReducerSpec { name: name.to_owned(), version: 1, params: Vec::new() }
    }

    fn find(spec: &ReducerSpec) -> Option<Arc<dyn Reducer>> {
        let known = [Builtin::Sum, Builtin::Min, Builtin::Max].into_iter().find(|b| b.spec() == *spec)?;
        Some(Arc::new(known))
    }
}

impl Reducer for Builtin {
    fn one(&self, _key: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        let bytes = value.get(..8).and_then(|b| b.try_into().ok());
        let number = bytes.map(i64::from_le_bytes).ok_or("the value has fewer than eight bytes")?;
        match self {
            Builtin::Sum => out.extend_from_slice(&i128::from(number).to_le_bytes()),
            Builtin::Min | Builtin::Max => out.extend_from_slice(&number.to_le_bytes()),
        }
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        let wide = |b: &[u8]| i128::from_le_bytes(b.try_into().expect("a sum is sixteen bytes"));
        let number = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("a minimum is eight bytes"));
        match self {
            // 2^63 values of 64 bits fit 127 bits; wrapping keeps join associative even beyond.
            Builtin::Sum => out.extend_from_slice(&wide(left).wrapping_add(wide(right)).to_le_bytes()),
            Builtin::Min => out.extend_from_slice(&number(left).min(number(right)).to_le_bytes()),
            Builtin::Max => out.extend_from_slice(&number(left).max(number(right)).to_le_bytes()),
        }
    }

    fn reads_keys(&self) -> bool {
        false
    }

    fn is_commutative(&self) -> bool {
        true
    }
}
