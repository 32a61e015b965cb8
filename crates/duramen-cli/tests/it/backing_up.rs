//! `backup`: the copy is a database with the same documents. Neither the original nor an existing directory
//! is written to.

use crate::runner::{Scratch, json};
use crate::serving::Serve;

#[test]
fn a_backup_is_a_database_with_the_same_documents() {
    let scratch =
        Scratch::with_rows("id,town\n1,Oslo\n2,Voss\n", &["--key", "id", "--durability", "process"]);
    let before = scratch.listing("db");
    let said = scratch.ok(&["backup", "db", "copy"]);
    assert!(said.contains("read back and checked"), "{said}");
    assert_eq!(scratch.listing("db"), before, "what reads never writes");
    let export = |db: &str| scratch.ok(&["export", db, "-c", "rows", "--format", "ndjson"]);
    assert_eq!(export("copy"), export("db"));
    assert!(scratch.ok(&["check", "copy", "--deep"]).contains("nothing is wrong"));
    let again = scratch.run(&["backup", "db", "copy"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("E0210"), "{}", again.stderr);
    assert_eq!(export("copy"), export("db"));
}

#[test]
fn a_database_in_use_is_copied_by_the_program_that_has_it() {
    let scratch = Scratch::new();
    let db = duramen::Db::open(scratch.path("db")).unwrap();
    let refused = scratch.run(&["backup", "db", "copy"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("`Db::backup`"), "{}", refused.stderr);
    drop(db);
}

/// The server goes on; by its directory, and by its address from where the database is not.
#[test]
fn a_served_database_is_copied_by_its_server() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n2,Voss\n", &["--key", "id", "--sum", "id"]);
    let serve = Serve::of(&scratch, "db");
    let at = format!("duramen://{}?token_file=db/serve.token", serve.address());
    let said = scratch.ok(&["backup", "db", "copy"]);
    assert!(said.contains("read back and checked"), "{said}");
    let told = json(&scratch.ok(&["backup", "--at", &at, "other", "--json"]));
    assert!(told["entries"].as_u64() >= Some(2), "{told}");
    let again = scratch.run(&["backup", "db", "copy"]);
    assert!(again.code == Some(1) && again.stderr.contains("E0210"), "{}", again.stderr);
    scratch.ok(&["put", "db", "-c", "rows", "{\"id\": 3, \"town\": \"Bodo\"}"]);
    assert_eq!(serve.stop(), Some(0));
    for copy in ["copy", "other"] {
        assert_eq!(scratch.ok(&["count", copy, "-c", "rows"]).trim(), "2");
        assert!(scratch.ok(&["check", copy, "--deep"]).contains("nothing is wrong"));
    }
    assert_eq!(scratch.ok(&["reduce", "copy", "-c", "rows"]), scratch.ok(&["reduce", "other", "-c", "rows"]));
}

/// A scheduled backup with a fixed name fails every time after one was interrupted: it must say why.
#[test]
fn an_unfinished_copy_is_named_by_the_next_backup_to_its_place() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n", &["--key", "id", "--durability", "process"]);
    std::fs::create_dir(scratch.path("copy")).unwrap();
    scratch.write("copy/unfinished-copy", "");
    let refused = scratch.run(&["backup", "db", "copy"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    for words in ["E0210", "a copy that was not finished", "delete the directory"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
}
