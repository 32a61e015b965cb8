//! Opening and creating: locks first, then the checkpoint, then the log; or everything new, durable before it counts.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use duramen_disk::{Access, Disk, File, Lock, LockError, PathKind};

use super::event::{Event, Events};
use super::keeper::Keeper;
use super::stats::RecoveryStats;
use super::{Engine, Hooks, Inner, Mode, start_threads};
use crate::catalog::{Root, TreeTable};
use crate::checkpoint::{Checkpointer, Store};
use crate::commit::{Committer, Throttle};
use crate::data_file::{SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, DatabaseId, Generation, LogId, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::{Background, Options};
use crate::recovery::{Loaded, Replay, Replayed, load, replay};
use crate::snapshot::Locks;
use crate::threads::processors;
use crate::tree::sweep;
use crate::wal::{Log, LogIdentity, missing};

/// That of the second superblock a creation writes.
const CREATED_GENERATION: Generation = Generation(2);

const DATA: &str = "data";
const DATA_NEW: &str = "data.new";
const LOCK: &str = "lock";
const WAL: &str = "wal";
/// Reserved: a later release lets readers of other processes say here what they look at.
const READERS: &str = "readers";

pub fn open(disk: Arc<dyn Disk>, path: &Path, options: Options, hooks: Hooks) -> Result<Engine> {
    check_options(&options)?;
    let wal_dir = options.wal_dir.clone().unwrap_or_else(|| path.join(WAL));
    let may_create = options.create && !options.read_only;
    prepare_directory(&*disk, path, &wal_dir, may_create)?;
    check_file_system(&*disk, path, &options)?;
    let mut locks = vec![lock(&*disk, &path.join(LOCK), &options)?];
    if !options.read_only {
        refuse_later_readers(&*disk, path)?;
    }
    let data = path.join(DATA);
    if kind(&*disk, &data)?.is_none() {
        if !may_create {
            return Err(without_data(&*disk, path, &wal_dir, &options));
        }
        create(&disk, path, &wal_dir, &options)?;
    }
    if !options.read_only {
        if kind(&*disk, &wal_dir)?.is_none() {
            return Err(missing(&wal_dir, "the directory"));
        }
        locks.push(lock(&*disk, &wal_dir.join(LOCK), &options)?);
    }
    let mode = if options.read_only { Access::READ } else { Access::WRITE };
    let file = disk.open(&data, mode).map_err(|e| Error::io("open", &data, &e))?;
    assemble(disk, path, wal_dir, file, options, hooks, Arc::new(locks))
}

fn assemble(
    disk: Arc<dyn Disk>,
    path: &Path,
    wal_dir: PathBuf,
    file: Arc<dyn File>,
    options: Options,
    hooks: Hooks,
    locks: Arc<Locks>,
) -> Result<Engine> {
    let loaded = load(file, &path.join(DATA), &options, &hooks.reducers)?;
    let replayed = run_replay(&*disk, &wal_dir, &loaded, &options)?;
    let recovered = RecoveryStats::new(&replayed.log);
    let store = Arc::clone(&loaded.store);
    store.registry.share_locks(&locks);
    let events = Events(hooks.on_event);
    events.tell(&recovered.event());
    let (mode, threads) = if options.read_only {
        let Replayed { trees, seq, .. } = replayed;
        let position = std::sync::OnceLock::new();
        let root = Arc::new(Root { seq, lineage: 0, trees, position });
        sweep_when_full(&store, &root);
        (Mode::Read { root, roots: loaded.roots, superblock: Box::new(loaded.superblock) }, None)
    } else {
        if loaded.superblock.generation <= CREATED_GENERATION {
            sync_names(&*disk, path, &wal_dir)?;
        }
        let (committer, keeper) = writer(&disk, &wal_dir, loaded, replayed, &options, events)?;
        let threads = start_threads(&keeper, &options)?;
        (Mode::Write { committer, keeper }, threads)
    };
    let inner = Inner {
        store,
        mode,
        disk,
        path: path.to_owned(),
        wal_dir,
        options,
        recovered,
        threads: Mutex::new(threads),
        _locks: locks,
        process: std::process::id(),
        left: AtomicBool::new(false),
    };
    Ok(Engine { inner: Arc::new(inner) })
}

fn run_replay(disk: &dyn Disk, wal_dir: &Path, loaded: &Loaded, options: &Options) -> Result<Replayed> {
    let meter = Arc::clone(loaded.store.pages.meter());
    let mut between = |trees: &TreeTable| {
        // Dirty nodes cannot leave memory before there is a checkpoint to come; clean ones can.
        for slot in trees.iter().filter_map(|tree| tree.slot.as_ref()) {
            let enough = || meter.excess(80) == 0;
            if !enough() {
                sweep(slot, &[], &enough);
            }
        }
        Ok(())
    };
    let batch_bytes = options.memory_bytes / 4;
    // A simulation counts the reads of the disk: they must come in one order.
    let threads = if options.background == Background::Stepped { 1 } else { processors() };
    replay(loaded, &mut Replay { disk, wal_dir, threads, batch_bytes, between: &mut between })
}

fn writer(
    disk: &Arc<dyn Disk>,
    wal_dir: &Path,
    loaded: Loaded,
    replayed: Replayed,
    options: &Options,
    events: Events,
) -> Result<(Arc<Committer>, Arc<Keeper>)> {
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let geometry = superblock.geometry;
    let log = Log::reopen(disk, wal_dir, identity, geometry, options.sync, &replayed.log)?;
    let root = Root::at(replayed.seq, replayed.trees, log.position());
    let throttle = Throttle::new(options.memory_bytes, options.background == Background::Stepped);
    let committer = Committer::new(Arc::clone(&loaded.store), log, root, replayed.next_tree, throttle);
    let Loaded { store, superblock, older, roots, trees } = loaded;
    let hot = superblock.hot.filter(|_| superblock.clean);
    let checkpointer = Checkpointer::new(store, superblock, older, roots, trees);
    let committer = Arc::new(committer);
    let keeper = Arc::new(Keeper::new(&committer, checkpointer, disk, options, events));
    keeper.warm(hot);
    let sweeper = Arc::downgrade(&keeper);
    keeper.store().pages.meter().set_sweeper(Box::new(move || {
        if let Some(keeper) = sweeper.upgrade() {
            keeper.sweep();
        }
    }));
    Ok((committer, keeper))
}

/// The root that is read lets go of what was not used lately, as a writer's keeper sees to.
fn sweep_when_full(store: &Arc<Store>, root: &Arc<Root>) {
    // The meter outlives neither: nodes are charged to it, and the root holds them.
    let (store, root) = (Arc::downgrade(store), Arc::downgrade(root));
    let pages = store.upgrade().expect("just given");
    pages.pages.meter().set_sweeper(Box::new(move || {
        let (Some(store), Some(root)) = (store.upgrade(), root.upgrade()) else { return };
        let meter = store.pages.meter();
        let enough = || meter.excess(80) == 0;
        // Twice around: the first time takes the notes of use away.
        for slot in root.trees.iter().chain(root.trees.iter()).filter_map(|tree| tree.slot.as_ref()) {
            sweep(slot, &[], &enough);
        }
        meter.swept();
    }));
}

fn check_options(options: &Options) -> Result<()> {
    // A simulation shrinks memory with everything else, so that little data is evicted and spilled.
    let is_simulated = options.background == Background::Stepped;
    if options.memory_bytes < MEMORY_BYTES_MIN && !is_simulated {
        let message =
            format!("memory_bytes is {}, at least {MEMORY_BYTES_MIN} are needed", options.memory_bytes);
        return Err(Error::invalid(message));
    }
    if !options.geometry.is_sound() {
        return Err(Error::invalid("the sizes in Options::geometry do not fit together"));
    }
    Ok(())
}

fn kind(disk: &dyn Disk, path: &Path) -> Result<Option<PathKind>> {
    disk.kind(path).map_err(|e| Error::io("look at", path, &e))
}

/// What a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Only what a creation makes before the data file has its name.
    Beginnings,
    Data,
    OtherThings,
}

