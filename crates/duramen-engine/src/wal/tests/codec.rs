//! The codecs: what is encoded is decoded, and no bytes make them panic.

use crate::ids::Epoch;
use crate::wal::frame::{self, FRAME_HEADER_BYTES, FrameHeader, FrameKind, Part};
use crate::wal::place::place;
use crate::wal::segment::{HeaderFault, PreviousFrame, SegmentHeader, segment_path, slot_of};

use super::*;

fn segment_header() -> SegmentHeader {
    SegmentHeader {
        identity: identity(),
        slot: SegmentSlot(3),
        epoch: Epoch(9),
        incarnation: 77,
        segment_bytes: 4096,
        block_bytes: 512,
        first_seq: CommitSeq(40),
        durable_seq: CommitSeq(38),
        previous: PreviousFrame { epoch: Epoch(8), offset: 1024, checksum: 5 << 100 },
    }
}

fn frame_header() -> (FrameHeader, Vec<Part>) {
    let part = |seq, bytes, last| Part {
        bytes,
        seq: CommitSeq(seq),
        first: true,
        last,
        derived: !last,
        checksum: 8,
    };
    let header = FrameHeader {
        kind: FrameKind::Group,
        part_count: 2,
        payload_bytes: 30,
        epoch: Epoch(9),
        offset: 512,
        first_seq: CommitSeq(40),
        last_seq: CommitSeq(40),
        durable_seq: CommitSeq(38),
        commit_time_ns: 123,
        incarnation: 77,
        previous_checksum: 6 << 90,
    };
    (header, vec![part(40, 10, true), part(41, 20, false)])
}

#[test]
fn position_survives_encoding() {
    let position = LogPosition {
        slot: SegmentSlot(1),
        epoch: Epoch(2),
        offset: 512,
        seq: CommitSeq(3),
        checksum: 4 << 100,
    };
    assert_eq!(LogPosition::decode(&position.encode()), position);
}

#[test]
fn segment_header_survives_encoding_and_no_flip_passes() {
    let bytes = segment_header().encode();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(segment_header()));
    assert_eq!(SegmentHeader::decode(&[0; 256]), Err(HeaderFault::Blank));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(SegmentHeader::decode(&flipped), Err(HeaderFault::Corrupt(_))), "bit {bit}");
    }
}

#[test]
fn frame_survives_encoding_and_no_flip_passes() {
    let (header, parts) = frame_header();
    let (bytes, checksum) = frame::encode(&header, &parts, &identity());
    assert_eq!(frame::decode_header(&bytes, 4096), Ok(header));
    assert_eq!(frame::verify(&bytes, &header, &identity()), Ok((checksum, parts)));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = frame::decode_header(&flipped, 4096);
        assert!(read.and_then(|header| frame::verify(&flipped, &header, &identity())).is_err(), "bit {bit}");
    }
}

#[test]
fn frame_of_another_place_time_or_database_is_invalid() {
    let (header, parts) = frame_header();
    let (bytes, _) = frame::encode(&header, &parts, &identity());
    let others = [
        FrameHeader { offset: 1024, ..header },
        FrameHeader { epoch: Epoch(8), ..header },
        FrameHeader { incarnation: 78, ..header },
    ];
    for other in others {
        assert!(frame::verify(&bytes, &other, &identity()).is_err());
    }
    let other = LogIdentity { log: LogId(1), ..identity() };
    assert!(frame::verify(&bytes, &header, &other).is_err());
}

#[test]
fn random_bytes_are_refused_without_panic() {
    let seed = seed(11);
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    assert!(frame::decode_header(&[0; 512], 512).is_err());
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..draw.below(600)).map(|_| draw.next() as u8).collect();
        if bytes.len() >= FRAME_HEADER_BYTES {
            bytes[16..24].copy_from_slice(b"DuFr\x01\0\xa0\0");
            bytes[28..32].fill(0);
            bytes[88..112].fill(0);
            bytes[144..160].fill(0);
        }
        let room = draw.next() >> draw.below(64);
        if let Ok(header) = frame::decode_header(&bytes, room) {
            assert!(frame::verify(&bytes, &header, &identity()).is_err());
        }
        assert!(SegmentHeader::decode(&bytes).is_err());
    }
}

#[test]
fn only_our_file_names_are_slots() {
    assert_eq!(slot_of(&segment_path(dir(), SegmentSlot(7))), Some(SegmentSlot(7)));
    assert_eq!(slot_of(Path::new("123456789.wal")), Some(SegmentSlot(123_456_789)));
    for other in ["00000000.wal", "1.wal", "0000000a.wal", "00000001.wal~", "000000001.wal", "wal"] {
        assert_eq!(slot_of(Path::new(other)), None, "{other}");
    }
}

/// Every byte of every record lies in exactly one piece, in order, and no frame is larger than its room.
#[test]
fn placement_covers_every_record_once_and_fits() {
    let seed = seed(12);
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    for _ in 0..5000 {
        let records: Vec<usize> = (0..draw.below(6)).map(|_| draw.below(3000) as usize).collect();
        let current = draw.below(9) * 512;
        let fresh: Vec<u64> = (0..draw.below(8)).map(|_| 1536 + draw.below(9) * 512).collect();
        let Some(places) = place(&records, current, &fresh) else { continue };
        let mut reached = (0, 0);
        for place in &places {
            let room = if place.room_index == 0 { current } else { fresh[place.room_index - 1] };
            let bytes: usize = place.pieces.iter().map(|piece| 40 + piece.end - piece.start).sum();
            assert!(160 + bytes as u64 <= room);
            for piece in &place.pieces {
                assert_eq!((piece.record, piece.start), reached);
                assert_eq!(piece.last, piece.end == records[piece.record]);
                reached = if piece.last { (piece.record + 1, 0) } else { (piece.record, piece.end) };
            }
        }
        assert_eq!(reached, (records.len(), 0));
        assert!(places.windows(2).all(|pair| pair[0].room_index < pair[1].room_index));
    }
}
