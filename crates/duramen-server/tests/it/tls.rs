//! TLS: who may not read what goes by does not, and a certificate is the user whose name it has.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duramen::Code;
use duramen::prelude::*;
use duramen_client::{Address, Client, TlsFiles};
use duramen_proto::v1;
use duramen_server::Server;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use crate::{Served, any_port, count};

/// An authority, and the directory of the files that it makes.
struct Authority {
    name: &'static str,
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &'static str, directory: &Path) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let own = params.self_signed(&key).expect("a certificate");
        fs::write(directory.join(name), own.pem()).expect("written");
        Authority { name, directory: directory.to_owned(), issuer: Issuer::new(params, key) }
    }

    fn file(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// A certificate for these names, and its key.
    fn files(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        self.files_until(file, names, None)
    }

    /// The same, which has ended with a year.
    fn files_until(&self, file: &str, names: &[&str], year: Option<i32>) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let plain: Vec<String> =
            names.iter().filter(|name| !name.contains("://")).map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(plain).expect("parameters");
        for uri in names.iter().filter(|name| name.contains("://")) {
            params.subject_alt_names.push(SanType::URI((*uri).try_into().expect("ASCII")));
        }
        if let Some(year) = year {
            params.not_before = rcgen::date_time_ymd(year, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |extension: &str| self.directory.join(format!("{file}.{extension}"));
        fs::write(path("pem"), certificate.pem()).expect("written");
        fs::write(path("key"), key.serialize_pem()).expect("written");
        (path("pem"), path("key"))
    }
}

/// A served database whose listener has TLS, its authority, and the directory of their files.
fn served() -> (Served, Authority, tempfile::TempDir) {
    let files = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("ca", files.path());
    let (certificate, key) = authority.files("server", &["localhost", "127.0.0.1"]);
    let served = Served::with(|server| {
        server.listen(any_port()).tls(certificate, key).tls_client_ca(authority.file())
    });
    (served, authority, files)
}

fn connect(
    served: &Served,
    token: Option<&str>,
    ca: &Authority,
    identity: Option<(PathBuf, PathBuf)>,
) -> Result<Client> {
    let (address, _) = served.tcp();
    let tls = Some(TlsFiles { ca: Some(ca.file()), identity });
    let (host, port, token) = (address.ip().to_string(), address.port(), token.map(str::to_owned));
    Client::connect(&Address::Tcp { host, port, token, tls })
}

fn put_user(served: &Served, name: &str, certificates: &[&str], is_new: bool) -> Result<()> {
    let certificates = certificates.iter().map(|name| (*name).to_owned()).collect();
    let rights = vec!["reader".to_owned()];
    served.client.put_user(v1::User { name: name.to_owned(), rights, certificates }, is_new)
}

fn refused(called: Result<Client>) -> Code {
    called.expect_err("refused").code()
}

#[test]
fn a_client_trusts_the_authority_of_the_server_only() {
    let (served, authority, files) = served();
    let (address, token) = served.tcp();
    assert_eq!(count(&connect(&served, Some(&token), &authority, None).expect("let in")), 3);
    let ca = authority.file().display().to_string();
    let text = format!("duramens://{token}@localhost:{}?ca={ca}", address.port());
    let by_name = Client::connect(&Address::parse(&text).expect("an address")).expect("let in");
    assert_eq!(count(&by_name), 3);

    let other = Authority::new("other", files.path());
    let error = connect(&served, Some(&token), &other, None).expect_err("of another authority");
    assert_eq!(error.code(), Code::Unreachable);
    assert!(error.hint().contains("?ca="), "{error}");
    let tls = Some(TlsFiles { ca: Some(authority.file()), identity: None });
    let renamed =
        Address::Tcp { host: "127.0.0.2".to_owned(), port: address.port(), token: Some(token.clone()), tls };
    assert_eq!(refused(Client::connect(&renamed)), Code::Unreachable);
    let plain =
        Address::Tcp { host: "127.0.0.1".to_owned(), port: address.port(), token: Some(token), tls: None };
    assert_eq!(refused(Client::connect(&plain)), Code::Unreachable);
}

#[test]
fn a_certificate_is_the_user_that_has_its_name() {
    let (served, authority, _files) = served();
    put_user(&served, "web", &["web.internal"], true).expect("added");
    put_user(&served, "job", &["spiffe://shop/job"], true).expect("added");
    put_user(&served, "none", &[], true).expect("added");
    let of = |names: &[&str]| {
        let identity = authority.files(&names.join("+").replace('/', "_"), names);
        connect(&served, None, &authority, Some(identity))
    };
    let web = of(&["web.internal"]).expect("it is web");
    assert_eq!(count(&web), 3);
    assert_eq!(refused_put(&web), Some(Code::Forbidden));
    assert_eq!(count(&of(&["other.internal", "spiffe://shop/job"]).expect("it is job")), 3);
    assert_eq!(refused(of(&["other.internal"])), Code::Unauthenticated);
    assert_eq!(refused(of(&["web.internal", "spiffe://shop/job"])), Code::Unauthenticated, "of two users");
    assert_eq!(refused(of(&["*.internal"])), Code::Unauthenticated);
    assert_eq!(refused(connect(&served, None, &authority, None)), Code::Unauthenticated);
    // A token says more than the certificate does.
    let identity = authority.files("token", &["web.internal"]);
    let (_, admin) = served.tcp();
    let owner = connect(&served, Some(&admin), &authority, Some(identity.clone())).expect("let in");
    assert_eq!(owner.users().expect("the administrator").users.len(), 3);
    assert_eq!(refused(connect(&served, Some("dur_0_0"), &authority, Some(identity))), Code::Unauthenticated);
    // Taken away, and given to another: at once, on connections that stand, too.
    let error = put_user(&served, "none", &["web.internal"], false).expect_err("it is web's");
    assert_eq!(error.code(), Code::AlreadyExists);
    put_user(&served, "web", &[], false).expect("changed");
    assert_eq!(refused_read(&web), Some(Code::Unauthenticated));
    put_user(&served, "none", &["web.internal"], false).expect("changed");
    assert_eq!(count(&web), 3);
    served.client.drop_user("none").expect("dropped");
    assert_eq!(refused_read(&web), Some(Code::Unauthenticated));
    for name in ["", "two names", "*.internal"] {
        let error = put_user(&served, "web", &[name], false).expect_err("no name");
        assert_eq!(error.code(), Code::InvalidArgument, "{name:?}");
    }
}

/// One that the name was made up for by another authority, and one that has ended.
#[test]
fn a_certificate_that_counts_for_nothing_is_refused_and_told() {
    let (served, authority, files) = served();
    put_user(&served, "web", &["web.internal"], true).expect("added");
    let other = Authority::new("other", files.path());
    let forged = other.files("forged", &["web.internal"]);
    let ended = authority.files_until("ended", &["web.internal"], Some(2020));
    for (identity, why) in [(forged, "UnknownIssuer"), (ended, "Expired")] {
        let error = connect(&served, None, &authority, Some(identity)).expect_err("it counts for nothing");
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
        assert!(error.hint().contains("openssl x509"), "{error}");
        wait_for_line(&served, why);
    }
}

/// A line of the audit with this text comes within a second or two.
fn wait_for_line(served: &Served, text: &str) {
    let begun = Instant::now();
    loop {
        let files = fs::read_dir(served.path().join("audit")).expect("there is an audit");
        let read = |file: std::io::Result<fs::DirEntry>| fs::read_to_string(file.expect("a file").path());
        let lines: String = files.map(|file| read(file).expect("text")).collect();
        if lines.lines().any(|line| line.contains(text) && line.contains("E1101")) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}: {lines}");
        std::thread::yield_now();
    }
}

