//! Owners of extents, and what the two superblocks lead to: protections of D2 and D3 that need a failure at
//! one call.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_engine::data_file::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use duramen_engine::{Background, Durability, Engine, ErrorKind, Hooks, Options, Transaction, TreeId};

use super::watched::WatchedDisk;
use super::{GEOMETRY, filled, open, open_on};

fn put(engine: &Engine, tree: TreeId, key: &[u8], value: &[u8]) {
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, value)).unwrap();
}

fn look(engine: &Engine, when: &str) {
    let report = engine.check().unwrap();
    assert!(report.is_clean() && report.unreached.is_empty(), "{when}: {report:?}");
}

/// D3: any one write of a checkpoint fails. Each extent that the checkpoint allocated is freed once, by its
/// owner: at a second time, it could hold another value.
#[test]
fn a_checkpoint_whose_write_fails_gives_each_extent_back_once() {
    let mut failed_count = 0;
    for nth in 0.. {
        let (disk, engine, tree) = filled(10);
        let (other, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("other", None)).unwrap();
        for key in 0..60u8 {
            put(&engine, other, &[key; 30], &[key; 90]);
        }
        engine.checkpoint().unwrap();
        put(&engine, tree, b"more", &[7; 200]);
        put(&engine, other, b"more", &[7; 900]);
        disk.set_faults(Fault::new(CallKind::Write, nth, Effect::EIO).on("data"));
        let outcome = engine.checkpoint();
        disk.set_faults(FaultPlan::none());
        let Err(error) = outcome else { break };
        let poisoned = engine.durability_status().poisoned;
        if poisoned.is_some() {
            assert!(error.message().contains("superblock"), "write {nth}: {error}, {poisoned:?}");
            engine.abandon();
            continue;
        }
        failed_count += 1;
        look(&engine, &format!("write {nth} failed"));
        put(&engine, other, b"big", &[9; 2_000]);
        engine.checkpoint().unwrap();
        look(&engine, &format!("after the checkpoint that follows the one whose write {nth} failed"));
        assert_eq!(engine.get(other, b"big").unwrap(), Some(vec![9; 2_000]));
        engine.abandon();
    }
    assert!(failed_count >= 2, "{failed_count} writes failed without a superblock's");
}

/// Yields so many bytes, then fails.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the source is gone"));
        }
        let count = self.0.min(buffer.len());
        self.0 -= count;
        buffer[..count].fill(5);
        Ok(count)
    }
}

/// A value whose source fails leaves no extent behind, though its transaction goes on and commits.
///
/// `check` cannot see such blocks: values without a commit may belong to open transactions. So the used
/// blocks are counted.
#[test]
fn extents_of_a_value_whose_source_failed_are_free_though_the_transaction_commits() {
    let (disk, engine, tree) = filled(11);
    let used_after = |failing_count: usize| {
        for _ in 0..failing_count {
            let failing = |tx: &mut Transaction| {
                let error = tx.put_stream(tree, b"stream", &mut Failing(5_000)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Io);
                tx.put(tree, b"row", b"value")
            };
            engine.transact(Durability::Disk, failing).unwrap();
        }
        for value in [1, 2] {
            put(&engine, tree, b"row", &[value; 5]);
            engine.checkpoint().unwrap();
        }
        let space = engine.stats().space;
        space.used_blocks - space.waiting_blocks
    };
    let baseline = used_after(0);
    assert_eq!(used_after(50), baseline, "blocks in use after 50 values whose source failed");
    look(&engine, "after the checkpoints");
    engine.abandon();
    let engine = open(&disk).unwrap();
    look(&engine, "opened again");
    assert_eq!(engine.get(tree, b"row").unwrap(), Some(vec![2; 5]));
}

/// A transaction that replaces a big value of its own knows its extents: no read is needed, so none can fail.
#[test]
fn a_value_replaced_in_its_own_transaction_is_given_back_without_a_read() {
    let (disk, engine, tree) = filled(12);
    engine
        .transact(Durability::Disk, |tx| {
            tx.put(tree, b"big", &[1; 3_000])?;
            disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).for_good());
            let replaced = tx.put(tree, b"big", &[2; 10]);
            disk.set_faults(FaultPlan::none());
            replaced
        })
        .unwrap();
    engine.checkpoint().unwrap();
    look(&engine, "after the checkpoint");
}

