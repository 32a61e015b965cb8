//! A consumer of the change feed: it stores a row for each change of an order or a parcel, in the transaction
//! of its position. The keys of the two differ.
//!
//! Owns the check of these rows: of each writer the planned changes, each once and in order, in whole
//! commits, up to its position and no further (D1, D2). Changes by a migration are in the feed too, and
//! belong to no writer.

use std::collections::BTreeMap;

use duramen::tuple::Element;
use duramen::{AnyChange, Consumer, Db, Direction, Error, KeyRange, LocalReads, Origin, Value};

use crate::acknowledged::Acknowledged;
use crate::opening::PARCELS;
use crate::plan::State;
use crate::releases::{ORDERS, answer};
use crate::wrong::Outcome;

pub(crate) const NAME: &str = "mirror";

const SEEN: &str = "seen";
const SEEN_COUNT: &[u8] = b"count";

const DELETED: u8 = 0;
const PUT: u8 = 1;
const CONVERTED: u8 = 2;

/// Registers the consumer, unless it is registered; from the oldest change that is kept.
pub(crate) fn register(db: &Db) -> Result<Consumer, Error> {
    db.consumer(NAME).from_oldest().register()
}

/// Handles at most `batches` batches. Returns the number of changes.
pub(crate) fn work(db: &Db, batch: usize, batches: usize) -> Result<usize, Error> {
    let consumer = register(db)?;
    let mut consuming = consumer.read::<AnyChange>()?.batch(batch);
    let mut count = 0;
    for _ in 0..batches {
        let handled = consuming.step(|tx, changes| {
            let stored = answer(tx.get_bytes(SEEN, SEEN_COUNT))?.flatten();
            let first = stored.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
            let mut place = first;
            for change in changes {
                if let Some(row) = row_of(change)? {
                    tx.put_bytes(SEEN, &place.to_be_bytes(), &row)?;
                    place += 1;
                }
            }
            // Its own writes are in the feed too. A batch without documents stores nothing, so the work ends.
            if place == first { Ok(()) } else { tx.put_bytes(SEEN, SEEN_COUNT, &place.to_be_bytes()) }
        })?;
        count += handled;
        if handled == 0 {
            break;
        }
    }
    Ok(count)
}

/// Commit, document, kind of change, and the commit of its writer that had stored the document.
fn row_of(change: &AnyChange) -> Result<Option<Vec<u8>>, Error> {
    let is_known = matches!(&change.origin, Origin::Collection(name) if [ORDERS, PARCELS].contains(&&**name));
    if !is_known || change.key().is_none() {
        return Ok(None);
    }
    let id = match &change.key_elements()?[..] {
        [Element::Int(id)] => u64::try_from(*id).map_err(|_| Error::invalid("a key below zero"))?,
        other => return Err(Error::invalid(format!("the key {other:?}"))),
    };
    let (kind, number) = match change.document()? {
        None => (DELETED, 0),
        Some(document) => match (document.get("number"), document.get("converted")) {
            (Some(Value::Int(number)), converted @ (None | Some(Value::Bool(_)))) => {
                let kind = if converted == Some(&Value::Bool(true)) { CONVERTED } else { PUT };
                (kind, u64::try_from(*number).unwrap_or(u64::MAX))
            }
            other => return Err(Error::invalid(format!("the document {id} has {other:?}"))),
        },
    };
    let row = [&change.seq.0.to_be_bytes()[..], &id.to_be_bytes(), &[kind], &number.to_be_bytes()];
    Ok(Some(row.concat()))
}

/// The consumer's record of one change.
#[derive(Debug, Clone, Copy)]
struct Seen {
    seq: u64,
    id: u64,
    kind: u8,
    number: u64,
}

