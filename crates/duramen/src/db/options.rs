//! How a database is opened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::store::{Durability, Engine, Event, Hooks, Options, Reducer, ReducerSpec};
use duramen_disk::{Disk, MemDisk, OsDisk, SyncMethod};

use crate::access::collection::Collection;
use crate::access::handle::Db;
use crate::access::open_state::OpenState;
use crate::access::reads::sealed::Readable;
use crate::access::typed::Asked;
use crate::db::recover::{self, RecoverProgress, RecoverReport};
use crate::db::sweep_after;
use crate::feed::positions::Rule;
use crate::store::Background;
use crate::store::error::{Error, Result};
use crate::value::clock::Clock;
use crate::view::monoid::{Codes, Monoid};
use crate::view::reducer::Reductions;
use crate::view::sums::Sums;

/// Options of a database, set one after the other and ended by [`DbOptions::open`].
#[derive(Clone, Default)]
pub struct DbOptions {
    engine: Options,
    hooks: Hooks,
    without_background: bool,
    codes: Codes,
    /// What is wrong with an option, to be said when the database is opened.
    refused: Option<Error>,
    /// What is done with the database before it is handed out.
    opened: Vec<fn(&Db, bool) -> Result<()>>,
}

impl DbOptions {
    /// What a commit waits for unless it says otherwise; [`Durability::Disk`] unless set.
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

    /// How writes of the log become durable. Unless set, the best of the methods that are proven on the log's file system.
    ///
    /// A method that the file system takes and ignores loses acknowledged commits in a power cut. `posture()` says
    /// where it is not proven.
    #[must_use]
    pub fn sync_method(mut self, method: SyncMethod) -> Self {
        self.engine.sync = Some(method);
        self
    }

