//! A database with a bad page: what is damaged is named, and all the rest can be taken out (D4).
#![cfg(unix)]

use std::os::unix::fs::FileExt;

use crate::runner::{JANUARY, Ran, Scratch, gunzip, json};

const EXPORT: &[&str] = &["export", "db", "-c", "flights", "--format", "csv"];

/// Where pages begin in the data file, told by their magic.
fn pages(data: &[u8]) -> Vec<u64> {
    let blocks = data.chunks(4096).zip((0..).step_by(4096));
    blocks.filter(|(block, _)| block.starts_with(b"DPAG")).map(|(_, offset)| offset).collect()
}

/// Damages a page that flights lie in, with others before and behind it; what `check --json` says of it.
fn damage(scratch: &Scratch) -> serde_json::Value {
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
        // An old page, or one that more than a few flights hang on.
        file.write_all_at(&bytes, offset + 100).unwrap();
    }
    panic!("no page of flights among {} pages", offsets.len());
}

fn damaged(ran: &Ran, all: &[&str]) {
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in all {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

/// Without a new database: what `export` says, followed to the letter.
#[test]
fn what_is_around_a_bad_page_can_be_exported() {
    let scratch = Scratch::with_january();
    let found = damage(&scratch);
    let (unreadable, documents) = (&found["unreadable"][0], found["documents"].as_u64().unwrap());
    assert_eq!((&found["ok"], &unreadable["collection"]), (&false.into(), &"flights".into()));
    assert!(unreadable["why"].as_str().unwrap().contains("checksum"), "{found}");
    assert!((20_000..27_004).contains(&documents), "{found}");
    let told = scratch.run(&["check", "db"]);
    let problems = match found["problem_count"].as_u64().unwrap() {
        1 => "1 problem found".to_owned(),
        more => format!("{more} problems found"),
    };
    damaged(&told, &[&problems, "restore a backup, or `duramen recover db NEW` for what can still be read"]);
    let (after, before) = (unreadable["after"].as_str().unwrap(), unreadable["before"].as_str().unwrap());
    assert!(told.stdout.contains(&format!("flights: what lies between {after} and {before} cannot be read")));
    assert!(told.stdout.contains("documents that can be read"), "{}", told.stdout);

    let first = scratch.run(EXPORT);
    damaged(&first, &["E0501", " rows were written, the last ", after, "export the rest with --from"]);
    let second = scratch.ok(&[EXPORT, &["--from", before]].concat());
    let original = gunzip(JANUARY.as_ref());
    let original: std::collections::HashSet<&str> = original.lines().collect();
    let lines: std::collections::HashSet<&str> = first.stdout.lines().chain(second.lines()).collect();
    assert_eq!(lines.len() as u64, documents + 1, "each row once, and the header");
    assert!(lines.is_subset(&original));
    // Nothing that could be read is left out by the bounds of export.
    let to = scratch.ok(&[EXPORT, &["--to", after]].concat());
    assert_eq!(to.lines().count() + 1, first.stdout.lines().count());
}
