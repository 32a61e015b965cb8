//! A scan is of one state, and goes on where it ended.

use duramen::Code;
use duramen::prelude::*;
use duramen_client::Client;
use duramen_proto::v1;

use super::Served;

fn scan(request: v1::ScanRequest, client: &Client) -> Result<(Vec<i64>, bytes::Bytes, usize), Code> {
    let request = v1::ScanRequest { collection: "many".to_owned(), ..request };
    let (mut ids, mut token, mut messages) = (Vec::new(), bytes::Bytes::new(), 0);
    let mut scanned = client.scan(request).map_err(|error| error.code())?;
    while let Some(message) = scanned.next().map_err(|error| error.code())? {
        for document in &message.documents {
            let document = duramen_proto::document::required(Some(document)).expect("a document");
            ids.push(
                document.get("id").cloned().and_then(|id| i64::try_from(id_of(&id)).ok()).expect("an id"),
            );
        }
        token = message.page_token;
        messages += 1;
    }
    Ok((ids, token, messages))
}

fn id_of(value: &Value) -> i128 {
    match value {
        Value::Int(id) => *id,
        other => panic!("{other:?} is no id"),
    }
}

fn served() -> Served {
    let served = Served::new();
    let many = served.db.ensure(&Schema::new("many").key(["id"])).expect("a collection");
    served
        .db
        .write(|tx| {
            let documents = tx.documents(many.name());
            (0..2000).try_for_each(|id| documents.put(doc! { "id": id, "text": "x".repeat(100) }))
        })
        .expect("stored");
    served
}

#[test]
fn a_range_is_streamed_in_both_directions_and_in_parts() {
    let served = served();
    let all: Vec<i64> = (0..2000).collect();
    let (ids, _, messages) = scan(v1::ScanRequest::default(), &served.client).expect("scanned");
    assert_eq!(ids, all);
    assert!(messages >= 3, "{messages} messages");
    let reverse = v1::ScanRequest { reverse: true, limit: 5, ..v1::ScanRequest::default() };
    assert_eq!(scan(reverse, &served.client).expect("scanned").0, [1999, 1998, 1997, 1996, 1995]);

    for reverse in [false, true] {
        let (mut ids, mut page_token) = (Vec::new(), bytes::Bytes::new());
        loop {
            let request = v1::ScanRequest {
                limit: 700,
                page_token: page_token.clone(),
                reverse,
                ..v1::ScanRequest::default()
            };
            let (page, token, _) = scan(request, &served.client).expect("scanned");
            if page.is_empty() {
                break;
            }
            ids.extend(page);
            page_token = token;
            // What is deleted and inserted behind the position changes nothing.
            served.db.documents("many").delete(if reverse { 1999 } else { 0 }).expect("deleted");
        }
        if reverse {
            ids.reverse();
        }
        // The first pass has deleted the first document.
        assert_eq!(ids, all[usize::from(reverse)..]);
    }
}

#[test]
fn a_page_token_of_another_scan_is_refused() {
    let served = served();
    let first = v1::ScanRequest { limit: 10, ..v1::ScanRequest::default() };
    let (_, page_token, _) = scan(first.clone(), &served.client).expect("scanned");
    let refused = |request: v1::ScanRequest| {
        assert_eq!(scan(request, &served.client).expect_err("refused"), Code::InvalidArgument);
    };
    refused(v1::ScanRequest { page_token: page_token.clone(), reverse: true, ..first.clone() });
    let from = duramen_proto::key::of(&[super::Element::Int(3)]);
    let range = Some(v1::Range { from: Some(from), ..v1::Range::default() });
    refused(v1::ScanRequest { page_token: page_token.clone(), range, ..first.clone() });
    for wrong in [vec![1], page_token[..16].to_vec(), [&page_token[..], &[255]].concat()] {
        refused(v1::ScanRequest { page_token: wrong.into(), ..first.clone() });
    }
    // Dropped and made again, it is another collection.
    served.db.transact(|tx| tx.drop_collection("many")).expect("dropped");
    served.db.ensure(&Schema::new("many").key(["id"])).expect("made again");
    refused(v1::ScanRequest { page_token, ..first });
}

#[test]
fn a_scan_shows_one_state_while_others_write() {
    let served = served();
    let request = v1::ScanRequest { collection: "many".to_owned(), ..v1::ScanRequest::default() };
    let mut scanned = served.client.scan(request).expect("begun");
    let first = scanned.next().expect("a message").expect("not the last");
    served.db.write(|tx| tx.documents("many").delete_span(Span::all()).map(drop)).expect("deleted");
    let mut count = first.documents.len();
    while let Some(message) = scanned.next().expect("a message") {
        assert_eq!(message.at, first.at);
        count += message.documents.len();
    }
    assert_eq!(count, 2000);
}

/// All calls of a connection share one window of HTTP/2.
#[test]
fn answers_that_are_not_read_keep_no_other_out() {
    let served = Served::new();
    let texts = served.db.ensure(&Schema::new("texts").key(["id"])).expect("a collection");
    let text = "x".repeat(64 << 10);
    for id in 0..40 {
        texts.put(doc! { "id": id, "text": text.as_str() }).expect("stored");
    }
    let request = v1::ScanRequest { collection: "texts".to_owned(), ..v1::ScanRequest::default() };
    let unread: Vec<_> = (0..32).map(|_| served.client.scan(request.clone()).expect("begun")).collect();
    for _ in 0..100 {
        assert_eq!(crate::count(&served.client), 3);
    }
    for mut scanned in unread {
        let mut documents = 0;
        while let Some(message) = scanned.next().expect("it goes on") {
            documents += message.documents.len();
        }
        assert_eq!(documents, 40);
    }
}
