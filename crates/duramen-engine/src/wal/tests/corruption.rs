//! Corruption: flipped bits, exchanged, missing and rolled-back files, failing reads, a foreign log (D4, D5).

use std::io::ErrorKind as IoErrorKind;

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault};

use super::*;
use crate::error::{Code, Error};
use crate::ids::Epoch;
use crate::wal::frame::{self, FrameHeader, FrameKind, Part};
use crate::wal::segment::{EPOCH_NONE, SegmentHeader};
use crate::wal::survey::{Content, Survey};

/// A small log over several segments, closed with a mark frame. Replayed from the start and from a later
/// superblock.
struct Sample {
    disk: MemDisk,
    from: LogPosition,
    later: LogPosition,
    wanted: Vec<Vec<u8>>,
    /// Commits that a frame or header calls durable.
    marked: u64,
}

fn sample(close: bool) -> Sample {
    let disk = disk(31);
    let (log, from) = create(&disk, SyncMethod::Fdatasync);
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    let mut later = from;
    for seq in 1..=14 {
        let bytes = if seq == 6 { vec![6; 5000] } else { vec![seq as u8; 40 + 30 * seq as usize] };
        commit(&log, seq, bytes.clone());
        wanted.push(bytes);
        if seq == 4 {
            later = log.position();
        }
    }
    // A crash and another open, so that the chain holds a header that is synced alone.
    let recovered = check_replay(&disk, &from, &wanted);
    let log = reopen(&disk, &recovered).unwrap();
    for seq in 15..=18 {
        commit(&log, seq, vec![seq as u8; 200]);
        wanted.push(vec![seq as u8; 200]);
    }
    log.prepare_spare(&mut |_| ()).unwrap();
    if close {
        log.write_mark(CommitSeq(18)).unwrap();
        log.sync().unwrap();
    }
    Sample { disk: disk.crash(&CrashChoice::None), from, later, wanted, marked: if close { 18 } else { 17 } }
}

/// Recovers a corrupt sample: an error, or a prefix that holds everything called durable. Never anything
/// else.
fn check_corrupt(sample: &Sample, disk: &MemDisk, from: &LogPosition, label: &str) -> Option<Error> {
    match replay(disk, from) {
        Err(error) => {
            let known = [Code::CorruptLog, Code::LogMissing, Code::Unsupported];
            assert!(known.contains(&error.code()), "{label}: {error}");
            assert!(error.message().contains(DIR), "{label}: {error} names no file");
            Some(error)
        }
        Ok((recovered, found)) => {
            let wanted = &sample.wanted[from.seq.0 as usize..];
            assert!(found.iter().zip(wanted).all(|(found, wanted)| found.bytes == *wanted), "{label}");
            assert_eq!(recovered.last_seq.0, from.seq.0 + found.len() as u64, "{label}");
            assert!(recovered.last_seq.0 >= sample.marked, "{label}: lost {} in silence", recovered.last_seq);
            None
        }
    }
}

/// The number of reading threads changes nothing in a corrupt log: not the records, the end, or the error.
#[test]
fn corruption_is_the_same_for_every_number_of_threads() {
    let (mut errors, mut tears) = (0, 0);
    for close in [true, false] {
        let sample = sample(close);
        for path in sample.disk.files() {
            for offset in (0..sample.disk.read_file(&path).unwrap().len() as u64).step_by(101) {
                let disk = sample.disk.deep_clone();
                disk.flip_bit(&path, offset, (offset % 8) as u8).unwrap();
                let [one, more @ ..] = [1, 2, 3].map(|threads| {
                    let mut found = Vec::new();
                    let reading = Reading { ahead_bytes: 1 << 20, ..reading(threads) };
                    let mut visit = |record: ReplayedRecord, ()| {
                        found.push(record);
                        Ok(())
                    };
                    let ended =
                        recover(&disk, dir(), identity(), &geometry(), &sample.from, &reading, &mut visit);
                    let ended = ended
                        .map(|end| (end.last_seq, end.marked_seq, end.torn, end.next_epoch, end.on_chain))
                        .map_err(|error| (error.code(), error.message().to_owned()));
                    (found, ended)
                });
                errors += u32::from(one.1.is_err());
                tears += u32::from(one.1.as_ref().is_ok_and(|end| end.0.0 < 18));
                assert!(more.iter().all(|more| *more == one), "{} @ {offset:#x}", path.display());
            }
        }
    }
    assert!(errors > 10 && tears > 0, "{errors} errors, {tears} tears");
}