    /// Puts the log into a directory of its own, perhaps on a faster device.
    #[must_use]
    pub fn wal_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.wal_dir = Some(path.into());
        self
    }

    /// Whether a database that is not there is created; it is unless set.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.engine.create = create;
        self
    }

    /// Opens without ever writing: works on a read-only mount.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.engine.read_only = read_only;
        self
    }

    /// Opens on network and unknown file systems too, which may not keep what they promise.
    #[must_use]
    pub fn allow_network_fs(mut self, allow: bool) -> Self {
        self.engine.allow_network_fs = allow;
        self
    }

    /// Whether a thread builds new views in the background; it does unless set, but not in databases that are read-only. The
    /// thread is there only while it has something to do.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.without_background = !background;
        self
    }

    /// Whether [`DbOptions::recover`] goes on if there is no log of the database where these options say it is; it fails with
    /// `LogMissing` unless set. What is only in the log is lost then, and told as lost commits; a log that is there is read all the
    /// same. [`DbOptions::open`] never goes on without it.
    #[must_use]
    pub fn recover_without_log(mut self, without: bool) -> Self {
        self.engine.recover_without_log = without;
        self
    }

    /// Makes a reduction of one's own state to views.
    ///
    /// Its samples are tried first: [`DbOptions::open`] fails if it breaks its promises on them.
    #[must_use]
    pub fn reducer<M: Monoid>(mut self) -> Self {
        if let Err(error) = self.codes.add::<M>() {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Makes reducers of trees of bytes state, by the names in the specs they are asked with.
    #[must_use]
    pub fn byte_reducer(
        mut self,
        find: impl Fn(&ReducerSpec) -> Option<Arc<dyn Reducer>> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.reducers.register(Arc::new(find));
        self
    }

    /// Is told what no call returns, such as an error while closing in a drop. Called outside locks, from any thread.
    ///
    /// It may be the thread that makes room for commits. So inside `hear`, commits, waiting for a receipt,
    /// checkpoints and close are refused for this database (`InvalidArgument`): send the event to another thread
    /// and write there. Reading works.
    #[must_use]
    pub fn on_event(mut self, hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hooks.on_event = Some(Arc::new(hear));
        self
    }

    /// Keeps the newest so many bytes of changes for [`Db::changes`] whether or not anybody has asked for them; none unless set.
    #[must_use]
    pub fn feed_retain_bytes(mut self, bytes: u64) -> Self {
        self.engine.feed_retain_bytes = bytes;
        self
    }

    /// Keeps changes for so long whether or not anybody has asked for them; no time unless set.
    #[must_use]
    pub fn feed_retain_age(mut self, age: Duration) -> Self {
        self.engine.feed_retain_age = age;
        self
    }

    /// Keeps at most so many bytes of changes, whoever has still to read them; 1 GiB unless set. Beyond it who is farthest behind
    /// loses the oldest, or writers are refused: [`ConsumerOptions::refuse_writers`](crate::ConsumerOptions::refuse_writers).
    #[must_use]
    pub fn feed_bytes_max(mut self, bytes: u64) -> Self {
        self.engine.feed_bytes_max = bytes;
        self
    }

    /// Changes what has no method here.
    #[must_use]
    pub fn engine(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.engine);
        self
    }

    /// Holds a type against its collection when the database is opened: [`Db::register`], or only a look if it is
    /// opened read-only.
    #[must_use]
    pub fn collection<C: Collection>(mut self) -> Self {
        self.opened.push(|db, read_only| {
            if read_only {
                db.snapshot()?.fitting_now(Asked::of::<C>()).map(drop)
            } else {
                db.register::<C>()
            }
        });
        self
    }

    /// Opens the database in this directory, or creates it.
    ///
    /// # Errors
    /// `NoSuchDatabase`, `NotADatabase`, `DatabaseLocked`, damage, and what the system said; `InvalidArgument` for a reducer that breaks
    /// its promises.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        self.open_on(Arc::new(OsDisk::default()), path)
    }

    /// Opens a database on a disk of one's own, such as the memory disk with its faults.
    ///
    /// # Errors
    /// As [`DbOptions::open`].
    pub fn open_on(self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Db> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let (level, read_only) = (self.engine.durability, self.engine.read_only);
        let is_stepped = self.engine.background == Background::Stepped;
        let without_background = self.without_background || is_stepped || read_only;
        let on_event = self.hooks.on_event.clone();
        let mut hooks = with_reducers(self.hooks, self.codes);
        hooks.feed = Some(Arc::new(Rule));
        let engine = Engine::open(Arc::clone(&disk), path.as_ref(), self.engine, hooks)?;
        let db = Db::new(
            engine,
            level,
            OpenState::new(Clock::new(Arc::clone(&disk)), is_stepped),
            on_event,
            sweep_after,
        );
        self.opened.iter().try_for_each(|opened| opened(&db, read_only))?;
        Ok(if without_background { db } else { db.with_background(disk) })
    }

    /// Makes a new, sound database at `to` out of everything that can still be read of a damaged one at `from`, which is only read.
    ///
    /// What is lost is in the report, and named. Views are built anew; those in code, and reductions in code that these options do not
    /// know, wait for a program that has it. Consumers of the change feed keep their names, and get `FeedGap`: the new database has an
    /// order of commits of its own. Before this returns, the new database was read back and checked; cut short, it is `UnfinishedCopy`
    /// and opens for nobody. `progress` is told now and then; an error from it ends the recovery. Memory grows with the number of
    /// collections, namespaces and trees, and not with their sizes; costs a read of everything and some of it twice.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let directory = tempfile::tempdir().expect("a place for the example");
    /// # let (from, to) = (directory.path().join("shop.duramen"), directory.path().join("recovered.duramen"));
    /// # let db = Db::open(&from)?;
    /// # db.bytes("notes").put("a", "1")?;
    /// # db.close()?;
    /// # drop(db);
    /// let report = Db::options().recover(&from, &to, |_| Ok(()))?;
    /// assert!(report.is_whole(), "{report:?}");
    /// let db = Db::open(&to)?;
    /// # assert_eq!(db.bytes("notes").get("a")?, Some(b"1".to_vec()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is something at `to`; `DamagedSuperblock` if nothing tells where anything lies; `LogMissing` if the log
    /// is not where these options say ([`DbOptions::wal_dir`], [`DbOptions::recover_without_log`]); `Unsupported` for what a later
    /// release wrote; `DatabaseLocked`, `NoSuchDatabase`; `Full` and `Io` of the new database; what `progress` said.
    pub fn recover(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(&RecoverProgress) -> Result<()>,
    ) -> Result<RecoverReport> {
        self.recover_on(Arc::new(OsDisk::default()), from, to, progress)
    }

    /// As [`DbOptions::recover`], on a disk of one's own.
    ///
    /// # Errors
    /// As [`DbOptions::recover`].
    pub fn recover_on(
        self,
        disk: Arc<dyn Disk>,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(&RecoverProgress) -> Result<()>,
    ) -> Result<RecoverReport> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let is_stepped = self.engine.background == Background::Stepped;
        let state = OpenState::new(Clock::new(Arc::clone(&disk)), is_stepped);
        let on_event = self.hooks.on_event.clone();
        let paths = (from.as_ref(), to.as_ref());
        let told = &mut |at: &crate::store::RecoverProgress| progress(&RecoverProgress::reading(at));
        // Nothing reads its change feed before it is finished.
        let hooks = with_reducers(self.hooks, self.codes);
        let (engine, salvage) = Engine::recover(&disk, paths, &self.engine, hooks, &recover::keep, told)?;
        let db = Db::new(engine, Durability::Process, state, on_event, sweep_after);
        recover::make_sound(&db, salvage, &mut progress)
    }

    /// Opens an empty database on a disk in memory; for tests.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory(self) -> Result<Db> {
        self.open_on(Arc::new(MemDisk::new(0)), "/memory.duramen")
    }
}

/// Hooks that know the reducers of this crate, and those of views that need this code.
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
