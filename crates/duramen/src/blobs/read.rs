//! Reads of the blobs of a namespace, in a snapshot or a transaction; and their contents, read in constant
//! memory.
//!
//! A reader holds the snapshot it was opened in, so it can finish a blob that is replaced or deleted
//! meanwhile.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::ops::Range;

use sha2::{Digest, Sha256};

use super::record::{PIECES, Record, records_tree};
use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::store::error::{Code, Error, Result};
use crate::store::{Cursor, Direction, TreeId};
use crate::value::span::Span;
use crate::value::tuple::{Key, OwnedKey, decode, encode};

/// The metadata of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its length in bytes.
    pub len: u64,
    /// The SHA-256 of its bytes, as `sha256sum` prints it in hexadecimal.
    pub sha256: [u8; 32],
    /// The content type that the writer set, such as `image/png`.
    pub content_type: Option<String>,
}

impl BlobInfo {
    pub(super) fn of(record: &Record) -> BlobInfo {
        let content_type = Some(record.content_type.clone()).filter(|kind| !kind.is_empty());
        BlobInfo { len: record.len, sha256: record.sha256, content_type }
    }
}

/// The blobs of a namespace in a [`Snapshot`] or a [`Transaction`](crate::Transaction), from
/// [`blobs`](crate::LocalReads::blobs).
///
/// A transaction can attach, rename and delete them. Contents are read from a snapshot.
///
/// # Errors
/// Each call can return those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a namespace
/// without a name or with one beyond 1,010 bytes; `KeyTooLong` (E0202) for a key beyond 1,024 bytes as
/// encoded.
#[derive(Debug)]
pub struct BlobsOf<'a, S> {
    pub(crate) within: &'a S,
    pub(crate) namespace: &'a str,
}

impl<S: LocalReads> BlobsOf<'_, S> {
    /// The metadata of the blob under a key; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn info(&self, key: impl Key) -> Result<Option<BlobInfo>> {
        Ok(self.record(&encode(&key)?)?.map(|record| BlobInfo::of(&record)))
    }

    /// The blobs of a range, in key order.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn scan<K: OwnedKey>(&self, span: Span) -> Result<BlobIter<K>> {
        Ok(BlobIter { rows: self.encoded(span)?, kind: PhantomData })
    }

    /// As [`BlobsOf::scan`], with keys as they are stored.
    fn encoded(&self, span: Span) -> Result<EncodedBlobs> {
        let source = self.within.source();
        let records = source.tree(&records_tree(self.namespace)?)?;
        let cursor = records.map(|records| source.cursor(records, span.into_bytes(), Direction::Forward));
        Ok(EncodedBlobs { cursor: cursor.transpose()? })
    }

    /// How many blobs a range holds, in O(log n).
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn count(&self, span: Span) -> Result<u64> {
        let source = self.within.source();
        match source.tree(&records_tree(self.namespace)?)? {
            Some(records) => source.count(records, &span.into_bytes()),
            None => Ok(0),
        }
    }

    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Record>> {
        let source = self.within.source();
        let Some(records) = source.tree(&records_tree(self.namespace)?)? else { return Ok(None) };
        source.get(records, key)?.map(|stored| Record::decode(&stored)).transpose()
    }
}

impl BlobsOf<'_, Snapshot> {
    /// Opens a blob for reading; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn get(&self, key: impl Key) -> Result<Option<BlobReader>> {
        self.range(key, 0..u64::MAX)
    }

    /// Opens a byte range of a blob for reading, cut at the end of the blob; `None` if there is no blob.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn range(&self, key: impl Key, bytes: Range<u64>) -> Result<Option<BlobReader>> {
        let Some(record) = self.record(&encode(&key)?)? else { return Ok(None) };
        let pieces = self.within.source().tree(PIECES)?;
        let to = bytes.end.min(record.len);
        Ok(Some(BlobReader {
            snapshot: self.within.clone(),
            pieces,
            from: bytes.start.min(to),
            at: bytes.start.min(to),
            to,
            record,
            piece: Vec::new(),
            index: None,
        }))
    }
}

/// Reads a blob, or a part of one, a piece at a time. Holds its snapshot.
pub struct BlobReader {
    snapshot: Snapshot,
    pieces: Option<TreeId>,
    record: Record,
    from: u64,
    to: u64,
    at: u64,
    /// The piece read last, and its index.
    piece: Vec<u8>,
    index: Option<u64>,
}

