//! Which changes a power cut may lose, kind by kind.

use std::collections::HashSet;
use std::io;

use super::{ALL, NONE, create, left, path, with_file};
use crate::memory::{CrashChoice, Effect, Fault, MemDisk};
use crate::{Access, Disk, OpenMode, SyncMethod};

const FDATASYNC: SyncMethod = SyncMethod::Fdatasync;

#[test]
fn unsynced_write_may_vanish_and_synced_write_may_not() {
    let (disk, file) = with_file(b"old", FDATASYNC);
    file.write_at(b"new", 0).unwrap();
    assert_eq!(disk.read_file("/f").unwrap(), b"new");
    assert_eq!(left(&disk, NONE).unwrap(), b"old");
    assert_eq!(left(&disk, ALL).unwrap(), b"new");
    assert_eq!(disk.pending_len(), 1);
    file.sync_data().unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"new");
    assert_eq!(disk.pending_len(), 0);
}

#[test]
fn sync_of_one_file_does_not_sync_another() {
    let disk = MemDisk::new(1);
    disk.write_file("/a", b"..").unwrap();
    disk.write_file("/b", b"..").unwrap();
    let (a, b) =
        (disk.open(path("/a"), Access::WRITE).unwrap(), disk.open(path("/b"), Access::WRITE).unwrap());
    a.write_at(b"aa", 0).unwrap();
    b.write_at(b"bb", 0).unwrap();
    a.sync_data().unwrap();
    let image = disk.crash(&NONE);
    assert_eq!(image.read_file("/a").unwrap(), b"aa");
    assert_eq!(image.read_file("/b").unwrap(), b"..");
}

#[test]
fn synced_file_with_unsynced_name_vanishes() {
    let disk = MemDisk::new(1);
    let file = create(&disk, "/f");
    file.write_at(b"data", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&disk, NONE), None);
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"data");
}

#[test]
fn synced_name_of_unsynced_file_is_empty() {
    let disk = MemDisk::new(1);
    create(&disk, "/f").write_at(b"data", 0).unwrap();
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"");
    assert_eq!(left(&disk, CrashChoice::EntriesOnly).unwrap(), b"");
    assert_eq!(left(&disk, CrashChoice::DataOnly).unwrap(), b"data");
}

#[test]
fn file_in_an_unsynced_directory_vanishes_with_it() {
    let disk = MemDisk::new(1);
    disk.create_dir(path("/d")).unwrap();
    create(&disk, "/d/f").sync_data().unwrap();
    disk.sync_dir(path("/d")).unwrap();
    assert!(disk.crash(&NONE).files().is_empty());
    assert_eq!(disk.crash(&NONE).kind(path("/d")).unwrap(), None);
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(disk.crash(&NONE).files(), [path("/d/f")]);
}

#[test]
fn removed_file_may_come_back() {
    let (disk, file) = with_file(b"old", FDATASYNC);
    disk.remove(path("/f")).unwrap();
    assert_eq!(disk.read_file("/f").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(left(&disk, NONE).unwrap(), b"old");
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(left(&disk, NONE), None);
    // The handle still works, and nothing written through it can ever come back.
    file.write_at(b"ghost", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&disk, ALL), None);
    assert_eq!(disk.pending_len(), 0);
}

#[test]
fn rename_is_atomic_and_pending_until_the_directory_is_synced() {
    let disk = MemDisk::new(1);
    disk.write_file("/f", b"old").unwrap();
    disk.write_file("/f.new", b"new").unwrap();
    disk.rename(path("/f.new"), path("/f")).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"old");
    assert_eq!(disk.crash(&NONE).files().len(), 2);
    assert_eq!(left(&disk, ALL).unwrap(), b"new");
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"new");
    assert_eq!(disk.crash(&NONE).files().len(), 1);
}

#[test]
fn rename_across_directories_is_durable_as_one() {
    let disk = MemDisk::new(1);
    disk.write_file("/a/x", b"x").unwrap();
    disk.write_file("/b/y", b"y").unwrap();
    disk.rename(path("/a/x"), path("/b/x")).unwrap();
    assert_eq!(disk.crash(&NONE).files(), [path("/a/x"), path("/b/y")]);
    disk.sync_dir(path("/b")).unwrap();
    assert_eq!(disk.crash(&NONE).files(), [path("/b/x"), path("/b/y")]);
}

#[test]
fn renamed_file_has_one_name_whatever_survives() {
    // Two renames of a file whose creation is pending too: no subset may leave it under two names.
    let disk = MemDisk::new(1);
    create(&disk, "/a");
    disk.rename(path("/a"), path("/b")).unwrap();
    disk.rename(path("/b"), path("/c")).unwrap();
    for seed in 0..200 {
        let files = disk.crash(&CrashChoice::Random { seed }).files();
        assert!(files.len() <= 1, "seed {seed}: {files:?}");
    }
}

