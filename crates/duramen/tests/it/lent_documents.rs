//! Documents whose memory is used again for the next one: scans, groups and `Rows::next_document`.

use std::sync::Arc;

use duramen::find::{Aggregate, Condition};
use duramen::prelude::*;
use duramen::{Direction, MemDisk};

use crate::golden::DATABASE;

/// Documents whose fields and their types change from one to the next, in every form: with names, of several
/// shapes, and with sums of shapes that are stored in another order than shown.
fn changing(db: &Db, sums: &[&str]) -> Vec<Document> {
    db.ensure(&Schema::new("sales").key(["id"]).sum(sums.to_vec()).column("any", ColumnType::Any)).unwrap();
    let documents: Vec<Document> = (0..60_i64)
        .map(|id| {
            let mut document = Document::new().with("id", id);
            let city = ["Oslo", "", "Bergen"][usize::try_from(id % 3).unwrap()];
            let any =
                [Value::from(id), format!("any {id}").into(), Value::Null, vec![Value::from("x")].into()];
            let fields: [(&str, Value); 4] = [
                ("city", city.into()),
                ("cents", if id % 5 == 0 { Value::Null } else { (id * 10).into() }),
                ("note", format!("note {id}").into()),
                ("any", any[usize::try_from(id % 4).unwrap()].clone()),
            ];
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if (id / 3) >> at & 1 == 0 {
                    document.set(name, value);
                }
            }
            document
        })
        .collect();
    db.transact(|tx| documents.iter().try_for_each(|document| tx.documents("sales").put(document.clone())))
        .unwrap();
    documents
}

// The memory of a document is used again for the next one: nothing of it may be left.
#[test]
fn a_document_has_nothing_of_the_one_before() {
    for sums in [&[][..], &["cents"]] {
        nothing_of_the_one_before(sums);
    }
}

fn nothing_of_the_one_before(sums: &[&str]) {
    let disk = MemDisk::new(1);
    // The first half keeps its names.
    let options = || Db::options().background(false);
    let open = |names| options().names_fields(names).open_on(Arc::new(disk.clone()), DATABASE).unwrap();
    let named = open(true);
    let wanted = changing(&named, sums);
    named.close().unwrap();
    drop(named);
    let db = open(false);
    db.transact(|tx| {
        wanted
            .iter()
            .enumerate()
            .filter(|(at, _)| *at > 20 && at % 7 > 0)
            .try_for_each(|(_, document)| tx.documents("sales").put(document.clone()))
    })
    .unwrap();
    let snapshot = db.snapshot().unwrap();
    let sales = snapshot.documents("sales");
    let all: Vec<Document> = sales.scan(Span::all()).unwrap().map(|document| document.unwrap()).collect();
    assert_eq!(all, wanted);
    let mut rows = sales.rows(Span::all(), Direction::Forward).unwrap();
    let (mut lent, mut same) = (Vec::new(), 0);
    while let Some(next) = rows.next_document().unwrap() {
        if next.has_same_fields {
            same += 1;
            let names =
                |document: &Document| document.iter().map(|field| field.0.to_owned()).collect::<Vec<_>>();
            assert_eq!(names(next.document), names(lent.last().unwrap()));
        }
        lent.push(next.document.clone());
    }
    assert_eq!(lent, wanted);
    assert!(same > 0, "some documents follow one of the same shape");
    for (name, value) in [("city", Value::from("Oslo")), ("city", "".into()), ("cents", 70.into())] {
        let schema = sales.schema().unwrap();
        let condition = Condition::is_in(&schema, name, [value.clone()]).unwrap();
        let found = sales.find([condition]).fields(["note", "cents", "id"]);
        let found: Vec<Document> = found.iter().unwrap().map(|document| document.unwrap()).collect();
        let with = wanted.iter().filter(|document| document.get(name) == Some(&value));
        let shown: Vec<Document> = with
            .map(|document| {
                ["note", "cents", "id"].iter().fold(Document::new(), |shown, field| {
                    shown.with(*field, document.get(field).cloned().unwrap_or_default())
                })
            })
            .collect();
        assert_eq!(found, shown, "{name} = {value}");
    }
    let groups = sales.find([]).group_by(["city"], [Aggregate::count(), Aggregate::max("note")]);
    for group in groups.iter().unwrap() {
        let group = group.unwrap();
        let city = group.get("city").unwrap();
        let of_it = || wanted.iter().filter(|document| document.get("city").unwrap_or(&Value::Null) == city);
        assert_eq!(group.get("count"), Some(&Value::from(of_it().count() as u64)), "{group}");
        let notes = of_it().filter_map(|document| document.get("note").cloned());
        let max = notes.max_by(|one, other| one.to_string().cmp(&other.to_string())).unwrap_or_default();
        assert_eq!(group.get("max_note"), Some(&max), "{group}");
    }
}

// What a query keeps for the next document of a shape is not that of a document with names.
#[test]
fn a_document_with_names_lies_between_two_of_a_shape() {
    let disk = MemDisk::new(1);
    let open = |names| {
        let options = Db::options().background(false).names_fields(names);
        options.open_on(Arc::new(disk.clone()), DATABASE).unwrap()
    };
    let put = |names, documents: &[Document]| {
        let db = open(names);
        db.ensure(&Schema::new("rows").key(["id"])).unwrap();
        let put = |document: &Document| db.documents("rows").put(document.clone()).map(drop);
        documents.iter().try_for_each(put).unwrap();
        db.close().unwrap();
    };
    put(false, &[doc! { "id": 1, "a": "one" }, doc! { "id": 3, "a": "three" }]);
    put(true, &[doc! { "id": 2, "b": "two" }]);
    let db = open(false);
    let rows = db.documents("rows");
    let shown: Vec<Document> = rows.find([]).fields(["a", "b"]).iter().unwrap().map(Result::unwrap).collect();
    let none = Value::Null;
    let wanted = [("one".into(), none.clone()), (none.clone(), "two".into()), ("three".into(), none)];
    assert_eq!(shown, wanted.map(|(a, b): (Value, Value)| doc! { "a": a, "b": b }));
    let snapshot = db.snapshot().unwrap();
    let mut rows = snapshot.documents("rows").rows(Span::all(), Direction::Forward).unwrap();
    assert!(!rows.next_document().unwrap().unwrap().has_same_fields);
    rows.next().unwrap();
    assert!(!rows.next_document().unwrap().unwrap().has_same_fields, "the one before has others");
}
