//! Typed collections: documents are read back unchanged, in order, and tools see the same documents.

use duramen::prelude::*;
use duramen::{Code, PageToken};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Order {
    #[key]
    city: String,
    #[key]
    id: u64,
    cents: i64,
    placed: Time,
    lines: Vec<Line>,
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    product: String,
    count: u32,
    price: f64,
}

fn order(city: &str, id: u64) -> Order {
    Order {
        city: city.to_owned(),
        id,
        cents: 100 * i64::try_from(id).unwrap(),
        placed: Time::parse("2026-11-21T08:30:00.000000001Z").unwrap(),
        lines: vec![Line { product: "saw".to_owned(), count: 2, price: 12.5 }],
        note: id.is_multiple_of(2).then(|| format!("note {id}")),
    }
}

fn three_cities() -> Db {
    let db = Db::in_memory().unwrap();
    for city in ["Bergen", "Oslo", "Tromsø"] {
        for id in 1..=4 {
            db.put(&order(city, id)).unwrap();
        }
    }
    db
}

fn ids(found: Result<Vec<Order>>) -> Vec<(String, u64)> {
    found.unwrap().into_iter().map(|order| (order.city, order.id)).collect()
}

#[test]
fn what_is_put_is_what_is_got() {
    let db = three_cities();
    assert_eq!(db.get::<Order>(("Oslo", 2)).unwrap(), Some(order("Oslo", 2)));
    assert_eq!(db.get::<Order>((String::from("Oslo"), 2_u64)).unwrap(), Some(order("Oslo", 2)));
    assert_eq!(db.get::<Order>(("Oslo", 5)).unwrap(), None);
    assert!(db.delete::<Order>(("Oslo", 2)).unwrap());
    assert!(!db.delete::<Order>(("Oslo", 2)).unwrap());
    assert_eq!(db.get::<Order>(("Oslo", 2)).unwrap(), None);
}

// A program that only reads must neither create a collection, nor fail because it does not exist.
#[test]
fn a_collection_nobody_wrote_to_is_empty() {
    let db = Db::in_memory().unwrap();
    assert_eq!(db.get::<Order>(("Oslo", 1)).unwrap(), None);
    assert_eq!(db.collection::<Order>().count().unwrap(), 0);
    assert_eq!(db.collection::<Order>().to_vec().unwrap(), []);
    assert!(!db.delete::<Order>(("Oslo", 1)).unwrap());
    assert_eq!(db.delete_range::<Order>(..).unwrap(), 0);
    assert_eq!(db.collections().unwrap(), []);
}

#[test]
fn ranges_prefixes_and_directions() {
    let db = three_cities();
    let orders = db.collection::<Order>();
    let oslo = |ids: &[u64]| ids.iter().map(|id| ("Oslo".to_owned(), *id)).collect::<Vec<_>>();
    assert_eq!(ids(orders.prefix("Oslo").to_vec()), oslo(&[1, 2, 3, 4]));
    assert_eq!(ids(orders.prefix(("Oslo", 3)).to_vec()), oslo(&[3]));
    assert_eq!(orders.prefix("Osl").count().unwrap(), 0);
    assert_eq!(ids(orders.prefix("Oslo").reverse().limit(2).to_vec()), oslo(&[4, 3]));
    assert_eq!(ids(orders.range(("Oslo", 2)..("Oslo", 4)).to_vec()), oslo(&[2, 3]));
    assert_eq!(ids(orders.range(("Oslo", 2)..=("Oslo", 4)).to_vec()), oslo(&[2, 3, 4]));
    assert_eq!(ids(orders.range("Oslo"..="Oslo").to_vec()), oslo(&[1, 2, 3, 4]));
    assert_eq!(orders.range("Oslo"..).count().unwrap(), 8);
    assert_eq!(orders.range(.."Oslo").count().unwrap(), 4);
    assert_eq!(orders.range(..="Oslo").count().unwrap(), 8);
    assert_eq!(orders.range(..).count().unwrap(), 12);
    assert_eq!(orders.range("Tromsø".."Oslo").to_vec().unwrap(), []);
    assert_eq!(orders.range("Tromsø".."Oslo").count().unwrap(), 0);
    assert_eq!(orders.first().unwrap().map(|order| order.city), Some("Bergen".to_owned()));
    let keys: Vec<_> = orders.prefix("Oslo").limit(2).keys().unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(keys, oslo(&[1, 2]));
}

