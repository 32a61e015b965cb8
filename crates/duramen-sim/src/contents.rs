//! What a database must hold: a model of its trees, and an exhaustive comparison with it.
//!
//! Owns the model and the comparison, never an engine. Each answer of the engine is right, wrong, or an
//! error; the caller judges the errors. A comparison reads every key, its rank and its index, the counts and
//! reductions on both sides of it, and the rows in both directions. No wrong byte can hide behind a right
//! neighbour (D4).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::search::random::Random;
use duramen_engine::{Builtin, Code, Direction, Error, KeyRange, Reduced, Result, Row, Snapshot, TreeId};

/// The trees of a database by name. Cheap to clone: unchanged trees are shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contents {
    trees: BTreeMap<String, Arc<Tree>>,
}

/// One tree of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// Its reducer.
    pub reducer: Option<Builtin>,
    /// Its entries.
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Answers compared.
    pub answer_count: u64,
    /// Queries that returned an error.
    pub errors: Vec<Error>,
    /// The first answer that was wrong.
    pub wrong: Option<String>,
}

impl Contents {
    /// The tree of a name, created if it is missing.
    pub fn tree_mut(&mut self, name: &str) -> &mut Tree {
        Arc::make_mut(self.trees.entry(name.to_owned()).or_default())
    }

    /// The tree of a name.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<&Tree> {
        self.trees.get(name).map(|tree| &**tree)
    }

    /// Removes a tree.
    pub fn drop_tree(&mut self, name: &str) {
        self.trees.remove(name);
    }

    /// Names of the trees, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.trees.keys().map(String::as_str)
    }

    /// Compares every answer of a snapshot.
    #[must_use]
    pub fn compare(&self, snapshot: &Snapshot) -> Comparison {
        let mut comparison = Comparison::default();
        let names = snapshot.trees().map(|trees| trees.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        let wanted: Vec<String> = self.names().map(str::to_owned).collect();
        comparison.check(&names, |found| *found == wanted, || "names of trees".to_owned());
        for (name, tree) in &self.trees {
            match snapshot.tree(name) {
                Ok(Some(id)) => tree.compare(snapshot, name, id, &mut comparison),
                Ok(None) => comparison.wrong_answer(format!("tree {name} is not there")),
                Err(error) => comparison.errors.push(error),
            }
        }
        comparison
    }
}

