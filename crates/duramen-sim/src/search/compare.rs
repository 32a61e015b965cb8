//! Compares a database with the model: every row, count, index and sum, and the engine's own check.
//!
//! Owns no state. Never writes to the database. Returns what differs, in words.

use std::fmt::Debug;

use duramen_engine::{Direction, Engine, KeyRange, Snapshot, TreeId};

use super::model::{RowsModel, State, TreeModel};
use super::random::Random;

/// Random ranges, indexes and ranks compared for each tree in addition to a full reading.
const QUESTIONS_PER_TREE: usize = 2;

/// What is wrong, in words.
pub type Verdict = Result<(), String>;

/// Compares all trees of a snapshot with a state.
///
/// # Errors
/// What differs.
pub fn snapshot_equals(snapshot: &Snapshot, state: &State, random: &mut Random) -> Verdict {
    let names = snapshot.trees().map_err(|e| format!("the names of the trees: {e}"))?;
    let wanted: Vec<(String, TreeId)> =
        state.trees.iter().map(|(name, tree)| (name.clone(), tree.id)).collect();
    same("the names of the trees", &names, &wanted)?;
    for (name, tree) in &state.trees {
        tree_equals(snapshot, tree, random).map_err(|what| format!("tree {name:?}: {what}"))?;
    }
    Ok(())
}

/// Runs the engine's own check and requires it to be clean, with every block accounted for.
///
/// # Errors
/// What the check found.
pub fn check_is_clean(engine: &Engine) -> Verdict {
    let report = engine.check().map_err(|e| format!("check: {e}"))?;
    if report.is_clean() && report.unreached.is_empty() {
        return Ok(());
    }
    Err(format!("check: problems {:?}, unreached {:?}", report.problems, report.unreached))
}

fn tree_equals(snapshot: &Snapshot, tree: &TreeModel, random: &mut Random) -> Verdict {
    let info = snapshot.tree_info(tree.id).map_err(|e| e.to_string())?;
    same("len", &info.len, &(tree.rows.len() as u64))?;
    same("has a reducer", &info.reducer.is_some(), &tree.sums)?;
    rows_equal(snapshot, tree, Direction::Forward)?;
    if random.chance(1, 4) {
        rows_equal(snapshot, tree, Direction::Reverse)?;
    }
    if tree.sums {
        sum_equals(snapshot, tree, &KeyRange::all())?;
    }
    for _ in 0..QUESTIONS_PER_TREE {
        question(snapshot, tree, random)?;
    }
    Ok(())
}

fn rows_equal(snapshot: &Snapshot, tree: &TreeModel, direction: Direction) -> Verdict {
    let mut rows = snapshot.rows(tree.id, KeyRange::all(), direction).map_err(|e| e.to_string())?;
    let mut forward = tree.rows.iter();
    loop {
        let wanted = if direction == Direction::Forward { forward.next() } else { forward.next_back() };
        let found = rows.next().map_err(|e| format!("rows {direction:?}: {e}"))?;
        match (found, wanted) {
            (None, None) => return Ok(()),
            (Some(row), Some((key, value))) => {
                same("a key", row.key(), key.as_slice())?;
                let found = row.value().map_err(|e| format!("the value of {}: {e}", text(key)))?;
                if found[..] != **value {
                    return Err(format!("another value of {}", text(key)));
                }
            }
            (Some(row), None) => return Err(format!("{} is there and should not be", text(row.key()))),
            (None, Some((key, _))) => return Err(format!("{} is not there", text(key))),
        }
    }
}

/// Compares one range, one index, one rank and one value.
fn question(snapshot: &Snapshot, tree: &TreeModel, random: &mut Random) -> Verdict {
    let (a, b) = (some_key(&tree.rows, random), some_key(&tree.rows, random));
    let (from, to) = if a <= b { (a, b) } else { (b, a) };
    let range = KeyRange::between(from.clone(), to.clone());
    let count = tree.rows.range(from.clone()..to).count() as u64;
    same("count", &snapshot.count(tree.id, &range).map_err(|e| e.to_string())?, &count)?;
    let rank = tree.rows.range(..from.clone()).count() as u64;
    same("rank", &snapshot.rank(tree.id, &from).map_err(|e| e.to_string())?, &rank)?;
    let index = random.below(tree.rows.len() + 2);
    let wanted = tree.rows.iter().nth(index).map(|(key, value)| (key.clone(), value.to_vec()));
    same("nth", &snapshot.nth(tree.id, index as u64).map_err(|e| e.to_string())?, &wanted)?;
    let value = tree.rows.get(&from).map(|value| value.to_vec());
    same("get", &snapshot.get(tree.id, &from).map_err(|e| e.to_string())?, &value)?;
    if tree.sums { sum_equals(snapshot, tree, &range) } else { Ok(()) }
}

/// A key of the tree, or one that is not in it.
fn some_key(rows: &RowsModel, random: &mut Random) -> Vec<u8> {
    let nth = random.below(rows.len() + 1);
    let mut key = rows.keys().nth(nth).cloned().unwrap_or_else(|| b"none".to_vec());
    if random.chance(1, 4) {
        key.push(0);
    }
    key
}

fn sum_equals(snapshot: &Snapshot, tree: &TreeModel, range: &KeyRange) -> Verdict {
    let reduced = snapshot.reduce(tree.id, range).map_err(|e| format!("reduce: {e}"))?;
    let found = reduced.value.map(|bytes| bytes.try_into().map(i128::from_le_bytes));
    let rows = || tree.rows.iter().filter(|(key, _)| range.contains(key));
    let wanted = rows().map(|(_, value)| i128::from(number_of(value))).reduce(|a, b| a + b);
    same("sum", &found, &wanted.map(Ok))?;
    same("count of the sum", &reduced.count, &(rows().count() as u64))
}

/// The number that the built-in sum reads from a value.
fn number_of(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().expect("values of trees that sum have at least eight bytes"))
}

fn same<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, wanted: &T) -> Verdict {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, want {wanted:?}")) }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
