//! The change feed from outside: every durable change once and in order, wherever it lies, and no cost
//! without readers.

mod corrupt;
mod found;

use std::path::Path;
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_engine::data_file::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use duramen_engine::{
    Code, CommitSeq, Direction, Durability, Engine, Event, FeedCommit, FeedNeed, FeedReader, FeedRule,
    FeedWhat, Hooks, KeyRange, Options, Result, Snapshot, TreeId,
};

use crate::basics::tiny;

/// Consumers in a tree: name to position, with a flag for those that stop writers rather than lose changes.
struct Positions;

const POSITIONS: &str = "own/positions";

impl FeedRule for Positions {
    fn is_source(&self, tree: &str) -> bool {
        !tree.starts_with("own/")
    }

    fn needs(&self, at: &Snapshot) -> Result<Vec<FeedNeed>> {
        let Some(tree) = at.tree(POSITIONS)? else { return Ok(Vec::new()) };
        let rows = at.rows(tree, KeyRange::all(), Direction::Forward)?;
        rows.into_iter()
            .map(|row| {
                let (key, value) = row?;
                Ok(FeedNeed {
                    name: String::from_utf8(key).unwrap(),
                    after: CommitSeq(u64::from_le_bytes(value[..8].try_into().unwrap())),
                    refuses_writers: value[8] == 1,
                })
            })
            .collect()
    }
}

pub(crate) type Events = Arc<Mutex<Vec<String>>>;

pub(crate) fn open_with(disk: &MemDisk, options: Options) -> (Engine, Events) {
    let events = Events::default();
    let told = Arc::clone(&events);
    let on_event = move |event: &Event| told.lock().unwrap().push(format!("{event:?}"));
    let hooks =
        Hooks { feed: Some(Arc::new(Positions)), on_event: Some(Arc::new(on_event)), ..Hooks::default() };
    (Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, hooks).unwrap(), events)
}

pub(crate) fn open(disk: &MemDisk) -> Engine {
    open_with(disk, tiny()).0
}

pub(crate) fn tree(engine: &Engine, name: &str) -> TreeId {
    let found = engine.snapshot().unwrap().tree(name).unwrap();
    found.unwrap_or_else(|| engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).unwrap().0)
}

pub(crate) fn put(engine: &Engine, tree: TreeId, key: &str, value: &[u8]) -> Result<CommitSeq> {
    let done = engine.transact(Durability::Disk, |tx| tx.put(tree, key.as_bytes(), value))?;
    Ok(done.1.seq())
}

pub(crate) fn set_position(engine: &Engine, name: &str, after: CommitSeq, refuses: bool) {
    let positions = tree(engine, POSITIONS);
    let value = [&after.0.to_le_bytes()[..], &[u8::from(refuses)]].concat();
    engine
        .transact(Durability::Disk, |tx| {
            tx.serve_feed();
            tx.put(positions, name.as_bytes(), &value)
        })
        .unwrap();
}

fn reader(engine: &Engine, after: CommitSeq) -> Result<FeedReader> {
    engine.feed(after, Arc::new(|_: &str| true))
}

fn rest(reader: &mut FeedReader) -> Vec<FeedCommit> {
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

/// One line per change, as the model has it.
pub(crate) fn told(commits: &[FeedCommit]) -> Vec<(u64, String)> {
    let line = |commit: &FeedCommit| {
        let changes = commit.changes.iter().map(|change| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let what = match &change.what {
                FeedWhat::Created => "created".to_owned(),
                FeedWhat::Dropped => "dropped".to_owned(),
                FeedWhat::Put { key, value } => {
                    format!("{}={}:{}", text(key), value.len(), text(&value[..1]))
                }
                FeedWhat::Deleted { key } => format!("{} gone", text(key)),
                FeedWhat::Lost { key } => format!("{} lost", text(key)),
            };
            format!("{}: {what}", change.name)
        });
        (commit.seq.0, changes.collect::<Vec<_>>().join(", "))
    };
    commits.iter().map(line).collect()
}

