//! Runs the binary on this machine, or prints why it cannot.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

pub(crate) const POWERCUT: &str = env!("CARGO_BIN_EXE_powercut");

/// Prints that something was not tested, and why.
fn skipped(what: &str) {
    println!("skipped: {what}");
    if let Some(list) = std::env::var_os("DURAMEN_TEST_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).unwrap();
        writeln!(list, "{what}").unwrap();
    }
}

/// What this machine lacks, found by one trial that does nothing. Only a failure of the environment, by exit
/// code, excuses a test.
fn lacking() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let tried =
            run(&["--fs", "ext4", "--seed", "1", "--cut-after-ms", "1", "--check", "true", "--", "true"]);
        let why = format!("{}; {}", text(&tried["error"]), text(&tried["hint"]));
        let could =
            tried["exit"] == 1 && ["/dev/fuse", "/dev/loop-control"].iter().all(|path| writable(path));
        assert!(!could || !exists("mkfs.ext4"), "this machine has root, FUSE, loop and mkfs, and yet: {why}");
        (tried["exit"] == 1).then_some(why)
    });
    found.as_deref()
}

fn writable(device: &str) -> bool {
    std::fs::OpenOptions::new().write(true).open(device).is_ok()
}

fn exists(tool: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(tool).exists())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether live tests can run; if not, prints `what` as skipped.
pub(crate) fn can(what: &str) -> bool {
    match lacking() {
        None => true,
        Some(why) => {
            skipped(&format!("powercut: {what} — {why}"));
            false
        }
    }
}

/// Whether the tool to make a file system exists; if not, prints `what` as skipped.
pub(crate) fn has(tool: &str, what: &str) -> bool {
    let there =
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(tool).exists());
    if !there {
        skipped(&format!("powercut: {what} — there is no {tool}"));
    }
    exists(tool) && can(what)
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(POWERCUT);
    command.args(["run", "--json"]).args(args).stdin(Stdio::null());
    command
}

/// Runs `powercut run --json` with these arguments. Returns its output, with the exit code as `exit`.
pub(crate) fn run(args: &[&str]) -> Value {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    let told: Value = serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        panic!("{args:?}: {error}: {}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    });
    assert_eq!(told["exit"].as_i64(), status.code().map(i64::from), "{told}");
    told
}

/// A trial of the built-in writer on a file of zeroes. `more` are arguments of `run`.
pub(crate) fn records(fs: &str, cache: &str, sync: &str, seed: u64, more: &[&str]) -> Value {
    let seed = seed.to_string();
    let setup =
        format!("'{POWERCUT}' write-records --file r --init zeroes --sync none --count 1000 --prepare");
    let check = format!("'{POWERCUT}' check-records --file r --ack \"$POWERCUT_ACK\"");
    let head = ["--fs", fs, "--cache", cache, "--seed", &seed, "--setup", &setup, "--check", &check];
    let tail = ["--", POWERCUT, "write-records", "--file", "r", "--init", "zeroes", "--sync", sync];
    run(&[&head[..], more, &tail[..], &["--count", "1000"]].concat())
}
