//! A database watched without opening it: what others commit, with names, while they commit it.

use std::thread;

use duramen::prelude::*;
use duramen::{AnyChange, AnyChanged, Code, CommitSeq, ObserveFrom, Observer};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "readings", compact)]
struct Reading {
    #[key]
    id: u64,
    place: String,
}

/// A writer at full speed on a file system, with a checkpoint every few kilobytes: the observer finds its way, misses nothing, and
/// names the fields of documents that have no names in them.
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

/// The words for what is not there.
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
