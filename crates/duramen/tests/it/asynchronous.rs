//! The asynchronous handle: an awaited commit has reached its level, the executor's thread never waits, no
//! task is lost, and a dropped future leaves nothing half done.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use duramen::prelude::*;
use duramen::requests::{self, Outcome, Request};
use duramen::{Change, Code, MemDisk};
use duramen_disk::memory::{CallKind, Effect, Fault, SyncGate};
use duramen_engine::Background;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "accounts")]
struct Account {
    #[key]
    id: u64,
    cents: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "tickets")]
struct Ticket {
    #[key(assigned)]
    id: u64,
    text: String,
}

/// Wakes a thread, and remembers that it did.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Signal {
    fn wait(&self) {
        let woken = self.woken.lock().unwrap();
        *self.changed.wait_while(woken, |woken| !*woken).unwrap() = false;
    }
}

/// The smallest executor: it polls only when it is woken, so that a lost wake-up is a test that never ends.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => signal.wait(),
        }
    }
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// No background work: all writes and syncs are made by the calls of the test.
fn open(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|options| options.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

fn account(id: u64, cents: i64) -> Account {
    Account { id, cents }
}

#[test]
fn the_verbs_do_what_the_blocking_ones_do() {
    block_on(async {
        let db: AsyncDb = Db::in_memory()?.into_async();
        let receipt = db.put(account(1, 10)).await?;
        assert_eq!(receipt.durability(), Durability::Disk);
        assert_eq!(db.get::<Account>(1).await?, Some(account(1, 10)));
        assert_eq!(db.insert(account(1, 11)).await.unwrap_err().code(), Code::AlreadyExists);
        assert_eq!(db.update(account(2, 11)).await.unwrap_err().code(), Code::NoSuchKey);
        db.update(account(1, 12)).await?;
        let changed = db
            .modify::<Account>(1, |account| {
                account.cents += 1;
                Ok(())
            })
            .await?;
        assert_eq!(changed, Some(account(1, 13)));
        let ticket = db.push(Ticket { id: 0, text: "the printer".to_owned() }).await?;
        assert_eq!((ticket.id, ticket.text.as_str()), (1, "the printer"));
        assert!(db.delete::<Account>(1).await?);
        assert!(!db.delete::<Account>(1).await?);
        let count = db.read(|at| at.collection::<Ticket>().count()).await?;
        assert_eq!(count, 1);
        let receipt = db.at(Durability::Process).write(|tx| tx.put(&account(3, 1))).await?;
        assert!(receipt.durability() >= Durability::Process);
        db.wait(&receipt, Durability::Disk).await?;
        assert_eq!(receipt.durability(), Durability::Disk);
        db.at(Durability::Memory).write(|tx| tx.put(&account(4, 1))).await?;
        assert!(db.run(|db| db.check_documents()).await?.is_clean());
        db.close().await?;
        assert_eq!(db.put(account(5, 1)).await.unwrap_err().code(), Code::Closed);
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn a_database_opens_and_is_closed_without_keeping_the_executor_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for round in 0..3 {
        let db = block_on(AsyncDb::open(&path)).unwrap();
        assert_eq!(block_on(db.read(|at| at.collection::<Account>().count())).unwrap(), round);
        block_on(db.put(account(round, 0))).unwrap();
        // Also without a close: the last handle releases the lock before its drop returns.
        if round == 1 {
            block_on(db.close()).unwrap();
        }
    }
}

/// One thread runs all closures, and none of them waits for the disk: a hundred transactions are ordered
/// during one sync, and share the next.
#[test]
fn a_hundred_tasks_on_one_thread_share_two_syncs() {
    let disk = MemDisk::new(1);
    let blocking = open(&disk);
    blocking.put(&account(1_000, 0)).unwrap();
    let db = AsyncDb::with_threads(blocking.clone(), 1);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("")));
    disk.reset_call_counts();
    let mut tasks: Vec<_> = (0..100).map(|id| Box::pin(db.put(account(id, 1)))).collect();
    assert!(poll_once(tasks[0].as_mut()).is_pending());
    gate.wait_blocked(1);
    tasks[1..].iter_mut().for_each(|task| assert!(poll_once(task.as_mut()).is_pending()));
    // In the queue's order: all of them follow this commit, and none is published.
    let seen = block_on(db.read(|at| at.collection::<Account>().count())).unwrap();
    assert_eq!(seen, 1, "nobody sees what is not on its way to the disk as promised");
    assert!(tasks.iter_mut().all(|task| poll_once(task.as_mut()).is_pending()), "the gate is shut");
    gate.open();
    for task in tasks {
        let receipt = block_on(task).unwrap();
        assert_eq!(receipt.durability(), Durability::Disk);
    }
    assert_eq!(disk.call_counts().of(CallKind::Sync), 2);
    assert_eq!(blocking.collection::<Account>().count().unwrap(), 101);
}

/// The leader of a group has a caller of its own: the first task completes during the sync of the next group.
#[test]
fn a_task_does_not_wait_for_the_sync_of_the_next_group() {
    let disk = MemDisk::new(1);
    let blocking = open(&disk);
    blocking.put(&account(1_000, 0)).unwrap();
    let db = AsyncDb::with_threads(blocking, 1);
    let (arrive, arrived) = channel();
    let (permit, permits) = channel::<()>();
    let hold = Mutex::new((arrive, permits));
    disk.set_blocker(Some(Arc::new(move |_| {
        let hold = hold.lock().unwrap();
        let _ = hold.0.send(());
        let _ = hold.1.recv();
    })));
    let mut first = Box::pin(db.put(account(1, 1)));
    assert!(poll_once(first.as_mut()).is_pending());
    arrived.recv().unwrap();
    let mut second = Box::pin(db.put(account(2, 1)));
    assert!(poll_once(second.as_mut()).is_pending());
    block_on(db.run(|_| Ok(()))).unwrap();
    permit.send(()).unwrap();
    block_on(first).unwrap();
    assert!(poll_once(second.as_mut()).is_pending());
    arrived.recv().unwrap();
    drop(permit);
    block_on(second).unwrap();
}

#[test]
fn a_future_dropped_before_its_turn_does_nothing() {
    let db = AsyncDb::with_threads(Db::in_memory().unwrap(), 1);
    let (release, held) = channel::<u8>();
    let mut first = Box::pin(db.run(move |_| Ok(held.recv().unwrap())));
    assert!(poll_once(first.as_mut()).is_pending());
    let ran = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&ran);
    let mut second = Box::pin(db.transact(move |tx| {
        note.store(true, Ordering::SeqCst);
        tx.put(&account(1, 1))
    }));
    assert!(poll_once(second.as_mut()).is_pending());
    drop(second);
    assert_eq!(Arc::strong_count(&ran), 1, "what it held is let go of at once");
    let unpolled = db.put(account(2, 1));
    drop(unpolled);
    release.send(1).unwrap();
    assert_eq!(block_on(first).unwrap(), 1);
    assert_eq!(block_on(db.read(|at| at.collection::<Account>().count())).unwrap(), 0);
    assert!(!ran.load(Ordering::SeqCst));
}

