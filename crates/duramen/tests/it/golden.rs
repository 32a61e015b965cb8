//! Databases of every released format open in this build, with all of their contents (D9).
//!
//! They are in `tests/golden/format-N`: `closed`, and `killed` with a log to replay, each file compressed.
//! Once committed they never change; a new format gets its own directory. `DURAMEN_WRITE_GOLDEN=1 cargo test
//! -p duramen --test it golden` writes missing ones, and changes no existing one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{MemDisk, Transaction};
use duramen_engine::{Background, Builtin, Direction, Engine, Hooks, KeyRange, Options};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/format-1");
pub(crate) const DATABASE: &str = "/golden.duramen";
const TOWNS: [&str; 3] = ["Bergen", "Oslo", "Tromsø"];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a database was filled with.
struct Contents {
    orders: Vec<Document>,
    plain: Rows,
    /// Trees of the engine, with the reducer of each.
    trees: Vec<(&'static str, Option<Builtin>, Rows)>,
}

fn order(id: u64, killed: bool) -> Document {
    let cents = i64::try_from(id).unwrap() * 31 - 5000;
    let cents =
        if killed && id.is_multiple_of(5) { Some(1) } else { (!id.is_multiple_of(7)).then_some(cents) };
    doc! {
        "town": TOWNS[usize::try_from(id % 3).unwrap()], "id": id, "cents": cents, "rate": id as f64 / 8.0,
        "open": id.is_multiple_of(2), "note": "a\u{0}b".repeat(usize::try_from(id % 4).unwrap()),
    }
}

fn number(n: u32, filler: usize) -> (Vec<u8>, Vec<u8>) {
    let value = i64::from(n) * i64::from(n) - 1000;
    (n.to_be_bytes().to_vec(), [&value.to_le_bytes()[..], &vec![7; filler]].concat())
}

fn pattern(bytes: usize, step: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at / step % 251).unwrap()).collect()
}

fn contents(killed: bool) -> Contents {
    let mut ids: Vec<u64> = (0..600).filter(|id| id % 10 != 3).collect();
    ids.sort_by_key(|id| (id % 3, *id));
    let orders = ids.into_iter().map(|id| order(id, killed)).collect();
    let plain = [(Vec::new(), vec![1]), (vec![0; 1], Vec::new()), (vec![255; 1024], pattern(30_000, 100))];
    let mut numbers: Rows = (0..500).map(|n| number(n, n as usize % 50)).collect();
    let mut big =
        Rows::from([(b"whole".to_vec(), pattern(40_000, 9)), (b"streamed".to_vec(), pattern(5 << 19, 777))]);
    let mut trees = vec![("minima", Some(Builtin::Min), (0..40).map(|n| number(n, 0)).collect::<Rows>())];
    if killed {
        numbers.retain(|key, _| key[3] % 4 != 1);
        numbers.extend((500..560).map(|n| number(n, 30_000)));
        big.insert(b"later".to_vec(), pattern(50_000, 3));
        trees.push(("maxima", Some(Builtin::Max), (0..10).map(|n| number(n, 1)).collect()));
    }
    trees.push(("numbers", Some(Builtin::Sum), numbers));
    trees.push(("big", None, big));
    Contents { orders, plain: plain.into(), trees }
}

fn options() -> Options {
    Options { background: Background::Stepped, ..Options::default() }
}

pub(crate) fn open_db(disk: &MemDisk, read_only: bool) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.read_only(read_only).open_on(Arc::new(disk.clone()), DATABASE).unwrap()
}

fn open_engine(disk: &MemDisk) -> Engine {
    Engine::open(Arc::new(disk.clone()), Path::new(DATABASE), options(), Hooks::default()).unwrap()
}

/// Makes the two databases as a program would: the second continues after the first was closed, and is
/// killed.
fn make() -> [(&'static str, MemDisk); 2] {
    let disk = MemDisk::new(1);
    fill_documents(&disk);
    let engine = open_engine(&disk);
    for (name, reducer, rows) in contents(false).trees {
        fill(&engine, name, reducer, &rows);
    }
    fill(&engine, "gone", None, &Rows::from([(b"key".to_vec(), pattern(70_000, 5))]));
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("gone")).unwrap();
    engine.close().unwrap();
    drop(engine);
    let closed = disk.deep_clone();
    let engine = open_engine(&disk);
    for (name, reducer, rows) in contents(true).trees {
        fill(&engine, name, reducer, &rows);
    }
    engine.abandon();
    let db = open_db(&disk, false);
    let again = |tx: &mut Transaction<'_>| {
        let orders = tx.documents("orders");
        (0..600).filter(|id| id % 10 != 3).try_for_each(|id| orders.put(order(id, true)))
    };
    db.transact(again).unwrap();
    // The state that a kill would leave: copied while the database is open.
    let killed = disk.deep_clone();
    [("closed", closed), ("killed", killed)]
}

fn fill_documents(disk: &MemDisk) {
    let db = open_db(disk, false);
    let orders = db.ensure(&Schema::new("orders").key(["town", "id"]).sum(["cents"])).unwrap();
    for id in 0..600 {
        orders.put(order(id, false)).unwrap();
    }
    for id in (0..600u64).filter(|id| id % 10 == 3) {
        assert!(orders.delete((TOWNS[usize::try_from(id % 3).unwrap()], id)).unwrap());
    }
    for (key, value) in contents(false).plain {
        db.bytes("plain").put(key, value).unwrap();
    }
    db.close().unwrap();
}

