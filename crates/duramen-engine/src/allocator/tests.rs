//! The bitmap against a set, and the space map through a disk (D3).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use duramen_disk::{Access, Disk, MemDisk};

use super::bitmap::{Bitmap, PAGE_BLOCKS};
use super::*;
use crate::ids::{DatabaseId, Generation};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_bitmap_equals_a_set_and_finds_the_first_run() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut map, mut set) = (Bitmap::default(), BTreeSet::new());
        for _ in 0..3000 {
            let longest = if random.below(20) == 0 { 300 } else { 8 };
            let count = u32::try_from(1 + random.below(longest)).unwrap();
            if random.below(5) < 3 {
                let block = map.find(count);
                let run = block..block + u64::from(count);
                assert!(run.clone().all(|block| !set.contains(&block)), "a run of free blocks");
                assert_eq!(block / PAGE_BLOCKS, (run.end - 1) / PAGE_BLOCKS, "within one page of the map");
                map.set(block, count);
                set.extend(run);
            } else if let Some(block) =
                set.iter().nth(usize::try_from(random.below(set.len() as u64 + 1)).unwrap())
            {
                let block = *block;
                map.clear(block, count);
                set.retain(|used| !(block..block + u64::from(count)).contains(used));
            }
            assert_eq!(map.used(), set.len() as u64);
        }
        assert_eq!(map.end(), set.last().map_or(0, |last| last + 1));
        let runs = map.runs_not_in(&Bitmap::default());
        let blocks: BTreeSet<u64> = runs.iter().flat_map(|(at, n)| *at..*at + u64::from(*n)).collect();
        assert_eq!(blocks, set);
    }
}

fn space(disk: &MemDisk) -> Space {
    let file = disk.open(Path::new("/data"), Access::CREATE).unwrap();
    Space::new(DataFile::new(file, Path::new("/data"), DatabaseId(1), 512))
}

fn checkpoint(space: &Space, boundary: u64) -> Location {
    let data = space.data.clone();
    let draft = space
        .draft(CommitSeq(boundary), Generation(boundary), Vec::new(), &mut |page, block| {
            let location = data.locate(page, block);
            data.file().write_at(page.bytes(), data.offset(block)).unwrap();
            Ok(location)
        })
        .unwrap();
    let index = draft.index;
    space.adopt(draft);
    index
}

#[test]
fn an_extent_is_free_again_only_when_superblocks_and_snapshots_have_let_go() {
    let space = space(&MemDisk::new(1));
    let block = space.allocate(3).unwrap();
    space.retire([RetiredExtent { block, block_count: 3, birth: CommitSeq(2), retired: CommitSeq(5) }]);
    space.release(CommitSeq(4), Vec::new);
    assert!(space.is_used(block, 3), "the older superblock's root uses it");
    assert_eq!(space.release(CommitSeq(5), || vec![CommitSeq(4)]), 3, "a snapshot alone uses it");
    assert!(space.is_used(block, 3));
    let before_and_after = || vec![CommitSeq(1), CommitSeq(5)];
    assert_eq!(space.release(CommitSeq(5), before_and_after), 0);
    assert!(!space.is_used(block, 1));
}

#[test]
fn a_map_read_back_holds_what_its_root_reaches_and_no_more() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let kept = space.allocate(2).unwrap();
    let replaced = space.allocate(2).unwrap();
    let value = space.allocate_value(4).unwrap();
    space.retire([RetiredExtent {
        block: replaced,
        block_count: 2,
        birth: CommitSeq(0),
        retired: CommitSeq(3),
    }]);
    let index = checkpoint(&space, 3);
    let again = Space::load(space.data.clone(), &index).unwrap();
    assert!(again.is_used(kept, 2));
    assert!(!again.is_used(replaced, 1), "no root from commit 3 on uses it");
    assert!(!again.is_used(value, 1), "a value without a commit is nobody's after a crash");
    assert_eq!(again.unaccounted(&[(kept, 2)]), [], "nothing else but the map itself");
}

#[test]
fn many_checkpoints_write_what_changed_and_lose_no_block() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let mut random = Random(5);
    let mut live: Vec<(u64, u32)> = Vec::new();
    for round in 1..200 {
        for _ in 0..random.below(20) {
            let count = u32::try_from(1 + random.below(5)).unwrap();
            live.push((space.allocate(count).unwrap(), count));
        }
        for _ in 0..random.below(20).min(live.len() as u64) {
            let (block, block_count) =
                live.swap_remove(usize::try_from(random.below(live.len() as u64)).unwrap());
            let (birth, retired) = (CommitSeq(0), CommitSeq(round));
            space.retire([RetiredExtent { block, block_count, birth, retired }]);
        }
        let index = checkpoint(&space, round);
        space.release(CommitSeq(round - 1), Vec::new);
        let again = Space::load(space.data.clone(), &index).unwrap();
        let mut known = live.clone();
        known.extend(again.unreached(CommitSeq(u64::MAX)));
        assert_eq!(again.unaccounted(&known), [], "round {round}");
    }
}

#[test]
fn a_full_disk_refuses_to_grow_and_goes_on_with_what_is_there() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    space.keep_back(64 * 1024).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let error = space.keep_back(1 << 20).unwrap_err();
    assert_eq!(error.code(), Code::DiskFull);
    assert!(space.allocate(16).is_ok(), "what was kept back is there");
}
