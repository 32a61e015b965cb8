//! A batch is one transaction, and one with a request id has its effect once.

use duramen::prelude::*;
use duramen::{Code, requests};
use duramen_proto::v1::{self, condition, operation, operation_result};

use super::{Served, answer, count, key, order, order_key, put};

pub(crate) fn batch(operations: Vec<v1::Operation>) -> v1::BatchRequest {
    v1::BatchRequest { operations, ..v1::BatchRequest::default() }
}

fn operation(kind: operation::Kind) -> v1::Operation {
    v1::Operation { kind: Some(kind) }
}

fn condition(kind: condition::Kind) -> v1::Condition {
    v1::Condition { kind: Some(kind) }
}

fn kinds(reply: v1::BatchReply) -> Vec<operation_result::Kind> {
    reply.results.into_iter().map(|result| result.kind.expect("of some kind")).collect()
}

fn new_id(db: &Db) -> bytes::Bytes {
    requests::new_id(db).expect("an id").bytes().to_vec().into()
}

#[test]
fn operations_happen_together_and_reads_see_them() {
    let served = Served::new();
    let mut request = batch(vec![
        put("Oslo", 3, 5),
        operation(operation::Kind::Delete(order_key("Oslo", 1))),
        operation(operation::Kind::Increment(v1::Increment {
            namespace: "counters".to_owned(),
            key: Some(key("orders", 0)),
            by: 2,
        })),
    ]);
    request.reads = vec![v1::Read { kind: Some(v1::read::Kind::Count(super::all_orders())) }];
    let reply = served.client.batch(request).expect("committed");
    let receipt = reply.receipt.clone().expect("a receipt");
    assert_eq!((receipt.reached(), receipt.repeated), (v1::Level::Disk, false));
    assert_eq!(receipt.at.expect("a token").seq, served.db.durability_status().durable.0);
    let number = v1::ReadResult { kind: Some(v1::read_result::Kind::Number(3)) };
    assert_eq!(reply.reads, [number]);
    let deleted = v1::Deleted { count: 1, ..v1::Deleted::default() };
    assert_eq!(
        kinds(reply),
        [
            operation_result::Kind::Stored(v1::Stored::default()),
            operation_result::Kind::Deleted(deleted),
            operation_result::Kind::Incremented(2),
        ]
    );

    // One that fails undoes all: there is an order 3 in Oslo.
    let insert = v1::PutDocument {
        collection: "orders".to_owned(),
        document: Some(order("Oslo", 3, 7)),
        want_before: false,
    };
    let failing = batch(vec![put("Oslo", 4, 1), operation(operation::Kind::Insert(insert))]);
    let failed = served.client.try_batch(failing).expect_err("it is there");
    assert_eq!((failed.error.code(), failed.operation), (Code::AlreadyExists, Some(2)));
    assert_eq!(count(&served.client), 3);
    let of_no_kind = batch(vec![put("Oslo", 4, 1), v1::Operation { kind: None }]);
    let failed = served.client.try_batch(of_no_kind).expect_err("no kind");
    assert_eq!((failed.error.code(), failed.operation), (Code::InvalidArgument, Some(2)));
    // An error of the batch is of no operation.
    let mut reads_nothing = batch(vec![put("Oslo", 4, 1)]);
    reads_nothing.reads = vec![v1::Read { kind: None }];
    let failed = served.client.try_batch(reads_nothing).expect_err("no read");
    assert_eq!((failed.error.code(), failed.operation), (Code::InvalidArgument, None));
}

