//! A full disk: room is looked for before an append, and an append that had room never fails.

use super::*;
use crate::error::Code;

/// Whatever the appends and the order in which they are put together, what had room is written.
#[test]
fn an_append_that_had_room_is_written_on_a_full_disk() {
    let mut all_deletes = 0;
    for seed in 0..400 {
        let disk = disk(seed);
        let log = created(&disk);
        let mut random = Random::new(seed);
        let mut next = 101;
        append(&log, entries(next, next + random.below(30) as u64, 1));
        next = log.end().id.seq.0 + 1;
        disk.set_capacity(Some(disk.used_bytes() + random.below(3) as u64 * 4096));
        let mut refused = 0;
        while refused < 20 {
            let group = entries(next, next + random.below(4) as u64, 1);
            let (count, bytes) = (group.len(), group.iter().map(|entry| entry.bytes.len()).sum());
            let wanted = *random.pick(&[EntriesFor::Puts, EntriesFor::Puts, EntriesFor::Deletes]);
            match log.hold_room(count, bytes, wanted) {
                Ok(room) => {
                    next += count as u64;
                    log.append(group, Calls::default().done()).unwrap();
                    drop(room);
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::DiskFull, "{error}");
                    refused += 1;
                }
            }
            if random.chance(1, 3) {
                log.step().unwrap();
            }
        }
        log.step().unwrap();
        // What is too large for the room that is left may be refused before the log is full.
        assert!(log.is_full() || log.has_room(1, 100, EntriesFor::Puts).is_some());
        let small = |seq| vec![Entry { bytes: Arc::from([7; 8]), ..entry(seq, 1, 0) }];
        let mut deletes = 0;
        while let Ok(room) = log.hold_room(1, 8, EntriesFor::Deletes) {
            append(&log, small(next));
            drop(room);
            (next, deletes) = (next + 1, deletes + 1);
        }
        all_deletes += deletes;
        // Consensus has entries of its own.
        for _ in 0..2 {
            let room = log.hold_room(1, 8, EntriesFor::Consensus).unwrap();
            append(&log, small(next));
            drop(room);
            next += 1;
        }
        assert_eq!(log.end().id.seq, log.synced(), "seed {seed}");
        let wanted = all(&log);
        log.close().unwrap();
        drop(log);
        disk.set_capacity(None);
        let (log, _) = open(&disk).unwrap();
        assert_eq!(all(&log), wanted);
        log.step().unwrap();
        assert!(!log.is_full(), "there is room again");
        assert!(log.hold_room(3, 9_000, EntriesFor::Puts).is_ok());
    }
    assert!(all_deletes > 800, "{all_deletes} deletes on full disks");
}

/// Each cut takes a segment. What had room is cut, and the rest stays as it is.
#[test]
fn a_cut_that_had_room_is_made_on_a_full_disk() {
    let mut cuts = 0;
    for seed in 0..200 {
        let disk = disk(seed);
        let log = created(&disk);
        let mut random = Random::new(seed);
        append(&log, entries(101, 101 + random.below(30) as u64, 1));
        let decided = log.end().id.seq;
        log.decide(decided).unwrap();
        // The frame says what is decided.
        append(&log, entries(decided.0 + 1, decided.0 + 1 + random.below(5) as u64, 1));
        disk.set_capacity(Some(disk.used_bytes() + random.below(12) as u64 * 4096));
        let (mut term, mut refused) = (1, 0);
        while refused < 3 {
            let end = log.end().id.seq;
            let kept = CommitSeq(decided.0.max(end.0 - random.below(4) as u64));
            let group = entries(kept.0 + 1, kept.0 + 1 + random.below(4) as u64, term + 1);
            let (count, bytes) = (group.len(), group.iter().map(|entry| entry.bytes.len()).sum());
            match log.hold_room_to_cut(kept, count, bytes) {
                Ok(room) => {
                    // What fails, the step below tells.
                    log.cut_after(kept, Box::new(drop)).unwrap();
                    log.append(group, Box::new(drop)).unwrap();
                    (term, cuts) = (term + 1, cuts + 1);
                    drop(room);
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::DiskFull, "{error}");
                    refused += 1;
                }
            }
            log.step().unwrap();
        }
        assert_eq!(log.end().id.seq, log.synced(), "seed {seed}");
        let wanted = all(&log);
        log.close().unwrap();
        drop(log);
        disk.set_capacity(None);
        assert_eq!(all(&open(&disk).unwrap().0), wanted);
    }
    assert!(cuts > 200, "{cuts} cuts on full disks");
}

/// How many entries of consensus a full disk takes, which nothing holds room for, if a watermark is due after
/// each of them, or never.
fn taken_by_a_full_disk(seed: u64, marks: bool) -> u64 {
    let disk = disk(seed);
    let log = created(&disk);
    let mut random = Random::new(seed);
    append(&log, entries(101, 101 + random.below(30) as u64, 1));
    disk.set_capacity(Some(disk.used_bytes() + random.below(3) as u64 * 4096));
    let mut next = log.end().id.seq.0 + 1;
    let small = |seq| vec![Entry { bytes: Arc::from([7; 8]), ..entry(seq, 1, 0) }];
    while let Ok(room) = log.hold_room(1, 8, EntriesFor::Deletes) {
        append(&log, small(next));
        drop(room);
        next += 1;
    }
    let first = next;
    loop {
        // What fails, the step tells.
        let _ = log.append(small(next), Box::new(drop));
        if log.step().is_err() {
            return next - first;
        }
        if marks {
            log.decide(CommitSeq(next)).unwrap();
            disk.advance_clock(2 * crate::limits::MARK_IDLE_MS * 1_000_000);
            log.step().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        next += 1;
    }
}

/// The last blocks are for entries of consensus: watermarks take none of them.
#[test]
fn watermarks_take_no_room_on_a_full_disk() {
    for seed in 0..100 {
        let taken = taken_by_a_full_disk(seed, false);
        assert!(taken > 0, "seed {seed}");
        assert_eq!(taken_by_a_full_disk(seed, true), taken, "seed {seed}");
    }
}

/// The last frame may end with its segment, so that a watermark would need another one.
#[test]
fn a_watermark_without_room_does_not_end_the_log() {
    let mut full = 0;
    for count in 1..120 {
        let disk = disk(count);
        let log = created(&disk);
        disk.set_capacity(Some(disk.used_bytes()));
        let small = |seq| vec![Entry { bytes: Arc::from([7; 8]), ..entry(seq, 1, 0) }];
        for seq in 101..=100 + count {
            // What fails, the log tells. No segment is made ahead.
            let _ = log.append(small(seq), Box::new(drop));
            log.step_once();
        }
        if log.failure().is_some() {
            full += 1;
            continue;
        }
        log.decide(CommitSeq(100 + count)).unwrap();
        log.close().unwrap_or_else(|error| panic!("{count} entries: {error}"));
    }
    assert!(full > 0, "some fill the disk");
}
