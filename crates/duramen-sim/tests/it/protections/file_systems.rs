//! Effects of the file system's name: whether a database opens on it, and how its log is synced.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{MemDisk, SyncMethod};
use duramen_engine::{Code, Durability, DurabilityStatus, Engine, Hooks, Options, Result};

use super::watched::WatchedDisk;

/// Opens on a file system of this name with the engine's threads, as programs do: a stepped engine measures
/// nothing.
fn open(disk: &WatchedDisk, options: Options) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default())
}

/// Commits once, and returns how the log was synced.
fn use_once(disk: &WatchedDisk, options: Options) -> (DurabilityStatus, Vec<SyncMethod>) {
    disk.take_methods();
    let engine = open(disk, options).unwrap();
    // The files of the measurement at creation are not segments.
    let methods = disk.take_methods();
    engine
        .transact(Durability::Disk, |tx| match tx.tree("t")? {
            Some(tree) => tx.put(tree, b"k", b"v"),
            None => tx.create_tree("t", None).map(drop),
        })
        .unwrap();
    let status = engine.durability_status();
    engine.close().unwrap();
    (status, methods)
}

/// D1: a DSYNC write that does nothing is the fastest, so a measurement must not decide where DSYNC is not
/// proven.
#[test]
fn a_file_system_where_dsync_is_not_proven_is_synced_by_fdatasync() {
    for name in ["zfs", "f2fs", "bcachefs", "overlay", "unknown (this system does not say)"] {
        let disk = WatchedDisk::named(&MemDisk::new(1), name, None);
        let (status, methods) = use_once(&disk, Options::default());
        assert!(methods.iter().all(|method| *method == SyncMethod::Fdatasync), "{name}: {methods:?}");
        assert_eq!(status.sync_reason, "the default: nothing was measured at creation", "{name}");
    }
    for name in ["ext4", "xfs", "btrfs"] {
        let disk = WatchedDisk::named(&MemDisk::new(1), name, Some(false));
        let (status, methods) = use_once(&disk, Options::default());
        assert!(methods.contains(&SyncMethod::Dsync), "{name}: the fastest of the proven ones: {methods:?}");
        assert!(status.sync_reason.starts_with("measured at creation, medians: fdatasync 1"), "{status:?}");
    }
}

/// D1: the stored choice moves with the files. A database copied from ext4 to zfs must not keep DSYNC writes
/// there.
#[test]
fn the_choice_of_a_proven_file_system_is_left_behind_on_another() {
    let files = MemDisk::new(2);
    let disk = |name| WatchedDisk::named(&files, name, Some(false));
    let (_, methods) = use_once(&disk("ext4"), Options::default());
    assert!(methods.contains(&SyncMethod::Dsync), "{methods:?}");

    let (status, methods) = use_once(&disk("zfs"), Options::default());
    assert!(!methods.is_empty(), "the log goes on in a segment");
    assert!(methods.iter().all(|method| *method == SyncMethod::Fdatasync), "{methods:?}");
    let why = "the one chosen at creation is not proven on zfs, where the log is now";
    assert_eq!(status.sync_reason, why);

    // A read-only handle reports what a writer would use.
    let reader = open(&disk("zfs"), Options { read_only: true, ..Options::default() }).unwrap();
    assert_eq!(reader.durability_status().sync_reason, why);
    drop(reader);

    let (status, methods) = use_once(&disk("xfs"), Options::default());
    assert!(methods.contains(&SyncMethod::Dsync), "moved on to where it is proven: {methods:?}");
    assert!(status.sync_reason.starts_with("measured at creation"), "{status:?}");
}

/// An option is a decision of the program, as `allow_network_fs` is. An unproven method is used, and
/// reported.
#[test]
fn an_option_for_a_method_that_is_not_proven_is_obeyed_and_said() {
    let reason = |name, method| {
        let disk = WatchedDisk::named(&MemDisk::new(3), name, Some(false));
        let (status, methods) = use_once(&disk, Options { sync: Some(method), ..Options::default() });
        assert!(methods.contains(&method), "{name}: {methods:?}");
        status.sync_reason
    };
    assert_eq!(reason("zfs", SyncMethod::Dsync), "the options ask for it, though it is not proven on zfs");
    assert_eq!(reason("zfs", SyncMethod::Fdatasync), "the options ask for it");
    assert_eq!(reason("ext4", SyncMethod::Dsync), "the options ask for it");
}

/// D8: locks of a network file system cannot be verified. An unknown file system is no reason to refuse.
#[test]
fn only_a_file_system_that_is_known_to_be_no_local_one_is_refused() {
    let open_on = |network, allow_network_fs| {
        let disk = WatchedDisk::named(&MemDisk::new(4), "some", network);
        open(&disk, Options { allow_network_fs, ..Options::default() }).map(Engine::abandon)
    };
    open_on(Some(false), false).unwrap();
    open_on(None, false).unwrap();
    assert_eq!(open_on(Some(true), false).unwrap_err().code(), Code::NetworkFileSystem);
    open_on(Some(true), true).unwrap();
}
