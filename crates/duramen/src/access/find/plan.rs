//! The access path for some conditions: the key, a view, or a full scan.
//!
//! Pure: an index is its fields in order. The best index leaves the fewest rows as far as the conditions
//! show: most fields with one value, then a range on the next. At a tie the first wins.

use std::fmt;

use super::condition::{Condition, Restriction};
use super::order::SortOrder;
use super::path::Path;
use super::ranges::{Edge, ElementRange};
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, TreeId};
use crate::value::span::Span;
use crate::value::tuple::{Element, encode, prefix_end};

/// How a [`Find`](crate::find::Find) will read, and how much. From [`Find::plan`](crate::find::Find::plan).
///
/// The counts are the trees' own: exact for the state that was planned on, and found in O(log n).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindPlan {
    /// The collection.
    pub collection: String,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// The access path.
    pub path: AccessPath,
    /// How many documents lie along the access path, each of which is read. Along a view with a row for each
    /// item of a list, a document counts once for each item.
    pub read_count: u64,
    /// How many documents the collection holds.
    pub document_count: u64,
    /// Whether every condition restricts the access path, so that each document read is a result.
    pub is_exact: bool,
    /// How the order is made.
    pub sorting: Sorting,
    /// How many documents are returned at most.
    pub limit: Option<u64>,
    /// The key fields of a view that would restrict the access path further, at most eight. Empty if the path
    /// is exact, if no view would help, or if the path was given by [`Find::view`](crate::find::Find::view)
    /// or [`Find::range`](crate::find::Find::range).
    pub helpful_view: Vec<String>,
}

/// How the order of a [`Find`](crate::find::Find) is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sorting {
    /// None was asked for: it is that of the access path.
    None,
    /// The access path has it.
    AlongPath,
    /// All documents along the path are read, and the first of those found are kept.
    First {
        /// How many are kept.
        limit: u64,
        /// Beyond this much memory a temporary file is used.
        memory_bytes: usize,
    },
    /// All documents that are found are sorted.
    All {
        /// Beyond this much memory a temporary file is used.
        memory_bytes: usize,
    },
}

/// Which documents a [`Find`](crate::find::Find) reads, in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessPath {
    /// A range of the collection's key.
    Key {
        /// The leading fields that the conditions restrict, in the order of the key.
        fields: Vec<String>,
    },
    /// A range of a view. Each document costs one more get.
    View {
        /// The view's name.
        name: String,
        /// The leading fields that the conditions restrict, in the order of the view's key.
        fields: Vec<String>,
    },
    /// The counts and sums of groups, which the tree of a view keeps for all ranges of its key. No document
    /// is read; each group costs O(log n). Only [`Grouped::plan`](crate::find::Grouped::plan) has it.
    ViewReductions {
        /// The view's name.
        view: String,
        /// The leading fields that the conditions restrict, in the order of the view's key.
        fields: Vec<String>,
    },
    /// All documents, in the order of the key.
    Scan,
}

impl AccessPath {
    /// The leading fields of the index that the conditions restrict; none for a scan.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        match self {
            AccessPath::Key { fields }
            | AccessPath::View { fields, .. }
            | AccessPath::ViewReductions { fields, .. } => fields,
            AccessPath::Scan => &[],
        }
    }

    /// The name of the view, if the path is one.
    #[must_use]
    pub fn view(&self) -> Option<&str> {
        match self {
            AccessPath::View { name, .. } | AccessPath::ViewReductions { view: name, .. } => Some(name),
            AccessPath::Key { .. } | AccessPath::Scan => None,
        }
    }
}

