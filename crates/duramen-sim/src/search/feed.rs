//! The checks of a change feed: every commit once, in order, whole, and nothing that never happened.
//!
//! D1 and D2 are judged here for readers of the feed: its changes, applied one commit after the other,
//! produce every state of the history, up to the recovered one.

use std::sync::Arc;

use duramen_engine::{CommitSeq, Engine, FeedChange, FeedReader, FeedWhat};

use super::model::{Effect, State};

/// The state after each known commit.
type StateAt<'a> = dyn Fn(u64) -> Option<&'a State> + 'a;

/// Reads the feed after commit `base` and compares it with the states, up to commit `last`.
///
/// # Errors
/// What is wrong with it.
pub fn feed_equals<'a>(engine: &Engine, base: u64, at: &StateAt<'a>, last: u64) -> Result<(), String> {
    feed_tells(engine, base, at, (last, last)).map(drop)
}

/// As [`feed_equals`], for a feed that may end between two commits, as the newest is not durable yet.
///
/// Returns the newest commit that it returned.
///
/// # Errors
/// What is wrong with it.
pub fn feed_tells<'a>(
    engine: &Engine,
    base: u64,
    at: &StateAt<'a>,
    (floor, last): (u64, u64),
) -> Result<u64, String> {
    let failed = |what: duramen_engine::Error| format!("the feed: {what}");
    let mut reader: FeedReader = engine.feed(CommitSeq(base), Arc::new(|_: &str| true)).map_err(failed)?;
    let mut state = at(base).cloned().unwrap_or_default();
    let mut seq = base;
    while let Some(commit) = reader.next().map_err(failed)? {
        let next = commit.seq.0;
        if next <= seq || next > last {
            return Err(format!("the feed: commit {next} follows {seq}, and {last} is the last"));
        }
        // The commits in between changed nothing.
        same(&state, at, next - 1)?;
        let effects: Vec<Effect> = commit.changes.iter().map(effect_of).collect();
        state.apply(&effects);
        same(&state, at, next)?;
        seq = next;
    }
    same(&state, at, seq.max(floor))?;
    Ok(seq)
}

fn effect_of(change: &FeedChange) -> Effect {
    let (tree, name) = (change.tree, change.name.to_string());
    match &change.what {
        FeedWhat::Put { key, value } => {
            Effect::Put { tree, key: key.clone(), value: value.as_slice().into() }
        }
        FeedWhat::Deleted { key } => Effect::Delete { tree, key: key.clone() },
        FeedWhat::Lost { key } => {
            let value = b"lost".as_slice().into();
            Effect::Put { tree, key: key.clone(), value }
        }
        FeedWhat::Created => Effect::Create { name, id: tree, sums: false },
        FeedWhat::Dropped => Effect::Drop { name },
    }
}

/// Checks that a state made of changes equals the state after a commit.
fn same(found: &State, at: &StateAt<'_>, seq: u64) -> Result<(), String> {
    let wanted = at(seq).ok_or_else(|| format!("the feed: commit {seq} was never made"))?;
    let equal = found.trees.len() == wanted.trees.len()
        && found.trees.iter().zip(&wanted.trees).all(|((name, tree), (wanted_name, wanted))| {
            name == wanted_name && tree.id == wanted.id && tree.rows == wanted.rows
        });
    if equal { Ok(()) } else { Err(format!("the feed: its changes do not make the state of commit {seq}")) }
}
