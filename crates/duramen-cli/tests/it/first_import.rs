//! The first import into a collection determines its key and its types; a failed one determines nothing.

use std::io::Write;

use crate::runner::{Scratch, json};

fn collections(scratch: &Scratch) -> serde_json::Value {
    json(&scratch.ok(&["collections", "db", "--json"]))["collections"].clone()
}

/// Runs a failing import, then one with another key, which must not be refused.
fn check_nothing_left(file: &str, bytes: impl AsRef<[u8]>, flags: &[&str], words: &str) {
    let scratch = Scratch::new();
    scratch.write(file, bytes);
    let ran = scratch.run(&[&["import", "db", file, "-c", "rows", "--key", "id"], flags].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for words in [words, "nothing of this import is stored"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    assert_eq!(collections(&scratch), serde_json::json!([]));
    let count = scratch.run(&["count", "db", "-c", "rows"]);
    assert!(count.code == Some(1) && count.stderr.contains("E0901"), "{}", count.stderr);
    scratch.write("right.csv", "id,n\n1,2\n");
    scratch.ok(&["import", "db", "right.csv", "-c", "rows", "--key", "n,id", "--sum", "n"]);
    scratch.ok(&["check", "db", "--deep"]);
}

#[test]
fn a_first_import_that_fails_leaves_no_collection() {
    let repeated = "id,n\n1,2\n1,3\n";
    check_nothing_left("rows.csv", repeated, &[], "lines 2 and 3 have the same key: 1");
    check_nothing_left("rows.csv", repeated, &["--threads", "3"], "lines 2 and 3 have the same key: 1");
    check_nothing_left("rows.csv", b"id,t\n1,\xe9\n", &[], "which is not UTF-8");
    check_nothing_left("rows.csv", "id,n\n,2\n", &[], "line 2, column id: is null");
    check_nothing_left("rows.csv", "id,n\n1,x\n", &["--type", "n=int"], "which is not an integer");
    let ndjson = "{\"id\":1,\"n\":1}\n{\"id\":1,\"n\":2,\"more\":true}\n";
    check_nothing_left("rows.ndjson", ndjson, &[], "lines 1 and 2 have the same key: 1");
}

#[test]
fn a_later_import_that_fails_leaves_the_columns_as_they_were() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    let before = collections(&scratch);
    scratch.write("more.csv", "id,n,more\n1,2,3\n");
    assert_eq!(scratch.run(&["import", "db", "more.csv", "-c", "rows"]).code, Some(1));
    assert_eq!(collections(&scratch), before);
}

#[test]
fn threads_that_bring_the_first_batches_create_one_collection() {
    let scratch = Scratch::new();
    let rows: String = (0..2_000).map(|id| format!("{{\"id\":{id},\"c{}\":1}}\n", id % 100)).collect();
    scratch.write("rows.ndjson", rows);
    let args = ["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--threads", "8", "--batch", "3"];
    scratch.ok(&args);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "2000\n");
    assert_eq!(collections(&scratch)[0]["columns"].as_array().unwrap().len(), 101);
    scratch.ok(&["check", "db", "--deep"]);
}

/// A sequence of 0 is invalid: an import that commits reports its sequence.
#[test]
fn an_import_without_rows_creates_its_collection_and_says_so() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n");
    let import = ["import", "db", "rows.csv", "-c", "rows", "--key", "id"];
    let said = scratch.run(&import).stderr;
    assert!(said.contains("0 rows in 0 batches into rows") && said.contains("seq 1,"), "{said}");
    assert_eq!(collections(&scratch)[0]["rows"], 0);
    let said = json(&scratch.ok(&[&import[..], &["--json"]].concat()));
    assert_eq!((&said["rows"], &said["seq"], &said["complete"]), (&0.into(), &1.into(), &true.into()));
}

#[test]
fn a_key_that_is_too_long_is_told_as_that() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", format!("id,t\n{},1\n", "k".repeat(1100)));
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("too long") && ran.stderr.contains("shorter columns"), "{}", ran.stderr);
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn what_follows_a_gzip_stream_is_told_apart_from_one_that_was_cut() {
    let (head, tail) = (gzipped("id,n\n1,2\n"), gzipped("3,4\n"));
    let check = |parts: &[&[u8]], refused: Option<&str>| {
        let scratch = Scratch::new();
        scratch.write("rows.csv.gz", parts.concat());
        let ran = scratch.run(&["import", "db", "rows.csv.gz", "-c", "rows", "--key", "id"]);
        assert_eq!(ran.code, Some(i32::from(refused.is_some())), "{}", ran.stderr);
        assert!(ran.stderr.contains(refused.unwrap_or("2 rows in 1 batch")), "{}", ran.stderr);
    };
    check(&[&head, &tail], None);
    check(&[&head, &tail, b"junk"], Some("bytes that are no gzip follow the end of the gzip stream"));
    check(&[&head, &tail[..tail.len() - 3]], Some("ends in the middle of its gzip stream"));
}
