//! The program itself: what it acknowledged survives `kill -9`, and SIGTERM ends it in order.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;

use crate::client::Client;

fn start(database: &Path) -> (Child, Client, BufReader<ChildStdout>) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tickets"));
    let mut child = program.arg(database).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let base = line.trim().strip_prefix("tickets: ").expect("the first line has the address").to_owned();
    (child, Client::new(base), output)
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_sigterm_ends_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("tickets.duramen");
    let ada = json!({ "email": "ada@example.org", "name": "Ada" });

    let (mut child, client, _output) = start(&database);
    client.post("/users", &ada).expect(201);
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();

    let (mut child, client, mut output) = start(&database);
    client.post("/users", &ada).expect(409);
    client.post("/logins", &json!({ "email": "ada@example.org" })).expect(202);
    let mut mail = String::new();
    output.read_line(&mut mail).unwrap();
    assert!(mail.starts_with("mail to ada@example.org: Your login code"), "{mail}");
    let killed = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());

    let usage = Command::new(env!("CARGO_BIN_EXE_tickets")).args(["x", "nowhere"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
