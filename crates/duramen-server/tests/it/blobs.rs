//! Blobs by a server: whole or not at all, in constant memory, and nothing is left of uploads that were given
//! up.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::{Code, ErrorKind};
use duramen_client::Remote;
use duramen_proto::v1;
use duramen_server::{Limits, Server};

use crate::Served;

fn remote(served: &Served) -> Remote {
    Remote::connect(served.path().to_str().expect("text")).expect("a connection")
}

/// Bytes that no two places share.
fn bytes(count: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_le_bytes).take(count).collect()
}

/// The stored pieces of all blobs.
fn pieces(db: &Db) -> u64 {
    let snapshot = db.snapshot().expect("a snapshot");
    let trees = snapshot.trees().expect("read");
    let pieces = trees.iter().find(|tree| tree.name == "duramen/blob-pieces");
    pieces.map_or(0, |tree| snapshot.tree_len(tree).expect("read"))
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

fn read(mut from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).expect("read");
    all
}

#[test]
fn blobs_go_in_and_out_as_they_are() {
    let served = Served::new();
    let db = remote(&served);
    let blobs = db.blobs("files");
    let large = bytes(3_500_001);
    for (name, content) in [("empty", &[][..]), ("small", b"nine byte"), ("large", &large)] {
        let stored = blobs.put(name, content).expect("stored");
        assert_eq!(stored.len, content.len() as u64);
        let of_library = served.db.blobs("files").info(name).expect("read").expect("it is there");
        assert_eq!(stored, of_library, "{name}");
        assert_eq!(blobs.info(name).expect("read"), Some(of_library));
        let mut reader = blobs.get(name).expect("read").expect("it is there");
        assert_eq!((reader.len(), reader.info()), (stored.len, stored));
        assert_eq!(read(&mut reader), content, "{name}");
        assert_eq!(read(served.db.blobs("files").get(name).expect("read").expect("there")), content);
    }
    assert!(served.db.check_documents().expect("checked").is_clean());
    for (from, to) in
        [(0, 10), (1_048_570, 1_048_580), (3_499_000, 9_000_000), (7, 7), (9_000_000, 9_000_001)]
    {
        let part = blobs.range("large", from..to).expect("read").expect("it is there");
        let [from, to] = [from, to].map(|at| usize::try_from(at).expect("small"));
        let wanted = large.get(from..to.min(large.len())).unwrap_or_default();
        assert_eq!(part.len(), wanted.len() as u64);
        assert!(read(part) == wanted, "{from}..{to}");
    }
    let mut reader = blobs.range("large", 1_000..3_000_000).expect("read").expect("it is there");
    for at in [0_u64, 2_500_000, 17] {
        assert_eq!(reader.seek(SeekFrom::Start(at)).expect("moved"), at);
        let mut some = [0; 100];
        reader.read_exact(&mut some).expect("read");
        let at = usize::try_from(at).expect("small") + 1_000;
        assert_eq!(some, large[at..at + 100]);
    }
    assert!(reader.seek(SeekFrom::Current(-1_000)).is_err(), "before what was opened");
    assert!(blobs.get("none").expect("read").is_none());
    assert!(blobs.info("none").expect("read").is_none());
}

#[test]
fn a_writer_sets_the_type_and_replaces_and_renames_and_deletes() {
    let served = Served::new();
    let db = remote(&served);
    let blobs = db.blobs("files");
    let mut writer = blobs.writer((1_u64, "a")).expect("begun").content_type("text/plain");
    for _ in 0..1_000 {
        writer.write_all(&[b'x'; 777]).expect("written");
    }
    let stored = writer.finish().expect("stored");
    assert_eq!((stored.len, stored.content_type.as_deref()), (777_000, Some("text/plain")));
    blobs.put((1_u64, "a"), &b"another"[..]).expect("stored");
    assert!(blobs.rename((1_u64, "a"), (2_u64, "b")).expect("done"));
    assert!(!blobs.rename((1_u64, "a"), (2_u64, "b")).expect("done"), "there is none");
    assert_eq!(read(blobs.get((2_u64, "b")).expect("read").expect("there")), b"another");
    assert!(blobs.delete((2_u64, "b")).expect("done"));
    assert!(!blobs.delete((2_u64, "b")).expect("done"));
    until("what was replaced and deleted is freed", || pieces(&served.db) == 0);
}

