//! Users, tokens and rights: each call of each service needs its right on what it names, and nothing else.

use std::time::Duration;

use duramen::Code;
use duramen::prelude::*;
use duramen_client::{Address, Client, Remote};
use duramen_proto::v1::{self, condition, operation, read};
use duramen_server::users;

use crate::{Served, any_port, key, order, order_key};

fn served() -> Served {
    let served = Served::with(|server| server.listen(any_port()));
    served.db.kv("stock").put("tea", &7).expect("stored");
    served.db.blobs("files").put("a", &b"bytes"[..]).expect("stored");
    served.db.consumer("mailer").register().expect("registered");
    served
}

/// A client of a new user with these rights.
fn client(served: &Served, name: &str, rights: &[&str]) -> Client {
    served.client.put_user(user(name, rights), true).expect("added");
    let token = served.client.add_token(name, 0).expect("made").text;
    connect(served, &token).expect("it is let in")
}

fn user(name: &str, rights: &[&str]) -> v1::User {
    let rights = rights.iter().map(|right| (*right).to_owned()).collect();
    v1::User { name: name.to_owned(), rights, certificates: Vec::new() }
}

fn connect(served: &Served, token: &str) -> Result<Client> {
    let (address, _) = served.tcp();
    let (host, port) = (address.ip().to_string(), address.port());
    Client::connect(&Address::Tcp { host, port, token: Some(token.to_owned()), tls: None })
}

type Call = (&'static str, &'static str, fn(&Client) -> Result<()>);

fn batch(client: &Client, kind: operation::Kind) -> Result<()> {
    let operations = vec![v1::Operation { kind: Some(kind) }];
    client.batch(v1::BatchRequest { operations, ..Default::default() }).map(drop)
}

fn holds(client: &Client, kind: condition::Kind) -> Result<()> {
    let conditions = vec![v1::Condition { kind: Some(kind) }];
    client.batch(v1::BatchRequest { conditions, ..Default::default() }).map(drop)
}

fn reads(client: &Client, kind: read::Kind) -> Result<()> {
    client.read(crate::reading(kind)).map(drop)
}

fn kv() -> v1::KeyValueKey {
    v1::KeyValueKey { namespace: "stock".to_owned(), key: Some(text("tea")) }
}

fn text(key: &str) -> v1::Key {
    duramen_proto::key::of(&[duramen::tuple::Element::Text(key.to_owned())])
}

fn blob() -> v1::BlobKey {
    v1::BlobKey { namespace: "files".to_owned(), key: Some(text("none")) }
}

fn put() -> v1::PutDocument {
    let document = Some(order("Rome", 1, 5));
    v1::PutDocument { collection: "orders".to_owned(), document, want_before: false }
}

fn find() -> v1::Find {
    v1::Find { collection: "orders".to_owned(), limit: Some(1), ..Default::default() }
}

/// Another transaction of one step, which is rolled back.
fn step(client: &Client, operations: Vec<operation::Kind>, reads: Vec<read::Kind>) -> Result<()> {
    use v1::transact_request::Kind;
    let mut stream = client.transactions()?;
    let failed = |failed: duramen_client::FailedStep| failed.error;
    stream.ask(Kind::Begin(v1::Begin::default())).map_err(failed)?;
    let operations = operations.into_iter().map(|kind| v1::Operation { kind: Some(kind) }).collect();
    let reads = reads.into_iter().map(|kind| v1::Read { kind: Some(kind) }).collect();
    let step = v1::Step { operations, reads, marks: Vec::new() };
    stream.ask(Kind::Step(step)).map_err(failed).map(drop)
}

fn scanned(client: &Client, request: v1::ScanRequest) -> Result<()> {
    client.scan(request)?.next().map(drop)
}

fn watched(client: &Client, collections: &[&str], consumer: &str) -> Result<()> {
    let collections = collections.iter().map(|name| (*name).to_owned()).collect();
    let start = v1::WatchStart::Oldest.into();
    let request = v1::WatchRequest {
        start,
        collections,
        consumer: consumer.to_owned(),
        ends: true,
        ..Default::default()
    };
    let mut watched = client.watch(request)?;
    while watched.next()?.is_some() {}
    Ok(())
}

