//! Whole databases with edited bytes and valid checksums: opened, read, written, checked, observed, repaired.
//!
//! Any error is right that bytes can cause. The disk obeys every call, so errors of the system, of locks or
//! of other transactions are wrong. A panic, an endless run and unjustified memory are wrong, too. What
//! `recover` calls sound must be. Before any edit the databases are sound: they open, pass `check` and are
//! repaired without loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use duramen::{Error, ErrorKind, ObserveFrom, Observer, doc};
use duramen_disk::MemDisk;

use super::reseal::{Image, Kind};
use crate::repair::specimen::{DATABASE, REPAIRED, Specimen, Stored, closed, killed, open, options};

pub(super) use crate::repair::specimen::BLOCK_BYTES;

/// Edits of one input.
const EDITS_MAX: usize = 6;

/// Room on the disk beyond the files: a trusted length must not fill the machine.
const ROOM_BYTES: u64 = 8 << 20;

/// Changes read from an observer.
const CHANGES_MAX: usize = 2_000;

/// The databases that inputs edit: one closed, one killed.
pub(super) fn specimens() -> &'static [Image; 2] {
    static SPECIMENS: OnceLock<[Image; 2]> = OnceLock::new();
    SPECIMENS.get_or_init(|| {
        let images = [closed(35), killed(35)].map(|specimen| image_of(&specimen));
        images.iter().for_each(assert_sound);
        images
    })
}

/// An input on a database that is corrupt before the edits would prove nothing.
fn assert_sound(image: &Image) {
    let disk = disk_of(image);
    let again = disk.deep_clone();
    let db = open(&disk, DATABASE).expect("a database without edits opens");
    let report = db.check().expect("it is read");
    assert!(report.is_clean(), "a database without edits: {report:?}");
    let report = db.check_documents().expect("it is read");
    assert!(report.is_clean(), "a database without edits: {report:?}");
    Stored::of(&db).expect("everything in it is read");
    let recovered = options().repair_on(Arc::new(again), DATABASE, REPAIRED, |_| Ok(()));
    let report = recovered.expect("a database without edits is recovered");
    assert!(report.is_whole(), "a database without edits: {report:?}");
}

/// Accepts an error that bytes can have caused.
///
/// # Panics
/// If bytes cannot cause it.
fn answered<T>(doing: &str, asked: Result<T, Error>) -> Option<T> {
    let error = match asked {
        Ok(answer) => return Some(answer),
        Err(error) => error,
    };
    let is_of_bytes = matches!(
        error.kind(),
        ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Expired | ErrorKind::NotFound | ErrorKind::Full
    );
    assert!(is_of_bytes, "{doing}: bytes have caused {} {error}", error.code());
    None
}

fn image_of(specimen: &Specimen) -> Image {
    let mut files = BTreeMap::new();
    for path in specimen.disk.files() {
        let bytes = specimen.disk.read_file(&path).expect("it is there");
        files.insert(path.to_string_lossy().into_owned(), bytes);
    }
    Image::new(files, BLOCK_BYTES)
}

/// The bytes of an input as numbers, one after the other; zeroes after the end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take(&mut self, bytes: usize) -> u64 {
        let count = bytes.min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.take(2)).expect("two bytes") % bound.max(1)
    }
}

/// Edits a database as the input demands, and uses it in every way.
pub(super) fn run(input: &[u8]) {
    let mut numbers = Numbers(input);
    let mut image = specimens()[numbers.below(2)].clone();
    for _ in 0..EDITS_MAX {
        if numbers.0.is_empty() {
            break;
        }
        edit(&mut image, &mut numbers);
    }
    use_it(&disk_of(&image));
}

/// A disk with these files, and little room beyond them.
pub(super) fn disk_of(image: &Image) -> MemDisk {
    let disk = MemDisk::new(1);
    for (path, bytes) in &image.files {
        disk.write_file(path, bytes).expect("the disk has room");
    }
    disk.set_capacity(Some(disk.used_bytes() + ROOM_BYTES));
    disk
}