#[test]
fn nth_and_rank_count_within_the_query() {
    let db = three_cities();
    let oslo = db.collection::<Order>().prefix("Oslo");
    let id = |found: Result<Option<Order>>| found.unwrap().map(|order| order.id);
    for query in [oslo.clone(), oslo.reverse()] {
        let all = ids(query.to_vec());
        for (index, (_, expected)) in (0..).zip(&all) {
            assert_eq!(id(query.nth(index)), Some(*expected));
            assert_eq!(query.rank(("Oslo", *expected)).unwrap(), index);
        }
        assert_eq!(id(query.nth(4)), None);
    }
    assert_eq!(id(oslo.limit(2).nth(2)), None);
    assert_eq!(oslo.rank(("Bergen", 1)).unwrap(), 0);
    assert_eq!(oslo.rank(("Tromsø", 1)).unwrap(), 4);
    assert_eq!(oslo.reverse().rank(("Bergen", 1)).unwrap(), 4);
    assert_eq!(oslo.reverse().rank(("Tromsø", 1)).unwrap(), 0);
}

// A page continues from a key, so concurrent inserts and deletes move nothing.
#[test]
fn pages_go_on_where_they_ended() {
    let db = three_cities();
    for query in [db.collection::<Order>(), db.collection::<Order>().reverse()] {
        let all = ids(query.to_vec());
        for size in [1, 5, 12, 13] {
            let mut found = Vec::new();
            let mut next: Option<PageToken> = None;
            loop {
                let page = query.page(size, next.as_ref()).unwrap();
                found.extend(ids(Ok(page.items)));
                // A token survives being written into a link.
                let Some(token) = page.next else { break };
                next = Some(token.to_string().parse().unwrap());
            }
            assert_eq!(found, all, "pages of {size}");
        }
    }
    let first = db.collection::<Order>().page(4, None).unwrap();
    db.delete::<Order>(("Bergen", 4)).unwrap();
    db.put(&order("Bergen", 0)).unwrap();
    let second = db.collection::<Order>().page(4, first.next.as_ref()).unwrap();
    assert_eq!(ids(Ok(second.items))[0], ("Oslo".to_owned(), 1));
    for wrong in ["", "0", "zz", "+1", "ff", "ø", ".", ".1", ".zzzzzzzz", "00.000000001"] {
        assert_eq!(wrong.parse::<PageToken>().is_err(), !wrong.is_empty(), "{wrong:?}");
    }
}

// The token of another collection gave an empty page: its key lies beyond all others there.
#[test]
fn a_page_token_of_another_collection_is_refused() {
    #[derive(Collection, Serialize, Deserialize, Debug)]
    #[collection(name = "notes")]
    struct Note {
        #[key]
        id: u64,
    }
    let db = three_cities();
    (0..3).for_each(|id| drop(db.put(&Note { id }).unwrap()));
    let token = db.collection::<Order>().page(4, None).unwrap().next.unwrap();
    let notes = db.collection::<Note>();
    let error = notes.page(2, Some(&token)).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.message().contains("not one of notes"), "{error}");
    // Tokens of earlier releases do not say whose they are.
    let own = notes.page(1, None).unwrap().next.unwrap().to_string();
    let earlier: PageToken = own.split('.').next().unwrap().parse().unwrap();
    assert_eq!(notes.page(2, Some(&earlier)).unwrap().items.len(), 2);
}

