//! Operations at an awkward moment, and what must not follow: a failed sync reported to another thread, a
//! closure that panics or does something forbidden while it runs alone, a tree dropped under a reader.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_engine::{
    Background, Code, Direction, Durability, Engine, Event, EventHook, Hooks, KeyRange, Options, ReducerSpec,
    Result, Transaction, TreeId,
};

use crate::basics::{open, tiny};
use crate::repair::picky;

pub(crate) fn create(engine: &Engine, name: &str) -> TreeId {
    engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).unwrap().0
}

/// Runs `work` in a new thread; `None` if it has not returned after a minute.
pub(crate) fn returns<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || drop(tell.send(work())));
    told.recv_timeout(Duration::from_secs(60)).ok()
}

/// Makes the closure of a transaction run alone: eight conflicts, then `alone`.
fn run_alone(
    engine: &Engine,
    tree: TreeId,
    mut alone: impl FnMut(&mut Transaction) -> Result<()>,
) -> Result<()> {
    let mut runs = 0u8;
    let run = |tx: &mut Transaction| {
        tx.get(tree, b"contended")?;
        runs += 1;
        if runs > 8 {
            return alone(tx);
        }
        let mut other = engine.begin()?;
        other.put(tree, b"contended", &[runs])?;
        other.commit(Durability::Disk)?;
        tx.put(tree, b"own", b"value")
    };
    engine.transact(Durability::Disk, run).map(|_| ())
}

/// D1 and D6: the system reports lost pages once, to the next sync of the file.
///
/// A checkpoint running beside that sync must not take its own sync as proof that its pages are on the disk.
#[test]
fn a_failed_sync_told_to_a_commit_stops_the_checkpoint_beside_it() {
    let disk = MemDisk::new(2);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "rows");
    let fill = |value: u8| {
        let put = |tx: &mut Transaction| {
            (0..3000u32).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[value; 60]))
        };
        engine.transact(Durability::Disk, put).unwrap();
    };
    fill(7);
    engine.checkpoint().unwrap();
    fill(8);
    let mut slices = 0;
    let mut refused = None;
    let checkpoint = engine.checkpoint_with(&mut || {
        slices += 1;
        if slices == 1 {
            let gone = Effect::SyncErrorDataGone(io::ErrorKind::Other);
            disk.set_faults(Fault::new(CallKind::Sync, 0, gone).on("data"));
            let put = |tx: &mut Transaction| tx.put(tree, b"big", &[1; 900]);
            refused = Some(engine.transact(Durability::Disk, put).map(|_| ()));
        }
    });
    assert!(refused.unwrap().is_err() && checkpoint.is_err(), "{checkpoint:?}");
    engine.abandon();
    let after = disk.crash(&CrashChoice::None);
    let engine = Engine::open(Arc::new(after), Path::new("/db"), tiny(), Hooks::default()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    for n in 0..3000u32 {
        assert_eq!(snapshot.get(tree, &n.to_be_bytes()).unwrap(), Some(vec![8; 60]), "row {n}");
    }
}

/// D6: the system reports once that it could not write pages. A checkpoint that gets the report while it
/// writes ahead of its sync must not believe a later successful sync.
#[test]
fn pages_that_could_not_be_written_out_end_the_checkpoint() {
    let disk = MemDisk::new(3);
    // Much is written at once.
    let options = Options { background: Background::Stepped, compress: false, ..Options::default() };
    let engine = open(&disk, options.clone());
    let tree = create(&engine, "rows");
    let fill = |value: u8| {
        let put = |tx: &mut Transaction| {
            (0..3000u32).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[value; 300]))
        };
        engine.transact(Durability::Disk, put).map(|_| ())
    };
    fill(7).unwrap();
    engine.checkpoint().unwrap();
    fill(8).unwrap();
    disk.set_faults(Fault::new(CallKind::WriteOut, 0, Effect::EIO).on("data"));
    let syncs = disk.call_counts().of(CallKind::Sync);
    assert!(engine.checkpoint().is_err());
    assert_eq!(disk.call_counts().of(CallKind::Sync), syncs, "no superblock is written for it");
    assert!(fill(9).is_err(), "nothing is acknowledged any more");
    engine.abandon();
    let after = disk.crash(&CrashChoice::None);
    let engine = Engine::open(Arc::new(after), Path::new("/db"), options, Hooks::default()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    for n in 0..3000u32 {
        assert_eq!(snapshot.get(tree, &n.to_be_bytes()).unwrap(), Some(vec![8; 300]), "row {n}");
    }
}

