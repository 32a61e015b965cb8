//! Retained files that are corrupt, cannot be read or cannot be removed. Whole changes are delivered, missing
//! ones are reported, and nothing else is blocked.

use super::found::{all, check_is_clean};
use std::path::PathBuf;

use super::*;

/// Reads the changes after a commit, up to the first error or the end.
fn until_error(engine: &Engine, after: u64) -> (Vec<(u64, String)>, Option<duramen_engine::Error>) {
    let mut reader = match reader(engine, CommitSeq(after)) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut commits = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(commit)) => commits.push(commit),
            Ok(None) => return (told(&commits), None),
            Err(error) => return (told(&commits), Some(error)),
        }
    }
}

/// A database with several retained files, the newest written by a second process. Also returns the newest
/// commit of each process, and all changes.
fn with_files(seed: u64) -> (MemDisk, Vec<u64>, Vec<(u64, String)>) {
    let disk = MemDisk::new(seed);
    let open = |disk: &MemDisk| open_with(disk, Options { feed_bytes_max: 40 << 10, ..tiny() }).0;
    let mut model = Vec::new();
    let mut ends = Vec::new();
    for round in 0..2 {
        let engine = open(&disk);
        if round == 0 {
            set_position(&engine, "slow", CommitSeq(0), false);
        }
        work(&engine, round, &mut model);
        engine.checkpoint().unwrap();
        ends.push(engine.feed_stats().log_from.0);
        engine.abandon();
    }
    (disk, ends, model)
}

