//! Backups of a served database: one state, whole, while others write; or a directory that does not open.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use duramen::Code;
use duramen::prelude::*;
use duramen::wire::{BackupSource, BackupTarget, CopyPart};
use duramen_client::Remote;
use duramen_server::users::{self, User};

use super::Served;

#[derive(Serialize, Deserialize, Collection)]
#[collection(view(ByCity, key = city, value = cents, reduce = (Count, Sum)))]
struct Sale {
    #[key]
    id: u64,
    city: String,
    cents: i64,
}

/// What a copy must have: two counters that are always equal, and everything of before.
#[test]
fn a_backup_is_one_state_while_others_write() {
    let served = Served::new();
    let large: Vec<u8> = (0..5_000_001_u32).map(|number| number.to_le_bytes()[0] ^ 7).collect();
    served.db.bytes("files").put("large", &large).expect("stored");
    served.db.bytes("files").put("none", "").expect("stored");
    served.db.blobs("blobs").put("b", &large[..]).expect("stored");
    served.db.consumer("mailer").register().expect("registered");
    let user = User { name: "web".to_owned(), grants: Vec::new(), certificates: Vec::new() };
    users::put_user(&served.db, &user, true).expect("added");
    for id in 0..3_000 {
        let city = if id % 2 == 0 { "Oslo" } else { "Rome" }.to_owned();
        served.db.put(&Sale { id, city, cents: 5 }).expect("stored");
    }
    let remote = Remote::from(served.another_client());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("copy");
    let is_over = AtomicBool::new(false);
    let copied = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let both = served.db.transact(|tx| {
                    tx.kv("counters").increment("a", 1)?;
                    tx.kv("counters").increment("z", 1)
                });
                both.expect("counted");
            }
        });
        // Nothing here may panic before the other thread is told to end.
        let mut told = Vec::new();
        let copied = remote.backup_with(&path, |progress| {
            told.push(progress.entries);
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(told.is_sorted_by(|before, after| before < after), "{told:?}");
        copied.expect("a backup")
    });
    assert_eq!(copied.entries, copied.of);

    let copy = Db::open(&path).expect("it opens");
    assert!(copy.check_documents().expect("read").problems.is_empty());
    assert_ne!(copy.durability_status().database, served.db.durability_status().database);
    let counter = |key: &str| copy.kv("counters").get::<i64>(key).expect("read");
    assert_eq!(counter("a"), counter("z"));
    assert_eq!(copy.bytes("files").get("large").expect("read"), Some(large.clone()));
    assert_eq!(copy.bytes("files").get("none").expect("read"), Some(Vec::new()));
    assert_eq!(copy.blobs("blobs").info("b").expect("read").map(|info| info.len), Some(5_000_001));
    assert_eq!(copy.view::<ByCity>().key("Oslo").reduce().expect("read"), (1_500, 7_500));
    let known = users::Users::of(&copy.snapshot().expect("a state")).expect("read");
    assert_eq!(known.users[0].name, "web");
    assert_eq!(copy.documents("orders").count(Span::all()).expect("read"), 3);
    let mailer = copy.consumer("mailer").register().expect("it is there");
    assert_eq!(mailer.position().expect("read").0, 0, "the copy has an order of commits of its own");
    // The audit told of it before anything was sent.
    let files = std::fs::read_dir(served.path().join("audit")).expect("there is an audit");
    let read =
        |file: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(file.expect("a file").path());
    let lines: String = files.map(|file| read(file).expect("text")).collect();
    assert!(lines.contains("\"what\":\"backup\",\"step\":\"begin\""), "{lines}");
    // The original is as it was.
    assert_eq!(served.db.bytes("files").get("large").expect("read"), Some(large));
}

#[test]
fn what_is_no_whole_backup_does_not_open() {
    let served = Served::new();
    let remote = Remote::from(served.another_client());
    let directory = tempfile::tempdir().expect("a directory");
    let [stopped, changed, short] = ["stopped", "changed", "short"].map(|name| directory.path().join(name));
    let code = |path: &Path| Db::open(path).expect_err("unfinished").code();

    let failed = remote.backup_with(&stopped, |_| Err(Error::invalid("enough")));
    assert_eq!(failed.expect_err("stopped").message(), "enough");
    assert_eq!(code(&stopped), Code::UnfinishedCopy);
    assert_eq!(remote.backup(&stopped).expect_err("taken").code(), Code::AlreadyExists);

    // A part that is lost or changed on its way.
    let copy = |path: &Path, change: &dyn Fn(&mut Vec<u8>), skips: bool| {
        let mut source = BackupSource::of(&served.db).expect("a state");
        let (seq, entries) = (source.seq(), source.entries());
        let mut target = BackupTarget::begin(Db::options(), path, seq, entries).expect("begun");
        let mut is_first = true;
        while let Some(mut part) = source.next().expect("read") {
            if let CopyPart::Entries(entries) = &mut part
                && std::mem::take(&mut is_first)
            {
                if skips {
                    continue;
                }
                change(&mut entries[0].1);
            }
            target.take(part).expect("taken");
        }
        target.finish(source.digest()).map(drop)
    };
    let flip = |value: &mut Vec<u8>| value.push(7);
    assert_eq!(copy(&changed, &flip, false).expect_err("changed").code(), Code::CorruptData);
    assert_eq!(code(&changed), Code::UnfinishedCopy);
    assert_eq!(copy(&short, &|_| {}, true).expect_err("short").code(), Code::CorruptData);
    assert_eq!(code(&short), Code::UnfinishedCopy);
    copy(&directory.path().join("whole"), &|_| {}, false).expect("the same without a fault");
}

#[test]
fn a_backup_whose_server_stops_does_not_open() {
    let mut served = Served::new();
    for id in 0..40 {
        served.db.bytes("files").put(format!("{id}"), vec![7; 1 << 20]).expect("stored");
    }
    let remote = Remote::from(served.another_client());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("copy");
    let mut server = served.server.take();
    let failed = remote.backup_with(&path, |_| {
        drop(server.take());
        Ok(())
    });
    assert_eq!(failed.expect_err("cut off").code(), Code::Unreachable);
    assert_eq!(Db::open(&path).expect_err("unfinished").code(), Code::UnfinishedCopy);
}
