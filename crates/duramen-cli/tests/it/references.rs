//! References by name: added, kept by every command that writes, listed, dropped.

use crate::runner::{Scratch, json};

const PROCESS: &[&str] = &["--durability", "process"];

/// Two towns, and four people: three refer to a town, and one to none.
fn people(fifth: &str) -> Scratch {
    let rows = format!("id,town\n1,Oslo\n2,Oslo\n3,Bergen\n4,NA\n{fifth}");
    let scratch = Scratch::with_rows(&rows, &["--key", "id", "--null", "NA"]);
    scratch.write("towns.csv", "name\nOslo\nBergen\n");
    scratch.ok(&["import", "db", "towns.csv", "-c", "towns", "--key", "name"]);
    scratch
}

fn add<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["reference", "add", "db", "-c", "rows", "town", "towns"], words, PROCESS].concat()
}

#[test]
fn a_reference_is_kept_by_every_command() {
    let scratch = people("");
    let added = scratch.ok(&add(&[]));
    assert!(added.starts_with("added the reference rows.town to towns (restrict), seq "), "{added}");
    assert!(scratch.ok(&add(&[])).starts_with("had already the reference"));
    let put = scratch.run(&["put", "db", "-c", "rows", "{\"id\":9,\"town\":\"Voss\"}"]);
    assert_eq!(put.code, Some(1));
    assert!(
        put.stderr.contains("document 9 of rows has town = Voss") && put.stderr.contains("E0216"),
        "{}",
        put.stderr
    );
    let del = scratch.run(&["del", "db", "-c", "towns", "--key", "Oslo", "--json"]);
    let said = json(&del.stderr);
    assert_eq!((del.code, &said["code"]), (Some(1), &"E0217".into()));
    assert!(
        said["message"]
            .as_str()
            .unwrap()
            .starts_with("2 documents refer to the document Oslo of towns: rows 1 by town")
    );
    let all = scratch.run(&["del", "db", "-c", "towns", "--all", "--yes"]);
    assert!(all.stderr.contains("E0217"), "{}", all.stderr);
    let drop = scratch.run(&["drop", "db", "-c", "towns", "--yes"]);
    assert!(drop.stderr.contains("rows.town") && drop.stderr.contains("reference drop"), "{}", drop.stderr);
    scratch.write("more.csv", "id,town\n10,Oslo\n11,Voss\n");
    let import = scratch.run(&["import", "db", "more.csv", "-c", "rows"]);
    assert!(import.stderr.contains("has town = Voss"), "{}", import.stderr);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
    scratch.ok(&["backup", "db", "copy"]);
    assert!(scratch.ok(&["reference", "list", "copy"]).contains("checked"));
    assert!(scratch.ok(&["collections", "db"]).contains("town to towns (restrict)"));
    assert!(scratch.ok(&["check", "db", "--deep"]).contains("nothing is wrong"));
    let dropped = scratch.ok(&[&["reference", "drop", "db", "-c", "rows", "town"], PROCESS].concat());
    assert!(dropped.starts_with("dropped the reference rows.town to towns"), "{dropped}");
    scratch.ok(&["del", "db", "-c", "towns", "--key", "Oslo"]);
}

#[test]
fn a_delete_tells_what_followed() {
    let scratch = people("");
    scratch.ok(&add(&["--on-delete", "cascade"]));
    let said = scratch.ok(&["del", "db", "-c", "towns", "--key", "Oslo"]);
    assert!(
        said.starts_with("deleted 1 document of towns, with 2 documents that referred to them, seq"),
        "{said}"
    );
    let other = scratch.run(&add(&["--on-delete", "clear"]));
    assert!(other.stderr.contains("--replace"), "{}", other.stderr);
    scratch.ok(&add(&["--on-delete", "clear", "--replace"]));
    let said = json(&scratch.ok(&["del", "db", "-c", "towns", "--all", "--yes", "--json"]));
    assert_eq!((&said["rows"], &said["cascaded"], &said["cleared"]), (&1.into(), &0.into(), &1.into()));
    assert_eq!(
        json(&scratch.ok(&["get", "db", "-c", "rows", "--key", "3", "--json"]))["town"],
        serde_json::Value::Null
    );
}

