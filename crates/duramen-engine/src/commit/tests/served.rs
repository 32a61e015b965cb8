//! Commits that another thread enters into the order: each gets its own answer, whatever becomes of others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use duramen_disk::MemDisk;
use duramen_disk::memory::SyncGate;

use super::super::*;
use super::broken::{committer_on, root};
use crate::catalog::{TreeState, TreeTable};
use crate::error::Code;
use crate::threads::side_by_side;
use crate::tree::{KeyRange, Reducers};

const TREE: TreeId = TreeId(9);

impl Committer {
    /// A transaction that read all of the tree if it `reads`, and puts these keys.
    fn submission(&self, reads: bool, level: Durability, keys: &[&str]) -> Submission {
        let (mut read, mut changes) = (Reads::default(), Changes::default());
        if reads {
            read.range(TREE, &KeyRange::all());
        }
        for key in keys {
            let value = OwnedValue { big: false, bytes: b"value".to_vec() };
            changes.set(TREE, key.as_bytes(), Some(value));
        }
        Submission {
            base: self.hold_latest(),
            reads: read,
            conditions: Conditions::default(),
            changes,
            buffered: Buffered::new(self.store.pages.meter()),
            values: Vec::new(),
            relocation: None,
            level,
            serves_feed: false,
            frees_room: false,
            wait: Wait::Here,
        }
    }
}

/// The commit pipeline of a database with one tree.
fn with_tree() -> Committer {
    with_tree_on(&MemDisk::new(1))
}

fn with_tree_on(disk: &MemDisk) -> Committer {
    let mut trees = TreeTable::default();
    trees.set(TREE, Some(TreeState::empty(TREE, None, &Reducers::default())));
    let committer = committer_on(disk, trees);
    committer.throttle.make_room_ahead(&committer.store).unwrap();
    committer
}

/// Submits all of them while another thread holds the order: the first serves, the others are queued in
/// their order. Returns the outcomes, `None` for a thread that panicked.
fn submitted_together(committer: &Committer, submissions: Vec<Submission>) -> Vec<Option<Result<CommitSeq>>> {
    submitted_within(committer, submissions, |_, submit| submit())
}

/// The same, each within a function, which gets its number, too.
fn submitted_within(
    committer: &Committer,
    submissions: Vec<Submission>,
    within: impl Fn(usize, &mut dyn FnMut()) + Sync,
) -> Vec<Option<Result<CommitSeq>>> {
    let (count, turn) = (submissions.len(), AtomicUsize::new(0));
    let submissions: Vec<_> =
        submissions.into_iter().map(|submission| Mutex::new(Some(submission))).collect();
    let roles: Vec<usize> = (0..=count).collect();
    let mut outcomes = side_by_side(&roles, |role| {
        let Some(submission) = submissions.get(role) else {
            committer.while_ordering(|| {
                for index in 0..count {
                    turn.store(index + 1, Ordering::SeqCst);
                    while committer.order.requests.queued() != Some(index) {
                        std::thread::yield_now();
                    }
                }
            });
            return None;
        };
        while turn.load(Ordering::SeqCst) <= role {
            std::thread::yield_now();
        }
        let (mut submission, mut outcome) = (submission.lock().unwrap().take(), None);
        let mut submit = || {
            let submitted = committer.submit(submission.take().unwrap());
            outcome = Some(submitted.map(|ordered| ordered.seq));
        };
        drop(catch_unwind(AssertUnwindSafe(|| within(role, &mut submit))));
        outcome
    });
    outcomes.truncate(count);
    outcomes
}

/// The same where no thread panics.
fn submitted(committer: &Committer, submissions: Vec<Submission>) -> Vec<Result<CommitSeq>> {
    submitted_together(committer, submissions).into_iter().map(Option::unwrap).collect()
}

