//! A database watched from outside, beside its writer: durable changes only, once, in order, with gaps
//! reported.

use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{Code, CommitSeq, Durability, FeedCommit, ObserveFrom, Observer};

use crate::basics::tiny;
use crate::feed::{only_the_older_superblock_left, open, put, set_position, told, tree, work};

fn observe(disk: &MemDisk, from: ObserveFrom) -> Observer {
    let wants = Arc::new(|name: &str| !name.starts_with("own/"));
    Observer::open(Arc::new(disk.clone()), "/db", tiny(), from, wants).unwrap()
}

/// The number of commits returned before a gap, and where the gap ends.
type Gap = (usize, CommitSeq);

/// All changes that can be returned now, and the gaps in them.
fn drain(observer: &mut Observer) -> (Vec<(u64, String)>, Vec<Gap>) {
    let (mut commits, mut gaps) = (Vec::<FeedCommit>::new(), Vec::new());
    loop {
        match observer.next() {
            Ok(Some(commit)) => commits.push(commit),
            Ok(None) => return (told(&commits), gaps),
            Err(error) => {
                assert_eq!(error.code(), Code::FeedGap, "{error}");
                gaps.push((commits.len(), observer.position()));
            }
        }
    }
}

/// All retained files are removed, and a later process creates one with the same number, before the observer
/// has opened the first one. The observer reports the gap.
#[test]
fn a_file_number_that_is_used_again_hides_no_gap() {
    let disk = MemDisk::new(36);
    let (engine, mut model) = (open(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    let mut observer = observe(&disk, ObserveFrom::Oldest);
    set_position(&engine, "slow", CommitSeq(u64::MAX), false);
    engine.close().unwrap();
    drop(engine);
    assert!(disk.files().iter().all(|path| !path.starts_with("/db/feed")), "{:?}", disk.files());
    let engine = open(&disk);
    set_position(&engine, "slow", engine.feed_stats().newest, false);
    let begun = model.len();
    work(&engine, 1, &mut model);
    engine.checkpoint().unwrap();
    assert!(disk.read_file("/db/feed/000000000001.feed").is_ok(), "the number is used again");
    let (found, gaps) = drain(&mut observer);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].0, 0, "the gap comes first");
    assert_eq!(found, model[begun..]);
}

