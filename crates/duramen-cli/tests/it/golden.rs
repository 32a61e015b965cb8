//! The structure of every `--json` output: scripts depend on it, so a change here is a change of contract.
//!
//! There is a golden file per command under `tests/golden`. Values that vary between runs are replaced by
//! their types. Run with `DURAMEN_WRITE_GOLDEN=1` to regenerate the files, and review the difference.

use std::path::PathBuf;

use serde_json::Value;

use crate::runner::{Scratch, json, skipped};

const ROWS: &str = "id,town,n,f\n1,Oslo,5,1.5\n2,Oslo,NA,2\n9007199254740993,Bergen,-7,NA\n";

/// Values that vary between runs.
const VOLATILE: &[&str] = &[
    "seconds",
    "path",
    "database",
    "file_bytes",
    "used_bytes",
    "waiting_bytes",
    "bytes",
    "file_system",
    "syncs",
    "pages",
    "script",
    "page",
    "files",
    "lost_extents",
    "acknowledged",
    "found",
    "in_flight",
    "sync_call",
    "sync_reason",
    "time",
    "holder",
    "log_bytes",
    "end_bytes",
    "data_bytes",
    "moved_bytes",
];

fn rows() -> Scratch {
    Scratch::with_rows(ROWS, &["--key", "town,id", "--sum", "n", "--null", "NA"])
}

fn steady(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let steady = if VOLATILE.contains(&name.as_str()) && !value.is_object() {
                    kind(&value).into()
                } else {
                    steady(value)
                };
                (name, steady)
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(values) => values.into_iter().map(steady).collect::<Vec<_>>().into(),
        other => other,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "<text>",
        Value::Number(_) => "<number>",
        _ => "<other>",
    }
}

/// Compares what a command printed with its golden file.
pub(crate) fn check(name: &str, printed: &str) {
    let lines: Vec<Value> = printed.lines().map(|line| steady(json(line))).collect();
    let found: String = lines.iter().map(|line| format!("{line:#}\n")).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    if std::env::var_os("DURAMEN_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(found, wanted, "{name}");
}

#[test]
fn results() {
    let scratch = rows();
    if scratch.lies_in_memory() {
        return skipped(
            "golden files of results — the target directory lies in memory, and they say level disk",
        );
    }
    let commands: &[(&str, &[&str])] = &[
        ("import", &["import", "other", "rows.csv", "-c", "rows", "--key", "id", "--null", "NA"]),
        ("export", &["export", "db", "-c", "rows", "--format", "ndjson"]),
        ("get", &["get", "db", "-c", "rows", "--key", "Bergen,9007199254740993"]),
        ("scan", &["scan", "db", "-c", "rows", "--reverse"]),
        ("find", &["find", "db", "-c", "rows", "n<6"]),
        ("find_plan", &["find", "db", "-c", "rows", "n<6", "town=Oslo", "--explain"]),
        ("count", &["count", "db", "-c", "rows", "--prefix", "Oslo"]),
        ("reduce", &["reduce", "db", "-c", "rows"]),
        ("collections", &["collections", "db"]),
        ("inspect", &["inspect", "db"]),
        ("space", &["inspect", "db", "--space"]),
        ("top", &["top", "db", "--count", "1", "--interval", "0.05"]),
        ("backup", &["backup", "db", "copy"]),
        ("check", &["check", "db"]),
        ("check_deep", &["check", "db", "--deep"]),
        ("put", &["put", "db", "{\"id\":3,\"town\":\"Voss\"}", "-c", "rows"]),
        ("del", &["del", "db", "-c", "rows", "--prefix", "Oslo"]),
        ("drop", &["drop", "db", "-c", "rows", "--yes"]),
        ("compact", &["compact", "db"]),
        ("explain", &["explain", "E0101"]),
        ("errors", &["explain"]),
        ("man", &["man"]),
        ("man_dir", &["man", "--dir", "pages"]),
        ("completions", &["completions", "bash"]),
    ];
    for (name, args) in commands {
        check(name, &scratch.ok(&[args, &["--json"][..]].concat()));
    }
}

/// The number of commits that build a view varies.
#[test]
fn views() {
    let scratch = rows();
    if scratch.lies_in_memory() {
        return skipped(
            "golden files of views — the target directory lies in memory, and they say level disk",
        );
    }
    let commands: &[(&str, &[&str])] = &[
        ("view_add", &["view", "add", "db", "-c", "rows", "by_n", "--key", "n", "--sum", "id", "--max", "f"]),
        ("view_list", &["view", "list", "db"]),
        ("view_rebuild", &["view", "rebuild", "db", "-c", "rows", "by_n"]),
        ("count_view", &["count", "db", "-c", "rows", "--view", "by_n", "--prefix", "5"]),
        ("reduce_view", &["reduce", "db", "-c", "rows", "--view", "by_n"]),
        ("reduce_groups", &["reduce", "db", "-c", "rows", "--view", "by_n", "--group", "1"]),
        ("reduce_plan", &["reduce", "db", "-c", "rows", "--view", "by_n", "--group", "1", "--explain"]),
        ("collections_with_view", &["collections", "db"]),
        ("view_drop", &["view", "drop", "db", "-c", "rows", "by_n"]),
        ("reference_add", &["reference", "add", "db", "-c", "rows", "n", "numbers", "--on-delete", "clear"]),
        ("reference_list", &["reference", "list", "db"]),
        ("collections_with_reference", &["collections", "db"]),
        ("reference_drop", &["reference", "drop", "db", "-c", "rows", "n"]),
    ];
    scratch.write("numbers.csv", "n\n5\n-7\n");
    scratch.ok(&["import", "db", "numbers.csv", "-c", "numbers", "--key", "n"]);
    for (name, args) in commands {
        let mut printed = json(&scratch.ok(&[args, &["--json"][..]].concat()));
        if let Some(seq) = printed.get_mut("seq") {
            *seq = "<number>".into();
        }
        check(name, &printed.to_string());
    }
}

#[test]
fn errors() {
    let scratch = rows();
    let ran = scratch.run(&["count", "db", "-c", "row", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    check("error", &ran.stderr);
}