#[test]
fn insert_update_and_modify_look_first() {
    let db = three_cities();
    let code = |error: Error| error.code();
    assert_eq!(db.insert(&order("Oslo", 1)).map_err(code).err(), Some(Code::AlreadyExists));
    assert_eq!(db.update(&order("Oslo", 9)).map_err(code).err(), Some(Code::NoSuchKey));
    db.insert(&order("Oslo", 9)).unwrap();
    db.update(&Order { cents: 7, ..order("Oslo", 9) }).unwrap();
    let raised = db.modify::<Order>(("Oslo", 9), |order| {
        order.cents += 1;
        Ok(())
    });
    assert_eq!(raised.unwrap().map(|order| order.cents), Some(8));
    assert_eq!(db.modify::<Order>(("Oslo", 10), |_| Ok(())).unwrap(), None);
    let moved = db.modify::<Order>(("Oslo", 9), |order| {
        order.id = 10;
        Ok(())
    });
    assert!(moved.unwrap_err().message().contains("its key was changed to Oslo,10"));
    for expected in [1, 2] {
        db.upsert(&Order { cents: 1, ..order("Ås", 1) }, |order| {
            order.cents += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(db.get::<Order>(("Ås", 1)).unwrap().map(|order| order.cents), Some(expected));
    }
    let taken = db.transact(|tx| tx.take::<Order>(("Ås", 1))).unwrap();
    assert_eq!(taken.map(|order| order.cents), Some(2));
    assert_eq!(db.get::<Order>(("Ås", 1)).unwrap(), None);
}

// Two users edit the same document: the second must get an error with the current document.
#[test]
fn a_document_that_changed_is_not_replaced() {
    let db = three_cities();
    let read = db.get_versioned::<Order>(("Oslo", 1)).unwrap().unwrap();
    let again: duramen::Revision = read.revision.to_string().parse().unwrap();
    assert_eq!(again, read.revision);
    let mine = Order { cents: 5, ..read.document.clone() };
    let revision = db.replace(&mine, read.revision).unwrap();
    match db.replace(&Order { cents: 6, ..mine.clone() }, read.revision) {
        Err(ReplaceError::Changed(Some(now))) => {
            assert_eq!((now.document, now.revision), (mine.clone(), revision))
        }
        other => panic!("{other:?}"),
    }
    db.delete::<Order>(("Oslo", 1)).unwrap();
    assert!(matches!(db.replace(&mine, revision), Err(ReplaceError::Changed(None))));
    let error = Error::from(db.replace(&mine, revision).unwrap_err());
    assert_eq!(error.code(), Code::DocumentChanged);
}

#[test]
fn deleting_a_range_takes_as_many_transactions_as_it_needs() {
    let db = Db::in_memory().unwrap();
    db.transact(|tx| (0..2_500).try_for_each(|id| tx.put(&order("Oslo", id)))).unwrap();
    assert_eq!(db.delete_range::<Order>(("Oslo", 100)..("Oslo", 2_400)).unwrap(), 2_300);
    assert_eq!(db.collection::<Order>().count().unwrap(), 200);
}

// Tools know only the catalogue and the stored names: to them a typed document is like any other.
#[test]
fn tools_see_typed_documents_and_programs_see_those_of_tools() {
    let db = three_cities();
    let dynamic = db.documents("orders");
    let stored = dynamic.get(("Oslo", 2)).unwrap().unwrap();
    assert_eq!(
        stored.to_json().unwrap(),
        r#"{"city":"Oslo","id":2,"cents":200,"placed":"2026-11-21T08:30:00.000000001Z","lines":[{"product":"saw","count":2,"price":12.5}],"note":"note 2"}"#
    );
    let schema = dynamic.schema().unwrap();
    let columns: Vec<String> =
        schema.columns().iter().map(|column| format!("{}:{}", column.name, column.kind)).collect();
    assert_eq!(columns.join(" "), "city:text id:int cents:int placed:time lines:any note:text");
    assert!(db.check_documents().unwrap().is_clean(), "{:?}", db.check_documents().unwrap());

    dynamic.put(stored.with("id", 20).with("note", Value::Null)).unwrap();
    let typed = db.get::<Order>(("Oslo", 20)).unwrap().unwrap();
    assert_eq!(typed, Order { id: 20, note: None, ..order("Oslo", 2) });
    let refused = dynamic.put(doc! { "city": "Oslo", "id": 21, "cents": "many" }).unwrap_err();
    assert!(refused.message().contains("cents"), "{refused}");
}

#[test]
fn a_collection_that_does_not_fit_is_named() {
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    let error = db.put(&order("Oslo", 1)).unwrap_err();
    assert!(error.message().contains("its key is (id), and the type's is (city, id)"), "{error}");

    let db = Db::in_memory().unwrap();
    let text = duramen::schema::ColumnType::Text;
    db.ensure(&Schema::new("orders").key(["city", "id"]).column("cents", text)).unwrap();
    for error in [db.put(&order("Oslo", 1)).unwrap_err(), db.get::<Order>(("Oslo", 1)).unwrap_err()] {
        assert!(
            error.message().contains("its field cents holds text, and the type has int there"),
            "{error}"
        );
    }
}

#[test]
fn a_document_that_does_not_read_as_its_type_is_named() {
    let db = three_cities();
    db.documents("orders").put(doc! { "city": "Oslo", "id": 30 }).unwrap();
    let error = db.get::<Order>(("Oslo", 30)).unwrap_err();
    assert!(error.message().contains("the document Oslo,30 of orders does not read as Order"), "{error}");
    assert!(error.message().contains("it has no field cents, and Order wants one"), "{error}");
    assert!(error.hint().contains("#[serde(default)]"), "{error}");
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[collection(positional)]
struct Reading {
    #[key]
    sensor: u32,
    #[key]
    at: Time,
    value: f64,
    #[serde(default)]
    unit: Option<String>,
}

// The positional form leaves names out: smaller, and still shown with the names that the catalogue keeps.
#[test]
fn positional_documents_are_shown_with_their_names() {
    let db = Db::in_memory().unwrap();
    let at = Time::parse("2026-11-21T00:00:00Z").unwrap();
    let reading = Reading { sensor: 7, at, value: 21.5, unit: None };
    db.put(&reading).unwrap();
    assert_eq!(db.get::<Reading>((7, at)).unwrap(), Some(reading));
    let shown = db.documents("reading").get((7, at)).unwrap().unwrap();
    assert_eq!(
        shown.to_json().unwrap(),
        r#"{"sensor":7,"at":"2026-11-21T00:00:00Z","value":21.5,"unit":null}"#
    );
    // A tool writes names; the type reads both.
    db.documents("reading").put(shown.with("sensor", 8).with("unit", "K")).unwrap();
    assert_eq!(db.get::<Reading>((8, at)).unwrap().and_then(|reading| reading.unit), Some("K".to_owned()));
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Key)]
struct SensorId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Key)]
#[key(by_name)]
enum Room {
    Cellar,
    #[serde(rename = "attic")]
    Attic,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
#[serde(rename_all = "camelCase")]
struct Sensor {
    #[key]
    room_name: Room,
    #[key]
    sensor_id: SensorId,
}

#[test]
fn keys_of_own_types() {
    let db = Db::in_memory().unwrap();
    for (room_name, id) in [(Room::Cellar, 1), (Room::Attic, 2), (Room::Attic, 3)] {
        db.put(&Sensor { room_name, sensor_id: SensorId(id) }).unwrap();
    }
    assert_eq!(db.collection::<Sensor>().prefix(Room::Attic).count().unwrap(), 2);
    assert!(db.get::<Sensor>((Room::Attic, SensorId(3))).unwrap().is_some());
    let keys: Vec<_> = db.collection::<Sensor>().keys().unwrap().collect::<Result<_>>().unwrap();
    // Names are in the order of their bytes: capitals first.
    assert_eq!(keys[0], (Room::Cellar, SensorId(1)));
    assert_eq!(db.documents("sensor").schema().unwrap().key_columns(), ["roomName", "sensorId"]);
    assert_eq!(db.documents("sensor").count(Span::prefix("attic").unwrap()).unwrap(), 2);
}
