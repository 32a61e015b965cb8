//! Clients: registers, lists, requests that are asked again, and linearizable reads through any node.
//!
//! Each transaction also writes the row of its request. A client that does not know an outcome asks again
//! with the same request, and is told it from that row, as a server's clients are.

use std::sync::Arc;
use std::time::Duration;

use duramen_engine::{Code, CommitSeq, Durability, Fate, Receipt, Role, Transaction, TreeId};
use duramen_repl::simulation::{Instant, SimInstant};

use super::Met;
use super::history::{Attempt, Outcome, Read, Values};
use super::machine::{REQUESTS, SimNode, VALUES, id_of};
use super::world::{MACHINES, Shared};
use crate::search::random::Random;

/// A client gives up a request after so long.
const PATIENCE: Duration = Duration::from_secs(4);
/// A node has so long to tell what became of a try.
const DECISION: Duration = Duration::from_millis(1500);

const REGISTERS: usize = 4;
const LISTS: usize = 3;

/// What a transaction does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Writes a register, without a read.
    Put(usize),
    /// Reads a register, and writes what follows.
    Next(usize),
    /// Appends to a list, and reads another one.
    Append(usize, usize),
    /// Deletes a register.
    Delete(usize),
}

/// What became of a try.
enum Tried {
    Acknowledged(u64),
    /// This node takes no writes now.
    NotHere,
    /// It never happens: it can be tried again.
    Never,
    Unknown,
}

/// Asks until the run ends.
pub(super) async fn lives(world: Shared, until: SimInstant) {
    let mut node = world.lock().random.below(MACHINES);
    while SimInstant::now() < until {
        world.rest(500, 60_000).await;
        if world.lock().random.chance(1, 3) {
            reads_some(&world).await;
            continue;
        }
        let kind = {
            let random = &mut world.lock().random;
            match random.below(7) {
                0 | 1 => Kind::Put(random.below(REGISTERS)),
                2 => Kind::Delete(random.below(REGISTERS)),
                3 | 4 => Kind::Next(random.below(REGISTERS)),
                _ => Kind::Append(random.below(LISTS), random.below(LISTS)),
            }
        };
        writes(&world, kind, &mut node).await;
    }
}

/// Asks one request until its outcome is known, or patience ends. Returns whether it is.
async fn writes(world: &Shared, kind: Kind, node: &mut usize) -> bool {
    let request = world.lock().history.asks();
    let until = SimInstant::now() + PATIENCE;
    let mut number = 0;
    while SimInstant::now() < until {
        number += 1;
        world.rest(50, 3_000).await;
        match tries(world, *node, kind, request, number).await {
            Tried::Acknowledged(seq) => {
                let mut world = world.lock();
                world.history.acknowledges(request, seq);
                world.meets(Met::Acknowledged, &format!("request {request} is commit {seq}"));
                return true;
            }
            Tried::Never => {}
            Tried::NotHere => {
                let mut world = world.lock();
                // Chance may leave one out for long.
                *node = if world.is_healed { (*node + 1) % MACHINES } else { world.random.below(MACHINES) };
            }
            Tried::Unknown => {
                let mut world = world.lock();
                world.meets(Met::Unknown, &format!("request {request}: outcome unknown"));
                if world.random.chance(1, 4) && !world.is_healed {
                    return false;
                }
                *node = world.random.below(MACHINES);
            }
        }
    }
    false
}

/// Once everything is healed, a write is acknowledged, and each node reads it.
///
/// # Errors
/// What does not go on.
pub(super) async fn goes_on(world: &Shared) -> Result<(), String> {
    let mut node = 0;
    if !writes(world, Kind::Next(0), &mut node).await {
        return Err(format!("no write is acknowledged within {PATIENCE:?}, and everything is healed"));
    }
    let nodes: Vec<_> = (0..MACHINES).filter_map(|machine| node_of(world, machine)).collect();
    for (node, _) in nodes {
        let (floor, until) = (world.lock().history.acknowledged, SimInstant::now() + PATIENCE);
        let caught_up = loop {
            // An election may be under way.
            match node.catch_up(DECISION).await {
                Ok(caught_up) => break caught_up,
                Err(error) if SimInstant::now() >= until => return Err(error.to_string()),
                Err(_) => world.rest(1_000, 50_000).await,
            }
        };
        if caught_up.0 < floor {
            return Err(format!("a node has caught up to {caught_up}, and {floor} is acknowledged"));
        }
    }
    Ok(())
}

