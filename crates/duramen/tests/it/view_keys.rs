//! Views of parts of fields, and descending ones: the same answers as without them.
//!
//! `tests/golden/directed-1` holds such views (D9). `DURAMEN_WRITE_GOLDEN=1 cargo test -p duramen --test it
//! view_keys` writes it if it is missing.

use std::collections::BTreeSet;
use std::path::Path;

use duramen::find::{Condition, OrderBy};
use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::view::{KeyField, Reduce};
use duramen::{Code, MemDisk, ViewSpec};
use proptest::prelude::*;

use crate::golden::{load, open_db, store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/directed-1/closed");

/// Everything that a condition, an order or a view names here.
const PLACES: [&str; 6] = ["n", "text", "rate", "any", "in.x", "in.y.z"];

fn key_field(place: usize, is_descending: bool) -> KeyField {
    let field = KeyField::path(PLACES[place]);
    if is_descending { field.descending() } else { field }
}

/// A collection of these documents, with these views.
fn collection(db: &Db, name: &str, views: &[ViewSpec], documents: &[Document]) -> Documents {
    let schema = Schema::new(name)
        .key(["group", "id"])
        .column("n", ColumnType::Int)
        .column("text", ColumnType::Text)
        .column("rate", ColumnType::Float)
        .column("any", ColumnType::Any)
        .column("in", ColumnType::Any);
    let all = db.ensure(&views.iter().cloned().fold(schema, Schema::view)).unwrap();
    db.transact(|tx| documents.iter().try_for_each(|document| tx.documents(name).put(document.clone())))
        .unwrap();
    all
}

fn int() -> impl Strategy<Value = Value> {
    prop_oneof![(-2..4_i64).prop_map(Value::from), Just(Value::Null), Just(Value::from(i64::MIN))]
}

fn text() -> impl Strategy<Value = Value> {
    let some = ["", "a", "a\0", "a\0b", "a\u{1}", "ab", "b", "\u{10ffff}"];
    prop_oneof![
        4 => prop::sample::select(some.to_vec()).prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

fn float() -> impl Strategy<Value = Value> {
    let some = [-f64::INFINITY, -1.5, -0.0, 0.0, 0.5, 2.0, f64::NAN];
    prop_oneof![4 => prop::sample::select(some.to_vec()).prop_map(Value::from), 1 => Just(Value::Null)]
}

/// Values of every type that a key can have.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => int(),
        2 => text(),
        2 => float(),
        1 => any::<bool>().prop_map(Value::from),
        1 => (0..3_i64).prop_map(|seconds| Value::Time(Time::new(seconds, 0).unwrap())),
        1 => prop::collection::vec(0..3_i64, 0..3)
            .prop_map(|items| Value::from(items.into_iter().map(Value::from).collect::<Vec<_>>())),
    ]
}

/// Documents; the parts of `in` have values of one type, or of all.
fn documents() -> impl Strategy<Value = Vec<Document>> {
    let inside = any::<bool>().prop_flat_map(|is_one_type| {
        let x = if is_one_type { int().boxed() } else { any_value().boxed() };
        let document = (int(), text(), float(), any_value(), x, prop::option::of(text()), 0..4_u8);
        prop::collection::vec(document, 0..40)
    });
    inside.prop_map(|documents| {
        let document = |(id, (n, text, rate, any, x, z, shape)): (
            usize,
            (Value, Value, Value, Value, Value, _, u8),
        )| {
            let inside = match (shape, z) {
                (0, _) => Value::Null,
                (_, None) => Value::Map(doc! { "x": x }),
                (_, Some(z)) => Value::Map(doc! { "x": x, "y": Value::Map(doc! { "z": z }) }),
            };
            let id = i64::try_from(id).unwrap();
            doc! { "group": id % 2, "id": id, "n": n, "text": text, "rate": rate, "any": any, "in": inside }
        };
        documents.into_iter().enumerate().map(document).collect()
    })
}

fn views() -> impl Strategy<Value = Vec<ViewSpec>> {
    let field = (0..PLACES.len(), any::<bool>());
    let view = (prop::collection::vec(field, 1..5), any::<bool>());
    prop::collection::vec(view, 1..4).prop_map(|views| {
        let view = |(at, (fields, nulls)): (usize, (Vec<(usize, bool)>, bool))| {
            let mut seen = BTreeSet::new();
            let fields = fields.into_iter().filter(|(place, _)| seen.insert(*place));
            let spec = ViewSpec::new(format!("v{at}"), fields.map(|(place, down)| key_field(place, down)));
            if nulls { spec.nulls() } else { spec }
        };
        views.into_iter().enumerate().map(view).collect()
    })
}

/// Conditions as text, so that those of places without a type have several readings.
fn conditions() -> impl Strategy<Value = Vec<String>> {
    let value = prop::sample::select(vec!["-1", "0", "1", "2", "-9223372036854775808"]);
    let number = (prop::sample::select(vec!["n", "in.x", "any", "rate"]), value.clone());
    let operator = || prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let text = prop::sample::select(vec!["a", "a\0", "b", ""]);
    let of_text = prop::sample::select(vec!["text", "in.y.z", "in.x", "any"]);
    let one = prop_oneof![
        4 => (number, operator()).prop_map(|((field, value), operator)| format!("{field}{operator}{value}")),
        2 => (of_text.clone(), operator(), text.clone()).prop_map(|(field, operator, text)| format!("{field}{operator}{text}")),
        2 => (of_text, text).prop_map(|(field, text)| format!("{field} starts with {text}")),
        1 => prop::sample::select(PLACES.to_vec()).prop_map(|field| format!("{field} is null")),
        1 => prop::sample::select(PLACES.to_vec()).prop_map(|field| format!("{field} is not null")),
        2 => (prop::sample::select(vec!["n", "in.x", "rate"]), value).prop_map(|(field, value)| format!("{field} in 0,{value},3")),
    ];
    prop::collection::vec(one, 0..4)
}

fn orders() -> impl Strategy<Value = Vec<OrderBy>> {
    let one = (0..PLACES.len(), any::<bool>()).prop_map(|(place, down)| match down {
        true => OrderBy::descending(PLACES[place]),
        false => OrderBy::ascending(PLACES[place]),
    });
    prop::collection::vec(one, 0..4)
}

/// Bounds along a view: values of the first elements of its key.
fn bounds() -> impl Strategy<Value = Vec<(Vec<Element>, Option<Vec<Element>>)>> {
    let element = || any_value().prop_map(|value| value.to_element().unwrap());
    let bound = move || prop::collection::vec(element(), 0..3);
    prop::collection::vec((bound(), prop::option::of(bound())), 1..4)
}

fn found(find: &duramen::find::Find<'_>) -> Vec<String> {
    find.iter().unwrap().map(|document| document.unwrap().to_json().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // A view changes what is read, and never what is found.
    #[test]
    fn answers_are_the_same_with_any_views(
        documents in documents(),
        views in views(),
        conditions in conditions(),
        order in orders(),
        limit in prop::option::of(0..12_u64),
        is_reversed in any::<bool>(),
    ) {
        let db = Db::options().background(false).in_memory().unwrap();
        let with = collection(&db, "with", &views, &documents);
        let without = collection(&db, "without", &[], &documents);
        let of = |documents: &Documents| -> Vec<Condition> {
            let schema = documents.schema().unwrap();
            conditions.iter().filter_map(|text| Condition::parse(&schema, text).ok()).collect()
        };
        let (with, without) = (with.find(of(&with)), without.find(of(&without)));
        prop_assert_eq!(with.count().unwrap(), without.iter().unwrap().count() as u64);
        let (mut all, mut expected) = (found(&with), found(&without));
        all.sort();
        expected.sort();
        prop_assert_eq!(all, expected);
        if !order.is_empty() {
            let ask = |find: &duramen::find::Find<'_>| {
                let find = find.order_by(order.clone());
                let find = limit.map_or(find.clone(), |limit| find.limit(limit));
                found(&if is_reversed { find.reverse() } else { find })
            };
            prop_assert_eq!(ask(&with), ask(&without), "{}", with.order_by(order.clone()).plan().unwrap());
        }
        prop_assert!(db.check_documents().unwrap().is_clean());
    }

    // Which of two bounds is the narrower one depends on the directions of the view.
    #[test]
    fn ranges_by_name_are_intersected_in_the_order_of_the_view(
        documents in documents(),
        views in views(),
        bounds in bounds(),
    ) {
        let db = Db::options().background(false).in_memory().unwrap();
        let all = collection(&db, "with", &views, &documents);
        let spans = bounds.iter().map(|(from, to)| match to {
            Some(to) => Span::between(from, to).unwrap(),
            None => Span::prefix(from).unwrap(),
        });
        let spans: Vec<Span> = spans.collect();
        for view in &views {
            let view = all.view(view.name());
            let rows = |view: &duramen::DocumentView<'_>| -> Vec<String> {
                view.rows().unwrap().map(|row| format!("{:?}", row.unwrap())).collect()
            };
            let mut expected = rows(&view);
            for span in &spans {
                let inside: BTreeSet<String> = rows(&view.range(span.clone())).into_iter().collect();
                expected.retain(|row| inside.contains(row));
            }
            let both = spans.iter().fold(view.clone(), |view, span| view.range(span.clone()));
            prop_assert_eq!(rows(&both), expected.clone());
            let one = spans.iter().cloned().fold(Span::all(), Span::and);
            prop_assert_eq!(rows(&view.range(one)), expected.clone());
            prop_assert_eq!(both.count().unwrap(), expected.len() as u64);
            let find = all.find([]).view(view.spec().unwrap().name());
            let find = spans.iter().fold(find, |find, span| find.range(span.clone()));
            prop_assert_eq!(found(&find).len(), expected.len());
        }
    }
}

