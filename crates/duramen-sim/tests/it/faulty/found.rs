//! Faults that were not survived once, each made small by hand.

use std::io;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan, OpKind};
use duramen_engine::{Background, Durability, Engine, Hooks, Options, Result, TreeId};
use duramen_sim::search::shapes::GEOMETRY;

fn open(disk: &MemDisk) -> Result<Engine> {
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default())
}

fn put(engine: &Engine, tree: TreeId, key: &[u8], level: Durability) {
    engine.transact(level, |transaction| transaction.put(tree, key, b"value")).unwrap();
}

/// D1, D6: an opening copied the groups that no mark calls durable, and the sync of the header that leads to the copy
/// failed. The kernel showed the header all the same. The next opening took its word that the copy is durable, went on
/// behind it, acknowledged a commit, and a power cut took both.
#[test]
fn a_copy_whose_header_never_reached_the_disk_is_copied_again() {
    let mut failed = 0;
    for (nth, evicted) in (0..8).flat_map(|nth| [(nth, false), (nth, true)]) {
        let disk = MemDisk::new(nth);
        let engine = open(&disk).unwrap();
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
        put(&engine, tree, b"weak", Durability::Process);
        engine.abandon();
        let gone = Effect::SyncErrorDataGone(io::ErrorKind::Other);
        disk.set_faults(Fault::new(CallKind::Sync, nth, gone).on(".wal"));
        failed += u32::from(open(&disk).map(Engine::abandon).is_err());
        disk.set_faults(FaultPlan::none());
        if evicted {
            disk.evict(nth);
        }
        let engine = open(&disk).unwrap();
        put(&engine, tree, b"strong", Durability::Disk);
        let cut = disk.crash(&CrashChoice::None);
        engine.abandon();
        let engine = open(&cut).unwrap_or_else(|error| panic!("sync {nth}, evicted {evicted}: {error}"));
        let found = engine.get(tree, b"strong").unwrap();
        assert!(found.is_some(), "sync {nth}, evicted {evicted}: an acknowledged commit is gone");
        engine.abandon();
    }
    assert!(failed > 2, "{failed} openings failed");
}

/// D3: one read of the newer superblock was wrong, and the older one was believed. The newer one was whole on the disk all
/// the while: when the power was cut in the next checkpoint, it was believed again, and its pages had been written over.
#[test]
fn a_superblock_that_was_misread_once_is_not_believed_later() {
    let disk = MemDisk::new(1);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for round in 0..4u8 {
        (0..40).for_each(|at| put(&engine, tree, &[at, round], Durability::Disk));
        engine.checkpoint().unwrap();
    }
    engine.abandon();
    let mut opened_count = 0;
    for nth in 0..4 {
        let disk = disk.crash(&CrashChoice::None);
        disk.set_faults(Fault::new(CallKind::Read, nth, Effect::FlippedRead(800)).on("/data"));
        let opened = open(&disk);
        disk.set_faults(FaultPlan::none());
        let Ok(engine) = opened else { continue };
        opened_count += 1;
        disk.record();
        (0..40).for_each(|at| put(&engine, tree, &[at, 0], Durability::Disk));
        engine.checkpoint().unwrap();
        engine.abandon();
        let trace = disk.stop_recording();
        for op in 0..=trace.len() {
            for choice in [CrashChoice::None, CrashChoice::All] {
                let engine = open(&trace.crash_image(op, &choice)).unwrap_or_else(|error| {
                    panic!("read {nth}, cut after {op} operations, {choice:?}: {error}")
                });
                assert_eq!(engine.snapshot().unwrap().tree_info(tree).unwrap().len, 160);
                assert!(engine.check().unwrap().is_clean());
                engine.abandon();
            }
        }
    }
    assert!(opened_count > 0, "some read was of a superblock");
}

