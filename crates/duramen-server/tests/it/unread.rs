//! What clients make the server hold: messages that never become whole, calls without one, replies that are
//! not taken. All of it is charged, and no place is kept for it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::{Code, doc};
use duramen_proto::v1;
use duramen_server::Limits;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Served;
use super::hostile::{Body, answer, connect, framed, request, whole};

/// Longer than anything here takes, and shorter than a client may be silent.
const PATIENCE: Duration = Duration::from_secs(14);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Some bytes, if there are any, and then nothing.
fn endless(bytes: Vec<u8>) -> Body {
    let some = Some(bytes).filter(|bytes| !bytes.is_empty());
    let frame = some.map(|bytes| Ok::<_, std::io::Error>(Frame::data(Bytes::from(bytes))));
    let first = tokio_stream::iter(frame);
    StreamBody::new(tokio_stream::StreamExt::chain(first, tokio_stream::pending())).boxed()
}

/// Begins so many calls on a connection, which never end their message. Returns the code of one that is
/// refused.
fn refused_of(served: &Served, path: &'static str, bytes: &[u8], count: usize) -> Option<Code> {
    runtime().block_on(async {
        let connection = connect(served).await;
        let calls = (0..count).map(|_| {
            let (mut connection, body) = (connection.clone(), endless(bytes.to_vec()));
            tokio::spawn(async move { answer(&mut connection, request(path, &[], body)).await })
        });
        let mut calls: Vec<_> = calls.collect();
        let first = first_of(&mut calls);
        timeout(PATIENCE, first).await.ok().flatten().and_then(|answer| answer.code())
    })
}

/// The answer of the task that ends first.
async fn first_of<T>(tasks: &mut [JoinHandle<Option<T>>]) -> Option<T> {
    std::future::poll_fn(|cx| {
        for task in tasks.iter_mut() {
            if let std::task::Poll::Ready(done) = std::pin::Pin::new(task).poll(cx) {
                return std::task::Poll::Ready(done.expect("it does not panic"));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

fn with_memory(memory_bytes: usize) -> Served {
    let mut limits = Limits::default();
    limits.memory_bytes = memory_bytes;
    Served::with(|server| server.limits(limits))
}

/// The server waits half a minute for the end of a message, and looks at the rights of its user after that.
#[test]
fn first_messages_of_uploads_that_never_end_are_charged() {
    let served = with_memory(8 << 20);
    let part = [&[0], &(1_u32 << 20).to_be_bytes()[..], &[7; 100]].concat();
    assert_eq!(refused_of(&served, "/duramen.v1.Blobs/Upload", &part, 20), Some(Code::Overloaded));
}

#[test]
fn calls_that_send_no_message_are_charged() {
    let served = with_memory(384 << 10);
    assert_eq!(refused_of(&served, "/duramen.v1.Data/Read", &[], 128), Some(Code::Overloaded));
}

/// Calls on a connection whose client takes no byte of an answer. The task ends with the connection.
fn untaken(served: &Served, runtime: &Runtime, calls: Vec<(&'static str, Vec<u8>)>) -> JoinHandle<()> {
    let socket = served.server.as_ref().expect("it runs").socket().expect("there is one").to_owned();
    runtime.spawn(async move {
        let stream = UnixStream::connect(socket).await.expect("connected");
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let built = builder.initial_stream_window_size(0).handshake(TokioIo::new(stream)).await;
        let (mut send, connection) = built.expect("HTTP/2");
        let asking = async {
            let mut answers = Vec::new();
            for (path, message) in calls {
                answers.push(send.send_request(request(path, &[], whole(framed(&message)))).await);
            }
            std::future::pending::<()>().await;
            drop(answers);
        };
        tokio::select! {
            _ = connection => {}
            () = asking => {}
        }
    })
}

fn put_large(served: &Served) {
    let large = "x".repeat(6 << 20);
    let order = doc! { "city": "Aden", "id": 1, "cents": 1, "text": large.as_str() };
    served.db.documents("orders").put(order).expect("stored");
}

/// The message that was made is there until the stream ends, and that may be never: the connection is closed.
#[test]
fn a_scan_or_a_watch_whose_large_message_is_not_taken_closes_its_connection() {
    let mut limits = Limits::default();
    limits.unread_replies = Duration::from_secs(1);
    let served = Served::with(|server| server.limits(limits));
    let after = served.client.hello().at.clone();
    put_large(&served);
    let scan = v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    let start = v1::WatchStart::After.into();
    let watch = v1::WatchRequest { start, after, ..v1::WatchRequest::default() };
    for (path, message) in
        [("/duramen.v1.Data/Scan", scan.encode_to_vec()), ("/duramen.v1.Feed/Watch", watch.encode_to_vec())]
    {
        let runtime = runtime();
        let connection = untaken(&served, &runtime, vec![(path, message)]);
        let closed = async { timeout(PATIENCE, connection).await };
        runtime.block_on(closed).expect("it is closed").expect("no panic");
    }
}

#[test]
fn a_built_view_whose_answer_is_not_taken_keeps_no_place() {
    let mut limits = Limits::default();
    limits.scans = 1;
    let served = Served::with(|server| server.limits(limits));
    let build = v1::BuildViewsRequest { collection: "orders".to_owned(), ..v1::BuildViewsRequest::default() };
    let runtime = runtime();
    let connection =
        untaken(&served, &runtime, vec![("/duramen.v1.Schema/BuildViews", build.encode_to_vec())]);
    let scan = v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    let start = Instant::now();
    // The first scans may come before the call that builds, the others come after it.
    let mut scanned = 0;
    while scanned < 200 {
        match served.client.scan(scan.clone()) {
            Ok(_) => scanned += 1,
            Err(error) => assert_eq!(error.code(), Code::Overloaded),
        }
        assert!(start.elapsed() < PATIENCE, "no place after {scanned} scans");
    }
    connection.abort();
}
