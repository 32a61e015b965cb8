//! Two drives that lose power at the same instant: each with its own cache and its own survivors, kept and
//! started from as a pair.

use std::path::Path;

use serde_json::Value;

use crate::runner::{can, run};

/// Appends a line to a file on each drive in turn, each synced before the next, and acknowledges the pair.
const WRITER: &str = "for n in $(seq 200); do \
     echo $n >> log && sync -d log && echo $n >> \"$POWERCUT_SECOND/log\" && sync -d \"$POWERCUT_SECOND/log\" && echo $n; \
     done; sleep 50";

/// Every acknowledged line is on both drives, and the second never has one that the first lacks.
const CHECK: &str = "for n in $(cat \"$POWERCUT_ACK\"); do \
     grep -qx $n log || { echo \"first lacks $n\"; exit 7; }; \
     grep -qx $n \"$POWERCUT_SECOND/log\" || { echo \"second lacks $n\"; exit 8; }; \
     done; \
     for n in $(cat \"$POWERCUT_SECOND/log\"); do grep -qx $n log || { echo \"first is behind\"; exit 9; }; done";

/// A cut of the writer on two ext4. The files are created and durable before it begins.
fn cut(seed: u64, more: &[&str]) -> Value {
    let seed = seed.to_string();
    let setup = "touch log \"$POWERCUT_SECOND/log\"";
    let head = ["--fs", "ext4", "--second-fs", "ext4", "--size", "32M", "--seed", &seed, "--setup", setup];
    run(&[&head[..], more, &["--check", CHECK, "--", "sh", "-c", WRITER]].concat())
}