impl FindPlan {
    /// The access path with the conditions on its fields, as text: `the key: carrier = UA`.
    #[must_use]
    pub fn path_shown(&self) -> String {
        let index = match &self.path {
            AccessPath::Key { fields } if fields.is_empty() => return "a range of the key".to_owned(),
            AccessPath::View { name, fields } if fields.is_empty() => return format!("the view {name}"),
            AccessPath::ViewReductions { view, fields } if fields.is_empty() => {
                return format!("the reductions of the view {view}");
            }
            AccessPath::Scan => return "a scan of all".to_owned(),
            AccessPath::Key { .. } => "the key".to_owned(),
            AccessPath::View { name, .. } => format!("the view {name}"),
            AccessPath::ViewReductions { view, .. } => format!("the reductions of the view {view}"),
        };
        let is_used = |condition: &&Condition| has(self.path.fields(), condition);
        let used: Vec<String> = self.conditions.iter().filter(is_used).map(ToString::to_string).collect();
        format!("{index}: {}", used.join(", "))
    }
}

impl fmt::Display for Sorting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sorting::None => f.write_str("none: in the order of the access path"),
            Sorting::AlongPath => f.write_str("none: the access path has the order"),
            Sorting::First { limit, memory_bytes } => {
                write!(f, "keeps the first {limit}, in memory up to {} KiB", memory_bytes / 1024)
            }
            Sorting::All { memory_bytes } => write!(
                f,
                "sorts what is found, in memory up to {} KiB, then in a temporary file",
                memory_bytes / 1024
            ),
        }
    }
}

impl fmt::Display for FindPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FindPlan { collection, read_count, document_count, .. } = self;
        let path = self.path_shown();
        write!(f, "{collection}, by {path}: reads {read_count} of {document_count} document(s)")?;
        f.write_str(if self.is_exact {
            ", all of them results"
        } else {
            ", and returns those that satisfy the conditions"
        })?;
        match self.sorting {
            Sorting::None | Sorting::AlongPath => Ok(()),
            sorting => write!(f, "; {sorting}"),
        }
    }
}

/// An order of documents: the key, or a view.
#[derive(Debug, Clone)]
pub(super) struct Index {
    /// The view's name; `None` for the key.
    pub(super) view: Option<String>,
    /// What conditions can restrict, in order.
    pub(super) fields: Vec<IndexField>,
    /// The tree of its rows.
    pub(super) tree: TreeId,
    /// How many elements its key has.
    pub(super) elements: usize,
    /// Whether the keys of documents are descending where the rest is equal.
    pub(super) is_descending: bool,
}

/// An element of an index's key.
#[derive(Debug, Clone)]
pub(super) struct IndexField {
    pub(super) path: Path,
    /// Whether it is a column with a type, so that its values are of that type, or null.
    pub(super) is_typed: bool,
    pub(super) is_descending: bool,
}

impl Index {
    /// Whether the values of a field are in the order of queries. Without a type of the column they are if
    /// there are no numbers of two types and no lists, which the tree's counts tell.
    ///
    /// `prefix` has the single values of all fields before it.
    fn is_in_order_of_values(
        &self,
        at: usize,
        prefix: Option<&[Element]>,
        count: &mut impl FnMut(TreeId, Span) -> Result<u64>,
    ) -> Result<bool> {
        let Some(field) = self.fields.get(at) else { return Ok(false) };
        let Some(prefix) = prefix.filter(|_| !field.is_typed) else { return Ok(field.is_typed) };
        let mut has = |element: &Element| -> Result<bool> {
            let span = span_of(prefix, &ElementRange::of_type(element), field.is_descending)?;
            Ok(count(self.tree, span)? > 0)
        };
        let has_both_numbers = has(&Element::Int(0))? && has(&Element::Float(0.0))?;
        Ok(!has_both_numbers && !has(&Element::Tuple(Vec::new()))?)
    }
}

/// Ranges of an index, in its order.
#[derive(Debug, Clone)]
pub(super) struct IndexRange {
    pub(super) index: Index,
    /// The number of leading fields with single values.
    equal_count: usize,
    /// Which of these have one value only.
    is_constant: Vec<bool>,
    /// Whether a range of the next field is used.
    is_range: bool,
    /// The values of the leading fields that have one only.
    constant: Vec<Element>,
    /// Which conditions all of its rows satisfy.
    satisfied: Vec<bool>,
    pub(super) spans: Vec<Span>,
}

