//! What commands print: objects only under `--json`, no Markdown, no characters that rearrange the screen.

use crate::runner::{Scratch, json};

/// A program that reads objects stumbled over lines that are none.
#[test]
fn under_json_acknowledgements_are_objects_too() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n2,3\n3,4\n");
    let import = ["import", "db", "rows.csv", "-c", "rows", "--key", "id", "--batch", "2", "--ack", "--json"];
    let printed: Vec<_> = scratch.ok(&import).lines().map(json).collect();
    let kinds: Vec<_> = printed.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ack", "ack", "import"]);
    let ack = &printed[1];
    assert_eq!((&ack["v"], &ack["batch"], &ack["rows"]), (&1.into(), &2.into(), &3.into()), "{ack}");
    assert_eq!(ack["seq"], printed[2]["seq"]);
}

#[test]
fn explain_prints_text() {
    let printed = Scratch::new().ok(&["explain", "E0301"]);
    assert!(printed.starts_with("E0301: ") && printed.contains("\nWhat to do. "), "{printed}");
    assert!(!printed.contains("**") && !printed.contains('#'), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

/// A name that a file brought along reads as what it is not, if the terminal obeys it.
#[test]
fn names_cannot_turn_the_text_around() {
    let scratch = Scratch::with_rows("id,\u{202e}n\n1,2\n", &["--key", "id"]);
    let printed = scratch.ok(&["collections", "db"]);
    assert!(printed.contains("\\u202en") && !printed.contains('\u{202e}'), "{printed}");
}
