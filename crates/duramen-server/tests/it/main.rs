//! Tests of the server over its real socket and TCP, one binary.

#![allow(clippy::disallowed_methods, reason = "tests open files, sockets and threads of their own")]

#[allow(clippy::unwrap_used, reason = "tests of the library")]
#[path = "../../../duramen/tests/it/flights_table.rs"]
mod flights_table;
#[path = "../../../duramen-client/examples/shop.rs"]
mod shop;
#[allow(clippy::unwrap_used, reason = "tests of the library")]
#[path = "../../../duramen/tests/it/typed_tables.rs"]
mod typed_tables;
#[allow(clippy::unwrap_used, reason = "tests of the library")]
#[path = "../../../duramen/tests/it/year.rs"]
mod year;

mod asynchronous;
mod audits;
mod backups;
mod batches;
mod blobs;
mod definitions;
mod feeds;
mod finds;
mod hostile;
mod leading;
mod reads;
mod refusals;
mod rights;
mod scans;
mod stopping;
mod tls;
mod transactions;
mod typed;
mod unread;

use std::net::{Ipv4Addr, SocketAddr};

use duramen::prelude::*;
use duramen_client::{Address, Client};
use duramen_proto::v1;
use duramen_server::{Builder, Server};

/// A database with orders of two cities, its server, and a client of it.
struct Served {
    client: Client,
    server: Option<Server>,
    db: Db,
    directory: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        Served::with(|server| server)
    }

    fn with(options: impl FnOnce(Builder) -> Builder) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Db::open(directory.path().join("shop.duramen")).expect("a database");
        let schema = Schema::new("orders").key(["city", "id"]).sum(["cents"]);
        let orders = db.ensure(&schema).expect("a collection");
        for (city, id, cents) in [("Bergen", 1, 300), ("Oslo", 1, 1250), ("Oslo", 2, 750)] {
            orders.put(doc! { "city": city, "id": id, "cents": cents }).expect("stored");
        }
        let server = options(Server::builder(db.clone())).start().expect("a server");
        let client = Client::connect(&Address::Directory(directory.path().join("shop.duramen")));
        Served { client: client.expect("a connection"), server: Some(server), db, directory }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("shop.duramen")
    }

    fn another_client(&self) -> Client {
        Client::connect(&Address::Directory(self.path())).expect("a connection")
    }

    /// The address of TCP, and the token.
    fn tcp(&self) -> (SocketAddr, String) {
        let server = self.server.as_ref().expect("it runs");
        (server.addresses()[0], server.token().expect("there is one").to_owned())
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn order(city: &str, id: i64, cents: i64) -> v1::Document {
    let json = format!(r#"{{"city": "{city}", "id": {id}, "cents": {cents}}}"#);
    v1::Document { form: Some(v1::document::Form::Json(json)) }
}

fn key(city: &str, id: i64) -> v1::Key {
    duramen_proto::key::of(&[Element::Text(city.to_owned()), Element::Int(id.into())])
}

fn order_key(city: &str, id: i64) -> v1::DocumentKey {
    v1::DocumentKey { collection: "orders".to_owned(), key: Some(key(city, id)) }
}

fn put(city: &str, id: i64, cents: i64) -> v1::Operation {
    let document = Some(order(city, id, cents));
    let put = v1::PutDocument { collection: "orders".to_owned(), document, want_before: false };
    v1::Operation { kind: Some(v1::operation::Kind::Put(put)) }
}

fn reading(kind: v1::read::Kind) -> v1::ReadRequest {
    v1::ReadRequest {
        reads: vec![v1::Read { kind: Some(kind) }],
        form: v1::DocumentForm::Json.into(),
        ..v1::ReadRequest::default()
    }
}

fn all_orders() -> v1::RangeOf {
    v1::RangeOf { collection: "orders".to_owned(), ..v1::RangeOf::default() }
}

/// The one answer of a request of one read.
fn answer(client: &Client, kind: v1::read::Kind) -> v1::read_result::Kind {
    let reply = client.read(reading(kind)).expect("an answer");
    reply.results.into_iter().next().and_then(|result| result.kind).expect("an answer of some kind")
}

fn count(client: &Client) -> u64 {
    match answer(client, v1::read::Kind::Count(all_orders())) {
        v1::read_result::Kind::Number(count) => count,
        other => panic!("no count: {other:?}"),
    }
}

use duramen::tuple::Element;
