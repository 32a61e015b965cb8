//! Watching a database that another process has open, without opening it.
//!
//! Owns the programs' interface to the engine's observer: changes with names, and figures. Takes no lock,
//! writes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::TreeId;
use crate::store::{CommitSeq, DatabaseId, FeedChange, FeedWhat, Options};
use duramen_disk::{Disk, OsDisk};

pub use crate::store::{ObserveFrom, Observed};

use crate::catalog::entries::{ENTRIES, Origin, rows_tree, unknown};
use crate::catalog::forms;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::{COPY, SHAPES, Shapes};
use crate::feed::changes::{AnyChange, Names, any_change, time_of};
use crate::store;
use crate::store::error::{Code, Result};
use crate::value::tuple::{Element, decode};

/// Attempts to read, if the writer releases meanwhile what is being read.
const ROUNDS: usize = 20;

/// Reads committed changes and figures of a database that this or another process has open.
///
/// It returns only changes that survive a power cut. A commit appears once the log marks it as durable: at
/// most a tenth of a second later if no other commit follows. Nothing is kept for an observer: one that reads
/// rarely may find a gap where the database keeps no changes
/// ([`DbOptions::feed_retain_bytes`](crate::DbOptions::feed_retain_bytes)). To handle every change once, use
/// a [consumer](crate::Consumer).
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::{AnyChanged, ObserveFrom, Observer};
/// # fn main() -> Result<()> {
/// # let directory = tempfile::tempdir().expect("a place for the example");
/// # let path = directory.path().join("shop.duramen");
/// let db = Db::open(&path)?;
/// let mut observer = Observer::open(&path, ObserveFrom::Now)?;
/// db.bytes("notes").put("a", "1")?;
/// let seen = loop {
///     match observer.next()? {
///         Some(change) if matches!(change.what, AnyChanged::Put { .. }) => break change,
///         Some(_) => {}
///         None => std::thread::sleep(std::time::Duration::from_millis(10)),
///     }
/// };
/// assert_eq!((seen.origin.name(), seen.key()), ("notes", Some(&b"a"[..])));
/// # Ok(()) }
/// ```
pub struct Observer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_dir: Option<PathBuf>,
    inner: store::Observer,
    schemas: Schemas,
    /// Changes that were read and not returned yet, each with the time of its commit.
    queue: VecDeque<(CommitSeq, u64, FeedChange)>,
    /// All changes up to this commit were returned, and not all of the commit in the queue.
    told: CommitSeq,
}

/// The known collections, for documents without field names.
#[derive(Debug, Default)]
struct Schemas {
    by_name: BTreeMap<String, (TreeId, Schema)>,
    shapes: Arc<Shapes>,
    /// The catalogue's descriptions are current for changes up to this commit.
    as_of: CommitSeq,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Options of an [`Observer`].
#[derive(Debug, Clone, Default)]
pub struct ObserverOptions {
    wal_dir: Option<PathBuf>,
    collection: Option<String>,
}

impl ObserverOptions {
    /// The directory of the log, if it is not inside the database's.
    #[must_use]
    pub fn wal_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.wal_dir = Some(path.into());
        self
    }

    /// Returns only changes of this collection. It need not exist yet.
    #[must_use]
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = Some(name.into());
        self
    }

    /// Opens the observer.
    ///
    /// # Errors
    /// As [`Observer::open`].
    pub fn open(self, path: impl AsRef<Path>, from: ObserveFrom) -> Result<Observer> {
        self.open_on(Arc::new(OsDisk::default()), path, from)
    }

    /// As [`ObserverOptions::open`], on a given disk.
    ///
    /// # Errors
    /// As [`Observer::open`].
    pub fn open_on(self, disk: Arc<dyn Disk>, path: impl AsRef<Path>, from: ObserveFrom) -> Result<Observer> {
        let path = path.as_ref().to_owned();
        let tree = self.collection.as_deref().map(rows_tree);
        let wants = move |name: &str| match &tree {
            Some(tree) => tree == name,
            None => Origin::of(name).is_some(),
        };
        let options = options(self.wal_dir.as_deref());
        let inner = store::Observer::open(Arc::clone(&disk), &path, options, from, Arc::new(wants))?;
        let (schemas, queue, told) = (Schemas::default(), VecDeque::new(), inner.position());
        Ok(Observer { disk, path, wal_dir: self.wal_dir, inner, schemas, queue, told })
    }
}

