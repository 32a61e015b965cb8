//! `repair`: what is left of a corrupt database becomes a database, and losses are named. `inspect --tree`:
//! its shape on disk.
#![cfg(unix)]

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::Value;

use crate::golden;
use crate::runner::{Scratch, json, output, skipped};

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
fn a_sound_database_is_repaired_whole() {
    let scratch = rows();
    let before = contents(&scratch, "db");
    let said = scratch.ok(&["repair", "db", "new"]);
    assert!(said.contains("nothing is lost") && said.contains("1 view built anew"), "{said}");
    assert_eq!(contents(&scratch, "db"), before, "what reads never writes");
    let export = |db: &str| scratch.ok(&["export", db, "-c", "rows", "--format", "ndjson"]);
    assert_eq!(export("new"), export("db"));
    let reduced = |db: &str| scratch.ok(&["reduce", db, "-c", "rows", "--view", "by_n", "--json"]);
    assert_eq!(reduced("new"), reduced("db"));
    assert!(scratch.ok(&["check", "new", "--deep"]).contains("nothing is wrong"));
    let again = scratch.run(&["repair", "db", "new"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("E0210"), "{}", again.stderr);
    let nowhere = scratch.run(&["repair", "bd", "other"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("E0902"), "{}", nowhere.stderr);
}

/// Without a superblock a page cannot be checked but by the identity that the log has: the message must ask
/// for the log, and must not say that the file is no database.
#[test]
fn without_superblocks_and_log_the_log_is_asked_for() {
    let scratch = rows();
    let data = std::fs::File::options().write(true).open(scratch.path("db/data")).unwrap();
    for offset in [0, 16_384] {
        data.write_all_at(&[0; 512], offset).unwrap();
    }
    std::fs::rename(scratch.path("db/wal"), scratch.path("away")).unwrap();
    std::fs::create_dir(scratch.path("db/wal")).unwrap();
    for (code, args) in [
        (3, &["count", "db", "-c", "rows"][..]),
        (1, &["repair", "db", "new"]),
        (1, &["repair", "--without-log", "db", "new"]),
    ] {
        let ran = scratch.run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("E0504") && ran.stderr.contains("--wal DIR"), "{args:?}: {}", ran.stderr);
        assert!(!scratch.path("new").exists());
    }
    let ran = scratch.run(&["repair", "db", "new", "--wal", "away"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!ran.stdout.contains("are lost, up to"), "no commit is counted: {}", ran.stdout);
    assert_eq!(scratch.ok(&["count", "new", "-c", "rows-uncertain"]), "3\n");
    assert!(ran.stdout.contains("export new -c rows-uncertain --format ndjson"), "{}", ran.stdout);
}

// The whole procedure that the hint of E0501 recommends.
#[test]
fn around_a_bad_page_everything_is_repaired() {
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
            let ran = scratch.run(&["repair", "db", &new, "--json"]);
            let found = json(&ran.stdout);
            if ran.code == Some(3) && is_of_flights(&found) {
                return hold_against(&scratch, &new, &found, &all, &export(&new));
            }
        }
        // An obsolete page, or one with more than a few flights below it.
        file.write_all_at(&bytes, offset + 100).unwrap();
    }
    panic!("no page of flights among {} pages", pages.len());
}

fn hold_against(
    scratch: &Scratch,
    new: &str,
    found: &Value,
    all: &HashSet<String>,
    repaired: &HashSet<String>,
) {
    assert_eq!(found["whole"], false);
    assert_eq!(found["lost"].as_array().unwrap().len(), 1, "{found}");
    assert!(repaired.is_subset(all), "no row was made up");
    assert_eq!((all.len() - repaired.len()) as u64, found["lost_rows"].as_u64().unwrap(), "{found}");
    assert!(found["lost"][0]["why"].as_str().unwrap().contains("checksum"), "{found}");
    assert!(scratch.ok(&["check", new, "--deep"]).contains("nothing is wrong"));
    let told = scratch.run(&["check", "db"]);
    assert!(told.stderr.contains("`duramen repair db NEW`"), "{}", told.stderr);
    let told = scratch.run(&["repair", "db", "told"]);
    assert_eq!(told.code, Some(3));
    assert!(told.stdout.contains("cannot be read: ") && told.stdout.contains("about"), "{}", told.stdout);
    assert!(told.stderr.contains("told is sound, and rows are missing"), "{}", told.stderr);
}

