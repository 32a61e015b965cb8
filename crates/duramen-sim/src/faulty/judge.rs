//! What a power cut leaves of a life in which calls fail: it opens, also with faults during recovery, holds
//! what was promised, works again, and survives a second cut.
//!
//! Owns the cuts of one boot and the verdict on each. D1, D2, D4 and D7 are judged here.

use duramen_disk::MemDisk;
use duramen_engine::Options;

use super::living::{Before, Boot, Going, Living};
use super::tally::{Consequence, Tally};
use crate::search::case::Choice;
use crate::search::cuts::{image, some_choice};
use crate::search::kinds::Kind;
use crate::search::random::{Random, joined};

/// Events after a recovery.
const AFTERMATH_MAX: usize = 4;

/// Operations before a second cut that a failure lists.
const OPERATIONS_TOLD: usize = 40;

/// The result of judging an image.
#[derive(Debug)]
pub struct Survival {
    /// The commit it recovered to; `None` if a lie of the medium was reported.
    pub seq: Option<u64>,
    /// What was met during the recovery.
    pub tally: Tally,
    /// The hash of the image that a second cut left, and its kind.
    pub second: Option<(u64, Kind)>,
}

impl Boot {
    /// What is known of the database before an image of a cut is opened.
    #[must_use]
    pub fn before(&self, op: usize, disk: MemDisk) -> Before {
        let born = self.created_at.is_some_and(|created_at| created_at <= op);
        Before {
            disk,
            book: self.book.after_cut(op),
            options: Options::clone(&self.options),
            database: self.database.clone().filter(|_| born),
            has_lied: self.has_lied(op),
            may_leak: self.may_leak,
        }
    }

    /// Whether the medium may have lied within the first `op` operations.
    #[must_use]
    pub fn has_lied(&self, op: usize) -> bool {
        self.lied_at.is_some_and(|lied_at| lied_at <= op)
    }

    /// Whether the disk was full after `op` operations.
    #[must_use]
    pub fn is_full(&self, op: usize) -> bool {
        self.full.iter().any(|range| range.contains(&op))
    }

    /// Whether a cut after `op` operations may recover to this commit, with no promised commit missing.
    #[must_use]
    pub fn may_hold(&self, op: usize, seq: u64) -> bool {
        seq >= self.book.floor(op) && self.book.at(op, seq).is_some()
    }
}

/// Opens the image that a cut after `op` operations left, and judges it.
///
/// # Errors
/// What is wrong with it.
pub fn survive(boot: &Boot, op: usize, image: MemDisk, seed: u64) -> Result<Survival, String> {
    let seed = joined(image.image_hash(), seed);
    let mut random = Random::new(joined(seed, 5));
    let has_lied = boot.has_lied(op);
    let mut living = Living::start(boot.before(op, image), seed);
    let arrived = living.arrive(!has_lied && random.chance(1, 2));
    let mut going = arrived.map_err(|what| living.tell(&what))?;
    let seq = living.seq();
    let opened_at = living.operations();
    for _ in 0..random.between(1, AFTERMATH_MAX) {
        if going == Going::On {
            let went = living.calm_event();
            going = went.map_err(|what| living.tell(&format!("after recovery: {what}")))?;
        }
    }
    if going == Going::On {
        let looked = living.look();
        looked.map_err(|what| living.tell(&format!("after recovery: {what}")))?;
    }
    let mut after = living.cut();
    if boot.is_full(op) {
        after.tally.came(Consequence::CutFull);
    }
    if has_lied && !after.tally.has_named() {
        after.tally.came(Consequence::Harmless);
    }
    let mut survival = Survival { seq, tally: std::mem::take(&mut after.tally), second: None };
    if going == Going::On {
        survival.second = Some(second_cut(&after, opened_at, seed, &mut random, &mut survival.tally)?);
    }
    Ok(survival)
}

/// A cut during the recovery from the first cut, or during what followed.
fn second_cut(
    after: &Boot,
    opened_at: usize,
    seed: u64,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(u64, Kind), String> {
    let is_early = random.chance(1, 2);
    let op =
        if is_early { random.below(opened_at + 1) } else { random.between(opened_at, after.trace.len() + 1) };
    let mut cursor = after.trace.cursor();
    cursor.seek(op);
    let choice: Choice = some_choice(cursor.pending_len(), after.options.wal_dir.is_some(), random);
    let kind = Kind::of(&choice, cursor.pending_len());
    let left = image(&cursor, &choice);
    let hash = left.image_hash();
    let mut living = Living::start(after.before(op, left), joined(seed, 2));
    let is_stormy = !after.has_lied(op) && random.chance(1, 4);
    let arrived = living.arrive(is_stormy);
    arrived.map_err(|what| {
        let what = living.tell(&what);
        let before: Vec<String> =
            (op.saturating_sub(OPERATIONS_TOLD)..op).map(|at| after.trace.describe(at)).collect();
        let before = before.join("\n    ");
        format!("second cut after {op} operations ({opened_at} of recovery), {choice}: {what}\n    {before}")
    })?;
    let mut ended = living.cut();
    tally.add(&std::mem::take(&mut ended.tally));
    Ok((hash, kind))
}
