//! The judgement of an image that a cut left: it opens, holds one state of the history, takes new writes of
//! every kind, and survives a second cut.
//!
//! D1 (nothing promised is lost) and D2 (a prefix, whole) are judged here for everything that a program
//! stores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use duramen::{Code, Db};
use duramen_disk::MemDisk;
use duramen_disk::memory::Trace;
use duramen_engine::Options;

use super::feed::consumer_equals;
use super::judge::{checks_are_clean, database_equals, failed, stored_values};
use super::life::{BEFORE_MS, Copied, Ended, Form, Life, PATH, open_by, recover};
use super::model::{History, State};
use super::shop::Release;
use super::tally::Tally;
use super::views::Shown;
use crate::features::{LZ4_PAGES, PATCHES, features_of};
use crate::search::cuts::{image as cut_image, some_choice};
use crate::search::kinds::Kind;
use crate::search::random::{Random, joined};

/// Events on a recovered database, at most.
const AFTERMATH_MAX: usize = 5;

/// One image of so many is checked by the database's own checks.
const CHECKED_EVERY: usize = 3;

/// One image of so many is repaired as if it were corrupt.
const REPAIRED_EVERY: usize = 10;

/// For one image of so many the backups are compared.
const COPIES_EVERY: usize = 3;

/// One life of so many after a cut is brought to an end, and nothing may be left over.
const SETTLED_EVERY: usize = 4;

/// A life, recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Its seed.
    pub seed: u64,
    /// Everything that changed the disk.
    pub trace: Trace,
    /// What the database must hold.
    pub ended: Ended,
    /// Number of operations after which its creation had returned.
    pub created_at: usize,
}

impl Recorded {
    /// The event that began last before operation `op`, if it did something.
    #[must_use]
    pub fn event_before(&self, op: usize) -> Option<&str> {
        let (at, event) = self.trace.marks().take_while(|(at, _)| *at < op).last()?;
        (!self.ended.idle.contains(&at)).then_some(event)
    }
}

/// The result of judging an image.
#[derive(Debug, Clone, Copy)]
pub struct Survival {
    /// The commit it recovered to.
    pub seq: u64,
    /// The hash of the image that the second cut left.
    pub second: u64,
    /// The kind of its choice of pending changes.
    pub kind: Kind,
    /// Figures on what was compared and done.
    pub tally: Tally,
}

