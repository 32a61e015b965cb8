//! The whole demo: what a newcomer sees first must be true every time.

use crate::runner::{Ran, Scratch, json, output};

#[test]
fn the_demo_finds_every_acknowledged_row() {
    let scratch = Scratch::new();
    let told = scratch.ok(&["demo"]);
    for words in
        ["27,004 rows", "ExpressJet", "killed with SIGKILL", "found whole after reopening", "duramen-demo"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    let printed = scratch.ok(&["demo", "--json"]);
    crate::golden::check("demo", &printed);
    let again = json(&printed);
    assert_eq!(again["rows"], 27_004);
    assert_eq!(again["acknowledged"], again["found"]);
    assert!(again["acknowledged"].as_u64().unwrap() > 0);
    assert_eq!(again["questions"][0]["carrier"], "EV");
    scratch.ok(&["check", "duramen-demo", "--deep"]);
}

#[test]
fn the_demo_writes_over_nothing_that_is_not_its_own() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    std::fs::create_dir(scratch.path("letters")).unwrap();
    scratch.write("letters/a.txt", "dear reader");
    for dir in ["db", "letters", "rows.csv"] {
        let ran = scratch.run(&["demo", "--dir", dir]);
        assert_eq!(ran.code, Some(1), "{dir}: {}", ran.stdout);
        assert!(ran.stderr.contains("not its own") && ran.stderr.contains("hint: "), "{dir}: {}", ran.stderr);
    }
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
}

/// The demo invites its user to go on in its database. What was added or changed there must not go with the
/// next demo.
#[test]
fn the_demo_deletes_nothing_that_was_added_to_its_database() {
    let scratch = Scratch::new();
    scratch.ok(&["demo", "--quiet"]);
    let again = |why: &str| {
        let ran = scratch.run(&["demo"]);
        assert_eq!(ran.code, Some(1), "{why}: {}", ran.stdout);
        assert!(
            ran.stderr.contains("has changed since") && ran.stderr.contains("--dir"),
            "{why}: {}",
            ran.stderr
        );
    };
    scratch.write("mine.csv", "id,n\n1,2\n");
    scratch.ok(&["import", "duramen-demo", "mine.csv", "--collection", "mine", "--key", "id"]);
    again("a collection of the user's");
    scratch.ok(&["drop", "duramen-demo", "-c", "mine", "--yes"]);
    scratch.ok(&["demo", "--quiet"]);
    scratch.ok(&["view", "add", "duramen-demo", "-c", "flights", "by_origin", "--key", "origin"]);
    again("a view of the user's");
    scratch.ok(&["view", "drop", "duramen-demo", "-c", "flights", "by_origin"]);
    scratch.ok(&["del", "duramen-demo", "-c", "ledger", "--key", "1"]);
    again("a document fewer");
}

#[cfg(target_os = "linux")]
#[test]
fn the_demo_is_not_shown_in_memory_unless_told() {
    let Ok(dir) = tempfile::TempDir::new_in("/dev/shm") else {
        println!("skipped: there is no /dev/shm to write to");
        return;
    };
    let scratch = Scratch::new();
    let path = dir.path().join("demo");
    let mut demo = scratch.command_as_is(&["demo", "--dir", path.to_str().unwrap()]);
    let ran: Ran = output(&mut demo).unwrap().into();
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("survives no power cut") && ran.stderr.contains("--allow-tmpfs"),
        "{}",
        ran.stderr
    );
    assert!(!path.exists());
    // If forced, it does not claim that memory is a disk.
    let mut demo =
        scratch.command_as_is(&["demo", "--allow-tmpfs", "--quiet", "--dir", path.to_str().unwrap()]);
    let ran: Ran = output(&mut demo).unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("each synced, to what survives no power cut"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("on disk"), "{}", ran.stdout);
}