#[test]
fn data_that_breaks_a_reference_is_named_and_nothing_is_added() {
    let scratch = people("5,Voss\n6,Voss\n");
    let refused = scratch.run(&add(&[]));
    assert_eq!(refused.code, Some(1));
    for words in
        ["2 documents of rows", "5 to Voss, 6 to Voss", "was not added", "put what is missing in towns"]
    {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    assert_eq!(
        json(&scratch.ok(&["reference", "list", "db", "--json"]))["references"],
        serde_json::json!([])
    );
    scratch.ok(&["put", "db", "-c", "rows", "{\"id\":7,\"town\":\"Nowhere\"}"]);
    scratch.ok(&["del", "db", "-c", "rows", "--from", "5"]);
    scratch.ok(&add(&["--on-delete", "cascade"]));
    let kept = scratch.run(&["reference", "add", "db", "-c", "rows", "id", "towns"]);
    assert!(kept.stderr.contains("holds int, and the key of towns is text"), "{}", kept.stderr);
    for (words, said) in [
        (&["add", "db", "-c", "rows", "twon", "towns"][..], "did you mean town"),
        (&["add", "db", "-c", "rows", "town", "twons"], "towns"),
        (&["drop", "db", "-c", "rows", "twon"], "town"),
        (&["add", "db", "-c", "rows", "town", "towns", "--on-delete", "ignore"], "restrict"),
    ] {
        let ran = scratch.run(&[&["reference"], words].concat());
        assert!(ran.code != Some(0) && ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
}

// A batch of few documents may reach many: it is halved until it does not.
#[test]
fn a_delete_takes_smaller_batches_where_much_follows() {
    let scratch = people("");
    scratch.ok(&add(&["--on-delete", "cascade"]));
    let rows: String = (10..15_010).map(|id| format!("{id},{}\n", ["Oslo", "Bergen"][id % 2])).collect();
    scratch.write("more.csv", format!("id,town\n{rows}"));
    scratch.ok(&[&["import", "db", "more.csv", "-c", "rows"], PROCESS].concat());
    let said = json(&scratch.ok(&["del", "db", "-c", "towns", "--all", "--yes", "--json"]));
    assert_eq!((&said["rows"], &said["cascaded"]), (&2.into(), &15_003.into()), "{said}");
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
}

#[test]
fn a_reference_that_could_not_be_replaced_is_checked_again() {
    let scratch = people("5,Voss\n");
    scratch.write("places.csv", "name\nOslo\nBergen\nVoss\n");
    scratch.ok(&["import", "db", "places.csv", "-c", "places", "--key", "name"]);
    scratch.ok(&[&["reference", "add", "db", "-c", "rows", "town", "places"], PROCESS].concat());
    let refused = scratch.run(&add(&["--replace"]));
    assert!(
        refused.stderr.contains("5") && refused.stderr.contains("reference is as it was"),
        "{}",
        refused.stderr
    );
    let listed = scratch.ok(&["reference", "list", "db"]);
    assert!(listed.contains("places") && listed.contains("checked"), "{listed}");
    scratch.ok(&["del", "db", "-c", "rows", "--key", "5"]);
    scratch.ok(&["del", "db", "-c", "places", "--key", "Voss"]);
}

#[test]
fn a_tree_is_imported_in_one_batch() {
    let scratch = Scratch::with_rows("id,parent\n1,NA\n", &["--key", "id", "--null", "NA"]);
    scratch.ok(&["put", "db", "-c", "rows", "{\"id\":2,\"parent\":1}"]);
    scratch.ok(&["reference", "add", "db", "-c", "rows", "parent", "rows", "--on-delete", "cascade"]);
    scratch.write("more.csv", "id,parent\n10,12\n11,10\n12,11\n");
    let split = scratch.run(&["import", "db", "more.csv", "-c", "rows", "--batch", "1"]);
    assert!(split.stderr.contains("has parent = 12") && split.stderr.contains("--batch"), "{}", split.stderr);
    scratch.ok(&["import", "db", "more.csv", "-c", "rows"]);
    let said = scratch.ok(&["del", "db", "-c", "rows", "--key", "11"]);
    assert!(said.contains("with 2 documents that referred"), "{said}");
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "2\n");
}
