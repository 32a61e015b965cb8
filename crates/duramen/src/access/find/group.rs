//! Aggregates of what a query finds, for each group of documents.
//!
//! `gather` reads the documents, and `group_table` has the groups.

use super::Find;
use super::aggregate::{Aggregate, Term};
use super::cursor::{FindCursor, Running};
use super::field_set::FieldSet;
use super::filter::{Filter, Needs};
use super::found::{HELD, Step};
use super::gather::Gathering;
use super::group_table::{Groups, Table};
use super::order::{OrderBy, SortOrder};
use super::path::Path;
use super::plan::{FindPlan, Sorting};
use super::reduced::Reduced;
use super::sort::{Sorted, Sorter};
use super::stored_fields::FieldFinder;
use crate::access::reads::sealed::Readable;
use crate::access::selection::Held;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::Document;

/// Groups of documents with aggregates, from [`Find::group_by`].
///
/// Each group is a document: the fields by which it is grouped, and the aggregates under their names.
#[derive(Clone)]
pub struct Grouped<'s> {
    find: Find<'s>,
    fields: Vec<String>,
    aggregates: Vec<Aggregate>,
    order: Vec<OrderBy>,
    limit: Option<u64>,
}

impl<'s> Find<'s> {
    /// Groups the documents by these fields, with aggregates of each group. The order and the fields of this
    /// query do not matter; a limit is refused.
    ///
    /// Groups are in the order of their fields. Null is a group of its own.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// use duramen::find::{Aggregate, OrderBy};
    ///
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # let flights = db.ensure(&Schema::new("flights").key(["id"]))?;
    /// for (id, carrier, delay) in [(1, "UA", 70), (2, "UA", -5), (3, "AA", 90)] {
    ///     flights.put(doc! { "id": id, "carrier": carrier, "delay": delay })?;
    /// }
    /// let aggregates = [Aggregate::count(), Aggregate::max("delay")];
    /// let by_carrier = flights.find([]).group_by(["carrier"], aggregates);
    /// let late = by_carrier.order_by([OrderBy::descending("max_delay")]).limit(1);
    /// let found = late.iter()?.collect::<Result<Vec<_>>>()?;
    /// assert_eq!(found, [doc! { "carrier": "AA", "count": 1, "max_delay": 90 }]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn group_by<T: Into<String>>(
        &self,
        fields: impl IntoIterator<Item = T>,
        aggregates: impl IntoIterator<Item = Aggregate>,
    ) -> Grouped<'s> {
        Grouped {
            find: self.clone(),
            fields: fields.into_iter().map(Into::into).collect(),
            aggregates: aggregates.into_iter().collect(),
            order: Vec::new(),
            limit: None,
        }
    }

    /// Aggregates of all documents, as one document.
    ///
    /// # Errors
    /// As [`Grouped::iter`] and [`GroupIter::next_within`].
    pub fn aggregate(&self, aggregates: impl IntoIterator<Item = Aggregate>) -> Result<Document> {
        let mut groups = self.group_by([] as [&str; 0], aggregates).iter()?;
        groups.next().unwrap_or_else(|| Ok(Document::new()))
    }
}

impl<'s> Grouped<'s> {
    /// Orders the groups by their fields and aggregates, under their names.
    #[must_use]
    pub fn order_by(&self, order: impl IntoIterator<Item = OrderBy>) -> Self {
        Grouped { order: order.into_iter().collect(), ..self.clone() }
    }

    /// Returns at most this many groups.
    #[must_use]
    pub fn limit(&self, at_most: u64) -> Self {
        Grouped { limit: Some(self.limit.map_or(at_most, |before| before.min(at_most))), ..self.clone() }
    }

    /// How the groups are found, without reading a document: as [`Find::plan`] tells, or from the reductions
    /// of a view ([`AccessPath::ViewReductions`](crate::find::AccessPath::ViewReductions)).
    ///
    /// A view answers if its key begins with the fields of the groups, in any order, and if it keeps the
    /// sums. These fields are columns of integers, texts, bools or times. The aggregates are counts, and sums
    /// and means of columns of integers. Each condition restricts the first fields of the key, and no
    /// document may lack a row.
    ///
    /// # Errors
    /// As [`Grouped::iter`].
    pub fn plan(&self) -> Result<FindPlan> {
        let held = self.find.of.hold()?;
        let state = held.state();
        let (entry, terms) = self.find.terms(state)?;
        let (group, aggregates) = self.parts(&terms.schema)?;
        let plan = Find { order: Vec::new(), ..self.find.clone() }.plan()?;
        Ok(match Reduced::choose(&self.find, state, &entry, &terms, &group, &aggregates)? {
            None => plan,
            Some(reduced) => FindPlan {
                path: reduced.path(),
                read_count: 0,
                is_exact: true,
                sorting: Sorting::None,
                helpful_view: Vec::new(),
                ..plan
            },
        })
    }

