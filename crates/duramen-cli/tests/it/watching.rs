//! `watch` and `top` beside a process that has the database open, without any effect on it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::golden;
use crate::runner::{Ran, Scratch, json, no_child_starts};

/// A shell that holds the database.
struct Writer {
    child: Child,
    input: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn begin(scratch: &Scratch) -> Writer {
        let mut child = scratch.spawn(&["shell", "db"]);
        let input = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Writer { child, input, said }
    }

    /// Stores a document, which is committed when this returns.
    fn put(&mut self, document: &str) {
        writeln!(self.input, "put -c rows --durability process '{document}'").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(line.starts_with("stored 1 document"), "{line:?}");
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

fn rows() -> Scratch {
    Scratch::with_rows("id,town\n1,Oslo\n2,Voss\n", &["--key", "id"])
}

#[test]
fn watch_shows_what_a_process_commits_that_has_the_database_open() {
    let scratch = rows();
    let mut writer = Writer::begin(&scratch);
    writer.put(r#"{"id":3,"town":"Bergen"}"#);
    writer.put(r#"{"id":4,"town":"Bo \u001b[2J"}"#);
    let refused = scratch.run(&["count", "db", "-c", "rows"]);
    assert_eq!(refused.code, Some(4), "it is open: {}", refused.stderr);

    let text = scratch.ok(&["watch", "db", "rows", "--since", "1", "--limit", "2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("  put      3  {\"id\":3,\"town\":\"Bergen\"}"), "{text}");
    assert!(lines[1].ends_with(r#"put      4  {"id":4,"town":"Bo \u001b[2J"}"#), "{text:?}");
    let printed = scratch.ok(&["watch", "db", "--since", "1", "--limit", "2", "--json"]);
    golden::check("watch", &printed);
    let first = json(printed.lines().next().unwrap())["seq"].as_u64().unwrap();
    let since = (first + 1).to_string();

    // A waiting one receives what comes.
    let waiting = scratch.spawn(&["watch", "db", "rows", "--since", &since, "--limit", "2"]);
    writer.put(r#"{"id":5,"town":"Hamar"}"#);
    writer.put(r#"{"id":6,"town":"Moss"}"#);
    let told: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.contains("Hamar") && told.stdout.contains("Moss"), "{}", told.stdout);

    let top = scratch.ok(&["top", "db", "--interval", "0.05", "--count", "2"]);
    assert!(top.contains("last opened to write by process") && top.contains("commits "), "{top}");
    writer.end();
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]).trim(), "6");
    assert!(scratch.ok(&["top", "db", "--interval", "0.05", "--count", "1"]).contains("closed; no writes"));
}

#[cfg(unix)]
#[test]
fn a_watch_ends_at_a_signal_and_says_how_to_go_on() {
    let scratch = rows();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut writer = Writer::begin(&scratch);
        let mut watch = scratch.spawn(&["watch", "db", "rows"]);
        // It is running once it has shown something; "now" may be before the first lines or after them.
        let mut shown = BufReader::new(watch.stdout.take().unwrap());
        let (told, first) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            shown.read_line(&mut line).unwrap();
            told.send(line).unwrap();
            std::io::copy(&mut shown, &mut std::io::sink()).unwrap();
        });
        let mut id = 10;
        while first.try_recv().is_err() {
            writer.put(&format!(r#"{{"id":{id},"town":"Oslo"}}"#));
            id += 1;
        }
        let kill = std::process::Command::new("kill").args([signal, &watch.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let ended: Ran = watch.wait_with_output().unwrap().into();
        reader.join().unwrap();
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("--since "), "{}", ended.stderr);
        writer.end();
    }
}

#[test]
fn what_cannot_be_watched_is_refused_with_a_way_on() {
    let scratch = rows();
    let refused = |args: &[&str], code: i32, said: &str| {
        let ran = scratch.run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    };
    refused(&["watch", "db", "row"], 1, "did you mean rows?");
    refused(&["watch", "none"], 1, "E0902");
    refused(&["top", "none"], 1, "E0902");
    refused(&["watch", "db", "rows", "--since", "99"], 1, "there is no commit 99 in db yet");
    refused(&["watch", "db", "rows", "--since", "1", "--oldest"], 2, "--oldest");
    refused(&["top", "db", "--interval", "0"], 2, "seconds from 0.05");
}

/// A command ends with its commit: a later observer must still see it.
#[test]
fn what_commands_commit_that_have_ended_is_shown() {
    let scratch = rows();
    for id in 3..5 {
        scratch.ok(&["put", "db", "-c", "rows", &format!(r#"{{"id":{id},"town":"Moss"}}"#)]);
    }
    let text = scratch.ok(&["watch", "db", "rows", "--since", "1", "--follow=false"]);
    let keys: Vec<&str> =
        text.lines().filter_map(|line| line.split("put      ").nth(1)?.split(' ').next()).collect();
    assert_eq!(keys, ["3", "4"], "{text}");
}

#[test]
fn what_is_gone_is_told_where_the_changes_are_and_in_the_exit_code() {
    let scratch = Scratch::new();
    {
        let _alone = no_child_starts();
        let db = duramen::Db::open(scratch.path("db")).unwrap();
        db.bytes("notes").put("a", "1").unwrap();
        db.close().unwrap();
    }
    let ran = scratch.run(&["watch", "db", "--since", "0", "--follow=false", "--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let told = json(ran.stdout.trim());
    assert_eq!((&told["kind"], &told["code"]), (&"missing".into(), &"E0804".into()), "{told}");
    assert!(told["goes_on_after"].as_u64().unwrap() > 0 && ran.stderr.contains("E0804"), "{told}");
}

/// Keys of key-values are encoded elements. Control characters among them must not reach the terminal.
#[test]
fn keys_of_key_values_are_shown_as_those_of_documents() {
    let scratch = rows();
    {
        let _alone = no_child_starts();
        let options = duramen::Db::options().feed_retain_bytes(1 << 20);
        let db = options.open(scratch.path("db")).unwrap();
        db.kv("cache").put("Oslo", &1).unwrap();
        db.kv("cache").put(("a", 7), &1).unwrap();
        db.bytes("notes").put(b"raw\x01", b"1").unwrap();
        db.close().unwrap();
    }
    let text = scratch.ok(&["watch", "db", "--since", "1", "--follow=false"]);
    for key in ["put      Oslo  ", "put      a,7  ", "put      raw\\x01  "] {
        assert!(text.contains(key), "{text}");
    }
}