impl IndexRange {
    /// The fields that select the rows.
    pub(super) fn fields(&self) -> Vec<String> {
        let fields = &self.index.fields[..self.equal_count + usize::from(self.is_range)];
        fields.iter().map(|field| field.path.text().to_owned()).collect()
    }

    /// Whether all of its rows satisfy the conditions, so that none is read in vain.
    pub(super) fn is_exact(&self) -> bool {
        self.satisfied.iter().all(|satisfied| *satisfied)
    }

    /// The same range as the public access path.
    pub(super) fn path(&self) -> AccessPath {
        let fields = self.fields();
        match &self.index.view {
            Some(name) => AccessPath::View { name: name.clone(), fields },
            None if fields.is_empty() && self.spans == [Span::all()] => AccessPath::Scan,
            None => AccessPath::Key { fields },
        }
    }

    /// More is better.
    fn rank(&self) -> (usize, bool) {
        (self.equal_count, self.is_range)
    }
}

/// The best range of the key or of one of the views.
///
/// A view has no row for a document without one of its fields. So it is only used if the conditions exclude
/// such documents, or if `is_complete` finds a row for every document. That counts the whole collection, and
/// a transaction that has done so conflicts with every write of it. So only a view that could be better is
/// checked for completeness.
pub(super) fn choose(
    key: &Index,
    views: &[Index],
    conditions: &[Condition],
    mut is_complete: impl FnMut(&Index) -> Result<bool>,
) -> Result<IndexRange> {
    let mut best = range(key, conditions)?;
    for view in views {
        let is_restricted = |field: &IndexField| {
            let restricts = |condition: &Condition| condition.restriction() != Restriction::None;
            conditions.iter().any(|condition| is_on(condition, field) && restricts(condition))
        };
        // Without a restriction of its first field a view is no better than the key.
        if !view.fields.first().is_some_and(is_restricted) {
            continue;
        }
        if !has_all(view, conditions, &mut is_complete)? {
            continue;
        }
        let range = range(view, conditions)?;
        if best.rank() < range.rank() {
            best = range;
        }
    }
    Ok(best)
}

/// Whether a condition is on a field of an index.
fn is_on(condition: &Condition, field: &IndexField) -> bool {
    condition.one_path().is_some_and(|path| path.leads_as(&field.path))
}

/// The direction in which a range of an index has an order, if it has.
///
/// Equal documents are in the order of their keys, which decides the direction. Each field of the order must
/// then have its own. Fields with one value have any order. After the fields of the order the collection's
/// key goes on with its rest. A view must go on with the key at once.
pub(super) fn in_order(
    range: &IndexRange,
    order: &SortOrder,
    count: &mut impl FnMut(TreeId, Span) -> Result<u64>,
) -> Result<Option<Direction>> {
    let IndexRange { index, is_constant, constant, .. } = range;
    let is_constant = |at: usize| is_constant.get(at).copied().unwrap_or_default();
    let Some((_, last)) = order.parts().last() else { return Ok(None) };
    let direction = turned(*last, index.is_descending);
    let mut at = 0;
    for (nth, (path, own)) in order.parts().iter().enumerate() {
        let is_same = |field: &IndexField| path.leads_as(&field.path);
        let is_before = order.parts()[..nth].iter().any(|(before, _)| before.leads_as(path));
        if is_before || (0..index.fields.len()).any(|at| is_constant(at) && is_same(&index.fields[at])) {
            continue;
        }
        while is_constant(at) {
            at += 1;
        }
        let has_order = |field: &IndexField| is_same(field) && turned(*own, field.is_descending) == direction;
        let prefix = (constant.len() == at).then_some(constant.as_slice());
        if !index.fields.get(at).is_some_and(has_order) || !index.is_in_order_of_values(at, prefix, count)? {
            return Ok(None);
        }
        at += 1;
    }
    let is_followed_by_the_key =
        || index.fields.len() == index.elements && (at..index.fields.len()).all(is_constant);
    Ok((index.view.is_none() || is_followed_by_the_key()).then_some(direction))
}

