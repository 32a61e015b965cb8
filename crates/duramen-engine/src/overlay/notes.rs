//! Notes about a log record, made while its bytes are at hand: where each of its changes lies. Pure: bytes
//! in, notes out.

use crate::catalog::CATALOG;
use crate::commit::{RecordChange, decode_record};
use crate::ids::TreeId;

/// Where a change lies: its record and the offset in it. The value follows the key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Eight bytes of the key as a number. They start after the prefix that all keys of the tree share, once
    /// that is known.
    pub(super) head: u64,
    pub(super) record: u32,
    pub(super) key_at: u32,
    pub(super) value_bytes: u32,
    pub(super) key_bytes: u16,
    pub(super) kind: Kind,
}

impl Spot {
    /// A placeholder, to be overwritten.
    pub(super) const NONE: Spot =
        Spot { head: 0, record: 0, key_at: 0, value_bytes: 0, key_bytes: 0, kind: Kind::Delete };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Delete,
    Put,
    PutBig,
}

/// The changes of one record, in its order.
#[derive(Debug)]
pub(crate) struct RecordNotes {
    pub(super) runs: Vec<Run>,
    /// The offset of some change does not fit into a note.
    pub(super) overflowed: bool,
    is_plain: bool,
}

/// Consecutive changes of one tree in a record.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) tree: TreeId,
    pub(super) spots: Vec<Spot>,
    /// The length of the prefix that all its keys share.
    pub(super) shared_bytes: usize,
}

impl RecordNotes {
    /// Reads a record. Its number among all records is not known yet.
    ///
    /// # Errors
    /// What is wrong with the record.
    pub(crate) fn of(bytes: &[u8]) -> Result<RecordNotes, &'static str> {
        let mut notes = RecordNotes { runs: Vec::new(), overflowed: false, is_plain: true };
        decode_record(bytes, &mut |change| notes.add(bytes, &change))?;
        Ok(notes)
    }

    /// Whether it holds neither a change of the catalogue nor a big value.
    #[must_use]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    fn add(&mut self, bytes: &[u8], change: &RecordChange<'_>) {
        let (kind, value_bytes) = match change.value {
            None => (Kind::Delete, 0),
            Some(value) => (if value.big { Kind::PutBig } else { Kind::Put }, value.bytes.len()),
        };
        self.is_plain &= kind != Kind::PutBig && change.tree != CATALOG;
        let key_at = change.key.as_ptr().addr() - bytes.as_ptr().addr();
        let (Ok(key_at), Ok(value_bytes), Ok(key_bytes)) =
            (u32::try_from(key_at), u32::try_from(value_bytes), u16::try_from(change.key.len()))
        else {
            self.overflowed = true;
            return;
        };
        let spot = Spot { head: head_of(change.key), record: 0, key_at, value_bytes, key_bytes, kind };
        match self.runs.last_mut().filter(|run| run.tree == change.tree) {
            Some(run) => {
                let shared = &bytes[run.spots[0].key_at as usize..][..run.shared_bytes];
                run.shared_bytes = same_bytes(shared, change.key);
                run.spots.push(spot);
            }
            None => {
                self.runs.push(Run { tree: change.tree, spots: vec![spot], shared_bytes: change.key.len() })
            }
        }
    }
}

/// The length of the common prefix.
pub(super) fn same_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first eight bytes as a number that sorts as they do. Shorter keys are padded with zeroes.
pub(super) fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}