#[test]
fn set_len_reserve_and_punch_are_pending() {
    let bytes = vec![7u8; 16384];
    type Alter = fn(&dyn crate::File);
    let cases: [(Alter, usize, u8); 4] = [
        (|file| file.set_len(100).unwrap(), 100, 7),
        (|file| file.set_len(20_000).unwrap(), 20_000, 7),
        (|file| file.reserve(0, 32_768).unwrap(), 32_768, 7),
        (|file| file.punch(0, 8192).unwrap(), 16384, 0),
    ];
    for (alter, len, first) in cases {
        let (disk, file) = with_file(&bytes, FDATASYNC);
        alter(&*file);
        assert_eq!(left(&disk, NONE).unwrap(), bytes);
        file.sync_data().unwrap();
        let after = left(&disk, NONE).unwrap();
        assert_eq!((after.len(), after[0]), (len, first));
        assert_eq!(after, disk.read_file("/f").unwrap());
    }
}

#[test]
fn grown_file_never_shows_cut_bytes() {
    let (disk, file) = with_file(&[9; 9000], FDATASYNC);
    file.set_len(10).unwrap();
    file.set_len(9000).unwrap();
    let bytes = disk.read_file("/f").unwrap();
    assert_eq!(bytes[..10], [9; 10]);
    assert!(bytes[10..].iter().all(|byte| *byte == 0));
    assert_eq!(left(&disk, ALL).unwrap(), bytes);
}

#[test]
fn torn_write_keeps_whole_sectors_in_any_subset() {
    let (disk, file) = with_file(&[0; 2048], FDATASYNC);
    file.write_at(&[1; 2048], 0).unwrap();
    let mut shapes = HashSet::new();
    for seed in 0..200 {
        let bytes = left(&disk, CrashChoice::Torn { index: 0, seed }).unwrap();
        let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "seed {seed}");
        shapes.insert(sectors);
    }
    assert_eq!(shapes.len(), 16, "every subset of four sectors is reached");
}

#[test]
fn torn_unaligned_write_tears_at_sectors_of_the_file() {
    let (disk, file) = with_file(&[0; 1024], FDATASYNC);
    file.write_at(&[1; 100], 462).unwrap();
    for seed in 0..50 {
        let bytes = left(&disk, CrashChoice::Torn { index: 0, seed }).unwrap();
        assert!(bytes[462..512].iter().all(|byte| *byte == bytes[462]));
        assert!(bytes[512..562].iter().all(|byte| *byte == bytes[512]));
        assert_eq!((bytes[461], bytes[562]), (0, 0));
    }
}

#[test]
fn length_of_a_torn_append_may_cover_lost_sectors_with_zeroes() {
    let (disk, file) = with_file(b"", FDATASYNC);
    file.write_at(&[1; 1024], 0).unwrap();
    let images: HashSet<Vec<u8>> =
        (0..100).map(|seed| left(&disk, CrashChoice::Torn { index: 0, seed }).unwrap()).collect();
    assert!(images.contains(&vec![0; 1024]));
    assert!(images.contains(&Vec::new()));
    assert!(images.iter().any(|image| image.len() == 512));
}

#[test]
fn choices_pick_by_issue_order() {
    let (disk, file) = with_file(b"....", FDATASYNC);
    for (place, byte) in [(0, b"a"), (1, b"b"), (2, b"c")] {
        file.write_at(byte, place).unwrap();
    }
    let cases: [(CrashChoice, &[u8]); 5] = [
        (CrashChoice::AllBut(1), b"a.c."),
        (CrashChoice::Only(1), b".b.."),
        (CrashChoice::Prefix(2), b"ab.."),
        (CrashChoice::Prefix(0), b"...."),
        (CrashChoice::Torn { index: 0, seed: 0 }, b"...."),
    ];
    for (choice, expected) in cases {
        let found = left(&disk, choice).unwrap();
        let torn = matches!(choice, CrashChoice::Torn { .. }) && found == b"a...";
        assert!(found == expected || torn, "{choice:?}: {found:?}");
    }
}

#[test]
fn of_two_overlapping_writes_either_may_be_the_last() {
    let (disk, file) = with_file(b".", FDATASYNC);
    file.write_at(b"1", 0).unwrap();
    file.write_at(b"2", 0).unwrap();
    let found: HashSet<Vec<u8>> =
        (0..200).map(|seed| left(&disk, CrashChoice::Random { seed }).unwrap()).collect();
    assert_eq!(found, HashSet::from([b".".to_vec(), b"1".to_vec(), b"2".to_vec()]));
    // Both survive with the older one on top: only another order of arrival leaves this.
    file.sync_data().unwrap();
    file.write_at(b"111", 0).unwrap();
    file.write_at(b"222", 1).unwrap();
    let reordered = |seed| left(&disk, CrashChoice::Random { seed }).unwrap() == b"1112";
    assert!((0..200).any(reordered));
}

