//! Which rows of a tree a query reads: of which state, which range, which direction, how many.
//!
//! Owns the arithmetic of positions and pages, the same for documents and for rows of views.

use std::borrow::Cow;

use crate::access::far::{Far, FarCursor, FarGroup, FarRows};
use crate::access::handle::Db;
use crate::access::page::{Page, PageToken};
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::access::type_descriptor::StoredType;
use crate::store::error::{Error, Result};
use crate::store::{Cursor, Direction, KeyRange, Source, TreeId};
use crate::value::span::Span;
use crate::value::tuple::{prefix_end, split, successor};
use crate::view::spec::ViewSpec;

/// What a query runs on.
#[derive(Clone, Copy)]
pub(crate) enum Of<'s> {
    Db(&'s Db),
    State(&'s dyn Readable),
    /// In another process: typed queries only.
    Far(&'s dyn Far),
}

/// What a typed query runs on.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Target<'s>(pub(crate) Of<'s>);

impl<'s> Target<'s> {
    /// A database in another process.
    #[must_use]
    pub fn far(far: &'s dyn Far) -> Target<'s> {
        Target(Of::Far(far))
    }
}

/// The state that a query reads from while its results are consumed.
pub(crate) enum Held<'s> {
    Own(Snapshot),
    Lent(&'s dyn Readable),
}

impl<'s> Of<'s> {
    /// The given state, or a snapshot of the newest one.
    pub(crate) fn hold(self) -> Result<Held<'s>> {
        Ok(match self {
            Of::Db(db) => Held::Own(db.snapshot()?),
            Of::State(state) => Held::Lent(state),
            Of::Far(_) => return Err(Error::invalid("the database is open in another process")),
        })
    }
}

impl Held<'_> {
    pub(crate) fn state(&self) -> &dyn Readable {
        match self {
            Held::Own(snapshot) => snapshot,
            Held::Lent(state) => *state,
        }
    }
}

/// Rows of a tree.
#[derive(Clone)]
pub(crate) struct Selection<'s> {
    of: Of<'s>,
    /// An error of encoding a bound is reported when the query runs.
    span: Result<Span>,
    pub(crate) direction: Direction,
    pub(crate) limit: u64,
}

impl<'s> Selection<'s> {
    /// All rows, forward.
    pub(crate) fn of(of: Of<'s>) -> Self {
        Selection { of, span: Ok(Span::all()), direction: Direction::Forward, limit: u64::MAX }
    }

    /// Restricts to rows that also lie in a span.
    pub(crate) fn within(&self, span: Result<Span>) -> Self {
        let span = match &self.span {
            Ok(all) if all.is_all() => span,
            own => span.and_then(|span| Ok(own.clone()?.and(span))),
        };
        Selection { of: self.of, span, direction: self.direction, limit: self.limit }
    }

    /// The same bounds in the directions of a view's elements.
    pub(crate) fn directed(&self, spec: &ViewSpec) -> Result<Self> {
        if !spec.has_descending() {
            return Ok(self.clone());
        }
        Ok(Selection { span: Ok(self.span.clone()?.directed(|at| spec.is_descending(at))), ..self.clone() })
    }

    /// The opposite direction.
    pub(crate) fn reversed(&self) -> Self {
        let direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        Selection { direction, ..self.clone() }
    }

    /// Limits the number of rows.
    pub(crate) fn limited(&self, at_most: u64) -> Self {
        Selection { limit: self.limit.min(at_most), ..self.clone() }
    }

    /// The range in bytes.
    pub(crate) fn range(&self) -> Result<KeyRange> {
        Ok(self.lent_range()?.into_owned())
    }

