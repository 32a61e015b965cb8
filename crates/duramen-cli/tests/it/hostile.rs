//! Bad input: each gives an error with a hint and the documented exit code, stores nothing partially, and
//! never panics.

use crate::runner::{Ran, Scratch, json, output_into};

fn refused(ran: &Ran, code: i32, words: &str) {
    assert_eq!(ran.code, Some(code), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.starts_with("error[E"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhint: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

/// D8: a reader holds the lock to its end: no writer reuses the space that it reads.
#[test]
fn a_scan_that_is_still_read_keeps_writers_out() {
    let scratch = Scratch::with_january();
    let mut scan = scratch.spawn(&["scan", "db", "-c", "flights", "--json"]);
    let mut lines = std::io::BufReader::new(scan.stdout.take().unwrap());
    // Much more output follows than the pipe holds.
    std::io::BufRead::read_line(&mut lines, &mut String::new()).unwrap();
    let del = ["del", "db", "-c", "flights", "--prefix", "UA"];
    refused(&scratch.run(&del), 4, "is in use");
    assert_eq!(std::io::BufRead::lines(lines).count(), 27_003);
    assert!(scan.wait().unwrap().success());
    scratch.ok(&del);
}

/// Imports bytes under a name and expects a refusal.
fn refused_file(bytes: impl AsRef<[u8]>, code: i32, words: &str) {
    let scratch = Scratch::new();
    scratch.write("rows.csv", bytes);
    refused(&scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]), code, words);
}

/// Imports bytes and expects these documents.
fn taken_file(bytes: impl AsRef<[u8]>, expected: &str) {
    let scratch = Scratch::new();
    scratch.write("rows.csv", bytes);
    scratch.ok(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
    assert_eq!(scratch.ok(&["scan", "db", "-c", "rows", "--json"]), expected);
}

#[test]
fn files_that_are_odd_and_right() {
    taken_file("\u{feff}id,t\r\n1,a\r\n2,b", "{\"id\":1,\"t\":\"a\"}\n{\"id\":2,\"t\":\"b\"}\n");
    taken_file("id,t\n1,\"a\nb, \"\"c\"\"\"\n", "{\"id\":1,\"t\":\"a\\nb, \\\"c\\\"\"}\n");
    taken_file("id,t\n1,a\0b\n", "{\"id\":1,\"t\":\"a\\u0000b\"}\n");
    taken_file("id,t\n1,\"\u{1b}[31m\"\n", "{\"id\":1,\"t\":\"\\u001b[31m\"}\n");
    taken_file("id,t\n", "");
    taken_file("id\n\n1\n\n2\n", "{\"id\":1}\n{\"id\":2}\n");
    let huge = "x".repeat(3_000_000);
    taken_file(format!("id,t\n1,{huge}\n"), &format!("{{\"id\":1,\"t\":\"{huge}\"}}\n"));
}

#[test]
fn files_that_are_wrong() {
    refused_file("", 1, "is empty");
    refused_file("id,t\n1,a\n2\n3,c\n", 1, "line 3: 1 cell, and the header has 2");
    refused_file("id,t\n1,a\n2,b,c\n", 1, "line 3: 3 cells, and the header has 2");
    refused_file("id,t\n1,\"a\n2,b\n", 1, "line 2: a quote is opened in this row and never closed");
    refused_file("id,t\n1,a\n2,\"b", 1, "line 3: a quote is opened");
    refused_file("\"id,t\n1,a\n", 1, "line 1: a quote is opened");
    refused_file("id,id\n1,2\n", 1, "the column \"id\" twice");
    refused_file("id,\n1,2\n", 1, "column 2 has no name");
    refused_file("name,t\n1,2\n", 1, "no column id");
    refused_file("id,t\n,2\n", 1, "line 2, column id: is null");
    refused_file("id,t\n1,a\n2,b\n1,c\n", 1, "lines 2 and 4 have the same key: 1");
    refused_file(
        b"id,t\n1,\xff\xfe\n",
        1,
        "line 2, column t: holds \"\u{fffd}\u{fffd}\", which is not UTF-8",
    );
    refused_file(b"\xff\xfe\0i\0d\n", 1, "not UTF-8");
    refused_file(format!("id,t\n{},1\n", "k".repeat(1100)), 1, "too long");
    refused_file(b"\x1f\x8b\x08", 1, "gzip");
    let january = std::fs::read(crate::runner::JANUARY).unwrap();
    let mut corrupt = january.clone();
    corrupt[january.len() / 2] ^= 0x55;
    for (bytes, words) in
        [(&january[..january.len() / 2], "in the middle of its gzip stream"), (&corrupt, "")]
    {
        let scratch = Scratch::new();
        scratch.write("rows.csv.gz", bytes);
        let args = ["import", "db", "rows.csv.gz", "-c", "rows", "--key", "carrier,time_hour,flight,origin"];
        refused(&scratch.run(&args), 1, words);
    }
}

#[test]
fn ndjson_that_is_wrong() {
    for (text, words) in [
        ("{\"id\":1}\n{\"id\":\n", "line 2: this is not JSON"),
        ("[1]\n", "line 1: a document is a JSON object"),
        ("{\"id\":1,\"id\":2}\n", "twice"),
        ("{\"id\":18446744073709551616}\n", "64 bits"),
        ("{\"id\":null}\n", "line 1: the document has no id"),
        ("{\"x\":1}\n", "no column id"),
        ("{\"id\":1}\n{\"x\":1}\n", "line 2: the document has no id"),
        ("{\"id\":{\"a\":1}}\n", "the document has no id that can be part of the key"),
    ] {
        let scratch = Scratch::new();
        scratch.write("rows.ndjson", text);
        refused(&scratch.run(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]), 1, words);
    }
}

#[test]
fn arguments_that_are_wrong() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for (args, words) in [
        (&["no-such"][..], "unrecognized subcommand"),
        (&["count"], "required"),
        (&["count", "db"], "--collection"),
        (&["count", "db", "-c", "rows", "--prefix", "1", "--from", "1"], "cannot be used with"),
        (&["count", "db", "-c", "rows", "--prefix", "1,2"], "2 elements, and a key of rows has 1"),
        (
            &["count", "db", "-c", "rows", "--prefix", "abc"],
            "\"abc\" cannot be the id of a key, which is of type int",
        ),
        (&["count", "db", "-c", "rows", "--prefix", "[1"], "begins like a JSON array"),
        (&["count", "db", "-c", "rows", "--prefix", "[null]"], "a JSON null cannot be the id"),
        (&["count", "db", "-c", "rows", "--prefix", "1\n2"], "more than one CSV record"),
        (&["count", "db", "-c", "rows", "--prefix", "\"1"], "a quote is opened and never closed"),
        (&["count", "db", "-c", "rows", "--from", "\"1\n2\n"], "a quote is opened and never closed"),
        (&["count", "db", "-c", ""], "a name has 1 to 255 bytes"),
        (&["count", "db", "-c", "a\u{7}b"], "no control characters"),
        (&["get", "db", "-c", "rows", "--key", ""], "\"\" cannot be the id"),
        (&["get", "db", "-c", "rows", "--key", "[]"], "0 of the 1 elements"),
        (&["del", "db", "-c", "rows"], "required"),
        (&["del", "db", "-c", "rows", "--all", "--prefix", "1"], "cannot be used with"),
        (&["del", "db", "-c", "rows", "--all"], "was not confirmed"),
        (&["scan", "db", "-c", "rows", "--limit", "-1"], "-1"),
        (&["import", "db", "rows.csv", "-c", "rows", "--batch", "0"], "0 is not in"),
        (&["import", "db", "rows.csv", "-c", "rows", "--threads", "9999"], "9999 is not in"),
        (&["import", "db", "rows.csv", "-c", "rows", "--durability", "wish"], "invalid value 'wish'"),
        (&["import", "db", "rows.csv", "-c", "rows", "--type", "n"], "names no type"),
        (&["import", "db", "rows.csv", "-c", "rows", "--type", "n=number"], "\"number\" is no type"),
        (&["import", "db", "rows.csv", "-c", "rows", "--type", "m=int"], "no such column"),
        (&["import", "db", "rows.csv", "-c", "rows", "--type", "n=int,n=text"], "names the column n twice"),
        (&["import", "db", "rows.csv", "-c", "new"], "needs a key"),
        (&["import", "db", "rows.csv", "-c", "", "--key", "id"], "a name has 1 to 255 bytes"),
        (&["import", "db", "rows.csv", "-c", "new", "--key", ""], "a column has a name"),
        (&["import", "db", "rows.csv", "-c", "new", "--key", "id,id"], "--key names the column id twice"),
        (
            &["import", "db", "rows.csv", "-c", "new", "--key", "id", "--sum", "n,n"],
            "--sum names the column n twice",
        ),
        (&["import", "db", "-", "-c", "rows"], "does not tell its format"),
        (&["completions", "tcl"], "invalid value"),
    ] {
        refused(&scratch.run(args), 2, words);
        let with_json = scratch.run(&[args, &["--json"]].concat());
        let said = json(&with_json.stderr);
        assert_eq!(
            (with_json.code, &said["v"], &said["code"]),
            (Some(2), &1.into(), &"E0201".into()),
            "{args:?}"
        );
        assert!(said["message"].as_str().unwrap().contains(words), "{args:?}: {said}");
    }
}

