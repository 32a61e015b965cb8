//! The contract of the traits, on the operating system's disk and on the memory disk.
//!
//! An engine must be able to rely on both alike.

use std::io::ErrorKind;

use duramen_disk::{
    Access, DIRECT_ALIGN_BYTES, Disk, LockError, OpenMode, PathKind, SyncMethod, write_zeroes,
};

use crate::Place;

fn on_both(check: fn(&Place)) {
    check(&Place::memory());
    check(&Place::system());
}

/// Runs a check for each sync method. Skips, with a message, a file system that refuses direct writes.
fn by_method(place: &Place, check: impl Fn(&dyn duramen_disk::File)) {
    for (name, sync) in
        [("fd", SyncMethod::Fdatasync), ("ds", SyncMethod::Dsync), ("direct", SyncMethod::DirectDsync)]
    {
        let access = Access { mode: OpenMode::CreateNew, sync };
        match place.disk.open(&place.at(name), access) {
            Ok(file) => check(&*file),
            Err(error) if sync == SyncMethod::DirectDsync && error.kind() == ErrorKind::Unsupported => {
                assert_eq!(
                    place.disk.kind(&place.at(name)).unwrap(),
                    None,
                    "a refusal leaves nothing behind"
                );
                println!("direct writes are refused here: {error}");
            }
            Err(error) => panic!("{sync:?}: {error}"),
        }
    }
}

#[test]
fn written_bytes_are_read_back_by_every_method() {
    on_both(|place| {
        by_method(place, |file| {
            let pages: Vec<u8> = (0..40_960u32).map(|place| place.to_le_bytes()[0] ^ 0x5a).collect();
            // From memory that is not aligned, whatever the allocator gave.
            let mut unaligned = vec![0; pages.len() + 1];
            unaligned[1..].copy_from_slice(&pages);
            file.write_durable_at(&unaligned[1..], 4096).unwrap();
            file.write_at(&pages[..4096], 0).unwrap();
            file.sync_data().unwrap();
            assert_eq!(file.len().unwrap(), 45_056);
            for (offset, bytes) in
                [(0usize, 45_056usize), (1, 1), (4095, 2), (5000, 10_000), (45_055, 1), (45_056, 0)]
            {
                let mut found = vec![0xff; bytes];
                file.read_at(&mut found, offset as u64).unwrap();
                let expected: Vec<u8> =
                    pages[..4096].iter().chain(&pages).copied().skip(offset).take(bytes).collect();
                assert_eq!(found, expected, "{bytes} bytes at {offset}");
            }
        });
    });
}

#[test]
fn reading_past_the_end_is_an_error() {
    on_both(|place| {
        by_method(place, |file| {
            file.write_durable_at(&[1; 8192], 0).unwrap();
            file.set_len(5000).unwrap();
            file.read_at(&mut [0; 1000], 4000).unwrap();
            for (offset, bytes) in [(4000, 1001), (5000, 1), (100_000, 1)] {
                let error = file.read_at(&mut vec![0; bytes], offset).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{bytes} bytes at {offset}");
            }
        });
    });
}

#[test]
fn unaligned_direct_write_is_refused_untouched() {
    on_both(|place| {
        let access = Access { mode: OpenMode::CreateNew, sync: SyncMethod::DirectDsync };
        let Ok(file) = place.disk.open(&place.at("direct"), access) else { return };
        let aligned = usize::try_from(DIRECT_ALIGN_BYTES).unwrap();
        for (bytes, offset) in [(aligned - 1, 0), (aligned, 512), (100, 0)] {
            let error = file.write_at(&vec![1; bytes], offset).unwrap_err();
            assert_eq!((error.source.kind(), error.may_be_partial), (ErrorKind::InvalidInput, false));
        }
        assert_eq!(file.len().unwrap(), 0);
    });
}