#[test]
fn a_commit_does_not_wait_for_memory_that_only_its_own_reads_took() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, Options { memory_bytes: 4 << 20, ..Options::default() });
    let tree = create(&engine, "rows");
    for batch in 0..60u32 {
        let put = |tx: &mut Transaction| {
            (0..200u32).try_for_each(|n| tx.put(tree, &(batch * 200 + n).to_be_bytes(), &[7; 1000]))
        };
        engine.transact(Durability::Process, put).unwrap();
    }
    engine.checkpoint().unwrap();
    let done = returns(move || {
        let mut tx = engine.begin().unwrap();
        // The leaves take less memory than nodes may take: a larger transaction is refused.
        (0..120u32).for_each(|n| tx.put(tree, &(n * 100).to_be_bytes(), &[9; 10]).unwrap());
        assert_eq!(tx.count(tree, &KeyRange::all()).unwrap(), 12_000);
        tx.commit(Durability::Disk).is_ok()
    });
    assert_eq!(done, Some(true), "the commit returns");
}

/// I1: a transaction that read a tree dropped before its commit has read a state that fits no order.
#[test]
fn a_tree_dropped_after_it_was_used_is_a_conflict() {
    let disk = MemDisk::new(8);
    let engine = open(&disk, tiny());
    let (read, written, flag) =
        (create(&engine, "read"), create(&engine, "written"), create(&engine, "flag"));
    engine.transact(Durability::Disk, |tx| tx.put(read, b"k", b"v")).unwrap();
    let mut reader = engine.begin().unwrap();
    assert!(reader.get(read, b"k").unwrap().is_some());
    let mut writer = engine.begin().unwrap();
    writer.put(written, b"k", b"v").unwrap();
    let mut dropper = engine.begin().unwrap();
    assert!(dropper.get(flag, b"k").unwrap().is_none());
    dropper.drop_tree("read").unwrap();
    dropper.drop_tree("written").unwrap();
    dropper.commit(Durability::Disk).unwrap();
    reader.put(flag, b"k", b"the tree is there").unwrap();
    assert_eq!(reader.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
    assert_eq!(writer.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
}

#[test]
fn a_closure_that_panics_while_it_runs_alone_harms_nobody_else() {
    let disk = MemDisk::new(4);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "rows");
    let other = engine.clone();
    let panicked = thread::spawn(move || run_alone(&other, tree, |_| panic!("of the user"))).join();
    assert!(panicked.is_err());
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(engine.get(tree, b"own").unwrap(), None);
    engine.close().unwrap();
}

#[test]
fn a_closure_that_runs_alone_is_refused_what_would_wait_for_itself() {
    let disk = MemDisk::new(5);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "rows");
    let (_, receipt) = engine.transact(Durability::Disk, |tx| tx.put(tree, b"a", b"a")).unwrap();
    let done = returns(move || {
        run_alone(&engine, tree, |tx| {
            assert!(receipt.durability() <= Durability::Disk);
            assert_eq!(engine.checkpoint().unwrap_err().code(), Code::InvalidArgument);
            assert_eq!(engine.close().unwrap_err().code(), Code::InvalidArgument);
            tx.put(tree, b"own", b"alone")
        })
    });
    done.expect("it returns").unwrap();
}