/// A key that no document can have is an error whatever the database contains.
#[test]
fn keys_that_are_too_long_are_wrong_arguments() {
    let scratch = Scratch::with_rows("id,n\nx,2\n", &["--key", "id"]);
    let long = "k".repeat(2000);
    for (command, flag) in
        [("get", "--key"), ("del", "--key"), ("count", "--prefix"), ("scan", "--from"), ("export", "--to")]
    {
        let format: &[&str] = if command == "export" { &["--format", "csv"] } else { &[] };
        let ran = scratch.run(&[&[command, "db", "-c", "rows", flag, &long], format].concat());
        refused(&ran, 2, "a key may take 1024");
    }
}

#[test]
fn values_that_are_wrong_get_those_there_are() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for (args, words) in [
        (
            &["import", "db", "rows.csv", "-c", "rows", "--durability", "turbo"][..],
            "the values are memory, process, disk",
        ),
        (&["export", "db", "-c", "rows", "--format", "xml"], "the values are csv, ndjson"),
        (&["export", "db", "-c", "rows", "--format", "ndjsn"], "did you mean ndjson? the values are"),
        (&["completions", "foo"], "the values are bash, elvish, fish, powershell, zsh"),
    ] {
        refused(&scratch.run(args), 2, words);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_is_full_is_no_full_database() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for args in [&["count", "db", "-c", "rows"][..], &["export", "db", "-c", "rows", "--format", "csv"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran: Ran = output_into(&mut scratch.command(args), full).unwrap().into();
        refused(&ran, 1, "make room there");
        assert!(!ran.stderr.contains("delete rows"), "{}", ran.stderr);
    }
}

#[test]
fn garbage_in_every_argument_is_no_panic() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    let garbage = ["", "\u{1b}[2J", "../..", "\"", "[", "{}", "-", "💥", "a\nb", &"x".repeat(5000)];
    let templates: &[&[&str]] = &[
        &["import", "@", "rows.csv", "-c", "rows"],
        &["import", "db", "@", "-c", "rows", "--format", "csv"],
        &["import", "db", "rows.csv", "-c", "@", "--key", "id"],
        &["import", "db", "rows.csv", "-c", "new", "--key", "@"],
        &["import", "db", "rows.csv", "-c", "new", "--key", "id", "--sum", "@"],
        &["import", "db", "rows.csv", "-c", "new", "--key", "id", "--type", "@"],
        &["export", "db", "-c", "@", "--format", "csv"],
        &["export", "db", "-c", "rows", "--format", "@"],
        &["get", "db", "-c", "rows", "--key", "@"],
        &["put", "db", "@", "-c", "rows"],
        &["put", "db", "{}", "-c", "rows", "--key", "@"],
        &["del", "db", "-c", "rows", "--key", "@"],
        &["drop", "db", "-c", "@"],
        &["scan", "db", "-c", "rows", "--prefix", "@"],
        &["count", "db", "-c", "rows", "--from", "@"],
        &["reduce", "@", "-c", "rows"],
        &["collections", "@"],
        &["inspect", "@"],
        &["check", "@"],
        &["completions", "@"],
        &["@"],
    ];
    for template in templates {
        for word in &garbage {
            let args: Vec<&str> = template.iter().map(|arg| if *arg == "@" { *word } else { arg }).collect();
            let ran = scratch.run(&args);
            assert!(matches!(ran.code, Some(0..=2)), "{args:?}: {:?} {}", ran.code, ran.stderr);
            assert!(!ran.stderr.contains("panicked"), "{args:?}: {}", ran.stderr);
            assert!(!ran.stderr.contains('\u{1b}'), "control characters reach the terminal: {args:?}");
        }
    }
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
}

