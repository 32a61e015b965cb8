//! The judgement of a crash image: it opens, equals one state of the history, takes new commits, and survives
//! a second cut.
//!
//! D1 (nothing promised is lost), D2 (a prefix, whole) and D3 (what was freed was not needed) are judged
//! here.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use duramen_disk::memory::Trace;
use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::data_file::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use duramen_engine::{Engine, Options, Snapshot};

use super::case::{Case, Choice};
use super::compare::{check_is_clean, snapshot_equals};
use super::cuts::{image as cut_image, some_choice};
use super::feed::feed_equals;
use super::kinds::Kind;
use super::model::{History, State};
use super::phases::copying;
use super::random::{Random, joined};
use super::run::{Recorded, open, some_level, some_sync};
use super::shapes::{Shape, found_trees};
use super::writer::{Draft, Writer, failed};

/// Transactions made on a recovered database.
const AFTERMATH_MAX: usize = 4;

/// One image of so many is opened again with its newer superblock corrupted.
const FALLBACK_EVERY: usize = 6;

/// For one image of so many that keeps the feed, the feed is read from the first change on.
const FEED_EVERY: u64 = 3;

/// The result of judging a crash image.
#[derive(Debug, Clone)]
pub struct Survival {
    /// The commit it recovered to.
    pub seq: u64,
    /// The sync method of the database between the cuts.
    pub sync: SyncMethod,
    /// The second cut, also survived.
    pub second: SecondCut,
}

/// A cut during the recovery from the first cut, or during what followed.
#[derive(Debug, Clone, Copy)]
pub struct SecondCut {
    /// The hash of the image that it left.
    pub image: u64,
    /// Whether it fell into the recovery.
    pub in_recovery: bool,
    /// Whether it fell where the recovery copied the groups that no durable watermark covers.
    pub in_copy: bool,
    /// The kind of its choice.
    pub kind: Kind,
}

/// What must be there after a cut.
#[derive(Clone, Copy)]
struct Demand<'a> {
    history: &'a History,
    floor: u64,
    ceiling: u64,
    database: Option<&'a str>,
    /// Torn sectors may hold garbage, also those of a superblock.
    garbled: bool,
}

/// Opens the image that a cut left, and judges it.
///
/// # Errors
/// What is wrong with it.
pub fn survive(recorded: &Recorded, case: &Case, image: &MemDisk) -> Result<Survival, String> {
    caught(|| judge(recorded, case, image))
}

/// Turns a panic of the engine into a finding.
///
/// # Errors
/// The error of `body`, or the message of the panic.
pub fn caught<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

fn judge(recorded: &Recorded, case: &Case, image: &MemDisk) -> Result<Survival, String> {
    let (history, op, garbled) = (&recorded.history, case.op, case.choice.is_garbled());
    let born = op >= recorded.created_at;
    let demand = Demand {
        history,
        floor: history.floor(op),
        ceiling: history.ceiling(op),
        database: born.then_some(recorded.database.as_str()),
        garbled,
    };
    let mut random = Random::new(joined(image.image_hash(), recorded.seed));
    image.record();
    // A cut before the creation returned leaves a directory that opens as a new database. Each opening may
    // choose how the log is synced.
    let mut options = Options { create: !born, ..recorded.options.clone() };
    options.answer_before_replay = Some(reads_through_overlay(image));
    if random.chance(1, 4) {
        options.sync = Some(some_sync(&options.geometry, &mut random));
    }
    let untouched = (born && random.chance(1, FALLBACK_EVERY)).then(|| image.deep_clone());
    let (engine, held) = recovered(image, &options, &demand, &mut random)?;
    let seq = held.seq().0;
    if let Some(untouched) = untouched {
        fallback(&untouched, &options, &Demand { floor: seq, ceiling: seq, ..demand }, &mut random)?;
    }
    let opened_at = image.recorded_len();
    let state = history.at(seq).cloned().unwrap_or_default();
    let database = engine.durability_status().database.to_string();
    let writer = Writer::new(image.clone(), History::starting(seq, state));
    aftermath(&writer, &engine, &mut random)?;
    held_still_equals(held, &demand, &mut random)?;
    engine.abandon();
    let trace = image.stop_recording();
    let history = writer.take_history();
    let copying = copying(&trace, opened_at, options.geometry.block_bytes);
    let (trace, options, database) = (&trace, &options, database.as_str());
    let second = Second { trace, opened_at, copying, options, born, database, garbled };
    let sync = options.sync.unwrap_or_default();
    Ok(Survival { seq, sync, second: second.cut(&history, &mut random)? })
}

