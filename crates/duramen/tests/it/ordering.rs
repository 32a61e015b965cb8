//! Orders, limits and fields of a find: what a sort of everything in memory gives, however it is made.

use std::cmp::Ordering;
use std::sync::Arc;

use duramen::find::{Condition, Find, OrderBy, SORT_BYTES_MIN, Sorting};
use duramen::prelude::*;
use duramen::view::ViewSpec;
use duramen::{Code, MemDisk};
use duramen_disk::memory::Random;

/// Documents under `id` with few values each, in columns with and without types.
fn numbers(count: u64, seed: u64) -> (Db, Documents) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("numbers")
        .key(["group", "id"])
        .column("any", ColumnType::Any)
        .column("in", ColumnType::Any)
        .view(ViewSpec::new("by_n", ["n"]))
        .view(ViewSpec::new("by_town", ["town", "n"]))
        .view(ViewSpec::new("by_rare", ["rare"]));
    let numbers = db.ensure(&schema).unwrap();
    db.transact(|tx| {
        let numbers = tx.documents("numbers");
        (0..count).try_for_each(|id| {
            let mut of = |below: usize| random.below(below);
            let n = i64::try_from(of(9)).unwrap() - 4;
            let any = match of(6) {
                0 => Value::from(n),
                1 => Value::from(if n == 0 { -0.0 } else { 0.5 }),
                2 => Value::from("x"),
                3 => Value::from(i64::MIN),
                4 => Value::from(u64::MAX),
                _ => Value::Null,
            };
            numbers.put(doc! {
                "group": id % 3, "id": id, "n": n, "town": ["Oslo", "Voss", "Bergen"][of(3)],
                "rare": (of(4) == 0).then_some(n), "any": any.clone(), "in": Value::Map(doc! { "x": any }),
                "text": "t".repeat(of(150)),
            })
        })
    })
    .unwrap();
    (db, numbers)
}

fn rank(value: &Value) -> (u8, f64, &str) {
    match value {
        Value::Null => (0, 0.0, ""),
        Value::Text(text) => (1, 0.0, text),
        #[allow(clippy::cast_precision_loss)]
        Value::Int(value) => (2, *value as f64, ""),
        Value::Float(value) => (2, *value, ""),
        other => panic!("{other:?}"),
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    let ((kind, number, text), (other_kind, other_number, other_text)) = (rank(one), rank(other));
    kind.cmp(&other_kind).then(number.total_cmp(&other_number)).then(text.cmp(other_text))
}

fn at<'d>(document: &'d Document, field: &str) -> &'d Value {
    match field.split_once('.') {
        Some((map, name)) => match document.get(map) {
            Some(Value::Map(inside)) => inside.get(name).unwrap(),
            _ => &Value::Null,
        },
        None => document.get(field).unwrap_or(&Value::Null),
    }
}

fn found(find: &Find<'_>) -> Vec<Document> {
    find.iter().unwrap().collect::<Result<_>>().unwrap()
}

/// The order, made by comparing values.
fn expected(documents: &Documents, order: &[OrderBy], wanted: impl Fn(&Document) -> bool) -> Vec<Document> {
    let mut all: Vec<Document> =
        documents.scan(Span::all()).unwrap().map(Result::unwrap).filter(wanted).collect();
    let turned = |direction, ordering: Ordering| match direction {
        duramen::Direction::Forward => ordering,
        duramen::Direction::Reverse => ordering.reverse(),
    };
    all.sort_by(|one, other| {
        let by = order
            .iter()
            .map(|by| turned(by.direction(), compare(at(one, by.field()), at(other, by.field()))));
        let ties = ["group", "id"].iter().map(|field| {
            turned(order.last().unwrap().direction(), compare(at(one, field), at(other, field)))
        });
        by.chain(ties).find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
    });
    all
}

fn orders() -> Vec<Vec<OrderBy>> {
    let (up, down) = (|field: &str| OrderBy::ascending(field), |field: &str| OrderBy::descending(field));
    vec![
        vec![up("n")],
        vec![down("n")],
        vec![up("town"), down("n")],
        vec![down("town"), down("n")],
        vec![up("rare")],
        vec![down("any"), up("n")],
        vec![up("in.x")],
        vec![up("group")],
        vec![down("group"), down("id")],
        vec![up("id")],
        vec![up("n"), up("n"), up("town")],
    ]
}

