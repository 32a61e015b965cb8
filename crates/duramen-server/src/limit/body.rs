//! The bytes of requests and replies, charged to the connection as they pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use duramen_proto::status;
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
}

/// What a call holds. Its handler may live longer than the body.
#[derive(Debug, Default)]
pub(crate) struct Charges(std::sync::Mutex<Vec<Charge>>);

impl Charges {
    pub(crate) fn add(&self, charge: Charge) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(charge);
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
        }
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
        if let Some(left) = self.ahead.checked_sub(bytes.len()) {
            self.ahead = left;
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let charged = (bytes.len() - self.ahead).max(CHARGED_AT_ONCE);
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
    _held: H,
}

impl<H> ReplyBody<H> {
    pub(crate) fn new(inner: tonic::body::Body, holder: &Arc<Holder>, held: H) -> ReplyBody<H> {
        ReplyBody { inner, holder: Arc::clone(holder), _held: held }
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
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        Poll::Ready(Some(Ok(frame.map_data(|bytes| {
            let charge = self.holder.charge_reply(bytes.len());
            Bytes::from_owner(Charged { bytes, _charge: charge })
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
