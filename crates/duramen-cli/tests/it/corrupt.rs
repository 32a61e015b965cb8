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
