//! Databases with every kind of data that golden.rs and golden_typed.rs leave out, read as they were written
//! (D9).
//!
//! They contain key-values that expire, blobs in pieces, an unfinished upload, retained changes with a
//! consumer, views and reductions in code (also with writes of a program without the code), sketches, and
//! documents of two versions of their type. They are in `tests/golden/stores-N`, like those of golden.rs, and
//! never change once committed. Such a database must show the same as one made by this build; that this is
//! right is tested elsewhere.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen::kv::Ttl;
use duramen::prelude::*;
use duramen::view::reduce;
use duramen::view::{CodedView, Emitter};
use duramen::{Change, Changed, Code, MemDisk};
use duramen_engine::Background;

use crate::golden::{load, store};
use crate::monoids::LongestRun;

/// The directory that this build would write.
const NEWEST: &str = "stores-1";

const SECOND: u64 = 1_000_000_000;

/// When the databases were made. An expiring value has expired by [`LATER`], or lives for a year.
const MADE: u64 = 1_800_000_000 * SECOND;
const LATER: u64 = MADE + 3_600 * SECOND;

const TITLES: [&str; 3] = ["sun", "moon", "stars"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "notes",
    coded(ByWord),
    view(ByPage, key = (page, id), value = title, reduce = (Count, With(LongestRun))),
    view(ByWeight, key = (page, id), value = weight, reduce = (Mean, TopK(3), BottomK(2), Distinct(title), Quantiles)),
)]
struct Note {
    #[key]
    id: u64,
    page: u32,
    title: String,
    weight: i64,
    text: String,
}

struct ByWord;

impl CodedView for ByWord {
    type Collection = Note;
    type Key = String;
    type Value = i64;
    type Reduce = (reduce::Count, reduce::Sum);
    const NAME: &'static str = "by_word";
    const VERSION: u32 = 1;

    fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
        for word in note.text.split_whitespace().take(4) {
            emit.row(word, note.weight);
        }
    }
}

/// The result that a consumer computes from notes, stored with its position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "seen")]
struct Seen {
    #[key]
    id: u64,
    times: u64,
}

mod earlier {
    use duramen::prelude::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "products", view(ByName, key = name, unique))]
    pub(super) struct Product {
        #[key]
        pub(super) id: u64,
        pub(super) name: String,
        pub(super) euros: u32,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "products", view(ByName, key = name, value = cents, unique, reduce = Sum))]
#[migrate_from(earlier::Product)]
struct Product {
    #[key]
    id: u64,
    name: String,
    cents: i64,
}

impl From<earlier::Product> for Product {
    fn from(old: earlier::Product) -> Product {
        Product { id: old.id, name: old.name, cents: i64::from(old.euros) * 100 }
    }
}

fn note(id: u64) -> Note {
    let words = ["the", "quick", "brown", "fox"].into_iter().cycle();
    let text: Vec<&str> = words.skip((id % 4) as usize).take((id % 5) as usize).collect();
    // One of them is a big value: a reference in the log, bytes in retained changes.
    let text = if id == 7 { "long ".repeat(8_000) } else { text.join(" ") };
    let title = TITLES[(id * id / 7 % 3) as usize].to_owned();
    Note { id, page: (id / 10) as u32, title, weight: (id * 37 % 101) as i64 - 50, text }
}

fn product(id: u64) -> earlier::Product {
    earlier::Product { id, name: format!("product {id}"), euros: id as u32 * 3 }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

/// Opens a database, as a program with or without the reduction in code.
fn open(disk: &MemDisk, read_only: bool, with_code: bool) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped).read_only(read_only);
    let options = if with_code { options.reducer::<LongestRun>() } else { options };
    options.open_on(Arc::new(disk.clone()), "/golden.duramen").unwrap()
}