/// D4: one random bit of every byte of a closed log, and of some bytes of a log cut off by a crash.
///
/// Replayed from one of two superblocks. With `DURAMEN_LONG`: all bits of all bytes, from both superblocks.
#[test]
fn a_flipped_bit_is_an_error_or_a_legal_tear() {
    let seed = seed(32);
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    let long = std::env::var_os("DURAMEN_LONG").is_some();
    for close in [true, false] {
        let sample = sample(close);
        let mut error_count = 0;
        for path in sample.disk.files() {
            for offset in 0..sample.disk.read_file(&path).unwrap().len() as u64 {
                let (random, skip) = (draw.below(8) as u8, !close && draw.below(4) > 0);
                for bit in (0..8).filter(|&bit| long || (bit == random && !skip)) {
                    sample.disk.flip_bit(&path, offset, bit).unwrap();
                    let label = format!("{} byte {offset} bit {bit}", path.display());
                    let superblocks = [sample.from, sample.later];
                    let only = [superblocks[draw.below(2) as usize]];
                    for from in if long { &superblocks[..] } else { &only[..] } {
                        let error = check_corrupt(&sample, &sample.disk, from, &label);
                        error_count += u32::from(error.is_some());
                    }
                    sample.disk.flip_bit(&path, offset, bit).unwrap();
                }
            }
        }
        assert!(error_count > 1000, "{error_count}");
    }
}

#[test]
fn a_block_of_zeroes_or_of_another_place_is_an_error_or_a_legal_tear() {
    let sample = sample(true);
    for path in sample.disk.files() {
        let whole = sample.disk.read_file(&path).unwrap();
        for at in (0..whole.len()).step_by(512) {
            for source in (0..whole.len() + 512).step_by(512) {
                let mut bytes = whole.clone();
                match whole.get(source..source + 512) {
                    Some(block) => bytes[at..at + 512].copy_from_slice(block),
                    None => bytes[at..at + 512].fill(0),
                }
                let copy = sample.disk.deep_clone();
                copy.write_file(&path, &bytes).unwrap();
                let label = format!("{} {at} from {source}", path.display());
                check_corrupt(&sample, &copy, &sample.from, &label);
            }
        }
    }
}

#[test]
fn a_corrupt_header_in_the_middle_is_reported_with_file_and_offset() {
    let sample = sample(true);
    let path = "/wal/00000002.wal";
    sample.disk.flip_bit(path, 100, 3).unwrap();
    let error = check_corrupt(&sample, &sample.disk, &sample.from, "header").unwrap();
    assert_eq!(error.code(), Code::CorruptLog);
    assert!(error.message().contains(" @ 0x") && error.message().contains("was durable"), "{error}");
}

/// A file with a valid header and half a block at its end. Frames are whole blocks, so the last one would end
/// after the end of the file.
#[test]
fn a_segment_of_no_whole_blocks_is_named() {
    for (blocks, more) in [(1, 0), (1, 256), (6, 1), (6, 511)] {
        let sample = sample(true);
        let path = sample.disk.files().last().unwrap().clone();
        let mut header = SegmentHeader::decode(&sample.disk.read_file(&path).unwrap()).unwrap();
        header.segment_bytes = blocks * u64::from(header.block_bytes) + more;
        let mut bytes = header.encode().to_vec();
        bytes.resize(header.segment_bytes as usize, 0);
        sample.disk.write_file(&path, &bytes).unwrap();
        let error = check_corrupt(&sample, &sample.disk, &sample.from, "half a block").unwrap();
        assert!(error.message().contains("whole blocks"), "{blocks} and {more}: {error}");
    }
}

