//! Compares a database with the result of its commits: every document, view, key-value, blob and byte, and
//! the order.
//!
//! Owns no state. The database has a row for each commit of each writer; the plan computes their result. So
//! nothing else must be recorded: a missing row, an extra one, an older one, or a differing byte is found.
//! Writes nothing.

use std::collections::BTreeMap;
use std::io::Read;

use duramen::kv::Expiry;
use duramen::{Db, Direction, Document, Error, KeyRange, LocalReads, Span, Time, Value};

use crate::acknowledged::{Acknowledged, Counts};
use crate::opening::{
    self, COMMITS, COUNTERS, FILES, LOG, NEXT_TICKET, PARCELS, PLAIN, SESSIONS, TICKETS, row_key, scratch,
    temporary,
};
use crate::plan::{State, content, own_key};
use crate::releases::{Order, Release, answer};
use crate::row::Row;
use crate::views;
use crate::writer::millis;
use crate::wrong::{Outcome, Wrong, same};

/// A value that expires within this time may have been deleted, or not.
const CLOCK_MARGIN_MS: u64 = 2000;

/// The writers, and the result of their commits.
pub(crate) type States = BTreeMap<u32, State>;

/// Checks that the commits are a prefix of their order, with everything that had to survive.
pub(crate) fn order(db: &Db, states: &States, newest: u64, acknowledged: &mut Acknowledged) -> Outcome<()> {
    let all = acknowledged.commits.clone();
    acknowledged.found(newest)?;
    let mut seqs = BTreeMap::new();
    for ((writer, number), commit) in all {
        seqs.insert((writer, number), commit.seq);
        let is_there = states.get(&writer).is_some_and(|state| state.count > number);
        if is_there != (commit.seq <= newest) {
            return Err(format!(
                "commits up to the {newest}th are there, and commit {number} of writer {writer}, the {}th, is {}",
                commit.seq,
                if is_there { "there, too" } else { "not" }
            )
            .into());
        }
    }
    tickets(db, states, &seqs)
}

/// Checks that a backup holds what existed when it was begun.
pub(crate) fn at_least(states: &States, floor: &Counts) -> Outcome<()> {
    for (writer, count) in floor {
        let there = states.get(writer).map_or(0, |state| state.count);
        if there < *count {
            return Err(
                format!("{count} commits of writer {writer} were made before, {there} are there").into()
            );
        }
    }
    Ok(())
}

/// Compares everything that programs have stored. Returns the result of the commits.
pub(crate) fn contents(db: &Db) -> Outcome<States> {
    let (states, tickets_taken) = commits(db)?;
    same_tickets(db, &tickets_taken)?;
    let release = opening::release(db)?;
    documents(db, &states, release)?;
    parcels(db, &states)?;
    views::equal(db, release)?;
    for (writer, state) in &states {
        let name = temporary(*writer);
        numbers(db, &name, state.temporary.as_ref())?;
        let wanted = state.scratch.iter().map(|(key, n)| (*key, *n)).collect();
        same("a namespace that is emptied", &values::<i64>(db, &scratch(*writer))?, &wanted)?;
    }
    logged(db, &states)?;
    let counters = all_of(&states, |state| state.counters.clone());
    same("counters", &values::<i64>(db, COUNTERS)?, &counters.into_iter().collect())?;
    sessions(db, &states)?;
    bytes(db, &states)?;
    blobs(db, &states)?;
    Ok(states)
}

/// Runs both checks of the database itself.
pub(crate) fn checks_are_clean(db: &Db) -> Outcome<()> {
    let report = db.check_documents()?;
    if !report.is_clean() || report.dangling_count > 0 {
        return Err(Wrong::told(format!(
            "check_documents: {:?} {:?} {:?}",
            report.problems, report.unreadable, report.dangling
        )));
    }
    let report = db.check()?;
    if report.problems.is_empty() && report.unreached.is_empty() {
        return Ok(());
    }
    Err(Wrong::told(format!("check: problems {:?}, unreached {:?}", report.problems, report.unreached)))
}

/// The writer and commit that took each ticket.
pub(crate) type Tickets = BTreeMap<u64, (u32, u64)>;