impl Observer {
    /// Watches every collection, namespace and tree of the database in this directory.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes); `UnfinishedCopy` (E0215);
    /// `NetworkFileSystem` (E0212); `InvalidArgument` (E0201) for a commit that does not exist yet. Never
    /// `DatabaseLocked` (E0701).
    pub fn open(path: impl AsRef<Path>, from: ObserveFrom) -> Result<Observer> {
        Observer::options().open(path, from)
    }

    /// Options, for more than [`Observer::open`] offers.
    #[must_use]
    pub fn options() -> ObserverOptions {
        ObserverOptions::default()
    }

    /// The next change; `None` if there is none yet. It never waits: call again a little later.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes). After `FeedGap` (E0804) the next call continues
    /// after the changes that are gone. `Unreadable` (E0213) names a change that cannot be decoded,
    /// `CorruptFeed` (E0505) one whose value is lost; the next call continues after it.
    #[allow(clippy::should_implement_trait, reason = "an iterator that ends and goes on again")]
    pub fn next(&mut self) -> Result<Option<AnyChange>> {
        loop {
            if let Some((seq, time_ns, change)) = self.queue.pop_front() {
                let at = &mut At { observer: &mut *self, seq };
                match any_change(seq, time_of(time_ns), change.clone(), at) {
                    // What could not be read for a moment is tried again by the next call.
                    Err(error) if !error.is_corruption() && error.code() != Code::Unreadable => {
                        self.queue.push_front((seq, time_ns, change));
                        return Err(error);
                    }
                    Ok(None) => continue,
                    told => return told,
                }
            }
            self.told = self.inner.position();
            let commit = match self.inner.next() {
                Ok(Some(commit)) => commit,
                Ok(None) => {
                    self.told = self.inner.position();
                    return Ok(None);
                }
                Err(error) => {
                    // The database may have been set back. What is known is read again.
                    self.schemas = Schemas::default();
                    return Err(error);
                }
            };
            let (seq, time_ns) = (commit.seq, commit.time_ns);
            self.queue.extend(commit.changes.into_iter().map(|change| (seq, time_ns, change)));
        }
    }

    /// The identity of the database in a directory, whether or not another process has it open.
    ///
    /// # Errors
    /// `NoSuchDatabase` (E0902) if there is none; `CorruptSuperblock` (E0504) if no superblock can be read;
    /// `Unsupported` (E0211) if a later release wrote it; `System` (E1001).
    pub fn identify(path: impl AsRef<Path>) -> Result<DatabaseId> {
        store::Observer::identify(&OsDisk::default(), path.as_ref())
    }

    /// The commit up to which all changes were returned: a position to resume from.
    #[must_use]
    pub fn position(&self) -> CommitSeq {
        if self.queue.is_empty() { self.inner.position() } else { self.told }
    }

    /// The current figures of the database. Cheap enough for once a second.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes).
    pub fn look(&mut self) -> Result<Observed> {
        self.inner.look()
    }

