//! The bytes of requests and replies, charged to the connection as they pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use duramen::error::{Code, Error};
use duramen_proto::{MESSAGE_BYTES_MAX, status};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::budget::{Charge, Holder, retry_after};

/// A small request is charged once.
const CHARGED_AT_ONCE: usize = 4 << 10;

type Taking = Pin<Box<dyn Future<Output = duramen::Result<Charge>> + Send>>;

/// The body of a request. Its charges last until it is dropped, with the call.
pub(crate) struct RequestBody {
    inner: Incoming,
    holder: Arc<Holder>,
    /// Bytes that were charged and have not arrived yet.
    ahead: usize,
    charges: Arc<Charges>,
    /// A frame that waits for room.
    waiting: Option<(Bytes, Taking)>,
    /// The beginning of the message, until its length is known.
    head: Vec<u8>,
}

/// A flag and the length: what gRPC puts before a message.
const HEAD_BYTES: usize = 5;

/// What a call holds. Its handler may live longer than the body.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    kept: Mutex<Vec<Charge>>,
    /// The answer of its newest run.
    of_run: Mutex<Vec<Charge>>,
}

impl Charges {
    pub(crate) fn add(&self, charge: Charge) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(charge);
    }

    pub(crate) fn add_of_run(&self, charge: Charge) {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).push(charge);
    }

    pub(crate) fn end_run(&self) {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl RequestBody {
    pub(crate) fn new(inner: Incoming, holder: &Arc<Holder>, charges: &Arc<Charges>) -> RequestBody {
        RequestBody {
            inner,
            holder: Arc::clone(holder),
            ahead: 0,
            charges: Arc::clone(charges),
            waiting: None,
            head: Vec::with_capacity(HEAD_BYTES),
        }
    }

    /// The declared length of the message, once its head has arrived. Too long a one is refused here, before
    /// it is read or anything is reserved for it.
    fn length(&mut self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let missing = HEAD_BYTES - self.head.len();
        if missing == 0 {
            return Ok(None);
        }
        self.head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        let [_, a, b, c, d] = self.head[..] else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length <= MESSAGE_BYTES_MAX {
            return Ok(Some(HEAD_BYTES + length));
        }
        let what = format!("the message has {length} bytes, and at most {MESSAGE_BYTES_MAX} are taken");
        Err(status::of(&Error::new(Code::TooLarge, what).with_hint("send several smaller ones")))
    }

    /// The waiting frame, once it is charged.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (bytes, taking) = self.waiting.as_mut().expect("a frame waits");
        let taken = ready!(taking.as_mut().poll(cx));
        let bytes = std::mem::take(bytes);
        self.waiting = None;
        Poll::Ready(Some(match taken {
            Ok(charge) => {
                self.charges.add(charge);
                Ok(Frame::data(bytes))
            }
            Err(error) => Err(status::of_after(&error, Some(retry_after()))),
        }))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.waiting.is_some() {
            return self.poll_waiting(cx);
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(Box::new(error))))),
            Some(Ok(frame)) => frame,
        };
        let bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let declared = match self.length(&bytes) {
            Ok(declared) => declared,
            Err(refused) => return Poll::Ready(Some(Err(refused))),
        };
        if let Some(left) = self.ahead.checked_sub(bytes.len()).filter(|_| declared.is_none()) {
            self.ahead = left;
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        // The decoder reserves the whole message at once.
        let charged = bytes.len().saturating_sub(self.ahead).max(declared.unwrap_or(0)).max(CHARGED_AT_ONCE);
        self.ahead = self.ahead + charged - bytes.len();
        let holder = Arc::clone(&self.holder);
        self.waiting = Some((bytes, Box::pin(async move { holder.take(charged).await })));
        self.poll_waiting(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.waiting.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

/// The body of a reply. Its bytes are charged until the connection has sent them. `held` lasts as long as the
/// reply.
pub(crate) struct ReplyBody<H> {
    inner: tonic::body::Body,
    holder: Arc<Holder>,
    /// What is left of a long frame.
    rest: Bytes,
    _held: H,
}

/// A reply goes out in parts of this size, so that a client that reads slowly is not taken for one that does
/// not read.
const PART_BYTES: usize = 64 << 10;

impl<H> ReplyBody<H> {
    pub(crate) fn new(inner: tonic::body::Body, holder: &Arc<Holder>, held: H) -> ReplyBody<H> {
        ReplyBody { inner, holder: Arc::clone(holder), rest: Bytes::new(), _held: held }
    }

    /// The next part of a frame, charged.
    fn part(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(PART_BYTES));
        let charge = self.holder.charge_reply(bytes.len());
        Frame::data(Bytes::from_owner(Charged { bytes, _charge: charge }))
    }
}

/// Bytes and their charge.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<H: Unpin> Body for ReplyBody<H> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = bytes,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        Poll::Ready(Some(Ok(self.part())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }
}