/// Makes sure there is a directory that is a database or may become one. What is somebody else's stays as it is.
fn prepare_directory(disk: &dyn Disk, path: &Path, wal_dir: &Path, may_create: bool) -> Result<()> {
    match kind(disk, path)? {
        None if !may_create => {
            Err(Error::new(Code::NoSuchDatabase, format!("there is no database at {}", path.display())))
        }
        None => disk.create_dir(path).map_err(|e| {
            let error = Error::io("create", path, &e);
            if e.kind() == std::io::ErrorKind::NotFound {
                error.with_hint("create the directory above it first")
            } else {
                error
            }
        }),
        Some(PathKind::Directory) => match what_it_holds(disk, path, wal_dir)? {
            Holds::OtherThings => Err(not_a_database(path, "it is a directory with other things in it")),
            Holds::Nothing if !may_create => Err(not_a_database(path, "it is empty")),
            Holds::Nothing | Holds::Beginnings | Holds::Data => Ok(()),
        },
        Some(_) => Err(not_a_database(path, "it is a file, and a database is a directory")),
    }
}

/// Beside a data file other things may lie: whether it is ours, its first bytes tell. Without one, anything that is
/// not of a creation makes the directory somebody else's.
fn what_it_holds(disk: &dyn Disk, path: &Path, wal_dir: &Path) -> Result<Holds> {
    let names = disk.list(path).map_err(|e| Error::io("list", path, &e))?;
    if names.iter().any(|name| name.ends_with(DATA)) {
        let is_directory = kind(disk, &path.join(DATA))? == Some(PathKind::Directory);
        return Ok(if is_directory { Holds::OtherThings } else { Holds::Data });
    }
    let own_log = wal_dir.file_name().filter(|_| wal_dir.parent() == Some(path));
    let is_ours = |name: &PathBuf| {
        [DATA_NEW, LOCK, WAL, READERS].iter().any(|known| name.ends_with(known))
            || name.file_name() == own_log
    };
    Ok(match names.iter().all(is_ours) {
        true if names.is_empty() => Holds::Nothing,
        true => Holds::Beginnings,
        false => Holds::OtherThings,
    })
}

