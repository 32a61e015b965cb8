//! Pinned bytes of blobs; what an upload leaves behind at each of its moments.

use std::io::Write;
use std::sync::Arc;

use super::collect::step_as_of;
use super::record::{BlobId, ORPHANED, PIECES, Record, records_tree};
use super::step;
use crate::access::reads::sealed::Readable;
use crate::store::Background;
use crate::store::Source;
use crate::{Db, MemDisk, Result, Span};

fn open(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

fn count(db: &Db, tree: &str) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let tree = snapshot.source().tree(tree).unwrap();
    tree.map_or(0, |tree| snapshot.source().count(tree, &Span::all().into_bytes()).unwrap())
}

/// Other builds must read these bytes: docs/format.md, "Blobs", defines them.
#[test]
fn stored_bytes_are_as_documented() {
    let record = Record {
        id: BlobId([0xab; 16]),
        len: 0x0102,
        piece_bytes: 0x0010_0000,
        sha256: [0xcd; 32],
        content_type: "image/png".to_owned(),
    };
    let stored = record.encode();
    let wanted =
        [&[1][..], &[0xab; 16], &[2, 1, 0, 0, 0, 0, 0, 0], &[0, 0, 16, 0], &[0xcd; 32], b"image/png"]
            .concat();
    assert_eq!(stored, wanted);
    assert_eq!(Record::decode(&stored).unwrap(), record);
    assert_eq!(record.id.piece(0x0203), [&[0xab; 16][..], &[0, 0, 0, 0, 0, 0, 2, 3]].concat());
    assert_eq!(records_tree("a").unwrap(), "duramen/blobs/a");
    assert_eq!((PIECES, ORPHANED), ("duramen/blob-pieces", "duramen/blob-loose"));
}

/// Foreign bytes are corruption or a later release's, never a panic.
#[test]
fn bytes_that_are_no_record_are_refused() {
    let mut stored = vec![0; 61];
    for version in [0, 1, 2] {
        stored[0] = version;
        assert!(Record::decode(&stored).is_err(), "no pieces, or version {version}");
    }
    assert!(Record::decode(&stored[..60]).is_err());
    stored[0] = 1;
    stored[25] = 1;
    assert!(Record::decode(&stored).is_ok());
    stored.push(0xff);
    assert!(Record::decode(&stored).is_err(), "the content type is no text");
}

/// An upload in progress must not be collected. Abandoned, cut short by a crash or left unattached, it must
/// leak nothing.
#[test]
fn uploads_that_were_not_finished_leak_nothing() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    let blobs = db.blobs("b").piece_bytes(1024)?;
    let mut writer = blobs.writer("k")?;
    writer.write_all(&[7; 30_000]).unwrap();
    assert_eq!((count(&db, PIECES), count(&db, ORPHANED)), (24, 1));
    assert!(blobs.info("k")?.is_none());
    assert_eq!(db.sweep_blobs()?, 0, "it is being written");
    assert!(db.check_documents()?.is_clean());
    drop(writer);
    assert_eq!(db.sweep_blobs()?, 24);
    assert_eq!((count(&db, PIECES), count(&db, ORPHANED)), (0, 0));

    let upload = blobs.upload(&[7; 3_000][..])?;
    assert_eq!(db.sweep_blobs()?, 0, "it is kept");
    drop(upload);
    assert_eq!(db.sweep_blobs()?, 3);

    let mut writer = blobs.writer("k")?;
    writer.write_all(&[7; 30_000]).unwrap();
    db.close()?;
    let crashed = open(&disk.crash(&duramen_disk::memory::CrashChoice::All));
    assert_eq!(count(&crashed, PIECES), 24);
    crashed.blobs("b").put("small", &[1][..])?;
    assert_eq!((count(&crashed, PIECES), count(&crashed, ORPHANED)), (1, 0), "the next write has collected");
    drop(writer);
    Ok(())
}

/// An upload stores pieces and is abandoned while the collection looks at an older state. The last pieces
/// must not leak.
#[test]
fn an_upload_given_up_while_blobs_are_collected_leaks_nothing() -> Result<()> {
    let db = open(&MemDisk::new(1));
    let mut writer = db.blobs("b").piece_bytes(1024)?.writer("k")?;
    writer.write_all(&[7; 10_000]).unwrap();
    let before = db.snapshot()?;
    writer.write_all(&[7; 10_000]).unwrap();
    assert_eq!(count(&db, PIECES), 16);
    drop(writer);
    let collected = step_as_of(&before, &db)?;
    assert_eq!((collected.freed, collected.more), (16, false));
    assert_eq!((count(&db, PIECES), count(&db, ORPHANED)), (0, 0));
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// A blob with more pieces than a step takes is collected in several steps, and listed as orphaned until the
/// last.
#[test]
fn a_large_blob_is_collected_in_steps() -> Result<()> {
    let db = open(&MemDisk::new(1));
    let blobs = db.blobs("b").piece_bytes(1024)?;
    let mut writer = blobs.writer("k")?;
    writer.write_all(&vec![7; 1_100 * 1024]).unwrap();
    drop(writer);
    for (freed, more) in [(512, true), (512, true), (72, false), (0, false)] {
        let collected = step(&db)?;
        assert_eq!((collected.freed, collected.more), (freed, more));
        assert!(db.check_documents()?.is_clean());
    }
    assert_eq!((count(&db, PIECES), count(&db, ORPHANED)), (0, 0));
    Ok(())
}

/// A check must find each way in which records and pieces can disagree.
#[test]
fn check_finds_pieces_that_do_not_fit() -> Result<()> {
    type Break = fn(&crate::Transaction<'_>, BlobId) -> Result<()>;
    let cases: [(Break, &str); 3] = [
        (
            |tx, id| {
                let tree = tx.shared().tree(PIECES)?.unwrap();
                tx.shared().delete(tree, &id.piece(1))
            },
            "blobs b k: it has 2 pieces, and its length makes 3",
        ),
        (
            |tx, _| {
                let tree = tx.shared().tree(PIECES)?.unwrap();
                tx.shared().put(tree, &BlobId([1; 16]).piece(0), b"lost")
            },
            "there are 4 pieces of blobs, and 3 belong to one",
        ),
        (
            |tx, id| crate::LocalReads::blobs(tx, "b").orphan(id),
            "blobs b k: it is also listed for collection",
        ),
    ];
    for (broken, wanted) in cases {
        let db = Db::in_memory()?;
        db.blobs("b").piece_bytes(1024)?.put("k", &[7; 3_000][..])?;
        let id = {
            let snapshot = db.snapshot()?;
            crate::LocalReads::blobs(&snapshot, "b").record(&crate::tuple::encode("k")?)?.unwrap().id
        };
        // Protected from collection, which would delete the pieces.
        db.open_state().uploads.begin(id, None);
        db.transact(|tx| broken(tx, id))?;
        let report = db.check_documents()?;
        assert!(report.problems.iter().any(|problem| problem.contains(wanted)), "{wanted}: {report:?}");
    }
    Ok(())
}
