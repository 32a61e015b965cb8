//! Jobs that fail, and a server that is stopped and started again over the same directory.

use duramen::prelude::*;
use serde_json::json;
use tickets::model::{Job, Ticket};

use crate::site::Site;

// The mail is sent once for each change of the assignee, and not for other edits.
#[test]
fn a_new_assignee_gets_a_mail() {
    let site = Site::start();
    let ((ada, ada_id), (_, bo_id)) = (site.user("ada"), site.user("bo"));
    let ticket = ada.post("/tickets", &json!({ "title": "Sharpen the saw", "assignee": bo_id })).expect(201);
    let path = ticket.headers["location"].to_str().unwrap().to_owned();
    let mail = site.outbox.mail("bo@example.org", "is yours", 0);
    assert_eq!(mail.text, "Sharpen the saw");
    let edit = |title: &str, assignee: Option<u64>| {
        let body =
            json!({ "title": title, "text": "", "status": "open", "priority": 2, "assignee": assignee });
        ada.put(&path, &ada.get(&path).etag(), &body).expect(200);
    };
    edit("Sharpen the axe", Some(bo_id));
    edit("Sharpen the axe", Some(ada_id));
    site.outbox.mail("ada@example.org", "is yours", 0);
    edit("Sharpen the axe", None);
    edit("Sharpen the axe", Some(bo_id));
    site.outbox.mail("bo@example.org", "is yours", 1);
    assert_eq!(site.outbox.count("bo@example.org", "is yours"), 2);
    assert_eq!(site.outbox.count("ada@example.org", "is yours"), 1);
}

#[test]
fn a_job_is_tried_again_and_given_up_in_the_end() {
    let mut site = Site::start_with(|settings| settings.job_failures_max = 3);
    let (ada, id) = site.user("ada");
    site.outbox.refuse(2);
    ada.post("/tickets", &json!({ "title": "tried three times", "assignee": id })).expect(201);
    assert_eq!(site.outbox.mail("ada@example.org", "is yours", 0).text, "tried three times");
    site.outbox.refuse(3);
    ada.post("/tickets", &json!({ "title": "in vain", "assignee": id })).expect(201);
    site.outbox.wait_for_refusals(5);
    ada.post("/tickets", &json!({ "title": "goes on", "assignee": id })).expect(201);
    assert_eq!(site.outbox.mail("ada@example.org", "is yours", 1).text, "goes on");
    site.stop();
    let jobs = Db::open(site.database()).unwrap().collection::<Job>().to_vec().unwrap();
    let [given_up] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((given_up.due, given_up.failures), (None, 3));
    assert_eq!(given_up.last_failure.as_deref(), Some("the mail server is down"));
}

// In a restored backup the announcer's position means nothing: it begins anew with what the tickets hold.
#[test]
fn a_restored_backup_announces_what_was_not_announced() {
    let mut site = Site::start();
    let ((ada, ada_id), (_, bo_id)) = (site.user("ada"), site.user("bo"));
    let ticket = ada.post("/tickets", &json!({ "title": "Sharpen the saw", "assignee": ada_id })).expect(201);
    let id = ticket.json()["id"].as_u64().unwrap();
    site.outbox.mail("ada@example.org", "is yours", 0);
    site.stop();
    let (path, backup) = (site.database(), site.database().with_extension("backup"));
    let db = Db::open(&path).unwrap();
    let to_bo = |ticket: &mut Ticket| {
        ticket.assignee = Some(bo_id);
        Ok(())
    };
    db.modify::<Ticket>(id, to_bo).unwrap();
    db.backup(&backup).unwrap();
    drop(db);
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::rename(&backup, &path).unwrap();
    site.start_again();
    site.outbox.mail("bo@example.org", "is yours", 0);
    let ada = site.client().with_token(&ada.token.unwrap());
    ada.post("/tickets", &json!({ "title": "goes on", "assignee": ada_id })).expect(201);
    assert_eq!(site.outbox.mail("ada@example.org", "is yours", 1).text, "goes on");
}

#[test]
fn a_restart_loses_nothing_and_jobs_continue() {
    let mut site = Site::start_with(|settings| settings.job_failures_max = u32::MAX);
    let (ada, id) = site.user("ada");
    let (bo, bo_id) = site.user("bo");
    site.outbox.refuse(u32::MAX);
    let mut before = Vec::new();
    for n in 0..5 {
        let assignee = [id, bo_id][n % 2];
        let body = json!({ "title": format!("t{n}"), "assignee": assignee });
        let path = ada.post("/tickets", &body).expect(201).headers["location"].to_str().unwrap().to_owned();
        bo.post(&format!("{path}/comments"), &json!({ "text": "seen" })).expect(201);
        ada.upload(&format!("{path}/attachments?name=log"), &vec![b'x'; 100_000]).expect(201);
        let read = ada.get(&path).expect(200);
        before.push((path, read.etag(), read.json()));
    }
    site.outbox.wait_for_refusals(1);
    let pages = ada.get("/tickets?limit=2").expect(200).json();
    let counts = ada.get("/counts").expect(200).json();
    site.stop();

    // Nothing of the first run still holds the directory, and everything in it is sound.
    let db = Db::open(site.database()).unwrap();
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
    drop(db);

    site.outbox.refuse(0);
    site.start_again();
    let ada = site.client().with_token(&ada.token.unwrap());
    for (path, etag, ticket) in &before {
        let read = ada.get(path).expect(200);
        assert_eq!((&read.etag(), &read.json()), (etag, ticket));
        assert_eq!(ada.get(&format!("{path}/comments")).json()["items"].as_array().unwrap().len(), 1);
        assert_eq!(ada.get(&format!("{path}/attachments/1")).expect(200).bytes, vec![b'x'; 100_000]);
    }
    assert_eq!(ada.get("/counts").expect(200).json(), counts);
    // A token of before the restart, and a revision.
    let token = pages["next"].as_str().unwrap();
    assert_eq!(
        ada.get(&format!("/tickets?limit=2&after={token}")).expect(200).json()["items"][0]["title"],
        "t2"
    );
    let (path, etag, _) = &before[0];
    ada.delete(path, etag).expect(204);

    for n in 1..5 {
        let (to, index) = (["ada@example.org", "bo@example.org"][n % 2], (n - 1) / 2);
        site.outbox.mail(to, "is yours", index);
    }
    // New ids are new.
    let next = ada.post("/tickets", &json!({ "title": "after" })).expect(201).json();
    assert!(before.iter().all(|(_, _, ticket)| ticket["id"].as_u64() < next["id"].as_u64()));
}