/// A direction, or the opposite one.
fn turned(direction: Direction, is_turned: bool) -> Direction {
    match (is_turned, direction) {
        (false, direction) => direction,
        (true, Direction::Forward) => Direction::Reverse,
        (true, Direction::Reverse) => Direction::Forward,
    }
}

/// A range that has the order and is at least as good as `best`, which does not have it.
///
/// It restricts as much, and needs no more gets. Or all of its documents are results, and `is_short`: fewer
/// are wanted than `best` reads. A view with missing rows is left out, as in [`choose`].
pub(super) fn ordered_instead(
    indexes: &[Index],
    conditions: &[Condition],
    order: &SortOrder,
    best: &IndexRange,
    is_short: bool,
    mut is_complete: impl FnMut(&Index) -> Result<bool>,
    count: &mut impl FnMut(TreeId, Span) -> Result<u64>,
) -> Result<Option<IndexRange>> {
    for index in indexes {
        let range = range(index, conditions)?;
        let is_cheap = index.view.is_none() || best.index.view.is_some();
        let is_good = (is_cheap && range.rank() >= best.rank()) || (is_short && range.is_exact());
        if !is_good || in_order(&range, order, count)?.is_none() {
            continue;
        }
        if index.view.is_none() || has_all(index, conditions, &mut is_complete)? {
            return Ok(Some(range));
        }
    }
    Ok(None)
}

/// Whether a view has a row for every document that satisfies the conditions.
pub(super) fn has_all(
    view: &Index,
    conditions: &[Condition],
    is_complete: &mut impl FnMut(&Index) -> Result<bool>,
) -> Result<bool> {
    let excludes_null = |field: &IndexField| {
        conditions.iter().any(|condition| is_on(condition, field) && condition.excludes_null())
    };
    Ok(view.fields.iter().all(excludes_null) || is_complete(view)?)
}

/// The range of a named index, within a span of it.
pub(super) fn along(index: &Index, conditions: &[Condition], span: &Span) -> Result<IndexRange> {
    let range = range(index, conditions)?;
    let spans = range.spans.into_iter().map(|own| own.and(span.clone())).collect();
    Ok(IndexRange { spans, ..range })
}

/// The most ranges of an index that are read one after the other. Beyond it one range holds them all.
const SPANS_MAX: usize = 1024;

/// The range of an index that the conditions leave.
pub(super) fn range(index: &Index, conditions: &[Condition]) -> Result<IndexRange> {
    let mut satisfied = vec![false; conditions.len()];
    let mut prefixes: Vec<Vec<Element>> = vec![Vec::new()];
    let (mut is_constant, mut constant) = (Vec::new(), Vec::new());
    for field in &index.fields {
        let points = conditions.iter().enumerate().filter(|(_, condition)| is_on(condition, field));
        let points = points.filter_map(|(at, condition)| match condition.restriction() {
            Restriction::Points(points) => Some((at, points)),
            _ => None,
        });
        let Some((at, mut points)) = points.min_by_key(|(_, points)| points.len()) else { break };
        if prefixes.len() * points.len() > SPANS_MAX {
            break;
        }
        if field.is_descending {
            points.reverse();
        }
        satisfied[at] = true;
        if let ([point], true) = (points.as_slice(), constant.len() == is_constant.len()) {
            constant.push(point.clone().directed(field.is_descending));
        }
        is_constant.push(points.len() <= 1);
        let longer = |prefix: Vec<Element>| {
            let with = |point: &Element| prefixed(&prefix, point, field.is_descending);
            points.iter().map(with).collect::<Vec<_>>()
        };
        prefixes = prefixes.into_iter().flat_map(longer).collect();
    }
    let equal_count = is_constant.len();
    let (ranges, is_range) = match index.fields.get(equal_count) {
        Some(next) => ranges_of(next, conditions, &mut satisfied),
        None => (None, false),
    };
    let is_descending = index.fields.get(equal_count).is_some_and(|next| next.is_descending);
    let spans = |prefix: &Vec<Element>| match &ranges {
        Some(ranges) => {
            ranges.iter().map(|range| span_of(prefix, range, is_descending)).collect::<Result<Vec<_>>>()
        }
        None if prefix.is_empty() => Ok(vec![Span::all()]),
        None => Ok(vec![Span::prefix(prefix.clone())?]),
    };
    let spans = prefixes.iter().map(spans).collect::<Result<Vec<_>>>()?.concat();
    Ok(IndexRange { index: index.clone(), equal_count, is_constant, is_range, constant, satisfied, spans })
}