// With conditions and limits of all sizes the access path differs, and the answer must not.
#[test]
fn every_order_is_that_of_the_values_then_of_the_keys() {
    let (_db, numbers) = numbers(300, 7);
    let schema = numbers.schema().unwrap();
    let mut sortings = std::collections::BTreeMap::new();
    for order in orders() {
        for text in ["", "n=2", "n>1", "town=Oslo", "group=1", "rare is not null", "id in 5,7,9"] {
            let conditions: Vec<Condition> = [text]
                .iter()
                .filter(|text| !text.is_empty())
                .map(|text| Condition::parse(&schema, text).unwrap())
                .collect();
            let holds =
                |document: &Document| conditions.iter().all(|condition| condition.holds(&schema, document));
            let wanted = expected(&numbers, &order, holds);
            let find = numbers.find(conditions.clone()).order_by(order.clone());
            assert_eq!(found(&find), wanted, "{text} {order:?}");
            for limit in [0, 1, 7, 100, 1_000] {
                let limited = find.limit(limit);
                let plan = limited.plan().unwrap();
                let wanted = wanted.iter().take(usize::try_from(limit).unwrap()).cloned().collect::<Vec<_>>();
                assert_eq!(found(&limited), wanted, "{text} {order:?} {limit}: {plan}");
                *sortings
                    .entry(
                        std::mem::discriminant(&plan.sorting) == std::mem::discriminant(&Sorting::AlongPath),
                    )
                    .or_insert(0) += 1;
            }
            let mut turned: Vec<OrderBy> = Vec::new();
            for by in &order {
                turned.push(match by.direction() {
                    duramen::Direction::Forward => OrderBy::descending(by.field()),
                    duramen::Direction::Reverse => OrderBy::ascending(by.field()),
                });
            }
            assert_eq!(found(&find.reverse()), expected(&numbers, &turned, holds), "{text} {order:?}");
        }
    }
    assert!(sortings.values().all(|count| *count > 50), "sorted and not: {sortings:?}");
}

#[test]
fn an_order_of_the_access_path_is_not_sorted_again() {
    let (_db, numbers) = numbers(300, 8);
    let schema = numbers.schema().unwrap();
    let check = |text: &str, order: &[OrderBy], limit: Option<u64>, view: Option<&str>, is_sorted: bool| {
        let conditions = text.split_terminator('&').map(|text| Condition::parse(&schema, text).unwrap());
        let find = numbers.find(conditions).order_by(order.to_vec());
        let plan = limit.map_or(find.clone(), |limit| find.limit(limit)).plan().unwrap();
        assert_eq!((plan.path.view(), plan.sorting == Sorting::AlongPath), (view, !is_sorted), "{plan}");
    };
    let (up, down) = (|field: &str| OrderBy::ascending(field), |field: &str| OrderBy::descending(field));
    check("", &[up("group")], None, None, false);
    check("", &[down("group"), down("id")], None, None, false);
    check("group=1", &[up("id")], None, None, false);
    check("", &[up("id")], None, None, true);
    check("", &[up("group"), down("id")], None, None, true);
    check("n>1", &[down("n")], None, Some("by_n"), false);
    check("", &[up("n")], None, None, true);
    check("", &[up("n")], Some(5), Some("by_n"), false);
    check("", &[up("n")], Some(500), None, true);
    check("", &[up("rare")], Some(5), None, true);
    check("rare>-100", &[up("rare")], Some(5), Some("by_rare"), false);
    check("town=Oslo", &[up("n")], None, Some("by_town"), false);
    // Among equal towns the view is in the order of n, not of keys.
    check("", &[up("town")], Some(5), None, true);
    check("", &[up("any")], Some(5), None, true);
}

/// A sort of more than its memory: of runs in one merge, and of more runs than are merged at once.
#[test]
fn a_sort_larger_than_its_memory_spills_and_answers_alike() {
    let (_db, numbers) = numbers(12_000, 9);
    let order = [OrderBy::descending("any"), OrderBy::ascending("town")];
    let wanted = expected(&numbers, &order, |_| true);
    let find = numbers.find([]).order_by(order.clone()).memory_bytes(SORT_BYTES_MIN);
    let mut found = find.iter().unwrap();
    let all = found.by_ref().collect::<Result<Vec<_>>>().unwrap();
    assert!(all == wanted && found.is_spilled());
    let mut limited = find.limit(8_000).iter().unwrap();
    assert!(limited.by_ref().collect::<Result<Vec<_>>>().unwrap() == wanted[..8_000] && limited.is_spilled());
    let mut few = find.limit(10).iter().unwrap();
    assert_eq!(few.by_ref().collect::<Result<Vec<_>>>().unwrap(), wanted[..10]);
    assert!(!few.is_spilled());
    let mut in_memory = numbers.find([]).order_by(order).iter().unwrap();
    assert!(in_memory.by_ref().collect::<Result<Vec<_>>>().unwrap() == wanted && !in_memory.is_spilled());
}

