//! Invalid arguments are refused before anything runs, and anything missing is named.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::runner::{can, command, run};

const HEAD: [&str; 8] = ["--fs", "ext4", "--seed", "1", "--cut-after-ms", "50000", "--check", "true"];

/// Wrong arguments end with exit code 2 on any machine, and the message names the wrong part.
fn check_words(words: &[&[u8]], part: &str) {
    let words: Vec<OsString> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    let refused = command(&HEAD).args(&words).args(["--", "true"]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{words:?}: {told}");
    assert!(told.contains(part), "{words:?}: {told}");
}

/// The drives receive the path of an image in a line of text: any other path would name another file.
#[test]
fn an_image_whose_path_is_no_line_of_text_is_refused() {
    for option in ["--image", "--keep-image"] {
        check_words(&[option.as_bytes(), b"k\xff.img"], "is not UTF-8");
        check_words(&[option.as_bytes(), b"two\nlines.img"], "line break");
    }
}

/// An image has a size already: another one would have no effect.
#[test]
fn a_size_beside_an_image_is_refused() {
    check_words(&[b"--image", b"f", b"--size", b"5G"], "cannot be used with");
}

#[test]
fn a_latency_without_end_is_refused() {
    check_words(&[b"--latency-us", b"0..18446744073709551615"], "too long");
    check_words(&[b"--latency-us", b"10000001"], "too long");
}

/// A trial is wasted if its image cannot be kept: this is found before, not after.
#[test]
fn an_image_that_cannot_be_kept_is_refused_before_the_run() {
    if !can("an image that cannot be kept") {
        return;
    }
    let check = |image: &str, part: &str| {
        let told = run(&[&HEAD[..], &["--keep-image", image, "--setup", "exit 9", "--", "true"]].concat());
        assert_eq!(told["exit"], 1, "{told:#}");
        assert!(told["error"].as_str().unwrap().contains(part), "{told:#}");
    };
    check("/nonexistent/x", "there is no directory /nonexistent");
    check("/proc", "it is a directory");
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = scratch.path().join(OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&folder).unwrap();
    let words = [&HEAD[..], &["--keep-image", "x", "--", "true"]].concat();
    let refused = command(&words).current_dir(&folder).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another working directory"), "{refused:?}");
}

fn make_ext4(image: &Path, size: &str) {
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F"]).arg(image).arg(size).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let made = mkfs.output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Two drives may have the same file system: its name alone does not show which of them is broken.
#[test]
fn a_drive_that_cannot_be_mounted_is_named() {
    if !can("a drive that cannot be mounted") {
        return;
    }
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (first, second) = (scratch.path().join("i"), scratch.path().join("i.second"));
    make_ext4(&first, "16M");
    std::fs::write(&second, vec![0; 1 << 20]).unwrap();
    let check = |more: &[&str], part: &str| {
        let told = run(&[&HEAD[..], &["--image", first.to_str().unwrap()], more, &["--", "true"]].concat());
        assert_eq!(told["exit"], 1, "{told:#}");
        assert!(told["error"].as_str().unwrap().contains(part), "{told:#}");
    };
    check(&["--second-fs", "ext4"], "cannot mount ext4 on the second drive: ");
    std::fs::write(&first, vec![0; 1 << 20]).unwrap();
    check(&["--second-fs", "ext4"], "cannot mount ext4 on the first drive: ");
    check(&[], "cannot mount ext4 on the drive: ");
}

/// The survivals of a large image need room, even without `--size`.
#[test]
fn a_trial_that_begins_with_an_image_has_room_for_it() {
    if !can("room for a large image") {
        return;
    }
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = scratch.path().join("i");
    make_ext4(&image, "3G");
    let script = "test $(df --output=size -k /run/powercut | tail -1) -ge $((4 << 20))";
    let words = ["--image", image.to_str().unwrap(), "--", "sh", "-c", script];
    let told = run(&[&HEAD[..], &words].concat());
    assert_eq!((&told["exit"], &told["command_ended"]), (&0.into(), &"exit code 0".into()), "{told:#}");
}