/// Makes a database as a program would that is closed, continues without the code of its views, and is
/// killed.
fn make() -> [(&'static str, MemDisk); 2] {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(MADE);
    let db = open(&disk, false, true);
    fill(&db, &disk).unwrap();
    db.close().unwrap();
    drop(db);
    let closed = disk.deep_clone();
    let db = open(&disk, false, false);
    let upload = go_on(&db).unwrap();
    let killed = disk.deep_clone();
    drop(upload);
    [("closed", closed), ("killed", killed)]
}

fn fill(db: &Db, disk: &MemDisk) -> Result<()> {
    let consumer = db.consumer("mailer").register()?;
    for id in 0..60 {
        db.put(&note(id))?;
    }
    let mut consuming = consumer.read::<Change<Note>>()?.batch(25);
    consuming.step(see)?;
    for id in (0..60).step_by(9) {
        db.delete::<Note>(id)?;
    }
    for id in 0..20 {
        db.put(&product(id))?;
    }
    // Each reading of the clock moves it, and how often it is read is no part of the format.
    disk.set_wall_clock(MADE);
    let sessions = db.kv("sessions");
    for id in 0..50_u64 {
        let ttl = match id % 3 {
            0 => Ttl::forever(),
            1 => Ttl::seconds(60 + id),
            _ => Ttl::seconds(365 * 24 * 3_600),
        };
        sessions.put_with(("user", id), &format!("session {id}"), ttl)?;
    }
    db.kv("counters").increment("hits", 41)?;
    db.kv("counters").put_bytes("raw", &[0, 255], Ttl::forever())?;
    let files = db.blobs("files");
    files.put("empty", &[][..])?;
    files.put("whole", &pattern(3_000)[..])?;
    files.piece_bytes(1_024)?.put("pieces", &pattern(10_000)[..])?;
    let mut writer = db.blobs("files").writer("named")?.content_type("text/plain");
    writer.write_all(&pattern(40_000)).expect("the disk is in memory");
    writer.finish()?;
    Ok(())
}

/// The second run: without the code of the views, with a later version of a type.
fn go_on(db: &Db) -> Result<duramen::blobs::Upload> {
    let notes = db.documents("notes");
    for id in [3, 61, 62] {
        let Note { id, page, title, weight, text } = note(id);
        let text = format!("{text} red");
        notes.put(doc! { "id": id, "page": page, "title": title, "weight": weight, "text": text })?;
    }
    notes.delete(5)?;
    db.put(&Product { id: 5, name: "product 5".to_owned(), cents: 1_501 })?;
    db.put(&Product { id: 30, name: "product 30".to_owned(), cents: 9_001 })?;
    let sessions = db.kv("sessions");
    sessions.delete(("user", 0_u64))?;
    sessions.touch(("user", 1_u64), Ttl::forever())?;
    db.kv("counters").increment("hits", 1)?;
    db.blobs("files").put("whole", &pattern(2_000)[..])?;
    db.blobs("files").delete("empty")?;
    // Not attached when the program is killed: its pieces exist, and no record names them.
    db.blobs("files").piece_bytes(1_024)?.upload(&pattern(20_000)[..])
}

fn see(tx: &mut duramen::Transaction<'_>, changes: &[Change<Note>]) -> Result<()> {
    for id in changes.iter().filter_map(Change::key) {
        let times = tx.get::<Seen>(id)?.map_or(0, |seen| seen.times) + 1;
        tx.put(&Seen { id, times })?;
    }
    Ok(())
}

/// Everything that a database shows, as lines. Views in code answer only if they are complete.
fn shown(db: &Db, with_code: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |what: String| lines.push(what);
    for entry in db.kv("sessions").scan::<(String, u64), String>(Span::all()).unwrap() {
        let (key, value) = entry.unwrap();
        let expiry = db.kv("sessions").expiry((key.0.as_str(), key.1)).unwrap();
        line(format!("session {key:?}: {value}, {expiry:?}"));
    }
    let counters = db.kv("counters");
    line(format!("{:?}, {:?}", counters.get::<i64>("hits").unwrap(), counters.get_bytes("raw").unwrap()));
    line(format!("{:?}", db.kv_stats().unwrap()));
    for blob in db.blobs("files").scan::<String>(Span::all()).unwrap() {
        let (key, info) = blob.unwrap();
        let mut reader = db.blobs("files").get(&*key).unwrap().unwrap();
        reader.verify().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, pattern(bytes.len()), "{key}");
        line(format!("blob {key}: {info:?}"));
    }
    for consumer in db.consumers().unwrap() {
        line(format!("{} at {}, {}", consumer.name, consumer.position, consumer.has_gap));
    }
    for change in db.changes::<Note>().from_oldest() {
        line(match change.unwrap().what {
            Changed::Put(note) => format!("change: put {} of {} bytes", note.id, note.text.len()),
            Changed::Deleted(id) => format!("change: deleted {id}"),
            Changed::Dropped => "change: dropped".to_owned(),
        });
    }
    for note in db.collection::<Note>().to_vec().unwrap() {
        line(format!("note {}: {}, {}, {} bytes", note.id, note.title, note.weight, note.text.len()));
    }
    line(format!("seen: {:?}", db.collection::<Seen>().to_vec().unwrap()));
    for pages in [0..7, 1..3, 4..5] {
        let runs = db.view::<ByPage>().range(pages.start..pages.end).reduce().unwrap();
        let weights = db.view::<ByWeight>().range(pages.start..pages.end).reduce().unwrap();
        line(format!("pages {pages:?}: {runs:?}, {weights:?}"));
    }
    line(format!("products: {:?}", db.collection::<Product>().to_vec().unwrap()));
    if with_code {
        line(format!("words: {:?}", db.view::<ByWord>().group_by::<String>().unwrap()));
        line(format!("products by name: {:?}", db.view::<ByName>().reduce().unwrap()));
    }
    lines
}