fn view() -> v1::AddViewRequest {
    let view = v1::ViewDefinition { name: "by_cents".to_owned(), key: vec![], ..Default::default() };
    v1::AddViewRequest { collection: "orders".to_owned(), view: Some(view), ..Default::default() }
}

fn operations() -> Vec<Call> {
    use operation::Kind;
    vec![
        ("put", "writer=collection:orders", |client| batch(client, Kind::Put(put()))),
        ("insert", "writer=collection:orders", |client| batch(client, Kind::Insert(put()))),
        ("delete", "writer=collection:orders", |client| batch(client, Kind::Delete(order_key("Rome", 9)))),
        ("delete range", "writer=collection:orders", |client| {
            let range = Some(v1::Range { prefix: Some(text("nowhere")), ..Default::default() });
            batch(
                client,
                Kind::DeleteRange(v1::DeleteRange { collection: "orders".to_owned(), range, limit: 0 }),
            )
        }),
        ("put typed", "writer=collection:orders", |client| {
            batch(
                client,
                Kind::PutTyped(v1::PutTyped { collection: "orders".to_owned(), ..Default::default() }),
            )
        }),
        ("assign id", "writer=collection:orders", |client| {
            batch(client, Kind::AssignId(v1::AssignId { collection: "orders".to_owned(), sequential: false }))
        }),
        ("put key-value", "writer=kv:stock", |client| {
            let v1::KeyValueKey { namespace, key } = kv();
            let value = Some(v1::Value { form: Some(v1::value::Form::Json("7".to_owned())) });
            batch(client, Kind::PutKeyValue(v1::PutKeyValue { namespace, key, value, ..Default::default() }))
        }),
        ("delete key-value", "writer=kv:stock", |client| {
            let key = Some(text("none"));
            batch(client, Kind::DeleteKeyValue(v1::KeyValueKey { key, ..kv() }))
        }),
        ("increment", "writer=kv:stock", |client| {
            let v1::KeyValueKey { namespace, key } = kv();
            batch(client, Kind::Increment(v1::Increment { namespace, key, by: 0 }))
        }),
        ("ensure", "schema=collection:orders", |client| {
            let key = vec!["city".to_owned(), "id".to_owned()];
            let ensure = v1::EnsureCollection { collection: "orders".to_owned(), key, ..Default::default() };
            batch(client, Kind::Ensure(ensure))
        }),
        ("advance consumer", "consumer=consumer:mailer", |client| {
            let advance = v1::AdvanceConsumer { name: "mailer".to_owned(), from: 1 << 40, to: 1 << 41 };
            batch(client, Kind::AdvanceConsumer(advance))
        }),
        ("attach blob", "writer=blob:files", |client| {
            let v1::BlobKey { namespace, key } = blob();
            batch(client, Kind::AttachBlob(v1::AttachBlob { namespace, key, upload: vec![7; 16].into() }))
        }),
        ("delete blob", "writer=blob:files", |client| batch(client, Kind::DeleteBlob(blob()))),
        ("rename blob", "writer=blob:files", |client| {
            let v1::BlobKey { namespace, key } = blob();
            batch(client, Kind::RenameBlob(v1::RenameBlob { namespace, from: key.clone(), to: key }))
        }),
        ("put in a transaction", "writer=collection:orders", |client| {
            step(client, vec![Kind::Put(put())], Vec::new())
        }),
    ]
}

