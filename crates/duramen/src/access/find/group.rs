//! Aggregates of what a query finds, for each group of documents.
//!
//! Owns the table of groups. It is kept in memory up to a bound; beyond it its states go, sorted by group, to
//! a temporary file, and those of one group are joined as they are merged. Values whose order matters (for
//! distinct counts and quantiles) go through a sort of their own, group by group.

use std::collections::{HashMap, HashSet};

use super::Find;
use super::aggregate::{Aggregate, Kind, State, Term, nearest_rank};
use super::field_set::FieldSet;
use super::filter::{Filter, Found, Needs, Read};
use super::found::Step;
use super::order::{OrderBy, SortOrder, write_scalar, write_value};
use super::path::Path;
use super::plan::{FindPlan, Sorting};
use super::reduced::Reduced;
use super::sort::{Sorted, Sorter};
use super::spill::SpillPlace;
use super::stored_fields::FieldFinder;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};

/// About how much a group takes beside its key and states.
const GROUP_BYTES: usize = 220;

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
        if self.find.limit.is_some() {
            return Err(Error::invalid("a query with a limit is not grouped")
                .with_hint("set the limit on the groups, after group_by"));
        }
        let held = self.find.of.hold()?;
        let state = held.state();
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
            let stage = Stage::Gather(Box::new(table));
            return Ok(GroupIter { documents: None, stage, shown, order, sorter, left });
        }
        let unordered = Find { order: Vec::new(), ..self.find.clone() };
        let (scan, _) = unordered.scan(state, entry, &terms)?;
        let documents = Filter::new(held, scan, terms, needs(&group, &aggregates));
        let stage = Stage::Gather(Box::new(Table::new(place, self.find.memory_bytes, group, aggregates)));
        Ok(GroupIter { documents: Some(documents), stage, shown, order, sorter, left })
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
    /// `None` if the groups came from the reductions of a view.
    documents: Option<Filter<'s>>,
    stage: Stage,
    shown: Schema,
    order: SortOrder,
    /// For an order other than that of the groups.
    sorter: Option<Sorter>,
    left: u64,
}

enum Stage {
    Gather(Box<Table>),
    Groups(Box<Groups>),
    Sorted(Sorted),
    End,
}