/// `check` during a checkpoint reports no false problems: what it found at its beginning may have moved
/// since.
#[test]
fn a_checkpoint_in_the_middle_of_a_check_is_no_lost_space() {
    let disk = MemDisk::new(13);
    let watched = WatchedDisk::new(&disk);
    let engine = open_on(Arc::new(watched.clone())).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for key in 0..60u8 {
        put(&engine, tree, &[key], &[key; 100]);
    }
    engine.checkpoint().unwrap();
    put(&engine, tree, &[30], &[1; 60]);
    put(&engine, tree, b"big", &[1; 2_000]);
    // The log is read last at the beginning: the next read of the data file belongs to the trees.
    let mut has_read_log = false;
    let is_first_of_trees = move |path: &Path, _| {
        has_read_log |= path.extension().is_some_and(|extension| extension == "wal");
        has_read_log && path.ends_with("data")
    };
    let (other, done) = (engine.clone(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&done);
    watched.before_read(is_first_of_trees, move || {
        for value in 0..3u8 {
            put(&other, tree, &[31], &[value; 70]);
            put(&other, tree, b"big", &[value; 1_900]);
            other.checkpoint().unwrap();
        }
        let mut open = other.begin().unwrap();
        open.put(tree, b"written and not committed", &[3; 1_000]).unwrap();
        told.store(true, Ordering::Relaxed);
        std::mem::forget(open);
    });
    look(&engine, "with checkpoints in the middle");
    assert!(done.load(Ordering::Relaxed), "the checkpoints ran while the trees were walked");
}

/// A node of the checked state has no page at the beginning, and is written back meanwhile to blocks that
/// then belonged to another page. What was found at the beginning must not count against it.
#[test]
fn a_spill_in_the_middle_of_a_check_into_blocks_that_were_freed_is_no_block_of_two_pages() {
    let disk = MemDisk::new(16);
    let watched = WatchedDisk::new(&disk);
    let options = Options {
        geometry: GEOMETRY,
        memory_bytes: 64 * 1024,
        background: Background::Stepped,
        ..Options::default()
    };
    let engine =
        Engine::open(Arc::new(watched.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let (filler, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("filler", None)).unwrap();
    // Blocks on the pending-free list when the check begins, more than the filler's pages take meanwhile.
    let big = |key: u8| [b'b', key];
    (0..60).for_each(|key| put(&engine, filler, &big(key), &[key; 5_000]));
    engine.checkpoint().unwrap();
    let delete = |tx: &mut Transaction| (0..60).try_for_each(|key| tx.delete(filler, &big(key)));
    engine.transact(Durability::Disk, delete).unwrap();
    let rewrite = move |engine: &Engine, value: u8| {
        let all = |tx: &mut Transaction| (0..60u8).try_for_each(|key| tx.put(tree, &[key], &[value; 100]));
        engine.transact(Durability::Disk, all).unwrap();
    };
    rewrite(&engine, 1);
    // The log is read last at the beginning: the next read of the data file belongs to the trees.
    let mut has_read_log = false;
    let is_first_of_trees = move |path: &Path, _| {
        has_read_log |= path.extension().is_some_and(|extension| extension == "wal");
        has_read_log && path.ends_with("data")
    };
    let (other, spilled) = (engine.clone(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&spilled);
    watched.before_read(is_first_of_trees, move || {
        for value in [2, 3, 4] {
            rewrite(&other, value);
            other.checkpoint().unwrap();
        }
        let dirty_before = other.stats().dirty_bytes;
        for key in 0..250u8 {
            put(&other, filler, &[key], &[key; 200]);
            other.step().unwrap();
        }
        told.store(other.stats().dirty_bytes < dirty_before, Ordering::Relaxed);
    });
    look(&engine, "with a spill in the middle");
    assert!(
        spilled.load(Ordering::Relaxed),
        "what only the check holds was spilled while the trees were walked"
    );
}

fn newest_superblock(disk: &MemDisk) -> (u64, Superblock) {
    let bytes = disk.read_file("/db/data").unwrap();
    let found = SUPERBLOCK_OFFSETS.map(|offset| {
        let at = usize::try_from(offset).unwrap();
        (offset, Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]).unwrap())
    });
    found.into_iter().max_by_key(|(_, superblock)| superblock.generation).unwrap()
}

/// D2: a superblock whose sync failed is clean in the kernel's cache, and not on the disk. An opening uses
/// it, and so must make it durable first.
///
/// The next checkpoint overwrites the other one: a cut during that would leave the disk's old contents
/// instead of the superblock in use.
#[test]
fn a_superblock_whose_sync_failed_is_made_durable_before_the_other_is_written_over() {
    let (disk, engine, tree) = filled(14);
    engine.checkpoint().unwrap();
    put(&engine, tree, b"a", &[1; 400]);
    engine.checkpoint().unwrap();
    let (_, durable) = newest_superblock(&disk);
    put(&engine, tree, b"b", &[2; 400]);
    // The second sync of a checkpoint is that of its superblock.
    disk.set_faults(
        Fault::new(CallKind::Sync, 1, Effect::SyncErrorDataGone(io::ErrorKind::Other)).on("data"),
    );
    assert!(engine.checkpoint().is_err());
    disk.set_faults(FaultPlan::none());
    engine.abandon();
    let (believed_at, believed) = newest_superblock(&disk);
    assert_eq!(believed.generation, durable.generation.next(), "reads still show it");

    let engine = open(&disk).unwrap();
    let (_, on_disk) = newest_superblock(&disk.crash(&CrashChoice::None));
    assert_eq!(on_disk, believed, "what was believed is on the disk once the database is open");
    for value in 0..8u8 {
        put(&engine, tree, &[b'c', value], &[value; 900]);
    }
    engine.checkpoint().unwrap();
    engine.abandon();
    let cut = disk.crash(&CrashChoice::None);
    let (newest_at, newest) = newest_superblock(&cut);
    assert!(newest_at != believed_at && newest.generation == believed.generation.next());
    cut.flip_bit("/db/data", newest_at + 100, 1).unwrap();
    let engine = open(&cut).expect("the superblock that was believed leads to the same state");
    for value in 0..8u8 {
        assert_eq!(engine.get(tree, &[b'c', value]).unwrap(), Some(vec![value; 900]));
    }
    look(&engine, "from the older superblock");
}

/// Read-only handles do not write: neither a read-only open nor an observer makes a superblock durable.
#[test]
fn an_open_that_only_reads_writes_no_superblock() {
    use duramen_engine::{ObserveFrom, Observer};
    let (disk, engine, _) = filled(15);
    engine.checkpoint().unwrap();
    engine.abandon();
    disk.reset_call_counts();
    let options = Options { read_only: true, background: Background::Stepped, ..Options::default() };
    let shared: Arc<dyn duramen_disk::Disk> = Arc::new(disk.clone());
    let reader = Engine::open(Arc::clone(&shared), "/db", options.clone(), Hooks::default()).unwrap();
    let wants = Arc::new(|_: &str| true);
    drop(Observer::open(shared, "/db", options, ObserveFrom::Now, wants).unwrap());
    reader.abandon();
    let counts = disk.call_counts();
    assert_eq!([counts.of(CallKind::Write), counts.of(CallKind::Sync)], [0, 0]);
}

/// D7: a process is killed at any point while the disk is full. The next opening can read, and delete.
#[test]
fn a_database_whose_process_was_killed_on_a_full_disk_opens_and_deletes() {
    let (mut tried, mut full) = (0, 0);
    let mut refused: Vec<String> = Vec::new();
    for room in (0..40).map(|n| n * 8 * 1024) {
        let (disk, engine, tree) = filled(20);
        disk.set_capacity(Some(disk.used_bytes() + room));
        let kill = |when: &str, refused: &mut Vec<String>| {
            let killed = disk.crash(&CrashChoice::All);
            killed.set_capacity(Some(killed.used_bytes()));
            match open(&killed) {
                Ok(next) => {
                    assert_eq!(next.get(tree, &[19]).unwrap(), Some(vec![19; 100]));
                    if let Err(error) = next.transact(Durability::Disk, |tx| tx.delete(tree, &[19])) {
                        refused.push(format!("{room} {when}, to delete: {error}"));
                    }
                    next.abandon();
                }
                Err(error) => refused.push(format!("{room} {when}: {error}")),
            }
        };
        for round in 0..30u8 {
            let put = |tx: &mut Transaction| {
                (0..10u8).try_for_each(|row| tx.put(tree, &[100, round, row], &[round; 100]))
            };
            full += u64::from(engine.transact(Durability::Disk, put).is_err());
            kill("put", &mut refused);
            tried += 1;
            drop(engine.step());
        }
        for key in 0..15u8 {
            if engine.transact(Durability::Disk, |tx| tx.delete(tree, &[key])).is_err() {
                break;
            }
            kill("delete", &mut refused);
            tried += 1;
        }
        engine.abandon();
    }
    assert!(full > 100, "{full} puts were refused");
    assert!(refused.is_empty(), "{} of {tried}: {:#?}", refused.len(), refused);
}

/// D7: the last groups before the kill are longer than the spare segments, and no durable watermark follows
/// them.
///
/// An opening copies them, on a full disk.
#[test]
fn a_database_killed_after_a_long_group_on_a_full_disk_opens() {
    for value_count in [1, 4, 16, 64, 200u8] {
        let (disk, engine, tree) = filled(23);
        let put = |tx: &mut Transaction| {
            (0..value_count).try_for_each(|row| tx.put(tree, &[100, row], &[row; 900]))
        };
        engine.transact(Durability::Disk, put).unwrap();
        let killed = disk.crash(&CrashChoice::All);
        engine.abandon();
        killed.set_capacity(Some(killed.used_bytes()));
        let next = open(&killed).unwrap_or_else(|error| panic!("{value_count} values: {error}"));
        for row in 0..value_count {
            assert_eq!(next.get(tree, &[100, row]).unwrap(), Some(vec![row; 900]));
        }
        next.transact(Durability::Disk, |tx| tx.delete(tree, &[19])).unwrap();
        next.abandon();
    }
}

/// D7: each opening after a kill goes on in a new segment. Repeated kills with few writes in between must not
/// take a segment of the disk each time.
#[test]
fn a_process_that_is_killed_again_and_again_lets_go_of_segments() {
    let (disk, engine, tree) = filled(21);
    engine.abandon();
    let segments = || disk.files().iter().filter(|path| path.extension().is_some_and(|e| e == "wal")).count();
    let before = segments();
    for round in 0..60u8 {
        let engine = open(&disk).unwrap();
        put(&engine, tree, &[round], b"little");
        engine.step().unwrap();
        engine.abandon();
    }
    let after = segments();
    assert!(after < before + 20, "{before} segments, and {after} after 60 kills");
}
