//! Decides which records go into which frame, and where a record is cut. Pure arithmetic.

use super::frame::{FRAME_HEADER_BYTES, PART_ENTRY_BYTES};
use super::layout::{BLOCK_BYTES_MIN, to_usize};

/// A record is not cut to fill fewer free bytes than this.
const PIECE_BYTES_MIN: u64 = 64;

const _: () = assert!(
    (FRAME_HEADER_BYTES + PART_ENTRY_BYTES) as u64 + PIECE_BYTES_MIN <= BLOCK_BYTES_MIN as u64,
    "every fresh segment takes a piece, so that enough of them take a group"
);

/// A record, or the part of it that one frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the record in the group.
    pub(super) record: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) last: bool,
}

/// One frame to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// 0 is the current segment, `n` the `n`th fresh one.
    pub(super) room_index: usize,
    pub(super) pieces: Vec<Piece>,
}

/// Lays out records of these lengths over the room in the current segment and in fresh ones.
///
/// A group that fits whole into the current segment or the next is one frame, so that it costs one write.
/// Only a group larger than the next segment is cut; it then fills the rest of the current one too. Returns
/// `None` if one more fresh segment is needed.
pub(super) fn place(record_bytes: &[usize], current_room: u64, fresh_rooms: &[u64]) -> Option<Vec<Place>> {
    let all_bytes = frame_bytes(record_bytes.iter().copied());
    if all_bytes <= current_room {
        return Some(vec![Place { room_index: 0, pieces: whole(record_bytes) }]);
    }
    if all_bytes <= *fresh_rooms.first()? {
        return Some(vec![Place { room_index: 1, pieces: whole(record_bytes) }]);
    }
    let mut places = Vec::new();
    let mut next = Piece { record: 0, start: 0, end: 0, last: false };
    for (room_index, &room) in std::iter::once(&current_room).chain(fresh_rooms).enumerate() {
        let pieces = fill(record_bytes, room, &mut next);
        if !pieces.is_empty() {
            places.push(Place { room_index, pieces });
        }
        if next.record == record_bytes.len() {
            debug_assert!(covers(record_bytes, &places), "every byte is in one frame: {places:?}");
            return Some(places);
        }
    }
    None
}

/// The bytes of one frame with whole records of these lengths.
pub(super) fn frame_bytes(record_bytes: impl Iterator<Item = usize>) -> u64 {
    let entries = record_bytes.map(|bytes| bytes as u64 + PART_ENTRY_BYTES as u64);
    entries.fold(FRAME_HEADER_BYTES as u64, u64::saturating_add)
}

fn whole(record_bytes: &[usize]) -> Vec<Piece> {
    record_bytes
        .iter()
        .enumerate()
        .map(|(record, &end)| Piece { record, start: 0, end, last: true })
        .collect()
}

/// Whether every byte of every record lies in exactly one piece, in order, and each frame in its own room.
fn covers(record_bytes: &[usize], places: &[Place]) -> bool {
    let mut reached = (0, 0);
    let follow = places.iter().flat_map(|place| &place.pieces).all(|piece| {
        let is_next = (piece.record, piece.start) == reached
            && piece.start <= piece.end
            && piece.last == (piece.end == record_bytes[piece.record]);
        reached = if piece.last { (piece.record + 1, 0) } else { (piece.record, piece.end) };
        is_next
    });
    let rooms_ascend = places.is_sorted_by(|a, b| a.room_index < b.room_index);
    follow && rooms_ascend && reached == (record_bytes.len(), 0)
}

/// Takes from `next` what fits into one frame of `room` bytes, and moves `next` past it.
fn fill(record_bytes: &[usize], room: u64, next: &mut Piece) -> Vec<Piece> {
    let mut left = room.saturating_sub(FRAME_HEADER_BYTES as u64);
    let mut pieces = Vec::new();
    while let Some(&end) = record_bytes.get(next.record) {
        let Some(budget) = left.checked_sub(PART_ENTRY_BYTES as u64) else { break };
        let rest = (end - next.start) as u64;
        if rest <= budget {
            pieces.push(Piece { record: next.record, start: next.start, end, last: true });
            *next = Piece { record: next.record + 1, start: 0, end: 0, last: false };
            left = budget - rest;
            continue;
        }
        if budget >= PIECE_BYTES_MIN {
            let cut = next.start + to_usize(budget);
            pieces.push(Piece { record: next.record, start: next.start, end: cut, last: false });
            next.start = cut;
        }
        break;
    }
    pieces
}
