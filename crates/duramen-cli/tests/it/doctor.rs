//! `doctor` and `bench sync`: their reports on a disk, on memory, and on missing directories.
#![cfg(target_os = "linux")]

use std::path::Path;

use crate::loop_device::mount_a;
use crate::runner::{Scratch, json, skipped};

/// The result for a directory in memory: a sync there is worthless.
#[test]
fn a_directory_in_memory_cannot_keep_level_disk() {
    let Ok(memory) = tempfile::TempDir::new_in("/dev/shm") else {
        return skipped("doctor on a tmpfs — /dev/shm is not there");
    };
    let memory = memory.path().to_str().unwrap();
    let scratch = Scratch::new();
    let ran = scratch.run(&["doctor", memory]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    for words in ["UNSAFE: tmpfs", "does NOT survive a power cut", "no durable commits here", "advice"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let ran = scratch.run(&["doctor", memory, "--json"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    let told = json(&ran.stdout);
    assert_eq!(told["verdict"]["trust"], "unsafe");
    assert_eq!(told["verdict"]["keeps_disk"], false);
    assert_eq!(told["layers"][0]["file_system"]["value"], "tmpfs");
    assert_eq!(told["weaknesses"][0]["kind"], "MemoryFileSystem");
    assert!(told.get("budget").is_none(), "no commit is durable here: {told}");
    assert_eq!(told["verdict"]["why_not"], "a sync is worth nothing");

    let refused = scratch.run(&["bench", "sync", memory]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("--anyway"), "{}", refused.stderr);
    let anyway = [
        "bench",
        "sync",
        memory,
        "--anyway",
        "--rounds",
        "2",
        "--turn-ms",
        "1",
        "--turn-records",
        "9",
        "--json",
    ];
    let told = json(&scratch.ok(&anyway));
    assert_eq!(told["file_system"], "tmpfs");
    assert_eq!(told["device_counters"]["counted"], false, "no disk counts what memory is written: {told}");
    assert!(told["strategies"][0]["device_writes_per_record"].is_null());
    assert_eq!(std::fs::read_dir(memory).unwrap().count(), 0, "nothing is left behind");
}

/// On the file system of the build: whatever the verdict, the facts and the figures exist, and nothing is
/// left behind.
#[test]
fn a_directory_on_a_disk_is_examined_and_left_as_it_was() {
    let scratch = Scratch::new();
    if scratch.lies_in_memory() {
        return skipped("doctor on a disk — the build lies in memory");
    }
    let ran = scratch.run(&["doctor", "--json"]);
    assert!(matches!(ran.code, Some(0 | 5)), "{}", ran.stderr);
    let told = json(&ran.stdout);
    assert_eq!((&told["v"], &told["kind"]), (&1.into(), &"doctor".into()));
    assert!(
        ["verified", "plausible", "unknown", "unsafe"].contains(&told["verdict"]["trust"].as_str().unwrap())
    );
    assert!(told["layers"][0]["file_system"]["source"].as_str().is_some_and(|source| !source.is_empty()));
    assert_eq!(told["witness"]["commits"], 32);
    let syncs = told["syncs"].as_array().unwrap();
    assert_eq!(syncs[0]["name"], "zeroed + fdatasync");
    assert!(syncs[0]["p99_ns"].as_u64() >= syncs[0]["p50_ns"].as_u64());
    assert!(told["build"]["opt_level"].as_str().is_some());
    if let Some(budget) = told.get("budget") {
        let way = syncs.iter().find(|row| row["name"] == budget["way"]).unwrap();
        assert_eq!(way["durable"], true);
        assert!(budget["commits_a_second_16_writers_guess"].is_number(), "a guess is named so: {budget}");
    }
    let direct = &told["direct"];
    assert!(direct["source"].as_str().is_some_and(|source| !source.is_empty()), "{direct}");
    assert!(direct["value"].is_null() || direct["value"]["offset_bytes"].is_number(), "{direct}");
    assert!(
        syncs[0].get("device_writes_per_record").is_some() && told["device_counters"]["source"].is_string()
    );
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "nothing is left behind");
}

/// Real file systems on a loop device over the disk of the build: named, traced to the disk, and never called
/// safe.
#[test]
fn file_systems_on_a_loop_device_are_named_and_seen_through() {
    for (kind, options) in [("ext4", &["-q", "-F"][..]), ("xfs", &["-q", "-f"]), ("btrfs", &["-q", "-f"])] {
        let scratch = Scratch::new();
        if scratch.lies_in_memory() {
            return skipped("doctor on a loop device — the build lies in memory");
        }
        let Some(mounted) = mount_a(&scratch, kind, options, 320) else { continue };
        let place = mounted.at.to_str().unwrap();
        let ran = scratch.run(&["doctor", place, "--json"]);
        let told = json(&ran.stdout);
        assert_eq!(told["layers"][0]["file_system"]["value"], kind);
        assert_eq!(told["layers"][1]["device"], "loop", "{told:#}");
        assert!(
            told["layers"].as_array().unwrap().len() > 2,
            "what is under the loop device is found: {told:#}"
        );
        let trust = told["verdict"]["trust"].as_str().unwrap();
        assert!(["plausible", "unknown", "verified"].contains(&trust), "{kind}: {told:#}");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);

        crate::loop_device::run("mount", &["-o", "remount,ro", place]).unwrap();
        let ran = scratch.run(&["doctor", place]);
        assert_eq!(ran.code, Some(5), "{}{}", ran.stdout, ran.stderr);
        for words in ["level disk cannot be kept: read-only", "not measured: nothing can be written"] {
            assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
        }
    }
}

/// A command for the mount on top, if the one below is weak, would change the wrong one.
#[test]
fn advice_is_for_the_mount_that_is_weak() {
    let scratch = Scratch::new();
    let Some(outer) = mount_a(&scratch, "ext4", &["-q", "-F", "-m", "0"], 160) else { return };
    let (image, inner) = (outer.at.join("image"), outer.at.join("inner"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    std::fs::create_dir(&inner).unwrap();
    let [image, inner, point] = [&image, &inner, &outer.at].map(|path| path.to_str().unwrap());
    crate::loop_device::run("mkfs.ext4", &["-q", "-F", image]).unwrap();
    crate::loop_device::run("mount", &["-o", "remount,nobarrier", point]).unwrap();
    crate::loop_device::run("mount", &["-o", "loop", image, inner]).unwrap();
    let ran = scratch.run(&["doctor", inner]);
    crate::loop_device::run("umount", &[inner]).unwrap();
    assert_eq!(ran.code, Some(5), "{}{}", ran.stdout, ran.stderr);
    let now: Vec<&str> = ran.stdout.lines().filter(|line| line.contains("remount,barrier")).collect();
    assert_eq!(now.len(), 1, "{}", ran.stdout);
    assert!(now[0].trim_end().ends_with(&format!("remount,barrier {point}")), "{}", ran.stdout);
}

/// A full disk is where the report is needed most.
#[test]
fn a_full_disk_is_examined_all_the_same() {
    use std::io::Write;

    let scratch = Scratch::new();
    let Some(mounted) = mount_a(&scratch, "ext4", &["-q", "-F", "-m", "0"], 32) else { return };
    let mut filler = std::fs::File::create(mounted.at.join("filler")).unwrap();
    for bytes in [1 << 20, 4 << 10, 1] {
        while filler.write_all(&vec![1; bytes]).is_ok() {}
    }
    let place = mounted.at.to_str().unwrap();
    let ran = scratch.run(&["doctor", place]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for words in ["not measured: No space left", "ext4 at", "verdict", "no sync was measured", "make room"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let told = json(&scratch.ok(&["doctor", place, "--json"]));
    assert!(told["not_measured"].as_str().is_some_and(|why| why.contains("No space left")), "{told}");
    assert_eq!((&told["verdict"]["keeps_disk"], told.get("budget")), (&true.into(), None));
    // Space for the burst of syncs, but not for the measurement.
    filler.set_len(filler.metadata().unwrap().len() - (3 << 20)).unwrap();
    filler.sync_all().unwrap();
    let ran = scratch.run(&["doctor", place]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for words in ["not measured: ", "bytes are free", "witness", "verdict"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let left: Vec<_> = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "filler" || name == "lost+found"), "{left:?}");
}

#[test]
fn what_is_no_directory_is_told_in_a_sentence() {
    let scratch = Scratch::new();
    scratch.write("file", "");
    for (path, words) in [("file", "file is not a directory"), ("missing", "there is no directory missing")] {
        let ran = scratch.run(&["doctor", path]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains(words) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    for (path, words) in [("file", "file is not a directory"), ("missing", "there is no directory missing")] {
        let ran = scratch.run(&["bench", "sync", path, "--anyway"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(words) && !ran.stderr.contains("rounds"), "{}", ran.stderr);
    }
    for record in ["0", "511", "1000", "x", "33554432"] {
        assert_eq!(scratch.run(&["bench", "sync", ".", "--record", record]).code, Some(2), "{record}");
    }
}

/// A directory without write permission, as a user other than root.
#[test]
fn a_directory_without_permission_is_examined_all_the_same() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let scratch = Scratch::new();
    let closed = scratch.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = 65534;
    let mut command = std::process::Command::new("/bin/true");
    if crate::runner::output(command.uid(nobody)).is_err() {
        return skipped("doctor without permission — this user cannot become another");
    }
    // The binary and the path to the directory may be accessible to root only: uses another copy elsewhere.
    let Ok(open) = tempfile::TempDir::new_in("/tmp") else {
        return skipped("doctor without permission — no /tmp");
    };
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (binary, place) = (open.path().join("duramen"), open.path().join("closed"));
    std::fs::copy(env!("CARGO_BIN_EXE_duramen"), &binary).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(&binary);
    command.arg("doctor").arg(&place).uid(nobody).current_dir(Path::new("/"));
    let ended = crate::runner::output(&mut command).unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    let on_memory = told.contains("UNSAFE");
    assert_eq!(ended.status.code(), Some(if on_memory { 5 } else { 0 }), "{told}");
    assert!(told.contains("not measured: Permission denied") && told.contains("verdict"), "{told}");
}

/// The sync benchmark: every strategy has a row, unsafe ones a warning, and differing rounds are reported.
#[test]
fn the_sync_benchmark_measures_every_way() {
    let scratch = Scratch::new();
    let args = ["bench", "sync", ".", "--anyway", "--rounds", "3", "--turn-ms", "20", "--turn-records", "50"];
    let shown = scratch.ok(&args);
    for words in [
        "append + fdatasync",
        "zeroed + O_DSYNC",
        "sync_file_range loses",
        "fastest that survives",
        "flushes",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let told = json(&scratch.ok(&[&args[..], &["--json"]].concat()));
    let rows = told["strategies"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows.iter().filter(|row| row.get("refused").is_none()) {
        assert!((3..=150).contains(&row["count"].as_u64().unwrap()), "{row}");
        let order = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];
        let values: Vec<u64> = order.iter().map(|name| row[*name].as_u64().unwrap()).collect();
        assert!(values.is_sorted(), "{row}");
    }
    assert!(rows.iter().any(|row| row["durable"] == false && row["warning"].as_str().is_some()));
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn how_often_a_file_is_synced_is_measured_from_never_to_every_record() {
    let scratch = Scratch::new();
    let args = ["bench", "sync", ".", "--anyway", "--every", "--total-mib", "1", "--trials", "2"];
    let shown = scratch.ok(&args);
    for words in ["never", "at the end", "every 16.0 KiB", "knee"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let told = json(&scratch.ok(&[&args[..], &["--json"]].concat()));
    let intervals = told["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 12);
    let last = intervals.last().unwrap();
    assert_eq!((&last["syncs"], &last["every_bytes"]), (&256.into(), &4096.into()));
    assert!(intervals.iter().all(|interval| interval["max_ns"].as_u64() >= interval["p50_ns"].as_u64()));
    // Direct writes need whole blocks; the other strategies accept records of a sector.
    let small = [
        "bench",
        "sync",
        ".",
        "--anyway",
        "--record",
        "512",
        "--rounds",
        "1",
        "--turn-records",
        "3",
        "--json",
    ];
    let told = json(&scratch.ok(&small));
    let refused = told["strategies"].as_array().unwrap().iter().filter(|row| row.get("refused").is_some());
    assert_eq!(
        refused.map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["zeroed + O_DIRECT + DSYNC"]
    );
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "nothing is left behind");
}
