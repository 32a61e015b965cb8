//! The mark by which the demo recognises a database that it made and that has not changed since.
//!
//! Owns the rule that the demo deletes only what it made. The mark holds a fingerprint of everything in the
//! database at the end of a demo. Another fingerprint, or a demo that did not come to its end, is left alone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use duramen::{Code, Db, Holds, LocalReads, Snapshot, Span};

use crate::failure::{FAILED, Failure, Result};

const TREE: &str = "demo";
const KEY: &[u8] = b"mark";

/// How the names of the trees of shapes begin.
const SHAPES: &str = "duramen/shapes";

/// Opens the demo's own database, emptied. Refuses any other directory.
pub(super) fn open_emptied(dir: &Path) -> Result<Db> {
    let is_new = match dir.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(_) if dir.is_file() => return Err(refused(dir, "is a file")),
        Err(error) => return Err(Failure::io("open", dir, &error)),
    };
    if !is_new && !dir.join("data").is_file() {
        return Err(refused(dir, "is not a database"));
    }
    let db = Db::options().open(dir)?;
    if !is_new && let Err(failure) = check(&db, dir) {
        db.close()?;
        return Err(failure);
    }
    db.write(|tx| {
        for schema in tx.collections()? {
            tx.drop_collection(schema.name())?;
        }
        tx.put_bytes(TREE, KEY, b"a demo that has not ended")
    })?;
    Ok(db)
}

/// Marks a database at the end of a demo.
pub(super) fn set(dir: &Path) -> Result<()> {
    let db = Db::options().create(false).open(dir)?;
    let mark = mark_of(&db.snapshot()?)?;
    db.write(|tx| tx.put_bytes(TREE, KEY, mark.as_bytes()))?;
    Ok(db.close()?)
}

fn check(db: &Db, dir: &Path) -> Result<()> {
    let snapshot = db.snapshot()?;
    match snapshot.get_bytes(TREE, KEY)? {
        None => Err(refused(dir, "is a database without the demo's mark")),
        Some(mark) if mark == mark_of(&snapshot)?.as_bytes() => Ok(()),
        Some(_) => Err(refused(dir, "has changed since the demo made it, or the demo was interrupted")),
    }
}

/// The mark of a database that holds what this snapshot does.
fn mark_of(snapshot: &Snapshot) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for tree in snapshot.trees()? {
        let entries = snapshot.tree_len(&tree)?;
        // The database makes trees of its own when it needs them, and keeps the shapes of documents that are
        // gone. The mark does not cover itself.
        let is_unneeded = tree.holds == Holds::Own && (entries == 0 || tree.tree.starts_with(SHAPES));
        if is_unneeded || tree.name == TREE && tree.holds == Holds::Bytes {
            continue;
        }
        (&tree.tree, entries).hash(&mut hasher);
    }
    for schema in snapshot.collections()? {
        format!("{schema:?}").hash(&mut hasher);
        for document in snapshot.documents(schema.name()).scan(Span::all())? {
            document?.to_bytes()?.hash(&mut hasher);
        }
    }
    Ok(format!("made by `duramen demo`, contents {:016x}", hasher.finish()))
}

fn refused(dir: &Path, why: &str) -> Failure {
    Failure::said(
        FAILED,
        Code::AlreadyExists,
        format!("{} {why}, and the demo writes over nothing that is not its own", dir.display()),
        "name another directory with --dir, or remove this one",
    )
}
