//! The bytes of retained files: a file of this release must be read by every later one.

use std::collections::VecDeque;
use std::path::Path;

use duramen_disk::MemDisk;

use super::Wanted;
use super::file::{FileReader, FileWriter};
use super::frame::{FileHeader, FrameHeader, FramePlace, file_path, number_of};
use super::items;
use super::retained::{RetainedPart, State};
use crate::alarm::cause_of;
use crate::ids::{CommitSeq, DatabaseId, LogId, TreeId};
use crate::wal::LogIdentity;

const IDENTITY: LogIdentity = LogIdentity {
    database: DatabaseId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
    log: LogId(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_header_is_these_bytes() {
    let header = FileHeader { identity: IDENTITY, number: 3, block_bytes: 4096, after: CommitSeq(77) };
    let (bytes, checksum) = header.encode();
    let wanted = [
        "445552414d464544",
        "01000000",
        "00000000",
        "100f0e0d0c0b0a090807060504030201",
        "201f1e1d1c1b1a191817161514131211",
        "0300000000000000",
        "4d00000000000000",
        "00100000",
        "000000000000000000000000",
        "8b694b9a83839ad25a349074e6be608d",
    ];
    assert_eq!(hex(&bytes), wanted.concat());
    assert_eq!(FileHeader::decode(&bytes), Ok((header, checksum)));
}

#[test]
fn a_frame_with_every_kind_of_item_is_these_bytes() {
    let payload = [
        items::begin(CommitSeq(78), 5).as_slice(),
        &items::tree(TreeId(9), "rows"),
        &items::dropped(),
        &items::created(),
        &items::put(b"k", 2),
        b"vv",
        &items::deleted(b"gone"),
        &items::lost(b"l"),
        &items::end(),
    ]
    .concat();
    let payload_bytes = u32::try_from(payload.len()).unwrap();
    let header =
        FrameHeader { payload_bytes, whole: true, through: CommitSeq(78), time_ns: 5, previous: 0xabcd };
    let place = FramePlace { identity: IDENTITY, number: 3, offset: 4096 };
    let (bytes, checksum) = header.encode(&payload, &place);
    let wanted = [
        "7756545a06a0b8dec892cd476ee522b5",
        "44754665",
        "01000000",
        "3b000000",
        "00000000",
        "4e00000000000000",
        "0500000000000000",
        "cdab0000000000000000000000000000",
        "4e000000000000000500000000000000",
        "0109000000000000000400726f7773",
        "03",
        "02",
        "0401006b02000000000000007676",
        "050400676f6e65",
        "0601006c",
        "00",
    ];
    assert_eq!(hex(&bytes), wanted.concat());
    assert_eq!(FrameHeader::decode(&bytes, 1 << 20), Ok(header));
    assert_eq!(FrameHeader::verify(&bytes, &place), Ok(checksum));
    let elsewhere = FramePlace { offset: 8192, ..place };
    assert!(FrameHeader::verify(&bytes, &elsewhere).is_err());
}

/// A header with a valid checksum may hold anything: only block sizes that a database can have are accepted.
#[test]
fn a_header_with_impossible_blocks_is_refused() {
    for block_bytes in [0, 1, 256, 4095, 1 << 17, 1 << 31, u32::MAX] {
        let header = FileHeader { identity: IDENTITY, number: 3, block_bytes, after: CommitSeq(77) };
        assert!(FileHeader::decode(&header.encode().0).is_err(), "{block_bytes}");
    }
}

/// A file may hold more than is read of it: the next file has the same commits, and they come from there.
#[test]
fn a_commit_after_the_end_of_a_file_is_left_to_the_next_file() {
    let disk = MemDisk::new(1);
    let header = FileHeader { identity: IDENTITY, number: 1, block_bytes: 512, after: CommitSeq(0) };
    let mut writer = FileWriter::create(&disk, Path::new("/"), header).unwrap();
    for seq in 1..=3 {
        for item in [
            items::begin(CommitSeq(seq), 5).as_slice(),
            &items::tree(TreeId(9), "rows"),
            &items::created(),
            &items::end(),
        ] {
            writer.push(item).unwrap();
        }
    }
    writer.end_with(CommitSeq(3)).unwrap();
    for through in 1..=3 {
        let mut reader = FileReader::open(&disk, writer.path(), IDENTITY).unwrap().unwrap();
        let wanted =
            Wanted { after: CommitSeq(0), through: CommitSeq(through), bytes_max: 1 << 20, wants: &|_| true };
        let (mut found, mut read) = (VecDeque::new(), CommitSeq(0));
        reader.read(&wanted, &mut found, &mut read).unwrap();
        let found: Vec<u64> = found.iter().map(|commit| commit.seq.0).collect();
        assert_eq!((found, read), ((1..=through).collect(), CommitSeq(through)));
    }
}

/// The next file gets the next number: names of files of which there can be no next one are no names.
#[test]
fn a_name_is_that_of_a_file_only_if_others_can_follow_it() {
    let number = |number: u64| number_of(&file_path(Path::new("/db/feed"), number));
    assert_eq!([number(1), number(u64::MAX / 2 - 1)], [Some(1), Some(u64::MAX / 2 - 1)]);
    assert_eq!([number(0), number(u64::MAX / 2), number(u64::MAX)], [None; 3]);
    assert_eq!(number_of(Path::new("/db/feed/0000000000001.feed")), None, "another name of the same file");
}

fn part(number: u64, after: u64, through: u64) -> RetainedPart {
    RetainedPart {
        number,
        path: file_path(Path::new("/db/feed"), number),
        after: CommitSeq(after),
        through: CommitSeq(through),
        end_offset: 512 * through,
        time_ns: 0,
    }
}

#[test]
fn a_file_begins_where_the_last_one_ended() {
    let mut state = State::default();
    state.next_number = 9;
    state.add(part(3, 10, 20));
    state.add(part(3, 10, 25));
    state.add(part(4, 25, 30));
    for (wrong, what) in [
        (part(5, 31, 40), "follows file 4 to commit 30"),
        (part(5, 29, 40), "follows file 4 to commit 30"),
        (part(3, 30, 40), "follows file 4 to commit 30"),
        (part(9, 30, 40), "has a number given out"),
        (part(4, 25, 29), "goes on to commit 29"),
        (part(4, 24, 40), "goes on to commit 40"),
        (RetainedPart { end_offset: 512, ..part(4, 25, 40) }, "grows from"),
    ] {
        let message = cause_of(|| state.add(wrong));
        assert!(message.contains(what), "{message}");
    }
    assert!(state.relies_on(&file_path(Path::new("/db/feed"), 4)));
    assert!(!state.relies_on(&file_path(Path::new("/db/feed"), 5)));
}

#[test]
fn bytes_outside_of_a_frame_are_never_taken_for_durable() {
    let disk = MemDisk::new(2);
    let header = FileHeader { identity: IDENTITY, number: 1, block_bytes: 512, after: CommitSeq(0) };
    let mut writer = FileWriter::create(&disk, Path::new("/"), header).unwrap();
    writer.push(&[1]).unwrap();
    assert!(cause_of(|| drop(writer.sync())).contains("all bytes of file 1 are in frames"));
    writer.end_with(CommitSeq(1)).unwrap();
    writer.sync().unwrap();
    let frame = FrameHeader { payload_bytes: 2, whole: true, through: CommitSeq(1), time_ns: 0, previous: 0 };
    let place = FramePlace { identity: IDENTITY, number: 1, offset: 512 };
    assert!(cause_of(|| drop(frame.encode(&[1], &place))).contains("announced"));
}
