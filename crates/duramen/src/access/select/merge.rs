//! Rows of several views, merged while they are read.
//!
//! Owns the order of the merge and its seeks. Each part has one operation: advance to its first document at
//! or after a key, in the query's direction. For an intersection each part in turn seeks to the position of
//! the previous one, until all agree. A union takes the nearest of its parts. A difference checks whether the
//! excluded part has the document. Memory: one key per part.

use crate::access::explain::Part;
use crate::store::error::Result;
use crate::store::{Cursor, Direction, KeyRange, Source, TreeId};
use crate::value::tuple::{ascending, directed, prefix_end, successor};
use crate::view::spec::ViewSpec;

/// Rows to step over before a seek. A seek descends the tree, which costs as much as this many steps in a
/// leaf or more.
const STEPS: usize = 8;

/// The position from which a document is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// From the first document.
    Start,
    /// At the key or after it.
    At,
    /// After the key.
    After,
}

/// The work done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Rows read.
    pub(crate) rows: u64,
    /// Descents of a tree.
    pub(crate) seeks: u64,
}

/// A part of the expression, and its position.
pub(crate) struct Merge {
    kind: Kind,
    direction: Direction,
    /// Upper bound of the documents.
    rows_max: u64,
    here: Here,
    key: Vec<u8>,
}

#[derive(PartialEq, Eq)]
enum Here {
    Nowhere,
    AtKey,
    AtEnd,
}

enum Kind {
    Rows(Box<Rows>),
    All(Vec<Merge>),
    Any(Vec<Merge>),
    Without(Box<Merge>, Box<Merge>),
}

/// The rows of a tree that begin with a prefix. The key of a document follows the prefix.
struct Rows {
    tree: TreeId,
    prefix: Vec<u8>,
    view: Option<&'static str>,
    /// Whether the keys of documents are descending, as those of a view whose last element is.
    is_descending: bool,
    cursor: Option<Cursor>,
}

/// A document was found: whether its key differs from the one that was sought.
pub(crate) struct Moved(bool);

impl Merge {
    pub(crate) fn rows(
        source: &dyn Source,
        tree: TreeId,
        prefix: Vec<u8>,
        view: Option<(&'static str, &ViewSpec)>,
        direction: Direction,
    ) -> Result<Merge> {
        let is_descending = view.is_some_and(|(_, spec)| spec.is_descending(spec.key_elements()));
        let view = view.map(|(name, _)| name);
        let rows = Rows { tree, prefix, view, is_descending, cursor: None };
        let rows_max = source.count(tree, &rows.range(&[], Bound::Start, direction)?)?;
        Ok(Merge::new(Kind::Rows(Box::new(rows)), direction, rows_max))
    }

    /// Documents that are in all of some parts.
    pub(crate) fn all(mut parts: Vec<Merge>) -> Merge {
        parts.sort_by_key(|part| part.rows_max);
        let (direction, rows_max) = (parts[0].direction, parts[0].rows_max);
        Merge::new(Kind::All(parts), direction, rows_max)
    }

    /// Documents that are in any of some parts.
    pub(crate) fn any(parts: Vec<Merge>) -> Merge {
        let rows_max = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.rows_max));
        let direction = parts[0].direction;
        Merge::new(Kind::Any(parts), direction, rows_max)
    }

    /// Documents that are in one part and not in another.
    pub(crate) fn without(these: Merge, those: Merge) -> Merge {
        let (direction, rows_max) = (these.direction, these.rows_max);
        Merge::new(Kind::Without(Box::new(these), Box::new(those)), direction, rows_max)
    }

    fn new(kind: Kind, direction: Direction, rows_max: u64) -> Merge {
        Merge { kind, direction, rows_max, here: Here::Nowhere, key: Vec::new() }
    }

    /// The exact number of documents, if a tree's own counts determine it.
    pub(crate) fn exactly(&self) -> Option<u64> {
        matches!(self.kind, Kind::Rows(_)).then_some(self.rows_max)
    }

    /// Advances to the first document at or after `at`, which becomes its key; `None` at the end.
    ///
    /// Successive calls never go backwards.
    pub(crate) fn seek(
        &mut self,
        source: &dyn Source,
        at: &mut Vec<u8>,
        bound: Bound,
        work: &mut Work,
    ) -> Result<Option<Moved>> {
        let direction = self.direction;
        if self.here == Here::Nowhere
            || (self.here == Here::AtKey && !reaches(direction, &self.key, at, bound))
        {
            self.key.clone_from(at);
            let key = &mut self.key;
            let found = match &mut self.kind {
                Kind::Rows(rows) => rows.seek(source, key, bound, direction, work)?,
                Kind::All(parts) => all(source, parts, key, bound, work)?,
                Kind::Any(parts) => any(source, parts, key, bound, work)?,
                Kind::Without(these, those) => without(source, these, those, key, bound, work)?,
            };
            self.here = if found { Here::AtKey } else { Here::AtEnd };
        }
        if self.here == Here::AtEnd {
            return Ok(None);
        }
        let moved = bound != Bound::At || *at != self.key;
        at.clone_from(&self.key);
        Ok(Some(Moved(moved)))
    }

    /// Describes its parts, the smallest first, and returns the upper bound of the documents.
    pub(crate) fn explain(&self, parts: &mut Vec<Part>) -> u64 {
        self.explain_at(parts, 0);
        self.rows_max
    }

    fn explain_at(&self, parts: &mut Vec<Part>, depth: usize) {
        let heading = |what: &str| Part { what: what.to_owned(), rows: self.rows_max, depth };
        match &self.kind {
            Kind::Rows(rows) => parts.push(Part::of(rows.view, &rows.prefix, self.rows_max, depth)),
            Kind::All(these) => {
                parts.push(heading("in all of"));
                these.iter().for_each(|part| part.explain_at(parts, depth + 1));
            }
            Kind::Any(these) => {
                parts.push(heading("in any of"));
                these.iter().for_each(|part| part.explain_at(parts, depth + 1));
            }
            Kind::Without(these, those) => {
                parts.push(heading("in the first and not in the second of"));
                these.explain_at(parts, depth + 1);
                those.explain_at(parts, depth + 1);
            }
        }
    }
}