fn tickets() -> (Db, Documents) {
    let db = Db::options().background(false).in_memory().unwrap();
    let newest = [KeyField::path("home.city"), KeyField::field("at").descending()];
    let views = [
        ViewSpec::new("newest", newest).values(["cents"]).reduce([Reduce::Sum(0), Reduce::Max(0)]).nulls(),
        ViewSpec::new("by_floor", [KeyField::path("home.floor")]).nulls(),
        ViewSpec::new("with_city", [KeyField::path("home.city")]),
    ];
    let schema = Schema::new("tickets").key(["id"]);
    let tickets = db.ensure(&views.into_iter().fold(schema, Schema::view)).unwrap();
    for id in 0..12_i64 {
        let home = Value::Map(doc! { "city": ["Oslo", "Voss"][(id % 2) as usize], "floor": id % 3 });
        let home = if id == 11 { Value::Null } else { home };
        tickets.put(doc! { "id": id, "at": id / 4, "cents": id * 10, "home": home }).unwrap();
    }
    (db, tickets)
}

fn ids(documents: &[Document]) -> Vec<i128> {
    let id = |document: &Document| match document.get("id") {
        Some(Value::Int(id)) => *id,
        other => panic!("{other:?}"),
    };
    documents.iter().map(id).collect()
}

