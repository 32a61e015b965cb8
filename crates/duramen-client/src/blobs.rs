//! Calls of the service `Blobs`, which wait for their answers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use duramen::error::{Code, Error, Result};
use duramen_proto::v1;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Response, Status, Streaming};

use crate::client::{Client, DEADLINE, SCAN_DEADLINE, with_deadline};
use crate::stream::no_answer;

/// Messages on their way.
const WAITING_MAX: usize = 2;

/// A server that takes no message for so long is taken for lost.
const TAKES_WITHIN: Duration = Duration::from_secs(60);

impl Client {
    /// Begins an upload.
    ///
    /// # Errors
    /// None yet: they come with its messages.
    pub fn upload(&self) -> Result<Uploading> {
        let (messages, sent) = mpsc::channel(WAITING_MAX);
        let mut blobs = self.blobs();
        let answer = self.runtime().spawn(async move { blobs.upload(Messages(sent)).await });
        Ok(Uploading { client: self.clone(), messages, answer })
    }

    /// The bytes of a blob, or of a part of it.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `DocumentChanged` (E0803) if the blob does not have the
    /// SHA-256 of the request; `Unreachable` (E1111) if the connection is lost.
    pub fn download(&self, request: v1::DownloadRequest) -> Result<Downloaded> {
        let mut blobs = self.blobs();
        let messages =
            self.wait(async move { blobs.download(with_deadline(request, SCAN_DEADLINE)).await })?;
        Ok(Downloaded { client: self.clone(), messages })
    }

    /// The metadata of a blob; `None` if there is none.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `Unreachable` (E1111) if the connection is lost.
    pub fn blob_info(&self, request: v1::BlobInfoRequest) -> Result<Option<v1::BlobInfo>> {
        let mut blobs = self.blobs();
        Ok(self.wait(async move { blobs.info(with_deadline(request, DEADLINE)).await })?.info)
    }

    /// A page of the blobs of a range.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `InvalidArgument` (E0201) for a page token of another range;
    /// `Unreachable` (E1111) if the connection is lost.
    pub fn list_blobs(&self, request: v1::ListBlobsRequest) -> Result<v1::ListBlobsReply> {
        let mut blobs = self.blobs();
        self.wait(async move { blobs.list(with_deadline(request, DEADLINE)).await })
    }
}

/// Messages of an upload. Only `None` ends them: an upload that is dropped does not look like a whole one.
struct Messages(Receiver<Option<v1::UploadRequest>>);

impl Stream for Messages {
    type Item = v1::UploadRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::UploadRequest>> {
        match self.0.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(message),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// An upload under way. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct Uploading {
    client: Client,
    messages: Sender<Option<v1::UploadRequest>>,
    answer: JoinHandle<std::result::Result<Response<v1::UploadReply>, Status>>,
}

impl Uploading {
    /// Sends a message. The first one has the namespace and the content type.
    ///
    /// # Errors
    /// Those of a [commit](duramen::Error#commits); `Overloaded` (E1103) if too many uploads are under way;
    /// `Unreachable` (E1111) if the connection is lost.
    pub fn send(&mut self, message: v1::UploadRequest) -> Result<()> {
        self.send_or_end(Some(message))
    }

    /// Ends the upload, and waits until it is stored.
    ///
    /// # Errors
    /// As [`Uploading::send`].
    pub fn finish(mut self) -> Result<v1::UploadReply> {
        self.send_or_end(None)?;
        self.answer()
    }

    fn send_or_end(&mut self, message: Option<v1::UploadRequest>) -> Result<()> {
        let sending = async { time::timeout(TAKES_WITHIN, self.messages.send(message)).await };
        match self.client.runtime().block_on(sending) {
            Ok(Ok(())) => Ok(()),
            // The server has ended it, and says why.
            Ok(Err(_)) => Err(self.answer().err().unwrap_or_else(no_answer)),
            Err(_) => Err(no_answer()),
        }
    }

    fn answer(&mut self) -> Result<v1::UploadReply> {
        let waiting = async { time::timeout(TAKES_WITHIN, &mut self.answer).await };
        match self.client.runtime().block_on(waiting) {
            Ok(Ok(Ok(reply))) => Ok(reply.into_inner()),
            Ok(Ok(Err(status))) => Err(self.client.failed(&status)),
            Ok(Err(_)) => {
                Err(Error::new(Code::Unreachable, "the upload was ended").with_hint("upload again"))
            }
            Err(_) => Err(no_answer()),
        }
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

/// The messages of a download.
#[derive(Debug)]
pub struct Downloaded {
    client: Client,
    messages: Streaming<v1::DownloadReply>,
}

impl Downloaded {
    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `DocumentChanged` (E0803) if the blob was replaced while it
    /// was read; `SnapshotExpired` (E0801) after five minutes; `Unreachable` (E1111) if the connection is
    /// lost.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and then ends")]
    pub fn next(&mut self) -> Result<Option<v1::DownloadReply>> {
        let message = self.client.runtime().block_on(self.messages.next());
        message.transpose().map_err(|status| self.client.failed(&status))
    }
}

/// The next bytes of an upload.
pub(crate) fn piece(bytes: Bytes) -> v1::UploadRequest {
    v1::UploadRequest { bytes, ..v1::UploadRequest::default() }
}
