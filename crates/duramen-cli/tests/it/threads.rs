//! Failing imports with several threads: they leave whole batches, and report them correctly.

use crate::runner::{Ran, Scratch, json};

const RUNS: u32 = 8;

fn lines(ids: std::ops::Range<u32>, more: &str) -> String {
    ids.map(|id| format!("{{\"id\":{id}{more}}}\n")).collect()
}

/// Imports a stream of NDJSON with four threads.
fn import(scratch: &Scratch, rows: &str, flags: &[&str]) -> Ran {
    let args = ["import", "db", "-", "--format", "ndjson", "-c", "rows", "--key", "id", "--threads", "4"];
    scratch.run_with_input(&[&args, flags].concat(), rows.as_bytes())
}

fn count(scratch: &Scratch) -> u32 {
    scratch.ok(&["count", "db", "-c", "rows"]).trim().parse().unwrap()
}

/// `1234` as printed.
fn told(rows: u32) -> String {
    format!("{},{:03} rows", rows / 1000, rows % 1000)
}

/// The first 10,000 rows of a stream are inspected. The batch that adds `q` after them fails at its last row.
/// Batches with `q` after it may be in progress.
#[test]
fn columns_of_a_batch_that_fails_are_there_for_the_batches_after_it() {
    let twice = "{\"id\":1,\"q\":1}\n";
    let before = lines(0..10_500, "");
    let rows =
        [&before, &lines(20_000..20_049, ",\"q\":1"), twice, &lines(30_000..32_000, ",\"q\":1")].concat();
    for _ in 0..RUNS {
        let scratch = Scratch::new();
        let ran = import(&scratch, &rows, &["--batch", "50"]);
        assert!(
            ran.code == Some(1) && ran.stderr.contains("lines 2 and 10550 have the same key: 1"),
            "{}",
            ran.stderr
        );
        scratch.ok(&["check", "db", "--deep"]);
        let stored = count(&scratch);
        let csv = scratch.ok(&["export", "db", "-c", "rows", "--format", "csv"]);
        assert_eq!(csv.lines().next().unwrap() == "id,q", stored > 10_500, "{stored} rows");
    }
}

#[test]
fn what_a_failed_import_of_several_threads_leaves_is_told_as_it_is() {
    let scratch = Scratch::new();
    let (before, after) = (lines(0..5_001, ""), lines(5_002..6_000, ""));
    let rows = [&before, "{\"id\":null}\n", &after].concat();
    let ran = import(&scratch, &rows, &["--batch", "2"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("line 5002: "), "{}", ran.stderr);
    let told =
        format!("stored are {} in 2,500 batches, with 4 threads perhaps of later lines too", told(5_000));
    assert!(
        ran.stderr.contains(&told) && ran.stderr.contains("with --replace completes them"),
        "{}",
        ran.stderr
    );
    assert_eq!(count(&scratch), 5_000);
    let mended = [before, lines(5_001..6_000, "")].concat();
    assert_eq!(import(&scratch, &mended, &["--replace"]).code, Some(0));
    assert_eq!(count(&scratch), 6_000);
    scratch.ok(&["check", "db", "--deep"]);
}

/// A duplicate key fails one batch, wherever the other threads are.
#[test]
fn rows_of_lines_after_the_one_that_failed_are_counted() {
    let rows = [lines(0..4_999, ""), lines(0..1, ""), lines(5_000..9_000, "")].concat();
    let scratch = Scratch::new();
    let ran = import(&scratch, &rows, &["--batch", "50"]);
    let stored = count(&scratch);
    assert!(stored >= 4_950 && stored.is_multiple_of(50), "{stored}");
    for words in
        ["and 5000 have the same key: ", &told(stored), "of later lines too", "--replace keeps only one"]
    {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_first_batch_that_fails_leaves_nothing_whatever_the_threads_have_read() {
    let rows = [lines(0..49, ""), lines(0..1, ""), lines(50..2_000, "")].concat();
    for _ in 0..RUNS {
        let scratch = Scratch::new();
        let ran = import(&scratch, &rows, &["--batch", "50"]);
        for words in ["lines 1 and 50 have the same key: 0", "nothing of this import is stored"] {
            assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
        }
        assert_eq!(json(&scratch.ok(&["collections", "db", "--json"]))["collections"], serde_json::json!([]));
    }
}
