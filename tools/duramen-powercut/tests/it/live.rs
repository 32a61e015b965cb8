//! The binary on real kernels: an honest writer loses nothing, a lying drive and a writer without syncs are
//! caught.

use std::path::Path;

use serde_json::Value;

use crate::runner::{can, command, has, records, run};

fn ends(trials: &[Value]) -> Vec<i64> {
    trials.iter().map(|trial| trial["exit"].as_i64().unwrap()).collect()
}

fn acknowledged(trials: &[Value]) -> u64 {
    trials.iter().map(|trial| trial["ack_lines"].as_u64().unwrap()).sum()
}

/// D1 on a real kernel: what fdatasync made durable survives every cut, in each of several survivals.
#[test]
fn an_honest_writer_loses_nothing_on_ext4() {
    if !can("an honest writer on ext4") {
        return;
    }
    let cuts: [&[&str]; 3] = [
        &["--cut-after-ms", "5..40"],
        &["--cut-after-writes", "20..200"],
        &["--cut-after-flushes", "20..200", "--latency-us", "20..200"],
    ];
    let mut trials = Vec::new();
    for cut in cuts {
        let more = [cut, &["--variants", "3", "--fsck"]].concat();
        trials.extend((1..=3).map(|seed| records("ext4", "volatile", "fdatasync", seed, &more)));
    }
    assert_eq!(ends(&trials), [0; 9], "{trials:#?}");
    assert!(acknowledged(&trials) > 60, "{trials:#?}");
}

/// Each other file system once: the tool must not lose what they keep.
#[test]
fn an_honest_writer_loses_nothing_on_xfs_and_btrfs() {
    for fs in ["xfs", "btrfs"] {
        if !has(&format!("mkfs.{fs}"), &format!("an honest writer on {fs}")) {
            continue;
        }
        let more = ["--cut-after-flushes", "20..60", "--variants", "2", "--fsck"];
        let trials: Vec<Value> =
            ["fdatasync", "dsync"].iter().map(|sync| records(fs, "volatile", sync, 7, &more)).collect();
        assert_eq!(ends(&trials), [0; 2], "{trials:#?}");
        assert!(acknowledged(&trials) > 5, "{trials:#?}");
    }
}

/// A drive that completes flushes without doing them must fail the same check, or the check detects nothing.
#[test]
fn a_lying_drive_is_caught() {
    if !can("a lying drive") {
        return;
    }
    for seed in 1..=3 {
        let trial = records(
            "ext4",
            "lying",
            "fdatasync",
            seed,
            &["--cut-after-flushes", "50..150", "--variants", "4"],
        );
        let found = trial["exit"].as_i64().unwrap();
        assert!([3, 4].contains(&found), "{trial:#?}");
        assert!(trial["cut"]["drives"][0]["pending"].as_u64().unwrap() > 0, "{trial:#?}");
    }
}

#[test]
fn a_writer_without_syncs_loses_in_most_cuts() {
    if !can("a writer without syncs") {
        return;
    }
    let trials: Vec<Value> =
        (1..=4).map(|seed| records("ext4", "volatile", "none", seed, &["--cut-after-ms", "3..20"])).collect();
    let lost = ends(&trials).iter().filter(|exit| **exit == 3).count();
    assert!(lost >= 3, "{trials:#?}");
}

/// The same seed draws the same moment and the same survival; what the kernel wrote until then may differ.
#[test]
fn a_seed_draws_the_same_cut_again() {
    if !can("the same cut again") {
        return;
    }
    let twice =
        [0; 2].map(|_| records("ext4", "volatile", "fdatasync", 11, &["--cut-after-writes", "10..90"]));
    assert_eq!(twice[0]["moment"], twice[1]["moment"]);
    assert_eq!(twice[0]["cut"]["writes"], twice[1]["cut"]["writes"]);
    assert!(twice[0]["repeat"].as_str().unwrap().contains("--seed 11"));
}

