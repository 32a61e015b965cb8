//! Finds: the same documents by every access path, which the plan reports.

use std::cmp::Ordering;
use std::thread;

use duramen::Code;
use duramen::find::{AccessPath, Condition, Find, Operator, Step};
use duramen::prelude::*;
use duramen::view::ViewSpec;

/// Flights under (carrier, id). Every fifth has no delay and every third no gate, so `by_delay` and `by_gate`
/// lack rows; `by_origin` is complete.
fn flights(count: u64) -> (Db, Documents) {
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("flights")
        .key(["carrier", "id"])
        .column("gate", ColumnType::Text)
        .view(ViewSpec::new("by_origin", ["origin"]))
        .view(ViewSpec::new("by_delay", ["delay"]))
        .view(ViewSpec::new("by_gate", ["gate", "origin"]));
    let flights = db.ensure(&schema).unwrap();
    let put = |tx: &mut Transaction<'_>| {
        let flights = tx.documents("flights");
        (0..count).try_for_each(|id| flights.put(flight(id)))
    };
    db.transact(put).unwrap();
    (db, flights)
}

fn flight(id: u64) -> Document {
    let signed = i64::try_from(id).unwrap();
    doc! {
        "carrier": if id.is_multiple_of(4) { "AA" } else { "UA" },
        "id": id,
        "origin": ["EWR", "JFK", "LGA"][usize::try_from(id % 3).unwrap()],
        "delay": (!id.is_multiple_of(5)).then_some(signed % 7 - 3),
        "gate": (!id.is_multiple_of(3)).then_some(if id.is_multiple_of(2) { "A1" } else { "B2" }),
        "distance": 100.5,
    }
}

fn conditions(documents: &Documents, texts: &[&str]) -> Vec<Condition> {
    let schema = documents.schema().unwrap();
    texts.iter().map(|text| Condition::parse(&schema, text).unwrap()).collect()
}