/// D3: one read of the older superblock's map was wrong, and what that superblock leads to was not held. Its blocks were used
/// for something else while it still stood there, as something that an opening may fall back to.
#[test]
fn a_superblock_whose_map_was_misread_once_is_not_fallen_back_to() {
    let disk = MemDisk::new(1);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for round in 0..4u8 {
        (0..40).for_each(|at| put(&engine, tree, &[at, round], Durability::Disk));
        engine.checkpoint().unwrap();
    }
    engine.abandon();
    let mut opened_count = 0;
    for nth in 0..16 {
        let disk = disk.crash(&CrashChoice::None);
        disk.set_faults(Fault::new(CallKind::Read, nth, Effect::FlippedRead(800)).on("/data"));
        let opened = open(&disk);
        disk.set_faults(FaultPlan::none());
        let Ok(engine) = opened else { continue };
        opened_count += 1;
        for at in 0..8u8 {
            engine.transact(Durability::Disk, |tx| tx.put(tree, &[at], &[at; 400])).unwrap();
        }
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None)).unwrap();
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "read {nth}: {report:?}");
        engine.abandon();
    }
    assert!(opened_count > 2, "some read was of a map");
}

/// D7: a crash left a spare segment unfinished. When it was made anew, a sync was the first to say that the disk is full, and
/// it was begun again with half the size. The power was cut when the file was short and its header still named the whole
/// size: that was called damage, and the database did not open, though nothing had ever been in the segment.
#[test]
fn a_spare_that_was_begun_again_with_a_smaller_size_is_no_damage() {
    let disk = MemDisk::new(1);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    disk.record();
    (0..60).for_each(|at| {
        engine.transact(Durability::Disk, |tx| tx.put(tree, &[at], &[at; 200])).unwrap();
    });
    engine.abandon();
    let trace = disk.stop_recording();
    let is_large = |op: &usize| trace.op(*op).kind == OpKind::Reserve && trace.op(*op).bytes == 8192;
    let unfinished = (0..trace.len()).find(is_large).expect("the log grows") + 1;
    let mut shrunk = 0;
    for nth in 0..8 {
        let disk = trace.crash_image(unfinished, &CrashChoice::All);
        disk.record();
        disk.set_faults(Fault::new(CallKind::Sync, nth, Effect::ENOSPC).on(".wal"));
        drop(open(&disk).map(Engine::abandon));
        let opening = disk.stop_recording();
        shrunk += u32::from((0..opening.len()).any(|op| opening.op(op).kind == OpKind::SetLen));
        let mut cursor = opening.cursor();
        loop {
            let pending = cursor.pending_len();
            let single = (0..pending).flat_map(|at| [CrashChoice::AllBut(at), CrashChoice::Only(at)]);
            let prefixes = (0..pending).map(CrashChoice::Prefix);
            for choice in single.chain(prefixes).chain([CrashChoice::None, CrashChoice::All]) {
                let opened = open(&cursor.image(&choice)).map(Engine::abandon);
                assert!(
                    opened.is_ok(),
                    "sync {nth}, after {} operations, {choice:?}: {opened:?}",
                    cursor.at()
                );
            }
            if !cursor.advance() {
                break;
            }
        }
    }
    assert!(shrunk > 0, "a segment was begun again with a smaller size");
}

/// A big value was replaced when its list of extents could not be read for a moment. Its extents stayed in use for ever.
#[test]
fn space_of_a_value_whose_list_could_not_be_read_once_is_given_back_later() {
    let disk = MemDisk::new(1);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let value = vec![7; 40 * 1024];
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &value)).unwrap();
    engine.close().unwrap();
    drop(engine);
    let mut failed = 0;
    for nth in 0..8 {
        let disk = disk.crash(&CrashChoice::None);
        let engine = open(&disk).unwrap();
        let mut transaction = engine.begin().unwrap();
        transaction.put(tree, b"big", b"small").unwrap();
        disk.set_faults(Fault::new(CallKind::Read, nth, Effect::EIO).on("/data"));
        let committed = transaction.commit(Durability::Disk).is_ok();
        failed += u32::from(committed && disk.fault_hit_count() > 0);
        disk.set_faults(FaultPlan::none());
        engine.close().unwrap();
        drop(engine);
        let engine = open(&disk).unwrap();
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "read {nth}: {report:?}");
        engine.abandon();
    }
    assert!(failed > 0, "some read was of the list");
}
