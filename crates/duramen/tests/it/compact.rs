//! Compaction beside what programs do: a consumer of the change feed reads on, a snapshot reads its state.

use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Change, Changed, Compacted, Consuming, MemDisk, Receipt};

const NOTES: u64 = 4000;

/// One in ten stays.
const KEPT: u64 = 10;

/// One in so many has a text that is stored outside of leaves.
const BIG: u64 = 50;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes")]
struct Note {
    #[key]
    id: u64,
    text: String,
}

/// A change that the consumer has handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "handled")]
struct Handled {
    #[key]
    place: u64,
    seq: u64,
    what: String,
}

fn note(id: u64) -> Note {
    let length = if id.is_multiple_of(BIG) { 40_000 } else { 250 };
    let letter = char::from(b'a' + u8::try_from(id % 26).unwrap());
    Note { id, text: letter.to_string().repeat(length) }
}

fn what(changed: &Changed<Note, u64>) -> String {
    match changed {
        Changed::Put(found) => {
            assert!(*found == note(found.id), "note {} has another text", found.id);
            format!("{} put", found.id)
        }
        Changed::Deleted(id) => format!("{id} deleted"),
        Changed::Dropped => "dropped".to_owned(),
    }
}

/// Stores what the consumer is given, with its position. Returns the number of changes.
fn handle(consuming: &mut Consuming<Change<Note>>) -> usize {
    let handled = consuming.step(|tx, changes| {
        let places = tx.collection::<Handled>().count()?..;
        for (place, change) in places.zip(changes.iter()) {
            tx.insert(&Handled { place, seq: change.seq.0, what: what(&change.what) })?;
        }
        Ok(())
    });
    handled.unwrap()
}

/// A database where one note in ten is left, with all changes in order.
fn thinned_out(disk: &MemDisk) -> (Db, Vec<(u64, String)>) {
    let db = Db::options().open_on(Arc::new(disk.clone()), "/db").unwrap();
    db.consumer("mirror").register().unwrap();
    let mut changes = Vec::new();
    let mut noted = |receipt: Receipt, ids: &[u64], what: &str| {
        changes.extend(ids.iter().map(|id| (receipt.seq().0, format!("{id} {what}"))));
    };
    let all: Vec<u64> = (0..NOTES).collect();
    for some in all.chunks(400) {
        noted(db.write(|tx| some.iter().try_for_each(|id| tx.put(&note(*id)))).unwrap(), some, "put");
    }
    let gone: Vec<u64> = all.into_iter().filter(|id| id % KEPT > 0 || *id < NOTES / 4).collect();
    for some in gone.chunks(400) {
        let deleted = db.write(|tx| some.iter().try_for_each(|id| tx.delete::<Note>(*id).map(drop)));
        noted(deleted.unwrap(), some, "deleted");
    }
    (db, changes)
}

/// The commits of a compaction are empty, and big values that the feed still needs are moved by it.
#[test]
fn a_consumer_reads_each_change_once_and_in_order_while_a_compaction_runs() {
    let (db, mut wanted) = thinned_out(&MemDisk::new(1));
    let mirror = db.consumer("mirror").register().unwrap();
    let mut consuming = mirror.read::<Change<Note>>().unwrap().batch(300);
    let (first, mut commits, mut next) = (db.feed().newest.0, 0, NOTES);
    let compacted = db.compact_with(|_| {
        let receipt = db.write(|tx| tx.put(&note(next)))?;
        wanted.push((receipt.seq().0, format!("{next} put")));
        next += 1;
        handle(&mut consuming);
        commits += 2;
        Ok(())
    });
    let compacted = compacted.unwrap();
    let Compacted { before_bytes, after_bytes, moved_bytes, .. } = compacted;
    assert!(moved_bytes > 0 && after_bytes < before_bytes, "{compacted:?}");
    while handle(&mut consuming) > 0 {
        commits += 1;
    }
    assert!(db.feed().newest.0 > first + commits, "the compaction has made commits of its own");
    let found = db.collection::<Handled>().to_vec().unwrap();
    let found: Vec<_> = found.into_iter().map(|handled| (handled.seq, handled.what)).collect();
    let differs = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
    assert_eq!((differs, found.len()), (None, wanted.len()));
}

#[test]
fn a_snapshot_reads_its_state_while_a_compaction_runs_and_afterwards() {
    let (db, _) = thinned_out(&MemDisk::new(2));
    let before = db.collection::<Note>().to_vec().unwrap();
    let state = db.snapshot().unwrap();
    let reads = |when: &str| {
        let found = state.collection::<Note>().to_vec().unwrap();
        assert!(found == before, "{when}: {} notes, want {}", found.len(), before.len());
    };
    let compacted = db.compact_with(|_| {
        // What the snapshot reads is replaced and deleted, too.
        let id = before[0].id;
        db.write(|tx| tx.put(&Note { id, text: "another".to_owned() }))?;
        db.delete::<Note>(before[1].id)?;
        reads("between slices");
        Ok(())
    });
    assert!(compacted.unwrap().moved_bytes > 0);
    reads("afterwards");
    drop(state);
    let compacted = db.compact().unwrap();
    assert_eq!((compacted.held_bytes, compacted.oldest_snapshot), (0, None));
    assert_eq!(db.collection::<Note>().count().unwrap(), before.len() as u64 - 1);
    assert!(db.check().unwrap().problems.is_empty());
}

/// Changes that files keep take space, whether or not they can be read. A consumer that has handled
/// everything holds none.
#[test]
fn consumers_that_hold_space_are_named_even_if_their_changes_cannot_be_read() {
    let disk = MemDisk::new(3);
    let (db, _) = thinned_out(&disk);
    let named = |db: &Db| {
        let consumers = db.compact().unwrap().consumers;
        consumers.into_iter().map(|consumer| (consumer.name, consumer.age.is_some())).collect::<Vec<_>>()
    };
    db.consumer("up to date").register().unwrap();
    assert_eq!(named(&db), [("mirror".to_owned(), true)]);
    let is_of_feed = |path: &std::path::PathBuf| path.starts_with("/db/feed");
    for path in disk.files().into_iter().filter(is_of_feed) {
        let length = disk.read_file(&path).unwrap().len() as u64;
        (0..length).step_by(200).for_each(|offset| disk.flip_bit(&path, offset, 1).unwrap());
    }
    // Whether the other one has handled everything cannot be known, either.
    assert_eq!(named(&db), [("mirror".to_owned(), false), ("up to date".to_owned(), false)]);
}
