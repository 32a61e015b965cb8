//! Opening with deferred redo: every answer before the log is in the trees equals the one after (D3, D4, I1).

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault};
use duramen_engine::{
    Background, Builtin, Code, Direction, Durability, Engine, Hooks, KeyRange, Options, Result, Snapshot,
    TreeId,
};
use duramen_sim::contents::{Contents, Dice};
use duramen_sim::search::shapes::GEOMETRY;

fn options() -> Options {
    Options {
        geometry: GEOMETRY,
        background: Background::Stepped,
        checkpoint_log_bytes: Some(u64::MAX),
        answer_before_replay: Some(true),
        ..Options::default()
    }
}

fn open(disk: &MemDisk, options: Options) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default())
}

fn check(snapshot: &Snapshot, contents: &Contents, when: &str) {
    let comparison = contents.compare(snapshot);
    assert_eq!(comparison.wrong, None, "{when}");
    assert!(comparison.errors.is_empty(), "{when}: {:?}", comparison.errors);
}

const TREES: [(&str, Option<Builtin>); 3] =
    [("plain", None), ("sums", Some(Builtin::Sum)), ("least", Some(Builtin::Min))];

/// A transaction of puts and deletes, sometimes a big value, sometimes a tree created or dropped.
fn commit(engine: &Engine, contents: &mut Contents, dice: &mut Dice) {
    let mut tx = engine.begin().unwrap();
    if dice.below(12) == 0 {
        let name = format!("passing {}", dice.below(2));
        if contents.tree(&name).is_some() {
            tx.drop_tree(&name).unwrap();
            contents.drop_tree(&name);
        } else {
            let id = tx.create_tree(&name, None).unwrap();
            tx.put(id, b"only", b"row").unwrap();
            contents.tree_mut(&name).rows.insert(b"only".to_vec(), b"row".to_vec());
        }
    }
    let (name, reducer) = TREES[dice.index(TREES.len())];
    let id = tx.tree(name).unwrap().unwrap();
    for _ in 0..=dice.below(30) {
        let key = format!("{name}-{:03}", dice.below(150)).into_bytes();
        if dice.below(4) == 0 {
            tx.delete(id, &key).unwrap();
            contents.tree_mut(name).rows.remove(&key);
        } else {
            let big = reducer.is_none() && dice.below(15) == 0;
            let value = dice.value(if big { 900 } else { 8 });
            tx.put(id, &key, &value).unwrap();
            contents.tree_mut(name).rows.insert(key, value);
        }
    }
    tx.commit(Durability::Disk).unwrap();
}

/// A killed database with a checkpoint and a log after it.
fn killed(seed: u64, checkpointed: bool) -> (MemDisk, Contents, Dice) {
    let (disk, mut dice, mut contents) = (MemDisk::new(seed), Dice::new(seed), Contents::default());
    let engine = open(&disk, options()).unwrap();
    for (name, reducer) in TREES {
        engine.transact(Durability::Disk, |tx| tx.create_tree(name, reducer.map(Builtin::spec))).unwrap();
        contents.tree_mut(name).reducer = reducer;
    }
    for turn in 0..40 {
        commit(&engine, &mut contents, &mut dice);
        if checkpointed && turn == 15 {
            engine.checkpoint().unwrap();
        }
    }
    engine.abandon();
    (disk, contents, dice)
}