    /// The fields of the groups, and the aggregates.
    fn parts(&self, schema: &Schema) -> Result<(Vec<Path>, Vec<Term>)> {
        let group = self.fields.iter().map(|field| group_path(schema, field)).collect::<Result<_>>()?;
        let terms = self.aggregates.iter().map(|aggregate| Term::of(schema, aggregate));
        Ok((group, terms.collect::<Result<_>>()?))
    }

    /// The groups, as of one snapshot. All documents are read before the first group is returned.
    ///
    /// # Errors
    /// As [`Find`]; `InvalidArgument` (E0201) also for a field that has no sum, a quantile of no part between
    /// 0 and 1, two results of one name, and a query with a limit.
    pub fn iter(&self) -> Result<GroupIter<'s>> {
        let held = self.find.of.hold()?;
        let grouping = self.grouping(held.state())?;
        Ok(GroupIter { held: grouping.reads().then_some(held), grouping })
    }

    /// The groups, as [`Grouped::iter`] gives them, with the snapshot that they are of.
    ///
    /// # Errors
    /// As [`Grouped::iter`]; `InvalidArgument` (E0201) in a transaction, whose state ends with it.
    pub fn cursor(&self) -> Result<FindCursor> {
        FindCursor::of(self.find.of, |state| Ok(Running::Groups(Box::new(self.grouping(state)?))))
    }

    fn grouping(&self, state: &dyn Readable) -> Result<Grouping> {
        if self.find.limit.is_some() {
            return Err(Error::invalid("a query with a limit is not grouped")
                .with_hint("set the limit on the groups, after group_by"));
        }
        let (entry, terms) = self.find.terms(state)?;
        let place = state.open_state().spill.clone();
        let (group, aggregates) = self.parts(&terms.schema)?;
        let shown = shown_schema(&terms.schema, &self.fields, &aggregates)?;
        let order = SortOrder::of(&shown, &self.order)?;
        let sorter =
            (!order.is_empty()).then(|| Sorter::new(place.clone(), self.find.memory_bytes, self.limit));
        let left = self.limit.unwrap_or(u64::MAX);
        let reduced = Reduced::choose(&self.find, state, &entry, &terms, &group, &aggregates)?;
        if let Some(reduced) = reduced {
            let mut table = Table::new(place, self.find.memory_bytes, group, aggregates);
            reduced.groups(state.source(), |fields, states| table.join(fields, states))?;
            let stage = Stage::Gathered(Box::new(table));
            return Ok(Grouping { stage, read_count: 0, shown, order, sorter, left });
        }
        let unordered = Find { order: Vec::new(), ..self.find.clone() };
        let (scan, _) = unordered.scan(state, entry, &terms)?;
        // Each thread may have all groups, and less memory for them: there must be a place to spill them to.
        let is_shared = self.find.threads > 1
            && place.directory.is_some()
            && !aggregates.iter().any(Term::is_of_sorted_values);
        let threads = match state.as_snapshot() {
            Some(snapshot) if is_shared => scan.divide(snapshot, self.find.threads_in_memory())?,
            _ => 1,
        };
        let documents = Filter::new(scan, terms, needs(&group, &aggregates));
        let memory_bytes = self.find.memory_bytes / threads;
        let table = |_| Table::new(place.clone(), memory_bytes, group.clone(), aggregates.clone());
        let gathering = Gathering::new(documents, (0..threads).map(table).collect());
        let stage = Stage::Gather(Box::new(gathering));
        Ok(Grouping { stage, read_count: 0, shown, order, sorter, left })
    }
}

impl std::fmt::Debug for Grouped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grouped")
            .field("find", &self.find)
            .field("fields", &self.fields)
            .field("aggregates", &self.aggregates)
            .finish_non_exhaustive()
    }
}

/// What is needed of every document: the fields of its group, and those of the aggregates.
fn needs(group: &[Path], aggregates: &[Term]) -> Needs {
    let paths = group.iter().map(Some).chain(aggregates.iter().map(|term| term.path.as_ref()));
    let mut fields = FieldSet::default();
    paths.clone().flatten().for_each(|path| fields.add(path));
    match FieldFinder::new(paths) {
        Some(finder) => Needs::Stored(finder, fields),
        None => Needs::Fields(fields),
    }
}

fn group_path(schema: &Schema, field: &str) -> Result<Path> {
    let path = Path::of(schema, field)?;
    if path.is_each() {
        let message = format!("{field} has several values in a document, which is in one group");
        return Err(Error::invalid(message).with_hint("group by one item of the list, such as a[0]"));
    }
    Ok(path)
}

