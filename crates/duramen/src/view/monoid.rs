//! Reductions in code.
//!
//! Owns the interface that a program implements, the lookup by name and version in the catalogue, and the
//! stored state: MessagePack, as `rmp-serde` writes it. Errors of a program's code, panics included, fail the
//! call that needed it.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::error::{Error, Result};
use crate::view::kinds::Reduce;
use crate::view::laws::broken_law;
use crate::view::sketch::Sketch;

/// A reduction in code: `reduce = (Count, With(Routes, destination))`.
///
/// ```
/// use duramen::prelude::*;
/// use duramen::view::{Monoid, assert_monoid};
///
/// /// How many bytes names have together.
/// struct Letters;
///
/// impl Monoid for Letters {
///     const NAME: &'static str = "letters";
///     const VERSION: u32 = 1;
///     type Value = String;
///     type State = u64;
///     type Answer = u64;
///
///     fn one(value: String) -> u64 {
///         value.len() as u64
///     }
///
///     fn join(left: u64, right: u64) -> u64 {
///         left + right
///     }
///
///     fn answer(state: Option<u64>) -> u64 {
///         state.unwrap_or(0)
///     }
///
///     fn samples() -> Vec<String> {
///         vec![String::new(), "Oslo".to_owned(), "Bergen".to_owned()]
///     }
/// }
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(ByCity, key = city, reduce = (Count, With(Letters, name))))]
/// struct Guest { #[key] id: u64, city: String, name: String }
///
/// # fn main() -> Result<()> {
/// let db = Db::options().reducer::<Letters>().in_memory()?;
/// db.put(&Guest { id: 1, city: "Oslo".into(), name: "Ada".into() })?;
/// assert_eq!(db.view::<ByCity>().key("Oslo").reduce()?, (1, 3));
/// assert_monoid::<Letters>(Letters::samples());
/// # Ok(()) }
/// ```
///
/// A program without this code, such as the command line, can still read, check and write the collection's
/// documents. Rows that it wrote are reduced once the code is available again.
/// [`Db::build_views`](crate::Db::build_views) then restores the tree's usual speed.
pub trait Monoid: Send + Sync + 'static {
    /// Its name in the database: 1 to 64 bytes.
    const NAME: &'static str;

    /// Its version. If states change their meaning, raise the version, and the view is built again.
    const VERSION: u32;

    /// The maximum length of its stored state: up to 2,048 bytes. It is stored beside every child of every
    /// node of the tree.
    const BYTES_MAX: usize = 64;

    /// Whether the order of rows makes no difference. Only
    /// [`assert_monoid`](crate::view::laws::assert_monoid) uses it.
    const IS_COMMUTATIVE: bool = false;

    /// The type of the field that it reduces; nulls are skipped.
    type Value: Serialize + DeserializeOwned;

    /// The state of a reduction.
    ///
    /// A stored state must be read back unchanged: do not use `HashMap`, whose order varies.
    type State: Serialize + DeserializeOwned;

    /// The type of the answer.
    type Answer;

    /// The state of one value. It runs in the thread that writes the document, and a panic fails that
    /// transaction.
    fn one(value: Self::Value) -> Self::State;

    /// Joins the states of two adjacent ranges of rows.
    ///
    /// It must be associative bit for bit, because the grouping of rows is arbitrary. So sums of floats are
    /// not possible.
    fn join(left: Self::State, right: Self::State) -> Self::State;

    /// The answer for a range; `None` if it has no values.
    fn answer(state: Option<Self::State>) -> Self::Answer;

    /// Sample values for testing the laws. If there are any, a database does not open with code that breaks a
    /// law on them.
    fn samples() -> Vec<Self::Value> {
        Vec::new()
    }
}

/// The code of reductions that a database was opened with.
#[derive(Clone, Default)]
pub(crate) struct Codes {
    known: Vec<Arc<dyn Coded>>,
}

