//! The reductions of a view over its rows, as the engine stores them in the nodes of the view's tree.
//!
//! Owns their stored form. The reductions of the spec follow one another. Each begins with the number of
//! values (varint) and, if there were any, continues with the result. A sum is a zigzag varint of 128 bits.
//! Everything else is bytes with their length (varint) before them: a minimum or maximum is an element of a
//! key, the rest is the output of a sketch. Nulls are not counted as values.

use crate::store::{Reducer, ReducerSpec, Running};

use crate::store::error::{Code, Error, Result};
use crate::value::document::Value;
use crate::value::msgpack::{Reader, Token, write};
use crate::value::tuple::Element;
use crate::view::kinds::{ELEMENT_BYTES_MAX, REDUCTIONS_MAX, Reduce};
use crate::view::monoid::Codes;
use crate::view::sketch::{Sketch, element_of};
use crate::view::spec::ViewSpec;
use crate::view::sums::{append_varint, read_varint};

/// The reducer's name in the engine's catalogue.
const NAME: &str = "view";

/// The version of its stored form.
const VERSION: u32 = 1;

/// The stand-in for an unreadable reduction: an unfinished number. It survives `join`, which cannot fail.
const UNREADABLE: &[u8] = &[0xff];

/// A stored null.
const NULL: &[u8] = &[0xc0];

/// The reductions of one view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reductions {
    parts: Vec<Reduce>,
}

/// The reductions of one view, with the code of those in code.
#[derive(Debug)]
pub(crate) struct ViewReducer {
    parts: Vec<Reduce>,
    codes: Codes,
    /// Whether any reduction is a sketch.
    has_sketches: bool,
}

/// The result of one reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// How many values there were, without nulls.
    pub(crate) seen: u64,
    pub(crate) outcome: Outcome<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    Nothing,
    Sum(i128),
    /// An element, or the output of a sketch.
    Bytes(&'a [u8]),
}

impl Reductions {
    pub(crate) fn of(spec: &ViewSpec) -> Option<Reductions> {
        (!spec.reduce.is_empty()).then(|| Reductions { parts: spec.reduce.clone() })
    }

    /// The spec in the engine's catalogue.
    pub(crate) fn spec(&self) -> Result<ReducerSpec> {
        let mut params = Vec::new();
        write::list(&mut params, self.parts.len())?;
        self.parts.iter().try_for_each(|part| part.write(&mut params))?;
        Ok(ReducerSpec { name: NAME.to_owned(), version: VERSION, params })
    }

    /// The reductions of a spec; `None` for another reducer or a later version.
    pub(crate) fn from_spec(spec: &ReducerSpec) -> Option<Reductions> {
        if spec.name != NAME || spec.version != VERSION {
            return None;
        }
        let mut reader = Reader::new(&spec.params);
        let Ok(Token::List(count @ 1..=REDUCTIONS_MAX)) = reader.next() else { return None };
        let parts = (0..count).map(|_| Reduce::read(&mut reader)).collect::<Option<_>>()?;
        reader.at_end().then_some(Reductions { parts })
    }

    /// The reducer that computes them; `None` if the code of one is not among `codes`.
    pub(crate) fn reducer(&self, codes: &Codes) -> Option<ViewReducer> {
        let is_known = |part: &Reduce| !matches!(part, Reduce::Code { .. }) || codes.sketch(part).is_some();
        let has_sketches =
            self.parts.iter().any(|part| !matches!(part, Reduce::Sum(_) | Reduce::Min(_) | Reduce::Max(_)));
        let (parts, codes) = (self.parts.clone(), codes.clone());
        parts.iter().all(is_known).then_some(ViewReducer { parts, codes, has_sketches })
    }

    /// Decodes a stored reduction. That of no rows is empty.
    ///
    /// # Errors
    /// `CorruptData` for bytes that are no reduction of this view.
    pub(crate) fn decode<'a>(&self, reduction: &'a [u8]) -> Result<Vec<Part<'a>>> {
        if reduction.is_empty() {
            return Ok(vec![Part { seen: 0, outcome: Outcome::Nothing }; self.parts.len()]);
        }
        read(&self.parts, reduction).ok_or_else(unreadable)
    }
}

/// The error of a stored reduction that cannot be decoded.
#[cold]
pub(crate) fn unreadable() -> Error {
    Error::new(Code::CorruptData, "a stored reduction of a view cannot be read")
}

