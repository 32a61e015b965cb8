//! Deletes of many rows: in batches, in one transaction for all, and interrupted; and dropped collections.

use std::process::Command;

use crate::runner::{FLIGHTS, JANUARY, Scratch, json, output};

fn count(scratch: &Scratch) -> u64 {
    scratch.ok(&["count", "db", "-c", "flights"]).trim().parse().unwrap()
}

/// A range of any size is deleted, although a transaction is limited.
#[test]
fn a_range_is_deleted_in_batches() {
    let scratch = Scratch::with_january();
    let del = |args: &[&str]| scratch.ok(&[&["del", "db", "-c", "flights"], args].concat());
    let said = del(&["--prefix", "UA", "--batch", "1000"]);
    assert!(said.starts_with("deleted 4,637 documents of flights in 5 batches, seq "), "{said}");
    assert_eq!(count(&scratch), 27_004 - 4_637);
    assert_eq!(scratch.ok(&["count", "db", "-c", "flights", "--prefix", "UA"]), "0\n");
    // 4,171 rows are one batch by default, also with a batch size of exactly that many.
    let said = json(&del(&["--from", "EV", "--to", "F9", "--batch", "4171", "--json"]));
    assert_eq!(
        (&said["rows"], &said["batches"], &said["complete"]),
        (&4_171.into(), &1.into(), &true.into())
    );
    let said = json(&del(&["--from", "US", "--json"]));
    assert_eq!((&said["batches"], &said["complete"]), (&1.into(), &true.into()));
    scratch.ok(&["check", "db", "--deep"]);
}

/// One transaction whatever the size; the collection keeps its definition.
#[test]
fn all_is_deleted_in_one_transaction() {
    let scratch = Scratch::with_january();
    let collection = || json(&scratch.ok(&["collections", "db", "--json"]))["collections"][0].clone();
    let before = collection();
    let del = ["del", "db", "-c", "flights", "--all", "--yes", "--batch", "10"];
    let said = scratch.ok(&del);
    assert!(said.starts_with("deleted 27,004 documents of flights, seq "), "{said}");
    let mut after = collection();
    assert_eq!(after["rows"], 0);
    after["rows"] = 27_004.into();
    assert_eq!(after, before);
    scratch.ok(&["check", "db", "--deep"]);
    assert!(scratch.ok(&del).starts_with("deleted 0 documents"));
    scratch.ok(&["import", "db", JANUARY, "-c", "flights", "--durability", "process"]);
    let sums = json(&scratch.ok(&["reduce", "db", "-c", "flights", "--prefix", "EV", "--json"]));
    assert_eq!((&sums["count"], &sums["sum"]["dep_delay"]), (&4_171.into(), &96_649.into()));
    scratch.ok(&["check", "db", "--deep"]);
}

/// An empty variable in a script must not delete everything.
#[test]
fn bounds_that_bound_nothing_delete_nothing() {
    let scratch = Scratch::with_january();
    for bounds in [
        &["--prefix", "[]"][..],
        &["--prefix", ""],
        &["--from", "[]"],
        &["--from", ""],
        &["--from", "\"\""],
        &["--from", "[\"\"]"],
        &["--from", ",2013-01-01T10:00:00Z"],
        &["--to", ""],
        &["--to", "[]"],
        &["--from", "", "--to", "EV"],
        &["--from", "EV", "--to", "[]"],
    ] {
        for yes in [&[][..], &["--yes"]] {
            let ran = scratch.run(&[&["del", "db", "-c", "flights"], bounds, yes].concat());
            assert_eq!(ran.code, Some(2), "{bounds:?}: {}{}", ran.stdout, ran.stderr);
            // Beside another bound, all documents were not meant.
            let hint = match bounds {
                ["--from", "", ..] if bounds.len() == 4 => "hint: leave --from out\n",
                [_, _, "--to", _] => "hint: leave --to out\n",
                _ => "--all --yes",
            };
            assert!(ran.stderr.contains("bounds nothing") && ran.stderr.contains(hint), "{}", ran.stderr);
        }
    }
    assert_eq!(count(&scratch), 27_004);
    // Counting with such bounds is harmless, and an explicit empty element is a bound.
    assert_eq!(scratch.ok(&["count", "db", "-c", "flights", "--from", ""]), "27004\n");
    scratch.ok(&["del", "db", "-c", "flights", "--prefix", "[\"\"]"]);
    assert_eq!(count(&scratch), 27_004);
}

#[test]
fn a_condition_in_the_place_of_a_key_leads_to_find() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    let ran = scratch.run(&["del", "db", "-c", "rows", "n=2"]);
    let hint = "hint: del takes keys and key ranges; `duramen find` lists the keys\n";
    assert!(ran.code == Some(2) && ran.stderr.contains(hint), "{}", ran.stderr);
}

#[test]
fn a_dropped_collection_is_gone_with_its_key() {
    let scratch = Scratch::with_january();
    for flags in [&[][..], &["--json"]] {
        let ran = scratch.run(&[&["drop", "db", "-c", "flights"], flags].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        for words in ["drop flights with its 27,004 documents", "was not confirmed", "add --yes"] {
            assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
        }
    }
    let near = scratch.run(&["drop", "db", "-c", "flight", "--yes"]);
    assert!(near.code == Some(1) && near.stderr.contains("did you mean flights?"), "{}", near.stderr);
    let said = scratch.ok(&["drop", "db", "-c", "flights", "--yes"]);
    assert!(said.starts_with("dropped flights with its 27,004 documents, seq "), "{said}");
    let again = scratch.run(&["drop", "db", "-c", "flights", "--yes"]);
    assert!(again.code == Some(1) && again.stderr.contains("E0901"), "{}", again.stderr);
    assert_eq!(scratch.ok(&["collections", "db"]), "");
    scratch.ok(&["check", "db", "--deep"]);
    // The name is free for another definition.
    let key = ["--key", "origin,time_hour,flight,carrier", "--null", "NA", "--durability", "process"];
    scratch.ok(&[&["import", "db", JANUARY, "-c", "flights"], &key[..]].concat());
    assert_eq!(count(&scratch), 27_004);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_delete_after_the_batch_that_runs() {
    let scratch = Scratch::with_january();
    let mut child = scratch.spawn(&["del", "db", "-c", "flights", "--from", "9E", "--batch", "1"]);
    // It watches for signals before it takes the lock, in which it leaves its process id.
    let holder = format!("process {}", child.id());
    while std::fs::read_to_string(scratch.path("db/lock")).unwrap() != holder {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    assert!(output(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap().status.success());
    let ended = child.wait_with_output().unwrap();
    let (told, said) = (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap());
    assert_eq!(ended.status.code(), Some(130), "{told}{said}");
    assert!(said.contains("stopped by signal 2") && said.contains("deletes the rest"), "{said}");
    let left = count(&scratch);
    let deleted = told.split(' ').nth(1).unwrap().replace(',', "").parse::<u64>().unwrap();
    assert!(deleted > 0 && deleted + left == 27_004, "{told}, {left} left");
    scratch.ok(&[&["import", "db", JANUARY, "--replace", "--durability", "process"], FLIGHTS].concat());
    assert_eq!(count(&scratch), 27_004);
}