/// A retained file ends with commits of other trees, and more changes follow it. The observer returns them,
/// not `None`.
#[test]
fn none_is_told_only_at_the_end() {
    let disk = MemDisk::new(37);
    let (engine, mut model) = (open(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    let last = model.last().unwrap().0;
    set_position(&engine, "other", CommitSeq(0), false);
    engine.checkpoint().unwrap();
    work(&engine, 1, &mut model);
    let mut observer = observe(&disk, ObserveFrom::After(CommitSeq(last)));
    let next = observer.next().unwrap().map(|commit| commit.seq.0);
    assert!(next.is_some_and(|seq| seq > last), "{next:?}");
}

/// Closed, killed, checkpointed under the observer: every change once and in order, since the feed retains
/// them.
///
/// That holds however seldom the observer reads.
#[test]
fn what_others_commit_is_told_once_and_in_order() {
    let disk = MemDisk::new(31);
    let (mut engine, mut model) = (open(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    let mut observers =
        [1, 3, 7].map(|every| (every, observe(&disk, ObserveFrom::After(CommitSeq(0))), Vec::new()));
    for round in 0..24u8 {
        work(&engine, round, &mut model);
        match round % 6 {
            1 => engine.checkpoint().unwrap(),
            2 => {
                engine.close().unwrap();
                drop(engine);
                engine = open(&disk);
            }
            3 => {
                engine.abandon();
                engine = open(&disk);
            }
            4 => (0..3).for_each(|_| engine.checkpoint().unwrap()),
            _ => {}
        }
        for (every, observer, found) in &mut observers {
            if round % *every == 0 {
                // Reading figures while changes are handed out must not lose any change.
                observer.look().unwrap();
                if round % (2 * *every) == 0 {
                    found.extend(observer.next().unwrap().map(|commit| told(&[commit]).remove(0)));
                    continue;
                }
                let (commits, gaps) = drain(observer);
                assert_eq!(gaps, []);
                found.extend(commits);
                assert_eq!(*found, model[..found.len()], "round {round}, every {every}");
            }
        }
        let mut late = observe(&disk, ObserveFrom::After(CommitSeq(model[model.len() / 2].0)));
        let (found, _) = drain(&mut late);
        let from = model.len() / 2 + 1;
        assert_eq!(found, model[from..from + found.len()], "round {round}");
        // The last commit is returned once the log shows after it that it is durable.
        assert!(from + found.len() + 1 >= model.len(), "round {round}: {} of {}", found.len(), model.len());
    }
    engine.close().unwrap();
    drop(engine);
    for (every, observer, found) in &mut observers {
        found.extend(drain(observer).0);
        assert_eq!(*found, model, "every {every}");
        let last = CommitSeq(model[model.len() - 1].0);
        let now = observer.look().unwrap();
        assert!(now.clean && now.durable >= last && now.checkpoint_seq == now.durable, "{now:?}");
        assert!(now.log_bytes > 0 && now.feed_bytes > 0 && now.space.used_blocks > 0, "{now:?}");
    }
}

/// Where nothing is retained, an observer that reads seldom gets a gap for what it missed, and no other loss.
///
/// That holds whatever is reused under it, and in whatever order it reads.
#[test]
fn a_gap_is_told_and_nothing_else_is_missing() {
    let (mut gaps_seen, mut found_in_all) = (0, 0);
    for (seed, (looks, checkpoints, reopens)) in (0..).zip([
        (13, 4, 99),
        (5, 1, 99),
        (3, 1, 7),
        (7, 2, 5),
        (2, 1, 3),
        (11, 3, 4),
        (6, 2, 99),
        (9, 1, 2),
    ]) {
        let when = format!("looks {looks}, checkpoints {checkpoints}, reopens {reopens}");
        let disk = MemDisk::new(40 + seed);
        let (mut engine, mut all, mut model) = (open(&disk), Vec::new(), Vec::new());
        let mut observer = observe(&disk, ObserveFrom::Now);
        let (mut found, mut gaps) = (Vec::new(), 0);
        for round in 0..60u8 {
            let before = all.len();
            work(&engine, round, &mut all);
            model.extend_from_slice(&all[before..]);
            if round % checkpoints == 0 {
                engine.checkpoint().unwrap();
            }
            if round % reopens == 1 {
                engine.close().unwrap();
                drop(engine);
                engine = open(&disk);
            }
            if round % looks != 0 && round < 59 {
                continue;
            }
            engine.step().unwrap();
            // Reading the figures in between must not lose changes.
            let one = match observer.next() {
                Ok(Some(commit)) => told(&[commit]),
                _ => Vec::new(),
            };
            if round % 2 == 0 {
                (0..4).for_each(|_| engine.checkpoint().unwrap());
                observer.look().unwrap();
            }
            found.extend(one);
            let missed_before = model.partition_point(|(seq, _)| *seq <= observer.position().0);
            if missed_before > found.len() {
                model.drain(found.len()..missed_before);
                gaps += 1;
            }
            let (commits, missed) = drain(&mut observer);
            for (told, end) in missed {
                gaps += 1;
                let from = found.len() + told;
                let kept = model.partition_point(|(seq, _)| *seq <= end.0);
                assert!(kept > from, "{when}: the gap has something in it");
                model.drain(from..kept);
            }
            found.extend(commits);
            assert_eq!(found, model[..found.len()], "{when}, round {round}");
        }
        assert!(found.len() + 1 >= model.len(), "{when}: {} of {}", found.len(), model.len());
        gaps_seen += gaps;
        found_in_all += found.len();
    }
    assert!(gaps_seen > 10 && found_in_all > 200, "{gaps_seen} gaps, {found_in_all} commits");
}

/// A corrupt value named in the log is reported as corrupt, once, with the changes around it.
#[test]
fn a_corrupt_value_is_told_once_and_the_others_with_it() {
    let disk = MemDisk::new(35);
    let engine = open(&disk);
    let id = tree(&engine, "rows");
    // A commit is returned once the commit after it shows that it is durable.
    put(&engine, id, "first", b"1").unwrap();
    let mut observer = observe(&disk, ObserveFrom::Now);
    for (key, bytes) in [("before", 10), ("big", 900), ("after", 10)] {
        put(&engine, id, key, &b"\xa7".repeat(bytes)).unwrap();
    }
    let data = std::path::Path::new("/db/data");
    let stored = disk.read_file(data).unwrap();
    let at = stored.windows(64).position(|bytes| bytes.iter().all(|byte| *byte == 0xa7)).unwrap();
    disk.flip_bit(data, at as u64 + 9, 3).unwrap();
    let mut lines = Vec::new();
    for key in ["next", "last"] {
        let (commits, gaps) = drain(&mut observer);
        assert_eq!(gaps, []);
        lines.extend(commits.into_iter().map(|(_, line)| line));
        put(&engine, id, key, b"1").unwrap();
    }
    let told = ["first=1:1", "before=10:\u{fffd}", "big lost", "after=10:\u{fffd}"];
    assert_eq!(lines, told.map(|what| format!("rows: {what}")));
    assert_eq!(drain(&mut observer).0.len(), 1);
}

/// A change that a power cut can take back must not be returned.
#[test]
fn what_is_told_survives_a_power_cut() {
    let disk = MemDisk::new(33);
    let engine = open(&disk);
    let id = tree(&engine, "rows");
    let mut observer = observe(&disk, ObserveFrom::Now);
    let mut told_last = CommitSeq(0);
    for n in 0..60 {
        let level = if n % 3 == 0 { Durability::Disk } else { Durability::Process };
        engine.transact(level, |tx| tx.put(id, format!("k{n}").as_bytes(), b"v")).unwrap();
        if n % 7 == 0 {
            engine.step().unwrap();
        }
        while let Some(commit) = observer.next().unwrap() {
            told_last = commit.seq;
        }
        let after_cut = open(&disk.crash(&CrashChoice::None));
        let newest = after_cut.feed_stats().newest;
        assert!(newest >= told_last, "after {n}: told {told_last}, and {newest} survived");
        after_cut.abandon();
    }
    assert!(told_last > CommitSeq(40), "{told_last}");
}

/// Watching must have no effect on the database: no lock, no byte.
#[test]
fn watching_changes_nothing() {
    let disk = MemDisk::new(34);
    let (engine, mut model) = (open(&disk), Vec::new());
    work(&engine, 1, &mut model);
    let image = |disk: &MemDisk| {
        let bytes = |path: &std::path::PathBuf| disk.read_file(path).unwrap();
        disk.files().iter().map(|path| (path.clone(), bytes(path))).collect::<Vec<_>>()
    };
    let before = image(&disk);
    let mut observer = observe(&disk, ObserveFrom::Oldest);
    drain(&mut observer);
    observer.look().unwrap();
    assert_eq!(before, image(&disk));
    put(&engine, tree(&engine, "rows 1"), "k", b"v").unwrap();
    engine.close().unwrap();
    drop(engine);
    assert!(observe(&disk, ObserveFrom::Now).look().unwrap().clean);
    // Nor does it keep a writer out.
    open(&disk).close().unwrap();
}

/// As `files_go_before_the_log_where_only_the_older_superblock_is_left`, from outside.
#[test]
fn files_go_before_the_log_from_outside_too_where_only_the_older_superblock_is_left() {
    let disk = MemDisk::new(36);
    let model = only_the_older_superblock_left(&disk);
    let (found, gaps) = drain(&mut observe(&disk, ObserveFrom::After(CommitSeq(0))));
    assert_eq!((&found[..model.len()], &gaps[..]), (&model[..], &[][..]));
}
