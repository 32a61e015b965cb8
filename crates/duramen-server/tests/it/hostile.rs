//! What strangers send: each gets an error or a closed connection, and the next client an answer.
//!
//! The frames are written by hand, over HTTP/2 of hyper: no client library sends such.

use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::{Code, Error, Reads as _};
use duramen_proto::v1;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::UnixStream;

use duramen_server::Limits;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::{Served, count};

pub(crate) type Body = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

/// A connection of HTTP/2 to the socket.
pub(crate) async fn connect(served: &Served) -> SendRequest<Body> {
    let socket = served.server.as_ref().expect("it runs").socket().expect("there is one");
    let stream = UnixStream::connect(socket).await.expect("connected");
    let (send, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(async move {
        // The server may end it.
        let _ = connection.await;
    });
    send
}

pub(crate) fn request(path: &str, headers: &[(&str, &str)], body: Body) -> http::Request<Body> {
    let mut request = http::Request::post(format!("http://duramen{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).expect("a request")
}

pub(crate) fn whole(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed()
}

/// A message in the frame of gRPC.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short");
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// The error of a call, from its headers or trailers; `None` if it has none.
pub(crate) async fn answer(send: &mut SendRequest<Body>, request: http::Request<Body>) -> Option<Answer> {
    let response = send.send_request(request).await.ok()?;
    let (head, body) = response.into_parts();
    let trailers = body.collect().await.ok().and_then(|body| body.trailers().cloned());
    let headers = if head.headers.contains_key("grpc-status") { head.headers } else { trailers? };
    let status = tonic::Status::from_header_map(&headers)?;
    Some(Answer { grpc: status.code(), error: duramen_proto::status::error(&status) })
}

#[derive(Debug)]
pub(crate) struct Answer {
    grpc: tonic::Code,
    error: Option<Error>,
}

impl Answer {
    pub(crate) fn code(&self) -> Option<Code> {
        self.error.as_ref().map(Error::code)
    }
}

const BATCH: &str = "/duramen.v1.Data/Batch";
const READ: &str = "/duramen.v1.Data/Read";

/// Sends one body on a connection of its own, and looks whether a good client still gets its answer.
fn send(served: &Served, path: &str, headers: &[(&str, &str)], body: Body) -> Option<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answered = runtime.block_on(async {
        let mut connection = connect(served).await;
        answer(&mut connection, request(path, headers, body)).await
    });
    assert_eq!(count(&served.client), 3, "a good client");
    answered
}

#[test]
fn bytes_that_are_no_message_get_an_error() {
    let served = Served::new();
    let code =
        |path: &str, bytes: Vec<u8>| send(&served, path, &[], whole(bytes)).and_then(|answer| answer.code());
    let invalid = Some(Code::InvalidArgument);
    assert_eq!(code(READ, framed(&[0xff; 20])), invalid);
    assert_eq!(code(READ, framed(&[0x0b])), invalid, "a group");
    assert_eq!(code(BATCH, framed(&[0x12, 0x7f])), invalid, "cut off");
    // A name that is no UTF-8.
    let mut names = v1::CollectionsRequest { names: vec!["ab".to_owned()] }.encode_to_vec();
    names[2] = 0xff;
    assert_eq!(code("/duramen.v1.Schema/Collections", framed(&names)), invalid);
    // More parts than a message may have, and a deeper one.
    let many = v1::ReadRequest { reads: vec![v1::Read::default(); 70_000], ..v1::ReadRequest::default() };
    assert_eq!(code(READ, framed(&many.encode_to_vec())), Some(Code::TooLarge));
    let mut deep = Vec::new();
    for _ in 0..2_000 {
        // `Element.tuple_value` around `Key.elements`.
        let key = [&[0x0a], &varint(deep.len())[..], &deep].concat();
        deep = [&[0x52], &varint(key.len())[..], &key].concat();
    }
    let key = [&[0x0a], &varint(deep.len())[..], &deep].concat();
    let get = [&[0x12], &varint(key.len())[..], &key].concat();
    let read = [&[0x0a], &varint(get.len())[..], &get].concat();
    let request = [&[0x0a], &varint(read.len())[..], &read].concat();
    assert_eq!(code(READ, framed(&request)), Some(Code::TooLarge));
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// The frame around a message: its length, its compression, its end.
#[test]
fn frames_that_are_none_get_an_error() {
    let served = Served::new();
    let grpc = |bytes: Vec<u8>| send(&served, READ, &[], whole(bytes)).expect("an answer").grpc;
    // Longer than a message may be: refused before it is read, or reserved for.
    let long = [&[0], &u32::MAX.to_be_bytes()[..], &[1; 100]].concat();
    let answered = send(&served, READ, &[], whole(long)).expect("an answer");
    assert_eq!(answered.code(), Some(Code::TooLarge));
    assert_ne!(grpc(vec![0, 0, 0, 1, 0, 7]), tonic::Code::Ok, "cut off");
    assert_ne!(grpc(vec![1, 0, 0, 0, 1, 7]), tonic::Code::Ok, "compressed");
    assert_ne!(grpc(vec![9, 0, 0, 0, 0]), tonic::Code::Ok, "of no kind");
    assert_ne!(grpc(Vec::new()), tonic::Code::Ok, "nothing");
    let two = [framed(&[]), framed(&[0xff])].concat();
    assert_eq!(grpc(two), tonic::Code::InvalidArgument, "a second message");
}

#[test]
fn paths_and_headers_that_mean_nothing_get_an_error() {
    let served = Served::new();
    let grpc = |path: &str, headers: &[(&str, &str)]| {
        send(&served, path, headers, whole(framed(&[]))).expect("an answer")
    };
    for path in ["/", "/duramen.v1.Data", "/duramen.v1.Data/Nothing", "/duramen.v2.Data/Read", "//", "/a/b/c"]
    {
        assert_eq!(grpc(path, &[]).grpc, tonic::Code::Unimplemented, "{path}");
    }
    for timeout in ["", "x", "1.5S", "999999999S", "-1S"] {
        assert_eq!(
            grpc(READ, &[("grpc-timeout", timeout)]).code(),
            Some(Code::InvalidArgument),
            "{timeout:?}"
        );
    }
    // Too late before it begins: nothing is done.
    assert_eq!(grpc(READ, &[("grpc-timeout", "1n")]).code(), Some(Code::DeadlinePassed));
    assert_eq!(grpc(BATCH, &[("grpc-timeout", "0S")]).code(), Some(Code::DeadlinePassed));
    let hello = v1::HelloRequest { version_min: 7, version_max: 9, client: String::new() };
    let answered = send(&served, "/duramen.v1.Data/Hello", &[], whole(framed(&hello.encode_to_vec())));
    assert_eq!(answered.and_then(|answer| answer.code()), Some(Code::WrongVersion));
}

#[test]
fn documents_and_values_that_are_none_get_an_error() {
    let served = Served::new();
    let put = |document: v1::document::Form| {
        let document = Some(v1::Document { form: Some(document) });
        let put = v1::PutDocument { collection: "orders".to_owned(), document, want_before: true };
        let operations = vec![v1::Operation { kind: Some(v1::operation::Kind::Put(put)) }];
        served
            .client
            .batch(v1::BatchRequest { operations, ..v1::BatchRequest::default() })
            .expect_err("refused")
            .code()
    };
    use v1::document::Form;
    assert_eq!(put(Form::Json("[1]".to_owned())), Code::InvalidArgument);
    assert_eq!(put(Form::Json(r#"{"a": 1, "a": 2}"#.to_owned())), Code::InvalidArgument);
    assert_eq!(put(Form::Json(r#"{"city": "Oslo"}"#.to_owned())), Code::InvalidArgument, "no id");
    assert_eq!(put(Form::Json(format!("{}{}", r#"{"a":"#.repeat(1_000), "1"))), Code::InvalidArgument);
    assert_eq!(put(Form::Msgpack(vec![0xc1].into())), Code::InvalidArgument);
    assert_eq!(put(Form::Msgpack(vec![0xdf, 0xff, 0xff, 0xff, 0xff].into())), Code::InvalidArgument);
    assert_eq!(put(Form::Msgpack(vec![0x91; 5_000].into())), Code::InvalidArgument);
    // A list of nulls: a byte each on the wire, forty in memory.
    let nulls = 1_000_000_u32;
    let list = [&[0x81, 0xa1, b'a', 0xdd], &nulls.to_be_bytes()[..], &vec![0xc0; nulls as usize]].concat();
    assert_eq!(put(Form::Msgpack(list.into())), Code::TooLarge);
    let list = format!(r#"{{"city": "Oslo", "id": 1, "a": [0{}]}}"#, ",0".repeat(1_000_000));
    assert_eq!(put(Form::Json(list)), Code::TooLarge);
    assert_eq!(count(&served.client), 3);
}

/// A client that opens a connection and says nothing, or sends a byte now and then, is closed.
#[test]
fn connections_without_a_call_are_closed() {
    let mut limits = duramen_server::Limits::default();
    limits.first_call = Duration::from_secs(1);
    let served = Served::with(|server| server.limits(limits));
    let socket = served.server.as_ref().expect("it runs").socket().expect("there is one");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let start = Instant::now();
        let mut silent = UnixStream::connect(&socket).await.expect("connected");
        let mut garbage = UnixStream::connect(&socket).await.expect("connected");
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
        let mut bytes = Vec::new();
        // Until the server closes it; an error is an end, too.
        let _ = garbage.read_to_end(&mut bytes).await;
        let _ = silent.read_to_end(&mut bytes).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    });
    assert_eq!(count(&served.another_client()), 3);
}

/// A body that never ends is given up at the deadline.
#[test]
fn a_body_that_never_ends_is_given_up_at_the_deadline() {
    let served = Served::new();
    let never = tokio_stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    let body = StreamBody::new(never).boxed();
    let answered = send(&served, BATCH, &[("grpc-timeout", "300m")], body).expect("an answer");
    assert_eq!(answered.code(), Some(Code::DeadlinePassed));
}

/// Its thread waits for its place while another transaction runs alone. The caller was told of the deadline
/// before the place came: the batch must not take it.
#[test]
fn a_batch_whose_deadline_passes_while_it_waits_for_its_place_changes_nothing() {
    let served = Served::new();
    let (holds, held) = std::sync::mpsc::channel();
    let (ends, over) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (holds, over) = (holds, over);
            let alone = served.db.transact(|tx| {
                let seen = tx.kv("n").get::<i64>("n")?.unwrap_or(0);
                tx.kv("n").put("n", &(seen + 1))?;
                if tx.runs_alone() {
                    // All other commits wait meanwhile.
                    let _ = holds.send(());
                    let _ = over.recv_timeout(Duration::from_secs(10));
                    return Ok(());
                }
                // A conflict each time, until it runs alone.
                let other = || served.db.transact(|other| other.kv("n").put("n", &(seen + 1)));
                std::thread::scope(|threads| threads.spawn(other).join().expect("no panic"))
            });
            alone.expect("committed");
        });
        held.recv().expect("it runs alone");
        let batch =
            v1::BatchRequest { operations: vec![super::put("Oslo", 9, 1)], ..v1::BatchRequest::default() };
        let body = whole(framed(&batch.encode_to_vec()));
        let answered = send(&served, BATCH, &[("grpc-timeout", "500m")], body).expect("an answer");
        assert_eq!(answered.code(), Some(Code::OutcomeUnknown), "it was on its way");
        ends.send(()).expect("it waits");
    });
    // It has had its place, or was refused it, before this one.
    served.db.transact(|tx| tx.kv("n").put("n", &0_i64)).expect("committed");
    assert_eq!(count(&served.client), 3);
}

/// A request whose client does not end it is not decoded: its message would be held for long.
#[test]
fn a_request_that_is_not_ended_is_given_up_at_the_deadline() {
    let served = Served::new();
    let message = Frame::data(Bytes::from(framed(&[])));
    let frames = tokio_stream::iter([Ok::<_, std::io::Error>(message)]);
    let body = StreamBody::new(tokio_stream::StreamExt::chain(frames, tokio_stream::pending())).boxed();
    let answered = send(&served, READ, &[("grpc-timeout", "300m")], body).expect("an answer");
    assert_eq!(answered.code(), Some(Code::DeadlinePassed));
}

/// One name asked for many times is a small request for a large answer.
#[test]
fn answers_of_collections_are_bounded() {
    let served = Served::new();
    let wide =
        duramen::Schema::new("wide").key((0..20).map(|number| format!("column_with_a_long_name_{number}")));
    served.db.ensure(&wide).expect("a collection");
    let names = v1::CollectionsRequest { names: vec!["wide".to_owned(); 60_000] };
    let body = whole(framed(&names.encode_to_vec()));
    let answered = send(&served, "/duramen.v1.Schema/Collections", &[], body).expect("an answer");
    assert_eq!(answered.code(), Some(Code::TooLarge));
}

/// More calls than there are places wait, and are then told when to come back.
#[test]
fn beyond_its_places_a_server_refuses() {
    let mut limits = duramen_server::Limits::default();
    limits.scans = 1;
    let served = Served::with(|server| server.limits(limits));
    let big = "x".repeat(100_000);
    for id in 0..40 {
        let document = duramen::doc! { "city": "Rome", "id": id, "cents": 1, "text": big.as_str() };
        served.db.documents("orders").put(document).expect("stored");
    }
    let request = v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    let mut first = served.client.scan(request.clone()).expect("begun");
    first.next().expect("a message").expect("not the last");
    let other = served.another_client();
    assert_eq!(other.scan(request.clone()).expect_err("no place").code(), Code::Overloaded);
    // Other calls have other places.
    assert_eq!(count(&other), 43);
    drop(first);
    // Its place is free once the server has seen that.
    let start = Instant::now();
    while other.scan(request.clone()).is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "the place was not given back");
    }
}

/// A client that takes nothing of what it asked for is closed, and others get their answers.
#[test]
fn a_client_that_reads_nothing_is_closed() {
    let mut limits = duramen_server::Limits::default();
    limits.unread_replies = Duration::from_secs(1);
    let served = Served::with(|server| server.limits(limits));
    let big = "x".repeat(100_000);
    for id in 0..100 {
        let document = duramen::doc! { "city": "Rome", "id": id, "cents": 1, "text": big.as_str() };
        served.db.documents("orders").put(document).expect("stored");
    }
    let before = served.db.stats().snapshots;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let scan = v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    let body = whole(framed(&scan.encode_to_vec()));
    let (connection, response) = runtime.block_on(async {
        let mut connection = connect(&served).await;
        let response =
            connection.send_request(request("/duramen.v1.Data/Scan", &[], body)).await.expect("begun");
        (connection, response)
    });
    // Its runtime rests: nothing is read, and no ping is answered, for which it would be closed after 15 s.
    let start = Instant::now();
    while served.db.stats().snapshots > before {
        assert!(start.elapsed() < Duration::from_secs(9), "its scan still holds a snapshot");
        assert_eq!(count(&served.client), 103);
    }
    drop((response, connection));
}

/// Strangers on TCP cannot keep the owner from the socket, however many connections they hold.
#[test]
fn connections_of_tcp_are_not_those_of_the_socket() {
    let mut limits = duramen_server::Limits::default();
    limits.connections = 4;
    limits.first_call = Duration::from_secs(600);
    let served = Served::with(|server| server.limits(limits).listen(super::any_port()));
    let (address, _) = served.tcp();
    let held: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(address).expect("connected")).collect();
    assert_eq!(count(&served.another_client()), 3);
    drop(held);
}

/// A client that takes no answers keeps no transaction: its time passes all the same.
#[test]
fn a_transaction_whose_answers_are_not_taken_ends() {
    let mut limits = Limits::default();
    (limits.transactions, limits.silence) = (1, Duration::from_secs(1));
    let served = Served::with(|server| server.limits(limits));
    let before = served.db.stats().snapshots;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let (sent, frames) = tokio::sync::mpsc::unbounded_channel::<std::io::Result<Frame<Bytes>>>();
    let asking = runtime.spawn({
        let socket = served.server.as_ref().expect("it runs").socket().expect("there is one").to_owned();
        async move {
            let stream = UnixStream::connect(socket).await.expect("connected");
            // No byte of an answer may be sent.
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let built = builder.initial_stream_window_size(0).handshake(TokioIo::new(stream)).await;
            let (mut send, connection) = built.expect("HTTP/2");
            let body = StreamBody::new(UnboundedReceiverStream::new(frames)).boxed();
            let answer = send.send_request(request("/duramen.v1.Data/Transact", &[], body));
            let (answer, _) = tokio::join!(answer, async {
                let _ = tokio::time::timeout(Duration::from_secs(60), connection).await;
            });
            drop(answer);
        }
    });
    let begin = v1::TransactRequest { kind: Some(v1::transact_request::Kind::Begin(v1::Begin::default())) };
    // In two parts, and the head apart: a message is put together from any.
    let message = framed(&begin.encode_to_vec());
    for part in [&message[..3], &message[3..]] {
        sent.send(Ok(Frame::data(Bytes::copy_from_slice(part)))).expect("it is sent");
    }
    // Its snapshot tells that it is there: a transaction of the test's own would take its place.
    let start = Instant::now();
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::yield_now();
        }
    };
    wait("the transaction never began", &|| served.db.stats().snapshots > before);
    wait("it still holds a snapshot", &|| served.db.stats().snapshots == before);
    wait("it holds its place", &|| {
        let mut stream = served.client.transactions().expect("a stream");
        stream.ask(v1::transact_request::Kind::Begin(v1::Begin::default())).is_ok()
    });
    drop(sent);
    asking.abort();
}

/// A library that ends its stream well when its program fails must not store a part as the blob.
#[test]
fn an_upload_that_ends_without_its_last_message_is_not_a_blob() {
    const UPLOAD: &str = "/duramen.v1.Blobs/Upload";
    let served = Served::new();
    let piece = v1::UploadRequest {
        namespace: "files".to_owned(),
        bytes: vec![7; 1_000].into(),
        ..v1::UploadRequest::default()
    };
    let part = framed(&piece.encode_to_vec());
    let cut = send(&served, UPLOAD, &[], whole(part.clone())).expect("an answer");
    assert_eq!(cut.code(), Some(Code::InvalidArgument));
    assert_eq!(send(&served, UPLOAD, &[], whole(Vec::new())).expect("an answer").code(), cut.code());
    // In the middle of a message.
    let torn = send(&served, UPLOAD, &[], whole(part[..500].to_vec())).expect("an answer");
    assert_ne!(torn.grpc, tonic::Code::Ok);
    let last = v1::UploadRequest { is_last: true, ..v1::UploadRequest::default() };
    let all = [part, framed(&last.encode_to_vec())].concat();
    assert!(send(&served, UPLOAD, &[], whole(all)).is_none_or(|answer| answer.grpc == tonic::Code::Ok));
}
