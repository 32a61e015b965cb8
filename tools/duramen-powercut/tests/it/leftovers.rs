//! A run with two drives leaves nothing on the machine, however it dies: no process, no mount, no loop
//! device.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::runner::{POWERCUT, can};

const ANYTHING_WITHIN: Duration = Duration::from_secs(20);

/// A run that writes to both drives all the time, so that requests are in flight, and has a child in another
/// session. It leads a process group, as if started by a shell.
fn start(word: &str) -> Child {
    let script = format!(
        "(: {word}; exec setsid sh -c ': {word}; while :; do echo y; sync -d f; done' > f) & \
         (: {word}; while :; do echo y; sync -d \"$POWERCUT_SECOND/f\"; done) > \"$POWERCUT_SECOND/f\" & \
         echo up >&2; sleep 1000; : {word}"
    );
    let words = "run --fs ext4 --second-fs ext4 --seed 1 --cut-after-ms 50000 --check true -- sh -c";
    let mut powercut = Command::new(POWERCUT);
    powercut.args(words.split(' ')).arg(&script).process_group(0);
    powercut.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap())
}

/// Ends a run by `end`, and checks what is left.
fn check(how: &str, end: impl Fn(&Child)) {
    if !can(&format!("powercut ended by {how}")) {
        return;
    }
    let word = format!("powercut-test-{}-{}", std::process::id(), how.replace(' ', "-"));
    let mut powercut = start(&word);
    // Its own arguments, those of the three shells, and those of the first process of their namespace.
    wait_until("the command runs", || processes_with(&word) >= 5 && loop_devices_of(powercut.id()) == 2);
    end(&powercut);
    powercut.wait().unwrap();
    // The pipe closes when the last process that holds it, the drives or the command, is gone.
    let mut rest = String::new();
    let _ = BufReader::new(powercut.stderr.take().unwrap()).read_line(&mut rest);
    wait_until("all processes are gone", || processes_with(&word) == 0);
    wait_until("the loop devices are gone", || loop_devices_of(powercut.id()) == 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("powercut"), "{mounts}");
    assert_eq!(std::fs::read_dir("/run/powercut").unwrap().count(), 0);
}

#[test]
fn nothing_is_left_when_powercut_is_killed() {
    check("kill -9 of powercut", |powercut| kill(pid(powercut.id()), Signal::SIGKILL).unwrap());
}

#[test]
fn nothing_is_left_when_the_drives_are_killed() {
    check("kill -9 of the drives", |powercut| {
        kill(pid(drives_of(powercut.id())), Signal::SIGKILL).unwrap();
    });
}

#[test]
fn nothing_is_left_after_an_interrupt_from_the_keyboard() {
    check("an interrupt", |powercut| killpg(pid(powercut.id()), Signal::SIGINT).unwrap());
}

/// The process that serves the drives of a run.
fn drives_of(powercut: u32) -> u32 {
    let all =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let mut numbers = all.filter_map(|name| name.parse::<u32>().ok());
    let is_wanted = |id: &u32| {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
        of("status").contains(&format!("\nPPid:\t{powercut}\n")) && of("cmdline").contains("\0drive\0")
    };
    numbers.find(is_wanted).unwrap()
}

/// How many drives of this process are below loop devices.
fn loop_devices_of(powercut: u32) -> usize {
    let own = ["disk", "second"].map(|file| format!("/{file}-{powercut}"));
    let blocks = std::fs::read_dir("/sys/block").unwrap();
    let backing = blocks
        .filter_map(|block| std::fs::read_to_string(block.unwrap().path().join("loop/backing_file")).ok());
    backing.filter(|file| own.iter().any(|own| file.trim_end().ends_with(own))).count()
}

/// Processes whose arguments carry this word.
fn processes_with(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap();
    let lines = all.filter_map(|entry| std::fs::read(entry.unwrap().path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

/// Polls for a condition without an event.
fn wait_until(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < ANYTHING_WITHIN, "not within {ANYTHING_WITHIN:?}: {what}");
        std::thread::yield_now();
    }
}
