//! Options for opening a database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::store::{
    CommitSeq, CopyTarget, Durability, Engine, Event, Founding, Hooks, OpenReplica, Options, Proposer,
    Reducer, ReducerSpec,
};
use duramen_disk::{Disk, MemDisk, OsDisk, SyncMethod};

use crate::access::collection::Collection;
use crate::access::find::spill::SpillPlace;
use crate::access::handle::Db;
use crate::access::open_state::OpenState;
use crate::access::reads::sealed::Readable;
use crate::access::type_descriptor::TypeDescriptor;
use crate::db::clean_up;
use crate::db::repair::{self, RepairProgress, RepairReport};
use crate::feed::positions::Rule;
use crate::requests;
use crate::store::Background;
use crate::store::error::{Error, Result};
use crate::value::clock::{Clock, LogTime};
use crate::view::monoid::{Codes, Monoid};
use crate::view::reducer::Reductions;
use crate::view::sums::Sums;

/// Options of a database: a builder that ends with [`DbOptions::open`].
#[derive(Clone, Default)]
pub struct DbOptions {
    engine: Options,
    hooks: Hooks,
    without_background: bool,
    names_fields: bool,
    codes: Codes,
    spill_dir: Option<PathBuf>,
    /// The error of an invalid option, returned at opening.
    refused: Option<Error>,
    /// What to run on the database before it is returned to the program.
    opened: Vec<fn(&Db, bool) -> Result<()>>,
}

impl DbOptions {
    /// The default durability level of commits; [`Durability::Disk`] unless set.
    #[must_use]
    pub fn durability(mut self, level: Durability) -> Self {
        self.engine.durability = level;
        self
    }

