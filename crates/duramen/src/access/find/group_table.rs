//! The table of groups, and the aggregates of each.
//!
//! It is kept in memory up to a bound; beyond it its states go, sorted by group, to a temporary file, and
//! those of one group are joined as they are merged. Values whose order matters (for distinct counts and
//! quantiles) go through a sort of their own, group by group.

use std::collections::{HashMap, HashSet};

use super::aggregate::{Kind, State, Term, nearest_rank};
use super::filter::Found;
use super::order::{write_scalar, write_value};
use super::path::Path;
use super::sort::{Sorted, Sorter};
use super::spill::SpillPlace;
use crate::catalog::schema::Schema;
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};

/// About how much a group takes beside its key and states.
const GROUP_BYTES: usize = 220;

/// The groups so far.
pub(super) struct Table {
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
    pub(super) fn new(place: SpillPlace, memory_bytes: usize, group: Vec<Path>, terms: Vec<Term>) -> Table {
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

    pub(super) fn add(&mut self, schema: &Schema, found: Found<'_>) -> Result<()> {
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
    pub(super) fn join(&mut self, fields: Vec<Value>, states: Vec<State>) -> Result<()> {
        let mut key = Vec::new();
        for value in &fields {
            write_value(value, false, &mut key);
            key.push(0);
        }
        match self.index.get(&key) {
            Some(at) => self.groups[*at].1.join(&self.terms, states),
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

    /// The groups of several tables of the same terms; of values whose order matters there is one table.
    pub(super) fn finish(tables: Vec<Table>) -> Result<Groups> {
        let (mut parts, mut values, mut shown) = (Vec::new(), None, None);
        for mut table in tables {
            parts.push(table.take_parts()?);
            let sorted = table.values.map(|values| values.sorter.finish()).transpose()?;
            values = values.or(sorted.map(|sorted| SortedValues { sorted, next: None }));
            shown = Some((table.group, table.terms));
        }
        let (group, terms) = shown.unwrap_or_default();
        Ok(Groups { group, terms, parts, values })
    }

    fn take_parts(&mut self) -> Result<Parts> {
        if self.spilled.is_some() {
            self.spill()?;
        }
        let from = match self.spilled.take() {
            Some(spilled) => Origin::Spilled(spilled.finish()?),
            None => {
                let mut groups = std::mem::take(&mut self.groups);
                groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                Origin::Kept(groups.into_iter())
            }
        };
        let mut parts = Parts { from, next: None };
        parts.step(&self.terms)?;
        Ok(parts)
    }
}

impl Group {
    /// Joins the states of other documents of the group.
    fn join(&mut self, terms: &[Term], states: Vec<State>) {
        let all = terms.iter().zip(&mut self.states).zip(states);
        all.for_each(|((term, own), other)| term.join(own, other));
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
pub(super) struct Groups {
    group: Vec<Path>,
    terms: Vec<Term>,
    parts: Vec<Parts>,
    values: Option<SortedValues>,
}

/// Groups of one table, sorted by their keys. Of a table that was spilled a group may come several times.
struct Parts {
    from: Origin,
    next: Option<(Vec<u8>, Group)>,
}

enum Origin {
    Kept(std::vec::IntoIter<(Vec<u8>, Group)>),
    Spilled(Sorted),
}

struct SortedValues {
    sorted: Sorted,
    /// The next value that is not of the current term.
    next: Option<(Vec<u8>, Vec<u8>)>,
}

impl Groups {
    pub(super) fn next(&mut self) -> Result<Option<Document>> {
        let Some((key, group)) = self.next_group()? else { return Ok(None) };
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

    /// The first group that is left, with its states of all tables.
    fn next_group(&mut self) -> Result<Option<(Vec<u8>, Group)>> {
        let keys = self.parts.iter().filter_map(|parts| Some(parts.next.as_ref()?.0.as_slice()));
        let Some(first) = keys.min().map(<[u8]>::to_vec) else { return Ok(None) };
        let mut joined: Option<Group> = None;
        for parts in &mut self.parts {
            while let Some((_, group)) = parts.next.take_if(|(key, _)| *key == first) {
                parts.step(&self.terms)?;
                match &mut joined {
                    Some(joined) => joined.join(&self.terms, group.states),
                    None => joined = Some(group),
                }
            }
        }
        Ok(joined.map(|group| (first, group)))
    }
}

impl Parts {
    /// Goes to the next group.
    fn step(&mut self, terms: &[Term]) -> Result<()> {
        self.next = match &mut self.from {
            Origin::Kept(groups) => groups.next(),
            Origin::Spilled(sorted) => match sorted.next()? {
                Some((key, stored)) => Some((key.to_vec(), stored_group(terms, stored)?)),
                None => None,
            },
        };
        Ok(())
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