    /// The range in bytes, not copied if it is a single one.
    pub(crate) fn lent_range(&self) -> Result<Cow<'_, KeyRange>> {
        let span = self.span.as_ref().map_err(Clone::clone)?;
        Ok(span.as_bytes().map_or_else(|| Cow::Owned(span.clone().into_bytes()), Cow::Borrowed))
    }

    /// Calls `ask` with the given state, or with a snapshot of the newest one.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&dyn Readable) -> Result<T>) -> Result<T> {
        ask(self.of.hold()?.state())
    }

    /// The given state, or a snapshot of the newest one, for results that are read step by step.
    pub(crate) fn hold(&self) -> Result<Held<'s>> {
        self.of.hold()
    }

    /// Whether the database is in another process.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self.of, Of::Far(_))
    }

    /// The same rows in another process, if the query is of a database there.
    pub(crate) fn far(&self, of: StoredType, view: Option<&ViewSpec>) -> Result<Option<FarSelection<'s>>> {
        let Of::Far(far) = self.of else { return Ok(None) };
        let (range, direction, limit) = (self.range()?, self.direction, self.limit);
        Ok(Some(FarSelection { far, rows: FarRows { of, view: view.cloned(), range, direction, limit } }))
    }

    /// How many there are.
    pub(crate) fn count(&self, source: &dyn Source, tree: TreeId) -> Result<u64> {
        Ok(source.count(tree, &*self.lent_range()?)?.min(self.limit))
    }

    /// The row that has `index` others before it.
    pub(crate) fn nth(
        &self,
        source: &dyn Source,
        tree: TreeId,
        index: u64,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let range = self.range()?;
        let (before, inside) = (source.rank(tree, &range.from)?, source.count(tree, &range)?);
        if index >= inside.min(self.limit) {
            return Ok(None);
        }
        source.nth(
            tree,
            match self.direction {
                Direction::Forward => before + index,
                Direction::Reverse => before + inside - 1 - index,
            },
        )
    }

    /// How many rows are before those in `first..end`. That range may be empty.
    pub(crate) fn rank(
        &self,
        source: &dyn Source,
        tree: TreeId,
        first: Vec<u8>,
        end: Vec<u8>,
    ) -> Result<u64> {
        let before = before(self.range()?, self.direction, first, end);
        Ok(source.count(tree, &before)?.min(self.limit))
    }

    /// The range of a page: all of it, or the part after another page's end.
    pub(crate) fn page_range(&self, after: Option<&PageToken>, order: &str) -> Result<KeyRange> {
        after.map_or_else(|| self.range(), |after| self.range_after(after.key_in(order)?))
    }

    /// The range after a row, in this direction.
    fn range_after(&self, row: &[u8]) -> Result<KeyRange> {
        let KeyRange { from, to } = self.range()?;
        Ok(match self.direction {
            Direction::Forward => KeyRange { from: from.max(successor(row)), to },
            Direction::Reverse => {
                let to = to.filter(|to| to.as_slice() < row).unwrap_or_else(|| row.to_vec());
                KeyRange { from, to: Some(to) }
            }
        })
    }

    /// The groups of these rows, one at a time.
    pub(crate) fn groups(&self) -> Result<GroupWalk> {
        Ok(GroupWalk { rows: self.range()?, direction: self.direction, left: self.limit })
    }

    /// The rows of a range, in this direction, up to the limit.
    pub(crate) fn rows(&self, source: &dyn Source, tree: TreeId, range: KeyRange) -> Result<Selected> {
        Ok(Selected { rows: Walk::Here(source.cursor(tree, range, self.direction)?), left: self.limit })
    }
}

/// The part of a range whose rows are before those in `first..end`.
fn before(range: KeyRange, direction: Direction, first: Vec<u8>, end: Vec<u8>) -> KeyRange {
    let KeyRange { from, to } = range;
    match direction {
        Direction::Forward => KeyRange { from, to: Some(to.filter(|to| *to < first).unwrap_or(first)) },
        Direction::Reverse => KeyRange { from: from.max(end), to },
    }
}

/// Rows of a tree in another process.
pub(crate) struct FarSelection<'s> {
    pub(crate) far: &'s dyn Far,
    pub(crate) rows: FarRows,
}