/// Opens an image and compares it with the demands.
fn recovered(
    image: &MemDisk,
    options: &Options,
    demand: &Demand<'_>,
    random: &mut Random,
) -> Result<(Engine, Snapshot), String> {
    let engine = open(image, options)?;
    let snapshot = engine.snapshot().map_err(failed("snapshot"))?;
    let seq = snapshot.seq().0;
    if seq < demand.floor || seq > demand.ceiling {
        let (floor, ceiling) = (demand.floor, demand.ceiling);
        return Err(format!("recovered commit {seq}; {floor} was promised, {ceiling} had begun"));
    }
    let found = engine.durability_status().database.to_string();
    if demand.database.is_some_and(|wanted| wanted != found) {
        return Err(format!("the database {found} was made in place of the one that was there"));
    }
    let state = demand.history.at(seq).ok_or_else(|| format!("commit {seq} was never made"))?;
    snapshot_equals(&snapshot, state, random).map_err(|what| format!("state of commit {seq}: {what}"))?;
    if options.feed_retain_bytes > 0 && image.image_hash().is_multiple_of(FEED_EVERY) {
        // Changes before a second history are unknown.
        feed_equals(&engine, demand.history.base(), &|seq| demand.history.at(seq), seq)?;
    }
    // What was read during deferred redo is read again once the log is in the trees.
    check_is_clean(&engine).map_err(|what| format!("state of commit {seq}: {what}"))?;
    if options.answer_before_replay == Some(true) {
        let again = engine.snapshot().map_err(failed("snapshot"))?;
        snapshot_equals(&again, state, random).map_err(|what| format!("replayed commit {seq}: {what}"))?;
    }
    Ok((engine, snapshot))
}

/// Whether this image is opened with deferred redo: derived from its hash, without a draw.
fn reads_through_overlay(image: &MemDisk) -> bool {
    image.image_hash().is_multiple_of(2)
}

/// Checks that a snapshot held since opening is unchanged after new commits and checkpoints (D3).
fn held_still_equals(held: Snapshot, demand: &Demand<'_>, random: &mut Random) -> Result<(), String> {
    let seq = held.seq().0;
    let state = demand.history.at(seq).cloned().unwrap_or_default();
    snapshot_equals(&held, &state, random)
        .map_err(|what| format!("held since it was opened, commit {seq}: {what}"))
}

/// Checks that the older superblock and the log since it lead to the same state as the newer one.
fn fallback(
    image: &MemDisk,
    options: &Options,
    demand: &Demand<'_>,
    random: &mut Random,
) -> Result<(), String> {
    const DATA: &str = "/db/data";
    let bytes = image.read_file(DATA).map_err(|e| e.to_string())?;
    let found = SUPERBLOCK_OFFSETS.map(|offset| {
        let at = usize::try_from(offset).expect("superblocks lie at the start");
        Superblock::decode(bytes.get(at..at + SUPERBLOCK_BYTES)?).ok().map(|block| block.generation)
    });
    let newer = if found[0] > found[1] { SUPERBLOCK_OFFSETS[0] } else { SUPERBLOCK_OFFSETS[1] };
    if found.contains(&None) && demand.garbled {
        return Ok(());
    }
    if found.contains(&None) {
        return Err("a superblock was not whole after the cut".to_owned());
    }
    image.flip_bit(DATA, newer + 100, 1).map_err(|e| e.to_string())?;
    recovered(image, options, demand, random)
        .map(|(engine, held)| {
            drop(held);
            engine.abandon();
        })
        .map_err(|what| format!("with the newer superblock corrupt: {what}"))
}