/// Commits of many kinds, with the lines that the feed must return.
pub(crate) fn work(engine: &Engine, round: u8, model: &mut Vec<(u64, String)>) {
    let mark = [b'a' + round % 20];
    let name = format!("rows {}", round % 3);
    let (id, receipt) = engine
        .transact(Durability::Disk, |tx| {
            if tx.tree(&name)?.is_some() {
                tx.drop_tree(&name)?;
            }
            let id = tx.create_tree(&name, None)?;
            tx.put(id, b"first", &mark.repeat(5))?;
            Ok(id)
        })
        .unwrap();
    let was_there = model.iter().any(|(_, line)| line.contains(&format!("{name}:")));
    let dropped = if was_there { format!("{name}: dropped, ") } else { String::new() };
    let what = format!("{dropped}{name}: created, {name}: first=5:{}", mark[0] as char);
    model.push((receipt.seq().0, what));
    for (key, bytes) in [("big", 700), ("big", 900), ("huge", 3000), ("small", 40)] {
        let seq = put(engine, id, key, &mark.repeat(bytes)).unwrap();
        model.push((seq.0, format!("{name}: {key}={bytes}:{}", mark[0] as char)));
    }
    let (_, receipt) = engine.transact(Durability::Disk, |tx| tx.delete(id, b"big")).unwrap();
    model.push((receipt.seq().0, format!("{name}: big gone")));
}

/// Changes from the log, from files, and from both, across drops, big values, reopening and cuts.
#[test]
fn everything_is_told_once_and_in_order_wherever_it_lies() {
    let disk = MemDisk::new(3);
    let (mut engine, mut model) = (open(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
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
                engine = open(&MemDisk::crash(&disk, &CrashChoice::None));
                engine.close().unwrap();
                drop(engine);
                engine = open(&disk);
            }
            4 => (0..3).for_each(|_| engine.checkpoint().unwrap()),
            _ => {}
        }
        for after in [0, model[model.len() / 2].0, model[model.len() - 1].0] {
            let found = told(&rest(&mut reader(&engine, CommitSeq(after)).unwrap()));
            let from = model.partition_point(|(seq, _)| *seq <= after);
            assert_eq!(found, model[from..], "round {round}, after {after}");
        }
    }
    let stats = engine.feed_stats();
    assert!(stats.file_count > 0 && stats.log_from > CommitSeq(20), "{stats:?}");
    assert!(engine.check().unwrap().is_clean(), "{:?}", engine.check().unwrap().problems);
    // Once everything was read, nothing is retained.
    set_position(&engine, "slow", stats.newest, false);
    engine.checkpoint().unwrap();
    set_position(&engine, "slow", engine.feed_stats().newest, false);
    engine.step().unwrap();
    assert_eq!(engine.feed_stats().file_count, 0, "{:?}", engine.feed_stats());
    let gone = reader(&engine, CommitSeq(1)).unwrap_err();
    assert_eq!(gone.code(), Code::FeedGap, "{gone}");
}

/// After a crash, the extents of values that later commits replaced must not have been reused.
#[test]
fn values_that_the_log_replaced_survive_a_crash_for_the_feed() {
    let disk = MemDisk::new(4);
    let engine = open(&disk);
    set_position(&engine, "slow", CommitSeq(0), false);
    let mut model = Vec::new();
    work(&engine, 1, &mut model);
    work(&engine, 4, &mut model);
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    let engine = open(&disk);
    // Reuses free space: extents of the same sizes.
    let id = tree(&engine, "others");
    let before = engine.feed_stats().newest;
    for n in 0..20 {
        put(&engine, id, &format!("k{n}"), &[b'x'; 800]).unwrap();
    }
    let mut found = told(&rest(&mut reader(&engine, CommitSeq(0)).unwrap()));
    found.retain(|(seq, _)| *seq < before.0);
    assert_eq!(found, model);
    engine.checkpoint().unwrap();
    let mut found = told(&rest(&mut reader(&engine, CommitSeq(0)).unwrap()));
    found.retain(|(seq, _)| *seq < before.0);
    assert_eq!(found, model, "retained");
    assert!(engine.check().unwrap().is_clean(), "{:?}", engine.check().unwrap());
}

