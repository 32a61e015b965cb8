//! A log outside its database's directory: the directory belongs to one database at a time, with the same
//! checks.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::memory::{CrashChoice, Effect, Fault, FaultPlan};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{
    Background, Code, Durability, Engine, Hooks, Keep, ObserveFrom, Observer, Options, Result,
};
use duramen_sim::search::shapes::GEOMETRY;

const LOGS: &str = "/logs";

fn open(disk: &MemDisk, path: &str, log: &str) -> Result<Engine> {
    let options = Options {
        geometry: GEOMETRY,
        background: Background::Stepped,
        wal_dir: Some(Path::new(log).to_owned()),
        ..Options::default()
    };
    Engine::open(Arc::new(disk.clone()), path, options, Hooks::default())
}

/// D1, D8: a new database must not use the log directory of an open one. It is refused before anything there
/// changes.
///
/// Commits of the open database that are acknowledged afterwards survive a power cut.
#[test]
fn a_log_directory_in_use_is_left_as_it_is() {
    let disk = MemDisk::new(7);
    let engine = open(&disk, "/first", LOGS).unwrap();
    let files = disk.files();
    let refused = open(&disk, "/second", LOGS).map(Engine::abandon).expect_err("two databases share a log");
    assert_eq!(refused.code(), Code::DatabaseLocked, "{refused}");
    assert!(refused.message().contains(LOGS), "{refused}");
    let changed: Vec<_> = disk.files().into_iter().filter(|path| !files.contains(path)).collect();
    assert_eq!(changed, [Path::new("/second/lock")], "nothing but the second database's own lock");
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for key in 0..100u8 {
        engine.transact(Durability::Disk, |tx| tx.put(tree, &[key], b"value")).unwrap();
    }
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    let engine = open(&disk, "/first", LOGS).unwrap();
    for key in 0..100u8 {
        assert_eq!(engine.get(tree, &[key]).unwrap(), Some(b"value".to_vec()), "commit {key}");
    }
    engine.abandon();
    // Once closed, its log is still the only place of its commits.
    let refused = open(&disk, "/second", LOGS).map(Engine::abandon).expect_err("the log holds commits");
    assert!(refused.is_corruption() && refused.message().contains("log with commits"), "{refused}");
    assert_eq!(open(&disk, "/first", LOGS).unwrap().get(tree, &[99]).unwrap(), Some(b"value".to_vec()));
}

/// D1: a database and its log are made with the directories above them. Their names are as durable as the
/// first acknowledged commit; without them nothing below is found again.
#[test]
fn directories_above_are_made_and_durable() {
    for (path, log) in [("/a/b/db", "/c/d/log"), ("/a/b/db", "/a/b/db/wal"), ("/db", "/c/d/log")] {
        let disk = MemDisk::new(10);
        let engine = open(&disk, path, log).unwrap();
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
        engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None), path, log).unwrap();
        assert_eq!(engine.get(tree, b"k").unwrap(), Some(b"v".to_vec()), "{path} with {log}");
        engine.abandon();
    }
}

/// D1, D2: the log has its name before the data file has, also where the directories above the log are new.
/// Data without its log would be corruption, and no creation that was cut short.
#[test]
fn a_creation_cut_short_below_new_directories_is_begun_anew() {
    for call in 0.. {
        let disk = MemDisk::new(call);
        disk.set_faults(Fault::any(call, Effect::EIO).for_good());
        drop(open(&disk, "/db", "/c/d/log").map(Engine::abandon));
        let hit = disk.fault_hit_count() > 0;
        disk.set_faults(FaultPlan::default());
        for lost in 0..disk.pending_len() {
            let after = disk.crash(&CrashChoice::AllBut(lost));
            let engine = open(&after, "/db", "/c/d/log");
            engine.unwrap_or_else(|error| panic!("call {call}, change {lost} lost: {error}")).abandon();
        }
        if !hit {
            break;
        }
    }
}

/// A creation cut short right after the lock of the log was made can be repeated, by any database.
#[test]
fn a_lock_without_a_log_is_taken_over() {
    for path in ["/first", "/second"] {
        let disk = MemDisk::new(8);
        disk.create_dir(Path::new("/first")).unwrap();
        disk.create_dir(Path::new(LOGS)).unwrap();
        disk.write_file("/first/lock", b"").unwrap();
        disk.write_file(Path::new(LOGS).join("lock"), b"process 1").unwrap();
        let engine = open(&disk, path, LOGS).unwrap();
        engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
        engine.close().unwrap();
    }
}

