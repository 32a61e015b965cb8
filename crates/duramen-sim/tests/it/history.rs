//! Concurrent transactions behave as if run one after the other (I1, D2, D3), and share syncs.

mod pipeline;
mod planted;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use duramen_disk::{Disk, MemDisk, OsDisk};
use duramen_engine::{Background, Durability, Engine, Geometry, Hooks, Options};
use duramen_sim::beside::SetOnDrop;
use duramen_sim::contents::Dice;
use duramen_sim::history::{Manner, Run, Verdict, check, run};
use duramen_sim::search::shapes::GEOMETRY;

fn options(background: Background) -> Options {
    Options {
        geometry: Geometry { segment_bytes_min: 64 * 1024, segment_bytes_max: 256 * 1024, ..GEOMETRY },
        memory_bytes: 4 * 1024 * 1024,
        background,
        ..Options::default()
    }
}

fn open(disk: Arc<dyn Disk>, path: &Path, background: Background) -> Engine {
    Engine::open(disk, path, options(background), Hooks::default()).unwrap()
}

fn check_run(engine: &Engine, plan: Run) -> Verdict {
    let events = run(engine, plan).unwrap();
    let verdict = check(&events);
    println!("{plan:?}: {verdict}");
    assert!(verdict.violations.is_empty(), "{}", verdict.violations.join("\n"));
    assert!(verdict.conflict_count > 0, "transactions met: {verdict}");
    assert!(verdict.writer_count > verdict.conflict_count / 20, "and got through: {verdict}");
    verdict
}

#[test]
fn random_transactions_of_many_threads_are_serialisable() {
    for (seed, key_count) in [(1, 12), (2, 40), (3, 400)] {
        let disk = MemDisk::new(seed);
        let engine = open(Arc::new(disk.clone()), Path::new("/db"), Background::Threads);
        let plan = Run { seed, thread_count: 6, transaction_count: 1500, key_count, manner: Manner::Short };
        check_run(&engine, plan);
        engine.close().unwrap();
        drop(engine);
        let engine = open(Arc::new(disk), Path::new("/db"), Background::Stepped);
        let report = engine.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}

#[test]
fn random_transactions_are_serialisable_on_the_operating_systems_disk() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let engine = open(Arc::new(OsDisk::default()), &folder.join("db"), Background::Threads);
    let plan = Run { seed: 4, thread_count: 4, transaction_count: 250, key_count: 40, manner: Manner::Short };
    check_run(&engine, plan);
    engine.close().unwrap();
    drop(engine);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Transactions that rest between calls, on any thread, while others commit.
#[test]
fn transactions_that_rest_are_serialisable() {
    for (seed, key_count) in [(11, 12), (12, 40), (13, 400)] {
        let disk = MemDisk::new(seed);
        let engine = open(Arc::new(disk.clone()), Path::new("/db"), Background::Threads);
        let plan = Run { seed, thread_count: 4, transaction_count: 700, key_count, manner: Manner::Resting };
        let verdict = check_run(&engine, plan);
        assert!(verdict.rested_count > 300, "{verdict}");
        engine.close().unwrap();
        drop(engine);
        let engine = open(Arc::new(disk), Path::new("/db"), Background::Stepped);
        let report = engine.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}

/// A check reads a snapshot during commits and checkpoints: pages freed meanwhile are not corruption.
#[test]
fn a_check_beside_writers_finds_nothing() {
    let engine = open(Arc::new(MemDisk::new(9)), Path::new("/db"), Background::Threads);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _work = SetOnDrop(&done);
            let mut dice = Dice::new(9);
            for round in 0..600 {
                write_some(&engine, &mut dice);
                if round % 20 == 19 {
                    engine.transact(Durability::Disk, |tx| tx.drop_tree("t")).unwrap();
                }
                if round % 15 == 14 {
                    engine.checkpoint().unwrap();
                }
            }
        });
        while !done.load(Ordering::SeqCst) {
            let report = engine.check().unwrap();
            assert!(report.is_clean(), "commit {}: {:?}", report.seq, report.problems);
        }
    });
}

fn write_some(engine: &Engine, dice: &mut Dice) {
    let written = engine.transact(Durability::Disk, |tx| {
        let tree = match tx.tree("t")? {
            Some(tree) => tree,
            None => tx.create_tree("t", None)?,
        };
        for length in [10, 40, 700, 30] {
            tx.put(tree, &dice.below(300).to_be_bytes(), &dice.value(length))?;
        }
        tx.delete(tree, &dice.below(300).to_be_bytes())
    });
    written.unwrap();
}

/// Checkpoints never run concurrently. If the one of an older root came last, it would free dropped trees
/// twice, and need pages that the other has freed (D3).
#[test]
fn checkpoints_asked_for_by_many_threads_come_one_after_the_other() {
    let disk = MemDisk::new(5);
    let engine = open(Arc::new(disk.clone()), Path::new("/db"), Background::Stepped);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    engine.checkpoint().unwrap();
                }
            });
        }
        let _work = SetOnDrop(&done);
        let mut dice = Dice::new(5);
        for round in 0..2000 {
            write_some(&engine, &mut dice);
            if round % 5 == 4 {
                engine.transact(Durability::Memory, |tx| tx.drop_tree("t")).unwrap();
            }
        }
    });
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!(report.unreached, []);
    engine.abandon();
    let engine = open(Arc::new(disk), Path::new("/db"), Background::Stepped);
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "opened again: {:?}", report.problems);
}
