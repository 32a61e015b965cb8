//! Retained files as an opening finds them after a cut, a failed sync, or the loss of a superblock.

use duramen_disk::memory::OpKind;

use super::*;

pub(super) fn all(engine: &Engine, when: &str) -> Vec<(u64, String)> {
    let mut reader = reader(engine, CommitSeq(0)).unwrap_or_else(|error| panic!("{when}: {error}"));
    told(&rest(&mut reader))
}

pub(super) fn check_is_clean(engine: &Engine, when: &str) {
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.problems);
}

/// A database with a consumer that has read nothing, and one file with what was committed for it.
pub(super) fn with_one_file(seed: u64) -> (MemDisk, Engine, Vec<(u64, String)>) {
    let disk = MemDisk::new(seed);
    let (engine, mut model) = (open(&disk), Vec::new());
    set_position(&engine, "slow", CommitSeq(0), false);
    work(&engine, 0, &mut model);
    engine.checkpoint().unwrap();
    (disk, engine, model)
}

/// The power is cut while a file is created: its header's sectors may hold anything. Nothing relied on the
/// file.
#[test]
fn a_file_that_was_being_made_is_no_corruption_whatever_its_header_holds() {
    for (checkpoint_count, number) in [(0, 1), (1, 2), (1, 7)] {
        let when = format!("{checkpoint_count} checkpoints, file {number}");
        let disk = MemDisk::new(18);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        work(&engine, 0, &mut model);
        for _ in 0..checkpoint_count {
            engine.checkpoint().unwrap();
        }
        work(&engine, 1, &mut model);
        let copy = disk.deep_clone();
        engine.checkpoint().unwrap();
        engine.abandon();
        // With the frames of the checkpoint that was not completed, and without.
        let newest = disk.files().into_iter().filter(|path| path.starts_with("/db/feed")).max().unwrap();
        let mut bytes = disk.read_file(&newest).unwrap();
        bytes[..96].fill(0x5a);
        for bytes in [bytes, vec![0x5a; 4096]] {
            let disk = copy.crash(&CrashChoice::None);
            drop(duramen_disk::Disk::create_dir(&disk, Path::new("/db/feed")));
            let path = format!("/db/feed/{number:012}.feed");
            if number > 1 && bytes.len() != 4096 {
                // Frames of file 1 do not belong to another file.
                continue;
            }
            disk.write_file(&path, &bytes).unwrap();
            let engine = open(&disk);
            check_is_clean(&engine, &when);
            assert_eq!(all(&engine, &when), model, "{when}");
            engine.checkpoint().unwrap();
            assert_eq!(all(&engine, &when), model, "{when}, after a checkpoint");
            engine.abandon();
            let engine = open(&disk.crash(&CrashChoice::None));
            check_is_clean(&engine, &when);
            assert_eq!(all(&engine, &when), model, "{when}, opened again");
        }
    }
}

/// A file was abandoned during creation and could not be removed. The next checkpoint created another one
/// with the same changes. After a power cut the first one's header may hold anything: `check` must not report
/// that as corruption.
#[test]
fn a_file_that_was_given_up_is_no_corruption_whatever_its_header_holds() {
    for relied_on in [false, true] {
        let disk = MemDisk::new(24);
        let path = "/db/feed/000000000001.feed";
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        work(&engine, 0, &mut model);
        let mut given_up = None;
        if !relied_on {
            let plan = FaultPlan::from(Fault::new(CallKind::WriteOut, 0, Effect::EIO).on("feed"));
            disk.set_faults(plan.with(Fault::new(CallKind::Remove, 0, Effect::EIO).on("feed")));
            engine.checkpoint().unwrap_err();
            assert_eq!(disk.fault_hit_count(), 2);
            disk.set_faults(FaultPlan::none());
            given_up = Some(disk.read_file(path).unwrap());
            work(&engine, 1, &mut model);
        }
        engine.checkpoint().unwrap();
        engine.abandon();
        assert_eq!(
            disk.read_file(path).is_ok(),
            relied_on,
            "what was given up is removed before the superblock"
        );
        let disk = disk.crash(&CrashChoice::All);
        let mut bytes = given_up.unwrap_or_else(|| disk.read_file(path).unwrap());
        assert!(bytes.len() > 512, "a frame stands after the header");
        bytes[..96].fill(0x5a);
        disk.write_file(path, &bytes).unwrap();
        let engine = open(&disk);
        if relied_on {
            assert!(!engine.check().unwrap().is_clean(), "what was relied on is corrupt");
        } else {
            check_is_clean(&engine, "the file was given up");
            assert_eq!(all(&engine, "the file was given up"), model);
        }
        engine.abandon();
    }
}

