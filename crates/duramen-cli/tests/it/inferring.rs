//! A column that is text because of a few cells is reported, with the line, the value and the way out.

use serde_json::Value;

use crate::runner::{Scratch, json};

const IMPORT: [&str; 7] = ["import", "db", "rows.csv", "-c", "rows", "--key", "id"];

/// Imports rows and returns what the summary says of their columns, and the warnings.
fn import(file: &str, rows: &str, flags: &[&str]) -> (Value, String) {
    let scratch = Scratch::new();
    scratch.write(file, rows);
    let words: Vec<&str> = IMPORT.iter().map(|word| if *word == "rows.csv" { file } else { word }).collect();
    let summary = json(&scratch.ok(&[&words[..], flags, &["--json"]].concat()));
    let again = [&words[..], flags, &["--replace"]].concat();
    std::fs::remove_dir_all(scratch.path("db")).unwrap();
    let ran = scratch.run(&again);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (summary, ran.stderr)
}

/// Imports a column `n` of these cells; exactly these warnings and hints must be printed.
fn check(cells: &[&str], flags: &[&str], wanted: &[&str]) {
    let rows: String = (1..).zip(cells).map(|(id, cell)| format!("{id},{cell}\n")).collect();
    let (summary, said) = import("rows.csv", &format!("id,n\n{rows}"), flags);
    let found: Vec<&str> = said.lines().take_while(|line| !line.contains(" batch into ")).collect();
    assert_eq!(found, wanted, "{cells:?} {flags:?}");
    let count = wanted.iter().filter(|line| line.starts_with("warning: ")).count();
    assert_eq!(summary["fallbacks"].as_array().unwrap().len(), count, "{cells:?}: {summary}");
}

/// The one cell decides for the whole column: without the report it is not found.
#[test]
fn one_word_in_a_column_of_numbers_is_named() {
    let last = "warning: the column n is text, not int: line 5 holds \"NA\" (1 of 4 values)";
    let out = "hint: --null NA reads it as null; --type n=text keeps the column text without this warning";
    check(&["1", "2", "3", "NA"], &[], &[last, out]);
    check(&["NA", "2", "3", "4"], &[], &[&last.replace("line 5", "line 2"), out]);
    check(&["1", "2", "3", "NA"], &["--null", "NA"], &[]);
    check(&["1", "2", "3", "NA"], &["--type", "n=text"], &[]);
    check(&["1", "2.5", "3", "NA"], &[], &[&last.replace("int", "float"), out]);
}

/// Rows are inspected in chunks of 256, or of fewer if they are long.
#[test]
fn every_row_of_a_long_file_decides() {
    for (rows, words) in [(1030, 1), (40, 9_000)] {
        for at in [0, 1, 7, 8, 254, 255, 256, 257, 511, 512, 513, 1022, 1023, 1024, rows - 1] {
            let cell = |row: usize| if row == at { "NA".to_owned() } else { row.to_string() };
            let body = "x".repeat(words);
            let text: String = (0..rows).map(|row| format!("{},{},{body}\n", row + 1, cell(row))).collect();
            if at < rows {
                let (_, said) = import("rows.csv", &format!("id,n,body\n{text}"), &[]);
                let wanted = format!("line {} holds \"NA\" (1 of ", at + 2);
                assert!(said.contains(&wanted), "{wanted}: {said}");
            }
        }
    }
}

/// Such a column has no value, and later numbers would be compared as text.
#[test]
fn a_column_of_words_for_null_only_is_named() {
    let message = "warning: the column n is text, and has only words that usually stand for null: \
                   line 2 holds \"NA\" (3 values)";
    let hint = "hint: --null NA reads it as null; --type n=text keeps the column text without this warning";
    check(&["NA", "NA", "NA"], &[], &[message, hint]);
    check(&["NA", "NA", "NA"], &["--type", "n=text"], &[]);
    check(&["NA", "Oslo", "NA"], &[], &[]);
}

/// `--null` replaces the empty cell as null, and `-` next to `NA` needs both: the hint names all of them.
#[test]
fn the_way_out_names_every_word_that_stands_for_null() {
    check(
        &["1", "", "-", "NA", "5", "6"],
        &[],
        &[
            "warning: the column n is text, not int: line 4 holds \"-\" (2 of 5 values)",
            "hint: --null=- --null NA --null '' read them as null; \
             --type n=text keeps the column text without this warning",
        ],
    );
    check(&["1", "", "-", "NA", "5", "6"], &["--null", "-", "--null", "NA", "--null", ""], &[]);
    check(
        &["1", "N/A", "3", "NA"],
        &["--null", "NA"],
        &[
            "warning: the column n is text, not int: line 3 holds \"N/A\" (1 of 3 values)",
            "hint: --null NA --null N/A reads it as null; \
             --type n=text keeps the column text without this warning",
        ],
    );
}

#[test]
fn what_is_no_word_for_null_is_to_be_mended() {
    check(
        &["1", "2", "l3"],
        &[],
        &[
            "warning: the column n is text, not int: line 4 holds \"l3\" (1 of 3 values)",
            "hint: correct the input; --type n=text keeps the column text without this warning",
        ],
    );
    check(
        &["1", "2", "three"],
        &[],
        &[
            "warning: the column n is text, not int: line 4 holds \"three\" (1 of 3 values)",
            "hint: correct the input, or read it as null with --null three; \
             --type n=text keeps the column text without this warning",
        ],
    );
    check(
        &["1", "2", "18446744073709551616"],
        &[],
        &[
            "warning: the column n is text, not int: line 4 holds \"18446744073709551616\", which no \
             integer of 64 bits holds (1 of 3 values)",
            "hint: correct the input; --type n=text keeps the column text without this warning",
        ],
    );
    check(
        &["1", "2", "007"],
        &[],
        &[
            "warning: the column n is text, not int: line 4 holds \"007\", which is no number in its \
             plain form (1 of 3 values)",
            "hint: correct the input; --type n=text keeps the column text without this warning",
        ],
    );
}

