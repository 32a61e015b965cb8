//! Databases to be corrupted and repaired: collections with views, key-values, blobs, bytes, some of it only
//! in the log.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::view::Reduce;
use duramen::{DbOptions, Direction, LocalReads, StoreKind, ViewSpec, doc, tuple};
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{Background, CommitSeq, KeyRange};

use super::pages::{Leaf, leaves};
use crate::search::shapes::GEOMETRY;

/// Where the databases lie.
pub const DATABASE: &str = "/db";

/// Where they are repaired to.
pub const REPAIRED: &str = "/new";

pub(super) const DATA: &str = "/db/data";
pub(crate) const BLOCK_BYTES: usize = GEOMETRY.block_bytes;

/// Rows by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that programs have stored, by store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The rows of each collection, namespace and tree.
    pub rows: BTreeMap<(StoreKind, String), Rows>,
}

/// A database to be corrupted.
#[derive(Debug)]
pub struct Specimen {
    /// What it is.
    pub name: &'static str,
    /// Its disk; nothing is pending.
    pub disk: MemDisk,
    /// What it holds from each of these commits on.
    states: BTreeMap<CommitSeq, Stored>,
    /// The leaves that its newest checkpoint reaches.
    leaves: Vec<Leaf>,
    /// The commit of that checkpoint.
    pub checkpoint: CommitSeq,
    /// Its data file at earlier checkpoints.
    pub(super) earlier: Vec<Vec<u8>>,
    /// No single corruption may lead to an older commit without an error.
    pub floor: CommitSeq,
}

impl Specimen {
    /// What it held after a commit: two states if the commit is one of several of one call.
    #[must_use]
    pub fn at(&self, seq: CommitSeq) -> Vec<&Stored> {
        let before = self.states.range(..=seq).next_back().expect("it began empty");
        let next = self.states.range(seq..).next().filter(|_| *before.0 != seq);
        [Some(before), next].into_iter().flatten().map(|(_, stored)| stored).collect()
    }
}

impl Specimen {
    /// The leaves with rows of a program that its newest checkpoint reaches.
    pub(super) fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Whether there was such a store after some commit.
    pub(super) fn had(&self, of: &(StoreKind, String)) -> bool {
        self.states.values().any(|stored| stored.rows.contains_key(of))
    }

    /// Whether a store had this row after some commit.
    pub(super) fn was_ever(&self, of: &(StoreKind, String), key: &[u8], value: &[u8]) -> bool {
        let rows = self.states.values().filter_map(|stored| stored.rows.get(of)?.get(key));
        rows.into_iter().any(|there| there == value)
    }
}

/// The options of all databases here: tiny nodes, nothing in the background.
#[must_use]
pub fn options() -> DbOptions {
    Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.memory_bytes = 4 * 1024 * 1024;
        options.background = Background::Stepped;
        options.checkpoint_log_bytes = Some(u64::MAX);
    })
}

/// Opens a database of a disk.
///
/// # Errors
/// As [`DbOptions::open_on`].
pub fn open(disk: &MemDisk, path: &str) -> Result<Db> {
    options().open_on(Arc::new(disk.clone()), Path::new(path))
}

impl Stored {
    /// Whether a store has a row.
    pub(super) fn has(&self, of: &(StoreKind, String), key: &[u8]) -> bool {
        self.rows.get(of).is_some_and(|rows| rows.contains_key(key))
    }

    /// Everything that a database holds.
    ///
    /// # Errors
    /// The error of reading it.
    pub fn of(db: &Db) -> Result<Stored> {
        let snapshot = db.snapshot()?;
        let mut rows = BTreeMap::new();
        for schema in snapshot.collections()? {
            let mut documents = Rows::new();
            for document in db.documents(schema.name()).scan(Span::all())? {
                let document = document?;
                let Some(Value::Int(id)) = document.get("id") else {
                    return Err(Error::invalid("a document without its key"));
                };
                let key = tuple::encode(&u64::try_from(*id).map_err(|_| Error::invalid("a negative id"))?)?;
                documents.insert(key, document.to_bytes()?);
            }
            rows.insert((StoreKind::Collection, schema.name().to_owned()), documents);
        }
        for namespace in snapshot.kv_namespaces()? {
            let kv = db.kv(&namespace);
            let mut values = Rows::new();
            for row in kv.scan::<u64, String>(Span::all())? {
                let (key, value) = row?;
                let stored = format!("{value} {:?}", kv.expiry(key)?);
                values.insert(tuple::encode(&key)?, stored.into_bytes());
            }
            rows.insert((StoreKind::KeyValues, namespace), values);
        }
        let mut blobs = Rows::new();
        for key in 0..BLOBS {
            if let Some(mut reader) = db.blobs("files").get(key)? {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).map_err(|error| Error::invalid(error.to_string()))?;
                blobs.insert(tuple::encode(&key)?, bytes);
            }
        }
        rows.insert((StoreKind::Blobs, "files".to_owned()), blobs);
        for tree in snapshot.byte_trees()? {
            let mut cursor = db.bytes(&tree).scan(KeyRange::all(), Direction::Forward)?;
            let mut entries = Rows::new();
            while let Some((key, value)) = cursor.next()? {
                entries.insert(key.to_vec(), value.to_vec());
            }
            rows.insert((StoreKind::Bytes, tree), entries);
        }
        Ok(Stored { rows })
    }
}

const BLOBS: u64 = 3;

/// A value in a namespace that a killed database dropped after its checkpoint: it must not come back, under
/// any name.
pub(crate) const DOOMED: &str = "a value that was dropped";

