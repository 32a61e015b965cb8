//! Clients that never give up. Every other one sends batches one after the other, and each batch until it
//! knows what has become of it; the others run closures, which `Remote` repeats.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen::error::Error;
use duramen::tuple::Element;
use duramen::{Code, Reads as _, doc};
use duramen_client::{Address, Client, Remote};
use duramen_disk::memory::Random;
use duramen_proto::v1::{self, operation, operation_result};

use crate::acks::Ack;
use crate::{Wrong, wrong};

/// What the batches store: a document each, and a counter of each client.
pub(crate) const COLLECTION: &str = "batches";
pub(crate) const COUNTERS: &str = "counters";

/// A server that is not back after this time is not coming.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two attempts to connect.
const REST: Duration = Duration::from_millis(5);

/// When the clients stop.
pub(crate) enum Until<'a> {
    Forever,
    Told(&'a AtomicBool),
}

impl Until<'_> {
    fn is_over(&self) -> bool {
        matches!(self, Until::Told(is_over) if is_over.load(Ordering::Relaxed))
    }
}

/// Clients of one server.
pub(crate) struct Clients {
    /// Each two clients one after the other have the next one.
    pub(crate) addresses: Vec<Address>,
    pub(crate) count: u64,
    pub(crate) seed: u64,
    /// Every error is one too many, once the server has answered.
    pub(crate) is_strict: bool,
}

impl Clients {
    /// Runs them all, each acknowledgement told to `told`, with the time that it took.
    pub(crate) fn run(
        &self,
        until: &Until<'_>,
        told: &(dyn Fn(&Ack, Duration) -> Result<(), Wrong> + Sync),
    ) -> Result<(), Wrong> {
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for number in 0..self.count {
                let failed = &failed;
                scope.spawn(move || {
                    let at = usize::try_from(number / 2).unwrap_or(0) % self.addresses.len();
                    let one = One {
                        address: &self.addresses[at],
                        client: number,
                        is_strict: self.is_strict,
                        random: Random::new(self.seed ^ number << 32),
                    };
                    if let Err(error) = one.run(until, told) {
                        failed.lock().expect("no thread panics").get_or_insert(error);
                    }
                });
            }
        });
        failed.into_inner().expect("no thread panics").map_or(Ok(()), Err)
    }
}

struct One<'a> {
    address: &'a Address,
    client: u64,
    is_strict: bool,
    random: Random,
}

