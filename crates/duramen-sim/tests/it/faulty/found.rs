//! Small tests for failures that the fault search found.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan, OpKind, Trace};
use duramen_engine::data_file::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use duramen_engine::{
    Background, Durability, Engine, FeedNeed, FeedRule, Hooks, Options, Result, Snapshot, TreeId,
};
use duramen_sim::search::shapes::GEOMETRY;

fn open(disk: &MemDisk) -> Result<Engine> {
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default())
}

fn put(engine: &Engine, tree: TreeId, key: &[u8], level: Durability) {
    engine.transact(level, |transaction| transaction.put(tree, key, b"value")).unwrap();
}

/// D1, D6: an opening copies the groups that no durable watermark covers, and the sync of the copy's header
/// fails.
///
/// The kernel shows the header all the same. The next opening must not trust that the copy is durable: if it
/// went on after it and acknowledged a commit, a power cut would take both.
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

/// A database with so many checkpoints: one more of them swaps which superblock is newer.
fn with_checkpoints(count: u8) -> (MemDisk, TreeId) {
    let disk = MemDisk::new(1);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for round in 0..count {
        (0..40).for_each(|at| put(&engine, tree, &[at, round], Durability::Disk));
        engine.checkpoint().unwrap();
    }
    engine.abandon();
    (disk, tree)
}

fn generations(disk: &MemDisk) -> [u64; 2] {
    let bytes = disk.read_file("/db/data").unwrap();
    SUPERBLOCK_OFFSETS.map(|offset| {
        let at = usize::try_from(offset).unwrap();
        Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]).unwrap().generation.0
    })
}

/// D3: one read of the newer superblock is wrong, and the older one is used, though the newer one is intact
/// on the disk.
///
/// A power cut in the next checkpoint must not make the newer one valid again: its pages may have been
/// overwritten.
#[test]
fn a_superblock_that_was_misread_once_is_not_believed_later() {
    for checkpoint_count in [4, 5] {
        let (disk, tree) = with_checkpoints(checkpoint_count);
        let [first, second] = generations(&disk);
        let older = first.min(second);
        let newer_at = u64::from(second > first);
        let mut replaced_at = Vec::new();
        for nth in 0..4 {
            let disk = disk.crash(&CrashChoice::None);
            disk.set_faults(Fault::new(CallKind::Read, nth, Effect::FlippedRead(800)).on("/data"));
            let opened = open(&disk);
            disk.set_faults(FaultPlan::none());
            let Ok(engine) = opened else { continue };
            // A copy of the older one replaces the newer one.
            let now = generations(&disk);
            if now == [older; 2] {
                replaced_at.push(nth);
            }
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
                    let len = engine.snapshot().unwrap().tree_info(tree).unwrap().len;
                    assert_eq!(len, u64::from(checkpoint_count) * 40);
                    assert!(engine.check().unwrap().is_clean());
                    engine.abandon();
                }
            }
        }
        // Both are read, one after the other.
        assert_eq!(replaced_at, [newer_at], "{checkpoint_count} checkpoints");
    }
}

/// D1: one read of the older superblock is wrong, and its log is not kept, though it is intact on the disk.
///
/// If the newer one is torn later, the older one must not be used: its log may have been reused.
#[test]
fn an_older_superblock_that_was_misread_once_is_not_fallen_back_to() {
    for checkpoint_count in [4, 5] {
        let mut misread_count = 0;
        for nth in 0..4 {
            let (disk, tree) = with_checkpoints(checkpoint_count);
            disk.set_faults(Fault::new(CallKind::Read, nth, Effect::FlippedRead(800)).on("/data"));
            let opened = open(&disk);
            disk.set_faults(FaultPlan::none());
            let Ok(engine) = opened else { continue };
            let [first, second] = generations(&disk);
            misread_count += u32::from(first == second);
            // Enough for segments of the log to be reused.
            (0..200u8).for_each(|at| put(&engine, tree, &[at], Durability::Disk));
            engine.abandon();
            let newest = SUPERBLOCK_OFFSETS[usize::from(second > first)];
            disk.flip_bit("/db/data", newest + 100, 1).unwrap();
            let when = format!("{checkpoint_count} checkpoints, read {nth}");
            let engine = open(&disk).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(engine.get(tree, &[199]).unwrap().is_some(), "{when}: a commit is gone");
            engine.abandon();
        }
        assert!(
            misread_count > 1,
            "{checkpoint_count} checkpoints: {misread_count} superblocks were misread"
        );
    }
}

/// D3: the older superblock's map cannot be read, so its blocks are not held, and may be reused.
///
/// No opening may then fall back to that superblock. A wrong read is repeated; a superblock whose map stays
/// unreadable is replaced.
#[test]
fn a_superblock_whose_map_was_misread_is_not_fallen_back_to() {
    for checkpoint_count in [4, 5] {
        let [once, twice] = [None, Some(1)].map(|again| replaced(checkpoint_count, again));
        let by_map = twice.iter().filter(|nth| !once.contains(nth)).count();
        assert!(by_map > 0, "{checkpoint_count} checkpoints: after reads {once:?} and {twice:?}");
    }
}

