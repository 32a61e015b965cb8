//! Changes are observed from outside while the log under the observer is reused, in any order.

use std::path::Path;
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{
    Background, Code, CommitSeq, Durability, Engine, Hooks, ObserveFrom, Observer, Options, TreeId,
};
use duramen_sim::search::shapes::GEOMETRY;

use super::watched::WatchedDisk;

fn options() -> Options {
    Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() }
}

fn open(disk: &MemDisk) -> Engine {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options(), Hooks::default()).unwrap()
}

/// Makes so many commits, a quarter of a segment each.
fn commit(engine: &Engine, tree: TreeId, count: u8) -> CommitSeq {
    let mut last = CommitSeq::default();
    for fill in 0..count {
        let values = |key: u8| (vec![key, fill], vec![fill; 200]);
        let puts = |key| values(key);
        let (_, receipt) = engine
            .transact(Durability::Disk, |tx| {
                (0..4u8).map(puts).try_for_each(|(key, value)| tx.put(tree, &key, &value))
            })
            .unwrap();
        last = receipt.seq();
        engine.step().unwrap();
    }
    last
}

/// D2: after an opening, a writer takes segments in the order of their names.
///
/// A segment after the observer's position may be reused before the observer's own segment, so that the log
/// seems to end there. It has gone on elsewhere: later commits must be returned, after a gap that is
/// reported.
#[test]
fn a_log_used_again_after_the_observers_segment_does_not_silence_it() {
    let mut silenced = Vec::new();
    for before in 1..=24u8 {
        for (between, after) in (1..=5u8).flat_map(|between| (1..=5u8).map(move |after| (between, after))) {
            let disk = MemDisk::new(u64::from(before));
            let engine = open(&disk);
            let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
            for _ in 0..before {
                commit(&engine, tree, 1);
                engine.checkpoint().unwrap();
            }
            let wants = Arc::new(|_: &str| true);
            let mut observer =
                Observer::open(Arc::new(disk.clone()), "/db", options(), ObserveFrom::Now, wants).unwrap();
            commit(&engine, tree, between);
            engine.checkpoint().unwrap();
            engine.checkpoint().unwrap();
            if after % 2 == 0 {
                engine.close().unwrap();
                drop(engine);
            } else {
                // Nothing is trimmed then.
                engine.abandon();
            }
            let engine = open(&disk);
            let last = commit(&engine, tree, after);
            disk.advance_clock(200_000_000);
            engine.step().unwrap();
            let mut told = CommitSeq::default();
            let mut gaps = 0;
            loop {
                match observer.next() {
                    Ok(Some(commit)) => {
                        assert!(commit.seq > told, "once and in order");
                        told = commit.seq;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(error.code(), Code::FeedGap, "{error}");
                        gaps += 1;
                        assert!(gaps < 10, "gaps without end");
                    }
                }
            }
            if told != last {
                silenced.push((before, between, after));
            }
            engine.abandon();
        }
    }
    assert!(silenced.is_empty(), "commits before and after the observer came: {silenced:?}");
}

/// D2: a power cut may take the durable watermark that covered a commit, although the commit survives.
///
/// An observer that was given the commit, and resumes before another watermark is written, goes on from
/// there. Only a position that the log does not reach is refused.
#[test]
fn an_observer_is_resumed_at_what_the_log_has_and_does_not_yet_call_durable() {
    let disk = MemDisk::new(1);
    let engine = open(&disk);
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let told = commit(&engine, tree, 1);
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    let observe = |after: CommitSeq| {
        let from = ObserveFrom::After(after);
        Observer::open(Arc::new(disk.clone()), "/db", options(), from, Arc::new(|_: &str| true))
    };
    let mut observer = observe(told).unwrap();
    assert_eq!(observer.next().unwrap().map(|commit| commit.seq), None);
    let error = observe(told.next()).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.hint().contains("set back"), "{error}");
    let engine = open(&disk);
    let next = commit(&engine, tree, 1);
    disk.advance_clock(200_000_000);
    engine.step().unwrap();
    assert_eq!(observer.next().unwrap().map(|commit| commit.seq), Some(next));
    engine.abandon();
}

/// A database after a power cut and so many openings that were killed, and its last commit. No durable
/// watermark in the log covers that commit.
fn cut(commits: u8, openings: u32) -> (MemDisk, CommitSeq) {
    let disk = MemDisk::new(u64::from(commits));
    let engine = open(&disk);
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let last = commit(&engine, tree, commits);
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    for _ in 0..openings {
        open(&disk).abandon();
    }
    (disk, last)
}

/// D2: an opening frees the segment that its own supersedes.
///
/// An observer may read one header from before the opening and the other from after it, and then finds
/// neither segment. That is no gap.
#[test]
fn an_opening_between_two_headers_is_no_gap() {
    let mut interrupted_count = 0;
    // The segment that the opening begins is before the one that it frees in few of these.
    for (commits, openings) in (1..=12).flat_map(|commits| (0..4).map(move |openings| (commits, openings))) {
        let (start, last) = cut(commits, openings);
        for (slot, is_begun) in (1..=9).flat_map(|slot| [(slot, false), (slot, true)]) {
            let disk = start.deep_clone();
            let watched = WatchedDisk::new(&disk);
            let begin = || {
                let (disk, wants) = (Arc::new(watched.clone()), Arc::new(|_: &str| true));
                Observer::open(disk, "/db", options(), ObserveFrom::After(last), wants)
            };
            let observer = is_begun.then(|| begin().unwrap());
            let (segment, opened) = (format!("{slot:08}.wal"), Arc::new(Mutex::new(None::<Engine>)));
            let engine = Arc::clone(&opened);
            watched.before_read(
                move |path, offset| path.ends_with(&segment) && offset == 0,
                move || *engine.lock().unwrap() = Some(open(&disk)),
            );
            let next = observer.map_or_else(begin, Ok).and_then(|mut observer| observer.next());
            let next = next.map(|commit| commit.map(|commit| commit.seq));
            let what = format!("{commits} commits, {openings} openings, segment {slot}, {is_begun}");
            assert!(matches!(next, Ok(None)), "{what}: {next:?}");
            let engine = opened.lock().unwrap().take();
            interrupted_count += u32::from(engine.is_some());
            engine.into_iter().for_each(Engine::abandon);
        }
    }
    assert!(interrupted_count > 100, "{interrupted_count} openings");
}
