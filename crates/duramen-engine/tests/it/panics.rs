//! A thread that panics inside of the engine. Nothing is acknowledged after it, and the other threads get
//! errors: no second panic, and no wait without an end (D6).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CrashChoice, SyncGate};
use duramen_engine::{Code, Durability, Engine, TreeId};

use crate::awkward::create;
use crate::basics::{open, tiny};

fn put(engine: &Engine, tree: TreeId, key: &[u8]) -> duramen_engine::Result<()> {
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, b"value")).map(drop)
}

/// The leader panics in the sync of a group, with followers of its group and of the next one waiting.
#[test]
fn a_leader_that_panics_leaves_no_follower_waiting() {
    let disk = MemDisk::new(96);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "t");
    put(&engine, tree, b"before").unwrap();
    let gate = SyncGate::closed();
    let (pass, syncs) = (gate.blocker(".wal"), AtomicUsize::new(0));
    disk.set_blocker(Some(Arc::new(move |path: &Path| {
        if path.to_string_lossy().contains(".wal") {
            pass(path);
            assert!(syncs.fetch_add(1, Ordering::SeqCst) > 0, "the first sync panics");
        }
    })));
    let begun = Barrier::new(5);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let commits: Vec<_> = (0..4u8)
            .map(|n| {
                let (engine, begun) = (&engine, &begun);
                scope.spawn(move || {
                    begun.wait();
                    catch_unwind(AssertUnwindSafe(|| put(engine, tree, &[n])))
                })
            })
            .collect();
        begun.wait();
        gate.wait_blocked(1);
        gate.open();
        commits.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    disk.set_blocker(None);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "the leader alone panics");
    for error in outcomes.into_iter().flatten().map(Result::unwrap_err) {
        assert!(matches!(error.code(), Code::EnginePoisoned | Code::OutcomeUnknown), "{error}");
    }
    let error = put(&engine, tree, b"after").unwrap_err();
    assert_eq!(error.code(), Code::EnginePoisoned, "{error}");
    assert_eq!(engine.checkpoint().unwrap_err().code(), Code::EnginePoisoned);
    assert_eq!(engine.get(tree, b"before").unwrap().as_deref(), Some(&b"value"[..]), "reads go on");
    assert_eq!(engine.close().unwrap_err().code(), Code::EnginePoisoned);
    drop(engine);
    let engine = open(&disk.crash(&CrashChoice::None), tiny());
    assert_eq!(engine.get(tree, b"before").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(engine.get(tree, b"after").unwrap(), None);
}
