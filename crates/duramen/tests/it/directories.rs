//! Which directories are databases, may become one, or hold something else; and the errors for each.

use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, CommitStats, Disk, LogStats, MemDisk, RecoveryStats, SpaceStats, Stats};
use duramen_disk::Access;
use duramen_disk::memory::{Effect, Fault, FaultPlan};

const CUT_SHORT: &str = "its creation was cut short, or the file was removed";

fn open(disk: &MemDisk, read_only: bool) -> Result<Db> {
    Db::options().read_only(read_only).open_on(Arc::new(disk.clone()), "/db")
}

/// One document, and nothing left open.
fn filled() -> MemDisk {
    let disk = MemDisk::new(1);
    let db = open(&disk, false).unwrap();
    db.ensure(&Schema::new("rows").key(["id"])).unwrap().put(doc! { "id": 1 }).unwrap();
    db.close().unwrap();
    disk
}

/// A directory `/db` that holds these, those that end with a slash as directories.
fn directory(names: &[&str]) -> MemDisk {
    let disk = MemDisk::new(2);
    disk.create_dir(Path::new("/db")).unwrap();
    for name in names {
        let path = Path::new("/db").join(name);
        match name.strip_suffix('/') {
            Some(_) => disk.create_dir(&path).unwrap(),
            None => drop(disk.open(&path, Access::CREATE).unwrap()),
        }
    }
    disk
}

fn refused(disk: &MemDisk, read_only: bool, code: Code, words: &str) {
    let error = open(disk, read_only).err().unwrap();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(words), "{words}: {error}");
}

/// Any state that an interrupted creation leaves is recognised, and created anew.
#[test]
fn a_creation_that_was_cut_short_is_told_and_begun_anew() {
    let (mut told, mut calls) = (0, 0);
    loop {
        let disk = MemDisk::new(calls);
        disk.set_faults(Fault::any(calls, Effect::EIO).for_good());
        let failed = open(&disk, false);
        let hit = disk.fault_hit_count() > 0;
        drop(failed);
        disk.set_faults(FaultPlan::default());
        match open(&disk, true) {
            Ok(db) => assert_eq!(db.collections().unwrap(), []),
            Err(error) if error.message().contains(CUT_SHORT) => {
                assert_eq!(error.code(), Code::NotADatabase);
                assert!(error.hint().contains("remove the directory"), "{}", error.hint());
                told += 1;
            }
            Err(error) => {
                let unborn = [Code::NoSuchDatabase, Code::NotADatabase].contains(&error.code());
                assert!(unborn, "call {calls}: {error}");
            }
        }
        let db = open(&disk, false).unwrap_or_else(|error| panic!("call {calls}: {error}"));
        db.ensure(&Schema::new("rows").key(["id"])).unwrap().put(doc! { "id": 1 }).unwrap();
        db.close().unwrap();
        if !hit {
            break;
        }
        calls += 1;
    }
    assert!(told > 5 && calls > 20, "{told} of {calls} calls");
}

/// A log with commits but no data is a loss, never reported as an interrupted creation.
#[test]
fn data_that_was_lost_is_no_creation_cut_short() {
    let disk = filled();
    disk.delete("/db/data").unwrap();
    refused(&disk, true, Code::CorruptData, "/db/data @ 0x0: the file is not there, and /db/wal holds a log");
    refused(
        &disk,
        false,
        Code::CorruptData,
        "/db/data @ 0x0: the file is not there, and /db/wal holds a log",
    );
}

#[test]
fn what_is_somebody_elses_is_not_taken_over() {
    for names in [
        &["letter"][..],
        &["wal/", "letter"],
        &["lock", "letter"],
        &["readers", "letter"],
        &["data.new", "wal/", "lock", "letter"],
        &["data/"],
        &["data/", "wal/", "lock"],
    ] {
        let disk = directory(names);
        let before = disk.files();
        for read_only in [false, true] {
            refused(&disk, read_only, Code::NotADatabase, "it is a directory with other things in it");
        }
        assert_eq!(disk.files(), before, "{names:?}");
    }
    let disk = directory(&["data", "wal/", "letter"]);
    disk.write_file("/db/data", b"dear reader").unwrap();
    refused(&disk, false, Code::NotADatabase, "data");
    assert_eq!(disk.read_file("/db/data").unwrap(), b"dear reader");
}

