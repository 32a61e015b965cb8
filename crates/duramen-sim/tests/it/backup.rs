//! Power cuts while a backup is made: what opens afterwards is one whole state, and the original is unchanged
//! (D2).

use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, Direction, KeyRange};
use duramen_disk::memory::CrashChoice;
use duramen_disk::{Disk, MemDisk};
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;

const ROWS: u64 = 400;

fn open(disk: &MemDisk, path: &str) -> Result<Db> {
    let is_there = disk.kind(Path::new("/db")).unwrap().is_some();
    let options = Db::options().create(!is_there).engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new(path))
}

fn rows(db: &Db) -> u64 {
    db.bytes("rows").count(&KeyRange::all()).unwrap()
}

#[test]
fn a_backup_is_whole_or_does_not_open() {
    let (disk, mut dice) = (MemDisk::new(0xbac), Dice::new(0xbac));
    let db = open(&disk, "/db").unwrap();
    db.transact(|tx| (0..ROWS).try_for_each(|row| tx.put_bytes("rows", &row.to_be_bytes(), &[1; 700])))
        .unwrap();
    disk.record();
    db.backup("/copy").unwrap();
    let acknowledged = disk.recorded_len();
    drop(db);
    let (mut whole, mut half) = (0, 0);
    let trace = disk.trace();
    for at in (0..=disk.recorded_len()).filter(|at| *at < 60 || at % 5 == 0 || *at > acknowledged - 60) {
        // The names of a creation come one by one: each subset of them may lose the marker of an unfinished
        // copy and keep the rest.
        let random = if at < 60 { 8 } else { 1 };
        let random = (0..random).map(|_| CrashChoice::Random { seed: dice.below(u64::MAX) });
        for choice in [CrashChoice::None, CrashChoice::All].into_iter().chain(random.collect::<Vec<_>>()) {
            let after = trace.crash_image(at, &choice);
            match open(&after, "/copy") {
                Ok(copy) => {
                    assert_eq!(rows(&copy), ROWS, "less passes for the backup after {at}, {choice:?}");
                    let mut last = copy.bytes("rows").scan(KeyRange::all(), Direction::Reverse).unwrap();
                    assert_eq!(last.next().unwrap().unwrap().1, [1; 700]);
                    whole += 1;
                }
                Err(error) => {
                    assert!(at < acknowledged, "acknowledged, and {error}");
                    assert!(
                        matches!(
                            error.code(),
                            Code::UnfinishedCopy | Code::NoSuchDatabase | Code::NotADatabase
                        ),
                        "{error}"
                    );
                    half += 1;
                }
            }
            assert_eq!(rows(&open(&after, "/db").unwrap()), ROWS);
        }
    }
    assert!(whole > 0 && half > 0, "{whole} whole, {half} not");
}

/// A sector that was being written may hold garbage. A copy with only the beginning of a log must not be
/// mistaken for a database that lost its data file: users would not dare to remove it.
#[test]
fn a_copy_cut_short_amid_garbage_is_called_unfinished() {
    let disk = MemDisk::new(0xbad);
    let db = open(&disk, "/db").unwrap();
    db.bytes("rows").put("a", "b").unwrap();
    disk.record();
    db.backup("/copy").unwrap();
    drop(db);
    let trace = disk.trace();
    let mut seen = 0;
    for at in 0..60.min(trace.len()) {
        for seed in 0..400 {
            let after = trace.crash_image(at, &CrashChoice::Garbled { seed });
            let code = open(&after, "/copy").expect_err("it has only begun").code();
            let is_unfinished =
                matches!(code, Code::UnfinishedCopy | Code::NoSuchDatabase | Code::NotADatabase);
            assert!(is_unfinished, "{code} {at} {seed}");
            seen += u64::from(code == Code::UnfinishedCopy);
        }
    }
    assert!(seen > 0, "no cut left the mark");
}