/// Uses the database after a crash: commits, steps, checkpoints.
fn aftermath(writer: &Writer, engine: &Engine, random: &mut Random) -> Result<(), String> {
    writer.promise_all();
    if !writer.latest().trees.contains_key("plain") {
        let mut draft = Draft::begin(engine)?;
        found_trees(&mut draft.filling(), &State::default()).map_err(failed("fill"))?;
        writer.commit(draft, some_level(random))?;
    }
    for _ in 0..random.between(1, AFTERMATH_MAX) {
        match random.below(12) {
            0..=2 => {
                let began_at = writer.disk.recorded_len();
                engine.checkpoint().map_err(failed("checkpoint after recovery"))?;
                writer.made_empty(engine, began_at);
            }
            3 => drop(writer.step(engine).map_err(|what| format!("after recovery: {what}"))?),
            4..=7 => after_commit(writer, engine, Shape::Small, random)?,
            8..=9 => after_commit(writer, engine, Shape::Big, random)?,
            10 => after_commit(writer, engine, Shape::Catalogue, random)?,
            _ => after_commit(writer, engine, Shape::Bulk, random)?,
        }
        writer.note_durable(engine);
    }
    let snapshot = engine.snapshot().map_err(failed("snapshot"))?;
    let state = writer.latest();
    snapshot_equals(&snapshot, &state, random).map_err(|what| format!("after new commits: {what}"))
}

fn after_commit(writer: &Writer, engine: &Engine, shape: Shape, random: &mut Random) -> Result<(), String> {
    let state = writer.latest();
    let mut draft = Draft::begin(engine)?;
    shape.fill(&mut draft.filling(), &state, random).map_err(failed("fill"))?;
    let level = some_level(random);
    writer.commit(draft, level).map_err(|what| format!("after recovery: {what}")).map(drop)
}

/// A cut during what happened after the first one.
struct Second<'a> {
    trace: &'a Trace,
    /// Operations of the recovery itself.
    opened_at: usize,
    /// The operations among them at which it copied groups.
    copying: Range<usize>,
    options: &'a Options,
    /// Whether the database existed before the first cut.
    born: bool,
    database: &'a str,
    /// Whether the first cut left garbage.
    garbled: bool,
}

impl Second<'_> {
    fn cut(&self, history: &History, random: &mut Random) -> Result<SecondCut, String> {
        let into_recovery = random.chance(1, 3);
        let op = if into_recovery {
            random.below(self.opened_at + 1)
        } else {
            random.between(self.opened_at, self.trace.len() + 1)
        };
        let mut cursor = self.trace.cursor();
        cursor.seek(op);
        let choice = some_choice(cursor.pending_len(), self.options.wal_dir.is_some(), random);
        let image = cut_image(&cursor, &choice);
        let born = self.born || op >= self.opened_at;
        let demand = Demand {
            history,
            floor: history.floor(op),
            ceiling: history.ceiling(op),
            database: born.then_some(self.database),
            garbled: self.garbled || choice.is_garbled(),
        };
        let hash = image.image_hash();
        let answer_before_replay = Some(reads_through_overlay(&image));
        let options = Options { create: !born, answer_before_replay, ..self.options.clone() };
        let again = self.again(&image, &options, &demand, random);
        again.map_err(|what| self.describe(op, &choice, &what))?;
        let (in_recovery, in_copy) = (op <= self.opened_at, self.copying.contains(&op));
        let kind = Kind::of(&choice, cursor.pending_len());
        Ok(SecondCut { image: hash, in_recovery, in_copy, kind })
    }

    fn again(
        &self,
        image: &MemDisk,
        options: &Options,
        demand: &Demand<'_>,
        random: &mut Random,
    ) -> Result<(), String> {
        let untouched = (self.born && random.chance(1, FALLBACK_EVERY)).then(|| image.deep_clone());
        let (engine, held) = recovered(image, options, demand, random)?;
        let seq = held.seq().0;
        drop(held);
        // Closing writes a checkpoint and a durable watermark over what was just recovered.
        if random.chance(1, 8) {
            engine.close().map_err(failed("close"))?;
        } else {
            engine.abandon();
        }
        let Some(untouched) = untouched else { return Ok(()) };
        fallback(&untouched, options, &Demand { floor: seq, ceiling: seq, ..*demand }, random)
    }

    fn describe(&self, op: usize, choice: &Choice, what: &str) -> String {
        let from = op.saturating_sub(6);
        let before: Vec<String> = (from..op).map(|at| self.trace.describe(at)).collect();
        let before = before.join("\n    ");
        format!(
            "second cut after {op} operations ({} of recovery), {choice}: {what}\n    {before}",
            self.opened_at
        )
    }
}
