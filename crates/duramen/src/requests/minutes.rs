//! Which answers are kept: a tree for each minute, and the row `floor`, below which all are forgotten.
//!
//! Owns the rule that a forgotten request never runs again. A minute's tree is dropped and the floor raised
//! above it in one transaction. A request without a tree reads the floor, so it is refused or conflicts. No
//! clock takes part in that.

use std::time::Duration;

use super::{MINUTE_MS, now, start_clock};
use crate::access::background_work::Outlook;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::store::error::{Code, Error, Result};
use crate::store::{Durability, KeyRange, Shared, Source};
use crate::value::clock::Millis;

/// The tree with the row `floor`; the trees of minutes have its name as a prefix.
pub(crate) const FLOOR_TREE: &str = "duramen/requests";

const FLOOR: &[u8] = b"floor";

/// So many minutes after its own the tree of a minute is dropped.
const KEPT_MINUTES: u64 = 10;

/// The least number, if there are too many rows.
const KEPT_MINUTES_MIN: u64 = 2;

/// Beyond this many rows trees are dropped sooner.
const ROWS_MAX: u64 = 1 << 20;

/// The last minute that an id can name: it has 48 bits of milliseconds.
const MINUTE_MAX: u64 = ((1 << 48) - 1) / MINUTE_MS;

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// The tree of a minute, counted since 1970. Names are in order of their minutes.
pub(super) fn tree(minute: u64) -> String {
    format!("{FLOOR_TREE}/{minute:010}")
}

/// The minute whose answers lie in a tree.
pub(crate) fn minute_of(tree: &str) -> Option<u64> {
    let minute = tree.strip_prefix(FLOOR_TREE)?.strip_prefix('/')?.parse().ok()?;
    (minute <= MINUTE_MAX).then_some(minute)
}

/// The first minute that is not forgotten; 0 if nothing was.
pub(crate) fn floor(source: &dyn Source) -> Result<u64> {
    let Some(tree) = source.tree(FLOOR_TREE)? else { return Ok(0) };
    let stored = source.get(tree, FLOOR)?;
    stored.map_or(Ok(0), |stored| decode_floor(&stored))
}

/// The earliest time of the clock of requests: an id that is made by it is not forgotten soon.
pub(super) fn earliest(source: &dyn Source) -> Result<Millis> {
    Ok(Millis(floor(source)?.saturating_add(KEPT_MINUTES_MIN).saturating_mul(MINUTE_MS)))
}

fn decode_floor(stored: &[u8]) -> Result<u64> {
    let minute = stored.try_into().ok().map(u64::from_le_bytes);
    // All may be forgotten: the floor is then above the last minute.
    minute.filter(|minute| *minute <= MINUTE_MAX + 1).ok_or_else(|| {
        Error::new(Code::CorruptData, "the row that says which requests are forgotten cannot be read")
    })
}

/// What is wrong with the row `floor`, if anything.
pub(crate) fn problem_of_floor(key: &[u8], stored: &[u8]) -> Option<String> {
    if key != FLOOR {
        return Some("a row of another name lies beside the row floor".to_owned());
    }
    decode_floor(stored).err().map(|error| error.message().to_owned())
}

fn raise_floor(tx: &Shared<'_>, minute: u64) -> Result<()> {
    let tree = match tx.tree(FLOOR_TREE)? {
        Some(tree) => tree,
        None => tx.create_tree(FLOOR_TREE, None)?,
    };
    if floor(tx)? < minute {
        tx.put(tree, FLOOR, &minute.to_le_bytes())?;
    }
    Ok(())
}

/// The minutes that have a tree, and the number of its rows; the oldest first.
fn minutes(db: &Db) -> Result<Vec<(u64, u64)>> {
    let snapshot = db.snapshot()?;
    let mut found = Vec::new();
    for (name, tree) in snapshot.trees_from(FLOOR_TREE)? {
        if let Some(minute) = minute_of(&name) {
            found.push((minute, snapshot.source().count(tree, &ALL)?));
        }
    }
    Ok(found)
}

/// Whether any answers are kept. Looks at names only: opening calls it.
pub(crate) fn has_work(db: &Db) -> Result<bool> {
    Ok(db.snapshot()?.trees_from(FLOOR_TREE)?.iter().any(|(name, _)| minute_of(name).is_some()))
}