#[test]
fn a_list_goes_on_page_by_page() {
    let served = Served::new();
    let db = remote(&served);
    let blobs = db.blobs("files");
    for number in 0..2_345_u64 {
        served.db.blobs("files").put(number, &number.to_le_bytes()[..]).expect("stored");
    }
    let all = blobs.scan::<u64>(Span::all()).map(|found| found.expect("read").0);
    assert!(all.eq(0..2_345));
    let some = blobs.scan::<u64>(Span::between(1_000_u64, 2_000_u64).expect("a span"));
    assert_eq!(some.count(), 1_000);
    let request = v1::ListBlobsRequest { namespace: "files".to_owned(), limit: 3, ..Default::default() };
    let page = served.client.list_blobs(request.clone()).expect("read");
    assert_eq!(page.blobs.len(), 3);
    let other =
        v1::ListBlobsRequest { namespace: "others".to_owned(), page_token: page.page_token, ..request };
    let refused = served.client.list_blobs(other).expect_err("a token of another namespace");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(blobs.scan::<u64>(Span::all()).count(), 2_345);
    assert_eq!(db.blobs("none").scan::<u64>(Span::all()).count(), 0);
    let wrong = blobs.scan::<String>(Span::all()).next().expect("one").expect_err("they are numbers");
    assert_eq!(wrong.code(), Code::InvalidArgument);
}

#[test]
fn a_transaction_attaches_an_upload_once_with_its_other_writes() {
    let served = Served::new();
    let db = remote(&served);
    let upload = db.blobs("files").upload(&bytes(2_000_000)[..]).expect("stored");
    assert_eq!(upload.info().len, 2_000_000);
    assert!(db.blobs("files").info("a").expect("read").is_none(), "it has no key yet");
    let failed = db.transact(|tx| {
        tx.blobs("files").attach("a", &upload)?;
        Err::<(), _>(Error::invalid("the closure fails"))
    });
    assert!(failed.is_err() && db.blobs("files").info("a").expect("read").is_none());
    let elsewhere = db.transact(|tx| tx.blobs("others").attach("a", &upload)).expect_err("for `files`");
    assert_eq!(elsewhere.code(), Code::InvalidArgument);
    db.transact(|tx| {
        tx.kv("owners").put("a", &true)?;
        tx.blobs("files").attach("a", &upload)
    })
    .expect("committed");
    assert_eq!(read(db.blobs("files").get("a").expect("read").expect("there")), bytes(2_000_000));
    let again = db.transact(|tx| tx.blobs("files").attach("b", &upload)).expect_err("it has a key");
    assert_eq!((again.code(), again.kind()), (Code::InvalidArgument, ErrorKind::Invalid));
    let in_one = db.transact(|tx| {
        assert!(tx.blobs("files").rename("a", "c")?);
        tx.blobs("files").delete("c")
    });
    assert!(in_one.expect("committed"));
    until("it is freed", || pieces(&served.db) == 0);
}

#[test]
fn an_upload_that_is_given_up_leaves_nothing() {
    let served = Served::new();
    let db = remote(&served);
    let mut dropped = db.blobs("files").writer("a").expect("begun");
    dropped.write_all(&bytes(20 << 20)).expect("sent");
    until("it is on its way", || pieces(&served.db) > 0);
    drop(dropped);
    until("what was stored of it is deleted", || pieces(&served.db) == 0);
    // A stream that ends before its last message is not a whole blob.
    let mut cut = served.client.upload().expect("begun");
    cut.send(v1::UploadRequest { namespace: "files".to_owned(), ..Default::default() }).expect("sent");
    for _ in 0..4 {
        cut.send(v1::UploadRequest { bytes: bytes(1 << 20).into(), ..Default::default() }).expect("sent");
    }
    until("it is on its way", || pieces(&served.db) > 0);
    drop(cut);
    until("what was stored of it is deleted", || pieces(&served.db) == 0);
    assert!(served.db.check_documents().expect("checked").is_clean());
}

#[test]
fn an_upload_may_be_slow_and_not_silent() {
    let mut limits = Limits::default();
    let silence = Duration::from_secs(6);
    limits.upload_silence = silence;
    let served = Served::with(|server| server.limits(limits));
    let db = remote(&served);
    let mut slow = db.blobs("files").writer("a").expect("begun");
    slow.write_all(&bytes(3 << 20)).expect("sent");
    let written = Instant::now();
    until("longer than the silence that is let pass", || written.elapsed() > 2 * silence);
    slow.finish().expect("the client says that it is there");
    // An upload that has ended says so, however often it is asked.
    let mut wrong = served.client.upload().expect("begun");
    // Of some length: HTTP/2 closes a connection that sends many tiny frames.
    let first = || v1::UploadRequest {
        namespace: "files".to_owned(),
        bytes: bytes(1_000).into(),
        ..Default::default()
    };
    let ended = (0..).find_map(|_| wrong.send(first()).err()).expect("only the first has names");
    assert_eq!(
        (ended.code(), wrong.send(first()).expect_err("over").code()),
        (Code::InvalidArgument, Code::InvalidArgument)
    );
    assert_eq!(wrong.finish().expect_err("over").code(), Code::InvalidArgument);
}