#[test]
fn a_cursor_goes_on_over_big_values_that_its_transaction_replaced() {
    let disk = MemDisk::new(6);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "rows");
    let mut tx = engine.begin().unwrap();
    tx.put(tree, b"a", b"small").unwrap();
    tx.put(tree, b"b", &[1; 380]).unwrap();
    let mut rows = tx.rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    rows.next().unwrap().unwrap();
    tx.put(tree, b"b", &[2; 380]).unwrap();
    tx.put(tree, b"c", &[3; 380]).unwrap();
    assert_eq!(*rows.next().unwrap().unwrap().value().unwrap(), [1; 380], "as it was when the cursor began");
    drop(rows);
    tx.commit(Durability::Disk).unwrap();
    assert_eq!(engine.get(tree, b"b").unwrap(), Some(vec![2; 380]));
    engine.checkpoint().unwrap();
    let report = engine.check().unwrap();
    assert!(report.is_clean() && report.unreached.is_empty(), "{report:?}");
}

#[test]
fn memory_is_bounded_where_a_database_is_only_read() {
    let disk = MemDisk::new(7);
    let options = Options { memory_bytes: 4 << 20, ..Options::default() };
    let engine = open(&disk, options.clone());
    let tree = create(&engine, "rows");
    for batch in 0..100u32 {
        let put = |tx: &mut Transaction| {
            (0..200u32).try_for_each(|n| tx.put(tree, &(batch * 200 + n).to_be_bytes(), &[7; 1000]))
        };
        engine.transact(Durability::Process, put).unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, Options { read_only: true, create: false, ..options });
    for n in 0..20_000u32 {
        assert!(engine.get(tree, &n.to_be_bytes()).unwrap().is_some());
    }
    let resident = engine.stats().resident_bytes;
    assert!(resident < 4 << 20, "{resident} bytes of 20 MB are in memory");
}

/// D8: pages that a snapshot needs after its engine has gone could be reused by the next writer. A receipt
/// needs none.
#[test]
fn a_snapshot_that_outlives_its_engine_keeps_others_out() {
    let disk = MemDisk::new(88);
    let engine = open(&disk, tiny());
    let (tree, receipt) = engine
        .transact(Durability::Disk, |tx| {
            let tree = tx.create_tree("t", None)?;
            tx.put(tree, b"key", b"value")?;
            Ok(tree)
        })
        .unwrap();
    let rows = engine.snapshot().unwrap().rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let transaction = engine.begin().unwrap();
    engine.close().unwrap();
    drop(engine);

    let again = || Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), Hooks::default());
    for reader in [Box::new(rows) as Box<dyn std::any::Any>, Box::new(transaction)] {
        let refused = again().unwrap_err();
        assert_eq!(refused.code(), Code::DatabaseLocked);
        assert!(refused.hint().contains("snapshots"), "{}", refused.hint());
        drop(reader);
    }
    let engine = again().unwrap();
    assert_eq!(engine.get(tree, b"key").unwrap().unwrap(), b"value");
    assert_eq!(receipt.durability(), Durability::Disk);
}

/// I1: a failed read does not affect the writes of its transaction.
#[test]
fn after_a_failed_read_a_transaction_still_sees_its_own_writes() {
    let disk = MemDisk::new(89);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "t");
    let rows = |tx: &mut Transaction| (0..3000u32).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[7; 60]));
    engine.transact(Durability::Disk, rows).unwrap();
    engine.checkpoint().unwrap();
    engine.abandon();

    let engine = open(&disk, tiny());
    let mut tx = engine.begin().unwrap();
    tx.put(tree, &5_000u32.to_be_bytes(), b"own").unwrap();
    assert_eq!(tx.count(tree, &KeyRange::all()).unwrap(), 3001);
    tx.put(tree, &[0, 0, 5, 0, 1], b"own too").unwrap();
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO));
    tx.count(tree, &KeyRange::all()).unwrap_err();
    disk.set_faults(FaultPlan::default());
    assert_eq!(tx.count(tree, &KeyRange::all()).unwrap(), 3002);
}