/// Corrupts the superblock of the newest checkpoint.
pub(crate) fn corrupt_newer_superblock(disk: &MemDisk) {
    let bytes = disk.read_file("/db/data").unwrap();
    let generation = |offset: u64| {
        let at = usize::try_from(offset).unwrap();
        Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]).unwrap().generation
    };
    let newer = SUPERBLOCK_OFFSETS.into_iter().max_by_key(|offset| generation(*offset)).unwrap();
    disk.flip_bit("/db/data", newer + 100, 1).unwrap();
}

/// A database with only its older superblock left, and the changes up to the newer checkpoint.
///
/// Its log names values that were replaced before the newer checkpoint, and that had their extents reused
/// since.
pub(crate) fn only_the_older_superblock_left(disk: &MemDisk) -> Vec<(u64, String)> {
    let (engine, mut model) = (open(disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    engine.abandon();
    lose_newer_superblock(disk, open(disk));
    model
}

/// Uses the extents of values that the log replaced, and corrupts the newer superblock.
fn lose_newer_superblock(disk: &MemDisk, reopened: Engine) {
    // No space map contains the replaced values: after a crash their extents are free.
    let id = tree(&reopened, "others");
    for n in 0..20 {
        put(&reopened, id, &format!("k{n}"), &[b'x'; 800]).unwrap();
    }
    reopened.abandon();
    corrupt_newer_superblock(disk);
}

/// With the newer superblock corrupt, the feed must be complete: retained files hold the values that the log
/// only names.
#[test]
fn files_go_before_the_log_where_only_the_older_superblock_is_left() {
    let disk = MemDisk::new(15);
    let model = only_the_older_superblock_left(&disk);
    let all = |engine: &Engine| {
        let mut found = told(&rest(&mut reader(engine, CommitSeq(0)).unwrap()));
        found.truncate(model.len());
        found
    };
    // Opening replaces the unreadable superblock with a copy; that does not make the older one any newer.
    for opened in ["first", "second"] {
        let engine = open(&disk);
        assert_eq!(all(&engine), model, "at the {opened} open");
        engine.abandon();
    }
    let engine = open(&disk);
    assert_eq!(all(&engine), model);
    engine.checkpoint().unwrap();
    assert_eq!(all(&engine), model, "after the next checkpoint");
    engine.abandon();
    assert_eq!(all(&open(&disk)), model, "after the next open");
}

/// A database without consumers must not pay for the feed.
#[test]
fn without_a_reader_nothing_is_written() {
    let disk = MemDisk::new(5);
    let engine = open(&disk);
    let mut model = Vec::new();
    for round in 0..6 {
        work(&engine, round, &mut model);
        engine.checkpoint().unwrap();
    }
    assert!(disk.files().iter().all(|path| !path.starts_with("/db/feed")), "{:?}", disk.files());
    assert!(reader(&engine, CommitSeq(0)).is_err());
    let now = engine.feed_stats().newest;
    let mut reader = reader(&engine, now).unwrap();
    assert_eq!(rest(&mut reader), []);
    // For a reader that stays open, unread changes are kept.
    for round in 6..9 {
        work(&engine, round, &mut model);
        engine.checkpoint().unwrap();
        engine.checkpoint().unwrap();
    }
    let from = model.partition_point(|(seq, _)| *seq <= now.0);
    assert_eq!(told(&rest(&mut reader)), model[from..]);
}

/// A change that is not durable may still be lost.
#[test]
fn only_what_is_durable_is_told() {
    let disk = MemDisk::new(6);
    let engine = open(&disk);
    let id = tree(&engine, "rows");
    let mut reader = reader(&engine, engine.feed_stats().newest).unwrap();
    let (_, receipt) = engine.transact(Durability::Process, |tx| tx.put(id, b"k", b"v")).unwrap();
    assert_eq!(rest(&mut reader), []);
    receipt.wait(Durability::Disk).unwrap();
    assert_eq!(told(&rest(&mut reader)), [(receipt.seq().0, "rows: k=1:v".to_owned())]);
}

fn small_feed() -> Options {
    Options { feed_bytes_max: 64 * 1024, ..tiny() }
}

/// Writes on, with checkpoints in between.
fn fill(engine: &Engine, id: TreeId, rounds: usize) -> Result<()> {
    for n in 0..rounds {
        put(engine, id, &format!("k{n}"), &[b'x'; 3000])?;
        if n % 5 == 4 {
            engine.checkpoint()?;
        }
    }
    Ok(())
}

/// A reader that never comes back must not fill the disk. It gets an error with what it lost, and where it
/// can go on.
#[test]
fn beyond_the_bound_who_lags_gets_a_gap() {
    let disk = MemDisk::new(7);
    let (engine, events) = open_with(&disk, small_feed());
    let id = tree(&engine, "rows");
    let now = engine.feed_stats().newest;
    set_position(&engine, "slow", now, false);
    fill(&engine, id, 100).unwrap();
    let stats = engine.feed_stats();
    assert!(stats.file_bytes <= 64 * 1024, "{stats:?}");
    let error = reader(&engine, now).unwrap_err();
    assert_eq!(error.code(), Code::FeedGap);
    assert!(error.hint().contains(&stats.oldest.0.to_string()), "{} | {}", error.message(), error.hint());
    assert!(events.lock().unwrap().iter().any(|event| event.starts_with("FeedLetGo")), "{events:?}");
    // A reader that has already lost changes holds nothing back.
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    engine.step().unwrap();
    assert_eq!(engine.feed_stats().file_count, 0);
}

/// A consumer that must not lose changes stops writers. It can always read on, and then writers continue,
/// too.
#[test]
fn a_consumer_that_asked_for_it_stops_writers_until_it_has_read() {
    let disk = MemDisk::new(8);
    let (engine, _) = open_with(&disk, small_feed());
    let id = tree(&engine, "rows");
    let now = engine.feed_stats().newest;
    set_position(&engine, "strict", now, true);
    let refused = fill(&engine, id, 200).unwrap_err();
    assert_eq!(refused.code(), Code::FeedFull, "{refused}");
    assert!(refused.message().contains("strict"), "{refused}");
    engine.transact(Durability::Disk, |tx| tx.delete(id, b"k0")).unwrap();
    let mut reader = reader(&engine, now).unwrap();
    let seen = rest(&mut reader);
    assert_eq!(seen.first().map(|commit| commit.seq), Some(CommitSeq(now.0 + 3)), "nothing is lost");
    assert!(put(&engine, id, "more", b"v").is_err());
    set_position(&engine, "strict", reader.position(), true);
    reader.next().unwrap();
    reader.done();
    engine.step().unwrap();
    put(&engine, id, "more", b"v").unwrap();
    // It may also be removed for good while writers are refused.
    fill(&engine, id, 200).unwrap_err();
    let positions = tree(&engine, POSITIONS);
    engine.transact(Durability::Disk, |tx| tx.delete(positions, b"strict")).unwrap();
    drop(reader);
    engine.step().unwrap();
    put(&engine, id, "again", b"v").unwrap();
}

/// D7: without room to retain changes, checkpoints and deletes go on.
#[test]
fn a_full_disk_costs_changes_and_never_the_checkpoint() {
    let disk = MemDisk::new(9);
    let (engine, events) = open_with(&disk, tiny());
    let id = tree(&engine, "rows");
    let now = engine.feed_stats().newest;
    set_position(&engine, "slow", now, false);
    fill(&engine, id, 20).unwrap();
    let room = disk.used_bytes() + 4 * 1024;
    disk.set_capacity(Some(room));
    let full = (0..10_000).find_map(|n| put(&engine, id, &format!("more {n}"), &[b'y'; 200]).err()).unwrap();
    assert_eq!(full.code(), Code::DiskFull, "{full}");
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.delete(id, b"k1")).unwrap();
    let told = events.lock().unwrap().iter().any(|event| event.starts_with("FeedLetGo"));
    let is_whole = reader(&engine, now).is_ok();
    assert!(told != is_whole, "either it is all there, or its loss was told");
    disk.set_capacity(None);
    engine.checkpoint().unwrap();
    put(&engine, id, "after", b"v").unwrap();
    assert!(engine.check().unwrap().is_clean(), "{:?}", engine.check().unwrap());
}

/// D4: a flipped bit in a retained file is an error, for readers and for `check`.
#[test]
fn corruption_in_a_retained_file_is_an_error_and_never_another_answer() {
    let disk = MemDisk::new(10);
    let engine = open(&disk);
    set_position(&engine, "slow", CommitSeq(0), false);
    let mut model = Vec::new();
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    let whole = told(&rest(&mut reader(&engine, CommitSeq(0)).unwrap()));
    engine.close().unwrap();
    drop(engine);
    let file = disk.files().into_iter().find(|path| path.starts_with("/db/feed")).unwrap();
    let bytes = disk.read_file(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    for offset in (0..used).step_by(37).filter(|offset| !(96..512).contains(offset)) {
        let corrupt = disk.deep_clone();
        corrupt.flip_bit(&file, offset, 3).unwrap();
        let engine = open(&corrupt);
        let problems = engine.check().unwrap().problems;
        assert!(problems.iter().any(|what| what.contains("feed")), "{offset}: {problems:?}");
        let read = reader(&engine, CommitSeq(0)).and_then(|mut reader| {
            let mut all = Vec::new();
            while let Some(commit) = reader.next()? {
                all.push(commit);
            }
            Ok(all)
        });
        match read {
            Ok(all) => panic!("{offset}: {:?} and nothing is wrong with {whole:?}", told(&all)),
            Err(error) => assert_eq!(error.code(), Code::CorruptFeed, "{offset}: {error}"),
        }
    }
}

/// A read-only opening returns the same feed.
#[test]
fn the_feed_can_be_read_without_writing() {
    let disk = MemDisk::new(11);
    let engine = open(&disk);
    set_position(&engine, "slow", CommitSeq(0), false);
    let mut model = Vec::new();
    for round in 0..3 {
        work(&engine, round, &mut model);
        engine.checkpoint().unwrap();
    }
    work(&engine, 3, &mut model);
    engine.abandon();
    disk.set_read_only(true);
    let (engine, _) = open_with(&disk, Options { read_only: true, create: false, ..tiny() });
    let mut reader = reader(&engine, CommitSeq(0)).unwrap();
    assert_eq!(told(&rest(&mut reader)), model);
    assert!(!reader.wait(None) && reader.is_at_end());
}

/// Waiting costs no polling, and can be stopped.
#[test]
fn a_reader_that_waits_is_woken_by_what_becomes_durable() {
    let engine = open(&MemDisk::new(12));
    let id = tree(&engine, "rows");
    let mut waiting = reader(&engine, engine.feed_stats().newest).unwrap();
    let stop = waiting.stopper();
    let waiter = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while waiting.wait(None) {
            seen.extend(rest(&mut waiting));
            if seen.len() == 2 {
                waiting.stopper().stop();
            }
        }
        (waiting.is_at_end(), told(&seen).len())
    });
    put(&engine, id, "a", b"v").unwrap();
    put(&engine, id, "b", b"v").unwrap();
    assert_eq!(waiter.join().unwrap(), (true, 2));
    stop.stop();
    let waiting = reader(&engine, engine.feed_stats().newest).unwrap();
    let waiter = std::thread::spawn(move || waiting.wait(None));
    engine.close().unwrap();
    assert!(!waiter.join().unwrap(), "a close ends the waiting");
}

