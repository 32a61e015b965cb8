//! Opening and creating. Opening takes the locks first, then reads the checkpoint, then the log. A new
//! database is durable before it counts as one.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use duramen_disk::{Access, Disk, File, SyncMethod};

use super::deferred_redo::{DeferredRedo, Served, give_memory_back};
use super::directory::{
    DATA, DATA_NEW, LOCK, WAL, check_file_systems, data_lost, directory_of, kind, lock, lock_log,
    of_a_database, prepare_directory, prepare_log_directory, refuse_later_readers, sync_above, without_data,
};
use super::event::{Event, Events};
use super::feeding::Feeding;
use super::maintenance::Maintenance;
use super::stats::RecoveryStats;
use super::{Engine, Hooks, Inner, Mode, copy, method, start_threads};
use crate::alarm::locked_if_free;
use crate::catalog::{CATALOG, Root};
use crate::checkpoint::{Checkpointer, Store, make_durable};
use crate::commit::{Committer, Proposer, Throttle};
use crate::data_file::{SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::feed::{Covered, FeedBounds, Retained};
use crate::ids::{CommitSeq, DatabaseId, Generation, LogId, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::{Background, Durability, Options};
use crate::overlay::ForkLimit;
use crate::recovery::{Loaded, Replay, Replayed, load, replay};
use crate::snapshot::{Locks, Newest};
use crate::threads::processors;
use crate::tree::evict;
use crate::wal::{Continued, Log, LogIdentity, draw};

/// A log of at most this part of the memory is read into it at once, and its redo may be deferred.
const REPLAY_MEMORY_PART: usize = 2;

/// One query applies at most one change of an overlay for each so many bytes of memory. In the worst case
/// each needs a leaf.
const FORK_MEMORY_PART: usize = 2048;

/// If a replay reads more segments than this, opening requests a checkpoint.
const CHAIN_SEGMENTS_MAX: usize = 8;

/// The generation of the second superblock that a creation writes.
const CREATED_GENERATION: Generation = Generation(2);

const _: () = assert!(CREATED_GENERATION.0 == 2, "a creation writes generations 1 and 2, each to its slot");

pub(super) fn open(disk: Arc<dyn Disk>, path: &Path, options: Options, hooks: Hooks) -> Result<Engine> {
    open_as(disk, path, options, hooks, None)
}

/// Opens a database alone, or as the node of a cluster that this proposer speaks for.
pub(super) fn open_as(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: Options,
    hooks: Hooks,
    proposer: Option<Arc<dyn Proposer>>,
) -> Result<Engine> {
    check_options(&options)?;
    let wal_dir = options.wal_dir.clone().unwrap_or_else(|| path.join(WAL));
    let may_create = options.create && !options.read_only;
    prepare_directory(&*disk, path, &wal_dir, may_create)?;
    check_file_systems(&*disk, path, &wal_dir, &options)?;
    let data = path.join(DATA);
    let locked = lock(&*disk, &path.join(LOCK), &options);
    if locked.as_ref().is_err_and(|error| error.code() == Code::NotADatabase)
        && kind(&*disk, &data)?.is_none()
    {
        // A creation that was cut short before its lock had a name.
        return Err(without_data(&*disk, path, &wal_dir, &options));
    }
    let mut locks = vec![locked?];
    if options.read_only {
        // Once more under the lock, which a node holds that takes a copy over: it may have begun meanwhile.
        copy::refuse_unfinished(&*disk, path)?;
    } else {
        refuse_later_readers(&*disk, path)?;
    }
    let is_new = kind(&*disk, &data)?.is_none();
    if is_new && !may_create {
        return Err(without_data(&*disk, path, &wal_dir, &options));
    }
    if !options.read_only {
        prepare_log_directory(&*disk, path, &wal_dir, is_new)?;
        // Before anything there is read or changed: the log may belong to another database that is in use
        // (D1, D8).
        locks.push(lock_log(&*disk, &wal_dir, &options)?);
    }
    if is_new {
        create(&disk, path, &wal_dir, &options)?;
    }
    let mode = if options.read_only { Access::READ } else { Access::WRITE };
    let file = disk.open(&data, mode).map_err(|e| Error::io("open", &data, &e))?;
    let opening = Opening { options, hooks, proposer, locks: Arc::new(locks) };
    assemble(disk, path, wal_dir, file, opening)
}

/// How a database is opened.
struct Opening {
    options: Options,
    hooks: Hooks,
    proposer: Option<Arc<dyn Proposer>>,
    locks: Arc<Locks>,
}

fn assemble(
    disk: Arc<dyn Disk>,
    path: &Path,
    wal_dir: PathBuf,
    file: Arc<dyn File>,
    opening: Opening,
) -> Result<Engine> {
    let Opening { options, hooks, proposer, locks } = opening;
    let loaded = load(file, &path.join(DATA), &options, proposer.is_some(), &hooks.reducers)
        .map_err(|error| of_a_database(error, &*disk, &path.join(DATA), &wal_dir, &options))?;
    let replayed = run_replay(&*disk, &wal_dir, &loaded, &options)?;
    let recovered = RecoveryStats::new(&replayed.log);
    let store = Arc::clone(&loaded.store);
    let (feed, log_identity) = open_feed(&disk, path, &loaded, &options)?;
    let feed_rule = hooks.feed.clone();
    store.registry.share_locks(&locks);
    let events = Events(hooks.on_event);
    events.tell(&recovered.event());
    warn_of_worthless_syncs(&*disk, path, &wal_dir, &options, &events);
    let sync = method::in_use(&*disk, &wal_dir, &options, loaded.superblock.sync.as_ref())?;
    let (mode, deferred_redo, threads) = if options.read_only {
        let Replayed { trees, seq, tail, .. } = replayed;
        let position = std::sync::OnceLock::new();
        let root =
            Arc::new(Newest::new(Arc::new(Root { seq, rollback_epoch: 0, time_ns: 0, trees, position })));
        evict_when_full(&store, &root);
        let served = Served::Readers(Arc::clone(&root));
        let deferred_redo = match tail {
            Some(tail) => DeferredRedo::of(tail, &store, threads_of(&options), served),
            None => DeferredRedo::done(seq),
        };
        let catalogue = loaded.trees.get(CATALOG).and_then(|tree| tree.slot.clone());
        let superblock = Box::new(loaded.superblock);
        (Mode::Read { root, roots: loaded.roots, catalogue, superblock }, deferred_redo, None)
    } else {
        make_durable(&loaded.superblock, loaded.leads_nowhere, store.pages.data())?;
        // After `make_durable`: a superblock that was misread once may lead to files that this one does not
        // use.
        feed.settle(covered_by(&loaded))?;
        make_names_durable(&*disk, path, &wal_dir, &loaded)?;
        let feeding = Feeding::new(&feed, feed_rule.as_ref(), &disk, &wal_dir, log_identity);
        let setup = WriterSetup { options: &options, sync: sync.0, events, feeding, proposer };
        let (committer, maintenance, deferred_redo) = writer(&disk, &wal_dir, loaded, replayed, setup)?;
        let threads = start_threads(&maintenance, &deferred_redo, &options, &locks)?;
        (Mode::Write { committer, maintenance }, deferred_redo, threads)
    };
    let inner = Inner {
        store,
        mode,
        deferred_redo,
        disk,
        path: path.to_owned(),
        wal_dir,
        options,
        sync,
        recovered,
        feed,
        feed_rule,
        log_identity,
        threads: Mutex::new(threads),
        locks,
        process: duramen_disk::process_id(),
        left: AtomicBool::new(false),
    };
    Ok(Engine { inner: Arc::new(inner) })
}

fn open_feed(
    disk: &Arc<dyn Disk>,
    path: &Path,
    loaded: &Loaded,
    options: &Options,
) -> Result<(Arc<Retained>, LogIdentity)> {
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let bounds = FeedBounds {
        retain_bytes: options.feed_retain_bytes.min(options.feed_bytes_max),
        retain_age_ns: u64::try_from(options.feed_retain_age.as_nanos()).unwrap_or(u64::MAX),
        bytes_max: options.feed_bytes_max,
    };
    let feed =
        Retained::open(disk, path, identity, superblock.geometry.block_bytes, bounds, covered_by(loaded))?;
    Ok((feed, identity))
}

fn make_names_durable(disk: &dyn Disk, path: &Path, wal_dir: &Path, loaded: &Loaded) -> Result<()> {
    if loaded.superblock.generation <= CREATED_GENERATION {
        return sync_names(disk, path, wal_dir);
    }
    // A copy is finished by removing its mark. If the mark came back after a power cut, commits acknowledged
    // from here on could not be opened (D1).
    disk.sync_dir(path).map_err(|e| Error::io("sync", path, &e))
}

fn covered_by(loaded: &Loaded) -> Covered {
    Covered { boundary: loaded.superblock.replay.seq, is_alone: loaded.is_alone }
}

fn run_replay(disk: &dyn Disk, wal_dir: &Path, loaded: &Loaded, options: &Options) -> Result<Replayed> {
    let is_simulated = options.background == Background::Stepped;
    let threads = threads_of(options);
    // A simulation is small, and tests every query through the overlay.
    let changes_max = if is_simulated { usize::MAX } else { options.memory_bytes / FORK_MEMORY_PART };
    let overlay = options.answer_before_replay.unwrap_or(!is_simulated);
    let overlay = overlay.then_some(ForkLimit { changes_max, threads });
    let batch_bytes = options.memory_bytes / REPLAY_MEMORY_PART;
    let mut between = |trees: &_| give_memory_back(&loaded.store, trees);
    replay(loaded, &mut Replay { disk, wal_dir, threads, batch_bytes, overlay, between: &mut between })
}

/// Number of threads. A simulation counts reads of the disk, which must come in one order.
fn threads_of(options: &Options) -> usize {
    if options.background == Background::Stepped { 1 } else { processors() }
}

/// What a database that is opened for writing has besides its files.
struct WriterSetup<'o> {
    options: &'o Options,
    sync: SyncMethod,
    events: Events,
    feeding: Feeding,
    proposer: Option<Arc<dyn Proposer>>,
}

fn writer(
    disk: &Arc<dyn Disk>,
    wal_dir: &Path,
    loaded: Loaded,
    replayed: Replayed,
    setup: WriterSetup<'_>,
) -> Result<(Arc<Committer>, Arc<Maintenance>, Arc<DeferredRedo>)> {
    let WriterSetup { options, sync, events, feeding, proposer } = setup;
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let geometry = superblock.geometry;
    let gave_room = Cell::new(false);
    let give_room = |bytes| {
        gave_room.set(true);
        loaded.store.space.give_up_ahead(bytes)
    };
    let (recovered, marked) = (&replayed.log, replayed.log.last_seq);
    let continued = Continued { recovered, keep_from: loaded.older, marked, give_room: &give_room };
    let log = Log::reopen(disk, wal_dir, identity, geometry, sync, continued)?;
    let seq = replayed.seq;
    let root = Root::at(seq, replayed.trees, log.position());
    let throttle = Throttle::new(options.background == Background::Stepped);
    // Each opening after a crash continues in a new segment. Only a checkpoint releases the older ones.
    if gave_room.get() || replayed.log.chain_len() > CHAIN_SEGMENTS_MAX {
        throttle.ask();
    }
    let committer = Committer::new(Arc::clone(&loaded.store), log, root, replayed.next_tree, throttle);
    if let Some(proposer) = proposer {
        // Before a thread starts that could commit something.
        committer.become_replica(proposer);
    }
    committer.found_durable(replayed.log.last_seq);
    committer.add_log_bytes(replayed.log.record_bytes);
    let Loaded { store, superblock, older, roots, trees, .. } = loaded;
    let hot = superblock.hot.filter(|_| superblock.clean);
    let checkpointer = Checkpointer::new(store, superblock, older, roots, trees);
    let committer = Arc::new(committer);
    let alarm = Arc::clone(&committer.store().alarm);
    committer.store().space.on_contradiction(move |error| alarm.raise(error))?;
    let waiting = Arc::downgrade(&committer);
    committer.store().alarm.wake_by(move |wakes| {
        if let Some(committer) = waiting.upgrade() {
            committer.wake(wakes);
        }
    });
    let served = Served::Committer(Arc::clone(&committer));
    let deferred_redo = match replayed.tail {
        Some(tail) => DeferredRedo::of(tail, committer.store(), threads_of(options), served),
        None => DeferredRedo::done(seq),
    };
    let maintenance = Arc::new(Maintenance::new(&committer, checkpointer, disk, options, events, feeding));
    maintenance.warm(hot);
    let evictor = Arc::downgrade(&maintenance);
    maintenance.store().pages.meter().set_evictor(Box::new(move || {
        if let Some(maintenance) = evictor.upgrade() {
            maintenance.evict();
        }
    }));
    Ok((committer, maintenance, deferred_redo))
}

/// Reports syncs that mean nothing (D1).
fn warn_of_worthless_syncs(disk: &dyn Disk, path: &Path, wal_dir: &Path, options: &Options, events: &Events) {
    if options.read_only || options.durability != Durability::Disk || events.0.is_none() {
        return;
    }
    let elsewhere = (wal_dir.parent() != Some(path)).then_some(wal_dir);
    let why =
        [Some(path), elsewhere].into_iter().flatten().find_map(|path| disk.why_syncs_are_worthless(path));
    if let Some(why) = why {
        events.tell(&Event::DiskLevelNotKept { why });
    }
}

/// Lets a read-only database evict nodes, as maintenance does for a writer.
fn evict_when_full(store: &Arc<Store>, newest: &Arc<Newest>) {
    // Weak references: nodes hold the meter, and the root holds the nodes.
    let (store, newest) = (Arc::downgrade(store), Arc::downgrade(newest));
    let pages = store.upgrade().expect("just given");
    let evicting = Mutex::new(());
    pages.pages.meter().set_evictor(Box::new(move || {
        // The reduction of a patch may need a value, and reading that finds the memory full again.
        let Some(_one_at_a_time) = locked_if_free(evicting.try_lock()) else { return };
        let (Some(store), Some(newest)) = (store.upgrade(), newest.upgrade()) else { return };
        let root = newest.get();
        let meter = store.pages.meter();
        let enough = || meter.eviction_target(80) == 0;
        // Two rounds: the first clears the use bits.
        for tree in root.trees.iter().chain(root.trees.iter()) {
            let reducer = tree.reducer.as_deref();
            tree.slot.iter().for_each(|slot| drop(evict((&store.pages, reducer), slot, &[], &enough)));
        }
        meter.evicted(enough());
    }));
}

fn check_options(options: &Options) -> Result<()> {
    check_memory(options.memory_bytes, options)?;
    if !options.geometry.is_sound() {
        return Err(Error::invalid("the sizes in Options::geometry do not fit together"));
    }
    Ok(())
}

/// Checks a memory target.
pub(super) fn check_memory(memory_bytes: usize, options: &Options) -> Result<()> {
    // A simulation uses little memory, so that little data causes eviction and write-back.
    let is_simulated = options.background == Background::Stepped;
    if memory_bytes >= MEMORY_BYTES_MIN || is_simulated {
        return Ok(());
    }
    let message = format!("memory_bytes is {memory_bytes}, at least {MEMORY_BYTES_MIN} are needed");
    Err(Error::invalid(message))
}

/// Creates a database in directories that exist and are locked. The data file is named last. A directory
/// without one counts as empty, and its creation starts again.
fn create(disk: &Arc<dyn Disk>, path: &Path, wal_dir: &Path, options: &Options) -> Result<()> {
    let identity = LogIdentity { database: DatabaseId(draw(&**disk)), log: LogId(draw(&**disk)) };
    let sync = method::choose(&**disk, wal_dir, options)?;
    let method = options.sync.or(sync.map(|choice| choice.method)).unwrap_or_default();
    let made = Log::create(disk, wal_dir, identity, options.geometry, method, CommitSeq(0));
    let (log, replay) = made.map_err(|error| match error.code() {
        Code::AlreadyExists => data_lost(path, wal_dir),
        _ => error,
    })?;
    drop(log);
    let fresh = path.join(DATA_NEW);
    let data = path.join(DATA);
    if kind(&**disk, &fresh)?.is_some() {
        disk.remove(&fresh).map_err(|e| Error::io("remove", &fresh, &e))?;
    }
    let file = disk.open(&fresh, Access::CREATE).map_err(|e| Error::io("create", &fresh, &e))?;
    for generation in [Generation(1), CREATED_GENERATION] {
        let superblock = Superblock {
            write_features: 0,
            features: Features::NONE,
            database: identity.database,
            log: identity.log,
            generation,
            replay,
            marked: CommitSeq(0),
            roots: None,
            space: None,
            hot: None,
            end_block: 0,
            next_tree: TreeId(1),
            geometry: options.geometry,
            clean: false,
            sync,
        };
        let slot = usize::from(generation.0 % 2 == 1);
        let written = file.write_at(&superblock.encode(), SUPERBLOCK_OFFSETS[slot]);
        written.map_err(|e| Error::io("write", &fresh, &e.source))?;
        file.sync_data().map_err(|e| Error::io("sync", &fresh, &e))?;
    }
    // The log's name is durable before the data file is named: data without a log is corruption, and no
    // unfinished creation.
    let logs = directory_of(wal_dir);
    disk.sync_dir(logs).map_err(|e| Error::io("sync", logs, &e))?;
    sync_above(&**disk, wal_dir)?;
    disk.rename(&fresh, &data).map_err(|e| Error::io("rename", &fresh, &e))
}

/// Makes the names of a database durable, those of its directory and of all above it included. Every open
/// does so until the first checkpoint. A creation may have been cut short between naming the data file and
/// this, with the names only in the kernel's cache (D1).
fn sync_names(disk: &dyn Disk, path: &Path, wal_dir: &Path) -> Result<()> {
    for directory in [directory_of(wal_dir), path, directory_of(path)] {
        disk.sync_dir(directory).map_err(|e| Error::io("sync", directory, &e))?;
    }
    sync_above(disk, wal_dir)?;
    sync_above(disk, path)
}

impl RecoveryStats {
    fn event(&self) -> Event {
        Event::Recovered {
            record_count: self.record_count,
            unmarked_group_count: self.unmarked_group_count,
            torn: self.torn,
        }
    }
}
