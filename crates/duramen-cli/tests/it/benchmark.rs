//! `bench sync` beyond its table: threads, jobs of reads and writes, the watch, and the report for a browser.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use crate::runner::{Scratch, json, output, skipped};

/// Arguments for the shortest whole report.
const SHORT: [&str; 10] =
    ["--rounds", "1", "--turn-ms", "1", "--turn-records", "5", "--trials", "1", "--threads", "1,2"];

/// Arguments for the shortest `--parallel`.
const SHORT_PARALLEL: [&str; 6] = ["--rounds", "1", "--turn-ms", "1", "--threads", "1,2"];

fn bench<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "sync", ".", "--anyway"], more].concat()
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn syncs_are_counted_by_threads_in_one_file_and_in_a_file_each() {
    let scratch = Scratch::new();
    let args = bench(&[&["--parallel"][..], &SHORT_PARALLEL].concat());
    let shown = scratch.ok(&args);
    for words in ["one file", "a file each", "syncs/s", "pay", "group commit"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let told = json(&scratch.ok(&[&args[..], &["--json"]].concat()));
    assert_eq!(told["kind"], "bench-sync-parallel");
    let rows = told["rows"].as_array().unwrap();
    let kinds: Vec<_> =
        rows.iter().map(|row| (row["threads"].as_u64().unwrap(), row["sharing"].as_str().unwrap())).collect();
    assert_eq!(kinds, [(1, "one_file"), (1, "file_each"), (2, "one_file"), (2, "file_each")]);
    for row in rows {
        assert!(row["count"].as_u64() >= row["threads"].as_u64(), "each thread writes one record: {row}");
        assert!(row["p99_ns"].as_u64() >= row["p50_ns"].as_u64(), "{row}");
    }
    assert!(told["stops_paying"].get("one_file").is_some());
    assert_eq!(names(&scratch.path(".")), [""; 0], "nothing is left behind");
}

/// Two measurements are still one object.
#[test]
fn several_measurements_are_parts_of_one_object() {
    let scratch = Scratch::new();
    let args = bench(
        &[&["--every", "--parallel", "--total-mib", "1", "--trials", "1", "--json"][..], &SHORT_PARALLEL]
            .concat(),
    );
    let told = json(&scratch.ok(&args));
    assert_eq!(told["kind"], "bench-sync-report");
    assert_eq!(told["every"]["intervals"].as_array().map(Vec::len), Some(12));
    assert!(told["parallel"]["rows"].is_array() && told.get("strategies").is_none());
}

#[test]
fn a_job_tells_reads_and_writes_apart() {
    let scratch = Scratch::new();
    let job = bench(&["--mix", "--size", "1m", "--seconds", "1"]);
    let shown = scratch.ok(&job);
    for words in ["random writes of 4.0 KiB", "each write followed by fdatasync", "IOPS", "MB/s", "p99.99"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let reading =
        ["--reads", "100", "--pattern", "sequential", "--threads", "2", "--outstanding", "2", "--json"];
    let told = json(&scratch.ok(&[&job[..], &reading].concat()));
    assert_eq!((&told["kind"], &told["writes"]), (&"bench-sync-mix".into(), &serde_json::Value::Null));
    assert_eq!((&told["threads"], &told["outstanding"]), (&2.into(), &2.into()));
    let reads = &told["reads"];
    let order = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];
    let values: Vec<u64> = order.iter().map(|name| reads[*name].as_u64().unwrap()).collect();
    assert!(values.is_sorted() && reads["count"].as_u64() >= Some(4), "{reads}");
    assert!(reads["iops"].is_number() && reads["stddev_ns"].is_number(), "{reads}");
    assert_eq!(names(&scratch.path(".")), [""; 0], "nothing is left behind");
}

#[test]
fn jobs_that_cannot_be_are_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    for (code, words, args) in [
        (2, "multiple of 512", &["--mix", "--block", "1000"][..]),
        (2, "one number of threads", &["--mix", "--threads", "1,2"]),
        (2, "at most 1024", &["--mix", "--threads", "256", "--outstanding", "256"]),
        (2, "smaller than a block", &["--mix", "--size", "1k"]),
        (2, "multiples of 4096", &["--mix", "--direct", "--block", "512"]),
        (2, "--mix", &["--reads", "50"]),
        (2, "cannot be used with", &["--mix", "--every"]),
        (2, "cannot be used with", &["--mix", "--html", "x"]),
        (2, "--threads has no effect", &["--threads", "2"]),
        (2, "--threads has no effect", &["--every", "--html", "x", "--threads", "2"]),
        (2, "--total-mib has no effect", &["--total-mib", "1"]),
        (2, "--trials has no effect", &["--parallel", "--trials", "1"]),
        (2, "--trials has no effect", &["--parallel", "--html", "x", "--trials", "1"]),
        (2, "--turn-ms has no effect", &["--every", "--turn-ms", "1"]),
        (2, "--rounds has no effect", &["--every", "--rounds", "1"]),
        (2, "--turn-records has no effect", &["--every", "--turn-records", "1"]),
        (2, "--turn-records has no effect", &["--parallel", "--turn-records", "1"]),
        (2, "too short to tell drift", &["--mix", "--watch", "99s"]),
        (2, "too short to tell drift", &["--mix", "--watch", "9s", "--seconds", "1"]),
        (1, "bytes are free", &["--every", "--total-mib", "1048576"]),
        (1, "bytes are free", &["--mix", "--size", "1000t"]),
    ] {
        let ran = scratch.run(&bench(args));
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("filling"), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(names(&scratch.path(".")), [""; 0]);
}

/// A record of a MiB cannot be synced more often than after each record.
#[test]
fn no_interval_is_told_that_is_less_than_a_record() {
    let scratch = Scratch::new();
    let args = ["--every", "--total-mib", "3", "--trials", "1", "--record", "2097152", "--json"];
    let told = json(&scratch.ok(&bench(&args)));
    let found: Vec<(&str, u64)> = told["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["syncs"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("never", 0), ("at the end", 1), ("every 100.0 MiB", 1), ("every 10.0 MiB", 1)]);
    assert_eq!(told["file_bytes"], 4 << 20, "whole records");
}

/// A directory name that would recolour the terminal, in output before, in and after the figures.
#[test]
fn a_hostile_name_of_a_directory_is_spelt_out() {
    let scratch = Scratch::new();
    let hostile = "a\u{1b}[31mb";
    std::fs::create_dir(scratch.path(hostile)).unwrap();
    let short = ["--anyway", "--rounds", "1", "--turn-ms", "1", "--turn-records", "2"];
    let ran = scratch.run(&[&["bench", "sync", hostile][..], &short].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("a\\u001b[31mb on "), "{}", ran.stdout);
}

/// A file that cannot be opened is reported before minutes are spent on filling it, with a useful hint.
#[test]
fn too_many_files_are_told_with_what_helps() {
    let scratch = Scratch::new();
    for args in ["--parallel --threads 64", "--mix --size 1m --threads 64"] {
        let binary = env!("CARGO_BIN_EXE_duramen");
        let script = format!("ulimit -n 40; exec '{binary}' bench sync . --anyway {args}");
        let ended = output(Command::new("sh").args(["-c", &script]).current_dir(scratch.path("."))).unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains("Too many open files") && told.contains("ulimit -n"), "{told}");
        assert_eq!(names(&scratch.path(".")), [""; 0], "nothing is left behind");
    }
}

/// ^C while files are filled: nothing is left, and no process continues.
#[test]
fn an_interrupted_filling_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let room = duramen::Disk::file_system(&duramen::OsDisk::new(), &scratch.path(".")).unwrap();
    for (args, wanted) in [
        (&["--every", "--total-mib", "4096"][..], 5_u64 << 30),
        (&["--parallel", "--threads", "256", "--record", "1048576"][..], 5 << 30),
    ] {
        if room.free_bytes < wanted {
            skipped("^C while files are filled — there is no room for 4 GiB");
            continue;
        }
        let mut child = scratch.spawn(&bench(args));
        // The first file exists, so signals are watched, and the filling has begun or is about to.
        while names(&scratch.path(".")).is_empty() {
            assert!(child.try_wait().unwrap().is_none(), "{args:?} ended before it began");
            std::thread::yield_now();
        }
        let interrupt = output(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
        assert!(interrupt.status.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{args:?}");
        assert_eq!(names(&scratch.path(".")), [""; 0], "nothing is left behind");
    }
}

/// ^C during a watch: the printed lines stay, the file does not.
#[test]
fn an_interrupted_watch_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let mut child = scratch.spawn(&bench(&["--mix", "--size", "1m", "--seconds", "1", "--watch", "100h"]));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first repetition was printed, so signals are watched, and the file exists.
    assert!(lines.next().unwrap().unwrap().contains("IOPS"));
    let interrupt = output(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
    assert!(interrupt.status.success());
    assert!(lines.last().unwrap().unwrap().contains("drift"));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(&scratch.path(".")), [""; 0], "nothing is left behind");
}

/// The data block of a page.
fn figures(html: &str) -> serde_json::Value {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    json(rest.split_once("</script>").unwrap().0)
}

/// A name that would be an HTML element if it were not escaped, in the paths of the directory and of the
/// report.
#[test]
fn a_report_is_one_file_that_holds_words_charts_and_figures() {
    let scratch = Scratch::new();
    let hostile = "<img src=x onerror=alert(1)>&\"'`";
    std::fs::create_dir(scratch.path(hostile)).unwrap();
    let file = format!("{hostile}/report<b>.html");
    let words = ["bench", "sync", hostile, "--anyway", "--html", &file, "--total-mib", "1", "--json"];
    let told = json(&scratch.ok(&[&words[..], &SHORT].concat()));
    assert_eq!(names(&scratch.path(hostile)), ["report<b>.html"], "nothing else is left behind");
    let html = std::fs::read_to_string(scratch.path(&file)).unwrap();
    for words in [
        "The disk",
        "Ways to make a record durable",
        "How often to sync",
        "How many threads share syncs",
        "Not durable: no sync",
        "device writes",
        "--anyway --html",
    ] {
        assert!(html.contains(words), "{words}");
    }
    assert!(!html.contains("<img") && !html.contains("<b>.html"), "names are escaped");
    assert_eq!(figures(&html), told);
    assert_eq!((&told["kind"], &told["interrupted"]), (&"bench-sync-report".into(), &false.into()));
    assert_eq!(told["strategies"]["strategies"].as_array().map(Vec::len), Some(8));
    assert!(
        told["verdict"]["trust"].is_string() && told["command"].as_str().unwrap().starts_with("duramen ")
    );

    // Only the requested parts, replacing the previous report.
    let only = ["bench", "sync", ".", "--anyway", "--html", &file, "--parallel", "--quiet"];
    scratch.ok(&[&only[..], &SHORT_PARALLEL].concat());
    let html = std::fs::read_to_string(scratch.path(&file)).unwrap();
    assert!(html.contains("How many threads share syncs") && !html.contains("How often to sync"));
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", scratch.path("link")).unwrap();
    for (file, words) in [
        ("folder", "is not a file"),
        ("no/report.html", "No such file"),
        ("/dev/null", "is not a file"),
        ("link", "link is a link to what is not there"),
    ] {
        let ran = scratch.run(&bench(&["--html", file]));
        assert_eq!(ran.code, Some(1), "{file}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words) && !ran.stderr.contains("round"), "{file}: {}", ran.stderr);
    }
    let mut left = names(&scratch.path("."));
    left.sort();
    assert_eq!(left, ["folder", "link"]);
}

/// Whether a disk counts is known, with the source; a figure that was not counted is null, not 0.
#[test]
fn what_the_device_counted_has_a_source() {
    let scratch = Scratch::new();
    let told =
        json(&scratch.ok(&bench(&["--json", "--rounds", "1", "--turn-ms", "1", "--turn-records", "5"])));
    let counters = &told["device_counters"];
    assert!(counters["source"].as_str().is_some_and(|source| !source.is_empty()), "{counters}");
    for row in told["strategies"].as_array().unwrap().iter().filter(|row| row.get("refused").is_none()) {
        for name in ["device_writes_per_record", "device_bytes_per_record"] {
            assert_eq!(row.get(name).unwrap().is_number(), counters["counted"].as_bool().unwrap(), "{row}");
        }
        assert!(row.get("device_flushes_per_record").is_some(), "{row}");
    }
}
