//! Queries find what the library finds, and one that is none is refused before it reads anything.

use duramen::Code;
use duramen::prelude::*;
use duramen_client::Client;
use duramen_proto::v1::{self, read, read_result};

use super::{Served, answer, put, reading};

fn of_orders() -> v1::Find {
    v1::Find { collection: "orders".to_owned(), ..v1::Find::default() }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shown(documents: &[v1::Document]) -> Vec<String> {
    let text = |document: &v1::Document| match &document.form {
        Some(v1::document::Form::Json(text)) => text.clone(),
        other => panic!("{other:?} is no JSON"),
    };
    documents.iter().map(text).collect()
}

fn found(client: &Client, find: v1::Find) -> v1::Documents {
    match answer(client, read::Kind::Find(find)) {
        read_result::Kind::Documents(documents) => documents,
        other => panic!("no documents: {other:?}"),
    }
}

#[test]
fn documents_and_groups_of_them() {
    let served = Served::new();
    let late = v1::Find {
        conditions: texts(&["(", "cents>=700", "or", "city=Bergen", ")", "id<3"]),
        order_by: texts(&["cents:desc"]),
        limit: Some(2),
        fields: texts(&["cents"]),
        ..of_orders()
    };
    let documents = found(&served.client, late);
    assert_eq!(shown(&documents.documents), [r#"{"cents":1250}"#, r#"{"cents":750}"#]);
    assert_eq!((documents.read_count, documents.is_complete), (3, true));

    let aggregate =
        |kind: v1::AggregateKind, part| v1::Aggregate { kind: kind.into(), field: "cents".to_owned(), part };
    let grouping = v1::Grouping {
        fields: texts(&["city"]),
        aggregates: vec![
            v1::Aggregate::default(),
            aggregate(v1::AggregateKind::Sum, 0.0),
            aggregate(v1::AggregateKind::Quantile, 1.0),
        ],
    };
    let groups = v1::Find { grouping: Some(grouping), order_by: texts(&["sum_cents:desc"]), ..of_orders() };
    let [oslo, bergen] = &shown(&found(&served.client, groups).documents)[..] else { panic!("two cities") };
    assert!(oslo.contains(r#""city":"Oslo","count":2,"sum_cents":2000"#), "{oslo}");
    assert!(bergen.contains(r#""city":"Bergen","count":1,"sum_cents":300"#), "{bergen}");

    // Of the first two documents, none is found.
    let few = v1::Find { conditions: texts(&["id=2"]), read_max: 2, ..of_orders() };
    let documents = found(&served.client, few);
    assert_eq!((documents.documents.len(), documents.read_count, documents.is_complete), (0, 2, false));
}

#[test]
fn a_plan_says_what_would_be_read() {
    let served = Served::new();
    let find = v1::Find { conditions: texts(&["city=Oslo", "cents>1"]), ..of_orders() };
    let read_result::Kind::Plan(plan) = answer(&served.client, read::Kind::Explain(find.clone())) else {
        panic!("a plan")
    };
    let own = duramen_proto::query::plan(&plan, &find).expect("it is one");
    let orders = served.db.documents("orders");
    let schema = orders.schema().expect("a schema");
    let conditions =
        ["city=Oslo", "cents>1"].map(|text| duramen::find::Condition::parse(&schema, text).expect("one"));
    assert_eq!(own, orders.find(conditions).plan().expect("a plan"));
    assert_eq!(Schema::from_bytes(&plan.definition).expect("a schema"), schema);
}

#[test]
fn a_batch_finds_its_own_writes() {
    let served = Served::new();
    let batch = |kind: read::Kind| {
        served.client.batch(v1::BatchRequest {
            operations: vec![put("Rome", 1, 7)],
            reads: vec![v1::Read { kind: Some(kind) }],
            form: v1::DocumentForm::Json.into(),
            ..v1::BatchRequest::default()
        })
    };
    let find = v1::Find { conditions: texts(&["cents=7"]), ..of_orders() };
    // One that reads everything would keep a thread of writers.
    let grouping = Some(v1::Grouping::default());
    let groups = v1::Find { grouping, read_max: 1, ..find.clone() };
    let too_many = v1::Find { read_max: 1_001, ..find.clone() };
    for long in [
        read::Kind::Find(find.clone()),
        read::Kind::Find(too_many),
        read::Kind::Find(groups),
        read::Kind::Explain(find.clone()),
    ] {
        assert_eq!(batch(long).expect_err("refused").code(), Code::InvalidArgument);
    }
    assert_eq!(super::count(&served.client), 3);
    let reply = batch(read::Kind::Find(v1::Find { read_max: 1_000, ..find })).expect("committed");
    let Some(read_result::Kind::Documents(found)) = reply.reads[0].kind.clone() else { panic!("documents") };
    assert_eq!(shown(&found.documents), [r#"{"city":"Rome","id":1,"cents":7}"#]);
}

/// A collection of which a query reads far more than a message takes.
fn many(served: &Served) -> u64 {
    let count = 20_000_u64;
    served.db.ensure(&Schema::new("many").key(["id"])).expect("a collection");
    let store = |tx: &mut duramen::Transaction<'_>| {
        let documents = tx.documents("many");
        (0..count).try_for_each(|id| documents.put(doc! { "id": id, "n": id % 7, "text": "x".repeat(50) }))
    };
    served.db.write(store).expect("stored");
    count
}

#[test]
fn a_query_is_streamed_and_of_one_state() {
    let served = Served::new();
    let count = many(&served);
    let find = v1::Find {
        collection: "many".to_owned(),
        conditions: texts(&["n!=3"]),
        order_by: texts(&["id:desc"]),
        ..v1::Find::default()
    };
    let request = v1::ScanRequest { find: Some(find), ..v1::ScanRequest::default() };
    let mut scanned = served.client.scan(request).expect("begun");
    let first = scanned.next().expect("a message").expect("not the last");
    served.db.write(|tx| tx.documents("many").delete_span(Span::all()).map(drop)).expect("deleted");
    let (mut messages, mut ids, mut read_count) = (0, Vec::new(), 0);
    let mut next = Some(first.clone());
    while let Some(message) = next {
        assert_eq!((&message.at, &message.page_token[..]), (&first.at, &[][..]));
        for document in &message.documents {
            let document = duramen_proto::document::required(Some(document)).expect("a document");
            ids.push(document.get("id").cloned().expect("an id"));
        }
        (messages, read_count) = (messages + 1, message.read_count);
        next = scanned.next().expect("a message");
    }
    let wanted: Vec<Value> = (0..count).rev().filter(|id| id % 7 != 3).map(Value::from).collect();
    assert_eq!(ids, wanted);
    assert_eq!(read_count, count);
    assert!(messages > 10, "{messages} messages");
}

#[test]
fn a_query_that_finds_nothing_says_what_it_has_read() {
    let served = Served::new();
    let count = many(&served);
    let conditions = texts(&["text contains y"]);
    let find = v1::Find { collection: "many".to_owned(), conditions, ..v1::Find::default() };
    let request = v1::ScanRequest { find: Some(find), ..v1::ScanRequest::default() };
    let mut scanned = served.client.scan(request).expect("begun");
    let mut read_count = 0;
    while let Some(message) = scanned.next().expect("a message") {
        assert!(message.documents.is_empty() && message.read_count >= read_count);
        read_count = message.read_count;
    }
    assert_eq!(read_count, count);
}

#[test]
fn a_query_that_is_none_is_refused() {
    let served = Served::new();
    let aggregate = |kind: i32, part: f64| v1::Find {
        grouping: Some(v1::Grouping {
            fields: Vec::new(),
            aggregates: vec![v1::Aggregate { kind, field: "cents".to_owned(), part }],
        }),
        ..of_orders()
    };
    let with = |words: &[&str]| v1::Find { conditions: texts(words), ..of_orders() };
    let join = |text: &str| v1::Find {
        joins: vec![v1::Join { text: text.to_owned(), or_null: false }],
        ..of_orders()
    };
    let deep = |depth: usize| {
        let words = vec!["("; depth].into_iter().chain(["id=1"]).chain(vec![")"; depth]);
        with(&words.collect::<Vec<_>>())
    };
    let grouped = |fields: usize, aggregates: usize| v1::Find {
        grouping: Some(v1::Grouping {
            fields: vec!["id".to_owned(); fields],
            aggregates: vec![v1::Aggregate::default(); aggregates],
        }),
        ..of_orders()
    };
    let refused: Vec<(v1::Find, Code)> = vec![
        (v1::Find::default(), Code::NoSuchTree),
        (v1::Find { collection: "none".to_owned(), ..v1::Find::default() }, Code::NoSuchTree),
        (with(&["cents"]), Code::InvalidArgument),
        (with(&["none=1"]), Code::InvalidArgument),
        (with(&["("]), Code::InvalidArgument),
        (with(&["or"]), Code::InvalidArgument),
        (deep(200), Code::InvalidArgument),
        (deep(2_000), Code::TooLarge),
        (with(&[&format!("id in {}", "1,".repeat(40_000))]), Code::TooLarge),
        (v1::Find { joins: vec![v1::Join::default(); 9], ..of_orders() }, Code::TooLarge),
        (v1::Find { order_by: vec!["id".to_owned(); 9], ..of_orders() }, Code::TooLarge),
        (v1::Find { fields: vec!["id".to_owned(); 257], ..of_orders() }, Code::TooLarge),
        (grouped(17, 0), Code::TooLarge),
        (grouped(0, 65), Code::TooLarge),
        (v1::Find { view: "none".to_owned(), ..of_orders() }, Code::NoSuchTree),
        (v1::Find { order_by: texts(&["none"]), ..of_orders() }, Code::InvalidArgument),
        (v1::Find { fields: texts(&["none"]), ..of_orders() }, Code::InvalidArgument),
        (join(""), Code::InvalidArgument),
        (join("none=id"), Code::NoSuchTree),
        (join("orders=id"), Code::InvalidArgument),
        (aggregate(99, 0.0), Code::InvalidArgument),
        (aggregate(v1::AggregateKind::Quantile.into(), 7.0), Code::InvalidArgument),
        (aggregate(v1::AggregateKind::Quantile.into(), f64::NAN), Code::InvalidArgument),
    ];
    for (find, code) in refused {
        let by_read = served.client.read(reading(read::Kind::Find(find.clone())));
        let error = by_read.expect_err(&format!("{find:?}"));
        assert_eq!(error.code(), code, "{find:?}: {error}");
        let request = v1::ScanRequest { find: Some(find.clone()), ..v1::ScanRequest::default() };
        let by_scan = served.client.scan(request).and_then(|mut scanned| scanned.next().map(drop));
        assert_eq!(by_scan.expect_err("refused").code(), code, "{find:?}");
    }
    let beside = [
        v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() },
        v1::ScanRequest { page_token: vec![1].into(), ..v1::ScanRequest::default() },
        v1::ScanRequest { find: Some(v1::Find { read_max: 1, ..of_orders() }), ..v1::ScanRequest::default() },
    ];
    for request in beside {
        let find = request.find.clone().or(Some(of_orders()));
        let scanned = served.client.scan(v1::ScanRequest { find, ..request });
        let refused = scanned.and_then(|mut scanned| scanned.next().map(drop));
        assert_eq!(refused.expect_err("refused").code(), Code::InvalidArgument);
    }
}

/// Sixteen sorts take more memory than the server has for all of them at once.
#[test]
fn many_queries_of_one_read_take_memory_one_after_the_other() {
    let served = Served::new();
    let sorted = v1::Find { order_by: texts(&["cents"]), ..of_orders() };
    let reads = vec![v1::Read { kind: Some(read::Kind::Find(sorted)) }; 16];
    let reply =
        served.client.read(v1::ReadRequest { reads, ..v1::ReadRequest::default() }).expect("answered");
    assert_eq!(reply.results.len(), 16);
}

/// Too much for one message is told as that, and not as a server that is busy.
#[test]
fn an_answer_that_does_not_fit_says_so() {
    let served = Served::new();
    served.db.ensure(&Schema::new("large").key(["id"])).expect("a collection");
    for id in 0..5 {
        let document = doc! { "id": id, "text": "x".repeat(4 << 20) };
        served.db.documents("large").put(document).expect("stored");
    }
    let find = v1::Find { collection: "large".to_owned(), ..v1::Find::default() };
    let error = served.client.read(reading(read::Kind::Find(find.clone()))).expect_err("20 MiB");
    assert_eq!(error.code(), Code::TooLarge);
    let request = v1::ScanRequest { find: Some(find), ..v1::ScanRequest::default() };
    let mut scanned = served.client.scan(request).expect("begun");
    let mut count = 0;
    while let Some(message) = scanned.next().expect("a message") {
        count += message.documents.len();
    }
    assert_eq!(count, 5);
}
