//! `duramen user` and `duramen token`: the same with and without a server, and what a user may do by them.

use crate::runner::{Ran, Scratch, json};
use crate::serving::Serve;

fn scratch() -> Scratch {
    Scratch::with_rows("id,n\n1,30\n2,75\n", &["--key", "id"])
}

/// Every command of both, in one order.
fn all(scratch: &Scratch) {
    scratch.ok(&["user", "add", "db", "web", "--right", "reader=collection:rows", "--right", "writer=kv:a*"]);
    scratch.ok(&["user", "add", "db", "ops"]);
    let list = scratch.ok(&["user", "list", "db"]);
    assert!(list.contains("reader=collection:rows, writer=kv:a*") && list.contains("no rights"), "{list}");
    let again = scratch.run(&["user", "add", "db", "web"]);
    assert!(again.code == Some(1) && again.stderr.contains("E0210"), "{}", again.stderr);
    for (name, right) in [("admin", "reader"), ("a b", "reader"), ("x", "root"), ("x", "reader=y")] {
        let refused = scratch.run(&["user", "add", "db", name, "--right", right]);
        assert!(refused.code == Some(1) && refused.stderr.contains("E0201"), "{}", refused.stderr);
    }
    let set = scratch.ok(&["user", "set", "db", "ops", "--right", "operator", "--json"]);
    assert_eq!(json(&set)["rights"][0], "operator");
    assert_eq!(scratch.run(&["user", "set", "db", "nobody"]).code, Some(1));
    let made = json(&scratch.ok(&["token", "add", "db", "web", "--days", "2", "--json"]));
    let id = made["id"].as_str().unwrap();
    assert!(made["token"].as_str().unwrap().starts_with(&format!("dur_{id}_")));
    let printed = scratch.run(&["token", "add", "db", "ops"]);
    assert!(printed.stdout.starts_with("dur_") && printed.stdout.trim().lines().count() == 1);
    let list = scratch.ok(&["token", "list", "db", "--json"]);
    assert_eq!(json(&list)["tokens"].as_array().unwrap().len(), 2);
    assert!(!list.contains(printed.stdout.trim()), "{list}");
    assert_eq!(scratch.run(&["token", "add", "db", "nobody"]).code, Some(1));
    scratch.ok(&["token", "revoke", "db", id]);
    let gone = scratch.run(&["token", "revoke", "db", id]);
    assert!(gone.code == Some(1) && gone.stderr.contains("there is no token"), "{}", gone.stderr);
    scratch.ok(&["user", "drop", "db", "ops"]);
    assert_eq!(scratch.run(&["user", "drop", "db", "ops"]).code, Some(1));
    assert!(json(&scratch.ok(&["token", "list", "db", "--json"]))["tokens"].as_array().unwrap().is_empty());
}

#[test]
fn users_and_tokens_are_kept_in_the_database() {
    let scratch = scratch();
    all(&scratch);
    scratch.ok(&["backup", "db", "copy"]);
    assert!(scratch.ok(&["user", "list", "copy"]).contains("web"));
}

#[test]
fn users_and_tokens_are_kept_by_the_server() {
    let scratch = scratch();
    let _serve = Serve::of(&scratch, "db");
    all(&scratch);
}

#[test]
fn a_user_does_what_its_rights_say() {
    let scratch = scratch();
    let serve = Serve::of(&scratch, "db");
    scratch.ok(&["user", "add", "db", "web", "--right", "reader=collection:rows"]);
    let token = json(&scratch.ok(&["token", "add", "db", "web", "--json"]));
    let at = format!("duramen://{}@{}", token["token"].as_str().unwrap(), serve.address());
    let run = |words: &[&str]| -> Ran { scratch.run(&[words, &["--at", &at][..]].concat()) };
    assert_eq!(run(&["count", "-c", "rows"]).stdout.trim(), "2");
    for words in [
        &["put", "-c", "rows", r#"{"id": 3, "n": 1}"#][..],
        &["del", "-c", "rows", "--key", "1"],
        &["drop", "-c", "rows", "--yes"],
        &["view", "add", "-c", "rows", "by_n", "--key", "n"],
        &["inspect"],
        &["user", "list"],
        &["token", "add", "web"],
    ] {
        let refused = run(words);
        assert!(refused.code == Some(7) && refused.stderr.contains("E1102"), "{words:?}: {}", refused.stderr);
    }
    scratch.ok(&["token", "revoke", "db", token["id"].as_str().unwrap()]);
    let refused = run(&["count", "-c", "rows"]);
    assert!(refused.code == Some(7) && refused.stderr.contains("E1101"), "{}", refused.stderr);
}