/// Why a directory with the names of a database and no data file cannot be opened.
fn without_data(disk: &dyn Disk, path: &Path, wal_dir: &Path, options: &Options) -> Error {
    match is_fresh_log(disk, wal_dir, options.geometry.block_bytes as u64) {
        Ok(true) => Error::new(
            Code::NotADatabase,
            format!(
                "{} holds no data: its creation was cut short, and nothing was ever stored in it",
                path.display()
            ),
        )
        .with_hint("import into it, which begins its creation anew, or remove the directory"),
        Ok(false) => data_lost(path, wal_dir),
        Err(error) => error,
    }
}

/// Whether a log directory holds no more than a creation leaves: segments of zeroes behind a header and one frame.
fn is_fresh_log(disk: &dyn Disk, wal_dir: &Path, block_bytes: u64) -> Result<bool> {
    let names = match disk.list(wal_dir) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(Error::io("list", wal_dir, &e)),
    };
    let mut bytes = [0; 64 * 1024];
    for name in names.iter().filter_map(|name| name.file_name()).filter(|name| *name != LOCK) {
        let path = wal_dir.join(name);
        let file = disk.open(&path, Access::READ).map_err(|e| Error::io("open", &path, &e))?;
        let end = file.len().map_err(|e| Error::io("measure", &path, &e))?;
        let mut offset = 2 * block_bytes;
        while offset < end {
            let count = usize::try_from(end - offset).map_or(bytes.len(), |left| left.min(bytes.len()));
            file.read_at(&mut bytes[..count], offset).map_err(|e| Error::io("read", &path, &e))?;
            if bytes[..count].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += count as u64;
        }
    }
    Ok(true)
}

fn data_lost(path: &Path, wal_dir: &Path) -> Error {
    let what = format!("the file is not there, and {} holds a log with commits", wal_dir.display());
    Error::damaged_data(&path.join(DATA), 0, what)
        .with_hint("the data file was lost: restore it from a backup")
}