fn node_of(world: &Shared, machine: usize) -> Option<(Arc<SimNode>, u64)> {
    let world = world.lock();
    let machine = &world.machines[machine];
    machine.node.clone().filter(|_| machine.is_awake()).map(|node| (node, machine.incarnation))
}

async fn tries(world: &Shared, machine: usize, kind: Kind, request: u64, number: u64) -> Tried {
    let Some((node, incarnation)) = node_of(world, machine) else { return Tried::NotHere };
    let (mut reads, mut writes) = (Values::new(), Values::new());
    let begun = begins(&node, kind, request, number, &mut reads, &mut writes);
    let (tx, told) = match begun {
        Ok(begun) => begun,
        // Nothing was ordered.
        Err(_) => return Tried::NotHere,
    };
    world.lock().history.begun.push((tx.base_seq().0, reads.clone()));
    if let Some(row) = told {
        return tells_again(world, &node, request, (&row, tx.base_seq().0)).await;
    }
    // Others commit meanwhile, and the leadership may go and come back.
    if world.lock().random.chance(1, 4) {
        let to_us = [2_000, 30_000, 900_000][world.lock().random.below(3)];
        world.rest(100, to_us).await;
    }
    if !is_open(world, machine, incarnation, &node).await {
        return Tried::NotHere;
    }
    let base = tx.base_seq().0;
    let receipt = match tx.commit_and_wait_later(Durability::Disk) {
        Ok(receipt) => receipt,
        Err(error) if error.is_retryable() => {
            world.lock().meets(Met::Conflict, "a conflict");
            return Tried::Never;
        }
        Err(error) if error.code() == Code::DiskFull => {
            world.lock().meets(Met::RefusedForRoom, &format!("request {request} has no room"));
            return Tried::NotHere;
        }
        Err(_) => return Tried::NotHere,
    };
    let attempt =
        Attempt { request, number, seq: receipt.seq().0, base, reads, writes, outcome: Outcome::Unknown };
    let index = {
        let mut world = world.lock();
        world.history.attempts.push(attempt);
        let index = world.history.attempts.len() - 1;
        world.machines[machine].receipts.push((index, receipt.clone()));
        index
    };
    let outcome = waits(world, machine, incarnation, &node, &receipt).await;
    // The answer may be lost on its way.
    let is_lost = world.lock().random.chance(1, 25);
    let outcome = if is_lost { Outcome::Unknown } else { outcome };
    let mut world = world.lock();
    world.history.attempts[index].outcome = outcome;
    match outcome {
        Outcome::Happened => Tried::Acknowledged(receipt.seq().0),
        Outcome::Never => {
            world.meets(Met::Never, &format!("request {request}, try {number}: never"));
            Tried::Never
        }
        Outcome::Unknown => Tried::Unknown,
    }
}

/// Waits while a node leads and its order is closed. Returns `false` if it does not lead.
///
/// A call would wait, and nothing may wait in one thread.
async fn is_open(world: &Shared, machine: usize, incarnation: u64, node: &SimNode) -> bool {
    loop {
        {
            let now = world.lock();
            if now.machines[machine].incarnation != incarnation || !now.machines[machine].is_awake() {
                return false;
            }
        }
        if node.replica().is_open().unwrap_or(false) {
            return true;
        }
        if !matches!(node.replica().role(), Ok(Role::Leads { .. } | Role::Waits)) {
            return false;
        }
        world.rest(500, 4_000).await;
    }
}

