//! Each kind of fault, seen from outside. Tests of an engine's reaction to faults (D6, D7) rely on these
//! effects.

use std::io;
use std::sync::Arc;

use super::{ALL, NONE, create, left, path, with_file};
use crate::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan, MemDisk, SyncGate};
use crate::{Access, Disk, DurableWriteError, SyncMethod};

const METHODS: [SyncMethod; 3] = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::DirectDsync];

/// A page of one byte, so that direct writes are aligned.
fn page(byte: u8) -> Vec<u8> {
    vec![byte; 4096]
}

#[test]
fn nth_call_of_a_kind_fails_once_or_for_good() {
    let (disk, file) = with_file(b"....", SyncMethod::Fdatasync);
    let reads = || (0..5).map(|_| file.read_at(&mut [0], 0).is_ok()).collect::<Vec<_>>();
    disk.set_faults(Fault::new(CallKind::Read, 2, Effect::EIO));
    assert_eq!(reads(), [true, true, false, true, true]);
    disk.set_faults(Fault::new(CallKind::Read, 2, Effect::EIO).for_good());
    assert_eq!(reads(), [true, true, false, false, false]);
    assert_eq!(disk.fault_hit_count(), 3);
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).on("/other"));
    assert_eq!(reads(), [true; 5]);
    disk.set_faults(FaultPlan::none());
    assert_eq!(reads(), [true; 5]);
}

#[test]
fn failed_write_takes_no_byte() {
    let (disk, file) = with_file(b"....", SyncMethod::Fdatasync);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC));
    let error = file.write_at(b"new!", 0).unwrap_err();
    assert_eq!((error.source.kind(), error.may_be_partial), (io::ErrorKind::StorageFull, false));
    assert_eq!(disk.read_file("/f").unwrap(), b"....");
    assert_eq!(disk.pending_len(), 0);
}

#[test]
fn short_write_takes_half_and_says_so() {
    let (disk, file) = with_file(b"....", SyncMethod::Fdatasync);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ShortWrite(io::ErrorKind::StorageFull)));
    let error = file.write_durable_at(b"new!", 0).unwrap_err();
    assert!(matches!(error, DurableWriteError::Write(error) if error.may_be_partial));
    assert_eq!(disk.read_file("/f").unwrap(), b"ne..");
    assert_eq!(left(&disk, NONE).unwrap(), b"....");
}

#[test]
fn failed_sync_leaves_the_outcome_open() {
    for sync in METHODS {
        let (disk, file) = with_file(&page(b'.'), sync);
        disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
        let error = file.write_durable_at(&page(b'x'), 0).unwrap_err();
        assert!(matches!(error, DurableWriteError::Sync(_)), "{sync:?}");
        assert_eq!(left(&disk, NONE).unwrap(), page(b'.'));
        assert_eq!(left(&disk, ALL).unwrap(), page(b'x'));
    }
}

#[test]
fn sync_that_fails_once_and_then_succeeds_has_lost_the_data() {
    // Linux behaved like this for years: the error is reported once, the pages are marked clean, the next
    // sync succeeds.
    for sync in METHODS {
        let (disk, file) = with_file(&page(b'.'), sync);
        file.write_at(&page(b'x'), 0).unwrap();
        disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::SyncErrorDataGone(io::ErrorKind::Other)));
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(disk.read_file("/f").unwrap(), page(b'x'), "reads still show it");
        for choice in [NONE, ALL, CrashChoice::Random { seed: 3 }] {
            assert_eq!(left(&disk, choice).unwrap(), page(b'.'), "{sync:?} {choice:?}");
        }
    }
}

#[test]
fn lying_sync_makes_nothing_durable() {
    for sync in METHODS {
        let (disk, file) = with_file(&page(b'.'), sync);
        disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::LyingSync).for_good());
        file.write_durable_at(&page(b'x'), 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(left(&disk, NONE).unwrap(), page(b'.'), "{sync:?}");
    }
    let disk = MemDisk::new(1);
    create(&disk, "/g");
    disk.set_faults(Fault::new(CallKind::SyncDir, 0, Effect::LyingSync));
    disk.sync_dir(path("/")).unwrap();
    assert!(disk.crash(&NONE).files().is_empty());
}

