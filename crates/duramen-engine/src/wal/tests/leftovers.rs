//! What crashes leave over: nothing chains to it, and it is not reported as corruption (D2, D5).

use std::io::ErrorKind as IoErrorKind;

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan, OpKind, SyncGate};
use duramen_disk::{Access, Disk};

use super::*;
use crate::ids::Epoch;
use crate::wal::frame::{self, FrameHeader, FrameKind, Part};
use crate::wal::segment::segment_path;

/// An old tail that was copied, and a newer one that was lost, are not brought back.
#[test]
fn leftovers_of_lost_groups_are_neither_chained_to_nor_an_alarm() {
    let disk = disk(23);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    // Only the second of two groups reaches the disk: the tail is torn, and a valid frame lies after it.
    log.write(&group(&[record(2, vec![22])], 1)).unwrap();
    log.write(&group(&[record(3, vec![33])], 1)).unwrap();
    let image = disk.crash(&CrashChoice::Only(1));
    let recovered = check_replay(&image, &from, &[vec![1]]);
    assert!(recovered.torn);
    let log = reopen(&image, &recovered).unwrap();
    commit(&log, 2, vec![2]);
    let recovered = check_replay(&image, &from, &[vec![1], vec![2]]);
    let log = reopen(&image, &recovered).unwrap();
    commit(&log, 3, vec![3]);
    check_replay(&image.crash(&CrashChoice::None), &from, &[vec![1], vec![2], vec![3]]);
}

/// Several opens in a row continue the same frame; only the last of them may be followed.
#[test]
fn of_several_segments_that_continue_a_frame_the_newest_is_followed() {
    let disk = disk(41);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    let mut epoch = log.position().epoch;
    for _ in 0..4 {
        let recovered = check_replay(&disk, &from, &[vec![1]]);
        drop(reopen(&disk, &recovered).unwrap());
    }
    let log = reopen(&disk, &check_replay(&disk, &from, &[vec![1]])).unwrap();
    commit(&log, 2, vec![2]);
    assert!(log.position().epoch > epoch);
    epoch = log.position().epoch;
    let recovered = check_replay(&disk.crash(&CrashChoice::None), &from, &[vec![1], vec![2]]);
    let log = reopen(&disk, &recovered).unwrap();
    commit(&log, 3, vec![3]);
    assert!(log.position().epoch > epoch);
    check_replay(&disk.crash(&CrashChoice::None), &from, &[vec![1], vec![2], vec![3]]);
}

/// D1: a sync of an open failed, and the kernel marks as clean what never reached the disk. The next open in
/// the same boot still reads it. What that open acknowledges must not depend on it.
#[test]
fn an_open_that_failed_is_nothing_to_build_on() {
    let mut failed = 0;
    for nth in 0.. {
        let disk = disk(43);
        let (log, from) = create(&disk, SyncMethod::Fdatasync);
        for seq in 1..=3 {
            commit(&log, seq, vec![seq as u8; 300]);
        }
        drop(log);
        let recovered = check_replay(&disk, &from, &[vec![1; 300], vec![2; 300], vec![3; 300]]);
        let gone = Effect::SyncErrorDataGone(IoErrorKind::Other);
        disk.set_faults(Fault::new(CallKind::Sync, nth, gone));
        let opened = reopen(&disk, &recovered);
        let is_over = disk.fault_hit_count() == 0;
        assert_eq!(opened.is_ok(), is_over, "sync {nth}");
        failed += u64::from(opened.is_err());
        drop(opened);
        disk.set_faults(FaultPlan::none());
        let mut wanted = vec![vec![1; 300], vec![2; 300], vec![3; 300]];
        // Several in a row; the last one commits.
        for _ in 0..2 {
            drop(reopen(&disk, &check_replay(&disk, &from, &wanted)).unwrap());
        }
        let log = reopen(&disk, &check_replay(&disk, &from, &wanted)).unwrap();
        commit(&log, 4, vec![4]);
        wanted.push(vec![4]);
        println!("sync {nth}");
        check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
        if is_over {
            break;
        }
    }
    assert!(failed > 3, "{failed} syncs failed an open");
}