impl FarSelection<'_> {
    /// How many there are.
    pub(crate) fn count(&self) -> Result<u64> {
        Ok(self.far.count(&self.rows)?.min(self.rows.limit))
    }

    /// The row that has `index` others before it, with its document.
    pub(crate) fn nth(&self, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if index >= self.rows.limit { Ok(None) } else { self.far.nth(&self.rows, index) }
    }

    /// How many rows are before those in `first..end`. That range may be empty.
    pub(crate) fn rank(mut self, first: Vec<u8>, end: Vec<u8>) -> Result<u64> {
        self.rows.range = before(self.rows.range, self.rows.direction, first, end);
        self.count()
    }

    /// The groups of the rows, and their reductions.
    pub(crate) fn groups(&self, elements: usize) -> Result<Vec<FarGroup>> {
        if self.rows.limit == 0 { Ok(Vec::new()) } else { self.far.groups(&self.rows, elements) }
    }

    /// The rows of a part of the range, with their documents or without, at most `limit`.
    pub(crate) fn walk(mut self, range: KeyRange, limit: u64, with_documents: bool) -> Result<Selected> {
        self.rows.range = range;
        self.rows.limit = self.rows.limit.min(limit);
        let left = self.rows.limit;
        if left == 0 {
            return Ok(Selected::default());
        }
        Ok(Selected { rows: Walk::Far(self.far.rows(self.rows, with_documents)?), left })
    }
}

/// An iteration over groups: rows whose keys begin with the same elements. Each step costs O(log n), whatever
/// the size of the group.
pub(crate) struct GroupWalk {
    /// The rows of the remaining groups.
    rows: KeyRange,
    direction: Direction,
    /// How many more groups are wanted.
    left: u64,
}

impl GroupWalk {
    /// All groups of some rows, in their order.
    pub(crate) fn of(rows: KeyRange) -> GroupWalk {
        GroupWalk { rows, direction: Direction::Forward, left: u64::MAX }
    }

    /// The next group: the encoded bytes of its `elements` elements, and the range of its rows.
    pub(crate) fn next(
        &mut self,
        source: &dyn Source,
        tree: TreeId,
        elements: usize,
    ) -> Result<Option<(Vec<u8>, KeyRange)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut cursor = source.cursor(tree, self.rows.clone(), self.direction)?;
        let Some(row) = cursor.next_key()? else { return Ok(None) };
        let group = row[..split(row, elements)?].to_vec();
        let end = prefix_end(&group);
        let rows = KeyRange {
            from: self.rows.from.clone().max(group.clone()),
            to: Some(self.rows.to.clone().filter(|to| *to < end).unwrap_or_else(|| end.clone())),
        };
        match self.direction {
            Direction::Forward => self.rows.from = end,
            Direction::Reverse => self.rows.to = Some(group.clone()),
        }
        Ok(Some((group, rows)))
    }
}

/// An iteration over rows.
#[derive(Default)]
pub(crate) struct Selected {
    rows: Walk,
    left: u64,
}

#[derive(Default)]
enum Walk {
    #[default]
    Nothing,
    Here(Cursor),
    Far(Box<dyn FarCursor>),
}

impl Selected {
    /// A page of `size` rows, at least one, in the order of the rows of `order`.
    pub(crate) fn page<T>(
        &mut self,
        size: usize,
        order: &str,
        mut read: impl FnMut(&[u8], &[u8]) -> Result<T>,
    ) -> Result<Page<T>> {
        let size = size.max(1);
        let mut items = Vec::with_capacity(size.min(1024));
        let mut last = None;
        while items.len() < size {
            let Some((key, value)) = self.next()? else { return Ok(Page { items, next: None }) };
            items.push(read(key, value)?);
            if items.len() == size {
                last = Some(PageToken::after(key, order));
            }
        }
        let more = self.next_key()?.is_some();
        Ok(Page { items, next: last.filter(|_| more) })
    }

    /// The next key and value.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self.step() {
            Some(Walk::Here(cursor)) => cursor.next(),
            Some(Walk::Far(cursor)) => cursor.next(),
            Some(Walk::Nothing) | None => Ok(None),
        }
    }

    /// The next key, without its value.
    pub(crate) fn next_key(&mut self) -> Result<Option<&[u8]>> {
        match self.step() {
            Some(Walk::Here(cursor)) => cursor.next_key(),
            Some(Walk::Far(cursor)) => Ok(cursor.next()?.map(|(key, _)| key)),
            Some(Walk::Nothing) | None => Ok(None),
        }
    }

    fn step(&mut self) -> Option<&mut Walk> {
        self.left = self.left.checked_sub(1)?;
        Some(&mut self.rows)
    }
}
