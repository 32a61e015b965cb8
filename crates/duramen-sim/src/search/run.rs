//! One seeded run: a workload on a recording disk, with everything that a database goes through.
//!
//! Owns the order of events and the hooks that make commits inside another's sync. The same seed gives the
//! same run, operation for operation.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use duramen_disk::memory::{Blocker, Trace};
use duramen_disk::{Disk, MemDisk, SyncMethod};
use duramen_engine::{Background, Durability, Engine, Error, Geometry, GiveBack, Hooks, Options, Snapshot};

use super::alone::commit_alone;
use super::compare::{check_is_clean, snapshot_equals};
use super::cuts::{LOG_DIR, LOG_DISK};
use super::model::{History, State};
use super::random::{Random, joined};
use super::shapes::{DIRECT_GEOMETRY, GEOMETRY, Shape, TEMPORARY, found_trees, splits_and_merges};
use super::writer::{Draft, Writer, failed};

/// Events of one run.
const EVENT_COUNT: usize = 70;

/// Consecutive idle periods, so that a dropped tree is reclaimed in several slices.
const QUIET_ROUNDS: usize = 3;

/// More than all changes of a run take; retained files hold an eighth of it each.
pub(crate) const FEED_BYTES: u64 = 1024 * 1024;

/// The error with which a run stops a compaction.
const STOPPED: &str = "stopped";

/// Where the database lies.
pub(crate) const PATH: &str = "/db";

/// A run, recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Its seed.
    pub seed: u64,
    /// Everything that changed the disk.
    pub trace: Trace,
    /// Everything that was committed.
    pub history: History,
    /// How the database was opened.
    pub options: Options,
    /// Number of operations after which its creation had returned.
    pub created_at: usize,
    /// Its identity.
    pub database: String,
}

struct Run {
    writer: Arc<Writer>,
    engine: Option<Engine>,
    options: Options,
    random: Random,
    held: Vec<(Snapshot, u64)>,
    /// Decides when to compact: in every second seed, so that the others run as without it.
    compacting: Option<Random>,
}

/// How the database of a seed is opened.
#[must_use]
pub fn options_of(seed: u64) -> Options {
    let mut random = Random::new(joined(seed, 2));
    let is_direct = random.chance(1, 6);
    // Direct writes need larger blocks: everything else is then larger, too.
    let (mut geometry, mut scale) = if is_direct { (DIRECT_GEOMETRY, 4) } else { (GEOMETRY, 1) };
    let compress = compresses(seed);
    let mut log_scale = scale as u64;
    if compress {
        // A leaf of one block saves none. Larger ones need more memory.
        (geometry.leaf_bytes_max, scale, log_scale) = (4 * geometry.block_bytes, 4, 4);
    } else if has_large_leaves(seed) {
        // The patch of a small leaf has room for one row.
        (geometry.leaf_bytes_max, scale) = (2 * geometry.block_bytes, 2 * scale);
    }
    Options {
        geometry,
        compress,
        patches: keeps_patches(seed),
        memory_bytes: *random.pick(&[56, 64, 96, 128]) * 1024 * scale,
        background: Background::Stepped,
        sync: Some(if is_direct { SyncMethod::DirectDsync } else { some_sync(&geometry, &mut random) }),
        checkpoint_log_bytes: Some(*random.pick(&[8, 16, 32]) * 1024 * log_scale),
        wal_dir: random.chance(1, 3).then(|| LOG_DIR.into()),
        feed_retain_bytes: if keeps_feed(seed) { FEED_BYTES } else { 0 },
        feed_bytes_max: FEED_BYTES,
        give_back: GiveBack { kept_patch_percent: *random.pick(&[0, 0, 2]), ..GiveBack::default() },
        ..Options::default()
    }
}

/// Whether the run of a seed keeps every change for the feed: in every second one.
#[must_use]
pub fn keeps_feed(seed: u64) -> bool {
    Random::new(joined(seed, 5)).chance(1, 2)
}