// A query by name has values; the view has directions.
#[test]
fn a_view_by_name_takes_and_returns_values_without_directions() {
    let (_db, tickets) = tickets();
    let newest = tickets.view("newest");
    assert_eq!(ids(&newest.prefix("Oslo").docs().unwrap()), [10, 8, 6, 4, 2, 0], "the last id first");
    assert_eq!(ids(&newest.prefix("Oslo").reverse().limit(2).docs().unwrap()), [0, 2]);
    assert_eq!(ids(&newest.key(("Oslo", 1)).docs().unwrap()), [6, 4]);
    let since = Span::between(("Oslo", 2), ("Oslo", 0)).unwrap();
    assert_eq!(ids(&newest.range(since).docs().unwrap()), [10, 8, 6, 4], "from the largest on");
    let row = newest.prefix("Oslo").nth(2).unwrap().unwrap();
    assert_eq!(row.key, [Element::Text("Oslo".into()), Element::Int(1)]);
    assert_eq!(row.document, [Element::Int(6)]);
    assert_eq!(newest.rank(("Oslo", 0)).unwrap(), 5, "null is before");
    assert_eq!(newest.key(("Oslo", 1)).reduce().unwrap().parts[0].value, Value::from(100));
    assert_eq!(newest.key(("Oslo", 1)).reduce().unwrap().parts[1].value, Value::from(60));
    let groups = newest.prefix("Oslo").group_by(2).unwrap();
    let groups: Vec<_> = groups.iter().map(|(key, group)| (key[1].to_string(), group.count)).collect();
    assert_eq!(groups, [("2".into(), 2), ("1".into(), 2), ("0".into(), 2)]);
    let find = tickets.find([]).view("newest").range(Span::between(("Oslo", 2), ("Oslo", 1)).unwrap());
    assert_eq!(ids(&find.iter().unwrap().map(Result::unwrap).collect::<Vec<_>>()), [10, 8]);
    // Several ranges: each of them is along the view.
    let at = |at: i64| Span::from(("Oslo", at)).unwrap();
    assert_eq!(ids(&newest.key(("Oslo", 1)).range(at(2)).docs().unwrap()), [6, 4]);
    assert_eq!(newest.key(("Oslo", 1)).range(at(0)).count().unwrap(), 0);
    assert_eq!(newest.prefix("Oslo").range(at(2)).range(at(1)).count().unwrap(), 4);
    assert_eq!(newest.prefix("Oslo").range(at(1).and(at(2))).count().unwrap(), 4);
    let find = tickets.find([]).view("newest").range(Span::prefix("Oslo").unwrap());
    assert_eq!(find.range(at(2)).range(at(1)).count().unwrap(), 4);
    assert_eq!(newest.prefix("Oslo").range(at(2)).range(at(1)).reduce().unwrap().count, 4);
}

