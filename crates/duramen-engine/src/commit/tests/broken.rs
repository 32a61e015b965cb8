//! State that is broken on purpose: the alarm is raised before anything is written or acknowledged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use duramen_disk::{Access, Disk, MemDisk, SyncMethod};

use super::*;
use crate::alarm::Alarm;
use crate::allocator::Space;
use crate::catalog::TreeTable;
use crate::checkpoint::UnreadValues;
use crate::commit::group::{CommitEffects, Forming};
use crate::commit::pipeline::check_follows;
use crate::data_file::DataFile;
use crate::error::Code;
use crate::ids::Epoch;
use crate::options::{Geometry, GiveBack};
use crate::page_cache::Pages;
use crate::snapshot::Registry;
use crate::tree::Reducers;
use crate::wal::{LogIdentity, LogPosition, Record};

/// The commit pipeline of an empty database.
fn committer() -> Committer {
    committer_on(&MemDisk::new(1), TreeTable::default())
}

/// The commit pipeline of a database with these trees on a disk.
pub(super) fn committer_on(disk: &MemDisk, trees: TreeTable) -> Committer {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (geometry, identity, wal_dir) = (Geometry::default(), LogIdentity::default(), Path::new("/wal"));
    disk.create_dir(wal_dir).unwrap();
    let (log, position) =
        Log::create(&disk, wal_dir, identity, geometry, SyncMethod::Fdatasync, CommitSeq(0)).unwrap();
    let path = Path::new("/data");
    let file = disk.open(path, Access::CREATE).unwrap();
    let data = DataFile::new(file, path, identity.database, geometry.block_bytes);
    let pages = Pages::new(data.clone(), 4 << 20);
    let store = Store {
        alarm: Alarm::new(),
        registry: Registry::new(pages.clone()),
        pages,
        space: Space::new(data, GiveBack::SMALL),
        reducers: Reducers::default(),
        geometry,
        unread: UnreadValues::default(),
        patches: true,
        give_back: GiveBack::SMALL,
    };
    let root = Root::at(CommitSeq(0), trees, position);
    Committer::new(Arc::new(store), log, root, TreeId(1), Throttle::new(true))
}

pub(super) fn root(seq: u64, position: LogPosition) -> Arc<Root> {
    Arc::new(Root::at(CommitSeq(seq), TreeTable::default(), position))
}

/// Checks that `work` breaks an invariant, and raises this alarm.
fn breaks(alarm: &Alarm, what: &str, work: impl FnOnce()) {
    let within = alarm.enter();
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "{what}");
    drop(within);
    let error = alarm.check().unwrap_err();
    assert!(error.message().contains(what), "{error}");
}

#[test]
fn a_commit_that_does_not_follow_the_latest_is_not_ordered() {
    let committer = committer();
    assert_eq!(committer.submit_nothing().unwrap().seq, CommitSeq(1));
    let end = committer.log().position();
    committer.latest.set(root(7, end));
    let commit = || drop(committer.submit_nothing());
    breaks(&committer.store.alarm, "commit 8 follows 1", commit);
    assert_eq!(committer.submit_nothing().unwrap_err().code(), Code::EnginePoisoned);
    assert_eq!((committer.log().position(), committer.published().seq), (end, CommitSeq(1)));
}

#[test]
fn the_records_of_a_group_are_consecutive() {
    let meter = Arc::clone(committer().store.pages.meter());
    let mut forming = Forming::default();
    let mut join = |seq| {
        let effects = CommitEffects {
            seq: CommitSeq(seq),
            superseded: Vec::new(),
            replaced: Vec::new(),
            dropped_values: Vec::new(),
            values: Vec::new(),
            _buffered: Buffered::new(&meter),
            started: None,
            has_returned: false,
            takes_room: true,
            root: None,
        };
        forming.join(Record::new(Vec::new()), effects);
    };
    join(4);
    join(5);
    for wrong in [5, 7] {
        breaks(&Alarm::new(), &format!("commit {wrong} follows 5"), || join(wrong));
    }
}

