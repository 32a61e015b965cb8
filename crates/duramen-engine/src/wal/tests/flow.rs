//! The running log: costs, segments, cut records, recycling, full disks, failed syncs.

use std::io::ErrorKind as ErrorKindIo;

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};

use super::*;
use crate::error::{Code, ErrorKind};

#[test]
fn what_was_written_is_replayed() {
    for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
        let disk = disk(1);
        let (log, from) = create(&disk, sync);
        let mut wanted = Vec::new();
        for seq in 1..=60 {
            commit(&log, seq, content(seq, 0));
            wanted.push(content(seq, 0));
        }
        log.write_mark(CommitSeq(60)).unwrap();
        log.sync().unwrap();
        let survivor = disk.crash(&CrashChoice::None);
        let recovered = check_replay(&survivor, &from, &wanted);
        assert_eq!(recovered.unmarked_group_count, 0);
        assert_eq!(recovered.marked_seq.0, 60);
        assert!(!recovered.torn);
        assert!(log.stats().segment_count > 5);
    }
}

/// A single group costs one write and one flush, even if it begins a segment, while spares are ready.
#[test]
fn a_group_costs_one_write_and_one_sync_at_segment_switches_too() {
    for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
        let disk = disk(2);
        let (log, _) = create(&disk, sync);
        let mut switches = 0;
        for seq in 1..=40 {
            while log.needs_spare() {
                log.prepare_spare(&mut |_| ()).unwrap();
            }
            let slot = log.position().slot;
            let before = disk.call_counts();
            let written = commit(&log, seq, vec![7; 600]);
            let after = disk.call_counts();
            assert_eq!(after.of(CallKind::Write) - before.of(CallKind::Write), 1);
            assert_eq!(after.of(CallKind::Sync) - before.of(CallKind::Sync), 1);
            assert_eq!(after.total() - before.total(), 2);
            switches += u64::from(written.position.slot != slot);
        }
        assert!(switches > 3);
    }
}

#[test]
fn a_record_larger_than_a_segment_is_cut_and_joined() {
    let disk = disk(3);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    let large: Vec<u8> = (0..30_000u32).map(|index| (index % 251) as u8).collect();
    let records = [record(1, vec![1; 10]), record(2, large.clone()), record(3, vec![3; 10])];
    log.write_and_sync(&group(&records, 0)).unwrap();
    check_replay(&disk.crash(&CrashChoice::None), &from, &[vec![1; 10], large, vec![3; 10]]);
    assert!(log.stats().frame_count > 3);
}

