//! Aggregates, groups and joins: what a program computes from all documents, in any memory.

use std::collections::BTreeMap;

use duramen::Code;
use duramen::find::{Aggregate, Condition, Join, OrderBy, SORT_BYTES_MIN};
use duramen::prelude::*;
use duramen_disk::memory::Random;

fn sales(count: u64, groups: usize, seed: u64) -> (Db, Documents) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("sales").key(["id"]).column("town", ColumnType::Text);
    let schema = schema.column("n", ColumnType::Int).column("price", ColumnType::Float);
    let sales = db.ensure(&schema).unwrap();
    db.transact(|tx| {
        let sales = tx.documents("sales");
        (0..count).try_for_each(|id| {
            let n = i64::try_from(random.below(200)).unwrap() - 100;
            let town = (random.below(9) > 0).then(|| format!("town {:05}", random.below(groups)));
            #[allow(clippy::cast_precision_loss)]
            let price = (random.below(5) > 0).then_some(n as f64 / 10.0);
            sales.put(doc! { "id": id, "town": town, "n": (n != 7).then_some(n), "price": price })
        })
    })
    .unwrap();
    (db, sales)
}

fn all_aggregates() -> Vec<Aggregate> {
    vec![
        Aggregate::count(),
        Aggregate::sum("n"),
        Aggregate::mean("n"),
        Aggregate::min("n"),
        Aggregate::max("price"),
        Aggregate::distinct("n"),
        Aggregate::quantile("n", 0.5),
        Aggregate::quantile("n", 0.9),
        Aggregate::distinct("price"),
        Aggregate::quantile("price", 0.25),
    ]
}

