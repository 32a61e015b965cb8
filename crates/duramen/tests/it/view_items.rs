//! Views with a row for a value inside of each item of a list: `lines[].product`.

use duramen::find::{Aggregate, Condition};
use duramen::prelude::*;
use duramen::view::KeyField;
use duramen::{Code, ViewSpec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Nested)]
struct Line {
    product: u32,
    #[serde(rename = "in")]
    box_: Option<Container>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Nested)]
struct Container {
    colour: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(ByProduct, key = (city, desc(lines[].product)), each, value = cents, reduce = (Count, Sum)),
    view(ByColour, key = lines[].box_.colour, each, nulls)
)]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    lines: Vec<Line>,
}

fn order(id: u64, city: &str, lines: &[(u32, Option<&str>)]) -> Order {
    let line = |(product, colour): &(u32, Option<&str>)| Line {
        product: *product,
        box_: colour.map(|colour| Container { colour: colour.to_owned() }),
    };
    Order {
        id,
        city: city.to_owned(),
        cents: 100 * i64::try_from(id).unwrap(),
        lines: lines.iter().map(line).collect(),
    }
}

fn orders() -> Db {
    let db = Db::in_memory().unwrap();
    db.put(&order(1, "Oslo", &[(7, Some("red")), (9, None), (7, Some("blue"))])).unwrap();
    db.put(&order(2, "Oslo", &[(9, Some("red"))])).unwrap();
    db.put(&order(3, "Rome", &[])).unwrap();
    db.put(&order(4, "Rome", &[(7, None)])).unwrap();
    db
}

fn ids(orders: &[Order]) -> Vec<u64> {
    orders.iter().map(|order| order.id).collect()
}

#[test]
fn a_document_has_one_row_for_each_value_in_its_items() {
    let db = orders();
    let by_product = || db.view::<ByProduct>();
    assert_eq!(by_product().key(("Oslo", Reverse(7))).reduce().unwrap(), (1, 100), "7 is in order 1 twice");
    assert_eq!(by_product().prefix("Oslo").reduce().unwrap(), (3, 400));
    let largest_first = by_product().prefix("Oslo").docs().unwrap();
    assert_eq!(ids(&largest_first), [2, 1, 1], "product 9 before 7");
    db.put(&order(1, "Oslo", &[(8, None)])).unwrap();
    db.delete::<Order>(4).unwrap();
    assert_eq!(by_product().count().unwrap(), 2);
    assert_eq!(ids(&by_product().prefix("Oslo").docs().unwrap()), [2, 1]);
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn nulls_and_empty_lists_have_rows_where_the_view_has_them() {
    let db = orders();
    let by_colour =
        |colour: Option<&str>| ids(&db.view::<ByColour>().key(colour.map(str::to_owned)).docs().unwrap());
    assert_eq!(by_colour(Some("red")), [1, 2]);
    assert_eq!(by_colour(Some("blue")), [1]);
    // Order 1 has a line without a box, order 3 no line, order 4 a line without a box.
    assert_eq!(by_colour(None), [1, 3, 4]);
}

#[test]
fn such_a_view_is_made_by_name_and_answers_as_the_type_does() {
    let db = orders();
    let all = db.documents("orders");
    let items = KeyField::path("lines[].product");
    all.add_view(ViewSpec::new("named", [items.clone()]).each()).unwrap();
    all.build_views(|_| Ok(())).unwrap();
    assert_eq!(all.view("named").key(7_u32).count().unwrap(), 2);
    assert_eq!(all.view("named").count().unwrap(), 4);
    let error = all.add_view(ViewSpec::new("one", [items.clone()])).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.hint().contains("each"), "{error}");
    let error = all.add_view(ViewSpec::new("first", [items, KeyField::field("city")]).each()).unwrap_err();
    assert!(error.message().contains("several values"), "{error}");
}

/// A query does not take such a view for one with a row for a document.
#[test]
fn queries_of_items_read_each_document_once() {
    let db = orders();
    let all = db.documents("orders");
    let seven = Condition::parse(&all.schema().unwrap(), "lines[].product=7").unwrap();
    assert_eq!(all.find([seven.clone()]).count().unwrap(), 2);
    let by_city = all.find([seven]).group_by(["city"], [Aggregate::count()]);
    let groups = by_city.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(groups, [doc! { "city": "Oslo", "count": 1 }, doc! { "city": "Rome", "count": 1 }]);
}