/// A power cut while a second file is written tears its header and leaves its frames whole. The database
/// continues the first file, and the next checkpoint covers the same commits.
///
/// No checkpoint relied on the second file, so it is not corruption (D4). The same holds without a first
/// file, if the consumer has ended.
#[test]
fn a_file_begun_for_a_checkpoint_that_did_not_come_is_no_corruption_after_the_next() {
    for (has_one_before, can_remove) in [(true, true), (true, false), (false, true), (false, false)] {
        let when = format!("a file before: {has_one_before}, can be removed: {can_remove}");
        let disk = MemDisk::new(25);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        work(&engine, 0, &mut model);
        if has_one_before {
            engine.checkpoint().unwrap();
            work(&engine, 1, &mut model);
            disk.set_faults(Fault::new(CallKind::WriteOut, 0, Effect::EIO).on("feed"));
            engine.checkpoint().unwrap_err();
            assert_eq!(disk.fault_hit_count(), 1);
            disk.set_faults(FaultPlan::none());
        }
        disk.record();
        engine.checkpoint().unwrap();
        engine.abandon();
        let trace = disk.stop_recording();
        let newest = disk.files().into_iter().filter(|path| path.starts_with("/db/feed")).max().unwrap();
        let number = if has_one_before { 2 } else { 1 };
        assert_eq!(newest, Path::new(&format!("/db/feed/{number:012}.feed")));
        let is_synced = |index: &usize| {
            let op = trace.op(*index);
            op.kind == OpKind::Sync && op.path == newest
        };
        let synced = (0..trace.len()).find(is_synced).expect("the file was synced");
        let cut = trace.crash_image(synced, &CrashChoice::All);
        let mut bytes = cut.read_file(&newest).unwrap();
        assert!(bytes.len() > 512, "a frame stands after the header");
        bytes[..96].fill(0x5a);
        cut.write_file(&newest, &bytes).unwrap();

        let engine = open(&cut);
        check_is_clean(&engine, &when);
        if !has_one_before {
            set_position(&engine, "slow", CommitSeq(u64::MAX), false);
        }
        if !can_remove {
            cut.set_faults(Fault::new(CallKind::Remove, 0, Effect::EIO).on("feed").for_good());
        }
        engine.checkpoint().unwrap();
        let left = cut.read_file(&newest).unwrap_or_default();
        assert!(left != bytes, "{when}: it is removed, emptied or written anew");
        engine.abandon();
        let engine = open(&cut.crash(&CrashChoice::All));
        check_is_clean(&engine, &when);
        if has_one_before {
            assert_eq!(all(&engine, &when), model, "{when}");
        }
        engine.abandon();
    }
}

/// A header that is read wrongly once at opening is read again. Otherwise the file would be called corrupt.
#[test]
fn a_header_that_reads_wrong_once_loses_no_change() {
    for effect in [Effect::FlippedRead(40), Effect::FlippedRead(700)] {
        let disk = MemDisk::new(26);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        for round in 0..3 {
            work(&engine, round, &mut model);
            engine.checkpoint().unwrap();
        }
        engine.abandon();
        let mut hit_count = 0;
        for nth in 0..12 {
            let disk = disk.crash(&CrashChoice::All);
            disk.set_faults(Fault::new(CallKind::Read, nth, effect).on("/db/feed"));
            let engine = open(&disk);
            hit_count += disk.fault_hit_count();
            disk.set_faults(FaultPlan::none());
            let when = format!("{effect:?}, read {nth}");
            check_is_clean(&engine, &when);
            assert_eq!(all(&engine, &when), model, "{when}");
            engine.checkpoint().unwrap();
            assert_eq!(all(&engine, &when), model, "{when}, after a checkpoint");
            engine.abandon();
        }
        assert!(hit_count > 1, "{hit_count} reads went wrong");
    }
}

/// A file that a checkpoint relied on loses its header. It is kept, and the corruption is reported, while a
/// consumer needs its changes (D4).
#[test]
fn a_corrupt_file_is_kept_and_reported_while_it_is_needed() {
    for header in [0x5a, 0] {
        let (disk, engine, mut model) = with_one_file(27);
        engine.abandon();
        let path = "/db/feed/000000000001.feed";
        let mut bytes = disk.read_file(path).unwrap();
        bytes[..96].fill(header);
        disk.write_file(path, &bytes).unwrap();
        for round in 1..3 {
            let engine = open(&disk);
            assert!(!engine.check().unwrap().is_clean(), "round {round}, header {header}");
            assert_eq!(reader(&engine, CommitSeq(0)).unwrap_err().code(), Code::CorruptFeed);
            work(&engine, round, &mut model);
            engine.checkpoint().unwrap();
            assert_eq!(disk.read_file(path).unwrap(), bytes, "round {round}: it is kept");
            engine.abandon();
        }
        let engine = open(&disk);
        set_position(&engine, "slow", CommitSeq(u64::MAX), false);
        engine.checkpoint().unwrap();
        assert!(disk.read_file(path).is_err(), "nothing needs it any more");
        engine.abandon();
        let engine = open(&disk);
        check_is_clean(&engine, "it is gone");
        engine.abandon();
    }
}

