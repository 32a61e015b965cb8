//! While compaction aims at an end of the file: what lies before it is filled, what lies behind it is left.

use super::*;

/// Blocks before the aimed end are about to be used: a hole there would be punched for nothing.
#[test]
fn holes_are_punched_only_behind_the_aimed_end() {
    for (aims, is_punched) in [(true, false), (false, true)] {
        let Holed { disk, space, middle, last, .. } = with_free_middle();
        let full = disk.used_bytes();
        space.aim_at(Some(if aims { last } else { middle }));
        space.punch(0).unwrap();
        assert_eq!(disk.used_bytes() < full, is_punched);
        space.aim_at(None);
        space.punch(0).unwrap();
        assert!(disk.used_bytes() < full);
    }
}

/// A hole costs a call to take it back, so free blocks come first, but not those behind the aimed end: what
/// is moved there would have to be moved again.
#[test]
fn holes_before_the_aimed_end_are_used_before_free_blocks_behind_it() {
    let Holed { space, first, middle, last, .. } = with_hole();
    space.give_back(last, LONG / 2);
    let free_again = |block| space.give_back(block, 4);
    let taken = space.allocate(4).unwrap();
    assert_eq!(taken, last, "no hole is taken back where blocks are free");
    free_again(taken);
    space.aim_at(Some(last));
    assert_eq!(space.allocate(4).unwrap(), middle);
    // Free blocks that lie before the hole, both of them behind the aimed end.
    let Holed { space, first: lowest, .. } = with_hole();
    assert_eq!(lowest, first);
    space.give_back(first, 4);
    space.aim_at(Some(first));
    assert_eq!(space.allocate(4).unwrap(), first, "the hole lies behind the free blocks");
}

/// A page of the map whose blocks do not change would stay behind the aimed end.
#[test]
fn pages_of_the_map_behind_the_aimed_end_are_written_anew() {
    let space = space(&MemDisk::new(1));
    let first = space.allocate(30_000).unwrap();
    let other_page = space.allocate(20_000).unwrap();
    assert!(other_page >= PAGE_BLOCKS);
    let second_page_lies_at = || space.state.lock().unwrap().persisted.extents().nth(1).unwrap().0;
    for boundary in 1..4 {
        checkpoint(&space, boundary);
    }
    let before = second_page_lies_at();
    assert!((30_000..PAGE_BLOCKS).contains(&before), "{before}");
    space.give_back(first, 10_000);
    checkpoint(&space, 4);
    assert_eq!(second_page_lies_at(), before, "it does not change");
    space.aim_at(Some(20_000));
    checkpoint(&space, 5);
    assert!(second_page_lies_at() < 20_000, "{}", second_page_lies_at());
}

#[test]
fn free_blocks_before_a_block_include_holes() {
    let Holed { space, first, middle, last, .. } = with_hole();
    let long = u64::from(LONG);
    for (end, free) in [(first, 0), (middle, 0), (middle + 70, 70), (last, long), (last + long, long)] {
        assert_eq!(space.free_blocks_before(end), free, "before {end}");
    }
    let beyond = 3 * PAGE_BLOCKS + 11;
    assert_eq!(space.free_blocks_before(beyond), beyond - space.stats().used_blocks);
}