/// The ranges of a field that all conditions on it leave, in the order of the index, and whether there is
/// such a condition.
fn ranges_of(
    field: &IndexField,
    conditions: &[Condition],
    satisfied: &mut [bool],
) -> (Option<Vec<ElementRange>>, bool) {
    let mut left: Option<Vec<ElementRange>> = None;
    for (at, condition) in conditions.iter().enumerate().filter(|(_, condition)| is_on(condition, field)) {
        let ranges = match condition.restriction() {
            Restriction::Ranges(ranges) => {
                satisfied[at] = true;
                ranges
            }
            // Too many to be read one by one.
            Restriction::Points(points) => {
                let ends = points.first().zip(points.last());
                let range = |(first, last): (&Element, &Element)| ElementRange {
                    from: (first.clone(), true),
                    to: (last.clone(), true),
                };
                ends.map(range).into_iter().collect()
            }
            Restriction::None => continue,
        };
        left = Some(match left {
            None => ranges,
            Some(left) => {
                left.iter().flat_map(|one| ranges.iter().filter_map(|other| one.and(other))).collect()
            }
        });
    }
    if field.is_descending
        && let Some(ranges) = &mut left
    {
        ranges.reverse();
    }
    let is_range = left.is_some();
    (left, is_range)
}

fn prefixed(prefix: &[Element], element: &Element, is_descending: bool) -> Vec<Element> {
    [prefix, &[element.clone().directed(is_descending)]].concat()
}

/// The rows that begin with `prefix`, and go on with an element of a range.
fn span_of(prefix: &[Element], range: &ElementRange, is_descending: bool) -> Result<Span> {
    let key = |(element, _): &Edge| encode(&prefixed(prefix, element, is_descending));
    let after = |edge: &Edge| key(edge).map(|key| prefix_end(&key));
    let (first, last) = if is_descending { (&range.to, &range.from) } else { (&range.from, &range.to) };
    let from = if first.1 { key(first)? } else { after(first)? };
    let to = if last.1 { after(last)? } else { key(last)? };
    Ok(Span::of_encoded(KeyRange { from, to: Some(to) }))
}

/// The fields of a view that would select the documents: those with single values, then one with a range.
pub(super) fn helpful_view(conditions: &[Condition]) -> Vec<String> {
    const FIELDS_MAX: usize = 8;
    let of = |wanted: fn(&Restriction) -> bool| {
        conditions
            .iter()
            .filter(move |condition| wanted(&condition.restriction()) && condition.excludes_null())
            .filter_map(|condition| condition.one_path().map(|path| path.text().to_owned()))
    };
    let mut fields: Vec<String> = Vec::new();
    for field in of(|restriction| matches!(restriction, Restriction::Points(_))) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let is_range = |restriction: &Restriction| matches!(restriction, Restriction::Ranges(_));
    let range = of(is_range).find(|field| !fields.contains(field));
    fields.extend(range);
    fields.truncate(FIELDS_MAX);
    fields
}

/// Whether a condition is on one of the fields.
fn has(fields: &[String], condition: &Condition) -> bool {
    condition.one_path().is_some_and(|own| fields.iter().any(|field| field == own.text()))
}

#[cfg(test)]
mod tests {
    //! A view that lacks documents must not be used for them, and the best index must be chosen.
    use super::*;
    use crate::catalog::schema::{ColumnType, Schema};

    fn conditions(texts: &[&str]) -> Vec<Condition> {
        let schema = ["a", "b", "c", "d"]
            .into_iter()
            .fold(Schema::new("x"), |schema, name| schema.column(name, ColumnType::Int));
        texts.iter().map(|text| Condition::parse(&schema, text).unwrap()).collect()
    }

