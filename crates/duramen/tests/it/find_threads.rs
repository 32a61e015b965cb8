//! Counts and groups that several threads read: the answers are those of one.

use std::sync::Arc;

use duramen::find::{Aggregate, Condition, Find, Join, Operator, SORT_BYTES_MIN, Step};
use duramen::prelude::*;
use duramen::view::{KeyField, ViewSpec};
use duramen::{Code, DbOptions};
use duramen_disk::MemDisk;
use duramen_disk::memory::Random;

/// Enough for eight ranges of a scan, and more than two calls for two threads read.
const COUNT: u64 = 36_000;

/// Towns with a view of them, among them documents of other shapes and a few that lack fields.
fn sales(seed: u64) -> (Db, Documents) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("sales").key(["id"]).column("town", ColumnType::Text);
    let schema = schema.column("n", ColumnType::Int).column("any", ColumnType::Any);
    let schema = schema.view(ViewSpec::new("by_town", ["town", "n"]));
    let schema = schema
        .view(ViewSpec::new("newest", [KeyField::field("n").descending()]))
        .column("tags", ColumnType::Any);
    let sales = db.ensure(&schema.view(ViewSpec::new("by_tag", ["tags"]).each())).unwrap();
    let towns = db.ensure(&Schema::new("towns").key(["name"])).unwrap();
    (0..4_000)
        .for_each(|at| towns.put(doc! { "name": format!("town {at:05}"), "size": at }).map(drop).unwrap());
    db.transact(|tx| {
        let sales = tx.documents("sales");
        (0..COUNT).try_for_each(|id| {
            let n = i64::try_from(random.below(2_000)).unwrap() - 1_000;
            #[allow(clippy::cast_precision_loss)]
            let any = match random.below(4) {
                0 => Value::from(n),
                1 => Value::from(n as f64 / 7.0),
                2 => Value::from(1e18 * n as f64),
                _ => Value::Null,
            };
            let tags: Vec<Value> = (0..random.below(3)).map(|at| Value::from(at as u64)).collect();
            let mut document = doc! { "id": id, "n": n, "any": any, "tags": tags };
            if random.below(50) > 0 {
                document.set("town", format!("town {:05}", random.below(5_000)));
            }
            if random.below(9) == 0 {
                document.set(format!("more {}", random.below(5)), vec![Value::from(1)]);
            }
            sales.put(document)
        })
    })
    .unwrap();
    (db, sales)
}

fn aggregates() -> [Aggregate; 6] {
    [
        Aggregate::count(),
        Aggregate::sum("n"),
        Aggregate::sum("any"),
        Aggregate::mean("any"),
        Aggregate::min("any"),
        Aggregate::max("n"),
    ]
}

/// All groups, with the number of documents that were read.
fn groups(find: &Find<'_>, fields: &[&str]) -> (Vec<Document>, u64) {
    let mut iter = find.group_by(fields.iter().copied(), aggregates()).iter().unwrap();
    let found = iter.by_ref().collect::<Result<Vec<_>>>().unwrap();
    (found, iter.read_count())
}

#[test]
fn threads_find_what_one_finds() {
    let (_db, sales) = sales(1);
    let schema = sales.schema().unwrap();
    let when =
        |text: &str| Condition::any(text.split(" or ").map(|one| Condition::parse(&schema, one).unwrap()));
    let all = sales.find([]);
    let finds = [
        all.clone(),
        sales.find([when("id<12000 or id>=20000 or id=15000")]),
        all.range(Span::between(2_000_u64, 34_000_u64).unwrap()).and([when("id<13000 or id>=15000")]),
        sales.find([when("town<town 02000 or town>=town 02500")]),
        all.view("newest"),
        all.view("by_tag"),
        all.view("by_tag").reverse(),
        sales.find([when("n>=-100")]),
        sales.find([when("n<0"), when("any is not null")]),
        sales.find([when("id in 5,17,20000")]),
        all.range(Span::between(1_000_u64, 30_000_u64).unwrap()).reverse(),
        sales.find([when("any>=0")]).view("by_town"),
        all.view("by_town").range(Span::from("town 01000").unwrap()),
        all.join(Join::inner("towns", ["town"])),
    ];
    for (at, find) in finds.iter().enumerate() {
        let plan = find.plan().unwrap();
        assert!(plan.read_count > 8_192 || at == 9, "{at}: {}", plan.path_shown());
        for (fields, threads) in [(&[] as &[&str], 2), (&["town"], 7)] {
            assert_eq!(groups(&find.threads(threads), fields), groups(find, fields), "{at}: {fields:?}");
        }
        let count = find.iter().unwrap().count() as u64;
        assert_eq!((find.count().unwrap(), find.threads(1_000).count().unwrap()), (count, count), "{at}");
        assert_eq!(find.limit(10).threads(2).count().unwrap(), count.min(10), "{at}");
    }
}

/// More groups than the memory of any thread holds.
#[test]
fn groups_of_threads_go_to_temporary_files() {
    let (_db, sales) = sales(6);
    let find = sales.find([]).memory_bytes(12 * SORT_BYTES_MIN);
    assert_eq!(find.threads(3).group_by(["any"], []).iter().unwrap().threads(), 3);
    assert_eq!(find.threads(32).group_by(["any"], []).iter().unwrap().threads(), 3);
    assert_eq!(groups(&find.threads(3), &["any", "n"]), groups(&find, &["any", "n"]));
}