/// After a read error a cursor goes on where it was: no entry is skipped or returned twice.
#[test]
fn after_a_failed_read_a_cursor_goes_on_where_it_was() {
    let disk = MemDisk::new(90);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "t");
    let rows = |tx: &mut Transaction| (0..3000u32).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[7; 60]));
    engine.transact(Durability::Disk, rows).unwrap();
    engine.checkpoint().unwrap();
    engine.abandon();

    for direction in [Direction::Forward, Direction::Reverse] {
        let engine = open(&disk, tiny());
        let mut rows = engine.snapshot().unwrap().rows(tree, KeyRange::all(), direction).unwrap();
        let (mut seen, mut failed) = (Vec::new(), 0);
        loop {
            disk.set_faults(if seen.len() % 3 == failed % 3 {
                Fault::new(CallKind::Read, 0, Effect::EIO).into()
            } else {
                FaultPlan::default()
            });
            match rows.next() {
                Ok(Some(row)) => seen.push(u32::from_be_bytes(row.key().try_into().unwrap())),
                Ok(None) => break,
                Err(_) => failed += 1,
            }
        }
        disk.set_faults(FaultPlan::default());
        assert!(failed > 20, "{failed} reads failed");
        if direction == Direction::Reverse {
            seen.reverse();
        }
        assert!(seen.iter().copied().eq(0..3000), "{direction:?}: {} rows", seen.len());
        engine.abandon();
    }
}

/// D8: inherited handles are refused in a forked child.
#[test]
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a look between fork and exec")]
fn a_forked_child_is_refused() {
    use std::os::unix::process::CommandExt;
    let disk = MemDisk::new(91);
    let engine = open(&disk, tiny());
    let inherited = engine.clone();
    let mut command = std::process::Command::new("true");
    let look = move || match (inherited.snapshot(), inherited.begin()) {
        (Err(_), Err(_)) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    };
    // SAFETY: both calls compare a number and build an error; the child's memory allocator is glibc's, which
    // may be used after a fork.
    unsafe { command.pre_exec(look) };
    assert!(command.status().unwrap().success());
    engine.snapshot().unwrap();
}

/// D8: an event hook that panics while the last handle is dropped does not keep the database locked.
#[test]
fn a_hook_that_panics_at_the_end_lets_go_of_the_lock() {
    let disk = MemDisk::new(92);
    let told = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let on_event: EventHook = Arc::new(move |event: &Event| {
        if matches!(event, Event::CloseFailed(_)) {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            panic!("the hook's own");
        }
    });
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), hooks).unwrap();
    let tree = create(&engine, "t");
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
    drop(engine.snapshot().unwrap());
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(engine))).unwrap_err();
    disk.set_faults(FaultPlan::default());
    assert_eq!(told.load(std::sync::atomic::Ordering::SeqCst), 1);
    let again = Engine::open(Arc::new(disk), Path::new("/db"), tiny(), Hooks::default()).unwrap();
    assert_eq!(again.snapshot().unwrap().get(tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// The begin event of a checkpoint comes before its first write, and there is one for every end event.
///
/// Measurements rely on it to separate times with a checkpoint from times without.
#[test]
fn a_checkpoint_is_told_before_it_writes_and_when_it_is_durable() {
    let disk = MemDisk::new(93);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (heard, counted) = (Arc::clone(&told), disk.clone());
    let on_event: EventHook = Arc::new(move |event: &Event| {
        let writes = counted.call_counts().of(CallKind::Write);
        match event {
            Event::CheckpointBegins => heard.lock().unwrap().push(("begins", writes)),
            Event::Checkpoint { .. } => heard.lock().unwrap().push(("ends", writes)),
            _ => {}
        }
    });
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), hooks).unwrap();
    let tree = create(&engine, "t");
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
    told.lock().unwrap().clear();
    let before = disk.call_counts().of(CallKind::Write);
    engine.checkpoint().unwrap();
    let after = disk.call_counts().of(CallKind::Write);
    assert!(before < after, "a checkpoint writes");
    assert_eq!(*told.lock().unwrap(), [("begins", before), ("ends", after)]);
}