/// A cancelled call must not leave its commit undecided: the commit reaches the disk without a waiter, and
/// the work after it is done.
#[test]
fn a_future_dropped_after_its_turn_is_committed_all_the_same() {
    let disk = MemDisk::new(1);
    let blocking = open(&disk);
    let db = AsyncDb::with_threads(blocking.clone(), 1);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("")));
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let mut task = Box::pin(db.transact(move |tx| {
        let tell = tell.lock().unwrap().clone();
        tx.after_commit(move || tell.send(()).unwrap());
        tx.put(&account(1, 1))
    }));
    assert!(poll_once(task.as_mut()).is_pending());
    gate.wait_blocked(1);
    drop(task);
    assert!(told.try_recv().is_err(), "it is not committed yet");
    gate.open();
    drop(db);
    told.recv().unwrap();
    assert!(blocking.stats().commit.durable >= blocking.stats().commit.published);
    let cut = disk.crash(&duramen_disk::memory::CrashChoice::None);
    assert_eq!(open(&cut).get::<Account>(1).unwrap(), Some(account(1, 1)));
}

#[test]
fn a_panic_is_handed_on_and_the_pool_goes_on() {
    let db = AsyncDb::with_threads(Db::in_memory().unwrap(), 1);
    for round in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            block_on(db.transact(move |tx| {
                tx.put(&account(round, 1))?;
                assert!(round > 9, "round {round}");
                Ok(())
            }))
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref::<String>(), Some(&format!("round {round}")));
    }
    assert_eq!(block_on(db.read(|at| at.collection::<Account>().count())).unwrap(), 0);
    // A waker is code of the program too.
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("of the executor's");
        }
    }
    let bad = Waker::from(Arc::new(Bad));
    let (release, held) = channel::<u8>();
    let mut task = Box::pin(db.run(move |_| Ok(held.recv().unwrap())));
    assert!(task.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    release.send(1).unwrap();
    block_on(db.put(account(1, 1))).unwrap();
}