/// The header of a segment reached the disk, the frames before it did not. Its epoch must not be reused.
#[test]
fn the_epoch_of_a_segment_off_the_chain_is_not_used_again() {
    let disk = disk(42);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    log.prepare_spare(&mut |_| ()).unwrap();
    commit(&log, 1, vec![1]);
    log.write(&group(&[record(2, vec![2; 2000])], 1)).unwrap();
    let written = log.write(&group(&[record(3, vec![3; 2000])], 1)).unwrap();
    assert!(written.position.epoch > from.epoch);
    let image = disk.crash(&CrashChoice::Only(1));
    let path = segment_path(dir(), written.position.slot);
    let mut bytes = image.read_file(&path).unwrap();
    bytes[512..].fill(0);
    image.write_file(&path, &bytes).unwrap();
    let recovered = check_replay(&image, &from, &[vec![1]]);
    let log = reopen(&image, &recovered).unwrap();
    commit(&log, 2, vec![4]);
    assert!(log.position().epoch > written.position.epoch);
    check_replay(&image.crash(&CrashChoice::None), &from, &[vec![1], vec![4]]);
}

/// A record of which the crash left only the beginning is dropped. The next commit takes its sequence.
#[test]
fn a_record_half_written_before_a_crash_is_dropped() {
    let disk = disk(43);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    commit(&log, 1, vec![1]);
    while log.needs_spare() {
        log.prepare_spare(&mut |_| ()).unwrap();
    }
    let pending_before = disk.pending_len();
    log.write(&group(&[record(2, vec![2; 20]), record(3, vec![3; 9000])], 1)).unwrap();
    assert!(disk.pending_len() > pending_before + 1);
    let image = disk.crash(&CrashChoice::Prefix(pending_before + 1));
    let recovered = check_replay(&image, &from, &[vec![1], vec![2; 20]]);
    assert!(recovered.torn);
    let log = reopen(&image, &recovered).unwrap();
    commit(&log, 3, vec![33]);
    let wanted = [vec![1], vec![2; 20], vec![33]];
    let recovered = check_replay(&image.crash(&CrashChoice::None), &from, &wanted);
    let log = reopen(&image, &recovered).unwrap();
    commit(&log, 4, vec![4]);
    check_replay(&image.crash(&CrashChoice::None), &from, &[&wanted[..], &[vec![4]]].concat());
}

/// D6: after a failed sync the cache shows what the disk lacks. Opening again copies it to fresh blocks.
#[test]
fn what_a_failed_sync_left_in_the_cache_is_copied_to_fresh_blocks() {
    // A group; a mark frame; a group half of which a mark frame calls durable.
    for lost in 0..3 {
        let disk = disk(9);
        let (log, from) = create(&disk, SyncMethod::Fdatasync);
        for seq in 1..=3 {
            commit(&log, seq, vec![seq as u8; 100]);
        }
        let mut wanted: Vec<Vec<u8>> = (1..=3).map(|seq| vec![seq; 100]).collect();
        disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::SyncErrorDataGone(IoErrorKind::Other)));
        if lost != 0 {
            log.write_mark(CommitSeq(3)).unwrap();
        }
        if lost != 1 {
            log.write(&group(&[record(4, vec![4; 100])], 3)).unwrap();
            wanted.push(vec![4; 100]);
        }
        log.sync().unwrap_err();
        disk.set_faults(FaultPlan::none());
        let recovered = check_replay(&disk, &from, &wanted);
        let log = reopen(&disk, &recovered).unwrap();
        let end = log.position();
        commit(&log, wanted.len() as u64 + 1, vec![5]);
        let survivor = disk.crash(&CrashChoice::None);
        check_replay(&survivor, &end, &[vec![5]]);
        wanted.push(vec![5]);
        check_replay(&survivor, &from, &wanted);
    }
}

/// A copied group that does not fit into the first fresh segment must not become the log before it is synced.
#[test]
fn a_copy_longer_than_the_fresh_segment_is_not_the_log_before_it_is_whole() {
    // The record takes three segments of 4096 bytes; the copy finds one of 8192 and fits the next of 16384.
    let geometry = Geometry { segment_bytes_max: 16384, ..geometry() };
    let disk = disk(46);
    let sync = SyncMethod::Fdatasync;
    let (log, from) = Log::create(&shared(&disk), dir(), identity(), geometry, sync, CommitSeq(0)).unwrap();
    let wanted = [vec![1; 9000]];
    commit(&log, 1, wanted[0].clone());
    let recovered = check_replay(&disk, &from, &wanted);
    disk.record();
    let log = Log::reopen(&shared(&disk), dir(), identity(), geometry, sync, continued(&recovered)).unwrap();
    assert_eq!(log.position().slot, SegmentSlot(5));
    let trace = disk.stop_recording();
    for at in 0..=trace.len() {
        for seed in 0..100 {
            check_replay(&trace.crash_image(at, &CrashChoice::Random { seed }), &from, &wanted);
        }
    }
}

