//! The types of CSV and NDJSON: one per column; a value that does not fit is reported with line, column and
//! text.

use crate::runner::{Scratch, json};

fn types(scratch: &Scratch) -> Vec<String> {
    let found = json(&scratch.ok(&["collections", "db", "--json"]));
    let columns = found["collections"][0]["columns"].as_array().unwrap().clone();
    columns
        .iter()
        .map(|column| format!("{} {}", column["name"].as_str().unwrap(), column["type"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_column_has_the_narrowest_type_of_all_its_cells() {
    let csv = "id,int,float,mixed,text,plus,zero,big,time,nulls\n\
               1,5,1,1,1,+1,007,9223372036854775807,2013-01-01T00:00:00Z,\n\
               2,,2.5,x,,2,8,18446744073709551615,2013-01-02T00:00:00Z,\n\
               3,-7,-1e3,3,b,3,9,3,2013-01-03T00:00:00Z,\n";
    let scratch = Scratch::with_rows(csv, &["--key", "id"]);
    let expected = [
        "id int",
        "int int",
        "float float",
        "mixed text",
        "text text",
        "plus text",
        "zero text",
        "big int",
        "time text",
        "nulls unknown",
    ];
    assert_eq!(types(&scratch), expected);
    let exported = scratch.ok(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!(exported, csv.replace(",1,1,1,+1", ",1.0,1,1,+1").replace("-1e3", "-1000.0"));
}

#[test]
fn types_that_are_asked_for_are_kept() {
    let csv = "id,at,flag,n,m\n7,2013-01-01T12:00:00+02:00,true,5,18446744073709551615\n";
    let scratch = Scratch::with_rows(
        csv,
        &["--key", "id", "--type", "id=text,at=time,flag=bool", "--type", "n=float", "--type", "m=int"],
    );
    assert_eq!(types(&scratch), ["id text", "at time", "flag bool", "n float", "m int"]);
    let out = scratch.ok(&["scan", "db", "-c", "rows", "--json"]);
    assert_eq!(
        out,
        "{\"id\":\"7\",\"at\":\"2013-01-01T10:00:00Z\",\"flag\":true,\"n\":5.0,\"m\":18446744073709551615}\n"
    );
    scratch.ok(&["get", "db", "-c", "rows", "--key", "7"]);
    let again = scratch.ok(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!(again, "id,at,flag,n,m\n7,2013-01-01T10:00:00Z,true,5.0,18446744073709551615\n");
}

/// The first later value determines a column without values; as text, 9 would come after 10.
#[test]
fn a_column_without_a_value_has_no_type_yet() {
    let scratch = Scratch::with_rows("id,n,s,t\n", &["--key", "n", "--sum", "s", "--type", "t=text"]);
    assert_eq!(types(&scratch), ["id unknown", "n unknown", "s int", "t text"]);
    scratch.write("rows.csv", "id,n,s,t\n1,10,5,7\n2,9,,\n");
    scratch.ok(&["import", "db", "rows.csv", "-c", "rows"]);
    assert_eq!(types(&scratch), ["id int", "n int", "s int", "t text"]);
    let out = scratch.ok(&["scan", "db", "-c", "rows", "--json"]);
    assert_eq!(out, "{\"id\":2,\"n\":9,\"s\":null,\"t\":null}\n{\"id\":1,\"n\":10,\"s\":5,\"t\":\"7\"}\n");
    scratch.ok(&["check", "db", "--deep"]);
}

/// The rows of a stream after the first 10,000 are unknown: its types are determined by then.
#[test]
fn a_stream_settles_columns_without_a_value_as_text_and_says_so() {
    let scratch = Scratch::new();
    let rows = |count: u32| (1..=count).map(|id| format!("{id},,\n")).collect::<String>();
    let args = ["import", "db", "-", "--format", "csv", "--key", "id", "--type", "given=int", "-c"];
    let long = format!("id,late,given\n{}10001,9,9\n", rows(10_000));
    let ran = scratch.run_with_input(&[&args[..], &["long"]].concat(), long.as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("first 10,000 rows: late (text from now on); --type COLUMN=TYPE"),
        "{}",
        ran.stderr
    );
    assert_eq!(types(&scratch), ["id int", "late text", "given int"]);
    scratch.ok(&["drop", "db", "-c", "long", "--yes"]);
    let short = format!("id,late,given\n{}", rows(100));
    let ran = scratch.run_with_input(&[&args[..], &["short"]].concat(), short.as_bytes());
    assert!(ran.code == Some(0) && !ran.stderr.contains("from now on"), "{}", ran.stderr);
    assert_eq!(types(&scratch), ["id int", "late unknown", "given int"]);
    scratch.ok(&["check", "db", "--deep"]);
}

/// The first 10,000 rows determine the types of a stream; later rows must fit.
#[test]
fn a_late_cell_that_does_not_fit_is_named() {
    let scratch = Scratch::new();
    let mut csv = "id,n\n".to_owned();
    (1..=10_500).for_each(|id| csv.push_str(&format!("{id},1\n")));
    csv.push_str("10501,abc\n10502,1\n");
    let args = ["import", "db", "-", "--format", "csv", "-c", "rows", "--key", "id"];
    let ran = scratch.run_with_input(&args, csv.as_bytes());
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("line 10502, column n: holds \"abc\""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("--type n=text")
            && ran.stderr.contains("what came before is stored: 10,000 rows in 10 batches"),
        "{}",
        ran.stderr
    );
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "10000\n");

    scratch.write("rows.csv", &csv);
    scratch.ok(&["import", "db2", "rows.csv", "-c", "rows", "--key", "id"]);
    assert!(scratch.ok(&["scan", "db2", "-c", "rows", "--json", "--prefix", "10501"]).contains("\"abc\""));
}

#[test]
fn ndjson_is_exact_and_grows_columns() {
    let scratch = Scratch::new();
    let rows = "{\"id\":9007199254740993,\"a\":{\"b\":[1,null,\"x\"]}}\n\n{\"id\":18446744073709551615,\"f\":1e300,\"t\":\"é\\u0000\"}\n";
    scratch.write("rows.ndjson", rows);
    scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]);
    assert_eq!(types(&scratch), ["id int", "a any", "f float", "t text"]);
    let out = scratch.ok(&["export", "db", "-c", "rows", "--format", "ndjson"]);
    assert_eq!(out, rows.replace("\n\n", "\n"));
    let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("the field a holds a map") && ran.stderr.contains("ndjson"),
        "{}",
        ran.stderr
    );
}

#[test]
fn sums_of_what_cannot_be_summed_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,f,t\n1,1.5,x\n");
    for (column, words) in
        [("f", "the order of the additions"), ("t", "it holds text, not integers"), ("x", "no column x")]
    {
        let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id", "--sum", column]);
        assert_eq!(ran.code, Some(1), "{column}");
        assert!(ran.stderr.contains(words), "{column}: {}", ran.stderr);
    }
    assert!(!scratch.path("db").exists(), "refused before anything was created");
}

#[test]
fn a_text_that_looks_like_null_is_not_exported_as_one() {
    let scratch = Scratch::with_rows("id,t\n1,NA\n2,x\n", &["--key", "id"]);
    let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv", "--null", "NA"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("rows 1: the field t holds the text \"NA\", which stands for null"),
        "{}",
        ran.stderr
    );
    scratch.ok(&["export", "db", "-c", "rows", "--format", "csv"]);
}