#[test]
fn what_a_creation_leaves_is_ours_to_begin_anew() {
    for names in [
        &[][..],
        &["lock"],
        &["lock", "wal/"],
        &["data.new", "lock", "wal/"],
        &["lock", "readers"],
        &["lock", "wal/", "wal/calibration-0123456789abcdef.1"],
        &["wal/"],
        &["data.new", "wal/"],
    ] {
        let disk = directory(names);
        refused(&disk, true, Code::NotADatabase, if names.is_empty() { "it is empty" } else { CUT_SHORT });
        drop(open(&disk, false).unwrap());
        drop(open(&disk, true).unwrap());
    }
    let elsewhere = || Db::options().wal_dir("/db/log");
    let disk = directory(&["lock", "log/"]);
    drop(elsewhere().open_on(Arc::new(disk.clone()), "/db").unwrap());
    drop(elsewhere().read_only(true).open_on(Arc::new(disk), "/db").unwrap());
}

/// D3: a later release announces readers of other processes in the file `readers`.
#[test]
fn readers_of_a_later_release_keep_writers_out() {
    let disk = filled();
    let readers = Path::new("/db/readers");
    drop(disk.open(readers, Access::CREATE).unwrap());
    drop(open(&disk, false).unwrap());
    disk.write_file(readers, b"1").unwrap();
    refused(&disk, false, Code::Unsupported, "/db/readers records that readers of a later release");
    let hint = open(&disk, false).unwrap_err().hint();
    assert!(hint.contains("remove the file"), "{hint}");
    let db = open(&disk, true).unwrap();
    assert_eq!(db.documents("rows").count(Span::all()).unwrap(), 1);
}

/// A separate log directory may contain other files: they stay.
#[test]
fn what_lies_in_a_log_directory_is_not_touched() {
    let disk = MemDisk::new(3);
    disk.create_dir(Path::new("/log")).unwrap();
    for number in 0..3 {
        disk.write_file(format!("/log/calibration-{number}"), b"mine").unwrap();
        disk.write_file(format!("/log/letter-{number}"), b"mine").unwrap();
    }
    let options = Db::options().wal_dir("/log");
    let db = options.open_on(Arc::new(disk.clone()), "/db").unwrap();
    db.close().unwrap();
    for number in 0..3 {
        assert_eq!(disk.read_file(format!("/log/calibration-{number}")).unwrap(), b"mine");
        assert_eq!(disk.read_file(format!("/log/letter-{number}")).unwrap(), b"mine");
    }
}

/// The remains of a killed benchmark do not prevent a directory from becoming a database.
#[test]
fn what_a_killed_measurement_left_is_nobodys() {
    let disk = directory(&[".duramen-measure-77-0", ".duramen-witness-0123456789abcdef"]);
    open(&disk, false).unwrap().close().unwrap();
}

/// The figures' types are public, for programs that pass them on.
#[test]
fn figures_have_names() {
    fn commits(stats: &CommitStats) -> u64 {
        stats.commits
    }
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("rows").key(["id"])).unwrap();
    let Stats { commit, log, space, recovery, .. } = db.stats();
    let (log, space, recovery): (LogStats, SpaceStats, RecoveryStats) = (log, space, recovery);
    assert_eq!(commits(&commit), 1);
    assert!(log.sync_count > 0 && space.file_blocks > 0 && !recovery.torn);
}

/// A path of one word names something in the current directory.
#[test]
fn a_log_directory_may_be_one_word() {
    let name = format!("log-of-one-word-{}", std::process::id());
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let opened = Db::options().wal_dir(&name).open(scratch.path().join("db"));
    let opened = opened.map(drop).map_err(|error| error.to_string());
    std::fs::remove_dir_all(&name).unwrap();
    assert_eq!(opened, Ok(()));
}
