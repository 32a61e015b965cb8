//! Opening with a map and with values named in the log: hostile ones are refused, and no block gets two
//! owners.

use super::*;

fn put_page(space: &Space, page: &crate::data_file::Page, block: u64) -> PagePointer {
    let pointer = space.data.locate(page, block);
    space.data.file().write_at(page.bytes(), space.data.offset(block)).unwrap();
    pointer
}

/// A map with valid checksums may hold anything: it takes no more memory than its file has, and never
/// allocates the superblocks.
#[test]
fn a_hostile_space_map_is_refused() {
    use crate::data_file::{Page, PageKind};
    let space = space(&MemDisk::new(1));
    let words = |word: u64| {
        Page::build(PageKind::SpaceMap, 1, PAGE_WORDS * 8, |out| {
            (0..PAGE_WORDS).for_each(|_| out.extend_from_slice(&word.to_le_bytes()));
        })
    };
    let list = |entries: &[PagePointer], more: usize| {
        let bytes = entries.len() * crate::data_file::POINTER_BYTES + more;
        Page::build(PageKind::SpaceIndex, 1, bytes, |out| {
            entries.iter().for_each(|entry| entry.encode(out));
            out.resize(out.len() + more, 0);
        })
    };
    let (used, free) = (put_page(&space, &words(u64::MAX), 100), put_page(&space, &words(0), 120));
    let load = |page: &Page| {
        let index = put_page(&space, page, 200);
        Space::load(space.data.clone(), &index, SMALL)
    };
    let loaded = load(&list(&[used], 0)).unwrap();
    assert!(loaded.is_used(0, 64) && loaded.is_sound().is_ok());
    let short = Page::build(PageKind::SpaceMap, 1, 8, |out| out.extend_from_slice(&[255; 8]));
    let hostile = [
        ("superblocks free", list(&[free], 0)),
        ("no page", list(&[], 0)),
        ("one page again and again", list(&vec![used; 3000], 0)),
        ("half an entry", list(&[used], 5)),
        ("a short page", list(&[put_page(&space, &short, 140)], 0)),
        ("a page beyond the file", list(&[used, PagePointer { block: 1 << 40, ..used }], 0)),
        ("a huge extent", list(&[used, PagePointer { block_count: u32::MAX, ..used }], 0)),
    ];
    for (what, page) in hostile {
        assert!(load(&page).unwrap_err().is_corruption(), "{what}");
    }
}

/// The log gives blocks to a value that a checkpoint gives to a page: opening refuses that.
///
/// Freeing the value would free the page, and a write to one would be read as the other (D3, D4).
#[test]
fn a_value_of_the_log_in_blocks_of_a_page_is_refused() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let page = space.allocate(4).unwrap();
    let newest = checkpoint(&space, 1);
    fill(&space, page + 100, 4, 7);
    for block in page - 3..=page + 3 {
        let again = Space::load(space.data.clone(), &newest, GiveBack::default()).unwrap();
        let value = Written { block, block_count: 4, byte: 7, birth: 2, unused_since: u64::MAX };
        let refused = again.value_replayed(&[value.page()], CommitSeq(2)).unwrap_err();
        assert!(refused.is_corruption() && refused.message().contains("commit 2"), "{refused}");
    }
    // Two values of the log in the same block.
    let again = Space::load(space.data.clone(), &newest, GiveBack::default()).unwrap();
    let value = |block| Written { block, block_count: 4, byte: 7, birth: 2, unused_since: u64::MAX }.page();
    again.value_replayed(&[value(page + 60)], CommitSeq(2)).unwrap();
    assert!(again.value_replayed(&[value(page + 63)], CommitSeq(3)).unwrap_err().is_corruption());
    again.value_replayed(&[value(page + 64)], CommitSeq(3)).unwrap();
    again.is_sound().unwrap();
}