/// The offset of the last byte that is not zero. It belongs to the last frame.
fn last_used(disk: &MemDisk, path: &Path) -> u64 {
    disk.read_file(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64
}

/// Opens with files of 256 KiB.
fn with_bigger_files(disk: &MemDisk) -> Engine {
    open_with(disk, Options { feed_bytes_max: 2 << 20, ..tiny() }).0
}

/// Opens with files of 8 MiB, so that one file holds everything.
fn with_one_big_file(disk: &MemDisk) -> Engine {
    open_with(disk, Options { feed_bytes_max: 64 << 20, ..tiny() }).0
}

/// Commits that fill several files of 256 KiB.
fn bulk(engine: &Engine, model: &mut Vec<(u64, String)>) {
    let (id, receipt) = engine.transact(Durability::Disk, |tx| tx.create_tree("bulk", None)).unwrap();
    model.push((receipt.seq().0, "bulk: created".to_owned()));
    for n in 0..16 {
        let seq = put(engine, id, &format!("k{n}"), &[b'x'; 60_000]).unwrap();
        model.push((seq.0, format!("bulk: k{n}=60000:x")));
    }
}

fn feed_files(disk: &MemDisk) -> Vec<PathBuf> {
    let mut files: Vec<_> = disk.files().into_iter().filter(|path| path.starts_with("/db/feed")).collect();
    files.sort();
    files
}

/// The newest file is corrupt. Changes of older files, and its own changes before the corruption, are still
/// delivered. The error contains the commit to continue from, and later changes are retained in a new file.
#[test]
fn files_before_a_corrupt_one_are_kept_and_read() {
    let (disk, ends, model) = with_files(40);
    let files = feed_files(&disk);
    assert!(files.len() > 1, "{files:?}");
    let newest = &files[files.len() - 1];
    let end = ends[1];
    for (offset, what) in
        [(40, "its header"), (700, "its first frame"), (last_used(&disk, newest), "its last frame")]
    {
        let (disk, mut model) = (disk.deep_clone(), model.clone());
        disk.flip_bit(newest, offset, 1).unwrap();
        let mut told_before = 0;
        for opened in 0..3 {
            let when = format!("{what}, opening {opened}");
            let engine = open(&disk);
            assert!(!engine.check().unwrap().is_clean(), "{when}: the corruption is reported");
            let (found, error) = until_error(&engine, 0);
            let error = error.unwrap_or_else(|| panic!("{when}: corrupt, and not reported"));
            assert_eq!(error.code(), Code::CorruptFeed, "{when}: {error}");
            assert_eq!(error.goes_on_after(), Some(CommitSeq(end)), "{when}");
            assert_eq!(found, model[..found.len()], "{when}");
            assert!(found.len() > 2, "{when}: {found:?}");
            assert!(opened == 0 || found.len() == told_before, "{when}");
            told_before = found.len();
            work(&engine, 4 + opened, &mut model);
            engine.checkpoint().unwrap();
            let (after, error) = until_error(&engine, end);
            assert!(error.is_none(), "{when}: {error:?}");
            let from = model.partition_point(|(seq, _)| *seq <= end);
            assert_eq!(after, model[from..], "{when}: nothing is missing after the corruption");
            engine.abandon();
        }
        let engine = open(&disk);
        set_position(&engine, "slow", CommitSeq(u64::MAX), false);
        engine.checkpoint().unwrap();
        check_is_clean(&engine, &format!("{what}: nothing needs it any more"));
        engine.abandon();
        assert_eq!(feed_files(&disk), Vec::<PathBuf>::new(), "{what}");
    }
}

/// The observer returns the changes before a corruption, the error once, and then the changes after it.
#[test]
fn the_observer_goes_on_after_a_corrupt_place() {
    let disk = MemDisk::new(41);
    let (engine, mut model) = (with_bigger_files(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    bulk(&engine, &mut model);
    engine.checkpoint().unwrap();
    engine.abandon();
    let files = feed_files(&disk);
    disk.flip_bit(&files[0], last_used(&disk, &files[0]), 1).unwrap();
    let mut observer = duramen_engine::Observer::open(
        Arc::new(disk.clone()),
        Path::new("/db"),
        tiny(),
        duramen_engine::ObserveFrom::After(CommitSeq(0)),
        Arc::new(|_: &str| true),
    )
    .unwrap();
    let (mut commits, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        match observer.next() {
            Ok(Some(commit)) => commits.push(commit),
            Ok(None) => break,
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].code(), Code::CorruptFeed);
    let goes_on = errors[0].goes_on_after().unwrap();
    let found = told(&commits);
    let before = found.partition_point(|(seq, _)| *seq <= goes_on.0);
    assert!(before > 0, "changes before the corruption are delivered: {found:?}");
    assert_eq!(found[..before], model[..before]);
    let after = model.partition_point(|(seq, _)| *seq <= goes_on.0);
    assert!(before < after && after < model.len(), "{goes_on}");
    assert_eq!(found[before..], model[after..]);
}

/// Sectors of a retained file cannot be read. The database opens, and nothing is missing once they can be
/// read again.
#[test]
fn a_feed_that_cannot_be_read_keeps_no_database_from_opening() {
    let (disk, _, model) = with_files(42);
    for nth in 0..4 {
        let disk = disk.deep_clone();
        disk.set_faults(Fault::new(CallKind::Read, nth, Effect::EIO).on("/db/feed").for_good());
        let engine = open(&disk);
        assert!(disk.fault_hit_count() > 0, "read {nth}");
        let (found, error) = until_error(&engine, 0);
        assert_eq!(found, model[..found.len()], "read {nth}");
        assert!(error.is_some_and(|error| error.goes_on_after().is_some()), "read {nth}");
        put(&engine, tree(&engine, "rows 0"), "written", b"v").unwrap();
        engine.checkpoint().unwrap();
        engine.abandon();
        disk.set_faults(FaultPlan::none());
        let engine = open(&disk);
        check_is_clean(&engine, &format!("read {nth}"));
        let found = all(&engine, "readable again");
        assert_eq!(found[..model.len()], model, "read {nth}");
        engine.abandon();
    }
}

/// D6: one superblock is lost. The copy of the changes that the other one does not cover is in the page cache
/// alone, since its sync failed, and it could not be removed. The next opening keeps the source until a new
/// copy is durable.
#[test]
fn what_was_copied_is_removed_only_once_the_copy_is_durable() {
    let disk = MemDisk::new(43);
    let model = only_the_older_superblock_left(&disk);
    let plan = FaultPlan::from(Fault::new(CallKind::Sync, 0, Effect::EIO).on("/db/feed"));
    disk.set_faults(plan.with(Fault::new(CallKind::Remove, 0, Effect::EIO).on("/db/feed").for_good()));
    let hooks = Hooks { feed: Some(Arc::new(Positions)), ..Hooks::default() };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), hooks).unwrap_err();
    assert!(disk.fault_hit_count() > 1, "the copy's sync failed, and its removal");
    disk.set_faults(FaultPlan::none());
    assert_eq!(feed_files(&disk).len(), 2, "the file and its copy");
    disk.record();
    open(&disk).abandon();
    let trace = disk.stop_recording();
    for op in 0..=trace.len() {
        for choice in [CrashChoice::None, CrashChoice::All] {
            let engine = open(&trace.crash_image(op, &choice));
            let when = format!("cut after {op} operations, {choice:?}");
            let mut found = all(&engine, &when);
            found.truncate(model.len());
            assert_eq!(found, model, "{when}");
            engine.abandon();
        }
    }
}

/// Files of a checkpoint that never completed can be neither removed nor emptied. Changes are retained in new
/// files all the same.
#[test]
fn what_cannot_be_removed_keeps_nothing_from_being_retained() {
    let (disk, not_believed, model) = killed_before_the_superblock(44);
    for stuck in &not_believed {
        let (disk, mut model) = (disk.deep_clone(), model.clone());
        let name = stuck.to_str().unwrap();
        let plan = FaultPlan::from(Fault::new(CallKind::Remove, 0, Effect::EIO).on(name).for_good());
        disk.set_faults(plan.with(Fault::new(CallKind::SetLen, 0, Effect::EIO).on(name).for_good()));
        let engine = with_one_big_file(&disk);
        assert!(disk.fault_hit_count() > 1, "{name}");
        for round in 5..8 {
            work(&engine, round, &mut model);
            engine.checkpoint().unwrap();
            assert_eq!(all(&engine, name), model, "{name} cannot be removed");
        }
        engine.abandon();
        disk.set_faults(FaultPlan::none());
        let engine = with_bigger_files(&disk.crash(&CrashChoice::None));
        check_is_clean(&engine, name);
        assert_eq!(all(&engine, name), model, "{name}, opened again");
        engine.abandon();
    }
}

/// A process is killed after a checkpoint has retained changes in new files, before it wrote its superblock.
/// Also returns those files, and all changes.
fn killed_before_the_superblock(seed: u64) -> (MemDisk, Vec<PathBuf>, Vec<(u64, String)>) {
    let disk = MemDisk::new(seed);
    let (engine, mut model) = (with_bigger_files(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    let believed = feed_files(&disk).len();
    bulk(&engine, &mut model);
    disk.record();
    engine.checkpoint().unwrap();
    engine.abandon();
    let trace = disk.stop_recording();
    let last = (0..trace.len()).rfind(|at| trace.op(*at).path.starts_with("/db/feed")).unwrap();
    let disk = trace.crash_image(last + 1, &CrashChoice::All);
    let not_believed = feed_files(&disk).split_off(believed);
    assert!(not_believed.len() > 1, "{not_believed:?}");
    (disk, not_believed, model)
}

/// A corrupt file is kept as long as `feed_retain_bytes` keeps its changes, and no longer.
#[test]
fn a_bound_keeps_a_corrupt_file_for_a_while() {
    let disk = MemDisk::new(45);
    let options = || Options { feed_bytes_max: 64 << 10, feed_retain_bytes: 6 << 10, ..tiny() };
    let open = |disk: &MemDisk| open_with(disk, options()).0;
    let engine = open(&disk);
    let mut model = Vec::new();
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    engine.abandon();
    let path = &feed_files(&disk)[0];
    disk.flip_bit(path, 40, 1).unwrap();
    let mut rounds_kept = 0;
    for round in 1..12 {
        let engine = open(&disk);
        rounds_kept += u8::from(!engine.check().unwrap().is_clean());
        work(&engine, round, &mut model);
        engine.checkpoint().unwrap();
        engine.abandon();
    }
    assert!((2..6).contains(&rounds_kept), "kept for {rounds_kept} rounds");
    assert!(!feed_files(&disk).contains(path));
}

/// A database whose newer superblock is lost, with several retained files that the older one does not cover.
/// Some values are in these files only: their extents were reused. Also returns the changes in the files.
fn lost_superblock_before_several_files(disk: &MemDisk) -> Vec<(u64, String)> {
    let (engine, mut model) = (with_bigger_files(disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    bulk(&engine, &mut model);
    work(&engine, 1, &mut model);
    engine.checkpoint().unwrap();
    engine.abandon();
    lose_newer_superblock(disk, with_bigger_files(disk));
    model
}

/// Opens the database while the copy of those files cannot be completed, nor removed.
fn open_without_copying(disk: &MemDisk, fault: Fault) {
    let stuck = |kind| Fault::new(kind, 0, Effect::EIO).on("/db/feed").for_good();
    let plan = FaultPlan::from(fault.on("/db/feed")).with(stuck(CallKind::Remove));
    disk.set_faults(plan.with(stuck(CallKind::SetLen)));
    let hooks = Hooks { feed: Some(Arc::new(Positions)), ..Hooks::default() };
    let options = Options { feed_bytes_max: 2 << 20, ..tiny() };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, hooks).unwrap_err();
    assert!(disk.fault_hit_count() > 1, "the copy failed, and its removal");
    disk.set_faults(FaultPlan::none());
}

/// Opens the database, and once more after a power cut: all changes are delivered.
fn opens_whole(disk: &MemDisk, model: &[(u64, String)], when: &str) {
    let engine = with_bigger_files(disk);
    assert_eq!(all(&engine, when)[..model.len()], *model, "{when}");
    engine.abandon();
    let engine = with_bigger_files(&disk.crash(&CrashChoice::None));
    assert_eq!(all(&engine, when)[..model.len()], *model, "{when}, after a cut");
    check_is_clean(&engine, when);
    engine.abandon();
}

/// Two copies were not completed and could not be removed. Neither replaces the files that were copied.
#[test]
fn copies_that_were_cut_short_replace_no_file() {
    let disk = MemDisk::new(46);
    let model = lost_superblock_before_several_files(&disk);
    let sources = feed_files(&disk).len();
    // The second one reaches further than the first.
    for nth in [3, 5] {
        open_without_copying(&disk, Fault::new(CallKind::Write, nth, Effect::EIO));
    }
    assert_eq!(feed_files(&disk).len(), sources + 2, "two copies");
    opens_whole(&disk, &model, "beside two short copies");
}

/// There is room for one copy only. The unfinished copy is removed before the next one is written.
#[test]
fn a_copy_is_made_on_a_disk_with_little_room() {
    let disk = MemDisk::new(47);
    let model = lost_superblock_before_several_files(&disk);
    open_without_copying(&disk, Fault::new(CallKind::Sync, 0, Effect::EIO));
    disk.set_capacity(Some(disk.used_bytes() + 400 * 1024));
    opens_whole(&disk, &model, "with little room");
}

/// Several files are copied and then removed. A power cut at any call loses nothing.
#[test]
fn a_cut_while_several_files_are_copied_costs_no_value() {
    let disk = MemDisk::new(54);
    let model = lost_superblock_before_several_files(&disk);
    disk.record();
    with_bigger_files(&disk).abandon();
    let trace = disk.stop_recording();
    let mut cursor = trace.cursor();
    for op in 0..=trace.len() {
        cursor.seek(op);
        let pending = cursor.pending_len();
        let single = (0..pending).flat_map(|at| [CrashChoice::AllBut(at), CrashChoice::Prefix(at)]);
        for choice in single.chain([CrashChoice::None, CrashChoice::All]) {
            let engine = with_bigger_files(&cursor.image(&choice));
            let when = format!("cut after {op} operations, {choice:?}");
            assert_eq!(all(&engine, &when)[..model.len()], model, "{when}");
            engine.abandon();
        }
    }
}

/// One wrong or failed read, while the files that the older superblock does not cover are copied, loses
/// nothing.
#[test]
fn one_wrong_read_beside_a_lost_superblock_loses_no_change() {
    let disk = MemDisk::new(48);
    let model = lost_superblock_before_several_files(&disk);
    for effect in [Effect::FlippedRead(800), Effect::EIO] {
        let mut hit_count = 0;
        for nth in 0..40 {
            let disk = disk.deep_clone();
            disk.set_faults(Fault::new(CallKind::Read, nth, effect).on("/db/feed"));
            let engine = with_bigger_files(&disk);
            hit_count += disk.fault_hit_count();
            disk.set_faults(FaultPlan::none());
            let when = format!("{effect:?}, read {nth}");
            assert_eq!(all(&engine, &when)[..model.len()], model, "{when}");
            engine.abandon();
            opens_whole(&disk, &model, &when);
        }
        assert!(hit_count > 20, "{hit_count} reads went wrong");
    }
}

/// A superblock is lost, and the files that the other one does not cover cannot be read. The database opens.
#[test]
fn what_cannot_be_copied_keeps_no_database_from_opening() {
    let disk = MemDisk::new(49);
    lost_superblock_before_several_files(&disk);
    for nth in 0..40 {
        let disk = disk.deep_clone();
        disk.set_faults(Fault::new(CallKind::Read, nth, Effect::EIO).on("/db/feed").for_good());
        with_bigger_files(&disk).abandon();
    }
}

/// A file that no superblock covers cannot be read at one opening, and can be read at the next. The changes
/// retained in between are delivered once.
#[test]
fn a_file_that_can_be_read_again_tells_nothing_twice() {
    let (disk, not_believed, model) = killed_before_the_superblock(50);
    let plans = |name: &str| {
        let read = |nth| Fault::new(CallKind::Read, nth, Effect::EIO).on(name);
        let mut plans: Vec<_> = (0..5).map(|nth| FaultPlan::from(read(nth).for_good())).collect();
        // Two reads of the header fail, and the third does not.
        plans.push(FaultPlan::from(read(0)).with(read(1)));
        plans
    };
    for hidden in &not_believed {
        for (at, plan) in plans(hidden.to_str().unwrap()).into_iter().enumerate() {
            let (disk, mut model) = (disk.deep_clone(), model.clone());
            let when = format!("{}, plan {at}", hidden.display());
            disk.set_faults(plan);
            let engine = with_one_big_file(&disk);
            if at == 5 {
                check_is_clean(&engine, &when);
            }
            work(&engine, 5, &mut model);
            engine.checkpoint().unwrap();
            assert_eq!(all(&engine, &when), model, "{when}");
            engine.abandon();
            disk.set_faults(FaultPlan::none());
            for opened in 0..2 {
                let engine = with_one_big_file(&disk);
                check_is_clean(&engine, &when);
                assert_eq!(all(&engine, &when), model, "{when}, opened again");
                work(&engine, 6 + opened, &mut model);
                engine.checkpoint().unwrap();
                engine.abandon();
            }
        }
    }
}

/// `feed_retain_age` keeps older files also if the newest has no commit time: its frames are corrupt, or none
/// of its commits changed a source of the feed.
#[test]
fn older_files_are_kept_for_their_time_beside_a_newer_one_without() {
    let options = || Options {
        feed_bytes_max: 40 << 10,
        feed_retain_age: std::time::Duration::from_secs(60 * 60),
        ..tiny()
    };
    for is_corrupt in [true, false] {
        let disk = MemDisk::new(51);
        let open = |disk: &MemDisk| open_with(disk, options()).0;
        let (engine, mut model) = (open(&disk), Vec::new());
        work(&engine, 0, &mut model);
        engine.checkpoint().unwrap();
        set_position(&engine, "ended", CommitSeq(u64::MAX), false);
        engine.checkpoint().unwrap();
        engine.abandon();
        let files = feed_files(&disk);
        assert_eq!(files.len(), 2);
        if is_corrupt {
            disk.flip_bit(&files[1], 520, 1).unwrap();
        }
        let engine = open(&disk);
        set_position(&engine, "ended", CommitSeq(u64::MAX), false);
        engine.checkpoint().unwrap();
        assert_eq!(feed_files(&disk)[..2], files, "corrupt: {is_corrupt}");
        engine.abandon();
    }
}

/// One read of a file is wrong or fails. The consumer gets all changes, and no error.
#[test]
fn one_wrong_read_is_no_corruption_to_a_reader() {
    let (disk, _, model) = with_files(55);
    for effect in [Effect::FlippedRead(40), Effect::EIO] {
        let mut hit_count = 0;
        for nth in 0..8 {
            let engine = open(&disk);
            disk.set_faults(Fault::new(CallKind::Read, nth, effect).on("/db/feed"));
            let (found, error) = until_error(&engine, 0);
            assert!(error.is_none(), "{effect:?} {nth}: {error:?}");
            assert_eq!(found, model, "{effect:?} {nth}");
            hit_count += disk.fault_hit_count();
            disk.set_faults(FaultPlan::none());
            engine.abandon();
        }
        assert!(hit_count > 3, "{hit_count}");
    }
}

/// The sync of a removal fails, with and without a checkpoint. The engine is poisoned, and a power cut leaves
/// no corruption.
#[test]
fn a_failed_sync_of_a_removal_poisons() {
    for by_checkpoint in [true, false] {
        let (disk, engine, _) = super::found::with_one_file(56);
        set_position(&engine, "slow", engine.feed_stats().newest, false);
        disk.set_faults(Fault::new(CallKind::SyncDir, 0, Effect::EIO).on("feed"));
        let done = if by_checkpoint { engine.checkpoint() } else { engine.step().map(drop) };
        assert_eq!(disk.fault_hit_count(), 1);
        assert!(done.is_err() || engine.durability_status().poisoned.is_some());
        assert!(engine.durability_status().poisoned.is_some(), "by a checkpoint: {by_checkpoint}");
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None));
        check_is_clean(&engine, "after a cut");
        engine.abandon();
    }
}

/// Puts values, with checkpoints between, until a consumer refuses writers.
fn fill_until_refused(engine: &Engine, id: TreeId) {
    let refused = (0..400).find_map(|n| {
        let done = put(engine, id, &format!("k{n}"), &[b'x'; 3000]);
        if n % 5 == 4 {
            engine.checkpoint().unwrap();
        }
        done.err()
    });
    assert_eq!(refused.map(|error| error.code()), Some(Code::FeedFull));
}

/// A consumer that refuses writers is at a corrupt file. It does not lose the changes after the corruption.
#[test]
fn a_consumer_at_a_corrupt_file_still_refuses_writers() {
    let disk = MemDisk::new(52);
    let open = |disk: &MemDisk| open_with(disk, Options { feed_bytes_max: 64 << 10, ..tiny() }).0;
    let engine = open(&disk);
    let id = tree(&engine, "rows");
    set_position(&engine, "strict", CommitSeq(0), true);
    engine.checkpoint().unwrap();
    engine.abandon();
    disk.flip_bit(&feed_files(&disk)[0], 40, 1).unwrap();
    let engine = open(&disk);
    let error = reader(&engine, CommitSeq(0)).unwrap_err();
    let goes_on = error.goes_on_after().unwrap();
    fill_until_refused(&engine, id);
    reader(&engine, goes_on).unwrap();
}

/// Files that no superblock covers could not be removed at opening. They are removed before the next
/// superblock, also if no consumer needs changes any more.
#[test]
fn what_could_not_be_removed_at_opening_is_before_the_next_superblock() {
    let (disk, not_believed, _) = killed_before_the_superblock(53);
    let stuck = |kind| Fault::new(kind, 0, Effect::EIO).on("/db/feed").for_good();
    disk.set_faults(FaultPlan::from(stuck(CallKind::Remove)).with(stuck(CallKind::SetLen)));
    let engine = with_bigger_files(&disk);
    disk.set_faults(FaultPlan::none());
    assert!(not_believed.iter().all(|path| feed_files(&disk).contains(path)), "they could not be removed");
    set_position(&engine, "slow", CommitSeq(u64::MAX), false);
    engine.checkpoint().unwrap();
    engine.abandon();
    assert_eq!(feed_files(&disk), Vec::<PathBuf>::new());
}

/// A consumer that refused writers has read on, and the files that were kept for it cannot be removed for a
/// while. Writers are admitted again, without a checkpoint.
#[test]
fn a_removal_that_fails_blocks_no_writer() {
    for kind in [CallKind::List, CallKind::Remove] {
        let disk = MemDisk::new(57);
        let engine = open_with(&disk, Options { feed_bytes_max: 64 << 10, ..tiny() }).0;
        let id = tree(&engine, "rows");
        set_position(&engine, "strict", engine.feed_stats().newest, true);
        fill_until_refused(&engine, id);
        set_position(&engine, "strict", engine.feed_stats().newest, true);
        let fault = Fault::new(kind, 0, Effect::EIO).on("feed");
        disk.set_faults(FaultPlan::from(fault).with(Fault::new(CallKind::SetLen, 0, Effect::EIO).on("feed")));
        drop(engine.step());
        assert!(disk.fault_hit_count() > 0);
        disk.set_faults(FaultPlan::none());
        put(&engine, id, "let in", b"v").unwrap();
        engine.step().unwrap();
        assert_eq!(feed_files(&disk), Vec::<PathBuf>::new(), "{kind:?}");
        engine.abandon();
    }
}

/// D7: the oldest file can be neither removed nor emptied. The files after it are removed all the same, and
/// the changes that are still needed are whole, also after a crash.
#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_one() {
    let disk = MemDisk::new(59);
    let (engine, mut model) = (with_bigger_files(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    bulk(&engine, &mut model);
    engine.checkpoint().unwrap();
    let files = feed_files(&disk);
    assert!(files.len() > 3, "{files:?}");
    let stuck = |kind| Fault::new(kind, 0, Effect::EIO).on(files[0].to_str().unwrap()).for_good();
    disk.set_faults(FaultPlan::from(stuck(CallKind::Remove)).with(stuck(CallKind::SetLen)));
    let needed_from = model.len() - 3;
    let position = model[needed_from].0 - 1;
    set_position(&engine, "slow", CommitSeq(position), false);
    engine.checkpoint().unwrap();
    assert!(disk.fault_hit_count() > 1);
    let left = feed_files(&disk);
    assert!(left.contains(&files[0]) && !left.contains(&files[1]), "{left:?}");
    engine.abandon();
    disk.set_faults(FaultPlan::none());
    let disk = disk.crash(&CrashChoice::None);
    let engine = with_bigger_files(&disk);
    let (found, error) = until_error(&engine, 0);
    assert_eq!(found, model[..found.len()]);
    let goes_on = error.and_then(|error| error.goes_on_after()).expect("the changes after it are missing");
    assert!(goes_on.0 <= position, "{goes_on}");
    let (found, error) = until_error(&engine, position);
    assert!(error.is_none() && found == model[needed_from..], "{found:?}, {error:?}");
    put(&engine, tree(&engine, "bulk"), "written", b"v").unwrap();
    engine.checkpoint().unwrap();
    assert!(!feed_files(&disk).contains(&files[0]), "it can be removed now");
    check_is_clean(&engine, "without it");
    engine.abandon();
}