/// A transaction that carries out a request, and the request's row if there is one.
fn begins(
    node: &SimNode,
    kind: Kind,
    request: u64,
    number: u64,
    reads: &mut Values,
    writes: &mut Values,
) -> duramen_engine::Result<(Transaction, Option<Vec<u8>>)> {
    let mut tx = node.engine().begin()?;
    let (values, requests) = (tree(&mut tx, VALUES)?, tree(&mut tx, REQUESTS)?);
    let told = tx.get(requests, &request.to_be_bytes())?;
    if told.is_none() {
        change(&mut tx, values, kind, request, reads, writes)?;
        tx.put(requests, &request.to_be_bytes(), &number.to_be_bytes())?;
        if matches!(kind, Kind::Delete(_)) {
            tx.counts_as_deletes();
        }
    }
    Ok((tx, told))
}

/// Waits until the node knows what became of a commit, or for so long.
async fn waits(
    world: &Shared,
    machine: usize,
    incarnation: u64,
    node: &SimNode,
    receipt: &Receipt,
) -> Outcome {
    let until = SimInstant::now() + DECISION;
    loop {
        world.rest(300, 3_000).await;
        {
            let now = world.lock();
            if now.machines[machine].incarnation != incarnation {
                return Outcome::Unknown;
            }
            if !now.machines[machine].is_awake() {
                continue;
            }
        }
        match node.replica().fate(receipt) {
            Ok(Fate::Happened) => return Outcome::Happened,
            Ok(Fate::Never(_)) => return Outcome::Never,
            Ok(Fate::Open) if SimInstant::now() < until => {}
            Ok(Fate::Open) | Err(_) => return Outcome::Unknown,
        }
    }
}

/// The row of a request is there: which commit wrote it, an earlier try knows.
async fn tells_again(world: &Shared, node: &SimNode, request: u64, (row, base): (&[u8], u64)) -> Tried {
    // What was read is told once a majority confirms that this node still leads.
    if node.catch_up(DECISION).await.is_err() {
        return Tried::Unknown;
    }
    let number = u64::from_be_bytes(row.try_into().expect("eight bytes"));
    let mut world = world.lock();
    let tried = |attempt: &&Attempt| attempt.request == request && attempt.number == number;
    let Some(seq) = world.history.attempts.iter().find(tried).map(|attempt| attempt.seq) else {
        world.fail(format!("request {request} is told that its try {number} happened, which never was"));
        return Tried::Unknown;
    };
    if base < seq {
        world.fail(format!("request {request} reads its row at commit {base}, which commit {seq} wrote"));
    }
    world.meets(Met::ToldAgain, &format!("request {request} is told commit {seq}"));
    Tried::Acknowledged(seq)
}

fn tree(tx: &mut Transaction, name: &str) -> duramen_engine::Result<TreeId> {
    let missing = || panic!("tree {name} is not there");
    Ok(tx.tree(name)?.unwrap_or_else(missing))
}

fn change(
    tx: &mut Transaction,
    tree: TreeId,
    kind: Kind,
    request: u64,
    reads: &mut Values,
    writes: &mut Values,
) -> duramen_engine::Result<()> {
    let mut read = |tx: &mut Transaction, key: &[u8]| {
        let value = tx.get(tree, key)?;
        reads.insert(key.to_vec(), value.clone());
        Ok::<_, duramen_engine::Error>(value)
    };
    let (key, value) = match kind {
        Kind::Put(register) => (register_key(register), request.to_be_bytes().to_vec()),
        Kind::Next(register) => {
            let key = register_key(register);
            let before = read(tx, &key)?.unwrap_or_default();
            // It depends on what was read.
            (key, [&request.to_be_bytes()[..], &before[..before.len().min(8)]].concat())
        }
        Kind::Append(list, other) => {
            let key = list_key(list);
            let mut value = read(tx, &key)?.unwrap_or_default();
            read(tx, &list_key(other))?;
            value.extend_from_slice(&request.to_be_bytes());
            (key, value)
        }
        Kind::Delete(register) => {
            let key = register_key(register);
            tx.delete(tree, &key)?;
            writes.insert(key, None);
            return Ok(());
        }
    };
    tx.put(tree, &key, &value)?;
    writes.insert(key, Some(value));
    Ok(())
}