#[test]
fn a_time_without_a_zone_is_in_utc_and_bools_are_in_any_case() {
    let scratch = Scratch::with_rows(
        "id,t,b\n1,2013-01-01 10:00:00,TRUE\n2,2013-01-01T10:00:00.5,False\n",
        &["--key", "id", "--type", "t=time,b=bool"],
    );
    let stored = "{\"id\":1,\"t\":\"2013-01-01T10:00:00Z\",\"b\":true}\n\
                  {\"id\":2,\"t\":\"2013-01-01T10:00:00.5Z\",\"b\":false}\n";
    assert_eq!(scratch.ok(&["scan", "db", "-c", "rows", "--json"]), stored);
    scratch.ok(&["put", "db", "-c", "rows", "{\"id\":3,\"t\":\"2013-01-01T11:00:00\"}"]);
    let put = scratch.ok(&["get", "db", "-c", "rows", "--key", "3", "--json"]);
    assert!(put.contains("2013-01-01T11:00:00Z"), "{put}");
}

/// Lists of columns are CSV records, and the hint prints what the flag takes.
#[test]
fn a_column_with_a_comma_in_its_name_can_be_named() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "\"id,no\",\"price,eur\",n\n1,5,2\n2,x,3\n3,6,4\n");
    let import = |flags: &[&str]| {
        let base = ["import", "db", "rows.csv", "-c", "rows", "--key", "\"id,no\"", "--replace"];
        let ran = scratch.run(&[&base, flags].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr
    };
    let said = import(&[]);
    assert!(said.contains("; --type '\"price,eur\"=text' keeps the column text"), "{said}");
    let said = import(&["--type", "\"price,eur\"=text,n=int"]);
    assert!(!said.contains("warning"), "{said}");
    scratch.write("sums.csv", "\"a,b\",\"c,d\",e\n1,2,3\n");
    scratch.ok(&["import", "db", "sums.csv", "-c", "sums", "--key", "\"a,b\"", "--sum", "\"c,d\",e"]);
    let ran = scratch.run(&["import", "db", "sums.csv", "-c", "new", "--key", "a,,b"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--key: a column has a name"), "{}", ran.stderr);
}