impl Codes {
    /// Adds the code of a reduction, after testing its laws.
    ///
    /// # Errors
    /// `InvalidArgument` if it breaks a law on its samples, or another type has its name and version.
    pub(crate) fn add<M: Monoid>(&mut self) -> Result<()> {
        let new = Of::<M>(PhantomData);
        Reduce::code::<M>(0)
            .validate()
            .map_err(|what| Error::invalid(format!("the reducer {} {what}", type_name::<M>())))?;
        if let Some(known) = self.known.iter().find(|known| known.is(M::NAME, M::VERSION)) {
            if known.type_name() == new.type_name() {
                return Ok(());
            }
            return Err(Error::invalid(format!(
                "the reducers {} and {} are both called {}, version {}",
                known.type_name(),
                new.type_name(),
                M::NAME,
                M::VERSION
            )));
        }
        if let Some(broken) = broken_law::<M>(M::samples()) {
            return Err(Error::invalid(format!("the reducer {} cannot be used: {broken}", M::NAME)));
        }
        self.known.push(Arc::new(new));
        Ok(())
    }

    /// The sketch of a reduction in code; `None` for other reductions, and for unknown code.
    pub(crate) fn sketch(&self, reduce: &Reduce) -> Option<Box<dyn Sketch>> {
        let Reduce::Code { name, version, .. } = reduce else { return None };
        self.known.iter().find(|known| known.is(name, *version)).map(|known| known.sketch())
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|known| known.type_name())).finish()
    }
}

/// A [`Monoid`] of any type.
trait Coded: Send + Sync {
    fn is(&self, name: &str, version: u32) -> bool;
    fn type_name(&self) -> &'static str;
    fn sketch(&self) -> Box<dyn Sketch>;
}

struct Of<M>(PhantomData<fn() -> M>);

impl<M: Monoid> Coded for Of<M> {
    fn is(&self, name: &str, version: u32) -> bool {
        (name, version) == (M::NAME, M::VERSION)
    }

    fn type_name(&self) -> &'static str {
        type_name::<M>()
    }

    fn sketch(&self) -> Box<dyn Sketch> {
        Box::new(CodeSketch::<M> { state: None })
    }
}

struct CodeSketch<M: Monoid> {
    state: Option<M::State>,
}

impl<M: Monoid> CodeSketch<M> {
    fn add(&mut self, right: M::State) {
        self.state = Some(match self.state.take() {
            Some(left) => M::join(left, right),
            None => right,
        });
    }
}

impl<M: Monoid> Sketch for CodeSketch<M> {
    fn value(&mut self, stored: &[u8]) -> std::result::Result<(), String> {
        let value = rmp_serde::from_slice(stored)
            .map_err(|error| format!("{} takes {}: {error}", M::NAME, type_name::<M::Value>()))?;
        self.add(M::one(value));
        Ok(())
    }

    fn merge(&mut self, bytes: &[u8]) -> Option<()> {
        self.add(state::<M>(bytes)?);
        Some(())
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let state = self.state.as_ref().expect("it was given a value");
        // The engine catches a panic of a reducer, and fails the call that needed it.
        let bytes = stored::<M>(state).unwrap_or_else(|wrong| panic!("{wrong}"));
        out.extend_from_slice(&bytes);
    }
}

/// The stored form of a state, or the problem with it.
pub(crate) fn stored<M: Monoid>(state: &M::State) -> std::result::Result<Vec<u8>, String> {
    let bytes = rmp_serde::to_vec(state)
        .map_err(|error| format!("{}: a state cannot be stored: {error}", M::NAME))?;
    if bytes.len() > M::BYTES_MAX {
        return Err(format!(
            "{}: a state of {} bytes, and BYTES_MAX is {}",
            M::NAME,
            bytes.len(),
            M::BYTES_MAX
        ));
    }
    Ok(bytes)
}

/// Decodes a state; `None` for invalid bytes.
pub(crate) fn state<M: Monoid>(bytes: &[u8]) -> Option<M::State> {
    rmp_serde::from_slice(bytes).ok()
}
