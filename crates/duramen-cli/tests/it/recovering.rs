//! `recover`: what is left of a damaged database is a database, and what is not is named. `inspect --tree`: how it lies on disk.
#![cfg(unix)]

use std::collections::HashSet;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::golden;
use crate::runner::{Scratch, json, skipped};

const ROWS: &str = "id,town,n\n1,Oslo,5\n2,Oslo,NA\n3,Bergen,-7\n";

fn contents(scratch: &Scratch, db: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for directory in [scratch.path(db), scratch.path(db).join("wal")] {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

fn rows() -> Scratch {
    let scratch = Scratch::with_rows(ROWS, &["--key", "town,id", "--sum", "n", "--null", "NA"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_n", "--key", "n", "--sum", "id"]);
    scratch
}

#[test]
fn a_sound_database_is_recovered_whole() {
    let scratch = rows();
    let before = contents(&scratch, "db");
    let said = scratch.ok(&["recover", "db", "new"]);
    assert!(said.contains("nothing is lost") && said.contains("1 view built anew"), "{said}");
    assert_eq!(contents(&scratch, "db"), before, "what reads never writes");
    let export = |db: &str| scratch.ok(&["export", db, "-c", "rows", "--format", "ndjson"]);
    assert_eq!(export("new"), export("db"));
    let reduced = |db: &str| scratch.ok(&["reduce", db, "-c", "rows", "--view", "by_n", "--json"]);
    assert_eq!(reduced("new"), reduced("db"));
    assert!(scratch.ok(&["check", "new", "--deep"]).contains("nothing is wrong"));
    let again = scratch.run(&["recover", "db", "new"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("E0210"), "{}", again.stderr);
    let nowhere = scratch.run(&["recover", "bd", "other"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("E0902"), "{}", nowhere.stderr);
}

// The whole way that the hint of E0501 sends people.
#[test]
fn around_a_bad_page_everything_is_recovered() {
    let scratch = Scratch::with_january();
    let path = scratch.path("db/data");
    let data = std::fs::read(&path).unwrap();
    let export = |db: &str| -> HashSet<String> {
        let csv = scratch.ok(&["export", db, "-c", "flights", "--format", "csv"]);
        csv.lines().map(str::to_owned).collect()
    };
    let all = export("db");
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let blocks = data.chunks(4096).zip((0u64..).step_by(4096));
    let pages: Vec<u64> = blocks.filter(|(block, _)| block.starts_with(b"DPAG")).map(|(_, at)| at).collect();
    let is_of_flights =
        |found: &Value| found["lost"][0]["before"].is_string() && found["lost"][0]["after"].is_string();
    for (number, offset) in pages.iter().skip(pages.len() / 2).enumerate() {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset + 100).unwrap();
        file.write_all_at(&bytes.map(|byte| !byte), offset + 100).unwrap();
        if scratch.run(&["check", "db", "--json"]).code == Some(3) {
            let new = format!("new{number}");
            let ran = scratch.run(&["recover", "db", &new, "--json"]);
            let found = json(&ran.stdout);
            if ran.code == Some(3) && is_of_flights(&found) {
                return hold_against(&scratch, &new, &found, &all, &export(&new));
            }
        }
        // An old page, or one that more than a few flights hang on.
        file.write_all_at(&bytes, offset + 100).unwrap();
    }
    panic!("no page of flights among {} pages", pages.len());
}

fn hold_against(
    scratch: &Scratch,
    new: &str,
    found: &Value,
    all: &HashSet<String>,
    recovered: &HashSet<String>,
) {
    assert_eq!(found["whole"], false);
    assert_eq!(found["lost"].as_array().unwrap().len(), 1, "{found}");
    assert!(recovered.is_subset(all), "no row was made up");
    assert_eq!((all.len() - recovered.len()) as u64, found["lost_rows"].as_u64().unwrap(), "{found}");
    assert!(found["lost"][0]["why"].as_str().unwrap().contains("checksum"), "{found}");
    assert!(scratch.ok(&["check", new, "--deep"]).contains("nothing is wrong"));
    let told = scratch.run(&["check", "db"]);
    assert!(told.stderr.contains("`duramen recover db NEW`"), "{}", told.stderr);
    let told = scratch.run(&["recover", "db", "told"]);
    assert_eq!(told.code, Some(3));
    assert!(told.stdout.contains("cannot be read: ") && told.stdout.contains("about"), "{}", told.stdout);
    assert!(told.stderr.contains("told is sound, and rows are missing"), "{}", told.stderr);
}

#[test]
fn half_a_recovery_is_refused() {
    let scratch = rows();
    scratch.ok(&["recover", "db", "new"]);
    scratch.write("new/unfinished-copy", "");
    let refused = scratch.run(&["count", "new", "-c", "rows"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("E0215"), "{}", refused.stderr);
}

#[test]
fn a_tree_is_told_by_the_name_a_person_has_for_it() {
    let scratch = rows();
    for (name, says) in [
        ("rows", "3 entries, 1 level; keeps sum n"),
        ("rows.by_n", "rows of a view"),
        ("duramen/collections", "own"),
    ] {
        let said = scratch.ok(&["inspect", "db", "--tree", name]);
        assert!(said.contains(says), "{said}");
    }
    let misspelt = scratch.run(&["inspect", "db", "--tree", "rows.by_m"]);
    assert_eq!(misspelt.code, Some(1));
    assert!(misspelt.stderr.contains("did you mean rows.by_n"), "{}", misspelt.stderr);
    let both = scratch.run(&["inspect", "db", "--tree", "rows", "--space"]);
    assert_eq!(both.code, Some(2));
}

#[test]
fn golden_files() {
    let scratch = rows();
    if scratch.lies_in_memory() {
        return skipped(
            "golden files of recover — the target directory lies in memory, and they say level disk",
        );
    }
    for (name, args) in [
        ("recover", &["recover", "db", "new", "--json"][..]),
        ("tree", &["inspect", "db", "--tree", "rows", "--json"]),
    ] {
        let mut printed = json(&scratch.ok(args));
        // The view is built in as many commits as it happens to take.
        for field in ["seq", "checkpoint", "log_commits"] {
            if let Some(seq) = printed.get_mut(field) {
                *seq = "<number>".into();
            }
        }
        golden::check(name, &printed.to_string());
    }
}
