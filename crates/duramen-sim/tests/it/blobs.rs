//! Power cuts under blobs: each is there whole, with its hash, or missing, and so is the document of its
//! transaction.
//!
//! What a cut left of uploads is collected to the last piece (D1, D2).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use duramen::prelude::*;
use duramen_disk::MemDisk;
use duramen_disk::memory::{Blocker, CallKind, CrashChoice, Effect, Fault};
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;
use duramen_sim::seeds;

/// Stored data: each blob by its length and first byte, and the number of documents.
#[derive(Debug, Clone, PartialEq, Default)]
struct Stored {
    blobs: BTreeMap<u64, (usize, u8)>,
    documents: u64,
}

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

fn bytes((length, first): (usize, u8)) -> Vec<u8> {
    (0..length).map(|at| first.wrapping_add(u8::try_from(at * 31 % 255).unwrap())).collect()
}

/// One call on the database and on the model. Pieces of 1 KiB, eight in a transaction: uploads take up to
/// three.
fn act(db: &Db, model: &mut Stored, dice: &mut Dice) {
    let blobs = db.blobs("b").piece_bytes(1024).unwrap();
    let key = dice.below(4);
    let what = (dice.index(20_000), u8::try_from(dice.below(256)).unwrap());
    match dice.below(6) {
        0 => {
            blobs.delete(key).unwrap();
            model.blobs.remove(&key);
        }
        1 => {
            // Abandoned halfway.
            let mut writer = blobs.writer(key).unwrap();
            writer.write_all(&bytes(what)).unwrap();
        }
        2 => {
            let upload = blobs.upload(&bytes(what)[..]).unwrap();
            db.transact(|tx| {
                tx.documents("log").put(doc! { "id": model.documents })?;
                tx.blobs("b").attach(key, &upload)
            })
            .unwrap();
            model.blobs.insert(key, what);
            model.documents += 1;
        }
        3 => {
            if blobs.rename(key, key + 4).unwrap() {
                let moved = model.blobs.remove(&key).unwrap();
                model.blobs.insert(key + 4, moved);
            }
        }
        _ => {
            blobs.put(key, &bytes(what)[..]).unwrap();
            model.blobs.insert(key, what);
        }
    }
}

/// The model after each call, and the length of the recording when the call returned.
struct Run {
    disk: MemDisk,
    states: Vec<(usize, Stored)>,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice, mut model) = (MemDisk::new(seed), Dice::new(seed), Stored::default());
    disk.record();
    let mut states = vec![(0, model.clone())];
    let mut db = open(&disk).unwrap();
    db.ensure(&Schema::new("log").key(["id"])).unwrap();
    for _ in 0..3 {
        for _ in 0..8 {
            act(&db, &mut model, &mut dice);
            states.push((disk.recorded_len(), model.clone()));
        }
        db.close().unwrap();
        drop(db);
        db = open(&disk).unwrap();
    }
    Run { disk, states }
}

fn stored(db: &Db, when: &str) -> Stored {
    let mut found =
        Stored { documents: db.documents("log").count(Span::all()).unwrap_or(0), ..Stored::default() };
    for entry in db.blobs("b").scan::<u64>(Span::all()).unwrap() {
        let (key, info) = entry.unwrap();
        let mut reader = db.blobs("b").get(key).unwrap().unwrap();
        reader.verify().unwrap_or_else(|error| panic!("{when}: blob {key}: {error}"));
        let mut contents = Vec::new();
        reader.read_to_end(&mut contents).unwrap();
        let what = (usize::try_from(info.len).unwrap(), contents.first().copied().unwrap_or(0));
        assert_eq!(contents, bytes(what), "{when}: blob {key}");
        found.blobs.insert(key, what);
    }
    found
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice) -> (bool, bool) {
    let when = format!("cut at operation {at}, {choice:?}");
    let image = run.disk.trace().crash_image(at, choice);
    let returned = run.states.partition_point(|(recorded, _)| *recorded <= at) - 1;
    let db = match open(&image) {
        Ok(db) => db,
        Err(error) => panic!("{when}: {error}"),
    };
    let found = stored(&db, &when);
    let mut wanted: Vec<Stored> = run.states[returned..].iter().map(|(_, state)| state.clone()).collect();
    wanted.iter_mut().for_each(|state| {
        state.blobs.values_mut().filter(|(length, _)| *length == 0).for_each(|empty| empty.1 = 0)
    });
    let matches = wanted.iter().position(|state| *state == found);
    assert!(matches.is_some(), "{when}: not what any {returned} calls or more made: {found:?}");
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{when}: {report:?}");
    // Only the pieces of visible blobs are left in the end.
    let collected = db.sweep_blobs().unwrap();
    for key in found.blobs.keys() {
        assert!(db.blobs("b").delete(*key).unwrap(), "{when}");
    }
    assert_eq!(db.sweep_blobs().unwrap(), 0, "{when}: a delete collects what it frees");
    let left = db.check_documents().unwrap();
    assert!(left.is_clean() && db.check().unwrap().is_clean(), "{when}: {left:?}");
    (matches > Some(0), collected > 0)
}