fn refused_put(client: &Client) -> Option<Code> {
    let operations = vec![crate::put("Rome", 1, 5)];
    let batch = v1::BatchRequest { operations, ..v1::BatchRequest::default() };
    client.batch(batch).err().map(|failed| failed.code())
}

fn refused_read(client: &Client) -> Option<Code> {
    let read = v1::read::Kind::Count(crate::all_orders());
    client.read(crate::reading(read)).err().map(|failed| failed.code())
}

/// Certificates are short-lived: a new one needs no new start, and one that is half written harms nobody.
#[test]
fn changed_files_are_read_again() {
    let (served, authority, files) = served();
    let (_, token) = served.tcp();
    let standing = connect(&served, Some(&token), &authority, None).expect("let in");
    fs::write(files.path().join("server.pem"), "-----BEGIN CERTI").expect("written");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(count(&connect(&served, Some(&token), &authority, None).expect("let in")), 3);
    }
    let next = Authority::new("next", files.path());
    next.files("server", &["127.0.0.1"]);
    while connect(&served, Some(&token), &next, None).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the new certificate is never used");
    }
    assert_eq!(count(&standing), 3);
}

#[test]
fn what_is_no_tls_is_closed() {
    let (served, authority, _files) = served();
    let (address, token) = served.tcp();
    let hello = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(bytes).expect("sent");
        stream
    };
    // The beginning of a record that says it has 16 KiB, and no more.
    let mut held: Vec<TcpStream> = (0..100).map(|_| hello(&[22, 3, 1, 64, 0, 1])).collect();
    for garbage in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0; 100], &[22, 3, 1, 0xff, 0xff, 0, 0]] {
        let mut answer = Vec::new();
        // An alert, or nothing.
        let _ = hello(garbage).read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
    }
    assert_eq!(count(&connect(&served, Some(&token), &authority, None).expect("let in")), 3);
    // Those that say no more are given up.
    for stream in &mut held {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        assert_eq!(stream.read(&mut [0; 8]).expect("closed by the server"), 0);
    }
}

