//! A server that stops lets calls end, and leaves the database as it is.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};

use duramen::{Code, Reads as _};
use duramen_client::{Address, Client, Remote};
use duramen_proto::v1;
use duramen_server::Server;
use socket2::{Domain, Socket, Type};

use super::{Served, any_port, count, put};

#[test]
fn a_stopped_server_answers_no_more_and_the_database_stays_open() {
    let mut served = Served::new();
    assert_eq!(count(&served.client), 3);
    served.server.take().expect("it runs").stop();
    let batch = v1::BatchRequest { operations: vec![put("Oslo", 9, 1)], ..v1::BatchRequest::default() };
    // The call may have been done, for all the client knows.
    assert_eq!(served.client.batch(batch).expect_err("nobody answers").code(), Code::OutcomeUnknown);
    let names: Vec<String> = std::fs::read_dir(served.path())
        .expect("it can be listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.starts_with("serve.")), "{names:?}");
    let gone = Client::connect(&Address::Directory(served.path())).expect_err("nobody serves it");
    assert_eq!(gone.code(), Code::Unreachable);
    assert_eq!(served.db.documents("orders").count(duramen::Span::all()).expect("it is open"), 3);

    // It can be served again.
    served.server = Some(duramen_server::local(&served.db).expect("served again"));
    assert_eq!(count(&served.another_client()), 3);
}

/// A scan whose client reads no further must not keep the server from stopping.
#[test]
fn a_scan_under_way_does_not_hold_a_stop_up() {
    let mut served = Served::new();
    let big = "x".repeat(100_000);
    for id in 0..50 {
        let document = duramen::doc! { "city": "Rome", "id": id, "cents": 1, "text": big.as_str() };
        served.db.documents("orders").put(document).expect("stored");
    }
    let scanning = served.another_client();
    let request = v1::ScanRequest { collection: "orders".to_owned(), ..v1::ScanRequest::default() };
    let mut scanned = scanning.scan(request).expect("begun");
    scanned.next().expect("a message").expect("not the last");
    let start = std::time::Instant::now();
    served.server.take().expect("it runs").stop();
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

/// A program that awaits serves its database as any other does, and a failed start panics no more than a good
/// one.
#[test]
fn a_server_starts_and_stops_inside_of_a_runtime() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = duramen::Db::open(directory.path().join("db")).expect("a database");
    let holding = std::net::TcpListener::bind(any_port()).expect("bound");
    let taken = holding.local_addr().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let server = duramen_server::local(&db).expect("served");
        drop(server);
        let refused = duramen_server::Server::builder(db.clone()).listen(taken).start();
        assert_eq!(refused.expect_err("the port is taken").code(), Code::System);
    });
}

/// The first of two servers of one database does not take the files of the second along.
#[test]
fn a_server_removes_only_its_own_files() {
    let mut served = Served::new();
    let second = duramen_server::local(&served.db).expect("a second one");
    drop(served.server.take());
    assert_eq!(count(&served.another_client()), 3);
    drop(second);
    assert!(!served.path().join("serve.sock").exists() && !served.path().join("serve.json").exists());
}

/// A client of a listener that stays open waits for the next server, and no call of it fails.
#[test]
fn a_listener_that_is_handed_over_is_served_by_one_server_after_the_other() {
    let listener = TcpListener::bind(any_port()).expect("bound");
    let address = listener.local_addr().expect("an address");
    let scratch = tempfile::tempdir().expect("a directory");
    let socket = scratch.path().join("shop.sock");
    let local = UnixListener::bind(&socket).expect("bound");
    let mut served = Served::with(|server| {
        server
            .listener(listener.try_clone().expect("cloned"))
            .socket_listener(local.try_clone().expect("cloned"))
    });
    let (told, token) = served.tcp();
    assert_eq!(told, address);
    let by_tcp =
        Address::Tcp { host: address.ip().to_string(), port: address.port(), token: Some(token), tls: None };
    let remotes = [by_tcp, Address::Socket(socket)]
        .map(|address| Remote::from(Client::connect(&address).expect("a connection")));
    for run in 1..4 {
        served.server.take().expect("it runs").stop();
        let waiting = remotes.each_ref().map(|remote| remote.kv("runs"));
        std::thread::scope(|scope| {
            for runs in &waiting {
                scope.spawn(move || runs.increment("count", 1).expect("answered by the next server"));
            }
            let server = Server::builder(served.db.clone())
                .listener(listener.try_clone().expect("cloned"))
                .socket_listener(local.try_clone().expect("cloned"));
            served.server = Some(server.start().expect("served again"));
        });
        assert_eq!(remotes[0].kv("runs").get::<i64>("count").expect("read"), Some(2 * run));
    }
}

#[test]
fn what_is_handed_over_obeys_the_rules_of_addresses() {
    let served = Served::new();
    let everywhere = TcpListener::bind("0.0.0.0:0").expect("bound");
    let refused = Server::builder(served.db.clone()).listener(everywhere).start();
    assert_eq!(refused.expect_err("without TLS").code(), Code::Forbidden);
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    silent.bind(&any_port().into()).expect("bound");
    let refused = Server::builder(served.db.clone()).listener(silent.into()).start();
    assert_eq!(refused.expect_err("it does not listen").code(), Code::InvalidArgument);
}

/// A server that stops has said everything when its end is closed; what a client sends until it has read that
/// must not fail. The server waits half a second for it, so a machine that is busy gets more than one try.
#[test]
fn a_client_can_write_until_it_has_read_everything() {
    let can_write = (0..5).any(|_| {
        let mut served = Served::new();
        let mut stream = UnixStream::connect(served.path().join("serve.sock")).expect("connected");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
        // Its settings: the connection is served.
        frame(&mut stream).expect("an answer");
        let server = served.server.take().expect("it runs");
        std::thread::scope(|scope| {
            scope.spawn(|| server.stop());
            while let Some((mut head, rest)) = frame(&mut stream) {
                let (is_ping, is_answer) = (head[3] == 6, head[4] == 1);
                if is_ping && !is_answer {
                    head[4] = 1;
                    stream.write_all(&[&head[..], &rest].concat()).expect("sent");
                }
            }
            let window_update = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
            stream.write_all(&window_update).is_ok()
        })
    });
    assert!(can_write, "the server closed its end before its client had closed its own");
}

/// The next frame of HTTP/2, its head and the rest; `None` at the end.
fn frame(stream: &mut UnixStream) -> Option<([u8; 9], Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut rest = vec![0; usize::try_from(length).expect("24 bits")];
    stream.read_exact(&mut rest).expect("a whole frame");
    Some((head, rest))
}