#[test]
fn a_group_that_does_not_follow_the_published_root_is_not_written() {
    let committer = committer();
    assert_eq!(committer.submit_nothing().unwrap().seq, CommitSeq(1));
    let end = committer.log().position();
    committer.pipeline.published.set(root(5, end));
    let commit = || drop(committer.submit_nothing());
    breaks(&committer.store.alarm, "1 commits lead from 5 to 2", commit);
    assert_eq!(committer.log().position(), end);
}

#[test]
fn a_root_whose_log_does_not_lie_after_that_of_the_published_one_is_not_published() {
    let committer = committer();
    assert_eq!(committer.submit_nothing().unwrap().seq, CommitSeq(1));
    let later = LogPosition { epoch: Epoch(99), ..committer.log().position() };
    committer.pipeline.published.set(root(1, later));
    let commit = || drop(committer.submit_nothing());
    breaks(&committer.store.alarm, "the log of root 2 lies after that of 1", commit);
    assert_eq!((committer.published().seq, committer.durable()), (CommitSeq(1), CommitSeq(1)));
    assert_eq!(committer.latest().seq, CommitSeq(1), "dropped");
    assert!(!committer.order.lock().is_led(), "leadership was handed on");
    assert_eq!(committer.submit_nothing().unwrap_err().code(), Code::EnginePoisoned);
}

#[test]
fn a_watermark_covers_only_what_is_durable() {
    let committer = committer();
    let end = committer.log().position();
    let mark = || drop(committer.pipeline.write_mark(CommitSeq(9)));
    breaks(&committer.store.alarm, "a watermark covers commit 9, and 0 is durable", mark);
    assert_eq!(committer.log().position(), end, "nothing is written");
}

#[test]
fn published_roots_grow_in_sequence_and_in_the_log() {
    let at = |seq, offset| LogPosition { offset, seq: CommitSeq(seq), ..LogPosition::default() };
    let check = |before: LogPosition, written: LogPosition, seq| {
        check_follows(&root(before.seq.0, before), &root(seq, written), written);
    };
    check(at(4, 512), at(6, 1024), 6);
    for (before, written, seq, what) in [
        (at(6, 512), at(6, 1024), 6, "root 6 is published after 6"),
        (at(7, 512), at(6, 1024), 6, "root 6 is published after 7"),
        (at(4, 512), at(5, 1024), 6, "root 6 ends where its log does, at 5"),
        (at(4, 1024), at(6, 1024), 6, "the log of root 6 lies after"),
        (at(4, 2048), at(6, 1024), 6, "the log of root 6 lies after"),
    ] {
        breaks(&Alarm::new(), what, || check(before, written, seq));
    }
}

#[test]
fn leadership_is_taken_before_it_is_used_and_laid_down_once() {
    let leads = committer();
    breaks(&leads.store.alarm, "leadership", || drop(leads.lead()));
    // No panic: the waiters of the next group would never be woken.
    let lays_down = committer();
    lays_down.write_unwaited();
    assert!(lays_down.not_poisoned().unwrap_err().message().contains("leadership"));
}

#[test]
fn nothing_is_acknowledged_below_its_level() {
    for (level, what) in [(Durability::Disk, "is durable"), (Durability::Process, "is published")] {
        let committer = committer();
        let ordered = committer.submit_nothing().unwrap();
        assert_eq!(committer.acknowledged(ordered, level), ordered);
        let next = Ordered { seq: ordered.seq.next(), ..ordered };
        let acknowledge = || assert_eq!(committer.acknowledged(next, level), next);
        breaks(&committer.store.alarm, what, acknowledge);
    }
}

#[test]
fn recent_commits_have_no_gap() {
    let known = || {
        let mut recent = Recent::new(CommitSeq(10));
        recent.push(CommitSeq(11), written(&["a"]), 1000);
        recent
    };
    for wrong in [11, 13] {
        let push = || known().push(CommitSeq(wrong), written(&["b"]), 1000);
        breaks(&Alarm::new(), &format!("commit {wrong} follows 11"), push);
    }
    breaks(&Alarm::new(), "the newest commit kept is 11, want 12", || known().rewind(CommitSeq(12)));
}
