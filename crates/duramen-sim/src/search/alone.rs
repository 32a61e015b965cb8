//! A transaction that runs alone: others commit before it until the engine runs it under the order lock.
//!
//! Owns how conflicts are forced. All other commits made meanwhile are in the history as usual.

use duramen_disk::memory::Blocker;
use duramen_engine::limits::CONFLICTS_MAX;
use duramen_engine::{Code, Durability, Engine, Error, KeyRange, Transaction, TreeId};

use super::model::State;
use super::random::Random;
use super::shapes::Shape;
use super::writer::{Draft, Filling, Writer, failed};

/// The tree of the key that every attempt reads.
const CONTESTED_TREE: &str = "plain";

/// The key that every attempt reads, and that other transactions change.
const CONTESTED_KEY: &[u8] = b"contested";

/// Commits a transaction of a shape that meets conflicts until the engine runs it alone.
///
/// The hook of the disk is set right before its commit.
///
/// # Errors
/// The engine's error, or that the transaction did not run alone, or did not read the newest state.
pub fn commit_alone(
    writer: &Writer,
    engine: &Engine,
    shape: Shape,
    level: Durability,
    random: &mut Random,
    hook: Option<Blocker>,
) -> Result<(), String> {
    let geometry = engine.durability_status().geometry;
    let mut attempts = 0;
    let outcome = engine.transact(level, |transaction| {
        attempts += 1;
        let is_alone = attempts > CONFLICTS_MAX;
        let state = writer.latest();
        if is_alone {
            writer.disk.annotate("alone");
            writer.disk.annotate("values");
        }
        let mut effects = Vec::new();
        let mut filling = Filling { transaction, geometry, effects: &mut effects };
        let filled = fill(&mut filling, shape, &state, random);
        if is_alone {
            writer.disk.annotate(format!("commit {}", shape.name()));
            writer.begin(effects);
            writer.disk.set_blocker(hook.clone());
            return filled.map_err(wrong);
        }
        filled.and_then(|()| contest(writer, engine, random)).map_err(wrong)
    });
    if attempts <= CONFLICTS_MAX {
        let error = outcome.map_or_else(|error| error.to_string(), |_| "it committed".to_owned());
        return Err(format!("attempt {attempts} of a transaction that met a conflict each time: {error}"));
    }
    writer.end(outcome.map(|(_, receipt)| receipt)).map(drop).map_err(|what| format!("alone: {what}"))
}

/// An error of the harness, as an engine error.
fn wrong(what: String) -> Error {
    Error::new(Code::InvalidArgument, what)
}

/// Reads what other transactions change, does what the shape does, and writes at least one row.
fn fill(filling: &mut Filling<'_>, shape: Shape, state: &State, random: &mut Random) -> Result<(), String> {
    let tree = state.trees.get(CONTESTED_TREE).ok_or("the stable trees are made first")?;
    let found = filling.transaction.get(tree.id, CONTESTED_KEY).map_err(failed("get"))?;
    let wanted = tree.rows.get(CONTESTED_KEY).map(|value| value.to_vec());
    if found != wanted {
        return Err(format!("it read {found:?}, and {wanted:?} was the newest"));
    }
    if random.chance(1, 2) {
        count(filling.transaction, tree.id, tree.rows.len())?;
    }
    shape.fill(filling, state, random).map_err(failed("fill"))?;
    filling.put(tree, b"alone".to_vec(), random.bits().to_le_bytes().to_vec(), false).map_err(failed("put"))
}

fn count(transaction: &mut Transaction, tree: TreeId, wanted: usize) -> Result<(), String> {
    let found = transaction.count(tree, &KeyRange::all()).map_err(failed("count"))?;
    if found == wanted as u64 { Ok(()) } else { Err(format!("it counted {found} rows, want {wanted}")) }
}

/// Changes in another transaction what the attempt has read.
fn contest(writer: &Writer, engine: &Engine, random: &mut Random) -> Result<(), String> {
    let state = writer.latest();
    let tree = state.trees.get(CONTESTED_TREE).ok_or("the stable trees are made first")?;
    let mut draft = Draft::begin(engine)?;
    let value = random.bits().to_le_bytes().to_vec();
    draft.filling().put(tree, CONTESTED_KEY.to_vec(), value, false).map_err(failed("put"))?;
    let level = *random.pick(&[Durability::Memory, Durability::Process, Durability::Disk]);
    writer.commit(draft, level).map(drop)
}
