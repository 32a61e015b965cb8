//! The sweeper: deletes values that have expired, a bounded number in each transaction; and how far behind it is.
//!
//! Owns when it runs beside writers: writes of a namespace pay for sweeping it, so that it needs nobody else. It deletes nothing
//! that was renewed after it looked.

use std::time::Duration;

use crate::store::Durability;

use super::row;
use crate::access::background_work::Outlook;
use crate::access::expiry::WRITES_A_SWEEP;
use crate::access::handle::Db;
use crate::access::reads::Reads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source, TreeId};
use crate::value::clock::Millis;
use crate::value::time::Time;

/// Each write pays for sweeping so many values: more than it can have left behind, so that the sweeper catches up.
const SWEPT_A_WRITE: u64 = 2;

/// In the background it looks again after this long at the latest: what expires earlier than what was there may have come.
const LAG_MAX: Duration = Duration::from_secs(10);

/// A step deletes at most so many values.
const SWEPT_MAX: usize = 512;

/// The keys of a step take at most so many bytes, the least a transaction may hold in a small memory.
const SWEPT_BYTES_MAX: usize = 64 * 1024;

/// How far the sweeper is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvStats {
    /// Namespaces looked at.
    pub namespaces: u64,
    /// Values that are there.
    pub values: u64,
    /// Values that have expired and take space still.
    pub expired: u64,
    /// When the oldest of these expired.
    pub oldest: Option<Time>,
    /// How long ago that was: the sweeper's lag.
    pub lag: Duration,
}

/// What a step of the sweeper has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Values deleted.
    pub(crate) freed: u64,
    /// When the next value expires. A time that has passed: there is more to do now.
    pub(crate) next_due: Option<Time>,
}

/// A value that has expired: when, and its key.
pub(super) type Due = (Millis, Vec<u8>);

/// Deletes values that have expired, in one transaction, of the namespace that has waited longest. The snapshot it looks at
/// is let go before it writes.
pub(crate) fn step(db: &Db) -> Result<Swept> {
    let (oldest, due) = {
        let snapshot = db.snapshot()?;
        let mut firsts = first_expiries(&snapshot)?;
        firsts.sort_unstable();
        let Some((_, namespace)) = firsts.first().cloned() else {
            return Ok(Swept { freed: 0, next_due: None });
        };
        let due = due(&snapshot, &namespace)?;
        (namespace, due)
    };
    let freed = if due.is_empty() { 0 } else { free(db, &oldest, &due)? };
    let next = first_expiries(&db.snapshot()?)?.into_iter().min();
    Ok(Swept { freed, next_due: next.map(|(at, _)| at.to_time()) })
}

/// Whether there are values that expire.
pub(crate) fn has_work(db: &Db) -> Result<bool> {
    Ok(!first_expiries(&db.snapshot()?)?.is_empty())
}

/// A step in the background, for databases that nobody writes to.
pub(crate) fn background_step(db: &Db, _now_ns: u64) -> Result<Outlook> {
    // Before it looks: who writes after that look wakes it.
    db.open_state().expiry.sweeper_rests(true);
    let Swept { next_due, .. } = step(db)?;
    let Some(due) = next_due else { return Ok(Outlook::Nothing) };
    db.open_state().expiry.sweeper_rests(false);
    let left_ms = Millis::not_before(due).0.saturating_sub(db.open_state().clock.now().0);
    Ok(if left_ms == 0 { Outlook::More } else { Outlook::Due(Duration::from_millis(left_ms).min(LAG_MAX)) })
}

/// Sweeps a namespace that was written to so many times.
pub(crate) fn after_writes(db: &Db, namespace: &str, writes: u64) -> Result<()> {
    let mut left = writes.max(WRITES_A_SWEEP).saturating_mul(SWEPT_A_WRITE);
    while left > 0 {
        let due = due(&db.snapshot()?, namespace)?;
        if due.is_empty() {
            break;
        }
        free(db, namespace, &due)?;
        left = left.saturating_sub(due.len() as u64);
    }
    Ok(())
}

/// The first values of a namespace that have expired, as many as a step takes.
pub(super) fn due(snapshot: &Snapshot, namespace: &str) -> Result<Vec<Due>> {
    let source = snapshot.source();
    let Some(expiries) = source.tree(&row::expiries_tree(namespace))? else { return Ok(Vec::new()) };
    let mut due = Vec::new();
    let mut bytes = 0;
    let mut cursor = source.cursor(expiries, row::expired(snapshot.now()), Direction::Forward)?;
    while due.len() < SWEPT_MAX
        && bytes < SWEPT_BYTES_MAX
        && let Some(found) = cursor.next_key()?
    {
        let (at, key) = row::split_index_key(found)?;
        bytes += key.len();
        due.push((at, key.to_vec()));
    }
    Ok(due)
}

/// Deletes those of these values that were not written since. It waits for no disk: what a crash brings back is swept again.
pub(super) fn free(db: &Db, namespace: &str, due: &[Due]) -> Result<u64> {
    db.at(Durability::Memory).transact(|tx| {
        let values = tx.kv(namespace);
        due.iter().try_fold(0, |freed, (at, key)| Ok(freed + u64::from(values.expire(key, *at)?)))
    })
}

/// When the first value of each namespace expires, of those that have one that does.
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

/// How far behind the sweeper is in some namespaces, in O(log n) for each.
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