// Exit code 3 is for a sound new database: a script that continues with it must find one.
#[test]
fn a_repair_that_fails_exits_with_1() {
    let scratch = rows();
    let path = scratch.path("db/data");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 32 * 1024], 0).unwrap();
    // Both superblocks are gone: the log says which database it was, and the rows are uncertain.
    let ran = scratch.run(&["repair", "db", "found"]);
    assert!(ran.code == Some(3) && ran.stdout.contains("-uncertain"), "{:?} {}", ran.code, ran.stdout);
    for segment in std::fs::read_dir(scratch.path("db/wal")).unwrap() {
        let file = std::fs::File::options().write(true).open(segment.unwrap().path()).unwrap();
        file.write_all_at(&[0; 4096], 0).unwrap();
    }
    let ran = scratch.run(&["repair", "db", "new"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("E0504"), "{:?} {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("restore a backup"), "{}", ran.stderr);
    assert!(!scratch.path("new").exists());
    // An existing directory is left alone, whatever is wrong with the database.
    std::fs::create_dir(scratch.path("new")).unwrap();
    scratch.write("new/mine", "");
    let taken = scratch.run(&["repair", "db", "new"]);
    assert!(taken.code == Some(1) && taken.stderr.contains("E0210"), "{}", taken.stderr);
    std::fs::remove_file(path).unwrap();
    let ran = scratch.run(&["repair", "db", "other"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("E0501"), "{:?} {}", ran.code, ran.stderr);
}

// ^C ends it soon, with the usual exit code. Nothing opens what it leaves, and it prints what to remove.
#[test]
fn a_signal_ends_a_repair_and_leaves_nothing_that_opens() {
    let scratch = Scratch::with_january();
    let before = contents(&scratch, "db");
    for (signal, number, code) in [("-INT", 2, 130), ("-TERM", 15, 143)] {
        let mut child = scratch.spawn(&["repair", "db", "new"]);
        // It watches for signals before it creates anything.
        while !scratch.path("new").exists() {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
        let killed = output(Command::new("kill").args([signal, &child.id().to_string()])).unwrap();
        assert!(killed.status.success());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(
            said.contains(&format!("stopped by signal {number}")) && said.contains("remove it"),
            "{said}"
        );
        let opened = scratch.run(&["count", "new", "-c", "flights"]);
        assert_eq!(opened.code, Some(1), "{}{}", opened.stdout, opened.stderr);
        let again = scratch.run(&["repair", "db", "new"]);
        assert!(again.code == Some(1) && again.stderr.contains("E0210"), "{}", again.stderr);
        std::fs::remove_dir_all(scratch.path("new")).unwrap();
    }
    assert_eq!(contents(&scratch, "db"), before, "what reads never writes");
    assert!(scratch.ok(&["repair", "db", "new"]).contains("nothing is lost"));
}

// By any path: the corrupt database is only read.
#[test]
fn a_new_database_inside_of_the_corrupt_one_is_refused() {
    let scratch = rows();
    let before = contents(&scratch, "db");
    std::os::unix::fs::symlink("db", scratch.path("link")).unwrap();
    std::fs::create_dir(scratch.path("log")).unwrap();
    let inside = |at: &str, args: &[&str]| {
        let mut command = scratch.command(args);
        let ran = output(command.current_dir(scratch.path(at))).unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(2) && said.contains("is inside"), "{at} {args:?}: {said}");
    };
    inside("db", &["repair", ".", "new"]);
    inside(".", &["repair", "db", "link/new"]);
    inside(".", &["repair", "link", "./db/wal/new"]);
    inside(".", &["repair", "db", "log/../db/new"]);
    inside(".", &["repair", "db", "log/new", "--wal", "./log"]);
    assert_eq!(contents(&scratch, "db"), before);
}

// The log is intact but was not named: the user must not wait for a database without its newest rows.
#[test]
fn a_log_elsewhere_is_asked_for() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", ROWS);
    scratch.ok(&["import", "db", "rows.csv", "--wal", "log", "-c", "rows", "--key", "town,id"]);
    let refused = scratch.run(&["repair", "db", "new"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("E0503"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--wal DIR") && refused.stderr.contains("--without-log"),
        "{}",
        refused.stderr
    );
    assert!(scratch.ok(&["repair", "db", "new", "--wal", "log"]).contains("nothing is lost"));
    let without = scratch.run(&["repair", "db", "less", "--without-log"]);
    assert_eq!(without.code, Some(3), "{}", without.stderr);
    assert!(without.stdout.contains("--wal DIR"), "{}", without.stdout);
    assert!(without.stdout.contains("ids that were assigned may be given again"), "{}", without.stdout);
}

#[test]
fn half_a_repair_is_refused() {
    let scratch = rows();
    scratch.ok(&["repair", "db", "new"]);
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
    let missing = scratch.run(&["inspect", "db", "--tree"]);
    assert!(missing.code == Some(2) && !missing.stderr.contains("the values are"), "{}", missing.stderr);
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
            "golden files of repair — the target directory lies in memory, and they say level disk",
        );
    }
    for (name, args) in [
        ("recover", &["repair", "db", "new", "--json"][..]),
        ("tree", &["inspect", "db", "--tree", "rows", "--json"]),
    ] {
        let mut printed = json(&scratch.ok(args));
        // The number of commits that build the view varies.
        for field in ["seq", "checkpoint", "log_commits"] {
            if let Some(seq) = printed.get_mut(field) {
                *seq = "<number>".into();
            }
        }
        golden::check(name, &printed.to_string());
    }
}

/// The flights of January with the beginning of the data file overwritten: both superblocks, and the pages of
/// names and of the list of collections.
fn without_its_beginning() -> Scratch {
    let scratch = Scratch::with_january();
    let file = std::fs::File::options().write(true).open(scratch.path("db/data")).unwrap();
    file.write_all_at(&[0; 256 * 1024], 0).unwrap();
    scratch
}

// The rows are there, without a name: an operator must see them, and get them out.
#[test]
fn rows_in_a_tree_of_bytes_are_counted_shown_and_exported() {
    let scratch = without_its_beginning();
    let ran = scratch.run(&["repair", "db", "new", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let report = json(&ran.stdout);
    let found = report["uncertain"].as_array().unwrap();
    let of_bytes = found.iter().filter(|one| one["store"] == "bytes");
    let most = of_bytes.max_by_key(|one| one["rows"].as_u64()).unwrap_or_else(|| panic!("{report}"));
    let (tree, rows) = (most["name"].as_str().unwrap(), most["rows"].as_u64().unwrap());
    assert!(tree.starts_with("recovered/") && rows > 1000, "{report}");

    assert_eq!(scratch.ok(&["count", "new", "-c", tree]).trim(), rows.to_string());
    let first = json(&scratch.ok(&["scan", "new", "-c", tree, "--limit", "1", "--json"]));
    assert!(first["value"]["carrier"].is_string() && first["key"].is_string(), "{first}");
    assert!(scratch.ok(&["scan", "new", "-c", tree, "--limit", "1"]).contains("\"carrier\":"));
    let exported = scratch.ok(&["export", "new", "-c", tree, "--format", "ndjson"]);
    assert_eq!(exported.lines().count() as u64, rows);
    let row = json(exported.lines().next().unwrap());
    assert!(row["carrier"].is_string() && row.get("value").is_none(), "an import takes it: {row}");

    for (args, advice) in [
        (&["export", "new", "-c", tree, "--format", "csv"][..], "--format ndjson"),
        (&["scan", "new", "-c", tree, "--prefix", "1"], "leave --prefix"),
        (&["get", "new", "-c", tree, "--key", "1"], "it is a tree of bytes"),
    ] {
        let refused = scratch.run(args);
        assert!(refused.code != Some(0) && refused.stderr.contains(advice), "{args:?}: {}", refused.stderr);
    }
}

// No 0 that is not proven: what was found page by page may be all, or not.
#[test]
fn a_loss_of_unknown_size_is_called_unknown() {
    let scratch = without_its_beginning();
    let ran = scratch.run(&["repair", "db", "new", "--json"]);
    let report = json(&ran.stdout);
    assert_eq!(report["lost_unknown"], true, "{report}");
    for one in report["recovered"].as_array().unwrap() {
        assert!(one["lost_unknown"] == true && one["why_unknown"].is_string(), "{one}");
    }
    let said = scratch.run(&["repair", "db", "told"]);
    for words in ["unknown", "pages were found one by one", "duramen scan told -c recovered/"] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(said.stderr.contains("rows may be missing"), "{}", said.stderr);
    assert!(!said.stdout.contains("(0 bytes"), "{}", said.stdout);

    // A log that is lost may have had commits, and each of them rows.
    let scratch = rows();
    std::fs::remove_dir_all(scratch.path("db/wal")).unwrap();
    let said = scratch.run(&["repair", "db", "new", "--without-log"]);
    for words in ["unknown", "any of them may have had more rows", "is lost, if there was one: "] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("(0 bytes"), "{}", said.stdout);
}

/// A byte of the last commit is flipped before the log calls that commit durable: the log ends like that of a
/// crash. Neither command may say that nothing is missing.
#[test]
fn a_log_that_ends_in_an_unfinished_write_is_reported() {
    let scratch = rows();
    let db = duramen::Db::open(scratch.path("db")).unwrap();
    for attempt in 0..20 {
        let document = duramen::doc! { "id": 100 + attempt, "town": format!("Voss{attempt:02}"), "n": 1 };
        db.documents("rows").put(document).unwrap();
        let copy = format!("copy{attempt}");
        assert!(
            output(Command::new("cp").arg("-r").args([scratch.path("db"), scratch.path(&copy)]))
                .unwrap()
                .status
                .success()
        );
        // 100 ms after the commit a durable watermark follows it; then the flip is corruption.
        let town = format!("Voss{attempt:02}").into_bytes();
        for segment in std::fs::read_dir(scratch.path(&copy).join("wal")).unwrap() {
            let segment = segment.unwrap().path();
            let mut bytes = std::fs::read(&segment).unwrap();
            if let Some(at) = bytes.windows(town.len()).position(|bytes| bytes == town) {
                bytes[at] ^= 1;
                std::fs::write(&segment, bytes).unwrap();
            }
        }
        let checked = scratch.run(&["check", &copy]);
        if checked.code == Some(0) {
            assert!(checked.stdout.contains("the log ends in an unfinished write"), "{}", checked.stdout);
            assert!(!checked.stdout.contains("nothing is wrong"), "{}", checked.stdout);
            let said = scratch.ok(&["repair", &copy, "new"]);
            assert!(said.contains("the log ends in an unfinished write"), "{said}");
            assert!(!said.contains("nothing is lost"), "{said}");
            assert_eq!(json(&scratch.ok(&["check", &copy, "--json"]))["log_torn"], Value::Bool(true));
            // Beside another problem, too.
            let data = scratch.path(&copy).join("data");
            let mut bytes = std::fs::read(&data).unwrap();
            let at: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"Bergen")).collect();
            at.iter().for_each(|at| bytes[*at] ^= 1);
            std::fs::write(&data, bytes).unwrap();
            let checked = scratch.run(&["check", &copy]);
            assert_ne!(checked.code, Some(0), "{}", checked.stdout);
            assert!(checked.stdout.contains("the log ends in an unfinished write"), "{}", checked.stdout);
            return;
        }
    }
    panic!("every commit was called durable before it was copied");
}