#[test]
fn what_came_while_the_order_was_held_is_one_group() {
    let committer = with_tree();
    let levels = [Durability::Disk, Durability::Memory, Durability::Process, Durability::Disk];
    let keys = ["a", "b", "c", "d"];
    let submissions = levels.iter().zip(keys).map(|(level, key)| committer.submission(false, *level, &[key]));
    let (groups, commits) = (committer.stats().groups, committer.stats().commits);
    let ordered = submitted(&committer, submissions.collect());
    let seqs: Vec<u64> = ordered.into_iter().map(|seq| seq.unwrap().0).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!((committer.stats().groups, committer.stats().commits), (groups + 1, commits + 4));
    assert_eq!((committer.durable(), committer.published().seq), (CommitSeq(4), CommitSeq(4)));
    assert_eq!(committer.order.requests.queued(), None, "no thread is taken for one that serves");
}

#[test]
fn a_conflict_is_that_of_its_own_transaction() {
    let committer = with_tree();
    let submissions = vec![
        committer.submission(false, Durability::Disk, &["a"]),
        committer.submission(true, Durability::Disk, &["b"]),
        committer.submission(false, Durability::Disk, &["c"]),
    ];
    let outcomes = submitted(&committer, submissions);
    let codes: Vec<Option<Code>> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::code)).collect();
    assert_eq!(codes, [None, Some(Code::WriteConflict), None]);
    assert_eq!(committer.published().seq, CommitSeq(2));
}

#[test]
fn a_thread_that_does_not_enter_serves_the_others_all_the_same() {
    let committer = with_tree();
    let stale = committer.submission(true, Durability::Disk, &["a"]);
    committer.submit(committer.submission(false, Durability::Disk, &["before"])).unwrap();
    let submissions = vec![stale, committer.submission(false, Durability::Disk, &["b"])];
    let outcomes = submitted(&committer, submissions);
    assert_eq!(outcomes[0].as_ref().unwrap_err().code(), Code::WriteConflict);
    assert_eq!(outcomes[1].as_ref().unwrap(), &CommitSeq(2));
}

#[test]
fn a_transaction_of_many_changes_is_entered_by_its_own_thread() {
    let committer = with_tree();
    let many: Vec<String> = (0..200).map(|n| format!("{n:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let submissions = vec![
        committer.submission(false, Durability::Disk, &["a"]),
        committer.submission(false, Durability::Disk, &many),
        committer.submission(false, Durability::Disk, &["b"]),
    ];
    let groups = committer.stats().groups;
    let outcomes = submitted(&committer, submissions);
    let seqs: Vec<u64> = outcomes.into_iter().map(|seq| seq.unwrap().0).collect();
    assert_eq!(seqs, [1, 2, 3]);
    // The first leads its own group meanwhile.
    assert_eq!((committer.published().seq, committer.stats().groups), (CommitSeq(3), groups + 2));
    assert_eq!(committer.order.requests.queued(), None, "no thread is taken for one that serves");
}

/// D6: an entry that panics poisons the engine. Every thread gets an error, and none waits for ever.
#[test]
fn after_an_entry_that_panics_every_thread_is_told() {
    for panics in [0, 1] {
        let committer = with_tree();
        let submissions = ["a", "b", "c"].iter().enumerate().map(|(index, key)| {
            let mut submission = committer.submission(false, Durability::Disk, &[key]);
            if index == panics {
                let (later, _) =
                    committer.store.registry.register_root(&root(50, committer.log().position()));
                submission.base = later;
            }
            submission
        });
        let threads = submitted_together(&committer, submissions.collect());
        let panicked = threads.iter().filter(|outcome| outcome.is_none()).count();
        assert_eq!(panicked, 1, "only the thread whose own entry panics");
        for error in threads.into_iter().flatten().map(Result::unwrap_err) {
            assert!(matches!(error.code(), Code::EnginePoisoned | Code::OutcomeUnknown), "{error}");
        }
        let late = committer.submission(false, Durability::Disk, &["late"]);
        assert_eq!(committer.submit(late).unwrap_err().code(), Code::EnginePoisoned);
    }
}

/// As above, in a destructor of a thread that unwinds: a second panic would end the process.
#[test]
fn a_panic_is_not_carried_into_a_thread_that_unwinds() {
    let committer = with_tree();
    let (later, _) = committer.store.registry.register_root(&root(50, committer.log().position()));
    let broken = Submission { base: later, ..committer.submission(false, Durability::Disk, &["b"]) };
    let submissions = vec![committer.submission(false, Durability::Disk, &["a"]), broken];
    let second_unwinds = |index: usize, submit: &mut dyn FnMut()| {
        struct OnDrop<'a>(&'a mut dyn FnMut());
        impl Drop for OnDrop<'_> {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        if index == 0 {
            return submit();
        }
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _commits = OnDrop(submit);
            panic!("of the program");
        }));
        assert!(unwound.is_err());
    };
    let outcomes = submitted_within(&committer, submissions, second_unwinds);
    let codes: Vec<Code> = outcomes.into_iter().map(|outcome| outcome.unwrap().unwrap_err().code()).collect();
    assert_eq!(codes, [Code::EnginePoisoned; 2]);
}

