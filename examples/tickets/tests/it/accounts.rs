//! Users, codes and sessions, with everything that is refused.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::site::{Site, eventually};

// The unique view refuses the second user, whatever the case of the letters.
#[test]
fn an_address_has_one_user() {
    let site = Site::start();
    let client = site.client();
    let check = |email: &str, name: &str, status: u16| {
        client.post("/users", &json!({ "email": email, "name": name })).expect(status).json()
    };
    let ada = check("ada@example.org", "Ada", 201);
    assert_eq!(check("ADA@example.org ", "Another", 409)["code"], "E0214");
    for email in ["", "ada", "@example.org", "ada@", "a@b@c", "ada\n@example.org"] {
        check(email, "Ada", 400);
    }
    check(&format!("{}@example.org", "a".repeat(300)), "Ada", 400);
    check("bo@example.org", " ", 400);
    let token = site.log_in("ada@example.org");
    let shown = client.with_token(&token).get(&format!("/users/{}", ada["id"])).expect(200).json();
    assert_eq!(shown, ada);
    client.with_token(&token).get("/users/999").expect(404);
}

#[test]
fn what_is_no_request_gets_json_all_the_same() {
    let mut site = Site::start();
    let (client, _) = site.user("ada");
    let check = |client: &Client, method: &str, path: &str, body: &str, status: u16| {
        // Some are refused before the body is read.
        let headers = [("content-type", "application/json"), ("expect", "100-continue")];
        let reply = client.send(method, path, &headers[..if body.is_empty() { 1 } else { 2 }], body).unwrap();
        assert!(reply.expect(status).json()["error"].is_string(), "{method} {path}");
    };
    check(&client, "POST", "/tickets", "{", 400);
    check(&client, "POST", "/tickets", r#"{"title": 7}"#, 422);
    check(&client, "POST", "/tickets", r#"{"title": "x", "priority": 9}"#, 422);
    check(&client, "POST", "/tickets", r#"{"title": "x", "colour": "red"}"#, 422);
    check(
        &client,
        "POST",
        "/tickets",
        &format!(r#"{{"title": "x", "text": "{}"}}"#, "x".repeat(70_000)),
        413,
    );
    check(&client, "GET", "/tickets/seven", "", 400);
    check(&client, "GET", "/tickets?status=lost", "", 400);
    check(&client, "GET", "/nothing", "", 404);
    let headers = [("content-type", "text/plain"), ("expect", "100-continue")];
    let reply = client.send("POST", "/tickets", &headers, "{}").unwrap();
    assert!(reply.expect(415).json()["error"].is_string());
    site.stop();
}

#[test]
fn a_session_is_needed_and_ends() {
    let site = Site::start();
    let (ada, _) = site.user("ada");
    ada.get("/tickets").expect(200);
    for token in ["", "x", "00000000-0000-4000-8000-000000000000"] {
        ada.with_token(token).get("/tickets").expect(401);
    }
    site.client().get("/tickets").expect(401);
    ada.send("DELETE", "/sessions", &[], ()).unwrap().expect(204);
    ada.get("/tickets").expect(401);
}

#[test]
fn a_code_works_once_and_cannot_be_guessed() {
    let site = Site::start();
    let client = site.client();
    client.post("/users", &json!({ "email": "ada@example.org", "name": "Ada" })).expect(201);
    let check = |code: &str, status: u16| {
        client.post("/sessions", &json!({ "email": "ada@example.org", "code": code })).expect(status);
    };
    // For an address without a user the answer is the same.
    client.post("/logins", &json!({ "email": "nobody@example.org" })).expect(202);
    check("00000000", 401);
    let first = site.code("ada@example.org");
    check("00000000", 401);
    check(&first.to_lowercase(), 201);
    check(&first, 401);
    let second = site.code("ada@example.org");
    (0..5).for_each(|_| check("wrong", 401));
    check(&second, 401);
    assert_eq!(site.outbox.count("nobody@example.org", ""), 0);
}

#[test]
fn a_session_expires() {
    let site = Site::start_with(|settings| settings.session_lifetime = Duration::from_millis(300));
    let (ada, _) = site.user("ada");
    eventually(|| (ada.get("/tickets").status == 401).then_some(()));
}

// While a code is valid no other is mailed. So a second mail shows that the first code has expired.
#[test]
fn a_code_expires() {
    let site = Site::start_with(|settings| settings.code_lifetime = Duration::from_millis(300));
    let client = site.client();
    let email = "ada@example.org";
    client.post("/users", &json!({ "email": email, "name": "Ada" })).expect(201);
    let first = site.code(email);
    eventually(|| {
        client.post("/logins", &json!({ "email": email })).expect(202);
        (site.outbox.count(email, "login code") > 1).then_some(())
    });
    client.post("/sessions", &json!({ "email": email, "code": first })).expect(401);
}
