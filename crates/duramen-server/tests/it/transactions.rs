//! Transactions of several messages: one state, one commit, and nothing left of a client that goes away.

use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::{Code, ErrorKind};
use duramen_client::{FailedStep, Remote, TransactionStream};
use duramen_proto::v1;
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_server::Limits;

use super::{Served, all_orders, count, order, put};

fn remote(served: &Served) -> Remote {
    Remote::connect(served.path().to_str().expect("text")).expect("a connection")
}

fn begin() -> Asked {
    Asked::Begin(v1::Begin::default())
}

fn step(operations: Vec<v1::Operation>, reads: Vec<v1::read::Kind>) -> Asked {
    let reads = reads.into_iter().map(|kind| v1::Read { kind: Some(kind) }).collect();
    Asked::Step(v1::Step { operations, reads, ..v1::Step::default() })
}

fn commit(operations: Vec<v1::Operation>) -> Asked {
    Asked::Commit(v1::Commit { operations, ..v1::Commit::default() })
}

fn counted(told: Told) -> u64 {
    let Told::StepDone(v1::StepDone { reads, .. }) = told else { panic!("{told:?}") };
    match reads.into_iter().next().and_then(|read| read.kind) {
        Some(v1::read_result::Kind::Number(number)) => number,
        other => panic!("{other:?}"),
    }
}

fn count_of() -> v1::read::Kind {
    v1::read::Kind::Count(all_orders())
}

fn begun(stream: &mut TransactionStream) {
    let told = stream.ask(begin()).expect("begun");
    assert!(matches!(told, Told::Begun(v1::Begun { at: Some(_) })), "{told:?}");
}

/// Waits until something holds, at most so long.
fn within(limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "not within {limit:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_transaction_reads_one_state_and_its_own_writes() {
    let served = Served::new();
    let mut stream = served.client.transactions().expect("a stream");
    begun(&mut stream);
    served.another_client().batch(super::batches::batch(vec![put("Rome", 1, 1)])).expect("committed");
    assert_eq!(counted(stream.ask(step(vec![], vec![count_of()])).expect("read")), 3);
    assert_eq!(counted(stream.ask(step(vec![put("Bonn", 1, 1)], vec![count_of()])).expect("read")), 4);
    assert_eq!(count(&served.client), 4, "what is not committed is not there");
    // What it has counted has changed.
    let failed = stream.ask(commit(vec![])).expect_err("a conflict");
    assert_eq!((failed.error.code(), failed.goes_on), (Code::WriteConflict, false));
    assert_eq!(count(&served.client), 4);
    // The stream is good for another one.
    begun(&mut stream);
    assert_eq!(counted(stream.ask(step(vec![put("Bonn", 1, 1)], vec![count_of()])).expect("read")), 5);
    let told = stream.ask(commit(vec![put("Bonn", 2, 2)])).expect("committed");
    let Told::Committed(v1::Committed { receipt: Some(receipt), results }) = told else { panic!("{told:?}") };
    assert_eq!((receipt.reached(), results.len()), (v1::Level::Disk, 1));
    assert_eq!(count(&served.client), 6);
}