/// Drops the trees of minutes that are no longer kept, and makes the tree of the next minute while requests
/// come.
pub(crate) fn background_step(db: &Db, _now_ns: u64) -> Result<Outlook> {
    let kept = minutes(db)?;
    if kept.is_empty() {
        return Ok(Outlook::Nothing);
    }
    start_clock(db)?;
    let now = now(db.open_state());
    let minute = now.0 / MINUTE_MS;
    let gone = forgotten(&kept, minute, ROWS_MAX);
    let has_tree = |minute| kept.iter().any(|(of, _)| *of == minute);
    let next = Some(minute + 1).filter(|next| has_tree(minute) && !has_tree(*next));
    // Not durable at once: a crash brings back the trees together with the floor below them.
    let quick = db.at(Durability::Memory);
    if !gone.is_empty() {
        quick.transact(|tx| forget(tx.shared(), &gone))?;
    }
    if let Some(next) = next {
        quick.transact(|tx| match tx.shared().tree(&tree(next))? {
            None => tx.shared().create_tree(&tree(next), None).map(drop),
            Some(_) => Ok(()),
        })?;
    }
    if gone.len() == kept.len() {
        return Ok(Outlook::Nothing);
    }
    Ok(Outlook::Due(Duration::from_millis(MINUTE_MS - now.0 % MINUTE_MS)))
}

/// Which of the minutes are no longer kept, the oldest first. Each has a number of rows.
fn forgotten(kept: &[(u64, u64)], now: u64, rows_max: u64) -> Vec<u64> {
    let mut rows: u64 = kept.iter().filter(|(minute, _)| *minute <= now).map(|(_, rows)| rows).sum();
    let mut gone = Vec::new();
    for (minute, of_minute) in kept {
        let kept_minutes = if rows > rows_max { KEPT_MINUTES_MIN } else { KEPT_MINUTES };
        if minute + kept_minutes >= now {
            break;
        }
        gone.push(*minute);
        rows -= of_minute;
    }
    gone
}

fn forget(tx: &Shared<'_>, gone: &[u64]) -> Result<()> {
    // Also while the feed refuses writers, and in the room that a full disk keeps for deletes (D7).
    tx.frees_room();
    for minute in gone {
        if tx.tree(&tree(*minute))?.is_some() {
            tx.drop_tree(&tree(*minute))?;
        }
    }
    gone.last().map_or(Ok(()), |last| raise_floor(tx, last + 1))
}

/// What a commit that made the tree of a minute leaves: older ones to forget, also where no background works.
pub(crate) fn after_writes(db: &Db) {
    // What fails is left for the next minute.
    let _ = background_step(db, 0);
}

/// Forgets all requests, those of the near future included: for a database in which some may be missing, and
/// the names of their minutes and the floor, too.
pub(crate) fn forget_all(db: &Db) -> Result<()> {
    let kept: Vec<u64> = minutes(db)?.into_iter().map(|(minute, _)| minute).collect();
    let known = floor(db.snapshot()?.source())?.max(kept.last().map_or(0, |last| last + 1));
    // The floor follows the clock of requests by no more than this while requests come, and that clock may
    // have been ahead of the system's.
    let now = db.open_state().clock.now().0 / MINUTE_MS;
    let first = (known + KEPT_MINUTES + KEPT_MINUTES_MIN).max(now + KEPT_MINUTES).min(MINUTE_MAX + 1);
    db.transact(|tx| {
        forget(tx.shared(), &kept)?;
        raise_floor(tx.shared(), first)
    })
}

#[cfg(test)]
mod tests {
    //! Minutes go when they are old, or when there are too many rows and they are not new.
    use super::*;

    /// Names and rows that no build writes are errors, and no sum of minutes overflows.
    #[test]
    fn minutes_that_no_id_can_name_are_refused() {
        assert_eq!(minute_of(&tree(MINUTE_MAX)), Some(MINUTE_MAX));
        for name in [tree(MINUTE_MAX + 1), tree(u64::MAX), tree(7) + "x", "duramen/requests".to_owned()] {
            assert_eq!(minute_of(&name), None, "{name}");
        }
        let decoded = |minute: u64| decode_floor(&minute.to_le_bytes()).ok();
        assert_eq!(
            [MINUTE_MAX + 1, MINUTE_MAX + 2, u64::MAX].map(decoded),
            [Some(MINUTE_MAX + 1), None, None]
        );
        assert!(decode_floor(b"short").is_err());
        assert!(problem_of_floor(FLOOR, &u64::MAX.to_le_bytes()).is_some());
    }

    #[test]
    fn the_oldest_minutes_go_first() {
        let kept = [(100, 5), (101, 0), (108, 20), (109, 20), (110, 20), (111, 1), (900, 3)];
        assert_eq!(forgotten(&kept, 110, 1_000), [0; 0]);
        assert_eq!(forgotten(&kept, 111, 1_000), [100]);
        assert_eq!(forgotten(&kept, 112, 1_000), [100, 101]);
        // 66 rows up to now; without the first two minutes 61.
        assert_eq!(forgotten(&kept, 111, 65), [100]);
        assert_eq!(forgotten(&kept, 111, 60), [100, 101, 108]);
        assert_eq!(forgotten(&kept, 111, 0), [100, 101, 108], "two minutes are kept in any case");
        assert_eq!(forgotten(&kept, 50, 0), [0; 0], "and what is ahead of a clock that was set back");
        assert_eq!(forgotten(&[], 110, 0), [0; 0]);
    }
}