/// Opens the image that a cut after `op` operations left, and judges it.
///
/// # Errors
/// What is wrong with it.
pub fn survive(recorded: &Recorded, op: usize, image: &MemDisk) -> Result<Survival, String> {
    catch_unwind(AssertUnwindSafe(|| judge(recorded, op, image))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

fn judge(recorded: &Recorded, op: usize, image: &MemDisk) -> Result<Survival, String> {
    let mut random = Random::new(joined(image.image_hash(), recorded.seed));
    image.record();
    let born = op >= recorded.created_at;
    let options = Options {
        create: !born,
        answer_before_replay: Some(random.chance(1, 2)),
        ..recorded.ended.options.clone()
    };
    let copy = random.chance(1, REPAIRED_EVERY).then(|| image.deep_clone());
    let mut tally = copies_are_whole(recorded, op, image, &mut random)?;
    let Found { db, seq, state, tally: found } =
        recovered(image, &options, &recorded.ended, op, &mut random)?;
    tally.add(&found);
    let (release, shop) = recorded.ended.program(op);
    if let Some(copy) = copy.filter(|_| born) {
        copy.set_wall_clock(BEFORE_MS * 1_000_000);
        recover(&copy, &recorded.ended.options, "/again")?;
        let (path, state) = ("/again".to_owned(), Arc::clone(&state));
        let again = Copied { path, began: 0, ended: 0, state, release, shown: None };
        let expired_ms = recorded.ended.expired_ms(op);
        tally.add(&again.equals(&copy, &recorded.ended.options, expired_ms, &mut random)?);
    }
    let opened_at = image.recorded_len();
    let mut own = State::clone(&state);
    let values = stored_values(&db)?;
    own.values.retain(|at, _| values.contains_key(at));
    let line = recorded.ended.history.line(op, seq);
    let history = History::continuing(seq, &state, Arc::new(own.clone()), &line);
    let (own_random, settles) = (Random::new(random.bits()), random.chance(1, SETTLED_EVERY));
    let at = (image.clone(), recorded.ended.options.clone());
    let mut life = Life::over(db, at, (history, own), (release, shop), own_random, "-again")?;
    let after = |what: String| format!("after recovery to commit {seq}: {what}");
    life.found().map_err(after)?;
    for _ in 0..random.between(1, AFTERMATH_MAX) {
        life.event().map_err(after)?;
    }
    if settles {
        life.settle().map_err(after)?;
    }
    let ended = life.end();
    let trace = image.stop_recording();
    let (second, kind, found) = second_cut(&trace, &ended, opened_at, born, &mut random)?;
    tally.add(&ended.tally);
    tally.add(&found);
    Ok(Survival { seq, second, kind, tally })
}

/// A database that equals one state of the history.
struct Found {
    db: Db,
    seq: u64,
    state: Arc<State>,
    /// What was compared.
    tally: Tally,
}

/// Opens an image and compares it with its possible states.
fn recovered(
    image: &MemDisk,
    options: &Options,
    ended: &Ended,
    op: usize,
    random: &mut Random,
) -> Result<Found, String> {
    image.set_wall_clock(BEFORE_MS * 1_000_000);
    let features = features_of(image, PATH);
    let db = open_by(image, PATH, options, Form::some(random)).map_err(failed("open"))?;
    let seq = db.stats().commit.published.0;
    let (floor, ceiling) = (ended.history.floor(op), ended.history.ceiling(op));
    if seq < floor || seq > ceiling {
        return Err(format!("recovered commit {seq}; {floor} was promised, {ceiling} had begun"));
    }
    let (state, mut tally) = equal_state(&db, ended, op, seq, ended.program(op).0, random)?;
    tally.compressed += u64::from(features & LZ4_PAGES != 0);
    tally.patched += u64::from(features & PATCHES != 0);
    ended.looks.explain(op, seq, Shown::of(&db)?.as_ref())?;
    if random.chance(1, CHECKED_EVERY) {
        checks_are_clean(&db, &state).map_err(|what| format!("state of commit {seq}: {what}"))?;
    }
    Ok(Found { db, seq, state, tally })
}

/// Checks that a backup or repair that returned is complete; one in progress is complete, or does not open.
fn copies_are_whole(
    recorded: &Recorded,
    op: usize,
    image: &MemDisk,
    random: &mut Random,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for copied in recorded.ended.copies.iter().filter(|copied| copied.began <= op) {
        let is_done = op >= copied.ended;
        if is_done && !random.chance(1, COPIES_EVERY) {
            continue;
        }
        image.set_wall_clock(BEFORE_MS * 1_000_000);
        if let Err(error) = copied.open(image, &recorded.ended.options)
            && (is_done
                || ![Code::UnfinishedCopy, Code::NoSuchDatabase, Code::NotADatabase].contains(&error.code()))
        {
            return Err(failed(&format!("the copy {}", copied.path))(error));
        } else if is_done || copied.open(image, &recorded.ended.options).is_ok() {
            let expired_ms = recorded.ended.expired_ms(op);
            tally.add(&copied.equals(image, &recorded.ended.options, expired_ms, random)?);
        }
    }
    Ok(tally)
}

/// The state of the history that a database holds, and what was compared.
fn equal_state(
    db: &Db,
    ended: &Ended,
    op: usize,
    seq: u64,
    release: Release,
    random: &mut Random,
) -> Result<(Arc<State>, Tally), String> {
    let mut verdict = Err("no such commit was ever made".to_owned());
    for state in ended.history.candidates(op, seq) {
        verdict = database_equals(db, &state, release, ended.expired_ms(op), random);
        if let Ok(tally) = verdict {
            consumer_equals(db, seq >= ended.registered, |position| ended.history.line(op, position))?;
            return Ok((state, tally));
        }
    }
    Err(format!("state of commit {seq}: {}", verdict.err().unwrap_or_default()))
}

/// A cut during the recovery from the first cut, or during what followed.
fn second_cut(
    trace: &Trace,
    ended: &Ended,
    opened_at: usize,
    born: bool,
    random: &mut Random,
) -> Result<(u64, Kind, Tally), String> {
    let op = if random.chance(1, 4) {
        random.below(opened_at + 1)
    } else {
        random.between(opened_at, trace.len() + 1)
    };
    let mut cursor = trace.cursor();
    cursor.seek(op);
    let choice = some_choice(cursor.pending_len(), ended.options.wal_dir.is_some(), random);
    let image = cut_image(&cursor, &choice);
    let hash = image.image_hash();
    let options = Options {
        create: !born && op < opened_at,
        answer_before_replay: Some(random.chance(1, 2)),
        ..ended.options.clone()
    };
    let found = recovered(&image, &options, ended, op, random).map_err(|what| {
        let before: Vec<String> = (op.saturating_sub(8)..op).map(|at| trace.describe(at)).collect();
        let before = before.join("\n    ");
        format!("second cut after {op} operations ({opened_at} of recovery), {choice}: {what}\n    {before}")
    })?;
    found.db.abandon();
    Ok((hash, Kind::of(&choice, cursor.pending_len()), found.tally))
}
