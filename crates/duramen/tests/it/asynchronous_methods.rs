//! The asynchronous handle has every method that the blocking one has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use duramen::prelude::*;

use crate::asynchronous::block_on;

/// Methods of `Db` that have no namesake, and what does their work.
const OTHERWISE: [(&str, &str); 13] = [
    ("begin", "a transaction that rests between blocking calls: `run(|db| db.begin())`"),
    ("blobs", "a handle of blocking calls: `run(|db| db.blobs(..))`"),
    ("bytes", "a handle of blocking calls: `run(|db| db.bytes(..))`"),
    ("collection", "a query that is run by blocking calls: `read(|at| at.collection::<C>()..)`"),
    ("consumer", "a handle of blocking calls: `run(|db| db.consumer(..))`"),
    ("documents", "a handle of blocking calls: `run(|db| db.documents(..))`"),
    ("in_memory", "`Db::in_memory()?.into_async()`: it waits for nothing"),
    ("into_async", "it makes the asynchronous handle"),
    ("kv", "a handle of blocking calls: `run(|db| db.kv(..))`"),
    ("options", "`open_with` takes them"),
    ("select", "a query that is run by blocking calls: `read(|at| at.select::<C>()..)`"),
    ("step_background", "for simulations, which have no threads"),
    ("view", "a query that is run by blocking calls: `read(|at| at.view::<V>()..)`"),
];

/// The public methods in all `impl NAME {` blocks of the crate.
fn methods(of: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let head = format!("impl {of} {{");
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let mut inside = false;
        // Methods that the documentation hides are for simulations.
        let mut hidden = false;
        for line in source.lines() {
            inside = (inside || line == head) && line != "}";
            hidden |= line.trim() == "#[doc(hidden)]";
            let head = line.strip_prefix("    pub async fn ").or_else(|| line.strip_prefix("    pub fn "));
            if let Some(head) = head.filter(|_| inside)
                && !std::mem::take(&mut hidden)
            {
                let end = head.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap();
                found.insert(head[..end].to_owned());
            }
        }
    }
    found
}

fn sources(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
    found
}

#[test]
fn the_asynchronous_handle_has_every_method_of_the_blocking_one() {
    let (blocking, asynchronous) = (methods("Db"), methods("AsyncDb"));
    assert!(blocking.len() > 40 && asynchronous.len() > 30, "{blocking:?} {asynchronous:?}");
    let otherwise = |name: &String| OTHERWISE.iter().any(|(other, _)| other == name);
    let missing: Vec<_> = blocking.difference(&asynchronous).filter(|name| !otherwise(name)).collect();
    assert!(
        missing.is_empty(),
        "write these for `AsyncDb`, or say in OTHERWISE what does their work: {missing:?}"
    );
    for (name, instead) in OTHERWISE {
        assert!(blocking.contains(name), "{name} ({instead}) is no method of Db: take it away here");
        assert!(!asynchronous.contains(name), "{name} ({instead}) is a method of AsyncDb: take it away here");
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(view(ByOwner, key = owner))]
struct Note {
    #[key]
    id: u64,
    owner: String,
}

fn note(id: u64, owner: &str) -> Note {
    Note { id, owner: owner.into() }
}

// Each is the blocking method on a thread of the pool: one call shows that it is the right one.
#[test]
fn the_methods_about_documents_do_what_the_blocking_ones_do() {
    let db = Db::in_memory().unwrap().into_async();
    block_on(async {
        db.register::<Note>().await.unwrap();
        for id in 0..10 {
            db.upsert(note(id, "ada"), |_| Ok(())).await.unwrap();
        }
        let read = db.get_versioned::<Note>(3).await.unwrap().unwrap();
        db.upsert(note(3, "ada"), |note: &mut Note| {
            note.owner = "bob".into();
            Ok(())
        })
        .await
        .unwrap();
        match db.replace(note(3, "eve"), read.revision).await {
            Err(ReplaceError::Changed(Some(now))) => assert_eq!(now.document, note(3, "bob")),
            other => panic!("{other:?}"),
        }
        let read = db.get_versioned::<Note>(3).await.unwrap().unwrap();
        db.replace(note(3, "eve"), read.revision).await.unwrap();
        assert_eq!(db.get::<Note>(3).await.unwrap(), Some(note(3, "eve")));
        assert_eq!(db.delete_range::<Note>(5..).await.unwrap(), 5);
        let snapshot = db.snapshot().await.unwrap();
        assert_eq!(snapshot.view::<ByOwner>().key("ada").count().unwrap(), 4);
        assert_eq!(db.view_states().await.unwrap().len(), 1);
        assert_eq!(db.collections().await.unwrap().len(), 1);
        db.build_views::<Note>(|_| Ok(())).await.unwrap();
        db.migrate::<Note>(|_| Ok(())).await.unwrap();
        db.ensure(&Schema::new("words").key(["word"])).await.unwrap();
        assert_eq!(db.collections().await.unwrap().len(), 2);
    });
}

#[test]
fn the_methods_about_a_whole_database_do_what_the_blocking_ones_do() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path().join("notes.duramen")).unwrap().into_async();
    block_on(async {
        db.put(note(1, "ada")).await.unwrap();
        assert!(db.check().await.unwrap().is_clean());
        assert!(db.check_documents().await.unwrap().is_clean());
        assert_eq!(db.sweep_expired().await.unwrap(), 0);
        assert_eq!(db.sweep_blobs().await.unwrap(), 0);
        assert!(db.consumers().await.unwrap().is_empty());
        db.kv_stats().await.unwrap();
        assert_eq!(
            format!("{:?}", db.durability_status()),
            format!("{:?}", db.blocking().durability_status())
        );
        assert_eq!(format!("{:?}", db.feed()), format!("{:?}", db.blocking().feed()));
        assert_eq!(db.stats().block_bytes, db.blocking().stats().block_bytes);
        db.set_memory_bytes(64 << 20).unwrap();
        assert_eq!(db.durability_status().memory_bytes, 64 << 20);
        let refused = |_: &duramen::CopyProgress| Err(Error::invalid("enough"));
        let stopped = db.backup_with(directory.path().join("stopped.duramen"), refused).await;
        assert_eq!(stopped.unwrap_err().message(), "enough");
        let refused = |_: &duramen::CompactProgress| Err(Error::invalid("enough"));
        assert_eq!(db.compact_with(refused).await.unwrap_err().message(), "enough");
        assert_eq!(db.compact().await.unwrap().oldest_snapshot, None);
        let path = directory.path().join("copy.duramen");
        db.backup(&path).await.unwrap();
        assert_eq!(Db::open(&path).unwrap().get::<Note>(1).unwrap(), Some(note(1, "ada")));
    });
}
