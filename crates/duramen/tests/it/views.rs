//! Views: current in the transaction that changes a document, right after any change, built concurrently with
//! writers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::{Code, Disk, MemDisk};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(SalesByCity, key = city, value = cents, reduce = (Count, Sum, Mean, Min, Max(placed))),
    view(ByDay, key = (city, placed)),
    view(ByTag, key = tags, each, reduce = Sum(cents)),
    view(ByEmail, key = email, unique),
)]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    placed: Time,
    tags: Vec<String>,
    email: Option<String>,
}

fn day(day: i64) -> Time {
    Time::new(day * 86_400, 0).unwrap()
}

fn order(id: u64, city: &str, cents: i64) -> Order {
    Order {
        id,
        city: city.to_owned(),
        cents,
        placed: day(i64::try_from(id).unwrap()),
        tags: Vec::new(),
        email: None,
    }
}

fn shop() -> Db {
    let db = Db::in_memory().unwrap();
    for (id, city, cents) in
        [(1, "Oslo", 1250), (2, "Oslo", 750), (3, "Bergen", 99), (4, "Os", 1), (5, "Oslo", -10)]
    {
        db.put(&order(id, city, cents)).unwrap();
    }
    db
}

/// Reads in a transaction, and calls with each id it finds.
type Reading = fn(&Transaction<'_>, &mut dyn FnMut(u64) -> Result<()>) -> Result<()>;

/// A transaction may delete what a query of its own has still to come to: that is no corruption.
#[test]
fn documents_are_deleted_while_a_view_of_the_transaction_is_read() {
    let check = |deletes: Reading, left: u64, what: &str| {
        let db = shop();
        db.transact(|tx| {
            let mut found = 0;
            // Each that is found deletes another one, whether that is still to come or was found already.
            deletes(tx, &mut |id| {
                found += 1;
                tx.documents("orders").delete(if id == 1 { 5 } else { 1 }).map(drop)
            })?;
            assert_eq!((found, tx.collection::<Order>().count()?), (2, left), "{what}");
            Ok(())
        })
        .unwrap();
        assert!(db.check_documents().unwrap().is_clean(), "{what}");
    };
    let docs = |tx: &Transaction<'_>, each: &mut dyn FnMut(u64) -> Result<()>| {
        tx.view::<SalesByCity>().key("Oslo").iter_docs()?.try_for_each(|order| each(order?.id))
    };
    check(docs, 3, "typed");
    let reversed = |tx: &Transaction<'_>, each: &mut dyn FnMut(u64) -> Result<()>| {
        tx.view::<SalesByCity>().key("Oslo").reverse().iter_docs()?.try_for_each(|order| each(order?.id))
    };
    check(reversed, 4, "the other way");
    let by_name = |tx: &Transaction<'_>, each: &mut dyn FnMut(u64) -> Result<()>| {
        tx.documents("orders").view("sales_by_city").key("Oslo").for_each(|_, order| match order.get("id") {
            Some(Value::Int(id)) => each(u64::try_from(*id).unwrap()),
            other => panic!("{other:?}"),
        })
    };
    check(by_name, 3, "by name");
    let selected = |tx: &Transaction<'_>, each: &mut dyn FnMut(u64) -> Result<()>| {
        tx.select::<Order>().by::<SalesByCity>("Oslo").iter()?.try_for_each(|order| each(order?.id))
    };
    check(selected, 3, "selected");
}

#[test]
fn a_view_answers_by_key_and_by_range() {
    let db = shop();
    let sales = db.view::<SalesByCity>();
    assert_eq!(sales.key("Oslo").reduce().unwrap(), (3, 1990, Some(1990.0 / 3.0), Some(-10), Some(day(5))));
    assert_eq!(sales.key("Nowhere").reduce().unwrap(), (0, 0, None, None, None));
    assert_eq!(sales.reduce().unwrap().1, 2090);
    assert_eq!(sales.range("Bergen"..="Os").reduce().unwrap().1, 100);
    assert_eq!(sales.range("Bergen".."Os").reduce().unwrap().1, 99);
    let groups: Vec<(String, u64)> =
        sales.group_by::<String>().unwrap().into_iter().map(|(city, all)| (city, all.0)).collect();
    assert_eq!(groups, [("Bergen".to_owned(), 1), ("Os".to_owned(), 1), ("Oslo".to_owned(), 3)]);
    let backwards = sales.reverse().limit(2).group_by::<String>().unwrap();
    assert_eq!(backwards.iter().map(|(city, _)| city.as_str()).collect::<Vec<_>>(), ["Oslo", "Os"]);
}

