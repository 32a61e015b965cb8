//! Uploads: bytes go out as they are written.

use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use duramen::blobs::BlobInfo;
use duramen::error::{Code, Error, Result};
use duramen_proto::v1;

use super::{attach, info};
use crate::blobs::{Uploading, piece};
use crate::remote::Remote;
use crate::remote::transaction::lacks;

/// Bytes of a message.
const MESSAGE_BYTES: usize = 256 << 10;

/// Writes a new blob into a namespace of a served database, as a file is written.
///
/// The blob exists once [`finish`](RemoteBlobWriter::finish) returns. If the writer is dropped before, it
/// never exists, and its space is freed.
///
/// # Errors
/// Those of a [commit](duramen::Error#commits); `Overloaded` (E1103) if too many uploads are under way;
/// `Unreachable` (E1111) if the connection is lost: the blob has to be written again from its first byte.
#[derive(Debug)]
pub struct RemoteBlobWriter<'a> {
    remote: &'a Remote,
    namespace: String,
    key: Vec<u8>,
    content_type: String,
    /// Once a message was sent.
    uploading: Option<Uploading>,
    /// What is not sent yet.
    buffer: BytesMut,
    failed: Option<Error>,
}

impl<'a> RemoteBlobWriter<'a> {
    pub(super) fn new(remote: &'a Remote, namespace: String, key: Vec<u8>) -> RemoteBlobWriter<'a> {
        let (content_type, buffer) = (String::new(), BytesMut::new());
        RemoteBlobWriter { remote, namespace, key, content_type, uploading: None, buffer, failed: None }
    }

    /// Sets the content type, such as `image/png`, before the first byte is written: at most 255 bytes.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Stores the rest, and the blob under its key. Replaces any blob under the key.
    ///
    /// # Errors
    /// As [`RemoteBlobWriter`].
    pub fn finish(self) -> Result<BlobInfo> {
        let (remote, namespace, key) = (self.remote, self.namespace.clone(), self.key.clone());
        let upload = self.finish_unattached()?;
        remote.write(None, &attach(&namespace, &key, &upload))?;
        Ok(upload.info)
    }

    /// Stores the rest without a key. A transaction assigns the key by
    /// [`attach`](super::RemoteBlobsOf::attach), within five minutes.
    ///
    /// # Errors
    /// As [`RemoteBlobWriter`].
    pub fn finish_unattached(mut self) -> Result<RemoteUpload> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        if !self.buffer.is_empty() || self.uploading.is_none() {
            self.send()?;
        }
        let uploading = self.uploading.take().ok_or_else(|| lacks("upload"))?;
        let v1::UploadReply { upload, info: of } = uploading.finish()?;
        Ok(RemoteUpload { id: upload, info: info(of.ok_or_else(|| lacks("info"))?)? })
    }

    /// Writes everything that a source yields.
    pub(super) fn copy_from(&mut self, source: &mut dyn Read) -> Result<()> {
        let mut bytes = vec![0; MESSAGE_BYTES];
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
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(MESSAGE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == MESSAGE_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Sends what is buffered.
    fn send(&mut self) -> Result<()> {
        let bytes: Bytes = self.buffer.split().freeze();
        let sent = match &mut self.uploading {
            Some(uploading) => uploading.send(piece(bytes)),
            None => {
                let first = v1::UploadRequest {
                    namespace: self.namespace.clone(),
                    content_type: self.content_type.clone(),
                    bytes,
                };
                self.remote.client.upload().and_then(|uploading| self.uploading.insert(uploading).send(first))
            }
        };
        sent.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

impl Write for RemoteBlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(failed) = &self.failed {
            return Err(io::Error::other(failed.clone()));
        }
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    /// Does nothing: finishing the blob makes all writes durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stored blob without a key, which a transaction attaches within five minutes. After that its space is
/// freed.
#[derive(Debug, Clone)]
pub struct RemoteUpload {
    id: Bytes,
    info: BlobInfo,
}

impl RemoteUpload {
    /// The metadata of the blob.
    #[must_use]
    pub fn info(&self) -> BlobInfo {
        self.info.clone()
    }

    pub(super) fn id(&self) -> Bytes {
        self.id.clone()
    }
}