#[test]
fn errors_of_operations_leave_a_transaction_open() {
    let served = Served::new();
    let mut stream = served.client.transactions().expect("a stream");
    let failed = |told: Result<Told, FailedStep>| {
        let failed = told.expect_err("it failed");
        (failed.error.code(), failed.operation, failed.goes_on)
    };
    assert_eq!(failed(stream.ask(step(vec![], vec![]))), (Code::InvalidArgument, None, false));
    begun(&mut stream);
    assert_eq!(failed(stream.ask(begin())), (Code::InvalidArgument, None, true));
    let insert = v1::operation::Kind::Insert(v1::PutDocument {
        collection: "orders".to_owned(),
        document: Some(order("Oslo", 1, 7)),
        want_before: false,
    });
    let operations = vec![put("Bonn", 1, 1), v1::Operation { kind: Some(insert) }];
    assert_eq!(failed(stream.ask(step(operations, vec![]))), (Code::AlreadyExists, Some(2), true));
    let of_no_kind = vec![put("Bonn", 2, 1), v1::Operation { kind: None }];
    assert_eq!(failed(stream.ask(commit(of_no_kind))), (Code::InvalidArgument, Some(2), true));
    // What was written before the error stays written.
    assert_eq!(counted(stream.ask(step(vec![], vec![count_of()])).expect("read")), 5);
    // An error of a read, too, leaves it open: all operations are done.
    let of_none =
        v1::read::Kind::Count(v1::RangeOf { collection: "none".to_owned(), ..v1::RangeOf::default() });
    let read_failed = failed(stream.ask(step(vec![put("Bonn", 3, 1)], vec![of_none])));
    assert_eq!(read_failed, (Code::NoSuchTree, None, true));
    assert_eq!(counted(stream.ask(step(vec![], vec![count_of()])).expect("read")), 6);
    assert!(matches!(stream.ask(Asked::Rollback(v1::Rollback {})), Ok(Told::RolledBack(_))));
    assert_eq!(count(&served.client), 3);
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let served = Served::new();
    let held = || served.db.held_snapshots().len();
    let before = held();
    for _ in 0..3 {
        let client = served.another_client();
        let mut stream = client.transactions().expect("a stream");
        begun(&mut stream);
        stream.ask(step(vec![put("Bonn", 1, 1)], vec![count_of()])).expect("read");
        served.db.documents("orders").put(doc! { "city": "Rome", "id": 1, "cents": 1 }).expect("stored");
        assert!(held() > before, "its state is held");
        drop(stream);
        within(Duration::from_secs(4), || held() <= before);
    }
    assert_eq!(count(&served.client), 4);
}

#[test]
fn a_transaction_ends_after_its_time() {
    let served = Served::new();
    let mut stream = served.client.transactions().expect("a stream");
    let short = v1::Begin { lasts_ms: 300, ..v1::Begin::default() };
    stream.ask(Asked::Begin(short)).expect("begun");
    stream.ask(step(vec![put("Bonn", 1, 1)], vec![])).expect("written");
    std::thread::park_timeout(Duration::from_millis(500));
    let failed = stream.ask(commit(vec![])).expect_err("too late");
    // The stream may have been ended, or only the transaction.
    assert_eq!((failed.error.code(), failed.goes_on), (Code::TransactionExpired, false));
    assert_eq!(count(&served.client), 3);
}

/// A server without room for a commit refuses it before it is done, and not when it is.
#[test]
fn a_commit_that_is_refused_for_want_of_room_has_changed_nothing() {
    let mut limits = Limits::default();
    limits.memory_bytes = 2 << 20;
    let served = Served::with(|server| server.limits(limits));
    // Some need more room than others have left.
    let one = |thread: i64| -> [u64; 2] {
        let mut told = [0, 0];
        for id in (thread * 100)..(thread * 100 + 40) {
            // A connection of its own: one that holds too much is closed, and nothing is said.
            let client = served.another_client();
            let Ok(mut stream) = client.transactions() else { continue };
            if stream.ask(begin()).is_err() {
                continue;
            }
            let text = "x".repeat(100 << 10);
            let document = crate::reads::json(&format!(r#"{{"city":"Bonn","id":{id},"x":"{text}"}}"#));
            let large = v1::PutDocument { collection: "orders".to_owned(), document, want_before: false };
            let large = v1::Operation { kind: Some(v1::operation::Kind::Put(large)) };
            let is_told = match stream.ask(commit(vec![large])) {
                Ok(_) => true,
                Err(failed) if failed.error.code() == Code::Overloaded => false,
                Err(_) => continue,
            };
            told[usize::from(is_told)] += 1;
            let is_there = served.db.documents("orders").get(("Bonn", id)).expect("read").is_some();
            assert_eq!(is_there, is_told, "{id}");
        }
        told
    };
    let told = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..12).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("checked")).collect::<Vec<_>>()
    });
    let sum = |is_told: usize| told.iter().map(|told| told[is_told]).sum::<u64>();
    assert!(sum(0) > 0 && sum(1) > 0, "{} refused, {} committed", sum(0), sum(1));
}