/// D3: an older map may mark blocks as used that the log gives to a value.
///
/// They were held back for that map and now belong to the value. They are not freed when the map is no longer
/// needed.
#[test]
fn a_value_of_the_log_keeps_its_blocks_when_the_older_map_lets_go_of_them() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    // Long enough that the maps at its beginning leave some of it free.
    let stale = space.allocate(60).unwrap();
    let older = checkpoint(&space, 1);
    space.give_back(stale, 60);
    let newest = checkpoint(&space, 2);
    fill(&space, stale + 40, 4, 7);
    let again = Space::load(space.data.clone(), &newest, SMALL).unwrap();
    again.hold(&older, CommitSeq(2)).unwrap();
    let value = Written { block: stale + 40, block_count: 4, byte: 7, birth: 3, unused_since: u64::MAX };
    again.value_replayed(&[value.page()], CommitSeq(3)).unwrap();
    checkpoint(&again, 3);
    again.release(CommitSeq(2), Vec::new);
    assert!(again.is_used(stale + 40, 4), "the value's");
    assert!(!again.is_used(stale + 39, 1) && !again.is_used(stale + 44, 1), "the older map's alone");
    again.is_sound().unwrap();
}

/// D7: xfs refuses to reserve a range that is longer than the free room, even if the file has its blocks
/// already. After a crash, a database that fills more than half of a disk must accept writes.
#[test]
fn what_the_file_has_already_is_used_on_a_disk_with_little_room() {
    const MIB: u64 = 1024 * 1024;
    for reserve_bytes_max in [2 * MIB, 8 * 1024] {
        let file = MemDisk::new(1).open(Path::new("/data"), Access::CREATE).unwrap();
        file.set_len(64 * MIB).unwrap();
        let reserved_to = Arc::new(AtomicU64::new(0));
        let inside = Box::new(|| ());
        let watched = Watched { file, inside, reserve_bytes_max, reserved_to: Arc::clone(&reserved_to) };
        let data = DataFile::new(Arc::new(watched), Path::new("/data"), DatabaseId(1), 512);
        let space = Space::new(data, SMALL);
        let first = first_free_block(512);
        let value = |nth: u64| PagePointer {
            block: first + nth * 2048,
            block_count: 2048,
            raw_bytes: 1,
            flags: 0,
            tag: [0; 16],
        };
        space.value_replayed(&(0..20).map(value).collect::<Vec<_>>(), CommitSeq(1)).unwrap();
        assert_eq!(space.allocate(2048).unwrap(), first + 20 * 2048);
        let asked = reserved_to.load(Ordering::SeqCst);
        assert!(asked <= (first + 21 * 2048) * 512, "no more than is wanted is reserved: {asked}");
        assert_eq!(space.stats().file_blocks, 64 * MIB / 512, "the file did not grow");
        let beyond = [(); 12].map(|()| space.allocate(4 * 2048));
        assert!(beyond[7].is_ok(), "what the file had is used: {beyond:?}");
        assert!(beyond[11].is_err(), "there is no room for more than the file had: {beyond:?}");
    }
}

/// D7: a hole is taken back but for a few blocks, and the disk is full. What the next opening counts as room
/// can be written.
#[test]
fn no_hole_is_left_that_the_next_opening_counts_as_room() {
    for rest in (8..=32).step_by(8) {
        let Holed { disk, mut space, first, middle, last } = with_hole();
        space.give_back.run_blocks_min = 32;
        assert_eq!(space.allocate(LONG - rest).unwrap(), middle);
        // For the checkpoints, so that they do not take what is left of the hole.
        space.give_back(first, 31);
        checkpoint(&space, 1);
        let newest = checkpoint(&space, 2);
        disk.set_capacity(Some(disk.used_bytes()));
        let again = Space::load(space.data.clone(), &newest, space.give_back).unwrap();
        while let Ok(block) = again.allocate(1) {
            let written = again.data.file().write_at(&[7; 512], again.data.offset(block));
            assert!(written.is_ok(), "{rest} blocks left: block {block} of {middle} to {last}: {written:?}");
        }
    }
}

/// D7: the disk has room for what is wanted, but not for the few blocks after it.
#[test]
fn a_hole_whose_rest_would_be_too_short_stays_without_room_for_all_of_it() {
    let Holed { disk, mut space, middle, last, .. } = with_hole();
    space.give_back.run_blocks_min = 32;
    let hole_blocks = || space.state.lock().unwrap().holes.used();
    let before = hole_blocks();
    disk.set_capacity(Some(disk.used_bytes() + u64::from(LONG - 8) * BLOCK));
    assert!(space.allocate(LONG - 24).unwrap() > last, "the file grows instead");
    assert_eq!(hole_blocks(), before);
    disk.set_capacity(None);
    assert_eq!(space.allocate(LONG - 24).unwrap(), middle);
    assert_eq!(hole_blocks(), 0);
}