/// D3: what readers of a later release look at, in other processes, this build does not know and would overwrite.
fn refuse_later_readers(disk: &dyn Disk, path: &Path) -> Result<()> {
    let readers = path.join(READERS);
    if kind(disk, &readers)? != Some(PathKind::File) {
        return Ok(());
    }
    let file = disk.open(&readers, Access::READ).map_err(|e| Error::io("open", &readers, &e))?;
    if file.len().map_err(|e| Error::io("measure", &readers, &e))? == 0 {
        return Ok(());
    }
    let message = format!(
        "{} says that readers of a later release look at this database; space cannot be reused safely",
        readers.display()
    );
    Err(Error::new(Code::Unsupported, message)
        .with_hint("use the release that wrote it, or close those readers and remove the file"))
}

fn not_a_database(path: &Path, why: &str) -> Error {
    Error::new(Code::NotADatabase, format!("{} is not a Duramen database: {why}", path.display()))
        .with_hint("give the directory of a database, or a name that does not exist yet")
}

fn check_file_system(disk: &dyn Disk, path: &Path, options: &Options) -> Result<()> {
    let system = disk.file_system(path).map_err(|e| Error::io("look at", path, &e))?;
    if system.network && !options.allow_network_fs {
        let message =
            format!("{} lies on {}, where locks and syncs cannot be trusted", path.display(), system.name);
        return Err(Error::new(Code::NetworkFileSystem, message).with_hint(
            "use a local file system, or allow_network_fs if you know that this one keeps its promises",
        ));
    }
    if system.read_only && !options.read_only {
        return Err(Error::new(Code::ReadOnly, format!("{} is on a read-only file system", path.display()))
            .with_hint("open it read-only"));
    }
    Ok(())
}

/// D8: one process writes. Readers of a database that nobody writes share it.
fn lock(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    match disk.lock(path, !options.read_only) {
        Ok(lock) => {
            if !options.read_only {
                // Only for the message to whoever is refused: the lock holds without it.
                drop(lock.set_holder(&this_process()));
            }
            Ok(lock)
        }
        Err(LockError::Held { holder }) => {
            let who = if holder.trim().is_empty() { "another process".to_owned() } else { holder };
            let database = path.parent().unwrap_or(path).display();
            let error = Error::new(Code::DatabaseLocked, format!("{database} is in use by {}", who.trim()));
            let is_here = who.trim() == this_process();
            let hint = "this process has it open: clone the handle it has, or drop that handle and all its snapshots";
            Err(if is_here { error.with_hint(hint) } else { error })
        }
        Err(LockError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(not_a_database(path.parent().unwrap_or(path), "it holds no lock file"))
        }
        Err(LockError::Io(error)) => Err(Error::io("lock", path, &error)),
    }
}

fn this_process() -> String {
    format!("process {}", std::process::id())
}

/// Makes a database. The data file gets its name last: a directory without one is empty, and is begun anew.
fn create(disk: &Arc<dyn Disk>, path: &Path, wal_dir: &Path, options: &Options) -> Result<()> {
    let words = || u128::from(disk.random()) << 64 | u128::from(disk.random());
    let identity = LogIdentity { database: DatabaseId(words()), log: LogId(words()) };
    match disk.create_dir(wal_dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create", wal_dir, &e));
        }
        _ => {}
    }
    let made = Log::create(disk, wal_dir, identity, options.geometry, options.sync);
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
        };
        let slot = usize::from(generation.0 % 2 == 1);
        let written = file.write_at(&superblock.encode(), SUPERBLOCK_OFFSETS[slot]);
        written.map_err(|e| Error::io("write", &fresh, &e.source))?;
        file.sync_data().map_err(|e| Error::io("sync", &fresh, &e))?;
    }
    // The log's name is durable before the data file has its own: data without a log is damage, not a beginning.
    let logs = wal_dir.parent().unwrap_or(path);
    disk.sync_dir(logs).map_err(|e| Error::io("sync", logs, &e))?;
    disk.rename(&fresh, &data).map_err(|e| Error::io("rename", &fresh, &e))
}

/// Makes the names of a database durable, that of its directory included. Every open does so until the first
/// checkpoint: a creation that was cut short between naming the data file and this left names that only the
/// kernel's cache may hold (D1).
fn sync_names(disk: &dyn Disk, path: &Path, wal_dir: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for directory in [wal_dir.parent().unwrap_or(path), path, parent] {
        disk.sync_dir(directory).map_err(|e| Error::io("sync", directory, &e))?;
    }
    Ok(())
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