/// A log directory must not be the directory of a database, its own or another: both would need the same
/// lock.
#[test]
fn a_directory_of_a_database_is_no_directory_for_a_log() {
    let disk = MemDisk::new(9);
    open(&disk, "/first", LOGS).unwrap().close().unwrap();
    let files = disk.files();
    for log in ["/first", "/second"] {
        let refused = open(&disk, "/second", log).map(Engine::abandon).expect_err(log);
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(log), "{refused}");
    }
    let changed: Vec<_> = disk.files().into_iter().filter(|path| !files.contains(path)).collect();
    assert_eq!(changed, [Path::new("/second/lock")]);
    open(&disk, "/second", "/second/log").unwrap().close().unwrap();
}

/// A log with another block size has its commits at other offsets than a log of this database's size would.
#[test]
fn commits_of_another_block_size_are_seen() {
    let disk = MemDisk::new(10);
    let engine = open(&disk, "/first", LOGS).unwrap();
    engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    engine.abandon();
    let before: Vec<_> = disk.files().iter().map(|path| disk.read_file(path).unwrap()).collect();
    let large = duramen_engine::Geometry {
        block_bytes: 65_536,
        segment_bytes_min: 4 * 65_536,
        segment_bytes_max: 4 * 65_536,
        ..duramen_engine::Geometry::default()
    };
    let options = Options {
        geometry: large,
        background: Background::Stepped,
        wal_dir: Some(Path::new(LOGS).to_owned()),
        ..Options::default()
    };
    let refused = Engine::open(Arc::new(disk.clone()), "/second", options, Hooks::default());
    assert!(refused.is_err_and(|error| error.is_corruption()));
    disk.delete("/second").unwrap();
    let after: Vec<_> = disk.files().iter().map(|path| disk.read_file(path).unwrap()).collect();
    // An attempt may change one thing: the holder's name in the lock of the log.
    assert_eq!(before.len(), after.len());
    open(&disk, "/first", LOGS).unwrap().abandon();
}

/// D1, D8: a log on a network file system is refused as the database would be, for reading and writing,
/// unless allowed.
#[test]
fn a_log_on_a_network_is_refused() {
    let disk = MemDisk::new(11);
    let options = |allow_network_fs, read_only| Options {
        geometry: GEOMETRY,
        background: Background::Stepped,
        wal_dir: Some(Path::new("/net/log").to_owned()),
        allow_network_fs,
        read_only,
        ..Options::default()
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let open = |allow, read_only| {
        Engine::open(Arc::clone(&shared), "/db", options(allow, read_only), Hooks::default())
    };
    let observe = |allow| {
        let wants = Arc::new(|_: &str| true);
        Observer::open(Arc::clone(&shared), "/db", options(allow, true), ObserveFrom::Now, wants)
    };
    let recover = |allow, to: &str| {
        let (from, to) = (Path::new("/db"), Path::new(to));
        let options = options(allow, false);
        Engine::repair(&shared, from, to, &options, Hooks::default(), &|_| Keep::Entries, &mut |_| Ok(()))
    };
    disk.create_dir(Path::new("/net")).unwrap();
    disk.set_network(Some(Path::new("/net")));
    let files = disk.files();
    // The directory of the log does not exist yet: its parent's file system counts.
    assert_eq!(open(false, false).map(drop).unwrap_err().code(), Code::NetworkFileSystem);
    assert_eq!(disk.files(), files, "nothing was made");
    open(true, false).unwrap().close().unwrap();
    for read_only in [false, true] {
        let refused = open(false, read_only).map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::NetworkFileSystem, "read-only {read_only}: {refused}");
        assert!(refused.message().contains("/net/log"), "{refused}");
    }
    assert_eq!(observe(false).map(drop).unwrap_err().code(), Code::NetworkFileSystem);
    assert_eq!(recover(false, "/new").map(drop).unwrap_err().code(), Code::NetworkFileSystem);
    open(true, true).unwrap().close().unwrap();
    drop(observe(true).unwrap());
    recover(true, "/other").unwrap().0.finish_repair().unwrap();
}