/// A program that ends before the power goes: the cut comes at its end, and its status is reported.
#[test]
fn a_command_that_is_killed_is_cut_at_its_end() {
    if !can("a command that is killed") {
        return;
    }
    let script = "echo durable > f && sync f && sync . && echo ack; echo volatile > g; kill -9 $$";
    let check = "grep -q ack \"$POWERCUT_ACK\" && grep -q durable f";
    let words = ["--fs", "ext4", "--seed", "3", "--cut-after-ms", "50000", "--variants", "4"];
    let trial = run(&[&words[..], &["--check", check, "--", "sh", "-c", script]].concat());
    assert_eq!(trial["exit"], 0, "{trial:#?}");
    assert_eq!(trial["command_ended"], "signal 9", "{trial:#?}");
    assert_eq!(trial["cut"]["cause"], "the end of the command", "{trial:#?}");
}

/// A crash during recovery: the image that one cut left is the start of the next run.
#[test]
fn a_kept_image_is_where_the_next_run_begins() {
    if !can("a kept image") {
        return;
    }
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = scratch.path().join("crashed.img");
    let image = image.to_str().unwrap();
    let first = "echo one > f && sync f && sync . && echo ack; sleep 30";
    let words = ["--fs", "ext4", "--seed", "5", "--cut-after-flushes", "1"];
    let kept =
        run(&[&words[..], &["--keep-image", image, "--check", "true", "--", "sh", "-c", first]].concat());
    assert_eq!(kept["exit"], 0, "{kept:#?}");
    assert!(Path::new(image).metadata().unwrap().len() == 512 << 20);
    let then = "echo two > g && sync g && sync . && echo ack";
    let words =
        ["--fs", "ext4", "--seed", "6", "--cut-after-ms", "20000", "--image", image, "--variants", "2"];
    let check = "grep -q ack \"$POWERCUT_ACK\" && grep -q two g";
    let again = run(&[&words[..], &["--fsck", "--check", check, "--", "sh", "-c", then]].concat());
    assert_eq!(again["exit"], 0, "{again:#?}");
}

#[test]
fn what_cannot_run_is_told_with_its_exit_code() {
    let no_cut = command(&["--fs", "ext4", "--check", "true", "--", "true"]).output().unwrap();
    assert_eq!(no_cut.status.code(), Some(2));
    if !can("refusals of a machine that could") {
        return;
    }
    let failed = "echo no room >&2; exit 4";
    let words = [
        "--fs",
        "ext4",
        "--seed",
        "1",
        "--cut-after-ms",
        "5000",
        "--check",
        "true",
        "--",
        "sh",
        "-c",
        failed,
    ];
    let failed = run(&words);
    assert_eq!(failed["exit"], 1, "a command that fails proves nothing: {failed:#?}");
    assert_eq!(failed["command_output"], "no room\n", "{failed:#?}");
    let told = |args: &[&str], exit: i64, part: &str| {
        let told = run(args);
        assert_eq!(told["exit"], exit, "{told:#?}");
        assert!(told["error"].as_str().unwrap().contains(part), "{told:#?}");
        assert!(!told["hint"].as_str().unwrap().is_empty());
    };
    let head = ["--fs", "ext4", "--seed", "1", "--cut-after-ms", "5000", "--check", "true"];
    // Not even when the power would have gone first: nothing ran, so nothing was checked.
    let at_once = ["--fs", "ext4", "--seed", "1", "--cut-after-ms", "0", "--check", "true"];
    told(&[&at_once[..], &["--", "/no/such/program"]].concat(), 1, "cannot start");
    told(&[&head[..], &["--size", "1M", "--", "true"]].concat(), 1, "1 MiB");
    told(&[&head[..], &["--setup", "echo no; exit 9", "--", "true"]].concat(), 1, "--setup failed");
    told(&[&head[..], &["--mkfs-opts", "--nonsense", "--", "true"]].concat(), 1, "mkfs.ext4 failed");
    told(&[&head[..], &["--timeout-s", "1", "--", "sleep", "30"]].concat(), 5, "neither the cut nor the end");
}