/// D1: a process killed while it retained leaves frames, and even names, that only the page cache has.
///
/// They read as complete, but the next checkpoint must not release log because of them.
#[test]
fn what_a_killed_process_left_unsynced_is_retained_anew() {
    for (kind, earlier_checkpoint) in
        [(CallKind::Sync, false), (CallKind::Sync, true), (CallKind::SyncDir, false)]
    {
        let when = format!("{kind:?} fails, earlier checkpoint: {earlier_checkpoint}");
        let disk = MemDisk::new(13);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        if earlier_checkpoint {
            work(&engine, 0, &mut model);
            engine.checkpoint().unwrap();
        }
        work(&engine, 1, &mut model);
        disk.set_faults(Fault::new(kind, 0, Effect::EIO).on("feed"));
        engine.checkpoint().unwrap_err();
        assert_eq!(disk.fault_hit_count(), 1, "{when}");
        engine.abandon();
        disk.set_faults(FaultPlan::none());
        let engine = open(&disk);
        engine.checkpoint().unwrap();
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None));
        assert!(engine.check().unwrap().is_clean(), "{when}: {:?}", engine.check().unwrap());
        let mut after_cut = reader(&engine, CommitSeq(0)).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(told(&rest(&mut after_cut)), model, "{when}");
    }
}

