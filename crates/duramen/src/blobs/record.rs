//! The stored form of blobs: the names of the trees, the record of a blob, the keys of its pieces.
//!
//! Owns the format; docs/format.md, section "Blobs". Reads and writes no tree.

pub(crate) use crate::access::uploads::BlobId;
use crate::store::error::{Code, Error, Result};
use crate::store::limits::KEY_BYTES_MAX;

/// The prefix of the trees of records, followed by the namespace.
const RECORDS: &str = "duramen/blobs/";

/// The tree of all pieces.
pub(crate) const PIECES: &str = "duramen/blob-pieces";

/// The tree of orphaned ids, which no record names: of uploads, and of deleted and replaced blobs.
pub(crate) const ORPHANED: &str = "duramen/blob-loose";

/// The first byte of a record.
const VERSION: u8 = 1;

/// The length of a record without its content type.
const RECORD_BYTES: usize = 61;

impl BlobId {
    /// The id of a row in the tree of orphaned ids.
    pub(crate) fn decode(row: &[u8]) -> Result<BlobId> {
        row.try_into().map(BlobId).map_err(|_| {
            Error::new(Code::CorruptData, format!("an id of a blob has {} bytes, not 16", row.len()))
        })
    }

    /// The key of a piece.
    pub(crate) fn piece(self, index: u64) -> Vec<u8> {
        [&self.0[..], &index.to_be_bytes()].concat()
    }
}

/// The record of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: BlobId,
    pub(crate) len: u64,
    /// The length of every piece but the last, which may be shorter.
    pub(crate) piece_bytes: u32,
    pub(crate) sha256: [u8; 32],
    pub(crate) content_type: String,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES + self.content_type.len());
        out.push(VERSION);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.piece_bytes.to_le_bytes());
        out.extend_from_slice(&self.sha256);
        out.extend_from_slice(self.content_type.as_bytes());
        out
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Record> {
        let corrupt = |what: &str| Error::new(Code::CorruptData, format!("the record of a blob {what}"));
        if stored.len() < RECORD_BYTES {
            return Err(corrupt("is too short"));
        }
        if stored[0] != VERSION {
            return Err(Error::new(
                Code::Unsupported,
                format!("the record of a blob has version {}, and this build reads {VERSION}", stored[0]),
            )
            .with_hint("use the release that wrote it"));
        }
        let record = Record {
            id: BlobId(stored[1..17].try_into().expect("sixteen bytes")),
            len: u64::from_le_bytes(stored[17..25].try_into().expect("eight bytes")),
            piece_bytes: u32::from_le_bytes(stored[25..29].try_into().expect("four bytes")),
            sha256: stored[29..RECORD_BYTES].try_into().expect("thirty-two bytes"),
            content_type: String::from_utf8(stored[RECORD_BYTES..].to_vec())
                .map_err(|_| corrupt("has a content type that is no text"))?,
        };
        if record.piece_bytes == 0 { Err(corrupt("has pieces of no bytes")) } else { Ok(record) }
    }

    /// The number of pieces.
    pub(crate) fn piece_count(&self) -> u64 {
        self.len.div_ceil(u64::from(self.piece_bytes))
    }

    /// The length of a piece.
    pub(crate) fn piece_len(&self, index: u64) -> u64 {
        let before = index * u64::from(self.piece_bytes);
        (self.len - before).min(u64::from(self.piece_bytes))
    }
}

/// The tree of a namespace's records.
pub(crate) fn records_tree(namespace: &str) -> Result<String> {
    let longest = KEY_BYTES_MAX - RECORDS.len();
    if namespace.is_empty() || namespace.len() > longest {
        return Err(Error::invalid(format!(
            "a namespace of blobs needs a name of 1 to {longest} bytes, and this one has {}",
            namespace.len()
        )));
    }
    Ok(format!("{RECORDS}{namespace}"))
}

/// The namespace whose records lie in a tree.
pub(crate) fn namespace_of_records(tree: &str) -> Option<&str> {
    tree.strip_prefix(RECORDS)
}
