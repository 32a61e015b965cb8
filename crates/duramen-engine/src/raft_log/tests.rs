//! Raft's log over the memory disk: what it refuses, what it reads, and power cuts at every operation.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "seeds come from the environment")]

mod crash;
mod damage;
mod flow;
mod full;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_disk::memory::Random;
use duramen_disk::{Disk, MemDisk, SyncMethod};

use super::*;
use crate::error::Result;
use crate::ids::DatabaseId;
use crate::options::{Background, Geometry};
use crate::wal::tests::{Draw, seed};

/// Where the logs of these tests begin: after an entry that an embedded database had as a commit.
const IDENT: Ident = Ident { cluster: 3, node: 1 };
const BEGINS: LogEnd = LogEnd { id: EntryId { term: 0, seq: CommitSeq(100) }, chain: 7, time_ns: 5 };

/// A disk with a durable directory for the log.
fn disk(seed: u64) -> MemDisk {
    let disk = MemDisk::new(seed);
    disk.create_dir(Path::new("/raft")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

/// Small segments, so that a few entries cross their boundaries.
fn place(disk: &MemDisk) -> RaftPlace {
    RaftPlace {
        disk: Arc::new(disk.clone()),
        dir: Path::new("/raft").to_owned(),
        database: DatabaseId(0xd0d0),
        geometry: Geometry {
            block_bytes: 512,
            segment_bytes_min: 4096,
            segment_bytes_max: 8192,
            ..Geometry::default()
        },
        sync: SyncMethod::Fdatasync,
        background: Background::Stepped,
        held: Arc::new(()),
    }
}

fn created(disk: &MemDisk) -> RaftLog {
    place(disk).create(IDENT, None, BEGINS).unwrap();
    open(disk).unwrap().0
}

fn open(disk: &MemDisk) -> Result<(RaftLog, Found)> {
    place(disk).open()
}

/// An entry of a term, recognisable by its salt.
fn entry(seq: u64, term: u64, salt: u64) -> Entry {
    let bytes = match seq % 7 {
        0 => 0,
        1 => 2000,
        4 => 5000,
        _ => 20 + seq as usize % 90,
    };
    Entry {
        id: EntryId { term, seq: CommitSeq(seq) },
        ordered: OrderedOn { term, lineage: salt, seq: CommitSeq(seq), chain: salt },
        time_ns: 1000 + term,
        kind: EntryKind::Changes,
        bytes: (0..bytes as u64).map(|index| (seq * 31 + index * 7 + salt * 13 + 1) as u8).collect(),
    }
}

fn entries(from: u64, to: u64, term: u64) -> Vec<Entry> {
    (from..=to).map(|seq| entry(seq, term, 0)).collect()
}

/// Counts how often it was called, and expects success.
#[derive(Debug, Clone, Default)]
struct Calls(Arc<AtomicU64>);

impl Calls {
    fn done(&self) -> Done {
        let calls = self.clone();
        Box::new(move |result| {
            result.unwrap();
            calls.0.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn ignore() -> Done {
    Box::new(|_| ())
}

/// Appends and syncs.
fn append(log: &RaftLog, entries: Vec<Entry>) {
    log.append(entries, Calls::default().done()).unwrap();
    log.step().unwrap();
}

/// All entries of a log that are not purged, a few at a time.
fn all(log: &RaftLog) -> Vec<Entry> {
    let (mut next, end) = (log.purged().id.seq.next(), log.end().id.seq.next());
    let mut found = Vec::new();
    while next < end {
        let some = log.entries(next..end, 3000).unwrap();
        next = CommitSeq(next.0 + some.len() as u64);
        found.extend(some);
    }
    found
}