fn id(document: &Document) -> u64 {
    match document.get("id") {
        Some(Value::Int(id)) => u64::try_from(*id).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn ids(find: &Find<'_>) -> Vec<u64> {
    find.iter().unwrap().map(|found| id(&found.unwrap())).collect()
}

fn names(fields: &[&str]) -> Vec<String> {
    fields.iter().map(ToString::to_string).collect()
}

/// The ids of flights, in the order of the key.
fn expected(count: u64, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
    let of = |own: bool| (0..count).filter(move |id| id.is_multiple_of(4) == own);
    of(true).chain(of(false)).filter(|id| wanted(*id)).collect()
}

#[test]
fn the_key_leads_as_far_as_the_conditions_restrict_it() {
    let (_db, flights) = flights(60);
    let find = flights.find(conditions(&flights, &["carrier=UA", "id>=50", "id<57"]));
    assert_eq!(ids(&find), [50, 51, 53, 54, 55]);
    assert_eq!(ids(&find.reverse()), [55, 54, 53, 51, 50]);
    let plan = find.plan().unwrap();
    assert_eq!(plan.path, AccessPath::Key { fields: names(&["carrier", "id"]) });
    assert_eq!((plan.read_count, plan.document_count, plan.is_exact), (5, 60, true));
    assert!(plan.helpful_view.is_empty());
    assert_eq!(plan.path_shown(), "the key: carrier = UA, id >= 50, id < 57");
    assert_eq!(
        plan.to_string(),
        "flights, by the key: carrier = UA, id >= 50, id < 57: reads 5 of 60 document(s), all of them results"
    );
}

#[test]
fn a_view_leads_where_the_key_does_not() {
    let (_db, flights) = flights(60);
    let find = flights.find(conditions(&flights, &["delay=2", "carrier=UA"]));
    // The key restricts as much, and needs no second get.
    assert_eq!(find.plan().unwrap().path, AccessPath::Key { fields: names(&["carrier"]) });
    let find = flights.find(conditions(&flights, &["delay>=2", "origin=EWR"]));
    let plan = find.plan().unwrap();
    assert_eq!(plan.path, AccessPath::View { name: "by_origin".into(), fields: names(&["origin"]) });
    assert_eq!((plan.read_count, plan.is_exact), (20, false));
    assert_eq!(plan.helpful_view, ["origin", "delay"]);
    let find = flights.find(conditions(&flights, &["delay=2"]));
    let late = |id: u64| !id.is_multiple_of(5) && id % 7 == 5;
    assert_eq!(ids(&find), expected(60, late));
    assert!(find.plan().unwrap().is_exact);
}

// A document without one of a view's fields has no row in it.
#[test]
fn a_view_that_lacks_documents_is_not_used_for_them() {
    let (_db, flights) = flights(60);
    for texts in [&["delay:=null"][..], &["delay!=2"], &["gate=A1"], &["distance>=100.5"]] {
        let plan = flights.find(conditions(&flights, texts)).plan().unwrap();
        assert_eq!(plan.path, AccessPath::Scan, "{texts:?}");
        assert_eq!((plan.read_count, plan.path.view()), (60, None));
        assert_eq!(plan.path_shown(), "a scan of all");
    }
    let both = flights.find(conditions(&flights, &["gate=A1", "origin>=A"]));
    assert_eq!(both.plan().unwrap().path.view(), Some("by_gate"));
    assert_eq!(
        ids(&flights.find(conditions(&flights, &["delay:=null"]))),
        expected(60, |id| id.is_multiple_of(5))
    );
    assert_eq!(ids(&flights.find([])), expected(60, |_| true));
}

#[test]
fn a_given_view_or_range_is_read_and_nothing_else() {
    let (_db, flights) = flights(60);
    let late = flights.find(conditions(&flights, &["carrier=UA"])).view("by_delay");
    let plan = late.plan().unwrap();
    assert_eq!(plan.path, AccessPath::View { name: "by_delay".into(), fields: Vec::new() });
    assert_eq!((plan.read_count, plan.path_shown().as_str()), (48, "the view by_delay"));
    assert!(!plan.is_exact && plan.helpful_view.is_empty());
    let latest = late.reverse().iter().unwrap().next().unwrap().unwrap();
    assert_eq!(latest.get("delay"), Some(&Value::from(3)));
    let some = late.range(Span::from(0).unwrap()).range(Span::to(2).unwrap());
    let early = |id: &u64| !id.is_multiple_of(5) && (3..5).contains(&(id % 7));
    assert_eq!(some.plan().unwrap().read_count, (0..60).filter(early).count() as u64);
    let mut found = ids(&some);
    found.sort_unstable();
    assert_eq!(found, (0..60).filter(early).filter(|id| !id.is_multiple_of(4)).collect::<Vec<_>>());
    let of_key = flights.find(conditions(&flights, &["delay=2"])).range(Span::prefix("AA").unwrap());
    assert_eq!(ids(&of_key), expected(60, |id| !id.is_multiple_of(5) && id % 7 == 5 && id.is_multiple_of(4)));
    let plan = of_key.plan().unwrap();
    assert_eq!((&plan.path, plan.read_count), (&AccessPath::Key { fields: Vec::new() }, 15));
    assert_eq!(plan.path_shown(), "a range of the key");
}

// The rows of such a view have single items; a condition on the list must not be looked up among them.
#[test]
fn a_view_of_the_items_of_a_list_finds_by_the_whole_list() {
    let db = Db::options().background(false).in_memory().unwrap();
    let notes = Schema::new("notes").key(["id"]).view(ViewSpec::new("by_tag", ["town", "tags"]).each());
    let notes = db.ensure(&notes).unwrap();
    let tags = |tags: &[&str]| tags.iter().map(|tag| Value::from(*tag)).collect::<Vec<_>>();
    for (id, list) in [(1, tags(&["a", "b"])), (2, tags(&["b"])), (3, tags(&["a", "b"]))] {
        notes.put(doc! { "id": id, "town": if id < 3 { "Oslo" } else { "Voss" }, "tags": list }).unwrap();
    }
    let find = notes.find(conditions(&notes, &["town=Oslo", "tags:=[\"a\",\"b\"]"]));
    assert_eq!(ids(&find), [1]);
    let by_tag = find.view("by_tag");
    assert_eq!(ids(&by_tag), [1, 1], "a row for each item");
    let plan = by_tag.plan().unwrap();
    assert_eq!((plan.path.fields(), plan.read_count, plan.is_exact), (&names(&["town"])[..], 3, false));
    assert_eq!(ids(&by_tag.range(Span::prefix(("Oslo", "b")).unwrap())), [1]);
}

/// By whichever access path, a find returns what a filter of all documents does.
#[test]
fn every_pair_of_conditions_finds_what_a_filter_finds() {
    let (db, flights) = flights(45);
    let snapshot = db.snapshot().unwrap();
    let schema = flights.schema().unwrap();
    let all: Vec<Document> = flights.scan(Span::all()).unwrap().map(Result::unwrap).collect();
    let values = [
        ("carrier", vec![Value::from("AA"), Value::from("B")]),
        ("id", vec![Value::from(0), Value::from(20)]),
        ("origin", vec![Value::from("JFK")]),
        ("delay", vec![Value::Null, Value::from(0), Value::from(3)]),
        ("gate", vec![Value::Null, Value::from("A1")]),
    ];
    use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let operators = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
    let mut terms = Vec::new();
    for (field, values) in values {
        for (value, operator) in values.iter().flat_map(|value| operators.map(|operator| (value, operator))) {
            terms.push((field, operator, value.clone()));
        }
    }
    let holds = |document: &Document, (field, operator, value): &(&str, Operator, Value)| {
        let order = match (document.get(field).unwrap_or(&Value::Null), value) {
            (Value::Int(found), Value::Int(value)) => Some(found.cmp(value)),
            (Value::Text(found), Value::Text(value)) => Some(found.cmp(value)),
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            _ => None,
        };
        match operator {
            Equal => order.is_some_and(Ordering::is_eq),
            NotEqual => !order.is_some_and(Ordering::is_eq),
            Less => order.is_some_and(Ordering::is_lt),
            LessOrEqual => order.is_some_and(Ordering::is_le),
            Greater => order.is_some_and(Ordering::is_gt),
            _ => order.is_some_and(Ordering::is_ge),
        }
    };
    let mut paths = [0; 3];
    for one in &terms {
        for other in &terms {
            let conditions = [one, other].map(|(field, operator, value)| {
                Condition::new(&schema, *field, *operator, value.clone()).unwrap()
            });
            let find = snapshot.documents("flights").find(conditions);
            let mut found = ids(&find);
            let mut wanted: Vec<u64> = all
                .iter()
                .filter(|document| holds(document, one) && holds(document, other))
                .map(id)
                .collect();
            found.sort_unstable();
            wanted.sort_unstable();
            let plan = find.plan().unwrap();
            assert_eq!(found, wanted, "{plan}");
            assert!(found.len() as u64 <= plan.read_count, "{plan}");
            paths[match plan.path {
                AccessPath::Key { .. } => 0,
                AccessPath::View { .. } => 1,
                AccessPath::ViewReductions { .. } => unreachable!("it is of groups"),
                AccessPath::Scan => 2,
            }] += 1;
        }
    }
    assert!(paths.iter().all(|count| *count > 100), "{paths:?}");
}

/// Documents whose `more` has values of every type and none.
fn mixed() -> (Db, Documents) {
    let db = Db::options().background(false).in_memory().unwrap();
    let schema = Schema::new("mixed")
        .key(["id"])
        .column("more", ColumnType::Any)
        .view(ViewSpec::new("by_more", ["more"]))
        .view(ViewSpec::new("by_n", ["n"]));
    let mixed = db.ensure(&schema).unwrap();
    let map = |value: Value| Value::Map(Document::new().with("x", value));
    let values = [
        None,
        Some(Value::Null),
        Some(Value::from(0)),
        Some(Value::from(0.0)),
        Some(Value::from(-0.0)),
        Some(Value::from(i64::MIN)),
        Some(Value::from(u64::MAX)),
        Some(Value::from("0")),
        Some(Value::from("")),
        Some(Value::from(true)),
        Some(Value::from(&b"0"[..])),
        Some(Value::from(vec![Value::from(0), Value::from("a")])),
        Some(Value::from(f64::NAN)),
    ];
    for (id, value) in values.into_iter().enumerate() {
        let id = i64::try_from(id).unwrap();
        let mut document = doc! { "id": id, "n": id - 6 };
        if let Some(value) = value {
            document.set("in", map(value.clone()));
            document.set("more", value);
        }
        mixed.put(document).unwrap();
    }
    (db, mixed)
}

fn found(documents: &Documents, words: &[&str]) -> (Vec<u64>, AccessPath) {
    let schema = documents.schema().unwrap();
    let conditions = Condition::parse_words(words, |text| Condition::parse(&schema, text)).unwrap();
    let find = documents.find(conditions);
    let mut found = ids(&find);
    found.sort_unstable();
    assert_eq!(find.count().unwrap(), found.len() as u64, "{words:?}");
    (found, find.plan().unwrap().path)
}

// Numbers are one type, in a column and inside of values. A bare number also equals its text.
#[test]
fn values_of_every_type_are_found_by_their_own() {
    let (_db, mixed) = mixed();
    let check = |word: &str, expected: &[u64]| assert_eq!(found(&mixed, &[word]).0, expected, "{word}");
    check("more is null", &[0, 1]);
    check("more is not null", &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    check("more=0", &[2, 3, 4, 7]);
    check("more:=0.0", &[2, 3]);
    check("more:=-0.0", &[2, 4]);
    check("more!=0", &[0, 1, 5, 6, 8, 9, 10, 11, 12]);
    check("more>=0", &[2, 3, 4, 6, 12]);
    check("more<0", &[5]);
    check("more<=0.0", &[2, 3, 4, 5]);
    check("more in [0,0.0,null]", &[0, 1, 2, 3, 4]);
    check("more:=\"0\"", &[7]);
    check("more contains a", &[11]);
    check("more[]=a", &[11]);
    check("more[0]=0", &[11]);
    check("in.x is null", &[0, 1]);
    check("in.x:=0", &[2, 3, 4]);
    check("in.x=0", &[2, 3, 4, 7]);
    check("in.x>=0", &[2, 3, 4, 6, 12]);
    check("in.x:=18446744073709551615", &[6]);
    check("in.x[1] starts with a", &[11]);
    check("id in 3,1,99", &[1, 3]);
    check("id in []", &[]);
    check("n>=-9223372036854775808", &(0..13).collect::<Vec<_>>());
    check("n<=18446744073709551615", &(0..13).collect::<Vec<_>>());
}

#[test]
fn several_values_are_several_ranges_of_an_index() {
    let (_db, flights) = flights(60);
    let check = |words: &[&str], view: Option<&str>, reads: u64, wanted: &dyn Fn(u64) -> bool| {
        let schema = flights.schema().unwrap();
        let conditions = Condition::parse_words(words, |text| Condition::parse(&schema, text)).unwrap();
        let find = flights.find(conditions);
        let mut expected = (0..60).filter(|id| wanted(*id)).collect::<Vec<_>>();
        let plan = find.plan().unwrap();
        assert_eq!((plan.path.view(), plan.read_count), (view, reads), "{words:?}: {plan}");
        let (mut forward, mut backward) = (ids(&find), ids(&find.reverse()));
        backward.reverse();
        assert_eq!(forward, backward, "{words:?}");
        forward.sort_unstable();
        expected.sort_unstable();
        assert_eq!(forward, expected, "{words:?}");
        assert_eq!(find.count().unwrap(), expected.len() as u64, "{words:?}");
    };
    let is_aa = |id: u64| id.is_multiple_of(4);
    check(&["carrier in UA,AA", "id in 4,5,6"], None, 3, &|id| (4..7).contains(&id));
    check(&["carrier in UA,ZZ", "id<8"], None, 6, &|id| id < 8 && !is_aa(id));
    check(&["origin in EWR,LGA"], Some("by_origin"), 40, &|id| id % 3 != 1);
    check(&["origin starts with J"], Some("by_origin"), 20, &|id| id % 3 == 1);
    check(&["origin=EWR", "or", "id=1"], None, 60, &|id| id.is_multiple_of(3) || id == 1);
    check(&["origin=EWR", "origin=JFK"], Some("by_origin"), 20, &|_| false);
    check(&["carrier=AA", "(", "id=4", "or", "gate is null", ")"], None, 15, &|id| {
        is_aa(id) && (id == 4 || id.is_multiple_of(3))
    });
}

#[test]
fn a_count_of_what_the_index_restricts_reads_no_document() {
    let (_db, flights) = flights(60);
    for (words, is_exact) in [
        (&["carrier=UA", "id<30"][..], true),
        (&["origin in EWR,JFK"], true),
        (&[], true),
        (&["carrier=UA", "delay>0"], false),
        (&["carrier=UA", "carrier=AA"], false),
    ] {
        let find = flights.find(conditions(&flights, words));
        assert_eq!(find.plan().unwrap().is_exact, is_exact, "{words:?}");
        assert_eq!(find.count().unwrap(), ids(&find).len() as u64, "{words:?}");
    }
}

// What programs store without names is found by its names.
#[test]
fn documents_in_the_positional_form_are_found() {
    #[derive(Serialize, Deserialize, Collection)]
    #[collection(positional, name = "points")]
    struct Point {
        #[key]
        id: u64,
        at: Option<i64>,
        tags: Vec<String>,
    }
    let db = Db::in_memory().unwrap();
    for id in 0..6 {
        let at = (id > 1).then_some(i64::try_from(id).unwrap());
        db.put(&Point { id, at, tags: vec![format!("t{}", id % 2)] }).unwrap();
    }
    let points = db.documents("points");
    assert_eq!(found(&points, &["at is null"]).0, [0, 1]);
    assert_eq!(found(&points, &["at>=4"]).0, [4, 5]);
    assert_eq!(found(&points, &["tags[]=t1", "or", "id=0"]).0, [0, 1, 3, 5]);
    assert_eq!(found(&points, &["tags contains t0", "at!=2"]).0, [0, 4]);
}

#[test]
fn a_transaction_finds_its_own_writes() {
    let (db, flights) = flights(20);
    let by_key = conditions(&flights, &["carrier=AA", "id>=16"]);
    let by_view = conditions(&flights, &["origin=BOS"]);
    let by_scan = conditions(&flights, &["distance=7"]);
    db.transact(|tx| {
        let flights = tx.documents("flights");
        flights.put(doc! { "carrier": "AA", "id": 99, "origin": "BOS", "distance": 7.0 })?;
        flights.delete(("AA", 16))?;
        for (wanted, view) in [(&by_key, None), (&by_view, Some("by_origin")), (&by_scan, None)] {
            let find = flights.find(wanted.clone());
            assert_eq!(find.plan()?.path.view(), view);
            assert_eq!(ids(&find), [99]);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(ids(&flights.find(by_view)), [99]);
}

// What is found is often deleted, and a row of a view must not lead to a document that is gone.
#[test]
fn a_transaction_may_delete_what_it_is_finding() {
    let (db, flights) = flights(30);
    let from_newark = conditions(&flights, &["origin=EWR"]);
    db.transact(|tx| {
        let flights = tx.documents("flights");
        let mut found = flights.find(from_newark.clone()).iter()?;
        assert_eq!(id(&found.next().unwrap()?), 0);
        for id in (0..30_u64).filter(|id| id.is_multiple_of(3) && *id != 27) {
            flights.delete((if id.is_multiple_of(4) { "AA" } else { "UA" }, id))?;
        }
        assert_eq!(found.map(|found| found.map(|found| id(&found))).collect::<Result<Vec<_>>>()?, [27]);
        Ok(())
    })
    .unwrap();
    assert_eq!(ids(&flights.find(from_newark)), [27]);
}

/// How often a transaction that finds by `texts` runs while another thread writes a flight of AA.
fn run_count(texts: &[&str], plans: bool) -> u32 {
    let (db, flights) = flights(20);
    let conditions = conditions(&flights, texts);
    let mut runs = 0;
    db.transact(|tx| {
        runs += 1;
        let find = tx.documents("flights").find(conditions.clone());
        assert!(!ids(&find).is_empty());
        if plans {
            find.plan()?;
        }
        if runs == 1 {
            let other = || flights.put(doc! { "carrier": "AA", "id": 77, "origin": "BOS" }).map(drop);
            thread::scope(|scope| scope.spawn(other).join().unwrap())?;
        }
        tx.documents("flights").put(doc! { "carrier": "UA", "id": 88, "origin": "BOS" })
    })
    .unwrap();
    runs
}

#[test]
fn a_find_conflicts_only_with_writes_of_its_range_unless_it_counts_all() {
    assert_eq!(run_count(&["carrier=UA"], false), 1);
    assert_eq!(run_count(&["carrier=AA"], false), 2);
    assert_eq!(run_count(&["carrier=UA"], true), 2, "a plan counts all documents");
    assert_eq!(run_count(&["origin=EWR"], false), 1);
    assert_eq!(run_count(&["carrier=UA", "gate=B2"], false), 2, "whether by_gate is complete depends on all");
}

#[test]
fn a_view_that_is_being_built_is_not_used() {
    let (db, flights) = flights(20);
    flights.add_view(ViewSpec::new("by_distance", ["distance"])).unwrap();
    let near = flights.find(conditions(&flights, &["distance<200"]));
    assert_eq!((near.plan().unwrap().path, ids(&near).len()), (AccessPath::Scan, 20));
    let error = near.view("by_distance").iter().err().unwrap();
    assert_eq!(error.code(), Code::Rebuilding);
    assert_eq!(near.view("by_distance").plan().unwrap_err().code(), Code::Rebuilding);
    while db.step_background().unwrap() {}
    assert_eq!((near.plan().unwrap().path.view(), ids(&near).len()), (Some("by_distance"), 20));
}

#[test]
fn a_program_can_bound_the_reads_between_two_checks() {
    let (_db, flights) = flights(60);
    let mut found = flights.find(conditions(&flights, &["distance<1"])).iter().unwrap();
    for reads in [25, 50] {
        assert_eq!((found.next_within(25).unwrap(), found.read_count()), (Step::Unfinished, reads));
    }
    assert_eq!((found.next_within(25).unwrap(), found.read_count()), (Step::End, 60));
    let mut found = flights.find(conditions(&flights, &["origin!=EWR"])).iter().unwrap();
    assert!(matches!(found.next_within(10).unwrap(), Step::Found(flight) if id(&flight) == 4));
    assert_eq!(found.read_count(), 2);
    assert_eq!(found.next_within(0).unwrap(), Step::Unfinished);
}

#[test]
fn misuse_is_refused_with_what_can_be_done() {
    let (db, flights) = flights(6);
    let schema = flights.schema().unwrap();
    for (text, message, hint) in [
        ("town=Oslo", "flights has no field town", "the fields are gate, carrier, id"),
        ("delay", "\"delay\" is no condition", "write FIELD=VALUE"),
        ("delay=soon", "the field delay is of type int, and \"soon\" is not", "an int is written -5 or 60"),
    ] {
        let error = Condition::parse(&schema, text).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{text}");
        assert!(
            error.message().contains(message) && error.hint().contains(hint),
            "{error}: {}",
            error.hint()
        );
    }
    let error = Condition::new(&schema, "delay", Operator::Equal, "5").unwrap_err();
    assert_eq!(error.message(), "the field delay is of type int, and cannot be compared with text");
    let of_orders = Schema::new("orders").column("cents", ColumnType::Int);
    let foreign = Condition::new(&of_orders, "cents", Operator::Less, 5).unwrap();
    let error = flights.find([foreign.clone()]).iter().err().unwrap();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "flights has no field cents"));
    let error = flights.find([]).view("by_town").plan().unwrap_err();
    assert!(error.code() == Code::NoSuchTree && error.hint().contains("by_origin"), "{error}");
    assert_eq!(db.documents("orders").find([foreign]).plan().unwrap_err().code(), Code::NoSuchTree);
    let long = Condition::new(&schema, "carrier", Operator::Equal, "x".repeat(2_000)).unwrap();
    assert_eq!(flights.find([long]).iter().err().unwrap().code(), Code::KeyTooLong);
}
