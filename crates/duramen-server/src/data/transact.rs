//! Transactions of several messages: the library's open transactions, each held for a client for a while.
//!
//! A message is one step of work on a thread; between two messages a transaction keeps a state of the
//! database and its own notes, and no thread. It is dropped, which rolls it back, with its stream: whatever
//! becomes of the client, nothing is left of it but what it has committed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen::requests::{self, Known, Request, RequestId};
use duramen::{Db, Durability, OpenTransaction, Transaction};
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::{document, v1};
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::batch::{self, ITEM_BYTES, Operation};
use super::read::Room;
use super::{DataService, find, refused, request_id};
use crate::call::Call;
use crate::limit::DEADLINE_MAX;
use crate::limit::budget::{Charge, overloaded};
use crate::limit::places::Class;
use crate::schema::durability;

/// A transaction without a message for so long is rolled back.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long a transaction may last that asks for no other time.
const LASTS: Duration = Duration::from_secs(30);

/// Beyond so many bytes the reads of a transaction are noted as whole trees.
const READS_BYTES_MAX: usize = 1 << 20;

/// What a request id stands for. A client sends the commit of a transaction once: it asks for the outcome,
/// and runs the transaction under another id.
const BODY: &[u8] = b"transaction";

/// An error, and the operation of the message whose error it is, from 1; 0 if it is of none.
type Failure = (Error, u32);

type Next =
    Pin<Box<dyn Future<Output = Option<(std::result::Result<v1::TransactReply, Status>, Session)>> + Send>>;

/// The answers of a stream: each is made when its message comes.
pub(super) struct Answers {
    next: Option<Next>,
}

impl Answers {
    pub(super) fn new(service: DataService, messages: Streaming<v1::TransactRequest>, call: Call) -> Answers {
        let session = Session { service, messages, call, open: None, is_over: false };
        Answers { next: Some(Box::pin(session.next())) }
    }
}

impl Stream for Answers {
    type Item = std::result::Result<v1::TransactReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(next) = self.next.as_mut() else { return Poll::Ready(None) };
        let made = ready!(next.as_mut().poll(cx));
        self.next = None;
        Poll::Ready(made.map(|(answer, session)| {
            self.next = Some(Box::pin(session.next()));
            answer
        }))
    }
}

/// A stream between two messages.
struct Session {
    service: DataService,
    messages: Streaming<v1::TransactRequest>,
    call: Call,
    open: Option<Open>,
    is_over: bool,
}