/// Whether the run of a seed compresses pages: every third one.
#[must_use]
pub fn compresses(seed: u64) -> bool {
    Random::new(joined(seed, 7)).chance(1, 3)
}

/// Whether the run of a seed writes patches: three of four.
#[must_use]
pub fn keeps_patches(seed: u64) -> bool {
    Random::new(joined(seed, 8)).chance(3, 4)
}

/// Whether leaves of a seed are larger than a block, whether they are compressed or not.
#[must_use]
pub fn has_large_leaves(seed: u64) -> bool {
    Random::new(joined(seed, 9)).chance(1, 2)
}

/// Whether the run of a seed compacts: every second one.
#[must_use]
pub fn compacts(seed: u64) -> bool {
    Random::new(joined(seed, 6)).chance(1, 2)
}

/// A sync method that works with such blocks.
pub fn some_sync(geometry: &Geometry, random: &mut Random) -> SyncMethod {
    if *geometry == DIRECT_GEOMETRY && random.chance(1, 2) {
        return SyncMethod::DirectDsync;
    }
    *random.pick(&[SyncMethod::Fdatasync, SyncMethod::Fdatasync, SyncMethod::Dsync])
}

/// A disk before the database is created. If the log is to be elsewhere, another disk is mounted, and in some
/// runs the log's directory is already on it.
///
/// # Errors
/// Never, with a memory disk.
pub fn prepared(seed: u64, options: &Options) -> std::io::Result<MemDisk> {
    let disk = MemDisk::new(seed);
    if options.wal_dir.is_some() {
        disk.create_dir(Path::new(LOG_DISK))?;
        disk.sync_dir(Path::new("/"))?;
        if Random::new(joined(seed, 4)).chance(1, 3) {
            disk.create_dir(Path::new(LOG_DIR))?;
            disk.sync_dir(Path::new(LOG_DISK))?;
        }
    }
    Ok(disk)
}

/// Opens the database of a disk.
///
/// # Errors
/// The engine's error.
pub fn open(disk: &MemDisk, options: &Options) -> Result<Engine, String> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::open(disk, Path::new(PATH), options.clone(), Hooks::default()).map_err(failed("open"))
}

/// Runs the workload of a seed.
///
/// # Errors
/// A failure without any cut.
pub fn run(seed: u64) -> Result<Recorded, String> {
    let options = options_of(seed);
    let disk = prepared(seed, &options).map_err(|e| e.to_string())?;
    disk.record();
    let engine = open(&disk, &options)?;
    let created_at = disk.recorded_len();
    let database = engine.durability_status().database.to_string();
    let history = History::starting(0, State::default());
    let writer = Arc::new(Writer::new(disk.clone(), history));
    let mut run = Run {
        writer,
        engine: Some(engine),
        options,
        random: Random::new(joined(seed, 1)),
        held: Vec::new(),
        compacting: compacts(seed).then(|| Random::new(joined(seed, 7))),
    };
    let mut draft = Draft::begin(run.engine())?;
    found_trees(&mut draft.filling(), &State::default()).map_err(failed("fill"))?;
    run.writer.commit(draft, Durability::Disk)?;
    for _ in 0..EVENT_COUNT {
        run.event()?;
        run.maybe_compact()?;
        run.writer.verdict()?;
        run.writer.note_durable(run.engine());
    }
    run.look()?;
    let Run { writer, engine, options, held, .. } = run;
    drop(held);
    engine.expect("a run ends open").abandon();
    let trace = disk.stop_recording();
    let history = writer.take_history();
    Ok(Recorded { seed, trace, history, options, created_at, database })
}

/// A level, most often the strongest.
pub fn some_level(random: &mut Random) -> Durability {
    *random.pick(&[Durability::Disk, Durability::Disk, Durability::Process, Durability::Memory])
}