#[test]
fn a_path_through_null_is_null() {
    let (db, tickets) = tickets();
    assert_eq!(tickets.view("newest").count().unwrap(), 12);
    assert_eq!(tickets.view("with_city").count().unwrap(), 11);
    assert_eq!(ids(&tickets.view("by_floor").key(Element::Null).docs().unwrap()), [11]);
    tickets.put(doc! { "id": 11, "home": Value::Map(doc! { "floor": 7 }) }).unwrap();
    assert_eq!(tickets.view("by_floor").key(Element::Null).count().unwrap(), 0);
    assert_eq!(ids(&tickets.view("by_floor").key(7).docs().unwrap()), [11]);
    tickets.put(doc! { "id": 11, "home": 5 }).unwrap();
    assert_eq!(ids(&tickets.view("by_floor").key(Element::Null).docs().unwrap()), [11]);
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn queries_use_views_of_parts_and_of_directions() {
    let (_db, tickets) = tickets();
    let schema = tickets.schema().unwrap();
    #[track_caller]
    fn check(tickets: &Documents, texts: &[&str], order: &[&str], plan: &str, expected: &[i128]) {
        let schema = tickets.schema().unwrap();
        let conditions = texts.iter().map(|text| Condition::parse(&schema, text).unwrap());
        let order = order.iter().map(|text| OrderBy::parse(text).unwrap());
        let find = tickets.find(conditions).order_by(order).limit(3);
        assert_eq!(find.plan().unwrap().to_string(), plan);
        assert_eq!(ids(&find.iter().unwrap().map(Result::unwrap).collect::<Vec<_>>()), expected);
    }
    let read = |count: u64, what: &str| {
        format!("tickets, by the view {what}: reads {count} of 12 document(s), all of them results")
    };
    check(&tickets, &["home.city=Oslo"], &["at:desc"], &read(6, "newest: home.city = Oslo"), &[10, 8, 6]);
    check(&tickets, &["home.city=Oslo"], &["at"], &read(6, "newest: home.city = Oslo"), &[0, 2, 4]);
    let both = read(4, "newest: home.city = Oslo, at >= 1");
    check(&tickets, &["home.city=Oslo", "at>=1"], &["at:desc"], &both, &[10, 8, 6]);
    let late = read(2, "newest: home.city = Oslo, at < 1");
    check(&tickets, &["home.city=Oslo", "at<1"], &["at:desc"], &late, &[2, 0]);
    check(&tickets, &["home.floor>=2"], &["home.floor"], &read(3, "by_floor: home.floor >= 2"), &[2, 5, 8]);
    check(&tickets, &[], &["home.floor:desc"], &read(12, "by_floor"), &[8, 5, 2]);
    let count = tickets.find([Condition::parse(&schema, "home.floor<2").unwrap()]);
    assert_eq!((count.count().unwrap(), count.plan().unwrap().is_exact), (8, true));
}

/// A view has all integers before all floats, and a query orders numbers by value.
#[test]
fn integers_and_floats_are_ordered_by_value_beside_a_view() {
    let db = Db::in_memory().unwrap();
    let view = ViewSpec::new("by_x", [key_field(4, false)]).nulls();
    let inside = [Value::from(3), Value::from(1.5), Value::from(2), Value::from(0.5)];
    let document = |(id, x): (i64, Value)| doc! { "group": 0, "id": id, "in": Value::Map(doc! { "x": x }) };
    let documents: Vec<Document> = (0..).zip(inside).map(document).collect();
    let all = collection(&db, "numbers", &[view], &documents);
    let first = || all.find([]).order_by([OrderBy::ascending("in.x")]).limit(1);
    let found = || ids(&first().iter().unwrap().collect::<Result<Vec<_>>>().unwrap());
    assert_eq!((found(), first().plan().unwrap().path.view()), (vec![3], None));
    all.delete((0, 1)).unwrap();
    all.delete((0, 3)).unwrap();
    assert_eq!((found(), first().plan().unwrap().path.view()), (vec![2], Some("by_x")));
}

#[test]
fn what_is_no_key_is_refused() {
    let db = Db::in_memory().unwrap();
    #[track_caller]
    fn check(db: &Db, schema: Schema, message: &str) {
        let error = db.ensure(&schema).err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(message), "{error}");
    }
    let with = |field| Schema::new("x").key(["id"]).view(ViewSpec::new("v", [field]));
    check(&db, with(KeyField::path("a..b")), "names no field");
    check(&db, with(KeyField::path("a[].b")), "leads to several values");
    check(&db, with(KeyField::path("a.b")).positional(["id", "a"]), "are positional");
}