#[test]
fn a_client_that_says_nothing_loses_its_transaction() {
    let mut limits = Limits::default();
    // The library sends a ping every two seconds.
    limits.silence = Duration::from_millis(200);
    let served = Served::with(|server| server.limits(limits));
    let mut stream = served.client.transactions().expect("a stream");
    begun(&mut stream);
    std::thread::park_timeout(Duration::from_millis(600));
    let failed = stream.ask(commit(vec![put("Bonn", 1, 1)])).expect_err("too late");
    // The stream may have been ended, or only the transaction.
    assert_eq!((failed.error.code(), failed.goes_on), (Code::TransactionExpired, false));
    assert_eq!(count(&served.client), 3);
}

#[test]
fn a_server_that_goes_down_ends_open_transactions() {
    let mut served = Served::new();
    let client = served.another_client();
    let mut stream = client.transactions().expect("a stream");
    begun(&mut stream);
    let begun = Instant::now();
    drop(served.server.take());
    assert!(begun.elapsed() < Duration::from_millis(900), "it did not wait for the transaction");
    let failed = stream.ask(commit(vec![])).expect_err("it is down");
    assert!([Code::Draining, Code::Unreachable].contains(&failed.error.code()), "{:?}", failed.error);
}

/// A write that the server did not make must not be missing from a commit.
#[test]
fn a_closure_cannot_commit_behind_a_failed_write() {
    let served = Served::new();
    let remote = remote(&served);
    let done = remote.transact(|tx| {
        tx.insert(&Order { city: "Oslo".to_owned(), id: 1, cents: 6 })?;
        tx.kv("stock").put("apples", &9)?;
        // It handles the error of the insert, which comes with the next read.
        let read = tx.kv("stock").get::<i64>("apples");
        assert_eq!(read.expect_err("of the insert").code(), Code::AlreadyExists);
        Ok(())
    });
    assert_eq!(done.expect_err("the put was not made").code(), Code::AlreadyExists);
    assert_eq!(served.db.kv("stock").get::<i64>("apples").expect("read"), None);
    // Many small writes go in several messages.
    let many = remote.transact(|tx| (0..30_000).try_for_each(|key| tx.kv("many").put(key, &key)));
    many.expect("committed");
    assert_eq!(served.db.kv("many").get::<i64>(29_999).expect("read"), Some(29_999));
}

#[test]
fn open_transactions_are_limited() {
    let mut limits = Limits::default();
    limits.transactions = 2;
    let served = Served::with(|server| server.limits(limits));
    let mut streams: Vec<_> = (0..3).map(|_| served.client.transactions().expect("a stream")).collect();
    begun(&mut streams[0]);
    begun(&mut streams[1]);
    let refused = streams[2].ask(begin()).expect_err("no room");
    assert_eq!((refused.error.code(), refused.is_stream_over), (Code::Overloaded, false));
    streams[0].ask(commit(vec![])).expect("committed");
    begun(&mut streams[2]);
}

/// Eight clients move cents between two orders; none is lost, and none made.
#[test]
fn closures_of_clients_run_one_after_the_other() {
    let served = Served::new();
    let moves = 20;
    std::thread::scope(|scope| {
        for client in 0..8_i64 {
            let remote = remote(&served);
            scope.spawn(move || {
                for cents in 1..=moves {
                    let moved = remote.transact(|tx| {
                        let orders = tx.documents("orders");
                        let cents_of = |id: i64| {
                            let order = orders.get(("Oslo", id))?.expect("it is there");
                            order.get("cents").expect("a field").to::<i64>()
                        };
                        let (from, to) = (cents_of(1)?, cents_of(2)?);
                        orders.put(&doc! { "city": "Oslo", "id": 1, "cents": from - cents })?;
                        orders.put(&doc! { "city": "Oslo", "id": 2, "cents": to + cents })?;
                        tx.kv("moves").increment(client, cents)
                    });
                    assert_eq!(moved.expect("moved"), cents * (cents + 1) / 2, "each has its effect once");
                }
            });
        }
    });
    let moved = 8 * moves * (moves + 1) / 2;
    let cents = |id: i64| {
        let order = served.db.documents("orders").get(("Oslo", id)).expect("read").expect("there");
        order.get("cents").expect("a field").to::<i64>().expect("a number")
    };
    assert_eq!((cents(1), cents(2)), (1250 - moved, 750 + moved));
}