impl One<'_> {
    fn run(
        mut self,
        until: &Until<'_>,
        told: &dyn Fn(&Ack, Duration) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let mut connection = self.connect()?;
        if self.client % 2 == 1 {
            return self.run_closures(&Remote::from(connection), until, told);
        }
        let mut number = 0;
        while !until.is_over() {
            let start = Instant::now();
            let id = self.send(&mut connection, number)?;
            told(&Ack { client: self.client, number, id: shown(&id) }, start.elapsed())?;
            number += 1;
        }
        Ok(())
    }

    /// As `run`, with transactions of several messages. The id is drawn by the closure: it is of one run, and
    /// what is told must be that of the run that was committed.
    fn run_closures(
        mut self,
        remote: &Remote,
        until: &Until<'_>,
        told: &dyn Fn(&Ack, Duration) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let mut number = 0;
        while !until.is_over() {
            let start = Instant::now();
            let done = remote.transact(|tx| {
                let id = format!("{:016x}", self.random.bits());
                let counter = tx.kv(COUNTERS).get::<i64>(self.client)?.unwrap_or(0);
                tx.documents(COLLECTION)
                    .insert(&doc! { "client": self.client, "number": number, "id": id.as_str() })?;
                tx.kv(COUNTERS).put(self.client, &(counter + 1))?;
                Ok((id, counter))
            });
            match done {
                Ok((id, counter)) if u64::try_from(counter) == Ok(number) => {
                    told(&Ack { client: self.client, number, id }, start.elapsed())?;
                    number += 1;
                }
                // The server was away for half a minute: nothing has happened.
                Err(error) if !self.is_strict && may_run_again(&error) => {}
                other => return Err(wrong(format!("client {}, {number}: {other:?}", self.client))),
            }
        }
        Ok(())
    }

    /// Sends a batch until it is committed; returns the id under which it was.
    fn send(&mut self, connection: &mut Client, number: u64) -> Result<bytes::Bytes, Wrong> {
        let mut id = connection.new_request_id()?;
        let mut was_asked = false;
        loop {
            match connection.batch(self.batch(number, &id)) {
                Ok(reply) => {
                    self.check(number, &reply.results)?;
                    // A retry of what was answered gets the same answer, and says that it is one.
                    if self.random.below(8) == 0
                        && let Ok(again) = connection.batch(self.batch(number, &id))
                    {
                        self.check(number, &again.results)?;
                        if again.receipt.is_none_or(|receipt| !receipt.repeated) {
                            return Err(wrong(format!("client {}, {number}: it ran twice", self.client)));
                        }
                    }
                    return Ok(id);
                }
                Err(error) if self.is_strict => {
                    return Err(wrong(format!("client {}, {number}: {error:?}", self.client)));
                }
                Err(error) if is_of_the_connection(&error) => *connection = self.connect()?,
                Err(error) if may_be_sent_again(&error) => {}
                // The answer of `Outcome` was lost.
                Err(error) if error.code() == Code::RequestCancelled && was_asked => {
                    (id, was_asked) = (connection.new_request_id()?, false);
                }
                Err(error) => return Err(wrong(format!("client {}, {number}: {error:?}", self.client))),
            }
            // Another one asks before it tries again. "Never" is final, so a new id is safe.
            if self.random.below(2) == 0 {
                was_asked = true;
                match connection.outcome(v1::OutcomeRequest { request_id: id.clone() }) {
                    Ok(outcome) if outcome.committed => {
                        self.check(number, &outcome.results)?;
                        return Ok(id);
                    }
                    Ok(_) => (id, was_asked) = (connection.new_request_id()?, false),
                    Err(error) if is_of_the_connection(&error) => *connection = self.connect()?,
                    Err(error) if may_be_sent_again(&error) => {}
                    Err(error) => return Err(wrong(format!("client {}, {number}: {error:?}", self.client))),
                }
            }
        }
    }

    /// A document with the id, and a counter that would tell a second run.
    fn batch(&self, number: u64, id: &bytes::Bytes) -> v1::BatchRequest {
        let json = format!(r#"{{"client": {}, "number": {number}, "id": "{}"}}"#, self.client, shown(id));
        let document = Some(v1::Document { form: Some(v1::document::Form::Json(json)) });
        let insert = v1::PutDocument { collection: COLLECTION.to_owned(), document, want_before: false };
        let increment = v1::Increment {
            namespace: COUNTERS.to_owned(),
            key: Some(duramen_proto::key::of(&[Element::Int(self.client.into())])),
            by: 1,
        };
        let operations = [operation::Kind::Insert(insert), operation::Kind::Increment(increment)];
        v1::BatchRequest {
            write: Some(v1::Write { request_id: id.clone(), ..v1::Write::default() }),
            operations: operations.map(|kind| v1::Operation { kind: Some(kind) }).to_vec(),
            ..v1::BatchRequest::default()
        }
    }

    /// The counter is what the batch of this number makes it.
    fn check(&self, number: u64, results: &[v1::OperationResult]) -> Result<(), Wrong> {
        let wanted = i64::try_from(number + 1).map_err(|_| wrong("too many batches"))?;
        match results.get(1).and_then(|result| result.kind.as_ref()) {
            Some(operation_result::Kind::Incremented(counter)) if *counter == wanted => Ok(()),
            other => {
                Err(wrong(format!("client {}, {number}: wanted {wanted}, answered {other:?}", self.client)))
            }
        }
    }

    fn connect(&self) -> Result<Client, Wrong> {
        let start = Instant::now();
        loop {
            match Client::connect(self.address) {
                Ok(client) => return Ok(client),
                Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => std::thread::sleep(REST),
            }
        }
    }
}

/// The connection is of no use any more.
fn is_of_the_connection(error: &Error) -> bool {
    [Code::Unreachable, Code::OutcomeUnknown].contains(&error.code())
}

/// A transaction did not happen, and may the next time.
fn may_run_again(error: &Error) -> bool {
    may_be_sent_again(error) || error.code() == Code::Unreachable
}

/// Nothing happened.
fn may_be_sent_again(error: &Error) -> bool {
    [Code::Overloaded, Code::Draining, Code::DeadlinePassed, Code::WriteConflict].contains(&error.code())
}

fn shown(id: &bytes::Bytes) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
