//! Databases to be corrupted: small ones that contain everything that can be corrupted.
//!
//! Owns their making. Each comes with the contents it must have at every commit, and with copies of earlier
//! states. Nothing here judges; the asserts at the end make sure that the sweep's subjects really exist.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{
    Background, Builtin, CommitSeq, Durability, Engine, Geometry, Hooks, Options, Result, Transaction,
};

use crate::contents::{Contents, Dice};
use crate::search::shapes::GEOMETRY;

/// Where the databases lie.
pub(super) const DATABASE: &str = "/db";

/// The files of one specimen together are no larger.
const BYTES_MAX: usize = 128 * 1024;

const DATA: &str = "/db/data";

/// A database to be corrupted.
#[derive(Debug, Clone)]
pub struct Specimen {
    /// What it is.
    pub name: &'static str,
    /// Its disk; nothing is pending.
    pub disk: MemDisk,
    /// Earlier states of the same disk, each with what it is.
    pub earlier: Vec<(&'static str, MemDisk)>,
    /// Another database.
    pub stranger: MemDisk,
    /// What it holds after each commit.
    pub states: BTreeMap<CommitSeq, Contents>,
    /// The oldest commit at which it may be found after one corruption: later bytes call that commit durable.
    pub floor: CommitSeq,
    /// The commit of the newest durable watermark: it may be found there with everything after it corrupted.
    pub marked: CommitSeq,
    /// The commit of its checkpoint: only a log rolled back as a whole may lead there, which cannot be
    /// detected.
    pub checkpoint: CommitSeq,
}

impl Specimen {
    /// The newest commit.
    #[must_use]
    pub fn last(&self) -> CommitSeq {
        *self.states.keys().next_back().expect("it was written to")
    }

    /// All files to corrupt: not the lock files, whose contents only name a holder.
    #[must_use]
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        files_of(&self.disk)
    }
}

/// The files of a disk, without the locks.
#[must_use]
pub fn files_of(disk: &MemDisk) -> Vec<(String, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|path| path.to_string_lossy().into_owned());
    let paths = paths.filter(|path| !path.ends_with("/lock"));
    paths.map(|path| (path.clone(), disk.read_file(&path).expect("it was listed"))).collect()
}

/// Tiny blocks, nodes and segments, so that few bytes have many parts.
#[must_use]
pub(super) fn options() -> Options {
    Options {
        geometry: Geometry { segment_bytes_max: GEOMETRY.segment_bytes_min, ..GEOMETRY },
        memory_bytes: 4 * 1024 * 1024,
        background: Background::Stepped,
        checkpoint_log_bytes: Some(u64::MAX),
        ..Options::default()
    }
}

/// Opens the database of a disk; reads may come before its log is in the trees.
///
/// # Errors
/// As [`Engine::open`].
pub(super) fn open(disk: &MemDisk, answer_before_replay: bool) -> Result<Engine> {
    let answer_before_replay = Some(answer_before_replay);
    let options = Options { create: false, answer_before_replay, ..options() };
    Engine::open(Arc::new(disk.clone()), Path::new(DATABASE), options, Hooks::default())
}

/// A database being written, and what it must hold.
struct Story {
    disk: MemDisk,
    engine: Engine,
    dice: Dice,
    contents: Contents,
    states: BTreeMap<CommitSeq, Contents>,
}

impl Story {
    fn begin(seed: u64) -> Story {
        let disk = MemDisk::new(seed);
        let engine = Engine::open(Arc::new(disk.clone()), DATABASE, options(), Hooks::default());
        let states = BTreeMap::from([(CommitSeq(0), Contents::default())]);
        Story {
            disk,
            engine: engine.expect("a healthy disk"),
            dice: Dice::new(seed),
            contents: Contents::default(),
            states,
        }
    }

    fn commit(&mut self, level: Durability, body: impl FnOnce(&mut Transaction, &mut Contents, &mut Dice)) {
        let mut transaction = self.engine.begin().expect("a healthy engine");
        body(&mut transaction, &mut self.contents, &mut self.dice);
        let receipt = transaction.commit(level).expect("nobody is in the way");
        self.states.insert(receipt.seq(), self.contents.clone());
    }