#[test]
fn reserved_range_reads_as_zeroes_and_extends_the_file() {
    on_both(|place| {
        by_method(place, |file| {
            file.write_durable_at(&[7; 4096], 0).unwrap();
            file.reserve(0, 65_536).unwrap();
            file.reserve(0, 0).unwrap();
            // If the file system cannot reserve, the length stays.
            let len = file.len().unwrap();
            assert!(len == 65_536 || len == 4096, "{len}");
            let mut bytes = vec![9; usize::try_from(len).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes[..4096], [7; 4096]);
            assert!(bytes[4096..].iter().all(|byte| *byte == 0));
        });
    });
}

#[test]
fn punched_blocks_read_as_zeroes_and_the_length_stays() {
    on_both(|place| {
        by_method(place, |file| {
            file.write_durable_at(&[7; 32_768], 0).unwrap();
            file.punch(8192, 8192).unwrap();
            file.punch(0, 0).unwrap();
            assert_eq!(file.len().unwrap(), 32_768);
            let mut bytes = vec![9; 32_768];
            file.read_at(&mut bytes, 0).unwrap();
            assert_eq!((bytes[8191], bytes[16_384]), (7, 7));
            let hole = &bytes[8192..16_384];
            let supported = hole.iter().all(|byte| *byte == 0);
            assert!(supported || hole.iter().all(|byte| *byte == 7), "a hole is whole or not there");
            file.write_out(0, 32_768).unwrap();
        });
    });
}

#[test]
fn length_is_set_both_ways() {
    on_both(|place| {
        by_method(place, |file| {
            file.write_durable_at(&[7; 4096], 0).unwrap();
            file.set_len(10).unwrap();
            file.set_len(100).unwrap();
            let mut bytes = [9; 100];
            file.read_at(&mut bytes, 0).unwrap();
            assert_eq!((&bytes[..10], &bytes[10..]), (&[7; 10][..], &[0; 90][..]));
        });
    });
}

#[test]
fn written_zeroes_fill_the_range() {
    on_both(|place| {
        let file = place.disk.open(&place.at("f"), Access::CREATE).unwrap();
        file.write_at(&[1; 3_000_000], 0).unwrap();
        write_zeroes(&*file, 100, 2_500_000).unwrap();
        let mut bytes = vec![9; 3_000_000];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(bytes[100..2_500_100].iter().all(|byte| *byte == 0));
        assert_eq!((bytes[99], bytes[2_500_100]), (1, 1));
    });
}

