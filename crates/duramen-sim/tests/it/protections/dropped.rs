//! Groups of the log without room that contain commits which had returned: no caller is left to get the
//! error.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use duramen_disk::memory::{Blocker, CallKind, Effect, Fault, SyncGate};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::limits::CONFLICTS_MAX;
use duramen_engine::{
    Background, Builtin, Code, CommitSeq, Direction, Durability, Engine, Error, Event, EventHook, Geometry,
    Hooks, Keep, KeyRange, Options, ReducerSpec, Transaction, TreeId,
};
use duramen_sim::search::shapes::GEOMETRY;

/// The next write to the log finds the disk full, once.
fn full_log() -> Fault {
    Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal")
}

/// An engine with recorded events.
fn open_noting(disk: &MemDisk) -> (Engine, TreeId, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let on_event: EventHook = Arc::new(move |event: &Event| noted.lock().unwrap().push(event.clone()));
    let options = Options { background: Background::Stepped, ..Options::default() };
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, hooks).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    (engine, tree, events)
}

/// D7: a commit at level `Memory` returns before its group is written. If the group is dropped, that is
/// counted, is an event, and is the result of a receipt that is waited for later.
#[test]
fn commits_that_had_returned_and_were_dropped_are_counted_and_told() {
    let disk = MemDisk::new(1);
    let (engine, tree, events) = open_noting(&disk);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    let put = |key: &[u8], level| engine.transact(level, |tx| tx.put(tree, key, b"value")).map(|done| done.1);
    let receipts = thread::scope(|scope| {
        let leader = scope.spawn(|| put(b"leader", Durability::Disk).unwrap());
        gate.wait_blocked(1);
        let mut receipts =
            vec![put(b"a", Durability::Memory).unwrap(), put(b"b", Durability::Memory).unwrap()];
        let later = engine.transact_and_wait_later(Durability::Process, |tx| tx.put(tree, b"c", b"value"));
        receipts.push(later.unwrap().1);
        disk.set_faults(full_log());
        gate.open();
        leader.join().unwrap().wait(Durability::Disk).unwrap();
        receipts
    });
    assert_eq!(disk.fault_hit_count(), 1, "their group was written, and had no room");
    for receipt in &receipts {
        assert_eq!(receipt.wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
        assert_eq!(receipt.wait(Durability::Disk).unwrap_err().code(), Code::DiskFull);
        assert_eq!(receipt.durability(), Durability::Memory);
    }
    assert_eq!(engine.stats().commit.dropped, 2, "the third has a receipt that is still to be waited on");
    engine.step().unwrap();
    let dropped: Vec<_> = events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::CommitsDropped { count, after, why } => Some((*count, *after, why.code())),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [(2, CommitSeq(receipts[0].seq().0 - 1), Code::DiskFull)]);

    // Later commits take the sequences, and the receipts still return the error.
    put(b"d", Durability::Disk).unwrap();
    assert_eq!(receipts[0].wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
    assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 2);
    assert_eq!(engine.stats().commit.dropped, 2);
}

/// A failed call returns its error to its caller: it is not a commit that was lost silently.
#[test]
fn commits_whose_callers_got_the_error_are_not_counted() {
    let disk = MemDisk::new(2);
    let (engine, tree, events) = open_noting(&disk);
    for level in [Durability::Memory, Durability::Process, Durability::Disk] {
        disk.set_faults(full_log());
        let mut transaction = engine.begin().unwrap();
        transaction.put(tree, b"key", b"value").unwrap();
        assert_eq!(transaction.commit(level).unwrap_err().code(), Code::DiskFull);
    }
    engine.step().unwrap();
    assert_eq!(engine.stats().commit.dropped, 0);
    let dropped = |event: &Event| matches!(event, Event::CommitsDropped { .. });
    assert!(!events.lock().unwrap().iter().any(dropped));
}

/// Work that commits batch after batch. During a background sync in between, the disk fills up for the next
/// write.
struct FilledUp {
    disk: MemDisk,
    batches: AtomicU64,
    has_filled: AtomicBool,
}

