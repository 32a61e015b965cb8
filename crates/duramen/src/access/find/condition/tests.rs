//! A misread condition finds the wrong documents.
use super::*;
use crate::doc;
use crate::value::time::Time;

fn schema() -> Schema {
    Schema::new("flights")
        .key(["carrier"])
        .column("carrier", ColumnType::Text)
        .column("delay", ColumnType::Int)
        .column("distance", ColumnType::Float)
        .column("time", ColumnType::Time)
        .column("more", ColumnType::Any)
}

fn check(text: &str, document: Document, holds: bool) {
    let condition = Condition::parse(&schema(), text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(condition.holds(&schema(), &document), holds, "{text}");
}

#[test]
fn values_are_read_by_the_columns_type() {
    check("carrier=0123", doc! { "carrier": "0123" }, true);
    check("delay>=60", doc! { "delay": 60 }, true);
    check("delay>60", doc! { "delay": 60 }, false);
    check("delay<=60", doc! { "delay": 61 }, false);
    check("delay=-5", doc! { "delay": -5 }, true);
    check("distance<100", doc! { "distance": 99.5 }, true);
    check("carrier=a=b", doc! { "carrier": "a=b" }, true);
    check("more:=[1,\"x\"]", doc! { "more": vec![Value::from(1), Value::from("x")] }, true);
    let noon = Value::Time(Time::parse("2013-01-01T12:00:00Z").unwrap());
    check("time>=2013-01-01T12:00:00Z", doc! { "time": noon.clone() }, true);
    check("time<2013-01-01T12:00:00Z", doc! { "time": noon }, false);
}

#[test]
fn a_document_without_the_field_equals_null_and_nothing_else() {
    check("delay:=null", doc! {}, true);
    check("delay=5", doc! {}, false);
    check("delay!=5", doc! {}, true);
    check("delay<5", doc! {}, false);
    check("delay!=5", doc! { "delay": 5 }, false);
}

#[test]
fn a_wrong_condition_is_refused_with_a_hint() {
    for (text, hint) in [
        ("delai=5", "the fields are carrier, delay"),
        ("delay", "write FIELD=VALUE"),
        ("=5", "write FIELD=VALUE"),
        ("delay=soon", "-5 or 60"),
        ("carrier:=x", "write JSON after :="),
    ] {
        let error = Condition::parse(&schema(), text).unwrap_err();
        assert!(error.hint().contains(hint), "{text}: {}", error.hint());
    }
    assert_eq!(["delai=5", "=5", "delay"].map(Condition::field_of), [Some("delai"), None, None]);
}

// A program's integer must find floats: the column decides, not the literal.
#[test]
fn parts_are_held_to_the_columns_type() {
    let condition = Condition::new(&schema(), "distance", Operator::Less, 100).unwrap();
    assert_eq!(condition, Condition::parse(&schema(), "distance<100").unwrap());
    assert!(condition.holds(&schema(), &doc! { "distance": 99.5 }));
    let absent = Condition::new(&schema(), "delay", Operator::Equal, Value::Null).unwrap();
    assert_eq!(absent, Condition::parse(&schema(), "delay:=null").unwrap());
    for (field, value) in [("delay", Value::from("5")), ("more", Value::Map(doc! {})), ("x", 5.into())] {
        let error = Condition::new(&schema(), field, Operator::Equal, value).unwrap_err();
        assert_eq!(error.code(), crate::Code::InvalidArgument, "{error}");
    }
}

// Readings of words: the value may hold anything.
#[test]
fn words_say_what_signs_cannot() {
    check("carrier in UA,AA", doc! { "carrier": "AA" }, true);
    check("carrier in UA,AA", doc! { "carrier": "U" }, false);
    check("carrier in [\"a,b\"]", doc! { "carrier": "a,b" }, true);
    check("delay in 5,6", doc! { "delay": 6 }, true);
    check("delay in [null,6]", doc! {}, true);
    check("delay in []", doc! { "delay": 6 }, false);
    check("distance in 5", doc! { "distance": 5.0 }, true);
    check("carrier contains A=B in C", doc! { "carrier": "xA=B in Cx" }, true);
    check("carrier=a in b", doc! { "carrier": "a in b" }, true);
    check("carrier contains A", doc! {}, false);
    check("more contains 5", doc! { "more": vec![Value::from(4), Value::from(5)] }, true);
    check("more contains 5", doc! { "more": "15" }, true);
    check("more contains 5", doc! { "more": 5 }, false);
    check("carrier starts with U", doc! { "carrier": "UA" }, true);
    check("carrier starts with U", doc! { "carrier": "AU" }, false);
    check("delay is null", doc! {}, true);
    check("delay is not null", doc! { "delay": Value::Null }, false);
    check("delay is not null", doc! { "delay": 0 }, true);
}

/// What people write by habit finds what they mean, or is refused: a column of text would take it in silence.
#[test]
fn habits_of_other_languages_find_what_is_meant() {
    for text in ["carrier==UA", "carrier=\"UA\"", "carrier='UA'", "carrier = UA", "carrier in AA, UA"] {
        check(text, doc! { "carrier": "UA" }, true);
        check(text, doc! { "carrier": "DL" }, false);
    }
    check("carrier<>UA", doc! { "carrier": "AA" }, true);
    check("carrier<>UA", doc! { "carrier": "UA" }, false);
    check("carrier in (AA, 'UA')", doc! { "carrier": "UA" }, true);
    check("carrier in (\"AA\",\"UA\")", doc! { "carrier": "AA" }, true);
    check("delay in (5, 6)", doc! { "delay": 6 }, true);
    check("carrier contains 'A=B'", doc! { "carrier": "xA=Bx" }, true);
    check("carrier=\"null\"", doc! { "carrier": "null" }, true);
    check("carrier=\"a and delay=5\"", doc! { "carrier": "a and delay=5" }, true);
    check("carrier=salt and pepper", doc! { "carrier": "salt and pepper" }, true);
    check("carrier=a, b", doc! { "carrier": "a, b" }, true);
    check(
        "time>='2013-01-01'",
        doc! { "time": Value::Time(Time::parse("2013-01-02T00:00:00Z").unwrap()) },
        true,
    );
    check("more.a=\"5\"", doc! { "more": Value::Map(doc! { "a": 5 }) }, false);
    check("more.a=\"5\"", doc! { "more": Value::Map(doc! { "a": "5" }) }, true);
}

#[test]
fn values_that_are_probably_meant_otherwise_are_refused() {
    let schema = schema().null_marker("NA");
    for (text, hint) in [
        ("carrier=null", "carrier is null"),
        ("carrier!=NULL", "carrier is not null"),
        ("carrier=NA", "carrier=\"NA\""),
        ("carrier=UA and delay=2", "each condition by itself"),
        ("carrier=UA or more.a=2", "each condition by itself"),
        ("carrier=salt and pepper and delay=2", "each condition by itself"),
        ("carrier=UA, delay=2", "each condition by itself"),
        ("carrier contains U and delay=2", "each condition by itself"),
        ("carrier in \"a,b\",c", "as JSON"),
    ] {
        let error = Condition::parse(&schema, text).unwrap_err();
        assert!(error.hint().contains(hint), "{text}: {error} {}", error.hint());
    }
}

#[test]
fn parts_of_values_compare_by_what_is_found() {
    let lines = |prices: &[Value]| {
        let line = |price: &Value| Value::Map(doc! { "price": price.clone() });
        doc! { "more": prices.iter().map(line).collect::<Vec<_>>() }
    };
    check("more[0].price>=5", lines(&[5.5.into()]), true);
    check("more[0].price>=5", lines(&["7".into()]), false);
    check("more[0].price>=\"5\"", lines(&["7".into()]), true);
    check("more[0].price<6", lines(&["1000".into()]), false);
    check("more[0].price>=007", lines(&["7".into()]), true);
    check("more[0].price>5", lines(&[5.0.into()]), false);
    check("more[1].price is null", lines(&[5.into()]), true);
    check("more[].price=7", lines(&[5.into(), 7.into()]), true);
    check("more[].price!=5", lines(&[5.into(), 5.into()]), false);
    check("more[].price!=5", lines(&[5.into(), 6.into()]), true);
    check("more[].price!=5", doc! {}, false);
    check("more[].price:=\"5\"", lines(&[5.into()]), false);
    check("more[].price in 4,5", lines(&[5.0.into()]), true);
}

/// A column of type any has numbers of both types, as a path has: none may be missing.
#[test]
fn a_column_of_any_type_compares_numbers_by_their_value() {
    for (text, found) in [
        ("more>5", [false, false, true, true, false]),
        ("more>5.0", [false, false, true, true, false]),
        ("more<7.5", [true, true, false, false, false]),
        ("more=5", [true, true, false, false, true]),
        ("more!=5", [false, false, true, true, false]),
        ("more in 5,9", [true, true, false, true, true]),
        ("more:=5", [true, true, false, false, false]),
        ("more=\"5\"", [false, false, false, false, true]),
        ("more>\"4\"", [false, false, false, false, true]),
    ] {
        let values = [5.into(), 5.0.into(), 7.5.into(), 9.into(), Value::from("5")];
        for (value, holds) in values.into_iter().zip(found) {
            check(text, doc! { "more": value }, holds);
        }
    }
    let made = Condition::new(&schema(), "more", Operator::Greater, 5).unwrap();
    assert!(made.holds(&schema(), &doc! { "more": 7.5 }));
    assert!(!made.holds(&schema(), &doc! { "more": "7" }));
}

#[test]
fn words_between_conditions_combine_them() {
    for (words, shown) in [
        (&["a=1", "b=2"][..], "a = 1, b = 2"),
        (&["a=1", "or", "b=2"], "(a = 1 or b = 2)"),
        (&["a=1", "b=2", "or", "c=3"], "((a = 1 and b = 2) or c = 3)"),
        (&["a=1", "and", "(", "b=2", "or", "c=3", ")"], "a = 1, (b = 2 or c = 3)"),
        (&["(", "a=1", ")"], "a = 1"),
        (&["a=or"], "a = or"),
        (&[], ""),
    ] {
        let schema = ["a", "b", "c"]
            .into_iter()
            .fold(Schema::new("x"), |schema, name| schema.column(name, ColumnType::Text));
        let found = Condition::parse_words(words, |text| Condition::parse(&schema, text)).unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), shown, "{words:?}");
    }
    for words in
        [&["or"][..], &["a=1", "or"], &["(", "a=1"], &["a=1", ")"], &["(", ")"], &["a=1", "and", "or"]]
    {
        let schema = Schema::new("x").column("a", ColumnType::Int);
        let error = Condition::parse_words(words, |text| Condition::parse(&schema, text)).unwrap_err();
        assert_eq!(error.code(), crate::Code::InvalidArgument, "{words:?}");
    }
    let deep = vec!["("; 100_000];
    let error = Condition::parse_words(deep, |text| Condition::parse(&schema(), text)).unwrap_err();
    assert!(error.message().contains("nest at most 64 deep"), "{error}");
}

#[test]
fn a_test_of_text_refuses_other_columns() {
    for (text, message) in [
        ("delay contains 5", "delay contains: the field delay is of type int"),
        ("distance starts with 1", "distance starts with: the field distance is of type float"),
        ("carrier in [5]", "the field carrier is of type text, and cannot be compared with int"),
        ("delay in 5,x", "the field delay is of type int, and \"x\" is not"),
        ("carrier.x=5", "carrier.x: the field carrier is of type text, which has no parts"),
    ] {
        let error = Condition::parse(&schema(), text).unwrap_err();
        assert!(error.message().contains(message) && !error.hint().is_empty(), "{text}: {error}");
    }
}

#[test]
fn the_texts_after_a_prefix_begin_with_the_next_character() {
    for (prefix, after) in [
        ("U", Some("V")),
        ("a\u{d7ff}", Some("a\u{e000}")),
        ("a\u{10ffff}", Some("b")),
        ("\u{10ffff}", None),
        ("", None),
    ] {
        assert_eq!(after_prefix(prefix).as_deref(), after, "{prefix:?}");
    }
}