    /// Target for all memory of the engine, in bytes, whatever the size of the data.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.engine.memory_bytes = bytes;
        self
    }

    /// How writes of the log become durable. The default is the best method that is proven on the log's file
    /// system.
    ///
    /// A method that the file system accepts and ignores loses acknowledged commits in a power cut.
    /// [`Db::durability_status`] reports where the method is not proven.
    #[must_use]
    pub fn sync_method(mut self, method: SyncMethod) -> Self {
        self.engine.sync = Some(method);
        self
    }

    /// Puts the log into a separate directory, for example on a faster device.
    #[must_use]
    pub fn wal_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.wal_dir = Some(path.into());
        self
    }

    /// Puts the temporary files of queries that exceed their memory into this directory, which must exist.
    ///
    /// By default they are in the database's directory. A read-only database has none by default, and such a
    /// query fails there. The files have no name as soon as they are open, so none is ever left over.
    #[must_use]
    pub fn spill_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.spill_dir = Some(path.into());
        self
    }

    /// Whether to create a database that does not exist; the default is true.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.engine.create = create;
        self
    }

    /// Opens without ever writing. This works on a read-only mount.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.engine.read_only = read_only;
        self
    }

    /// Opens on network and unknown file systems too, which may break their durability promises.
    #[must_use]
    pub fn allow_network_fs(mut self, allow: bool) -> Self {
        self.engine.allow_network_fs = allow;
        self
    }

    /// Whether a thread builds new views in the background. The default is true, except in read-only
    /// databases.
    ///
    /// The thread exists only while it has work.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.without_background = !background;
        self
    }

    /// Whether [`DbOptions::repair`] continues without a log. By default a missing log is the error
    /// `LogMissing`.
    ///
    /// Commits that are only in the log are then lost, and reported as lost. If the log exists it is read all
    /// the same. [`DbOptions::open`] never continues without a log.
    #[must_use]
    pub fn repair_without_log(mut self, without: bool) -> Self {
        self.engine.repair_without_log = without;
        self
    }

    /// Registers a reduction in code, for use in views.
    ///
    /// Its samples are tested first: [`DbOptions::open`] fails if it breaks its promises on them.
    #[must_use]
    pub fn reducer<M: Monoid>(mut self) -> Self {
        if let Err(error) = self.codes.add::<M>() {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Registers reducers for trees of bytes, found by the name in their specification.
    #[must_use]
    pub fn byte_reducer(
        mut self,
        find: impl Fn(&ReducerSpec) -> Option<Arc<dyn Reducer>> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.reducers.register(Arc::new(find));
        self
    }

    /// Sets a hook for events that no call returns, such as an error while closing in a drop.
    ///
    /// It is called outside locks, from any thread.
    ///
    /// That may be the thread that makes room for commits. So inside `hear`, commits, waiting for a receipt,
    /// checkpoints and close fail for this database (`InvalidArgument`). To write, send the event to another
    /// thread. Reading works.
    #[must_use]
    pub fn on_event(mut self, hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hooks.on_event = Some(Arc::new(hear));
        self
    }

    /// Keeps the newest `bytes` of changes for [`Db::changes`], even without a consumer; none unless set.
    #[must_use]
    pub fn feed_retain_bytes(mut self, bytes: u64) -> Self {
        self.engine.feed_retain_bytes = bytes;
        self
    }

    /// Keeps changes of this age for [`Db::changes`], even without a consumer; zero unless set.
    #[must_use]
    pub fn feed_retain_age(mut self, age: Duration) -> Self {
        self.engine.feed_retain_age = age;
        self
    }

    /// Keeps at most this many bytes of changes, even if consumers have not read them; 1 GiB unless set.
    ///
    /// Beyond it the consumer that is farthest behind loses the oldest changes, or writers fail:
    /// [`ConsumerOptions::refuse_writers`](crate::ConsumerOptions::refuse_writers).
    #[must_use]
    pub fn feed_bytes_max(mut self, bytes: u64) -> Self {
        self.engine.feed_bytes_max = bytes;
        self
    }

    /// Changes options of the engine that have no method here.
    #[must_use]
    pub fn engine(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.engine);
        self
    }

    /// Checks a type against its collection at opening.
    ///
    /// Calls [`Db::register`]; a database opened read-only is only checked.
    ///
    /// Name every type of a collection: until a type is known, another one that has the same fields without
    /// `#[references]` takes its references away.
    #[must_use]
    pub fn collection<C: Collection>(mut self) -> Self {
        self.opened.push(|db, only_checks| {
            if only_checks {
                db.snapshot()?.fitting_now(TypeDescriptor::of::<C>()).map(drop)
            } else {
                db.register::<C>()
            }
        });
        self
    }

    /// Opens the database in this directory, or creates it.
    ///
    /// # Errors
    /// Those of [opening](crate::Error#opening); `InvalidArgument` (E0201) for a reducer that breaks its
    /// promises. With [`DbOptions::collection`] also as [`Db::register`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        self.open_on(Arc::new(OsDisk::default()), path)
    }

    /// Stores documents with the names of their fields, as builds before shapes did. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn names_fields(mut self, names_fields: bool) -> DbOptions {
        self.names_fields = names_fields;
        self
    }

    /// Opens a database on a given disk, such as the memory disk with its faults.
    ///
    /// # Errors
    /// As [`DbOptions::open`].
    pub fn open_on(self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Db> {
        self.open_with(disk, path.as_ref(), |disk, path, options, hooks| {
            Engine::open(disk, path, options, hooks)
        })
    }

    /// Opens a database on a given disk as a node of a cluster: see [`Engine::open_replica`]. Types that were
    /// named are checked, and not registered: that is a commit.
    ///
    /// # Errors
    /// As [`DbOptions::open`] and [`Engine::open_replica`].
    pub(crate) fn open_node_on(
        self,
        disk: Arc<dyn Disk>,
        path: &Path,
        founding: Option<Founding<'_>>,
        proposer: Arc<dyn Proposer>,
    ) -> Result<(Db, OpenReplica)> {
        let mut node = None;
        let db = self.open_with(disk, path, |disk, path, options, hooks| {
            let opened = Engine::open_replica(disk, path, options, hooks, founding, proposer)?;
            let engine = opened.engine.clone();
            node = Some(opened);
            Ok(engine)
        })?;
        Ok((db, node.expect("the engine was opened")))
    }

    fn open_with(
        self,
        disk: Arc<dyn Disk>,
        path: &Path,
        open: impl FnOnce(Arc<dyn Disk>, &Path, Options, Hooks) -> Result<Engine>,
    ) -> Result<Db> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let (level, read_only) = (self.engine.durability, self.engine.read_only);
        let is_stepped = self.engine.background == Background::Stepped;
        let without_background = self.without_background || is_stepped || read_only;
        let on_event = self.hooks.on_event.clone();
        let own_directory = (!read_only).then(|| path.to_owned());
        let spill = SpillPlace { disk: Arc::clone(&disk), directory: self.spill_dir.or(own_directory) };
        let mut hooks = with_reducers(self.hooks, self.codes);
        hooks.feed = Some(Arc::new(Rule));
        let engine = open(Arc::clone(&disk), path, self.engine, hooks)?;
        let node = engine.lineage().map(|_| engine.clone());
        let by_log = node.clone().map(|node| Box::new(move || node.log_time_ns()) as LogTime);
        let clock = Clock::new(Arc::clone(&disk), by_log);
        let state = OpenState::new(clock, spill, is_stepped);
        let db = Db::new(engine, level, state, on_event, clean_up);
        let shapes = &db.open_state().catalog.shapes;
        let takes_transactions = node.is_none() && !read_only;
        if let Some(node) = node {
            shapes.are_of_node(node);
        }
        if self.names_fields {
            shapes.keep_names();
        }
        if let Some(problem) = shapes.load(db.snapshot()?.source())? {
            db.tell(problem);
        }
        if !read_only {
            // Later, if the row that it reads cannot be read.
            let _ = requests::start_clock(&db);
        }
        self.opened.iter().try_for_each(|opened| opened(&db, !takes_transactions))?;
        Ok(if without_background { db.of_program(None) } else { db.with_background(disk) })
    }

    /// Repairs a corrupt database: makes a new, sound one at `to` from what can still be read at `from`.
    ///
    /// `from` is only read.
    ///
    /// The report names what is lost. Views are built anew. Views in code, and reductions in code that these
    /// options do not have, wait for a program with the code. Consumers of the change feed keep their names
    /// and get `FeedGap`, because the new database has its own order of commits.
    ///
    /// Before this returns, the new database was read back and checked. An interrupted repair is marked
    /// `UnfinishedCopy` and cannot be opened. `progress` is called from time to time; an error from it
    /// stops the repair. Memory grows with the number of collections, namespaces and trees, but not with
    /// their sizes. Everything is read once, and some of it twice; where a tree cannot be read, the data
    /// file is searched for its pages, which reads it two or three times more. Rows that may be out of
    /// date or deleted go to a collection of their own: see [`RepairReport::uncertain`].
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let directory = tempfile::tempdir().expect("a place for the example");
    /// # let from = directory.path().join("shop.duramen");
    /// # let to = directory.path().join("repaired.duramen");
    /// # let db = Db::open(&from)?;
    /// # db.bytes("notes").put("a", "1")?;
    /// # db.close()?;
    /// # drop(db);
    /// let report = Db::options().repair(&from, &to, |_| Ok(()))?;
    /// assert!(report.is_whole(), "{report:?}");
    /// let db = Db::open(&to)?;
    /// # assert_eq!(db.bytes("notes").get("a")?, Some(b"1".to_vec()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at `to`; `InvalidArgument` (E0201) if `to` lies in
    /// `from`. Those of [opening](crate::Error#opening) for either, of these `LogMissing` (E0503) unless
    /// [allowed](DbOptions::repair_without_log); those of a [commit](crate::Error#commits); errors of
    /// `progress`. `CorruptData` (E0501) also if the new database reads otherwise than it was written.
    pub fn repair(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<RepairReport> {
        self.repair_on(Arc::new(OsDisk::default()), from, to, progress)
    }

    /// As [`DbOptions::repair`], on a given disk.
    ///
    /// # Errors
    /// As [`DbOptions::repair`].
    pub fn repair_on(
        self,
        disk: Arc<dyn Disk>,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<RepairReport> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let is_stepped = self.engine.background == Background::Stepped;
        let directory = Some(to.as_ref().to_owned());
        let spill = SpillPlace { disk: Arc::clone(&disk), directory: self.spill_dir.clone().or(directory) };
        let state = OpenState::new(Clock::new(Arc::clone(&disk), None), spill, is_stepped);
        let on_event = self.hooks.on_event.clone();
        let (from, to) = (from.as_ref(), to.as_ref());
        let told = &mut |at: &crate::store::RepairProgress| progress(&RepairProgress::reading(at));
        // The change feed of the new database is not read before it is finished.
        let hooks = with_reducers(self.hooks, self.codes);
        let (engine, repair) = Engine::repair(&disk, from, to, &self.engine, hooks, &repair::keep, told)?;
        let db = Db::new(engine, Durability::Process, state, on_event, clean_up);
        repair::make_sound(&db, repair, &mut progress)
    }

    /// Begins a copy in a new directory, of a state with so many entries.
    pub(crate) fn begin_copy(self, path: &Path, of: (CommitSeq, u64)) -> Result<CopyTarget> {
        let (options, hooks) = self.for_copy()?;
        CopyTarget::begin(Arc::new(OsDisk::default()), path, options, hooks, of)
    }

    /// What the engine needs to make a copy.
    pub(crate) fn for_copy(self) -> Result<(Options, Hooks)> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        Ok((self.engine, with_reducers(self.hooks, self.codes)))
    }

    /// Opens an empty database on a disk in memory; for tests.
    ///
    /// Its clock is the system's. A test that sets the time opens on a [`MemDisk`] of its own:
    /// [see the recipe](crate::cookbook#tests-in-memory).
    ///
    /// # Errors
    /// As [`DbOptions::open`].
    pub fn in_memory(self) -> Result<Db> {
        self.open_on(Arc::new(MemDisk::with_system_clock(0)), "/memory.duramen")
    }
}

/// Adds the reducers of this crate and those of views in code to the hooks.
fn with_reducers(mut hooks: Hooks, codes: Codes) -> Hooks {
    hooks.reducers.register(Arc::new(move |spec: &ReducerSpec| {
        let sums = Sums::from_spec(spec).map(|sums| Arc::new(sums) as Arc<dyn Reducer>);
        let view = || Reductions::from_spec(spec)?.reducer(&codes);
        sums.or_else(|| view().map(|view| Arc::new(view) as Arc<dyn Reducer>))
    }));
    hooks
}

impl fmt::Debug for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbOptions").field("engine", &self.engine).finish_non_exhaustive()
    }
}