#[test]
fn distinct_numbers_and_quantiles_do_not_depend_on_threads() {
    let (_db, sales) = sales(2);
    let aggregates = [Aggregate::distinct("any"), Aggregate::quantile("n", 0.5), Aggregate::sum("n")];
    let find = sales.find([]);
    let two = find.threads(2).aggregate(aggregates.clone()).unwrap();
    assert_eq!(two, find.aggregate(aggregates).unwrap());
}

#[test]
fn a_call_reads_as_much_as_it_may() {
    let (_db, sales) = sales(3);
    let mut iter =
        sales.find([]).threads(2).group_by([] as [&str; 0], [Aggregate::max("id")]).iter().unwrap();
    assert_eq!((iter.threads(), iter.next_within(0).unwrap()), (2, Step::Unfinished));
    for read_count in [10, 8_202, 16_394] {
        let more = read_count - iter.read_count();
        assert_eq!(iter.next_within(more).unwrap(), Step::Unfinished);
        assert_eq!(iter.read_count(), read_count);
    }
    assert_eq!(iter.next().unwrap().unwrap(), doc! { "max_id": COUNT - 1 });
    assert_eq!(iter.read_count(), COUNT);
    assert_eq!(iter.next_within(1).unwrap(), Step::End);
}

#[test]
fn a_transaction_reads_its_own_writes_whatever_the_threads() {
    let (db, sales) = sales(4);
    let before = sales.find([]).threads(2).count().unwrap();
    db.transact(|tx| {
        let sales = tx.documents("sales");
        sales.put(doc! { "id": COUNT, "n": 5_000 })?;
        let found = sales.find([]).threads(2).aggregate([Aggregate::count(), Aggregate::max("n")])?;
        assert_eq!(found, doc! { "count": before + 1, "max_n": 5_000 });
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_error_of_any_thread_is_the_answer() {
    let (_db, sales) = sales(5);
    let find = sales.find([]).threads(3);
    for id in [0, COUNT / 2, COUNT - 1] {
        let before = sales.get(id).unwrap().unwrap();
        sales.put(doc! { "id": id, "n": 1, "any": "text" }).unwrap();
        let error = find.aggregate([Aggregate::sum("any")]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        sales.put(before).unwrap();
    }
    for id in [0, COUNT / 2, COUNT - 1] {
        sales.put(doc! { "id": id, "n": 1, "any": "text" }).unwrap();
    }
    for find in [find.threads(1), find] {
        let mut groups = find.group_by([] as [&str; 0], [Aggregate::sum("any")]).iter().unwrap();
        assert_eq!(groups.next().unwrap().unwrap_err().code(), Code::InvalidArgument);
        assert!(groups.next().is_none(), "what was read is not complete");
    }
}

/// Groups after one whose sum is beyond 64 bits would lack what was not read of that one.
#[test]
fn an_error_of_a_group_ends_the_groups() {
    let db = Db::in_memory().unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"]).column("n", ColumnType::Any)).unwrap();
    for (id, group, n) in [(1, 1, u64::MAX), (2, 1, u64::MAX), (3, 2, 5)] {
        rows.put(doc! { "id": id, "group": group, "n": n }).unwrap();
    }
    let mut groups =
        rows.find([]).group_by(["group"], [Aggregate::sum("n"), Aggregate::distinct("n")]).iter().unwrap();
    assert!(groups.next().unwrap().unwrap_err().message().contains("which no integer of 64 bits holds"));
    assert!(groups.next().is_none());
}

/// Such a value is in no row of the view, and documents without a row in it may have it.
#[test]
fn a_count_by_a_value_too_long_for_a_view_reads_documents() {
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("rows").key(["id"]).column("t", ColumnType::Text);
    let rows = db.ensure(&schema.view(ViewSpec::new("by_t", ["t", "u"]))).unwrap();
    let long = "x".repeat(1_100);
    rows.put(doc! { "id": 1, "t": long.clone() }).unwrap();
    rows.put(doc! { "id": 2, "t": "short", "u": 1 }).unwrap();
    let equal = Condition::new(&rows.schema().unwrap(), "t", Operator::Equal, long).unwrap();
    let find = rows.find([equal]);
    assert_eq!((find.iter().unwrap().count(), find.count().unwrap()), (1, 1));
}

#[test]
fn one_thread_reads_where_nothing_can_be_spilled() {
    let disk = Arc::new(MemDisk::new(1));
    let threads = |options: DbOptions| {
        let db = options.open_on(Arc::clone(&disk) as _, "/db").unwrap();
        let rows = db.documents("rows");
        let groups = rows.find([]).threads(2).group_by([] as [&str; 0], [Aggregate::max("id")]);
        groups.iter().unwrap().threads()
    };
    let db = Db::options().open_on(Arc::clone(&disk) as _, "/db").unwrap();
    db.ensure(&Schema::new("rows").key(["id"])).unwrap();
    db.transact(|tx| (0..9_000).try_for_each(|id| tx.documents("rows").put(doc! { "id": id }))).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(threads(Db::options()), 2);
    assert_eq!(threads(Db::options().read_only(true)), 1);
    assert_eq!(threads(Db::options().read_only(true).spill_dir("/tmp")), 2);
}
