//! The space map through a disk (D3).
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

mod aimed;
mod bitmap;
mod broken;
mod opened;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use duramen_disk::{Access, Disk, DurableWriteError, File, MemDisk, WriteError};

use super::bitmap::{Bitmap, PAGE_BLOCKS};
use super::*;
use crate::ids::{DatabaseId, Generation};
use crate::options::GiveBack;

/// With these bounds, little data passes each of them.
const SMALL: GiveBack = GiveBack::SMALL;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

impl Space {
    /// Extents in use that are not among these, are not on the pending-free list, and belong to no map.
    fn unaccounted(&self, reached: &[(u64, u32)]) -> Vec<(u64, u32)> {
        self.of_trees(CommitSeq(u64::MAX)).not_in(reached)
    }
}

fn space(disk: &MemDisk) -> Space {
    let file = disk.open(Path::new("/data"), Access::CREATE).unwrap();
    Space::new(DataFile::new(file, Path::new("/data"), DatabaseId(1), 512), SMALL)
}

fn checkpoint(space: &Space, boundary: u64) -> PagePointer {
    let data = space.data.clone();
    let draft = space
        .draft(CommitSeq(boundary), Generation(boundary), Vec::new(), &mut |page, block| {
            let pointer = data.locate(page, block);
            data.file().write_at(page.bytes(), data.offset(block)).unwrap();
            Ok(pointer)
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
    space.defer_free([DeferredExtent {
        block,
        block_count: 3,
        birth: CommitSeq(2),
        unused_since: CommitSeq(5),
    }]);
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
    space.defer_free([DeferredExtent {
        block: replaced,
        block_count: 2,
        birth: CommitSeq(0),
        unused_since: CommitSeq(3),
    }]);
    let index = checkpoint(&space, 3);
    let again = Space::load(space.data.clone(), &index, SMALL).unwrap();
    assert!(again.is_used(kept, 2));
    assert!(!again.is_used(replaced, 1), "no root from commit 3 on uses it");
    assert!(!again.is_used(value, 1), "a value without a commit is nobody's after a crash");
    assert_eq!(again.unaccounted(&[(kept, 2)]), [], "nothing else but the map itself");
}

/// D3: an extent freed twice may have a new owner by then.
///
/// The second call leaves the map as it is, and reports the error once, with no lock held.
#[test]
fn an_extent_freed_twice_stays_with_its_new_owner_and_the_engine_is_told() {
    let space = Arc::new(space(&MemDisk::new(1)));
    let (told, inner) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&space));
    let messages = Arc::clone(&told);
    let hook = move |error: Error| {
        inner.upgrade().unwrap().stats();
        messages.lock().unwrap().push(error.message().to_owned());
    };
    space.on_contradiction(hook).unwrap();
    let block = space.allocate(3).unwrap();
    space.give_back(block, 3);
    assert_eq!(space.allocate_value(3).unwrap(), block, "another takes it");
    space.is_sound().unwrap();
    let used = space.stats().used_blocks;
    // As another kind, in part, across its end, and never allocated: superblocks, and blocks after the end
    // of the file.
    for (block, block_count) in [(block, 3), (block + 1, 1), (block + 2, 4), (0, 1), (1 << 40, u32::MAX)] {
        space.give_back(block, block_count);
        assert!(space.is_sound().unwrap_err().is_corruption());
        assert_eq!(space.stats().used_blocks, used, "block {block}");
    }
    assert!(space.is_used(block, 3));
    assert_eq!(told.lock().unwrap().len(), 1, "once: {told:?}");
    let value = Written { block, block_count: 3, byte: 0, birth: 0, unused_since: 0 };
    let elsewhere = PagePointer { block: block + 1, ..value.page() };
    space.value_committed(&[elsewhere], CommitSeq(1));
    space.value_committed(&[value.page()], CommitSeq(1));
    space.value_aborted(&[value.page(), value.page()]);
    assert!(!space.is_used(block, 1) && told.lock().unwrap().len() == 1);
}

