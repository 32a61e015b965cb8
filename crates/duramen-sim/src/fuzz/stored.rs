//! Rows as another build may have written them: a record at the end of the log brings them into the database.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use duramen::{Document, tuple};
use duramen_engine::{Background, Engine, Hooks, Options, TreeId};

use super::database::{disk_of, specimens, use_it};
use super::reseal::Image;
use crate::repair::specimen::DATABASE;

/// Trees whose rows inputs replace.
const NAMES: [&str; 8] = [
    "duramen/collections",
    "duramen/rows/people",
    "duramen/rows/notes",
    "duramen/view/people\u{1}by_city\u{1}1",
    "duramen/migrations",
    "duramen/builds",
    "raw",
    "new",
];

/// The payload of a record.
pub(super) fn record(payload: &[u8]) {
    let mut image = specimens()[1].clone();
    if image.replace_last_record(payload) {
        use_it(&disk_of(&image));
    }
}

/// A row of the engine's catalogue; the first byte selects the name.
pub(super) fn catalogue(input: &[u8]) {
    let Some((first, row)) = input.split_first() else { return };
    let name = NAMES[usize::from(*first) % NAMES.len()];
    record(&put(0, name.as_bytes(), row));
}

/// An entry of the catalogue of collections; the first byte selects the collection.
pub(super) fn schema(input: &[u8]) {
    let Some((first, entry)) = input.split_first() else { return };
    let name = ["people", "notes", "new"][usize::from(*first) % 3];
    if let Ok(document) = Document::from_bytes(entry) {
        let _ = document.to_json();
    }
    let key = tuple::encode(name).expect("a short key");
    record(&put(tree_id("duramen/collections"), &key, entry));
}

/// A stored document.
pub(super) fn message_pack(input: &[u8]) {
    if let Ok(document) = Document::from_bytes(input) {
        let bytes = document.to_bytes().expect("what was read can be written");
        let again = Document::from_bytes(&bytes).expect("what was written can be read");
        assert_eq!(again.to_bytes().expect("as before"), bytes, "a document differs from itself");
        if let Ok(json) = document.to_json() {
            Document::from_json(&json).expect("JSON that was written can be read");
        }
    }
    let key = tuple::encode(&7u64).expect("a short key");
    record(&put(tree_id("duramen/rows/people"), &key, input));
}

/// A record that puts one row.
pub(super) fn put(tree: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut record = vec![1];
    record.extend(1u32.to_le_bytes());
    record.extend(tree.to_le_bytes());
    record.push(0);
    record.extend(1u32.to_le_bytes());
    record.push(1);
    record.extend(u16::try_from(key.len()).expect("a short key").to_le_bytes());
    record.extend(u32::try_from(value.len()).expect("inputs are short").to_le_bytes());
    record.extend_from_slice(key);
    record.extend_from_slice(value);
    record
}

/// The database as its engine sees it, opened.
pub(super) fn engine_of(image: &Image) -> Engine {
    let options = Options { background: Background::Stepped, ..Options::default() };
    let disk = Arc::new(disk_of(image));
    Engine::open(disk, Path::new(DATABASE), options, Hooks::default()).expect("a sound database")
}

/// The id of a tree of the killed specimen.
pub(super) fn tree_id(name: &str) -> u64 {
    static IDS: OnceLock<BTreeMap<String, TreeId>> = OnceLock::new();
    let ids = IDS.get_or_init(|| {
        let engine = engine_of(&specimens()[1]);
        let trees = engine.snapshot().expect("open").trees().expect("a sound database");
        trees.into_iter().collect()
    });
    ids[name].0
}
