//! State broken on purpose: the log stops before it writes what recovery would not bring back.

use super::*;
use crate::alarm::cause_of;
use crate::ids::Epoch;
use crate::wal::buffer::{AlignedBuffer, SliceWriter};
use crate::wal::segment::segment_path;
use crate::wal::state::{Head, UsedSegment};

/// A log with this many commits, one frame each, over several segments.
fn log_of(commits: u64) -> (MemDisk, Log) {
    let disk = disk(61);
    let (log, _) = create(&disk, SyncMethod::Fdatasync);
    for seq in 1..=commits {
        commit(&log, seq, vec![seq as u8; 600]);
    }
    (disk, log)
}

/// The end of a log after another frame of two blocks.
fn next_head(log: &Log) -> Head {
    let mut head = log.state().head.clone();
    head.last.offset = head.offset;
    head.offset += 1024;
    head
}

#[test]
fn the_position_of_the_log_grows() {
    let (_disk, log) = log_of(1);
    let next = next_head(&log);
    let back = [
        Head { last: log.position(), ..next.clone() },
        Head { last: LogPosition { epoch: Epoch(0), ..next.last }, ..next.clone() },
        Head { last: LogPosition { seq: CommitSeq(0), ..next.last }, ..next.clone() },
    ];
    for head in back {
        assert!(cause_of(|| log.state().advance(head, &[])).contains("the log grows"));
    }
    let beyond = Head { offset: next.segment.bytes + 512, ..next.clone() };
    assert!(cause_of(|| log.state().advance(beyond, &[])).contains("in its segment"));
    log.state().head.commit_time_ns = u64::MAX;
    assert!(cause_of(|| log.state().advance(next, &[])).contains("is not before"));
}

#[test]
fn a_segment_that_is_in_use_is_not_begun_again() {
    let (_disk, log) = log_of(1);
    let UsedSegment { epoch, segment } = log.state().used[0].clone();
    for (epoch, what) in [(epoch, "begins epoch"), (epoch.next(), "has one use")] {
        log.state().ready.push_front(Arc::clone(&segment));
        let taken = UsedSegment { epoch, segment: Arc::clone(&segment) };
        let next = next_head(&log);
        assert!(cause_of(|| log.state().advance(next, &[taken])).contains(what));
    }
    log.state().ready.push_back(segment);
    assert!(cause_of(|| drop(log.write_mark(CommitSeq(1)))).contains("is a spare"));
}

#[test]
fn the_watermark_names_what_was_synced_and_never_goes_back() {
    let (_disk, log) = log_of(3);
    for seq in [2, 4] {
        assert!(
            cause_of(|| log.state().set_durable(CommitSeq(seq))).contains("is synced, after 3 and up to 3")
        );
    }
    log.write(&group(&[record(4, vec![4])], 3)).unwrap();
    let early = [record(5, vec![5])];
    assert!(cause_of(|| drop(log.write(&group(&early, 4)))).contains("before a frame calls it durable"));
    assert_eq!(log.sync().unwrap().seq.0, 4);
    log.write(&group(&early, 4)).unwrap();
}

#[test]
fn segments_are_reused_when_they_are_synced_and_no_position_needs_them() {
    let (_disk, log) = log_of(12);
    let end = log.position();
    assert!(end.epoch > Epoch(2));
    log.recycle(&end);
    let before = LogPosition { epoch: Epoch(end.epoch.0 - 1), ..end };
    let after = LogPosition { epoch: end.epoch.next(), ..end };
    for wrong in [before, after] {
        assert!(cause_of(|| log.recycle(&wrong)).contains("the log is kept from"));
    }

    let (log, _) = create(&disk(62), SyncMethod::Fdatasync);
    for seq in 1..=12 {
        log.write(&group(&[record(seq, vec![1; 600])], 0)).unwrap();
    }
    assert!(cause_of(|| log.recycle(&log.position())).contains("is synced before its reuse"));
}

#[test]
fn slots_have_no_gap() {
    let (_disk, log) = log_of(1);
    let segment = log.state().used[0].segment.clone();
    assert!(cause_of(|| log.state().add_spare(segment)).contains("have no gap"));
}

#[test]
fn a_buffer_without_room_is_an_alarm_and_no_endless_loop() {
    let (disk, log) = log_of(1);
    let access = duramen_disk::Access::WRITE;
    let file = disk.open(&segment_path(dir(), log.position().slot), access).unwrap();
    let mut buffer = AlignedBuffer::default();
    let mut writer = SliceWriter::new(&*file, &mut buffer, 512);
    assert!(cause_of(|| drop(writer.push(&[1]))).contains("made ready"));
}