impl BlobReader {
    /// The metadata of the whole blob, also if only a part was opened.
    #[must_use]
    pub fn info(&self) -> BlobInfo {
        BlobInfo::of(&self.record)
    }

    /// The length of the opened part in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Whether the opened part is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the whole blob, whatever part was opened, and checks its SHA-256. The read position does not
    /// change.
    ///
    /// Every page read is verified by a checksum anyway: this is an additional end-to-end check, for copies
    /// too.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `CorruptData` (E0501) also if the hash differs.
    pub fn verify(&mut self) -> Result<()> {
        let mut hash = Sha256::new();
        for index in 0..self.record.piece_count() {
            self.load(index)?;
            hash.update(&self.piece);
        }
        if hash.finalize()[..] == self.record.sha256 {
            return Ok(());
        }
        Err(Error::new(Code::CorruptData, "a blob does not match its SHA-256"))
    }

    fn load(&mut self, index: u64) -> Result<()> {
        if self.index == Some(index) {
            return Ok(());
        }
        self.index = None;
        let found = match self.pieces {
            Some(pieces) => self.snapshot.source().get(pieces, &self.record.id.piece(index))?,
            None => None,
        };
        let wanted = self.record.piece_len(index);
        self.piece = found.filter(|piece| piece.len() as u64 == wanted).ok_or_else(|| {
            Error::new(
                Code::CorruptData,
                format!("piece {index} of a blob is not there, or not {wanted} bytes long"),
            )
        })?;
        self.index = Some(index);
        Ok(())
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.to || buffer.is_empty() {
            return Ok(0);
        }
        let piece_bytes = u64::from(self.record.piece_bytes);
        self.load(self.at / piece_bytes).map_err(io::Error::other)?;
        let inside = usize::try_from(self.at % piece_bytes).expect("less than a u32");
        let left = usize::try_from(self.to - self.at).unwrap_or(usize::MAX);
        let from = &self.piece[inside..];
        let count = from.len().min(buffer.len()).min(left);
        buffer[..count].copy_from_slice(&from[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

/// Positions count from the start of the opened part. Reads beyond its end return nothing.
impl Seek for BlobReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => self.from.checked_add(at),
            SeekFrom::End(by) => self.to.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.filter(|at| *at >= self.from).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a place before the start of what was opened")
        })?;
        Ok(self.at - self.from)
    }
}

impl fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobReader").field("len", &self.len()).field("at", &self.at).finish_non_exhaustive()
    }
}

/// The blobs of a namespace in a range, with keys as they are stored.
///
/// # Errors
/// As [`BlobsOf`].
pub fn encoded_blobs(within: &impl LocalReads, namespace: &str, span: Span) -> Result<EncodedBlobs> {
    BlobsOf { within, namespace }.encoded(span)
}

/// Blobs of a range as of one snapshot, in the order of their encoded keys.
pub struct EncodedBlobs {
    cursor: Option<Cursor>,
}

impl EncodedBlobs {
    fn step(&mut self) -> Result<Option<(&[u8], BlobInfo)>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Some((key, stored)) = cursor.next()? else { return Ok(None) };
        Ok(Some((key, BlobInfo::of(&Record::decode(stored)?))))
    }
}

impl Iterator for EncodedBlobs {
    type Item = Result<(Vec<u8>, BlobInfo)>;

    fn next(&mut self) -> Option<Result<(Vec<u8>, BlobInfo)>> {
        self.step().map(|found| found.map(|(key, info)| (key.to_vec(), info))).transpose()
    }
}

impl fmt::Debug for EncodedBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedBlobs").finish_non_exhaustive()
    }
}

/// Blobs of a range as of one snapshot, in key order.
pub struct BlobIter<K> {
    rows: EncodedBlobs,
    kind: PhantomData<fn() -> K>,
}

impl<K: OwnedKey> BlobIter<K> {
    fn step(&mut self) -> Result<Option<(K, BlobInfo)>> {
        let Some((key, info)) = self.rows.step()? else { return Ok(None) };
        Ok(Some((K::from_elements(decode(key)?)?, info)))
    }
}

impl<K: OwnedKey> Iterator for BlobIter<K> {
    type Item = Result<(K, BlobInfo)>;

    fn next(&mut self) -> Option<Result<(K, BlobInfo)>> {
        self.step().transpose()
    }
}

impl<K> fmt::Debug for BlobIter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobIter").finish_non_exhaustive()
    }
}