fn register_key(register: usize) -> Vec<u8> {
    format!("register {register}").into_bytes()
}

fn list_key(list: usize) -> Vec<u8> {
    format!("list {list}").into_bytes()
}

/// All keys that clients use.
pub(super) fn keys() -> Vec<Vec<u8>> {
    (0..REGISTERS).map(register_key).chain((0..LISTS).map(list_key)).collect()
}

/// What a read sees.
#[derive(Debug, Clone, Copy)]
enum Sees {
    /// What was acknowledged before.
    Newest,
    /// What was acknowledged so long before.
    OfAge(Duration),
    /// What once was.
    Any,
}

/// Reads through a node: a state of some age several times, as soon as what was asked for the first is known.
async fn reads_some(world: &Shared) {
    let (machine, sees, times) = {
        let random: &mut Random = &mut world.lock().random;
        let ages_ms = [0, 10, 60, 300, 1_000, 4_000];
        let (sees, times) = match random.below(8) {
            0 => (Sees::Any, 1),
            1..=3 => {
                let age = Duration::from_millis(ages_ms[random.below(ages_ms.len())]);
                (Sees::OfAge(age), 1 + random.below(6))
            }
            _ => (Sees::Newest, 1),
        };
        (random.below(MACHINES), sees, times)
    };
    for time in 0..times {
        if time > 0 {
            world.rest(100, 8_000).await;
        }
        reads(world, machine, sees).await;
    }
}

/// Reads everything through a node.
async fn reads(world: &Shared, machine: usize, sees: Sees) {
    let Some((node, incarnation)) = node_of(world, machine) else { return };
    let (floor, caught_up) = match sees {
        Sees::Any => (0, Ok(CommitSeq(0))),
        Sees::OfAge(age) => {
            let floor = world.lock().history.acknowledged_before(age);
            (floor, node.catch_up_to_age(age, DECISION).await)
        }
        Sees::Newest => {
            let floor = world.lock().history.acknowledged;
            (floor, node.catch_up(DECISION).await)
        }
    };
    let Ok(seen) = caught_up else { return };
    let values = snapshot(&node);
    let mut world = world.lock();
    if world.machines[machine].incarnation != incarnation {
        return;
    }
    match values {
        Ok((seq, _)) if seq < seen.0 => world
            .fail(format!("node {} reads commit {seq}, and said it had caught up to {seen}", id_of(machine))),
        Ok((seq, values)) => {
            world.history.reads.push(Read { floor, seq, node: id_of(machine), values });
            let is_leader = matches!(node.replica().role(), Ok(Role::Leads { .. }));
            let met = match sees {
                Sees::Any => return,
                Sees::OfAge(_) => Met::ReadOfAge,
                Sees::Newest if is_leader => Met::Read,
                Sees::Newest => Met::ReadAtFollower,
            };
            if matches!(sees, Sees::Newest) {
                world.history.is_told(seq);
            }
            world.meets(met, &format!("node {} reads commit {seq}, {sees:?}", id_of(machine)));
        }
        Err(error) if error.code() == Code::Closed => {}
        Err(error) => world.fail(format!("node {} cannot read: {error}", id_of(machine))),
    }
}

/// What all keys hold at what a node has published.
pub(super) fn snapshot(node: &SimNode) -> duramen_engine::Result<(u64, Values)> {
    let snapshot = node.engine().snapshot()?;
    let tree = snapshot.tree(VALUES)?.expect("the tree is there");
    let values = keys().into_iter().map(|key| Ok((key.clone(), snapshot.get(tree, &key)?)));
    Ok((snapshot.seq().0, values.collect::<duramen_engine::Result<_>>()?))
}
