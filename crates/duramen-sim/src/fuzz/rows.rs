//! CSV, lines of JSON and keys: imports must not fail unexpectedly, and the result must read back.

use std::sync::Arc;

use duramen::cell::{self, RowEncoder};
use duramen::schema::ColumnType;
use duramen::tuple::{self, Element};
use duramen::{Db, Document, LocalReads, RowBatch, Schema, Span};
use duramen_disk::MemDisk;
use duramen_engine::Background;

/// Rows read of one input.
const ROWS_MAX: usize = 200;

fn empty() -> Db {
    let options = Db::options().engine(|options| options.background = Background::Stepped);
    options.open_on(Arc::new(MemDisk::new(1)), "/db").expect("a healthy disk")
}

/// A CSV file: types inferred, rows encoded and stored, then read as JSON.
pub(super) fn csv(input: &[u8]) {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
    let records: Vec<csv::ByteRecord> = reader.byte_records().map_while(Result::ok).take(ROWS_MAX).collect();
    let Some((header, rows)) = records.split_first() else { return };
    let header: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let rows: Vec<_> = rows.iter().filter(|row| row.len() == header.len()).collect();
    let mut schema = Schema::new("rows").key([header[0].clone()]);
    for (index, name) in header.iter().enumerate() {
        let seen = rows.iter().map(|row| cell::infer(&row[index]));
        schema = schema.column(name, seen.fold(ColumnType::Unknown, cell::widen));
    }
    let Ok(encoder) = RowEncoder::new(&schema, &header, &[String::new()]) else { return };
    let mut batch = RowBatch::new();
    for row in rows {
        let _ = batch.push_cells(&encoder, |index| &row[index]);
    }
    store(&schema, &batch);
}

/// Lines of JSON, each a document.
pub(super) fn ndjson(input: &[u8]) {
    let mut schema = Schema::new("rows").key(["id"]);
    let mut batch = RowBatch::new();
    for line in input.split(|byte| *byte == b'\n').take(ROWS_MAX) {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        let Ok(document) = Document::from_json(text) else { continue };
        let json = document.to_json().expect("what was read can be written");
        let again = Document::from_json(&json).expect("JSON that was written can be read");
        assert_eq!(again.to_json().expect("as before"), json, "a document differs from itself");
        let _ = batch.push_document(&mut schema, document);
    }
    store(&schema, &batch);
}

fn store(schema: &Schema, batch: &RowBatch) {
    let db = empty();
    let stored = db.transact(|tx| {
        tx.ensure(schema)?;
        tx.documents(schema.name()).put_rows(batch)
    });
    if stored.is_err() {
        return;
    }
    let snapshot = db.snapshot().expect("a healthy disk");
    for document in db.documents("rows").scan(Span::all()).expect("what was stored is read") {
        document.expect("what was stored is read").to_json().expect("what was stored is shown");
    }
    drop(snapshot);
    let report = db.check_documents().expect("what was stored is read");
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// The bytes of a key: bytes that decode must be what their elements encode to.
pub(super) fn key(input: &[u8]) {
    if let Ok(elements) = tuple::decode(input) {
        assert_eq!(tuple::encode(&elements).expect("it was decoded"), input, "a key has two forms");
        let turned: Vec<Element> = elements.into_iter().map(turned).collect();
        // Descending text is a byte longer.
        if let Ok(bytes) = tuple::encode(&turned) {
            assert_eq!(tuple::decode(&bytes).expect("it was encoded"), turned, "a key lost its directions");
        }
    }
}

fn turned(element: Element) -> Element {
    match element {
        Element::Descending(inside) => *inside,
        element => Element::Descending(Box::new(element)),
    }
}
