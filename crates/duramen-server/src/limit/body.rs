//! The bytes of requests and replies, charged to the connection as they pass.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use duramen::error::{Code, Error};
use duramen_proto::status;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tonic::Status;

use super::budget::{Charge, Holder, retry_after};

/// The least that a request is charged.
const CHARGED_AT_LEAST: usize = 4 << 10;

type Taking = Pin<Box<dyn Future<Output = duramen::Result<Charge>> + Send>>;

/// The body of a request. Its charges last until it is dropped, with the call.
///
/// Most calls have one message. Its declared length is charged before the decoder sees it, which reserves it
/// at once. The end of the message is kept back until the client has sent all: a decoded message takes more
/// memory than its bytes, and a client that does not end its request would hold that for long.
pub(crate) struct RequestBody {
    inner: Incoming,
    holder: Arc<Holder>,
    charges: Arc<Charges>,
    /// The beginning of the message, until its length is known.
    head: Vec<u8>,
    /// What is still to come of the message, once its length is known.
    left: Option<usize>,
    /// The first bytes, which wait for room.
    waiting: Option<(Bytes, Taking)>,
    /// The end of the message.
    last: Option<Bytes>,
    takes: Takes,
    /// Whether the next message of a stream is charged.
    charges_next: bool,
    /// Of a stream: what has arrived behind the bytes that were passed on.
    rest: Bytes,
}

/// What a call takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes {
    /// Messages one after the other.
    pub(crate) is_stream: bool,
    /// Each is charged. Else only the first: the call then takes room for the others.
    pub(crate) is_charged: bool,
    /// A message may have so many bytes.
    pub(crate) message_max: usize,
}

/// How long an upload waits for room: for its first message, and then for all others together.
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(10);

/// What a message of a stream is charged at least. It is charged until it is answered; those of reflection,
/// which are few, until the stream ends.
const SHORT_BYTES: usize = 256;

/// A flag and the length: what gRPC puts before a message.
const HEAD_BYTES: usize = 5;

/// What a call holds. Its handler may live longer than the body.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    kept: Mutex<Vec<Charge>>,
    /// The messages of a stream that have arrived and are not answered yet.
    messages: Mutex<VecDeque<Charge>>,
    /// The answer of its newest run.
    of_run: Mutex<Vec<Charge>>,
    /// A run makes the next message of a reply: what it charges is not that of the frame before.
    is_making: AtomicBool,
    /// The call has failed: what still arrives is not kept.
    is_refused: AtomicBool,
}

