//! What is kept of the time that commits take, and of what they conflict over.

use std::sync::Arc;
use std::time::Duration;

use duramen_disk::MemDisk;
use duramen_engine::{Code, Durability, Engine, KeyRange, Options, TreeId};

use crate::basics::{open, tiny};

fn database() -> (MemDisk, Engine, TreeId) {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    (disk, engine, tree)
}

fn put(engine: &Engine, tree: TreeId, key: &[u8]) {
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, b"value")).unwrap();
}

/// Each part of a commit is counted once; a sync counts for its group.
#[test]
fn every_commit_is_timed() {
    let (_disk, engine, tree) = database();
    let before = engine.timings();
    (0..10_u8).for_each(|key| put(&engine, tree, &[key]));
    engine.transact(Durability::Process, |tx| tx.put(tree, b"process", b"value")).unwrap();
    engine.checkpoint().unwrap();
    let now = engine.timings();
    let parts = [
        (&now.order, &before.order, 11),
        (&now.queue, &before.queue, 11),
        (&now.write, &before.write, 11),
        (&now.sync, &before.sync, 10),
        (&now.publish, &before.publish, 11),
        (&now.checkpoint, &before.checkpoint, 1),
    ];
    for (index, (now, before, count)) in parts.into_iter().enumerate() {
        assert_eq!(now.since(before).count(), count, "part {index}");
        assert!(now.quantile(0.5) <= now.max() + Duration::from_micros(1) && now.mean() <= now.max());
    }
}

/// A commit that is slow is kept, with the part that was.
#[test]
fn a_slow_sync_is_told_from_others() {
    let (disk, engine, tree) = database();
    put(&engine, tree, b"quick");
    let sleeper = disk.clone();
    disk.set_blocker(Some(Arc::new(move |path| {
        if path.to_string_lossy().contains(".wal") {
            sleeper.advance_clock(300_000_000);
        }
    })));
    put(&engine, tree, b"slow");
    disk.set_blocker(None);
    put(&engine, tree, b"quick");
    let slow = engine.slow_commits().unwrap();
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!((slow[0].seq.0, slow[0].group_len, &slow[0].trees[..]), (3, 1, &["t".to_owned()][..]));
    let sync = slow[0].sync;
    assert!(
        sync >= Duration::from_millis(300) && slow[0].total() < sync + Duration::from_millis(100),
        "{slow:?}"
    );
    assert!(engine.timings().sync.max() >= Duration::from_millis(300));
    engine.transact(Durability::Disk, |tx| tx.drop_tree("t")).unwrap();
    assert_eq!(engine.slow_commits().unwrap()[0].trees, [format!("dropped tree {tree}")]);
}

/// A conflict names the key, by point and by range, at once or after many commits.
#[test]
fn keys_that_conflict_are_counted() {
    let (_disk, engine, tree) = database();
    assert_eq!(engine.hot_keys().unwrap(), []);
    for round in 0..6_u8 {
        let mut reads = engine.begin().unwrap();
        if round % 2 == 0 {
            reads.get(tree, b"hot").unwrap();
        } else {
            reads.count(tree, &KeyRange::between("h", "i")).unwrap();
        }
        reads.put(tree, b"other", b"value").unwrap();
        // With many commits between, validation runs before the lock.
        let between = if round < 4 { 1 } else { 600 };
        (0..between).for_each(|_| put(&engine, tree, b"hot"));
        assert_eq!(reads.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
    }
    let hot = engine.hot_keys().unwrap();
    assert_eq!(hot.len(), 1, "{hot:?}");
    assert_eq!((&hot[0].tree[..], &hot[0].key[..]), ("t", &b"hot"[..]));
    assert_eq!((hot[0].conflicts, hot[0].conflicts_min), (6, 6));
}

#[test]
fn held_states_are_listed() {
    let (_disk, engine, tree) = database();
    let first = engine.snapshot().unwrap();
    put(&engine, tree, b"a");
    let second = engine.begin_published().unwrap();
    put(&engine, tree, b"b");
    let held: Vec<_> = engine.held_snapshots().iter().map(|held| held.seq).collect();
    assert!(held.contains(&first.seq()) && held.contains(&second.base_seq()), "{held:?}");
    assert!(held.is_sorted());
    drop((first, second));
}

/// A database that is only read has nothing to time.
#[test]
fn a_read_only_database_has_no_timings() {
    let (disk, engine, _) = database();
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, Options { read_only: true, ..tiny() });
    assert_eq!(engine.timings().order.count(), 0);
    assert_eq!((engine.slow_commits().unwrap().len(), engine.hot_keys().unwrap().len()), (0, 0));
}