#[test]
fn random_choice_repeats_by_seed() {
    let (disk, file) = with_file(&[0; 65536], FDATASYNC);
    for place in 0..16 {
        file.write_at(&[1; 4096], place * 4096).unwrap();
    }
    let hash = |seed| disk.crash(&CrashChoice::Random { seed }).image_hash();
    assert!((0..50).all(|seed| hash(seed) == hash(seed)));
    let distinct: HashSet<u64> = (0..50).map(hash).collect();
    assert!(distinct.len() > 40, "{}", distinct.len());
}

#[test]
fn durable_write_by_fdatasync_covers_the_whole_file() {
    let (disk, file) = with_file(b"....", FDATASYNC);
    file.write_at(b"a", 0).unwrap();
    file.write_durable_at(b"b", 1).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"ab..");
}

#[test]
fn durable_write_by_dsync_covers_its_own_bytes_only() {
    let (disk, file) = with_file(b"....", SyncMethod::Dsync);
    file.write_at(b"a", 0).unwrap();
    file.write_durable_at(b"b", 1).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b".b..");
    assert_eq!(left(&disk, ALL).unwrap(), b"ab..");
    file.sync_data().unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"ab..");
}

#[test]
fn older_pending_write_never_comes_back_over_a_durable_one() {
    let (disk, file) = with_file(b"......", SyncMethod::Dsync);
    file.write_at(b"aaaaaa", 0).unwrap();
    file.write_durable_at(b"BB", 2).unwrap();
    assert_eq!(left(&disk, ALL).unwrap(), b"aaBBaa");
    assert_eq!(left(&disk, NONE).unwrap(), b"..BB..");
    assert_eq!(disk.pending_len(), 2, "the older write is cut in two");
    for seed in 0..100 {
        assert_eq!(&left(&disk, CrashChoice::Random { seed }).unwrap()[2..4], b"BB");
    }
}

#[test]
fn older_cut_of_the_length_never_cuts_a_durable_write() {
    let (disk, file) = with_file(&[b'.'; 10], SyncMethod::Dsync);
    file.write_at(b"x", 9).unwrap();
    file.set_len(4).unwrap();
    file.write_durable_at(b"BB", 4).unwrap();
    for choice in [NONE, ALL] {
        assert_eq!(left(&disk, choice).unwrap(), b"....BB", "{choice:?}");
    }
}

#[test]
fn direct_write_must_be_aligned() {
    let (_disk, file) = with_file(&[0; 8192], SyncMethod::DirectDsync);
    let error = file.write_at(&[1; 100], 0).unwrap_err();
    assert_eq!((error.source.kind(), error.may_be_partial), (io::ErrorKind::InvalidInput, false));
    file.write_durable_at(&[1; 4096], 4096).unwrap();
}

#[test]
fn crashed_disk_works_and_crashes_again() {
    let (disk, file) = with_file(b"one", FDATASYNC);
    file.write_at(b"two", 0).unwrap();
    let second = disk.crash(&ALL);
    let file = second.open(path("/f"), Access::WRITE).unwrap();
    file.write_at(b"333", 0).unwrap();
    create(&second, "/g");
    assert_eq!(left(&second, NONE).unwrap(), b"two");
    assert_eq!(left(&second, ALL).unwrap(), b"333");
    assert_eq!(disk.read_file("/f").unwrap(), b"two", "the first disk does not notice");
}

#[test]
fn deep_clone_is_another_disk_with_the_same_pending_changes() {
    let (disk, file) = with_file(b"old", FDATASYNC);
    file.write_at(b"new", 0).unwrap();
    let copy = disk.deep_clone();
    file.sync_data().unwrap();
    assert_eq!(left(&copy, NONE).unwrap(), b"old");
    assert_eq!(left(&copy, ALL).unwrap(), b"new");
    copy.write_file("/f", b"else").unwrap();
    assert_eq!(disk.read_file("/f").unwrap(), b"new");
    disk.set_faults(Fault::any(0, Effect::EIO).for_good());
    disk.deep_clone().list(path("/")).unwrap();
}

#[test]
fn lock_is_refused_with_its_holder_and_gone_after_a_crash() {
    let disk = MemDisk::new(1);
    let held = disk.lock(path("/lock"), true).unwrap();
    held.set_holder("process 7").unwrap();
    for exclusive in [true, false] {
        match disk.lock(path("/lock"), exclusive) {
            Err(crate::LockError::Held { holder }) => assert_eq!(holder, "process 7"),
            other => panic!("{other:?}"),
        }
    }
    disk.crash(&ALL).lock(path("/lock"), true).unwrap();
    drop(held);
    let (_one, _two) = (disk.lock(path("/lock"), false).unwrap(), disk.lock(path("/lock"), false).unwrap());
    assert!(disk.lock(path("/lock"), true).is_err());
}

