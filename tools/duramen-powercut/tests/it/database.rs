//! Duramen itself under power cuts, in short: what it acknowledged at level `disk` exists, on real file
//! systems. The long run is `scripts/power-cuts`.

use serde_json::Value;

use crate::runner::{can, has, run};

const DURAMEN: &str = env!("CARGO_BIN_EXE_powercut-duramen");

/// One cut while a database is loaded. `more` are arguments of `run`, `load` those of the loader.
fn cut(fs: &str, cache: &str, seed: u64, more: &[&str], load: &[&str]) -> Value {
    let seed = seed.to_string();
    let check = format!("'{DURAMEN}' check --db db --ack \"$POWERCUT_ACK\"");
    let head = ["--fs", fs, "--cache", cache, "--seed", &seed, "--variants", "3", "--check", &check];
    run(&[&head[..], more, &["--", DURAMEN, "load", "--db", "db"], load].concat())
}

/// The number of acknowledged commits: the check of the first survival prints `N acknowledged, ...`.
///
/// `ack_lines` also counts openings and backups.
fn commits(told: &Value) -> u64 {
    let output = told["checks"][0]["output"].as_str().unwrap();
    let count = output.lines().find_map(|line| line.split_once(" acknowledged, ")?.0.parse().ok());
    count.unwrap_or_else(|| panic!("{told:#}"))
}

/// D1, D2: every acknowledged transaction exists and is whole, in each of several survivals of each cut.
#[test]
fn what_a_database_acknowledged_survives_on_real_file_systems() {
    let mut acknowledged = 0;
    let mut count = 0;
    for fs in ["ext4", "xfs", "btrfs"] {
        if !has(&format!("mkfs.{fs}"), &format!("Duramen under a power cut on {fs}")) {
            continue;
        }
        for (seed, writers) in [(1, "1"), (2, "16")] {
            let told = cut(
                fs,
                "volatile",
                seed,
                &["--cut-after-writes", "300..3000", "--fsck"],
                &["--writers", writers],
            );
            assert_eq!(told["exit"], 0, "{told:#}");
            acknowledged += commits(&told);
            count += 1;
        }
    }
    assert!(count == 0 || acknowledged > 0, "a check of nothing");
}

/// One cut while a database is loaded whose log is on the second drive. `drives` are arguments of `run`.
fn cut_apart(drives: &[&str], seed: u64, more: &[&str], writers: &str) -> Value {
    let seed = seed.to_string();
    let check = format!("'{DURAMEN}' check --db db --wal \"$POWERCUT_SECOND/log\" --ack \"$POWERCUT_ACK\"");
    let load = format!("exec '{DURAMEN}' load --db db --wal \"$POWERCUT_SECOND/log\" --writers {writers}");
    let head = ["--seed", &seed, "--variants", "3", "--check", &check];
    run(&[drives, &head[..], more, &["--", "sh", "-c", &load]].concat())
}

/// D1, D2 with the log on a separate file system: one cut, two drives, each loses any unflushed writes.
#[test]
fn what_a_database_acknowledged_survives_with_its_log_on_a_second_file_system() {
    let cells: [(&[&str], &str); 3] = [
        (&["--fs", "ext4", "--second-fs", "xfs"], "16"),
        (&["--fs", "xfs", "--second-fs", "ext4", "--second-cache", "writethrough"], "1"),
        (&["--fs", "btrfs", "--second-fs", "btrfs"], "16"),
    ];
    let mut acknowledged = Vec::new();
    for (seed, (drives, writers)) in (1..).zip(cells) {
        let what = format!("a log on a second file system: {}", drives.join(" "));
        if ![drives[1], drives[3]].iter().all(|fs| has(&format!("mkfs.{fs}"), &what)) {
            continue;
        }
        let told = cut_apart(drives, seed, &["--cut-after-writes", "300..3000", "--fsck"], writers);
        assert_eq!(told["exit"], 0, "{told:#}");
        acknowledged.push(commits(&told));
    }
    assert!(acknowledged.is_empty() || acknowledged.iter().sum::<u64>() > 0, "a check of nothing");
}

/// A lying drive under the log loses commits. Under the data it loses checkpoints, and the intact log makes
/// the database report it (exit code 4 of the checker) instead of serving less (exit code 3).
#[test]
fn a_lying_drive_under_the_log_or_under_the_data_is_caught() {
    if !can("Duramen with a lying drive beside an honest one") {
        return;
    }
    for (data, log) in [("volatile", "lying"), ("lying", "volatile")] {
        let drives = ["--fs", "ext4", "--cache", data, "--second-fs", "ext4", "--second-cache", log];
        let told = cut_apart(&drives, 3, &["--cut-after-writes", "1500..2500"], "1");
        assert!([3, 4].contains(&told["exit"].as_i64().unwrap()), "{told:#}");
        let checks = told["checks"].as_array().unwrap();
        let silent = checks.iter().any(|check| check["why"].as_str().unwrap().ends_with("exit code 3"));
        assert!(data != "lying" || !silent, "{told:#}");
    }
}

/// A lying drive, and a level that promises nothing about a power cut: the check must detect the losses.
#[test]
fn a_lying_drive_and_a_weaker_level_lose_what_was_acknowledged() {
    if !can("Duramen on a lying drive") {
        return;
    }
    let lying = cut("ext4", "lying", 3, &["--cut-after-writes", "1500..2500"], &[]);
    assert!([3, 4].contains(&lying["exit"].as_i64().unwrap()), "{lying:#}");
    // At this level only the background syncs, once a second, and any sync(2) of this machine: one cut may
    // fall right after such a sync.
    let load = ["--level", "process"];
    let weak: Vec<Value> =
        (4..8).map(|seed| cut("ext4", "volatile", seed, &["--cut-after-ms", "300..900"], &load)).collect();
    assert!(weak.iter().any(|told| told["exit"] == 3), "{weak:#?}");
}