/// A process is killed after it removed a file, before it synced the directory. The next process takes a
/// checkpoint that does without the file, and the power is cut: the file must not come back.
#[test]
fn a_removal_by_a_process_that_was_killed_does_not_come_back() {
    let (disk, engine, mut model) = with_one_file(28);
    set_position(&engine, "slow", CommitSeq(u64::MAX), false);
    engine.abandon();
    duramen_disk::Disk::remove(&disk, Path::new("/db/feed/000000000001.feed")).unwrap();
    let engine = open(&disk);
    work(&engine, 1, &mut model);
    engine.checkpoint().unwrap();
    engine.abandon();
    let engine = open(&disk.crash(&CrashChoice::None));
    check_is_clean(&engine, "the power was cut");
    engine.abandon();
}

/// The feed's directory cannot be opened for a while, as in a process without free file descriptors. No sync
/// has failed, so the engine is not poisoned, and checkpoints go on.
#[test]
fn a_directory_that_cannot_be_opened_poisons_nothing() {
    let (disk, engine, mut model) = with_one_file(29);
    engine.abandon();
    let engine = open(&disk);
    work(&engine, 1, &mut model);
    disk.set_faults(Fault::new(CallKind::List, 0, Effect::EIO).on("feed").for_good());
    engine.checkpoint().unwrap();
    assert!(disk.fault_hit_count() > 0);
    disk.set_faults(FaultPlan::none());
    assert!(engine.durability_status().poisoned.is_none());
    work(&engine, 2, &mut model);
    engine.checkpoint().unwrap();
    assert_eq!(all(&engine, "at the end"), model);
    engine.abandon();
}

/// A file found the disk full during creation and was removed; the checkpoint went on without it (D7).
///
/// A power cut may bring part of it back beside a superblock that does not cover it: that is not corruption.
#[test]
fn a_file_that_found_no_room_does_not_come_back() {
    let mut hit_count = 0;
    for nth in 0..3 {
        let disk = MemDisk::new(21);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        work(&engine, 0, &mut model);
        disk.record();
        let full = Effect::ShortWrite(std::io::ErrorKind::StorageFull);
        disk.set_faults(Fault::new(CallKind::Write, nth, full).on("feed"));
        engine.checkpoint().unwrap();
        hit_count += disk.fault_hit_count();
        engine.abandon();
        let trace = disk.stop_recording();
        let mut cursor = trace.cursor();
        cursor.seek(trace.len());
        let pending = cursor.pending_len();
        let single = (0..pending).flat_map(|at| [CrashChoice::AllBut(at), CrashChoice::Prefix(at)]);
        for choice in single.chain([CrashChoice::None, CrashChoice::All]) {
            let engine = open(&cursor.image(&choice));
            check_is_clean(&engine, &format!("write {nth}, {choice:?}"));
            engine.abandon();
        }
    }
    assert!(hit_count > 1, "the disk was full {hit_count} times");
}

/// A read of a value fails once, while a checkpoint retains it or a reader reads it; on the disk it is
/// intact.
///
/// It must not be reported as lost, nor stay lost in the retained file.
#[test]
fn a_read_that_goes_wrong_once_loses_no_value() {
    let mut hit_count = 0;
    for nth in 0..40 {
        let disk = MemDisk::new(23);
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        work(&engine, 0, &mut model);
        let flip =
            || disk.set_faults(Fault::new(CallKind::Read, nth, Effect::FlippedRead(3000)).on("/db/data"));
        flip();
        let when = format!("read {nth}");
        assert_eq!(all(&engine, &format!("{when} from the log")), model, "{when} from the log");
        hit_count += disk.fault_hit_count();
        flip();
        engine.checkpoint().unwrap_or_else(|error| panic!("{when}: {error}"));
        hit_count += disk.fault_hit_count();
        disk.set_faults(FaultPlan::none());
        assert_eq!(all(&engine, &when), model, "{when}");
    }
    assert!(hit_count > 4, "{hit_count} reads went wrong");
}

