//! What Raft's log takes and refuses, and what its readers see.

use super::*;
use crate::error::Code;
use duramen_disk::memory::CallKind;

#[test]
fn entries_are_read_at_once_and_acknowledged_after_one_sync() {
    let disk = disk(1);
    let place = RaftPlace { geometry: Geometry::default(), ..place(&disk) };
    place.create(IDENT, None, BEGINS).unwrap();
    let (log, _) = place.open().unwrap();
    let calls = Calls::default();
    disk.reset_call_counts();
    for seq in 101..=110 {
        log.append(vec![entry(seq, 1, 0)], calls.done()).unwrap();
    }
    assert_eq!((all(&log), log.end().id.seq.0), (entries(101, 110, 1), 110));
    assert_eq!((calls.count(), log.synced().0), (0, 100), "nothing is acknowledged before its sync");
    log.inner.step();
    assert_eq!((calls.count(), log.synced().0), (10, 110));
    assert_eq!(disk.call_counts().of(CallKind::Sync), 1);
    drop(log);
    let (log, found) = place.open().unwrap();
    assert_eq!((found.last.seq.0, found.decided.0, found.vote), (110, 100, None));
    assert_eq!(all(&log), entries(101, 110, 1));
}

#[test]
fn what_does_not_follow_is_refused() {
    let disk = disk(2);
    let log = created(&disk);
    append(&log, entries(101, 103, 5));
    let refused = |entry: Entry| log.append(vec![entry], ignore()).unwrap_err().code();
    assert_eq!(refused(entry(103, 5, 1)), Code::InvalidArgument);
    assert_eq!(refused(entry(105, 5, 1)), Code::InvalidArgument);
    assert_eq!(refused(entry(104, 4, 1)), Code::InvalidArgument);
    assert_eq!(refused(Entry { time_ns: 1004, ..entry(104, 5, 1) }), Code::InvalidArgument);
    let long = vec![0; crate::limits::RAFT_ENTRY_BYTES_MAX + 1].into();
    assert_eq!(refused(Entry { bytes: long, ..entry(104, 5, 1) }), Code::TooLarge);
    assert_eq!(log.decide(CommitSeq(104)).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(log.purge(CommitSeq(101), ignore()).unwrap_err().code(), Code::InvalidArgument);
    for range in [100..101, 104..105, 102..102] {
        let range = CommitSeq(range.start)..CommitSeq(range.end);
        assert_eq!(log.entries(range, 1).unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(all(&log), entries(101, 103, 5), "nothing has changed");
}

#[test]
fn a_cut_takes_back_what_follows_and_another_term_goes_on() {
    let disk = disk(3);
    let log = created(&disk);
    append(&log, entries(101, 140, 1));
    log.decide(CommitSeq(112)).unwrap();
    let kept = log.end_after(CommitSeq(117)).unwrap();
    let calls = Calls::default();
    log.cut_after(CommitSeq(117), calls.done()).unwrap();
    assert_eq!((log.end(), log.synced().0), (kept, 117));
    let mut wanted = entries(101, 117, 1);
    let later: Vec<Entry> = (118..=123).map(|seq| entry(seq, 2, 9)).collect();
    wanted.extend(later.clone());
    log.append(later, calls.done()).unwrap();
    assert_eq!(all(&log), wanted, "readers see it before it is on disk");
    log.step().unwrap();
    assert_eq!((calls.count(), all(&log)), (2, wanted.clone()));
    drop(log);
    let (log, found) = open(&disk).unwrap();
    assert_eq!((all(&log), found.last), (wanted, EntryId { term: 2, seq: CommitSeq(123) }));
}

#[test]
fn a_cut_of_what_is_decided_ends_the_log() {
    let disk = disk(4);
    let log = created(&disk);
    append(&log, entries(101, 110, 1));
    log.decide(CommitSeq(105)).unwrap();
    assert_eq!(log.cut_after(CommitSeq(104), ignore()).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(log.append(vec![entry(111, 1, 0)], ignore()).unwrap_err().code(), Code::EnginePoisoned);
    assert!(log.failure().is_some());
    drop(log);
    assert_eq!(all(&open(&disk).unwrap().0), entries(101, 110, 1));
}

/// What is not decided is no loss when it is cut: no header may call it durable, however often the log was
/// opened in between.
#[test]
fn a_cut_after_an_opening_is_no_loss() {
    let disk = disk(5);
    let log = created(&disk);
    append(&log, entries(101, 130, 1));
    log.decide(CommitSeq(105)).unwrap();
    log.close().unwrap();
    let (log, found) = open(&disk).unwrap();
    assert_eq!(found.decided.0, 105);
    log.cut_after(CommitSeq(106), Calls::default().done()).unwrap();
    log.step().unwrap();
    drop(log);
    let (log, found) = open(&disk).unwrap();
    assert_eq!((all(&log), found.decided.0), (entries(101, 106, 1), 105));
}

#[test]
fn votes_come_back() {
    let disk = disk(6);
    let log = created(&disk);
    for term in 1..4 {
        let vote = Vote { term, node: 10 + term, leads: term == 2 };
        log.save_vote(vote, Calls::default().done()).unwrap();
        log.step().unwrap();
    }
    drop(log);
    assert_eq!(open(&disk).unwrap().1.vote, Some(Vote { term: 3, node: 13, leads: false }));
}

#[test]
fn purged_entries_give_their_segments_back() {
    let disk = disk(7);
    let log = created(&disk);
    for seq in 101..400 {
        append(&log, vec![entry(seq, 1, 0)]);
        log.decide(CommitSeq(seq)).unwrap();
        if seq % 10 == 0 {
            log.purge(CommitSeq(seq - 5), Calls::default().done()).unwrap();
            log.step().unwrap();
        }
    }
    let segments = disk.files().iter().filter(|path| path.extension().is_some_and(|e| e == "wal")).count();
    assert_eq!((all(&log), log.purged().id.seq.0), (entries(386, 399, 1), 385));
    drop(log);
    let (log, found) = open(&disk).unwrap();
    assert_eq!((all(&log), found.purged.id.seq.0), (entries(386, 399, 1), 385));
    assert!(segments < 30, "{segments} segments for 299 entries of 290 KiB together");
}

#[test]
fn a_log_that_was_long_gives_its_space_back() {
    let disk = disk(11);
    let log = created(&disk);
    (101..=250).for_each(|seq| append(&log, vec![entry(seq, 1, 0)]));
    drop(log);
    let (log, _) = open(&disk).unwrap();
    let known: Vec<u64> = (0..20).map(|_| log.end_before_last(32 * 1024).unwrap().0).collect();
    assert!(
        known[0] == 100 && known.is_sorted() && known[19] > 150,
        "where entries lie is learned: {known:?}"
    );
    (251..=400).for_each(|seq| append(&log, vec![entry(seq, 1, 0)]));
    let bytes = || disk.files().iter().map(|path| disk.read_file(path).unwrap().len() as u64).sum::<u64>();
    let long = bytes();
    assert!(!log.would_free(CommitSeq(101)).unwrap(), "its segment holds the next entry, too");
    assert!(log.would_free(CommitSeq(200)).unwrap());
    let kept = log.end_before_last(128 * 1024).unwrap();
    assert!((250..350).contains(&kept.0), "{kept}");
    assert_eq!(log.end_before_last(1 << 30).unwrap().0, 100, "less than that is there: none is let go");
    log.decide(CommitSeq(350)).unwrap();
    log.purge(kept, Calls::default().done()).unwrap();
    (0..60).for_each(|_| log.step().unwrap());
    assert!(bytes() + 200 * 1024 < long && bytes() > 128 * 1024, "{} of {long} bytes", bytes());
    assert!(!log.would_free(kept).unwrap());
    drop(log);
    let image = disk.crash(&duramen_disk::memory::CrashChoice::None);
    let (log, found) = open(&image).unwrap();
    assert!(found.decided.0 <= 350, "what is not decided may still be cut");
    assert_eq!(all(&log).last(), Some(&entry(400, 1, 0)));
}

#[test]
fn a_watermark_is_written_when_the_log_is_idle() {
    let disk = disk(8);
    let log = created(&disk);
    append(&log, entries(101, 103, 1));
    log.decide(CommitSeq(103)).unwrap();
    disk.advance_clock(200_000_000);
    log.step().unwrap();
    drop(log);
    assert_eq!(open(&disk.crash(&duramen_disk::memory::CrashChoice::None)).unwrap().1.decided.0, 103);
}

#[test]
fn threads_carry_out_what_is_asked_for() {
    let disk = disk(9);
    let place = RaftPlace { background: Background::Threads, ..place(&disk) };
    place.create(IDENT, None, BEGINS).unwrap();
    let (log, _) = place.open().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    for seq in 101..=150 {
        let sender = sender.clone();
        log.append(vec![entry(seq, 1, 0)], Box::new(move |done| sender.send((seq, done)).unwrap())).unwrap();
    }
    for seq in 101..=150 {
        let (acknowledged, done) = receiver.recv().unwrap();
        done.unwrap();
        assert_eq!(acknowledged, seq, "in order");
    }
    assert_eq!(log.synced().0, 150);
    log.decide(CommitSeq(140)).unwrap();
    log.close().unwrap();
    assert_eq!(place.open().unwrap().1.decided.0, 140);
}
