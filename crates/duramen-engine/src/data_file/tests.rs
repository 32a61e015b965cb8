//! Pages and superblocks: what was written reads back; anything else is an error that names its place (D4).
#![allow(clippy::unwrap_used)]

use std::path::Path;

use duramen_disk::memory::{CallKind, Effect, Fault};
use duramen_disk::{Access, Disk, MemDisk, SyncMethod};

use super::*;
use crate::alarm::cause_of;
use crate::features::Features;
use crate::ids::{CommitSeq, Generation, LogId, TreeId};
use crate::options::Geometry;
use crate::wal::LogPosition;

fn data(disk: &MemDisk, database: u128) -> DataFile {
    let access = if disk.files().is_empty() { Access::CREATE } else { Access::WRITE };
    let file = disk.open(Path::new("/data"), access).unwrap();
    DataFile::new(file, Path::new("/data"), DatabaseId(database), 512)
}

fn page(fill: u8) -> Page {
    Page::build(PageKind::Leaf, 3, 700, |out| out.extend_from_slice(&[fill; 700]))
}

/// D1: a sync that began before a value was written does not make it durable.
#[test]
fn concurrent_callers_share_a_sync_that_begins_after_their_calls() {
    let disk = MemDisk::new(1);
    let data = data(&disk, 1);
    let syncs = Arc::new(AtomicU64::new(0));
    let (wanted, counted, of_sync) = (Arc::new(AtomicU64::new(0)), Arc::clone(&syncs), data.clone());
    let wants = Arc::clone(&wanted);
    disk.set_blocker(Some(Arc::new(move |_: &Path| {
        counted.fetch_add(1, Ordering::SeqCst);
        // A caller that comes while the sync runs.
        wants.store(of_sync.syncs.next(), Ordering::SeqCst);
    })));
    let together = [data.syncs.next(), data.syncs.next()];
    for number in together {
        data.sync_through(number).unwrap();
        assert_eq!(syncs.load(Ordering::SeqCst), 1, "two callers share a sync");
    }
    data.sync_through(wanted.load(Ordering::SeqCst)).unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst), 2, "one that came while it ran needs another");
    data.sync().unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst), 3);
}

/// D6: the system reports what it could not write once. A later sync would call it durable.
#[test]
fn no_sync_follows_one_that_failed() {
    let disk = MemDisk::new(1);
    let data = data(&disk, 1);
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
    let first = data.sync().unwrap_err();
    assert_eq!(data.sync().unwrap_err().message(), first.message());
}

#[test]
fn a_page_reads_back_and_every_flipped_bit_is_an_error_with_its_place() {
    let disk = MemDisk::new(1);
    let data = data(&disk, 1);
    let pointer = data.locate(&page(9), 4);
    data.file().write_at(page(9).bytes(), data.offset(4)).unwrap();
    assert_eq!(data.read(&pointer, PageKind::Leaf).unwrap().bytes(), page(9).bytes());
    for at in 0..page(9).bytes().len() as u64 {
        disk.flip_bit("/data", 2048 + at, 3).unwrap();
        let error = data.read(&pointer, PageKind::Leaf).unwrap_err();
        assert!(error.is_corruption() && error.message().contains("/data @ 0x800"), "{error}");
        disk.flip_bit("/data", 2048 + at, 3).unwrap();
    }
}

#[test]
fn a_page_of_another_place_kind_or_database_is_an_error() {
    let disk = MemDisk::new(1);
    let data_file = data(&disk, 1);
    let pointer = data_file.locate(&page(9), 4);
    for block in [4, 8] {
        data_file.file().write_at(page(9).bytes(), data_file.offset(block)).unwrap();
    }
    assert!(
        data_file.read(&PagePointer { block: 8, ..pointer }, PageKind::Leaf).unwrap_err().is_corruption()
    );
    assert!(data_file.read(&pointer, PageKind::Inner).unwrap_err().is_corruption());
    assert!(data(&disk, 2).read(&pointer, PageKind::Leaf).unwrap_err().is_corruption());
    assert!(
        data_file.read(&PagePointer { block: 4000, ..pointer }, PageKind::Leaf).unwrap_err().is_corruption()
    );
}

// A repair that finds a page without its pointer must know that it is whole, and which tree it is of.
#[test]
fn a_mark_holds_for_one_page_at_one_place() {
    let disk = MemDisk::new(1);
    let file = data(&disk, 1);
    for (tree, number) in [
        (Some(TreeId(0)), TreeNumber::of(TreeId(0))),
        (Some(TreeId(7)), TreeNumber::of(TreeId(7))),
        (None, TreeNumber::of(TreeId(u64::from(u32::MAX)))),
        (None, TreeNumber::ROOTS),
    ] {
        let mut bytes = page(9).bytes().to_vec();
        assert_eq!(file.marked(&bytes, 4), None, "a page of an earlier build");
        let pointer = file.locate_node(&mut bytes, 4, number);
        file.file().write_at(&bytes, file.offset(4)).unwrap();
        assert_eq!(file.read(&pointer, PageKind::Leaf).unwrap().bytes(), bytes);
        assert_eq!(file.marked(&bytes, 4), Some(number));
        assert_eq!(number.tree(), tree);
        assert_eq!((file.marked(&bytes, 8), data(&disk, 2).marked(&bytes, 4)), (None, None));
        for at in 0..bytes.len() {
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(file.marked(&bytes, 4), None, "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
        assert_eq!(file.marked(&bytes[..40], 4), None);
    }
}

fn superblock() -> Superblock {
    let pointer = PagePointer { block: 70, block_count: 2, raw_bytes: 900, flags: 1, tag: [5; 16] };
    Superblock {
        write_features: 2,
        features: Features::SHAPES,
        database: DatabaseId(11),
        log: LogId(12),
        generation: Generation(13),
        replay: LogPosition::default(),
        marked: CommitSeq(14),
        roots: Some(pointer),
        space: None,
        hot: Some(pointer),
        end_block: 15,
        next_tree: TreeId(16),
        geometry: Geometry::default(),
        clean: true,
        sync: Some(SyncChoice {
            method: SyncMethod::Dsync,
            measured: Measured { fdatasync_us: 17, dsync_us: 18, direct_us: 0 },
        }),
    }
}

#[test]
fn a_superblock_reads_back_and_every_flipped_bit_is_refused() {
    let bytes = superblock().encode();
    assert_eq!(Superblock::decode(&bytes).unwrap(), superblock());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes;
            bytes[at] ^= 1 << bit;
            assert!(Superblock::decode(&bytes).is_err(), "byte {at} bit {bit}");
        }
    }
    assert_eq!(Superblock::decode(b"something else"), Err(SuperblockError::NotOne));
}