impl GroupIter<'_> {
    /// How many documents were read so far.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.documents.as_ref().map_or(0, Filter::read_count)
    }

    /// Reads until a group is complete, but at most `read_max` documents.
    ///
    /// # Errors
    /// As [`FindIter::next_within`](crate::find::FindIter::next_within). `InvalidArgument` (E0201) for a sum
    /// of values that are no numbers, and for one beyond 64 bits.
    pub fn next_within(&mut self, read_max: u64) -> Result<Step> {
        for _ in 0..read_max {
            if self.left == 0 {
                self.stage = Stage::End;
            }
            let next = match &mut self.stage {
                Stage::End => return Ok(Step::End),
                Stage::Gather(table) => {
                    let Some(documents) = &mut self.documents else {
                        self.end_of_documents()?;
                        continue;
                    };
                    match documents.advance()? {
                        Read::Passed => {}
                        Read::Found => {
                            let (schema, found) = documents.found()?;
                            table.add(schema, found)?;
                        }
                        Read::End => self.end_of_documents()?,
                    }
                    continue;
                }
                Stage::Groups(groups) => groups.next()?,
                Stage::Sorted(sorted) => {
                    sorted.next()?.map(|(_, stored)| Document::from_bytes(stored)).transpose()?
                }
            };
            match next {
                Some(group) => {
                    self.left -= 1;
                    return Ok(Step::Found(group));
                }
                None => self.stage = Stage::End,
            }
        }
        Ok(Step::Unfinished)
    }

    fn end_of_documents(&mut self) -> Result<()> {
        let Stage::Gather(table) = std::mem::replace(&mut self.stage, Stage::End) else { return Ok(()) };
        let mut groups = table.finish()?;
        self.stage = match self.sorter.take() {
            None => Stage::Groups(Box::new(groups)),
            Some(mut sorter) => {
                let mut at = 0_u64;
                while let Some(group) = groups.next()? {
                    let mut key = Vec::with_capacity(64);
                    // Equal groups are in the order of their fields, as equal documents are in that of keys.
                    self.order.write_key(&self.shown, &group, &at.to_be_bytes(), &mut key);
                    sorter.push(&key, &group.to_bytes()?)?;
                    at += 1;
                }
                Stage::Sorted(sorter.finish()?)
            }
        };
        Ok(())
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

/// The groups so far.
struct Table {
    place: SpillPlace,
    /// Memory of the table; the sort of values has as much.
    memory_bytes: usize,
    group: Vec<Path>,
    terms: Vec<Term>,
    /// Each group with its key.
    groups: Vec<(Vec<u8>, Group)>,
    /// Where the group of a key is.
    index: HashMap<Vec<u8>, usize>,
    /// Where the group of the last document is: it is often that of the next one, too.
    last: usize,
    used_bytes: usize,
    /// States that no longer fit, by the bytes of their groups.
    spilled: Option<Sorter>,
    values: Option<Values>,
    key: Vec<u8>,
}

/// A group: the values of its fields, and what is known of its aggregates.
struct Group {
    fields: Vec<Value>,
    states: Vec<State>,
}

/// Values whose order matters, by group and term.
struct Values {
    sorter: Sorter,
    /// Values for distinct counts that are in the sorter already.
    seen: HashSet<Vec<u8>>,
    seen_bytes: usize,
    memory_bytes: usize,
}

impl Table {
    fn new(place: SpillPlace, memory_bytes: usize, group: Vec<Path>, terms: Vec<Term>) -> Table {
        let memory_bytes = memory_bytes / 2;
        let values = terms.iter().any(Term::is_of_sorted_values).then(|| Values {
            sorter: Sorter::new(place.clone(), memory_bytes, None),
            seen: HashSet::new(),
            seen_bytes: 0,
            memory_bytes: memory_bytes / 2,
        });
        let mut table = Table {
            place,
            memory_bytes,
            group,
            terms,
            groups: Vec::new(),
            index: HashMap::new(),
            last: 0,
            used_bytes: 0,
            spilled: None,
            values,
            key: Vec::new(),
        };
        if table.group.is_empty() {
            // Aggregates of no documents are an answer too.
            let states = table.terms.iter().map(Term::start).collect();
            table.insert(Vec::new(), Group { fields: Vec::new(), states });
        }
        table
    }

    fn add(&mut self, schema: &Schema, found: Found<'_>) -> Result<()> {
        self.key.clear();
        for (index, path) in self.group.iter().enumerate() {
            match found {
                Found::Document(document) => write_value(path.value(schema, document), false, &mut self.key),
                Found::Stored(fields) => fields.scalar(index, |found| {
                    write_scalar(found, false, &mut self.key);
                    Ok(())
                })?,
            }
            self.key.push(0);
        }
        // Of nothing to group by there is one group. To compare two empty keys is slow on some processors.
        let is_last = |(key, _): &(Vec<u8>, Group)| self.group.is_empty() || *key == self.key;
        if !self.groups.get(self.last).is_some_and(is_last) {
            self.last = match self.index.get(self.key.as_slice()) {
                Some(at) => *at,
                None => {
                    let value = |(index, path): (usize, &Path)| match found {
                        Found::Document(document) => Ok(path.value(schema, document).clone()),
                        Found::Stored(fields) => fields.scalar(index, |found| Ok(Value::of_scalar(*found))),
                    };
                    let fields = self.group.iter().enumerate().map(value).collect::<Result<_>>()?;
                    let states = self.terms.iter().map(Term::start).collect();
                    self.insert(self.key.clone(), Group { fields, states })
                }
            };
        }
        let Table { group, terms, groups, values, last, used_bytes, .. } = self;
        let (key, own) = &mut groups[*last];
        for (at, (term, state)) in terms.iter().zip(&mut own.states).enumerate() {
            let before = state.extra_bytes();
            let sorted = &mut |value: &Value| match values {
                Some(values) => values.add(key, at, term.kind, value),
                None => Ok(()),
            };
            match found {
                Found::Document(document) => term.add(state, schema, document, sorted)?,
                Found::Stored(fields) => {
                    let index = group.len() + at;
                    fields.scalar(index, |found| term.add_scalar(state, found, sorted))?;
                }
            }
            *used_bytes = *used_bytes + state.extra_bytes() - before;
        }
        if self.used_bytes > self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Joins the states of a group, which holds more than a document.
    fn join(&mut self, fields: Vec<Value>, states: Vec<State>) -> Result<()> {
        let mut key = Vec::new();
        for value in &fields {
            write_value(value, false, &mut key);
            key.push(0);
        }
        match self.index.get(&key) {
            Some(at) => {
                let own = &mut self.groups[*at].1;
                let all = self.terms.iter().zip(&mut own.states).zip(states);
                all.for_each(|((term, own), other)| term.join(own, other));
            }
            None => {
                self.insert(key, Group { fields, states });
            }
        }
        if self.used_bytes > self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Adds a new group. Returns where it is.
    fn insert(&mut self, key: Vec<u8>, group: Group) -> usize {
        self.used_bytes += 3 * key.len() + GROUP_BYTES + self.terms.len() * size_of::<State>();
        let at = self.groups.len();
        self.index.insert(key.clone(), at);
        self.groups.push((key, group));
        at
    }

    /// Moves all states to a sort.
    fn spill(&mut self) -> Result<()> {
        let spilled =
            self.spilled.get_or_insert_with(|| Sorter::new(self.place.clone(), self.memory_bytes / 2, None));
        self.index.clear();
        for (key, Group { fields, states }) in self.groups.drain(..) {
            let states: Vec<Value> = states.iter().map(State::to_value).collect();
            let group = Document::new().with("f", fields).with("s", states);
            spilled.push(&key, &group.to_bytes()?)?;
        }
        self.used_bytes = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Groups> {
        let groups = if self.spilled.is_some() {
            self.spill()?;
            let sorted = self.spilled.take().expect("it is there").finish()?;
            Parts::Spilled { sorted, next: None }
        } else {
            let mut groups = std::mem::take(&mut self.groups);
            groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            Parts::Kept(groups.into_iter())
        };
        let values = self.values.map(|values| values.sorter.finish()).transpose()?;
        let values = values.map(|sorted| SortedValues { sorted, next: None });
        Ok(Groups { group: self.group, terms: self.terms, groups, values })
    }
}

impl Values {
    fn add(&mut self, group: &[u8], term: usize, kind: Kind, value: &Value) -> Result<()> {
        let mut key = value_key(group, term);
        write_value(value, false, &mut key);
        if kind == Kind::Distinct {
            if self.seen.contains(&key) {
                return Ok(());
            }
            if self.seen_bytes > self.memory_bytes {
                self.seen.clear();
                self.seen_bytes = 0;
            }
            self.seen_bytes += key.len() + 64;
            self.sorter.push(&key, &[])?;
            self.seen.insert(key);
            return Ok(());
        }
        self.sorter.push(&key, &Document::new().with("v", value.clone()).to_bytes()?)
    }
}

/// The begin of the keys of a term's values in a group.
fn value_key(group: &[u8], term: usize) -> Vec<u8> {
    let term = u32::try_from(term).expect("fewer terms than 2^32");
    [group, &term.to_be_bytes()].concat()
}

/// Complete groups, in the order of their fields.
struct Groups {
    group: Vec<Path>,
    terms: Vec<Term>,
    groups: Parts,
    values: Option<SortedValues>,
}

enum Parts {
    Kept(std::vec::IntoIter<(Vec<u8>, Group)>),
    Spilled { sorted: Sorted, next: Option<(Vec<u8>, Group)> },
}

struct SortedValues {
    sorted: Sorted,
    /// The next value that is not of the current term.
    next: Option<(Vec<u8>, Vec<u8>)>,
}

impl Groups {
    fn next(&mut self) -> Result<Option<Document>> {
        let Some((key, group)) = self.groups.next(&self.terms)? else { return Ok(None) };
        let mut shown = Document::new();
        for (path, value) in self.group.iter().zip(group.fields) {
            shown.set(path.text(), value);
        }
        for (at, (term, state)) in self.terms.iter().zip(&group.states).enumerate() {
            let answer = match (&mut self.values, term.kind, state) {
                (Some(values), Kind::Distinct, _) => Value::from(values.distinct(&value_key(&key, at))?),
                (Some(values), Kind::Quantile(part), State::Count(count)) => {
                    values.nth(&value_key(&key, at), nearest_rank(part, *count))?
                }
                _ => term.answer(state)?,
            };
            shown.set(term.name.as_str(), answer);
        }
        Ok(Some(shown))
    }
}

impl Parts {
    fn next(&mut self, terms: &[Term]) -> Result<Option<(Vec<u8>, Group)>> {
        let (sorted, next) = match self {
            Parts::Kept(groups) => return Ok(groups.next()),
            Parts::Spilled { sorted, next } => (sorted, next),
        };
        let mut current = next.take();
        while let Some((key, stored)) = sorted.next()? {
            let group = stored_group(terms, stored)?;
            match &mut current {
                Some((own, joined)) if own == key => {
                    let states = terms.iter().zip(&mut joined.states).zip(group.states);
                    states.for_each(|((term, state), other)| term.join(state, other));
                }
                Some(_) => {
                    *next = Some((key.to_vec(), group));
                    return Ok(current);
                }
                None => current = Some((key.to_vec(), group)),
            }
        }
        Ok(current)
    }
}

/// A group that was spilled.
fn stored_group(terms: &[Term], stored: &[u8]) -> Result<Group> {
    let mut document = Document::from_bytes(stored)?;
    let read = |(fields, states)| {
        let (Value::List(fields), Value::List(states)) = (fields, states) else { return None };
        let states = terms
            .iter()
            .zip(states)
            .map(|(term, state)| State::from_value(term, state))
            .collect::<Option<_>>()?;
        Some(Group { fields, states })
    };
    document.remove("f").zip(document.remove("s")).and_then(read).ok_or_else(|| {
        Error::new(Code::CorruptData, "a group in a query's temporary file cannot be read")
            .with_hint("run the query again; if it happens again, the disk or the memory is failing")
    })
}

impl SortedValues {
    /// Calls `told` with each value under a prefix, with whether it is another one than the last.
    fn each(&mut self, prefix: &[u8], mut told: impl FnMut(bool, &[u8]) -> Result<()>) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let (key, stored) = match self.next.take() {
                Some(next) => next,
                None => match self.sorted.next()? {
                    Some((key, stored)) => (key.to_vec(), stored.to_vec()),
                    None => return Ok(()),
                },
            };
            if !key.starts_with(prefix) {
                self.next = Some((key, stored));
                return Ok(());
            }
            told(last.as_ref() != Some(&key), &stored)?;
            last = Some(key);
        }
    }

    fn distinct(&mut self, prefix: &[u8]) -> Result<u64> {
        let mut count = 0;
        self.each(prefix, |is_new, _| {
            count += u64::from(is_new);
            Ok(())
        })?;
        Ok(count)
    }

    /// The value of a rank; null if there are none.
    fn nth(&mut self, prefix: &[u8], rank: u64) -> Result<Value> {
        let (mut at, mut found) = (0, Value::Null);
        self.each(prefix, |_, stored| {
            at += 1;
            if at == rank {
                found = Document::from_bytes(stored)?.remove("v").unwrap_or_default();
            }
            Ok(())
        })?;
        Ok(found)
    }
}
