//! Calls of the service `Blobs`, which wait for their answers.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duramen::error::{Error, Result};
use duramen_proto::v1;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{self, Sleep};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Response, Status, Streaming};

use crate::client::{Client, DEADLINE, SCAN_DEADLINE, with_deadline};
use crate::stream::no_answer;

/// Messages on their way.
const WAITING_MAX: usize = 2;

/// Between two messages of an upload, at most.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// A server that takes no message for so long is taken for lost.
const TAKES_WITHIN: Duration = Duration::from_secs(60);

impl Client {
    /// Begins an upload, on a connection of its own: what a server has not stored yet must keep no other call
    /// out.
    ///
    /// # Errors
    /// As [`Client::connect`], if there is no such connection yet.
    pub fn upload(&self) -> Result<Uploading> {
        let (messages, sent) = mpsc::channel(WAITING_MAX);
        let mut blobs = self.uploads()?;
        let sending = Messages { sent, alive: None };
        let answer = self.runtime().spawn(async move { blobs.upload(sending).await });
        Ok(Uploading { client: self.clone(), messages, answer, ended: None })
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

/// Messages of an upload, with an empty one now and then while there are none: its source may be slow.
struct Messages {
    sent: Receiver<v1::UploadRequest>,
    /// Once the first message is on its way: when the server is told that the upload goes on.
    alive: Option<Pin<Box<Sleep>>>,
}

impl Stream for Messages {
    type Item = v1::UploadRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::UploadRequest>> {
        let message = match self.sent.poll_recv(cx) {
            Poll::Ready(Some(message)) => message,
            // Without a last message the server does not take it for whole.
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => match &mut self.alive {
                Some(alive) => {
                    ready!(alive.as_mut().poll(cx));
                    v1::UploadRequest::default()
                }
                None => return Poll::Pending,
            },
        };
        self.alive = Some(Box::pin(time::sleep(ALIVE_EVERY)));
        Poll::Ready(Some(message))
    }
}

/// An upload under way. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct Uploading {
    client: Client,
    messages: Sender<v1::UploadRequest>,
    answer: JoinHandle<std::result::Result<Response<v1::UploadReply>, Status>>,
    /// How it has ended.
    ended: Option<Result<v1::UploadReply>>,
}

impl Uploading {
    /// Sends a message. The first one has the namespace and the content type; the last one says that it
    /// is the last, and [`Uploading::finish`] waits for the answer to it.
    ///
    /// # Errors
    /// Those of a [commit](duramen::Error#commits); `Overloaded` (E1103) if too many uploads are under way or
    /// have no key; `DeadlinePassed` (E1108) if the server got nothing for 30 seconds; `Draining` (E1106);
    /// `Unreachable` (E1111) if the connection is lost.
    pub fn send(&mut self, message: v1::UploadRequest) -> Result<()> {
        if self.ended.is_none() {
            let sending = async { time::timeout(TAKES_WITHIN, self.messages.send(message)).await };
            match self.client.runtime().block_on(sending)? {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(_)) => {}
                Err(_) => self.ended = Some(Err(no_answer())),
            }
        }
        // The server has ended it, and says why.
        match self.answer() {
            Err(error) => Err(error),
            Ok(_) => Err(Error::invalid("the upload has ended").with_hint("begin another one")),
        }
    }

    /// Waits until the upload is stored.
    ///
    /// # Errors
    /// As [`Uploading::send`].
    pub fn finish(mut self) -> Result<v1::UploadReply> {
        self.answer()
    }

    fn answer(&mut self) -> Result<v1::UploadReply> {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let waiting = async { time::timeout(TAKES_WITHIN, &mut self.answer).await };
        let ended = match self.client.runtime().block_on(waiting)? {
            Ok(Ok(Ok(reply))) => Ok(reply.into_inner()),
            Ok(Ok(Err(status))) => Err(self.client.failed(&status)),
            Ok(Err(_)) | Err(_) => Err(no_answer()),
        };
        self.ended.insert(ended).clone()
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
        let message = self.client.runtime().block_on(self.messages.next())?;
        message.transpose().map_err(|status| self.client.failed(&status))
    }
}
