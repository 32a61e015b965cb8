//! The fault sweep over whole databases: every storage call fails (D1, D2, D6), and the disk fills up (D7).

use std::sync::Arc;

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::{Background, Durability, Engine, Hooks, Options, Receipt, Result, Transaction};
use duramen_sim::faults::{FullReport, Report, full_disk, sweep};
use duramen_sim::search::shapes::GEOMETRY;

const SEED: u64 = 6;

fn check(report: &Report, kinds: &[CallKind]) {
    println!("seed {SEED}: {report}");
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    for kind in kinds {
        assert!(report.failed_calls[*kind as usize] > 0, "no {kind:?} failed: {report}");
    }
    assert!(report.poisoned_count > 0, "syncs failed: {report}");
    assert!(report.in_doubt_kept_count > 0, "a commit in doubt was there: {report}");
    assert!(report.in_doubt_kept_count < report.in_doubt_count, "another was not: {report}");
    assert!(report.full_count > 0, "the disk was full: {report}");
}

#[test]
fn any_failed_call_loses_nothing_acknowledged_and_a_failed_sync_ends_all_acknowledgement() {
    let kinds = [
        CallKind::Open,
        CallKind::Create,
        CallKind::CreateDir,
        CallKind::SyncDir,
        CallKind::Rename,
        CallKind::Kind,
        CallKind::Lock,
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::Len,
        CallKind::Reserve,
    ];
    check(&sweep(SEED, SyncMethod::Fdatasync, 1), &kinds);
}

#[test]
fn any_failed_durable_write_loses_nothing_acknowledged() {
    check(&sweep(SEED, SyncMethod::Dsync, 3), &[CallKind::Write, CallKind::Sync]);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing_deletes_and_checkpoints_and_works_again_with_room() {
    for seed in 1..=2u64 {
        for room_bytes in [0, 32 * 1024, 300 * 1024] {
            let report = full_disk(seed, SyncMethod::Fdatasync, room_bytes + seed * 4096);
            let FullReport { refused_count, commit_count, resumed_count, violations } = &report;
            println!("seed {seed}, room {room_bytes}: {commit_count} commits, {refused_count} refused");
            assert!(violations.is_empty(), "seed {seed}, room {room_bytes}: {}", violations.join("\n"));
            assert!(*refused_count > 0, "the disk was full");
            assert!(*resumed_count > 0, "commits work again");
        }
    }
}

/// D7: puts fill the log of a full disk until one is refused. Deletes go on, in the segment reserved for
/// them: without it nothing could be deleted to make room.
#[test]
fn deletes_go_on_where_puts_find_the_log_full() {
    let disk = MemDisk::new(4);
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default()).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    engine.step().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let commit = |fill: &dyn Fn(&mut Transaction) -> Result<()>| -> Result<Receipt> {
        let mut transaction = engine.begin()?;
        fill(&mut transaction)?;
        let receipt = transaction.commit(Durability::Disk)?;
        // The background prepares the next segment, unless there is no room for it.
        drop(engine.step());
        Ok(receipt)
    };
    let keys: Vec<[u8; 2]> = (0..1_000u16).map(u16::to_be_bytes).collect();
    let stored = keys.iter().take_while(|key| commit(&|tx| tx.put(tree, *key, b"value")).is_ok()).count();
    assert!((1..1_000).contains(&stored), "the disk was full after {stored} commits");
    for key in &keys[..stored.min(4)] {
        let deleted = commit(&|tx| tx.delete(tree, key));
        assert!(deleted.is_ok(), "{stored} commits, and then a delete says {deleted:?}");
    }
    engine.abandon();
}

fn open(disk: &MemDisk, create: bool) -> Result<Engine> {
    let options = Options { create, background: Background::Stepped, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), "/db", options, Hooks::default())
}

/// Checks that what is acknowledged on a disk whose faults are over survives a power cut.
fn check_names(disk: &MemDisk, what: &str) {
    disk.set_faults(FaultPlan::none());
    let engine = open(disk, true).unwrap();
    engine.transact(Durability::Disk, |transaction| transaction.create_tree("late", None)).unwrap();
    let cut = disk.crash(&CrashChoice::None);
    engine.abandon();
    let engine = open(&cut, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(engine.snapshot().unwrap().tree("late").unwrap().is_some(), "{what}");
    engine.abandon();
}

/// The data file has its name, the sync of the directory fails, and the process dies. The next process
/// commits to that database: a power cut must not take the name.
#[test]
fn names_that_a_creation_left_unsynced_are_synced_by_the_next_open() {
    for nth in 0..4 {
        let disk = MemDisk::new(nth);
        disk.set_faults(Fault::new(CallKind::SyncDir, nth, Effect::EIO).for_good());
        assert!(open(&disk, true).is_err(), "sync {nth} of a directory failed");
        check_names(&disk, &format!("creation cut at sync {nth} of a directory"));
    }
}

/// A spare segment is complete except for the sync of its directory, and the process dies. The next process
/// writes acknowledged commits to it: a power cut must not take the file.
#[test]
fn a_segment_whose_name_is_not_durable_is_synced_before_it_is_used() {
    let disk = MemDisk::new(3);
    let engine = open(&disk, true).unwrap();
    let names_fail = Fault::new(CallKind::SyncDir, 0, Effect::EIO).for_good();
    let nothing_is_removed = Fault::new(CallKind::Remove, 0, Effect::EIO).for_good();
    disk.set_faults(FaultPlan::none().with(names_fail).with(nothing_is_removed));
    let files = disk.files().len();
    assert!(engine.step().is_err(), "no segment can be made");
    assert!(disk.files().len() > files, "one is there all the same");
    engine.abandon();
    check_names(&disk, "a segment made by a process that died");
}
