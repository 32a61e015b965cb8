//! A client that may not call is refused, with a code that says why.

use std::net::SocketAddr;

use duramen::Code;
use duramen::prelude::*;
use duramen_client::{Address, Client};
use duramen_server::Server;

use super::{Served, any_port, count};

fn by_tcp(address: SocketAddr, token: Option<&str>) -> Result<Client> {
    let token = token.map(str::to_owned);
    Client::connect(&Address::Tcp { host: address.ip().to_string(), port: address.port(), token, tls: None })
}

#[test]
fn tcp_wants_the_token_of_the_database() {
    let served = Served::with(|server| server.listen(any_port()));
    let (address, token) = served.tcp();
    assert_eq!(count(&by_tcp(address, Some(&token)).expect("let in")), 3);
    let code = |token: Option<&str>| by_tcp(address, token).expect_err("not let in").code();
    assert_eq!(code(None), Code::Unauthenticated);
    assert_eq!(code(Some("")), Code::Unauthenticated);
    assert_eq!(code(Some(&token[..token.len() - 1])), Code::Unauthenticated);
    let other = Served::with(|server| server.listen(any_port()));
    assert_eq!(code(Some(&other.tcp().1)), Code::Unauthenticated);
}

/// A token that is removed is replaced at the next start: the old one is worth nothing then.
#[test]
fn a_token_is_revoked_by_removing_its_file() {
    let mut served = Served::with(|server| server.listen(any_port()));
    let (_, first) = served.tcp();
    drop(served.server.take());
    std::fs::remove_file(served.path().join("serve.token")).expect("it was there");
    let server = Server::builder(served.db.clone()).listen(any_port()).start().expect("started again");
    let address = server.addresses()[0];
    assert_eq!(by_tcp(address, Some(&first)).expect_err("revoked").code(), Code::Unauthenticated);
    assert_eq!(count(&by_tcp(address, server.token()).expect("let in")), 3);
}

#[test]
fn a_listener_beyond_this_machine_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path().join("db")).expect("a database");
    for beyond in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let server = || Server::builder(db.clone()).listen(beyond.parse().expect("an address"));
        for server in [server(), server().without_auth(), server().without_tls()] {
            let error = server.start().expect_err("refused");
            assert_eq!(error.code(), Code::Forbidden, "{beyond}");
        }
    }
    // What was refused has left nothing behind.
    assert!(!directory.path().join("db/serve.json").exists());
}

#[test]
fn a_database_that_cannot_be_found_or_written_is_not_served() {
    let memory = Db::in_memory().expect("a database");
    assert!(Server::builder(memory).start().is_err());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    Db::open(&path).expect("a database").close().expect("closed");
    let read_only = Db::options().read_only(true).open(&path).expect("opened");
    assert_eq!(Server::builder(read_only).start().expect_err("refused").code(), Code::ReadOnly);
}

/// What root makes in another user's directory is in that user's hands: names that become links.
#[test]
fn a_database_of_another_user_is_not_served() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = Db::open(&path).expect("a database");
    std::os::unix::fs::chown(&path, Some(12_345), None).expect("root may");
    assert_eq!(Server::builder(db).start().expect_err("refused").code(), Code::Forbidden);
    assert!(!path.join("serve.sock").exists() && !path.join("serve.json").exists());
}

#[test]
fn nothing_answers_where_no_server_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let code = |address: Address| Client::connect(&address).expect_err("nothing is there").code();
    assert_eq!(code(Address::Directory(directory.path().to_owned())), Code::Unreachable);
    assert_eq!(code(Address::Socket(directory.path().join("none.sock"))), Code::Unreachable);
    let free = std::net::TcpListener::bind(any_port()).expect("bound").local_addr().expect("an address");
    assert_eq!(by_tcp(free, None).expect_err("nothing is there").code(), Code::Unreachable);
    // A socket that a killed server has left.
    let left = std::os::unix::net::UnixListener::bind(directory.path().join("left.sock")).expect("bound");
    drop(left);
    assert_eq!(code(Address::Socket(directory.path().join("left.sock"))), Code::Unreachable);
}
