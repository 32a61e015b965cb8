//! A client: requests as tests write them, and answers as they read them.

use serde_json::Value;
use ureq::http::{HeaderMap, Request};
use ureq::{Agent, AsSendBody, SendBody};

/// An answer, whole.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("JSON")
    }

    #[track_caller]
    pub(crate) fn etag(&self) -> String {
        self.headers["etag"].to_str().unwrap().to_owned()
    }
}

/// Sends requests to one server, with the token of a session or without.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    pub(crate) token: Option<String>,
    agent: Agent,
}

impl Client {
    pub(crate) fn new(base: String) -> Client {
        // A connection for each request: those that are kept open do not outlive a restart.
        let config = Agent::config_builder().http_status_as_error(false).max_idle_connections(0).build();
        Client { base, token: None, agent: config.into() }
    }

    pub(crate) fn with_token(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.base.strip_prefix("http://").unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], ()).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).unwrap()
    }

    pub(crate) fn put(&self, path: &str, etag: &str, body: &Value) -> Reply {
        let headers = [("content-type", "application/json"), ("if-match", etag)];
        self.send("PUT", path, &headers, body.to_string()).unwrap()
    }

    pub(crate) fn delete(&self, path: &str, etag: &str) -> Reply {
        self.send("DELETE", path, &[("if-match", etag)], ()).unwrap()
    }

    /// Sends a body piece by piece, without its length before it, once the server asks for it. Otherwise a
    /// refusal could close the connection while the body is sent.
    pub(crate) fn upload(&self, path: &str, mut bytes: &[u8]) -> Reply {
        let headers = [("content-type", "image/png"), ("expect", "100-continue")];
        self.send("POST", path, &headers, SendBody::from_reader(&mut bytes)).unwrap()
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsSendBody,
    ) -> Result<Reply, ureq::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.agent.run(request.body(body).unwrap())?;
        let (head, mut body) = answer.into_parts();
        let bytes = body.with_config().limit(u64::MAX).read_to_vec()?;
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, bytes })
    }
}