impl FilledUp {
    fn on(disk: &MemDisk, log: &'static str) -> Arc<FilledUp> {
        let (batches, has_filled) = (AtomicU64::new(0), AtomicBool::new(false));
        let filled = Arc::new(FilledUp { disk: disk.clone(), batches, has_filled });
        let of = Arc::clone(&filled);
        let blocker: Blocker = Arc::new(move |path| {
            let is_background = thread::current().name() == Some("duramen-log");
            // Syncs of other segments belong to spare segments.
            let is_of_frames = || {
                path.starts_with(log)
                    && of
                        .disk
                        .read_file(path)
                        .is_ok_and(|bytes| holds_rows(&bytes[..bytes.len().min(1 << 16)]))
            };
            if is_background && is_of_frames() && !of.has_filled.swap(true, Ordering::SeqCst) {
                of.fill(log);
            }
        });
        disk.set_blocker(Some(blocker));
        filled
    }

    fn batches(&self) -> u64 {
        self.batches.load(Ordering::SeqCst)
    }

    fn fill(&self, log: &str) {
        // Batches join the next group meanwhile, unless their commits wait for it.
        let before = self.batches();
        (0..100_000).find(|_| {
            thread::yield_now();
            self.batches() > before + 2
        });
        self.disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(log));
    }

    /// Counts a committed batch. After the fourth the work waits until the background syncs.
    fn batch(&self) {
        let batches = self.batches.fetch_add(1, Ordering::SeqCst) + 1;
        while batches >= 4 && !self.has_filled.load(Ordering::SeqCst) {
            self.disk.advance_clock(1_000);
            thread::yield_now();
        }
    }
}

fn holds_rows(bytes: &[u8]) -> bool {
    bytes.windows(VALUE.len()).any(|some| some == VALUE)
}

const VALUE: [u8; 250] = [7; 250];

