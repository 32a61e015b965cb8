//! Where level `disk` is refused: file systems that survive no power cut, although every sync on them
//! succeeds.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::runner::{Ran, Scratch, output, skipped};

/// A directory in memory.
fn memory() -> Option<TempDir> {
    let dir = TempDir::new_in("/dev/shm");
    if let Err(error) = &dir {
        skipped(&format!("level disk refused on a tmpfs — /dev/shm: {error}"));
    }
    dir.ok()
}

fn refused(ran: &Ran, words: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{}", ran.stderr);
    for words in [words, "survives no power cut", "--durability process", "name a directory on a disk"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

/// D1: nothing may be acknowledged at level `disk` where nothing survives a power cut.
fn check_refused(place: &Path, words: &str) {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n");
    let db = place.join("db");
    let db = db.to_str().unwrap();
    let run = |args: &[&str]| -> Ran { output(&mut scratch.command_as_is(args)).unwrap().into() };
    let import = ["import", db, "rows.csv", "-c", "rows", "--key", "id"];
    refused(&run(&import), words);
    assert!(!Path::new(db).exists());
    for level in ["process", "memory"] {
        let ran = run(&[&import[..], &["--replace", "--durability", level]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    refused(&run(&[&import[..], &["--replace", "--durability", "disk"]].concat()), words);
    let put = ["put", db, "{\"id\":2}", "-c", "rows"];
    let del = ["del", db, "-c", "rows", "--from", "1"];
    for args in [&put[..], &del] {
        refused(&run(args), words);
        let ran = run(&[args, &["--durability", "process"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!(run(&["count", db, "-c", "rows"]).stdout, "0\n");
}

#[test]
fn level_disk_is_refused_in_memory() {
    let Some(dir) = memory() else { return };
    check_refused(dir.path(), "tmpfs on /dev/shm is memory");
}

/// A server has one level, so it says what else there is.
#[test]
fn a_server_is_refused_in_memory() {
    let Some(dir) = memory() else { return };
    let (scratch, db) = (Scratch::new(), dir.path().join("db"));
    let mut command = scratch.command_as_is(&["serve", db.to_str().unwrap(), "--socket-only"]);
    let ran: Ran = output(&mut command).unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{}", ran.stderr);
    for words in ["survives no power cut", "name a directory on a disk", "--allow-tmpfs"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("--durability"), "{}", ran.stderr);
    assert!(!db.exists());
}

/// A backup in memory is whole, and gone after a reboot.
#[test]
fn a_backup_to_memory_warns() {
    let Some(dir) = memory() else { return };
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id", "--durability", "process"]);
    let copy = dir.path().join("copy");
    let backup = ["backup", "db", copy.to_str().unwrap()];
    let ran: Ran = output(&mut scratch.command_as_is(&backup)).unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for words in ["warning: ", "survives no power cut"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

/// A log that lies where it belongs is named by the hint if `--wal` leads elsewhere.
#[test]
fn a_log_inside_the_database_is_found_where_wal_names_another_place() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    std::fs::create_dir(scratch.path("elsewhere")).unwrap();
    for args in [&["count", "db", "-c", "rows"][..], &["put", "db", "{\"id\":4}", "-c", "rows"]] {
        let ran = scratch.run(&[args, &["--wal", "elsewhere"]].concat());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("there is a log in db/wal: run the command without --wal"),
            "{}",
            ran.stderr
        );
    }
    let new = ["import", "new", "rows.csv", "-c", "rows", "--key", "id", "--wal", "db/wal"];
    let ran = scratch.run(&new);
    assert!(ran.stderr.contains("of another database, or of one at this path"), "{}", ran.stderr);
}

/// A file of a database is no file to import.
#[test]
fn a_part_of_a_database_is_named_as_such() {
    let scratch = Scratch::with_rows("id,n\n1,2\n", &["--key", "id"]);
    for part in ["db/data", "db/wal", "db/lock"] {
        let ran = scratch.run(&["count", part, "-c", "rows"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let words = format!("{part} is a part of the database db");
        assert!(ran.stderr.contains("E0209") && ran.stderr.contains(&words), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: give db"), "{}", ran.stderr);
    }
}

/// An overlay shows itself, not the file system that it writes to; the mount table has it.
#[test]
fn level_disk_is_refused_on_an_overlay_that_forgets() {
    let Some(dir) = memory() else { return };
    let scratch = Scratch::new();
    let on_disk = scratch.path("on disk");
    let cases = [(dir.path(), "", "is memory"), (&on_disk, ",volatile", "mounted volatile")];
    for (place, option, words) in cases {
        let [upper, work] = ["upper", "work"].map(|name| place.join(name));
        let [lower, merged] = ["lower", "merged"].map(|name| scratch.path(name));
        for path in [&upper, &work, &lower, &merged] {
            std::fs::create_dir_all(path).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}{option}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mount = ["-t", "overlay", "overlay", "-o", &options];
        let mounted = output(Command::new("mount").args(mount).arg(&merged));
        if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return skipped(&format!("level disk refused on an overlay — it cannot be mounted: {mounted:?}"));
        }
        let checked = std::panic::catch_unwind(|| check_refused(&merged, words));
        let unmounted = output(Command::new("umount").arg(&merged));
        assert!(unmounted.is_ok_and(|output| output.status.success()));
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A separate log directory is named at every command. Without it nothing is served, and in memory it is
/// refused.
#[test]
fn a_log_in_a_directory_of_its_own_is_named_at_every_command() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n2,3\n");
    scratch.ok(&["import", "db", "rows.csv", "-c", "rows", "--key", "id", "--wal", "log"]);
    assert!(scratch.path("log").is_dir() && !scratch.path("db/wal").exists());
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows", "--wal", "log"]), "2\n");
    scratch.ok(&["put", "db", "{\"id\":3}", "-c", "rows", "--wal", "log"]);
    scratch.ok(&["del", "db", "--key", "1", "-c", "rows", "--wal", "log"]);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows", "--wal", "log"]), "2\n");
    assert!(scratch.ok(&["check", "db", "--wal", "log", "--deep"]).contains("log"));
    for args in [
        &["count", "db", "-c", "rows"][..],
        &["check", "db", "--deep"],
        &["put", "db", "{\"id\":4}", "-c", "rows"],
    ] {
        let ran = scratch.run(args);
        assert_eq!(ran.code, Some(3), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("E0503"), "{args:?}: {}", ran.stderr);
    }

    let Some(memory) = memory() else { return };
    let log = memory.path().join("log");
    let import = ["import", "new", "rows.csv", "-c", "rows", "--key", "id", "--wal", log.to_str().unwrap()];
    let ran: Ran = output(&mut scratch.command_as_is(&import)).unwrap().into();
    if scratch.lies_in_memory() {
        return;
    }
    refused(&ran, "tmpfs");
}
