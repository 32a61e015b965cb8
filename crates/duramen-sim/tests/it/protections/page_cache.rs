//! Opening again in the same boot after a failed sync: what the kernel shows may not be on the disk.
//!
//! Nothing acknowledged from then on may depend on it (docs/decisions/0025).

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_engine::{Background, Durability, Engine, Hooks, Options, Result, TreeId};
use duramen_sim::search::shapes::GEOMETRY;

fn open(disk: &MemDisk, path: &str) -> Result<Engine> {
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), path, options, Hooks::default())
}

/// A value with extents of its own.
fn big(fill: u8) -> Vec<u8> {
    vec![fill; 2_000]
}

fn put(engine: &Engine, tree: TreeId, fill: u8) -> Result<()> {
    engine.transact(Durability::Disk, |tx| {
        tx.put(tree, &[fill], &[fill; 100])?;
        tx.put(tree, &[fill, 0], &big(fill))
    })?;
    Ok(())
}

/// D1: whichever sync of a life loses its data, everything acknowledged before it, and everything after the
/// next opening, survives a power cut.
///
/// That covers pages of checkpoints, pieces of big values named in the log, spare segments, durable
/// watermarks, and the hot-page list.
#[test]
fn what_a_failed_sync_left_in_the_cache_is_not_built_upon() {
    let (mut poisoned, mut later) = (0, 0);
    for nth in 0.. {
        let disk = MemDisk::new(13);
        let engine = open(&disk, "/db").unwrap();
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
        disk.set_faults(Fault::new(CallKind::Sync, nth, Effect::SyncErrorDataGone(ErrorKind::Other)));
        let mut acknowledged = Vec::new();
        for fill in 1..=6u8 {
            if put(&engine, tree, fill).is_ok() {
                acknowledged.push(fill);
            }
            // The next commit returns the error.
            drop(engine.step());
            if fill % 3 == 0 {
                drop(engine.checkpoint());
            }
        }
        // Every other life ends with a close.
        let is_over = if nth % 2 == 0 {
            let closed = engine.close().is_ok();
            drop(engine);
            closed && disk.fault_hit_count() == 0
        } else {
            engine.abandon();
            false
        };
        let opened = open(&disk, "/db");
        disk.set_faults(FaultPlan::none());
        poisoned += u64::from(acknowledged.len() < 6);
        let engine = opened.or_else(|_| open(&disk, "/db")).unwrap();
        for fill in 7..=9u8 {
            put(&engine, tree, fill).unwrap();
            acknowledged.push(fill);
            later += 1;
            engine.step().unwrap();
        }
        if nth % 3 == 0 {
            engine.checkpoint().unwrap();
        }
        let image = disk.crash(&CrashChoice::None);
        engine.abandon();
        let engine = open(&image, "/db").unwrap_or_else(|error| panic!("sync {nth}: {error}"));
        for fill in &acknowledged {
            assert_eq!(
                engine.get(tree, &[*fill]).unwrap(),
                Some(vec![*fill; 100]),
                "sync {nth}, commit {fill}"
            );
            assert_eq!(engine.get(tree, &[*fill, 0]).unwrap(), Some(big(*fill)), "sync {nth}, commit {fill}");
        }
        let report = engine.check().unwrap();
        assert!(report.is_clean(), "sync {nth}: {report:?}");
        if is_over {
            break;
        }
    }
    assert!(poisoned > 10, "{poisoned} lives were ended by a failed sync, and {later} commits came after");
}

/// D1: the marker of an unfinished copy was removed, and the sync of the removal failed or was cut short.
///
/// The copy opens. What it acknowledges survives a power cut, which would have restored the marker.
#[test]
fn a_finished_copy_stays_finished() {
    let disk = MemDisk::new(14);
    let engine = open(&disk, "/db").unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    put(&engine, tree, 1).unwrap();
    let mut opened = 0;
    for nth in 0.. {
        let copy = format!("/copy{nth}");
        disk.set_faults(Fault::new(CallKind::SyncDir, nth, Effect::EIO));
        let copied = engine.copy_to(Path::new(&copy), &|_, value| value, &mut |_| Ok(()));
        disk.set_faults(FaultPlan::none());
        if let Ok(engine) = open(&disk, &copy) {
            opened += u64::from(copied.is_err());
            let tree = engine.snapshot().unwrap().tree("t").unwrap().expect("the copy is whole");
            put(&engine, tree, 2).unwrap();
            let image = disk.crash(&CrashChoice::None);
            engine.abandon();
            let engine = open(&image, &copy).unwrap_or_else(|error| panic!("sync {nth}: {error}"));
            assert_eq!(engine.get(tree, &[2]).unwrap(), Some(vec![2; 100]));
            engine.abandon();
        }
        if copied.is_ok() {
            break;
        }
    }
    assert!(opened > 0, "no copy opened whose end was not synced");
}
