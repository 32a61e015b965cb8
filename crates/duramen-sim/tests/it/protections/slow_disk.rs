//! A disk with slow syncs: promises with a time limit are not delayed by other work of the log.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::memory::{CallKind, Effect, Fault};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{Background, Code, Durability, Engine, Geometry, Hooks, Options, Transaction, TreeId};

const MS: u64 = 1_000_000;

/// The time of one sync; making a slice of a segment takes as long.
const SYNC_MS: u64 = 300;

/// The time within which a commit at level `Process` must be durable.
const PROCESS_SYNC_MS: u64 = 1_000;

/// The segment that receives the commits of a new database.
const CURRENT: &str = "00000002.wal";

/// A sync: its file, and when it ended.
type Synced = (String, u64);

/// A database that makes a segment of eight slices at its next step; its syncs are slow from now on, and
/// recorded.
fn slow(segments_max: u64) -> (MemDisk, Engine, TreeId, Arc<Mutex<Vec<Synced>>>) {
    let disk = MemDisk::new(12);
    let geometry = Geometry { segment_bytes_max: segments_max, ..Geometry::default() };
    let options = Options { geometry, background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let synced = Arc::new(Mutex::new(Vec::new()));
    let (notes, clock) = (Arc::clone(&synced), disk.clone());
    disk.set_blocker(Some(Arc::new(move |path: &Path| {
        clock.advance_clock(SYNC_MS * MS);
        notes.lock().unwrap().push((path.to_string_lossy().into_owned(), clock.monotonic_ns()));
    })));
    (disk, engine, tree, synced)
}

/// Milliseconds after `since` at which the segment with the commits was first synced.
fn late_ms(synced: &Mutex<Vec<Synced>>, since: u64) -> Option<u64> {
    let synced = synced.lock().unwrap();
    let first = synced.iter().find(|(path, at)| path.ends_with(CURRENT) && *at > since);
    first.map(|(_, at)| (at - since) / MS)
}

/// D1, level `Process`: the background syncs within a second, also while it makes a segment, which takes
/// seconds on a slow disk. It may be late by the slice in progress, and by the sync itself.
#[test]
fn a_segment_that_is_made_keeps_no_sync_waiting() {
    let (disk, engine, tree, synced) = slow(1 << 20);
    let (_, receipt) = engine.transact(Durability::Process, |tx| tx.put(tree, b"key", b"value")).unwrap();
    let committed = disk.monotonic_ns();
    engine.step().unwrap();
    let slices = (disk.monotonic_ns() - committed) / (SYNC_MS * MS);
    assert!(slices > 8, "a segment was made: {slices} syncs");
    let late = late_ms(&synced, committed).expect("it was synced while the segment was made");
    println!("durable after {late} ms, with {SYNC_MS} ms a sync");
    assert!(late <= PROCESS_SYNC_MS + 2 * SYNC_MS, "durable after {late} ms");
    assert_eq!(receipt.durability(), Durability::Disk);
    // The durable watermark follows soon, so that it covers the commit after a power cut.
    let marked = synced.lock().unwrap().iter().filter(|(path, _)| path.ends_with(CURRENT)).count();
    assert!(marked >= 2, "the commit and the mark were synced: {marked}");
}

/// D1, level `Process`: a group waits until a segment is made, and earlier writes do not wait for it.
#[test]
fn a_commit_that_waits_for_a_segment_keeps_no_sync_waiting() {
    let (disk, engine, tree, synced) = slow(1 << 20);
    engine.transact(Durability::Process, |tx| tx.put(tree, b"key", b"value")).unwrap();
    let committed = disk.monotonic_ns();
    let large: Vec<Vec<u8>> = (0..60).map(|_| vec![7; 30_000]).collect();
    engine
        .transact(Durability::Process, |tx| {
            large.iter().zip(0u8..).try_for_each(|(value, key)| tx.put(tree, &[key], value))
        })
        .unwrap();
    let late = late_ms(&synced, committed).expect("it was synced before the segment was made");
    assert!(late <= SYNC_MS, "durable after {late} ms");
}

/// D1, level `Process`: a group without room delays neither the sync of earlier writes nor its report.
#[test]
fn a_group_without_room_keeps_no_sync_waiting() {
    let (disk, engine, tree, _) = slow(1 << 20);
    let put = |tx: &mut Transaction| tx.put(tree, b"key", b"value");
    // Until no segment is left to be made, which takes time.
    (0..4).for_each(|_| engine.step().unwrap());
    let (_, receipt) = engine.transact(Durability::Process, put).unwrap();
    // From here on the background knows of unsynced writes.
    engine.step().unwrap();
    disk.advance_clock(PROCESS_SYNC_MS * MS);
    assert_eq!(receipt.durability(), Durability::Process);
    let (_, pending) = engine.transact_and_wait_later(Durability::Process, put).unwrap();
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
    assert_eq!(engine.step().unwrap_err().code(), Code::DiskFull);
    assert_eq!(pending.wait(Durability::Process).unwrap_err().code(), Code::DiskFull);
    assert_eq!(receipt.durability(), Durability::Disk);
}

/// D1: writes synced while a group waits for a segment are durable whatever happens to the group, as their
/// receipts show.
#[test]
fn what_is_synced_before_a_segment_is_made_is_told() {
    let (disk, engine, tree, _) = slow(1 << 20);
    let (_, receipt) = engine.transact(Durability::Process, |tx| tx.put(tree, b"key", b"value")).unwrap();
    let mut large = engine.begin().unwrap();
    (0..60u8).try_for_each(|key| large.put(tree, &[key], &[7; 30_000])).unwrap();
    disk.set_faults(Fault::new(CallKind::Reserve, 0, Effect::ENOSPC).on(".wal").for_good());
    assert_eq!(large.commit(Durability::Process).unwrap_err().code(), Code::DiskFull);
    assert_eq!(receipt.durability(), Durability::Disk);
}

/// A close waits for the slice in progress, and not for the rest of a segment that is no longer needed.
#[test]
fn a_close_waits_for_no_segment() {
    let disk = MemDisk::new(13);
    let slices = Arc::new(AtomicUsize::new(0));
    let (count, clock) = (Arc::clone(&slices), disk.clone());
    disk.set_blocker(Some(Arc::new(move |path: &Path| {
        // The second spare segment: the first is ready by then.
        if path.ends_with("00000004.wal") {
            count.fetch_add(1, Ordering::SeqCst);
            clock.advance_clock(SYNC_MS * MS);
        }
    })));
    let geometry = Geometry { segment_bytes_min: 8 << 20, segment_bytes_max: 8 << 20, ..Geometry::default() };
    let options = Options { geometry, background: Background::Threads, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default()).unwrap();
    while slices.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    engine.close().unwrap();
    let slices = slices.load(Ordering::SeqCst);
    assert!(slices < 8, "{slices} of 64 slices were waited for");
    let left = disk.files().iter().any(|path| path.ends_with("00000004.wal"));
    assert!(!left, "what was begun takes no room of a database at rest");
}