/// A transaction of a stream.
struct Open {
    transaction: OpenTransaction,
    /// The call, with the end of the transaction's time as its deadline.
    call: Call,
    form: v1::DocumentForm,
    /// Bytes that it has noted of its reads; so many of them are charged.
    noted: usize,
    charged: usize,
    charges: Vec<Charge>,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    /// The answer to the next message.
    async fn next(mut self) -> Option<(std::result::Result<v1::TransactReply, Status>, Session)> {
        if self.is_over {
            return None;
        }
        let answer = match timeout_at(self.silent_until(), self.messages.message()).await {
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(message))) => Ok(self.answer(message).await),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(refused(expired(self.open.is_some()))),
        };
        self.is_over = answer.is_err();
        if self.is_over {
            self.open = None;
        }
        self.call.charges.end_message();
        Some((answer, self))
    }

    /// When the next message must be there.
    fn silent_until(&self) -> Instant {
        match &self.open {
            Some(open) => open.call.deadline.min(Instant::now() + SILENCE_MAX),
            None => self.call.deadline,
        }
    }

    async fn answer(&mut self, message: v1::TransactRequest) -> v1::TransactReply {
        let asked = message.kind.ok_or_else(|| (Error::invalid("the message is of no kind"), 0));
        let told = match asked {
            Ok(Asked::Begin(begin)) => self.begin(begin).await.map_err(|error| (error, 0)),
            Ok(Asked::Step(step)) => self.step(step).await,
            Ok(Asked::Commit(commit)) => self.commit(commit).await,
            Ok(Asked::Rollback(_)) => {
                self.open = None;
                Ok(Told::RolledBack(v1::RolledBack {}))
            }
            Ok(Asked::Ping(_)) => Ok(Told::Pong(v1::Pong {})),
            Err(failed) => Err(failed),
        };
        // The place of the work; the answer needs none.
        self.call.give_place_back();
        v1::TransactReply { kind: Some(told.unwrap_or_else(|failed| self.failed(&failed))) }
    }

    fn failed(&self, (error, operation): &Failure) -> Told {
        Told::Failed(v1::Failed {
            code: error.code().to_string(),
            message: error.message().to_owned(),
            hint: error.hint(),
            operation: *operation,
            is_over: self.open.is_none(),
        })
    }

    async fn begin(&mut self, begin: v1::Begin) -> Result<Told> {
        if self.open.is_some() {
            return Err(Error::invalid("the transaction before is still open")
                .with_hint("commit it or roll it back; another stream has another transaction"));
        }
        let lasts = match begin.lasts_ms {
            0 => LASTS,
            ms => Duration::from_millis(u64::from(ms)).min(DEADLINE_MAX),
        };
        let permit = Arc::clone(&self.service.transactions).try_acquire_owned();
        let permit = permit.map_err(|_| overloaded("transaction"))?;
        self.call.take_place().await?;
        let identity = Arc::clone(&self.service.identity);
        let (at_least, form) = (begin.at_least.clone(), begin.form());
        let call = self.call.until(Instant::now() + lasts);
        let ends = call.clone();
        let run = move |db: &Db| {
            identity.check(at_least.as_ref(), &db.snapshot()?)?;
            let mut transaction = db.begin()?;
            transaction.with(|tx| {
                tx.limit_reads(READS_BYTES_MAX);
                tx.only_if(move || ends.check_deadline());
                Ok(())
            })?;
            Ok((identity.of_seq(transaction.seq(), db), transaction))
        };
        let (at, transaction) = self.service.writes.run(run).await?;
        self.open = Some(Open {
            transaction,
            call,
            form,
            noted: 0,
            charged: 0,
            charges: Vec::new(),
            _permit: permit,
        });
        Ok(Told::Begun(v1::Begun { at: Some(at) }))
    }

    fn take_open(&mut self) -> std::result::Result<Open, Failure> {
        self.open.take().ok_or_else(|| {
            let error = Error::invalid("no transaction is open on the stream").with_hint("begin one first");
            (error, 0)
        })
    }

    async fn step(&mut self, step: v1::Step) -> std::result::Result<Told, Failure> {
        let open = self.take_open()?;
        let asked = Steps { operations: step.operations, reads: step.reads, request: None };
        let (open, done) = self.work(open, asked, Class::Calls).await?;
        self.open = Some(open);
        let Done { results, reads, .. } = done?;
        Ok(Told::StepDone(v1::StepDone { results, reads }))
    }

    async fn commit(&mut self, commit: v1::Commit) -> std::result::Result<Told, Failure> {
        let write = commit.write.unwrap_or_default();
        let level = durability(write.level).map_err(of_none)?;
        let request = match write.request_id.as_ref() {
            [] => None,
            bytes => Some(request_id(bytes).map_err(of_none)?),
        };
        let open = self.take_open()?;
        let asked = Steps { operations: commit.operations, reads: Vec::new(), request };
        let (open, done) = self.work(open, asked, Class::Control).await?;
        let Done { results, known, .. } = match done {
            Ok(done) => done,
            Err(failed) => {
                self.open = Some(open);
                return Err(failed);
            }
        };
        let committed = match (known, request) {
            (Known::New, _) | (_, None) => self.end(open, level, results).await,
            (known, Some(id)) => self.repeated(known, id).await,
        };
        committed.map(Told::Committed).map_err(of_none)
    }

    /// The commit itself.
    async fn end(
        &mut self,
        open: Open,
        level: Durability,
        results: Vec<v1::OperationResult>,
    ) -> Result<v1::Committed> {
        let Open { transaction, .. } = open;
        let receipt = self.service.writes.at(level).commit(transaction).await?;
        Ok(v1::Committed { receipt: Some(self.service.identity.receipt(&receipt, false)), results })
    }

    /// A transaction was committed under this id before. What was found of it may not be on disk yet: its
    /// outcome is told once it is.
    async fn repeated(&mut self, known: Known, id: RequestId) -> Result<v1::Committed> {
        known.into_answer(id)?;
        self.service.writes.outcome(id, self.call.user).await?;
        let db = self.service.writes.blocking();
        let at = self.service.identity.of_seq(db.durability_status().durable, db);
        let receipt = v1::Receipt { at: Some(at), reached: v1::Level::Disk.into(), repeated: true };
        Ok(v1::Committed { receipt: Some(receipt), results: Vec::new() })
    }

    /// Does what a message asks for in the transaction, on a thread. The transaction goes on after an error
    /// of that; it is over if there is no thread, or no room for what it notes.
    async fn work(
        &mut self,
        mut open: Open,
        asked: Steps,
        class: Class,
    ) -> std::result::Result<Worked, Failure> {
        let charge = match self.take_room(&asked, class).await {
            Ok(charge) => charge,
            // Nothing of it was done.
            Err(error) => return Ok((open, Err(of_none(error)))),
        };
        let user = self.call.user;
        let run = move |db: &Db| {
            let done = open.work(db, asked, user);
            drop(charge);
            Ok((open, done))
        };
        let (mut open, done) = self.service.writes.run(run).await.map_err(of_none)?;
        if open.noted > open.charged {
            let charge = self.call.hold(open.noted - open.charged).await.map_err(of_none)?;
            open.charged = open.noted;
            open.charges.push(charge);
        }
        Ok((open, done))
    }

    /// Room for a message as it was decoded and checked, and a place for its work.
    async fn take_room(&mut self, asked: &Steps, class: Class) -> Result<Charge> {
        let items = asked.operations.len() + asked.reads.len();
        let parts = document::parts_of_operations(&asked.operations)?;
        let charge = self.call.hold(items * ITEM_BYTES + parts * document::PART_BYTES).await?;
        self.call.take_place_of(class).await?;
        Ok(charge)
    }
}

