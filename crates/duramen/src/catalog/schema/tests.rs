//! Which documents fit in a collection; its entry survives storing.
#![allow(clippy::unwrap_used)]

use super::exact_float;
use super::{ColumnType, Field, OnDelete, Reference, Schema};
use crate::doc;
use crate::store::error::Code;
use crate::value::document::{Document, Value};
use crate::view::key_field::KeyField;
use crate::view::kinds::Reduce;
use crate::view::spec::ViewSpec;

fn flights() -> Schema {
    Schema::new("flights")
        .key(["carrier", "flight"])
        .sum(["dep_delay"])
        .column("carrier", ColumnType::Text)
        .column("flight", ColumnType::Int)
        .null_marker("NA")
}

#[test]
fn an_entry_comes_back() {
    let schema = flights().column("odd", ColumnType::Unknown).column("more", ColumnType::Any);
    assert_eq!(Schema::from_bytes(&schema.to_bytes().unwrap()).unwrap(), schema);
    let bare = Schema::new("x").key(["id"]);
    assert_eq!(Schema::from_bytes(&bare.to_bytes().unwrap()).unwrap(), bare);
    let view = ViewSpec::new("by_city", ["city"])
        .values(["cents"])
        .reduce([Reduce::Sum(0), Reduce::Max(0)])
        .unique();
    let mut typed = Schema::new("x").key(["id"]).positional(["id", "city"]);
    assert!(typed.adopt_view(&view) && typed.set_typed());
    assert_eq!(Schema::from_bytes(&typed.to_bytes().unwrap()).unwrap(), typed);
}

// The names and their order are on disk (docs/format.md).
#[test]
fn fields_and_versions_are_stored_as_the_format_says() {
    let field = Field::of::<Option<u32>>("age", "Option<u32>");
    let mut schema = Schema::new("x").key(["id"]).field(field, ColumnType::Int);
    assert_eq!(Schema::from_bytes(&schema.to_bytes().unwrap()).unwrap(), schema);
    let next = Schema::new("x").key(["no"]).field(Field::of::<u64>("no", "u64").sometimes(), ColumnType::Int);
    schema.begin_version(&next.at_version(2));
    let stored = crate::Document::from_bytes(&schema.to_bytes().unwrap()).unwrap().to_json().unwrap();
    let (_, tail) = stored.split_once(r#""typed":true,"#).unwrap();
    assert_eq!(
        tail,
        concat!(
            r#""version":2,"fields":[{"name":"no","type":"u64","null":false,"always":false,"also":[]}],"#,
            r#""older":[{"version":1,"key":["id"],"compact":[],"fields":[{"name":"age","type":"u32","null":true,"always":true,"#,
            r#""also":[]}]}]}"#
        )
    );
    assert_eq!(Schema::from_bytes(&schema.to_bytes().unwrap()).unwrap(), schema);
    schema.end_migration();
    assert_eq!(schema.columns().len(), 1, "the column of a field that is gone goes with it: {schema:?}");
}

// A type reads every value that another wrote, or it is refused.
#[test]
fn a_type_reads_what_it_is_wide_enough_for() {
    fn of<T: 'static>() -> Field {
        Field::of::<T>("x", std::any::type_name::<T>())
    }
    for (own, held, reads) in [
        (of::<u64>(), of::<u32>(), true),
        (of::<i64>(), of::<u32>(), true),
        (of::<u32>(), of::<u64>(), false),
        (of::<u32>(), of::<i8>(), false),
        (of::<i64>(), of::<u64>(), false),
        (of::<Option<u32>>(), of::<u32>(), true),
        (of::<u32>(), of::<Option<u32>>(), false),
        (of::<f64>(), of::<f32>(), true),
        (of::<f32>(), of::<f64>(), false),
        (of::<String>(), of::<char>(), true),
        (of::<String>(), of::<u8>(), false),
        (of::<Vec<u8>>(), of::<String>(), true),
        (of::<Vec<u8>>(), of::<Option<String>>(), true),
        (of::<String>(), of::<String>().custom(), true),
    ] {
        assert_eq!(own.reads(&held), reads, "{own:?} {held:?}");
    }
}