/// The rows of all commits. Those of each writer have no gap.
pub(crate) fn commits(db: &Db) -> Outcome<(States, Tickets)> {
    let (mut states, mut tickets) = (States::new(), Tickets::new());
    let snapshot = db.snapshot()?;
    let Some(mut rows) = answer(snapshot.scan_bytes(COMMITS, KeyRange::all(), Direction::Forward))? else {
        return Ok((states, tickets));
    };
    let terms = opening::terms(db)?.ok_or("there are commits, and not what the life was made from")?;
    while let Some((key, bytes)) = rows.next()? {
        let (writer, number) = key.split_first_chunk::<4>().ok_or("a row of no commit")?;
        let writer = u32::from_be_bytes(*writer);
        let number = number.try_into().map(u64::from_be_bytes).map_err(|_| "a row of no commit")?;
        let state = states.entry(writer).or_insert_with(|| State::new(terms, writer));
        if number != state.count {
            return Err(format!("writer {writer}: commit {number} follows {} others", state.count).into());
        }
        let row = Row::decode(bytes, writer, number).ok_or_else(|| {
            format!("the row of commit {number} of writer {writer} is not what was written")
        })?;
        let plan = state.plan();
        if plan.takes_ticket != row.ticket.is_some() {
            return Err(format!("commit {number} of writer {writer}: its ticket is {:?}", row.ticket).into());
        }
        if let Some(other) = row.ticket.and_then(|ticket| tickets.insert(ticket, (writer, number))) {
            return Err(format!("commit {number} of writer {writer} and {other:?} have one ticket").into());
        }
        state.apply(&plan, &row);
    }
    Ok((states, tickets))
}

/// Checks that no ticket below the next is missing, and none is beyond: the commits of all writers are a
/// prefix of one order.
fn same_tickets(db: &Db, taken: &Tickets) -> Outcome<()> {
    if let Some((at, gap)) = (0..).zip(taken.keys()).find(|(at, ticket)| at != *ticket) {
        return Err(format!("ticket {at} is missing, ticket {gap} exists").into());
    }
    let snapshot = db.snapshot()?;
    let mut found = Tickets::new();
    let mut next = 0;
    if let Some(mut rows) = answer(snapshot.scan_bytes(TICKETS, KeyRange::all(), Direction::Forward))? {
        while let Some((key, value)) = rows.next()? {
            if key == NEXT_TICKET {
                next = value.try_into().map(u64::from_be_bytes).map_err(|_| "a ticket that nobody wrote")?;
                continue;
            }
            let ticket = key.try_into().map(u64::from_be_bytes).map_err(|_| "a ticket that nobody wrote")?;
            let (writer, number) = value.split_first_chunk::<4>().ok_or("a ticket with a short value")?;
            let number =
                number.try_into().map(u64::from_be_bytes).map_err(|_| "a ticket with a short value")?;
            found.insert(ticket, (u32::from_be_bytes(*writer), number));
        }
    }
    same("who has which ticket", &found, taken)?;
    same("the next ticket", &next, &(taken.len() as u64))
}

/// Checks that tickets follow the order of commits: of one writer, and of all with an acknowledged sequence.
fn tickets(db: &Db, states: &States, seqs: &BTreeMap<(u32, u64), u64>) -> Outcome<()> {
    let snapshot = db.snapshot()?;
    let mut in_order = BTreeMap::new();
    for (writer, state) in states {
        let mut last = None;
        for number in 0..state.count {
            let Some(bytes) = snapshot.get_bytes(COMMITS, &row_key(*writer, number))? else { continue };
            let ticket = Row::decode(&bytes, *writer, number).and_then(|row| row.ticket);
            if ticket.is_some() && ticket <= last {
                return Err(
                    format!("writer {writer}: commit {number} has ticket {ticket:?} after {last:?}").into()
                );
            }
            last = ticket.or(last);
            if let (Some(ticket), Some(seq)) = (ticket, seqs.get(&(*writer, number))) {
                in_order.insert(*seq, ticket);
            }
        }
    }
    match in_order.iter().zip(in_order.iter().skip(1)).find(|((_, a), (_, b))| a >= b) {
        Some((before, after)) => Err(format!(
            "the {}th commit has ticket {}, and the {}th has {}",
            before.0, before.1, after.0, after.1
        )
        .into()),
        None => Ok(()),
    }
}