    fn index(view: Option<&str>, fields: &[&str]) -> Index {
        Index {
            view: view.map(ToOwned::to_owned),
            fields: fields
                .iter()
                .map(|name| IndexField { path: Path::of_field(*name), is_typed: true, is_descending: false })
                .collect(),
            tree: TreeId(1),
            elements: fields.len(),
            is_descending: false,
        }
    }

    fn chosen(conditions: &[Condition]) -> IndexRange {
        let views = [index(Some("partial"), &["c", "d"]), index(Some("whole"), &["d", "a"])];
        let is_complete = |index: &Index| Ok(index.view.as_deref() == Some("whole"));
        choose(&index(None, &["a", "b"]), &views, conditions, is_complete).unwrap()
    }

    fn check(texts: &[&str], view: Option<&str>, fields: &[&str], exact: bool) {
        let conditions = conditions(texts);
        let range = chosen(&conditions);
        assert_eq!(range.index.view.as_deref(), view, "{texts:?}");
        assert_eq!(range.fields(), fields, "{texts:?}");
        assert_eq!(range.is_exact(), exact, "{texts:?}");
    }

    #[test]
    fn the_index_with_most_leading_fields_is_taken() {
        check(&["a=1"], None, &["a"], true);
        check(&["a=1", "b>=2", "b<9"], None, &["a", "b"], true);
        check(&["b=1"], None, &[], false);
        check(&["a>1", "b=1"], None, &["a"], false);
        check(&["d=1", "a=1"], Some("whole"), &["d", "a"], true);
        check(&["a=1", "d!=2"], None, &["a"], false);
    }

    #[test]
    fn an_index_that_may_lack_documents_needs_a_condition_on_each_field() {
        check(&["c=1"], None, &[], false);
        check(&["c=1", "d=2"], Some("partial"), &["c", "d"], true);
        check(&["c=1", "d!=2"], None, &[], false);
        check(&["c=1", "d:=null"], Some("whole"), &["d"], false);
    }

    // To count a collection is to depend on every write of it.
    #[test]
    fn documents_are_counted_only_for_a_view_that_could_be_better() {
        let views = [index(Some("by_c"), &["c", "d"])];
        for (texts, counts) in
            [(&["a=1"][..], 0), (&["d=1"], 0), (&["c=1", "d=2"], 0), (&["c=1"], 1), (&["a=1", "c>=1"], 1)]
        {
            let mut count = 0;
            let is_complete = |_: &Index| {
                count += 1;
                Ok(true)
            };
            choose(&index(None, &["a", "b"]), &views, &conditions(texts), is_complete).unwrap();
            assert_eq!(count, counts, "{texts:?}");
        }
    }

    #[test]
    fn the_view_that_would_help_has_the_range_last() {
        for (texts, fields) in [
            (&["b>1", "c=1", "d=2"][..], &["c", "d", "b"][..]),
            (&["c!=1"], &[]),
            (&["c:=null"], &[]),
            (&["b>1", "c<2"], &["b"]),
        ] {
            assert_eq!(helpful_view(&conditions(texts)), fields, "{texts:?}");
        }
    }

    #[test]
    fn the_span_holds_what_the_conditions_leave() {
        let range = range(&index(None, &["a", "b"]), &conditions(&["a=1", "b>2", "b<=9"])).unwrap();
        let key = |a: i64, b: i64| crate::tuple::encode(&(a, b)).unwrap();
        let [span] = <[Span; 1]>::try_from(range.spans).unwrap();
        let range = span.into_bytes();
        let holds =
            |key: &[u8]| key >= range.from.as_slice() && range.to.as_deref().is_none_or(|to| key < to);
        let found: Vec<i64> = (0..12).filter(|b| holds(&key(1, *b))).collect();
        assert_eq!(found, [3, 4, 5, 6, 7, 8, 9]);
        assert!(!holds(&key(0, 5)) && !holds(&key(2, 5)));
    }
}