/// A hostile file that is longer than any segment, with a valid frame in it. With a valid header it is
/// refused: what the log writes after the longest segment would not be found again. Without one, the memory
/// for the frame's table is bounded by the segments of this log, not by the file.
#[test]
fn a_frame_longer_than_any_segment_is_none() {
    let sample = sample(true);
    let path = sample.disk.files().last().unwrap().clone();
    let mut segment = SegmentHeader::decode(&sample.disk.read_file(&path).unwrap()).unwrap();
    segment.segment_bytes = 1 << 30;
    let part = Part { bytes: 0, seq: CommitSeq(1), first: true, last: true, derived: false, checksum: 0 };
    let frame_of = |part_count: u32| {
        let offset = u64::from(segment.block_bytes);
        let header = FrameHeader {
            kind: FrameKind::Group,
            part_count,
            payload_bytes: 0,
            epoch: segment.epoch,
            offset,
            first_seq: CommitSeq(1),
            last_seq: CommitSeq(1),
            durable_seq: CommitSeq(0),
            commit_time_ns: 0,
            incarnation: 0,
            previous_checksum: 0,
        };
        let (frame, _) = frame::encode(&header, &vec![part; part_count as usize], &identity());
        let write = |head: &[u8]| {
            let mut bytes = head.to_vec();
            bytes.resize(offset as usize, 0);
            bytes.extend_from_slice(&frame);
            sample.disk.write_file(&path, &bytes).unwrap();
            let file = sample.disk.open(Path::new(&path), duramen_disk::Access::WRITE).unwrap();
            file.set_len(segment.segment_bytes).unwrap();
        };
        let load = || Survey::load(&sample.disk, dir(), identity(), &geometry());
        write(&SegmentHeader { epoch: Epoch(1), ..segment }.encode());
        let error = load().unwrap_err();
        assert!(error.message().contains("and at most"), "{error}");
        write(&SegmentHeader { epoch: EPOCH_NONE, ..segment }.encode());
        let survey = load().unwrap();
        assert!(matches!(survey.files.last().unwrap().content, Content::Misfit { .. }));
        write(&[]);
        let survey = load().unwrap();
        survey.frame_at(survey.files.last().unwrap(), offset).unwrap()
    };
    let fits = (geometry().segment_bytes_max as u32 - segment.block_bytes) / 40 - 4;
    assert!(frame_of(fits).is_some());
    assert!(frame_of(fits + 1).is_none());
    assert!(frame_of(1 << 16).is_none());
}

#[test]
fn exchanged_files_are_named() {
    let sample = sample(true);
    let files = sample.disk.files();
    for a in 0..files.len() {
        for b in 0..a {
            let copy = sample.disk.deep_clone();
            copy.write_file(&files[a], &sample.disk.read_file(&files[b]).unwrap()).unwrap();
            copy.write_file(&files[b], &sample.disk.read_file(&files[a]).unwrap()).unwrap();
            let error = check_corrupt(&sample, &copy, &sample.from, "exchanged").unwrap();
            assert!(error.message().contains("exchanged"), "{error}");
        }
    }
}

#[test]
fn a_missing_file_or_directory_is_named() {
    let sample = sample(true);
    for path in sample.disk.files() {
        let copy = sample.disk.deep_clone();
        copy.delete(&path).unwrap();
        let error = check_corrupt(&sample, &copy, &sample.from, "missing");
        // The last file is the spare: only its copy of the watermark is lost with it.
        let is_last = Some(&path) == sample.disk.files().last();
        assert_eq!(error.map(|error| error.code()), (!is_last).then_some(Code::LogMissing));
    }
    for whole in [true, false] {
        let copy = sample.disk.deep_clone();
        copy.delete(DIR).unwrap();
        if !whole {
            copy.create_dir(dir()).unwrap();
        }
        let error = check_corrupt(&sample, &copy, &sample.from, "directory").unwrap();
        assert_eq!(error.code(), Code::LogMissing, "{error}");
    }
}

/// A segment rolled back to an older state, however old, never yields an older state of the database.
#[test]
fn a_segment_rolled_back_is_corruption() {
    let disk = disk(33);
    let (log, mut from) = create(&disk, SyncMethod::Fdatasync);
    let mut wanted = Vec::new();
    let mut states: Vec<Vec<(std::path::PathBuf, Vec<u8>)>> = Vec::new();
    for seq in 1..=60 {
        commit(&log, seq, vec![seq as u8; 300]);
        wanted.push(vec![seq as u8; 300]);
        if seq % 15 == 0 && seq < 60 {
            from = log.position();
            log.recycle(&from);
            states.push(
                disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path).unwrap())).collect(),
            );
        }
        if seq % 4 == 0 {
            states.push(
                disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path).unwrap())).collect(),
            );
        }
    }
    log.prepare_spare(&mut |_| ()).unwrap();
    // The watermark in a spare shows how far even the newest segment reached.
    log.write_mark(CommitSeq(60)).unwrap();
    log.sync().unwrap();
    let sample = Sample { disk, from, later: from, wanted, marked: 60 };
    let mut error_count = 0;
    for (path, bytes) in states.iter().flatten() {
        let copy = sample.disk.deep_clone();
        copy.write_file(path, bytes).unwrap();
        error_count += u32::from(check_corrupt(&sample, &copy, &from, &path.display().to_string()).is_some());
    }
    assert!(error_count > 10, "{error_count}");
    // All files rolled back: the frame that the superblock names is missing.
    for state in states.iter().take(3) {
        let copy = sample.disk.deep_clone();
        for path in copy.files() {
            copy.delete(path).unwrap();
        }
        for (path, bytes) in state {
            copy.write_file(path, bytes).unwrap();
        }
        let error = check_corrupt(&sample, &copy, &from, "all").unwrap();
        assert!([Code::LogMissing, Code::CorruptLog].contains(&error.code()), "{error}");
    }
}