/// Whether a key is at the bound or after it.
fn reaches(direction: Direction, key: &[u8], at: &[u8], bound: Bound) -> bool {
    match (bound, direction) {
        (Bound::Start, _) => true,
        (Bound::At, Direction::Forward) => key >= at,
        (Bound::After, Direction::Forward) => key > at,
        (Bound::At, Direction::Reverse) => key <= at,
        (Bound::After, Direction::Reverse) => key < at,
    }
}

/// Each part seeks to the position of the previous one, until all have the same document.
fn all(
    source: &dyn Source,
    parts: &mut [Merge],
    at: &mut Vec<u8>,
    bound: Bound,
    work: &mut Work,
) -> Result<bool> {
    let (mut agreed, mut index, mut bound) = (0, 0, bound);
    while agreed < parts.len() {
        let Some(Moved(moved)) = parts[index].seek(source, at, bound, work)? else { return Ok(false) };
        agreed = if moved { 1 } else { agreed + 1 };
        bound = Bound::At;
        index = (index + 1) % parts.len();
    }
    Ok(true)
}

fn any(
    source: &dyn Source,
    parts: &mut [Merge],
    at: &mut Vec<u8>,
    bound: Bound,
    work: &mut Work,
) -> Result<bool> {
    let mut nearest: Option<usize> = None;
    let mut own = Vec::with_capacity(at.len());
    for index in 0..parts.len() {
        own.clone_from(at);
        if parts[index].seek(source, &mut own, bound, work)?.is_none() {
            continue;
        }
        let is_nearer = nearest.is_none_or(|nearest| {
            let nearest = &parts[nearest];
            !reaches(nearest.direction, &own, &nearest.key, Bound::At)
        });
        if is_nearer {
            nearest = Some(index);
        }
    }
    let Some(nearest) = nearest else { return Ok(false) };
    at.clone_from(&parts[nearest].key);
    Ok(true)
}

fn without(
    source: &dyn Source,
    these: &mut Merge,
    those: &mut Merge,
    at: &mut Vec<u8>,
    mut bound: Bound,
    work: &mut Work,
) -> Result<bool> {
    let mut other = Vec::with_capacity(at.len());
    while these.seek(source, at, bound, work)?.is_some() {
        other.clone_from(at);
        match those.seek(source, &mut other, Bound::At, work)? {
            Some(Moved(false)) => bound = Bound::After,
            _ => return Ok(true),
        }
    }
    Ok(false)
}

impl Rows {
    /// The rows from a document on, in a direction.
    fn range(&self, at: &[u8], bound: Bound, direction: Direction) -> Result<KeyRange> {
        let mut row = self.prefix.clone();
        match self.is_descending {
            true => row.extend(directed(at, |_| true)?),
            false => row.extend_from_slice(at),
        }
        let all = KeyRange {
            from: self.prefix.clone(),
            to: (!self.prefix.is_empty()).then(|| prefix_end(&self.prefix)),
        };
        Ok(match (bound, direction) {
            (Bound::Start, _) => all,
            (Bound::At, Direction::Forward) => KeyRange { from: row, ..all },
            (Bound::After, Direction::Forward) => KeyRange { from: successor(&row), ..all },
            (Bound::At, Direction::Reverse) => KeyRange { to: Some(successor(&row)), ..all },
            (Bound::After, Direction::Reverse) => KeyRange { to: Some(row), ..all },
        })
    }

    /// The direction in which rows are read, for documents in a direction.
    fn row_direction(&self, direction: Direction) -> Direction {
        match (self.is_descending, direction) {
            (false, direction) => direction,
            (true, Direction::Forward) => Direction::Reverse,
            (true, Direction::Reverse) => Direction::Forward,
        }
    }

    /// Advances to a document: by steps if it may be near, else by a seek.
    fn seek(
        &mut self,
        source: &dyn Source,
        at: &mut Vec<u8>,
        bound: Bound,
        direction: Direction,
        work: &mut Work,
    ) -> Result<bool> {
        if let Some(cursor) = &mut self.cursor {
            for _ in 0..STEPS {
                let Some(row) = cursor.next_key()? else { return Ok(false) };
                work.rows += 1;
                let key = ascending(&row[self.prefix.len()..])?;
                if reaches(direction, &key, at, bound) {
                    at.clear();
                    at.extend_from_slice(&key);
                    return Ok(true);
                }
            }
        }
        let along = self.row_direction(direction);
        let mut cursor = source.cursor(self.tree, self.range(at, bound, along)?, along)?;
        work.seeks += 1;
        let Some(row) = cursor.next_key()? else { return Ok(false) };
        work.rows += 1;
        at.clear();
        at.extend_from_slice(&ascending(&row[self.prefix.len()..])?);
        self.cursor = Some(cursor);
        Ok(true)
    }
}