#[test]
fn rows_lead_to_documents() {
    let db = shop();
    let days = db.view::<ByDay>().prefix("Oslo");
    let rows: Vec<_> =
        days.iter().unwrap().map(|row| row.unwrap()).map(|row| (row.key.1, row.document)).collect();
    assert_eq!(rows, [(day(1), 1), (day(2), 2), (day(5), 5)]);
    assert_eq!(days.reverse().first_doc().unwrap(), Some(order(5, "Oslo", -10)));
    assert_eq!(days.docs().unwrap().len(), 3);
    assert_eq!(days.nth(1).unwrap().unwrap().document, 2);
    assert_eq!(days.reverse().nth(0).unwrap().unwrap().document, 5);
    assert_eq!(days.range(("Oslo", day(2))..).range(..("Oslo", day(5))).count().unwrap(), 1);
    assert_eq!(days.prefix("Bergen").count().unwrap(), 0);
    assert_eq!(days.rank(("Oslo", day(5))).unwrap(), 2);
    assert_eq!(days.reverse().rank(("Oslo", day(5))).unwrap(), 0);
    assert_eq!(db.view::<ByDay>().range(("Oslo", day(2))..).count().unwrap(), 2);
    let by_city = db.view::<ByDay>().group_by::<String>().unwrap();
    assert_eq!(by_city.len(), 3);
    // A range that begins and ends within groups counts only what is inside.
    let part = db.view::<ByDay>().range(("Bergen", day(4))..("Oslo", day(5))).group_by::<String>().unwrap();
    assert_eq!(part, [("Os".to_owned(), 1), ("Oslo".to_owned(), 2)]);
}

#[test]
fn a_list_makes_a_row_for_each_item_and_null_makes_none() {
    let db = Db::in_memory().unwrap();
    let tags = |tags: &[&str]| tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>();
    db.put(&Order { tags: tags(&["new", "gift", "new"]), ..order(1, "Oslo", 10) }).unwrap();
    db.put(&Order { tags: tags(&["gift"]), ..order(2, "Oslo", 20) }).unwrap();
    assert_eq!(db.view::<ByTag>().key("gift").reduce().unwrap(), 30);
    assert_eq!(db.view::<ByTag>().key("new").count().unwrap(), 1);
    db.put(&Order { tags: tags(&["new"]), ..order(1, "Oslo", 15) }).unwrap();
    assert_eq!(db.view::<ByTag>().key("gift").reduce().unwrap(), 20);
    assert_eq!(db.view::<ByTag>().reduce().unwrap(), 35);
    assert_eq!(db.view::<ByEmail>().count().unwrap(), 0);
}

#[test]
fn a_unique_view_refuses_the_second() {
    let db = Db::in_memory().unwrap();
    let with = |id, email: &str| Order { email: Some(email.to_owned()), ..order(id, "Oslo", 1) };
    db.put(&with(1, "a@example.org")).unwrap();
    db.put(&with(1, "a@example.org")).unwrap();
    let error = db.put(&with(2, "a@example.org")).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    assert!(error.message().contains("document 2") && error.message().contains("document 1"), "{error}");
    assert_eq!(db.get::<Order>(2).unwrap(), None);
    db.put(&with(1, "b@example.org")).unwrap();
    db.put(&with(2, "a@example.org")).unwrap();
    assert_eq!(db.view::<ByEmail>().key("a@example.org").first_doc().unwrap().unwrap().id, 2);
    // The same within one transaction, in both orders.
    let swapped = db.transact(|tx| {
        tx.put(&with(3, "c@example.org"))?;
        tx.put(&with(4, "c@example.org"))
    });
    assert_eq!(swapped.unwrap_err().code(), Code::UniqueViolation);
}