fn reading() -> Vec<Call> {
    use read::Kind;
    fn range() -> v1::RangeOf {
        crate::all_orders()
    }
    vec![
        ("absent", "reader=collection:orders", |client| {
            holds(client, condition::Kind::Absent(order_key("Oslo", 9)))
        }),
        ("present", "reader=collection:orders", |client| {
            holds(client, condition::Kind::Present(order_key("Oslo", 1)))
        }),
        ("count is", "reader=collection:orders", |client| {
            let of = v1::CountIs { collection: "orders".to_owned(), range: None, count: 3 };
            holds(client, condition::Kind::CountIs(of))
        }),
        ("key-value is", "reader=kv:stock", |client| {
            let v1::KeyValueKey { namespace, key } = kv();
            holds(client, condition::Kind::KeyValueIs(v1::KeyValueIs { namespace, key, value: None }))
        }),
        ("get", "reader=collection:orders", |client| reads(client, Kind::Get(order_key("Oslo", 1)))),
        ("count", "reader=collection:orders", |client| reads(client, Kind::Count(range()))),
        ("rank", "reader=collection:orders", |client| reads(client, Kind::Rank(order_key("Oslo", 1)))),
        ("nth", "reader=collection:orders", |client| {
            reads(client, Kind::Nth(v1::Nth { collection: "orders".to_owned(), index: 0 }))
        }),
        ("reduce", "reader=collection:orders", |client| reads(client, Kind::Reduce(range()))),
        ("get key-value", "reader=kv:stock", |client| reads(client, Kind::GetKeyValue(kv()))),
        ("reduce view", "reader=collection:orders", |client| {
            let of = v1::ReduceView {
                collection: "orders".to_owned(),
                view: "none".to_owned(),
                ..Default::default()
            };
            reads(client, Kind::ReduceView(of))
        }),
        ("find", "reader=collection:orders", |client| reads(client, Kind::Find(find()))),
        ("explain", "reader=collection:orders", |client| reads(client, Kind::Explain(find()))),
        ("rows", "reader=collection:orders", |client| {
            reads(client, Kind::Rows(v1::RowsOf { collection: "orders".to_owned(), ..Default::default() }))
        }),
        ("read of a batch", "reader=collection:orders", |client| {
            let reads = vec![v1::Read { kind: Some(Kind::Count(range())) }];
            client.batch(v1::BatchRequest { reads, ..Default::default() }).map(drop)
        }),
        ("read in a transaction", "reader=collection:orders", |client| {
            step(client, Vec::new(), vec![Kind::Count(range())])
        }),
        ("scan", "reader=collection:orders", |client| {
            scanned(client, v1::ScanRequest { collection: "orders".to_owned(), ..Default::default() })
        }),
        ("scan of a query", "reader=collection:orders", |client| {
            scanned(client, v1::ScanRequest { find: Some(find()), ..Default::default() })
        }),
        ("scan of rows", "reader=collection:orders", |client| {
            let rows = Some(v1::RowsOf { collection: "orders".to_owned(), ..Default::default() });
            scanned(client, v1::ScanRequest { rows, ..Default::default() })
        }),
        ("watch", "reader=collection:orders", |client| watched(client, &["orders"], "")),
        ("download", "reader=blob:files", |client| {
            let v1::BlobKey { namespace, .. } = blob();
            let request = v1::DownloadRequest { namespace, key: Some(text("a")), ..Default::default() };
            client.download(request)?.next().map(drop)
        }),
        ("blob info", "reader=blob:files", |client| {
            let v1::BlobKey { namespace, key } = blob();
            client.blob_info(v1::BlobInfoRequest { namespace, key, at_least: None }).map(drop)
        }),
        ("list blobs", "reader=blob:files", |client| {
            client
                .list_blobs(v1::ListBlobsRequest { namespace: "files".to_owned(), ..Default::default() })
                .map(drop)
        }),
    ]
}