#[test]
fn a_conflict_runs_the_closure_again_and_its_own_errors_come_back() {
    let blocking = Db::in_memory().unwrap();
    let db = blocking.clone().into_async();
    let runs = Arc::new(AtomicUsize::new(0));
    let (count, other) = (Arc::clone(&runs), blocking.clone());
    let seen = block_on(db.transact(move |tx| {
        let seen = tx.collection::<Account>().count()?;
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::scope(|scope| scope.spawn(|| other.put(&account(1, 1))).join().unwrap())?;
        }
        tx.put(&account(2, 1))?;
        Ok(seen)
    }));
    assert_eq!((seen.unwrap(), runs.load(Ordering::SeqCst)), (1, 2));

    #[derive(Debug)]
    enum Own {
        TooPoor(i64),
        Db(Error),
    }
    impl From<Error> for Own {
        fn from(error: Error) -> Own {
            Own::Db(error)
        }
    }
    let refused = block_on(db.try_transact(|tx| match tx.get::<Account>(2)? {
        Some(account) => Err(Own::TooPoor(account.cents)),
        None => Ok(()),
    }));
    assert!(matches!(refused, Err(Own::TooPoor(1))), "{refused:?}");
    block_on(db.close()).unwrap();
    let closed = block_on(db.try_transact(|tx| Ok::<_, Own>(tx.put(&account(3, 1))?)));
    assert!(matches!(&closed, Err(Own::Db(error)) if error.code() == Code::Closed), "{closed:?}");
}

/// A group that found no room never happened. Its transactions run again, and so do those that read from it;
/// no caller notices.
#[test]
fn what_found_no_room_runs_again() {
    let disk = MemDisk::new(1);
    let blocking = open(&disk);
    blocking.put(&account(1, 0)).unwrap();
    let db = AsyncDb::with_threads(blocking, 1);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("")));
    let mut first = Box::pin(db.put(account(2, 0)));
    assert!(poll_once(first.as_mut()).is_pending());
    gate.wait_blocked(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let mut writes = Box::pin(db.transact(move |tx| {
        let run = count.fetch_add(1, Ordering::SeqCst) + 1;
        tx.put(&account(1, run as i64))
    }));
    let mut reads = Box::pin(db.transact(|tx| Ok(tx.get::<Account>(1)?.unwrap().cents)));
    assert!(poll_once(writes.as_mut()).is_pending());
    assert!(poll_once(reads.as_mut()).is_pending());
    // After both.
    block_on(db.run(|_| Ok(()))).unwrap();
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on("wal"));
    gate.open();
    block_on(first).unwrap();
    block_on(writes).unwrap();
    assert_eq!(disk.fault_hit_count(), 1);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let read = block_on(reads).unwrap();
    assert!(read == 0 || read == 2, "{read} cents were never there");
    assert_eq!(block_on(db.get::<Account>(1)).unwrap(), Some(account(1, 2)));
}

/// D6: after a failed sync no task gets a success for a commit that may be lost, and every task gets an
/// answer.
#[test]
fn a_failed_sync_is_told_to_all_who_wait() {
    let disk = MemDisk::new(1);
    let blocking = open(&disk);
    blocking.put(&account(100, 0)).unwrap();
    let db = AsyncDb::with_threads(blocking, 1);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("")));
    let mut first = Box::pin(db.put(account(50, 1)));
    assert!(poll_once(first.as_mut()).is_pending());
    gate.wait_blocked(1);
    let mut tasks: Vec<_> = (0..8).map(|id| Box::pin(db.put(account(id, 1)))).collect();
    tasks.iter_mut().for_each(|task| assert!(poll_once(task.as_mut()).is_pending()));
    block_on(db.run(|_| Ok(()))).unwrap();
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO).for_good());
    gate.open();
    block_on(first).unwrap();
    for task in tasks {
        // They were written, or may have been: none may be reported as never having happened.
        let error = block_on(task).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    }
    assert_eq!(block_on(db.put(account(9, 1))).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn no_more_closures_run_at_once_than_there_are_threads() {
    let db = AsyncDb::with_threads(Db::in_memory().unwrap(), 3);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (release, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let mut tasks: Vec<_> = (0..50)
        .map(|_| {
            let (now, most, held) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&held));
            Box::pin(db.run(move |_| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                held.lock().unwrap().recv().unwrap();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }))
        })
        .collect();
    tasks.iter_mut().for_each(|task| assert!(poll_once(task.as_mut()).is_pending()));
    (0..50).for_each(|_| release.send(()).unwrap());
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
    let most = most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} at once");
}