/// The results of the failed checks.
fn failures(told: &Value) -> Vec<&str> {
    let checks = told["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["verdict"] != "passed").map(|check| check["why"].as_str().unwrap()).collect()
}

/// The order of writes to two drives is the program's: what was synced to the first before a write to the
/// second exists.
#[test]
fn what_was_synced_to_either_drive_survives_and_in_order() {
    if !can("two drives and one power") {
        return;
    }
    let cuts: [&[&str]; 3] = [
        &["--cut-after-writes", "20..300", "--second-cache", "writethrough"],
        &["--cut-after-flushes", "20..100"],
        &["--cut-after-flushes", "20..100", "--latency-us", "20..200"],
    ];
    for (seed, cut_by) in (1..).zip(cuts) {
        let told = cut(seed, &[cut_by, &["--variants", "4", "--fsck"]].concat());
        assert_eq!(told["exit"], 0, "{told:#}");
        assert!(told["ack_lines"].as_u64().unwrap() > 0, "{told:#}");
        let drives = told["cut"]["drives"].as_array().unwrap();
        let answered = |name: &str| drives.iter().map(|drive| drive[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!(told["cut"]["writes"].as_u64(), Some(answered("writes")), "{told:#}");
        assert_eq!(told["cut"]["flushes"].as_u64(), Some(answered("flushes")), "{told:#}");
        assert!(drives.iter().all(|drive| drive["writes"].as_u64() > Some(0)), "{told:#}");
    }
}

/// The check must show which of the two lied, or it would not see a loss on one of them.
#[test]
fn either_drive_that_lies_is_caught_by_itself() {
    if !can("one of two drives lies") {
        return;
    }
    let words = ["--cut-after-flushes", "60..100", "--variants", "6"];
    for (caches, lost) in [(["volatile", "lying"], "exit code 8"), (["lying", "volatile"], "exit code 7")] {
        let told = cut(7, &[&words[..], &["--cache", caches[0], "--second-cache", caches[1]]].concat());
        let failures = failures(&told);
        assert!(failures.iter().any(|why| why.ends_with(lost)), "{told:#}");
        // A file system that lost flushed writes may not mount. Data on the honest drive is never missing.
        let others = failures.iter().filter(|why| why.contains("exit code") && !why.ends_with(lost));
        let others: Vec<_> =
            others.filter(|why| !(caches[0] == "lying" && why.ends_with("exit code 9"))).collect();
        assert!(others.is_empty(), "{others:?}: {told:#}");
    }
}

#[test]
fn a_seed_draws_the_same_cut_of_two_drives_again() {
    if !can("the same cut of two drives again") {
        return;
    }
    let twice = [0; 2].map(|_| cut(11, &["--cut-after-writes", "40..90"]));
    assert_eq!(twice[0]["moment"], twice[1]["moment"]);
    assert_eq!(twice[0]["cut"]["writes"], twice[1]["cut"]["writes"]);
    let chosen = twice.map(|told| {
        let survivals = told["checks"][0]["survivals"].as_array().unwrap().clone();
        assert_eq!(survivals.len(), 2, "{told:#}");
        survivals.iter().map(|survival| survival["survival"].clone()).collect::<Vec<_>>()
    });
    // The kind of the choice; its numbers may differ if the kernel came further.
    let kinds =
        chosen.map(|pair| pair.iter().map(|text| text.as_str().unwrap()[..3].to_owned()).collect::<Vec<_>>());
    assert_eq!(kinds[0], kinds[1]);
}

/// A crash during recovery: a pair of images is the start of the next run, and one without the other is
/// refused.
#[test]
fn a_kept_pair_is_where_the_next_run_begins() {
    if !can("a kept pair of images") {
        return;
    }
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = scratch.path().join("crashed.img");
    let second = scratch.path().join("crashed.img.second");
    let image = image.to_str().unwrap();
    let kept = cut(5, &["--cut-after-writes", "60..90", "--keep-image", image]);
    assert_eq!(kept["exit"], 0, "{kept:#}");
    let bytes = |path: &Path| path.metadata().unwrap().len();
    assert_eq!([bytes(Path::new(image)), bytes(&second)], [32 << 20; 2]);
    let again = |script: &str| {
        let head = [
            "--fs",
            "ext4",
            "--second-fs",
            "ext4",
            "--seed",
            "6",
            "--cut-after-ms",
            "50000",
            "--image",
            image,
        ];
        run(&[&head[..], &["--fsck", "--check", "true", "--", "sh", "-c", script]].concat())
    };
    let told = again("test -s log && test -s \"$POWERCUT_SECOND/log\"");
    assert_eq!((&told["exit"], &told["command_ended"]), (&0.into(), &"exit code 0".into()), "{told:#}");
    std::fs::remove_file(&second).unwrap();
    let told = again("true");
    assert_eq!(told["exit"], 1, "{told:#}");
    assert!(told["error"].as_str().unwrap().contains("crashed.img.second"), "{told:#}");
}

#[test]
fn words_about_a_second_drive_need_one() {
    let words =
        ["--fs", "ext4", "--second-cache", "lying", "--cut-after-ms", "1", "--check", "true", "--", "true"];
    let refused = crate::runner::command(&words).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    if !can("a run with one drive is told of one") {
        return;
    }
    let words = ["--fs", "ext4", "--seed", "1", "--cut-after-ms", "50000"];
    let told =
        run(&[&words[..], &["--check", "true", "--", "sh", "-c", "test -z \"$POWERCUT_SECOND\""]].concat());
    assert_eq!((&told["exit"], &told["second_fs"]), (&0.into(), &Value::Null), "{told:#}");
}

/// Two drives may have the same file system: its name alone does not show which of them is corrupt.
#[test]
fn the_drive_whose_fsck_fails_is_named() {
    if !can("a failed fsck of one of two drives") {
        return;
    }
    for (file, name) in [("disk", "the first drive"), ("second", "the second drive")] {
        // Group descriptors, bitmaps and inodes, below the mounted file system.
        let corruption = format!(
            "dd if=/dev/zero of=$(echo /run/powercut/crash-{file}-*) bs=1K seek=2 count=2000 conv=notrunc"
        );
        let words = ["--fs", "ext4", "--second-fs", "ext4", "--size", "32M", "--cut-after-ms", "50000"];
        let told = run(&[&words[..], &["--fsck", "--check", &corruption, "--", "true"]].concat());
        assert_eq!((&told["exit"], &told["checks"][0]["verdict"]), (&4.into(), &"fsck_failed".into()));
        let why = told["checks"][0]["why"].as_str().unwrap();
        assert!(why.starts_with(&format!("FSCK FAILED: ext4 on {name}: exit code ")), "{told:#}");
    }
}
