//! Everything that a server does with the bytes of a message before a transaction or a snapshot has it, and
//! what must hold of it. `fuzz/fuzz_targets/wire.rs` runs this, too.

use std::fmt::Debug;
use std::sync::LazyLock;

use bytes::Bytes;
use duramen::ViewSpec;
use duramen::prelude::*;
use duramen_proto::{codec, collection, document, key, query, v1, view};
use prost::{Message, Name};

/// What a run has come to: that it decoded, and how many keys, queries and views it held that are good ones.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) decoded: bool,
    pub(crate) keys: usize,
    pub(crate) queries: usize,
    pub(crate) views: usize,
}

/// Where queries are planned.
static DB: LazyLock<Db> = LazyLock::new(|| {
    let db = Db::in_memory().expect("a database");
    let orders = db.ensure(&Schema::new("orders").key(["id"])).expect("a collection");
    orders.put(doc! { "id": 1, "cents": 7, "lines": vec![Value::Map(doc! { "n": 1 })] }).expect("stored");
    orders.add_view(ViewSpec::new("by", ["cents"])).expect("added");
    orders.build_views(|_| Ok(())).expect("built");
    db
});

/// Runs one input: the first byte says which message the rest is.
pub(crate) fn run(input: &[u8]) -> Ran {
    let Some((which, bytes)) = input.split_first() else { return Ran::default() };
    match which % 4 {
        0 => decoded::<v1::BatchRequest>(bytes).map_or_else(Ran::default, |batch| of_batch(&batch)),
        1 => decoded::<v1::ReadRequest>(bytes).map_or_else(Ran::default, |request| of_reads(&request.reads)),
        2 => decoded::<v1::ScanRequest>(bytes).map_or_else(Ran::default, |scan| of_scan(&scan)),
        _ => decoded::<v1::AddViewRequest>(bytes).map_or_else(Ran::default, |add| of_view(&add)),
    }
}

/// The message, if it is one. What is decoded is what prost decodes; what is refused may only be too much.
fn decoded<M: Message + Name + Default + Debug + PartialEq>(bytes: &[u8]) -> Option<M> {
    let own = codec::decode::<M>(Bytes::copy_from_slice(bytes)).ok()?;
    match M::decode(bytes) {
        Ok(prosts) => assert_eq!(own, prosts),
        Err(error) => panic!("{own:?}: {error}"),
    }
    Some(own)
}

fn of_batch(batch: &v1::BatchRequest) -> Ran {
    use v1::{condition, operation};
    let mut ran = of_reads(&batch.reads);
    for condition in &batch.conditions {
        if let Some(condition::Kind::KeyValueIs(is)) = &condition.kind {
            ran.keys += usize::from(is_key(is.key.as_ref()));
            drop(document::required_value(is.value.as_ref()));
        }
    }
    let mut documents = Vec::new();
    for operation in &batch.operations {
        match &operation.kind {
            Some(operation::Kind::Put(put) | operation::Kind::Insert(put)) => {
                documents.extend(put.document.clone());
            }
            Some(operation::Kind::Delete(of)) => ran.keys += usize::from(is_key(of.key.as_ref())),
            Some(operation::Kind::DeleteRange(of)) => check_range(of.range.as_ref()),
            Some(operation::Kind::Ensure(asked)) => check_collection(asked),
            _ => {}
        }
    }
    if document::parts_of(batch).is_ok() {
        for found in documents.iter().filter_map(|found| document::required(Some(found)).ok()) {
            let again = document::of(&found, v1::DocumentForm::Msgpack).expect("it was a document");
            assert_eq!(document::required(Some(&again)).expect("it was a document"), found);
        }
    }
    ran
}

fn of_reads(reads: &[v1::Read]) -> Ran {
    use v1::read::Kind;
    let mut ran = Ran { decoded: true, ..Ran::default() };
    for read in reads {
        match &read.kind {
            Some(Kind::Count(of) | Kind::Reduce(of)) => check_range(of.range.as_ref()),
            Some(Kind::Get(of) | Kind::Rank(of)) => ran.keys += usize::from(is_key(of.key.as_ref())),
            Some(Kind::Find(find) | Kind::Explain(find)) => ran.queries += usize::from(is_query(find)),
            _ => {}
        }
    }
    ran
}

fn of_scan(scan: &v1::ScanRequest) -> Ran {
    check_range(scan.range.as_ref());
    let queries = usize::from(scan.find.as_ref().is_some_and(is_query));
    Ran { decoded: true, queries, ..Ran::default() }
}

fn of_view(add: &v1::AddViewRequest) -> Ran {
    let Ok(spec) = view::required(add.view.as_ref()) else { return Ran { decoded: true, ..Ran::default() } };
    let again = view::of(&spec).expect("it has no code");
    assert_eq!(view::required(Some(&again)).expect("it was a view"), spec);
    Ran { decoded: true, views: 1, ..Ran::default() }
}

/// Whether it is a key. One that is becomes the same message again.
fn is_key(message: Option<&v1::Key>) -> bool {
    let Some(Ok(elements)) = message.map(key::elements) else { return false };
    assert_eq!(key::elements(&key::of(&elements)).expect("it was a key"), elements);
    true
}

/// A collection that can be created becomes the same message again, but for columns that are named twice.
fn check_collection(asked: &v1::EnsureCollection) {
    let Ok(schema) = collection::asked(asked) else { return };
    drop(schema.validate());
    let again = collection::ensure(&schema);
    assert!(again.columns.len() <= asked.columns.len());
    assert_eq!(collection::asked(&again).expect("it was one"), schema);
}

fn check_range(message: Option<&v1::Range>) {
    if let Ok(span) = key::span(message) {
        let again = key::span(Some(&key::of_span(span.clone()))).expect("it was a range");
        assert_eq!(again.into_bytes(), span.into_bytes());
    }
}

/// Whether it is a query that can be planned. The plan becomes the same one again.
fn is_query(find: &v1::Find) -> bool {
    let snapshot = DB.snapshot().expect("a snapshot");
    let planned = || -> duramen::Result<duramen::find::FindPlan> {
        let found = query::find(&snapshot, find)?;
        match query::grouped(&found, find)? {
            Some(grouped) => grouped.plan(),
            None => found.plan(),
        }
    };
    let Ok(plan) = planned() else { return false };
    let schema = query::joined(&snapshot, find).and_then(|find| find.schema()).expect("it was planned");
    let message = query::of_plan(&plan, &schema, 0).expect("a message");
    let again = query::plan(&message, find).expect("it was a plan");
    assert_eq!(
        (&again.path, again.read_count, again.conditions),
        (&plan.path, plan.read_count, plan.conditions)
    );
    true
}
