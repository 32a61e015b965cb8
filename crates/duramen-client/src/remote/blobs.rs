//! Blobs of a served database, with the calls of the library.

mod read;
mod write;

use std::io::Read;
use std::ops::Range;

use duramen::Span;
use duramen::blobs::BlobInfo;
use duramen::error::Result;
use duramen::tuple::{self, Key, OwnedKey};
use duramen_proto::v1::operation::Kind as Operation;
use duramen_proto::v1::operation_result::Kind as Told;
use duramen_proto::{key, v1};

use super::transaction::{RemoteTransaction, lacks};
use super::{Remote, kv, questions};
pub use read::{RemoteBlobIter, RemoteBlobReader};
pub use write::{RemoteBlobWriter, RemoteUpload};

/// A namespace of blobs of a [`Remote`].
///
/// Its calls are those of [`duramen::Blobs`], but for `count` and `piece_bytes`, and the readers' `verify`.
/// Bytes go to the server as they are written and come as they are
/// read: neither side holds a blob in memory. A reader goes on by itself after a lost connection, while the
/// blob is the same; an upload has to begin again.
///
/// ```no_run
/// use std::io::Read;
/// use duramen::prelude::*;
/// use duramen_client::Remote;
///
/// # fn main() -> Result<()> {
/// # let db = Remote::connect("shop.duramen")?;
/// let avatars = db.blobs("avatars");
/// avatars.put("ada", &b"a picture"[..])?;
///
/// let mut picture = Vec::new();
/// avatars.get("ada")?.expect("it was just put").read_to_end(&mut picture).map_err(Error::from_io)?;
///
/// // With other writes, or not at all.
/// let upload = avatars.upload(&b"another picture"[..])?;
/// db.transact(|tx| {
///     tx.kv("users").put("grace", &true)?;
///     tx.blobs("avatars").attach("grace", &upload)
/// })?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RemoteBlobs<'a> {
    remote: &'a Remote,
    namespace: String,
}

impl Remote {
    /// A namespace of blobs.
    #[must_use]
    pub fn blobs(&self, namespace: impl Into<String>) -> RemoteBlobs<'_> {
        RemoteBlobs { remote: self, namespace: namespace.into() }
    }
}

impl<'a> RemoteBlobs<'a> {
    /// Stores everything that a source yields, in constant memory, replacing any blob under the key.
    ///
    /// # Errors
    /// As [`RemoteBlobWriter`]; `System` (E1001) if the source fails.
    pub fn put(&self, key: impl Key, mut source: impl Read) -> Result<BlobInfo> {
        let mut writer = self.writer(key)?;
        writer.copy_from(&mut source)?;
        writer.finish()
    }

    /// Opens a writer for a blob that is written piece by piece.
    ///
    /// # Errors
    /// `KeyTooLong` (E0202).
    pub fn writer(&self, key: impl Key) -> Result<RemoteBlobWriter<'a>> {
        Ok(RemoteBlobWriter::new(self.remote, self.namespace.clone(), tuple::encode(&key)?))
    }

    /// Stores everything that a source yields, for a transaction to attach within five minutes.
    ///
    /// # Errors
    /// As [`RemoteBlobs::put`].
    pub fn upload(&self, mut source: impl Read) -> Result<RemoteUpload> {
        let mut writer = self.writer(())?;
        writer.copy_from(&mut source)?;
        writer.finish_unattached()
    }

    /// Opens a blob for reading; `None` if there is none.
    ///
    /// # Errors
    /// As [`duramen::blobs::BlobsOf`]; `Unreachable` (E1111) after 30 seconds.
    pub fn get(&self, key: impl Key) -> Result<Option<RemoteBlobReader<'a>>> {
        self.range(key, 0..u64::MAX)
    }

    /// Opens a byte range of a blob for reading, cut at the end of the blob; `None` if there is no blob.
    ///
    /// # Errors
    /// As [`RemoteBlobs::get`].
    pub fn range(&self, key: impl Key, bytes: Range<u64>) -> Result<Option<RemoteBlobReader<'a>>> {
        let blob = of_key(&self.namespace, &key)?;
        RemoteBlobReader::open(self.remote, blob, bytes)
    }

    /// The metadata of the blob under a key; `None` if there is none.
    ///
    /// # Errors
    /// As [`RemoteBlobs::get`].
    pub fn info(&self, key: impl Key) -> Result<Option<BlobInfo>> {
        let v1::BlobKey { namespace, key } = of_key(&self.namespace, &key)?;
        let request = v1::BlobInfoRequest { namespace, key, at_least: None };
        let found = self.remote.again(|| self.remote.client.blob_info(request.clone()))?;
        found.map(info).transpose()
    }

    /// The blobs of a range, in key order, read by pages of the newest state.
    ///
    /// # Errors
    /// As [`RemoteBlobs::get`], from each step.
    pub fn scan<K: OwnedKey>(&self, span: Span) -> RemoteBlobIter<'a, K> {
        let range = Some(key::of_span(span));
        let request = v1::ListBlobsRequest {
            namespace: self.namespace.clone(),
            range,
            ..v1::ListBlobsRequest::default()
        };
        RemoteBlobIter::new(self.remote, request)
    }

    /// Deletes a blob. Returns whether it was there.
    ///
    /// # Errors
    /// As [`RemoteBlobs::get`], and those of a [commit](duramen::Error#commits).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        kv::was_deleted(&self.remote.write(None, &delete(&self.namespace, &key)?)?)
    }

    /// Gives a blob another key, replacing any blob under that key. Returns whether there was one to rename.
    ///
    /// # Errors
    /// As [`RemoteBlobs::delete`].
    pub fn rename(&self, from: impl Key, to: impl Key) -> Result<bool> {
        was_renamed(&self.remote.write(None, &rename(&self.namespace, &from, &to)?)?)
    }
}

