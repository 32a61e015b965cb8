//! Uploads of blobs: pieces are stored in several transactions, under an id that only the last one makes
//! visible.
//!
//! Owns the constant memory of an upload, and the collection of unfinished ones. An id is listed as orphaned
//! from its first piece on; only a handle of this process protects it. After a crash, a failed write or a
//! dropped writer it is collected.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::Durability;
use sha2::{Digest, Sha256};

use super::read::BlobInfo;
use super::record::{BlobId, PIECES, Record};
use crate::access::handle::Db;
use crate::access::open_state::OpenState;
use crate::access::reads::LocalReads;
use crate::access::transaction::Transaction;
use crate::store::Source as _;
use crate::store::error::{Code, Error, Result};

/// Pieces stored per transaction, which is what a writer holds in memory.
const PIECES_A_COMMIT: usize = 8;

/// Bytes read from a source at a time.
const READ_BYTES: usize = 128 * 1024;

/// Protects an id from collection. Dropped, it has the background collect what no record names.
pub(super) struct Live {
    state: Arc<OpenState>,
    id: BlobId,
    /// Whether there may be pieces that no record names.
    leaves_pieces: AtomicBool,
}

impl Live {
    fn new(db: &Db) -> Live {
        let (state, id) = (Arc::clone(db.open_state()), BlobId(db.open_state().clock.new_id()));
        state.uploads.begin(id, db.engine().lineage());
        Live { state, id, leaves_pieces: AtomicBool::new(false) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.state.uploads.end(self.id);
        if self.leaves_pieces.load(Ordering::Relaxed) {
            self.state.wake();
        }
    }
}

/// Writes a new blob into a namespace, as a file is written.
///
/// The blob exists once [`finish`](BlobWriter::finish) returns. If the writer is dropped before, it never
/// exists.
///
/// It holds eight pieces in memory, 8 MiB with the default piece size. It holds no snapshot, so an upload may
/// take days.
pub struct BlobWriter {
    db: Db,
    namespace: String,
    key: Vec<u8>,
    live: Arc<Live>,
    content_type: String,
    piece_bytes: usize,
    /// The bytes that are stored at a time: whole pieces.
    stored_at_once: usize,
    buffer: Vec<u8>,
    /// The number of pieces stored so far.
    stored: u64,
    len: u64,
    hash: Sha256,
    failed: bool,
}

impl BlobWriter {
    pub(super) fn new(db: Db, namespace: String, key: Vec<u8>, piece_bytes: usize) -> BlobWriter {
        let live = Arc::new(Live::new(&db));
        let (content_type, buffer, hash) = (String::new(), Vec::new(), Sha256::new());
        let (stored_at_once, stored, len, failed) = (piece_bytes * PIECES_A_COMMIT, 0, 0, false);
        BlobWriter {
            db,
            namespace,
            key,
            live,
            content_type,
            piece_bytes,
            stored_at_once,
            buffer,
            stored,
            len,
            hash,
            failed,
        }
    }

    /// Sets the content type, such as `image/png`.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Stores so many pieces at a time, at least one, instead of eight: it holds less memory, and syncs the
    /// data file more often.
    #[must_use]
    pub fn pieces_at_once(mut self, pieces: usize) -> Self {
        self.stored_at_once = self.piece_bytes.saturating_mul(pieces.max(1));
        self
    }

    /// Stores the rest, and the blob under its key, in one transaction. Replaces any blob under the key.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) after a write that failed.
    pub fn finish(mut self) -> Result<BlobInfo> {
        let record = self.record()?;
        let (namespace, key, was_orphaned) = (&self.namespace, &self.key, self.stored > 0);
        self.db.transact(|tx| {
            put_pieces(tx, &record, self.stored, &self.buffer)?;
            let blobs = tx.blobs(namespace);
            if was_orphaned {
                blobs.adopt(record.id)?;
            }
            blobs.publish(key, &record)
        })?;
        // Its record names them, and nothing holds the upload any more.
        self.live.leaves_pieces.store(false, Ordering::Relaxed);
        Ok(BlobInfo::of(&record))
    }

