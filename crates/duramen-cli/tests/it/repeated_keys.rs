//! Rows of one input with the same key are told from rows stored before, and none is lost in silence.

use crate::runner::{Scratch, json};

const FLAGS: [&str; 6] = ["-c", "rows", "--key", "id", "--format", "csv"];

/// Imports rows into `db`, from a file and from standard input; both must fail with these words.
fn check_refused(before: &str, rows: &str, flags: &[&str], wanted: &[&str]) {
    for file in ["rows.csv", "-"] {
        let scratch = Scratch::new();
        scratch.write("before.csv", before);
        if !before.is_empty() {
            scratch.ok(&[&["import", "db", "before.csv"], &FLAGS[..]].concat());
        }
        scratch.write("rows.csv", rows);
        let args = [&["import", "db", file], &FLAGS[..], flags].concat();
        let ran = scratch.run_with_input(&args, rows.as_bytes());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        for words in wanted {
            assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_repeated_key_of_the_input_names_both_lines() {
    let rows = "id,n\n1,5\n2,6\n3,7\n1,8\n";
    let lines = "lines 2 and 5 have the same key: 1";
    let apart = "a column more in --key that tells them apart";
    check_refused("", rows, &[], &[lines, "hint: import again, with", apart]);
    check_refused(
        "",
        rows,
        &["--batch", "1"],
        &[lines, "hint: `duramen drop db -c rows --yes` and import again, with", apart],
    );
    check_refused(
        "id,n\n9,9\n",
        rows,
        &["--batch", "2"],
        &[lines, "hint: import into a new collection", apart],
    );
}

#[test]
fn a_key_that_was_stored_before_is_said_to_be_from_before() {
    let wanted = "line 3: rows has a document under 9 already, from before this import";
    check_refused(
        "id,n\n9,9\n",
        "id,n\n1,5\n9,6\n",
        &[],
        &[wanted, "hint: --replace puts the row of the input"],
    );
}

/// Imports rows with `--replace`. Returns new, replaced and repeated rows of the summary.
fn check_replaced(before: &str, rows: &str, counts: [u64; 3], warning: Option<&str>) {
    let import = |flags: &[&str]| {
        let scratch = Scratch::new();
        scratch.write("before.csv", before);
        scratch.ok(&[&["import", "db", "before.csv"], &FLAGS[..]].concat());
        scratch.write("rows.csv", rows);
        let ran = scratch.run(&[&["import", "db", "rows.csv", "--replace"], &FLAGS[..], flags].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let summary = json(&import(&["--json"]).stdout);
    assert_eq!(["new", "replaced", "repeated"].map(|name| summary[name].as_u64().unwrap()), counts);
    let said = import(&[]).stderr;
    assert!(said.contains(&format!("; {} new, {} replaced", plural(counts[0]), counts[1])), "{said}");
    let warned = said.lines().find(|line| line.starts_with("warning: "));
    assert_eq!(warned, warning, "{said}");
}

fn plural(rows: u64) -> String {
    format!("{rows} row{}", if rows == 1 { "" } else { "s" })
}

#[test]
fn replace_says_what_it_replaced_and_warns_of_rows_of_the_same_input() {
    let rows = "id,n\n1,5\n2,6\n1,7\n1,8\n";
    check_replaced("id,n\n9,9\n", "id,n\n1,5\n9,6\n2,7\n", [2, 1, 0], None);
    let warning =
        "warning: 2 rows of the input replaced others of it with the same key, such as lines 2 and 4";
    check_replaced("id,n\n", rows, [2, 2, 2], Some(warning));
    check_replaced("id,n\n2,9\n", rows, [1, 3, 2], Some(warning));
}
