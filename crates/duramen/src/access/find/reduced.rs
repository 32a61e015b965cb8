//! Groups whose counts and sums a view's tree keeps: answered from its nodes, without reading documents.
//!
//! Owns the choice of such a view. It must have exactly one row for every document that satisfies the
//! conditions, in a group of rows that begins with the values of the group's fields. So a view that lacks
//! documents is not used, nor is one with a row for each item of a list, or in code. The types of the fields
//! are known, so that equal values have equal keys: of floats both zeros are one group, with two keys.

use super::aggregate::{Kind, State, Term};
use super::filter::Terms;
use super::path::Path;
use super::plan::{AccessPath, Index, IndexRange, has_all, range};
use super::{Find, is_complete, views_of};
use crate::access::reads::sealed::Readable;
use crate::access::selection::GroupWalk;
use crate::access::views::state::answering_by_name;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Code, Result};
use crate::store::{KeyRange, Source};
use crate::value::document::Value;
use crate::value::tuple::values;
use crate::view::kinds::Reduce;
use crate::view::reducer::Outcome;

/// Ranges of a view that hold the groups, and where its reductions have the aggregates.
pub(super) struct Reduced {
    range: IndexRange,
    view: OpenView,
    /// For each field of the groups its element of the view's key.
    elements: Vec<usize>,
    /// For each aggregate its reduction of the view; `None` for a count.
    parts: Vec<Option<usize>>,
}

impl Reduced {
    /// The first view that answers, if one does.
    pub(super) fn choose(
        find: &Find<'_>,
        state: &dyn Readable,
        entry: &Entry,
        terms: &Terms,
        group: &[Path],
        aggregates: &[Term],
    ) -> Result<Option<Reduced>> {
        let is_given = find.view.is_some() || find.span.is_some();
        if is_given || !terms.joins.is_empty() {
            return Ok(None);
        }
        for index in views_of(state, entry)? {
            let Some(name) = &index.view else { continue };
            let view = answering_by_name(state, entry, name)?;
            let elements = elements_of(&terms.schema, view, group);
            let parts = aggregates.iter().map(|term| part_of(&terms.schema, view, term)).collect();
            let (Some(elements), Some(parts)) = (elements, parts) else { continue };
            // Without its code such a view answers nothing.
            if view.spec.reductions().iter().any(|reduce| matches!(reduce, Reduce::Code { .. })) {
                continue;
            }
            let range = match range(&index, &terms.before) {
                Err(error) if error.code() == Code::KeyTooLong => continue,
                range => range?,
            };
            let mut is_complete = |view: &Index| is_complete(state, entry, view);
            if range.is_exact() && has_all(&index, &terms.before, &mut is_complete)? {
                return Ok(Some(Reduced { range, view: view.clone(), elements, parts }));
            }
        }
        Ok(None)
    }

    /// The access path.
    pub(super) fn path(&self) -> AccessPath {
        AccessPath::ViewReductions { view: self.view.spec.name().to_owned(), fields: self.range.fields() }
    }

    /// Calls `told` with the values of each group's fields, and the states of the aggregates. A group in
    /// several ranges comes several times.
    ///
    /// Costs O(log n) for each group.
    pub(super) fn groups(
        self,
        source: &dyn Source,
        mut told: impl FnMut(Vec<Value>, Vec<State>) -> Result<()>,
    ) -> Result<()> {
        for span in self.range.spans.clone() {
            let rows = span.into_bytes();
            if self.elements.is_empty() {
                told(Vec::new(), self.states(source, &rows)?)?;
                continue;
            }
            let mut walk = GroupWalk::of(rows);
            while let Some((group, rows)) = walk.next(source, self.view.tree, self.elements.len())? {
                let found: Vec<Value> = values(&group)?.into_iter().map(Value::from).collect();
                let fields = self.elements.iter().map(|at| found[*at].clone()).collect();
                told(fields, self.states(source, &rows)?)?;
            }
        }
        Ok(())
    }

    /// The aggregates of some rows.
    fn states(&self, source: &dyn Source, rows: &KeyRange) -> Result<Vec<State>> {
        let tree = self.view.tree;
        let Some(reductions) = &self.view.reductions else {
            let count = source.count(tree, rows)?;
            return Ok(self.parts.iter().map(|_| State::of_count(count)).collect());
        };
        let reduced = source.reduce(tree, rows)?;
        let bytes = reduced.value.unwrap_or_default();
        let parts = reductions.decode(&bytes)?;
        let state = |at: &Option<usize>| match at.map(|at| &parts[at]) {
            None => State::of_count(reduced.count),
            Some(part) => match part.outcome {
                Outcome::Sum(sum) => State::of_sum(part.seen, sum),
                Outcome::Nothing | Outcome::Bytes(_) => State::of_sum(0, 0),
            },
        };
        Ok(self.parts.iter().map(state).collect())
    }
}

/// The elements of the view's key that the fields of groups are, if they are its first ones.
fn elements_of(schema: &Schema, view: &OpenView, group: &[Path]) -> Option<Vec<usize>> {
    let key = view.spec.key_fields();
    let element = |path: &Path| {
        let at = key.iter().position(|field| field.as_path().leads_as(path))?;
        let has_one_key = path.is_column()
            && matches!(
                schema.kind(path.text()),
                Some(ColumnType::Int | ColumnType::Text | ColumnType::Bool | ColumnType::Time)
            );
        (at < group.len() && has_one_key).then_some(at)
    };
    group.iter().map(element).collect()
}

/// Which reduction of the view has an aggregate, if one has; `Some(None)` for a count.
fn part_of(schema: &Schema, view: &OpenView, term: &Term) -> Option<Option<usize>> {
    let Some(path) = &term.path else { return Some(None) };
    let is_of_ints = path.is_column() && schema.kind(path.text()) == Some(ColumnType::Int);
    if !is_of_ints || !matches!(term.kind, Kind::Sum | Kind::Mean) {
        return None;
    }
    let is_sum = |reduce: &Reduce| {
        let Reduce::Sum(at) = reduce else { return false };
        view.spec.value_fields().get(*at).is_some_and(|field| field == path.text())
    };
    view.spec.reductions().iter().position(is_sum).map(Some)
}
