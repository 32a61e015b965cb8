//! Which sync method a database uses, and that it reports the method and the reason.

use duramen::prelude::*;
use duramen::{Event, OsDisk, SyncMethod};
use std::sync::Arc;

/// A directory on the file system of the build, which is not in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_method_is_measured_at_creation_kept_and_can_be_overruled() {
    let directory = directory();
    let path = directory.path().join("db");
    let open = |method: Option<SyncMethod>| {
        let options = Db::options();
        let options = if let Some(method) = method { options.sync_method(method) } else { options };
        options.open_on(Arc::new(OsDisk::default()), &path).unwrap()
    };
    let db = open(None);
    let measured = db.durability_status();
    // The default is kept if too little could be measured, and on a file system where no other method is
    // proven.
    let reasons = ["measured at creation, medians: fdatasync ", "the default: nothing was measured"];
    assert!(reasons.iter().any(|reason| measured.sync_reason.starts_with(reason)), "{measured:?}");
    db.ensure(&Schema::new("rows").key(["id"])).unwrap().put(doc! { "id": 1 }).unwrap();
    drop(db);
    let left = std::fs::read_dir(path.join("wal")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("calibration")));

    let asked = open(Some(SyncMethod::Dsync)).durability_status();
    assert!(asked.sync_reason.starts_with("the options ask for it"), "{asked:?}");
    let again = open(None).durability_status();
    assert_eq!((again.sync_call, &again.sync_reason), (measured.sync_call, &measured.sync_reason));
}

/// Nothing is measured for commits that do not wait for the disk.
#[test]
fn a_database_that_waits_for_no_disk_measures_none() {
    let directory = directory();
    let path = directory.path().join("db");
    let options = Db::options().durability(Durability::Process);
    let db = options.open_on(Arc::new(OsDisk::default()), &path).unwrap();
    assert!(db.durability_status().sync_reason.starts_with("the default"), "{:?}", db.durability_status());
}

/// D1: a program that uses level `Disk` where syncs are worthless gets an event.
#[test]
#[cfg(target_os = "linux")]
fn worthless_syncs_are_told_to_the_event_hook() {
    use std::sync::Mutex;

    let opened = |directory: &std::path::Path, level| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hear = {
            let told = Arc::clone(&told);
            move |event: &Event| {
                if let Event::DiskLevelNotKept { why } = event {
                    told.lock().unwrap().push(why.clone());
                }
            }
        };
        let options = Db::options().durability(level).on_event(hear);
        drop(options.open_on(Arc::new(OsDisk::default()), directory.join("db")).unwrap());
        Arc::into_inner(told).unwrap().into_inner().unwrap()
    };
    let Ok(memory) = tempfile::TempDir::new_in("/dev/shm") else { return };
    let told = opened(memory.path(), Durability::Disk);
    assert!(told.len() == 1 && told[0].contains("memory"), "{told:?}");
    assert_eq!(opened(memory.path(), Durability::Process), [""; 0]);
}