#[test]
fn uploads_have_places_and_a_time() {
    let mut limits = Limits::default();
    (limits.uploads_kept, limits.upload_kept) = (2, Duration::from_millis(700));
    let served = Served::with(|server| server.limits(limits));
    let db = remote(&served);
    let (first, _second) = (db.blobs("a").upload(&bytes(9 << 20)[..]), db.blobs("a").upload(&b"2"[..]));
    let first = first.expect("stored");
    let refused = served.client.upload().and_then(|mut upload| {
        let only = v1::UploadRequest { namespace: "a".to_owned(), is_last: true, ..Default::default() };
        upload.send(only)?;
        upload.finish()
    });
    assert_eq!(refused.expect_err("there are two").code(), Code::Overloaded);
    until("their time is over", || pieces(&served.db) == 0);
    let late = db.transact(|tx| tx.blobs("a").attach("k", &first)).expect_err("it is gone");
    assert_eq!(late.code(), Code::InvalidArgument);
    db.blobs("a").put("k", &b"3"[..]).expect("there is a place again");
}

#[test]
fn a_retry_of_an_attach_gets_the_first_answer() {
    let served = Served::new();
    let upload = {
        let mut upload = served.client.upload().expect("begun");
        let namespace = "files".to_owned();
        let only =
            v1::UploadRequest { namespace, bytes: vec![5; 10].into(), is_last: true, ..Default::default() };
        upload.send(only).expect("sent");
        upload.finish().expect("stored").upload
    };
    let key = Some(duramen_proto::key::of(&[duramen::tuple::Element::Text("k".to_owned())]));
    let attach = v1::AttachBlob { namespace: "files".to_owned(), key, upload };
    let operations = vec![v1::Operation { kind: Some(v1::operation::Kind::AttachBlob(attach)) }];
    let request_id = served.client.new_request_id().expect("an id");
    let write = Some(v1::Write { request_id, ..Default::default() });
    let batch = v1::BatchRequest { write, operations, ..Default::default() };
    let first = served.client.batch(batch.clone()).expect("attached");
    let again = served.client.batch(batch).expect("told again");
    assert_eq!(first.results, again.results);
    assert!(again.receipt.is_some_and(|receipt| receipt.repeated));
    assert_eq!(read(served.db.blobs("files").get("k").expect("read").expect("there")), [5; 10]);
}

#[test]
fn a_download_goes_on_in_newer_states_of_the_same_blob() {
    let mut limits = Limits::default();
    limits.download_state = Duration::ZERO;
    let served = Served::with(|server| server.limits(limits));
    let db = remote(&served);
    let content = bytes(9 << 20);
    db.blobs("files").put("a", &content[..]).expect("stored");
    assert!(read(db.blobs("files").get("a").expect("read").expect("there")) == content);
    let mut reader = db.blobs("files").get("a").expect("read").expect("it is there");
    reader.read_exact(&mut [0; 1_000]).expect("read");
    served.db.blobs("files").put("a", &content[1..]).expect("stored");
    let changed = reader.read_to_end(&mut Vec::new()).expect_err("it is another blob now");
    assert_eq!(Error::from_io(changed).code(), Code::DocumentChanged);
}

/// A stream that nobody reads ends alone: the connection goes on.
#[test]
fn a_reader_that_rests_goes_on_and_keeps_its_connection() {
    let mut limits = Limits::default();
    limits.unread_replies = Duration::from_secs(2);
    let served = Served::with(|server| server.limits(limits));
    let db = remote(&served);
    let content = bytes(9 << 20);
    db.blobs("files").put("a", &content[..]).expect("stored");
    let mut reader = db.blobs("files").get("a").expect("read").expect("it is there");
    let mut found = vec![0; 1_000];
    reader.read_exact(&mut found).expect("read");
    let mut stream = db.client().transactions().expect("opened");
    // A state that is held shows once a newer one is there.
    served.db.kv("others").put("a", &1).expect("stored");
    until("the server has given its state back", || served.db.held_snapshots().is_empty());
    reader.read_to_end(&mut found).expect("it goes on");
    assert!(found == content);
    let begun = stream.ask(v1::transact_request::Kind::Begin(v1::Begin::default()));
    begun.expect("the stream is still there");
}

