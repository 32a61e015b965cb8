//! Batches that are committed without those before them, as happens with several threads and at a kill; their
//! size, and the memory they are given.

use duramen::{Db, doc};

use super::*;
use crate::database::Opened;

/// Three batches of one stream. The second adds the column `q` and repeats a key of the first; the third has
/// `q` too.
struct Stream {
    db: Db,
    writer: Writer,
    batches: Vec<Batch>,
}

fn stream() -> Stream {
    let mut schema = Schema::new("rows").key(["id"]);
    let terms = Terms {
        schema: schema.clone(),
        batch: BatchSize::of_rows(1),
        threads: 2,
        replace: false,
        level: Durability::Disk,
        ack: false,
        drop_command: String::new(),
        documents_before: None,
        assigns_ids: false,
    };
    let db = Db::options().in_memory().unwrap();
    let mut shape = Shape { schema: Arc::new(schema.clone()), version: 1 };
    let documents = [doc! { "id": 1 }, doc! { "id": 1, "q": 2 }, doc! { "id": 3, "q": 4 }];
    let batches = (1..).zip(documents).map(|(number, document)| {
        let mut rows = RowBatch::new();
        if rows.push_document(&mut schema, document).unwrap() {
            shape.grow(schema.clone());
        }
        let (shape, repeats) = (shape.clone(), Vec::new());
        Batch { number, rows, lines: vec![number], shape, repeats, has_forgotten_keys: false }
    });
    let batches = batches.collect();
    let memory = Memory::full(&db);
    let target = Arc::new(Writing::Local(Opened::alone(db.clone())));
    Stream { writer: Writer::new(&target, &terms, Some(memory), &Arc::default()), db, batches }
}

fn check(db: &Db, documents: u64) {
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && report.documents == documents, "{report:?}");
}

#[test]
fn a_batch_brings_the_columns_it_needs_whatever_became_of_those_before_it() {
    let Stream { db, writer, batches } = stream();
    writer.commit(&batches[0]).unwrap();
    assert!(writer.commit(&batches[1]).is_err(), "its key is there already");
    writer.commit(&batches[2]).unwrap();
    check(&db, 2);
    assert!(db.collections().unwrap()[0].kind("q").is_some());
}

#[test]
fn an_older_batch_that_comes_late_takes_no_columns_away() {
    let Stream { db, writer, batches } = stream();
    writer.commit(&batches[2]).unwrap();
    writer.commit(&batches[0]).unwrap();
    check(&db, 2);
    assert_eq!(writer.committed.load(Ordering::Acquire), 3);
}

#[test]
fn nothing_is_taken_after_a_first_batch_that_fails() {
    let Stream { db, writer, mut batches } = stream();
    let mut schema = Schema::clone(&batches[0].shape.schema);
    batches[0].rows.push_document(&mut schema, doc! { "id": 1 }).unwrap();
    let (sender, queue) = mpsc::sync_channel(batches.len());
    batches.into_iter().for_each(|batch| sender.send(Ok(Some(batch))).unwrap());
    let (events, inbox) = mpsc::channel();
    let writers = start_writers(&writer, 4, queue, &events);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    drop(events);
    assert!(matches!(inbox.iter().collect::<Vec<_>>()[..], [Event::Failed(_)]));
    assert_eq!(db.collections().unwrap(), []);
}

/// Rows of one column, with ids in the order that `id` gives.
struct Made {
    schema: Schema,
    at: u32,
    count: u32,
    text_bytes: usize,
    id: fn(u32) -> u32,
}

impl RowSource for Made {
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>> {
        if self.at == self.count {
            return Ok(None);
        }
        self.at += 1;
        let document = doc! { "id": (self.id)(self.at), "text": "x".repeat(self.text_bytes) };
        batch.push_document(&mut self.schema, document)?;
        Ok(Some(u64::from(self.at)))
    }

    fn grown(&mut self) -> Option<Schema> {
        (self.at <= 1000).then(|| self.schema.clone())
    }
}

/// Imports made rows. Returns the number of batches, and the memory target at the end.
fn import(batch: BatchSize, count: u32, text_bytes: usize, id: fn(u32) -> u32) -> (u64, u64) {
    let schema = Schema::new("rows").key(["id"]);
    let rows = Box::new(Made { schema: schema.clone(), at: 0, count, text_bytes, id });
    let terms = Terms {
        schema,
        batch,
        threads: 1,
        replace: false,
        level: Durability::Disk,
        ack: false,
        drop_command: String::new(),
        documents_before: None,
        assigns_ids: false,
    };
    let db = Db::options().in_memory().unwrap();
    let memory = Memory::small(&db).unwrap();
    let out = Output::new(false, true);
    let target = Arc::new(Writing::Local(Opened::alone(db.clone())));
    let progress = Progress::new(out, Arc::default(), None);
    let loaded = run(&target, &terms, rows, Some(memory), out, &Signals::default(), &progress);
    assert!(loaded.failure.is_none() && loaded.complete, "{loaded:?}");
    assert_eq!(loaded.rows, u64::from(count));
    (loaded.batches, db.durability_status().memory_bytes)
}

#[test]
fn rows_in_the_order_of_their_keys_are_imported_with_little_memory() {
    assert_eq!(import(BatchSize::DEFAULT, 40_000, 1000, |at| at), (40, 24 << 20));
}

#[test]
fn memory_is_raised_for_rows_at_random_and_for_transactions_that_do_not_fit() {
    let (_, at_random) = import(BatchSize::DEFAULT, 40_000, 1000, |at| at.wrapping_mul(0x9e37_79b1));
    assert_eq!(at_random, 256 << 20);
    assert_eq!(import(BatchSize::of_rows(10_000), 10_000, 1000, |at| at), (1, 256 << 20));
}

#[test]
fn large_rows_make_smaller_batches_unless_their_number_is_given() {
    assert_eq!(import(BatchSize::DEFAULT, 16, 400_000, |at| at).0, 6);
    assert_eq!(import(BatchSize::of_rows(8), 16, 400_000, |at| at).0, 2);
}