    fn create(&mut self, name: &str, reducer: Option<Builtin>) {
        self.commit(Durability::Disk, |transaction, contents, _| {
            transaction.create_tree(name, reducer.map(Builtin::spec)).expect("a new name");
            contents.tree_mut(name).reducer = reducer;
        });
    }

    fn drop_tree(&mut self, name: &str) {
        self.commit(Durability::Disk, |transaction, contents, _| {
            transaction.drop_tree(name).expect("there is one");
            contents.drop_tree(name);
        });
    }

    /// Puts values of these lengths under keys from `first` on.
    fn put(&mut self, level: Durability, name: &str, first: u64, lengths: &[usize]) {
        self.commit(level, |transaction, contents, dice| {
            let id = transaction.tree(name).expect("whole").expect("there is one");
            for (key, length) in (first..).zip(lengths) {
                let (key, value) = (format!("{name}-{key:03}").into_bytes(), dice.value(*length));
                transaction.put(id, &key, &value).expect("small");
                contents.tree_mut(name).rows.insert(key, value);
            }
        });
    }

    fn delete(&mut self, name: &str, first: u64, count: u64) {
        self.commit(Durability::Disk, |transaction, contents, _| {
            let id = transaction.tree(name).expect("whole").expect("there is one");
            for key in first..first + count {
                let key = format!("{name}-{key:03}").into_bytes();
                transaction.delete(id, &key).expect("small");
                contents.tree_mut(name).rows.remove(&key);
            }
        });
    }

    fn checkpoint(&self) {
        self.engine.checkpoint().expect("a healthy disk");
    }

    /// Lets the idle log write its durable watermark.
    fn mark(&self) {
        let frames = self.engine.stats().log.frame_count;
        self.engine.step().expect("a healthy disk");
        self.disk.advance_clock(200_000_000);
        self.engine.step().expect("a healthy disk");
        assert!(self.engine.stats().log.frame_count > frames, "a mark was written");
    }

    /// The disk as it is, without the room reserved ahead in the data file: nothing was ever written there.
    fn copy(&self) -> MemDisk {
        let disk = self.disk.crash(&CrashChoice::All);
        let mut data = disk.read_file(DATA).expect("it is there");
        let end = self.engine.stats().space.end_block * self.engine.stats().block_bytes;
        data.truncate(usize::try_from(end).expect("small"));
        disk.write_file(DATA, &data).expect("it is there");
        disk
    }

    /// Trees of all kinds, with and without big values, one of them dropped; the two superblocks differ.
    fn tell_beginning(&mut self) {
        self.create("lows", Some(Builtin::Min));
        self.create("plain", None);
        self.create("sums", Some(Builtin::Sum));
        self.create("doomed", Some(Builtin::Max));
        self.put(Durability::Disk, "plain", 0, &[20; 18]);
        self.put(Durability::Disk, "sums", 0, &[8; 22]);
        self.put(Durability::Disk, "doomed", 0, &[30, 350, 900, 10]);
        self.put(Durability::Disk, "plain", 100, &[350, 1300]);
        self.checkpoint();
        self.put(Durability::Disk, "sums", 200, &[320, 850]);
        self.put(Durability::Disk, "lows", 0, &[8; 5]);
        self.delete("sums", 3, 4);
        self.put(Durability::Disk, "plain", 100, &[360]);
        self.drop_tree("doomed");
        self.checkpoint();
        self.put(Durability::Disk, "plain", 10, &[33; 3]);
        self.delete("plain", 0, 2);
    }

