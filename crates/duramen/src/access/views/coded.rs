//! Views in code: a function from a document to rows, with a version.
//!
//! Owns the interface of such a view to Rust, and the call of its code: a panic there fails only the
//! transaction. How its rows are maintained, also by programs without the code, is in mapped.rs.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::views::View;
use crate::catalog::rows::ViewRows;
use crate::catalog::shapes::Shapes;
use crate::store::error::{Code as ErrorCode, Error, Result};
use crate::value::document::Value;
use crate::value::msgpack::{DEPTH_MAX, Reader};
use crate::value::tuple::{KeyFor, OwnedKey, check_length, encode, show};
use crate::view::reduce::Reductions;
use crate::view::spec::{Coded, ViewSpec};

/// A view whose rows are computed by code.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use duramen::prelude::*;
/// use duramen::view::{CodedView, Emitter, reduce};
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(coded(ByWord))]
/// struct Note {
///     #[key]
///     id: u64,
///     text: String,
/// }
///
/// struct ByWord;
///
/// impl CodedView for ByWord {
///     type Collection = Note;
///     type Key = String;
///     type Value = u64;
///     type Reduce = (reduce::Count, reduce::Sum);
///     const NAME: &'static str = "by_word";
///     const VERSION: u32 = 1;
///
///     fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
///         let mut times = BTreeMap::<String, u64>::new();
///         for word in note.text.split_whitespace() {
///             *times.entry(word.to_lowercase()).or_default() += 1;
///         }
///         for (word, times) in times {
///             emit.row(word, times);
///         }
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// db.put(&Note { id: 1, text: "the dog and the cat".into() })?;
/// db.put(&Note { id: 2, text: "The end".into() })?;
/// // Two notes have the word, and it is there three times.
/// assert_eq!(db.view::<ByWord>().key("the").reduce()?, (2, 3));
/// # Ok(()) }
/// ```
///
/// The rows of a document are a set: it has at most one row for each key. A second row with the same key and
/// the same value is the same row. With another value it is an error. What occurs several times goes into the
/// value as its number, as here.
///
/// It is queried like a declared [`View`], and is current in the transaction that changes a document. The
/// catalogue keeps its name, version and shape, but not its code. A program without the code (the command
/// line, for example) may still write documents. It removes their rows and notes their keys. The view then
/// answers `Rebuilding` until a program with the code has mapped them. Such a program does so on its own, as
/// soon as it uses the collection's type.
///
/// `map` must emit the same rows for the same document every time: no clock, no randomness, no outside state.
/// When it would emit others, raise `VERSION`: the new version is built in the background beside the old one.
/// The old one answers meanwhile if the program still has its code and both have the same shape:
/// `coded(ByWord, was = OldByWord)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a view in code",
    note = "implement `CodedView` for it, or declare it with `view(...)`"
)]
pub trait CodedView: Sized + 'static {
    /// The collection of the view.
    type Collection: Collection;

    /// The key of its rows. Rows with equal keys are ordered by the key of the document.
    type Key: OwnedKey;

    /// What a row holds beside its key, for reductions: `()`, a value, or a tuple of up to four.
    type Value: RowValue;

    /// Its reductions: a tuple such as `(Count, Sum)`. They use the first value;
    /// [`At`](crate::view::reduce::At) selects another.
    type Reduce: Reductions;

    /// The view's name in the database.
    const NAME: &'static str;

    /// The version of `map`: raise it when the same document would produce other rows.
    const VERSION: u32;

    /// Whether two documents must not have the same key.
    const UNIQUE: bool = false;

    /// Emits the rows of a document.
    fn map(document: &Self::Collection, emit: &mut Emitter<'_, Self>);
}

impl<V: CodedView> View for V {
    type Collection = V::Collection;
    type Key = V::Key;
    type Reduce = V::Reduce;
    const NAME: &'static str = V::NAME;

    fn spec() -> ViewSpec {
        let shape =
            Coded { version: V::VERSION, elements: <V::Key as OwnedKey>::ELEMENTS, values: V::Value::VALUES };
        ViewSpec::coded(<V as CodedView>::NAME, shape, V::Reduce::kept(), V::UNIQUE)
    }
}

/// Collects the rows of one document.
pub struct Emitter<'d, V> {
    document: &'d [u8],
    rows: ViewRows,
    /// The error of the first invalid row.
    failed: Option<Error>,
    kind: PhantomData<fn() -> V>,
}

impl<V: CodedView> Emitter<'_, V> {
    /// Emits a row. A document has at most one row for each key.
    ///
    /// Emitting a row again has no effect: it is counted once. A second row with the same key and another
    /// value fails the write of the document with `InvalidArgument` (E0201), which names the key and both
    /// values. To count repeats, emit their number as the value, once for each key.
    pub fn row(&mut self, key: impl KeyFor<V::Key>, value: V::Value) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.add(&key, &value) {
            self.failed = Some(error);
        }
    }

    fn add(&mut self, key: &impl KeyFor<V::Key>, value: &V::Value) -> Result<()> {
        let mut row = encode(key)?;
        row.extend_from_slice(self.document);
        check_length(&row).map_err(|error| {
            error
                .with_hint("a view's key and the document's share the length of one key: make either shorter")
        })?;
        let mut stored = Vec::new();
        value.write(&mut stored)?;
        match self.rows.get(&row) {
            Some(other) if *other != stored => Err(Error::invalid(format!(
                "it emits two rows with the key {}, with the values {} and {}",
                show(&row[..row.len() - self.document.len()]),
                shown::<V>(other),
                shown::<V>(&stored)
            ))
            .with_hint("a document has one row for each key: add the values up before they are emitted")),
            _ => {
                self.rows.insert(row, stored);
                Ok(())
            }
        }
    }
}