fn others() -> Vec<Call> {
    vec![
        ("upload", "writer=blob:files", |client| {
            let mut upload = client.upload()?;
            let first =
                v1::UploadRequest { namespace: "files".to_owned(), is_last: true, ..Default::default() };
            upload.send(first)?;
            upload.finish().map(drop)
        }),
        ("collections", "reader=collection:orders", |client| {
            client.collections(vec!["orders".to_owned()]).map(drop)
        }),
        ("views", "reader=collection:orders", |client| client.views(vec!["orders".to_owned()]).map(drop)),
        ("add view", "schema=collection:orders", |client| client.add_view(view()).map(drop)),
        ("drop view", "schema=collection:orders", |client| {
            let request = v1::DropViewRequest {
                collection: "orders".to_owned(),
                view: "none".to_owned(),
                ..Default::default()
            };
            client.drop_view(request).map(drop)
        }),
        ("rebuild view", "schema=collection:orders", |client| {
            let request = v1::RebuildViewRequest {
                collection: "orders".to_owned(),
                view: "none".to_owned(),
                ..Default::default()
            };
            client.rebuild_view(request).map(drop)
        }),
        ("build views", "schema=collection:orders", |client| client.build_views("orders", "").map(drop)),
        ("drop collection", "schema=collection:none", |client| {
            let collection = "none".to_owned();
            client.drop_collection(v1::DropCollectionRequest { collection, ..Default::default() }).map(drop)
        }),
        ("unregister consumer", "consumer=consumer:none", |client| {
            client.unregister_consumer("none").map(drop)
        }),
        ("watch of a consumer", "consumer=consumer:mailer", |client| watched(client, &[], "mailer")),
        ("register consumer", "consumer=consumer:mailer", |client| {
            let request = v1::RegisterConsumerRequest { name: "mailer".to_owned(), ..Default::default() };
            client.register_consumer(request).map(drop)
        }),
        ("seek consumer", "consumer=consumer:mailer", |client| {
            client.seek_consumer("mailer", client.hello().at.clone().unwrap_or_default())
        }),
        ("stats", "operator", |client| client.stats(Duration::from_secs(10)).map(drop)),
        ("backup", "backup", |client| {
            let directory = tempfile::tempdir().expect("a directory");
            Remote::from(client.clone()).backup(directory.path().join("copy")).map(drop)
        }),
        ("users", "admin", |client| client.users().map(drop)),
        ("put user", "admin", |client| client.put_user(user("x y", &[]), true)),
        ("drop user", "admin", |client| client.drop_user("nobody").map(drop)),
        ("add token", "admin", |client| client.add_token("nobody", 0).map(drop)),
        ("revoke token", "admin", |client| client.revoke_token("nothing").map(drop)),
    ]
}

/// The same right on everything, on the name, on names that begin like it, and as an administrator lets in;
/// every other right, and the right on other names, does not.
#[test]
fn each_call_needs_its_right_on_what_it_names() {
    const RIGHTS: [&str; 7] = ["reader", "writer", "schema", "consumer", "operator", "backup", "admin"];
    let served = served();
    let mut clients = std::collections::BTreeMap::new();
    let mut with = |rights: &[&str]| {
        let number = clients.len();
        let name = rights.join(",");
        clients.entry(name).or_insert_with(|| client(&served, &format!("u{number}"), rights)).clone()
    };
    let mut count = 0;
    for (call, right, run) in operations().into_iter().chain(reading()).chain(others()) {
        let allowed = |client: &Client| match run(client) {
            Ok(()) => true,
            Err(error) => error.code() != Code::Forbidden,
        };
        let (kind, on) = right.split_once('=').map_or((right, ""), |(kind, on)| (kind, on));
        let mut lets = vec![vec![right], vec![kind], vec!["admin"]];
        let beginning = format!("{kind}={}*", &on[..on.len().saturating_sub(2)]);
        let other = format!("{kind}={on}x");
        if !on.is_empty() {
            lets.push(vec![&beginning]);
        }
        if kind == "reader" {
            lets.push(vec!["writer"]);
        }
        for rights in lets {
            assert!(allowed(&with(&rights)), "{call}: {rights:?} lets in");
        }
        let of_others: Vec<&str> = RIGHTS
            .into_iter()
            .filter(|other| *other != kind && *other != "admin" && (kind, *other) != ("reader", "writer"))
            // Whoever has a right on a collection may know its definition.
            .filter(|other| !["collections", "views"].contains(&call) || *other == "operator")
            .collect();
        assert!(!allowed(&with(&of_others)), "{call}: {of_others:?} does not let in");
        if !on.is_empty() {
            assert!(!allowed(&with(&[&other])), "{call}: {other} does not let in");
        }
        assert!(!allowed(&with(&[])), "{call}: no right lets in");
        count += 1;
    }
    assert_eq!(count, 57);
}