    fn finish(self, name: &'static str, earlier: Vec<(&'static str, MemDisk)>, floor: CommitSeq) -> Specimen {
        let disk = self.copy();
        let sizes: Vec<_> = files_of(&disk).into_iter().map(|(path, bytes)| (path, bytes.len())).collect();
        let bytes: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= BYTES_MAX, "{name} has {bytes} bytes, at most {BYTES_MAX}: {sizes:?}");
        assert_eq!(disk.pending_len(), 0);
        let superblock = |at: usize| disk.read_file(DATA).expect("it is there")[at..at + 512].to_vec();
        assert_ne!(superblock(0), superblock(16384), "two superblocks, both live");
        Specimen {
            name,
            disk,
            earlier,
            stranger: stranger(),
            states: self.states,
            floor,
            marked: floor,
            checkpoint: floor,
        }
    }
}

/// A specimen that was closed cleanly.
#[must_use]
pub fn closed(seed: u64) -> Specimen {
    let mut story = Story::begin(seed);
    story.tell_beginning();
    let mut earlier = vec![("a running state with an older checkpoint", story.copy())];
    story.put(Durability::Disk, "lows", 2, &[12; 6]);
    story.checkpoint();
    earlier.push(("a running state right after a checkpoint", story.copy()));
    story.put(Durability::Disk, "sums", 204, &[330]);
    story.put(Durability::Disk, "plain", 40, &[25; 4]);
    earlier.push(("a running state with the checkpoint before the last", story.copy()));
    story.put(Durability::Disk, "plain", 50, &[25; 2]);
    story.engine.close().expect("a healthy disk");
    earlier.push(("an earlier clean close", story.copy()));
    // Another disk: the handle that closed the first still holds its lock.
    story.disk = story.copy();
    story.engine = open(&story.disk, false).expect("it was closed");
    story.put(Durability::Disk, "lows", 1, &[9]);
    story.put(Durability::Disk, "plain", 101, &[1300]);
    let stats = story.engine.stats();
    assert!(stats.space.used_blocks < stats.space.end_block, "extents are free: {:?}", stats.space);
    story.engine.close().expect("a healthy disk");
    let last = *story.states.keys().next_back().expect("it was written to");
    story.finish("closed", earlier, last)
}

/// A killed specimen with a log to replay: segments below a watermark, groups after it, the last of them not
/// synced.
#[must_use]
pub fn killed(seed: u64) -> Specimen {
    let mut story = Story::begin(seed);
    story.tell_beginning();
    let mut earlier = vec![("a running state with an older checkpoint", story.copy())];
    story.checkpoint();
    let checkpoint = *story.states.keys().next_back().expect("it was written to");
    earlier.push(("a running state right after the checkpoint", story.copy()));
    story.put(Durability::Disk, "plain", 60, &[110; 10]);
    story.put(Durability::Disk, "lows", 6, &[80; 10]);
    story.put(Durability::Disk, "plain", 102, &[310, 700]);
    story.mark();
    earlier.push(("a running state without a checkpoint since", story.copy()));
    story.put(Durability::Disk, "plain", 60, &[110; 12]);
    story.put(Durability::Disk, "sums", 10, &[110; 10]);
    story.create("late", Some(Builtin::Sum));
    story.put(Durability::Disk, "late", 0, &[8, 16, 500]);
    story.mark();
    let marked = *story.states.keys().next_back().expect("it was written to");
    story.put(Durability::Disk, "lows", 3, &[11; 2]);
    let floor = *story.states.keys().next_back().expect("it was written to");
    story.put(Durability::Process, "lows", 20, &[11; 3]);
    story.put(Durability::Process, "late", 2, &[40; 2]);
    let stats = story.engine.stats();
    assert!(stats.log.used_count >= 3, "segments to replay: {:?}", stats.log);
    assert!(stats.space.waiting_blocks > 0, "extents are pending: {:?}", stats.space);
    story.engine.clone().abandon();
    let mut specimen = story.finish("killed", earlier, floor);
    (specimen.marked, specimen.checkpoint) = (marked, checkpoint);
    specimen
}

fn stranger() -> MemDisk {
    let mut story = Story::begin(0x5eed);
    story.create("plain", None);
    story.put(Durability::Disk, "plain", 0, &[20; 18]);
    story.checkpoint();
    story.put(Durability::Disk, "plain", 10, &[20; 18]);
    story.engine.close().expect("a healthy disk");
    story.copy()
}
