//! I1, one kind of read at a time: a transaction is refused if a later commit changed what it read.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::Blocker;
use duramen_engine::{
    Background, Builtin, Direction, Durability, Engine, Hooks, KeyRange, Options, Transaction, TreeId,
};

fn database() -> (MemDisk, Engine, TreeId) {
    let disk = MemDisk::new(1);
    let options = Options { background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let (tree, _) = engine
        .transact(Durability::Disk, |tx| {
            let tree = tx.create_tree("t", Some(Builtin::Sum.spec()))?;
            (b'a'..=b'f').try_for_each(|key| tx.put(tree, &[key], &1i64.to_le_bytes()))?;
            Ok(tree)
        })
        .unwrap();
    (disk, engine, tree)
}

/// Reads, lets another commit change `key`, writes elsewhere, and returns whether the commit was refused.
fn refused(key: &[u8], read: impl FnOnce(&mut Transaction, TreeId)) -> bool {
    let (_, engine, tree) = database();
    let mut reader = engine.begin().unwrap();
    read(&mut reader, tree);
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, &2i64.to_le_bytes())).unwrap();
    reader.put(tree, b"z", &0i64.to_le_bytes()).unwrap();
    match reader.commit(Durability::Disk) {
        Ok(_) => false,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            true
        }
    }
}

#[test]
fn a_blind_write_is_never_refused() {
    assert!(!refused(b"a", |_, _| ()));
}

#[test]
fn a_point_that_was_read_and_no_other_refuses() {
    let read = |tx: &mut Transaction, tree| drop(tx.get(tree, b"b").unwrap());
    assert!(refused(b"b", read));
    assert!(!refused(b"c", read));
}

#[test]
fn an_absent_key_that_was_read_refuses() {
    let read = |tx: &mut Transaction, tree| assert_eq!(tx.get(tree, b"bb").unwrap(), None);
    assert!(refused(b"bb", read));
    assert!(!refused(b"bc", read));
}

#[test]
fn a_range_that_was_read_refuses_rows_that_were_not_there() {
    let read = |tx: &mut Transaction, tree| {
        let rows = tx.rows(tree, KeyRange::between(b"b", b"d"), Direction::Forward).unwrap();
        assert_eq!(rows.into_iter().count(), 2);
    };
    assert!(refused(b"b", read));
    assert!(refused(b"cc", read));
    assert!(!refused(b"d", read));
}

#[test]
fn a_range_that_was_counted_or_reduced_refuses() {
    let count = |tx: &mut Transaction, tree| {
        assert_eq!(tx.count(tree, &KeyRange::between(b"b", b"d")).unwrap(), 2);
    };
    let reduce = |tx: &mut Transaction, tree| drop(tx.reduce(tree, &KeyRange::between(b"b", b"d")).unwrap());
    assert!(refused(b"cc", count));
    assert!(!refused(b"dd", count));
    assert!(refused(b"c", reduce));
    assert!(!refused(b"a", reduce));
}

#[test]
fn a_place_that_was_asked_for_refuses() {
    assert!(refused(b"aa", |tx, tree| drop(tx.nth(tree, 3).unwrap())));
    let rank = |tx: &mut Transaction, tree| assert_eq!(tx.rank(tree, b"c").unwrap(), 2);
    assert!(refused(b"aa", rank));
    assert!(!refused(b"cc", rank));
}

/// A commit that joined a group while the one before it was syncing counts as any other.
#[test]
fn a_commit_of_a_sealed_group_refuses() {
    let (disk, engine, tree) = database();
    let reader = std::sync::Mutex::new(None);
    let (inner, slot) = (engine.clone(), Arc::new(reader));
    let given = Arc::clone(&slot);
    let blocker: Blocker = Arc::new(move |path: &Path| {
        let mut slot = given.lock().unwrap();
        if slot.is_some() || path.extension().is_none_or(|extension| extension != "wal") {
            return;
        }
        let mut reader = inner.begin().unwrap();
        reader.get(tree, b"c").unwrap();
        let mut writer = inner.begin().unwrap();
        writer.put(tree, b"c", &3i64.to_le_bytes()).unwrap();
        writer.commit(Durability::Memory).unwrap();
        reader.put(tree, b"y", &0i64.to_le_bytes()).unwrap();
        *slot = Some(reader.commit(Durability::Memory).map(drop));
    });
    disk.set_blocker(Some(blocker));
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"a", &5i64.to_le_bytes())).unwrap();
    disk.set_blocker(None);
    let outcome = slot.lock().unwrap().take().expect("the log was synced");
    assert!(outcome.is_err_and(|error| error.is_retryable()));
}
