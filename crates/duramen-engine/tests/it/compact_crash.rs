//! Compaction, a crash, and the loss of the newest superblock: the older one and the log give the same state.

use std::collections::BTreeMap;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{Durability, Engine, Error, GiveBack, Options, TreeId};

use crate::basics::{open, tiny};
use crate::compact::{filled, thin_out};
use crate::feed::corrupt_newer_superblock;

fn big(seed: u32) -> Vec<u8> {
    (0..6000_u32).map(|at| ((at * 7 + seed) % 251) as u8).collect()
}

/// Long extents, which find no room between the pages of a tree.
fn options() -> Options {
    let mut options = tiny();
    options.geometry.big_value_extent_bytes = 8000;
    options.give_back = GiveBack { compacted_bytes: 4096, ..GiveBack::SMALL };
    options
}

/// A database with a big value that was put while a compaction ran, stopped after so many more slices, with
/// one checkpoint then. The value of each key, and whether the compaction had ended.
fn stopped_after(slices: u32) -> (MemDisk, TreeId, BTreeMap<Vec<u8>, Vec<u8>>, bool) {
    let disk = MemDisk::new(u64::from(slices));
    let (engine, tree) = filled(&disk, options(), &(0..3000).collect::<Vec<_>>());
    thin_out(&engine, tree, 3000, 3);
    let put = |key: &[u8], value: &[u8]| {
        engine.transact(Durability::Disk, |tx| tx.put(tree, key, value)).unwrap();
    };
    let (mut model, mut left) = (BTreeMap::new(), None);
    let stopped = engine.compact(&mut |now| {
        left = match left {
            None if now.moved_bytes > 0 => {
                // It takes the room before the aimed end, and gives it back once the value lies behind it.
                let mut room = engine.begin()?;
                for filler in 0_u32.. {
                    let before = engine.stats().space.end_block;
                    room.put(tree, &filler.to_be_bytes(), &big(filler))?;
                    if engine.stats().space.end_block > before {
                        break;
                    }
                }
                put(b"young", &big(1));
                model.insert(b"young".to_vec(), big(1));
                Some(slices)
            }
            Some(0) => {
                engine.checkpoint()?;
                return Err(Error::invalid("enough"));
            }
            Some(left) => Some(left - 1),
            None => None,
        };
        Ok(())
    });
    let survivor = disk.crash(&CrashChoice::All);
    engine.abandon();
    (survivor, tree, model, stopped.is_ok())
}

fn holds(engine: &Engine, tree: TreeId, model: &BTreeMap<Vec<u8>, Vec<u8>>, when: &str) {
    let snapshot = engine.snapshot().unwrap();
    for (key, value) in model {
        let found = snapshot.get(tree, key).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(found.as_ref() == Some(value), "{when}: {:?}", String::from_utf8_lossy(key));
    }
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.problems);
}

/// D3: the older superblock's map does not have a value that was put after it, and the record of a slice
/// names none. Where such a value was must not be overwritten while replay can lead there.
#[test]
fn a_value_that_was_put_during_a_compaction_survives_the_loss_of_the_newest_superblock() {
    for slices in 0.. {
        let (disk, tree, mut model, ended) = stopped_after(slices);
        let engine = open(&disk, options());
        holds(&engine, tree, &model, "after the crash");
        for more in 0..40_u32 {
            let (key, value) = (format!("more {more}").into_bytes(), big(more + 100));
            engine.transact(Durability::Disk, |tx| tx.put(tree, &key, &value)).unwrap();
            model.insert(key, value);
        }
        engine.abandon();
        corrupt_newer_superblock(&disk);
        let engine = open(&disk, options());
        holds(&engine, tree, &model, &format!("{slices} slices, from the older superblock"));
        if ended {
            assert!(slices > 3, "the compaction ended after {slices} slices");
            return;
        }
    }
}
