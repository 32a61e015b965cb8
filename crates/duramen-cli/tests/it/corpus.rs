//! The fuzzers' corpus through the whole command line: files to import, lines for the shell.

use std::path::PathBuf;

use crate::runner::{Ran, Scratch};

/// The files of a corpus, and each of them cut short at some places.
fn inputs(corpus: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let whole = std::fs::read(entry.unwrap().path()).unwrap();
        let cuts = [whole.len() / 3, whole.len() / 2, whole.len().saturating_sub(1)];
        inputs.extend(cuts.map(|cut| whole[..cut].to_vec()));
        inputs.push(whole);
    }
    assert!(!inputs.is_empty(), "{corpus} has a corpus");
    inputs
}

fn ended_well(ran: &Ran, input: &[u8]) {
    let shown = String::from_utf8_lossy(input);
    assert!(matches!(ran.code, Some(0..=2)), "{shown:?}: {:?} {}", ran.code, ran.stderr);
    assert!(ran.code == Some(0) || ran.stderr.contains("error[E"), "{shown:?}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{shown:?}: {}", ran.stderr);
}

/// Whatever a file contains, an import ends with rows or with an error, and the database is sound.
#[test]
fn any_file_is_imported_or_refused() {
    let scratch = Scratch::new();
    for (corpus, file) in [("csv", "rows.csv"), ("ndjson", "rows.ndjson")] {
        for input in inputs(corpus) {
            scratch.write(file, &input);
            let ran = scratch.run(&["import", "db", file, "-c", "rows", "--key", "id", "--replace"]);
            ended_well(&ran, &input);
        }
    }
    scratch.ok(&["check", "db"]);
}

/// Whatever the input, the shell ends and does not panic.
#[test]
fn any_line_is_run_or_refused() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n");
    scratch.ok(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
    for input in inputs("shell") {
        let ran = scratch.run_with_input(&["shell", "db"], &input);
        ended_well(&ran, &input);
    }
    scratch.ok(&["check", "db"]);
}
