//! Conditions, sums and groups on documents as they are stored give the same answers as on documents.
//!
//! A condition also has [`Condition::holds`], and a query with a part of a field goes through documents.

use std::collections::BTreeSet;

use duramen::Time;
use duramen::find::{Aggregate, Condition, Operator};
use duramen::prelude::*;
use duramen_disk::memory::Random;

/// Values of every kind, with those that compare oddly.
fn values() -> Vec<Value> {
    let list = |items: &[Value]| Value::List(items.to_vec());
    vec![
        Value::Null,
        Value::Bool(false),
        Value::Bool(true),
        Value::Int(0),
        Value::Int(-1),
        Value::Int(300),
        Value::Int(i128::from(u64::MAX)),
        Value::Int(i128::from(i64::MIN)),
        Value::Float(-0.0),
        Value::Float(0.0),
        Value::Float(300.0),
        Value::Float(f64::NAN),
        Value::Float(f64::NEG_INFINITY),
        Value::from(""),
        Value::from("Oslo"),
        Value::from("Oslø and a text of more than thirty-one bytes"),
        Value::Bytes(vec![0, 0xff]),
        Value::Time(Time::parse("2013-01-01T10:00:00Z").unwrap()),
        Value::Time(Time::parse("2013-01-01T10:00:00.5Z").unwrap()),
        list(&[]),
        list(&[Value::Int(300), Value::from("Oslo")]),
        Value::Map(doc! { "n": 300 }),
    ]
}

fn drawn(random: &mut Random) -> Value {
    let values = values();
    values[random.below(values.len())].clone()
}

/// Documents of several shapes, some with lists and maps.
fn things(random: &mut Random) -> Documents {
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("things").key(["id"]).column("n", ColumnType::Int).column("a", ColumnType::Any);
    let things = db.ensure(&schema.column("b", ColumnType::Any).column("c", ColumnType::Any)).unwrap();
    for id in 0..600 {
        let mut thing = doc! { "id": id };
        for name in ["a", "c", "b"] {
            if random.below(4) > 0 {
                thing.set(name, drawn(random));
            }
        }
        if random.below(3) > 0 {
            thing.set("n", i64::try_from(random.below(50)).unwrap() - 25);
        }
        things.put(thing).unwrap();
    }
    things
}

fn condition(schema: &Schema, random: &mut Random) -> Option<Condition> {
    let field = ["a", "b", "c", "n", "id"][random.below(5)];
    let operators = [
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
    ];
    match random.below(6) {
        0 => Condition::is_in(schema, field, [drawn(random), drawn(random), drawn(random)]).ok(),
        1 => Condition::contains(schema, field, drawn(random)).ok(),
        2 => Condition::starts_with(schema, field, "Os").ok(),
        _ => Condition::new(schema, field, operators[random.below(6)], drawn(random)).ok(),
    }
}

fn ids(documents: impl Iterator<Item = Document>) -> BTreeSet<String> {
    documents.map(|document| format!("{:?}", document.get("id"))).collect()
}

#[test]
fn conditions_hold_for_the_same_documents() {
    let seed = 0x5ca1e;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let things = things(&mut random);
    let schema = things.schema().unwrap();
    let all: Vec<Document> = things.find([]).iter().unwrap().collect::<Result<_>>().unwrap();
    let (mut some, mut none) = (0, 0);
    for _ in 0..1500 {
        let conditions: Vec<Condition> =
            (0..1 + random.below(3)).filter_map(|_| condition(&schema, &mut random)).collect();
        let holds = |document: &&Document| conditions.iter().all(|own| own.holds(&schema, document));
        let wanted = ids(all.iter().filter(holds).cloned());
        let found = things.find(conditions.clone());
        let read = found.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(ids(read.into_iter()), wanted, "{conditions:?}");
        assert_eq!(found.count().unwrap(), wanted.len() as u64, "{conditions:?}");
        if wanted.is_empty() { none += 1 } else { some += 1 }
    }
    assert!(some > 300 && none > 50, "{some} queries find something, {none} find nothing");
}

#[test]
fn groups_have_the_same_aggregates() {
    let seed = 0x6a0b5;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let things = things(&mut random);
    let aggregates = || {
        vec![
            Aggregate::count(),
            Aggregate::sum("n"),
            Aggregate::mean("n"),
            Aggregate::min("a"),
            Aggregate::max("b"),
            Aggregate::distinct("a"),
            Aggregate::quantile("c", 0.5),
        ]
    };
    for fields in [&[][..], &["a"], &["b", "a"], &["n", "c"]] {
        let groups = |aggregates: Vec<Aggregate>| {
            let groups = things.find([]).group_by(fields.iter().copied(), aggregates);
            groups.iter().unwrap().collect::<Result<Vec<_>>>().unwrap()
        };
        // A part of a field is not read where it is stored.
        let mut with_part = aggregates();
        with_part.push(Aggregate::min("c[0]").named("part"));
        let mut long_way = groups(with_part);
        long_way.iter_mut().for_each(|group| drop(group.remove("part")));
        let shown =
            |groups: Vec<Document>| groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>();
        assert_eq!(shown(groups(aggregates())), shown(long_way), "by {fields:?}");
    }
}
