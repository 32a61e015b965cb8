//! An export imports to the same documents, whatever the texts; what a format cannot express is refused.

use std::collections::BTreeMap;

use duramen::prelude::*;

use crate::runner::{Scratch, no_child_starts};

/// Documents with values that a careless export would change. The time and the NaN are so only in columns of
/// those types.
const HOSTILE: &str = r#"{"id":1,"text":"nul\u0000 \"quoted\" 'x'","n":9223372036854775807,"f":-0.0,"ok":true,"at":"2013-01-01T10:00:00.5Z","digits":"123","any":[1,{"a":null}]}
{"id":2,"text":"cr\r\nlf\ttab","n":-9223372036854775808,"f":1.7976931348623157e308,"ok":false,"at":"2013-01-01T10:00:00Z","digits":"007","any":"007"}
{"id":3,"text":"日本🛫é","n":18446744073709551615,"f":5e-324,"ok":null,"at":null,"digits":"1e5","any":5}
{"id":4,"text":" a, b ","n":0,"f":"NaN","ok":true,"at":"0001-01-01T00:00:00Z","digits":"true","any":5.0}
{"id":5,"text":"","n":null,"f":0.30000000000000004,"digits":"null"}
{"id":6,"late":"only here"}
"#;

/// The arguments that import `rows.ndjson`, with the types of those fields that are in it.
fn import(documents: &str) -> Vec<&'static str> {
    let mut words =
        vec!["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--durability", "process"];
    for (field, kind) in [("\"f\"", "f=float"), ("\"at\"", "at=time"), ("\"any\"", "any=any")] {
        if documents.contains(field) {
            words.extend(["--type", kind]);
        }
    }
    words
}

fn hostile(documents: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", documents);
    scratch.ok(&import(documents));
    scratch
}

/// Exports, imports with the flags that the export prints, and compares both databases.
fn check(scratch: &Scratch, format: &str) {
    let export = |db: &str| scratch.run(&["export", db, "-c", "rows", "--format", format]);
    let exported = export("db");
    assert_eq!(exported.code, Some(0), "{}", exported.stderr);
    let file = format!("out.{format}");
    scratch.write(&file, &exported.stdout);
    let (_, flags) = exported.stderr.trim().rsplit_once("; import with ").unwrap();
    let mut words = vec!["import", "again", &file, "--durability", "process"];
    words.extend(flags.split(' '));
    scratch.ok(&words);
    assert_eq!(export("again").stdout, exported.stdout, "{format}");
    let columns = |db: &str| {
        let found = scratch.ok(&["collections", db, "--json"]);
        found.split_once("\"columns\"").unwrap().1.to_owned()
    };
    assert_eq!(columns("again"), columns("db"), "{format}: {flags}");
    let ndjson = |db: &str| scratch.ok(&["export", db, "-c", "rows", "--format", "ndjson"]);
    assert_eq!(ndjson("again"), ndjson("db"), "{format}");
}

#[test]
fn ndjson_keeps_every_value_and_its_type() {
    let scratch = hostile(HOSTILE);
    assert_eq!(scratch.ok(&["export", "db", "-c", "rows", "--format", "ndjson"]), HOSTILE);
    check(&scratch, "ndjson");
}

/// Without lists, NaN, empty texts and absent fields, which CSV cannot express.
#[test]
fn csv_keeps_every_value_that_it_can_say() {
    let documents: String = HOSTILE
        .lines()
        .take(3)
        .map(|line| {
            let line = line.split(",\"any\"").next().unwrap();
            format!("{line}}}\n")
        })
        .collect();
    let scratch = hostile(&documents);
    check(&scratch, "csv");
}

#[test]
fn what_csv_cannot_say_is_refused() {
    for (document, what) in [
        (r#"{"id":1,"any":[1]}"#, "a list"),
        (r#"{"id":1,"any":{"a":1}}"#, "a map"),
        (r#"{"id":1,"f":"Infinity"}"#, "a float that is no number"),
        (r#"{"id":1,"text":""}"#, "stands for null"),
    ] {
        let scratch = hostile(document);
        let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv"]);
        assert_eq!(ran.code, Some(1), "{document}");
        assert!(ran.stderr.contains(what) && ran.stderr.contains("--format ndjson"), "{}", ran.stderr);
    }
}

/// Numbers that no column type holds exactly are never rounded.
#[test]
fn numbers_beyond_the_types_are_refused() {
    let scratch = Scratch::new();
    for (document, what) in [
        (r#"{"id":1,"f":1e400}"#, "more than a float holds"),
        (r#"{"id":1,"f":18446744073709551616}"#, "does not fit in 64 bits"),
        (r#"{"id":1,"f":9007199254740993}"#, "f"),
    ] {
        scratch.write("rows.ndjson", document);
        let ran = scratch.run(&import(document));
        assert_eq!(ran.code, Some(1), "{document}");
        assert!(ran.stderr.contains("line 1") && ran.stderr.contains(what), "{}", ran.stderr);
    }
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(name = "rows")]
struct Open {
    #[key]
    id: u64,
    #[serde(flatten)]
    extra: BTreeMap<String, String>,
}

/// Typed documents may have fields without a column: CSV refuses them instead of omitting them.
#[test]
fn csv_refuses_a_field_that_is_no_column() {
    let scratch = Scratch::new();
    {
        let _alone = no_child_starts();
        let db = Db::open(scratch.path("db")).unwrap();
        db.put(&Open { id: 1, extra: BTreeMap::new() }).unwrap();
        db.put(&Open { id: 2, extra: [("note".to_owned(), "kept".to_owned())].into() }).unwrap();
        db.close().unwrap();
    }
    let csv = scratch.run(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!(csv.code, Some(1), "{}{}", csv.stdout, csv.stderr);
    for said in ["rows 2: the field note is no column", "--format ndjson"] {
        assert!(csv.stderr.contains(said), "{}", csv.stderr);
    }
    let ndjson = scratch.ok(&["export", "db", "-c", "rows", "--format", "ndjson"]);
    assert_eq!(ndjson, "{\"id\":1}\n{\"id\":2,\"note\":\"kept\"}\n");
}

#[test]
fn csv_finds_columns_wherever_documents_have_them() {
    let scratch = Scratch::new();
    let rows = [
        r#"{"id":1,"t":"a","n":1}"#,
        r#"{"id":2,"n":2,"t":"b"}"#,
        r#"{"id":3,"t":"c"}"#,
        r#"{"id":4,"t":"d"}"#,
        r#"{"n":5,"id":5}"#,
    ];
    scratch.write("rows.ndjson", &(rows.join("\n") + "\n"));
    scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]);
    let csv = scratch.ok(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!(csv, "id,t,n\n1,a,1\n2,b,2\n3,c,\n4,d,\n5,,5\n");
}
