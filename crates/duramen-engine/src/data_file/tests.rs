//! Pages and superblocks: what was written reads back, anything else is an error that names its place (D4).
#![allow(clippy::unwrap_used)]

use std::path::Path;

use duramen_disk::{Access, Disk, MemDisk, SyncMethod};

use super::*;
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

#[test]
fn a_page_reads_back_and_every_flipped_bit_is_an_error_with_its_place() {
    let disk = MemDisk::new(1);
    let data = data(&disk, 1);
    let location = data.locate(&page(9), 4);
    data.file().write_at(page(9).bytes(), data.offset(4)).unwrap();
    assert_eq!(data.read(&location, PageKind::Leaf).unwrap().bytes(), page(9).bytes());
    for at in 0..page(9).bytes().len() as u64 {
        disk.flip_bit("/data", 2048 + at, 3).unwrap();
        let error = data.read(&location, PageKind::Leaf).unwrap_err();
        assert!(error.is_damage() && error.message().contains("/data @ 0x800"), "{error}");
        disk.flip_bit("/data", 2048 + at, 3).unwrap();
    }
}

#[test]
fn a_page_of_another_place_kind_or_database_is_an_error() {
    let disk = MemDisk::new(1);
    let data_file = data(&disk, 1);
    let location = data_file.locate(&page(9), 4);
    for block in [4, 8] {
        data_file.file().write_at(page(9).bytes(), data_file.offset(block)).unwrap();
    }
    assert!(data_file.read(&Location { block: 8, ..location }, PageKind::Leaf).unwrap_err().is_damage());
    assert!(data_file.read(&location, PageKind::Inner).unwrap_err().is_damage());
    assert!(data(&disk, 2).read(&location, PageKind::Leaf).unwrap_err().is_damage());
    assert!(data_file.read(&Location { block: 4000, ..location }, PageKind::Leaf).unwrap_err().is_damage());
}

fn superblock() -> Superblock {
    let location = Location { block: 70, block_count: 2, raw_bytes: 900, flags: 1, tag: [5; 16] };
    Superblock {
        write_features: 2,
        database: DatabaseId(11),
        log: LogId(12),
        generation: Generation(13),
        replay: LogPosition::default(),
        marked: CommitSeq(14),
        roots: Some(location),
        space: None,
        hot: Some(location),
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
