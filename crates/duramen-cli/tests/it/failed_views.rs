//! A view that cannot be built: it is refused, or taken back, and writes go on.

use crate::runner::{Scratch, json};

const PROCESS: &[&str] = &["--durability", "process"];

/// `import a.csv` with a column of integers in which one is missing in an unforeseen way, then a view that
/// sums it. The view stayed, and every later write of the collection failed.
#[test]
fn a_view_that_sums_a_column_of_text_is_refused_and_writes_go_on() {
    let scratch = Scratch::with_rows("id,n\n1,5\n2,NA\n", &["--key", "id", "--type", "n=text"]);
    let add = |words: &[&str]| scratch.run(&[&["view", "add", "db", "-c", "rows"], words, PROCESS].concat());
    for reduction in ["--sum", "--quantiles"] {
        let ran = add(&["by_id", "--key", "id", reduction, "n"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("the column n") && ran.stderr.contains("it holds text"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(json(&scratch.ok(&["view", "list", "db", "--json"]))["views"], serde_json::json!([]));
    scratch.ok(&["put", "db", "-c", "rows", r#"{"id":3,"n":"7"}"#]);
}

/// What only a document tells, in a column of any type, fails while the view is built. It is taken back; a
/// view of the same name that it was to replace answers as before.
#[test]
fn a_view_that_fails_on_a_document_is_taken_back_and_writes_go_on() {
    let scratch = Scratch::with_rows("id,n\n1,5\n2,NA\n", &["--key", "id", "--type", "n=any"]);
    let add =
        |words: &[&str]| scratch.run(&[&["view", "add", "db", "-c", "rows", "v"], words, PROCESS].concat());
    let ran = add(&["--key", "id", "--sum", "n"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("holds text") && ran.stderr.contains("the view was not added"),
        "{}",
        ran.stderr
    );
    assert_eq!(json(&scratch.ok(&["view", "list", "db", "--json"]))["views"], serde_json::json!([]));
    assert_eq!(add(&["--key", "id"]).code, Some(0));
    let ran = add(&["--key", "id", "--sum", "n", "--replace"]);
    assert!(ran.stderr.contains("the view is as it was"), "{}", ran.stderr);
    let views = json(&scratch.ok(&["view", "list", "db", "--json"]));
    assert_eq!(
        (&views["views"][0]["rows"], views["views"].as_array().unwrap().len()),
        (&serde_json::json!(2), 1)
    );
    scratch.ok(&["put", "db", "-c", "rows", r#"{"id":3,"n":"x"}"#]);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows", "--view", "v"]), "3\n");
}