#[test]
fn a_frame_longer_than_a_slice_is_replayed() {
    let disk = disk(4);
    let geometry = Geometry { segment_bytes_min: 8 << 20, segment_bytes_max: 8 << 20, ..geometry() };
    let (log, from) =
        Log::create(&shared(&disk), dir(), identity(), geometry, SyncMethod::Dsync, CommitSeq(0)).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    log.write_and_sync(&group(&[record(1, large.clone()), record(2, vec![5; 5])], 0)).unwrap();
    let mut found = Vec::new();
    recover(
        &disk.crash(&CrashChoice::None),
        dir(),
        identity(),
        &geometry,
        &from,
        &reading(2),
        &mut |record, ()| {
            found.push(record.bytes);
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(found, [large, vec![5; 5]]);
}

/// Frames read ahead by any number of threads are delivered in order, each with its own note.
#[test]
fn records_come_in_order_however_many_threads_read_them() {
    let disk = disk(5);
    let geometry = Geometry { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..geometry() };
    let (log, from) =
        Log::create(&shared(&disk), dir(), identity(), geometry, SyncMethod::Dsync, CommitSeq(0)).unwrap();
    let mut wanted = Vec::new();
    for first in (1..=300).step_by(3) {
        let records = records(first, first + 2, 1);
        log.write_and_sync(&group(&records, first - 1)).unwrap();
        wanted.extend((first..first + 3).map(|seq| content(seq, 1)));
    }
    for (threads, ahead_bytes) in [(1, 1 << 20), (2, 0), (2, 20_000), (3, 1 << 20), (8, 5000)] {
        let mut found = Vec::new();
        let reading = Reading { threads, ahead_bytes, note: &|bytes: &[u8]| (bytes.len(), xxh3_128(bytes)) };
        let mut visit = |record: ReplayedRecord, note| {
            assert_eq!(note, (record.bytes.len(), xxh3_128(&record.bytes)));
            assert_eq!(record.seq.0, found.len() as u64 + 1);
            found.push(record.bytes);
            Ok(())
        };
        recover(&disk, dir(), identity(), &geometry, &from, &reading, &mut visit).unwrap();
        assert_eq!(found, wanted, "{threads} threads, {ahead_bytes} bytes ahead");
    }
}

/// Once the superblock has moved on, segments are reused and the log stops growing.
#[test]
fn recycling_bounds_the_log() {
    let disk = disk(5);
    let (log, mut from) = create(&disk, SyncMethod::Fdatasync);
    let mut wanted = Vec::new();
    for seq in 1..=400 {
        commit(&log, seq, content(seq, 0));
        wanted.push(content(seq, 0));
        if seq % 20 == 0 {
            from = log.position();
            wanted.clear();
            log.recycle(&from);
            while log.needs_spare() {
                log.prepare_spare(&mut |_| ()).unwrap();
            }
        }
    }
    assert!(log.stats().segment_count < 20, "{:?}", log.stats());
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
}

#[test]
fn a_full_disk_refuses_before_the_first_byte_and_keeps_a_reserve() {
    let disk = disk(6);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    while log.needs_spare() {
        log.prepare_spare(&mut |_| ()).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    let error = loop {
        let seq = wanted.len() as u64 + 1;
        if log.needs_spare() {
            assert_eq!(log.prepare_spare(&mut |_| ()).unwrap_err().kind(), ErrorKind::Full);
        }
        match log.write_and_sync(&group(&[record(seq, vec![9; 300])], seq - 1)) {
            Ok(_) => wanted.push(vec![9; 300]),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, LogWriteError::Full(_)), "{error:?}");
    assert_eq!(log.stats().spare_count, 1);
    // A group larger than all the room changes nothing either.
    let seq = wanted.len() as u64 + 1;
    let large = [record(seq, vec![1; 50_000])];
    let error = log.write(&Group { use_reserve: true, ..group(&large, 0) }).unwrap_err();
    assert!(matches!(error, LogWriteError::Full(_)), "{error:?}");
    check_replay(&disk.crash(&CrashChoice::All), &from, &wanted);
    // A delete may use the reserve.
    let delete = [record(seq, vec![2; 300])];
    log.write_and_sync(&Group { use_reserve: true, ..group(&delete, 0) }).unwrap();
    wanted.push(vec![2; 300]);
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
    assert_eq!(disk.files().len(), 3, "what could not be prepared was removed");
}

#[test]
fn a_write_that_took_no_byte_leaves_the_end_where_it_was() {
    let disk = disk(7);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1; 100]);
    let end = log.position();
    for (effect, full) in [(Effect::EIO, false), (Effect::ENOSPC, true)] {
        disk.set_faults(Fault::new(CallKind::Write, 0, effect));
        let error = log.write(&group(&[record(2, vec![2; 100])], 1)).unwrap_err();
        assert_eq!(matches!(error, LogWriteError::Full(_)), full);
        assert_eq!(matches!(error, LogWriteError::Refused(_)), !full);
        assert_eq!(log.position(), end);
    }
    commit(&log, 2, vec![3; 100]);
    check_replay(&disk.crash(&CrashChoice::None), &from, &[vec![1; 100], vec![3; 100]]);
}

/// D6: after a partial write or a failed sync the log refuses all writes.
#[test]
fn a_failed_sync_or_partial_write_ends_the_log() {
    for fault in [
        Fault::new(CallKind::Sync, 0, Effect::EIO),
        Fault::new(CallKind::Write, 0, Effect::ShortWrite(ErrorKindIo::Other)),
    ] {
        for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
            let disk = disk(8);
            let (log, _) = create(&disk, sync);
            disk.set_faults(FaultPlan::none().with(fault.clone()));
            let error = log.write_and_sync(&group(&[record(1, vec![1; 100])], 0)).unwrap_err();
            assert!(error.is_in_doubt(), "{error:?}");
            assert_eq!(disk.fault_hit_count(), 1);
            let writes = disk.call_counts().of(CallKind::Write);
            let again = log.write(&group(&[record(1, vec![1; 100])], 0)).unwrap_err();
            assert_eq!(again.error().kind(), ErrorKind::Poisoned);
            assert_eq!(log.sync().unwrap_err().0.kind(), ErrorKind::Poisoned);
            assert_eq!(disk.call_counts().of(CallKind::Write), writes);
        }
    }
}