/// A type and its functions, as embedded.
#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Order {
    #[key]
    city: String,
    #[key]
    id: i64,
    cents: i64,
}

#[test]
fn documents_have_types_and_closures_have_errors() {
    let served = Served::new();
    let remote = remote(&served);
    let rome = Order { city: "Rome".to_owned(), id: 1, cents: 5 };
    let found = remote.transact(|tx| {
        tx.put(&rome)?;
        tx.delete::<Order>(("Bergen", 1))?;
        tx.get::<Order>(("Rome", 1))
    });
    assert_eq!(found.expect("committed"), Some(rome));
    assert_eq!(served.db.documents("orders").count(Span::all()).expect("counted"), 3);
    // An error of the closure rolls back; one of a write comes with the commit.
    let refused = remote.transact(|tx| {
        tx.delete::<Order>(("Rome", 1))?;
        Err::<(), _>(duramen::Error::invalid("no"))
    });
    assert_eq!(refused.expect_err("refused").message(), "no");
    let twice = remote.transact(|tx| tx.insert(&Order { city: "Rome".to_owned(), id: 1, cents: 6 }));
    assert_eq!(twice.expect_err("it is there").code(), Code::AlreadyExists);
    let read = remote.transact(|tx| Ok(tx.get::<Order>(("Rome", 1))?.map(|order| order.cents)));
    assert_eq!(read.expect("read"), Some(5));
    assert_eq!(
        remote.transact(|tx| tx.documents("none").get(1).map(drop)).expect_err("none").kind(),
        ErrorKind::NotFound
    );
}

/// A commit under an id is there once, and its outcome is told.
#[test]
fn commits_with_request_ids_are_there_once() {
    let served = Served::new();
    let id = served.client.new_request_id().expect("an id");
    let write = || Some(v1::Write { request_id: id.clone(), ..v1::Write::default() });
    let mut repeated = Vec::new();
    let insert = || {
        let document = Some(order("Bonn", 1, 1));
        let insert = v1::PutDocument { collection: "orders".to_owned(), document, want_before: false };
        v1::Operation { kind: Some(v1::operation::Kind::Insert(insert)) }
    };
    for _ in 0..2 {
        let mut stream = served.client.transactions().expect("a stream");
        begun(&mut stream);
        let operations = vec![insert()];
        match stream
            .ask(Asked::Commit(v1::Commit { write: write(), operations, ..v1::Commit::default() }))
            .expect("committed")
        {
            Told::Committed(v1::Committed { receipt: Some(receipt), .. }) => repeated.push(receipt.repeated),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((repeated, count(&served.client)), (vec![false, true], 4));
    // Another transaction under the same id is none of its tries.
    let mut stream = served.client.transactions().expect("a stream");
    begun(&mut stream);
    let other = Asked::Commit(v1::Commit {
        write: write(),
        operations: vec![put("Bonn", 9, 1)],
        ..v1::Commit::default()
    });
    assert_eq!(stream.ask(other).expect_err("another one").error.code(), Code::InvalidArgument);
    assert_eq!(count(&served.client), 4);
    let asked = v1::OutcomeRequest { request_id: id };
    assert!(served.client.outcome(asked).expect("known").committed);
    // One that is asked for before it ran never runs.
    let id = served.client.new_request_id().expect("an id");
    assert!(
        !served.client.outcome(v1::OutcomeRequest { request_id: id.clone() }).expect("settled").committed
    );
    let mut stream = served.client.transactions().expect("a stream");
    begun(&mut stream);
    let write = Some(v1::Write { request_id: id, ..v1::Write::default() });
    let late = stream.ask(Asked::Commit(v1::Commit {
        write,
        operations: vec![put("Bonn", 7, 1)],
        ..v1::Commit::default()
    }));
    assert_eq!(late.expect_err("cancelled").error.code(), Code::RequestCancelled);
    assert_eq!(count(&served.client), 4);
}