#[test]
fn what_a_user_may_not_read_is_not_told() {
    let served = served();
    served.db.ensure(&Schema::new("secrets").key(["id"])).expect("a collection");
    served.db.documents("secrets").put(doc! { "id": 1 }).expect("stored");
    let reader = client(&served, "reader", &["reader=collection:orders"]);
    let names: Vec<String> =
        reader.collections(Vec::new()).expect("listed").into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["orders"]);
    let request = v1::WatchRequest {
        start: v1::WatchStart::Beginning.into(),
        ends: true,
        ..v1::WatchRequest::default()
    };
    let mut watched = reader.watch(request).expect("begun");
    let mut changes = Vec::new();
    while let Some(reply) = watched.next().expect("read") {
        changes.extend(reply.changes);
    }
    assert!(!changes.is_empty() && changes.iter().all(|change| change.collection == "orders"), "{changes:?}");
    let join = v1::Join { text: "secrets=id".to_owned(), or_null: true };
    let joined = v1::Find { collection: "orders".to_owned(), joins: vec![join], ..Default::default() };
    let refused = reader.read(crate::reading(read::Kind::Find(joined))).expect_err("it joins secrets");
    assert_eq!(refused.code(), Code::Forbidden);
    // The number of the operation that is not allowed.
    let writer = client(&served, "writer", &["writer=collection:orders"]);
    let delete =
        operation::Kind::Delete(v1::DocumentKey { collection: "secrets".to_owned(), key: Some(key("x", 1)) });
    let operations = vec![crate::put("Rome", 1, 5), v1::Operation { kind: Some(delete) }];
    let failed =
        writer.try_batch(v1::BatchRequest { operations, ..Default::default() }).expect_err("refused");
    assert_eq!((failed.error.code(), failed.operation), (Code::Forbidden, Some(2)));
    assert_eq!(crate::count(&served.client), 3, "nothing of it was done");
    // Operators see figures, and keys only where they may read.
    let operator = client(&served, "operator", &["operator"]);
    let stats = operator.stats(Duration::from_secs(10)).expect("read");
    assert!(stats.hot_keys.iter().all(|hot| hot.key.is_empty()));
    let holding = v1::RegisterConsumerRequest {
        refuses_writers: true,
        name: "holder".to_owned(),
        ..Default::default()
    };
    let consumer = client(&served, "consumer", &["consumer"]);
    let refused = consumer.register_consumer(holding.clone()).expect_err("that stops writers");
    assert_eq!(refused.code(), Code::Forbidden);
    let both = client(&served, "both", &["consumer", "operator"]);
    both.register_consumer(holding).expect("registered");
    assert_eq!(reader.consumers().expect("listed"), []);
    assert_eq!(consumer.consumers().expect("listed").len(), 2);
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "shelves")]
struct Shelf {
    #[key]
    id: u64,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "secrets")]
struct Secret {
    #[key]
    id: u64,
    #[references(Shelf)]
    on: u64,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "labels", view(LabelOn, key = on, unique, nulls))]
struct Label {
    #[key]
    id: u64,
    #[references(Shelf, on_delete = clear)]
    on: Option<u64>,
}

#[test]
fn what_a_delete_would_violate_is_told_to_who_reads_it() {
    let served = served();
    served.db.put(&Shelf { id: 1 }).expect("stored");
    served.db.put(&Label { id: 777, on: Some(1) }).expect("stored");
    served.db.put(&Label { id: 778, on: None }).expect("stored");
    let told = |client: &Client| {
        let key = Some(duramen_proto::key::of(&[duramen::tuple::Element::Int(1)]));
        let of = v1::DocumentKey { collection: "shelves".to_owned(), key };
        let error = batch(client, operation::Kind::Delete(of)).expect_err("two labels without a shelf");
        assert_eq!(error.code(), Code::UniqueViolation);
        error.to_string()
    };
    let all = ["writer=collection:shelves", "reader"];
    assert!(told(&client(&served, "reads", &all)).contains("777"));
    let hidden = told(&client(&served, "writes", &all[..1]));
    assert!(!hidden.contains("77") && !hidden.contains("labels"), "{hidden}");
}