/// The values of a row, from their stored form, as in JSON.
fn shown<V: CodedView>(stored: &[u8]) -> String {
    let mut reader = Reader::new(stored);
    let values = (0..V::Value::VALUES).map(|_| Value::read(&mut reader, DEPTH_MAX));
    let values = values.collect::<Result<Vec<_>>>().unwrap_or_default();
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    if values.len() == 1 { values.concat() } else { format!("({})", values.join(", ")) }
}

impl<V: CodedView> fmt::Debug for Emitter<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

/// The value of a row of a view in code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a view's row",
    note = "`()`, integers up to 64 bits, f64, bool, String, `Time`, `Value`, an Option of one, and tuples of up to four can"
)]
pub trait RowValue {
    /// The number of values in it.
    const VALUES: usize;

    /// Appends the values in stored form.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a value that cannot be stored.
    fn write(&self, out: &mut Vec<u8>) -> Result<()>;
}

macro_rules! row_values {
    ($($kind:ty),*) => {$(
        impl RowValue for $kind {
            const VALUES: usize = 1;

            fn write(&self, out: &mut Vec<u8>) -> Result<()> {
                Value::from(self.clone()).write(out, DEPTH_MAX)
            }
        }

        impl RowValue for Option<$kind> {
            const VALUES: usize = 1;

            fn write(&self, out: &mut Vec<u8>) -> Result<()> {
                Value::from(self.clone()).write(out, DEPTH_MAX)
            }
        }
    )*};
}

row_values!(bool, i8, i16, i32, i64, u8, u16, u32, u64, f64, String, crate::value::time::Time, Value);

macro_rules! tuples {
    ($(($($name:ident . $place:tt),*);)*) => {$(
        impl<$($name: RowValue),*> RowValue for ($($name,)*) {
            const VALUES: usize = 0 $(+ $name::VALUES)*;

            fn write(&self, _out: &mut Vec<u8>) -> Result<()> {
                $(self.$place.write(_out)?;)*
                Ok(())
            }
        }
    )*};
}

tuples! {
    ();
    (A.0);
    (A.0, B.1);
    (A.0, B.1, C.2);
    (A.0, B.1, C.2, D.3);
}

/// Computes the rows of a document from its key and its stored form.
pub(crate) type RowsOf = fn(&Shapes, &[u8], &[u8]) -> Result<ViewRows>;

/// The code of a view. For `#[derive(Collection)]`.
#[derive(Debug, Clone)]
pub struct Code {
    pub(crate) spec: ViewSpec,
    pub(crate) rows: RowsOf,
    /// The newer version that replaces this view.
    pub(crate) followed_by: Option<ViewSpec>,
}

impl Code {
    /// The code of a view.
    #[must_use]
    pub fn of<V: CodedView>() -> Code {
        Code { spec: V::spec(), rows: rows_of::<V>, followed_by: None }
    }

    /// The code of an earlier version of the view `V`, which answers for it until `V` is built.
    #[must_use]
    pub fn was<V: CodedView, W: CodedView<Collection = V::Collection>>() -> Code {
        const {
            assert!(
                same(<V as CodedView>::NAME, <W as CodedView>::NAME),
                "an earlier version has the same NAME"
            );
            assert!(V::VERSION > W::VERSION, "an earlier version has a smaller VERSION");
        }
        Code { spec: W::spec(), rows: rows_of::<W>, followed_by: Some(V::spec()) }
    }
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    one.len() == other.len()
}

fn rows_of<V: CodedView>(shapes: &Shapes, key: &[u8], stored: &[u8]) -> Result<ViewRows> {
    let mut emit = Emitter::<V> { document: key, rows: ViewRows::new(), failed: None, kind: PhantomData };
    let mapped = catch_unwind(AssertUnwindSafe(|| {
        // Decoding a document, converting an earlier version, and dropping it run user code as well.
        let document: V::Collection = codec::from_bytes(shapes, key, stored)?;
        V::map(&document, &mut emit);
        Ok::<(), Error>(())
    }));
    let name = <V as CodedView>::NAME;
    if let Ok(read) = &mapped {
        read.clone()?;
    }
    if let Err(panic) = mapped {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        return Err(Error::new(
            ErrorCode::ReducerPanicked,
            format!("the code of the view {name} panicked: {}", text.unwrap_or("no message")),
        ));
    }
    match emit.failed {
        None => Ok(emit.rows),
        Some(error) => {
            let hint = error.hint();
            Err(Error::new(error.code(), format!("the view {name}: {}", error.message())).with_hint(hint))
        }
    }
}