/// A database being written, and what it held at each commit.
struct Story {
    disk: MemDisk,
    db: Db,
    states: BTreeMap<CommitSeq, Stored>,
    checkpoint: CommitSeq,
    earlier: Vec<Vec<u8>>,
}

impl Story {
    fn note(&mut self) {
        let seq = self.db.durability_status().published;
        self.states.insert(seq, Stored::of(&self.db).expect("whole"));
    }

    fn documents(&mut self, collection: &str, ids: std::ops::Range<u64>, tag: &str) {
        self.db
            .transact(|tx| {
                ids.clone().try_for_each(|id| {
                    let city = ["Oslo", "Bergen", "Voss"][usize::try_from(id % 3).expect("small")];
                    let email = format!("{tag}{id}@example.org");
                    tx.documents(collection).put(doc! { "id": id, "city": city, "email": email, "n": id * 7 })
                })
            })
            .expect("a healthy disk");
        self.note();
    }

    fn blob(&mut self, key: u64, bytes: usize) {
        let content: Vec<u8> =
            (0..bytes).map(|at| u8::try_from((at * 31 + bytes) % 251).expect("small")).collect();
        let files = self.db.blobs("files").piece_bytes(1024).expect("the smallest");
        files.put(key, &content[..]).expect("a healthy disk");
        self.note();
    }

    fn values(&mut self, keys: std::ops::Range<u64>, ttl: bool) {
        let kv = self.db.kv("sessions");
        for key in keys {
            let value = format!("value {key}");
            if ttl {
                kv.put_with(key, &value, Ttl::hours(key - 1999)).expect("a healthy disk");
            } else {
                kv.put(key, &value).expect("a healthy disk");
            }
            self.note();
        }
    }

    fn bytes(&mut self, keys: std::ops::Range<u8>, length: usize) {
        for key in keys {
            self.db.bytes("raw").put([key], vec![key; length + usize::from(key)]).expect("a healthy disk");
            self.note();
        }
    }

    /// Closes it, which writes a checkpoint, and opens it again.
    fn checkpoint(&mut self) {
        self.checkpoint = self.db.durability_status().published;
        self.db.close().expect("a healthy disk");
        self.disk = self.disk.crash(&CrashChoice::All);
        self.db = open(&self.disk, DATABASE).expect("it was closed");
        self.earlier.push(self.disk.read_file(DATA).expect("it is there"));
    }

    fn finish(self, name: &'static str, floor: CommitSeq) -> Specimen {
        let disk = self.disk.crash(&CrashChoice::All);
        let leaves = leaves(&disk.read_file(DATA).expect("it is there"));
        assert!(leaves.len() >= 8, "every store has leaves, and there are {}", leaves.len());
        let compressed = leaves.iter().filter(|leaf| leaf.is_compressed()).count();
        assert!(compressed > 2 && compressed < leaves.len(), "{compressed} leaves are compressed");
        Specimen {
            name,
            disk,
            states: self.states,
            leaves,
            checkpoint: self.checkpoint,
            earlier: self.earlier,
            floor,
        }
    }
}

fn begin(seed: u64) -> Story {
    let disk = MemDisk::new(seed);
    let db = open(&disk, DATABASE).expect("a healthy disk");
    let states = BTreeMap::from([(CommitSeq(0), Stored::default())]);
    let mut story = Story { disk, db, states, checkpoint: CommitSeq(0), earlier: Vec::new() };
    let by_city = ViewSpec::new("by_city", ["city"]).values(["n"]).reduce([Reduce::Sum(0), Reduce::Max(0)]);
    let by_email = ViewSpec::new("by_email", ["email"]).unique();
    let people = Schema::new("people").key(["id"]).sum(["n"]).view(by_city).view(by_email);
    story.db.ensure(&people).expect("new");
    story.db.ensure(&Schema::new("notes").key(["id"])).expect("new");
    story.db.consumer("mailer").from_now().register().expect("new");
    story.note();
    story.documents("people", 0..40, "a");
    story.documents("notes", 1000..1012, "b");
    story.values(2000..2010, true);
    story.values(2010..2016, false);
    story.blob(0, 2500);
    story.blob(1, 700);
    story.bytes(0..12, 20);
    story.bytes(20..22, 900);
    story.checkpoint();
    story.documents("people", 30..50, "c");
    story.bytes(3..6, 30);
    story.db.kv("doomed").put(0u64, DOOMED).expect("a healthy disk");
    story.note();
    story.checkpoint();
    // So often that pages lie where earlier ones lay.
    for tag in ["f", "g", "h"] {
        story.documents("people", 0..50, tag);
        story.documents("notes", 1000..1012, tag);
        story.checkpoint();
    }
    story
}

/// A specimen that was closed cleanly: everything is in the newest checkpoint.
#[must_use]
pub fn closed(seed: u64) -> Specimen {
    let story = begin(seed);
    let last = *story.states.keys().next_back().expect("it was written to");
    story.finish("closed", last)
}

/// A killed specimen: changes since the checkpoint are in the log.
#[must_use]
pub fn killed(seed: u64) -> Specimen {
    let mut story = begin(seed);
    story.db.kv("doomed").clear().expect("a healthy disk");
    story.note();
    story.documents("people", 45..60, "d");
    story.documents("notes", 1005..1009, "e");
    story.blob(0, 1800);
    story.blob(2, 1500);
    story.values(2008..2012, true);
    story.bytes(21..23, 950);
    story.bytes(5..7, 40);
    let floor = story.db.durability_status().published;
    // Nothing in the log calls the last group durable yet.
    story.bytes(7..8, 50);
    story.finish("killed", floor)
}