impl Charges {
    pub(crate) fn add(&self, charge: Charge) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(charge);
    }

    fn add_message(&self, charge: Charge) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push_back(charge);
    }

    /// The oldest message of a stream is answered.
    pub(crate) fn end_message(&self) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    }

    pub(crate) fn add_of_run(&self, charge: Charge) {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).push(charge);
    }

    /// The call has failed, and its client may still send.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Everything ends.
    pub(crate) fn end(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.end_run();
    }

    /// A run for the next message of a stream begins, or has ended.
    pub(crate) fn set_making(&self, is_making: bool) {
        self.is_making.store(is_making, Ordering::Relaxed);
    }

    fn end_run_if_made(&self) {
        if !self.is_making.load(Ordering::Relaxed) {
            self.end_run();
        }
    }

    pub(crate) fn end_run(&self) {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl RequestBody {
    pub(crate) fn new(
        inner: Incoming,
        holder: &Arc<Holder>,
        charges: &Arc<Charges>,
        takes: Takes,
    ) -> RequestBody {
        RequestBody {
            inner,
            holder: Arc::clone(holder),
            charges: Arc::clone(charges),
            head: Vec::with_capacity(HEAD_BYTES),
            left: None,
            waiting: None,
            last: None,
            takes,
            charges_next: true,
            rest: Bytes::new(),
        }
    }

    /// The length of the message with its head, once that has arrived. Too long a one is refused here, before
    /// it is read or anything is reserved for it.
    fn length(&mut self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        let [_, a, b, c, d] = self.head[..] else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length <= self.takes.message_max {
            return Ok(Some(HEAD_BYTES + length));
        }
        let what =
            format!("the message has {length} bytes, and at most {} are taken", self.takes.message_max);
        Err(status::of(&Error::new(Code::TooLarge, what).with_hint("send several smaller ones")))
    }

    /// Bytes that may go to the decoder; `None` if they are the end of the message.
    fn pass(&mut self, bytes: Bytes) -> Result<Option<Bytes>, Status> {
        let Some(left) = self.left else { return Ok(Some(bytes)) };
        self.left = Some(left.checked_sub(bytes.len()).ok_or_else(one_message)?);
        if self.left == Some(0) {
            self.last = Some(bytes);
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    /// Bytes that have arrived: the first ones wait for room.
    fn arrived(&mut self, bytes: Bytes) -> Result<Option<Bytes>, Status> {
        if self.takes.is_stream {
            return self.arrived_of_stream(bytes);
        }
        if self.last.is_some() {
            return if bytes.is_empty() { Ok(None) } else { Err(one_message()) };
        }
        if self.left.is_some() {
            return self.pass(bytes);
        }
        let before = self.head.len();
        let Some(length) = self.length(&bytes)? else { return Ok(Some(bytes)) };
        self.left = Some(length - before);
        let holder = Arc::clone(&self.holder);
        let charged = length.max(CHARGED_AT_LEAST);
        self.waiting = Some((bytes, Box::pin(async move { holder.take(charged).await })));
        Ok(None)
    }

    /// Bytes of a stream that have arrived, up to the end of a message. Each message is charged before the
    /// decoder sees how long it is.
    fn arrived_of_stream(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, Status> {
        if let Some(left) = self.left {
            let part = bytes.split_to(left.min(bytes.len()));
            self.left = Some(left - part.len()).filter(|left| *left > 0);
            self.rest = bytes;
            return Ok(Some(part));
        }
        let head = bytes.split_to(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.rest = bytes;
        let Some(length) = self.length(&head)? else { return Ok(Some(head)) };
        self.head.clear();
        self.left = Some(length - HEAD_BYTES).filter(|left| *left > 0);
        let holder = Arc::clone(&self.holder);
        if !std::mem::replace(&mut self.charges_next, self.takes.is_charged) {
            return Ok(Some(head));
        }
        let charged = length.max(SHORT_BYTES);
        self.waiting = Some((
            head,
            if self.takes.is_charged {
                Box::pin(async move { holder.take(charged).await })
            } else {
                Box::pin(async move { holder.take_within(charged, ROOM_WAIT).await })
            },
        ));
        Ok(None)
    }

    /// The first bytes, once the message is charged.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let Some((bytes, taking)) = self.waiting.as_mut() else { return Poll::Ready(Ok(None)) };
        let taken = ready!(taking.as_mut().poll(cx));
        let bytes = std::mem::take(bytes);
        self.waiting = None;
        Poll::Ready(match taken {
            Ok(charge) if self.takes.is_stream => {
                self.charges.add_message(charge);
                Ok(Some(bytes))
            }
            Ok(charge) => {
                self.charges.add(charge);
                self.pass(bytes)
            }
            Err(error) => Err(status::of_after(&error, Some(retry_after()))),
        })
    }
}

/// A call has one message.
fn one_message() -> Status {
    let error = Error::invalid("more follows the message of the call");
    status::of(&error.with_hint("send one message in a call"))
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            match ready!(self.poll_waiting(cx)) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(None) => {}
                Err(refused) => return Poll::Ready(Some(Err(refused))),
            }
            let bytes = if self.rest.is_empty() {
                let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(Box::new(error))))),
                    None => return Poll::Ready(self.last.take().map(|last| Ok(Frame::data(last)))),
                };
                // Trailers of a client say nothing.
                let Ok(bytes) = frame.into_data() else { continue };
                if self.charges.is_refused.load(Ordering::Relaxed) {
                    continue;
                }
                bytes
            } else {
                std::mem::take(&mut self.rest)
            };
            match self.arrived(bytes) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(None) => {}
                Err(refused) => return Poll::Ready(Some(Err(refused))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_passed_all = self.waiting.is_none() && self.last.is_none() && self.rest.is_empty();
        has_passed_all && self.inner.is_end_stream()
    }
}

/// The body of a reply. Its bytes are charged until the connection has sent them. `held` lasts as long as the
/// reply.
pub(crate) struct ReplyBody<H> {
    inner: tonic::body::Body,
    holder: Arc<Holder>,
    /// What is left of a long frame, and its charge.
    rest: Bytes,
    charge: Option<Charge>,
    is_stream: bool,
    /// The charges of the call, if its run made the message: they end once the frame is charged.
    of_message: Option<Arc<Charges>>,
    _held: H,
}

/// A reply goes out in parts of this size, so that a client that reads slowly is not taken for one that does
/// not read.
const PART_BYTES: usize = 64 << 10;

/// The least that a frame of a reply is charged: what hyper keeps of it, beside its bytes.
const FRAME_BYTES_MIN: usize = 512;

impl<H> ReplyBody<H> {
    pub(crate) fn new(
        inner: tonic::body::Body,
        holder: &Arc<Holder>,
        is_stream: bool,
        of_message: Option<Arc<Charges>>,
        held: H,
    ) -> ReplyBody<H> {
        let holder = Arc::clone(holder);
        ReplyBody { inner, holder, rest: Bytes::new(), charge: None, is_stream, of_message, _held: held }
    }

    /// A frame that was made. Its client may take nothing of it for long.
    fn begin(&mut self, bytes: Bytes) {
        let charged = bytes.len().max(FRAME_BYTES_MIN);
        self.charge = Some(self.holder.charge_frame(charged, self.is_stream));
        self.rest = bytes;
        self.of_message.iter().for_each(|charges| charges.end_run_if_made());
    }

    /// The next part of a frame.
    fn part(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(PART_BYTES));
        // The last part has what is left of the charge.
        let charged = if self.rest.is_empty() { usize::MAX } else { bytes.len() };
        let charge = self.charge.as_mut().map(|charge| charge.part(charged));
        Frame::data(Bytes::from_owner(Charged { bytes, _charge: charge }))
    }
}

/// Bytes and their charge.
struct Charged {
    bytes: Bytes,
    _charge: Option<Charge>,
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
                Ok(bytes) => self.begin(bytes),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        Poll::Ready(Some(Ok(self.part())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }
}