    /// Stores the rest without a key. A transaction assigns the key by [`attach`](super::BlobsOf::attach).
    ///
    /// # Errors
    /// As [`BlobWriter::finish`].
    pub fn finish_unattached(mut self) -> Result<Upload> {
        let record = self.record()?;
        self.store(Some(&record))?;
        Ok(Upload { live: self.live, record })
    }

    /// Writes everything that a source yields.
    pub(super) fn copy_from(&mut self, source: &mut dyn Read) -> Result<()> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match source.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => self.append(&bytes[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::new(Code::System, format!("cannot read the blob to store: {error}")));
                }
            }
        }
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        let full = self.stored_at_once;
        while !bytes.is_empty() {
            if self.buffer.len() == full {
                self.store(None)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(full - self.buffer.len()));
            self.hash.update(now);
            let needed = self.buffer.len() + now.len();
            if needed > self.buffer.capacity() {
                // Doubled, and never beyond what is stored at a time.
                let capacity = (2 * self.buffer.capacity()).clamp(needed, full);
                self.buffer.reserve_exact(capacity - self.buffer.len());
            }
            self.buffer.extend_from_slice(now);
            self.len += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn record(&mut self) -> Result<Record> {
        if self.failed {
            return Err(Error::invalid("a write of this blob failed before: it is not whole"));
        }
        Ok(Record {
            id: self.live.id,
            len: self.len,
            piece_bytes: u32::try_from(self.piece_bytes).expect("at most PIECE_BYTES_MAX"),
            sha256: self.hash.clone().finalize().into(),
            content_type: std::mem::take(&mut self.content_type),
        })
    }

    /// Stores the pieces in the buffer: full ones or, with a record, the last ones.
    ///
    /// The commit waits for a sync only with a record, which makes everything before it durable. It always
    /// waits until the log has it: a record published later relies on every piece, and commits at level
    /// `Memory` may still be dropped.
    fn store(&mut self, last: Option<&Record>) -> Result<()> {
        let level = if last.is_some() { self.db.seen_by_all().durability() } else { Durability::Process };
        let id = self.live.id;
        let record = last.cloned().unwrap_or(Record {
            id,
            len: 0,
            piece_bytes: u32::try_from(self.piece_bytes).expect("at most PIECE_BYTES_MAX"),
            sha256: [0; 32],
            content_type: String::new(),
        });
        self.live.leaves_pieces.store(true, Ordering::Relaxed);
        let stored = self.db.at(level).transact(|tx| {
            tx.blobs(&self.namespace).orphan(id)?;
            put_pieces(tx, &record, self.stored, &self.buffer)
        });
        self.failed = stored.is_err();
        stored?;
        self.stored += self.buffer.len().div_ceil(self.piece_bytes) as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn put_pieces(tx: &Transaction<'_>, record: &Record, from: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let shared = tx.shared();
    let pieces = match shared.tree(PIECES)? {
        Some(tree) => tree,
        None => shared.create_tree(PIECES, None)?,
    };
    let written = (from..)
        .zip(bytes.chunks(record.piece_bytes as usize))
        .try_for_each(|(index, piece)| shared.put(pieces, &record.id.piece(index), piece));
    tx.all_or_nothing(written)
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("a write of this blob failed before: it is not whole"));
        }
        self.append(bytes).map_err(|error| {
            self.failed = true;
            io::Error::other(error)
        })?;
        Ok(bytes.len())
    }

    /// Does nothing: finishing the blob makes all writes durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobWriter")
            .field("namespace", &self.namespace)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// A stored blob without a key. If it is dropped before a transaction attaches it, its space is freed.
pub struct Upload {
    live: Arc<Live>,
    record: Record,
}

impl Upload {
    /// The metadata of the blob.
    #[must_use]
    pub fn info(&self) -> BlobInfo {
        BlobInfo::of(&self.record)
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Keeps the stored pieces from collection as long as somebody holds it.
    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("id", &self.live.id)
            .field("len", &self.record.len)
            .finish_non_exhaustive()
    }
}
