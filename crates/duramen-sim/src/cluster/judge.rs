//! The judgement of a run: is there one order of all transactions that explains every answer?
//!
//! The order is given: each commit has a sequence. So nothing is searched for. All transactions that happened
//! are run again in that order on a model, and every read must be what the model holds at its place. A later
//! request must come after what was acknowledged before it was asked. That is strict serializability, and for
//! single registers linearizability, with the order as its witness.

use std::collections::BTreeMap;

use duramen_engine::{Direction, EntryId, Fate, KeyRange, Snapshot, TreeId};

use super::client::{keys, snapshot};
use super::history::{Attempt, History, Outcome, Values};
use super::machine::{REQUESTS, SimNode, id_of};
use super::world::{Shared, World};

/// # Errors
/// What is wrong.
pub(super) fn judge(world: &Shared) -> Result<(), String> {
    let nodes: Vec<_> = world.lock().machines.iter().filter_map(|machine| machine.node.clone()).collect();
    let mut contents = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let wrong = |what: String| format!("node {}: {what}", id_of(index));
        contents.push(content(node).map_err(wrong)?);
        let found = node.engine().check().map_err(|error| wrong(error.to_string()))?;
        if let Some(problem) = found.problems.first() {
            return Err(wrong(format!("check finds {problem}")));
        }
    }
    let first = contents.first().expect("there are nodes");
    if contents.iter().any(|content| content != first) {
        return Err(format!("nodes differ at one commit: {contents:?}"));
    }
    let world = world.lock();
    fates_are_those_of_the_order(&world, &first.requests)?;
    in_one_order(&world.history, &first.requests, (first.seq, &first.values))
}

/// What a node holds at the end.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    seq: u64,
    values: Values,
    /// Which try of each request happened.
    requests: BTreeMap<u64, u64>,
    members: (EntryId, Vec<u8>),
}

fn content(node: &SimNode) -> Result<Content, String> {
    let (seq, values) = snapshot(node).map_err(|error| error.to_string())?;
    let snapshot = node.engine().snapshot().map_err(|error| error.to_string())?;
    let tree = snapshot.tree(REQUESTS).ok().flatten().ok_or("the tree of requests is gone")?;
    let requests = requests(&snapshot, tree).map_err(|error| error.to_string())?;
    let members = node.replica().members().map_err(|error| error.to_string())?;
    Ok(Content { seq, values, requests, members })
}

fn requests(snapshot: &Snapshot, tree: TreeId) -> duramen_engine::Result<BTreeMap<u64, u64>> {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    let mut rows = snapshot.rows(tree, KeyRange::all(), Direction::Forward)?;
    let mut requests = BTreeMap::new();
    while let Some(row) = rows.next()? {
        requests.insert(number(row.key()), number(&row.value()?));
    }
    Ok(requests)
}

/// Each process that has ordered a commit knows what became of it.
fn fates_are_those_of_the_order(world: &World, happened: &BTreeMap<u64, u64>) -> Result<(), String> {
    for machine in &world.machines {
        let Some(node) = &machine.node else { continue };
        for (index, receipt) in &machine.receipts {
            let Attempt { request, number, .. } = &world.history.attempts[*index];
            let is_in = happened.get(request) == Some(number);
            let fate = node.replica().fate(receipt).map_err(|error| error.to_string())?;
            if fate == Fate::Open || (fate == Fate::Happened) != is_in {
                return Err(format!("try {number} of request {request} is {fate:?}; it happened: {is_in}"));
            }
        }
    }
    Ok(())
}

fn in_one_order(
    history: &History,
    happened: &BTreeMap<u64, u64>,
    (last, found): (u64, &Values),
) -> Result<(), String> {
    let is_in = |attempt: &Attempt| happened.get(&attempt.request) == Some(&attempt.number);
    for attempt in &history.attempts {
        let Attempt { request, number, seq, outcome, .. } = attempt;
        match outcome {
            Outcome::Happened if !is_in(attempt) => {
                return Err(format!("request {request} was acknowledged as commit {seq}, and is lost"));
            }
            Outcome::Never if is_in(attempt) => {
                return Err(format!("try {number} of request {request} was told never to happen, and did"));
            }
            _ => {}
        }
    }
    let mut order: BTreeMap<u64, &Attempt> = BTreeMap::new();
    for attempt in history.attempts.iter().filter(|attempt| is_in(attempt)) {
        if let Some(other) = order.insert(attempt.seq, attempt) {
            return Err(format!(
                "requests {} and {} are both commit {}",
                other.request, attempt.request, attempt.seq
            ));
        }
    }
    if order.len() != happened.len() {
        return Err(format!("{} requests happened, and {} of them are known", happened.len(), order.len()));
    }
    let states = states(&order)?;
    let at = |seq: u64| states.range(..=seq).next_back().expect("the first is there").1;
    if at(last) != found {
        return Err(format!("the end is {found:?}, want {:?}", at(last)));
    }
    for (number, request) in &history.requests {
        let Some(seq) = request.acknowledged else { continue };
        if order.get(&seq).is_none_or(|attempt| attempt.request != *number) {
            return Err(format!("request {number} was told commit {seq}, which is another"));
        }
    }
    for (seq, attempt) in &order {
        let floor = history.requests[&attempt.request].floor;
        if *seq <= floor {
            return Err(format!("request {} is commit {seq}, and was asked after {floor}", attempt.request));
        }
    }
    for (base, reads) in &history.begun {
        let state = at(*base);
        if let Some((key, value)) = reads.iter().find(|(key, value)| state[*key] != **value) {
            let key = String::from_utf8_lossy(key);
            return Err(format!(
                "a transaction read {value:?} as {key} at commit {base}, which it never was"
            ));
        }
    }
    for read in &history.reads {
        if read.seq < read.floor {
            return Err(format!("node {} reads commit {}, after {}", read.node, read.seq, read.floor));
        }
        if read.values != *at(read.seq) {
            return Err(format!("node {} reads at commit {}: {:?}", read.node, read.seq, read.values));
        }
    }
    Ok(())
}

/// What the keys hold after each commit.
fn states(order: &BTreeMap<u64, &Attempt>) -> Result<BTreeMap<u64, Values>, String> {
    let mut state: Values = keys().into_iter().map(|key| (key, None)).collect();
    let mut states = BTreeMap::from([(0, state.clone())]);
    for (seq, attempt) in order {
        let Attempt { request, base, reads, writes, .. } = attempt;
        if base >= seq {
            return Err(format!("request {request} is commit {seq}, and read commit {base}"));
        }
        if let Some((key, value)) = reads.iter().find(|(key, value)| state[*key] != **value) {
            let key = String::from_utf8_lossy(key);
            return Err(format!(
                "request {request}, commit {seq}, read {value:?} as {key}, want {:?}",
                state[key.as_bytes()]
            ));
        }
        state.extend(writes.clone());
        states.insert(*seq, state.clone());
    }
    Ok(states)
}
