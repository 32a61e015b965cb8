//! A line that cannot be pasted, or that runs with another seed, hides the failure that it was printed for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::command_line;

fn check(words: &[&[u8]], drawn: Option<u64>, expected: &str) {
    let words: Vec<OsString> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    assert_eq!(command_line(&words, drawn), expected);
}

/// The command may have its own seed, and any name.
#[test]
fn the_drawn_seed_is_put_before_the_words_of_the_run() {
    check(
        &[b"powercut", b"run", b"--fs", b"ext4", b"--", b"load", b"--seed", b"7"],
        Some(9),
        "powercut run --seed 9 --fs ext4 -- load --seed 7",
    );
    check(&[b"run", b"run", b"--", b"run"], Some(9), "run run --seed 9 -- run");
}

#[test]
fn a_seed_that_was_given_stays_where_it_is() {
    check(&[b"powercut", b"run", b"--seed=3", b"--", b"a"], None, "powercut run --seed=3 -- a");
}

#[test]
fn words_that_a_shell_would_read_otherwise_are_quoted() {
    check(&[b"p", b"run", b"", b"a b", b"it's", b"$X\n"], None, "p run '' 'a b' 'it'\\''s' '$X\n'");
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    check(&[b"p", b"run", b"--", b"k\xff0 '\\\n"], None, "p run -- $'k\\3770 \\'\\\\\\012'");
}