fn generations(disk: &MemDisk) -> [Option<u64>; 2] {
    let bytes = disk.read_file("/db/data").unwrap();
    SUPERBLOCK_OFFSETS.map(|offset| {
        let at = usize::try_from(offset).unwrap();
        Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]).ok().map(|found| found.generation.0)
    })
}

/// D6: a superblock was lost, and opening made a copy of the other.
///
/// While the two are alike, files are read beyond what they cover. What a failed sync left there is in the
/// page cache alone: it is copied before the feed goes on from it.
#[test]
fn what_a_failed_sync_left_beside_two_superblocks_that_are_alike_is_written_again() {
    let tries = [(CallKind::Sync, 0), (CallKind::Sync, 1), (CallKind::Sync, 2), (CallKind::SyncDir, 0)];
    let mut hits = std::collections::BTreeMap::new();
    for (lost, (kind, nth), checkpoint_count) in [0, 1]
        .into_iter()
        .flat_map(|lost| tries.map(|of| (lost, of)))
        .flat_map(|(lost, of)| [2, 3].map(|count| (lost, of, count)))
    {
        let when = format!("superblock {lost} lost, {kind:?} {nth} fails, {checkpoint_count} checkpoints");
        let disk = MemDisk::new(20);
        let open = |disk: &MemDisk| open_with(disk, Options { feed_bytes_max: 2 << 20, ..tiny() }).0;
        let (engine, mut model) = (open(&disk), Vec::new());
        set_position(&engine, "slow", CommitSeq(0), false);
        for round in 0..checkpoint_count {
            work(&engine, round, &mut model);
            engine.checkpoint().unwrap();
        }
        engine.abandon();
        disk.flip_bit("/db/data", SUPERBLOCK_OFFSETS[lost] + 100, 1).unwrap();
        let engine = open(&disk);
        let [first, second] = generations(&disk);
        assert!(first.is_some() && first == second, "{when}: {first:?} {second:?}");
        work(&engine, 5, &mut model);
        let (id, receipt) = engine.transact(Durability::Disk, |tx| tx.create_tree("bulk", None)).unwrap();
        model.push((receipt.seq().0, "bulk: created".to_owned()));
        for n in 0..16 {
            let seq = put(&engine, id, &format!("k{n}"), &[b'x'; 60_000]).unwrap();
            model.push((seq.0, format!("bulk: k{n}=60000:x")));
        }
        let gone = Effect::SyncErrorDataGone(std::io::ErrorKind::Other);
        disk.set_faults(Fault::new(kind, nth, gone).on("feed"));
        let failed = engine.checkpoint().is_err();
        *hits.entry((kind, nth)).or_insert(0) += disk.fault_hit_count();
        disk.set_faults(FaultPlan::none());
        engine.abandon();
        let engine = open(&disk);
        assert_eq!(all(&engine, &when), model, "{when}, opened again");
        // Killed once more, so that the copy itself is found beside two equal superblocks.
        engine.abandon();
        let engine = open(&disk);
        assert_eq!(all(&engine, &when), model, "{when}, opened once more");
        engine.checkpoint().unwrap();
        work(&engine, 6, &mut model);
        engine.checkpoint().unwrap();
        assert_eq!(all(&engine, &when), model, "{when}, gone on");
        engine.abandon();
        let engine = open(&disk.crash(&CrashChoice::None));
        check_is_clean(&engine, &when);
        assert_eq!(all(&engine, &when), model, "{when}, after a cut");
        assert!(failed || nth > 0, "{when}: no sync failed");
    }
    assert!(hits.values().all(|count| *count > 0), "each sync failed once: {hits:?}");
}

/// A cut at any call while that part is copied loses nothing that was readable before.
#[test]
fn a_cut_while_files_are_copied_costs_no_value() {
    let disk = MemDisk::new(21);
    let model = only_the_older_superblock_left(&disk);
    disk.record();
    open(&disk).abandon();
    let trace = disk.stop_recording();
    let copies = |at: usize| trace.op(at).kind == OpKind::Create && trace.describe(at).contains("/db/feed/");
    assert!((0..trace.len()).any(copies), "opening copies");
    for op in 0..=trace.len() {
        for choice in [CrashChoice::None, CrashChoice::All, CrashChoice::Garbled { seed: op as u64 }] {
            let when = format!("cut after {op} operations, {choice:?}");
            let engine = open(&trace.crash_image(op, &choice));
            let mut found = all(&engine, &when);
            // Later changes belong to the lost superblock, and may be gone.
            found.truncate(model.len());
            assert_eq!(found, model, "{when}");
            check_is_clean(&engine, &when);
            engine.abandon();
        }
    }
}