/// Rewords the engine's error about an unknown reducer for views. Built-in reducers are always known.
#[cold]
pub(crate) fn without_code(spec: &ViewSpec, error: Error) -> Error {
    if error.code() != Code::ReducerMissing {
        return error;
    }
    let codes: Vec<String> = spec
        .reduce
        .iter()
        .filter_map(|reduce| match reduce {
            Reduce::Code { name, version, .. } => Some(format!("{name} version {version}")),
            _ => None,
        })
        .collect();
    let (name, codes) = (spec.name(), codes.join(", "));
    let message = format!(
        "the view {name} is reduced by code, and the database was opened without some of it: {codes}"
    );
    Error::new(Code::ReducerMissing, message)
        .with_hint("Db::options().reducer::<...>() makes code known before the database is opened; rows are counted without it")
}

impl ViewReducer {
    /// The sketch that collects the values of a part.
    fn sketch(&self, part: &Reduce) -> Option<Box<dyn Sketch>> {
        part.sketch().or_else(|| self.codes.sketch(part))
    }

    /// Appends the join of two reductions without sketches; `None` if one cannot be read.
    fn join_parts(&self, mut left: &[u8], mut right: &[u8], out: &mut Vec<u8>) -> Option<()> {
        for part in &self.parts {
            let (left, right) = (read_part(part, &mut left)?, read_part(part, &mut right)?);
            let outcome = match (left.outcome, right.outcome) {
                (Outcome::Nothing, outcome) | (outcome, Outcome::Nothing) => outcome,
                // Wrapping keeps `join` associative for any input; 2^63 rows do not reach it.
                (Outcome::Sum(left), Outcome::Sum(right)) => Outcome::Sum(left.wrapping_add(right)),
                (Outcome::Bytes(left), Outcome::Bytes(right)) => Outcome::Bytes(extreme(part, left, right)),
                _ => unreachable!("both were read as the same kind"),
            };
            append(out, &Part { seen: left.seen.wrapping_add(right.seen), outcome });
        }
        (left.is_empty() && right.is_empty()).then_some(())
    }

    fn start(&self) -> Vec<Gathered> {
        let start =
            |part: &Reduce| Gathered { seen: 0, kept: self.sketch(part).map_or(Kept::None, Kept::Sketch) };
        self.parts.iter().map(start).collect()
    }
}

impl Reducer for ViewReducer {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        for part in &self.parts {
            let kept = if self.has_sketches { self.sketch(part) } else { None };
            let mut gathered = Gathered { seen: 0, kept: kept.map_or(Kept::None, Kept::Sketch) };
            gathered.row(part, value)?;
            gathered.write(out);
        }
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        if self.has_sketches {
            let mut running = Join { reducer: self, gathered: self.start(), is_readable: true };
            running.reduction(left);
            running.reduction(right);
            return running.finish(out);
        }
        let start = out.len();
        if self.join_parts(left, right, out).is_none() {
            out.truncate(start);
            out.extend_from_slice(UNREADABLE);
        }
    }

    fn reads_keys(&self) -> bool {
        false
    }

    fn is_commutative(&self) -> bool {
        // A sketch may depend on the order of its values.
        !self.has_sketches
    }

    fn running(&self) -> Option<Box<dyn Running + '_>> {
        let running = || Join { reducer: self, gathered: self.start(), is_readable: true };
        self.has_sketches.then(|| Box::new(running()) as Box<dyn Running>)
    }
}

/// The smaller or the larger of two elements.
fn extreme<'a>(part: &Reduce, left: &'a [u8], right: &'a [u8]) -> &'a [u8] {
    match part {
        Reduce::Min(_) => left.min(right),
        _ => left.max(right),
    }
}

/// A join in progress.
struct Join<'a> {
    reducer: &'a ViewReducer,
    gathered: Vec<Gathered>,
    is_readable: bool,
}

/// The intermediate result of one reduction.
struct Gathered {
    seen: u64,
    kept: Kept,
}

enum Kept {
    None,
    Sum(i128),
    Element(Vec<u8>),
    Sketch(Box<dyn Sketch>),
}

impl Running for Join<'_> {
    fn entry(&mut self, _: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        let mut parts = self.reducer.parts.iter().zip(&mut self.gathered);
        parts.try_for_each(|(part, gathered)| gathered.row(part, value))
    }

    fn reduction(&mut self, reduction: &[u8]) {
        let parts = &self.reducer.parts;
        let merged = read(parts, reduction).and_then(|read| {
            let mut each = parts.iter().zip(&mut self.gathered).zip(read);
            each.try_for_each(|((part, gathered), more)| gathered.merge(part, &more))
        });
        self.is_readable &= merged.is_some();
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.is_readable {
            out.extend_from_slice(UNREADABLE);
            return;
        }
        self.gathered.iter_mut().for_each(|part| part.write(out));
    }
}