fn int(value: Option<&Value>) -> Option<i128> {
    match value {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

fn float(value: Option<&Value>) -> Option<f64> {
    match value {
        Some(Value::Float(value)) => Some(*value),
        _ => None,
    }
}

/// The aggregates of some documents, computed from lists of their values.
fn expected(documents: &[Document]) -> Vec<Value> {
    let mut ints: Vec<i128> = documents.iter().filter_map(|document| int(document.get("n"))).collect();
    let mut prices: Vec<f64> = documents.iter().filter_map(|document| float(document.get("price"))).collect();
    ints.sort_unstable();
    prices.sort_by(f64::total_cmp);
    let rank = |part: usize, of: usize| (part * of).div_ceil(100).max(1) - 1;
    let at = |part: usize| ints.get(rank(part, ints.len())).map_or(Value::Null, |value| Value::Int(*value));
    let sum: i128 = ints.iter().sum();
    #[allow(clippy::cast_precision_loss)]
    let mean = (!ints.is_empty()).then(|| sum as f64 / ints.len() as f64);
    let (mut different, mut different_prices) = (ints.clone(), prices.clone());
    different.dedup();
    different_prices.dedup();
    vec![
        Value::from(documents.len() as u64),
        if ints.is_empty() { Value::Null } else { Value::Int(sum) },
        Value::from(mean),
        ints.first().map_or(Value::Null, |value| Value::Int(*value)),
        Value::from(prices.last().copied()),
        Value::from(different.len() as u64),
        at(50),
        at(90),
        Value::from(different_prices.len() as u64),
        Value::from(prices.get(rank(25, prices.len())).copied()),
    ]
}

fn groups_of(sales: &Documents) -> BTreeMap<Option<String>, Vec<Document>> {
    let mut groups: BTreeMap<Option<String>, Vec<Document>> = BTreeMap::new();
    for document in sales.scan(Span::all()).unwrap().map(Result::unwrap) {
        let town = match document.get("town") {
            Some(Value::Text(town)) => Some(town.clone()),
            _ => None,
        };
        groups.entry(town).or_default().push(document);
    }
    groups
}

/// Groups and values of more than the memory: the states and the values go to a temporary file.
#[test]
fn groups_are_those_of_a_program_in_any_memory() {
    for (count, groups, memory) in [(500, 7, None), (20_000, 6_000, Some(SORT_BYTES_MIN)), (0, 1, None)] {
        let (_db, sales) = sales(count, groups, 1);
        let find = sales.find([]);
        let find = memory.map_or(find.clone(), |bytes| find.memory_bytes(bytes));
        let found =
            find.group_by(["town"], all_aggregates()).iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
        let wanted = groups_of(&sales);
        assert_eq!(found.len(), wanted.len());
        for (found, (town, documents)) in found.iter().zip(&wanted) {
            let values: Vec<Value> = found.iter().map(|(_, value)| value.clone()).collect();
            assert_eq!(values[0], Value::from(town.clone()));
            assert_eq!(values[1..], expected(documents), "{town:?}");
        }
        let whole = find.aggregate(all_aggregates()).unwrap();
        let all: Vec<Document> = wanted.into_values().flatten().collect();
        assert_eq!(whole.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(), expected(&all));
    }
}

#[test]
fn groups_are_ordered_and_limited_by_their_results() {
    let (_db, sales) = sales(500, 7, 2);
    let grouped = sales.find([]).group_by(["town"], [Aggregate::count(), Aggregate::sum("n").named("total")]);
    let all = grouped.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
    let mut wanted = all.clone();
    wanted.sort_by_key(|group| (int(group.get("total")), int(group.get("count"))));
    wanted.reverse();
    let ordered = grouped.order_by(["total", "count"].map(OrderBy::descending)).limit(3);
    assert_eq!(ordered.iter().unwrap().collect::<Result<Vec<_>>>().unwrap(), wanted[..3]);
    assert_eq!(grouped.limit(2).iter().unwrap().collect::<Result<Vec<_>>>().unwrap(), all[..2]);
}

#[test]
fn numbers_at_the_edges_are_summed_exactly() {
    let db = Db::in_memory().unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"]).column("any", ColumnType::Any)).unwrap();
    let check = |values: &[Value], sum: Value, mean: Value, max: Value| {
        (0..3).for_each(|id| assert!(rows.delete(id).is_ok()));
        for (id, value) in values.iter().enumerate() {
            rows.put(doc! { "id": id as u64, "any": value.clone() }).unwrap();
        }
        let aggregates = [Aggregate::sum("any"), Aggregate::mean("any"), Aggregate::max("any")];
        let found = rows.find([]).aggregate(aggregates).unwrap();
        assert_eq!(found, doc! { "sum_any": sum, "mean_any": mean, "max_any": max }, "{values:?}");
    };
    let (min, max) = (Value::from(i64::MIN), Value::from(u64::MAX));
    check(&[], Value::Null, Value::Null, Value::Null);
    check(&[Value::Null], Value::Null, Value::Null, Value::Null);
    check(
        &[max.clone(), min.clone()],
        Value::Int((1 << 63) - 1),
        Value::Float(2.0_f64.powi(62)),
        max.clone(),
    );
    check(&[1e16.into(), 1.0.into(), (-1e16).into()], 1.0.into(), (1.0 / 3.0).into(), 1e16.into());
    check(&[2.into(), 0.5.into()], 2.5.into(), 1.25.into(), 2.into());
    check(&[0.0.into(), (-0.0).into()], 0.0.into(), 0.0.into(), 0.0.into());
    (0..3).for_each(|id| assert!(rows.delete(id).is_ok()));
    (0..2).for_each(|id| rows.put(doc! { "id": id, "any": u64::MAX }).map(drop).unwrap());
    let error = rows.find([]).aggregate([Aggregate::sum("any")]).unwrap_err();
    assert!(error.message().contains("36893488147419103230, which no integer of 64 bits holds"), "{error}");
    rows.put(doc! { "id": 1, "any": "five" }).unwrap();
    let error = rows.find([]).aggregate([Aggregate::sum("any")]).unwrap_err();
    assert!(error.message().contains("the field any holds text in a document"), "{error}");
    let most = rows.find([]).aggregate([Aggregate::max("any"), Aggregate::quantile("any", 0.0)]).unwrap();
    assert_eq!(most, doc! { "max_any": max, "q0_any": "five" });
}

#[test]
fn items_of_lists_are_aggregated_one_by_one() {
    let db = Db::in_memory().unwrap();
    let orders = db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    let line = |price: i64| Value::Map(doc! { "price": price });
    orders.put(doc! { "id": 1, "lines": vec![line(3), line(4)] }).unwrap();
    orders.put(doc! { "id": 2, "lines": vec![line(4)] }).unwrap();
    orders.put(doc! { "id": 3 }).unwrap();
    let aggregates = [
        Aggregate::count(),
        Aggregate::sum("lines[].price").named("sum"),
        Aggregate::distinct("lines[].price").named("prices"),
        Aggregate::max("lines[0].price").named("first"),
    ];
    let found = orders.find([]).aggregate(aggregates).unwrap();
    assert_eq!(found, doc! { "count": 3, "sum": 11, "prices": 2, "first": 4 });
}

fn shop() -> Db {
    let db = Db::in_memory().unwrap();
    let towns = db.ensure(&Schema::new("towns").key(["country", "name"])).unwrap();
    towns.put(doc! { "country": "NO", "name": "Oslo", "people": 700, "mayor": 1 }).unwrap();
    towns.put(doc! { "country": "NO", "name": "Voss", "people": 15 }).unwrap();
    let people = db.ensure(&Schema::new("people").key(["id"])).unwrap();
    people.put(doc! { "id": 1, "name": "Anne" }).unwrap();
    let orders = db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    for (id, country, town) in [
        (1, Some("NO"), "Oslo"),
        (2, Some("NO"), "Voss"),
        (3, Some("SE"), "Oslo"),
        (4, None, "Oslo"),
        (5, Some("NO"), "Oslo"),
    ] {
        orders.put(doc! { "id": id, "country": country, "town": town, "long": "x".repeat(2_000) }).unwrap();
    }
    db
}

#[test]
fn a_join_gets_the_document_with_that_key() {
    let db = shop();
    let orders = db.documents("orders");
    let ids = |find: &duramen::find::Find<'_>| -> Vec<i128> {
        find.fields(["id"]).iter().unwrap().map(|found| int(found.unwrap().get("id")).unwrap()).collect()
    };
    let inner = orders.find([]).join(Join::inner("towns", ["country", "town"]));
    let left = orders.find([]).join(Join::left("towns", ["country", "town"]).named("to"));
    assert_eq!((ids(&inner), inner.count().unwrap()), (vec![1, 2, 5], 3));
    assert_eq!((ids(&left), left.count().unwrap()), (vec![1, 2, 3, 4, 5], 5));
    let is_large = Condition::parse(&inner.schema().unwrap(), "towns.people>=100").unwrap();
    assert_eq!(ids(&inner.and([is_large])), [1, 5]);
    let is_unknown = Condition::parse(&left.schema().unwrap(), "to is null").unwrap();
    assert_eq!(ids(&left.and([is_unknown])), [3, 4]);
    let by_people = inner.order_by([OrderBy::ascending("towns.people"), OrderBy::descending("id")]).limit(2);
    assert_eq!(ids(&by_people), [2, 5]);
    let whole = inner.limit(1).iter().unwrap().next().unwrap().unwrap();
    let town = doc! { "country": "NO", "name": "Oslo", "people": 700, "mayor": 1 };
    assert_eq!(whole.get("towns"), Some(&Value::Map(town)));
    // A join by what a join found.
    let mayors = inner.join(Join::left("people", ["towns.mayor"])).fields(["id", "people.name"]);
    let found = mayors.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(found[0], doc! { "id": 1, "people.name": "Anne" });
    assert_eq!(found[1], doc! { "id": 2, "people.name": Value::Null });
    let grouped = inner.group_by(["towns.name"], [Aggregate::count(), Aggregate::sum("towns.people")]);
    let found = grouped.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(found[0], doc! { "towns.name": "Oslo", "count": 2, "sum_towns.people": 1_400 });
    // A key that is too long is no document's.
    assert_eq!(orders.find([]).join(Join::inner("towns", ["country", "long"])).count().unwrap(), 0);
}

#[test]
fn a_join_in_a_transaction_has_its_own_writes() {
    let db = shop();
    db.transact(|tx| {
        tx.documents("towns").put(doc! { "country": "SE", "name": "Oslo", "people": 1 })?;
        let orders = tx.documents("orders");
        assert_eq!(orders.find([]).join(Join::inner("towns", ["country", "town"])).count()?, 4);
        orders.put(doc! { "id": 9, "country": "SE", "town": "Oslo" })?;
        let grouped = orders.find([]).group_by(["country"], [Aggregate::count()]);
        let found = grouped.iter()?.collect::<Result<Vec<_>>>()?;
        assert_eq!(found.last(), Some(&doc! { "country": "SE", "count": 2 }));
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_could() {
    let db = shop();
    let orders = db.documents("orders");
    let find = orders.find([]);
    let check = |error: Error, code: Code, message: &str| {
        assert!(
            error.code() == code && error.message().contains(message) && !error.hint().is_empty(),
            "{error}"
        );
    };
    let join = |join: Join| find.join(join).iter().err().unwrap();
    check(join(Join::inner("nowhere", ["id"])), Code::NoSuchTree, "nowhere");
    check(join(Join::inner("towns", ["town"])), Code::InvalidArgument, "the key of towns is (country,name)");
    check(join(Join::inner("people", ["town"])), Code::InvalidArgument, "they never match");
    check(join(Join::inner("people", ["id"]).named("town")), Code::InvalidArgument, "has a field town");
    check(Join::parse("towns").unwrap_err(), Code::InvalidArgument, "is no join");
    let group = |field: &str, aggregate: Aggregate| find.group_by([field], [aggregate]).iter().err().unwrap();
    check(group("x", Aggregate::count()), Code::InvalidArgument, "orders has no field x");
    check(group("id", Aggregate::sum("town")), Code::InvalidArgument, "the field town is of type text");
    check(group("id", Aggregate::quantile("id", 1.5)), Code::InvalidArgument, "1.5 is no part");
    check(group("id", Aggregate::count().named("id")), Code::InvalidArgument, "two results are called id");
    check(find.limit(1).aggregate([Aggregate::count()]).unwrap_err(), Code::InvalidArgument, "limit");
}