#[test]
fn files_that_are_none_are_refused() {
    let served = Served::new();
    let files = tempfile::tempdir().expect("a directory");
    let (one, two) = (Authority::new("one", files.path()), Authority::new("two", files.path()));
    let (certificate, key) = one.files("server", &["localhost"]);
    let (_, other_key) = two.files("other", &["localhost"]);
    let none = files.path().join("none");
    fs::write(files.path().join("empty"), "").expect("written");
    let empty = files.path().join("empty");
    for (certificate, key, wanted) in [
        (&none, &key, Code::System),
        (&certificate, &none, Code::System),
        (&empty, &key, Code::InvalidArgument),
        (&certificate, &empty, Code::InvalidArgument),
        (&key, &key, Code::InvalidArgument),
        (&certificate, &other_key, Code::InvalidArgument),
    ] {
        let error = Server::builder(served.db.clone()).tls(certificate, key).start().expect_err("refused");
        assert_eq!(error.code(), wanted, "{error}");
    }
    let started = Server::builder(served.db.clone()).tls(&certificate, &key).tls_client_ca(&empty).start();
    assert_eq!(started.expect_err("refused").code(), Code::InvalidArgument);
    let started = Server::builder(served.db.clone()).tls_client_ca(one.file()).start();
    assert_eq!(started.expect_err("refused").code(), Code::InvalidArgument);
}

#[test]
fn other_machines_need_tls_and_a_user_or_words_that_say_so() {
    let everywhere: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let (tls, authority, _files) = served();
    let (certificate, key) = authority.files("everywhere", &["127.0.0.1"]);
    let served = Served::new();
    let builder = || Server::builder(served.db.clone()).listen(everywhere).tls(&certificate, &key);
    assert_eq!(builder().start().expect_err("without a user").code(), Code::Forbidden);
    put_user(&served, "web", &[], true).expect("added");
    let token = served.client.add_token("web", 0).expect("made").text;
    let server = builder().start().expect("with TLS and a user");
    let connect = |server: &Server, token: Option<&str>, ca: Option<PathBuf>| {
        let (host, port) = ("127.0.0.1".to_owned(), server.addresses()[0].port());
        let tls = ca.map(|ca| TlsFiles { ca: Some(ca), identity: None });
        Client::connect(&Address::Tcp { host, port, token: token.map(str::to_owned), tls })
    };
    let ca = || Some(authority.file());
    assert_eq!(count(&connect(&server, Some(&token), ca()).expect("let in")), 3);
    assert_eq!(refused(connect(&server, None, ca())), Code::Unauthenticated);
    drop((server, tls));

    let server = Server::builder(served.db.clone()).listen(everywhere).without_tls().start();
    let server = server.expect("it was said");
    assert_eq!(count(&connect(&server, Some(&token), None).expect("let in")), 3);
    assert_eq!(refused(connect(&server, None, None)), Code::Unauthenticated);
    drop(server);

    let server = Server::builder(served.db.clone()).listen(any_port()).without_auth().start();
    let server = server.expect("it was said");
    let anybody = connect(&server, None, None).expect("let in");
    assert_eq!(anybody.users().expect("everything is allowed").users.len(), 1);
    let listeners = anybody.stats(Duration::from_secs(5)).expect("figures").listeners;
    assert_eq!((listeners.len(), listeners[0].has_tls, listeners[0].has_auth), (1, false, false));
    assert_eq!(refused(connect(&server, Some("dur_0_0"), None)), Code::Unauthenticated);
}
