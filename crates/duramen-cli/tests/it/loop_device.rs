//! A real file system that is full, and one that is mounted read-only: ext4 and xfs on a loop device, where
//! root has one.
//!
//! D7: a full disk refuses writes, loses nothing, still deletes, and works again when there is room.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::runner::{FLIGHTS, JANUARY, Scratch, output, skipped, start};

/// A file system of some mebibytes, mounted; unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = output(Command::new("umount").arg(&self.at));
    }
}

pub(crate) fn run(command: &str, args: &[&str]) -> Result<(), String> {
    let ended = output(Command::new(command).args(args)).map_err(|error| format!("{command}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&ended.stderr).trim()))
}

/// An ext4. If this machine cannot make one, prints why, and the test is skipped.
fn mount(scratch: &Scratch, mebibytes: u64) -> Option<Mounted> {
    mount_a(scratch, "ext4", &["-q", "-F", "-m", "0"], mebibytes)
}

/// A file system of any kind; skipped if this machine has no tool to make one.
pub(crate) fn mount_a(scratch: &Scratch, kind: &str, options: &[&str], mebibytes: u64) -> Option<Mounted> {
    let make = format!("mkfs.{kind}");
    if output(Command::new(&make).arg("-V")).is_err() {
        skipped(&format!("{kind} on a loop device — there is no {make}"));
        return None;
    }
    let (image, at) = (scratch.path("image"), scratch.path("mounted"));
    std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    let (image, point) = (image.to_str().unwrap(), at.to_str().unwrap());
    let made = run(&make, &[options, &[image]].concat());
    match made.and_then(|()| run("mount", &["-o", "loop", image, point])) {
        Ok(()) => Some(Mounted { at }),
        Err(why) => {
            let can =
                Path::new("/dev/loop-control").exists() && run("test", &["-w", "/dev/loop-control"]).is_ok();
            assert!(!can, "this machine has loop devices and root, and yet: {why}");
            skipped(&format!("{kind} on a loop device — {why}"));
            None
        }
    }
}

#[test]
fn a_full_disk_refuses_keeps_everything_deletes_and_works_again() {
    let scratch = Scratch::new();
    let Some(mounted) = mount(&scratch, 160) else { return };
    let filler = mounted.at.join("filler");
    std::fs::write(&filler, vec![1; 130 << 20]).unwrap();
    let db = mounted.at.join("db");
    let db = db.to_str().unwrap();
    let import = [&["import", db, JANUARY, "--batch", "100", "--ack"], FLIGHTS].concat();
    let mut acknowledged = 0;
    for _ in 0..20 {
        let ran = scratch.run(&[&import[..], &["--replace"]].concat());
        acknowledged = ran.stdout.lines().filter(|line| line.starts_with("ack ")).count() * 100;
        if ran.code == Some(1) {
            assert!(ran.stderr.contains("E0301"), "{}", ran.stderr);
            let hint =
                if acknowledged == 0 { "make room on the disk" } else { "with --replace completes the rows" };
            assert!(ran.stderr.contains(hint), "{}", ran.stderr);
            assert!(acknowledged == 0 || !ran.stderr.contains("nothing"), "{}", ran.stderr);
            break;
        }
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        // It still fits: leaves less room.
        let left = std::fs::metadata(&filler).unwrap().len() + (2 << 20);
        let _ = std::fs::write(&filler, vec![1; usize::try_from(left).unwrap()]);
    }
    let found: usize = scratch.ok(&["count", db, "-c", "flights"]).trim().parse().unwrap();
    assert!(found >= acknowledged.min(27_004), "{acknowledged} acknowledged, {found} found");
    scratch.ok(&["check", db, "--deep"]);
    if found > 0 {
        scratch.ok(&["del", db, "-c", "flights", "--prefix", "UA"]);
        scratch.ok(&["check", db, "--deep"]);
    }
    std::fs::remove_file(&filler).unwrap();
    scratch.ok(&[&import[..], &["--replace"]].concat());
    assert_eq!(scratch.ok(&["count", db, "-c", "flights"]), "27004\n");
    scratch.ok(&["check", db, "--deep"]);
}

/// A full disk, with a database of January's flights.
fn filled(scratch: &Scratch, kind: &str) -> Option<(Mounted, String)> {
    let mounted = match kind {
        // The smallest xfs that can be made.
        "xfs" => mount_a(scratch, "xfs", &["-q", "-f"], 320)?,
        _ => mount(scratch, 160)?,
    };
    let db = mounted.at.join("db").to_str().unwrap().to_owned();
    scratch.ok(&[&["import", &db, JANUARY], FLIGHTS].concat());
    fill(&mounted);
    Some((mounted, db))
}

/// Takes all room that is left.
fn fill(mounted: &Mounted) {
    let mut filler = std::fs::File::create(mounted.at.join("filler")).unwrap();
    for bytes in [1 << 20, 4 << 10, 1] {
        while filler.write_all(&vec![1; bytes]).is_ok() {}
    }
}

/// D7: creating the collection again needs room; deleting alone does not.
#[test]
fn all_can_be_deleted_from_a_full_disk() {
    for kind in ["ext4", "xfs"] {
        let scratch = Scratch::new();
        let Some((_mounted, db)) = filled(&scratch, kind) else { continue };
        let said = scratch.ok(&["del", &db, "-c", "flights", "--all", "--yes"]);
        assert!(said.starts_with("deleted 27,004 documents of flights"), "{kind}: {said}");
        assert_eq!(scratch.ok(&["count", &db, "-c", "flights"]), "0\n", "{kind}");
        scratch.ok(&["check", &db, "--deep"]);
    }
}

/// D7: commands that are refused open and close the database. They must leave the log its segments.
#[test]
fn after_many_refused_commands_a_full_disk_still_deletes() {
    let scratch = Scratch::new();
    let Some((mounted, db)) = filled(&scratch, "ext4") else { return };
    let mut filler = std::fs::File::options().append(true).open(mounted.at.join("filler")).unwrap();
    let year = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/nycflights/flights.csv.gz");
    for _ in 0..12 {
        let refused = scratch.run(&[&["import", &db, year, "--replace"], FLIGHTS].concat());
        assert!(refused.code == Some(1) && refused.stderr.contains("E0301"), "{}", refused.stderr);
        // Another program takes what it gave back.
        while filler.write_all(&[1; 4096]).is_ok() {}
    }
    scratch.ok(&["del", &db, "-c", "flights", "--prefix", "UA"]);
    scratch.ok(&["check", &db, "--deep"]);
}

#[test]
fn a_collection_can_be_dropped_from_a_full_disk_and_none_created() {
    let scratch = Scratch::new();
    let Some((mounted, db)) = filled(&scratch, "ext4") else { return };
    let new = mounted.at.join("new");
    let refused = scratch.run(&[&["import", new.to_str().unwrap(), JANUARY], FLIGHTS].concat());
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    for words in ["E0301", "hint: make room on the disk, or name another place"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    let said = scratch.ok(&["drop", &db, "-c", "flights", "--yes"]);
    assert!(said.starts_with("dropped flights with its 27,004 documents"), "{said}");
    scratch.ok(&["check", &db, "--deep"]);
}

#[test]
fn a_read_only_mount_is_read_and_refuses_writes_with_a_hint() {
    let scratch = Scratch::new();
    let Some(mounted) = mount(&scratch, 160) else { return };
    let db = mounted.at.join("db");
    let db = db.to_str().unwrap();
    scratch.ok(&[&["import", db, JANUARY], FLIGHTS].concat());
    run("mount", &["-o", "remount,ro", mounted.at.to_str().unwrap()]).unwrap();
    assert_eq!(scratch.ok(&["count", db, "-c", "flights"]), "27004\n");
    scratch.ok(&["check", db, "--deep"]);
    let new = mounted.at.join("new");
    for db in [db, new.to_str().unwrap()] {
        let refused = scratch.run(&[&["import", db, JANUARY, "--replace"], FLIGHTS].concat());
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        for words in
            ["ead-only file system", "hint: mount it for writing, or name a place that can be written"]
        {
            assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        }
    }
}

/// A server that has been there before starts on a full disk. Clients that know its address delete, and so
/// make room.
#[test]
fn a_server_on_a_full_disk_serves_its_address() {
    let scratch = Scratch::new();
    let Some(mounted) = mount(&scratch, 160) else { return };
    let db = mounted.at.join("db").to_str().unwrap().to_owned();
    scratch.ok(&[&["import", &db, JANUARY], FLIGHTS].concat());
    let serve = || {
        let words = ["serve", &db, "--listen", "127.0.0.1:0", "--no-auth", "--json"];
        let mut command = scratch.command_as_is(&words);
        let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        (child, told["addresses"][0].as_str().unwrap().to_owned())
    };
    let stop = |mut child: Child| {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(child.wait().unwrap().success(), "{told}");
        told
    };
    // It makes its token.
    stop(serve().0);
    fill(&mounted);
    let (child, at) = serve();
    assert!(!Path::new(&db).join("serve.json").exists(), "there is no room for it");
    scratch.ok(&["del", "--at", &at, "-c", "flights", "--all", "--yes"]);
    assert_eq!(scratch.ok(&["count", "--at", &at, "-c", "flights"]), "0\n");
    let told = stop(child);
    assert!(told.contains("commands do not find the server by the directory"), "{told}");
}
