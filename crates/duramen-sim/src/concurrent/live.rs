//! One life of a database under real threads on a recording disk: what was done, and at which disk calls each
//! commit began and was acknowledged.
//!
//! Owns the options of a life and the listener. An acknowledgement is a remark in the trace, made right after
//! the call that gave it had returned. A cut before the remark demands nothing, so no cut demands more than
//! was promised. The seed decides what threads do; how they interleave is not repeatable.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use duramen_disk::memory::{Blocker, Trace};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{Background, Durability, Engine, Hooks, Options, Receipt};

use super::coverage::Levels;
use crate::beside::SetOnDrop;
use crate::contents::Dice;
use crate::history::{Event, Fate, Listener, Manner, Run, Step, Verdict, check, run_heard};
use crate::search::cuts::{LOG_DIR, LOG_DISK};
use crate::search::feed::feed_tells;
use crate::search::model::{Commit, Effect, History};
use crate::search::random::{Random, joined, mixed};
use crate::search::run::{FEED_BYTES, PATH, compresses, has_large_leaves, keeps_patches, some_sync};
use crate::search::shapes::{DIRECT_GEOMETRY, GEOMETRY};

/// How the remark of an acknowledgement begins; the sequence follows.
const ACKNOWLEDGED: &str = "acknowledged ";

/// How often, at most, a sync yields to other threads before it takes effect.
const YIELDS_MAX: u64 = 12;

/// One life, recorded.
#[derive(Debug, Clone)]
pub struct Life {
    /// Its seed.
    pub seed: u64,
    /// Everything that changed the disk, and every acknowledgement.
    pub trace: Trace,
    /// All commits, by their receipts.
    pub commits: Vec<Commit>,
    /// How a cut is opened again: as the life was, but stepped.
    pub options: Options,
    /// Number of operations after which its creation had returned.
    pub created_at: usize,
    /// Its identity.
    pub database: String,
}

/// A life, what its threads observed, and figures about it.
#[derive(Debug)]
pub struct Lived {
    /// The life.
    pub life: Life,
    /// The result of checking all answers.
    pub verdict: Verdict,
    /// Groups that the log was written in.
    pub groups: u64,
    /// Validations older than the ring of recent commits: they compared what was read value by value.
    pub compared: u64,
    /// Commits without changes among the threads' own.
    pub empty: u64,
    /// Commits whose calls returned with each level, in the order of [`Durability`].
    pub levels: Levels,
    /// The newest commit that the feed returned while the database was open; `None` if the life keeps no
    /// feed.
    pub told: Option<u64>,
}

/// Whether the life of a seed keeps every change for the feed: every second one.
#[must_use]
pub fn keeps_feed(seed: u64) -> bool {
    Random::new(joined(seed, 24)).chance(1, 2)
}

/// What threads do in the life of a seed.
#[must_use]
pub fn run_of(seed: u64) -> Run {
    let mut random = Random::new(joined(seed, 22));
    let manner = *random.pick(&[Manner::Short, Manner::Later, Manner::Old, Manner::Resting]);
    let thread_count = random.between(2, 7);
    // Old transactions must often find unchanged what they read.
    let (key_count, transaction_count) = match manner {
        Manner::Old => (100, 500 / thread_count),
        Manner::Short | Manner::Later | Manner::Resting => (*random.pick(&[12, 40]), 160 / thread_count),
    };
    Run { seed, thread_count, transaction_count, key_count, manner }
}

/// How the database of a seed is opened.
#[must_use]
pub fn options_of(seed: u64) -> Options {
    let mut random = Random::new(joined(seed, 21));
    // Direct writes need larger blocks, and these more memory: the ring would not be tiny.
    let is_old = run_of(seed).manner == Manner::Old;
    let is_direct = random.chance(1, 8) && !is_old;
    let (mut geometry, mut scale) = if is_direct { (DIRECT_GEOMETRY, 4) } else { (GEOMETRY, 1) };
    let compress = compresses(seed) && !is_old;
    if compress || has_large_leaves(seed) && !is_old && !is_direct {
        (geometry.leaf_bytes_max, scale) = (4 * geometry.block_bytes, 4);
    }
    // With the engine's own threads memory has a lower bound, and the ring of recent commits reaches back to
    // the start.
    let has_threads = random.chance(1, 2) && !is_old;
    let tiny_kib = if is_old { 128 } else { *random.pick(&[64, 128]) };
    let tiny = tiny_kib * 1024 * scale;
    Options {
        geometry,
        compress,
        patches: keeps_patches(seed),
        memory_bytes: if has_threads { 4 * 1024 * 1024 } else { tiny },
        background: if has_threads { Background::Threads } else { Background::Stepped },
        sync: Some(some_sync(&geometry, &mut random)),
        checkpoint_log_bytes: Some(*random.pick(&[8, 16, 64]) * 1024 * scale as u64),
        wal_dir: random.chance(1, 4).then(|| LOG_DIR.into()),
        feed_retain_bytes: if keeps_feed(seed) { FEED_BYTES } else { 0 },
        feed_bytes_max: FEED_BYTES,
        ..Options::default()
    }
}