/// Everything is as it was written, before and after the database is opened for writing and pending work is
/// done.
fn verify(disk: &MemDisk, fresh: &MemDisk, killed: bool) {
    for disk in [disk, fresh] {
        disk.set_wall_clock(LATER);
    }
    assert_eq!(shown(&open(disk, true, true), false), shown(&open(fresh, true, true), false));
    for disk in [disk, fresh] {
        finish(&open(disk, false, true), killed);
    }
    let (old, new) = (open(disk, true, true), open(fresh, true, true));
    assert_eq!(shown(&old, true), shown(&new, true));
    assert!(old.check().unwrap().is_clean());
}

/// Does the pending work: rows of code, conversions, unhandled changes, expiry, collection of unattached
/// blobs.
fn finish(db: &Db, killed: bool) {
    if killed {
        assert_eq!(db.view::<ByWord>().count().unwrap_err().code(), Code::Rebuilding);
    }
    db.build_views::<Note>(|_| Ok(())).unwrap();
    db.migrate::<Product>(|_| Ok(())).unwrap();
    let consumer = db.consumer("mailer").register().unwrap();
    let handled = consumer.read::<Change<Note>>().unwrap().run(see).unwrap();
    assert_eq!(handled, 35 + 7 + if killed { 4 } else { 0 }, "25 of 60 puts were handled, 7 notes deleted");
    assert_eq!(consumer.read::<Change<Note>>().unwrap().run(see).unwrap(), 0);
    let expired = db.sweep_expired().unwrap();
    assert!(expired > 0, "a third of the sessions lived for minutes");
    let pieces = db.sweep_blobs().unwrap();
    assert_eq!(pieces > 0, killed, "{pieces} pieces that nobody attached");
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && report.unchecked.is_empty(), "{report:?}");
    db.close().unwrap();
}

#[test]
fn databases_with_every_kind_of_data_show_what_was_stored() {
    let golden = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"));
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.join(NEWEST).exists() {
        make().iter().for_each(|(name, disk)| store(disk, &golden.join(NEWEST).join(name)));
    }
    for (name, fresh) in make() {
        let from = golden.join(NEWEST).join(name);
        assert!(files(&from).iter().any(|file| file.starts_with("feed/")), "changes are retained");
        verify(&load(&from), &fresh, name == "killed");
    }
}

/// Names of the files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path()).into_iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found
}
