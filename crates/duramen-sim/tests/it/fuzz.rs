//! Hostile bytes: the entry points of the fuzzers over their corpus, and over some seconds of new inputs.
//!
//! They run in a separate process with bounded memory: a trusted length must be found even if the machine has
//! room for it.

use std::process::Command;

use duramen_sim::seeds;

/// The folder `fuzz` has a target for each entry point, with a corpus.
#[test]
fn every_entry_point_is_a_target_of_cargo_fuzz() {
    let manifest = include_str!("../../../../fuzz/Cargo.toml");
    for target in duramen_sim::fuzz::Target::ALL {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name())), "{}", target.name());
        assert!(!target.corpus().is_empty(), "{} has no corpus", target.name());
    }
}

/// Bytes with valid checksums may come from a bug, bad memory or an attacker: they lead to an error or an
/// answer.
#[test]
fn hostile_bytes_are_refused_or_read_without_a_panic() {
    let fresh = seeds::of_this_commit("fuzz", 1);
    let seed = &fresh.range.start.to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_duramen-sim"))
        .args(["fuzz", "--seconds", "16", "--threads", "1", "--seed", seed])
        .output()
        .expect("the program starts");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{fresh}: {printed}{errors}");
}