/// A unique view over a field, added for that, would tell the field of two documents.
#[test]
fn why_a_view_cannot_be_built_is_told_to_who_reads_its_collection() {
    let served = served();
    for id in [777, 778] {
        let order = duramen::doc! { "city": "Rome", "id": id, "cents": 4321 };
        served.db.documents("orders").put(order).expect("stored");
    }
    let part = v1::ViewKeyField { name: "cents".to_owned(), ..Default::default() };
    let view =
        v1::ViewDefinition { name: "told".to_owned(), key: vec![part], unique: true, ..Default::default() };
    let add = || v1::AddViewRequest {
        collection: "orders".to_owned(),
        view: Some(view.clone()),
        ..Default::default()
    };
    let told = |client: &Client| {
        client.add_view(add()).expect("added");
        let error = client.build_views("orders", "told").expect_err("two of one amount");
        assert_eq!(error.code(), Code::UniqueViolation);
        error.to_string()
    };
    let all = ["schema=collection:orders", "reader=collection:orders"];
    let shown = told(&client(&served, "reads", &all));
    assert!(shown.contains("4321"), "{shown}");
    let hidden = told(&client(&served, "defines", &all[..1]));
    assert!(!hidden.contains("4321") && !hidden.contains("77"), "{hidden}");
}

/// What became of a request is written down, and so is a request without operations.
#[test]
fn a_request_id_needs_a_right_to_commit() {
    let served = served();
    let asked = |rights: &[&str], name: &str| {
        let client = client(&served, name, rights);
        let request_id = client.new_request_id().expect("an id");
        let write = Some(v1::Write { request_id: request_id.clone(), ..v1::Write::default() });
        let outcome = client.outcome(v1::OutcomeRequest { request_id }).map(drop);
        let batch = client.batch(v1::BatchRequest { write, ..v1::BatchRequest::default() }).map(drop);
        [outcome, batch].map(|done| done.err().map(|error| error.code()))
    };
    assert_eq!(asked(&["reader", "backup"], "reads"), [Some(Code::Forbidden); 2]);
    for (number, right) in
        ["writer=kv:x", "schema=collection:x", "consumer", "operator", "admin"].iter().enumerate()
    {
        let codes = asked(&[right], &format!("w{number}"));
        assert!(!codes.contains(&Some(Code::Forbidden)), "{right}: {codes:?}");
    }
}

#[test]
fn a_document_that_refers_to_a_deleted_one_is_named_to_who_reads_it() {
    let served = served();
    served.db.put(&Shelf { id: 1 }).expect("stored");
    served.db.put(&Secret { id: 777, on: 1 }).expect("stored");
    let delete = || {
        let key = Some(duramen_proto::key::of(&[duramen::tuple::Element::Int(1)]));
        operation::Kind::Delete(v1::DocumentKey { collection: "shelves".to_owned(), key })
    };
    let told = |client: &Client| {
        let of_batch = batch(client, delete()).expect_err("it is referred to");
        let operations = vec![v1::Operation { kind: Some(delete()) }];
        let mut stream = client.transactions().expect("a stream");
        let mut ask = |kind| stream.ask(kind).map_err(|failed| failed.error);
        ask(v1::transact_request::Kind::Begin(v1::Begin::default())).expect("begun");
        let commit = v1::Commit { operations, ..Default::default() };
        let of_step = ask(v1::transact_request::Kind::Commit(commit)).expect_err("it is referred to");
        for error in [&of_batch, &of_step] {
            assert_eq!(error.code(), Code::StillReferenced);
        }
        format!("{of_batch} {of_step}")
    };
    let all = ["writer=collection:shelves", "reader"];
    assert_eq!(told(&client(&served, "reads", &all)).matches("777").count(), 2);
    let hidden = told(&client(&served, "writes", &all[..1]));
    assert!(!hidden.contains("777") && !hidden.contains("secrets"), "{hidden}");
}