/// Makes a tree hold just these rows, in one transaction.
fn fill(engine: &Engine, name: &str, reducer: Option<Builtin>, rows: &Rows) {
    let fill = |tx: &mut duramen_engine::Transaction| {
        let tree = match tx.tree(name)? {
            Some(tree) => tree,
            None => tx.create_tree(name, reducer.map(Builtin::spec))?,
        };
        let mut old = tx.rows(tree, KeyRange::all(), Direction::Forward)?;
        let mut gone = Vec::new();
        while let Some(row) = old.next()? {
            gone.extend((!rows.contains_key(row.key())).then(|| row.key().to_vec()));
        }
        gone.iter().try_for_each(|key| tx.delete(tree, key).map(drop))?;
        for (key, value) in rows {
            if value.len() > 1 << 20 {
                tx.put_stream(tree, key, &mut value.as_slice())?;
            } else {
                tx.put(tree, key, value)?;
            }
        }
        Ok(())
    };
    engine.transact(Durability::Disk, fill).unwrap();
}

/// Everything that was stored exists, and nothing else; every reduction is that of the rows.
fn verify(disk: &MemDisk, read_only: bool, killed: bool) {
    let db = open_db(disk, read_only);
    let wanted = contents(killed);
    let orders = db.documents("orders");
    let found: Vec<Document> = orders.scan(Span::all()).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, wanted.orders);
    let cents = |order: &Document| match order.get("cents") {
        Some(Value::Int(cents)) => *cents,
        _ => 0,
    };
    let reduced = orders.reduce(Span::all()).unwrap();
    assert_eq!(reduced.sum("cents"), Some(wanted.orders.iter().map(cents).sum()));
    let mut plain = Rows::new();
    let mut rows = db.bytes("plain").scan(KeyRange::all(), Direction::Forward).unwrap();
    while let Some((key, value)) = rows.next().unwrap() {
        plain.insert(key.to_vec(), value.to_vec());
    }
    drop(rows);
    assert_eq!(plain, wanted.plain);
    let report = db.check().unwrap();
    assert!(report.is_clean() && report.unreached.is_empty(), "{report:?}");
    assert!(db.check_documents().unwrap().is_clean());
    drop((orders, db));
    verify_trees(disk, &wanted.trees, read_only);
}

fn verify_trees(disk: &MemDisk, trees: &[(&str, Option<Builtin>, Rows)], read_only: bool) {
    let options = Options { read_only, ..options() };
    let engine =
        Engine::open(Arc::new(disk.clone()), Path::new(DATABASE), options, Hooks::default()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    for (name, reducer, rows) in trees {
        let tree = snapshot.tree(name).unwrap().unwrap();
        let found = snapshot.rows(tree, KeyRange::all(), Direction::Forward).unwrap().into_iter();
        assert!(found.map(Result::unwrap).eq(rows.clone()), "{name}");
        let numbers = rows.values().filter_map(|v| Some(i64::from_le_bytes(v.get(..8)?.try_into().ok()?)));
        let Some(reducer) = reducer else { continue };
        let reduced = snapshot.reduce(tree, &KeyRange::all()).unwrap().value.unwrap();
        let wanted = match reducer {
            Builtin::Sum => numbers.map(i128::from).sum::<i128>().to_le_bytes().to_vec(),
            Builtin::Min => numbers.min().unwrap().to_le_bytes().to_vec(),
            _ => numbers.max().unwrap().to_le_bytes().to_vec(),
        };
        assert_eq!(reduced, wanted, "{name}");
    }
    assert_eq!(snapshot.tree("gone").unwrap(), None);
    drop(snapshot);
    engine.abandon();
}

/// The files of a database on the memory disk, from or to the directory where it lies compressed.
pub(crate) fn load(from: &Path) -> MemDisk {
    let disk = MemDisk::new(2);
    for (name, path) in files_below(from) {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        disk.write_file(Path::new(DATABASE).join(name.strip_suffix(".gz").unwrap()), &bytes).unwrap();
    }
    disk
}

fn files_below(directory: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(
                files_below(&path).into_iter().map(|(below, path)| (format!("{name}/{below}"), path)),
            );
        } else {
            found.push((name, path));
        }
    }
    found
}

pub(crate) fn store(disk: &MemDisk, to: &Path) {
    for file in disk.files() {
        let Ok(name) = file.strip_prefix(DATABASE) else { continue };
        let to = to.join(format!("{}.gz", name.display()));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let best = flate2::Compression::best();
        let mut packed = flate2::write::GzEncoder::new(fs::File::create_new(to).unwrap(), best);
        packed.write_all(&disk.read_file(&file).unwrap()).unwrap();
        packed.finish().unwrap();
    }
}

#[test]
fn databases_of_format_1_open_with_everything_in_them() {
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !Path::new(GOLDEN).exists() {
        make().iter().for_each(|(name, disk)| store(disk, &Path::new(GOLDEN).join(name)));
    }
    for (name, killed) in [("closed", false), ("killed", true)] {
        let disk = load(&Path::new(GOLDEN).join(name));
        assert_eq!(open_db(&disk, true).stats().recovery.record_count > 0, killed, "a log to replay");
        verify(&disk, true, killed);
        // Opened for writing, it is recovered and written to; afterwards everything still exists.
        verify(&disk, false, killed);
        let db = open_db(&disk, false);
        db.bytes("plain").put(b"new", b"row").unwrap();
        assert!(db.bytes("plain").delete(b"new").unwrap());
        db.close().unwrap();
        drop(db);
        verify(&disk, true, killed);
    }
}

/// Databases that this build makes have the same contents.
#[test]
fn databases_made_now_hold_the_same() {
    for (name, disk) in make() {
        verify(&disk, true, name == "killed");
    }
}
