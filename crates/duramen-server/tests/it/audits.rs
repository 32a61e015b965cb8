//! The audit: what was done is told before, and nothing of it can be changed without a trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen::Code;
use duramen::prelude::*;
use duramen_client::{Address, Client};
use duramen_proto::v1;
use duramen_server::Server;
use duramen_server::audit::{self, Audit, Mark, Verified};

use crate::{Served, any_port, put};

fn actor() -> audit::Actor {
    audit::Actor { user: "web".to_owned(), from: "here".to_owned() }
}

fn files(database: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(database.join("audit")).expect("it is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn lines(database: &Path) -> Vec<serde_json::Value> {
    let text: String = files(database).iter().map(|file| fs::read_to_string(file).expect("text")).collect();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The lines once those that wait were written.
fn told(served: &Served, wanted: usize) -> Vec<serde_json::Value> {
    let start = Instant::now();
    loop {
        let lines = lines(&served.path());
        if lines.len() >= wanted || start.elapsed() > Duration::from_secs(30) {
            return lines;
        }
        std::thread::yield_now();
    }
}

fn verified(db: &Db) -> Verified {
    let path = db.durability_status().path;
    audit::verify(&path, audit::mark_of(db).expect("read")).expect("read")
}

#[test]
fn who_came_was_refused_or_changed_users_and_definitions_is_told() {
    let served = Served::with(|server| server.listen(any_port()));
    let user =
        v1::User { name: "web".to_owned(), rights: vec!["reader".to_owned()], certificates: Vec::new() };
    served.client.put_user(user.clone(), true).expect("added");
    assert_eq!(served.client.put_user(user, true).expect_err("there").code(), Code::AlreadyExists);
    let token = served.client.add_token("web", 0).expect("made");
    let (address, _) = served.tcp();
    let connect = |token: &str| {
        let (host, port, token) = (address.ip().to_string(), address.port(), Some(token.to_owned()));
        Client::connect(&Address::Tcp { host, port, token, tls: None })
    };
    let web = connect(&token.text).expect("let in");
    for _ in 0..3 {
        let operations = vec![put("Rome", 1, 5)];
        let batch = v1::BatchRequest { operations, ..v1::BatchRequest::default() };
        assert_eq!(web.batch(batch).expect_err("refused").code(), Code::Forbidden);
    }
    connect("dur_1_x").expect_err("refused");
    let drop = v1::DropCollectionRequest { collection: "orders".to_owned(), ..Default::default() };
    served.client.drop_collection(drop).expect("dropped");
    served.client.revoke_token(&token.token.expect("it is there").id).expect("revoked");

    let lines = told(&served, 13);
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let puts = of("put_user");
    let steps: Vec<_> = puts.iter().map(|line| (line["step"].as_str(), line["code"].as_str())).collect();
    let (begin, end) = (Some("begin"), Some("end"));
    assert_eq!(steps, [(begin, None), (end, None), (begin, None), (end, Some("E0210"))]);
    assert!(puts.iter().all(|line| line["on"] == "web" && line["user"] == "admin"), "{puts:?}");
    assert!(puts[0]["from"].as_str().expect("text").starts_with("socket"), "{puts:?}");
    assert_eq!(puts[1]["begin"], puts[0]["n"]);
    assert_eq!((of("add_token").len(), of("revoke_token").len()), (2, 2));
    assert_eq!(of("drop_collection")[0]["on"], "orders");
    let login = &of("login")[0];
    assert_eq!((login["user"].as_str(), login["from"].as_str()), (Some("web"), Some("127.0.0.1")));
    let refused = of("refused");
    let count: u64 = refused.iter().map(|line| line["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(count, 4, "{refused:?}");
    assert!(refused.iter().any(|line| line["code"] == "E1101" && line["user"].is_null()), "{refused:?}");
    assert!(refused.iter().any(|line| line["code"] == "E1102" && line["user"] == "web"), "{refused:?}");
    // No secret stands there.
    let text = fs::read_to_string(&files(&served.path())[0]).expect("text");
    assert!(!text.contains(&token.text), "{text}");

    // Stopping writes the row of the database.
    let mut served = served;
    std::mem::drop(served.server.take());
    let mark = audit::mark_of(&served.db).expect("read").expect("it was written");
    let verified = verified(&served.db);
    assert_eq!((mark.first, mark.last, verified.after_mark), (1, verified.last, 0));
    assert_eq!(verified.fault, None);
    // A server that comes after goes on behind it.
    let server = Server::builder(served.db.clone()).start().expect("started");
    let client = served.another_client();
    assert_eq!(client.audit().expect("the mark").last, mark.last);
    client.drop_user("web").expect("dropped");
    std::mem::drop(server);
    let verified = self::verified(&served.db);
    assert_eq!((verified.last, verified.fault), (mark.last + 2, None));
}

/// A database with an audit of 40 acts, which its row has.
fn audited() -> (Db, PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = Db::open(&path).expect("a database");
    let audit = Audit::open(&db).expect("opened");
    for number in 0..40 {
        audit.act(&actor(), ("put_user", &format!("user {number}")), || Ok(())).expect("done");
    }
    audit.flush(true).expect("written");
    (db, path, directory)
}

#[test]
fn taking_away_what_is_not_there_has_the_code_of_an_error() {
    let (db, path, _directory) = audited();
    let audit = Audit::open(&db).expect("opened");
    assert!(audit.remove(&actor(), ("drop_user", "web"), || Ok(true)).expect("it was there"));
    assert!(!audit.remove(&actor(), ("drop_user", "nobody"), || Ok(false)).expect("it was not"));
    audit.flush(true).expect("written");
    let text = fs::read_to_string(files(&path).remove(0)).expect("text");
    let has_code = |line: &str| line.contains("\"code\":\"E0903\"");
    let ends: Vec<bool> = text.lines().rev().take(4).map(has_code).collect();
    assert_eq!(ends, [true, false, false, false], "{text}");
}

#[test]
fn what_was_changed_taken_out_moved_or_cut_off_is_found() {
    let (db, path, _directory) = audited();
    let file = files(&path).remove(0);
    let whole = fs::read_to_string(&file).expect("text");
    let lines: Vec<&str> = whole.lines().collect();
    assert_eq!((lines.len(), verified(&db).fault), (80, None));
    let fault_of = |lines: &[&str]| {
        fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).expect("written");
        verified(&db).fault.unwrap_or_else(|| panic!("nothing is found in {} lines", lines.len()))
    };
    for at in 0..80 {
        let renamed = lines[at].replace("\"web\"", "\"bob\"");
        let mut changed = lines.clone();
        changed[at] = &renamed;
        let fault = fault_of(&changed);
        assert!(fault.contains("changed"), "{at}: {fault}");
        let without = [&lines[..at], &lines[at + 1..]].concat();
        let fault = fault_of(&without);
        assert!(fault.contains("missing"), "{at}: {fault}");
        let fault = fault_of(&lines[..at]);
        assert!(fault.contains("missing"), "{at}: {fault}");
        if at < 79 {
            let mut moved = lines.clone();
            moved.swap(at, at + 1);
            let fault = fault_of(&moved);
            assert!(fault.contains(&format!("line {}", at + 1)), "{at}: {fault}");
        }
        let torn = fault_of(&[&lines[..at], &[&lines[at][..9]], &lines[at + 1..]].concat());
        assert!(torn.contains("is not one"), "{at}: {torn}");
    }
    fs::remove_file(&file).expect("removed");
    assert!(verified(&db).fault.expect("all is gone").contains("missing"));
    // The next server does not make it good: what is missing stays missing.
    let audit = Audit::open(&db).expect("opened");
    audit.act(&actor(), ("put_user", "later"), || Ok(())).expect("done");
    audit.flush(true).expect("written");
    assert!(verified(&db).fault.expect("still gone").contains("lines 1 to 80 are missing"));
    let mark = audit::mark_of(&db).expect("read").expect("written");
    assert_eq!(mark.last, 82);
    fs::write(&file, &whole).expect("written");
    assert_eq!(verified(&db).fault, None, "put back, it is whole");
    fs::write(&file, lines[..70].join("\n") + "\n").expect("written");
    assert!(verified(&db).fault.expect("cut").contains("lines 71 to 80 are missing"));
}

/// Lines that follow one another anew are not those that the database knows, also after the next start.
#[test]
fn lines_that_were_written_anew_are_found_also_later() {
    let (db, path, directory) = audited();
    let other = Db::open(directory.path().join("other")).expect("a database");
    let audit = Audit::open(&other).expect("opened");
    for number in 0..45 {
        audit.act(&actor(), ("put_user", &format!("other {number}")), || Ok(())).expect("done");
    }
    audit.flush(true).expect("written");
    let forged = fs::read(files(&directory.path().join("other")).remove(0)).expect("bytes");
    fs::write(files(&path).remove(0), forged).expect("written");
    assert!(verified(&db).fault.expect("forged").contains("line 80 was changed"));
    let audit = Audit::open(&db).expect("opened");
    audit.act(&actor(), ("put_user", "later"), || Ok(())).expect("done");
    audit.flush(true).expect("written");
    assert!(verified(&db).fault.expect("still forged").contains("does not follow"));
}

/// One byte of a line that nobody vouches for yet: the lines behind it stay.
#[test]
fn lines_behind_one_that_was_changed_are_kept() {
    let (db, path, _directory) = audited();
    let audit = Audit::open(&db).expect("opened");
    for _ in 0..3 {
        audit.act(&actor(), ("add_token", "x"), || Ok(())).expect("done");
    }
    drop(audit);
    let file = files(&path).remove(0);
    let text = fs::read_to_string(&file).expect("text").replacen("add_token", "bad_token", 1);
    fs::write(&file, &text).expect("written");
    let audit = Audit::open(&db).expect("opened");
    audit.act(&actor(), ("put_user", "later"), || Ok(())).expect("done");
    audit.flush(true).expect("written");
    assert_eq!(fs::read_to_string(&file).expect("text"), text);
    assert!(verified(&db).fault.is_some());
}

/// Two servers of one database, as a program may have, have one audit.
#[test]
fn two_servers_of_a_database_have_one_audit() {
    let served = Served::new();
    let second = Server::builder(served.db.clone()).listen(any_port()).start().expect("started");
    let (address, token) = (second.addresses()[0], second.token().expect("there is one").to_owned());
    let (host, port) = (address.ip().to_string(), address.port());
    let client =
        Client::connect(&Address::Tcp { host, port, token: Some(token), tls: None }).expect("let in");
    for number in 0..10 {
        let user = |of: &str| v1::User { name: format!("{of}{number}"), ..v1::User::default() };
        served.client.put_user(user("a"), true).expect("added");
        client.put_user(user("b"), true).expect("added");
    }
    drop((second, client));
    let mut served = served;
    drop(served.server.take());
    let verified = verified(&served.db);
    assert!(verified.last >= 40 && verified.fault.is_none(), "{verified:?}");
}

/// A power cut leaves a line in part, or zeros behind the last one: no more than nobody vouched for.
#[test]
fn what_a_power_cut_leaves_at_the_end_is_taken_away() {
    let (db, path, _directory) = audited();
    let audit = Audit::open(&db).expect("opened");
    audit.act(&actor(), ("add_token", "x"), || Ok(())).expect("done");
    drop(audit);
    let file = files(&path).remove(0);
    let whole = fs::read(&file).expect("bytes");
    for behind in [&b"{\"n\":83,\"at\""[..], &[0; 512], b"{}\n{\"n\":9"] {
        fs::write(&file, [&whole[..], behind].concat()).expect("written");
        let audit = Audit::open(&db).expect("opened");
        audit.act(&actor(), ("put_user", "y"), || Ok(())).expect("done");
        drop(audit);
        let lines = lines(&path);
        assert_eq!((lines.len(), lines[82]["what"].as_str()), (85, Some("cut")), "{:?}", lines[82]);
        let verified = verified(&db);
        assert_eq!((verified.last, verified.after_mark, verified.fault), (85, 5, None));
    }
    // In part, before the line of the mark: that was no power cut.
    fs::write(&file, &whole[..whole.len() / 2]).expect("written");
    let audit = Audit::open(&db).expect("opened");
    audit.act(&actor(), ("put_user", "z"), || Ok(())).expect("done");
    assert_eq!(files(&path).len(), 2, "nothing is written behind it");
    assert!(verified(&db).fault.is_some());
}

/// What cannot be told is not done.
#[test]
fn without_room_for_the_line_nothing_is_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path().join("db")).expect("a database");
    // A file stands where its directory should be.
    fs::write(directory.path().join("db/audit"), "").expect("written");
    let refused = Audit::open(&db).map(|_| ());
    assert_eq!(refused.expect_err("no directory").code(), Code::System);
    fs::remove_file(directory.path().join("db/audit")).expect("removed");
    let audit = Audit::open(&db).expect("opened");
    fs::write(directory.path().join("db/audit"), "").expect("written");
    let mut is_done = false;
    let work = || {
        is_done = true;
        Ok(())
    };
    assert!(audit.act(&actor(), ("put_user", "x"), work).is_err());
    assert!(!is_done);
    fs::remove_file(directory.path().join("db/audit")).expect("removed");
    audit.act(&actor(), ("put_user", "x"), || Ok(())).expect("there is room again");
    drop(audit);
    let none: Option<Mark> = None;
    let verified = audit::verify(&directory.path().join("db"), none).expect("read");
    assert_eq!((verified.last, verified.fault), (2, None));
}