/// D6: what a failed sync left in the page cache reads as complete, and no later sync writes it.
///
/// Of what an opening finds, it trusts only what the newest superblock covers.
#[test]
fn what_a_failed_sync_left_is_retained_anew() {
    let tries = [
        (CallKind::Sync, 0, false),
        (CallKind::Sync, 0, true),
        // Full files were synced before the file whose sync fails.
        (CallKind::Sync, 1, false),
        (CallKind::Sync, 1, true),
        (CallKind::Sync, 2, true),
        (CallKind::SyncDir, 0, false),
    ];
    for (kind, nth, earlier_checkpoint) in tries {
        let when = format!("{kind:?} {nth} fails, earlier checkpoint: {earlier_checkpoint}");
        let disk = MemDisk::new(16);
        let open = |disk: &MemDisk| open_with(disk, Options { feed_bytes_max: 2 << 20, ..tiny() }).0;
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        if earlier_checkpoint {
            work(&engine, 0, &mut model);
            engine.checkpoint().unwrap();
        }
        work(&engine, 1, &mut model);
        // Enough for several files; a file ends when a frame fills it.
        let (id, receipt) = engine.transact(Durability::Disk, |tx| tx.create_tree("bulk", None)).unwrap();
        model.push((receipt.seq().0, "bulk: created".to_owned()));
        for n in 0..16 {
            let seq = put(&engine, id, &format!("k{n}"), &[b'x'; 60_000]).unwrap();
            model.push((seq.0, format!("bulk: k{n}=60000:x")));
        }
        let gone = Effect::SyncErrorDataGone(std::io::ErrorKind::Other);
        disk.set_faults(Fault::new(kind, nth, gone).on("feed"));
        engine.checkpoint().unwrap_err();
        assert_eq!(disk.fault_hit_count(), 1, "{when}");
        engine.abandon();
        disk.set_faults(FaultPlan::none());
        let all = |engine: &Engine| {
            let mut reader = reader(engine, CommitSeq(0)).unwrap_or_else(|error| panic!("{when}: {error}"));
            told(&rest(&mut reader))
        };
        let engine = open(&disk);
        assert_eq!(all(&engine), model, "{when}, opened again");
        engine.checkpoint().unwrap();
        work(&engine, 2, &mut model);
        engine.checkpoint().unwrap();
        assert_eq!(all(&engine), model, "{when}, gone on");
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None));
        assert!(engine.check().unwrap().is_clean(), "{when}: {:?}", engine.check().unwrap());
        assert_eq!(all(&engine), model, "{when}, after a cut");
    }
}

