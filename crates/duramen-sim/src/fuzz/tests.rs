//! Positive controls of resealing. They show that the fuzzer gets past the checksums.

use duramen_engine::data_file::Superblock;

use super::database::{BLOCK_BYTES, disk_of, specimens};
use super::reseal::{Image, Kind};
use super::stored::{engine_of, put, tree_id};
use crate::repair::specimen::{DATABASE, open};

/// The least number of pages whose corruption must be detected.
const PAGES_MIN: usize = 20;

/// Flips one bit of a unit. With `resealed`, recomputes its checksum and those of all pointers to it.
fn flipped(image: &Image, index: usize, at: usize, resealed: bool) -> Image {
    let mut image = image.clone();
    image.unit_mut(index)[at] ^= 1;
    if resealed {
        image.reseal(index);
    }
    image
}

/// What opening or checking a database reports.
fn said(image: &Image) -> String {
    match open(&disk_of(image), DATABASE) {
        Ok(db) => format!("{:?}", db.check()),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn a_resealed_page_is_not_refused_for_its_checksum() {
    let image = &specimens()[0];
    let mut refused = 0;
    for (index, unit) in image.units.iter().enumerate().filter(|(_, unit)| unit.kind == Kind::Page) {
        let last = unit.bytes - 1;
        // Of this page only: the flipped bit may be in a pointer, and part of the checksum of another page.
        let refusal = format!("page at block {}: checksum", unit.at / BLOCK_BYTES);
        // A page that cannot be reached from either superblock is not read.
        if said(&flipped(image, index, last, false)).contains(&refusal) {
            refused += 1;
            let said = said(&flipped(image, index, last, true));
            assert!(!said.contains(&refusal), "{said}");
        }
    }
    assert!(refused >= PAGES_MIN, "{refused} pages were refused for their checksum");
}

#[test]
fn a_resealed_superblock_is_read() {
    let image = &specimens()[0];
    let of_superblocks = image.units.iter().enumerate().filter(|(_, unit)| unit.kind == Kind::Superblock);
    for (index, unit) in of_superblocks {
        let decoded = |resealed, at| Superblock::decode(flipped(image, index, at, resealed).unit_mut(index));
        let mut read = 0;
        for at in (0..unit.bytes).step_by(8) {
            assert!(decoded(false, at).is_err(), "byte {at} without its checksum");
            read += usize::from(decoded(true, at).is_ok());
        }
        assert!(read >= unit.bytes / 16, "{read} of {} changed bytes were read", unit.bytes / 8);
    }
}

#[test]
fn a_resealed_record_is_replayed() {
    let mut image = specimens()[1].clone();
    assert!(image.replace_last_record(&put(tree_id("raw"), b"resealed", b"value")));
    let value = |image: &Image| {
        let db = open(&disk_of(image), DATABASE).ok()?;
        db.bytes("raw").get("resealed").unwrap()
    };
    assert_eq!(value(&image).as_deref(), Some(&b"value"[..]));
    let mut units = image.clone();
    let index = (0..image.units.len()).find(|index| units.unit_mut(*index).ends_with(b"value")).unwrap();
    let last = image.units[index].bytes - 1;
    assert_eq!(value(&flipped(&image, index, last, true)).as_deref(), Some(&b"valud"[..]));
    assert_eq!(
        value(&flipped(&image, index, last, false)),
        None,
        "a record with a wrong checksum is no record"
    );
}

/// A record that drops the tree `raw` and puts one more big value into it, of `block_count` blocks at
/// `block`.
fn dropped_value(block: u64, block_count: u32) -> Vec<u8> {
    const DELETE: u8 = 0;
    const PUT_BIG: u8 = 2;
    let raw_bytes = block_count.saturating_mul(u32::try_from(BLOCK_BYTES).unwrap());
    let mut value = u64::from(raw_bytes - 48).to_le_bytes().to_vec();
    // The only extent: its pointer without flags, with a checksum of zeroes. No reduction.
    value.push(0);
    value.extend(block.to_le_bytes());
    [block_count, raw_bytes, 0].iter().for_each(|number| value.extend(number.to_le_bytes()));
    value.extend([0; 16]);
    value.extend(u16::MAX.to_le_bytes());
    let change = |tree: u64, kind: u8, key: &[u8], value: &[u8]| {
        let mut record = put(tree, key, value);
        record[18] = kind;
        // After the version and the count of trees.
        record.split_off(5)
    };
    [&[1, 2, 0, 0, 0][..], &change(0, DELETE, b"raw", b""), &change(tree_id("raw"), PUT_BIG, b"k", &value)]
        .concat()
}

/// D4: the log contains blocks of values that it replaced itself. They are kept for the feed, but only if
/// they lie in the file: the end of an extent at the greatest number would overflow.
#[test]
fn blocks_of_a_replaced_value_beyond_all_numbers_are_left_alone() {
    for block in [u64::MAX, u64::MAX - 1, u64::MAX / BLOCK_BYTES as u64, 1 << 40] {
        for block_count in [1, 2, u32::MAX] {
            let mut image = specimens()[1].clone();
            assert!(image.replace_last_record(&dropped_value(block, block_count)));
            let engine = engine_of(&image);
            assert!(engine.snapshot().unwrap().tree("raw").unwrap().is_none(), "the record was replayed");
            let report = engine.check().unwrap();
            assert!(report.is_clean(), "{block_count} blocks from {block} on: {report:?}");
        }
    }
}
