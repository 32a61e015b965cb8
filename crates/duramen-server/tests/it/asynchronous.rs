//! Clients in asynchronous programs: the handle that awaits, and the blocking one on an executor's thread.

use std::future::Future;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use duramen::Code;
use duramen::prelude::*;
use duramen_client::{AsyncRemote, Remote};
use duramen_proto::v1;
use tokio::task::JoinSet;

use crate::Served;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "accounts", view(AllCents, key = id, value = cents, reduce = Sum))]
struct Account {
    #[key]
    id: u64,
    cents: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Note {
    #[key(assigned)]
    id: u64,
    text: String,
}

/// A runtime with nothing but tasks: the client brings what else it needs.
fn bare(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future);
}

fn address(served: &Served) -> String {
    served.path().to_str().expect("text").to_owned()
}

#[test]
fn every_call_of_the_handle_that_awaits_does_what_the_blocking_one_does() {
    let served = Served::new();
    bare(async {
        let db = AsyncRemote::connect(&address(&served)).await.expect("a connection");
        db.put(Account { id: 1, cents: 100 }).await.expect("stored");
        db.insert(Account { id: 2, cents: 50 }).await.expect("stored");
        let twice = db.insert(Account { id: 2, cents: 51 }).await.expect_err("it is there");
        assert_eq!(twice.code(), Code::AlreadyExists);
        db.update(Account { id: 2, cents: 60 }).await.expect("it is there");
        let lacks = db.update(Account { id: 9, cents: 0 }).await.expect_err("it is not there");
        assert_eq!(lacks.code(), Code::NoSuchKey);

        let more = |account: &mut Account| {
            account.cents += 5;
            Ok(())
        };
        assert_eq!(db.modify(1, more).await.expect("changed"), Some(Account { id: 1, cents: 105 }));
        assert_eq!(db.modify(9, more).await.expect("none"), None);
        db.upsert(Account { id: 1, cents: 0 }, more).await.expect("changed");
        db.upsert(Account { id: 3, cents: 7 }, more).await.expect("stored");
        let pushed = db.push(Note { id: 0, text: "paid".into() }).await.expect("stored");
        assert_eq!(db.get(pushed.id).await.expect("read"), Some(pushed.clone()));
        assert!(db.delete::<Note>(pushed.id).await.expect("deleted"));
        assert!(!db.delete::<Note>(pushed.id).await.expect("nothing is there"));

        let sum = db.read(|at| at.view::<AllCents>().reduce()).await.expect("a sum");
        assert_eq!(sum, 110 + 60 + 7);
        let (left, receipt) = db
            .transact_with_receipt(|tx| {
                tx.delete::<Account>(3)?;
                tx.collection::<Account>().count()
            })
            .await
            .expect("committed");
        assert_eq!((left, receipt.repeated), (2, false));
        let key = |db: &Remote| db.kv("greetings").put("en", "hello");
        db.run(key).await.expect("stored");
        assert_eq!(
            db.run(|db| db.kv("greetings").get::<String>("en")).await.expect("read"),
            Some("hello".into())
        );
    });
}

