//! Reads are of one state, and answer as the library does.

use std::sync::atomic::{AtomicBool, Ordering};

use duramen::Code;
use duramen::prelude::*;
use duramen::view::{Reduce, ViewSpec};
use duramen_proto::v1::{self, read, read_result};

use super::{Served, all_orders, answer, key, order_key, reading};

pub(crate) fn json(text: &str) -> Option<v1::Document> {
    Some(v1::Document { form: Some(v1::document::Form::Json(text.to_owned())) })
}

fn oslo() -> Option<v1::Range> {
    let prefix = duramen_proto::key::of(&[super::Element::Text("Oslo".to_owned())]);
    Some(v1::Range { prefix: Some(prefix), ..v1::Range::default() })
}

#[test]
fn documents_counts_and_sums() {
    let served = Served::new();
    let client = &served.client;
    let found = |document| read_result::Kind::Found(v1::Found { document });
    let second = json(r#"{"city":"Oslo","id":1,"cents":1250}"#);
    assert_eq!(answer(client, read::Kind::Get(order_key("Oslo", 1))), found(second.clone()));
    assert_eq!(answer(client, read::Kind::Get(order_key("Oslo", 7))), found(None));
    let nth = |index| read::Kind::Nth(v1::Nth { collection: "orders".to_owned(), index });
    assert_eq!(answer(client, nth(1)), found(second));
    assert_eq!(answer(client, nth(3)), found(None));
    assert_eq!(answer(client, read::Kind::Rank(order_key("Oslo", 2))), read_result::Kind::Number(2));
    let of_oslo = v1::RangeOf { range: oslo(), ..all_orders() };
    assert_eq!(answer(client, read::Kind::Count(of_oslo.clone())), read_result::Kind::Number(2));
    let sums = vec![v1::FieldSum { field: "cents".to_owned(), sum: "2000".to_owned(), nulls: 0 }];
    let reduction = read_result::Kind::Reduction(v1::Reduction { count: 2, sums });
    assert_eq!(answer(client, read::Kind::Reduce(of_oslo)), reduction);
}

#[test]
fn views_and_their_groups() {
    let served = Served::new();
    let orders = served.db.documents("orders");
    let view = ViewSpec::new("by_cents", ["cents"]).values(["id"]).reduce([Reduce::Sum(0), Reduce::Max(0)]);
    orders.add_view(view).expect("added");
    orders.build_views(|_| Ok(())).expect("built");
    let of = v1::RangeOf { view: "by_cents".to_owned(), ..all_orders() };
    assert_eq!(answer(&served.client, read::Kind::Count(of)), read_result::Kind::Number(3));
    let groups = v1::ReduceView {
        collection: "orders".to_owned(),
        view: "by_cents".to_owned(),
        range: None,
        group_by: 1,
        ..v1::ReduceView::default()
    };
    let read_result::Kind::ViewReductions(groups) = answer(&served.client, read::Kind::ReduceView(groups))
    else {
        panic!("they are groups")
    };
    let counts: Vec<u64> = groups.groups.iter().map(|group| group.count).collect();
    assert_eq!(counts, [1, 1, 1]);
    let part = &groups.groups[0].parts[0];
    assert_eq!((part.reduce.as_str(), part.field.as_str(), part.seen), ("sum", "id", 1));
}

/// Two reads of one request see the same state, also while others write.
#[test]
fn all_reads_of_a_request_are_of_one_state() {
    let served = Served::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 100;
            while !is_over.load(Ordering::Relaxed) {
                served
                    .db
                    .documents("orders")
                    .put(doc! { "city": "Rome", "id": id, "cents": 1 })
                    .expect("stored");
                id += 1;
            }
        });
        for _ in 0..200 {
            let reads = [read::Kind::Count(all_orders()), read::Kind::Reduce(all_orders())];
            let reads = reads.map(|kind| v1::Read { kind: Some(kind) }).to_vec();
            let reply = served
                .client
                .read(v1::ReadRequest { reads, ..v1::ReadRequest::default() })
                .expect("an answer");
            let [Some(read_result::Kind::Number(count)), Some(read_result::Kind::Reduction(reduction))] =
                &reply.results.iter().map(|result| result.kind.clone()).collect::<Vec<_>>()[..]
            else {
                panic!("a count and a reduction")
            };
            assert_eq!(*count, reduction.count);
            // Each order of Rome costs one cent.
            assert_eq!(reduction.sums[0].sum, (2300 + reduction.count - 3).to_string());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_token_of_another_history_is_refused() {
    let served = Served::new();
    let reply = served.client.batch(v1::BatchRequest {
        operations: vec![super::put("Oslo", 5, 1)],
        write: Some(v1::Write { level: v1::Level::Process.into(), ..v1::Write::default() }),
        ..v1::BatchRequest::default()
    });
    let token = reply.expect("committed").receipt.and_then(|receipt| receipt.at).expect("a token");
    let with = |token: v1::Token| {
        let at_least = Some(token);
        let request = v1::ReadRequest { at_least, ..reading(read::Kind::Get(order_key("Oslo", 5))) };
        served.client.read(request).map(drop).map_err(|error| error.code())
    };
    assert_eq!(with(token.clone()), Ok(()));
    assert_ne!(token.run, 0, "it may not be on disk");
    // A state that may not be on disk names the opening, too; the opening is the database's, not the
    // server's.
    assert_eq!(token.run, served.db.opening());
    let lost = Err(Code::LostWrites);
    assert_eq!(with(v1::Token { epoch: vec![1; 8].into(), ..token.clone() }), lost);
    assert_eq!(with(v1::Token { run: token.run + 1, ..token.clone() }), lost);
    assert_eq!(with(v1::Token { seq: token.seq + 1000, ..token }), lost);
}

#[test]
fn what_is_no_read_is_refused_with_its_code() {
    let served = Served::new();
    let code = |kind: read::Kind| served.client.read(reading(kind)).expect_err("it is none").code();
    assert_eq!(code(read::Kind::Get(v1::DocumentKey::default())), Code::InvalidArgument);
    assert_eq!(code(read::Kind::Count(v1::RangeOf::default())), Code::NoSuchTree);
    let unknown = v1::RangeOf { collection: "ordres".to_owned(), ..v1::RangeOf::default() };
    assert_eq!(code(read::Kind::Count(unknown)), Code::NoSuchTree);
    let both = v1::Range { prefix: Some(key("Oslo", 1)), from: Some(key("Oslo", 1)), ..v1::Range::default() };
    let both = v1::RangeOf { range: Some(both), ..all_orders() };
    assert_eq!(code(read::Kind::Count(both)), Code::InvalidArgument);
    let view = v1::RangeOf { view: "none".to_owned(), ..all_orders() };
    assert_eq!(code(read::Kind::Count(view)), Code::NoSuchTree);
    let tree = v1::KeyValueKey { namespace: String::new(), key: Some(key("a", 1)) };
    assert_eq!(code(read::Kind::GetKeyValue(tree)), Code::InvalidArgument);
    let empty = v1::ReadRequest { reads: vec![v1::Read::default()], ..v1::ReadRequest::default() };
    assert_eq!(served.client.read(empty).expect_err("of no kind").code(), Code::InvalidArgument);
    // Bounds that are no keys, and the wrong way round: an empty range.
    let encoded = v1::EncodedRange { from: vec![255; 5000].into(), to: Some(vec![0].into()) };
    let encoded = v1::Range { encoded: Some(encoded), ..v1::Range::default() };
    let encoded = v1::RangeOf { range: Some(encoded), ..all_orders() };
    assert_eq!(answer(&served.client, read::Kind::Count(encoded)), read_result::Kind::Number(0));
}