#[test]
fn tokens_end_when_they_expire_are_revoked_or_lose_their_user() {
    let served = served();
    let (_, local) = served.tcp();
    assert_eq!(connect(&served, &local).expect("the administrator").hello().user, "admin");
    served.client.put_user(user("web", &["reader"]), true).expect("added");
    let made = served.client.add_token("web", 60).expect("made");
    let web = connect(&served, &made.text).expect("it is let in");
    assert_eq!(web.hello().user, "web");
    assert_eq!(crate::count(&web), 3);
    for wrong in ["", "dur_", "dur_x_y", &made.text[..made.text.len() - 1], &format!("{}A", made.text)] {
        assert_eq!(connect(&served, wrong).expect_err("refused").code(), Code::Unauthenticated, "{wrong:?}");
    }
    // Other rights hold at once, on open streams, too: what was sent already comes, and no more.
    let text = "x".repeat(64 << 10);
    served.db.ensure(&Schema::new("texts").key(["id"])).expect("a collection");
    for id in 0..100 {
        served.db.documents("texts").put(doc! { "id": id, "text": text.as_str() }).expect("stored");
    }
    let request = v1::ScanRequest { collection: "texts".to_owned(), ..Default::default() };
    let mut scan = web.scan(request).expect("begun");
    let texts = vec!["texts".to_owned()];
    let start = v1::WatchStart::Oldest.into();
    let mut watch =
        web.watch(v1::WatchRequest { start, collections: texts, ..Default::default() }).expect("begun");
    served.client.put_user(user("web", &["reader=kv:stock"]), false).expect("changed");
    let count = web.read(crate::reading(read::Kind::Count(crate::all_orders())));
    assert_eq!(count.expect_err("refused").code(), Code::Forbidden);
    let ended = loop {
        match scan.next() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error.code()),
        }
    };
    assert_eq!(ended, Some(Code::Forbidden));
    let ended = loop {
        match watch.next() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error.code()),
        }
    };
    assert_eq!(ended, Some(Code::Forbidden));
    // What a transaction has written must still be granted at its commit.
    let writer = client(&served, "writer", &["writer=collection:orders"]);
    let mut stream = writer.transactions().expect("opened");
    stream.ask(v1::transact_request::Kind::Begin(v1::Begin::default())).expect("begun");
    let step = v1::Step { operations: vec![crate::put("Rome", 1, 5)], ..Default::default() };
    stream.ask(v1::transact_request::Kind::Step(step)).expect("written");
    served.client.put_user(user("writer", &["reader"]), false).expect("changed");
    let commit = v1::transact_request::Kind::Commit(v1::Commit::default());
    assert_eq!(stream.ask(commit).expect_err("refused").error.code(), Code::Forbidden);
    assert_eq!(crate::count(&served.client), 3);
    let mut stream = web.transactions().expect("opened");
    stream.ask(v1::transact_request::Kind::Begin(v1::Begin::default())).expect("begun");
    assert!(served.client.revoke_token(&made.token.expect("a token").id).expect("revoked"));
    let ended =
        stream.ask(v1::transact_request::Kind::Ping(v1::Ping {})).err().map(|failed| failed.error.code());
    assert_ne!(ended, None, "the stream is over");
    let refused = web.read(crate::reading(read::Kind::GetKeyValue(kv()))).expect_err("revoked");
    assert_eq!(refused.code(), Code::Unauthenticated);
    let all = served.client.users().expect("listed");
    assert!(all.tokens.iter().all(|token| token.user != "web"));
    // A user that goes takes its tokens along.
    let again = served.client.add_token("web", 60).expect("made").text;
    let web = connect(&served, &again).expect("it is let in");
    assert!(served.client.drop_user("web").expect("dropped"));
    assert_eq!(
        web.read(crate::reading(read::Kind::GetKeyValue(kv()))).expect_err("gone").code(),
        Code::Unauthenticated
    );
    let users = served.client.users().expect("listed");
    assert!(users.users.len() == 1 && users.tokens.len() == 1, "those of the writer");
    // One that has expired.
    users::put_user(
        &served.db,
        &users::User { name: "old".to_owned(), grants: Vec::new(), certificates: Vec::new() },
        true,
    )
    .expect("added");
    let (_, expired) = users::add_token(&served.db, "old", 1).expect("made");
    until_it_expires(&served, &expired);
    assert_eq!(connect(&served, &expired).expect_err("refused").code(), Code::Unauthenticated);
    for (name, rights) in
        [("", ""), ("admin", "reader"), ("a b", "reader"), ("ok", "root"), ("ok", "reader=x")]
    {
        let refused = served.client.put_user(user(name, &[rights]), true).expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{name:?} {rights:?}");
    }
    assert_eq!(served.client.add_token("nobody", 0).expect_err("refused").code(), Code::NoSuchKey);
    assert_eq!(
        served.client.put_user(user("nobody", &[]), false).expect_err("refused").code(),
        Code::NoSuchKey
    );
    assert_eq!(
        served.client.put_user(user("old", &[]), true).expect_err("refused").code(),
        Code::AlreadyExists
    );
}