#[test]
fn blobs_survive_power_cuts_whole_or_leave_nothing() {
    let (mut cuts, mut ahead, mut cut_short) = (0, 0, 0);
    let fresh = seeds::of_this_commit("blobs", 1);
    for seed in [1, 2, 3].into_iter().chain(fresh.range) {
        println!("seed {seed}");
        let run = run(seed);
        let operations = run.disk.recorded_len();
        let mut dice = Dice::new(seed);
        for at in (0..operations).step_by(operations / 120 + 1) {
            let choices =
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }];
            for choice in choices {
                let (is_ahead, was_cut_short) = check_cut(&run, at, &choice);
                cuts += 1;
                ahead += usize::from(is_ahead);
                cut_short += usize::from(was_cut_short);
            }
        }
    }
    println!("{cuts} cuts, {ahead} with an unfinished call done, {cut_short} with an upload cut short");
    assert!(cuts > 600 && ahead > 0 && cut_short > 50, "{cuts} cuts, {ahead} ahead, {cut_short} cut short");
}

/// D7: pieces join a group while another commit syncs, and the disk has no room for that group.
///
/// A blob that is stored nevertheless, or an upload that can be attached, has every piece.
#[test]
fn a_blob_whose_pieces_found_the_disk_full_is_whole_or_refused() {
    for is_attached in [false, true] {
        let disk = MemDisk::new(5);
        let db = Db::options().engine(|options| options.background = Background::Stepped);
        let db = db.open_on(Arc::new(disk.clone()), Path::new("/db")).unwrap();
        let log = db.ensure(&Schema::new("log").key(["id"])).unwrap();
        let blobs = db.blobs("b").piece_bytes(1024).unwrap();
        let (syncs, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let of = (disk.clone(), Arc::clone(&syncs), Arc::clone(&stored));
        let blocker: Blocker = Arc::new(move |path| {
            let (disk, syncs, stored) = &of;
            if path.extension().is_some_and(|ext| ext == "wal") && !syncs.swap(true, Ordering::SeqCst) {
                // The pieces join the next group meanwhile, unless their commits wait for it.
                (0..100_000).find(|_| {
                    thread::yield_now();
                    stored.load(Ordering::SeqCst)
                });
                disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
            }
        });
        let (what, mut writer) = ((20_000, 3), blobs.writer(1_u64).unwrap());
        disk.set_blocker(Some(blocker));
        thread::scope(|scope| {
            scope.spawn(|| log.put(doc! { "id": 1 }).unwrap());
            while !syncs.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            writer.write_all(&bytes(what)).unwrap();
            stored.store(true, Ordering::SeqCst);
        });
        disk.set_blocker(None);
        assert_eq!(disk.fault_hit_count(), 1, "the disk was full");
        if is_attached {
            let upload = writer.finish_unattached().unwrap();
            db.transact(|tx| tx.blobs("b").attach(1_u64, &upload)).unwrap();
        } else {
            writer.finish().unwrap();
        }
        assert_eq!(stored_blobs(&db), [(1, what)].into(), "attached: {is_attached}");
        assert!(db.check_documents().unwrap().is_clean());
    }
}

fn stored_blobs(db: &Db) -> BTreeMap<u64, (usize, u8)> {
    stored(db, "on a disk that was full").blobs
}