#[test]
fn paths_that_are_no_database() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    std::fs::create_dir(scratch.path("empty")).unwrap();
    std::fs::create_dir(scratch.path("other")).unwrap();
    scratch.write("other/letter.txt", "dear reader");
    std::fs::create_dir(scratch.path("near.duramen")).unwrap();
    refused(&scratch.run(&["count", "missing", "-c", "rows"]), 1, "there is no database at missing");
    refused(&scratch.run(&["count", "neer.duramen", "-c", "rows"]), 1, "near.duramen");
    refused(
        &scratch.run(&["count", "rows.csv", "-c", "rows"]),
        1,
        "rows.csv is a file, and a database is a directory",
    );
    refused(&scratch.run(&["count", "empty", "-c", "rows"]), 1, "empty");
    refused(&scratch.run(&["count", "other", "-c", "rows"]), 1, "other");
    refused(&scratch.run(&["import", "other", "rows.csv", "-c", "rows", "--key", "id"]), 1, "other");
    refused(&scratch.run(&["import", "db", "missing.csv", "-c", "rows"]), 1, "missing.csv");
    refused(&scratch.run(&["import", "db", "other", "-c", "rows", "--format", "csv"]), 1, "is a directory");
    assert_eq!(std::fs::read_to_string(scratch.path("other/letter.txt")).unwrap(), "dear reader");
}