/// D3: an extent freed twice with nothing allocated in between is a contradiction, too. With an allocation in
/// between, the second call would free the blocks of another page.
#[test]
fn an_extent_freed_twice_in_a_row_is_told() {
    let space = space(&MemDisk::new(1));
    let block = space.allocate(3).unwrap();
    space.give_back(block, 3);
    space.is_sound().unwrap();
    space.give_back(block, 3);
    assert!(space.is_sound().unwrap_err().is_corruption());
}

/// A checkpoint's map is drafted at any moment: the blocks of a value without a commit are in no map.
///
/// Opening compares the older map with the newer one, and frees later what only the older one has. A value of
/// another transaction would be freed with it (D3).
#[test]
fn no_map_has_the_blocks_of_a_value_that_is_being_allocated() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    space.keep_back(1 << 20).unwrap();
    let release_count = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&release_count);
    let look = move |state: &State| {
        let seen = persist::reachable(state, CommitSeq(1)).used();
        assert_eq!(seen, first_free_block(512), "a map has the value's blocks");
        count.fetch_add(1, Ordering::Relaxed);
    };
    assert!(space.soundness.on_release.set(Box::new(look)).is_ok());
    for block_count in [1, 3] {
        let block = space.allocate_value(block_count).unwrap();
        let page = PagePointer { block, block_count, raw_bytes: 512, flags: 0, tag: [0; 16] };
        space.value_aborted(&[page]);
    }
    assert!(release_count.load(Ordering::Relaxed) >= 4, "each moment without the lock was looked at");
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
            let (birth, unused_since) = (CommitSeq(0), CommitSeq(round));
            space.defer_free([DeferredExtent { block, block_count, birth, unused_since }]);
        }
        let index = checkpoint(&space, round);
        space.release(CommitSeq(round - 1), Vec::new);
        let again = Space::load(space.data.clone(), &index, SMALL).unwrap();
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

/// Consecutive blocks, enough for a hole.
const LONG: u32 = SMALL.run_blocks_min * 16;
const BLOCK: u64 = 512;

fn fill(space: &Space, block: u64, block_count: u32, byte: u8) {
    let bytes = vec![byte; block_count as usize * 512];
    space.data.file().write_at(&bytes, space.data.offset(block)).unwrap();
}

fn holds(space: &Space, block: u64, block_count: u32, byte: u8) -> bool {
    let mut bytes = vec![0; block_count as usize * 512];
    space.data.file().read_at(&mut bytes, space.data.offset(block)).unwrap();
    bytes.iter().all(|found| *found == byte)
}

fn file_blocks(space: &Space) -> u64 {
    space.data.file().len().unwrap() / BLOCK
}

fn defer_free(space: &Space, block: u64, block_count: u32, unused_since: u64) {
    let (birth, unused_since) = (CommitSeq(0), CommitSeq(unused_since));
    space.defer_free([DeferredExtent { block, block_count, birth, unused_since }]);
}

/// A long free extent between two others in use; all were written.
struct Holed {
    disk: MemDisk,
    space: Space,
    first: u64,
    middle: u64,
    last: u64,
}

fn with_free_middle() -> Holed {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let [first, middle, last] = [1, 2, 3].map(|byte| {
        let block = space.allocate(LONG).unwrap();
        fill(&space, block, LONG, byte);
        block
    });
    // Blocks allocated since the last call are not punched.
    space.punch(0).unwrap();
    space.give_back(middle, LONG);
    Holed { disk, space, first, middle, last }
}

fn with_hole() -> Holed {
    let holed = with_free_middle();
    holed.space.punch(0).unwrap();
    holed
}

#[test]
fn only_what_nobody_needs_is_punched() {
    let Holed { disk, space, first, middle, last } = with_free_middle();
    space.allocate(LONG).unwrap();
    space.punch(0).unwrap();
    let full = disk.used_bytes();
    defer_free(&space, middle, LONG, 5);
    let punch = |boundary, snapshots: &[u64]| {
        space.release(CommitSeq(boundary), || snapshots.iter().map(|seq| CommitSeq(*seq)).collect());
        space.punch(0).unwrap();
    };
    punch(4, &[]);
    punch(5, &[4]);
    assert!(disk.used_bytes() == full && holds(&space, middle, LONG, 2), "somebody needs it");
    punch(5, &[5]);
    assert_eq!(disk.used_bytes(), full - u64::from(LONG) * BLOCK);
    assert!(holds(&space, first, LONG, 1) && holds(&space, middle, LONG, 0) && holds(&space, last, LONG, 3));
    assert!(!space.is_used(middle, 1) && !space.is_used(middle + 7, 9) && space.is_used(first, LONG));
    assert_eq!(space.stats().used_blocks, space.state.lock().unwrap().used.used() - u64::from(LONG));
    assert_eq!(space.free_between_bytes(), 0, "a hole is not free without asking");
    assert_eq!(space.unaccounted(&[(first, LONG), (last, LONG)]), []);
}

