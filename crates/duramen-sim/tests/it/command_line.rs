//! The command line of the long searches: flags have their effects.

use std::process::{Command, Output};

fn duramen_sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duramen-sim")).args(args).output().expect("the program starts")
}

/// An unknown flag must not start a search of a minute.
#[test]
fn help_and_unknown_flags_do_not_start_a_search() {
    for command in
        ["search", "faulty", "product", "concurrent", "replay", "trace", "corruption", "repair", "fuzz"]
    {
        let help = duramen_sim(&[command, "--help"]);
        assert!(help.status.success(), "{command} --help");
        let text = String::from_utf8(help.stdout).expect("text");
        assert!(text.contains("Usage: duramen-sim"), "{text}");
        assert!(text.contains("--seed"), "{text}");

        let unknown = duramen_sim(&[command, "--minuets", "1"]);
        assert_eq!(unknown.status.code(), Some(2), "{command} --minuets");
        assert!(unknown.stdout.is_empty(), "{command}");
    }
}

/// A failure prints the command that reproduces its cut: the command line must accept it.
#[test]
fn a_cut_is_made_again_from_its_printed_command() {
    let replayed = duramen_sim(&["replay", "--seed", "1", "--op", "40", "--choice", "log=all,rest=prefix:2"]);
    let text = String::from_utf8(replayed.stdout).expect("text");
    assert!(replayed.status.success(), "{text}");
    assert!(text.starts_with("survived: recovered commit "), "{text}");
}

/// No seed reproduces what threads did: the printed command must cut the file of a life.
#[test]
fn a_cut_under_threads_is_made_again_from_its_file() {
    let life = duramen_sim::concurrent::live::live(1).unwrap().life;
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("command-line.life");
    std::fs::write(&file, life.encode().unwrap()).unwrap();
    let (path, op) = (file.to_str().unwrap(), life.trace.len().to_string());
    let replayed = duramen_sim(&["replay", "--trace", path, "--op", &op, "--choice", "prefix:1"]);
    let text = String::from_utf8(replayed.stdout).expect("text");
    assert!(replayed.status.success(), "{text}");
    assert!(text.starts_with("survived: recovered commit "), "{text}");
    assert!(!duramen_sim(&["replay", "--trace", path]).status.success(), "a file without a cut");
}
