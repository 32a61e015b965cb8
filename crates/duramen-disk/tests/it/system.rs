//! Properties of the operating system's disk only: permissions, descriptors, links, mounts.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use duramen_disk::{Access, Disk, OsDisk, PathKind, SyncMethod};

use crate::Place;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_and_directories_are_private() {
    let place = Place::system();
    drop(place.disk.open(&place.at("f"), Access::CREATE).unwrap());
    drop(place.disk.lock(&place.at("lock"), true).unwrap());
    place.disk.create_dir(&place.at("d")).unwrap();
    // The process's umask may remove more bits, never fewer.
    assert_eq!(mode(&place.at("f")) & !0o600, 0);
    assert_eq!(mode(&place.at("lock")) & !0o600, 0);
    assert_eq!(mode(&place.at("d")) & !0o700, 0);
}

#[test]
fn link_that_leads_nowhere_is_something() {
    let place = Place::system();
    symlink(place.at("nowhere"), place.at("link")).unwrap();
    assert_eq!(place.disk.kind(&place.at("link")).unwrap(), Some(PathKind::Other));
    drop(place.disk.open(&place.at("nowhere"), Access::CREATE).unwrap());
    assert_eq!(place.disk.kind(&place.at("link")).unwrap(), Some(PathKind::File));
}

#[test]
fn reader_locks_a_file_that_it_may_not_write() {
    let place = Place::system();
    drop(place.disk.lock(&place.at("lock"), true).unwrap());
    fs::set_permissions(place.at("lock"), fs::Permissions::from_mode(0o400)).unwrap();
    let held = place.disk.lock(&place.at("lock"), false).unwrap();
    assert!(held.set_holder("reader").is_err(), "it was opened for reading only");
    assert!(place.disk.lock(&place.at("lock"), false).is_ok(), "and it is held all the same");
}

#[test]
fn file_system_is_named() {
    let place = Place::system();
    let found = place.disk.file_system(&place.directory).unwrap();
    assert!(!found.name.is_empty());
    assert!(!found.read_only);
    assert!(found.block_bytes.is_power_of_two());
    assert!(found.free_bytes <= found.total_bytes);
    println!("{found:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn kernel_file_systems_are_told_apart() {
    let disk = OsDisk::new();
    let shm = disk.file_system(Path::new("/dev/shm"));
    if let Ok(shm) = shm
        && shm.name == "tmpfs"
    {
        assert_eq!(shm.network, Some(false));
    }
    // A pseudo file system is not in the list: it is named by its number and not assumed local.
    let proc = disk.file_system(Path::new("/proc")).unwrap();
    assert_eq!((proc.name.as_str(), proc.network), ("unknown (0x9fa0)", Some(true)));
}

#[cfg(target_os = "linux")]
#[test]
fn punched_blocks_go_back_to_the_file_system() {
    let place = Place::system();
    let file = place.disk.open(&place.at("f"), Access::CREATE).unwrap();
    file.write_at(&[7; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    let blocks = || fs::metadata(place.at("f")).unwrap().blocks();
    let before = blocks();
    file.punch(0, 1 << 19).unwrap();
    let mut byte = [9];
    file.read_at(&mut byte, 0).unwrap();
    let name = place.disk.file_system(&place.directory).unwrap().name;
    let has_holes = ["ext4", "xfs", "btrfs", "tmpfs", "f2fs"].contains(&name.as_str());
    assert!(!has_holes || byte[0] == 0, "{name} has holes");
    assert!(byte[0] == 7 || blocks() < before, "{before} blocks before, {} after", blocks());
}

#[cfg(target_os = "linux")]
#[test]
fn descriptors_close_on_exec() {
    let place = Place::system();
    let _file = place.disk.open(&place.at("f"), Access::CREATE).unwrap();
    let _lock = place.disk.lock(&place.at("lock"), true).unwrap();
    let mut seen = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // Other tests open and close files at the same time, so only this test's files are examined.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target.starts_with(&place.directory) {
            let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            assert_ne!(u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000, 0, "{target:?} survives exec");
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn direct_and_cached_handles_of_one_file_agree() {
    let place = Place::system();
    let cached = place.disk.open(&place.at("f"), Access::CREATE).unwrap();
    cached.write_at(&[1; 8192], 0).unwrap();
    let Ok(direct) =
        place.disk.open(&place.at("f"), Access { sync: SyncMethod::DirectDsync, ..Access::WRITE })
    else {
        return;
    };
    let mut bytes = vec![0; 8192];
    direct.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [1; 8192], "a direct read sees what is only in the cache");
    direct.write_durable_at(&[2; 4096], 4096).unwrap();
    cached.read_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[4095], bytes[4096]), (1, 2));
}

#[cfg(target_os = "linux")]
#[test]
fn full_device_is_storage_full_and_a_pipe_of_zeroes_is_not_a_file() {
    let disk = OsDisk::new();
    assert_eq!(disk.kind(Path::new("/dev/full")).unwrap(), Some(PathKind::Other));
    let Ok(full) = disk.open(Path::new("/dev/full"), Access::WRITE) else { return };
    let error = full.write_at(&[0; 100], 0).unwrap_err();
    assert_eq!((error.source.kind(), error.may_be_partial), (std::io::ErrorKind::StorageFull, false));
}