#[test]
fn shared_lock_does_not_create_its_file_and_works_read_only() {
    let disk = MemDisk::new(1);
    let missing = disk.lock(path("/lock"), false).unwrap_err();
    assert!(matches!(missing, crate::LockError::Io(error) if error.kind() == io::ErrorKind::NotFound));
    drop(disk.lock(path("/lock"), true).unwrap());
    disk.set_read_only(true);
    disk.lock(path("/lock"), false).unwrap();
    assert!(matches!(disk.lock(path("/lock"), true), Err(crate::LockError::Io(_))));
    assert_eq!(disk.remove(path("/lock")).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(disk.file_system(path("/")).unwrap().read_only);
}

#[test]
fn paths_and_modes_are_refused_as_a_system_would() {
    let disk = MemDisk::new(1);
    disk.write_file("/d/f", b"x").unwrap();
    let kind = |at: &str, mode| {
        disk.open(path(at), Access { mode, sync: FDATASYNC }).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(kind("/d/g", OpenMode::Read), Err(io::ErrorKind::NotFound));
    assert_eq!(kind("/no/g", OpenMode::CreateNew), Err(io::ErrorKind::NotFound));
    assert_eq!(kind("/d/f", OpenMode::CreateNew), Err(io::ErrorKind::AlreadyExists));
    assert_eq!(kind("/d/f/g", OpenMode::CreateNew), Err(io::ErrorKind::NotADirectory));
    assert_eq!(kind("/d", OpenMode::Write), Err(io::ErrorKind::IsADirectory));
    assert_eq!(kind("d/./../d/f", OpenMode::Read), Ok(()), "relative paths start at the root");
    assert_eq!(disk.list(path("/")).unwrap(), [path("d")]);
    assert_eq!(disk.list(path("/d")).unwrap(), [path("f")]);
    assert_eq!(disk.list(path("/d/f")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    assert_eq!(disk.create_dir(path("/d")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let reader = disk.open(path("/d/f"), Access::READ).unwrap();
    assert!(!reader.write_at(b"y", 0).unwrap_err().may_be_partial);
    assert_eq!(reader.read_at(&mut [0; 2], 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn clocks_and_randomness_repeat_by_seed() {
    let (one, two, other) = (MemDisk::new(5), MemDisk::new(5), MemDisk::new(6));
    assert_eq!(one.random(), two.random());
    assert_ne!(one.random(), other.random());
    assert_eq!(one.wall_ns(), two.wall_ns());
    let before = one.monotonic_ns();
    one.advance_clock(1_000_000);
    assert!(one.monotonic_ns() >= before + 1_000_000);
    one.set_wall_clock(5);
    assert!(one.wall_ns() < 1_000_000);
    assert!(one.monotonic_ns() > before, "the monotonic clock does not go back");
}

/// A test that waits for a value to expire would hang on a clock that stands still.
#[test]
fn the_clock_of_the_system_runs() {
    let disk = MemDisk::with_system_clock(5);
    assert_eq!(disk.random(), MemDisk::new(5).random());
    let (real, wall, begun) = (crate::OsDisk::new().wall_ns(), disk.wall_ns(), disk.monotonic_ns());
    assert!(wall.abs_diff(real) < 60_000_000_000, "{wall} and {real}");
    while disk.monotonic_ns() < begun + 1_000_000 {
        std::hint::spin_loop();
    }
    assert!(disk.wall_ns() >= wall + 1_000_000);
    disk.advance_clock(3_600_000_000_000);
    assert!(disk.deep_clone().wall_ns() >= wall + 3_600_000_000_000);
    disk.set_wall_clock(5);
    assert!(disk.wall_ns() < 60_000_000_000);
}

/// A sector being written at a power cut may hold anything. Other sectors are unchanged.
#[test]
fn garbled_sectors_hold_neither_old_nor_new_bytes() {
    let (disk, file) = with_file(&[b'.'; 4096], FDATASYNC);
    file.write_at(&[b'x'; 1024], 1024).unwrap();
    let images: Vec<Vec<u8>> =
        (0..64).map(|seed| left(&disk, CrashChoice::Garbled { seed }).unwrap()).collect();
    let is_garbled = |image: &Vec<u8>| image[1024..2048].iter().any(|byte| !b".x".contains(byte));
    assert!(images.iter().any(is_garbled));
    for image in &images {
        assert!(image[..1024].iter().chain(&image[2048..]).all(|byte| *byte == b'.'));
    }
}
