//! Blobs as a program uses them: whole or absent, read while they are replaced, attached with documents, and
//! freed.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use duramen::blobs::{Blobs, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Upload};
use duramen::prelude::*;
use duramen::{Code, MemDisk};
use duramen_engine::Background;

fn open_on(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

/// Small pieces: eight of them are stored in a transaction.
fn small(db: &Db) -> Blobs {
    db.blobs("b").piece_bytes(1024).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 251).unwrap()).collect()
}

fn read(blobs: &Blobs, key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reader = blobs.get(key).unwrap().unwrap();
    reader.verify().unwrap();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Lengths around pieces and transactions, down to nothing.
#[test]
fn what_goes_in_comes_out_whatever_its_length() -> Result<()> {
    let db = Db::in_memory()?;
    let blobs = small(&db);
    for length in [0, 1, 1023, 1024, 1025, 8 * 1024 - 1, 8 * 1024, 8 * 1024 + 1, 16 * 1024, 40_000] {
        let bytes = pattern(length);
        let info = blobs.put("k", &bytes[..])?;
        assert_eq!(info.len, length as u64);
        assert_eq!(read(&blobs, "k"), bytes, "{length} bytes");
        assert_eq!(blobs.info("k")?, Some(info));
        let report = db.check_documents()?;
        assert!(report.is_clean() && report.blobs == 1, "{report:?}");
    }
    let abc = blobs.put("abc", &b"abc"[..])?;
    let hex: String = abc.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    Ok(())
}

#[test]
fn ranges_and_seeks_read_what_they_say() -> Result<()> {
    let db = Db::in_memory()?;
    let bytes = pattern(5_000);
    small(&db).put("k", &bytes[..])?;
    for (from, to) in
        [(0, 5_000), (1_000, 1_030), (1_024, 2_048), (4_990, 9_000), (7_000, 8_000), (3, 3), (9, 4)]
    {
        let mut found = Vec::new();
        let mut reader = db.blobs("b").range("k", from as u64..to as u64)?.unwrap();
        reader.read_to_end(&mut found).unwrap();
        let to = to.min(5_000);
        let wanted = &bytes[from.min(to)..to];
        assert_eq!((&found[..], reader.len()), (wanted, wanted.len() as u64), "{from}..{to}");
    }
    let mut reader = db.blobs("b").range("k", 100..4_000)?.unwrap();
    let mut two = [0; 2];
    assert_eq!(reader.seek(SeekFrom::End(-2)).unwrap(), 3_898);
    reader.read_exact(&mut two).unwrap();
    assert_eq!(two, bytes[3_998..4_000]);
    assert_eq!(reader.seek(SeekFrom::Start(1_000)).unwrap(), 1_000);
    assert_eq!(reader.seek(SeekFrom::Current(-999)).unwrap(), 1);
    reader.read_exact(&mut two).unwrap();
    assert_eq!(two, bytes[101..103]);
    assert!(reader.seek(SeekFrom::Current(-4)).is_err());
    assert_eq!(reader.seek(SeekFrom::End(5)).unwrap(), 3_905);
    assert_eq!(reader.read(&mut two).unwrap(), 0);
    Ok(())
}

/// A concurrent upload must not break a download.
#[test]
fn a_blob_that_is_being_read_stays_whole() -> Result<()> {
    let db = Db::in_memory()?;
    let blobs = small(&db);
    blobs.put("k", &pattern(20_000)[..])?;
    let mut reader = blobs.get("k")?.unwrap();
    let mut found = vec![0; 100];
    reader.read_exact(&mut found).unwrap();
    blobs.put("k", &b"other"[..])?;
    assert!(blobs.delete("k")?);
    db.sweep_blobs()?;
    reader.read_to_end(&mut found).unwrap();
    assert_eq!(found, pattern(20_000));
    assert!(blobs.get("k")?.is_none());
    assert!(!blobs.delete("k")?);
    Ok(())
}

#[test]
fn an_upload_is_attached_with_documents_or_not_at_all() -> Result<()> {
    let db = Db::in_memory()?;
    let users = db.ensure(&Schema::new("users").key(["id"]))?;
    let blobs = small(&db);
    blobs.put(7_u64, &pattern(3_000)[..])?;
    let upload = blobs.upload(&pattern(20_000)[..])?;
    let failed = db.transact(|tx| {
        tx.documents("users").put(doc! { "id": 7 })?;
        tx.blobs("b").attach(7_u64, &upload)?;
        assert_eq!(tx.blobs("b").info(7_u64)?, Some(upload.info()));
        Err::<(), _>(Error::invalid("no"))
    });
    assert!(failed.is_err());
    assert_eq!((users.count(Span::all())?, blobs.info(7_u64)?.unwrap().len), (0, 3_000));
    db.transact(|tx| {
        tx.documents("users").put(doc! { "id": 7 })?;
        tx.blobs("b").attach(7_u64, &upload)
    })?;
    assert_eq!(blobs.info(7_u64)?, Some(upload.info()));
    let error = db.transact(|tx| tx.blobs("b").attach("again", &upload)).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let other = Db::in_memory()?;
    assert!(other.transact(|tx| tx.blobs("b").attach(7_u64, &upload)).is_err());
    drop(upload);
    assert_eq!(db.sweep_blobs()?, 0, "what was replaced was collected with the commit");
    db.transact(|tx| {
        tx.documents("users").delete(7)?;
        tx.blobs("b").delete(7_u64).map(|was_there| assert!(was_there))
    })?;
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// The program may drop an upload between attaching it and the commit. Its pieces stay, unless it is rolled
/// back.
#[test]
fn an_upload_that_is_dropped_before_the_commit_is_whole() -> Result<()> {
    let db = open_on(&MemDisk::new(1));
    let sweep = || std::thread::scope(|scope| scope.spawn(|| db.sweep_blobs()).join().unwrap());
    // More pieces than are deleted at once: the collector would leave the upload listed after some of them.
    let bytes = pattern(600_000);
    for commits in [false, true] {
        let mut upload = Some(small(&db).upload(&bytes[..])?);
        let done = db.transact(|tx| {
            tx.blobs("b").attach("k", &upload.take().expect("it runs once"))?;
            assert_eq!(sweep()?, 0);
            if commits { Ok(()) } else { Err(Error::invalid("no")) }
        });
        assert_eq!(done.is_ok(), commits);
        assert_eq!(sweep()? > 0, !commits);
    }
    assert_eq!(read(&small(&db), "k"), bytes);
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// An upload of an earlier opening may be collected already or soon: attached, its record would name pieces
/// that are gone.
#[test]
fn an_upload_of_an_earlier_opening_is_refused() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open_on(&disk);
    let upload = small(&db).upload(&pattern(20_000)[..])?;
    db.close()?;
    drop(db);
    let db = open_on(&disk);
    check_refused(&db, &upload)
}

/// A backup that is taken in the middle of an upload holds its first pieces only.
#[test]
fn an_upload_of_the_original_is_refused_in_a_backup() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open_on(&disk);
    let mut writer = small(&db).writer("k")?;
    writer.write_all(&pattern(20_000)).unwrap();
    db.backup("/copy")?;
    let upload = writer.finish_unattached()?;
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    let copy = options.open_on(Arc::new(disk.clone()), "/copy")?;
    check_refused(&copy, &upload)?;
    db.transact(|tx| tx.blobs("b").attach("k", &upload))?;
    assert_eq!(read(&small(&db), "k"), pattern(20_000));
    Ok(())
}

fn check_refused(db: &Db, upload: &Upload) -> Result<()> {
    let error = db.transact(|tx| tx.blobs("b").attach("k", upload)).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.hint().contains("again"), "{error}");
    assert!(db.blobs("b").info("k")?.is_none());
    db.sweep_blobs()?;
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

#[test]
fn blobs_are_renamed_and_listed() -> Result<()> {
    let db = Db::in_memory()?;
    let blobs = small(&db);
    for key in ["a", "b", "c"] {
        blobs.writer(key)?.content_type("text/plain").finish()?;
    }
    blobs.put("c", &pattern(9_999)[..])?;
    assert!(blobs.rename("c", "a")?);
    assert!(blobs.rename("a", "a")?);
    assert!(!blobs.rename("c", "b")?);
    assert_eq!(read(&blobs, "a"), pattern(9_999));
    let listed: Vec<_> = blobs.scan::<String>(Span::all())?.map(Result::unwrap).collect();
    assert_eq!(
        listed.iter().map(|(key, info)| (key.as_str(), info.len)).collect::<Vec<_>>(),
        [("a", 9_999), ("b", 0)]
    );
    assert_eq!(listed[1].1.content_type.as_deref(), Some("text/plain"));
    assert_eq!(blobs.count(Span::prefix("a")?)?, 1);
    assert_eq!(db.snapshot()?.blob_namespaces()?, ["b"]);
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

#[test]
fn what_cannot_be_is_refused() -> Result<()> {
    let db = Db::in_memory()?;
    assert_eq!(db.blobs("").put("k", &b""[..]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(db.blobs("b").put("k".repeat(2_000), &b""[..]).unwrap_err().code(), Code::KeyTooLong);
    for bytes in [PIECE_BYTES_MIN - 1, PIECE_BYTES_MAX + 1] {
        assert_eq!(db.blobs("b").piece_bytes(bytes).unwrap_err().code(), Code::InvalidArgument);
    }
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the line is cut"))
        }
    }
    let error = small(&db).put("k", pattern(20_000).chain(Broken)).unwrap_err();
    assert!(error.message().contains("the line is cut"), "{error}");
    assert!(db.blobs("b").info("k")?.is_none());
    db.sweep_blobs()?;
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// On a full disk an upload fails, nothing of it stays, and there is room again.
#[test]
fn a_full_disk_refuses_a_blob_and_keeps_nothing_of_it() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open_on(&disk);
    db.blobs("b").put("k", &pattern(1000)[..])?;
    disk.set_capacity(Some(disk.used_bytes() + (24 << 20)));
    let mut writer = db.blobs("b").writer("large")?;
    let piece = pattern(PIECE_BYTES_MAX);
    let failed = (0..64).find_map(|_| writer.write_all(&piece).err()).expect("it is larger than the disk");
    assert_eq!(Error::from_io(failed).code(), Code::DiskFull);
    let again = Error::from_io(writer.write_all(&piece).unwrap_err());
    assert_eq!(again.code(), Code::System, "an error that is none of the database: {again}");
    assert_eq!(writer.finish().unwrap_err().code(), Code::InvalidArgument);
    db.sweep_blobs()?;
    assert!(db.check_documents()?.is_clean());
    assert_eq!(read(&db.blobs("b"), "k"), pattern(1000));
    Ok(())
}

/// Deleted blobs must not keep the disk full: the same space is used again and again.
#[test]
fn deleted_blobs_give_their_space_back() -> Result<()> {
    let disk = MemDisk::new(1);
    let mut db = open_on(&disk);
    let mut first = None;
    for _ in 0..5 {
        db.blobs("b").put("k", io::repeat(7).take(12 << 20))?;
        assert!(db.blobs("b").delete("k")?);
        assert_eq!(db.sweep_blobs()?, 0, "the delete has collected it");
        db.close()?;
        drop(db);
        let used = *first.get_or_insert(disk.used_bytes());
        assert!(disk.used_bytes() <= used + used / 2, "{} bytes, first {used}", disk.used_bytes());
        db = open_on(&disk);
    }
    Ok(())
}