/// Runs the life of a seed.
///
/// # Errors
/// A failure without any cut.
pub fn live(seed: u64) -> Result<Lived, String> {
    let (options, plan) = (options_of(seed), run_of(seed));
    let disk = MemDisk::new(seed);
    disk.record();
    if options.wal_dir.is_some() {
        let mounted = disk.create_dir(Path::new(LOG_DISK)).and_then(|()| disk.sync_dir(Path::new("/")));
        mounted.map_err(|error| error.to_string())?;
    }
    let opened = Engine::open(Arc::new(disk.clone()), Path::new(PATH), options.clone(), Hooks::default());
    let engine = opened.map_err(|error| format!("open: {} {error}", error.code()))?;
    let created_at = disk.recorded_len();
    let database = engine.durability_status().database.to_string();
    disk.set_blocker(Some(others_go_on(seed)));
    let heard = Heard {
        disk: disk.clone(),
        engine: engine.clone(),
        places: Mutex::default(),
        levels: Mutex::default(),
    };
    let events = in_company(&engine, options.background, || run_heard(&engine, plan, &heard));
    disk.set_blocker(None);
    let Heard { engine: other, places, levels, .. } = heard;
    drop(other);
    if let Some(cause) = engine.durability_status().poisoned {
        return Err(format!("poisoned on a disk that never fails: {cause}"));
    }
    let events = events.map_err(|error| format!("{} {error}", error.code()))?;
    let places = places.into_inner().unwrap_or_else(PoisonError::into_inner);
    let levels = levels.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut commits = commits_of(&events, &places);
    let told = match options.feed_retain_bytes {
        0 => None,
        _ => Some(feed_told(&engine, &commits)?),
    };
    let stats = engine.stats().commit;
    engine.clone().abandon();
    let trace = disk.stop_recording();
    commits.extend(last_empty_commit(&commits, engine.stats().commit.published.0));
    drop(engine);
    let (events, empty) = with_empty_commits(events);
    // A commit that an engine thread makes right now is ordered, and counted a moment later.
    let under_way = u64::from(options.background == Background::Threads);
    if empty > stats.empty + under_way {
        return Err(format!(
            "{empty} commits have no receipt, and the engine has made {} of nothing",
            stats.empty
        ));
    }
    let verdict = check(&events);
    let options = Options { background: Background::Stepped, ..options };
    let life = Life { seed, trace, commits, options, created_at, database };
    Ok(Lived { life, verdict, groups: stats.groups, compared: stats.compared, empty, levels, told })
}

/// The feed returns a prefix of the order of the receipts that contains everything durable.
fn feed_told(engine: &Engine, commits: &[Commit]) -> Result<u64, String> {
    let durable = engine.stats().commit.durable.0;
    let mut history = History::of_commits(commits.to_vec(), &[])?;
    history.nothing_until(engine.stats().commit.published.0, 0);
    feed_tells(engine, history.base(), &|seq| history.at(seq), (durable, history.last_seq()))
}

/// While a sync is in flight, other threads form the next group.
fn others_go_on(seed: u64) -> Blocker {
    let count = AtomicU64::new(seed);
    Arc::new(move |_: &Path| {
        let drawn = mixed(count.fetch_add(1, Ordering::Relaxed));
        (0..drawn % YIELDS_MAX).for_each(|_| thread::yield_now());
    })
}