#[test]
fn short_runs_and_what_a_checkpoint_needs_are_not_punched() {
    let Holed { disk, space, .. } = with_free_middle();
    let full = disk.used_bytes();
    let kept_back = space.kept_back_bytes();
    space.punch(kept_back + u64::from(LONG / 2) * BLOCK).unwrap();
    assert_eq!(disk.used_bytes(), full, "half of what is free belongs to the next checkpoint");
    space.punch(kept_back + u64::from(LONG / 4) * BLOCK).unwrap();
    assert_eq!(disk.used_bytes(), full - u64::from(LONG / 2) * BLOCK, "half of it does not");
    let blocks: Vec<u64> = (0..LONG / 2).map(|_| space.allocate(1).unwrap()).collect();
    space.punch(0).unwrap();
    let short = blocks.chunks_exact(SMALL.run_blocks_min as usize);
    short.for_each(|run| run[1..].iter().for_each(|block| space.give_back(*block, 1)));
    let before = disk.used_bytes();
    space.punch(0).unwrap();
    assert_eq!(disk.used_bytes(), before, "runs are too short");
}

/// The list of a value of terabytes would be such an extent. A panic here would happen under a lock that all
/// need.
#[test]
fn an_extent_longer_than_a_page_of_the_map_is_refused() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let longest = u32::try_from(PAGE_BLOCKS).unwrap();
    assert_eq!(space.allocate_value(longest + 1).unwrap_err().code(), Code::TooLarge);
    space.allocate_value(longest).unwrap();
}

#[test]
fn one_checkpoint_punches_no_more_than_it_may() {
    let disk = MemDisk::new(1);
    let space = space(&disk);
    let count = u32::try_from(PAGE_BLOCKS.min(2 * SMALL.punch_blocks_max / 5)).unwrap();
    let blocks = [0; 5].map(|_| space.allocate(count).unwrap());
    space.allocate(1).unwrap();
    space.punch(0).unwrap();
    blocks.iter().for_each(|block| space.give_back(*block, count));
    let mut left = disk.used_bytes();
    let most = SMALL.punch_blocks_max * BLOCK;
    while space.free_between_bytes() > 2 * u64::from(SMALL.run_blocks_min) * BLOCK {
        space.punch(0).unwrap();
        let now = disk.used_bytes();
        assert!(now < left && left - now <= most, "{left} {now}");
        left = now;
    }
}

#[test]
fn a_hole_is_taken_back_in_pieces_before_the_file_grows() {
    let Holed { disk, space, middle, last, .. } = with_hole();
    let (blocks, before) = (file_blocks(&space), disk.used_bytes());
    assert_eq!(space.allocate(3).unwrap(), middle);
    assert_eq!(disk.used_bytes() - before, SMALL.take_back_bytes as u64, "no more than a piece");
    assert!(space.is_used(middle, 3) && !space.is_used(middle + 3, 1));
    assert_eq!(
        space.free_between_bytes(),
        SMALL.take_back_bytes as u64 - 3 * BLOCK,
        "the rest of the piece is free"
    );
    let piece = disk.used_bytes();
    assert!(space.allocate(LONG).unwrap() > last, "no hole is long enough");
    let before = before + disk.used_bytes() - piece;
    let mut block = middle + 3;
    while block < last {
        assert_eq!(space.allocate(1).unwrap(), block);
        fill(&space, block, 1, 9);
        block += 1;
    }
    assert_eq!(disk.used_bytes(), before + u64::from(LONG) * BLOCK);
    assert_eq!(space.state.lock().unwrap().holes.used(), 0);
    assert!(space.allocate(1).unwrap() > last && holds(&space, middle + 3, LONG - 3, 9));
    assert!(file_blocks(&space) <= blocks + blocks / 8 + 16 + u64::from(LONG));
}