/// An integer that no float holds used to pass the inference and to fail in the middle of the import.
#[test]
fn an_integer_that_no_float_holds_makes_a_column_of_floats_text() {
    let warning = |line: u32| {
        format!(
            "warning: the column n is text, not float: line {line} holds \"9007199254740993\", which no float \
             holds (1 of 3 values)"
        )
    };
    let out = "hint: correct the input; --type n=text keeps the column text without this warning";
    check(&["1.5", "9007199254740993", "2"], &[], &[&warning(3), out]);
    check(&["9007199254740993", "1.5", "2"], &[], &[&warning(2), out]);
    check(&["9007199254740993", "9007199254740992", "2"], &[], &[]);
    check(&["9007199254740992", "1.5", "2"], &[], &[]);
}

/// A title that is a number makes no column of titles a mistake.
#[test]
fn text_with_a_few_numbers_is_not_reported() {
    check(&["Alien", "1984", "Heat"], &[], &[]);
    check(&["Alien", "Heat"], &[], &[]);
}

/// Standard input is read once: its first 10,000 rows stand for all.
#[test]
fn of_a_stream_the_inspected_rows_are_reported() {
    let scratch = Scratch::new();
    let mut rows = "id,n\n".to_owned();
    (1..=10_000).for_each(|id| rows.push_str(&format!("{id},{}\n", if id == 3_001 { "NA" } else { "7" })));
    rows.push_str("10001,NA\n");
    let args = ["import", "db", "-", "--format", "csv", "-c", "rows", "--key", "id"];
    let ran = scratch.run_with_input(&args, rows.as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let warning = "line 3002 holds \"NA\" (1 of 10,000 values, in the first 10,000 rows)";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    let late = rows.replace("3001,NA", "3001,7");
    let words = ["import", "db", "-", "--format", "csv", "-c", "late", "--key", "id"];
    let ran = scratch.run_with_input(&words, late.as_bytes());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("line 10002, column n: holds \"NA\""), "{}", ran.stderr);
    assert!(ran.stderr.contains("if it stands for null, use --null NA"), "{}", ran.stderr);
}

/// A gzip file is read twice too.
#[test]
fn scripts_find_the_same_in_the_summary() {
    let (summary, _) = import("rows.csv", "id,n,s\n1,5,\n2,NA,\n3,6,\n", &[]);
    let fallback = serde_json::json!([{
        "column": "n", "type": "text", "instead_of": "int", "line": 3, "value": "NA", "count": 1, "values": 3,
        "hint": "--null NA --null '' reads it as null; --type n=text keeps the column text without this warning",
    }]);
    assert_eq!(summary["fallbacks"], fallback);
    assert_eq!(summary["empty_columns"], serde_json::json!([{ "column": "s", "type": "unknown" }]));
}

#[test]
fn what_a_wholly_empty_column_becomes_is_said() {
    let (_, said) = import("rows.csv", "id,late,s\n1,,\n2,,\n", &["--sum", "s"]);
    assert!(
        said.contains(
            "without a value in any row: late (the first value decides its type), s (int: it is summed)"
        ),
        "{said}"
    );
    let (_, said) = import("rows.csv", "id,late\n", &[]);
    assert!(!said.contains("without a value"), "no rows, no news: {said}");
}

/// The sums are refused because of the cell: the refusal names it.
#[test]
fn a_sum_that_is_refused_because_of_a_cell_names_it() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,5\n2,NA\n3,6\n");
    let ran = scratch.run(&[&IMPORT[..], &["--sum", "n", "--json"]].concat());
    assert_eq!(ran.code, Some(1));
    let error = json(&ran.stderr);
    assert!(error["message"].as_str().unwrap().contains("line 3 holds \"NA\""), "{error}");
    assert!(error["hint"].as_str().unwrap().starts_with("--null NA reads it as null"), "{error}");
}

#[test]
fn values_of_several_types_in_ndjson_are_named() {
    let rows = "{\"id\":1,\"n\":5}\n{\"id\":2,\"n\":\"x\"}\n{\"id\":3,\"n\":6.5}\n{\"id\":4,\"n\":null}\n";
    let (summary, said) = import("rows.ndjson", rows, &[]);
    assert!(
        said.contains(
            "warning: the column n is any, not float: line 2 holds \"x\" (1 of 3 values)\n\
                       hint: correct the input; --type n=any keeps values of all types without this warning\n"
        ),
        "{said}"
    );
    assert_eq!(summary["fallbacks"][0]["type"], "any");
    let (summary, _) = import("rows.ndjson", rows, &["--type", "n=any"]);
    assert_eq!(summary["fallbacks"], serde_json::json!([]));
    let (summary, _) = import("rows.ndjson", "{\"id\":1,\"n\":[5]}\n{\"id\":2,\"n\":{\"a\":1}}\n", &[]);
    assert_eq!(summary["fallbacks"], serde_json::json!([]));
}