/// While a program holds an upload nothing of it is collected, also if its blob is gone already.
#[test]
fn a_blob_that_is_deleted_while_its_upload_is_held_is_freed_afterwards() {
    let served = Served::new();
    let blobs = served.db.blobs("files");
    let upload = blobs.upload(&bytes(9 << 20)[..]).expect("stored");
    served.db.transact(|tx| tx.blobs("files").attach("a", &upload)).expect("attached");
    assert!(blobs.delete("a").expect("deleted") && pieces(&served.db) > 0);
    drop(upload);
    until("it is freed", || pieces(&served.db) == 0);
}

#[test]
fn uploads_that_are_never_attached_end_with_the_server() {
    let mut served = Served::new();
    let upload = remote(&served).blobs("files").upload(&bytes(9 << 20)[..]).expect("stored");
    assert!(upload.info().len > 0 && pieces(&served.db) > 0);
    drop(served.server.take());
    until("they are deleted", || pieces(&served.db) == 0);
}

#[test]
fn a_reader_goes_on_after_the_server_was_away() {
    let mut served = Served::new();
    let db = remote(&served);
    let content = bytes(40 << 20);
    db.blobs("files").put("a", &content[..]).expect("stored");
    let mut reader = db.blobs("files").get("a").expect("read").expect("it is there");
    let mut found = vec![0; 1_000_000];
    reader.read_exact(&mut found).expect("read");
    drop(served.server.take());
    served.server = Some(Server::builder(served.db.clone()).start().expect("a server"));
    reader.read_to_end(&mut found).expect("it goes on");
    assert!(found == content);

    let mut reader = db.blobs("files").get("a").expect("read").expect("it is there");
    reader.read_exact(&mut found[..1_000_000]).expect("read");
    drop(served.server.take());
    served.db.blobs("files").put("a", &content[1..]).expect("stored");
    served.server = Some(Server::builder(served.db.clone()).start().expect("a server"));
    let changed = reader.read_to_end(&mut found).expect_err("it is another blob now");
    assert_eq!(Error::from_io(changed).code(), Code::DocumentChanged);
}

/// The error of an upload of these messages, and a last one.
fn refused(served: &Served, messages: Vec<v1::UploadRequest>) -> Code {
    let last = v1::UploadRequest { is_last: true, ..Default::default() };
    let messages = messages.into_iter().chain([last]);
    let mut uploading = served.client.upload().expect("begun");
    for message in messages {
        if let Err(error) = uploading.send(message) {
            return error.code();
        }
    }
    uploading.finish().expect_err("it is refused").code()
}

#[test]
fn uploads_that_are_none_are_refused() {
    let served = Served::new();
    let first = || v1::UploadRequest { namespace: "files".to_owned(), ..Default::default() };
    let piece = |count: usize| v1::UploadRequest { bytes: vec![1; count].into(), ..Default::default() };
    assert_eq!(refused(&served, vec![piece(1)]), Code::InvalidArgument, "no namespace");
    assert_eq!(refused(&served, vec![first(), first()]), Code::InvalidArgument);
    assert_eq!(refused(&served, vec![first(), piece((1 << 20) + 1)]), Code::TooLarge);
    assert_eq!(refused(&served, vec![first(), piece(2 << 20)]), Code::TooLarge, "before it is read");
    let long = v1::UploadRequest { content_type: "x".repeat(256), ..first() };
    assert_eq!(refused(&served, vec![long]), Code::InvalidArgument);
    let long = v1::UploadRequest { namespace: "x".repeat(2_000), ..first() };
    assert_eq!(refused(&served, vec![long]), Code::InvalidArgument);
    let mut uploads = Vec::new();
    for number in 0..=32 {
        let mut upload = served.client.upload().expect("begun");
        upload.send(first()).expect("sent");
        for _ in 0..4 {
            if number < 32 {
                upload.send(piece(1 << 20)).expect("all of them have room");
            }
        }
        uploads.push(upload);
    }
    let last = uploads.pop().expect("the last");
    assert_eq!(last.finish().expect_err("32 are under way").code(), Code::Overloaded);
    for mut upload in uploads {
        upload.send(v1::UploadRequest { is_last: true, ..piece(7) }).expect("sent");
        assert_eq!(upload.finish().expect("stored").info.expect("told").length, (4 << 20) + 7);
    }
}
