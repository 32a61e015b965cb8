//! Bytes of strangers: whatever they are, decoding and translating them ends with a value or an error
//! (`wire`).
//!
//! `DURAMEN_MUTATIONS=5000000 DURAMEN_SEED=7` makes a long run of it.

use duramen::tuple::Element;
use duramen_proto::{key, v1};
use prost::Message as _;

use crate::wire::{self, Ran};

const SEED: u64 = 0x5eed;
const MUTATIONS: u64 = 60_000;

/// xorshift64*: the same mutations each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(bits).expect("31 bits") % bound
    }
}

/// A batch with every kind of part.
fn batch() -> v1::BatchRequest {
    use v1::{condition, operation, read};
    let of = [Element::Text("Oslo".into()), Element::Tuple(vec![Element::Int(-7), Element::Uuid([9; 16])])];
    let one = v1::DocumentKey { collection: "orders".into(), key: Some(key::of(&of)) };
    let json = v1::Document { form: Some(v1::document::Form::Json(r#"{"a":[1,{"b":null}]}"#.into())) };
    let put = v1::PutDocument { collection: "orders".into(), document: Some(json), want_before: true };
    let encoded = v1::EncodedRange { from: vec![2, 3].into(), to: Some(vec![9].into()) };
    let range = Some(v1::Range { encoded: Some(encoded), ..v1::Range::default() });
    let delete = v1::DeleteRange { collection: "orders".into(), range: range.clone(), limit: 3 };
    let value = Some(v1::Value { form: Some(v1::value::Form::Msgpack(vec![0x92, 1, 0xc0].into())) });
    let is = v1::KeyValueIs { namespace: "n".into(), key: one.key.clone(), value };
    let count = v1::RangeOf { collection: "orders".into(), range, view: "by".into(), generation: Some(2) };
    v1::BatchRequest {
        write: Some(v1::Write { request_id: vec![7; 16].into(), level: 1 }),
        conditions: vec![v1::Condition { kind: Some(condition::Kind::KeyValueIs(is)) }],
        operations: [
            operation::Kind::Put(put),
            operation::Kind::Delete(one),
            operation::Kind::DeleteRange(delete),
            operation::Kind::Ensure(collection()),
            operation::Kind::PutTyped(typed()),
            operation::Kind::AssignId(v1::AssignId { collection: "items".into(), sequential: true }),
        ]
        .map(|kind| v1::Operation { kind: Some(kind) })
        .to_vec(),
        reads: vec![v1::Read { kind: Some(read::Kind::Count(count)) }],
        form: 1,
        marks: vec![v1::SchemaMark { collection: "items".into(), mark: vec![7; 8].into() }],
    }
}

fn typed() -> v1::PutTyped {
    v1::PutTyped { collection: "items".into(), key: vec![1].into(), document: vec![0x80].into(), wanted: 1 }
}

fn collection() -> v1::EnsureCollection {
    let column = |name: &str, kind: &str| v1::Column { name: name.into(), r#type: kind.into() };
    v1::EnsureCollection {
        collection: "items".into(),
        key: vec!["id".into()],
        columns: vec![column("id", "int"), column("n", "unknown")],
        sums: vec!["n".into()],
        null_marker: Some("NA".into()),
    }
}

/// A query with every kind of part.
fn find() -> v1::Find {
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let aggregate =
        |kind: v1::AggregateKind| v1::Aggregate { kind: kind.into(), field: "cents".into(), part: 0.5 };
    v1::Find {
        collection: "orders".into(),
        conditions: texts(&["(", "cents>=7", "or", "lines[].n in 1,2", ")", r#"id:=1"#]),
        order_by: texts(&["count:desc"]),
        limit: Some(3),
        grouping: Some(v1::Grouping {
            fields: texts(&["cents"]),
            aggregates: vec![v1::Aggregate::default(), aggregate(v1::AggregateKind::Quantile)],
        }),
        ..v1::Find::default()
    }
}

/// Inputs of [`wire::run`], one of each kind.
fn seeds() -> Vec<Vec<u8>> {
    let plain = v1::Find { grouping: None, order_by: vec!["cents".into()], view: "by".into(), ..find() };
    let reads = [v1::read::Kind::Find(find()), v1::read::Kind::Explain(plain.clone())];
    let reads = reads.map(|kind| v1::Read { kind: Some(kind) }).to_vec();
    let read = v1::ReadRequest { reads, ..v1::ReadRequest::default() };
    let scan =
        v1::ScanRequest { find: Some(plain), page_token: vec![7; 20].into(), ..v1::ScanRequest::default() };
    let field = v1::ViewKeyField { name: "lines[].n".into(), is_path: true, descending: true };
    let reduce = v1::Reduce { reduce: "top".into(), value_index: 0, count: 3 };
    let view = v1::ViewDefinition {
        name: "by_n".into(),
        key: vec![field],
        values: vec!["cents".into()],
        reductions: vec![reduce],
        each: true,
        ..v1::ViewDefinition::default()
    };
    let add =
        v1::AddViewRequest { collection: "orders".into(), view: Some(view), ..v1::AddViewRequest::default() };
    [batch().encode_to_vec(), read.encode_to_vec(), scan.encode_to_vec(), add.encode_to_vec()]
        .into_iter()
        .zip(0..)
        .map(|(message, which)| [vec![which], message].concat())
        .collect()
}

#[allow(clippy::disallowed_methods, reason = "a test has variables of its own")]
fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn mutated_requests_are_decoded_as_prost_does_or_refused() {
    let (seed, mutations) = (number("DURAMEN_SEED", SEED), number("DURAMEN_MUTATIONS", MUTATIONS));
    println!("DURAMEN_SEED={seed} DURAMEN_MUTATIONS={mutations}");
    let seeds = seeds();
    for whole in &seeds {
        assert!(wire::run(whole).decoded);
    }
    let mut random = Random(seed.max(1));
    let mut all = Ran::default();
    let mut decoded = 0;
    for _ in 0..mutations {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        let ran = wire::run(&bytes);
        decoded += u64::from(ran.decoded);
        all.keys += ran.keys;
        all.queries += ran.queries;
        all.views += ran.views;
    }
    let Ran { keys, queries, views, .. } = all;
    let good = mutations / 500;
    let is_enough = decoded > 10 * good && [keys, queries, views].iter().all(|found| *found as u64 > good);
    assert!(is_enough, "{decoded} decoded, {keys} keys, {queries} queries, {views} views");
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let byte = u8::try_from(random.below(256)).expect("a byte");
    match random.below(4) {
        0 => bytes.truncate(random.below(bytes.len()) + 1),
        1 => {
            let at = random.below(bytes.len());
            bytes[at] = byte;
        }
        2 => bytes.insert(random.below(bytes.len() + 1), byte),
        _ => {
            let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
            let part = bytes[from.min(to)..from.max(to)].to_vec();
            let at = random.below(bytes.len());
            bytes.splice(at..at, part);
        }
    }
}
