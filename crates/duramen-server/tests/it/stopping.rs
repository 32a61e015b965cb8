//! A server that stops lets calls end, and leaves the database as it is.

use duramen::Code;
use duramen_client::{Address, Client};
use duramen_proto::v1;

use super::{Served, count, put};

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

/// A scan that nobody reads on must not keep the server from stopping.
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