/// D3: blocks used only according to the older superblock or the log must not be holes after opening.
#[test]
fn the_map_on_disk_calls_holes_free_and_opening_finds_them() {
    let Holed { disk, space, first, middle, last } = with_hole();
    let before = disk.used_bytes();
    let older = checkpoint(&space, 1);
    let newest = checkpoint(&space, 2);
    let load = || Space::load(space.data.clone(), &newest, SMALL).unwrap();
    let again = load();
    assert!(again.is_used(first, LONG) && again.is_used(last, LONG) && !again.is_used(middle, 1));
    assert_eq!(again.unaccounted(&[(first, LONG), (last, LONG)]), []);
    assert_eq!(again.stats().used_blocks, {
        let maps = again.state.lock().unwrap().persisted.extents().map(|(_, n)| u64::from(n)).sum::<u64>();
        first_free_block(512) + 2 * u64::from(LONG) + maps
    });
    again.hold(&older, CommitSeq(2)).unwrap();
    let held: Vec<_> = again.state.lock().unwrap().waiting.iter().map(|e| (e.block, e.block_count)).collect();
    assert!(!held.is_empty() && held.iter().all(|(block, count)| again.is_used(*block, *count)), "{held:?}");
    let got = again.allocate(SMALL.run_blocks_min).unwrap();
    assert!(got > first && got < last, "the hole is found again, at {got}");
    assert!(
        held.iter().all(|(block, count)| got + u64::from(SMALL.run_blocks_min) <= *block
            || block + u64::from(*count) <= got)
    );
    assert!(disk.used_bytes() > before);

    let again = load();
    let page = PagePointer { block: last - 9, block_count: 9, raw_bytes: 9 * 512, flags: 0, tag: [0; 16] };
    again.value_replayed(&[page], CommitSeq(3)).unwrap();
    assert!(again.is_used(page.block, 9) && !again.is_used(page.block - 1, 1));
    while again.allocate(1).unwrap() < last {}
    let third = checkpoint(&again, 3);
    assert!(Space::load(space.data.clone(), &third, SMALL).unwrap().is_used(page.block, 9));
    again.give_back(page.block, 9);
    assert!(!again.is_used(page.block, 9) && again.allocate(9).unwrap() == page.block);
}

#[test]
fn a_tail_after_holes_is_cut_to_the_last_block_in_use_and_the_spare_is_real() {
    let Holed { disk, space, first, middle, last } = with_hole();
    let spare = u64::from(LONG) / 2 * BLOCK;
    space.give_back(last, LONG);
    let there = space.kept_back_bytes();
    space.cut_tail(spare, &|| 0).unwrap();
    assert_eq!(file_blocks(&space), middle + u64::from(LONG) / 2);
    assert_eq!(space.stats().file_blocks, file_blocks(&space));
    assert!(space.kept_back_bytes() == spare && there > spare);
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(space.allocate(LONG / 2).unwrap(), middle, "without asking");
    fill(&space, middle, LONG / 2, 7);
    assert!(holds(&space, first, LONG, 1) && space.allocate(1).unwrap_err().code() == Code::DiskFull);
    disk.set_capacity(None);
    assert_eq!(space.allocate(LONG).unwrap(), middle + u64::from(LONG) / 2);
}

#[test]
fn on_a_full_disk_the_spare_after_a_hole_stays_when_the_tail_is_cut() {
    let Holed { disk, space, middle, last, .. } = with_hole();
    let spare = u64::from(LONG) / 4 * BLOCK;
    space.give_back(last, LONG);
    disk.set_capacity(Some(disk.used_bytes()));
    let before = disk.used_bytes();
    space.cut_tail(spare, &|| 0).unwrap();
    assert!(disk.used_bytes() < before, "something came back");
    assert_eq!((space.kept_back_bytes(), file_blocks(&space)), (spare, last + u64::from(LONG) / 4));
    space.cut_tail(spare, &|| 0).unwrap();
    assert_eq!(file_blocks(&space), middle + u64::from(LONG) / 4, "there is room now");
    assert_eq!(space.kept_back_bytes(), spare);
}