/// Runs `work`, with background steps beside it where the engine has no threads.
fn in_company<T>(
    engine: &Engine,
    background: Background,
    work: impl FnOnce() -> duramen_engine::Result<T>,
) -> duramen_engine::Result<T> {
    let is_over = AtomicBool::new(background == Background::Threads);
    thread::scope(|scope| {
        let steps = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                engine.step()?;
                thread::yield_now();
            }
            Ok(())
        });
        let work_ends = SetOnDrop(&is_over);
        let done = work();
        drop(work_ends);
        match steps.join() {
            Ok(stepped) => stepped.and(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Notes in the trace what is promised, and beside it where each commit began.
struct Heard {
    disk: MemDisk,
    engine: Engine,
    /// Sequences, each with the number of operations before its call began.
    places: Mutex<Vec<(u64, usize)>>,
    levels: Mutex<Levels>,
}

impl Heard {
    fn acknowledged(&self, seq: u64) {
        self.disk.annotate(format!("{ACKNOWLEDGED}{seq}"));
    }
}

impl Listener for Heard {
    fn begins(&self) -> usize {
        self.disk.recorded_len()
    }

    fn ended(&self, receipt: &Receipt, began_at: Option<usize>) {
        let seq = receipt.seq().0;
        if receipt.durability() == Durability::Disk {
            self.acknowledged(seq);
        }
        if let Some(began_at) = began_at {
            self.places.lock().unwrap_or_else(PoisonError::into_inner).push((seq, began_at));
            let level = receipt.durability() as usize;
            self.levels.lock().unwrap_or_else(PoisonError::into_inner)[level] += 1;
        }
    }

    fn rests(&self, dice: &mut Dice) {
        self.disk.advance_clock(dice.below(20_000_000));
        match dice.below(40) {
            // A commit that the engine reports as durable is promised, too.
            0..=3 => self.acknowledged(self.engine.stats().commit.durable.0),
            // A failed checkpoint has poisoned the engine, which shows at the end of the life.
            4 => drop(self.engine.checkpoint()),
            _ => {}
        }
    }
}

/// The committed writers among the events, with where each began.
fn commits_of(events: &[Event], places: &[(u64, usize)]) -> Vec<Commit> {
    let writers = events.iter().filter(|event| event.fate == Fate::Committed);
    writers
        .map(|event| {
            let place = places.iter().find(|(seq, _)| *seq == event.seq.0);
            let (seq, began_at) = *place.expect("the listener heard of every commit");
            Commit { seq, began_at, effects: event.steps.iter().filter_map(effect_of).collect() }
        })
        .collect()
}

/// The engine's own last commit, if none with a receipt is after it. Those before it are known by their
/// places.
fn last_empty_commit(commits: &[Commit], published: u64) -> Option<Commit> {
    let is_last = commits.iter().all(|commit| commit.seq < published);
    is_last.then_some(Commit { seq: published, began_at: 0, effects: Vec::new() })
}

fn effect_of(step: &Step) -> Option<Effect> {
    Some(match step {
        Step::Put(tree, key, value) => {
            Effect::Put { tree: *tree, key: key.clone(), value: value.as_slice().into() }
        }
        Step::Delete(tree, key) => Effect::Delete { tree: *tree, key: key.clone() },
        Step::Create(name, id) => Effect::Create { name: name.to_string(), id: *id, sums: true },
        Step::Drop(name) => Effect::Drop { name: name.to_string() },
        _ => return None,
    })
}

/// Adds the engine's own commits, which reclaim dropped trees and have no receipts. Returns the history with
/// them, and their number. The newest of them may be after every receipt: only readers have seen it then.
fn with_empty_commits(mut events: Vec<Event>) -> (Vec<Event>, u64) {
    let mut known: Vec<u64> =
        events.iter().filter(|event| event.fate == Fate::Committed).map(|event| event.seq.0).collect();
    known.sort_unstable();
    let last = events.iter().map(|event| event.seq.0).max().unwrap_or(0);
    let empty = last - known.len() as u64;
    for seq in (1..=last).filter(|seq| known.binary_search(seq).is_err()) {
        events.push(Event {
            thread: usize::MAX,
            began: 0,
            ended: u64::MAX,
            seq: duramen_engine::CommitSeq(seq),
            fate: Fate::Committed,
            is_published: false,
            has_rested: false,
            steps: Vec::new(),
        });
    }
    (events, empty)
}

impl Life {
    /// Each promise with the operation from which it holds: right after the remark.
    #[must_use]
    pub fn promises(&self) -> Vec<(usize, u64)> {
        let remarks = self.trace.marks();
        remarks
            .filter_map(|(at, text)| Some((at + 1, text.strip_prefix(ACKNOWLEDGED)?.parse().ok()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use duramen_engine::CommitSeq;

    use super::{Event, Fate, check, with_empty_commits};

    fn event(seq: u64, fate: Fate) -> Event {
        let is_published = fate == Fate::Committed;
        Event {
            thread: 0,
            began: seq,
            ended: seq,
            seq: CommitSeq(seq),
            fate,
            is_published,
            has_rested: false,
            steps: Vec::new(),
        }
    }

    #[test]
    fn an_empty_commit_after_every_receipt_is_known_by_a_read_at_it() {
        let events = vec![event(1, Fate::Committed), event(3, Fate::Committed), event(4, Fate::Read)];
        let (events, empty) = with_empty_commits(events);
        assert_eq!(empty, 2, "commits 2 and 4 have no receipt");
        assert_eq!(check(&events).violations, Vec::<String>::new());
    }
}
