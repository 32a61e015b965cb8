//! State broken on purpose: the log stops before it writes what recovery would not bring back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::alarm::Alarm;
use crate::ids::Epoch;
use crate::wal::buffer::{AlignedBuffer, SliceWriter};
use crate::wal::frame::{self, FrameHeader, FrameKind};
use crate::wal::segment::segment_path;
use crate::wal::state::{Head, UsedSegment};

/// Which invariant the work breaks. The alarm of its database is raised.
fn broken(work: impl FnOnce()) -> String {
    let alarm = Alarm::new();
    let within = alarm.enter();
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("no invariant is broken");
    drop(within);
    assert!(alarm.check().is_err());
    *panic.downcast::<String>().unwrap()
}

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
        assert!(broken(|| log.state().advance(head, &[])).contains("the log grows"));
    }
    let beyond = Head { offset: next.segment.bytes + 512, ..next.clone() };
    assert!(broken(|| log.state().advance(beyond, &[])).contains("in its segment"));
    log.state().head.commit_time_ns = u64::MAX;
    assert!(broken(|| log.state().advance(next, &[])).contains("is not before"));
}

#[test]
fn a_segment_that_is_in_use_is_not_begun_again() {
    let (_disk, log) = log_of(1);
    let UsedSegment { epoch, segment } = log.state().used[0].clone();
    for (epoch, what) in [(epoch, "begins epoch"), (epoch.next(), "has one use")] {
        log.state().ready.push_front(Arc::clone(&segment));
        let taken = UsedSegment { epoch, segment: Arc::clone(&segment) };
        let next = next_head(&log);
        assert!(broken(|| log.state().advance(next, &[taken])).contains(what));
    }
    log.state().ready.push_back(segment);
    assert!(broken(|| drop(log.write_mark(CommitSeq(1)))).contains("is a spare"));
}

#[test]
fn the_watermark_names_what_was_synced_and_never_goes_back() {
    let (_disk, log) = log_of(3);
    for seq in [2, 4] {
        assert!(
            broken(|| log.state().set_durable(CommitSeq(seq))).contains("is synced, after 3 and up to 3")
        );
    }
    log.write(&group(&[record(4, vec![4])], 3)).unwrap();
    let early = [record(5, vec![5])];
    assert!(broken(|| drop(log.write(&group(&early, 4)))).contains("before a frame calls it durable"));
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
    let behind = LogPosition { epoch: end.epoch.next(), ..end };
    for wrong in [before, behind] {
        assert!(broken(|| log.recycle(&wrong)).contains("the log is kept from"));
    }

    let (log, _) = create(&disk(62), SyncMethod::Fdatasync);
    for seq in 1..=12 {
        log.write(&group(&[record(seq, vec![1; 600])], 0)).unwrap();
    }
    assert!(broken(|| log.recycle(&log.position())).contains("is synced before its reuse"));
}

#[test]
fn slots_have_no_gap() {
    let (_disk, log) = log_of(1);
    let segment = log.state().used[0].segment.clone();
    assert!(broken(|| log.state().add_spare(segment)).contains("have no gap"));
}

#[test]
fn a_frame_that_contradicts_itself_is_not_written() {
    let mark = FrameHeader {
        kind: FrameKind::Mark,
        part_count: 0,
        payload_bytes: 0,
        epoch: Epoch(1),
        offset: 512,
        first_seq: CommitSeq(4),
        last_seq: CommitSeq(3),
        durable_seq: CommitSeq(3),
        commit_time_ns: 5,
        incarnation: 6,
        previous_checksum: 7,
    };
    assert_eq!(frame::encode(&mark, &[], &identity()).0.len(), frame::FRAME_HEADER_BYTES);
    for wrong in [FrameHeader { part_count: 1, ..mark }, FrameHeader { kind: FrameKind::Group, ..mark }] {
        assert!(broken(|| drop(frame::encode(&wrong, &[], &identity()))).contains("has a table of 0"));
    }
    let early = FrameHeader { durable_seq: CommitSeq(4), ..mark };
    assert!(broken(|| drop(frame::encode(&early, &[], &identity()))).contains("calls no later one durable"));
}

#[test]
fn a_buffer_without_room_is_an_alarm_and_no_endless_loop() {
    let (disk, log) = log_of(1);
    let access = duramen_disk::Access::WRITE;
    let file = disk.open(&segment_path(dir(), log.position().slot), access).unwrap();
    let mut buffer = AlignedBuffer::default();
    let mut writer = SliceWriter::new(&*file, &mut buffer, 512);
    assert!(broken(|| drop(writer.push(&[1]))).contains("made ready"));
}