// Of two concurrent writes of the same address one must fail.
#[test]
fn of_many_who_want_the_same_key_one_gets_it() {
    let db = Db::in_memory().unwrap();
    db.put(&order(1000, "Oslo", 0)).unwrap();
    for round in 0..20 {
        let won = thread::scope(|scope| {
            let want = |id: u64| {
                let email = Some(format!("{round}@example.org"));
                let db = &db;
                scope.spawn(move || db.put(&Order { email, ..order(id, "Oslo", 1) }).is_ok())
            };
            let wanting: Vec<_> = (0..4).map(want).collect();
            wanting.into_iter().map(|want| want.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(won, 1, "round {round}");
    }
}

#[test]
fn a_transaction_sees_its_own_rows() {
    let db = shop();
    db.transact(|tx| {
        tx.put(&order(6, "Oslo", 10))?;
        assert_eq!(tx.view::<SalesByCity>().key("Oslo").reduce()?.1, 2000);
        tx.delete::<Order>(1)?;
        assert_eq!(tx.view::<SalesByCity>().key("Oslo").reduce()?.1, 750);
        Err::<(), _>(Error::invalid("not today"))
    })
    .unwrap_err();
    assert_eq!(db.view::<SalesByCity>().key("Oslo").reduce().unwrap().1, 1990);
}

/// By city count and sum, by tag the sum, and how many have an address.
type Answers = (BTreeMap<String, (u64, i128)>, BTreeMap<String, i128>, u64);

/// The expected contents of every view, computed from the documents.
fn expected(db: &Db) -> Answers {
    let mut cities: BTreeMap<String, (u64, i128)> = BTreeMap::new();
    let mut tags: BTreeMap<String, i128> = BTreeMap::new();
    let mut emails = 0;
    for order in db.collection::<Order>().to_vec().unwrap() {
        let city = cities.entry(order.city).or_default();
        *city = (city.0 + 1, city.1 + i128::from(order.cents));
        let mut own = order.tags;
        own.sort();
        own.dedup();
        own.into_iter().for_each(|tag| *tags.entry(tag).or_default() += i128::from(order.cents));
        emails += u64::from(order.email.is_some());
    }
    (cities, tags, emails)
}

fn answered(db: &Db) -> Answers {
    let cities = db.view::<SalesByCity>().group_by::<String>().unwrap();
    let tags = db.view::<ByTag>().group_by::<String>().unwrap();
    (
        cities.into_iter().map(|(city, all)| (city, (all.0, all.1))).collect(),
        tags.into_iter().collect(),
        db.view::<ByEmail>().count().unwrap(),
    )
}

fn any_order(random: &mut u64) -> Order {
    let mut next = |below: u64| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % below
    };
    let id = next(60);
    let tags = (0..next(4)).map(|_| format!("tag {}", next(5))).collect();
    let email = (next(3) == 0).then(|| format!("{id}@example.org"));
    let cents = i64::try_from(next(2000)).unwrap() - 1000;
    Order { tags, email, ..order(id, ["Oslo", "Os", "Bergen"][usize::try_from(next(3)).unwrap()], cents) }
}

// After any change of documents, by any interface, the views equal a scan of the documents.
#[test]
fn views_are_what_the_documents_come_to() {
    let seed = 0x5eed_0001;
    println!("seed {seed}");
    let mut random = seed;
    let db = Db::in_memory().unwrap();
    for step in 0..600 {
        let order = any_order(&mut random);
        match step % 5 {
            0 => drop(db.delete::<Order>(order.id).unwrap()),
            1 => drop(
                db.modify::<Order>(order.id, |stored| {
                    stored.cents = order.cents;
                    stored.city.clone_from(&order.city);
                    Ok(())
                })
                .unwrap(),
            ),
            2 if step > 10 => {
                // A tool that knows only the catalogue.
                let documents = db.documents("orders");
                if let Some(stored) = documents.get(order.id).unwrap() {
                    documents
                        .put(stored.with("cents", order.cents).with("tags", vec![Value::from("by hand")]))
                        .unwrap();
                }
            }
            _ => drop(db.put(&order).unwrap()),
        }
        if step % 50 == 49 {
            assert_eq!(answered(&db), expected(&db), "step {step}");
        }
    }
    assert!(db.check().unwrap().is_clean());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Plain {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    placed: Time,
    tags: Vec<String>,
    email: Option<String>,
}

fn plain(order: Order) -> Plain {
    let Order { id, city, cents, placed, tags, email } = order;
    Plain { id, city, cents, placed, tags, email }
}

// A view added to existing documents is built step by step, stopped and continued, while others write.
#[test]
fn a_view_is_built_beside_writers_and_goes_on_after_a_restart() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(3));
    let open = || Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
    let mut random = 0x5eed_0002;
    let db = open();
    db.transact(|tx| {
        (0..3_000).try_for_each(|id| tx.put(&plain(Order { id, email: None, ..any_order(&mut random) })))
    })
    .unwrap();
    let error = db.view::<SalesByCity>().reduce().unwrap_err();
    assert_eq!(error.code(), Code::Rebuilding);
    let mut seen = Vec::new();
    let stopped = db.build_views::<Order>(|progress| {
        seen.push((progress.documents, progress.of));
        if seen.len() == 2 { Err(Error::invalid("that is enough")) } else { Ok(()) }
    });
    assert!(stopped.is_err());
    assert_eq!(seen, [(500, 3_000), (1_000, 3_000)]);
    db.close().unwrap();
    drop(db);

    let db = open();
    seen.clear();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut random = 0x5eed_0003 + writer;
                    for _ in 0..150 {
                        let mut order = any_order(&mut random);
                        order.id = order.id * 50 + writer;
                        order.email = None;
                        db.put(&order).unwrap();
                    }
                })
            })
            .collect();
        db.build_views::<Order>(|progress| {
            seen.push((progress.documents, progress.of));
            Ok(())
        })
        .unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    let first = seen.first().unwrap().0;
    assert!((1_001..=1_500).contains(&first), "it went on where it was, with {first}");
    assert_eq!(answered(&db), expected(&db));
    assert!(db.check().unwrap().is_clean());
}

