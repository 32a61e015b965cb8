//! Tests of the log over the memory disk: small segments, so that a few bytes cross every boundary.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "seeds come from the environment, and tests use threads")]

mod codec;
mod corruption;
mod crash;
mod flow;
mod invariants;
mod leftovers;

use std::path::Path;
use std::sync::Arc;

use duramen_disk::memory::Random;
use duramen_disk::{Disk, MemDisk, SyncMethod};

use super::*;
use crate::error::Result;
use crate::options::Geometry;

const DIR: &str = "/wal";

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn identity() -> LogIdentity {
    LogIdentity { database: DatabaseId(0xd0d0), log: LogId(0x1061) }
}

/// Blocks of 512 bytes, segments of eight and sixteen blocks.
fn geometry() -> Geometry {
    Geometry { block_bytes: 512, segment_bytes_min: 4096, segment_bytes_max: 8192, ..Geometry::default() }
}

fn shared(disk: &MemDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// A disk with a durable log directory.
fn disk(seed: u64) -> MemDisk {
    let disk = MemDisk::new(seed);
    disk.create_dir(dir()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn create(disk: &MemDisk, sync: SyncMethod) -> (Log, LogPosition) {
    Log::create(&shared(disk), dir(), identity(), geometry(), sync, CommitSeq(0)).unwrap()
}

/// The record of a commit: recognisable, and of a size that depends only on the commit.
fn content(seq: u64, salt: u64) -> Vec<u8> {
    let bytes = match seq % 7 {
        0 => 0,
        1 => 2000,
        4 => 4000 + 300 * (seq as usize % 5),
        5 => 700,
        _ => 20 + seq as usize % 90,
    };
    (0..bytes as u64).map(|index| (seq * 31 + index * 7 + salt * 13 + 1) as u8).collect()
}

fn record(seq: u64, bytes: Vec<u8>) -> Record {
    let mut record = Record::new(bytes);
    record.seq = CommitSeq(seq);
    record.derived = seq.is_multiple_of(3);
    record
}

fn records(from: u64, to: u64, salt: u64) -> Vec<Record> {
    (from..=to).map(|seq| record(seq, content(seq, salt))).collect()
}

fn group(records: &[Record], durable: u64) -> Group<'_> {
    Group { records, durable: CommitSeq(durable), use_reserve: false }
}

/// Appends one durable commit.
fn commit(log: &Log, seq: u64, bytes: Vec<u8>) -> Written {
    log.write_and_sync(&group(&[record(seq, bytes)], seq - 1)).unwrap()
}

/// With more than one thread, frames of [`content`] are read ahead.
fn reading(threads: usize) -> Reading<'static, ()> {
    Reading { threads, ahead_bytes: 4000, note: &|_| () }
}

fn replay(disk: &MemDisk, from: &LogPosition) -> Result<(Recovered, Vec<ReplayedRecord>)> {
    replay_by(2, disk, from)
}

fn replay_by(threads: usize, disk: &MemDisk, from: &LogPosition) -> Result<(Recovered, Vec<ReplayedRecord>)> {
    let mut found = Vec::new();
    // The longest segments that a test writes.
    let geometry = Geometry { segment_bytes_max: 16384, ..geometry() };
    let recovered =
        recover(disk, dir(), identity(), &geometry, from, &reading(threads), &mut |record, ()| {
            found.push(record);
            Ok(())
        })?;
    Ok((recovered, found))
}

fn continued(recovered: &Recovered) -> Continued<'_> {
    Continued {
        recovered,
        keep_from: LogPosition::default(),
        marked: recovered.last_seq,
        give_room: &|_| Ok(false),
    }
}

fn reopen(disk: &MemDisk, recovered: &Recovered) -> Result<Log> {
    Log::reopen(&shared(disk), dir(), identity(), geometry(), SyncMethod::Fdatasync, continued(recovered))
}

/// Replays and compares with what was written: `wanted` in order, from `from.seq + 1`.
fn check_replay(disk: &MemDisk, from: &LogPosition, wanted: &[Vec<u8>]) -> Recovered {
    let (recovered, found) = replay(disk, from).unwrap();
    let bytes: Vec<&[u8]> = found.iter().map(|record| &record.bytes[..]).collect();
    assert_eq!(bytes, wanted.iter().map(|bytes| &bytes[..]).collect::<Vec<_>>());
    let mut seq = from.seq.0;
    let mut time = 0;
    for record in &found {
        seq += 1;
        assert_eq!(record.seq.0, seq);
        assert_eq!(record.derived, seq.is_multiple_of(3));
        assert!(record.commit_time_ns >= time);
        time = record.commit_time_ns;
    }
    assert_eq!(recovered.last_seq.0, seq);
    recovered
}

/// A small generator of numbers. A failing test prints its seed.
pub(crate) struct Draw(pub(crate) Random);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The seed of a random test: from the environment, or fixed.
pub(crate) fn seed(or: u64) -> u64 {
    std::env::var("DURAMEN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}