/// D7: an opening that copies more than one segment is killed several times before its copy is part of the
/// log. The log grows once, not by a copy each time.
#[test]
fn copies_that_were_interrupted_do_not_pile_up() {
    let geometry = Geometry { segment_bytes_max: 8192, ..geometry() };
    let disk = disk(50);
    let sync = SyncMethod::Fdatasync;
    let (log, from) = Log::create(&shared(&disk), dir(), identity(), geometry, sync, CommitSeq(0)).unwrap();
    let wanted = [vec![1; 30_000]];
    commit(&log, 1, wanted[0].clone());
    drop(log);
    let mut disk = disk.crash(&CrashChoice::All);
    let mut counts = Vec::new();
    for _ in 0..12 {
        let recovered = check_replay(&disk, &from, &wanted);
        disk.record();
        Log::reopen(&shared(&disk), dir(), identity(), geometry, sync, continued(&recovered)).unwrap();
        let trace = disk.stop_recording();
        // The header of the copy's first segment is written after those of its others: it makes the copy
        // part of the log.
        let writes = |at: &usize| trace.op(*at).kind == OpKind::Write;
        let first = (0..trace.len()).find(writes).expect("it copies");
        let path = trace.op(first).path;
        let is_its_header =
            |at: &usize| writes(at) && trace.op(*at).offset == 0 && trace.op(*at).path == path;
        let last = (0..trace.len()).rfind(is_its_header).expect("headers are written");
        disk = trace.crash_image(last, &CrashChoice::All);
        counts.push(disk.files().len());
    }
    assert!(counts[0] > 5, "the copy takes several segments: {counts:?}");
    assert_eq!(counts[11], counts[1], "{counts:?}");
    check_replay(&disk, &from, &wanted);
}

/// D1, D7: an opening frees the segments that its copy supersedes, so that openings that are killed take no
/// segment each. Until the header of the copy is durable, a superseded segment may be the log.
#[test]
fn superseded_segments_are_freed_behind_a_durable_header() {
    let mut reused_count = 0;
    for nth in 0..8 {
        let disk = disk(53);
        let (log, from) = create(&disk, SyncMethod::Fdatasync);
        let wanted = [vec![1; 100], vec![2; 100]];
        commit(&log, 1, wanted[0].clone());
        drop(log);
        let log = reopen(&disk, &check_replay(&disk, &from, &wanted[..1])).unwrap();
        log.write_and_sync(&group(&[record(2, wanted[1].clone())], 0)).unwrap();
        drop(log);
        disk.record();
        // It copies a commit, and perhaps a write of it does not reach the disk.
        let gone = Effect::SyncErrorDataGone(IoErrorKind::Other);
        disk.set_faults(Fault::new(CallKind::Sync, nth, gone).on(".wal"));
        drop(reopen(&disk, &check_replay(&disk, &from, &wanted)));
        disk.set_faults(FaultPlan::none());
        let begun = disk.files().len();
        for _ in 0..6 {
            drop(reopen(&disk, &check_replay(&disk, &from, &wanted)).unwrap());
        }
        reused_count += begun + 2 - disk.files().len();
        let trace = disk.stop_recording();
        for at in 0..=trace.len() {
            for seed in 0..100 {
                check_replay(&trace.crash_image(at, &CrashChoice::Random { seed }), &from, &wanted);
            }
        }
    }
    assert!(reused_count >= 8, "superseded segments were used again {reused_count} times");
}

