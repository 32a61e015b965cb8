//! The consumer of a life: what it makes of its changes, and what it must have made of them.
//!
//! It stores a document for each change, in the transaction that moves its position. The documents thus show
//! which changes it was given, how often and in which order (D1, D2).

use duramen::tuple::Element;
use duramen::{AnyChange, Collection, Consumer, ConsumerState, Db, Error, Origin, Reads, Value};
use serde::{Deserialize, Serialize};

use super::judge::{Verdict, failed, same};
use super::model::Step;
use super::shop::ORDERS;

/// The consumer that works.
pub const MIRROR: &str = "mirror";

/// A consumer that never reads: everything is retained for it.
pub const AUDIT: &str = "audit";

/// A change that the consumer was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "seen")]
pub struct Seen {
    #[key]
    place: u64,
    seq: u64,
    what: String,
}

/// Handles the available changes, at most so many batches. Returns the number of changes.
///
/// # Errors
/// The database's error.
pub fn work(consumer: &Consumer, batch: usize, batches: usize) -> Result<usize, Error> {
    let mut consuming = consumer.read::<AnyChange>()?.batch(batch);
    let mut count = 0;
    for _ in 0..batches {
        let handled = consuming.step(|tx, changes| {
            let mut place = tx.collection::<Seen>().count()?;
            for change in changes {
                if let Some(what) = what_of(change)? {
                    tx.insert(&Seen { place, seq: change.seq.0, what })?;
                    place += 1;
                }
            }
            Ok(())
        })?;
        if handled == 0 {
            break;
        }
        count += handled;
    }
    Ok(count)
}

/// A change as text, as in `ExpectedChange`; `None` if it is of something else.
fn what_of(change: &AnyChange) -> Result<Option<String>, Error> {
    let Origin::Collection(name) = &change.origin else { return Ok(None) };
    if change.key().is_none() || ![ORDERS, "log"].contains(&name.as_str()) {
        return Ok(None);
    }
    let id = match &change.key_elements()?[..] {
        [Element::Int(id)] => *id,
        other => return Err(Error::invalid(format!("the key {other:?}"))),
    };
    let Some(document) = change.document()? else { return Ok(Some(format!("{name} {id} gone"))) };
    let field = |field: &str| document.get(field).cloned().unwrap_or_default();
    Ok(Some(match (field("owner"), field("cents"), field("note"), field("n")) {
        (Value::Text(owner), Value::Int(cents), Value::Text(note), _) => {
            format!("{name} {id} put {owner} {cents} {}", note.len())
        }
        (_, _, _, Value::Int(n)) => format!("{name} {id} put {n}"),
        _ => format!("{name} {id} put {document:?}"),
    }))
}

/// A consumer by its name; `None` only if it may not have been registered.
fn consumer(db: &Db, name: &str, is_registered: bool) -> Result<Option<ConsumerState>, String> {
    let consumers = db.consumers().map_err(failed("consumers"))?;
    let found = consumers.into_iter().find(|consumer| consumer.name == name);
    if found.is_none() && is_registered {
        return Err(format!("the consumer {name} was registered, and is not there"));
    }
    Ok(found)
}

/// Checks that the consumer has handled every change up to its position, each once and in order. It must
/// exist if both consumers were registered.
///
/// # Errors
/// What is wrong with it.
pub fn consumer_equals<'s>(db: &Db, is_registered: bool, line: impl Fn(u64) -> Vec<&'s Step>) -> Verdict {
    consumer(db, AUDIT, is_registered)?;
    let Some(mirror) = consumer(db, MIRROR, is_registered)? else { return Ok(()) };
    let seen = db.collection::<Seen>().to_vec().map_err(failed("what was seen"))?;
    let places: Vec<u64> = seen.iter().map(|seen| seen.place).collect();
    same("the places of what was seen", &places, &(0..seen.len() as u64).collect())?;
    let found: Vec<(u64, String)> = seen.into_iter().map(|seen| (seen.seq, seen.what)).collect();
    told("the consumer", &found, &line(mirror.position.0))
}

/// Checks that the feed returns the changes of the steps, from the oldest retained one to commit `newest`.
///
/// # Errors
/// What is wrong with it.
pub fn feed_equals(db: &Db, line: &[&Step], newest: u64) -> Verdict {
    let Some(audit) = consumer(db, AUDIT, true)? else { return Ok(()) };
    let mut found = Vec::new();
    for change in db.all_changes().since(audit.position) {
        let change = change.map_err(failed("the feed"))?;
        if let Some(what) = what_of(&change).map_err(failed("a change"))? {
            found.push((change.seq.0, what));
        }
    }
    found.retain(|(seq, _)| *seq <= newest);
    let line: Vec<&Step> = line.iter().filter(|step| step.from > audit.position.0).copied().collect();
    told("the feed", &found, &line)
}

fn told(reader: &str, found: &[(u64, String)], line: &[&Step]) -> Verdict {
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 > pair[1].0) {
        return Err(format!("{reader} was told of commit {} after {}", pair[1].0, pair[0].0));
    }
    let mut rest = found;
    for step in line.iter().filter(|step| !step.told.is_empty()) {
        let count = rest.iter().take_while(|(seq, _)| *seq <= step.to).count();
        let (own, later) = rest.split_at(count);
        let mut own = own.to_vec();
        own.sort();
        let wanted: Vec<(u64, String)> = step.told.iter().map(|told| (step.to, told.what.clone())).collect();
        same(&format!("what {reader} was told of commit {}", step.to), &own, &wanted)?;
        rest = later;
    }
    same(&format!("what {reader} was told of nothing"), rest, &[])
}