#[test]
fn failed_directory_sync_leaves_entries_pending_or_drops_them() {
    for (effect, all) in [(Effect::EIO, 1), (Effect::SyncErrorDataGone(io::ErrorKind::Other), 0)] {
        let disk = MemDisk::new(1);
        create(&disk, "/g");
        disk.set_faults(Fault::new(CallKind::SyncDir, 0, effect));
        disk.sync_dir(path("/")).unwrap_err();
        disk.set_faults(FaultPlan::none());
        assert_eq!(disk.crash(&ALL).files().len(), all, "{effect:?}");
        disk.sync_dir(path("/")).unwrap();
        assert_eq!(disk.crash(&NONE).files().len(), all, "{effect:?}");
    }
}

#[test]
fn lost_write_is_acknowledged_and_stale() {
    let (disk, file) = with_file(b"old", SyncMethod::Fdatasync);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::LostWrite));
    file.write_durable_at(b"new", 0).unwrap();
    assert_eq!(disk.read_file("/f").unwrap(), b"old");
    assert_eq!(left(&disk, ALL).unwrap(), b"old");
}

#[test]
fn misdirected_write_lands_elsewhere() {
    let (disk, file) = with_file(b"........", SyncMethod::Dsync);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::MisdirectedWrite(4)));
    file.write_durable_at(b"new", 0).unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), b"....new.");
}

#[test]
fn flipped_read_passes_and_flipped_bit_stays() {
    let (disk, file) = with_file(&[0; 4], SyncMethod::Fdatasync);
    let read = || {
        let mut bytes = [0; 4];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::FlippedRead(9)));
    assert_eq!(read(), [0, 2, 0, 0]);
    assert_eq!(read(), [0; 4]);
    file.write_at(&[0; 2], 2).unwrap();
    disk.flip_bit("/f", 3, 7).unwrap();
    assert_eq!(read(), [0, 0, 0, 0x80]);
    for choice in [NONE, ALL] {
        assert_eq!(left(&disk, choice).unwrap(), [0, 0, 0, 0x80], "{choice:?}");
    }
    assert!(disk.flip_bit("/f", 4, 0).is_err());
}

#[test]
fn full_disk_refuses_writes_and_reservations_untouched() {
    let (disk, file) = with_file(&page(1), SyncMethod::Fdatasync);
    disk.set_capacity(Some(3 * 4096));
    file.reserve(4096, 4096).unwrap();
    file.write_at(&page(2), 4096).unwrap();
    assert_eq!(file.reserve(8192, 8192).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let error = file.write_at(&[0; 5000], 8192).unwrap_err();
    assert_eq!((error.source.kind(), error.may_be_partial), (io::ErrorKind::StorageFull, false));
    assert_eq!(file.len().unwrap(), 8192);
    assert_eq!(disk.file_system(path("/")).unwrap().free_bytes, 4096);
    file.punch(0, 4096).unwrap();
    file.write_at(&[0; 5000], 8192).unwrap();
    assert_eq!(disk.used_bytes(), 3 * 4096);
    // The room of a removed file comes back once it is closed.
    disk.remove(path("/f")).unwrap();
    assert_eq!(disk.used_bytes(), 3 * 4096);
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn every_call_can_fail_by_its_index() {
    let work = |disk: &MemDisk| -> io::Result<()> {
        disk.create_dir(path("/d"))?;
        let file = disk.open(path("/d/f"), Access::CREATE)?;
        file.reserve(0, 8192)?;
        file.write_durable_at(b"x", 0).map_err(|error| match error {
            DurableWriteError::Write(error) => error.source,
            DurableWriteError::Sync(error) => error,
        })?;
        file.write_out(0, 1)?;
        file.read_at(&mut [0], 0)?;
        file.punch(0, 4096)?;
        file.set_len(file.len()? - 1)?;
        disk.rename(path("/d/f"), path("/d/g"))?;
        disk.sync_dir(path("/d"))?;
        disk.list(path("/d"))?;
        disk.kind(path("/d/g"))?;
        disk.open(path("/d/g"), Access::READ)?;
        disk.lock(path("/d/lock"), true).map(drop).map_err(|_| io::Error::other("lock"))?;
        disk.remove(path("/d/g"))
    };
    let healthy = MemDisk::new(1);
    work(&healthy).unwrap();
    let counts = healthy.call_counts();
    assert!(CallKind::ALL.iter().all(|kind| counts.of(*kind) == 1), "{counts:?}");
    for index in 0..counts.total() {
        let disk = MemDisk::new(1);
        disk.set_faults(Fault::any(index, Effect::EIO));
        work(&disk).unwrap_err();
        assert_eq!(disk.call_counts().total(), index + 1, "nothing is called after the failure");
    }
    healthy.reset_call_counts();
    assert_eq!(healthy.call_counts().total(), 0);
}

#[test]
fn reads_and_writes_go_on_while_a_sync_is_in_flight() {
    for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
        let (disk, file) = with_file(b"....", sync);
        let gate = SyncGate::closed();
        disk.set_blocker(Some(gate.blocker("/f")));
        std::thread::scope(|scope| {
            let syncing = Arc::clone(&file);
            let sync = scope.spawn(move || syncing.write_durable_at(b"a", 0));
            gate.wait_blocked(1);
            let mut byte = [0];
            file.read_at(&mut byte, 0).unwrap();
            assert_eq!(&byte, b"a");
            assert_eq!(left(&disk, NONE).unwrap(), b"....", "not durable before the sync returns");
            // Written after the sync began: it does not cover this.
            file.write_at(b"b", 1).unwrap();
            gate.open();
            sync.join().unwrap().unwrap();
        });
        assert_eq!(left(&disk, NONE).unwrap(), b"a...", "{sync:?}");
        assert_eq!(left(&disk, ALL).unwrap(), b"ab..");
        assert_eq!(gate.blocked_count(), 0);
    }
}

#[test]
fn directory_sync_in_flight_does_not_cover_later_names() {
    let disk = MemDisk::new(1);
    create(&disk, "/before");
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("")));
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| disk.sync_dir(path("/")));
        gate.wait_blocked(1);
        create(&disk, "/later");
        gate.open();
        sync.join().unwrap().unwrap();
    });
    assert_eq!(disk.crash(&NONE).files(), [path("/before")]);
    gate.close();
    disk.set_blocker(None);
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(disk.crash(&NONE).files().len(), 2);
}