// The cached catalogue is of one state. A state from before a view was complete must not be answered from the
// half-filled tree of that time, whatever is cached by now.
#[test]
fn a_snapshot_of_a_half_built_view_does_not_answer_from_it() {
    let db = Db::options().background(false).in_memory().unwrap();
    db.transact(|tx| (0..1_200).try_for_each(|id| tx.put(&plain(order(id, "Oslo", 1))))).unwrap();
    let mut halves = Vec::new();
    db.build_views::<Order>(|_| {
        halves.push(db.snapshot()?);
        Ok(())
    })
    .unwrap();
    let whole = halves.pop().unwrap();
    for _ in 0..2 {
        assert_eq!(whole.view::<SalesByCity>().reduce().unwrap().0, 1_200);
        assert_eq!(db.view::<SalesByCity>().reduce().unwrap().0, 1_200);
    }
    let of_first_view = halves.first().unwrap().view::<SalesByCity>().reduce();
    assert_eq!(of_first_view.unwrap_err().code(), Code::Rebuilding);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(SalesByCityToo, key = city, value = cents, reduce = Max), view(ByEmail2, key = email, unique))]
struct Changed {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    email: Option<String>,
}

// Two documents with one key, stored before the view was unique: the build names them, and continues once one
// is changed.
#[test]
fn building_a_unique_view_names_who_is_in_the_way() {
    let db = Db::options().background(false).in_memory().unwrap();
    let email = Some("a@example.org".to_owned());
    for id in [1, 2] {
        db.put(&plain(Order { email: email.clone(), ..order(id, "Oslo", 5) })).unwrap();
    }
    let error = db.build_views::<Changed>(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    db.modify::<Changed>(2, |order| {
        order.email = None;
        Ok(())
    })
    .unwrap();
    db.build_views::<Changed>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<SalesByCityToo>().key("Oslo").reduce().unwrap(), Some(5));
    assert_eq!(db.view::<ByEmail2>().count().unwrap(), 1);
}

// Rows of a dropped collection's views must not reappear with the next collection of its name.
#[test]
fn dropping_a_collection_drops_its_views() {
    let db = shop();
    db.transact(|tx| tx.drop_collection("orders")).unwrap();
    assert_eq!(db.view::<SalesByCity>().count().unwrap(), 0);
    db.put(&order(9, "Oslo", 1)).unwrap();
    assert_eq!(db.view::<SalesByCity>().reduce().unwrap().0, 1);
    assert!(db.check().unwrap().is_clean());
}
