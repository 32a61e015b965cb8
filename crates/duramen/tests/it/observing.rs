//! A database observed from outside: commits of another process, with names, as they happen.

use std::thread;

use duramen::prelude::*;
use duramen::{AnyChange, AnyChanged, Code, CommitSeq, ObserveFrom, Observer};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "readings", positional)]
struct Reading {
    #[key]
    id: u64,
    place: String,
}

/// A writer at full speed on a file system, with a checkpoint every few kilobytes: the observer misses
/// nothing, and names the fields of positional documents.
#[test]
fn a_fast_writer_is_followed() {
    const COMMITS: u64 = 4_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = Db::options().feed_retain_bytes(1 << 30);
    let db = options.engine(|engine| engine.checkpoint_log_bytes = Some(64 * 1024)).open(&path).unwrap();
    let mut observer = Observer::options().collection("readings").open(&path, ObserveFrom::Oldest).unwrap();
    assert_eq!(observer.holder().unwrap(), format!("process {}", std::process::id()));
    let mut next = 0;
    thread::scope(|scope| {
        let db = &db;
        let writer = scope.spawn(move || {
            for id in 0..COMMITS {
                let place = "Oslo ".repeat(if id % 100 == 0 { 8_000 } else { 20 });
                db.at(Durability::Process).put(&Reading { id, place }).unwrap();
                db.at(Durability::Process).bytes("others").put("k", "v").unwrap();
            }
            db.close().unwrap();
        });
        while next < COMMITS {
            let is_over = writer.is_finished();
            match observer.next().unwrap() {
                Some(AnyChange { what: AnyChanged::Created, .. }) => {}
                Some(change) => {
                    let document = change.document().unwrap().unwrap();
                    assert_eq!(document.get("id"), Some(&next.into()));
                    assert!(document.get("place").is_some());
                    next += 1;
                }
                None => assert!(!is_over, "{next} of {COMMITS} were told"),
            }
        }
    });
    let now = observer.look().unwrap();
    assert!(now.checkpoint > 10 && now.clean, "{now:?}");
    assert_eq!(observer.collections().unwrap().len(), 1);
}

mod later {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional)]
    #[migrate_from(Reading)]
    pub(super) struct Renamed {
        #[key]
        pub(super) id: u64,
        pub(super) town: String,
    }

    impl From<Reading> for Renamed {
        fn from(old: Reading) -> Renamed {
            Renamed { id: old.id, town: old.place }
        }
    }
}

/// The cached schema of a collection may be from before its type changed.
#[test]
fn documents_of_a_type_that_changes_meanwhile_have_their_own_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path).unwrap();
    let mut observer = Observer::open(&path, ObserveFrom::Now).unwrap();
    let mut told = Vec::new();
    let mut watch = |count: usize| {
        while told.len() < count {
            let Some(change) = observer.next().unwrap() else {
                thread::yield_now();
                continue;
            };
            told.extend(change.document().unwrap().map(|document| document.to_json().unwrap()));
        }
    };
    db.put(&Reading { id: 1, place: "Oslo".into() }).unwrap();
    watch(1);
    db.put(&later::Renamed { id: 2, town: "Voss".into() }).unwrap();
    watch(2);
    assert_eq!(told, [r#"{"id":1,"place":"Oslo"}"#, r#"{"id":2,"town":"Voss"}"#]);
}

mod other {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional)]
    pub(super) struct Reading {
        #[key]
        pub(super) id: u64,
        pub(super) shade: String,
    }
}

/// Positional documents get the field names of their own collection, not of one that took its name: neither
/// if the observer is behind, nor if it still has the dropped one cached.
#[test]
fn documents_of_a_dropped_collection_take_no_names_from_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path).unwrap();
    let mut lagging = Observer::open(&path, ObserveFrom::Now).unwrap();
    let mut close_behind = Observer::open(&path, ObserveFrom::Now).unwrap();
    let watch = |observer: &mut Observer, count: usize| -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < count {
            match observer.next() {
                Ok(Some(change)) => {
                    told.extend(change.document().unwrap().map(|document| document.to_json().unwrap()));
                }
                Ok(None) => thread::yield_now(),
                Err(error) => told.push(format!("{:?}", error.code())),
            }
        }
        told
    };
    let (old, new) = (r#"{"id":1,"place":"Oslo"}"#, r#"{"id":2,"shade":"grey"}"#);
    db.put(&Reading { id: 1, place: "Oslo".into() }).unwrap();
    assert_eq!(watch(&mut close_behind, 1), [old]);
    db.transact(|tx| tx.drop_collection("readings")).unwrap();
    db.put(&other::Reading { id: 2, shade: "grey".into() }).unwrap();
    assert_eq!(watch(&mut close_behind, 1), [new]);
    assert_eq!(watch(&mut lagging, 2), ["Unreadable", new]);
}