impl Run {
    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is taken only while it is reopened")
    }

    fn event(&mut self) -> Result<(), String> {
        match self.random.below(41) {
            0..=11 => self.transaction(Shape::Small),
            12..=13 => self.transaction(Shape::Bulk),
            14..=15 => self.transaction(Shape::Shrink),
            16..=19 => self.transaction(Shape::Big),
            20..=21 => self.transaction(Shape::Catalogue),
            22..=23 => self.given_up(),
            24..=26 => self.ordered_in_a_sync(),
            27..=29 => self.checkpoint(),
            30..=31 => self.step(),
            32 => self.quiet(),
            33 => self.idle(1100),
            34..=35 => self.hold(),
            36 => self.let_go(),
            37 => self.look(),
            38 => self.reopen(true),
            39 => self.reopen(false),
            _ => self.alone(),
        }
    }

    /// Fills a transaction, and notes in the trace what it is.
    fn draft(&mut self, shape: Shape) -> Result<Draft, String> {
        let state = self.writer.latest();
        let disk = &self.writer.disk;
        let mut draft = Draft::begin(self.engine())?;
        disk.annotate("values");
        shape.fill(&mut draft.filling(), &state, &mut self.random).map_err(failed("fill"))?;
        let (splits, merges) = splits_and_merges(&state, draft.effects());
        let splits = if splits { " split" } else { "" };
        let merges = if merges { " merge" } else { "" };
        self.writer.disk.annotate(format!("commit {}{splits}{merges}", shape.name()));
        Ok(draft)
    }

    fn transaction(&mut self, shape: Shape) -> Result<(), String> {
        let draft = self.draft(shape)?;
        let level = some_level(&mut self.random);
        self.writer.commit(draft, level)?;
        self.writer.disk.annotate("committed");
        if level != Durability::Disk && self.random.chance(1, 3) {
            // A later commit at the strongest level promises the earlier ones.
            let draft = self.draft(Shape::Small)?;
            self.writer.commit(draft, Durability::Disk)?;
            self.writer.disk.annotate("committed");
        }
        Ok(())
    }

    /// A transaction that meets conflicts until it runs under the order lock; sometimes the next group is
    /// ordered during its sync.
    fn alone(&mut self) -> Result<(), String> {
        let shape = *self.random.pick(&[Shape::Small, Shape::Big, Shape::Bulk, Shape::Catalogue]);
        let level = some_level(&mut self.random);
        let blocker = self.random.chance(1, 3).then(|| self.blocker(".wal"));
        let (writer, engine) = (Arc::clone(&self.writer), self.engine().clone());
        let committed = commit_alone(&writer, &engine, shape, level, &mut self.random, blocker);
        self.writer.disk.set_blocker(None);
        self.writer.disk.annotate("committed");
        committed
    }

    fn given_up(&mut self) -> Result<(), String> {
        let shape = *self.random.pick(&[Shape::Small, Shape::Big, Shape::Catalogue]);
        drop(self.draft(shape)?);
        self.writer.disk.annotate("given up");
        Ok(())
    }

    /// One group syncs while the next is ordered: the disk's hook commits inside the sync.
    fn ordered_in_a_sync(&mut self) -> Result<(), String> {
        let shape = *self.random.pick(&[Shape::Small, Shape::Small, Shape::Bulk, Shape::Big]);
        let draft = self.draft(shape)?;
        let path_part = if self.random.chance(3, 4) { ".wal" } else { "/data" };
        self.arm(path_part);
        let committed = self.writer.commit(draft, Durability::Disk);
        self.writer.disk.set_blocker(None);
        self.writer.disk.annotate("committed");
        committed.map(drop)
    }

    /// Makes one of the next syncs of a file commit.
    fn arm(&mut self, path_part: &'static str) {
        let blocker = self.blocker(path_part);
        self.writer.disk.set_blocker(Some(blocker));
    }

    /// The hook that [`Run::arm`] sets.
    fn blocker(&mut self, path_part: &'static str) -> Blocker {
        let (writer, engine) = (Arc::clone(&self.writer), self.engine().clone());
        let seed = self.random.bits();
        let wait = AtomicUsize::new(self.random.below(2));
        let place = if path_part == ".wal" { Place::LogSync } else { Place::DataSync };
        Arc::new(move |path: &Path| {
            if !path.to_string_lossy().contains(path_part) {
                return;
            }
            let left = wait.fetch_sub(1, Ordering::Relaxed);
            if left == 0 {
                inner_commits(&writer, &engine, &mut Random::new(seed), place);
            }
        })
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        if self.random.chance(1, 2) {
            self.arm("/data");
        }
        let disk = self.writer.disk.clone();
        let (writer, engine) = (Arc::clone(&self.writer), self.engine().clone());
        let random = &mut self.random;
        let mut resident_bytes = engine.stats().resident_bytes;
        let quiet = random.chance(1, 3);
        disk.annotate("checkpoint");
        let (began_at, merged_before) = (disk.recorded_len(), engine.stats().leaves_merged);
        let mut is_merging = true;
        let mut after_merging = || {
            writer.made_empty(&engine, began_at);
            if std::mem::take(&mut is_merging) && engine.stats().leaves_merged > merged_before {
                disk.annotate("merged");
            }
        };
        let written = engine.checkpoint_with(&mut || {
            after_merging();
            let now = engine.stats().resident_bytes;
            if now < resident_bytes {
                disk.annotate("evicted");
            }
            if !quiet && random.chance(1, 3) {
                inner_commits(&writer, &engine, random, Place::Checkpoint);
            }
            resident_bytes = engine.stats().resident_bytes;
        });
        self.writer.disk.set_blocker(None);
        after_merging();
        written.map_err(failed("checkpoint"))?;
        self.writer.disk.annotate("checkpointed");
        Ok(())
    }

    /// Compacts now and then, with commits between slices. Sometimes it is stopped.
    fn maybe_compact(&mut self) -> Result<(), String> {
        let Some(random) = self.compacting.as_mut() else { return Ok(()) };
        if !random.chance(1, 12) {
            return Ok(());
        }
        let (writer, engine) = (Arc::clone(&self.writer), self.engine.clone().expect("a run goes on open"));
        let (stops, is_quiet) = (random.chance(1, 4), random.chance(1, 2));
        writer.disk.annotate("compact");
        let mut began_at = writer.disk.recorded_len();
        let compacted = engine.compact(&mut |_| {
            writer.made_empty(&engine, began_at);
            if !is_quiet && random.chance(1, 3) {
                inner_commits(&writer, &engine, random, Place::Checkpoint);
            }
            began_at = writer.disk.recorded_len();
            if stops && random.chance(1, 6) { Err(Error::invalid(STOPPED)) } else { Ok(()) }
        });
        writer.made_empty(&engine, began_at);
        writer.disk.annotate("compacted");
        match compacted {
            Err(error) if error.message() == STOPPED => Ok(()),
            compacted => compacted.map(drop).map_err(failed("compact")),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.writer.disk.annotate("step");
        let merged_before = self.engine().stats().leaves_merged;
        let made_commits = self.writer.step(self.engine())?;
        let merged = self.engine().stats().leaves_merged > merged_before;
        self.writer.disk.annotate(match made_commits {
            true if merged => "stepped, merged",
            true => "stepped, empty commit",
            false => "stepped",
        });
        Ok(())
    }

    /// Drops a tree, if there is one, and then commits nothing: its pages must be reclaimed all the same.
    fn quiet(&mut self) -> Result<(), String> {
        let state = self.writer.latest();
        if let Some(name) = state.trees.keys().find(|name| name.starts_with(TEMPORARY)) {
            let mut draft = Draft::begin(self.engine())?;
            draft.filling().drop_tree(name).map_err(failed("drop_tree"))?;
            self.writer.disk.annotate("commit catalogue");
            self.writer.commit(draft, Durability::Disk)?;
            self.writer.disk.annotate("committed");
            self.checkpoint()?;
        }
        (0..QUIET_ROUNDS).try_for_each(|_| self.idle(150))
    }

    fn idle(&mut self, ms: u64) -> Result<(), String> {
        self.step()?;
        self.writer.disk.advance_clock(ms * 1_000_000);
        self.step()
    }

    fn hold(&mut self) -> Result<(), String> {
        let snapshot = self.engine().snapshot().map_err(failed("snapshot"))?;
        let seq = snapshot.seq().0;
        self.held.push((snapshot, seq));
        Ok(())
    }

    /// Checks that a held snapshot is unchanged, whatever has been freed since.
    fn let_go(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (snapshot, seq) = self.held.swap_remove(self.random.below(self.held.len()));
        self.snapshot_holds(&snapshot, seq)
    }

    fn snapshot_holds(&mut self, snapshot: &Snapshot, seq: u64) -> Result<(), String> {
        let state = self.writer.history().at(seq).cloned();
        let state = state.ok_or_else(|| format!("a snapshot of commit {seq}, which was never made"))?;
        snapshot_equals(snapshot, &state, &mut self.random)
            .map_err(|what| format!("snapshot of commit {seq}: {what}"))
    }

    /// Compares everything with the model, without any cut.
    fn look(&mut self) -> Result<(), String> {
        let snapshot = self.engine().snapshot().map_err(failed("snapshot"))?;
        let (seq, last) = (snapshot.seq().0, self.writer.history().last_seq());
        if seq != last {
            return Err(format!("commit {seq} is published, and {last} was the last"));
        }
        self.snapshot_holds(&snapshot, seq)?;
        drop(snapshot);
        check_is_clean(self.engine())
    }

    fn reopen(&mut self, cleanly: bool) -> Result<(), String> {
        self.held.clear();
        let engine = self.engine.take().expect("the engine is taken only while it is reopened");
        if cleanly {
            self.writer.disk.annotate("close");
            engine.close().map_err(failed("close"))?;
            self.writer.promise_all();
            drop(engine);
        } else {
            engine.abandon();
        }
        self.writer.disk.annotate("open");
        // Alternately with redo at once and with deferred redo.
        let answer_before_replay = Some(self.writer.history().last_seq().is_multiple_of(2));
        let options = Options { answer_before_replay, ..self.options.clone() };
        self.engine = Some(open(&self.writer.disk, &options)?);
        self.writer.disk.annotate("opened");
        // What was handed to the kernel survives the end of the process, and is synced before reads return
        // it.
        self.writer.promise_all();
        self.look()
    }
}