/// One kind of data of all writers, by the keys in the database.
fn all_of<T>(states: &States, of: impl Fn(&State) -> BTreeMap<u64, T>) -> BTreeMap<u64, T> {
    let own = |(writer, state): (&u32, &State)| {
        let writer = *writer;
        of(state).into_iter().map(move |(key, value)| (own_key(writer, key), value))
    };
    states.iter().flat_map(own).collect()
}

fn documents(db: &Db, states: &States, release: Release) -> Outcome<()> {
    let seen = |(order, by): &(Order, Release)| {
        if *by < Release::Migrated && release == Release::Migrated { order.migrated() } else { order.clone() }
    };
    let wanted: Vec<Order> = states.values().flat_map(|state| state.orders.values().map(seen)).collect();
    let found = release.orders(db)?;
    if found == wanted {
        return Ok(());
    }
    let ids = |orders: &[Order]| orders.iter().map(|order| order.id).collect::<Vec<_>>();
    same("the keys of the documents", &ids(&found), &ids(&wanted))?;
    found.iter().zip(&wanted).try_for_each(|(found, wanted)| same("a document", found, wanted))
}

/// Compares the parcels: those of deleted orders are gone with them, all others are there.
fn parcels(db: &Db, states: &States) -> Outcome<()> {
    let wanted: Vec<[i128; 3]> = all_of(states, |state| state.parcels.clone())
        .into_iter()
        .map(|(id, (order, number))| [id, order, number].map(i128::from))
        .collect();
    let collection = db.documents(PARCELS);
    let Some(found) = answer(collection.scan(Span::all()))? else {
        return same("the parcels, of which there is no collection", &[][..], &wanted[..]);
    };
    let fields = |document: Document| match ["id", "order", "number"].map(|name| document.get(name)) {
        [Some(Value::Int(id)), Some(Value::Int(order)), Some(Value::Int(number))] => {
            Ok([*id, *order, *number])
        }
        _ => Err(Wrong::from(format!("a parcel is {document:?}"))),
    };
    let found: Vec<[i128; 3]> =
        found.map(|document| document.map_err(Wrong::from).and_then(fields)).collect::<Outcome<_>>()?;
    same("the parcels", &found, &wanted)?;
    let sum = collection.reduce(Span::all())?;
    same("the count of the parcels", &sum.count(), &(wanted.len() as u64))?;
    same(
        "the sum of the parcels",
        &sum.sum("number"),
        &Some(wanted.iter().map(|[.., number]| number).sum()),
    )?;
    let are_checked = collection.references()?.iter().map(|state| state.is_checked()).collect::<Vec<_>>();
    same("which references of the parcels are checked", &are_checked[..], &[true])
}

/// Compares untyped documents and their sums.
fn numbers(db: &Db, name: &str, wanted: Option<&BTreeMap<u64, i64>>) -> Outcome<()> {
    let collection = db.documents(name);
    let Some(found) = answer(collection.scan(Span::all()))? else {
        return same(&format!("the collection {name} is there"), &false, &wanted.is_some());
    };
    let Some(wanted) = wanted else {
        return Err(format!("the collection {name} was dropped, and is there").into());
    };
    let pair = |document: Document| match (document.get("id"), document.get("n")) {
        (Some(Value::Int(id)), Some(Value::Int(n))) => Ok((*id, *n)),
        _ => Err(Wrong::from(format!("{name}: {document:?}"))),
    };
    let found: Vec<(i128, i128)> =
        found.map(|document| document.map_err(Wrong::from).and_then(pair)).collect::<Outcome<_>>()?;
    let all: Vec<(i128, i128)> = wanted.iter().map(|(id, n)| (i128::from(*id), i128::from(*n))).collect();
    same(&format!("the documents of {name}"), &found, &all)?;
    let sum = collection.reduce(Span::all())?;
    same(&format!("count of {name}"), &sum.count(), &(wanted.len() as u64))?;
    let wanted = wanted.values().map(|n| i128::from(*n)).sum::<i128>();
    same(&format!("sum of {name}"), &sum.sum("n"), &Some(wanted))
}

fn logged(db: &Db, states: &States) -> Outcome<()> {
    let wanted = all_of(states, |state| state.log.clone());
    if wanted.is_empty() && answer(db.documents(LOG).scan(Span::all()))?.is_none() {
        return Ok(());
    }
    numbers(db, LOG, Some(&wanted))
}