/// After `kill -9` during the first import, a command reads before the second import.
#[test]
fn a_creation_that_was_cut_short_is_told_in_one_sentence() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n");
    std::fs::create_dir_all(scratch.path("half/wal")).unwrap();
    for file in ["lock", "data.new", "wal/00000001.wal"] {
        scratch.write(&format!("half/{file}"), "");
    }
    for args in [&["count", "half", "-c", "rows"][..], &["inspect", "half"], &["check", "half"]] {
        let ran = scratch.run(args);
        refused(&ran, 1, "half holds no file `data`: its creation was cut short, or the file was removed");
        assert!(ran.stderr.contains("import into it") && ran.stderr.contains("remove"), "{}", ran.stderr);
    }
    refused(&scratch.run(&["put", "half", "{\"id\":1}", "-c", "rows"]), 1, "creation was cut short");
    scratch.ok(&["import", "half", "rows.csv", "-c", "rows", "--key", "id"]);
    assert_eq!(scratch.ok(&["count", "half", "-c", "rows"]), "1\n");
}

/// D3: the name `readers` is reserved for a release with readers in other processes.
#[test]
fn what_readers_of_a_later_release_look_at_is_not_written_to() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    scratch.write("db/readers", "1");
    for args in [
        &["put", "db", "{\"id\":2}", "-c", "rows"][..],
        &["del", "db", "-c", "rows", "--key", "1"],
        &["import", "db", "rows.csv", "-c", "rows", "--replace"],
    ] {
        refused(&scratch.run(args), 1, "E0211");
    }
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
    scratch.write("db/readers", "");
    scratch.ok(&["put", "db", "{\"id\":2}", "-c", "rows"]);
}