// A dot in a name was one before there were paths.
#[test]
fn a_name_with_a_dot_is_a_field() {
    let db = Db::in_memory().unwrap();
    let views = [ViewSpec::new("field", ["a.b"]), ViewSpec::new("path", [KeyField::path("a.b")])];
    let all = db.ensure(&views.into_iter().fold(Schema::new("x").key(["id"]), Schema::view)).unwrap();
    all.put(doc! { "id": 1, "a.b": 5, "a": Value::Map(doc! { "b": 6 }) }).unwrap();
    for (view, value) in [("field", 5), ("path", 6)] {
        assert_eq!(all.view(view).key(value).count().unwrap(), 1, "{view}");
        assert_eq!(all.view(view).count().unwrap(), 1, "{view}");
    }
    // The column comes first in a query, so the view of the path does not answer.
    let condition = Condition::parse(&all.schema().unwrap(), "a.b=5").unwrap();
    let find = all.find([condition]);
    assert_eq!(find.plan().unwrap().path.view(), Some("field"));
    assert_eq!(find.count().unwrap(), 1);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Nested)]
#[serde(rename_all = "camelCase")]
struct Place {
    city_name: String,
    floor: Option<i32>,
    street: Option<Box<Street>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Nested)]
struct Street {
    #[serde(rename = "no")]
    number: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "visits",
    view(Newest, key = (place.city_name, desc(at)), value = cents, reduce = (Count, Sum, Max, Quantiles)),
    view(ByFloor, key = (desc(place.floor), at), nulls),
    view(ByNumber, key = place.street.number),
    view(ByTag, key = (desc(place.city_name), desc(tags)), each, nulls),
    view(ByTicket, key = desc(ticket), unique),
    view(ByAt, key = desc(at))
)]
struct Visit {
    #[key]
    id: u64,
    place: Option<Place>,
    at: u64,
    cents: i64,
    tags: Vec<String>,
    ticket: Option<String>,
}

fn visit(id: u64) -> Visit {
    let street = id.is_multiple_of(5).then(|| Box::new(Street { number: u16::try_from(id).unwrap() }));
    let floor = (!id.is_multiple_of(3)).then_some(i32::try_from(id % 4).unwrap() - 1);
    let city_name = ["Oslo", "Voss"][(id % 2) as usize].to_owned();
    Visit {
        id,
        place: (!id.is_multiple_of(7)).then_some(Place { city_name, floor, street }),
        at: id / 3,
        cents: i64::try_from(id).unwrap() * 10,
        tags: ["a", "b\0", "c"][..(id % 4).min(3) as usize].iter().map(ToString::to_string).collect(),
        ticket: (!id.is_multiple_of(4)).then(|| format!("t{id}")),
    }
}