#[test]
fn a_group_that_does_not_continue_the_log_is_refused() {
    let disk = disk(10);
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    for bad in [group(&[record(2, vec![])], 0), group(&[record(1, vec![])], 1)] {
        assert!(
            matches!(log.write(&bad), Err(LogWriteError::Refused(error)) if error.kind() == ErrorKind::Invalid)
        );
    }
    commit(&log, 1, vec![]);
}

#[test]
fn commit_times_never_go_back() {
    let disk = disk(11);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    disk.set_wall_clock(5);
    commit(&log, 2, vec![2]);
    let recovered = check_replay(&disk, &from, &[vec![1], vec![2]]);
    let log = reopen(&disk, &recovered).unwrap();
    commit(&log, 3, vec![3]);
    check_replay(&disk, &from, &[vec![1], vec![2], vec![3]]);
}

#[test]
fn creation_cut_short_is_repeated_and_a_log_with_commits_is_not_overwritten() {
    let disk = disk(12);
    disk.write_file("/wal/00000001.wal", &[0; 700]).unwrap();
    disk.write_file("/wal/00000002.wal", &[]).unwrap();
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    drop(log);
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    let error =
        Log::create(&shared(&disk), dir(), identity(), geometry(), SyncMethod::Fdatasync, CommitSeq(0))
            .unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
}

/// A spare whose preparation was cut short is finished, neither left out nor trusted.
#[test]
fn an_unfinished_spare_is_finished_after_a_crash() {
    let disk = disk(13);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    disk.write_file("/wal/00000002.wal", &[0; 1000]).unwrap();
    let recovered = check_replay(&disk, &from, &[vec![1]]);
    let log = reopen(&disk, &recovered).unwrap();
    assert_eq!(log.stats().segment_count, 2);
    let mut wanted = vec![vec![1]];
    for seq in 2..=30 {
        commit(&log, seq, vec![seq as u8; 300]);
        wanted.push(vec![seq as u8; 300]);
    }
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
}