#[test]
fn a_read_only_database_spills_only_where_it_is_told() {
    let disk = Arc::new(MemDisk::new(3));
    let db = Db::options().open_on(Arc::clone(&disk) as _, "/db").unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"])).unwrap();
    db.transact(|tx| {
        let rows = tx.documents("rows");
        (0..3_000).try_for_each(|id| rows.put(doc! { "id": id, "n": -id, "text": "x".repeat(300) }))
    })
    .unwrap();
    db.close().unwrap();
    drop((rows, db));
    let first = |options: duramen::DbOptions| -> Result<Option<u64>> {
        let db = options.read_only(true).open_on(Arc::clone(&disk) as _, "/db")?;
        let rows = db.documents("rows");
        let find = rows.find([]).order_by([OrderBy::ascending("n")]).memory_bytes(0);
        let first = find.iter()?.next().transpose()?;
        Ok(first.and_then(|row| match row.get("id") {
            Some(Value::Int(id)) => u64::try_from(*id).ok(),
            _ => None,
        }))
    };
    let error = first(Db::options()).unwrap_err();
    assert!(
        error.code() == Code::ReadOnly && error.hint().contains("spill_dir"),
        "{error}: {}",
        error.hint()
    );
    duramen::Disk::create_dir(&*disk, "/tmp".as_ref()).unwrap();
    assert_eq!(first(Db::options().spill_dir("/tmp")).unwrap(), Some(2_999));
    disk.set_capacity(Some(disk.used_bytes()));
    let error = first(Db::options().spill_dir("/tmp")).unwrap_err();
    assert_eq!(error.code(), Code::DiskFull, "{error}");
}

#[test]
fn a_temporary_file_has_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path().join("db")).unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"])).unwrap();
    db.transact(|tx| {
        let rows = tx.documents("rows");
        (0..3_000).try_for_each(|id| rows.put(doc! { "id": id, "n": -id, "text": "x".repeat(300) }))
    })
    .unwrap();
    let mut found = rows.find([]).order_by([OrderBy::ascending("n")]).memory_bytes(0).iter().unwrap();
    assert_eq!(found.next().unwrap().unwrap().get("id"), Some(&Value::from(2_999)));
    assert!(found.is_spilled());
    let names = std::fs::read_dir(directory.path().join("db")).unwrap();
    let names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn fields_are_returned_under_their_paths() {
    let db = Db::in_memory().unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"]).column("a.b", ColumnType::Int)).unwrap();
    let line = |price: i64| Value::Map(doc! { "price": price });
    rows.put(doc! { "id": 1, "a.b": 5, "lines": vec![line(3), line(4)] }).unwrap();
    rows.put(doc! { "id": 2, "home": Value::Map(doc! { "city": "Oslo" }) }).unwrap();
    let find = rows.find([]).fields(["lines[].price", "home.city", "a.b"]);
    let prices = vec![Value::from(3), Value::from(4)];
    let wanted = [
        doc! { "lines[].price": prices, "home.city": Value::Null, "a.b": 5 },
        doc! { "lines[].price": Vec::<Value>::new(), "home.city": "Oslo", "a.b": Value::Null },
    ];
    assert_eq!(found(&find), wanted);
    let turned = found(&find.order_by([OrderBy::descending("id")]));
    assert_eq!(turned, [wanted[1].clone(), wanted[0].clone()]);
    for (find, message) in [
        (rows.find([]).fields(["x"]), "rows has no field x"),
        (rows.find([]).order_by([OrderBy::ascending("x.y")]), "rows has no field x"),
        (rows.find([]).order_by([OrderBy::ascending("lines[].price")]), "lines[].price has several values"),
    ] {
        let error = find.iter().err().unwrap();
        assert!(error.code() == Code::InvalidArgument && error.message().contains(message), "{error}");
    }
}

#[test]
fn a_sort_in_a_transaction_has_its_own_writes() {
    let (db, _numbers) = numbers(30, 10);
    db.transact(|tx| {
        let numbers = tx.documents("numbers");
        numbers
            .put(doc! { "group": 9, "id": 99, "n": 1_000, "town": "Oslo", "any": Value::Null, "text": "" })?;
        for limit in [1, 500] {
            let largest = numbers.find([]).order_by([OrderBy::descending("n")]).limit(limit);
            assert_eq!(found(&largest)[0].get("id"), Some(&Value::from(99)));
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_program_can_bound_the_reads_of_a_sort() {
    use duramen::find::Step;
    let (_db, numbers) = numbers(60, 11);
    let mut found = numbers.find([]).order_by([OrderBy::ascending("any")]).iter().unwrap();
    assert_eq!((found.next_within(25).unwrap(), found.read_count()), (Step::Unfinished, 25));
    assert_eq!((found.next_within(35).unwrap(), found.read_count()), (Step::Unfinished, 60));
    assert!(matches!(found.next_within(25).unwrap(), Step::Found(_)));
    assert_eq!(found.count(), 59);
}

#[test]
fn nothing_is_ordered_in_an_empty_collection() {
    let db = Db::in_memory().unwrap();
    let rows = db.ensure(&Schema::new("rows").key(["id"]).column("n", ColumnType::Int)).unwrap();
    let find = rows.find([]).order_by([OrderBy::ascending("n")]);
    assert_eq!((found(&find), found(&find.limit(5)), find.count().unwrap()), (vec![], vec![], 0));
}