impl Tree {
    /// The reduction of the entries given, as the engine encodes it.
    #[must_use]
    pub fn reduction<'a>(&self, values: impl Iterator<Item = &'a Vec<u8>>) -> Option<Vec<u8>> {
        let reducer = self.reducer?;
        let numbers = values.map(|value| number(value));
        match reducer {
            Builtin::Sum => {
                numbers.map(i128::from).reduce(|a, b| a + b).map(|sum| sum.to_le_bytes().to_vec())
            }
            Builtin::Min => numbers.min().map(|least| least.to_le_bytes().to_vec()),
            Builtin::Max => numbers.max().map(|most| most.to_le_bytes().to_vec()),
        }
    }

    fn compare(&self, snapshot: &Snapshot, name: &str, id: TreeId, out: &mut Comparison) {
        let info = snapshot.tree_info(id).map(|info| (info.len, info.reducer));
        let wanted = (self.rows.len() as u64, self.reducer.map(Builtin::spec));
        out.check(&info, |found| *found == wanted, || format!("{name}: what the tree is"));
        self.compare_rows(snapshot, name, id, Direction::Forward, out);
        self.compare_rows(snapshot, name, id, Direction::Reverse, out);
        let mut absent = Vec::new();
        for (index, (key, value)) in self.rows.iter().enumerate() {
            let index = index as u64;
            let at = || format!("{name}, key {}", String::from_utf8_lossy(key));
            out.check(&snapshot.get(id, key), |found| found.as_ref() == Some(value), || at() + ": get");
            absent.clear();
            absent.extend_from_slice(key);
            absent.push(b'~');
            out.check(&snapshot.get(id, &absent), Option::is_none, || at() + ": get of none");
            out.check(&snapshot.rank(id, key), |found| *found == index, || at() + ": rank");
            let is_entry = |found: &Option<(Vec<u8>, Vec<u8>)>| {
                found.as_ref().is_some_and(|(found_key, found)| found_key == key && found == value)
            };
            out.check(&snapshot.nth(id, index), is_entry, || at() + ": nth");
            let from_key = KeyRange { from: key.clone(), to: None };
            let count = self.rows.len() as u64 - index;
            out.check(&snapshot.count(id, &from_key), |found| *found == count, || at() + ": count from");
        }
        let end = self.rows.len() as u64;
        out.check(&snapshot.nth(id, end), Option::is_none, || format!("{name}: nth of the end"));
        self.compare_reductions(snapshot, name, id, out);
    }

    fn compare_rows(
        &self,
        snapshot: &Snapshot,
        name: &str,
        id: TreeId,
        direction: Direction,
        out: &mut Comparison,
    ) {
        let mut wanted: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match direction {
            Direction::Forward => Box::new(self.rows.iter()),
            Direction::Reverse => Box::new(self.rows.iter().rev()),
        };
        let mut rows = match snapshot.rows(id, KeyRange::all(), direction) {
            Ok(rows) => rows,
            Err(error) => return out.errors.push(error),
        };
        loop {
            let next = wanted.next();
            let is_right = |row: Option<Row<'_>>| match (row, next) {
                (None, None) => Ok(true),
                (Some(row), Some((key, value))) => Ok(row.key() == key && *row.value()? == **value),
                _ => Ok(false),
            };
            let compared = rows.next().and_then(is_right);
            out.check(&compared, |is_right| *is_right, || format!("{name}: rows {direction:?}"));
            if compared.is_err() || next.is_none() {
                return;
            }
        }
    }

    /// Compares the reductions of all entries before each key, and of all from it on.
    fn compare_reductions(&self, snapshot: &Snapshot, name: &str, id: TreeId, out: &mut Comparison) {
        let value = |reduced: Result<Reduced>| reduced.map(|reduced| reduced.value);
        if self.reducer.is_none() {
            let refused = snapshot.reduce(id, &KeyRange::all());
            match refused.map_err(|error| error.code()) {
                Err(Code::InvalidArgument) => out.answer_count += 1,
                Err(_) => {}
                Ok(_) => out.wrong_answer(format!("{name}: reduced without a reducer")),
            }
            return;
        }
        let all = self.reduction(self.rows.values());
        let whole = value(snapshot.reduce(id, &KeyRange::all()));
        out.check(&whole, |found| *found == all, || format!("{name}: reduce"));
        let values: Vec<&Vec<u8>> = self.rows.values().collect();
        for (index, key) in self.rows.keys().enumerate() {
            let at = || format!("{name}, key {}: reduce", String::from_utf8_lossy(key));
            // Each cut is tested from one side, alternately: both sides use the same nodes.
            let (range, part) = if index.is_multiple_of(2) {
                (KeyRange { from: Vec::new(), to: Some(key.clone()) }, &values[..index])
            } else {
                (KeyRange { from: key.clone(), to: None }, &values[index..])
            };
            let wanted = self.reduction(part.iter().copied());
            out.check(&value(snapshot.reduce(id, &range)), |found| *found == wanted, at);
        }
    }
}

impl Comparison {
    fn check<T>(
        &mut self,
        found: &Result<T>,
        is_right: impl FnOnce(&T) -> bool,
        what: impl FnOnce() -> String,
    ) {
        self.answer_count += 1;
        match found {
            Ok(found) if is_right(found) => {}
            Ok(_) => self.wrong_answer(what()),
            Err(error) => self.errors.push(error.clone()),
        }
    }

    fn wrong_answer(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

/// The number that the built-in reducers read from a value.
#[must_use]
pub fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().expect("values of trees with a reducer have eight bytes"))
}

/// A seeded stream of numbers and values.
#[derive(Debug, Clone)]
pub struct Dice(Random);

impl Dice {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(Random::new(seed))
    }

    /// Sixty-four bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(bound)) >> 64).expect("the high half")
    }

    /// An index below `count`, which is at least 1.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a usize")
    }

    /// A value of `length` bytes, at least eight; the first eight are a number of either sign.
    pub fn value(&mut self, length: usize) -> Vec<u8> {
        let number = i64::try_from(self.below(2_000_001)).expect("small") - 1_000_000;
        let mut value = number.to_le_bytes().to_vec();
        while value.len() < length.max(8) {
            value.push((self.bits() & 0xff) as u8);
        }
        value
    }
}