/// D4: a log of another database, or on an unmounted disk, is reported with its path; an older state is never
/// served silently.
#[test]
fn a_log_that_is_not_there_or_anothers_is_corruption_with_its_path() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    scratch.ok(&["import", "other", "rows.csv", "-c", "rows", "--key", "id"]);
    let wal = scratch.path("db/wal");
    std::fs::rename(&wal, scratch.path("away")).unwrap();
    let all = [
        &["count", "db", "-c", "rows"][..],
        &["put", "db", "{\"id\":2}", "-c", "rows"],
        &["check", "db"],
        &["inspect", "db"],
    ];
    for args in all {
        refused(&scratch.run(args), 3, "db/wal: log missing: the directory is not there");
    }
    std::fs::create_dir(&wal).unwrap();
    for args in all {
        refused(&scratch.run(args), 3, "db/wal/00000001.wal: log missing");
    }
    std::fs::remove_dir_all(&wal).unwrap();
    std::fs::rename(scratch.path("other/wal"), &wal).unwrap();
    for args in all {
        refused(&scratch.run(args), 3, "is a foreign log: it belongs to database");
    }
    std::fs::remove_dir_all(&wal).unwrap();
    std::fs::rename(scratch.path("away"), &wal).unwrap();
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
}

#[test]
fn names_that_are_misspelt_get_candidates() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for command in ["count", "scan", "reduce"] {
        refused(&scratch.run(&[command, "db", "-c", "row"]), 1, "did you mean rows?");
    }
    refused(&scratch.run(&["get", "db", "-c", "zebra", "--key", "1"]), 1, "the collections are rows");
    refused(&scratch.run(&["cuont", "db", "-c", "rows"]), 2, "did you mean count?");
    refused(&scratch.run(&["count", "db", "--colection", "rows"]), 2, "--collection");
}

/// D8: one process writes; a second one fails with exit code 4.
#[test]
fn a_second_process_is_refused() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    let mut holder =
        scratch.spawn(&["import", "db", "-", "--format", "csv", "-c", "rows", "--ack", "--batch", "1"]);
    let mut input = holder.stdin.take().unwrap();
    let rows: String = (2..20_000).map(|id| format!("{id},1\n")).collect();
    let feeder = std::thread::spawn(move || {
        std::io::Write::write_all(&mut input, format!("id,n\n{rows}").as_bytes()).unwrap();
        input
    });
    let mut acks = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut acks, &mut String::new()).unwrap();
    refused(&scratch.run(&["put", "db", "{\"id\":0}", "-c", "rows"]), 4, "");
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(acks);
    drop(feeder.join());
    scratch.ok(&["put", "db", "{\"id\":0}", "-c", "rows"]);
}

/// The hint of the library speaks of a call, which a user of the command line does not make.
#[test]
fn a_document_or_a_column_that_does_not_fit_has_a_hint_for_the_command_line() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for (document, hint) in [
        ("{\"n\":1}", "hint: the largest id of rows is 1: --key 2 is free"),
        ("{\"id\":\"x\"}", "hint: correct the document: `duramen"),
        ("{\"id\":5,\"n\":\"x\"}", "hint: correct the document: `duramen"),
    ] {
        refused(&scratch.run(&["put", "db", "-c", "rows", document]), 1, hint);
    }
    scratch.write("words.csv", "id,n\n1,x\n");
    let sums = ["import", "db", "words.csv", "-c", "new", "--key", "id", "--sum", "n"];
    refused(&scratch.run(&sums), 1, "hint: correct the values, or leave the column out of --key or --sum");
}

/// The command line has commands, not the calls of programs.
#[test]
fn hints_name_commands() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n", &["--key", "id"]);
    scratch.write("towns.csv", "town,n\nOslo,1\n");
    scratch.ok(&["import", "db", "towns.csv", "-c", "towns", "--key", "town"]);
    scratch.ok(&["reference", "add", "db", "-c", "rows", "town", "towns"]);
    for (words, hint) in [
        (&["del", "db", "-c", "towns", "--key", "Oslo"][..], "--on-delete cascade --replace"),
        (&["drop", "db", "-c", "towns", "--yes"], "first: `duramen reference drop DB -c rows town`"),
        (&["put", "db", "-c", "rows", "{\"id\":2,\"town\":\"Voss\"}"], "of towns first, or give document"),
        (&["find", "db", "-c", "rows", "--sum", "id", "--sum", "id"], "leave one out\n"),
    ] {
        let ran = scratch.run(words);
        assert!(ran.stderr.contains(hint), "{words:?}: {}", ran.stderr);
        for call in ["::", "on_delete", "same transaction"] {
            assert!(!ran.stderr.contains(call), "{words:?}: {}", ran.stderr);
        }
    }
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
}