/// Where commits are made inside another operation. A commit that needs that operation to end would deadlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a sync of the log: no commit may wait for the log.
    LogSync,
    /// In a sync of the data file: no big values, as their extents are synced before a record names them.
    DataSync,
    /// Between two slices of a checkpoint.
    Checkpoint,
}

/// Commits during another commit or a checkpoint, to trees that are not dropped meanwhile.
fn inner_commits(writer: &Writer, engine: &Engine, random: &mut Random, place: Place) {
    writer.disk.annotate("inner commit");
    for _ in 0..random.between(1, 3) {
        let level = if place == Place::LogSync { Durability::Memory } else { some_level(random) };
        let is_big = place != Place::DataSync && random.chance(1, 4);
        let shape = if is_big { Shape::Big } else { Shape::Small };
        if let Err(what) = inner_commit(writer, engine, random, shape, level) {
            writer.fail(format!("inside a sync or a checkpoint: {what}"));
        }
    }
    writer.disk.annotate(if place == Place::LogSync { "ordered in a sync" } else { "inner committed" });
}

fn inner_commit(
    writer: &Writer,
    engine: &Engine,
    random: &mut Random,
    shape: Shape,
    level: Durability,
) -> Result<(), String> {
    let mut state = writer.latest();
    state.trees.retain(|name, _| !name.starts_with(TEMPORARY));
    let mut draft = Draft::begin(engine)?;
    shape.fill(&mut draft.filling(), &state, random).map_err(failed("fill"))?;
    writer.commit(draft, level).map(drop)
}
