//! Servers that other machines reach: what such servers need, and what the audit says about their clients.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::runner::{Ran, Scratch, json};
use crate::serving::Serve;

fn scratch() -> Scratch {
    let scratch = Scratch::with_rows("id,n\n1,30\n2,75\n", &["--key", "id"]);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    scratch.write("ca.pem", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for (file, name) in [("server", "localhost"), ("web", "web.internal")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        scratch.write(&format!("{file}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
        scratch.write(&format!("{file}.key"), key.serialize_pem());
    }
    scratch
}

const TLS: &[&str] = &["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem"];

fn port(serve: &Serve) -> String {
    serve.address().rsplit_once(':').unwrap().1.to_owned()
}

#[track_caller]
fn assert_refused(ran: &Ran, code: i32, error: &str) {
    assert!(ran.code == Some(code) && ran.stderr.contains(error), "{:?}: {}", ran.code, ran.stderr);
}

#[test]
fn an_address_that_other_machines_reach_needs_tls_and_a_user() {
    let scratch = scratch();
    let everywhere = ["serve", "db", "--listen", "0.0.0.0:0"];
    assert_refused(&scratch.run(&everywhere), 7, "E1102");
    assert_refused(&scratch.run(&[&everywhere[..], &["--no-auth"]].concat()), 7, "E1102");
    assert_refused(&scratch.run(&[&everywhere[..], TLS].concat()), 7, "`duramen user add`");
    assert_refused(&scratch.run(&[&everywhere[..], &["--tls-cert", "server.pem"]].concat()), 2, "--tls-key");
    assert_refused(&scratch.run(&[&everywhere[..], TLS, &["--no-tls"]].concat()), 2, "cannot be used with");
    let wrong = ["--tls-cert", "server.key", "--tls-key", "server.key"];
    assert_refused(&scratch.run(&[&everywhere[..], &wrong].concat()), 7, "E1102");
    scratch.ok(&["user", "add", "db", "web", "--right", "reader", "--cert", "web.internal"]);
    assert_refused(&scratch.run(&[&everywhere[..], &wrong].concat()), 1, "it has no certificate");
    assert!(scratch.ok(&["user", "list", "db"]).contains("web.internal"));

    let serve = Serve::with(&scratch, "db", &[&["--listen", "0.0.0.0:0"], TLS].concat());
    let token = json(&scratch.ok(&["token", "add", "db", "web", "--json"]));
    let (token, port) = (token["token"].as_str().unwrap(), port(&serve));
    let at = |address: String, words: &[&str]| scratch.run(&[words, &["--at", &address][..]].concat());
    let count = |address: String| at(address, &["count", "-c", "rows"]);
    assert_eq!(count(format!("duramens://{token}@localhost:{port}?ca=ca.pem")).stdout.trim(), "2");
    let shown = format!("duramens://localhost:{port}?ca=ca.pem&cert=web.pem&key=web.key");
    assert_eq!(count(shown.clone()).stdout.trim(), "2");
    assert_refused(&at(shown, &["del", "-c", "rows", "--key", "1"]), 7, "E1102");
    assert_refused(&count(format!("duramens://localhost:{port}?ca=ca.pem")), 7, "E1101");
    assert_refused(&count(format!("duramens://{token}@localhost:{port}")), 6, "E1111");
    assert_refused(&count(format!("duramens://{token}@127.0.0.1:{port}?ca=ca.pem")), 6, "E1111");
    assert_refused(&count(format!("duramen://{token}@localhost:{port}")), 6, "E1111");
    assert_refused(&count(format!("duramens://localhost:{port}?ca=none.pem")), 1, "none.pem");
    assert_refused(&count(format!("duramens://localhost:{port}?cert=web.pem")), 1, "belong together");
    scratch.ok(&["user", "drop", "db", "web"]);
    assert_refused(&count(format!("duramens://{token}@localhost:{port}?ca=ca.pem")), 7, "E1101");
}

#[test]
fn without_auth_everybody_may_do_everything_and_is_told_so() {
    let scratch = scratch();
    let serve = Serve::with(&scratch, "db", &["--listen", "127.0.0.1:0", "--no-auth"]);
    let at = format!("duramen://{}", serve.address());
    assert_eq!(scratch.ok(&["count", "-c", "rows", "--at", &at]).trim(), "2");
    let inspected = json(&scratch.ok(&["inspect", "--json", "--at", &at]));
    assert_eq!(inspected["listeners"][0]["auth"], false, "{inspected}");
    assert!(scratch.ok(&["inspect", "db"]).contains("everybody may do everything"));
}

#[test]
fn an_audit_is_verified_beside_the_server_and_without_it() {
    let scratch = scratch();
    assert!(scratch.ok(&["audit", "verify", "db"]).contains("no audit"));
    // Without a server the command line tells.
    scratch.ok(&["user", "add", "db", "web", "--right", "reader"]);
    assert!(scratch.ok(&["audit", "verify", "db"]).contains("lines 1 to 2 follow one another"));
    let serve = Serve::of(&scratch, "db");
    scratch.ok(&["token", "add", "db", "web"]);
    let beside = json(&scratch.ok(&["audit", "verify", "db", "--json"]));
    // The end of the last is written within a second.
    let last = beside["last"].as_u64().unwrap();
    assert!(beside["first"] == 1 && (3..=4).contains(&last), "{beside}");
    assert_refused(
        &scratch.run(&["audit", "verify", "--at", "unix:db/serve.sock"]),
        2,
        "files of a database",
    );
    assert_eq!(serve.stop(), Some(0));
    let alone = json(&scratch.ok(&["audit", "verify", "db", "--json"]));
    assert_eq!((alone["last"].as_u64(), alone["after_mark"].as_u64()), (Some(4), Some(0)), "{alone}");

    let file = scratch.path("db/audit/00000000000000000001.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, whole.replacen("\"on\":\"web\"", "\"on\":\"bob\"", 1)).unwrap();
    assert_refused(&scratch.run(&["audit", "verify", "db"]), 3, "E0506");
    let cut: Vec<&str> = whole.lines().take(3).collect();
    fs::write(&file, cut.join("\n") + "\n").unwrap();
    assert_refused(&scratch.run(&["audit", "verify", "db"]), 3, "line");
}
