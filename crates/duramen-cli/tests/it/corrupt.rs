//! A database with a bad page: the corruption is named, and everything else can be exported (D4).
#![cfg(unix)]

use std::os::unix::fs::FileExt;

use crate::runner::{JANUARY, Ran, Scratch, gunzip, json};

const EXPORT: &[&str] = &["export", "db", "-c", "flights", "--format", "csv"];

/// The offsets of pages in the data file, found by their magic number.
fn pages(data: &[u8]) -> Vec<u64> {
    let blocks = data.chunks(4096).zip((0..).step_by(4096));
    blocks.filter(|(block, _)| block.starts_with(b"DPAG")).map(|(_, offset)| offset).collect()
}

/// Corrupts a page of flights with others before and after it. Returns the output of `check --json`.
fn corrupt_one(scratch: &Scratch) -> serde_json::Value {
    let path = scratch.path("db/data");
    let offsets = pages(&std::fs::read(&path).unwrap());
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    for offset in offsets.iter().skip(offsets.len() / 2) {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset + 100).unwrap();
        file.write_all_at(&bytes.map(|byte| !byte), offset + 100).unwrap();
        let ran = scratch.run(&["check", "db", "--json"]);
        let found = json(&ran.stdout);
        if ran.code == Some(3) && found["unreadable"][0]["before"].is_string() {
            return found;
        }
        // An obsolete page, or one with more than a few flights below it.
        file.write_all_at(&bytes, offset + 100).unwrap();
    }
    panic!("no page of flights among {} pages", offsets.len());
}

fn corrupt(ran: &Ran, all: &[&str]) {
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in all {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

/// Without a new database: follows the output of `export` literally.
#[test]
fn what_is_around_a_bad_page_can_be_exported() {
    let scratch = Scratch::with_january();
    let found = corrupt_one(&scratch);
    let (unreadable, documents) = (&found["unreadable"][0], found["documents"].as_u64().unwrap());
    assert_eq!((&found["ok"], &unreadable["collection"]), (&false.into(), &"flights".into()));
    assert!(unreadable["why"].as_str().unwrap().contains("checksum"), "{found}");
    assert!((20_000..27_004).contains(&documents), "{found}");
    let told = scratch.run(&["check", "db"]);
    let problems = match found["problem_count"].as_u64().unwrap() {
        1 => "1 problem found".to_owned(),
        more => format!("{more} problems found"),
    };
    corrupt(&told, &[&problems, "restore a backup, or `duramen repair db NEW` for what can still be read"]);
    let (after, before) = (unreadable["after"].as_str().unwrap(), unreadable["before"].as_str().unwrap());
    assert!(told.stdout.contains(&format!("flights: what is between {after} and {before} cannot be read")));
    assert!(told.stdout.contains("documents that can be read"), "{}", told.stdout);

    let first = scratch.run(EXPORT);
    corrupt(&first, &["E0501", " rows were written, the last ", after, "export the rest with --from"]);
    let second = scratch.ok(&[EXPORT, &["--from", before]].concat());
    let original = gunzip(JANUARY.as_ref());
    let original: std::collections::HashSet<&str> = original.lines().collect();
    let lines: std::collections::HashSet<&str> = first.stdout.lines().chain(second.lines()).collect();
    assert_eq!(lines.len() as u64, documents + 1, "each row once, and the header");
    assert!(lines.is_subset(&original));
    // The bounds of the export leave out nothing that can be read.
    let to = scratch.ok(&[EXPORT, &["--to", after]].concat());
    assert_eq!(to.lines().count() + 1, first.stdout.lines().count());
}

/// Runs a command and follows its hint.
fn hints(scratch: &Scratch, args: &[&str], code: &str, all: &[&str]) {
    let ran = scratch.run(args);
    corrupt(&ran, &[code]);
    corrupt(&ran, all);
    assert!(!ran.stderr.contains("`duramen check"), "{args:?}: {}", ran.stderr);
}

/// A hint must name a command that succeeds where this one failed.
#[test]
fn the_hints_of_a_database_that_does_not_open_can_be_followed() {
    const ROWS: &str = "id,town\n1,Oslo\n2,Voss\n";
    let lost_log = ["--wal DIR", "`duramen repair --without-log DB NEW`"];
    let scratch = Scratch::with_rows(ROWS, &["--key", "id"]);
    std::fs::rename(scratch.path("db/wal"), scratch.path("elsewhere")).unwrap();
    for args in [&["count", "db", "-c", "rows"][..], &["check", "db"]] {
        hints(&scratch, args, "E0503", &lost_log);
    }
    scratch.ok(&["check", "db", "--wal", "elsewhere"]);
    scratch.write("rows.csv", ROWS);
    scratch.ok(&["import", "other", "rows.csv", "-c", "rows", "--key", "id"]);
    std::fs::rename(scratch.path("other/wal"), scratch.path("db/wal")).unwrap();
    hints(&scratch, &["check", "db"], "foreign log", &lost_log);
    assert_eq!(scratch.run(&["repair", "--without-log", "db", "new"]).code, Some(3));

    std::fs::remove_dir_all(scratch.path("db/wal")).unwrap();
    std::fs::rename(scratch.path("elsewhere"), scratch.path("db/wal")).unwrap();
    let data = std::fs::File::options().write(true).open(scratch.path("db/data")).unwrap();
    data.set_len(32 * 1024).unwrap();
    hints(&scratch, &["check", "db"], "E0501", &["cannot be opened", "`duramen repair db NEW`"]);
}

/// Corrupts pages of flights until `check` reports this many ranges. Returns the output of `check --json`.
fn corrupt_several(scratch: &Scratch, ranges: usize) -> serde_json::Value {
    let path = scratch.path("db/data");
    let offsets = pages(&std::fs::read(&path).unwrap());
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    for offset in offsets.iter().skip(offsets.len() / 2).step_by(5) {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset + 100).unwrap();
        file.write_all_at(&bytes.map(|byte| !byte), offset + 100).unwrap();
        let found = json(&scratch.run(&["check", "db", "--json"]).stdout);
        let listed = found["unreadable"].as_array().map_or(0, Vec::len);
        if found["documents"].as_u64().is_none_or(|documents| documents < 20_000) {
            file.write_all_at(&bytes, offset + 100).unwrap();
        } else if listed >= ranges {
            return found;
        }
    }
    panic!("fewer than {ranges} ranges among {} pages", offsets.len());
}

/// Follows the hint of `export` from one bad page to the next.
#[test]
fn what_is_between_several_bad_pages_can_be_exported() {
    let scratch = Scratch::with_january();
    let found = corrupt_several(&scratch, 4);
    let unreadable = found["unreadable"].as_array().unwrap();
    let lost: u64 = unreadable.iter().map(|one| one["documents"].as_u64().unwrap()).sum();
    let documents = found["documents"].as_u64().unwrap();
    assert_eq!(documents + lost, 27_004, "{found}");
    let original = gunzip(JANUARY.as_ref());
    let original: std::collections::HashSet<&str> = original.lines().collect();

    let mut ran = scratch.run(EXPORT);
    let mut exported = ran.stdout.clone();
    for one in unreadable {
        corrupt(&ran, &["E0501", one["after"].as_str().unwrap(), "export the rest with --from that key"]);
        ran = scratch.run(&[EXPORT, &["--from", one["before"].as_str().unwrap()]].concat());
        exported.push_str(&ran.stdout);
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: std::collections::HashSet<&str> = exported.lines().collect();
    assert_eq!(lines.len() as u64, documents + 1, "each row that can be read once, and the header");
    assert!(lines.is_subset(&original));
}
