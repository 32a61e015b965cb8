//! Views and collections are changed from outside, and the server says how it fares.

use std::time::Duration;

use duramen::Code;
use duramen::prelude::*;
use duramen_proto::v1;

use super::{Served, count, put};

fn by_cents() -> v1::ViewDefinition {
    let sum = v1::Reduce { reduce: "sum".to_owned(), ..v1::Reduce::default() };
    v1::ViewDefinition {
        name: "by_cents".to_owned(),
        key: vec![v1::ViewKeyField {
            name: "cents".to_owned(),
            descending: true,
            ..v1::ViewKeyField::default()
        }],
        values: vec!["id".to_owned()],
        reductions: vec![sum],
        ..v1::ViewDefinition::default()
    }
}

fn add(served: &Served, view: v1::ViewDefinition, replace: bool) -> Result<bool> {
    let request = v1::AddViewRequest {
        collection: "orders".to_owned(),
        view: Some(view),
        replace,
        ..v1::AddViewRequest::default()
    };
    served.client.add_view(request).map(|reply| reply.is_new)
}

/// Calls until the views are complete.
fn build(served: &Served) -> Result<()> {
    while !served.client.build_views("orders", "")?.is_complete {}
    Ok(())
}

#[test]
fn a_view_is_added_built_replaced_and_dropped() {
    let served = Served::new();
    assert!(add(&served, by_cents(), false).expect("added"));
    build(&served).expect("built");
    assert!(!add(&served, by_cents(), false).expect("there"));
    let views = served.client.views(vec!["orders".to_owned()]).expect("views");
    let [view] = &views[..] else { panic!("one view: {views:?}") };
    assert_eq!((view.phase(), view.rows), (v1::ViewPhase::Ready, 3));
    let (state, _) = duramen_proto::view::state(view).expect("a state");
    assert_eq!(vec![state], served.db.documents("orders").views().expect("views"));

    let other = v1::ViewDefinition { reductions: Vec::new(), values: Vec::new(), ..by_cents() };
    assert_eq!(add(&served, other.clone(), false).expect_err("another").code(), Code::AlreadyExists);
    assert!(add(&served, other, true).expect("replaced"));
    build(&served).expect("built");
    let rebuild = v1::RebuildViewRequest {
        collection: "orders".to_owned(),
        view: "by_cents".to_owned(),
        ..v1::RebuildViewRequest::default()
    };
    served.client.rebuild_view(rebuild).expect("begun");
    build(&served).expect("built");
    let drop = || v1::DropViewRequest {
        collection: "orders".to_owned(),
        view: "by_cents".to_owned(),
        ..v1::DropViewRequest::default()
    };
    assert!(served.client.drop_view(drop()).expect("dropped").was_there);
    assert!(!served.client.drop_view(drop()).expect("gone").was_there);
    assert_eq!(served.client.views(Vec::new()).expect("views"), []);
}

#[test]
fn a_view_that_cannot_be_is_refused() {
    let served = Served::new();
    let refused = |view: v1::ViewDefinition, code: Code| {
        assert_eq!(add(&served, view.clone(), false).expect_err("refused").code(), code, "{view:?}");
    };
    refused(v1::ViewDefinition::default(), Code::InvalidArgument);
    let reduce = |reduce: &str, value_index, count| v1::ViewDefinition {
        reductions: vec![v1::Reduce { reduce: reduce.to_owned(), value_index, count }],
        ..by_cents()
    };
    refused(reduce("code", 0, 0), Code::InvalidArgument);
    refused(reduce("sum", 9, 0), Code::InvalidArgument);
    refused(reduce("top", 0, u32::MAX), Code::InvalidArgument);
    refused(v1::ViewDefinition { values: vec!["id".to_owned(); 65], ..by_cents() }, Code::TooLarge);
    let without = v1::AddViewRequest { collection: "orders".to_owned(), ..v1::AddViewRequest::default() };
    assert_eq!(served.client.add_view(without).expect_err("no view").code(), Code::InvalidArgument);
    assert_eq!(served.client.build_views("none", "").expect_err("none").code(), Code::NoSuchTree);
    assert_eq!(served.client.views(vec!["none".to_owned()]).expect_err("none").code(), Code::NoSuchTree);

    // Two orders of Oslo: the view cannot be built, and is not left behind.
    let key = vec![v1::ViewKeyField { name: "city".to_owned(), ..v1::ViewKeyField::default() }];
    let once =
        v1::ViewDefinition { name: "once".to_owned(), key, unique: true, ..v1::ViewDefinition::default() };
    assert!(add(&served, once, false).expect("added"));
    assert_eq!(build(&served).expect_err("two of Oslo").code(), Code::UniqueViolation);
    // Another client's view, meanwhile, is complete: the error is not about it.
    assert!(add(&served, by_cents(), false).expect("added"));
    let waiting_for = |view: &str| served.client.build_views("orders", view);
    assert!(waiting_for("by_cents").expect("complete").is_complete);
    assert_eq!(waiting_for("once").expect_err("two of Oslo").code(), Code::UniqueViolation);
    let unfinished = v1::DropViewRequest {
        collection: "orders".to_owned(),
        view: "once".to_owned(),
        unfinished_only: true,
        ..v1::DropViewRequest::default()
    };
    assert!(served.client.drop_view(unfinished).expect("dropped").was_there);
    let batch = v1::BatchRequest { operations: vec![put("Oslo", 3, 1)], ..v1::BatchRequest::default() };
    served.client.batch(batch).expect("it is in no one's way");
}

#[test]
fn a_collection_is_dropped() {
    let served = Served::new();
    let request = |level: i32| v1::DropCollectionRequest { collection: "orders".to_owned(), level };
    assert_eq!(
        served.client.drop_collection(request(7)).expect_err("no level").code(),
        Code::InvalidArgument
    );
    assert_eq!(count(&served.client), 3);
    let reply = served.client.drop_collection(request(v1::Level::Disk.into())).expect("dropped");
    assert_eq!(reply.count, 3);
    assert_eq!(served.client.drop_collection(request(0)).expect_err("gone").code(), Code::NoSuchTree);
}

#[test]
fn what_is_slow_and_what_is_held_is_told() {
    let served = Served::new();
    served.db.transact(|tx| tx.kv("n").put("n", &1)).expect("committed");
    let held = served.db.snapshot().expect("a snapshot");
    served.db.transact(|tx| tx.kv("n").put("n", &2)).expect("committed");
    let stats = served.client.stats(Duration::from_secs(10)).expect("stats");
    let facts = duramen_proto::document::required(stats.facts.as_ref()).expect("a document");
    assert_eq!(facts, duramen_server::facts(&served.db).expect("facts"));
    let parts: Vec<&str> = stats.timings.iter().map(|of| of.part.as_str()).collect();
    assert_eq!(parts, ["order", "queue", "write", "sync", "publish", "checkpoint"]);
    let sync = &stats.timings[3];
    assert!(sync.count >= 2 && sync.p50_ns > 0 && sync.max_ns >= sync.p50_ns, "{sync:?}");
    assert!(stats.held_snapshots.iter().any(|of| of.seq == held.seq().0), "{stats:?}");
    drop(held);
}