    /// The self-description of the process that last opened the database for writing; `None` if there is
    /// none. The process may be gone.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        self.inner.holder()
    }

    /// The current collections, by name. Costs a scan of the log since the newest checkpoint.
    ///
    /// # Errors
    /// As [`Observer::open`].
    pub fn collections(&self) -> Result<Vec<Schema>> {
        Ok(self.catalogue()?.by_name.into_values().map(|(_, schema)| schema).collect())
    }

    fn catalogue(&self) -> Result<Schemas> {
        let mut round = 0;
        loop {
            match self.read_catalogue() {
                Ok(found) => return Ok(found),
                // The writer released what was being read.
                Err(error) if round < ROUNDS && (error.is_corruption() || error.code() == Code::FeedGap) => {
                    round += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read_catalogue(&self) -> Result<Schemas> {
        let options = options(self.wal_dir.as_deref());
        let wants = Arc::new(|name: &str| [ENTRIES, SHAPES, COPY].contains(&name));
        let from = ObserveFrom::Checkpoint;
        let mut catalogue = store::Observer::open(Arc::clone(&self.disk), &self.path, options, from, wants)?;
        let (mut found, shapes) = (BTreeMap::new(), Arc::<Shapes>::default());
        for (_, stored) in catalogue.rows(ENTRIES)? {
            let schema = Schema::from_bytes(&stored)?;
            found.insert(schema.name().to_owned(), schema);
        }
        // Each has them all.
        let mut unread = None;
        for tree in [SHAPES, COPY] {
            match catalogue.rows(tree) {
                Ok(rows) => rows.into_iter().for_each(|(key, row)| drop(shapes.take(&key, &row))),
                Err(error) if error.is_corruption() && unread.is_none() => unread = Some(error),
                Err(error) => return Err(error),
            }
        }
        while let Some(commit) = catalogue.next()? {
            for change in commit.changes {
                match change.what {
                    FeedWhat::Put { key, value } if [SHAPES, COPY].contains(&&*change.name) => {
                        drop(shapes.take(&key, &value));
                    }
                    FeedWhat::Put { value, .. } => {
                        let schema = Schema::from_bytes(&value)?;
                        found.insert(schema.name().to_owned(), schema);
                    }
                    FeedWhat::Deleted { key } => {
                        if let [Element::Text(name)] = decode(&key)?.as_slice() {
                            found.remove(name);
                        }
                    }
                    FeedWhat::Created | FeedWhat::Dropped | FeedWhat::Lost { .. } => {}
                }
            }
        }
        // A drop removes the tree and the entry in one commit.
        let with_tree = |(name, schema): (String, Schema)| {
            let tree = catalogue.tree(&rows_tree(&name))?;
            Some((name, (tree, schema)))
        };
        let by_name = found.into_iter().filter_map(with_tree).collect();
        Ok(Schemas { by_name, shapes, as_of: catalogue.position() })
    }

    /// Appends a document of a shape with its names. Shapes are read again if this one is not known. Returns
    /// `false` if there is none.
    fn by_shape(&mut self, document: &[u8], seq: CommitSeq, out: &mut Vec<u8>) -> Result<bool> {
        let is_known = self.schemas.shapes.split(document).is_ok();
        if !is_known && seq > self.schemas.as_of {
            self.schemas = self.catalogue()?;
        }
        if self.schemas.shapes.split(document).is_err() {
            return Ok(false);
        }
        forms::name_by_shape(&self.schemas.shapes, document, out).map(|()| true)
    }

    /// The catalogue's description of a collection: the cached one, or a fresh one if the catalogue may
    /// differ as of this commit.
    fn described(&mut self, name: &str, seq: CommitSeq, fresh: bool) -> Result<(TreeId, Schema)> {
        let is_known = self.schemas.by_name.contains_key(name) && !fresh;
        if !is_known && seq > self.schemas.as_of {
            self.schemas = self.catalogue()?;
        }
        self.schemas.by_name.get(name).cloned().ok_or_else(|| unknown(name))
    }
}

/// The catalogue of an observer, for the changes of one commit.
struct At<'o> {
    observer: &'o mut Observer,
    seq: CommitSeq,
}

impl Names for At<'_> {
    fn described(&mut self, collection: &str, fresh: bool) -> Result<(TreeId, Schema)> {
        self.observer.described(collection, self.seq, fresh)
    }

    fn by_shape(&mut self, document: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.observer.by_shape(document, self.seq, out)
    }
}

fn options(wal_dir: Option<&Path>) -> Options {
    Options { wal_dir: wal_dir.map(Path::to_owned), ..Options::default() }
}
