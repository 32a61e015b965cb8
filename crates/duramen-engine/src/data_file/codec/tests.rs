//! Compressed pages on disk: each reads back as the page it was, and nothing else does (D4).
#![allow(clippy::unwrap_used)]

use std::path::Path;

use duramen_disk::{Access, Disk, MemDisk};

use super::*;
use crate::data_file::page::PAYLOAD_BYTES_AT;
use crate::data_file::{PagePointer, TreeNumber};
use crate::ids::{DatabaseId, TreeId};

const BLOCK_BYTES: usize = 512;

fn data(disk: &MemDisk) -> DataFile {
    let file = disk
        .open(Path::new("/data"), Access::CREATE)
        .or_else(|_| disk.open(Path::new("/data"), Access::WRITE))
        .unwrap();
    DataFile::new(file, Path::new("/data"), DatabaseId(1), BLOCK_BYTES).compressing(true)
}

/// A leaf of so many bytes, every one of which is random for a `noise` of 1.
fn leaf(bytes: usize, noise: u64) -> Page {
    let mut state = 7_u64;
    let mut next = |at: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let is_noise = (state >> 33).is_multiple_of(noise);
        if is_noise { state.to_le_bytes()[7] } else { b"a document "[at % 11] }
    };
    let payload: Vec<u8> = (0..bytes).map(&mut next).collect();
    Page::build(PageKind::Leaf, 3, bytes, |out| out.extend_from_slice(&payload))
}

/// Writes a page at a block, and returns its pointer and how many bytes it takes.
fn write(data: &DataFile, page: &Page, block: u64) -> (PagePointer, usize) {
    let mut compressor = Compressor::default();
    let mut stored = compressor.stored(page, data).to_vec();
    let pointer = data.locate_node(&mut stored, block, TreeNumber::of(TreeId(7)));
    let bytes = stored.len();
    stored.resize(bytes.next_multiple_of(BLOCK_BYTES), 0);
    data.file().write_at(&stored, data.offset(block)).unwrap();
    (pointer, bytes)
}

/// A page without its mark, which is of what is stored.
fn without_mark(page: &Page) -> Vec<u8> {
    [&page.bytes()[..TREE_AT], &page.bytes()[PAGE_HEADER_BYTES..]].concat()
}

#[test]
fn a_compressed_page_takes_fewer_blocks_and_reads_back() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    assert!(data.features().is_empty());
    for (bytes, noise) in [(1000, u64::MAX), (4000, 1000), (16_000, 50), (60_000, 20), (65_536, u64::MAX)] {
        let page = leaf(bytes, noise);
        let (pointer, stored) = write(&data, &page, 4);
        assert!(pointer.is_compressed() && pointer.raw_bytes as usize == page.bytes().len(), "{pointer:?}");
        assert!(pointer.block_count < data.blocks_of(page.bytes().len()), "{pointer:?}");
        let read = data.read(&pointer, PageKind::Leaf).unwrap();
        assert_eq!(without_mark(&read), without_mark(&page));
        let mut found = vec![0; stored];
        data.file().read_at(&mut found, data.offset(4)).unwrap();
        assert_eq!(
            data.node_at(&found, 4),
            Some((pointer, TreeNumber::of(TreeId(7)), 3)),
            "without a pointer"
        );
    }
    assert!(data.features().contains(crate::features::Features::LZ4_PAGES));
}

#[test]
fn every_flipped_bit_of_a_compressed_page_is_an_error_with_its_place() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    let (pointer, stored) = write(&data, &leaf(2000, 30), 4);
    for at in 0..stored as u64 {
        for bit in 0..8 {
            disk.flip_bit("/data", 2048 + at, bit).unwrap();
            let error = data.read(&pointer, PageKind::Leaf).unwrap_err();
            assert!(error.is_corruption() && error.message().contains("/data @ 0x800"), "{error}");
            disk.flip_bit("/data", 2048 + at, bit).unwrap();
        }
    }
    data.read(&pointer, PageKind::Leaf).unwrap();
}

/// The padding of the last page of a file that was cut is not needed.
#[test]
fn a_page_is_whole_without_its_padding() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    let (pointer, stored) = write(&data, &leaf(2000, 30), 4);
    data.file().set_len(2048 + stored as u64).unwrap();
    data.read(&pointer, PageKind::Leaf).unwrap();
    data.file().set_len(2048 + stored as u64 - 1).unwrap();
    assert!(data.read(&pointer, PageKind::Leaf).unwrap_err().is_corruption());
}

