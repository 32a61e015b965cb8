//! Uploads: bytes go out as they are written.

use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use duramen::blobs::BlobInfo;
use duramen::error::{Code, Error, Result};
use duramen_proto::v1;

use super::{attach, info};
use crate::blobs::Uploading;
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
/// `Unreachable` (E1111) if the connection is lost, and `InvalidArgument` (E0201) from `finish` if the server
/// was started again before the blob had its key: it has to be written again from its first byte. A blob
/// of up to 256 KiB is sent again by itself, for 30 seconds.
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
    pub fn finish(mut self) -> Result<BlobInfo> {
        let (remote, namespace, key) = (self.remote, self.namespace.clone(), self.key.clone());
        let put = |upload: RemoteUpload| {
            remote.write(None, &attach(&namespace, &key, &upload))?;
            Ok(upload.info)
        };
        if self.uploading.is_some() || self.failed.is_some() {
            return put(self.finish_unattached()?);
        }
        // All of it is here yet: it is sent again if the server went down in between.
        let only = self.first(true);
        let mut is_again = false;
        remote.again(|| {
            let is_first = !std::mem::replace(&mut is_again, true);
            put(send_one(remote, only.clone())?)
                .map_err(|error| if is_first { again_if_gone(error) } else { error })
        })
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
        let Some(mut uploading) = self.uploading.take() else {
            let only = self.first(true);
            return self.remote.again(|| send_one(self.remote, only.clone()));
        };
        let bytes = self.buffer.split().freeze();
        uploading.send(v1::UploadRequest { bytes, is_last: true, ..v1::UploadRequest::default() })?;
        stored(uploading)
    }

    /// The first message, with what is buffered.
    fn first(&mut self, is_last: bool) -> v1::UploadRequest {
        let (namespace, content_type) = (self.namespace.clone(), self.content_type.clone());
        v1::UploadRequest { namespace, content_type, bytes: self.buffer.split().freeze(), is_last }
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
            if self.buffer.len() == MESSAGE_BYTES {
                self.send()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(MESSAGE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Sends what is buffered.
    fn send(&mut self) -> Result<()> {
        let sent = match &mut self.uploading {
            Some(uploading) => {
                let bytes = self.buffer.split().freeze();
                uploading.send(v1::UploadRequest { bytes, ..v1::UploadRequest::default() })
            }
            None => {
                let first = self.first(false);
                let begun = self.remote.again(|| self.remote.client.upload());
                begun.and_then(|uploading| self.uploading.insert(uploading).send(first))
            }
        };
        sent.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// Uploads what fits a message.
fn send_one(remote: &Remote, only: v1::UploadRequest) -> Result<RemoteUpload> {
    let mut uploading = remote.client.upload()?;
    uploading.send(only)?;
    stored(uploading)
}

fn stored(uploading: Uploading) -> Result<RemoteUpload> {
    let v1::UploadReply { upload, info: of } = uploading.finish()?;
    Ok(RemoteUpload { id: upload, info: info(of.ok_or_else(|| lacks("info"))?)? })
}

/// The server may have been started again between an upload and its key.
fn again_if_gone(error: Error) -> Error {
    match error.code() {
        Code::InvalidArgument => Error::new(Code::Unreachable, error.message()).with_hint(error.hint()),
        _ => error,
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