/// A temporary failure, such as one failed write, must not lose a change for any consumer.
#[test]
fn a_failure_that_passes_costs_no_change() {
    let kinds = [
        CallKind::Open,
        CallKind::Create,
        CallKind::CreateDir,
        CallKind::Write,
        CallKind::WriteOut,
        CallKind::SetLen,
    ];
    for kind in kinds {
        let disk = MemDisk::new(17);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        let is_first = matches!(kind, CallKind::Create | CallKind::CreateDir);
        if !is_first {
            work(&engine, 0, &mut model);
            engine.checkpoint().unwrap();
        }
        work(&engine, 1, &mut model);
        engine.abandon();
        let (engine, events) = open_with(&disk, tiny());
        disk.set_faults(Fault::new(kind, 0, Effect::EIO).on("feed"));
        engine.checkpoint().unwrap_err();
        assert_eq!(disk.fault_hit_count(), 1, "{kind:?}");
        work(&engine, 2, &mut model);
        engine.checkpoint().unwrap();
        assert_eq!(told(&rest(&mut reader(&engine, CommitSeq(0)).unwrap())), model, "{kind:?}");
        assert!(events.lock().unwrap().iter().all(|event| !event.starts_with("FeedLetGo")), "{events:?}");
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None));
        assert!(engine.check().unwrap().is_clean(), "{kind:?}: {:?}", engine.check().unwrap());
        assert_eq!(told(&rest(&mut reader(&engine, CommitSeq(0)).unwrap())), model, "{kind:?}, after a cut");
    }
}