/// A second, at most.
fn until_it_expires(served: &Served, token: &str) {
    while connect(served, token).is_ok() {}
}

#[derive(Debug, Serialize, Deserialize, Collection, PartialEq)]
#[collection(name = "notes")]
struct Note {
    #[key]
    id: u64,
    text: String,
}

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "marks")]
struct Mark {
    #[key]
    id: u64,
    #[references(Note)]
    note: u64,
}

/// A type that fits needs no right to change the collection.
#[test]
fn a_type_is_fitted_by_who_may_only_write() {
    let served = served();
    let note = Note { id: 1, text: "x".to_owned() };
    let writer = Remote::from(client(&served, "writer", &["writer=collection:notes"]));
    let refused = writer.put(&note).expect_err("there is no such collection yet");
    assert_eq!(refused.code(), Code::Forbidden);
    let owner = Remote::from(client(&served, "owner", &["schema=collection:notes"]));
    owner.register::<Note>().expect("created");
    writer.put(&note).expect("stored");
    assert_eq!(writer.get::<Note>(1).expect("read"), Some(note));
    assert_eq!(owner.get::<Note>(1).expect_err("it may not read").code(), Code::Forbidden);
    // A reference would change the collection to which it leads.
    let owner =
        Remote::from(client(&served, "referrer", &["schema=collection:marks", "writer=collection:marks"]));
    let refused = owner.register::<Mark>().expect_err("that changes notes");
    assert_eq!(refused.code(), Code::Forbidden);
    let stranger = Remote::from(client(&served, "stranger", &["writer=collection:orders"]));
    assert_eq!(stranger.register::<Note>().expect_err("refused").code(), Code::Forbidden);
}

#[test]
fn users_are_in_backups_and_stay_after_a_restart() {
    let mut served = served();
    let web = client(&served, "web", &["reader"]);
    let token = served.client.add_token("web", 600).expect("made").text;
    drop(web);
    let copy = served.directory.path().join("copy.duramen");
    served.db.backup(&copy).expect("copied");
    drop(served.server.take());
    for path in [served.path(), copy] {
        if path == served.path() {
            served.server = Some(
                duramen_server::Server::builder(served.db.clone())
                    .listen(any_port())
                    .start()
                    .expect("a server"),
            );
            assert_eq!(crate::count(&connect(&served, &token).expect("it is let in")), 3);
        } else {
            let db = Db::open(&path).expect("opened");
            let users = users::Users::of(&db.snapshot().expect("a snapshot")).expect("read");
            assert_eq!((users.users.len(), users.tokens.len()), (1, 2));
        }
    }
}