/// The most complete test: each query during deferred redo, and twice more from the same snapshot.
///
/// It is repeated when the log is in the trees, and after commits and checkpoints that would reuse its pages.
#[test]
fn every_answer_is_the_same_before_and_after_the_log_is_in_the_trees() {
    for seed in 0..12 {
        let (disk, contents, mut dice) = killed(seed, seed % 3 != 0);
        let engine = open(&disk, options()).unwrap();
        let (before, dirty) = (engine.snapshot().unwrap(), engine.stats().dirty_bytes);
        check(&before, &contents, "through the overlay");
        assert!(
            engine.stats().dirty_bytes <= dirty,
            "no question of a simulation brings the log into the trees"
        );
        let unread = engine.snapshot().unwrap();
        engine.step().unwrap();
        assert!(engine.stats().dirty_bytes > dirty, "a step brings the log into the trees");
        check(&engine.snapshot().unwrap(), &contents, "without it");
        let mut newer = contents.clone();
        for _ in 0..4 {
            commit(&engine, &mut newer, &mut dice);
            engine.checkpoint().unwrap();
        }
        check(&before, &contents, "from the same snapshot, after checkpoints");
        check(&unread, &contents, "from one that is read for the first time then");
        assert!(engine.check().unwrap().is_clean(), "nothing is lost");
        drop((before, unread));
        engine.close().unwrap();
        drop(engine);
        let engine = open(&disk, options()).unwrap();
        check(&engine.snapshot().unwrap(), &newer, "after closing");
        engine.abandon();
    }
}

/// A cursor begun during deferred redo finishes afterwards with the same rows; ranges in both directions,
/// too.
#[test]
fn a_cursor_goes_on_while_the_log_comes_into_the_trees() {
    let (disk, contents, _) = killed(77, true);
    let engine = open(&disk, options()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let tree = snapshot.tree("plain").unwrap().unwrap();
    let rows = &contents.tree("plain").unwrap().rows;
    let (from, to) = (b"plain-040".to_vec(), b"plain-110".to_vec());
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut wanted: Vec<_> = rows.range(from.clone()..to.clone()).collect();
        if direction == Direction::Reverse {
            wanted.reverse();
        }
        let mut found = snapshot.rows(tree, KeyRange::between(from.clone(), to.clone()), direction).unwrap();
        for (index, (key, value)) in wanted.iter().enumerate() {
            let row = found.next().unwrap().expect("as many rows as wanted");
            assert_eq!((row.key(), &*row.value().unwrap()), (&key[..], &value[..]), "{direction:?}");
            if index == 5 {
                engine.checkpoint().unwrap();
            }
        }
        assert!(found.next().unwrap().is_none(), "{direction:?}");
    }
    engine.abandon();
}

/// A read-only transaction does not wait; a writing one is applied after redo, and its earlier reads are
/// validated (I1).
#[test]
fn a_transaction_reads_through_the_overlay_and_writes_after_it() {
    let (disk, contents, _) = killed(5, true);
    let engine = open(&disk, options()).unwrap();
    let (key, value) = contents.tree("sums").unwrap().rows.iter().next().unwrap();
    let dirty = engine.stats().dirty_bytes;
    let mut reads = engine.begin().unwrap();
    let tree = reads.tree("sums").unwrap().unwrap();
    assert_eq!(reads.get(tree, key).unwrap().as_ref(), Some(value));
    let receipt = reads.commit(Durability::Disk).unwrap();
    assert_eq!(receipt.seq(), engine.snapshot().unwrap().seq());
    assert_eq!(engine.stats().dirty_bytes, dirty, "reading has brought nothing into the trees");

    let mut first = engine.begin().unwrap();
    let mut second = engine.begin().unwrap();
    assert_eq!(first.get(tree, key).unwrap().as_ref(), Some(value));
    assert_eq!(second.get(tree, key).unwrap().as_ref(), Some(value));
    second.put(tree, key, &[1; 8]).unwrap();
    second.commit(Durability::Disk).unwrap();
    first.put(tree, b"sums-999", &[2; 8]).unwrap();
    let conflict = first.commit(Durability::Disk).map(drop).unwrap_err();
    assert_eq!(conflict.code(), Code::WriteConflict, "what was read over the overlay was read");
    engine.abandon();
}