/// A directory that cannot be written must not stop checkpoints for good, unless a consumer prefers that.
#[test]
fn what_cannot_be_retained_for_a_minute_is_let_go_of_unless_somebody_refuses() {
    for refuses in [false, true] {
        let disk = MemDisk::new(14);
        let (engine, events) = open_with(&disk, tiny());
        let id = tree(&engine, "rows");
        let now = engine.feed_stats().newest;
        set_position(&engine, "reader", now, refuses);
        put(&engine, id, "k", b"v").unwrap();
        let let_go = || events.lock().unwrap().iter().any(|event| event.starts_with("FeedLetGo"));
        let seconds = |seconds: u64| disk.advance_clock(seconds * 1_000_000_000);
        disk.set_faults(Fault::new(CallKind::Create, 0, Effect::EIO).on("feed").for_good());
        engine.checkpoint().unwrap_err();
        // A failure after a pause without attempts is not known to have lasted.
        seconds(600);
        for _ in 0..3 {
            engine.checkpoint().unwrap_err();
            seconds(19);
        }
        engine.checkpoint().unwrap_err();
        assert!(!let_go());
        seconds(3);
        let done = engine.checkpoint();
        disk.set_faults(FaultPlan::none());
        assert_eq!(let_go(), !refuses);
        if refuses {
            let error = done.unwrap_err();
            assert!(error.message().contains("reader"), "{error}");
            engine.checkpoint().unwrap();
            assert!(!rest(&mut reader(&engine, now).unwrap()).is_empty());
        } else {
            done.unwrap();
            assert_eq!(reader(&engine, now).unwrap_err().code(), Code::FeedGap);
        }
        put(&engine, id, "k", b"w").unwrap();
        engine.checkpoint().unwrap();
        assert!(engine.check().unwrap().is_clean(), "{:?}", engine.check().unwrap());
    }
}