/// What a message asks for.
struct Steps {
    operations: Vec<v1::Operation>,
    reads: Vec<v1::Read>,
    /// The commit is remembered under this id.
    request: Option<RequestId>,
}

/// A transaction after a message, and what that has done.
type Worked = (Open, std::result::Result<Done, Failure>);

/// What a message has done.
struct Done {
    results: Vec<v1::OperationResult>,
    reads: Vec<v1::ReadResult>,
    /// Of its request id.
    known: Known,
}

impl Open {
    fn work(&mut self, db: &Db, asked: Steps, user: &str) -> std::result::Result<Done, Failure> {
        self.call.begin().map_err(of_none)?;
        let (operations, reads) = (checked(asked.operations, self.form)?, asked.reads);
        find::check_in_batch(&reads).map_err(of_none)?;
        if asked.request.is_some() {
            // Its clock is started by the first look at it, outside of a transaction.
            requests::time(db).map_err(of_none)?;
        }
        let (call, form) = (self.call.clone(), self.form);
        let mut done = Err(of_none(Error::invalid("the transaction cannot go on")));
        let mut noted = self.noted;
        let went_on = self.transaction.with(|tx| {
            done = in_transaction(tx, &call, &operations, &reads, form).and_then(|mut done| {
                if let Some(id) = asked.request {
                    let request = Request::new(id, BODY).by(user);
                    done.known = remembered(tx, &request, &done.results).map_err(of_none)?;
                }
                Ok(done)
            });
            noted = tx.read_bytes();
            Ok(())
        });
        self.noted = noted;
        went_on.map_err(of_none)?;
        done
    }
}

/// The operations of a message, checked.
fn checked(
    operations: Vec<v1::Operation>,
    form: v1::DocumentForm,
) -> std::result::Result<Vec<Operation>, Failure> {
    let check = |(number, operation)| Operation::new(operation, form).map_err(|error| (error, number));
    (1..).zip(operations).map(check).collect()
}

fn in_transaction(
    tx: &mut Transaction<'_>,
    call: &Call,
    operations: &[Operation],
    reads: &[v1::Read],
    form: v1::DocumentForm,
) -> std::result::Result<Done, Failure> {
    let mut room = Room::new(call);
    let mut results = Vec::with_capacity(operations.len());
    for (number, operation) in (1..).zip(operations) {
        let result = operation.run(tx, call).map_err(|error| (error, number))?;
        room.take(result.encoded_len()).map_err(of_none)?;
        results.push(result);
    }
    let reads = room.all(tx, reads, form).map_err(of_none)?;
    Ok(Done { results, reads, known: Known::New })
}

/// Stores the results under the request's id, if nothing is known of it.
fn remembered(
    tx: &mut Transaction<'_>,
    request: &Request<'_>,
    results: &[v1::OperationResult],
) -> Result<Known> {
    let known = requests::find(tx, request)?;
    if known == Known::New {
        let answer = v1::OutcomeReply { committed: true, results: results.to_vec(), failed_condition: 0 };
        batch::check_answer(answer.encoded_len())?;
        requests::remember(tx, request, &answer.encode_to_vec())?;
    }
    Ok(known)
}

fn of_none(error: Error) -> Failure {
    (error, 0)
}

/// The client sent nothing for too long.
fn expired(is_open: bool) -> Error {
    if !is_open {
        return crate::call::deadline_passed();
    }
    let what = "the transaction got no message for 5 s, or lasted longer than it may: it was rolled back";
    Error::new(Code::TransactionExpired, what).with_hint(
        "nothing was changed: begin again; a ping keeps a transaction open while its client computes",
    )
}
