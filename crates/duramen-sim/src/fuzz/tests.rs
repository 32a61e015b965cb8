//! Positive controls of resealing: without them a fuzzer that only ever saw checksums refuse would look the same.

use duramen_engine::data_file::Superblock;

use super::database::{BLOCK_BYTES, disk_of, specimens};
use super::reseal::{Image, Kind};
use super::stored::{put, tree_id};
use crate::salvage::specimen::{DATABASE, open};

/// Pages that must be noticed to be corrupt, or the test says nothing.
const PAGES_MIN: usize = 20;

/// One bit of a unit is another one; `resealed` puts its checksum right, and those of all that point at it.
fn flipped(image: &Image, index: usize, at: usize, resealed: bool) -> Image {
    let mut image = image.clone();
    image.unit_mut(index)[at] ^= 1;
    if resealed {
        image.reseal(index);
    }
    image
}

/// What a database says of itself, by the error of its opening or by its check.
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
        // Of this page: what changes may be the checksum of another one, in a pointer.
        let refusal = format!("page at block {}: checksum", unit.at / BLOCK_BYTES);
        // What neither superblock nor any page of theirs leads to is not read.
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