/// The file grows within a block after its length was looked at.
#[test]
fn a_page_is_read_as_far_as_the_file_reaches_now() {
    let disk = MemDisk::new(1);
    let (pointer, stored) = write(&data(&disk), &leaf(2000, 30), 4);
    let data = data(&disk);
    let whole = disk.read_file("/data").unwrap();
    data.file().set_len(2048 + stored as u64 - 1).unwrap();
    assert!(data.read(&pointer, PageKind::Leaf).unwrap_err().is_corruption());
    data.file().write_at(&whole[2048..], 2048).unwrap();
    data.read(&pointer, PageKind::Leaf).unwrap();
}

/// No build writes one: a repair that finds it does not name it.
#[test]
fn a_compressed_page_that_saves_no_block_is_none() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    let mut stored = Compressor::default().stored(&leaf(2000, 30), &data).to_vec();
    assert!(stored.len() < 1000, "a block less");
    stored.resize(2000, 0);
    let bytes = u32::try_from(stored.len() - PAGE_HEADER_BYTES).unwrap();
    stored[STORED_BYTES_AT..TREE_AT].copy_from_slice(&bytes.to_le_bytes());
    let pointer = data.locate_node(&mut stored, 4, TreeNumber::of(TreeId(7)));
    assert!(pointer.is_compressed());
    assert_eq!(data.node_at(&stored, 4), None);
}

#[test]
fn pages_that_save_no_block_stay_as_they_are_and_are_hardly_tried() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    let noise = leaf(4000, 1);
    let (pointer, _) = write(&data, &noise, 4);
    assert!(!pointer.is_compressed());
    assert!(data.features().is_empty(), "nothing is compressed");
    let mut compressor = Compressor::default();
    for _ in 0..FAILED_MAX {
        assert_eq!(compressor.stored(&noise, &data), noise.bytes());
    }
    let text = leaf(4000, 1000);
    let skipped =
        (0..2 * TRIED_EVERY).take_while(|_| compressor.stored(&text, &data) == text.bytes()).count();
    assert!((1..=TRIED_EVERY as usize).contains(&skipped), "{skipped} pages before one is tried again");
    assert!(compressor.stored(&text, &data).len() < text.bytes().len(), "it compresses by now");
    compressor.stored(&noise, &data);
    compressor.begin_tree();
    assert!(compressor.stored(&text, &data).len() < text.bytes().len(), "another tree");
    let data = data.compressing(false);
    assert_eq!(compressor.stored(&text, &data), text.bytes());
}

/// A hostile program can write a right checksum over anything.
#[test]
fn a_compressed_page_with_a_right_checksum_and_wrong_bytes_is_an_error() {
    let disk = MemDisk::new(1);
    let data = data(&disk);
    let page = leaf(2000, 30);
    let mut compressor = Compressor::default();
    let right = compressor.stored(&page, &data).to_vec();
    let read = |stored: &[u8], change: &dyn Fn(PagePointer) -> PagePointer| {
        let mut bytes = stored.to_vec();
        let pointer = change(data.locate_node(&mut bytes, 4, TreeNumber::of(TreeId(7))));
        bytes.resize(4096, 0);
        data.file().write_at(&bytes, data.offset(4)).unwrap();
        data.read(&pointer, PageKind::Leaf)
    };
    read(&right, &|pointer| pointer).unwrap();
    for at in PAGE_HEADER_BYTES..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 0xff;
        // A literal may be any other; nothing panics, and nothing is read beyond the page.
        drop(read(&wrong, &|pointer| pointer));
    }
    for length in [1, 1999, 2001, 65_536] {
        let longer = |pointer: PagePointer| PagePointer { raw_bytes: 48 + length, ..pointer };
        assert!(read(&right, &longer).unwrap_err().is_corruption(), "{length}");
        let mut header_agrees = right.clone();
        header_agrees[PAYLOAD_BYTES_AT..STORED_BYTES_AT].copy_from_slice(&length.to_le_bytes());
        let error = read(&header_agrees, &|pointer| pointer).unwrap_err();
        assert!(error.is_corruption(), "{length}: the rest of the page would be what was in memory before");
    }
    let codec = |codec: u8| {
        let mut other = right.clone();
        other[CODEC_AT] = codec;
        other
    };
    for other in [codec(0), codec(2), codec(255)] {
        let is_compressed = |pointer: PagePointer| PagePointer { flags: 4, ..pointer };
        assert!(read(&other, &is_compressed).unwrap_err().is_corruption());
    }
    let raw = |pointer: PagePointer| PagePointer { flags: 0, ..pointer };
    assert!(read(&right, &raw).unwrap_err().is_corruption());
}
