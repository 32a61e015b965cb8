//! The output of a run: to a reader that may have gone, with a line that repeats the run, and on the
//! requested mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::runner::{POWERCUT, can, command, run};

const HEAD: [&str; 6] = ["--fs", "ext4", "--cut-after-ms", "50000", "--check", "true"];

/// The exit code is the verdict: a closed output must not change it.
#[test]
fn a_closed_output_changes_no_exit_code() {
    if !can("an output that nobody reads") {
        return;
    }
    for (json, script, exit) in [(None, "true", 0), (Some("--json"), "true", 0), (None, "exit 4", 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut powercut = Command::new(POWERCUT);
        powercut.arg("run").args(HEAD).args(json).args(["--", "sh", "-c", script]).stdin(Stdio::null());
        powercut.stdout(writer.try_clone().unwrap()).stderr(writer);
        assert_eq!(powercut.status().unwrap().code(), Some(exit), "{json:?} {script}");
    }
}

/// The words of the command are its own: they need not be text, and may equal an option of the run.
#[test]
fn the_line_that_repeats_a_run_takes_any_command() {
    if !can("a command with words of its own") {
        return;
    }
    let mut powercut = command(&HEAD);
    powercut.args(["--", "true", "--seed", "7"]).arg(OsStr::from_bytes(b"k\xff"));
    let done = powercut.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let again = told["repeat"].as_str().unwrap();
    assert!(again.contains(&format!(" run --seed {} --json ", told["seed"])), "{again}");
    assert!(again.ends_with("-- true --seed 7 $'k\\377'"), "{again}");
}

/// Words that every file system has are flags of mount(2), and hold in the run and in the check.
#[test]
fn mount_options_of_every_kind_hold_on_both_mounts() {
    if !can("mount options") {
        return;
    }
    let look =
        "grep \" $POWERCUT_MNT \" /proc/self/mountinfo | grep nodev, | grep noatime | grep -q commit=7";
    let words = ["--fs", "ext4", "--cut-after-ms", "50000", "--mount-opts", "noatime,commit=7,nodev"];
    let told = run(&[&words[..], &["--check", look, "--", "sh", "-c", look]].concat());
    assert_eq!((&told["exit"], &told["command_ended"]), (&0.into(), &"exit code 0".into()), "{told:#}");
}
