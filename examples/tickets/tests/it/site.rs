//! A running server with a mailer that captures, and what tests wait for. Every wait has an upper bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tickets::mail::{Mail, Mailer};
use tickets::server::{Server, Settings};
use tokio::runtime::Runtime;

use crate::client::Client;

/// The bound of every wait: a failure, not a duration that a test needs.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Keeps mails, and refuses the first ones if asked to.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutboxState {
    sent: Vec<Mail>,
    refused: u32,
    refuse: u32,
}

impl Mailer for Outbox {
    fn send(&self, mail: &Mail) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        let result = if state.refuse > 0 {
            state.refuse -= 1;
            state.refused += 1;
            Err("the mail server is down".to_owned())
        } else {
            state.sent.push(mail.clone());
            Ok(())
        };
        self.changed.notify_all();
        result
    }
}

impl Outbox {
    pub(crate) fn refuse(&self, mails: u32) {
        self.state.lock().unwrap().refuse = mails;
    }

    /// Waits until that many mails were refused.
    #[track_caller]
    pub(crate) fn wait_for_refusals(&self, count: u32) {
        self.wait(|state| (state.refused >= count).then_some(()));
    }

    /// Waits for the mail of this number, from 0, to this address with this in its subject.
    #[track_caller]
    pub(crate) fn mail(&self, to: &str, subject: &str, index: usize) -> Mail {
        let is_it = |mail: &&Mail| mail.to == to && mail.subject.contains(subject);
        self.wait(|state| state.sent.iter().filter(is_it).nth(index).cloned())
    }

    pub(crate) fn count(&self, to: &str, subject: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.sent.iter().filter(|mail| mail.to == to && mail.subject.contains(subject)).count()
    }

    #[track_caller]
    fn wait<T>(&self, mut found: impl FnMut(&OutboxState) -> Option<T>) -> T {
        let mut result = None;
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, WAIT_MAX, |state| {
            result = found(state);
            result.is_none()
        });
        drop(waited.unwrap());
        result.expect("the mail did not come in time")
    }
}

/// Repeats a request until its answer is as wanted.
#[track_caller]
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < WAIT_MAX, "it did not happen in time");
        std::thread::yield_now();
    }
}

/// A server and its directory.
pub(crate) struct Site {
    directory: TempDir,
    pub(crate) outbox: Arc<Outbox>,
    settings: Settings,
    running: Option<(Runtime, Server)>,
}

impl Site {
    pub(crate) fn start() -> Site {
        Site::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut Settings)) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut settings = Settings::new(directory.path().join("tickets.duramen"), address);
        settings.job_delay = Duration::from_millis(1);
        settings.job_delay_max = Duration::from_millis(20);
        change(&mut settings);
        let mut site = Site { directory, outbox: Arc::default(), settings, running: None };
        site.start_again();
        site
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.directory.path().join("tickets.duramen")
    }

    /// Stops the server, which closes the database.
    pub(crate) fn stop(&mut self) {
        let (runtime, server) = self.running.take().unwrap();
        runtime.block_on(server.stop()).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start(self.settings.clone(), self.outbox.clone())).unwrap();
        self.running = Some((runtime, server));
    }

    pub(crate) fn client(&self) -> Client {
        let (_, server) = self.running.as_ref().unwrap();
        Client::new(format!("http://{}", server.address()))
    }

    /// Registers a user and logs in. Returns the client with the session, and the user's id.
    #[track_caller]
    pub(crate) fn user(&self, name: &str) -> (Client, u64) {
        let email = format!("{name}@example.org");
        let client = self.client();
        let user = client.post("/users", &json!({ "email": email, "name": name })).expect(201).json();
        let token = self.log_in(&email);
        (client.with_token(&token), user["id"].as_u64().unwrap())
    }

    /// Asks for a code, reads it in the mail, and exchanges it for a token.
    #[track_caller]
    pub(crate) fn log_in(&self, email: &str) -> String {
        let code = self.code(email);
        let session = self.client().post("/sessions", &json!({ "email": email, "code": code })).expect(201);
        session.json()["token"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn code(&self, email: &str) -> String {
        let known = self.outbox.count(email, "login code");
        self.client().post("/logins", &json!({ "email": email })).expect(202);
        self.outbox.mail(email, "login code", known).text[..8].to_owned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.running.is_some() && !std::thread::panicking() {
            self.stop();
        } else if let Some((runtime, _)) = self.running.take() {
            // A failed test does not wait for threads that nothing ends.
            runtime.shutdown_background();
        }
    }
}
