//! Reducers: named, versioned monoids over entries, kept in the nodes of a tree.

mod combined;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::limits::REDUCTION_BYTES_MAX;

pub use combined::Combined;

/// Turns entries into small values that can be joined, so that a range is answered from the nodes above it.
///
/// `join` must be associative bit for bit: where nodes are split must not show. Entries come in key order.
pub trait Reducer: Send + Sync {
    /// Appends the reduction of one entry to `out` (which is empty).
    ///
    /// # Errors
    /// A sentence about why the entry has none; the transaction that wrote it fails.
    fn one(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String>;

    /// Appends the reduction of `left` followed by `right` to `out` (which is empty).
    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>);

    /// Whether [`Reducer::one`] looks at keys. If not, it may be given empty ones, and a range is reduced sooner.
    fn reads_keys(&self) -> bool {
        true
    }
}

/// Which reducer a tree has: data in the catalogue, found again at every open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReducerSpec {
    /// Its name, as registered.
    pub name: String,
    /// Its version; a reducer whose results change needs a new one.
    pub version: u32,
    /// What it needs to know, in its own encoding.
    pub params: Vec<u8>,
}

/// Makes the reducer a spec asks for, or `None` if it does not know it.
pub type ReducerFactory = Arc<dyn Fn(&ReducerSpec) -> Option<Arc<dyn Reducer>> + Send + Sync>;

/// The reducers that can be found by their specs.
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
    /// Adds a factory; asked before the built-in ones, in the order added.
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

/// The reducers every engine knows, over values of at least eight bytes read as little-endian `i64`.
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
    /// The spec to create a tree with.
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
}

/// Joins reductions from left to right, keeping user code's failures inside the call that caused them. Its buffers
/// are used again and again: a fold over many entries allocates nothing.
pub struct Fold<'a> {
    reducer: Asked<'a>,
    empty: bool,
    sum: Vec<u8>,
    next: Vec<u8>,
    one: Vec<u8>,
}

/// A reducer, and whether it is at work: a panic is its own then, and the engine's otherwise.
pub struct Asked<'a> {
    reducer: &'a dyn Reducer,
    at_work: Cell<bool>,
}

impl Asked<'_> {
    /// Appends the reduction of one entry to an empty buffer.
    pub fn one(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.at_work.set(true);
        let made = self.reducer.one(key, value, out);
        self.at_work.set(false);
        made.map_err(|reason| Error::invalid(format!("the reducer refused an entry: {reason}")))?;
        check_length(out)
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.at_work.set(true);
        self.reducer.join(left, right, out);
        self.at_work.set(false);
        check_length(out)
    }

    /// A panic of the reducer becomes an error of this call; one of the engine goes on.
    fn guarded(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            if !self.at_work.take() {
                resume_unwind(panic);
            }
            Err(Error::new(Code::ReducerPanicked, format!("a reducer panicked: {}", words(&*panic))))
        })
    }
}

impl<'a> Fold<'a> {
    /// Of nothing yet.
    pub fn new(reducer: &'a dyn Reducer) -> Fold<'a> {
        let reducer = Asked { reducer, at_work: Cell::new(false) };
        Fold { reducer, empty: true, sum: Vec::new(), next: Vec::new(), one: Vec::new() }
    }

    /// Adds a reduction on the right.
    pub fn add(&mut self, right: &[u8]) -> Result<()> {
        let Fold { reducer, empty, sum, next, .. } = self;
        reducer.guarded(|| add(reducer, empty, (sum, next), right))
    }

    /// Adds one after the other on the right: of each, `make` appends the reduction to a buffer, asking the reducer, until it
    /// says that there is none.
    pub fn add_all(
        &mut self,
        mut make: impl FnMut(&Asked<'_>, &mut Vec<u8>) -> Option<Result<()>>,
    ) -> Result<()> {
        let Fold { reducer, empty, sum, next, one } = self;
        reducer.guarded(|| {
            loop {
                one.clear();
                let Some(made) = make(reducer, one) else { return Ok(()) };
                made?;
                add(reducer, empty, (sum, next), one)?;
            }
        })
    }

    /// What came of it; `None` of nothing.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.empty).then_some(self.sum)
    }
}

fn add(
    reducer: &Asked<'_>,
    empty: &mut bool,
    (sum, next): (&mut Vec<u8>, &mut Vec<u8>),
    right: &[u8],
) -> Result<()> {
    if std::mem::take(empty) {
        sum.extend_from_slice(right);
        return Ok(());
    }
    next.clear();
    reducer.join(sum, right, next)?;
    std::mem::swap(sum, next);
    Ok(())
}

/// The reduction of one entry.
pub fn one(reducer: &dyn Reducer, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let asked = Asked { reducer, at_work: Cell::new(false) };
    asked.guarded(|| asked.one(key, value, &mut out))?;
    Ok(out)
}

fn check_length(reduction: &[u8]) -> Result<()> {
    if reduction.len() <= REDUCTION_BYTES_MAX {
        return Ok(());
    }
    let length = reduction.len();
    Err(Error::invalid(format!("a reduction of {length} bytes; the limit is {REDUCTION_BYTES_MAX}")))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