/// The keys of the next `count` puts, as soon as they are durable.
fn next_keys(observer: &mut Observer, count: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while keys.len() < count {
        match observer.next().unwrap() {
            Some(AnyChange { what: AnyChanged::Put { key, .. }, .. }) => keys.push(key),
            Some(_) => {}
            None => thread::yield_now(),
        }
    }
    keys
}

/// Resuming from a position must not skip changes that were not returned.
#[test]
fn a_position_in_the_middle_of_a_commit_is_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path).unwrap();
    let mut observer = Observer::open(&path, ObserveFrom::Now).unwrap();
    let put = |tx: &mut Transaction<'_>| {
        ["a", "b"].iter().try_for_each(|key| tx.put_bytes("notes", key.as_bytes(), b"1"))
    };
    let seq = db.write(put).unwrap().seq();
    assert_eq!(next_keys(&mut observer, 1), [b"a"]);
    assert!(observer.position() < seq, "{}", observer.position());
    assert_eq!(next_keys(&mut observer, 1), [b"b"]);
    assert_eq!((observer.next().unwrap(), observer.position()), (None, seq));
}

/// A copy put in the place of the database is an older state: waiting until it reaches the old position would
/// miss changes.
#[test]
fn a_database_that_was_put_back_is_told_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["db", "copy"].map(|name| directory.path().join(name));
    let put = |db: &Db, keys: std::ops::Range<u8>| {
        keys.for_each(|key| drop(db.bytes("notes").put([key], "1").unwrap()))
    };
    let db = Db::open(&path).unwrap();
    put(&db, 0..5);
    db.close().unwrap();
    drop(db);
    let copied = std::process::Command::new("cp").arg("-r").args([&path, &copy]).status().unwrap();
    assert!(copied.success());
    let mut observer = Observer::open(&path, ObserveFrom::Now).unwrap();
    let start = observer.position();
    let db = Db::open(&path).unwrap();
    put(&db, 5..20);
    assert_eq!(next_keys(&mut observer, 15).len(), 15);
    db.close().unwrap();
    drop(db);
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let error = observer.next().unwrap_err();
    assert!(error.code() == Code::FeedGap && error.message().contains("was set back"), "{error}");
    assert_eq!(observer.position(), start);
    let db = Db::open(&path).unwrap();
    put(&db, 100..102);
    assert_eq!(next_keys(&mut observer, 2), [[100], [101]]);
}

/// The errors for databases that do not exist.
#[test]
fn what_cannot_be_watched_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let refused = |from| Observer::open(&path, from).unwrap_err().code();
    assert_eq!(refused(ObserveFrom::Now), Code::NoSuchDatabase);
    let db = Db::open(&path).unwrap();
    let seq = db.write(|tx| tx.put_bytes("notes", b"a", b"1")).unwrap().seq();
    let later = ObserveFrom::After(CommitSeq(seq.0 + 100));
    assert_eq!(refused(later), Code::InvalidArgument);
    db.close().unwrap();
    drop(db);
    let mut observer = Observer::open(&path, ObserveFrom::After(CommitSeq(0))).unwrap();
    let error = observer.next().unwrap_err();
    assert_eq!(error.code(), Code::FeedGap, "{error}");
    assert_eq!(observer.next().unwrap(), None);
    assert_eq!(observer.position(), observer.look().unwrap().durable);
    std::fs::remove_dir_all(&path).unwrap();
    let db = Db::open(&path).unwrap();
    db.bytes("notes").put("b", "2").unwrap();
    let error = observer.look().unwrap_err();
    assert!(error.message().contains("replaced by another database"), "{error}");
}