#[test]
fn another_databases_log_is_called_foreign() {
    let sample = sample(true);
    for identity in
        [LogIdentity { log: LogId(9), ..identity() }, LogIdentity { database: DatabaseId(9), ..identity() }]
    {
        let error =
            recover(&sample.disk, dir(), identity, &geometry(), &sample.from, &reading(2), &mut |_, ()| {
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.code(), Code::LogMissing);
        assert!(error.message().contains("foreign"), "{error}");
    }
}

#[test]
fn a_position_of_another_history_is_missing() {
    let sample = sample(true);
    let from = sample.later;
    for wrong in [
        LogPosition { checksum: from.checksum ^ 1, ..from },
        LogPosition { epoch: from.epoch.next(), ..from },
        LogPosition { seq: from.seq.next(), ..from },
        LogPosition { slot: SegmentSlot(99), ..from },
        LogPosition { offset: 1, ..from },
    ] {
        let error = replay(&sample.disk, &wrong).unwrap_err();
        assert_eq!(error.code(), Code::LogMissing, "{error}");
        assert!(error.message().contains(".wal"), "{error}");
    }
}

/// A read that fails is an error, never the end of the log.
#[test]
fn a_failing_read_is_an_error_and_no_tear() {
    let sample = sample(true);
    let before = sample.disk.call_counts();
    check_replay(&sample.disk, &sample.from, &sample.wanted);
    let calls = sample.disk.call_counts().total() - before.total();
    for nth in 0..calls {
        let disk = sample.disk.deep_clone();
        disk.set_faults(Fault::any(nth, Effect::Error(IoErrorKind::Other)));
        let result = replay(&disk, &sample.from);
        assert_eq!(disk.fault_hit_count(), 1);
        assert_eq!(result.unwrap_err().code(), Code::System);
    }
}

/// Opening for writing fails at any call. The log remains recoverable.
#[test]
fn an_open_that_fails_anywhere_loses_nothing() {
    let sample = sample(false);
    for effect in [Effect::EIO, Effect::ENOSPC, Effect::ShortWrite(IoErrorKind::Other)] {
        for nth in 0.. {
            let disk = sample.disk.deep_clone();
            let recovered = check_replay(&disk, &sample.from, &sample.wanted);
            disk.set_faults(Fault::any(nth, effect));
            let reopened = reopen(&disk, &recovered);
            let hit = disk.fault_hit_count() > 0;
            disk.set_faults(duramen_disk::memory::FaultPlan::none());
            for choice in [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: nth }] {
                check_replay(&disk.crash(&choice), &sample.from, &sample.wanted);
            }
            if !hit {
                assert!(reopened.is_ok());
                break;
            }
        }
    }
}

/// A lost or misdirected write is found once a later frame calls it durable.
#[test]
fn a_lost_or_misdirected_write_below_the_mark_is_corruption() {
    for nth in 0..60 {
        for effect in [Effect::LostWrite, Effect::MisdirectedWrite(1024), Effect::MisdirectedWrite(0)] {
            let disk = disk(34);
            let (log, from) = create(&disk, SyncMethod::Fdatasync);
            disk.set_faults(Fault::new(CallKind::Write, nth, effect));
            let mut wanted: Vec<Vec<u8>> = Vec::new();
            for seq in 1..=30 {
                commit(&log, seq, vec![seq as u8; 300]);
                wanted.push(vec![seq as u8; 300]);
            }
            log.write_mark(CommitSeq(30)).unwrap();
            log.sync().unwrap();
            let sample = Sample { disk, from, later: from, wanted, marked: 30 };
            check_corrupt(&sample, &sample.disk, &from, &format!("write {nth} {effect:?}"));
        }
    }
}
