//! Attachments: whole or not at all, and gone with their ticket.

use std::io::{Read, Write};
use std::net::TcpStream;

use duramen::prelude::*;
use serde_json::json;

use crate::client::Client;
use crate::site::Site;

const LIMIT: usize = 5_000_000;

fn site() -> Site {
    Site::start_with(|settings| settings.attachment_bytes_max = LIMIT as u64)
}

fn ticket(client: &Client) -> String {
    let reply = client.post("/tickets", &json!({ "title": "with files" })).expect(201);
    reply.headers["location"].to_str().unwrap().to_owned()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..=250).flat_map(|byte: u8| [byte; 7]).cycle().take(count).collect()
}

#[test]
fn a_file_comes_back_as_it_was_sent() {
    let site = site();
    let (ada, _) = site.user("ada");
    let path = format!("{}/attachments", ticket(&ada));
    for (index, count) in [0, 1, 128 * 1024, 256 * 1024 + 1, LIMIT].into_iter().enumerate() {
        let sent = bytes(count);
        let record = ada.upload(&format!("{path}?name=photo.png"), &sent).expect(201);
        let location = format!("{path}/{}", index + 1);
        assert_eq!(record.headers["location"], location.as_str());
        assert_eq!(record.json()["bytes"], json!(count));
        let got = ada.get(&location).expect(200);
        assert!(got.bytes == sent, "{count} bytes have changed");
        assert_eq!(got.headers["content-type"], "image/png");
        assert_eq!(got.headers["content-length"], count.to_string().as_str());
        assert_eq!(got.headers["content-disposition"], "attachment");
        assert_eq!(got.etag(), format!("\"{}\"", record.json()["sha256"].as_str().unwrap()));
    }
    assert_eq!(ada.get(&path).expect(200).json()["items"].as_array().unwrap().len(), 5);
    ada.get(&format!("{path}/6")).expect(404);
    ada.upload(&path, b"no name").expect(400);
    ada.upload("/tickets/999/attachments?name=x", b"no ticket").expect(404);
    site.client().get(&format!("{path}/1")).expect(401);
}

#[test]
fn an_upload_that_is_refused_or_cut_off_leaves_nothing() {
    let mut site = site();
    let (ada, _) = site.user("ada");
    let path = format!("{}/attachments", ticket(&ada));
    ada.upload(&format!("{path}?name=large"), &bytes(LIMIT + 1)).expect(413);

    // A client that promises more than it sends.
    let token = ada.token.clone().unwrap();
    let mut stream = TcpStream::connect(site.client().address()).unwrap();
    write!(
        stream,
        "POST {path}?name=half HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-length: 2000000\r\n\r\n"
    )
    .unwrap();
    stream.write_all(&bytes(1_000_000)).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // Until the server has closed its end, too.
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("201"), "{answer}");

    assert_eq!(ada.get(&path).expect(200).json()["items"], json!([]));
    site.stop();
    let db = Db::open(site.database()).unwrap();
    db.sweep_blobs().unwrap();
    assert_eq!(db.blobs("attachments").count(Span::all()).unwrap(), 0);
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn a_deleted_ticket_takes_everything_with_it() {
    let mut site = site();
    let (ada, _) = site.user("ada");
    let (kept, deleted) = (ticket(&ada), ticket(&ada));
    for path in [&kept, &deleted] {
        ada.upload(&format!("{path}/attachments?name=a"), &bytes(300_000)).expect(201);
        ada.post(&format!("{path}/comments"), &json!({ "text": "see the file" })).expect(201);
    }
    let read = ada.get(&deleted).etag();
    ada.send("DELETE", &deleted, &[], ()).unwrap().expect(428);
    ada.delete(&deleted, "\"00000000000000000000000000000000\"").expect(412);
    ada.delete(&deleted, &read).expect(204);
    ada.delete(&deleted, &read).expect(404);
    for path in ["", "/attachments/1"] {
        ada.get(&format!("{deleted}{path}")).expect(404);
    }
    assert_eq!(ada.get(&format!("{deleted}/comments")).json()["items"], json!([]));
    ada.get(&format!("{kept}/attachments/1")).expect(200);
    site.stop();
    let db = Db::open(site.database()).unwrap();
    assert_eq!(db.blobs("attachments").count(Span::all()).unwrap(), 1);
    assert!(db.check_documents().unwrap().is_clean());
}