/// Corruption met by deferred redo ends commits with an error; reads of intact pages go on (D4).
#[test]
fn corruption_below_the_overlay_ends_commits_and_not_reads() {
    let (disk, contents, _) = killed(9, true);
    let data = disk.read_file("/db/data").unwrap();
    let mut corrupt = 0;
    for block in 64..data.len() / 512 {
        let disk = disk.crash(&CrashChoice::None);
        disk.flip_bit("/db/data", block as u64 * 512 + 40, 4).unwrap();
        let Ok(engine) = open(&disk, options()) else { continue };
        let snapshot = engine.snapshot().unwrap();
        let error = engine.checkpoint().err();
        let comparison = contents.compare(&snapshot);
        assert_eq!(comparison.wrong, None, "block {block}");
        assert!(comparison.errors.iter().all(|error| error.code() == Code::CorruptData), "block {block}");
        let Some(error) = error.filter(|error| error.code() == Code::CorruptData) else { continue };
        corrupt += 1;
        assert!(comparison.answer_count > comparison.errors.len() as u64, "what is whole is answered");
        assert_eq!(
            engine.begin().map(drop).unwrap_err().message(),
            error.message(),
            "whoever writes is told"
        );
        assert_eq!(engine.checkpoint().unwrap_err().message(), error.message());
        assert!(engine.durability_status().poisoned.is_some());
        let before = disk.image_hash();
        assert_eq!(engine.close().unwrap_err().message(), error.message());
        assert_eq!(disk.image_hash(), before, "closing writes nothing");
        assert_eq!(comparison.errors.is_empty(), contents.compare(&snapshot).errors.is_empty());
    }
    assert!(corrupt > 0, "some page below the overlay was corrupt");
}

/// A temporary failure of the disk is reported once, and reads go on as soon as the disk works again.
#[test]
fn a_read_that_fails_while_the_log_comes_into_the_trees_is_told() {
    let (disk, contents, _) = killed(21, true);
    let engine = open(&disk, options()).unwrap();
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO));
    let error = engine.step().unwrap_err();
    assert_eq!(error.code(), Code::System, "{error}");
    assert_eq!(engine.begin().map(drop).unwrap_err().message(), error.message());
    check(&engine.snapshot().unwrap(), &contents, "after the failure");
    engine.abandon();
    check(&open(&disk, options()).unwrap().snapshot().unwrap(), &contents, "opened again");
}

/// A database that is only read has no background that would bring the log into the trees.
#[test]
fn a_database_opened_to_be_read_answers_through_the_overlay() {
    let (disk, contents, _) = killed(33, true);
    let before = disk.image_hash();
    for changes in [Some(true), Some(false)] {
        let options = Options { read_only: true, answer_before_replay: changes, ..options() };
        let engine = open(&disk, options).unwrap();
        let snapshot = engine.snapshot().unwrap();
        check(&snapshot, &contents, "read-only");
        assert!(engine.check().unwrap().is_clean());
        check(&snapshot, &contents, "after a check");
        check(&engine.snapshot().unwrap(), &contents, "from a snapshot after it");
    }
    assert_eq!(disk.image_hash(), before, "nothing was written");
}

/// A query over more than a fork should hold waits for the trees.
#[test]
fn a_large_question_waits_until_the_log_is_in_the_trees() {
    let disk = MemDisk::new(3);
    let options = Options { memory_bytes: 4 << 20, background: Background::Threads, ..options() };
    let engine = open(&disk, options.clone()).unwrap();
    let spec = Some(Builtin::Sum.spec());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", spec.clone())).unwrap();
    let put = |engine: &Engine, from: u64, tree: TreeId| {
        let all = (from..from + 3000).try_for_each(|key| {
            engine
                .transact(Durability::Process, |tx| {
                    (0..100)
                        .try_for_each(|n| tx.put(tree, &(key * 100 + n).to_be_bytes(), &1i64.to_le_bytes()))
                })
                .map(drop)
        });
        all.unwrap();
    };
    put(&engine, 0, tree);
    engine.abandon();
    for read_only in [true, false] {
        let engine = open(&disk, Options { read_only, ..options.clone() }).unwrap();
        let snapshot = engine.snapshot().unwrap();
        assert_eq!(snapshot.tree_info(tree).unwrap().len, 300_000);
        let sum = snapshot.reduce(tree, &KeyRange::all()).unwrap().value.unwrap();
        assert_eq!(i128::from_le_bytes(sum.try_into().unwrap()), 300_000);
        assert_eq!(snapshot.nth(tree, 299_999).unwrap().unwrap().0, 299_999u64.to_be_bytes());
        engine.abandon();
    }
}
