//! A served database in short: what its server acknowledged to clients that retry survives `kill -9` and a
//! power cut, once. The long runs are in `scripts/serve-cuts`.

use std::process::Command;

use crate::runner::{has, run};

const SERVED: &str = env!("CARGO_BIN_EXE_powercut-served");

/// D1 through a server: every acknowledged request id is there once, every retry has the first answer.
#[test]
fn what_a_killed_server_acknowledged_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let killed =
        Command::new(SERVED).args(["kill", "--kills", "3", "--seed", "7", "--db"]).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&killed.stdout), String::from_utf8_lossy(&killed.stderr));
    assert!(killed.status.success(), "{out}{err}");
    assert!(out.contains("3 kills, 16 clients"), "{out}");
}

/// A client that is killed leaves nothing half done, and one whose server is killed is told the truth.
#[test]
fn what_killed_clients_were_told_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words =
        ["kill-clients", "--kills", "24", "--server-kills", "2", "--clients", "6", "--seed", "3", "--db"];
    let killed = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&killed.stdout), String::from_utf8_lossy(&killed.stderr));
    assert!(killed.status.success(), "{out}{err}");
    assert!(out.contains("24 kills of 6 clients, 2 of the server"), "{out}");
}

/// A server that is stopped and started again fails no call of its clients.
#[test]
fn no_call_fails_while_a_server_is_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words = ["restart", "--restarts", "2", "--clients", "4", "--seed", "13", "--db"];
    let restarted = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&restarted.stdout), String::from_utf8_lossy(&restarted.stderr));
    assert!(restarted.status.success(), "{out}{err}");
    assert!(out.contains("2 restarts under 4 clients: no error"), "{out}");
}

/// A consumer that is killed has handled each change once.
#[test]
fn what_a_killed_consumer_handled_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words = ["kill-consumer", "--changes", "20000", "--kills", "5", "--seed", "9", "--db"];
    let killed = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&killed.stdout), String::from_utf8_lossy(&killed.stderr));
    assert!(killed.status.success(), "{out}{err}");
    assert!(out.contains("20000 changes of 400 commits handled once each"), "{out}");
}

/// A blob goes in and out in little memory, and uploads of killed clients leave nothing.
#[test]
fn blobs_take_little_memory_and_leave_no_space_behind() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words = ["blobs", "--mib", "100", "--given-up", "10", "--seed", "2", "--db"];
    let ran = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    assert!(out.contains("10 uploads given up"), "{out}");
}

/// Good clients get every answer beside hostile connections, and the server does not grow.
#[test]
fn good_clients_are_served_beside_hostile_ones() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words =
        ["hostile", "--connections", "78", "--alone-seconds", "1", "--seconds", "4", "--seed", "5", "--db"];
    let attacked = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&attacked.stdout), String::from_utf8_lossy(&attacked.stderr));
    assert!(attacked.status.success(), "{out}{err}");
}

/// I1 through sockets: transactions of several messages could have run one after the other.
#[test]
fn transactions_of_clients_could_have_run_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let words = ["history", "--transactions", "1500", "--clients", "8", "--seed", "11", "--db"];
    let ran = Command::new(SERVED).args(words).arg(db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    assert!(out.contains(" 0 violations"), "{out}");
}

#[test]
fn what_a_server_acknowledged_survives_a_power_cut() {
    if !has("mkfs.ext4", "a server under a power cut") {
        return;
    }
    let check = format!("'{SERVED}' check --db db --ack \"$POWERCUT_ACK\"");
    let head =
        ["--fs", "ext4", "--seed", "3", "--variants", "3", "--cut-after-writes", "300..1500", "--fsck"];
    let told = run(&[&head[..], &["--check", &check, "--", SERVED, "load", "--db", "db"]].concat());
    assert_eq!(told["exit"], 0, "{told:#}");
    assert!(told["ack_lines"].as_u64().unwrap() > 0, "a check of nothing: {told:#}");
}