/// Opens the database once the thread that ran the last call has released its own handle, which it does after
/// the call's closure or callback has returned.
fn open_when_released(directory: &Path) -> AsyncDb {
    loop {
        match block_on(AsyncDb::open(directory.join("db"))) {
            Err(error) if error.code() == Code::DatabaseLocked => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// A closure may hold the last handle: stopping the threads from one of them must not wait for that thread
/// itself.
#[test]
fn the_last_handle_may_be_dropped_on_a_thread_of_the_pool() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..10 {
        let db = open_when_released(directory.path());
        let (tell, told) = channel();
        let inner = db.clone();
        let mut task = Box::pin(async move {
            let own = inner.clone();
            let ran = inner.run(move |_| {
                drop(own);
                tell.send(()).unwrap();
                Ok(())
            });
            ran.await
        });
        drop(db);
        drop(poll_once(task.as_mut()));
        drop(task);
        // Removed from the queue, or finished: either way the sender and the database are released.
        let _ = told.recv();
    }
    let db = open_when_released(directory.path());
    block_on(db.put(account(1, 1))).unwrap();
}

/// So may a callback, which runs on a thread of the pool after the commit.
#[test]
fn the_last_handle_may_be_dropped_after_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    for id in 0..10 {
        let db = open_when_released(directory.path());
        let (tell, told) = channel();
        let inner = db.clone();
        let mut task = Box::pin(async move {
            let own = Mutex::new(Some(inner.clone()));
            let ran = inner.transact(move |tx| {
                let (own, tell) = (own.lock().unwrap().take(), tell.clone());
                tx.after_commit(move || {
                    drop(own);
                    tell.send(()).unwrap();
                });
                tx.put(&account(id, 1))
            });
            ran.await
        });
        drop(db);
        drop(poll_once(task.as_mut()));
        drop(task);
        // Removed from the queue, or finished.
        let _ = told.recv();
    }
    let db = open_when_released(directory.path());
    block_on(db.put(account(1, 1))).unwrap();
}

#[test]
fn changes_are_awaited_one_by_one_and_end_with_the_database() {
    let disk = MemDisk::new(1);
    let db = open(&disk).into_async();
    block_on(db.put(account(0, 0))).unwrap();
    let mut changes = db.changes::<Account>().from_now();
    let id = |change: Option<Result<Change<Account>>>| change.unwrap().unwrap().key().unwrap();
    for round in 1..4u64 {
        // A future dropped while it waits, or while a thread reads for it, has consumed nothing.
        assert!(poll_once(pin!(changes.next())).is_pending());
        block_on(db.put(account(round, 0))).unwrap();
        if let Poll::Ready(told) = poll_once(pin!(changes.next())) {
            assert_eq!(id(told), round);
        } else {
            assert_eq!(id(block_on(changes.next())), round);
        }
    }
    let mut from_first = db.all_changes().from_oldest();
    assert!(block_on(from_first.next()).unwrap().is_ok());
    let (first, second) = std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| block_on(async { (id(changes.next().await), changes.next().await.is_none()) }));
        block_on(db.put(account(9, 0))).unwrap();
        block_on(db.close()).unwrap();
        waits.join().unwrap()
    });
    assert_eq!((first, second), (9, true));
    let mut stopped = db.changes::<Account>().from_now();
    stopped.stopper().stop();
    assert!(block_on(stopped.next()).is_none());
}