/// The fields of groups as a schema.
fn shown_schema(schema: &Schema, fields: &[String], terms: &[Term]) -> Result<Schema> {
    let mut shown = Schema::new(format!("the groups of {}", schema.name()));
    for name in fields.iter().chain(terms.iter().map(|term| &term.name)) {
        if shown.kind(name).is_some() {
            return Err(Error::invalid(format!("two results are called {name}"))
                .with_hint("leave one out, or give it another name (Aggregate::named)"));
        }
        shown.set_column(name.clone(), ColumnType::Any);
    }
    Ok(shown)
}

/// The groups of a query, in order.
pub struct GroupIter<'s> {
    /// While documents are still to be read.
    held: Option<Held<'s>>,
    grouping: Grouping,
}

/// A query for groups on its way. `state` is the same in every call, and there while it
/// [reads](Grouping::reads).
pub(super) struct Grouping {
    stage: Stage,
    read_count: u64,
    shown: Schema,
    order: SortOrder,
    /// For an order other than that of the groups.
    sorter: Option<Sorter>,
    left: u64,
}

enum Stage {
    Gather(Box<Gathering>),
    /// All groups are in a table.
    Gathered(Box<Table>),
    Groups(Box<Groups>),
    Sorted(Sorted),
    End,
}

impl GroupIter<'_> {
    /// How many documents were read so far.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.grouping.read_count()
    }

    /// With how many threads the next documents are read: at most [`Find::threads`], and 1 if all are read.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.grouping.threads()
    }

    /// Reads until a group is complete, but at most `read_max` documents. After an error there are no groups.
    ///
    /// Threads start in a call that has 4,096 documents for each of them, and end before it returns. In
    /// other calls one thread reads.
    ///
    /// # Errors
    /// As [`FindIter::next_within`](crate::find::FindIter::next_within). `InvalidArgument` (E0201) for a sum
    /// of values that are no numbers, and for one beyond 64 bits.
    pub fn next_within(&mut self, read_max: u64) -> Result<Step> {
        let step = self.grouping.next_within(self.held.as_ref().map(Held::state), read_max);
        if !self.grouping.reads() {
            self.held = None;
        }
        step
    }
}

impl Grouping {
    pub(super) fn read_count(&self) -> u64 {
        self.read_count
    }

    /// Whether documents are still to be read.
    pub(super) fn reads(&self) -> bool {
        matches!(self.stage, Stage::Gather(_))
    }

    pub(super) fn threads(&self) -> usize {
        if let Stage::Gather(gathering) = &self.stage { gathering.threads() } else { 1 }
    }

    /// # Errors
    /// As [`GroupIter::next_within`].
    pub(super) fn next_within(&mut self, state: Option<&dyn Readable>, read_max: u64) -> Result<Step> {
        if read_max == 0 {
            return Ok(Step::Unfinished);
        }
        // It stays at the end after an error or a panic: what was read is not complete then.
        let mut stage = std::mem::replace(&mut self.stage, Stage::End);
        if self.left == 0 {
            return Ok(Step::End);
        }
        loop {
            let next = match stage {
                Stage::End => return Ok(Step::End),
                Stage::Gather(mut gathering) => {
                    let is_at_end = gathering.read(state.expect(HELD), read_max)?;
                    self.read_count = gathering.read_count();
                    if !is_at_end {
                        self.stage = Stage::Gather(gathering);
                        return Ok(Step::Unfinished);
                    }
                    stage = self.in_order(gathering.finish()?)?;
                    continue;
                }
                Stage::Gathered(table) => {
                    stage = self.in_order(Table::finish(vec![*table])?)?;
                    continue;
                }
                Stage::Groups(ref mut groups) => groups.next()?,
                Stage::Sorted(ref mut sorted) => {
                    sorted.next()?.map(|(_, stored)| Document::from_bytes(stored)).transpose()?
                }
            };
            let Some(group) = next else { return Ok(Step::End) };
            self.left -= 1;
            self.stage = stage;
            return Ok(Step::Found(group));
        }
    }

    /// The groups in the order that was asked for.
    fn in_order(&mut self, mut groups: Groups) -> Result<Stage> {
        let Some(mut sorter) = self.sorter.take() else { return Ok(Stage::Groups(Box::new(groups))) };
        let mut at = 0_u64;
        while let Some(group) = groups.next()? {
            let mut key = Vec::with_capacity(64);
            // Equal groups are in the order of their fields, as equal documents are in that of keys.
            self.order.write_key(&self.shown, &group, &at.to_be_bytes(), &mut key);
            sorter.push(&key, &group.to_bytes()?)?;
            at += 1;
        }
        Ok(Stage::Sorted(sorter.finish()?))
    }
}

impl Iterator for GroupIter<'_> {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Result<Document>> {
        loop {
            match self.next_within(u64::MAX) {
                Ok(Step::Found(group)) => return Some(Ok(group)),
                Ok(Step::Unfinished) => {}
                Ok(Step::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
