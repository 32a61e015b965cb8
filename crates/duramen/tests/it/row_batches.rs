//! Batches of rows: of cells and of documents side by side, stored by shape or with their names.

use duramen::cell::RowEncoder;
use duramen::prelude::*;
use duramen::schema::ColumnType;
use duramen::{Document, RowBatch, Schema, Span, doc};

/// Sums a column that is not the first: in a document of a shape it is the first.
fn schema() -> Schema {
    Schema::new("orders")
        .key(["id"])
        .sum(["cents"])
        .column("id", ColumnType::Int)
        .column("city", ColumnType::Text)
        .column("cents", ColumnType::Int)
        .column("paid", ColumnType::Bool)
}

fn push_cells(batch: &mut RowBatch, header: [&str; 4], rows: &[[&str; 4]]) {
    let encoder = RowEncoder::new(&schema(), &header.map(str::to_owned), &["NA".to_owned()]).unwrap();
    for row in rows {
        batch.push_cells(&encoder, |index| row[index].as_bytes()).unwrap();
    }
}

/// Rows in two orders of columns, before, between and after documents.
fn batch() -> (RowBatch, Schema, Vec<Document>) {
    let mut batch = RowBatch::new();
    let mut schema = schema();
    let first = doc! { "id": 1, "cents": 5, "note": "x" };
    assert!(batch.push_document(&mut schema, first.clone()).unwrap(), "the note is new");
    push_cells(
        &mut batch,
        ["id", "city", "cents", "paid"],
        &[["2", "Oslo", "-70", "true"], ["3", "NA", "900", "NA"]],
    );
    let between = doc! { "id": 4, "city": "Bergen", "cents": 100, "paid": false };
    batch.push_document(&mut schema, between.clone()).unwrap();
    push_cells(&mut batch, ["paid", "cents", "id", "city"], &[["false", "NA", "5", ""]]);
    let expected = vec![
        first,
        doc! { "id": 2, "city": "Oslo", "cents": -70, "paid": true },
        doc! { "id": 3, "city": Value::Null, "cents": 900, "paid": Value::Null },
        between,
        doc! { "paid": false, "cents": Value::Null, "id": 5, "city": "" },
    ];
    (batch, schema, expected)
}

fn open(names_fields: bool) -> Db {
    let db = Db::options().names_fields(names_fields).in_memory().unwrap();
    db.ensure(&schema()).unwrap();
    db
}

#[test]
fn rows_of_cells_are_the_documents_of_their_columns() {
    for names_fields in [false, true] {
        let (batch, grown, expected) = batch();
        assert_eq!((batch.len(), batch.keys().len(), batch.is_empty()), (5, 5, false));
        for (index, document) in expected.iter().enumerate() {
            let mut written = Vec::new();
            batch.write_document(index, &mut written).unwrap();
            assert_eq!(&Document::from_bytes(&written).unwrap(), document);
        }
        assert!(batch.write_document(5, &mut Vec::new()).is_err());
        for insert in [false, true] {
            let db = open(names_fields);
            db.ensure(&grown).unwrap();
            db.transact(|tx| match insert {
                true => {
                    assert_eq!(tx.documents("orders").insert_rows(&batch)?, None);
                    Ok(())
                }
                false => tx.documents("orders").put_rows(&batch),
            })
            .unwrap();
            let orders = db.documents("orders");
            let found: Vec<Document> = orders.scan(Span::all()).unwrap().map(Result::unwrap).collect();
            assert_eq!(found, expected, "in the order of their columns");
            let reduced = orders.reduce(Span::all()).unwrap();
            assert_eq!((reduced.count(), reduced.sum("cents")), (5, Some(935)));
            assert!(db.check_documents().unwrap().is_clean());
        }
    }
}

#[test]
fn an_insertion_names_the_row_whose_key_is_taken() {
    let (batch, ..) = batch();
    for (id, index) in [(1, 0), (3, 2), (4, 3), (5, 4)] {
        let db = open(false);
        db.documents("orders").put(doc! { "id": id, "cents": 1 }).unwrap();
        let inserted = db.transact(|tx| {
            let taken = tx.documents("orders").insert_rows(&batch)?;
            assert_eq!(taken, Some(index));
            Err::<(), _>(duramen::Error::new(duramen::Code::AlreadyExists, "taken"))
        });
        inserted.unwrap_err();
        assert_eq!(db.documents("orders").count(Span::all()).unwrap(), 1);
    }
}

