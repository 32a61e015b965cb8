//! The change feed by a server: watches, consumers whose work happens once, readers that stop.

use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::{AnyChanged, Code, Origin};
use duramen_client::Remote;
use duramen_proto::v1;
use duramen_server::Limits;

use crate::Served;

fn remote(served: &Served) -> Remote {
    Remote::connect(served.path().to_str().expect("text")).expect("a connection")
}

fn watch(start: v1::WatchStart, ends: bool) -> v1::WatchRequest {
    v1::WatchRequest { start: start.into(), ends, ..v1::WatchRequest::default() }
}

fn put(served: &Served, id: i64) {
    served.db.documents("orders").put(doc! { "city": "Rome", "id": id, "cents": id }).expect("stored");
}

/// The ids of orders that a watch tells until it ends, and its last position.
fn told(served: &Served, request: v1::WatchRequest) -> (Vec<String>, Option<v1::Token>) {
    let mut watched = served.client.watch(request).expect("begun");
    let (mut told, mut position) = (Vec::new(), None);
    while let Some(reply) = watched.next().expect("read") {
        for change in &reply.changes {
            let change = duramen_proto::change::of(change).expect("a change");
            let document = change.document().expect("a document");
            told.push(format!(
                "{:?} {:?}",
                change.origin,
                document.and_then(|found| found.get("id").cloned())
            ));
        }
        position = reply.position.or(position);
    }
    (told, position)
}

