//! A mistake in the name of a column adds a column for good: it is reported, not refused.

use crate::runner::{Scratch, json};

const HINT: &str = "if it is a mistake, ";

/// A collection with the columns `id`, `distance` and `n`; runs a command on it. What it says of columns.
fn said(args: &[&str]) -> Vec<String> {
    let scratch = Scratch::with_rows("id,distance,n\n1,2,3\n", &["--key", "id"]);
    scratch.write("more.csv", args[0]);
    scratch.write("more.ndjson", args[0]);
    let ran = scratch.run(&args[1..]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let is_hint = |line: &&str| !line.starts_with("hint: ") && !line.contains(" batch into ");
    ran.stderr.lines().filter(is_hint).map(str::to_owned).collect()
}

fn check_put(document: &str, wanted: &[&str]) {
    assert_eq!(said(&["", "put", "db", "-c", "rows", document]), wanted, "{document}");
}

fn check_import(file: &str, rows: &str, wanted: &[&str]) {
    assert_eq!(said(&[rows, "import", "db", file, "-c", "rows"]), wanted, "{rows}");
}

#[test]
fn a_new_column_that_is_probably_misspelt_is_reported() {
    let warning = "warning: new column distnace in rows (did you mean distance?)";
    let missing = "in no row, so null, of rows: ";
    check_put("{\"id\":5,\"distnace\":7}", &[warning]);
    check_put("{\"id\":5,\"distance\":7}", &[]);
    check_put("{\"id\":5,\"distance\":7,\"distances\":[7]}", &["new in rows: distances"]);
    check_import("more.csv", "id,distnace,n\n2,3,4\n", &[warning, &format!("{missing}distance")]);
    check_import(
        "more.ndjson",
        "{\"id\":2,\"distnace\":3,\"n\":4}\n",
        &[warning, &format!("{missing}distance")],
    );
    let other = "warning: new column nn in rows (did you mean n?)";
    check_import("more.csv", "id,nn\n2,3\n", &[other, &format!("{missing}distance, n")]);
    check_import("more.csv", "id,distance,n,town\n2,3,4,5\n", &["new in rows: town"]);
    let upper = "warning: new column N in rows (did you mean n?)";
    check_import("more.csv", "id,distance,N\n2,3,4\n", &[upper, &format!("{missing}n")]);
    check_import("more.csv", "id,distance,n,N\n2,3,4,5\n", &[upper]);
    check_put(
        "{\"id\":5,\"DISTANCE\":7}",
        &["warning: new column DISTANCE in rows (did you mean distance?)"],
    );
    check_import("more.csv", "id,distance,n\n2,3,4\n", &[]);
}

/// `put` stores a whole document: what it leaves out of the one before is lost.
#[test]
fn put_names_the_fields_of_the_document_that_it_replaces() {
    let gone = "warning: replaced; these fields are gone: n";
    check_put("{\"id\":1,\"distance\":7}", &[gone]);
    check_put("{\"id\":1,\"distance\":7,\"n\":null}", &[]);
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    let put = |document: &str| scratch.run(&["put", "db", "-c", "rows", document]);
    assert!(put("{\"id\":1}").stdout.contains("stored 1 document in rows in the place of another one, seq "));
    assert!(put("{\"id\":2}").stdout.contains("stored 1 document in rows, seq "));
    let summary = json(&scratch.ok(&["put", "db", "-c", "rows", "{\"id\":2,\"n\":1}", "--json"]));
    assert_eq!((&summary["replaced"], &summary["fields_gone"]), (&true.into(), &serde_json::json!([])));
    let ran = put("{\"n\":5}");
    let words = "the document has no id, which is part of the key of rows";
    assert!(ran.code == Some(1) && ran.stderr.contains(words), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: the largest id of rows is 2: --key 3 is free\n"), "{}", ran.stderr);
    scratch.ok(&["put", "db", "-c", "rows", "{\"n\":5}", "--key", "3"]);
}

#[test]
fn scripts_find_the_columns_in_the_summary() {
    let scratch = Scratch::with_rows("id,distance,n\n1,2,3\n", &["--key", "id"]);
    scratch.write("more.csv", "id,distnace,n\n2,3,4\n");
    let summary = json(&scratch.ok(&["import", "db", "more.csv", "-c", "rows", "--json"]));
    let new = serde_json::json!([{ "column": "distnace", "did_you_mean": "distance" }]);
    assert_eq!(summary["new_columns"], new);
    assert_eq!(summary["missing_columns"], serde_json::json!(["distance"]));
    let ran = scratch.run(&["put", "db", "-c", "rows", "{\"id\":5,\"distnca\":7}", "--json"]);
    let warning = json(&ran.stderr);
    assert!(warning["hint"].as_str().unwrap().starts_with(HINT), "{warning}");
}

#[test]
fn blanks_around_a_name_are_no_part_of_it() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id, n , town\n1,2,Oslo\n");
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
    let note = "without the blanks around them, the names of columns are n, town\n";
    assert!(ran.code == Some(0) && ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(
        scratch.ok(&["find", "db", "-c", "rows", "n>1", "--json"]),
        "{\"id\":1,\"n\":2,\"town\":\"Oslo\"}\n"
    );
    scratch.write("twice.csv", "id,n, n\n1,2,3\n");
    scratch.ok(&["import", "db", "twice.csv", "-c", "twice", "--key", "id"]);
    assert_eq!(scratch.ok(&["scan", "db", "-c", "twice", "--json"]), "{\"id\":1,\"n\":2,\" n\":3}\n");
}