impl Gathered {
    /// Adds a row, of which the part reduces one value.
    fn row(&mut self, part: &Reduce, row: &[u8]) -> std::result::Result<(), String> {
        let mut values = Reader::new(row);
        for _ in 0..part.value() {
            values.raw().map_err(|error| unread(&values, &error))?;
        }
        match values.raw().map_err(|error| unread(&values, &error))? {
            NULL => Ok(()),
            stored => self.value(part, stored),
        }
    }

    /// Adds a value that is not null.
    fn value(&mut self, part: &Reduce, stored: &[u8]) -> std::result::Result<(), String> {
        self.seen += 1;
        if let Kept::Sketch(sketch) = &mut self.kept {
            return sketch.value(stored);
        }
        let value = Value::from_stored(stored).map_err(|error| error.message().to_owned())?;
        match (part, value) {
            (Reduce::Sum(_), Value::Int(number)) => self.add(number),
            (Reduce::Sum(_), other) => {
                return Err(format!(
                    "a view sums a field that holds {}; only integers are summed exactly",
                    other.kind()
                ));
            }
            (_, value) => self.order(part, &element_of(&value, ELEMENT_BYTES_MAX)?),
        }
        Ok(())
    }

    fn merge(&mut self, part: &Reduce, more: &Part<'_>) -> Option<()> {
        self.seen = self.seen.wrapping_add(more.seen);
        match (&mut self.kept, &more.outcome) {
            (_, Outcome::Nothing) => {}
            (Kept::Sketch(sketch), Outcome::Bytes(bytes)) => sketch.merge(bytes)?,
            (_, Outcome::Sum(sum)) => self.add(*sum),
            (_, Outcome::Bytes(element)) => self.order(part, element),
        }
        Some(())
    }

    fn add(&mut self, number: i128) {
        let before = if let Kept::Sum(sum) = self.kept { sum } else { 0 };
        // As in `join`.
        self.kept = Kept::Sum(before.wrapping_add(number));
    }

    fn order(&mut self, part: &Reduce, element: &[u8]) {
        match &mut self.kept {
            Kept::Element(kept) if extreme(part, kept, element) == &kept[..] => {}
            kept => *kept = Kept::Element(element.to_vec()),
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        let outcome = match &mut self.kept {
            _ if self.seen == 0 => Outcome::Nothing,
            Kept::None => Outcome::Nothing,
            Kept::Sum(sum) => Outcome::Sum(*sum),
            Kept::Element(element) => Outcome::Bytes(element),
            Kept::Sketch(sketch) => {
                sketch.write(&mut bytes);
                Outcome::Bytes(&bytes)
            }
        };
        append(out, &Part { seen: self.seen, outcome });
    }
}

/// Why a value of a row was not read.
#[cold]
fn unread(values: &Reader<'_>, error: &Error) -> String {
    if values.at_end() {
        "a row keeps fewer values than its view".to_owned()
    } else {
        error.message().to_owned()
    }
}

fn append(out: &mut Vec<u8>, part: &Part<'_>) {
    append_varint(out, u128::from(part.seen));
    match part.outcome {
        Outcome::Nothing => {}
        Outcome::Sum(sum) => append_varint(out, zigzag(sum)),
        Outcome::Bytes(bytes) => {
            append_varint(out, bytes.len() as u128);
            out.extend_from_slice(bytes);
        }
    }
}

/// Maps numbers near zero, of either sign, to small numbers.
pub(crate) fn zigzag(number: i128) -> u128 {
    ((number << 1) ^ (number >> 127)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(zigzag: u128) -> i128 {
    (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()
}

fn read<'a>(parts: &[Reduce], mut rest: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let read = parts.iter().map(|part| read_part(part, &mut rest)).collect::<Option<_>>()?;
    rest.is_empty().then_some(read)
}

fn read_part<'a>(part: &Reduce, rest: &mut &'a [u8]) -> Option<Part<'a>> {
    let seen = u64::try_from(read_varint(rest)?).ok()?;
    let outcome = match part {
        _ if seen == 0 => Outcome::Nothing,
        Reduce::Sum(_) => Outcome::Sum(unzigzag(read_varint(rest)?)),
        _ => {
            let length = usize::try_from(read_varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Outcome::Bytes(bytes)
        }
    };
    Some(Part { seen, outcome })
}

/// The element in the result of a reduction.
pub(crate) fn element(outcome: &Outcome<'_>) -> Result<Option<Element>> {
    match outcome {
        Outcome::Bytes(bytes) => Ok(crate::value::tuple::decode(bytes)?.pop()),
        _ => Ok(None),
    }
}