#[test]
fn transactions_of_many_tasks_all_count_once() {
    let served = Served::new();
    bare(async {
        let remote = Remote::connect(&address(&served)).expect("a connection");
        // Fewer threads than tasks: the others wait as futures.
        let db = AsyncRemote::with_threads(remote, 8);
        let mut tasks = JoinSet::new();
        for task in 0..200_u64 {
            let db = db.clone();
            tasks.spawn(async move {
                db.transact(move |tx| {
                    let to = task % 50;
                    let found = tx.get::<Account>(to)?.map_or(0, |account: Account| account.cents);
                    tx.put(&Account { id: to, cents: found + 1 })
                })
                .await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic").expect("committed");
        }
        assert_eq!(db.read(|at| at.view::<AllCents>().reduce()).await.expect("a sum"), 200);
    });
}

#[test]
fn a_future_that_is_never_polled_does_nothing_and_one_that_is_dropped_runs_to_its_end() {
    let served = Served::new();
    bare(async {
        let db = AsyncRemote::connect(&address(&served)).await.expect("a connection");
        drop(db.put(Account { id: 1, cents: 1 }));
        assert_eq!(db.get::<Account>(1).await.expect("read"), None);

        let (begun, has_begun) = std::sync::mpsc::channel();
        let put = db.transact(move |tx| {
            let _ = begun.send(());
            tx.put(&Account { id: 2, cents: 2 })
        });
        let mut put = Box::pin(put);
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(put.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        has_begun.recv().expect("it has begun");
        drop(put);
        // Dropping the last handle waits for it.
        drop(db);
    });
    assert_eq!(served.db.get::<Account>(2).expect("read").map(|account| account.cents), Some(2));
}

#[test]
fn a_connect_that_is_given_up_keeps_no_thread_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    bare(async {
        let mut connect = Box::pin(AsyncRemote::connect(&address));
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(connect.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        let (mut other_end, _) = silent.accept().expect("it connects");
        drop(connect);
        // Its thread still waits for an answer: the connection is open.
        other_end.set_nonblocking(true).expect("set");
        let ended = loop {
            match other_end.read(&mut [0; 256]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != ErrorKind::WouldBlock,
            }
        };
        assert!(!ended);
    });
}

#[test]
fn a_clock_that_was_told_long_ago_refuses_no_write() {
    let served = Served::new();
    let client = served.another_client();
    let db = Remote::from(client.clone());
    for (id, is_ahead) in [(1, false), (2, true), (3, false)] {
        let off = || client.shift_clock(Duration::from_secs(1_200), is_ahead);
        off();
        db.put(&Account { id, cents: 1 }).expect("stored");
        off();
        db.transact(|tx| tx.put(&Account { id: id + 10, cents: 1 })).expect("committed");
    }
    assert_eq!(db.collection::<Account>().count().expect("counted"), 6);
}

#[test]
fn more_transactions_than_a_connection_has_streams_wait_for_each_other() {
    let served = Served::new();
    let db = Remote::connect(&address(&served)).expect("a connection");
    let (begun, open) = (Barrier::new(140), Barrier::new(96));
    let (counted, held, most) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for task in 0..140_u64 {
            let (db, begun, open) = (&db, &begun, &open);
            let (counted, held, most) = (&counted, &held, &most);
            scope.spawn(move || {
                begun.wait();
                let snapshot = db.snapshot().expect("a snapshot");
                most.fetch_max(held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                if counted.fetch_add(1, Ordering::Relaxed) < 96 {
                    // All that may be open are: other calls find room.
                    open.wait();
                    db.put(&Account { id: task, cents: 1 }).expect("stored");
                }
                held.fetch_sub(1, Ordering::Relaxed);
                drop(snapshot);
            });
        }
    });
    assert_eq!(most.into_inner(), 96);
    assert_eq!(db.collection::<Account>().count().expect("counted"), 96);
}

#[test]
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a look between fork and exec")]
fn a_forked_child_is_refused() {
    use std::os::unix::process::CommandExt;
    let served = Served::new();
    let db = Remote::connect(&address(&served)).expect("a connection");
    let inherited = db.clone();
    let mut command = std::process::Command::new("true");
    let look = move || match inherited.client().outcome(v1::OutcomeRequest::default()) {
        Err(error) if error.code() == Code::ForkedHandle => Ok(()),
        _ => Err(ErrorKind::InvalidData.into()),
    };
    // SAFETY: the call compares a number and builds an error; the child's memory allocator is glibc's, which
    // may be used after a fork.
    unsafe { command.pre_exec(look) };
    assert!(command.status().expect("it runs").success());
    db.put(&Account { id: 1, cents: 1 }).expect("the parent goes on");
}

#[test]
fn a_closure_that_panics_does_so_where_it_is_awaited() {
    let served = Served::new();
    let db = Remote::connect(&address(&served)).expect("a connection").into_async();
    let panicking = AssertUnwindSafe(|| {
        bare(async {
            let _ = db
                .transact(|tx| {
                    tx.put(&Account { id: 1, cents: 1 })?;
                    assert!(tx.get::<Account>(1)?.is_none(), "of the closure");
                    Ok(())
                })
                .await;
        });
    });
    let panic = std::panic::catch_unwind(panicking).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the closure"));
    bare(async {
        assert_eq!(db.get::<Account>(1).await.expect("read"), None);
        db.put(Account { id: 1, cents: 2 }).await.expect("the threads go on");
    });
}

#[test]
fn the_blocking_handle_works_on_an_executors_thread_and_is_dropped_there() {
    let served = Served::new();
    let calls = Arc::new(AtomicU64::new(0));
    for mut runtime in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = runtime.build().expect("a runtime");
        let (address, calls) = (address(&served), Arc::clone(&calls));
        let task = async move {
            let db = Remote::connect(&address).expect("a connection");
            // More calls in one task than its runtime lets it make before it should yield.
            for id in 0..300 {
                db.put(&Account { id, cents: 1 }).expect("stored");
                calls.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(db.collection::<Account>().iter().expect("begun").count(), 300);
            db.transact(|tx| tx.kv("calls").put("last", &300)).expect("committed");
        };
        runtime.block_on(async { tokio::spawn(task).await }).expect("no panic");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 600);
}