/// D7: the blocks of a former hole belong to another file.
#[test]
fn a_hole_that_the_file_system_gave_away_is_refused_and_works_again_with_room() {
    let Holed { disk, space, middle, last, .. } = with_hole();
    let other = disk.open(Path::new("/other"), Access::CREATE).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + u64::from(LONG) * BLOCK));
    other.reserve(0, u64::from(LONG) * BLOCK).unwrap();
    let kept_back = space.kept_back_bytes() / BLOCK;
    assert!((0..kept_back).all(|_| space.allocate(1).unwrap() > last), "what was kept back is there");
    let error = (0..8).find_map(|_| space.allocate(1).err()).expect("the disk is full");
    let before = space.stats();
    assert_eq!(error.code(), Code::DiskFull);
    assert_eq!(space.keep_back(1).unwrap_err().code(), Code::DiskFull);
    assert_eq!(space.stats(), before);
    assert!(!space.is_used(middle, 1));
    other.set_len(0).unwrap();
    assert_eq!(space.allocate(1).unwrap(), middle, "there is room");
    fill(&space, middle, 1, 5);
    assert!(holds(&space, middle, 1, 5));
}

/// D7: after opening, holes are not known. Free blocks that are no holes are usable by deletes and
/// checkpoints.
#[test]
fn on_a_full_disk_free_blocks_of_an_opened_database_are_there_all_the_same() {
    let Holed { disk, space, .. } = with_free_middle();
    space.keep_back(100 * BLOCK).unwrap();
    let index = checkpoint(&space, 1);
    let kept_back = space.kept_back_bytes();
    disk.set_capacity(Some(disk.used_bytes()));
    let again = Space::load(space.data.clone(), &index, SMALL).unwrap();
    assert_eq!((again.free_between_bytes(), again.kept_back_bytes()), (0, 0), "it may all be holes");
    again.keep_back(kept_back).unwrap();
    assert_eq!(again.kept_back_bytes(), kept_back);
    let wanted = kept_back + u64::from(LONG) / 4 * BLOCK;
    assert_eq!(again.keep_back(wanted).unwrap_err().code(), Code::DiskFull);
    assert!(again.kept_back_bytes() + again.free_between_bytes() / 2 >= wanted);
}

#[test]
fn a_punch_that_fails_leaves_a_hole() {
    use duramen_disk::memory::{CallKind, Effect, Fault, FaultPlan};
    let Holed { disk, space, middle, last, .. } = with_free_middle();
    disk.set_faults(Fault::new(CallKind::Punch, 0, Effect::EIO));
    assert!(space.punch(0).is_err());
    disk.set_faults(FaultPlan::none());
    assert!(!space.is_used(middle, 1) && space.free_between_bytes() == 0);
    let block = space.allocate(9).unwrap();
    assert!(block >= middle && block < last, "and it is taken back");
}