/// The blobs of a namespace in a [`RemoteTransaction`]. Their bytes are read outside of it, from
/// [`Remote::blobs`].
#[derive(Debug)]
pub struct RemoteBlobsOf<'t> {
    transaction: &'t RemoteTransaction,
    namespace: &'t str,
}

impl RemoteTransaction {
    /// The blobs of a namespace.
    #[must_use]
    pub fn blobs<'t>(&'t self, namespace: &'t str) -> RemoteBlobsOf<'t> {
        RemoteBlobsOf { transaction: self, namespace }
    }
}

impl RemoteBlobsOf<'_> {
    /// Puts an upload under a key, replacing any blob there. It becomes visible if and when this transaction
    /// commits.
    ///
    /// # Errors
    /// `KeyTooLong` (E0202). `InvalidArgument` (E0201) comes with the next read or the commit, if the upload
    /// has a key already, is of another namespace, or was made more than five minutes ago.
    pub fn attach(&self, key: impl Key, upload: &RemoteUpload) -> Result<()> {
        self.transaction.session().write(attach(self.namespace, &tuple::encode(&key)?, upload))
    }

    /// Deletes a blob. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a [write](duramen::Error#writes), and of the writes before it; `KeyTooLong` (E0202).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        kv::was_deleted(&self.transaction.session().write_now(delete(self.namespace, &key)?)?)
    }

    /// Gives a blob another key, replacing any blob under that key. Returns whether there was one to rename.
    ///
    /// # Errors
    /// As [`RemoteBlobsOf::delete`].
    pub fn rename(&self, from: impl Key, to: impl Key) -> Result<bool> {
        was_renamed(&self.transaction.session().write_now(rename(self.namespace, &from, &to)?)?)
    }
}

fn of_key(namespace: &str, key: &impl Key) -> Result<v1::BlobKey> {
    let key = Some(questions::encoded_key(&tuple::encode(key)?));
    Ok(v1::BlobKey { namespace: namespace.to_owned(), key })
}

fn attach(namespace: &str, key: &[u8], upload: &RemoteUpload) -> Operation {
    Operation::AttachBlob(v1::AttachBlob {
        namespace: namespace.to_owned(),
        key: Some(questions::encoded_key(key)),
        upload: upload.id(),
    })
}

fn delete(namespace: &str, key: &impl Key) -> Result<Operation> {
    Ok(Operation::DeleteBlob(of_key(namespace, key)?))
}

fn rename(namespace: &str, from: &impl Key, to: &impl Key) -> Result<Operation> {
    let v1::BlobKey { namespace, key: from } = of_key(namespace, from)?;
    let to = Some(questions::encoded_key(&tuple::encode(to)?));
    Ok(Operation::RenameBlob(v1::RenameBlob { namespace, from, to }))
}

fn was_renamed(told: &Told) -> Result<bool> {
    if let Told::Renamed(was_there) = told { Ok(*was_there) } else { Err(lacks("rename")) }
}

/// The metadata of a message.
fn info(of: v1::BlobInfo) -> Result<BlobInfo> {
    let sha256 = of.sha256.as_ref().try_into().map_err(|_| lacks("SHA-256"))?;
    let content_type = Some(of.content_type).filter(|kind| !kind.is_empty());
    Ok(BlobInfo { len: of.length, sha256, content_type })
}
