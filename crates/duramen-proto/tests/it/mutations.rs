//! Bytes of strangers: whatever they are, decoding and translating them ends with a value or an error, and
//! what is decoded is what prost decodes.

use bytes::Bytes;
use duramen::tuple::Element;
use duramen_proto::{codec, document, key, v1};
use prost::Message as _;

const SEED: u64 = 0x5eed;
const MUTATIONS: u64 = 40_000;

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

/// A request with every kind of part.
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
    let count = v1::RangeOf { collection: "orders".into(), range, view: "by".into() };
    v1::BatchRequest {
        write: Some(v1::Write { request_id: vec![7; 16].into(), level: 1 }),
        conditions: vec![v1::Condition { kind: Some(condition::Kind::KeyValueIs(is)) }],
        operations: [
            operation::Kind::Put(put),
            operation::Kind::Delete(one),
            operation::Kind::DeleteRange(delete),
        ]
        .map(|kind| v1::Operation { kind: Some(kind) })
        .to_vec(),
        reads: vec![v1::Read { kind: Some(read::Kind::Count(count)) }],
        form: 1,
    }
}

/// Everything that a server does with a message before a transaction has it.
fn translate(batch: &v1::BatchRequest) -> usize {
    use v1::{condition, operation, read};
    let mut keys = Vec::new();
    for condition in &batch.conditions {
        if let Some(condition::Kind::KeyValueIs(is)) = &condition.kind {
            keys.extend(is.key.clone());
            drop(document::required_value(is.value.as_ref()));
        }
    }
    let (mut documents, mut ranges) = (Vec::new(), Vec::new());
    for operation in &batch.operations {
        match &operation.kind {
            Some(operation::Kind::Put(put) | operation::Kind::Insert(put)) => {
                documents.extend(put.document.clone())
            }
            Some(operation::Kind::Delete(of)) => keys.extend(of.key.clone()),
            Some(operation::Kind::DeleteRange(of)) => ranges.extend(of.range.clone()),
            _ => {}
        }
    }
    for read in &batch.reads {
        if let Some(read::Kind::Count(of)) = &read.kind {
            ranges.extend(of.range.clone());
        }
    }
    let good_keys = keys.iter().filter_map(|found| key::elements(found).ok()).collect::<Vec<_>>();
    for elements in &good_keys {
        assert_eq!(&key::elements(&key::of(elements)).expect("it was a key"), elements);
    }
    let good_ranges = ranges.iter().filter_map(|range| key::span(Some(range)).ok());
    for span in good_ranges {
        let again = key::span(Some(&key::of_span(span.clone()))).expect("it was a range");
        assert_eq!(again.into_bytes(), span.into_bytes());
    }
    if document::parts_of(batch).is_ok() {
        for found in documents.iter().filter_map(|found| document::required(Some(found)).ok()) {
            let again = document::of(&found, v1::DocumentForm::Msgpack).expect("it was a document");
            assert_eq!(document::required(Some(&again)).expect("it was a document"), found);
        }
    }
    good_keys.len()
}

#[test]
fn mutated_requests_are_decoded_as_prost_does_or_refused() {
    println!("seed {SEED:#x}");
    let whole = batch().encode_to_vec();
    let mut random = Random(SEED);
    let (mut decoded, mut keys) = (0, 0);
    for _ in 0..MUTATIONS {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            match random.below(4) {
                0 => bytes.truncate(random.below(bytes.len()) + 1),
                1 => {
                    let at = random.below(bytes.len());
                    bytes[at] = u8::try_from(random.below(256)).expect("a byte");
                }
                2 => bytes
                    .insert(random.below(bytes.len() + 1), u8::try_from(random.below(256)).expect("a byte")),
                _ => {
                    let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
                    let part = bytes[from.min(to)..from.max(to)].to_vec();
                    let at = random.below(bytes.len());
                    bytes.splice(at..at, part);
                }
            }
        }
        let own = codec::decode::<v1::BatchRequest>(Bytes::from(bytes.clone()));
        let prosts = v1::BatchRequest::decode(bytes.as_slice());
        match (own, prosts) {
            (Ok(own), Ok(prosts)) => {
                assert_eq!(own, prosts);
                decoded += 1;
                keys += translate(&own);
            }
            // The walk refuses more: groups, and what would become too much.
            (Err(_), _) => {}
            (Ok(own), Err(error)) => panic!("{own:?}: {error}"),
        }
    }
    assert!(decoded > 1_000 && keys > 1_000, "{decoded} decoded, {keys} keys");
}
