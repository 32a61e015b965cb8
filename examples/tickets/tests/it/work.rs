//! Tickets and comments: lists, pages, counts, and edits at the same time.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::site::Site;

fn create(client: &Client, title: &str, assignee: Option<u64>) -> (String, Value) {
    let reply = client.post("/tickets", &json!({ "title": title, "assignee": assignee })).expect(201);
    (reply.headers["location"].to_str().unwrap().to_owned(), reply.json())
}

/// The fields of a ticket that can be edited, with one changed.
fn edited(ticket: &Value, field: &str, value: Value) -> Value {
    let mut edit = json!({});
    for name in ["title", "text", "status", "priority", "assignee"] {
        edit[name] = ticket[name].clone();
    }
    edit[field] = value;
    edit
}

fn titles(reply: &Reply) -> Vec<String> {
    let items = reply.json()["items"].as_array().unwrap().clone();
    items.iter().map(|ticket| ticket["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_edit_needs_the_revision_that_was_read() {
    let site = Site::start();
    let (ada, id) = site.user("ada");
    let (path, ticket) = create(&ada, "The saw is blunt", None);
    assert_eq!(
        (&ticket["status"], &ticket["priority"], &ticket["author"]),
        (&json!("open"), &json!(2), &json!(id))
    );
    let read = ada.get(&path).expect(200);
    assert_eq!(read.json(), ticket);
    let done = edited(&ticket, "status", json!("in_progress"));
    let changed = ada.put(&path, &read.etag(), &done).expect(200);
    assert_eq!(ada.get(&path).expect(200).etag(), changed.etag());
    assert_eq!(ada.put(&path, &read.etag(), &done).expect(412).json()["code"], "E0803");
    let no_header = [("content-type", "application/json")];
    ada.send("PUT", &path, &no_header, done.to_string()).unwrap().expect(428);
    for etag in ["", "\"\"", "*", "W/\"00000000000000000000000000000000\"", "7"] {
        ada.put(&path, etag, &done).expect(400);
    }
    ada.put(&path, &changed.etag(), &edited(&ticket, "assignee", json!(999))).expect(400);
    ada.put(&path, &changed.etag(), &edited(&ticket, "title", json!("two\nlines"))).expect(400);
    ada.put("/tickets/999", &changed.etag(), &done).expect(404);
    ada.get("/tickets/999").expect(404);
    ada.post("/tickets", &json!({ "title": "x", "assignee": 999 })).expect(400);
}

// Each of several clients has read the same revision. However they interleave, one wins.
#[test]
fn of_concurrent_edits_one_wins() {
    let site = Site::start();
    let (ada, _) = site.user("ada");
    let (path, ticket) = create(&ada, "round", None);
    for round in 0..10 {
        let etag = ada.get(&path).expect(200).etag();
        let barrier = Barrier::new(4);
        let replies: Vec<(String, Reply)> = thread::scope(|scope| {
            let editors: Vec<_> = (0..4)
                .map(|editor| {
                    let (ada, ticket, path, etag, barrier) = (&ada, &ticket, &path, &etag, &barrier);
                    scope.spawn(move || {
                        let title = format!("round {round} of {editor}");
                        barrier.wait();
                        let reply = ada.put(path, etag, &edited(ticket, "title", json!(title)));
                        (title, reply)
                    })
                })
                .collect();
            editors.into_iter().map(|editor| editor.join().unwrap()).collect()
        });
        let mut winners = Vec::new();
        for (title, reply) in &replies {
            match reply.status {
                200 => winners.push(title.as_str()),
                status => assert_eq!(status, 412),
            }
        }
        let [winner] = winners[..] else { panic!("{} edits have won", winners.len()) };
        assert_eq!(ada.get(&path).expect(200).json()["title"], winner);
    }
}

#[test]
fn lists_have_pages_and_filters() {
    let site = Site::start();
    let (ada, id) = site.user("ada");
    for n in 0..7 {
        create(&ada, &format!("t{n}"), (n % 2 == 0).then_some(id));
    }
    let check = |query: &str, wanted: &[&str]| {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = ada.get(&format!("/tickets?limit=2{query}{after}")).expect(200);
            found.extend(titles(&page));
            match page.json()["next"].as_str() {
                Some(token) => after = format!("&after={token}"),
                None => break,
            }
        }
        assert_eq!(found, wanted, "{query}");
    };
    check("", &["t6", "t5", "t4", "t3", "t2", "t1", "t0"]);
    check("&assignee=none", &["t5", "t3", "t1"]);
    check(&format!("&assignee={id}"), &["t6", "t4", "t2", "t0"]);
    check(&format!("&assignee={id}&status=open"), &["t6", "t4", "t2", "t0"]);
    check("&status=done", &[]);
    check("&assignee=none&status=open", &["t5", "t3", "t1"]);
    let token = ada.get("/tickets?limit=2").json()["next"].as_str().unwrap().to_owned();
    for wrong in ["after=zz", "after=00.11", "limit=0", "limit=101", "limit=x", "assignee=x"] {
        ada.get(&format!("/tickets?{wrong}")).expect(400);
    }
    // The token of another list.
    ada.get(&format!("/tickets?status=open&after={token}")).expect(400);
}

#[test]
fn counts_follow_every_edit() {
    let site = Site::start();
    let (ada, id) = site.user("ada");
    create(&ada, "first", None);
    let (path, ticket) = create(&ada, "second", Some(id));
    create(&ada, "third", Some(id));
    let counts = |status: &str, count: u64| json!({ "status": status, "count": count });
    let of = |assignee: Option<u64>, status: &str, count: u64, highest: u8| json!({ "assignee": assignee, "status": status, "count": count, "highest_priority": highest });
    let now = ada.get("/counts").expect(200).json();
    assert_eq!(now["by_status"], json!([counts("open", 3)]));
    assert_eq!(now["by_assignee"], json!([of(None, "open", 1, 2), of(Some(id), "open", 2, 2)]));
    let etag = ada.get(&path).etag();
    let etag = ada.put(&path, &etag, &edited(&ticket, "priority", json!(3))).expect(200).etag();
    let now = ada.get("/counts").json();
    assert_eq!(now["by_assignee"], json!([of(None, "open", 1, 2), of(Some(id), "open", 2, 3)]));
    ada.put(&path, &etag, &edited(&ticket, "status", json!("done"))).expect(200);
    let now = ada.get("/counts").json();
    assert_eq!(now["by_status"], json!([counts("done", 1), counts("open", 2)]));
    let by_assignee = [of(None, "open", 1, 2), of(Some(id), "done", 1, 2), of(Some(id), "open", 1, 2)];
    assert_eq!(now["by_assignee"], json!(by_assignee));
}

// Writers of one ticket's comments read the same last number: those that conflict run again.
#[test]
fn concurrent_comments_get_numbers_without_gaps() {
    let site = Site::start();
    let (ada, id) = site.user("ada");
    let (path, _) = create(&ada, "busy", None);
    let path = format!("{path}/comments");
    thread::scope(|scope| {
        for writer in 0..4 {
            let (ada, path) = (&ada, &path);
            scope.spawn(move || {
                for n in 0..5 {
                    ada.post(path, &json!({ "text": format!("{writer}.{n}") })).expect(201);
                }
            });
        }
    });
    let page = ada.get(&format!("{path}?limit=100")).expect(200).json();
    let items = page["items"].as_array().unwrap();
    let numbers: Vec<_> = items.iter().map(|comment| comment["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    assert!(items.iter().all(|comment| comment["author"] == json!(id)));
    let first = ada.get(&format!("{path}?limit=15")).json();
    let token = first["next"].as_str().unwrap();
    assert_eq!(ada.get(&format!("{path}?after={token}")).json()["items"].as_array().unwrap().len(), 5);
    ada.post(&path, &json!({ "text": " " })).expect(400);
    ada.post("/tickets/999/comments", &json!({ "text": "lost" })).expect(404);
}