#[test]
fn a_thread_that_has_done_much_for_others_leaves_the_rest_to_one_of_them() {
    let committer = with_tree();
    let groups = committer.stats().groups;
    let keys: Vec<Vec<String>> =
        (0..5).map(|n| (0..40).map(|key| format!("{n}-{key:02}")).collect()).collect();
    let submissions = keys.iter().map(|keys| {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        committer.submission(false, Durability::Disk, &keys)
    });
    let outcomes = submitted(&committer, submissions.collect());
    assert_eq!(outcomes.into_iter().map(|seq| seq.unwrap().0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(committer.stats().groups, groups + 2, "three of 40 changes are served, the fourth serves");
}

/// A commit at level `Memory` waits for no sync of the other one, whichever thread serves.
#[test]
fn a_commit_at_level_memory_returns_while_a_member_of_its_group_waits_for_a_sync() {
    for memory in [1, 2] {
        let disk = MemDisk::new(1);
        let committer = with_tree_on(&disk);
        let gate = SyncGate::closed();
        disk.set_blocker(Some(gate.blocker("wal")));
        let (turn, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let seen = side_by_side(&[0, 1, 2], |role| {
            let level = if role == memory { Durability::Memory } else { Durability::Disk };
            if role == 0 {
                committer.while_ordering(|| {
                    for queued in 0..2 {
                        turn.store(queued + 1, Ordering::SeqCst);
                        while committer.order.requests.queued() != Some(queued) {
                            std::thread::yield_now();
                        }
                    }
                });
                gate.wait_blocked(1);
                let early = (0..200_000).any(|_| {
                    std::thread::yield_now();
                    returned.load(Ordering::SeqCst) > 0
                });
                gate.open();
                return early;
            }
            while turn.load(Ordering::SeqCst) < role {
                std::thread::yield_now();
            }
            committer.submit(committer.submission(false, level, &["key"])).unwrap();
            returned.fetch_add(1, Ordering::SeqCst);
            true
        });
        assert_eq!(seen, [true; 3], "the thread at level memory is number {memory}");
        disk.set_blocker(None);
        assert_eq!(committer.durable(), CommitSeq(2), "the sync covers both");
    }
}

/// A destructor of the program may commit while its thread unwinds.
#[test]
fn a_commit_of_a_thread_that_unwinds_harms_nothing() {
    struct Commits<'a>(&'a Committer, &'a Mutex<Option<Result<Ordered>>>);
    impl Drop for Commits<'_> {
        fn drop(&mut self) {
            let submission = self.0.submission(false, Durability::Disk, &["failed"]);
            *self.1.lock().unwrap() = Some(self.0.submit(submission));
        }
    }
    let (committer, committed) = (with_tree(), Mutex::new(None));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _commits = Commits(&committer, &committed);
        panic!("of the program");
    }));
    assert!(unwound.is_err());
    assert_eq!(committed.into_inner().unwrap().unwrap().unwrap().seq, CommitSeq(1));
    let later = committer.submission(false, Durability::Disk, &["later"]);
    assert_eq!(committer.submit(later).unwrap().seq, CommitSeq(2));
}