#[test]
fn names_are_made_moved_and_removed() {
    on_both(|place| {
        let disk = &place.disk;
        disk.create_dir(&place.at("d")).unwrap();
        assert_eq!(disk.create_dir(&place.at("d")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        for name in ["d/b", "d/a", "d/c"] {
            disk.open(&place.at(name), Access::CREATE).unwrap().write_at(name.as_bytes(), 0).unwrap();
        }
        let names = |directory| -> Vec<String> {
            let names = disk.list(&place.at(directory)).unwrap();
            names.into_iter().map(|name| name.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("d"), ["a", "b", "c"]);
        disk.rename(&place.at("d/a"), &place.at("d/c")).unwrap();
        disk.remove(&place.at("d/b")).unwrap();
        disk.sync_dir(&place.at("d")).unwrap();
        disk.sync_dir(&place.directory).unwrap();
        assert_eq!(names("d"), ["c"]);
        let mut bytes = [0; 3];
        disk.open(&place.at("d/c"), Access::READ).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"d/a");
        assert_eq!(disk.kind(&place.at("d")).unwrap(), Some(PathKind::Directory));
        assert_eq!(disk.kind(&place.at("d/c")).unwrap(), Some(PathKind::File));
        assert_eq!(disk.kind(&place.at("d/x")).unwrap(), None);
    });
}

#[test]
fn wrong_paths_are_refused_by_kind() {
    on_both(|place| {
        let disk = &place.disk;
        drop(disk.open(&place.at("f"), Access::CREATE).unwrap());
        disk.create_dir(&place.at("d")).unwrap();
        let open =
            |name: &str, access| disk.open(&place.at(name), access).map(drop).map_err(|error| error.kind());
        assert_eq!(open("no", Access::READ), Err(ErrorKind::NotFound));
        assert_eq!(open("no", Access::WRITE), Err(ErrorKind::NotFound));
        assert_eq!(open("no/f", Access::CREATE), Err(ErrorKind::NotFound));
        assert_eq!(open("f", Access::CREATE), Err(ErrorKind::AlreadyExists));
        assert_eq!(open("f/g", Access::CREATE), Err(ErrorKind::NotADirectory));
        assert_eq!(open("d", Access::READ), Err(ErrorKind::IsADirectory));
        assert_eq!(open("d", Access::WRITE), Err(ErrorKind::IsADirectory));
        assert_eq!(disk.remove(&place.at("no")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.list(&place.at("no")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.list(&place.at("f")).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(disk.sync_dir(&place.at("no")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.sync_dir(&place.at("f")).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(disk.rename(&place.at("no"), &place.at("x")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.rename(&place.at("f"), &place.at("d")).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(disk.file_system(&place.at("no")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn file_opened_for_reading_refuses_writes_untouched() {
    on_both(|place| {
        place.disk.open(&place.at("f"), Access::CREATE).unwrap().write_at(b"x", 0).unwrap();
        let reader = place.disk.open(&place.at("f"), Access::READ).unwrap();
        assert!(!reader.write_at(b"y", 0).unwrap_err().may_be_partial);
        assert!(reader.set_len(0).is_err());
        reader.read_at(&mut [0], 0).unwrap();
    });
}

#[test]
fn removed_file_lives_on_in_its_handle() {
    on_both(|place| {
        let file = place.disk.open(&place.at("f"), Access::CREATE).unwrap();
        file.write_at(b"ghost", 0).unwrap();
        place.disk.remove(&place.at("f")).unwrap();
        let mut bytes = [0; 5];
        file.read_at(&mut bytes, 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(&bytes, b"ghost");
    });
}

#[test]
fn exclusive_lock_shuts_out_all_and_names_its_holder() {
    on_both(|place| {
        let at = place.at("lock");
        let held = place.disk.lock(&at, true).unwrap();
        held.set_holder("process 123456 on host a").unwrap();
        let this = format!("process {}", std::process::id());
        held.set_holder(&this).unwrap();
        for exclusive in [true, false] {
            match place.disk.lock(&at, exclusive) {
                Err(LockError::Held { holder }) => assert_eq!(holder, this),
                other => panic!("{other:?}"),
            }
        }
        // A lock of the open file, not of the process: opening and closing the file elsewhere keeps it.
        drop(place.disk.open(&at, Access::READ).unwrap());
        assert!(matches!(place.disk.lock(&at, true), Err(LockError::Held { .. })));
        drop(held);
        place.disk.lock(&at, true).unwrap();
    });
}

#[test]
fn shared_locks_share_and_shut_out_a_writer() {
    on_both(|place| {
        let at = place.at("lock");
        let missing = place.disk.lock(&at, false).unwrap_err();
        assert!(matches!(missing, LockError::Io(error) if error.kind() == ErrorKind::NotFound));
        drop(place.disk.lock(&at, true).unwrap());
        let readers = [place.disk.lock(&at, false).unwrap(), place.disk.lock(&at, false).unwrap()];
        assert!(matches!(place.disk.lock(&at, true), Err(LockError::Held { .. })));
        drop(readers);
        place.disk.lock(&at, true).unwrap();
    });
}

#[test]
fn clocks_and_randomness_move() {
    on_both(|place| {
        let disk: &dyn Disk = &*place.disk;
        let (one, two) = (disk.monotonic_ns(), disk.monotonic_ns());
        assert!(one <= two);
        assert!(disk.wall_ns() > 1_600_000_000_000_000_000);
        assert_ne!(disk.random(), disk.random());
    });
}