#[test]
fn spares_are_prepared_and_synced_while_others_write() {
    let disk = disk(14);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                log.prepare_spare(&mut |_| ()).unwrap();
                log.sync().unwrap();
                assert!(log.stats().segment_count > 0);
            }
        });
        for seq in 1..=300 {
            log.write(&group(&[record(seq, content(seq, 0))], 0)).unwrap();
            if seq % 5 == 0 {
                assert_eq!(log.sync().unwrap().seq.0, seq);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let wanted: Vec<Vec<u8>> = (1..=300).map(|seq| content(seq, 0)).collect();
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
}

/// The background rests while it makes a segment. A writer must not wait for those rests.
#[test]
fn a_rest_ends_as_soon_as_somebody_is_in_a_hurry() {
    let (log, _) = create(&disk(9), SyncMethod::Fdatasync);
    let day_ns = 24 * 3_600_000_000_000;
    crate::threads::side_by_side(&[false, true], |hurries| {
        if hurries { log.hurry() } else { assert!(!log.rest(day_ns)) }
    });
}

/// D7: the segments that a closed log keeps are usable for the next opening.
///
/// Also if they were used before and no mark frame was written since: a full disk has no room for another
/// one.
#[test]
fn a_log_at_rest_opens_on_a_full_disk() {
    let disk = disk(51);
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    for seq in 1..=12 {
        commit(&log, seq, vec![1; 2000]);
    }
    log.write_mark(CommitSeq(12)).unwrap();
    log.sync().unwrap();
    let from = log.position();
    log.recycle(&from);
    log.trim().unwrap();
    drop(log);
    let disk = disk.crash(&CrashChoice::None);
    disk.set_capacity(Some(disk.used_bytes()));
    let recovered = check_replay(&disk, &from, &[]);
    reopen(&disk, &recovered).unwrap();
}

/// A log whose current segment is large goes on in a small one, and loses nothing at any cut. The large one
/// is free after the next checkpoint.
#[test]
fn a_log_goes_on_in_its_smallest_segment() {
    let disk = disk(52);
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    let mut last = 0;
    while log.state().head.segment.bytes == geometry().segment_bytes_min {
        last += 1;
        commit(&log, last, vec![7; 1000]);
    }
    let from = log.position();
    log.recycle(&from);
    let wanted = [vec![8; 100], vec![9; 100]];
    commit(&log, last + 1, wanted[0].clone());

    disk.record();
    let end =
        log.begin_smallest_segment(CommitSeq(last + 1)).unwrap().expect("a smaller one is ready").position;
    check_replay(&disk.crash(&CrashChoice::None), &end, &[]);
    assert_eq!(log.state().head.segment.bytes, geometry().segment_bytes_min);
    assert!(log.begin_smallest_segment(CommitSeq(last + 1)).unwrap().is_none(), "no ready one is smaller");
    commit(&log, last + 2, wanted[1].clone());
    let trace = disk.stop_recording();
    for at in 0..=trace.len() {
        for seed in 0..100 {
            let cut = trace.crash_image(at, &CrashChoice::Random { seed });
            let recovered = replay(&cut, &from).unwrap().0;
            assert!(recovered.last_seq.0 > last, "seed {seed}: commit {} is lost at cut {at}", last + 1);
        }
    }
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
    let before = log.stats().segment_bytes;
    log.recycle(&end);
    log.trim().unwrap();
    assert!(log.stats().segment_bytes < before, "the large one is let go");
    check_replay(&disk.crash(&CrashChoice::None), &end, &wanted[1..]);
}

/// A close does not prepare segments that only a running database needs. It leaves one, because the next
/// opening may find the disk full (D7).
#[test]
fn a_log_that_is_closed_prepares_what_the_next_opening_needs_and_no_more() {
    let disk = MemDisk::new(22);
    disk.create_dir(dir()).unwrap();
    let geometry = Geometry { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..geometry() };
    let (log, _) =
        Log::create(&shared(&disk), dir(), identity(), geometry, SyncMethod::Fdatasync, CommitSeq(0))
            .unwrap();
    log.prepare_spare(&mut |_| ()).unwrap();
    let mut slices = 0;
    log.prepare_spare(&mut |_| {
        slices += 1;
        log.end_preparing();
    })
    .unwrap();
    assert_eq!((slices, log.stats().spare_count), (1, 1));
    assert_eq!(disk.files().len(), 3);
    log.trim().unwrap();
    assert_eq!(disk.files().len(), 2, "what was begun gives its room back");

    commit_to_the_end(&log);
    assert_eq!(log.stats().spare_count, 0);
    log.prepare_spare(&mut |_| ()).unwrap();
    assert_eq!(log.stats().spare_count, 1, "also at the end");
}

fn commit_to_the_end(log: &Log) {
    for seq in 1..=5 {
        commit(log, seq, vec![1; 250 << 10]);
    }
}