/// A failed sync may have written some changes: each is durable, torn, lost or pending.
///
/// Over all seeds every case occurs. The newest change of a page decides about the older ones under it.
#[test]
fn sync_that_fails_in_part_has_written_torn_lost_or_kept_each_change() {
    for sync in METHODS {
        let (mut durable, mut torn, mut gone, mut pending) = (0, 0, 0, 0);
        for seed in 0..64 {
            let (disk, file) = with_file(&page(b'.'), sync);
            file.write_at(&page(b'a'), 0).unwrap();
            let fault = Effect::SyncErrorGoneInPart(io::ErrorKind::StorageFull, seed);
            disk.set_faults(Fault::new(CallKind::Sync, 0, fault));
            let error = file.write_durable_at(&page(b'x'), 0).unwrap_err();
            assert!(
                matches!(error, DurableWriteError::Sync(error) if error.kind() == io::ErrorKind::StorageFull)
            );
            let (none, all) = (left(&disk, NONE).unwrap(), left(&disk, ALL).unwrap());
            durable += u32::from(none == page(b'x'));
            torn += u32::from(none.contains(&b'x') && none != page(b'x'));
            gone += u32::from(!all.contains(&b'x'));
            pending += u32::from(all == page(b'x') && !none.contains(&b'x'));
        }
        assert!(
            durable > 0 && torn > 0 && gone > 0 && pending > 0,
            "{sync:?} {durable} {torn} {gone} {pending}"
        );
    }
}

/// After a failed sync the kernel marks pages clean that are not on the medium. If it drops them, they read
/// old.
#[test]
fn evicted_page_that_a_failed_sync_took_for_written_reads_old() {
    let (disk, file) = with_file(&page(b'.'), SyncMethod::Fdatasync);
    file.write_at(&page(b'x'), 0).unwrap();
    assert_eq!(disk.evict(1), 0, "a dirty page stays");
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::SyncErrorDataGone(io::ErrorKind::Other)));
    file.sync_data().unwrap_err();
    assert_eq!(disk.read_file("/f").unwrap(), page(b'x'), "it is still in the cache");
    let evicted = (0..64).find(|seed| disk.evict(*seed) > 0);
    assert!(evicted.is_some(), "some seed lets go of it");
    assert_eq!(disk.read_file("/f").unwrap(), page(b'.'));
    file.write_at(&page(b'y'), 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&disk, NONE).unwrap(), page(b'y'));
}

#[test]
fn flipped_write_differs_in_one_bit() {
    let (disk, file) = with_file(b"....", SyncMethod::Fdatasync);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::FlippedWrite(9)));
    file.write_at(b"abcd", 0).unwrap();
    assert_eq!(disk.read_file("/f").unwrap(), [b'a', b'b' ^ 2, b'c', b'd']);
}