/// A hook may run in the thread that makes room for commits: a commit in it would deadlock once memory fills.
///
/// It is refused at once, wherever the hook runs. Reads are not refused, nor is a commit to another database.
#[test]
fn a_commit_in_an_event_hook_is_refused_and_does_not_hang() {
    let other = Engine::open(Arc::new(MemDisk::new(94)), Path::new("/db"), tiny(), Hooks::default()).unwrap();
    let elsewhere = create(&other, "t");
    let opened: Arc<std::sync::OnceLock<(Engine, TreeId)>> = Arc::default();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let (of_hook, codes) = (Arc::clone(&opened), Arc::clone(&refused));
    let on_event: EventHook = Arc::new(move |event: &Event| {
        let Some((engine, tree)) = of_hook.get() else { return };
        if !matches!(event, Event::CheckpointBegins) {
            return;
        }
        let committed = engine.transact(Durability::Memory, |tx| tx.put(*tree, b"told", b"")).map(drop);
        let calls = [committed, engine.checkpoint(), engine.close()];
        codes.lock().unwrap().extend(calls.map(|done| done.unwrap_err().code()));
        engine.get(*tree, b"k").unwrap();
        other.transact(Durability::Disk, |tx| tx.put(elsewhere, b"told", b"")).unwrap();
    });
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = Engine::open(Arc::new(MemDisk::new(95)), Path::new("/db"), tiny(), hooks).unwrap();
    let tree = create(&engine, "t");
    opened.set((engine.clone(), tree)).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(*refused.lock().unwrap(), [Code::InvalidArgument; 3]);
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
    engine.close().unwrap();
}

/// A program without the tree's reducer wrote the rows: only leaves show how long the reductions will be.
///
/// A commit of one row by a program with the reducer reads the path to its leaf only: other commits wait for
/// it.
#[test]
fn a_commit_reads_its_way_only_where_reductions_are_unknown() {
    let disk = MemDisk::new(1);
    let open = |hooks| Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), hooks).unwrap();
    let spec = ReducerSpec { name: "picky".to_owned(), version: 1, params: Vec::new() };
    let engine = open(picky(false));
    let created = engine.transact(Durability::Disk, |tx| tx.create_tree("t", Some(spec.clone())));
    let (tree, _) = created.unwrap();
    engine.close().unwrap();
    drop(engine);
    let engine = open(Hooks::default());
    for batch in 0..40u32 {
        let rows = batch * 100..(batch + 1) * 100;
        let put = |tx: &mut Transaction| {
            rows.clone().try_for_each(|row| tx.put(tree, &row.to_be_bytes(), &[1; 60]))
        };
        engine.transact(Durability::Disk, put).unwrap();
    }
    // Killed, so that the next opening has no hot-page list.
    engine.checkpoint().unwrap();
    engine.abandon();
    let engine = open(picky(false));
    let before = engine.stats().pages_read;
    engine.transact(Durability::Disk, |tx| tx.put(tree, &2000u32.to_be_bytes(), b"changed")).unwrap();
    let read = engine.stats().pages_read - before;
    assert!((1..16).contains(&read), "{read} pages were read for one row");
}

/// D6: a checkpoint has no transaction whose outcome could be unknown. It names the failed sync and the
/// remedy. So does the close, which may be the last call of a program.
#[test]
fn a_checkpoint_that_cannot_sync_the_log_says_so_and_the_close_too() {
    let disk = MemDisk::new(95);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "t");
    engine.transact(Durability::Process, |tx| tx.put(tree, b"k", b"v")).unwrap();
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO).on(".wal"));
    let of_checkpoint = engine.checkpoint().unwrap_err();
    assert_eq!(disk.fault_hit_count(), 1);
    let of_closes = [(); 2].map(|()| engine.close().unwrap_err());
    for error in of_closes.into_iter().chain([of_checkpoint]) {
        assert_eq!(error.code(), Code::EnginePoisoned, "{error}");
        assert!(error.message().contains("cannot sync /db/wal"), "{error}");
        assert!(!error.message().contains("transaction"), "{error}");
        assert!(error.hint().contains("open the database again"), "{}", error.hint());
    }
}