// A generation names a tree: given twice, it would make old rows part of a new view.
#[test]
fn no_generation_of_a_view_is_given_twice() {
    let view = |field: &str| ViewSpec::new("v", [field]);
    let mut schema = Schema::new("x").key(["id"]);
    let mut seen = Vec::new();
    for field in ["a", "b", "a"] {
        assert!(schema.adopt_view(&view(field)));
        seen.push(schema.views()[0].tree_name("x"));
        assert!(!schema.adopt_view(&view(field)));
        assert_eq!(schema.remove_view("v").len(), 1);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[test]
fn entries_of_the_future_and_corrupt_ones_are_told_apart() {
    let future = doc! { "v": 8 }.to_bytes().unwrap();
    assert_eq!(Schema::from_bytes(&future).unwrap_err().code(), Code::Unsupported);
    for bytes in [
        &b""[..],
        b"\x80",
        &doc! { "v": 1, "name": "x" }.to_bytes().unwrap(),
        &doc! { "v": "1" }.to_bytes().unwrap(),
    ] {
        assert_eq!(Schema::from_bytes(bytes).unwrap_err().code(), Code::CorruptData);
    }
}

// A build that does not know a view would make other rows; all other collections stay open to it.
#[test]
fn only_views_that_earlier_builds_cannot_maintain_need_a_later_version() {
    #[track_caller]
    fn check(view: ViewSpec, version: i128) {
        let bytes = Schema::new("x").key(["id"]).view(view).to_bytes().unwrap();
        let stored = crate::Document::from_bytes(&bytes).unwrap();
        assert_eq!(stored.get("v"), Some(&Value::Int(version)));
        assert_eq!(Schema::from_bytes(&bytes).unwrap().to_bytes().unwrap(), bytes);
    }
    check(ViewSpec::new("v", ["a"]), 2);
    check(ViewSpec::new("v", ["a"]).unique(), 2);
    check(ViewSpec::new("v", ["a"]).nulls(), 5);
    check(ViewSpec::new("v", ["a.b"]), 2);
    check(ViewSpec::new("v", [KeyField::path("a")]), 2);
    check(ViewSpec::new("v", [KeyField::path("a.b")]), 6);
    check(ViewSpec::new("v", [KeyField::field("a"), KeyField::field("b").descending()]), 6);
    check(ViewSpec::new("v", ["a"]).each().nulls(), 6);
}

/// A name with a dot is that of a field in every view that is stored already.
#[test]
fn a_stored_key_keeps_its_paths_and_directions() {
    #[track_caller]
    fn check(fields: &[KeyField], stored: &str) {
        let spec = ViewSpec::new("v", fields.to_vec());
        let Value::Map(document) = spec.to_value() else { panic!("a view is a map") };
        let json = document.to_json().unwrap();
        assert!(json.contains(stored), "{json}");
        assert_eq!(ViewSpec::from_value(&Value::Map(document)).unwrap().key_fields(), fields);
    }
    check(&["a.b".into(), "c".into()], r#""key":["a.b","c"],"each""#);
    let path = KeyField::path("a.b");
    check(&[path.clone(), "a.b".into()], r#""ready":false,"paths":[0]}"#);
    check(&["c".into(), path.descending()], r#""ready":false,"paths":[1],"descending":[1]}"#);
    for (name, positions) in [("paths", vec![1]), ("descending", vec![-1]), ("paths", vec![0])] {
        let Value::Map(document) = ViewSpec::new("v", ["a..b"]).to_value() else { panic!("a view is a map") };
        let positions: Vec<Value> = positions.into_iter().map(Value::from).collect();
        let hostile = Value::Map(document.with(name, positions.clone()));
        assert!(ViewSpec::from_value(&hostile).is_none(), "{name} {positions:?}");
    }
}

#[test]
fn documents_are_made_to_fit_or_refused_by_name() {
    let mut schema = flights().column("air", ColumnType::Float).column("at", ColumnType::Time);
    let mut document = doc! { "carrier": "UA", "flight": 1, "air": 3, "at": "1970-01-01T00:00:01Z", "dep_delay": Value::Null };
    assert!(schema.admit(&mut document).unwrap(), "dep_delay is new");
    assert_eq!(document.get("air"), Some(&Value::Float(3.0)));
    assert_eq!(document.get("at").unwrap().kind(), "time");
    assert_eq!(schema.kind("dep_delay"), Some(ColumnType::Unknown));

    for (mut document, word) in [
        (doc! { "carrier": "UA" }, "flight"),
        (doc! { "carrier": "UA", "flight": Value::Null }, "flight"),
        (doc! { "carrier": 1, "flight": 1 }, "carrier holds int"),
        (doc! { "carrier": "UA", "flight": 1, "dep_delay": 1.5 }, "order of the additions"),
        (
            doc! { "carrier": "UA", "flight": 1, "dep_delay": "late" },
            "dep_delay cannot be summed: it holds text",
        ),
        (doc! { "carrier": "UA", "flight": 1, "air": (1_i64 << 53) + 1 }, "air holds int"),
    ] {
        let error = schema.clone().admit(&mut document).unwrap_err();
        assert!(error.message().contains(word), "{error}");
    }
    assert!(
        schema.admit(&mut doc! { "carrier": "UA", "flight": 2, "dep_delay": 7 }).unwrap(),
        "it learned a type"
    );
    assert!(!schema.admit(&mut doc! { "flight": 3, "carrier": "UA", "dep_delay": Value::Null }).unwrap());
}

#[test]
fn collections_that_cannot_be_are_refused() {
    for (schema, word) in [
        (Schema::new("").key(["id"]), "name"),
        (Schema::new("a\n").key(["id"]), "name"),
        (Schema::new("x".repeat(256)).key(["id"]), "name"),
        (Schema::new("x"), "no key"),
        (Schema::new("x").key(["a", "a"]), "twice"),
        (Schema::new("x").key(["a"]).sum(["b", "b"]), "twice"),
        (Schema::new("x").key(["a"]).sum(["b"]).column("b", ColumnType::Float), "order of the additions"),
        (Schema::new("x").key(["a"]).sum(["b"]).column("b", ColumnType::Text), "text"),
    ] {
        let error = schema.validate().unwrap_err();
        assert!(error.message().contains(word), "{error}");
    }
}

#[test]
fn terms_are_compared() {
    let schema = flights();
    schema.check_same_terms(&Schema::new("flights").key(["carrier", "flight"]).sum(["dep_delay"])).unwrap();
    assert!(
        schema
            .check_same_terms(&Schema::new("flights").key(["flight", "carrier"]).sum(["dep_delay"]))
            .is_err()
    );
    assert!(schema.check_same_terms(&Schema::new("flights").key(["carrier", "flight"])).is_err());
}

#[test]
fn integers_become_floats_only_where_exact() {
    for number in [0, 1, -1, 1 << 53, -(1 << 53), (1 << 53) + 2, i128::from(i64::MIN), 1 << 63, 3 << 60] {
        let float = exact_float(number).unwrap();
        assert_eq!(format!("{float:.0}"), number.to_string());
    }
    for number in [(1 << 53) + 1, -(1 << 53) - 1, i128::from(i64::MAX), i128::from(u64::MAX)] {
        assert_eq!(exact_float(number), None, "{number}");
    }
}

// Names of ended versions are kept for the change feed. An entry of a release that did not keep them is valid
// all the same, and so is a version without known names: such a change has no names, and nothing is corrupt.
#[test]
fn names_of_positional_documents_outlive_their_version() {
    let positional = |fields: &[&str]| {
        let field = |name: &&str| Field::of::<u64>(name, "u64");
        let schema = Schema::new("x").key(["id"]).positional(fields.iter().copied());
        fields.iter().fold(schema, |schema, name| schema.field(field(name), ColumnType::Int))
    };
    let mut schema = positional(&["id", "a"]);
    schema.begin_version(&positional(&["id", "b"]).at_version(2));
    schema.end_migration();
    let bytes = schema.to_bytes().unwrap();
    let stored = crate::Document::from_bytes(&bytes).unwrap();
    assert!(stored.to_json().unwrap().ends_with(r#","ended":[{"version":1,"compact":["id","a"]}]}"#));
    let schema = Schema::from_bytes(&bytes).unwrap();
    assert_eq!(schema.names_in_feed(1).unwrap(), ["id", "a"]);
    assert_eq!(schema.names_in_feed(2).unwrap(), ["id", "b"]);
    assert_eq!(schema.positional_of(1).unwrap_err().code(), Code::CorruptData, "of a stored document");
    let mut earlier = stored.clone();
    earlier.remove("ended");
    let earlier = Schema::from_bytes(&earlier.to_bytes().unwrap()).unwrap();
    for (schema, version) in [(&earlier, 1), (&schema, 3)] {
        assert_eq!(schema.names_in_feed(version).unwrap_err().code(), Code::Unreadable);
    }
}

// Stored form, on both sides.
#[test]
fn references_are_stored_as_the_format_says() {
    let mut schema = Schema::new("posts").key(["id"]);
    assert!(schema.adopt_reference(&Reference::new("author", "users").on_delete(OnDelete::Clear).declared()));
    assert!(!schema.adopt_reference(&Reference::new("author", "users").on_delete(OnDelete::Clear)));
    let stored = schema.to_bytes().unwrap();
    let shown = Document::from_bytes(&stored).unwrap().to_json().unwrap();
    assert!(shown.starts_with(r#"{"v":7,"name":"posts""#), "{shown}");
    assert!(
        shown.ends_with(concat!(
            r#""references":[{"field":"author","to":"users","on_delete":"clear","each":false,"declared":true,"#,
            r#""elements":1,"generation":1,"ready":false}]}"#
        )),
        "{shown}"
    );
    assert_eq!(Schema::from_bytes(&stored).unwrap(), schema);
    let mut users = Schema::new("users").key(["id"]);
    assert!(users.add_referrer("posts", "author"));
    assert!(!users.add_referrer("posts", "author"));
    let stored = users.to_bytes().unwrap();
    let shown = Document::from_bytes(&stored).unwrap().to_json().unwrap();
    assert!(
        shown.ends_with(r#""null":null,"referred_by":[{"collection":"posts","field":"author"}]}"#),
        "{shown}"
    );
    assert_eq!(Schema::from_bytes(&stored).unwrap(), users);
    assert!(users.remove_referrer("posts", "author"));
    assert_eq!(users, Schema::new("users").key(["id"]));
}