/// A superblock with a right checksum may still hold anything. Inconsistent sizes, or numbers that leave no
/// room for later ones, are refused (D4).
#[test]
fn a_superblock_with_a_right_checksum_and_impossible_numbers_is_refused() {
    let geometry = superblock().geometry;
    let with = |geometry: Geometry| Superblock { geometry, ..superblock() };
    let at = |replay: LogPosition| Superblock { replay, ..superblock() };
    let never = u64::MAX;
    let hostile = [
        with(Geometry { block_bytes: 0, ..geometry }),
        with(Geometry { block_bytes: 3 << 12, ..geometry }),
        with(Geometry { block_bytes: 1 << 31, ..geometry }),
        with(Geometry { leaf_bytes_max: 1 << 30, ..geometry }),
        with(Geometry { inner_bytes_max: 0, ..geometry }),
        with(Geometry { big_value_bytes: 1 << 31, ..geometry }),
        with(Geometry { big_value_extent_bytes: 1 << 31, ..geometry }),
        with(Geometry { segment_bytes_max: never / 4096 * 4096, ..geometry }),
        with(Geometry { segment_bytes_min: 0, ..geometry }),
        Superblock { generation: Generation(never), ..superblock() },
        Superblock { marked: CommitSeq(never), ..superblock() },
        Superblock { next_tree: TreeId(never), ..superblock() },
        at(LogPosition { seq: CommitSeq(never), ..LogPosition::default() }),
        at(LogPosition { epoch: crate::ids::Epoch(never), ..LogPosition::default() }),
    ];
    for superblock in hostile {
        assert_eq!(Superblock::decode(&superblock.encode()), Err(SuperblockError::Corrupt), "{superblock:?}");
    }
}

/// A page pointer is checked before memory is allocated for its page (D4).
#[test]
fn a_pointer_that_no_page_can_have_is_refused_before_a_byte_is_read() {
    let disk = MemDisk::new(1);
    let data = data(&disk, 1);
    let right = data.locate(&page(9), 4);
    data.file().write_at(page(9).bytes(), data.offset(4)).unwrap();
    data.read(&right, PageKind::Leaf).unwrap();
    disk.reset_call_counts();
    let hostile = [
        PagePointer { raw_bytes: u32::MAX, block_count: u32::MAX / 512 + 1, ..right },
        PagePointer { raw_bytes: 1 << 20, block_count: 1 << 11, ..right },
        PagePointer { raw_bytes: 0, block_count: 0, ..right },
        PagePointer { raw_bytes: 47, block_count: 1, ..right },
        PagePointer { block_count: u32::MAX, ..right },
        PagePointer { block_count: right.block_count + 1, ..right },
        PagePointer { block_count: right.block_count - 1, ..right },
        PagePointer { block: u64::MAX, ..right },
        PagePointer { block: u64::MAX / 512, ..right },
        PagePointer { block: 1 << 50, ..right },
        PagePointer { block: 5, ..right },
        PagePointer { flags: 2, ..right },
    ];
    for pointer in hostile {
        let error = data.read(&pointer, PageKind::Leaf).unwrap_err();
        assert!(error.is_corruption() && error.message().contains("/data @"), "{pointer:?}: {error}");
    }
    let list = PagePointer { raw_bytes: 1 << 31, block_count: 1 << 22, ..right };
    for kind in [PageKind::ValueList, PageKind::SpaceIndex] {
        assert!(data.read(&list, kind).unwrap_err().is_corruption(), "longer than the file");
    }
    assert_eq!(disk.call_counts().of(duramen_disk::memory::CallKind::Read), 0);
}

/// Its pointer has the announced length: less or more could not be read.
#[test]
fn a_page_that_is_not_as_long_as_announced_raises_the_alarm() {
    for bytes in [0, 699, 701] {
        let build = || drop(Page::build(PageKind::Leaf, 3, 700, |out| out.resize(out.len() + bytes, 7)));
        let cause = cause_of(build);
        assert!(cause.contains(&format!("announced with 700 bytes has {bytes}")), "{cause}");
    }
}

/// The numbers of a hostile file may be one below the bound; the next ones are written and read back all the
/// same.
#[test]
fn what_is_written_reads_back_whether_plausible_or_not() {
    let next = Superblock { generation: Generation(1 << 62), ..superblock() };
    assert!(next.reads_back(&next.encode()) && !next.reads_back(&superblock().encode()));
    assert!(!next.reads_back(&next.encode()[1..]));
}