/// The reads of an opening that, when wrong, make it replace the older superblock; optionally with a second
/// wrong read.
fn replaced(checkpoint_count: u8, again: Option<u64>) -> Vec<u64> {
    let (disk, tree) = with_checkpoints(checkpoint_count);
    let [first, second] = generations(&disk);
    let mut replaced_by = Vec::new();
    for nth in 2..16 {
        let when = format!("{checkpoint_count} checkpoints, read {nth} and {again:?}");
        let disk = disk.crash(&CrashChoice::None);
        let misread = |nth| Fault::new(CallKind::Read, nth, Effect::FlippedRead(800)).on("/data");
        let mut faults = FaultPlan::from(misread(nth));
        if let Some(later) = again {
            faults = faults.with(misread(nth + later));
        }
        disk.set_faults(faults);
        let opened = open(&disk);
        disk.set_faults(FaultPlan::none());
        let Ok(engine) = opened else { continue };
        if generations(&disk) == [first.max(second); 2] {
            replaced_by.push(nth);
        }
        for at in 0..8u8 {
            engine.transact(Durability::Disk, |tx| tx.put(tree, &[at], &[at; 400])).unwrap();
        }
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None)).unwrap();
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "{when}: {report:?}");
        engine.abandon();
    }
    replaced_by
}

/// D7: a crash leaves a spare segment unfinished, and a sync is the first call to find the disk full.
///
/// The segment is then begun again with half the size. After a power cut the file may have one size and its
/// header another: that is not corruption, as the segment never held anything.
#[test]
fn a_spare_that_was_begun_again_with_a_smaller_size_is_no_corruption() {
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
    for (nth, empties) in (0..8).flat_map(|nth| [(nth, true), (nth, false)]) {
        let disk = trace.crash_image(unfinished, &CrashChoice::All);
        disk.record();
        let mut faults = FaultPlan::from(Fault::new(CallKind::Sync, nth, Effect::ENOSPC).on(".wal"));
        if !empties {
            faults = faults.with(Fault::new(CallKind::SetLen, 0, Effect::EIO).on(".wal"));
        }
        disk.set_faults(faults);
        drop(open(&disk).map(Engine::abandon));
        let opening = disk.stop_recording();
        shrunk += u32::from((0..opening.len()).any(|op| opening.op(op).kind == OpKind::SetLen));
        opens_after_every_cut(&opening, &format!("sync {nth}, emptied: {empties}"));
    }
    assert!(shrunk > 0, "a segment was begun again with a smaller size");
}

/// Cuts after each operation: each pending one alone, each missing, with a prefix, and random subsets.
fn opens_after_every_cut(trace: &Trace, when: &str) {
    let mut cursor = trace.cursor();
    loop {
        let pending = cursor.pending_len();
        let single = (0..pending).flat_map(|at| [CrashChoice::AllBut(at), CrashChoice::Only(at)]);
        let prefixes = (0..pending).map(CrashChoice::Prefix);
        let random = (0..12).map(|seed| CrashChoice::Random { seed });
        for choice in single.chain(prefixes).chain(random).chain([CrashChoice::None, CrashChoice::All]) {
            let opened = open(&cursor.image(&choice)).map(Engine::abandon);
            let at = cursor.at();
            assert!(opened.is_ok(), "{when}, after {at} operations, {choice:?}: {opened:?}");
        }
        if !cursor.advance() {
            break;
        }
    }
}

/// A big value is replaced while its list of extents cannot be read: its extents must be freed later.
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

/// Runs a function once, when a checkpoint has its root and queries what the feed must retain.
struct InCheckpoint(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl FeedRule for InCheckpoint {
    fn is_source(&self, _tree: &str) -> bool {
        true
    }

    fn needs(&self, _at: &Snapshot) -> Result<Vec<FeedNeed>> {
        let act = self.0.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        Ok(Vec::new())
    }
}

/// D3: during a checkpoint a later commit drops a value whose list cannot be read for a moment.
///
/// The checkpoint's root holds the value: it must not free the extents, as a power cut may take that commit.
#[test]
fn a_checkpoint_keeps_the_value_that_a_later_commit_dropped() {
    let mut failed = 0;
    for nth in 0..8 {
        let disk = MemDisk::new(2);
        let rule = Arc::new(InCheckpoint(Mutex::new(None)));
        let hooks = Hooks { feed: Some(Arc::clone(&rule) as Arc<dyn FeedRule>), ..Hooks::default() };
        let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
        let engine = Engine::open(Arc::new(disk.clone()), "/db", options, hooks).unwrap();
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
        let value = vec![7; 40 * 1024];
        engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &value)).unwrap();
        engine.checkpoint().unwrap();
        put(&engine, tree, b"other", Durability::Disk);
        let hit = Arc::new(AtomicBool::new(false));
        let (inner, inner_disk, inner_hit) = (engine.clone(), disk.clone(), Arc::clone(&hit));
        *rule.0.lock().unwrap() = Some(Box::new(move || {
            inner_disk.set_faults(Fault::new(CallKind::Read, nth, Effect::EIO).on("/data"));
            let dropped = inner.transact(Durability::Process, |tx| tx.put(tree, b"big", b"small"));
            inner_hit.store(dropped.is_ok() && inner_disk.fault_hit_count() > 0, Ordering::SeqCst);
            inner_disk.set_faults(FaultPlan::none());
        }));
        engine.checkpoint().unwrap();
        failed += u32::from(hit.load(Ordering::SeqCst));
        let cut = disk.crash(&CrashChoice::None);
        engine.abandon();
        let engine = open(&cut).unwrap();
        for at in 0..8u8 {
            engine.transact(Durability::Disk, |tx| tx.put(tree, &[at], &vec![at; 40 * 1024])).unwrap();
        }
        assert_eq!(engine.get(tree, b"big").unwrap(), Some(value), "read {nth}");
        assert!(engine.check().unwrap().is_clean(), "read {nth}");
        engine.abandon();
    }
    assert!(failed > 0, "some read was of the list");
}