/// A file that runs a callback while a hole is punched in it.
struct Watched {
    file: Arc<dyn File>,
    inside: Box<dyn Fn() + Send + Sync>,
    /// The disk has no room for longer ranges, also where the file has them.
    reserve_bytes_max: u64,
    /// Where the reserved ranges end.
    reserved_to: Arc<AtomicU64>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl File for Watched {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::result::Result<(), WriteError> {
        self.file.write_at(bytes, offset)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> std::result::Result<(), DurableWriteError> {
        self.file.write_durable_at(bytes, offset)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> std::io::Result<()> {
        self.file.set_len(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        if bytes > self.reserve_bytes_max {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.reserved_to.fetch_max(offset + bytes, Ordering::SeqCst);
        self.file.reserve(offset, bytes)
    }

    /// Before and after: a concurrent caller may come at any moment of the call.
    fn punch(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        (self.inside)();
        let punched = self.file.punch(offset, bytes);
        (self.inside)();
        punched
    }

    fn write_out(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        self.file.write_out(offset, bytes)
    }
}

/// D3: while the file system punches a hole, no caller waits for it, and none is given the blocks concerned.
#[test]
fn nothing_is_put_into_a_hole_while_it_is_punched() {
    static SPACE: OnceLock<Space> = OnceLock::new();
    static WRITTEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let file = MemDisk::new(1).open(Path::new("/data"), Access::CREATE).unwrap();
    let inside = Box::new(|| {
        let space = SPACE.get().unwrap();
        for _ in 0..SMALL.run_blocks_min {
            let block = space.allocate(1).unwrap();
            fill(space, block, 1, 6);
            WRITTEN.lock().unwrap().push(block);
        }
    });
    let watched = Watched { file, inside, reserve_bytes_max: u64::MAX, reserved_to: Arc::default() };
    let space = Space::new(DataFile::new(Arc::new(watched), Path::new("/data"), DatabaseId(1), 512), SMALL);
    let space = SPACE.get_or_init(|| space);
    let blocks = [0; 9].map(|_| space.allocate(LONG / 2).unwrap());
    space.punch(0).unwrap();
    blocks.iter().step_by(2).for_each(|block| space.give_back(*block, LONG / 2));
    space.punch(0).unwrap();
    let written = WRITTEN.lock().unwrap();
    assert!(written.len() >= 4 * SMALL.run_blocks_min as usize, "several holes were punched");
    assert!(written.iter().all(|block| space.is_used(*block, 1) && holds(space, *block, 1, 6)));
    assert!(space.state.lock().unwrap().holes.used() > 0);
}

/// An extent, its byte, the first checkpoint that may contain it, and the commit that replaced it.
#[derive(Clone, Copy)]
struct Written {
    block: u64,
    block_count: u32,
    byte: u8,
    birth: u64,
    unused_since: u64,
}

impl Written {
    fn page(&self) -> PagePointer {
        let Written { block, block_count, .. } = *self;
        PagePointer { block, block_count, raw_bytes: block_count * 512, flags: 0, tag: [0; 16] }
    }
}

struct Life {
    disk: MemDisk,
    space: Space,
    random: Random,
    live: Vec<Written>,
    /// Values of commits that no checkpoint contains.
    values: Vec<Written>,
    /// Extents that only the older checkpoint needs.
    old: Vec<Written>,
    older: Option<(PagePointer, u64)>,
    punched_bytes: u64,
    taken_back_blocks: u64,
    refused_count: u64,
    is_full: bool,
}

impl Life {
    fn hole_blocks(&self) -> u64 {
        self.space.state.lock().unwrap().holes.used()
    }

    fn allocate(&mut self, round: u64) {
        let block_count = u32::try_from(1 + self.random.below(3 * u64::from(SMALL.run_blocks_min))).unwrap();
        let holes = self.hole_blocks();
        let Ok(block) = self.space.allocate(block_count) else {
            self.refused_count += 1;
            assert!(self.is_full, "there is room");
            return;
        };
        self.taken_back_blocks += holes - self.hole_blocks();
        let byte = u8::try_from(1 + self.random.below(255)).unwrap();
        fill(&self.space, block, block_count, byte);
        self.live.push(Written { block, block_count, byte, birth: round, unused_since: u64::MAX });
    }

    fn defer_free(&mut self, round: u64) {
        if self.live.is_empty() {
            return;
        }
        let which = usize::try_from(self.random.below(self.live.len() as u64)).unwrap();
        let gone = Written { unused_since: round, ..self.live.swap_remove(which) };
        defer_free(&self.space, gone.block, gone.block_count, round);
        self.old.push(gone);
    }

    fn checkpoint(&mut self, round: u64) -> Option<PagePointer> {
        let space = &self.space;
        let put = &mut |page: &_, block| {
            let pointer = space.data.locate(page, block);
            space.data.file().write_at(page.bytes(), space.data.offset(block)).unwrap();
            Ok(pointer)
        };
        let draft = space.draft(CommitSeq(round), Generation(round), Vec::new(), put).ok();
        assert!(draft.is_some() || self.is_full, "there is room");
        let draft = draft?;
        let index = draft.index;
        space.adopt(draft);
        Some(index)
    }

    fn give_space_back(&mut self) {
        let boundary = self.older.map_or(0, |(_, seq)| seq);
        self.space.release(CommitSeq(boundary), Vec::new);
        self.old.retain(|extent| extent.unused_since > boundary);
        let spare = self.random.below(40) * BLOCK;
        if self.random.below(2) == 0 {
            self.space.cut_tail(spare, &|| 0).unwrap();
        }
        let before = self.disk.used_bytes();
        self.space.punch(if self.random.below(2) == 0 { 0 } else { spare }).unwrap();
        self.punched_bytes += before - self.disk.used_bytes();
    }

    /// Commits a big value that the newest checkpoint does not contain.
    fn value(&mut self, round: u64) {
        let Ok(block) = self.space.allocate_value(9) else { return };
        let value = Written { block, block_count: 9, byte: 0x55, birth: round + 1, unused_since: u64::MAX };
        fill(&self.space, block, 9, 0x55);
        self.space.value_committed(&[value.page()], CommitSeq(round + 1));
        self.values.push(value);
    }

    /// Opens again from the newest checkpoint, the older one, and the log.
    fn open_again(&mut self, round: u64, newest: &PagePointer) {
        self.space = Space::load(self.space.data.clone(), newest, SMALL).unwrap();
        if let Some((older, seq)) = &self.older {
            self.space.hold(older, CommitSeq(round)).unwrap();
            self.old.retain(|extent| extent.birth <= *seq);
        } else {
            self.old.clear();
        }
        for value in &self.values {
            self.space.value_replayed(&[value.page()], CommitSeq(round + 1)).unwrap();
        }
    }

    fn look(&self, when: &str) {
        for extent in self.live.iter().chain(&self.values).chain(&self.old) {
            let Written { block, block_count, byte, .. } = *extent;
            assert!(self.space.is_used(block, block_count), "{when}: block {block}");
            assert!(holds(&self.space, block, block_count, byte), "{when}: block {block}");
        }
        let known = self.live.iter().chain(&self.values).map(|extent| (extent.block, extent.block_count));
        assert_eq!(self.space.unaccounted(&known.collect::<Vec<_>>()), [], "{when}");
    }
}

/// Random allocations, frees, punches, cuts and openings: no byte that a superblock or the log needs is lost
/// (D3), and no block leaks.
#[test]
fn random_lives_lose_no_block_and_no_byte() {
    let (mut punched_bytes, mut taken_back_blocks, mut refused_count) = (0, 0, 0);
    for seed in 1..=12 {
        let disk = MemDisk::new(seed);
        let (space, random) = (space(&disk), Random(seed));
        let (live, values, old) = (Vec::new(), Vec::new(), Vec::new());
        let mut life = Life {
            disk,
            space,
            random,
            live,
            values,
            old,
            older: None,
            punched_bytes,
            taken_back_blocks,
            refused_count,
            is_full: false,
        };
        for round in 1..120 {
            let (more, less) = if round / 20 % 2 == 0 { (12, 3) } else { (3, 12) };
            life.is_full = life.random.below(6) == 0;
            let room = life.is_full.then(|| life.disk.used_bytes() + life.random.below(20) * 4096);
            life.disk.set_capacity(room);
            (0..life.random.below(more)).for_each(|_| life.allocate(round));
            (0..life.random.below(less)).for_each(|_| life.defer_free(round));
            let values = std::mem::take(&mut life.values);
            life.live.extend(values);
            let newest = life.checkpoint(round);
            life.look(&format!("seed {seed}, round {round}: checkpoint {newest:?}"));
            let Some(newest) = newest else { continue };
            if life.random.below(3) == 0 {
                life.value(round);
            }
            life.give_space_back();
            life.look(&format!("seed {seed}, round {round}: space given back"));
            if life.random.below(3) == 0 {
                life.value(round);
            }
            if life.random.below(6) == 0 {
                life.open_again(round, &newest);
            }
            life.look(&format!("seed {seed}, round {round}: at its end"));
            life.older = Some((newest, round));
        }
        (punched_bytes, taken_back_blocks, refused_count) =
            (life.punched_bytes, life.taken_back_blocks, life.refused_count);
    }
    println!("{punched_bytes} bytes punched, {taken_back_blocks} blocks taken back, {refused_count} refused");
    assert!(punched_bytes > 1 << 20 && taken_back_blocks > 100 && refused_count > 10);
}