const VISITS: u64 = 40;

fn put_all(db: &Db) {
    (0..VISITS).for_each(|id| drop(db.put(&visit(id)).unwrap()));
}

fn all(wanted: impl Fn(&Visit) -> bool) -> Vec<Visit> {
    (0..VISITS).map(visit).filter(wanted).collect()
}

fn city(visit: &Visit) -> Option<&str> {
    visit.place.as_ref().map(|place| place.city_name.as_str())
}

/// The answers about these visits, in code over a list.
fn verify(db: &Db) {
    let newest = db.view::<Newest>();
    let mut oslo = all(|visit| city(visit) == Some("Oslo"));
    oslo.sort_by_key(|visit| Reverse((visit.at, visit.id)));
    assert_eq!(newest.prefix("Oslo").docs().unwrap(), oslo);
    let rows: Vec<_> = newest.prefix("Oslo").iter().unwrap().map(|row| row.unwrap()).collect();
    assert!(
        rows.iter().zip(&oslo).all(|(row, visit)| (row.key.1, row.document) == (Reverse(visit.at), visit.id))
    );
    // From the newest on: the greater bound comes first.
    let middle = newest.range(("Oslo", Reverse(9))..=("Oslo", Reverse(4)));
    let expected: Vec<Visit> = oslo.iter().filter(|visit| (4..=9).contains(&visit.at)).cloned().collect();
    assert_eq!(middle.docs().unwrap(), expected);
    let (count, sum, max, cents) = middle.reduce().unwrap();
    let total: i64 = expected.iter().map(|visit| visit.cents).sum();
    assert_eq!((count, sum), (expected.len() as u64, i128::from(total)));
    assert_eq!(max, expected.iter().map(|visit| visit.cents).max());
    assert!(cents.quantile(0.0).is_some());
    assert_eq!(
        newest.rank(("Oslo", Reverse(4))).unwrap(),
        oslo.iter().filter(|visit| visit.at > 4).count() as u64
    );
    assert_eq!(newest.prefix("Oslo").nth(3).unwrap().unwrap().document, oslo[3].id);

    let mut floors = all(|_| true);
    let floor = |visit: &Visit| visit.place.as_ref().and_then(|place| place.floor);
    floors.sort_by_key(|visit| (Reverse(floor(visit)), visit.at, visit.id));
    assert_eq!(db.view::<ByFloor>().docs().unwrap(), floors);
    let none = db.view::<ByFloor>().prefix(Reverse(None::<i32>)).count().unwrap();
    assert_eq!(none, all(|visit| floor(visit).is_none()).len() as u64);
    let groups = db.view::<ByFloor>().group_by::<Reverse<Option<i32>>>().unwrap();
    let groups: Vec<_> = groups.into_iter().map(|(Reverse(floor), _)| floor).collect();
    assert_eq!(groups, [Some(2), Some(1), Some(0), Some(-1), None]);
    assert_eq!(db.view::<ByNumber>().key(25).docs().unwrap(), all(|visit| visit.id == 25));
    assert_eq!(db.view::<ByNumber>().count().unwrap(), 6);

    let tagged = all(|visit| city(visit) == Some("Voss") && visit.tags.iter().any(|tag| tag == "b\0"));
    let by_tag = db.view::<ByTag>();
    let found = by_tag.key((Reverse("Voss"), Reverse("b\0"))).reverse().docs().unwrap();
    assert_eq!(found, tagged);
    let bare = by_tag.key((Reverse(None::<String>), Reverse(None::<String>))).reverse().docs().unwrap();
    assert_eq!(bare, all(|visit| city(visit).is_none() && visit.tags.is_empty()));
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn typed_views_have_parts_and_directions() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    verify(&db);
    for id in (0..VISITS).step_by(3) {
        db.put(&Visit { place: None, at: 99, ..visit(id) }).unwrap();
        db.delete::<Visit>(id + 1).unwrap();
    }
    assert!(db.check_documents().unwrap().is_clean());
    put_all(&db);
    verify(&db);
}