/// D1: an opening that failed during its copy leaves a segment whose header no sync covers. The next opening
/// keeps it as a spare, and a close empties it. If the header lands after the emptying, it stands in a file
/// of another length.
#[test]
fn a_segment_that_no_sync_covers_is_synced_before_it_is_emptied() {
    let geometry = Geometry { segment_bytes_max: 16384, ..geometry() };
    let sync = SyncMethod::Fdatasync;
    let mut emptied_count = 0;
    for nth in 0..12 {
        let disk = disk(49);
        let (log, from) =
            Log::create(&shared(&disk), dir(), identity(), geometry, sync, CommitSeq(0)).unwrap();
        let wanted = [vec![1; 9000]];
        commit(&log, 1, wanted[0].clone());
        disk.record();
        let open = |recovered: &Recovered| {
            Log::reopen(&shared(&disk), dir(), identity(), geometry, sync, continued(recovered))
        };
        // More of them than the spares that are kept.
        let mut failed_count = 0;
        for _ in 0..4 {
            disk.set_faults(Fault::new(CallKind::Sync, nth, Effect::EIO).on(".wal"));
            failed_count += u32::from(open(&check_replay(&disk, &from, &wanted)).is_err());
            disk.set_faults(FaultPlan::none());
        }
        if failed_count > 0 {
            let log = open(&check_replay(&disk, &from, &wanted)).unwrap();
            let trimmed_at = disk.recorded_len();
            log.trim().unwrap();
            let trace = disk.stop_recording();
            for at in trimmed_at..=trace.len() {
                emptied_count += u32::from(at < trace.len() && trace.describe(at).starts_with("SetLen"));
                for seed in 0..200 {
                    check_replay(&trace.crash_image(at, &CrashChoice::Random { seed }), &from, &wanted);
                }
            }
        }
    }
    assert!(emptied_count > 0, "a close has emptied segments");
}

/// A mark frame may name a commit in a frame that also begins another: the log goes on before that frame.
#[test]
fn an_open_never_goes_on_from_the_middle_of_a_record() {
    let disk = disk(47);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    let wanted = [vec![1; 10], vec![2; 20], vec![3; 9000], vec![4; 10]];
    commit(&log, 1, wanted[0].clone());
    log.write_and_sync(&group(&[record(2, wanted[1].clone()), record(3, wanted[2].clone())], 1)).unwrap();
    log.write_and_sync(&group(&[record(4, wanted[3].clone())], 2)).unwrap();
    let recovered = check_replay(&disk, &from, &wanted);
    assert_eq!(recovered.marked_seq.0, 2);
    drop(reopen(&disk, &recovered).unwrap());
    check_replay(&disk.crash(&CrashChoice::None), &from, &wanted);
}

/// An otherwise valid frame that does not continue the chain is not followed.
#[test]
fn a_frame_that_does_not_continue_the_chain_is_not_followed() {
    let disk = disk(44);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    let end = commit(&log, 1, vec![1]).position;
    let file = disk.open(&segment_path(dir(), end.slot), Access::WRITE).unwrap();
    let mut block = vec![0; 512];
    file.read_at(&mut block, end.offset).unwrap();
    let last = frame::decode_header(&block, 512).unwrap();
    let right = FrameHeader {
        kind: FrameKind::Group,
        offset: end.offset + 512,
        first_seq: CommitSeq(2),
        last_seq: CommitSeq(2),
        previous_checksum: end.checksum,
        ..last
    };
    let wrong = [
        FrameHeader { previous_checksum: end.checksum ^ 1, ..right },
        FrameHeader { incarnation: right.incarnation ^ 1, ..right },
        FrameHeader { epoch: Epoch(right.epoch.0 + 1), ..right },
        FrameHeader { offset: right.offset + 512, ..right },
    ];
    let bytes = vec![9u8; 1];
    let checksum = record(2, bytes.clone()).checksum;
    let part = Part { bytes: 1, seq: CommitSeq(2), first: true, last: true, derived: false, checksum };
    for (header, follows) in wrong.iter().map(|header| (header, false)).chain([(&right, true)]) {
        let (mut block, _) = frame::encode(header, &[part], &identity());
        block.extend_from_slice(&bytes);
        block.resize(512, 0);
        file.write_at(&block, end.offset + 512).unwrap();
        let wanted = if follows { vec![vec![1], bytes.clone()] } else { vec![vec![1]] };
        check_replay(&disk, &from, &wanted);
    }
}

/// A write during a sync is not covered by it. The next sync must cover it.
#[test]
fn a_write_during_a_sync_is_synced_by_the_next() {
    let disk = disk(45);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    log.write(&group(&[record(1, vec![1])], 0)).unwrap();
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| log.sync().unwrap());
        gate.wait_blocked(1);
        log.write(&group(&[record(2, vec![2])], 0)).unwrap();
        gate.open();
        assert_eq!(first.join().unwrap().seq.0, 1);
    });
    assert_eq!(log.sync().unwrap().seq.0, 2);
    check_replay(&disk.crash(&CrashChoice::None), &from, &[vec![1], vec![2]]);
}
