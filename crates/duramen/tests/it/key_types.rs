//! Types that programs have in keys and views: UUIDs, arrays of bytes, structs around ids, times of others.
//!
//! Documents and keys hold the same element, so that tools find what types write, and the reverse.

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::{ByteArray, Code, doc};
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Key)]
struct Digest(ByteArray<4>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "files",
    view(ByOwner, key = owner, reduce = (Count, Max(digest))),
    view(ByDigest, key = (digest, owner)),
    view(ByParent, key = parent)
)]
struct File {
    #[key]
    id: Uuid,
    owner: Uuid,
    digest: Digest,
    parent: Option<ByteArray<2>>,
}

fn file(n: u8) -> File {
    File {
        id: Uuid::from_bytes([n; 16]),
        owner: Uuid::from_bytes([n % 3; 16]),
        digest: Digest([0, n % 5, 0, 255].into()),
        parent: n.is_multiple_of(2).then_some(ByteArray([n, 0])),
    }
}

fn files() -> Db {
    let db = Db::in_memory().unwrap();
    (0..30).for_each(|n| drop(db.put(&file(n)).unwrap()));
    db
}

#[test]
fn uuids_and_bytes_are_keys() {
    let db = files();
    assert_eq!(db.get::<File>(Uuid::from_bytes([7; 16])).unwrap(), Some(file(7)));
    assert_eq!(db.collection::<File>().range(..Uuid::from_bytes([10; 16])).count().unwrap(), 10);
    let all: Vec<File> = (0..30).map(file).collect();
    assert_eq!(db.collection::<File>().to_vec().unwrap(), all);
    let owner = Uuid::from_bytes([1; 16]);
    let (count, max) = db.view::<ByOwner>().key(owner).reduce().unwrap();
    assert_eq!((count, max), (10, Some(Digest(ByteArray([0, 4, 0, 255])))));
    let digest = Digest(ByteArray([0, 2, 0, 255]));
    assert_eq!(db.view::<ByDigest>().prefix(digest).count().unwrap(), 6);
    assert_eq!(db.view::<ByDigest>().key((digest, owner)).count().unwrap(), 2);
    assert_eq!(db.view::<ByParent>().key([4, 0]).count().unwrap(), 1);
    assert_eq!(db.view::<ByParent>().key(ByteArray([4, 0])).docs().unwrap(), [file(4)]);
    assert!(db.check_documents().unwrap().is_clean());
}

// A tool knows bytes, not UUIDs; it must find the same documents, and its own must be read.
#[test]
fn tools_see_bytes_and_write_them() {
    let db = files();
    let tools = db.documents("files");
    let shown = tools.get([7_u8; 16]).unwrap().unwrap();
    assert_eq!(shown.get("owner"), Some(&Value::Bytes(vec![1; 16])));
    assert_eq!(shown.get("digest"), Some(&Value::Bytes(vec![0, 2, 0, 255])));
    let bytes = |byte: u8, count: usize| Value::Bytes(vec![byte; count]);
    let new =
        doc! { "id": bytes(99, 16), "owner": bytes(1, 16), "digest": bytes(9, 4), "parent": Value::Null };
    tools.put(new).unwrap();
    let read = db.get::<File>(Uuid::from_bytes([99; 16])).unwrap().unwrap();
    assert_eq!(read.digest, Digest(ByteArray([9; 4])));
    assert_eq!(db.view::<ByOwner>().key(read.owner).reduce().unwrap(), (11, Some(read.digest)));
    let short =
        doc! { "id": bytes(98, 16), "owner": bytes(1, 16), "digest": bytes(9, 3), "parent": Value::Null };
    tools.put(short).unwrap();
    let error = db.get::<File>(Uuid::from_bytes([98; 16])).unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    assert!(error.message().contains("an array of 4 bytes"), "{error}");
}

#[test]
fn an_array_of_bytes_is_read_from_lists_too() {
    let json = serde_json::to_string(&ByteArray([1, 2, 255])).unwrap();
    assert_eq!(serde_json::from_str::<ByteArray<3>>(&json).unwrap(), ByteArray([1, 2, 255]));
    assert!(serde_json::from_str::<ByteArray<2>>(&json).is_err());
    assert!(serde_json::from_str::<ByteArray<4>>(&json).is_err());
    assert_eq!(format!("{:?}", ByteArray([1, 255])), "01ff");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Key)]
struct TicketId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
struct NoteId(u32);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Ticket {
    #[key(assigned)]
    id: TicketId,
    title: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(view(NotesOf, key = ticket))]
struct Note {
    #[key(sequential)]
    id: NoteId,
    ticket: TicketId,
}

#[test]
fn a_struct_around_an_id_is_assigned() {
    let db = Db::in_memory().unwrap();
    let push = |title: &str| db.push(Ticket { id: TicketId(0), title: title.into() }).unwrap().id;
    let (first, second) = (push("first"), push("second"));
    assert_eq!((&first, &second), (&TicketId(1), &TicketId(2)));
    for expected in 1..=3 {
        let note = db.push(Note { id: NoteId(0), ticket: second.clone() }).unwrap();
        assert_eq!(note.id, NoteId(expected));
    }
    assert_eq!(db.get::<Ticket>(first).unwrap().unwrap().title, "first");
    assert_eq!(db.view::<NotesOf>().key(second).count().unwrap(), 3);
    assert_eq!(db.documents("ticket").get(2).unwrap().unwrap().get("id"), Some(&Value::Int(2)));
}

// Zero bytes are escaped in keys; neighbours must stay neighbours.
#[test]
fn bytes_are_ordered_as_bytes() {
    let mut all: Vec<[u8; 2]> = (0..=255).flat_map(|a| [[a, 0], [a, 1], [0, a], [a, 255]]).collect();
    all.sort_unstable();
    all.dedup();
    let keys: Vec<Vec<u8>> = all.iter().map(|bytes| duramen::tuple::encode(bytes).unwrap()).collect();
    assert!(keys.is_sorted());
    for (bytes, key) in all.iter().zip(&keys) {
        assert_eq!(duramen::tuple::decode(key).unwrap(), [Element::Bytes(bytes.to_vec())]);
    }
}

#[test]
fn times_of_other_crates_are_times() {
    #[track_caller]
    fn check(text: &str) {
        let time = Time::parse(text).unwrap();
        let chrono: chrono::DateTime<chrono::Utc> = time.try_into().unwrap();
        assert_eq!(
            (chrono.timestamp(), chrono.timestamp_subsec_nanos()),
            (time.seconds(), time.nanoseconds())
        );
        assert_eq!(Time::from(chrono), time);
        let jiff: jiff::Timestamp = time.try_into().unwrap();
        assert_eq!(Time::from(jiff), time);
        assert_eq!(text.parse::<jiff::Timestamp>().unwrap(), jiff);
    }
    check("2026-11-21T10:00:00Z");
    check("2026-11-21T10:00:00.123456789Z");
    check("1970-01-01T00:00:00Z");
    check("1969-12-31T23:59:59.5Z");
    check("0001-01-01T00:00:00.000000001Z");
    let far = Time::new(i64::MAX, 0).unwrap();
    assert!(chrono::DateTime::<chrono::Utc>::try_from(far).is_err());
    assert_eq!(jiff::Timestamp::try_from(far).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn now_is_after_this_was_written() {
    assert!(Time::now() > Time::parse("2026-01-01T00:00:00Z").unwrap());
}