fn seen(db: &Db) -> Outcome<Vec<Seen>> {
    let snapshot = db.snapshot()?;
    let Some(mut rows) = answer(snapshot.scan_bytes(SEEN, KeyRange::all(), Direction::Forward))? else {
        return Ok(Vec::new());
    };
    let (mut found, mut count) = (Vec::new(), 0);
    while let Some((key, row)) = rows.next()? {
        if key == SEEN_COUNT {
            count = row.try_into().map(u64::from_be_bytes).map_err(|_| "a count that nobody wrote")?;
            continue;
        }
        if key != (found.len() as u64).to_be_bytes() || row.len() != 25 {
            return Err(format!("row {key:?} of the consumer follows its {}th", found.len()).into());
        }
        let word = |at: usize| row[at..].first_chunk::<8>().map_or(0, |word| u64::from_be_bytes(*word));
        found.push(Seen { seq: word(0), id: word(8), kind: row[16], number: word(17) });
    }
    if count != found.len() as u64 {
        return Err(format!("the consumer has made {} rows and counts {count}", found.len()).into());
    }
    Ok(found)
}

/// Compares the consumer's rows with the planned changes.
pub(crate) fn equals(db: &Db, states: &BTreeMap<u32, State>, acknowledged: &Acknowledged) -> Outcome<()> {
    let consumers = db.consumers()?;
    let all = seen(db)?;
    let Some(consumer) = consumers.into_iter().find(|consumer| consumer.name == NAME) else {
        return if all.is_empty() { Ok(()) } else { Err("the consumer has worked, and is not there".into()) };
    };
    let position = consumer.position.0;
    if let Some(pair) = all.windows(2).find(|pair| pair[0].seq > pair[1].seq) {
        return Err(format!("the consumer was told of commit {} after {}", pair[1].seq, pair[0].seq).into());
    }
    if let Some(last) = all.last().filter(|last| last.seq > position) {
        return Err(format!("the consumer stands at {position}, and was told of {}", last.seq).into());
    }
    let mut by_writer: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for seen in all.into_iter().filter(|seen| seen.kind != CONVERTED) {
        let writer = u32::try_from(seen.id / 1000).map_err(|_| "a document of no writer")?;
        by_writer.entry(writer).or_default().push(seen);
    }
    for (writer, seen) in &by_writer {
        let Some(state) = states.get(writer) else {
            return Err(format!("the consumer was told of writer {writer}, who has no commit").into());
        };
        told(*writer, seen, state)?;
    }
    for ((writer, number), commit) in &acknowledged.commits {
        let told = states.get(writer).and_then(|state| state.told.get(usize::try_from(*number).ok()?));
        if told.is_none_or(Vec::is_empty) {
            continue;
        }
        let rows = by_writer.get(writer).map(Vec::as_slice).unwrap_or_default();
        let has_seen = rows.iter().any(|seen| seen.seq == commit.seq);
        if has_seen != (commit.seq <= position) {
            return Err(format!(
                "the consumer stands at {position}, and was {}told of commit {}: commit {number} of writer {writer}",
                if has_seen { "" } else { "not " },
                commit.seq
            )
            .into());
        }
    }
    Ok(())
}

/// For one writer: checks that these are the changes of its first commits, whole.
fn told(writer: u32, seen: &[Seen], state: &State) -> Outcome<()> {
    let mut rest = seen;
    for (number, wanted) in state.told.iter().enumerate().filter(|(_, told)| !told.is_empty()) {
        let Some(first) = rest.first() else { return Ok(()) };
        let count = rest.iter().take_while(|seen| seen.seq == first.seq).count();
        let (own, later) = rest.split_at(count);
        let mut found: Vec<(u64, bool)> = own.iter().map(|seen| (seen.id, seen.kind == PUT)).collect();
        found.sort_unstable();
        let is_of_it = own.iter().all(|seen| seen.kind == DELETED || seen.number == number as u64);
        if found != *wanted || !is_of_it {
            return Err(format!(
                "of commit {number} of writer {writer} the consumer was told {own:?}, and not {wanted:?}"
            )
            .into());
        }
        rest = later;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(format!("of writer {writer} the consumer was told {rest:?}, which no commit contains").into())
    }
}
