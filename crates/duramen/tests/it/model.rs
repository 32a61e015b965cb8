//! Random work on a collection against a sorted map, across reopenings: every answer is the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Direction, MemDisk};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Put { town: String, id: i64, cents: Option<i64> },
    Delete { town: String, id: i64 },
    DeleteTown(String),
    Reopen,
    Compare,
}

fn step() -> impl Strategy<Value = Step> {
    let town = prop::sample::select(vec!["", "A", "A\0", "AB", "B"]).prop_map(str::to_owned);
    let id = prop_oneof![-3_i64..40, any::<i64>()];
    prop_oneof![
        12 => (town.clone(), id.clone(), any::<Option<i64>>()).prop_map(|(town, id, cents)| Step::Put { town, id, cents }),
        4 => (town.clone(), id).prop_map(|(town, id)| Step::Delete { town, id }),
        1 => town.prop_map(Step::DeleteTown),
        1 => Just(Step::Reopen),
        2 => Just(Step::Compare),
    ]
}

type Model = BTreeMap<(String, i64), Option<i64>>;

fn compare(db: &Db, model: &Model) {
    let rows = db.documents("rows");
    let keys: Vec<&(String, i64)> = model.keys().collect();
    for (index, (town, id)) in keys.iter().enumerate() {
        assert_eq!(rows.rank((town, *id)).unwrap(), index as u64);
        let found = rows.nth(index as u64).unwrap().unwrap();
        assert_eq!(
            (found.get("town"), found.get("id")),
            (Some(&Value::from(town.as_str())), Some(&Value::from(*id)))
        );
    }
    for town in ["", "A", "A\0", "AB", "B", "C"] {
        let own: Vec<Option<i64>> =
            model.iter().filter(|((of, _), _)| of == town).map(|(_, cents)| *cents).collect();
        let found = rows.reduce(Span::prefix(town).unwrap()).unwrap();
        assert_eq!(found.count(), own.len() as u64);
        assert_eq!(found.sum("cents"), Some(own.iter().flatten().map(|cents| i128::from(*cents)).sum()));
        assert_eq!(found.nulls("cents"), Some(own.iter().filter(|cents| cents.is_none()).count() as u64));
    }
    let snapshot = db.snapshot().unwrap();
    let mut reversed = snapshot.documents("rows").rows(Span::all(), Direction::Reverse).unwrap();
    for (town, id) in keys.iter().rev() {
        let (key, stored) = reversed.next().unwrap().unwrap();
        assert_eq!(key, duramen::tuple::encode(&(town, *id)).unwrap());
        assert_eq!(Document::from_bytes(stored).unwrap().get("id"), Some(&Value::from(*id)));
    }
    assert!(reversed.next().unwrap().is_none());
}

fn run(steps: &[Step]) {
    let disk = Arc::new(MemDisk::new(1));
    let open = || Db::options().open_on(disk.clone(), "/model").unwrap();
    let mut db = open();
    db.ensure(&Schema::new("rows").key(["town", "id"]).sum(["cents"])).unwrap();
    let mut model = Model::new();
    for step in steps {
        let rows = db.at(Durability::Memory).documents("rows");
        match step {
            Step::Put { town, id, cents } => {
                rows.put(doc! { "town": town.as_str(), "id": *id, "cents": *cents }).unwrap();
                model.insert((town.clone(), *id), *cents);
            }
            Step::Delete { town, id } => {
                let was = model.remove(&(town.clone(), *id)).is_some();
                assert_eq!(rows.delete((town, *id)).unwrap(), was);
            }
            Step::DeleteTown(town) => {
                let span = Span::prefix(town).unwrap();
                let deleted = db.transact(|tx| tx.documents("rows").delete_span(span.clone())).unwrap();
                let before = model.len();
                model.retain(|(of, _), _| of != town);
                assert_eq!(deleted, (before - model.len()) as u64);
            }
            Step::Reopen => {
                db.close().unwrap();
                drop(rows);
                drop(db);
                db = open();
            }
            Step::Compare => compare(&db, &model),
        }
    }
    compare(&db, &model);
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_answer_is_that_of_a_sorted_map(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}