/// The values of such rows are in another order than those of documents of the collection.
#[test]
fn an_encoder_that_knows_of_no_sums_stores_the_same_documents() {
    let header = ["id", "city", "cents", "paid"].map(str::to_owned);
    let unsummed = header[1..].iter().fold(Schema::new("orders").key(["id"]), |schema, name| {
        schema.column(name, if name == "cents" { ColumnType::Int } else { ColumnType::Text })
    });
    let encoder = RowEncoder::new(&unsummed.column("id", ColumnType::Int), &header, &[]).unwrap();
    let mut batch = RowBatch::new();
    batch.push_cells(&encoder, |index| [&b"1"[..], b"Oslo", b"70", b"yes"][index]).unwrap();
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("orders").key(["id"]).sum(["cents"])).unwrap();
    db.transact(|tx| tx.documents("orders").put_rows(&batch)).unwrap();
    let expected = doc! { "id": 1, "city": "Oslo", "cents": 70, "paid": "yes" };
    assert_eq!(db.documents("orders").get(1).unwrap(), Some(expected));
    assert_eq!(db.documents("orders").reduce(Span::all()).unwrap().sum("cents"), Some(70));
}

#[test]
fn rows_can_be_stored_after_a_rollback() {
    let (batch, grown, expected) = batch();
    let db = open(false);
    db.ensure(&grown).unwrap();
    let rolled_back = db.transact(|tx| {
        tx.documents("orders").put_rows(&batch)?;
        Err::<(), _>(duramen::Error::new(duramen::Code::AlreadyExists, "rolled back"))
    });
    rolled_back.unwrap_err();
    db.transact(|tx| tx.documents("orders").put_rows(&batch)).unwrap();
    let found: Vec<Document> =
        db.documents("orders").scan(Span::all()).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, expected);
    assert!(db.check().unwrap().is_clean() && db.check_documents().unwrap().is_clean());
}

#[test]
fn the_bytes_of_a_batch_count_the_names_of_every_row() {
    let mut batch = RowBatch::new();
    push_cells(&mut batch, ["id", "city", "cents", "paid"], &[["2", "Oslo", "7", "true"]]);
    let one = batch.bytes();
    let mut named = RowBatch::new();
    named.push_document(&mut schema(), doc! { "id": 2, "city": "Oslo", "cents": 7, "paid": true }).unwrap();
    assert!((named.bytes()..2 * named.bytes()).contains(&one), "{one} and {}", named.bytes());
    push_cells(&mut batch, ["id", "city", "cents", "paid"], &[["3", "Oslo", "7", "true"]]);
    assert_eq!(batch.bytes(), 2 * one);
}

#[test]
fn a_row_that_does_not_fit_leaves_the_batch_as_it_was() {
    let mut batch = RowBatch::new();
    let header = ["id", "city", "cents", "paid"];
    let encoder = RowEncoder::new(&schema(), &header.map(str::to_owned), &["NA".to_owned()]).unwrap();
    let mut push = |row: [&str; 4]| batch.push_cells(&encoder, |index| row[index].as_bytes());
    push(["1", "Oslo", "5", "true"]).unwrap();
    for (row, column) in [
        (["2", "Oslo", "x", "true"], "cents"),
        (["NA", "Oslo", "x", "true"], "id"),
        (["2", "Oslo", "5", "maybe"], "paid"),
    ] {
        assert_eq!(push(row).unwrap_err().column, column);
    }
    push(["7", "NA", "6", "NA"]).unwrap();
    let db = open(false);
    db.transact(|tx| tx.documents("orders").put_rows(&batch)).unwrap();
    let found: Vec<Document> =
        db.documents("orders").scan(Span::all()).unwrap().map(Result::unwrap).collect();
    let last = doc! { "id": 7, "city": Value::Null, "cents": 6, "paid": Value::Null };
    assert_eq!(found, [doc! { "id": 1, "city": "Oslo", "cents": 5, "paid": true }, last]);
}