#[test]
fn a_watch_tells_every_change_once_and_goes_on_from_its_position() {
    let served = Served::new();
    served.db.kv("stock").put("tea", &7).expect("stored");
    let (all, position) = told(&served, watch(v1::WatchStart::Beginning, true));
    // A collection, three orders; a namespace and a value.
    assert_eq!(all.len(), 6, "{all:?}");
    let after = |position: Option<v1::Token>| v1::WatchRequest {
        after: position,
        collections: vec!["orders".to_owned()],
        ..watch(v1::WatchStart::After, true)
    };
    assert_eq!(told(&served, after(position.clone())).0, Vec::<String>::new());
    served.db.kv("stock").put("tea", &8).expect("stored");
    put(&served, 5);
    let (more, later) = told(&served, after(position.clone()));
    assert_eq!(more, [r#"Collection("orders") Some(Int(5))"#]);
    assert!(later.as_ref().map(|at| at.seq) > position.as_ref().map(|at| at.seq));
    // One of the future, one of another database.
    let token = later.expect("a position");
    let code =
        |token: v1::Token| served.client.watch(after(Some(token))).map(drop).expect_err("refused").code();
    assert_eq!(code(v1::Token { seq: 1 << 40, ..token.clone() }), Code::LostWrites);
    assert_eq!(code(v1::Token { epoch: vec![0; 8].into(), ..token }), Code::FeedGap);
}

#[test]
fn a_watch_waits_for_commits() {
    let served = Served::new();
    let mut watched = served.client.watch(watch(v1::WatchStart::Now, false)).expect("begun");
    assert!(watched.next_within(Duration::from_millis(50)).expect("nothing").is_none());
    let large = "x".repeat(100_000);
    for id in 0..3 {
        let order = doc! { "city": large.get(..900).expect("text"), "id": id, "note": large.as_str() };
        served.db.documents("orders").put(order).expect("stored");
    }
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let reply = watched.next().expect("read").expect("it goes on");
        ids.extend(reply.changes.iter().map(|change| change.seq));
    }
    assert!(ids.is_sorted(), "{ids:?}");
}

/// Also if the last change of a commit fills a message.
#[test]
fn a_watch_names_the_position_of_a_commit_before_the_next_one() {
    let served = Served::new();
    let large = "x".repeat(2 << 20);
    for id in 0..3 {
        let order = doc! { "city": "Bonn", "id": id, "note": large.as_str() };
        served.db.documents("orders").put(order).expect("stored");
    }
    let mut watched = served.client.watch(watch(v1::WatchStart::Beginning, true)).expect("begun");
    let (mut at, mut whole) = (0, 0);
    while let Some(reply) = watched.next().expect("read") {
        for change in &reply.changes {
            assert!(change.seq == at || at <= whole, "{} comes, {at} was not said to be whole", change.seq);
            at = change.seq;
        }
        whole = reply.position.map_or(whole, |position| position.seq);
    }
    assert!(at >= 3 && whole >= at, "{at} {whole}");
}

/// A reader that stops is ended after its limit, and goes on from its last position.
#[test]
fn a_reader_that_stops_is_ended_and_misses_nothing() {
    let mut limits = Limits::default();
    limits.unread_replies = Duration::from_millis(300);
    limits.watches = 1;
    let served = Served::with(|server| server.limits(limits));
    let mut watched = served.client.watch(watch(v1::WatchStart::Beginning, false)).expect("begun");
    // More than the windows of the connection take.
    let large = "x".repeat(500_000);
    for id in 0..40 {
        served
            .db
            .documents("orders")
            .put(doc! { "city": "Bonn", "id": id, "note": large.as_str() })
            .expect("stored");
    }
    // Until its place is free, and its connection perhaps gone.
    let (begun, other) = (Instant::now(), served.another_client());
    while other.watch(watch(v1::WatchStart::Now, true)).is_err() {}
    let (mut seqs, mut position) = (Vec::new(), None);
    let ended = loop {
        match watched.next() {
            Ok(Some(reply)) => {
                seqs.extend(reply.changes.iter().map(|change| change.seq));
                position = reply.position.or(position);
            }
            Ok(None) => panic!("a watch does not end without a reason"),
            Err(error) => break error,
        }
    };
    assert!([Code::SnapshotExpired, Code::Unreachable].contains(&ended.code()), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    seqs.retain(|seq| position.as_ref().is_some_and(|at| *seq <= at.seq));
    let client = served.another_client();
    let rest = v1::WatchRequest { after: position, ..watch(v1::WatchStart::After, true) };
    let mut rest = client.watch(rest).expect("begun");
    while let Some(reply) = rest.next().expect("read") {
        seqs.extend(reply.changes.iter().map(|change| change.seq));
    }
    assert!(seqs.is_sorted());
    assert!(seqs.len() >= 40, "{}", seqs.len());
}

#[test]
fn a_consumer_handles_each_change_once() {
    let served = Served::new();
    let remote = remote(&served);
    let within = Duration::from_millis(200);
    let mut first = remote.consumer("mailer", true).expect("registered").batch(2);
    let handle = |consumer: &mut duramen_client::RemoteConsumer<'_>| {
        consumer.step(within, |tx, changes| {
            for change in changes {
                if let (Origin::Collection(_), AnyChanged::Put { .. }) = (&change.origin, &change.what) {
                    tx.kv("mails").increment(change.seq.0, 1)?;
                }
            }
            Ok(())
        })
    };
    let mut count = 0;
    assert!(handle(&mut first).expect("handled") > 0);
    // A second one of the same name goes on behind it; then the first is behind.
    let mut second = remote.consumer("mailer", false).expect("it is there");
    assert_eq!(second.position(), first.position());
    while handle(&mut second).expect("handled") > 0 {
        count += 1;
    }
    put(&served, 9);
    let overtaken = (0..3).find_map(|_| handle(&mut first).err());
    assert_eq!(overtaken.expect("the other has handled these").code(), Code::WriteConflict);
    while handle(&mut first).expect("it goes on") > 0 {
        count += 1;
    }
    assert!(count > 0);
    // An error of the closure: the same changes come again.
    put(&served, 10);
    let refused = first.step(within, |_, _| Err(Error::invalid("no")));
    assert_eq!(refused.expect_err("refused").message(), "no");
    while handle(&mut first).expect("handled") > 0 {}
    let mails = served.db.snapshot().expect("a snapshot");
    let counts: Vec<i64> = mails
        .kv("mails")
        .scan::<u64, i64>(Span::all())
        .expect("begun")
        .map(|found| found.expect("read").1)
        .collect();
    assert_eq!(counts, [1; 5], "three orders, and two more");
    let state = served.client.consumers().expect("listed");
    assert_eq!(state.len(), 1);
    assert!(served.client.unregister_consumer("mailer").expect("ended"));
    let gone = first.step(within, |_, _| Ok(()));
    assert!(gone.is_ok_and(|count| count == 0) || served.client.consumers().expect("listed").is_empty());
}