/// The unexpired values of a namespace.
fn values<T: serde::de::DeserializeOwned>(db: &Db, namespace: &str) -> Outcome<Vec<(u64, T)>> {
    let Some(entries) = answer(db.kv(namespace).scan::<u64, T>(Span::all()))? else { return Ok(Vec::new()) };
    Ok(entries.collect::<Result<_, Error>>()?)
}

/// Checks that each value is as stored, with its expiry: an expired one is absent, any other exists.
fn sessions(db: &Db, states: &States) -> Outcome<()> {
    let wanted = all_of(states, |state| state.sessions.clone());
    let before = now_ms(db)?;
    let found = values::<u64>(db, SESSIONS)?;
    for (key, number) in &found {
        let expiry = db.kv(SESSIONS).expiry(*key)?;
        let expires = match expiry {
            Some(Expiry::At(at)) => Some(millis(at)),
            Some(Expiry::Never) => None,
            // It has expired since.
            None => continue,
        };
        same(&format!("the session {key}"), &Some(&(*number, expires)), &wanted.get(key))?;
        if expires.is_some_and(|at| at + CLOCK_MARGIN_MS < before) {
            return Err(
                format!("the session {key} has expired at {expires:?}, and is shown at {before}").into()
            );
        }
    }
    let is_there = |key: &u64| found.iter().any(|(found, _)| found == key);
    let lives = |expires: &Option<u64>| expires.is_none_or(|at| at > before + CLOCK_MARGIN_MS);
    match wanted.iter().find(|(key, (_, expires))| lives(expires) && !is_there(key)) {
        Some((key, session)) => Err(format!("the session {key} is not there: {session:?}").into()),
        None => Ok(()),
    }
}

fn now_ms(db: &Db) -> Outcome<u64> {
    let now: Time = db.snapshot()?.time();
    Ok(millis(now))
}

fn bytes(db: &Db, states: &States) -> Outcome<()> {
    let mut wanted = all_of(states, |state| state.bytes.clone()).into_iter();
    let snapshot = db.snapshot()?;
    if let Some(mut rows) = answer(snapshot.scan_bytes(PLAIN, KeyRange::all(), Direction::Forward))? {
        while let Some((key, found)) = rows.next()? {
            let key = key.try_into().map(u64::from_be_bytes).map_err(|_| "bytes that nobody wrote")?;
            let next = wanted.next();
            let Some((_, (number, length))) = next.filter(|(wanted, _)| *wanted == key) else {
                return Err(format!("the bytes {key} are there, and {next:?} was to be").into());
            };
            let writer = u32::try_from(key / 1000).unwrap_or(u32::MAX);
            if found != content(writer, number, 1 + key % 1000, length) {
                return Err(
                    format!("the bytes {key} are not the {length} that commit {number} stored").into()
                );
            }
        }
    }
    match wanted.next() {
        Some(missing) => Err(format!("the bytes {missing:?} are not there").into()),
        None => Ok(()),
    }
}

/// Compares every blob, byte for byte and by its hash.
fn blobs(db: &Db, states: &States) -> Outcome<()> {
    let wanted = all_of(states, |state| state.blobs.clone());
    let blobs = db.blobs(FILES);
    let mut keys = Vec::new();
    if let Some(entries) = answer(blobs.scan::<u64>(Span::all()))? {
        for entry in entries {
            let (key, info) = entry?;
            let Some((number, length)) = wanted.get(&key).copied() else {
                return Err(format!("blob {key} is there, with {} bytes, and should not be", info.len).into());
            };
            let mut reader =
                blobs.get(key)?.ok_or_else(|| format!("blob {key} is listed and is not there"))?;
            reader.verify().map_err(|error| Wrong::from(error).while_doing(&format!("blob {key}")))?;
            let mut found = Vec::new();
            let read = reader.read_to_end(&mut found);
            read.map_err(|error| Wrong::told(format!("blob {key}: {error}")))?;
            let writer = u32::try_from(key / 1000).unwrap_or(u32::MAX);
            if found != content(writer, number, 0, length) {
                return Err(
                    format!("blob {key} is not the {length} bytes that commit {number} stored").into()
                );
            }
            keys.push(key);
        }
    }
    same("keys of blobs", &keys, &wanted.keys().copied().collect())
}
