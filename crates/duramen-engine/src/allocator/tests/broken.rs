//! A broken state of the map raises the alarm before anything is written or handed out (D3).

use super::*;
use crate::alarm::cause_of;

/// D3: frees and checkpoints go forward. What an older root reaches may have another owner.
#[test]
fn neither_a_release_nor_a_checkpoint_goes_back_before_what_was_freed() {
    type Work<'a> = &'a dyn Fn(&Space);
    let work: [(&str, Work<'_>); 2] = [
        ("checkpoint of commit 4 needs nothing that 5 freed", &|space| {
            checkpoint(space, 4);
        }),
        ("what 4 made unused is freed after that of 5", &|space| {
            space.release(CommitSeq(4), Vec::new);
        }),
    ];
    for (wanted, work) in work {
        let space = space(&MemDisk::new(1));
        checkpoint(&space, 5);
        space.release(CommitSeq(5), Vec::new);
        checkpoint(&space, 5);
        let why = cause_of(|| work(&space));
        assert!(why.contains(wanted), "{why}");
    }
}

#[test]
fn blocks_of_a_page_are_never_taken_for_a_hole() {
    let Holed { space, first, middle, .. } = with_hole();
    space.lock().fill(middle, middle + 1);
    let why = cause_of(|| space.lock().fill(first, first + 2));
    assert!(why.contains("the 2 blocks freed"), "{why}");
}

#[test]
fn more_holes_than_blocks_that_are_not_free_are_refused() {
    let Holed { space, last, .. } = with_hole();
    space.lock().holes.set(last + 2 * u64::from(LONG), 4 * LONG);
    let why = cause_of(|| assert_eq!(space.stats().waiting_blocks, 0));
    assert!(why.contains("blocks of holes are among"), "{why}");
}

#[test]
fn two_values_never_lie_at_one_block() {
    let space = space(&MemDisk::new(1));
    let block = space.allocate(2).unwrap();
    space.give_back(block, 2);
    space.lock().unrooted.insert(block, (2, Some(CommitSeq(7))));
    let why = cause_of(|| drop(space.allocate_value(2)));
    assert!(why.contains(&format!("no other value lies at block {block}")), "{why}");
}

/// A checkpoint that names blocks which its own map calls free would be overwritten after the next opening. A
/// hostile file can bring this about, so it is an error, and nothing panics.
#[test]
fn no_superblock_names_blocks_that_its_map_calls_free() {
    let space = space(&MemDisk::new(1));
    let roots = space.allocate(3).unwrap();
    let draft = |seq: u64| {
        let put = &mut |page: &crate::data_file::Page, block| Ok(space.data.locate(page, block));
        space.draft(CommitSeq(seq), Generation(seq), Vec::new(), put).unwrap()
    };
    let whole = draft(1);
    space.check_covers(&whole, Some((roots, 3))).unwrap();
    space.check_covers(&whole, None).unwrap();
    space.adopt(whole);
    defer_free(&space, roots, 3, 2);
    let without = draft(2);
    let error = space.check_covers(&without, Some((roots, 3))).unwrap_err();
    assert!(error.is_corruption() && error.message().contains("whose map calls them free"), "{error}");
    assert!(space.is_sound().is_err());
}