fn edit(image: &mut Image, numbers: &mut Numbers<'_>) {
    let index = numbers.below(image.units.len());
    let how = numbers.take(1);
    let bytes = image.units[index].bytes;
    let at = numbers.below(bytes);
    match how % 16 {
        0..=2 => set(image, index, at, &[numbers.take(1)], 1),
        3..=5 => set(image, index, at, &[numbers.take(2)], 2),
        6..=8 => set(image, index, at, &[numbers.take(4)], 4),
        9..=10 => set(image, index, at, &[numbers.take(8)], 8),
        11 => {
            // Bytes of another unit, so that a pointer leads elsewhere.
            let other = numbers.below(image.units.len());
            let from = numbers.below(image.units[other].bytes);
            let piece: Vec<u8> = image.unit_mut(other)[from..].iter().take(36).copied().collect();
            let room = image.unit_mut(index);
            for (to, byte) in room[at..].iter_mut().zip(piece) {
                *to = byte;
            }
        }
        12 if image.units[index].kind == Kind::Page => {
            let length = numbers.below(2048);
            image.resize_page(index, length);
        }
        13 => {
            let path = image.units[index].path.clone();
            let file = image.files.get_mut(&path).expect("units lie in files");
            file.truncate(image.units[index].at.max(1024));
            image.units.retain(|unit| unit.path != path || unit.at + unit.bytes <= file.len());
            return;
        }
        14 => {
            let (from, to) = (numbers.below(image.files.len()), numbers.below(image.files.len()));
            let paths: Vec<String> = image.files.keys().cloned().collect();
            let bytes = image.files[&paths[from]].clone();
            if bytes.len() >= image.files[&paths[to]].len() {
                image.files.insert(paths[to].clone(), bytes);
            }
            return;
        }
        _ => set(image, index, at, &[numbers.take(8), numbers.take(8)], 8),
    }
    // One in eight keeps its wrong checksum.
    if how < 224 {
        image.reseal(index);
    }
}

fn set(image: &mut Image, index: usize, at: usize, numbers: &[u64], width: usize) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()[..width].to_vec()).collect();
    for (to, byte) in image.unit_mut(index)[at..].iter_mut().zip(bytes) {
        *to = byte;
    }
}

/// Uses a database in every way that a program can.
pub(super) fn use_it(disk: &MemDisk) {
    observe(disk);
    let again = disk.deep_clone();
    for answer_before_replay in [false, true] {
        let disk = disk.deep_clone();
        let options = options().engine(|options| options.answer_before_replay = Some(answer_before_replay));
        let opened = options.open_on(Arc::new(disk.clone()), Path::new(DATABASE));
        if let Some(db) = answered("open", opened) {
            answered("check", db.check());
            answered("read", Stored::of(&db));
            answered("check_documents", db.check_documents());
            let person = doc! { "id": 7, "city": "Moss", "email": "moss", "n": 1 };
            answered("put of a document", db.documents("people").put(person));
            answered("put of a value", db.kv("sessions").put(7u64, "seven"));
            answered("put of a blob", db.blobs("files").put(1u64, &b"piece"[..]));
            answered("build_views", db.documents("people").build_views(|_| Ok(())));
            answered("close", db.close());
        }
    }
    let recovered = options().repair_on(Arc::new(again.clone()), DATABASE, REPAIRED, |_| Ok(()));
    if answered("recover", recovered).is_some() {
        let db = open(&again, REPAIRED).expect("what was recovered opens");
        let report = db.check().expect("what was recovered is read");
        assert!(report.is_clean(), "what was recovered is not sound: {report:?}");
        // A value may have another type than the program expects: edits can produce anything that is sound.
        let read = Stored::of(&db);
        assert!(!read.as_ref().is_err_and(Error::is_corruption), "what was recovered is corrupt: {read:?}");
    }
}

fn observe(disk: &MemDisk) {
    let disk = Arc::new(disk.deep_clone());
    let opened = Observer::options().open_on(disk, DATABASE, ObserveFrom::Oldest);
    let Some(mut observer) = answered("observe", opened) else { return };
    for _ in 0..CHANGES_MAX {
        if answered("a change", observer.next()).flatten().is_none() {
            break;
        }
    }
    answered("look", observer.look());
    answered("collections", observer.collections());
}