#[test]
fn a_collection_is_created_with_its_first_documents() {
    let served = Served::new();
    let column = |name: &str, kind: &str| v1::Column { name: name.to_owned(), r#type: kind.to_owned() };
    let ensure = v1::EnsureCollection {
        collection: "items".to_owned(),
        key: vec!["id".to_owned()],
        columns: vec![column("id", "int"), column("n", "int")],
        sums: vec!["n".to_owned()],
        null_marker: Some("NA".to_owned()),
    };
    let item = |text: &str| {
        operation(operation::Kind::Insert(v1::PutDocument {
            collection: "items".to_owned(),
            document: crate::reads::json(text),
            want_before: false,
        }))
    };
    let with = |ensure: &v1::EnsureCollection, items: &[&str]| {
        let ensure = operation(operation::Kind::Ensure(ensure.clone()));
        batch([ensure].into_iter().chain(items.iter().copied().map(item)).collect())
    };
    let there = || served.db.collections().expect("collections").len();
    let before = there();
    // Both or nothing.
    let failed = served.client.try_batch(with(&ensure, &[r#"{"id":1}"#, r#"{"id":1}"#])).expect_err("twice");
    assert_eq!((failed.error.code(), failed.operation, there()), (Code::AlreadyExists, Some(3), before));
    let reply = served.client.batch(with(&ensure, &[r#"{"id":1,"n":7}"#, r#"{"id":2}"#])).expect("committed");
    assert_eq!(reply.results.len(), 3);
    let items = served.db.documents("items");
    assert_eq!(items.reduce(Span::all()).expect("reduced").sums().next().expect("a sum").1.sum, 7);
    // Again, with a column more.
    let more = v1::EnsureCollection { columns: vec![column("text", "text")], ..ensure.clone() };
    served.client.batch(with(&more, &[r#"{"id":3,"text":"x"}"#])).expect("committed");
    let schema = items.schema().expect("it is there");
    assert_eq!((schema.columns().len(), schema.null()), (3, Some("NA")));

    for (other, code) in [
        (v1::EnsureCollection { key: vec!["n".to_owned()], ..ensure.clone() }, Code::InvalidArgument),
        (v1::EnsureCollection { sums: vec![], ..ensure.clone() }, Code::InvalidArgument),
        (
            v1::EnsureCollection { columns: vec![column("n", "text")], ..ensure.clone() },
            Code::InvalidArgument,
        ),
        (
            v1::EnsureCollection { columns: vec![column("n", "number")], ..ensure.clone() },
            Code::InvalidArgument,
        ),
        (v1::EnsureCollection { columns: vec![column("n", "int"); 5_000], ..ensure.clone() }, Code::TooLarge),
        (v1::EnsureCollection { key: vec![], collection: "new".to_owned(), ..ensure }, Code::InvalidArgument),
    ] {
        let error = served.client.batch(with(&other, &[])).expect_err("refused");
        assert_eq!(error.code(), code, "{other:?}: {}", error.message());
    }
    assert_eq!(there(), before + 1);
}

#[test]
fn a_condition_that_does_not_hold_is_an_answer_and_nothing_is_changed() {
    let served = Served::new();
    let mut request = batch(vec![put("Oslo", 9, 1)]);
    request.conditions = vec![
        condition(condition::Kind::Present(order_key("Oslo", 1))),
        condition(condition::Kind::Absent(order_key("Oslo", 2))),
    ];
    let reply = served.client.batch(request.clone()).expect("an answer");
    assert_eq!((reply.failed_condition, reply.results.len()), (2, 0));
    assert_eq!(count(&served.client), 3);

    let one_key = v1::KeyValueIs { namespace: "locks".to_owned(), key: Some(key("a", 1)), value: None };
    let counted = v1::CountIs { collection: "orders".to_owned(), range: None, count: 3 };
    request.conditions = vec![
        condition(condition::Kind::Absent(order_key("Oslo", 9))),
        condition(condition::Kind::CountIs(counted)),
        condition(condition::Kind::KeyValueIs(one_key.clone())),
    ];
    assert_eq!(served.client.batch(request.clone()).expect("committed").failed_condition, 0);
    assert_eq!(count(&served.client), 4);
    assert_eq!(served.client.batch(request).expect("an answer").failed_condition, 1);

    // Compare and set: a value of another form is the same value.
    let set = |value: &str| v1::PutKeyValue {
        namespace: "locks".to_owned(),
        key: Some(key("a", 1)),
        value: Some(v1::Value { form: Some(v1::value::Form::Json(value.to_owned())) }),
        ttl_ms: 0,
        keep_expiry: false,
        expires_at: None,
    };
    served
        .client
        .batch(batch(vec![operation(operation::Kind::PutKeyValue(set("[1,2]")))]))
        .expect("committed");
    let msgpack =
        v1::Value { form: Some(v1::value::Form::Msgpack(vec![0x92, 0x01, 0xcd, 0x00, 0x02].into())) };
    let mut compare = batch(vec![operation(operation::Kind::PutKeyValue(set("3")))]);
    let is = v1::KeyValueIs { value: Some(msgpack), ..one_key };
    compare.conditions = vec![condition(condition::Kind::KeyValueIs(is))];
    assert_eq!(served.client.batch(compare.clone()).expect("committed").failed_condition, 0);
    assert_eq!(served.client.batch(compare).expect("an answer").failed_condition, 1);
}

#[test]
fn a_batch_with_a_request_id_has_its_effect_once() {
    let served = Served::new();
    let increment = operation(operation::Kind::Increment(v1::Increment {
        namespace: "counters".to_owned(),
        key: Some(key("n", 0)),
        by: 1,
    }));
    let mut request = batch(vec![increment]);
    request.write = Some(v1::Write { request_id: new_id(&served.db), ..v1::Write::default() });
    request.reads = vec![v1::Read { kind: Some(v1::read::Kind::Count(super::all_orders())) }];
    let first = served.client.batch(request.clone()).expect("committed");
    served.client.batch(batch(vec![put("Oslo", 7, 1)])).expect("committed");
    let again = served.another_client().batch(request.clone()).expect("the same answer");
    assert!(!first.receipt.clone().expect("one").repeated && again.receipt.clone().expect("one").repeated);
    assert_eq!(kinds(first), [operation_result::Kind::Incremented(1)]);
    // The reads are of the newest state.
    assert_eq!(again.reads[0].kind, Some(v1::read_result::Kind::Number(4)));
    assert_eq!(kinds(again), [operation_result::Kind::Incremented(1)]);

    let id = request.write.clone().expect("an id").request_id;
    let outcome = |id: &bytes::Bytes| served.client.outcome(v1::OutcomeRequest { request_id: id.clone() });
    let known = outcome(&id).expect("known");
    assert!(known.committed);
    assert_eq!(known.results[0].kind, Some(operation_result::Kind::Incremented(1)));

    request.operations.push(put("Oslo", 8, 1));
    assert_eq!(served.client.batch(request.clone()).expect_err("another body").code(), Code::InvalidArgument);
    let other = new_id(&served.db);
    assert!(!outcome(&other).expect("settled").committed);
    request.write = Some(v1::Write { request_id: other, ..v1::Write::default() });
    assert_eq!(served.client.batch(request.clone()).expect_err("settled").code(), Code::RequestCancelled);
    for wrong in [vec![1; 15], vec![0; 16]] {
        request.write = Some(v1::Write { request_id: wrong.into(), ..v1::Write::default() });
        assert_eq!(served.client.batch(request.clone()).expect_err("no id").code(), Code::InvalidArgument);
    }
}

/// A counter in many hands: each conflict runs a small batch again, and none is lost.
#[test]
fn batches_that_conflict_run_again() {
    let served = Served::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = served.another_client();
                for _ in 0..50 {
                    let increment =
                        v1::Increment { namespace: "counters".to_owned(), key: Some(key("n", 0)), by: 1 };
                    let request = batch(vec![operation(operation::Kind::Increment(increment))]);
                    client.batch(request).expect("committed");
                }
            });
        }
    });
    let get = v1::KeyValueKey { namespace: "counters".to_owned(), key: Some(key("n", 0)) };
    let value = answer(&served.client, v1::read::Kind::GetKeyValue(get));
    let json = v1::Value { form: Some(v1::value::Form::Json("200".to_owned())) };
    assert_eq!(value, v1::read_result::Kind::Value(v1::FoundValue { value: Some(json) }));
}

#[test]
fn what_a_put_replaces_is_told_if_wanted() {
    let served = Served::new();
    let put = v1::PutDocument {
        collection: "orders".to_owned(),
        document: Some(order("Oslo", 1, 1)),
        want_before: true,
    };
    let mut request = batch(vec![operation(operation::Kind::Put(put))]);
    request.form = v1::DocumentForm::Json.into();
    let [operation_result::Kind::Stored(stored)] =
        &kinds(served.client.batch(request).expect("committed"))[..]
    else {
        panic!("it was stored")
    };
    assert_eq!(
        stored.before,
        Some(v1::Document {
            form: Some(v1::document::Form::Json(r#"{"city":"Oslo","id":1,"cents":1250}"#.to_owned()))
        })
    );
}

/// The answer of a batch whose condition failed is its answer for ever, under its request id: it was told.
#[test]
fn a_failed_condition_is_remembered_and_has_no_reads() {
    let served = Served::new();
    let mut request = batch(vec![put("Oslo", 1, 1)]);
    request.conditions = vec![condition(condition::Kind::Absent(order_key("Oslo", 1)))];
    request.reads = vec![v1::Read { kind: Some(v1::read::Kind::Count(super::all_orders())) }];
    request.write = Some(v1::Write { request_id: new_id(&served.db), ..v1::Write::default() });
    let first = served.client.batch(request.clone()).expect("an answer");
    assert_eq!((first.failed_condition, first.reads.len()), (1, 0));
    served.db.documents("orders").delete(("Oslo", 1)).expect("deleted");
    let again = served.client.batch(request).expect("an answer");
    assert_eq!((again.failed_condition, again.reads.len()), (1, 0));
    assert!(again.receipt.expect("one").repeated);
    assert_eq!(count(&served.client), 2);
}

/// A batch of ranges may not stop all commits: after some conflicts it gives up, and nothing was changed.
#[test]
fn a_large_batch_gives_up_where_a_small_one_runs_alone() {
    let served = Served::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (db, is_over) = (&served.db, &is_over);
            scope.spawn(move || {
                let mut id = 100;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let order = doc! { "city": "Rome", "id": id * 2 + number, "cents": 1 };
                    db.at(Durability::Memory).documents("orders").put(order).expect("stored");
                    id += 1;
                }
            });
        }
        // It reads every count there is, which others change meanwhile.
        let mut request = batch(vec![put("Lima", 1, 1)]);
        request.reads = vec![v1::Read { kind: Some(v1::read::Kind::Reduce(super::all_orders())) }; 200];
        let attempts: Vec<_> = (0..100)
            .map(|_| served.client.batch(request.clone()).map_err(|error| error.code()))
            .take_while(|done| *done != Err(Code::WriteConflict))
            .collect();
        // On a single key it always ends.
        let small = served.client.batch(batch(vec![put("Lima", 2, 1)]));
        // Before anything can fail: the writers would go on for ever.
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        small.expect("committed");
        assert!(attempts.iter().all(Result::is_ok), "{attempts:?}");
        assert!(attempts.len() < 100, "it never conflicted eight times");
    });
}

#[test]
fn answers_that_are_too_large_change_nothing() {
    let served = Served::new();
    let text = "x".repeat(1 << 20);
    for id in 0..18 {
        let order = doc! { "city": "Rome", "id": id, "cents": 1, "text": text.as_str() };
        served.db.documents("orders").put(order).expect("stored");
    }
    let replacing = |count: i64| {
        let put = |id| {
            let document = Some(order("Rome", id, 2));
            let put = v1::PutDocument { collection: "orders".to_owned(), document, want_before: true };
            operation(operation::Kind::Put(put))
        };
        batch((0..count).map(put).collect())
    };
    assert_eq!(served.client.batch(replacing(18)).expect_err("too large").code(), Code::TooLarge);
    let cents = |id: i64| served.db.documents("orders").get(("Rome", id)).expect("read").expect("there");
    assert_eq!(cents(0).get("cents"), Some(&Value::from(1)), "nothing was changed");
    let mut remembered = replacing(1);
    remembered.write = Some(v1::Write { request_id: new_id(&served.db), ..v1::Write::default() });
    let error = served.client.batch(remembered).expect_err("too large to be remembered");
    assert_eq!(error.code(), Code::TooLarge);
    assert!(error.hint().contains("fewer operations"), "{error:?}");
    served.client.batch(replacing(3)).expect("committed");
    assert_eq!(cents(2).get("cents"), Some(&Value::from(2)));
    // A message beyond what the server takes is not sent: it is not in doubt.
    let document = format!(r#"{{"city": "Rome", "id": 1, "text": "{}"}}"#, "x".repeat(17 << 20));
    let document = Some(v1::Document { form: Some(v1::document::Form::Json(document)) });
    let put = v1::PutDocument { collection: "orders".to_owned(), document, want_before: false };
    let huge = batch(vec![operation(operation::Kind::Put(put))]);
    assert_eq!(served.client.batch(huge).expect_err("too long").code(), Code::TooLarge);
}
