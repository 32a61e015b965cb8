//! Batches that are committed without those before them, as happens with several threads and at a kill.

use duramen::doc;

use super::*;

/// Three batches of one stream. The second adds the column `q` and repeats a key of the first; the third has
/// `q` too.
struct Stream {
    db: Db,
    writer: Writer,
    batches: Vec<Batch>,
}

fn stream() -> Stream {
    let mut schema = Schema::new("rows").key(["id"]);
    let terms = Terms { schema: schema.clone(), batch_rows: 1, threads: 2, replace: false, ack: false };
    let db = Db::options().in_memory().unwrap();
    let mut shape = Shape { schema: Arc::new(schema.clone()), version: 1 };
    let documents = [doc! { "id": 1 }, doc! { "id": 1, "q": 2 }, doc! { "id": 3, "q": 4 }];
    let batches = (1..).zip(documents).map(|(number, document)| {
        let mut rows = RowBatch::new();
        if rows.push_document(&mut schema, document).unwrap() {
            shape.grow(schema.clone());
        }
        Batch { number, rows, lines: vec![number], shape: shape.clone() }
    });
    let batches = batches.collect();
    Stream { writer: Writer::new(&db, &terms, &Arc::default()), db, batches }
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
