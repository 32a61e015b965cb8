//! A superblock that goes back, or leads beyond its end, is never written (D2, D3).
#![allow(clippy::unwrap_used)]

use super::*;
use crate::alarm::cause_of;
use crate::data_file::PagePointer;
use crate::features::Features;
use crate::ids::{DatabaseId, Epoch, LogId};
use crate::options::Geometry;

fn page(block: u64) -> Option<PagePointer> {
    Some(PagePointer { block, block_count: 2, raw_bytes: 900, flags: 0, tag: [5; 16] })
}

fn superblock(generation: u64) -> Superblock {
    let (epoch, seq) = (Epoch(3), CommitSeq(20));
    Superblock {
        write_features: 0,
        features: Features::NONE,
        database: DatabaseId(11),
        log: LogId(12),
        generation: Generation(generation),
        replay: LogPosition { epoch, offset: 8192, seq, ..LogPosition::default() },
        marked: seq,
        roots: page(70),
        space: page(98),
        hot: None,
        end_block: 100,
        next_tree: TreeId(16),
        geometry: Geometry::default(),
        clean: false,
        sync: None,
    }
}

#[test]
fn a_superblock_that_goes_back_or_leads_beyond_its_end_raises_the_alarm() {
    let (before, next) = (superblock(7), superblock(8));
    check_succession(&before, &next);
    let replay = next.replay;
    let at = |replay: LogPosition| Superblock { replay, ..superblock(8) };
    check_succession(&before, &at(LogPosition { epoch: Epoch(4), offset: 4096, ..replay }));
    let broken = [
        (superblock(7), "checkpoint 7 follows 7"),
        (superblock(9), "checkpoint 9 follows 7"),
        (at(LogPosition { seq: CommitSeq(19), ..replay }), "commit 19, not before 20"),
        (at(LogPosition { offset: 4096, ..replay }), "(3, 4096), not before (3, 8192)"),
        (at(LogPosition { epoch: Epoch(2), offset: 16384, ..replay }), "(2, 16384), not before"),
        (Superblock { next_tree: TreeId(15), ..superblock(8) }, "the next tree is 15"),
        (Superblock { end_block: 99, ..superblock(8) }, "the page at block 98 lies before the end, 99"),
        (Superblock { roots: page(99), ..superblock(8) }, "the page at block 99 lies before the end, 100"),
    ];
    for (next, wanted) in broken {
        let why = cause_of(|| check_succession(&before, &next));
        assert!(why.contains(wanted), "{why}");
    }
}
