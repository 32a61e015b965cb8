//! Expiry: deletes expired values, a bounded number per transaction. Also reports its lag.
//!
//! Owns how it runs beside writers: each write of a namespace pays for expiring some of its values, so it
//! needs no other thread. It never deletes a value that was renewed after expiry looked.

use std::time::Duration;

use crate::store::Durability;

use super::row;
use crate::access::background_work::Outlook;
use crate::access::expiry::WRITES_A_RUN;
use crate::access::handle::Db;
use crate::access::reads::Reads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source, TreeId};
use crate::value::clock::Millis;
use crate::value::time::Time;

/// How many expired values are deleted for each write. A write adds one at most, so with two expiry catches
/// up.
const EXPIRED_A_WRITE: u64 = 2;

/// The maximum interval of background expiry: a new value may expire earlier than those known.
const LAG_MAX: Duration = Duration::from_secs(10);

/// The same in a node of a cluster, where no reader sees that a value has expired before a commit of that
/// time.
const LAG_MAX_OF_NODE: Duration = Duration::from_millis(100);

/// Values deleted per step, at most.
const EXPIRED_MAX: usize = 512;

/// Bytes of keys per step, at most: the least that a transaction may hold in a small memory.
const EXPIRED_BYTES_MAX: usize = 64 * 1024;

/// The lag of expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvStats {
    /// Namespaces covered.
    pub namespaces: u64,
    /// Values that are stored and have not expired.
    pub values: u64,
    /// Values that have expired but still take space.
    pub expired: u64,
    /// When the oldest of these expired.
    pub oldest: Option<Time>,
    /// How long ago that was: the lag of expiry.
    pub lag: Duration,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Values deleted.
    pub(crate) freed: u64,
    /// When the next value expires. If that has passed, there is more to do now.
    pub(crate) next_due: Option<Time>,
}

/// An expired value: when it expired, and its key.
pub(super) type Due = (Millis, Vec<u8>);

/// Deletes expired values of the namespace that has waited longest, in one transaction.
///
/// The snapshot that it reads is released before it writes.
pub(crate) fn step(db: &Db) -> Result<Expired> {
    let (oldest, due) = {
        let snapshot = db.snapshot()?;
        let mut firsts = first_expiries(&snapshot)?;
        firsts.sort_unstable();
        let Some((_, namespace)) = firsts.first().cloned() else {
            return Ok(Expired { freed: 0, next_due: None });
        };
        let due = due(&snapshot, db.open_state().clock.now(), &namespace)?;
        (namespace, due)
    };
    let freed = if due.is_empty() { 0 } else { free(db, &oldest, &due)? };
    let next = first_expiries(&db.snapshot()?)?.into_iter().min();
    Ok(Expired { freed, next_due: next.map(|(at, _)| at.to_time()) })
}

/// Whether any values have an expiry.
pub(crate) fn has_work(db: &Db) -> Result<bool> {
    Ok(!first_expiries(&db.snapshot()?)?.is_empty())
}

/// A background step, for databases without writers.
pub(crate) fn background_step(db: &Db, _now_ns: u64) -> Result<Outlook> {
    // Set before the look, so that a writer after that look wakes background expiry.
    db.open_state().expiry.background_rests(true);
    let Expired { next_due, .. } = step(db)?;
    let Some(due) = next_due else { return Ok(Outlook::Nothing) };
    db.open_state().expiry.background_rests(false);
    let lag_max = if db.engine().lineage().is_some() { LAG_MAX_OF_NODE } else { LAG_MAX };
    let left_ms = Millis::not_before(due).0.saturating_sub(db.open_state().clock.now().0);
    Ok(if left_ms == 0 { Outlook::More } else { Outlook::Due(Duration::from_millis(left_ms).min(lag_max)) })
}

/// Deletes expired values of a namespace after commits: about two for each of the `writes` writes since the
/// last run, and for 32 writes at least.
pub(crate) fn after_writes(db: &Db, namespace: &str, writes: u64) -> Result<()> {
    let mut left = writes.max(WRITES_A_RUN).saturating_mul(EXPIRED_A_WRITE);
    while left > 0 {
        let due = due(&db.snapshot()?, db.open_state().clock.now(), namespace)?;
        if due.is_empty() {
            break;
        }
        free(db, namespace, &due)?;
        left = left.saturating_sub(due.len() as u64);
    }
    Ok(())
}

/// The first values of a namespace that have expired by now, as many as a step takes.
pub(super) fn due(snapshot: &Snapshot, now: Millis, namespace: &str) -> Result<Vec<Due>> {
    let source = snapshot.source();
    let Some(expiries) = source.tree(&row::expiries_tree(namespace))? else { return Ok(Vec::new()) };
    let mut due = Vec::new();
    let mut bytes = 0;
    let mut cursor = source.cursor(expiries, row::expired(now), Direction::Forward)?;
    while due.len() < EXPIRED_MAX
        && bytes < EXPIRED_BYTES_MAX
        && let Some(found) = cursor.next_key()?
    {
        let (at, key) = row::split_index_key(found)?;
        bytes += key.len();
        due.push((at, key.to_vec()));
    }
    Ok(due)
}

/// Deletes those of the values that were not rewritten. It does not wait for the disk: values that a crash
/// restores are expired again.
pub(super) fn free(db: &Db, namespace: &str, due: &[Due]) -> Result<u64> {
    db.at(Durability::Memory).transact(|tx| {
        let values = tx.kv(namespace);
        due.iter().try_fold(0, |freed, (at, key)| Ok(freed + u64::from(values.expire(key, *at)?)))
    })
}

/// When the first value of each namespace expires, for namespaces with an expiry index.
fn first_expiries(snapshot: &Snapshot) -> Result<Vec<(Millis, String)>> {
    let source = snapshot.source();
    let mut firsts = Vec::new();
    for (name, tree) in snapshot.trees_from(row::EXPIRIES)? {
        let Some(namespace) = row::namespace_of_expiries(&name) else { continue };
        firsts.extend(first_expiry(source, tree)?.map(|at| (at, namespace.to_owned())));
    }
    Ok(firsts)
}

fn first_expiry(source: &dyn Source, expiries: TreeId) -> Result<Option<Millis>> {
    let all = KeyRange { from: Vec::new(), to: None };
    let mut cursor = source.cursor(expiries, all, Direction::Forward)?;
    let found = cursor.next_key()?;
    found.map(|found| row::split_index_key(found).map(|(at, _)| at)).transpose()
}

/// The lag of expiry in some namespaces, in O(log n) for each.
pub(super) fn stats(snapshot: &Snapshot, namespaces: &[String]) -> Result<KvStats> {
    let source = snapshot.source();
    let now = snapshot.now();
    let mut stats = KvStats::default();
    let mut oldest: Option<Millis> = None;
    for namespace in namespaces {
        let Some(rows) = source.tree(&row::rows_tree(namespace))? else { continue };
        let stored = source.count(rows, &KeyRange { from: Vec::new(), to: None })?;
        let expired = match source.tree(&row::expiries_tree(namespace))? {
            None => 0,
            Some(expiries) => {
                let first = first_expiry(source, expiries)?.filter(|at| *at <= now);
                oldest = oldest.into_iter().chain(first).min();
                source.count(expiries, &row::expired(now))?
            }
        };
        stats.namespaces += 1;
        stats.values += stored - expired;
        stats.expired += expired;
    }
    stats.oldest = oldest.map(Millis::to_time);
    stats.lag = oldest.map_or(Duration::ZERO, |at| Duration::from_millis(now.0 - at.0));
    Ok(stats)
}