/// Realistic use: tasks of a runtime, on one thread or many, that increment one counter and insert rows of
/// their own.
fn on_tokio(runtime: &tokio::runtime::Runtime) {
    let directory = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let db = AsyncDb::open(directory.path().join("db")).await.unwrap();
        let mut changes = db.changes::<Account>().from_now();
        let tasks: Vec<_> = (1..=100)
            .map(|id| {
                let db = db.clone();
                tokio::spawn(async move {
                    db.transact(move |tx| {
                        tx.kv("counters").increment("tasks", 1)?;
                        tx.put(&account(id, 1))
                    })
                    .await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let counted = db.read(|at| at.kv("counters").get::<i64>("tasks")).await.unwrap();
        assert_eq!(counted, Some(100));
        let mut told = Vec::new();
        while told.len() < 100 {
            told.extend(changes.next().await.unwrap().unwrap().key());
        }
        told.sort_unstable();
        assert_eq!(told, (1..=100).collect::<Vec<_>>());
        let cancelled = tokio::spawn({
            let db = db.clone();
            async move { db.put(account(200, 1)).await }
        });
        cancelled.abort();
        drop(cancelled.await);
        db.close().await.unwrap();
    });
    let db = Db::open(directory.path().join("db")).unwrap();
    assert!(db.check().unwrap().is_clean());
    assert!(db.collection::<Account>().count().unwrap() >= 100);
}

#[test]
fn it_serves_tasks_of_a_runtime() {
    on_tokio(&tokio::runtime::Builder::new_current_thread().build().unwrap());
    on_tokio(&tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap());
}

/// A retry of an awaited request gets the first answer, once the first try is on disk.
#[test]
fn an_awaited_request_runs_once() -> Result<()> {
    let disk = MemDisk::new(18);
    let db = open(&disk).into_async();
    let id = requests::new_id(db.blocking())?;
    let runs = Arc::new(AtomicUsize::new(0));
    let ask = |body: &'static [u8]| {
        let runs = Arc::clone(&runs);
        let request = Request::new(id, body);
        block_on(db.once(&request, move |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok(tx.kv("counters").increment("orders", 1)?.to_le_bytes().to_vec())
        }))
    };
    let first = ask(b"one")?;
    let second = ask(b"one")?;
    assert_eq!((first.is_repeated, second.is_repeated), (false, true));
    assert_eq!((first.answer, second.answer), (1_i64.to_le_bytes().to_vec(), 1_i64.to_le_bytes().to_vec()));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(ask(b"two").expect_err("another body").code(), Code::InvalidArgument);
    assert_eq!(requests::outcome(db.blocking(), id, "")?, Outcome::Committed(1_i64.to_le_bytes().to_vec()));
    let never = requests::new_id(db.blocking())?;
    assert_eq!(block_on(db.outcome(never, ""))?, Outcome::Never);
    assert_eq!(block_on(db.outcome(id, ""))?, Outcome::Committed(1_i64.to_le_bytes().to_vec()));
    let refused = block_on(db.once(&Request::new(never, b"late"), |_| Ok(Vec::new())));
    assert_eq!(refused.expect_err("settled").code(), Code::RequestCancelled);

    // What an acknowledged try did is there after a power cut, and so is its answer.
    let db = open(&disk.crash(&duramen_disk::memory::CrashChoice::None)).into_async();
    let again = block_on(db.once(&Request::new(id, b"one"), |_| Ok(Vec::new())))?;
    assert!(again.is_repeated && again.answer == 1_i64.to_le_bytes());
    Ok(())
}

/// A closure can see that all others wait for it.
#[test]
fn a_closure_that_keeps_conflicting_runs_alone_and_can_give_up() -> Result<()> {
    let db = Db::in_memory()?;
    let counter = db.kv("c");
    let mut runs = 0;
    let given_up = db.transact(|tx| {
        runs += 1;
        let seen = tx.kv("c").get::<u64>("n")?;
        if tx.runs_alone() {
            return Err(Error::invalid("too long to stop all others"));
        }
        let other = db.clone();
        std::thread::spawn(move || other.kv("c").increment("n", 1)).join().expect("it ends")?;
        tx.kv("c").put("n", &(seen.unwrap_or(0) + 1))
    });
    assert_eq!(given_up.expect_err("it gave up").message(), "too long to stop all others");
    assert_eq!((runs, counter.get::<u64>("n")?), (9, Some(8)));
    Ok(())
}

/// Level `Memory` included: nothing waits for a flush that no thread would make.
#[test]
fn a_transaction_that_rested_is_committed_at_each_level() {
    let db = open(&MemDisk::new(7)).into_async();
    let begun = |key: &'static str| {
        let mut open = db.blocking().begin().unwrap();
        open.with(|tx| tx.kv("counters").increment(key, 1)).unwrap();
        open
    };
    for (count, level) in (1..).zip(Durability::ALL) {
        let receipt = block_on(db.at(level).commit(begun("a"))).unwrap();
        assert!(receipt.durability() >= level, "{receipt:?}");
        block_on(db.wait(&receipt, Durability::Disk)).unwrap();
        assert_eq!(db.blocking().kv("counters").get::<i64>("a").unwrap(), Some(count));
    }
    // What it has read has changed.
    let (first, second) = (begun("b"), begun("b"));
    block_on(db.commit(first)).unwrap();
    assert_eq!(block_on(db.commit(second)).unwrap_err().code(), Code::WriteConflict);
    // Dropped before its turn, it is rolled back.
    drop(db.commit(begun("c")));
    assert_eq!(db.blocking().kv("counters").get::<i64>("c").unwrap(), None);
    assert_eq!(db.blocking().held_snapshots().len(), 0);
}