#[test]
fn a_unique_view_may_be_descending() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    let error = db.put(&Visit { ticket: Some("t5".into()), ..visit(6) }).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    assert!(
        error.message().contains("the document 6 of visits has t5 in the unique view by_ticket"),
        "{error}"
    );
    assert!(error.message().contains("the document 5 has it already"), "{error}");
    db.put(&Visit { ticket: None, ..visit(5) }).unwrap();
    db.put(&Visit { ticket: Some("t5".into()), ..visit(6) }).unwrap();
}

// A token is a place among the rows, in both directions.
#[test]
fn pages_continue_along_descending_rows() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    let newest = db.view::<Newest>().prefix("Oslo");
    for query in [newest.clone(), newest.reverse()] {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = query.page_docs(3, after.as_ref()).unwrap();
            paged.extend(page.items);
            let Some(token) = page.next else { break };
            after = Some(token.to_string().parse::<duramen::PageToken>().unwrap());
        }
        assert_eq!(paged, query.docs().unwrap());
    }
}

// What a view's rows are ordered by decides where a page ended.
#[test]
fn a_token_from_before_a_change_of_direction_is_refused() {
    mod earlier {
        use super::*;

        #[derive(Serialize, Deserialize, Collection)]
        #[collection(name = "visits", view(ByAt, key = at))]
        pub(crate) struct Visit {
            #[key]
            pub(crate) id: u64,
            pub(crate) at: u64,
        }
    }
    let db = Db::in_memory().unwrap();
    (0..5).for_each(|id| drop(db.put(&earlier::Visit { id, at: id }).unwrap()));
    let token = db.view::<earlier::ByAt>().page(2, None).unwrap().next.unwrap();
    let other = Db::in_memory().unwrap();
    put_all(&other);
    let error = other.view::<ByAt>().page(2, Some(&token)).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
}

// Another direction is another view under the same name: the earlier one answers until it is built.
#[test]
fn a_view_that_changes_its_direction_is_built_anew() {
    let db = Db::options().background(false).in_memory().unwrap();
    let all = db.ensure(&Schema::new("x").key(["id"]).view(ViewSpec::new("v", ["n"]))).unwrap();
    (0..5).for_each(|id| drop(all.put(doc! { "id": id, "n": id }).unwrap()));
    let order = || ids(&all.view("v").docs().unwrap());
    assert_eq!(order(), [0, 1, 2, 3, 4]);
    assert!(all.add_view(ViewSpec::new("v", [KeyField::field("n").descending()])).is_ok());
    all.build_views(|_| Ok(())).unwrap();
    assert_eq!(order(), [4, 3, 2, 1, 0]);
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn selections_merge_views_of_both_directions() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    let select = db.select::<Visit>().by::<ByAt>(Reverse(5)).or::<ByNumber>(25).or::<ByAt>(Reverse(2));
    let found: Vec<u64> = select.keys().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, [6, 7, 8, 15, 16, 17, 25]);
    let found: Vec<u64> = select.reverse().keys().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, [25, 17, 16, 15, 8, 7, 6]);
    let both = db.select::<Visit>().by::<ByAt>(Reverse(5)).and::<ByNumber>(15);
    assert_eq!(both.keys().unwrap().map(Result::unwrap).collect::<Vec<_>>(), [15]);
    let rest = db.select::<Visit>().by::<ByAt>(Reverse(5)).and_not::<ByNumber>(15);
    assert_eq!(rest.keys().unwrap().map(Result::unwrap).collect::<Vec<_>>(), [16, 17]);
}

#[test]
fn databases_with_parts_and_directions_are_read() {
    let golden = Path::new(GOLDEN);
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.exists() {
        let disk = MemDisk::new(1);
        let db = open_db(&disk, false);
        put_all(&db);
        db.close().unwrap();
        drop(db);
        store(&disk, golden);
    }
    let disk = load(golden);
    verify(&open_db(&disk, true));
    let db = open_db(&disk, false);
    put_all(&db);
    verify(&db);
}