/// Reading a whole database and writing it anew takes thousands of commits, with one result.
fn source() -> (MemDisk, Options) {
    let disk = MemDisk::new(3);
    let geometry = Geometry { segment_bytes_min: 8 << 20, segment_bytes_max: 8 << 20, ..GEOMETRY };
    let options = Options { geometry, background: Background::Threads, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options.clone(), Hooks::default());
    let engine = engine.unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for batch in 0..400u32 {
        let put = |tx: &mut Transaction| {
            (0..50).try_for_each(|n| tx.put(tree, &(batch * 50 + n).to_be_bytes(), &VALUE))
        };
        engine.transact(Durability::Process, put).unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    (disk, options)
}

fn rows(engine: &Engine) -> u64 {
    let snapshot = engine.snapshot().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    snapshot.count(tree, &KeyRange::all()).unwrap()
}

/// D2: a repair reports that nothing is missing if, and only if, nothing is.
#[test]
fn a_recovery_on_a_disk_that_fills_up_for_a_moment_loses_nothing() {
    let (disk, options) = source();
    let filled = FilledUp::on(&disk, "/new/wal");
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    let (from, to) = (Path::new("/db"), Path::new("/new"));
    let recovered =
        Engine::repair(&on, from, to, &options, Hooks::default(), &|_| Keep::Entries, &mut |_| {
            filled.batch();
            Ok(())
        });
    disk.set_blocker(None);
    let (new, repair) = recovered.unwrap();
    assert_eq!(disk.fault_hit_count(), 1, "the disk was full in the middle");
    assert!(repair.is_whole(), "{repair:?}");
    assert_eq!(rows(&new), 20_000);
}

/// D2: a backup that returned is complete.
#[test]
fn a_backup_to_a_disk_that_fills_up_for_a_moment_loses_nothing() {
    let (disk, options) = source();
    let open = |path: &str| {
        Engine::open(Arc::new(disk.clone()), Path::new(path), options.clone(), Hooks::default()).unwrap()
    };
    let engine = open("/db");
    let filled = FilledUp::on(&disk, "/copy/wal");
    let copied = engine.copy_to(Path::new("/copy"), &|_, value| value, &mut |_| {
        filled.batch();
        Ok(())
    });
    disk.set_blocker(None);
    copied.unwrap();
    assert_eq!(disk.fault_hit_count(), 1, "the disk was full in the middle");
    assert_eq!(rows(&open("/copy")), 20_000);
}

const ROWS: u32 = 2_000;

/// Puts so many rows, with checkpoints in between.
fn fill(engine: &Engine, tree: TreeId, value: u8) {
    for first in (0..ROWS).step_by(100) {
        let put = |tx: &mut Transaction| {
            (first..first + 100).try_for_each(|row| tx.put(tree, &row.to_be_bytes(), &[value; 100]))
        };
        engine.transact(Durability::Process, put).unwrap();
        engine.checkpoint().unwrap();
    }
}

/// D4: a transaction that read dropped commits finds other pages where its own were.
///
/// Its data is not corrupt: every query fails with a conflict.
#[test]
fn readers_of_commits_that_were_dropped_get_a_conflict_and_not_corruption() {
    let disk = MemDisk::new(4);
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    let open =
        || Engine::open(Arc::new(disk.clone()), Path::new("/db"), options.clone(), Hooks::default()).unwrap();
    let engine = open();
    let create = |name, spec: Option<ReducerSpec>| {
        engine.transact(Durability::Disk, |tx| tx.create_tree(name, spec.clone())).unwrap().0
    };
    let (tree, other) = (create("t", Some(Builtin::Sum.spec())), create("other", None));
    fill(&engine, tree, 1);
    // Opened without a hot-page list, the tree has no node in memory.
    engine.abandon();
    let engine = open();
    let put = |tx: &mut Transaction| tx.put(other, b"dropped", &[9; 5_000]);
    let (_, dropped) = engine.transact_and_wait_later(Durability::Process, put).unwrap();
    let mut readers: Vec<Transaction> = (0..7).map(|_| engine.begin().unwrap()).collect();
    let mut cursor = readers[0].rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let mut value = readers[1].open_value(other, b"dropped").unwrap().unwrap();
    disk.set_faults(full_log());
    assert_eq!(dropped.wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
    // Other pages are written where those of the dropped state were.
    engine.transact(Durability::Disk, |tx| tx.drop_tree("t")).unwrap();
    (2..6).for_each(|value| fill(&engine, other, value));

    let row = (ROWS / 2).to_be_bytes();
    let middle = || KeyRange { from: (ROWS / 3).to_be_bytes().to_vec(), to: Some(row.to_vec()) };
    let [_, _, get, count, nth, reduce, fork] = &mut readers[..] else { unreachable!("seven of them") };
    let is_conflict = |what: &str, failed: Option<Error>| match failed {
        Some(error) => assert_eq!(error.code(), Code::WriteConflict, "{what}: {error}"),
        None => panic!("{what} found what is not there any more"),
    };
    is_conflict("get", get.get(tree, &row).err());
    is_conflict("get of a big value", get.get(other, b"dropped").err());
    is_conflict("count", count.count(tree, &middle()).err());
    is_conflict("nth", nth.nth(tree, 1_234).err());
    is_conflict("reduce", reduce.reduce(tree, &middle()).err());
    fork.put(tree, &row, b"its own value").unwrap();
    is_conflict("a count with writes of its own", fork.count(tree, &KeyRange::all()).err());
    is_conflict("a cursor", (0..ROWS).find_map(|_| cursor.next().map(drop).err()));
    let read = value.read_to_end(&mut Vec::new()).unwrap_err();
    let inner = read.get_ref().and_then(|error| error.downcast_ref::<Error>());
    assert_eq!(inner.map(Error::code), Some(Code::WriteConflict), "{read}");
    // A commit of what was read fails for the same reason, and the present state can be read.
    let mut writer = readers.swap_remove(0);
    writer.put(other, b"key", b"some value").unwrap();
    is_conflict("a commit", writer.commit(Durability::Disk).err());
    assert_eq!(engine.get(other, &row).unwrap(), Some(vec![5; 100]));
    assert!(engine.check().unwrap().is_clean());
}

/// D7: a tree that was dropped is reclaimed after a group was dropped. Transactions that begin then read the
/// present state, and commit.
#[test]
fn a_tree_that_is_reclaimed_after_commits_were_dropped_stops_no_transaction() {
    let disk = MemDisk::new(6);
    let (engine, tree, _) = open_noting(&disk);
    let (old, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("old", None)).unwrap();
    engine.transact(Durability::Disk, |tx| tx.put(old, b"key", b"value")).unwrap();
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("old")).unwrap();
    let put = |tx: &mut Transaction| tx.put(tree, b"lost", b"value");
    let (_, lost) = engine.transact_and_wait_later(Durability::Process, put).unwrap();
    disk.set_faults(full_log());
    assert_eq!(lost.wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
    // Neither superblock has the tree after these.
    (0..4).for_each(|_| engine.checkpoint().unwrap());
    let mut tx = engine.begin().unwrap();
    assert_eq!(tx.get(tree, b"lost").unwrap(), None);
    tx.put(tree, b"key", b"value").unwrap();
    tx.commit(Durability::Disk).unwrap();
}

/// D7: a program that begins and commits by itself has no call that makes room for it. After a commit found
/// no room, the background makes it, and the next commit succeeds.
#[test]
fn a_commit_by_hand_that_found_the_disk_full_has_room_made_for_the_next() {
    let disk = MemDisk::new(6);
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let put = |value: u8| {
        let mut transaction = engine.begin()?;
        (0..20).try_for_each(|row: u32| transaction.put(tree, &row.to_be_bytes(), &[value; 200]))?;
        transaction.commit(Durability::Disk).map(drop)
    };
    for value in 0..20 {
        (0..10).try_for_each(|_| put(value)).unwrap();
        engine.step().unwrap();
        let before = engine.stats();
        assert!(before.log.used_count > 5, "no checkpoint is due: {:?}", before.log);
        disk.set_faults(full_log());
        assert_eq!(put(value).unwrap_err().code(), Code::DiskFull);
        engine.step().unwrap();
        let after = engine.stats();
        assert!(after.checkpoints > before.checkpoints, "a commit without room asks for a checkpoint");
        assert_eq!(after.log.used_count, 1, "only the segment that is written to is needed");
    }
}

/// D7: after too many conflicts a transaction runs alone. If it then finds the disk full, room is made for it
/// as for any other.
#[test]
fn a_transaction_that_runs_alone_has_room_made_on_a_full_disk() {
    let (disk, engine, tree) = {
        let disk = MemDisk::new(7);
        let (engine, tree, _) = open_noting(&disk);
        (disk, engine, tree)
    };
    let before = engine.stats().checkpoints;
    let mut attempts = 0;
    let done = engine.transact(Durability::Disk, |tx| {
        attempts += 1;
        tx.get(tree, b"contested")?;
        tx.put(tree, b"key", b"value")?;
        if attempts <= CONFLICTS_MAX {
            return engine.transact(Durability::Disk, |tx| tx.put(tree, b"contested", b"")).map(drop);
        }
        if attempts == CONFLICTS_MAX + 1 {
            disk.set_faults(full_log());
        }
        Ok(())
    });
    done.unwrap();
    assert_eq!(disk.fault_hit_count(), 1, "it ran alone, and found the disk full");
    assert_eq!(engine.stats().checkpoints, before + 2, "room was made once");
}

/// I1: an error that a closure derived from commits which were then dropped must not be returned: the closure
/// runs again.
#[test]
fn an_error_made_of_commits_that_were_dropped_is_not_returned() {
    let disk = MemDisk::new(8);
    let (engine, tree, _) = open_noting(&disk);
    let put = |tx: &mut Transaction| tx.put(tree, b"sold", b"out");
    let (_, sold) = engine.transact_and_wait_later(Durability::Process, put).unwrap();
    let mut attempts = 0;
    let bought = engine.transact(Durability::Disk, |tx| {
        attempts += 1;
        let is_sold_out = tx.get(tree, b"sold")?.is_some();
        if attempts == 1 {
            assert!(is_sold_out);
            disk.set_faults(full_log());
            assert_eq!(sold.wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
        }
        if is_sold_out { Err(Error::new(Code::NoSuchTree, "sold out")) } else { tx.put(tree, b"bought", b"") }
    });
    bought.unwrap();
    assert_eq!(attempts, 2);
}

/// D7: dropped commits are reported even if the next background step no longer runs: at the latest at the
/// close.
#[test]
fn dropped_commits_are_told_at_the_close_of_a_database_that_was_poisoned() {
    let disk = MemDisk::new(9);
    let (engine, tree, events) = open_noting(&disk);
    let put = |level| engine.transact(level, |tx| tx.put(tree, b"key", b"value")).map(|done| done.1);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    thread::scope(|scope| {
        let leader = scope.spawn(|| put(Durability::Disk).map(drop));
        gate.wait_blocked(1);
        put(Durability::Memory).unwrap();
        disk.set_faults(full_log());
        gate.open();
        leader.join().unwrap().unwrap();
    });
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
    put(Durability::Disk).unwrap_err();
    assert_eq!(engine.close().unwrap_err().code(), Code::EnginePoisoned);
    let dropped = |event: &&Event| matches!(event, Event::CommitsDropped { count: 1, .. });
    assert_eq!(events.lock().unwrap().iter().filter(dropped).count(), 1);
}
