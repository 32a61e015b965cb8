//! Reductions of one's own, in code.
//!
//! Owns what a program writes for one, how the database finds it by the name and version in the catalogue, and its stored state:
//! MessagePack, as `rmp-serde` writes it. What a program's code does wrong, panics included, fails the call that asked for it.

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

/// A reduction of one's own: `reduce = (Count, With(Routes, destination))`.
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
/// A program that knows the collection and not this code, the command line for one, reads, checks and writes its documents all the same:
/// what it wrote is reduced when the code is back, and [`Db::build_views`](crate::Db::build_views) then brings the tree up to its usual speed.
pub trait Monoid: Send + Sync + 'static {
    /// Its name in the database: 1 to 64 bytes.
    const NAME: &'static str;

    /// Which version of it: one whose states mean something else needs another, and the view is built again.
    const VERSION: u32;

    /// How many bytes its stored state has at most: up to 2,048. It lies beside every child of every node of the view's tree.
    const BYTES_MAX: usize = 64;

    /// Whether the order of rows makes no difference. Only [`assert_monoid`](crate::view::laws::assert_monoid) asks.
    const IS_COMMUTATIVE: bool = false;

    /// The type of the field that it takes; null is left out.
    type Value: Serialize + DeserializeOwned;

    /// What values come to. Read back from where it was stored it must be the same: no `HashMap`, whose order is another each time.
    type State: Serialize + DeserializeOwned;

    /// What is answered.
    type Answer;

    /// The state of one value. It is called in the thread that writes the document, and a panic fails that transaction.
    fn one(value: Self::Value) -> Self::State;

    /// The state of both, whose rows come one behind the other. It must be associative bit for bit: rows are joined in groups that
    /// nobody chooses. So no sum of floats.
    fn join(left: Self::State, right: Self::State) -> Self::State;

    /// What a range answers; `None` if it has no value.
    fn answer(state: Option<Self::State>) -> Self::Answer;

    /// Values to try it with. If there are any, a database is not opened with code that breaks its promises on them.
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
    /// Adds one, after a look at its promises.
    ///
    /// # Errors
    /// `InvalidArgument` if it breaks one on its samples, or another type has its name and version.
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

    /// What gathers the values of a reduction in code; `None` for another, and for code that is not known.
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

/// A [`Monoid`], whichever it is.
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
        // The engine tells a panic of a reducer apart from its own, and fails what asked for it.
        let bytes = stored::<M>(state).unwrap_or_else(|wrong| panic!("{wrong}"));
        out.extend_from_slice(&bytes);
    }
}

/// The stored form of a state, or what is wrong with it.
pub(crate) fn stored<M: Monoid>(state: &M::State) -> std::result::Result<Vec<u8>, String> {
    let bytes = rmp_serde::to_vec(state)
        .map_err(|error| format!("{}: a state cannot be stored: {error}", M::NAME))?;
    if bytes.len() > M::BYTES_MAX {
        return Err(format!(
            "{}: a state of {} bytes, and it says that none has more than {}",
            M::NAME,
            bytes.len(),
            M::BYTES_MAX
        ));
    }
    Ok(bytes)
}

/// The state in these bytes; `None` if it is none.
pub(crate) fn state<M: Monoid>(bytes: &[u8]) -> Option<M::State> {
    rmp_serde::from_slice(bytes).ok()
}
