//! The tutorial's program runs, and every piece of Rust in docs/tutorial.md is in it.

use duramen::prelude::*;

#[path = "../../examples/tutorial.rs"]
#[allow(dead_code, reason = "its main is for who runs it")]
mod program;

#[test]
fn the_program_runs() {
    let db = Db::in_memory().unwrap();
    program::run(&db).unwrap();
    assert_eq!(db.documents("order").count(Span::all()).unwrap(), 3);
    assert!(db.check().unwrap().is_clean());
}

/// Lines without surrounding white space.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_piece_of_the_tutorial_is_in_the_program() {
    let program = lines(include_str!("../../examples/tutorial.rs"));
    let pieces: Vec<Vec<&str>> = include_str!("../../../../docs/tutorial.md")
        .split("```rust\n")
        .skip(1)
        .map(|after| lines(after.split("```").next().unwrap()))
        .collect();
    assert!(pieces.len() > 10, "the pieces were found");
    for piece in pieces {
        let found = program.windows(piece.len()).any(|window| window == piece);
        assert!(found, "this is not in examples/tutorial.rs:\n{}", piece.join("\n"));
    }
}
