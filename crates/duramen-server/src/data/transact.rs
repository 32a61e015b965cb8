//! Transactions of several messages: the library's open transactions, each held for a client for a while.
//!
//! A message is one step of work on a thread; between two messages a transaction keeps a state of the
//! database and its own notes, and no thread. It is dropped, which rolls it back, with its stream: whatever
//! becomes of the client, nothing is left of it but what it has committed.

mod work;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duramen::error::{Code, Error, ErrorKind, Result};
use duramen::requests::{Known, RequestId};
use duramen::{Db, Durability};
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::{document, status, v1};
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::Stream;
use tonic::{Status, Streaming};
use xxhash_rust::xxh3::Xxh3;

use super::batch::ITEM_BYTES;
use super::{DataService, refused, request_id};
use crate::call::{Call, Waits};
use crate::limit::DEADLINE_MAX;
use crate::limit::budget::{Charge, overloaded};
use crate::schema::durability;
use work::{Done, Needed, Open, Steps};

/// How long a transaction may last that asks for no other time.
const LASTS: Duration = Duration::from_secs(30);

/// Beyond so many bytes the reads of a transaction are noted as whole trees.
const READS_BYTES_MAX: usize = 1 << 20;

/// The operations of a transaction may take so many bytes.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// Why a message failed.
struct Failure {
    error: Error,
    of: Part,
}

/// Which part of a message an error is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The operation of this number, from 1: those before it are done.
    Operation(u32),
    /// A read: all operations are done.
    Read,
    /// Of no single one: a part of the message may be done.
    Whole,
}

type Next =
    Pin<Box<dyn Future<Output = Option<(std::result::Result<v1::TransactReply, Status>, Session)>> + Send>>;

/// The answers of a stream: each is made when its message comes.
pub(super) struct Answers {
    next: Option<Next>,
}

impl Answers {
    pub(super) fn new(service: DataService, messages: Streaming<v1::TransactRequest>, call: Call) -> Answers {
        let rest = Arc::new(Mutex::new(Rest::default()));
        let timer = tokio::spawn(end_what_rests(Arc::clone(&rest), service.silence));
        let (draining, waits) = (service.draining.clone(), call.waits());
        let charges = Longest::default();
        let session = Session {
            service,
            messages,
            call,
            draining,
            rest,
            timer,
            charges,
            is_over: false,
            _waits: waits,
        };
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

/// A transaction between two messages. Its timer may end it, also while the client takes no answers.
#[derive(Default)]
struct Rest {
    open: Option<Open>,
    /// When it ends without another message.
    ends: Option<Instant>,
    has_expired: bool,
}

type Resting = Arc<Mutex<Rest>>;

fn lock(rest: &Resting) -> MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the transaction of a stream once its time has passed.
async fn end_what_rests(rest: Resting, silence: Duration) {
    loop {
        let now = Instant::now();
        let next = {
            let mut rest = lock(&rest);
            match rest.ends.filter(|_| rest.open.is_some()) {
                Some(ends) if ends <= now => {
                    rest.open = None;
                    rest.has_expired = true;
                    now + silence
                }
                Some(ends) => ends,
                None => now + silence,
            }
        };
        sleep_until(next).await;
    }
}

/// Memory that the stream keeps for its longest message and its longest answer: their buffers stay.
#[derive(Default)]
struct Longest {
    bytes: usize,
    charges: Vec<Charge>,
}

/// A stream between two messages.
struct Session {
    service: DataService,
    messages: Streaming<v1::TransactRequest>,
    call: Call,
    draining: watch::Receiver<bool>,
    rest: Resting,
    timer: JoinHandle<()>,
    charges: Longest,
    is_over: bool,
    /// Dropped with the stream, this ends a step whose client is gone.
    _waits: Waits,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl Session {
    /// The answer to the next message.
    async fn next(mut self) -> Option<(std::result::Result<v1::TransactReply, Status>, Session)> {
        if self.is_over {
            return None;
        }
        let until = self.silent_until();
        // The timer may take it before this wait ends.
        let is_open = lock(&self.rest).open.is_some();
        let next = tokio::select! {
            next = timeout_at(until, self.messages.message()) => Some(next),
            _ = self.draining.wait_for(|draining| *draining) => None,
        };
        let answer = match next {
            None => Err(refused(draining())),
            Some(Ok(Ok(None))) => return None,
            Some(Ok(Ok(Some(message)))) => self.answer_in_time(message).await,
            Some(Ok(Err(status))) => Err(status),
            Some(Err(_)) => Err(refused(expired(is_open))),
        };
        self.is_over |= answer.is_err();
        if self.is_over {
            lock(&self.rest).open = None;
        }
        self.call.charges.end_message();
        Some((answer, self))
    }

    /// When the next message must be there.
    fn silent_until(&self) -> Instant {
        let mut rest = lock(&self.rest);
        match &rest.open {
            Some(open) => {
                let ends = open.call.deadline.min(Instant::now() + self.service.silence);
                rest.ends = Some(ends);
                ends
            }
            None => self.call.deadline,
        }
    }

    /// Answers a message. One that takes longer than the transaction may last ends the stream.
    async fn answer_in_time(
        &mut self,
        message: v1::TransactRequest,
    ) -> std::result::Result<v1::TransactReply, Status> {
        let until = match &lock(&self.rest).open {
            Some(open) => open.call.answer_by(),
            None => self.call.answer_by(),
        };
        let is_commit = matches!(message.kind, Some(Asked::Commit(_)));
        // Before its work: no refusal may come when a commit is done.
        self.keep_room(message.encoded_len()).await.map_err(refused)?;
        let reply = match timeout_at(until, self.answer(message)).await {
            Ok(reply) => reply,
            Err(_) if is_commit => return Err(refused(crate::call::in_doubt())),
            Err(_) => return Err(refused(expired(true))),
        };
        // Without room for its buffer the stream ends behind the answer.
        self.is_over |= self.keep_room(reply.encoded_len()).await.is_err();
        Ok(reply)
    }

    /// Charges the buffer of a message or an answer, if it is the longest of the stream.
    async fn keep_room(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.charges.bytes {
            let charge = self.call.hold(bytes - self.charges.bytes).await?;
            self.charges.bytes = bytes;
            self.charges.charges.push(charge);
        }
        Ok(())
    }

    async fn answer(&mut self, message: v1::TransactRequest) -> v1::TransactReply {
        // A ping takes no place, and waits for its client, too: unread answers have an end.
        let goes_on = self.call.wait_for_client().await.and_then(|()| self.call.caller.check());
        let told = match goes_on {
            Ok(()) => self.answer_caller(message).await,
            Err(error) => {
                lock(&self.rest).open = None;
                Err(of_whole(error))
            }
        };
        // The place of the work; the answer needs none.
        self.call.give_place_back();
        v1::TransactReply { kind: Some(told.unwrap_or_else(|failed| self.failed(&failed))) }
    }

    async fn answer_caller(&mut self, message: v1::TransactRequest) -> std::result::Result<Told, Failure> {
        match message.kind {
            Some(Asked::Begin(begin)) => self.begin(begin).await.map_err(of_whole),
            Some(Asked::Step(step)) => self.step(step).await,
            Some(Asked::Commit(commit)) => self.commit(commit).await,
            Some(Asked::Rollback(_)) => {
                lock(&self.rest).open = None;
                Ok(Told::RolledBack(v1::RolledBack {}))
            }
            Some(Asked::Ping(_)) => Ok(Told::Pong(v1::Pong {})),
            None => Err(of_whole(Error::invalid("the message is of no kind"))),
        }
    }

    fn failed(&self, Failure { error, of }: &Failure) -> Told {
        self.call.tell_if_refused(error.code());
        let error = self.call.may_see(error.clone());
        Told::Failed(v1::Failed {
            code: error.code().to_string(),
            message: status::cut(error.message()).to_owned(),
            hint: status::cut(&error.hint()).to_owned(),
            operation: if let Part::Operation(number) = of { *number } else { 0 },
            is_over: lock(&self.rest).open.is_none(),
        })
    }

    async fn begin(&mut self, begin: v1::Begin) -> Result<Told> {
        if *self.draining.borrow() {
            return Err(draining());
        }
        if lock(&self.rest).open.is_some() {
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
        if let Some(cluster) = &self.service.cluster {
            // A stream has many transactions: each sees what was acknowledged before it began.
            cluster.catch_up().await?;
        }
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
        *lock(&self.rest) = Rest::default();
        self.put_back(Open {
            transaction,
            call,
            form,
            body: Xxh3::new(),
            needed: Needed::new(),
            written: 0,
            noted: 0,
            charged: 0,
            charges: Vec::new(),
            _permit: permit,
        });
        Ok(Told::Begun(v1::Begun { at: Some(at) }))
    }

    fn take_open(&mut self) -> std::result::Result<Open, Failure> {
        let mut rest = lock(&self.rest);
        match rest.open.take() {
            Some(open) => Ok(open),
            None if std::mem::take(&mut rest.has_expired) => Err(of_whole(expired(true))),
            None => {
                let error = Error::invalid("no transaction is open on the stream");
                Err(of_whole(error.with_hint("begin one first")))
            }
        }
    }

    /// The transaction rests until the next message.
    fn put_back(&mut self, open: Open) {
        let mut rest = lock(&self.rest);
        rest.ends = Some(open.call.deadline.min(Instant::now() + self.service.silence));
        rest.open = Some(open);
    }

    async fn step(&mut self, step: v1::Step) -> std::result::Result<Told, Failure> {
        let open = self.take_open()?;
        let asked = Steps { marks: step.marks, operations: step.operations, reads: step.reads, commit: None };
        let (open, done) = self.work(open, asked).await?;
        let Done { results, reads, .. } = match done {
            Ok(done) => done,
            Err(failed) => return Err(self.after_failure(open, failed)),
        };
        self.put_back(open);
        Ok(Told::StepDone(v1::StepDone { results, reads }))
    }

    async fn commit(&mut self, commit: v1::Commit) -> std::result::Result<Told, Failure> {
        let open = self.take_open()?;
        let write = commit.write.unwrap_or_default();
        let level = durability(write.level).map_err(of_whole)?;
        let request = match write.request_id.as_ref() {
            [] => None,
            bytes => Some(request_id(bytes).map_err(of_whole)?),
        };
        if request.is_some() {
            self.call.caller.needs_to_commit().map_err(of_whole)?;
        }
        let asked = Steps {
            marks: commit.marks,
            operations: commit.operations,
            reads: Vec::new(),
            commit: Some(request),
        };
        let (open, done) = self.work(open, asked).await?;
        let Done { results, known, .. } = match done {
            Ok(done) => done,
            Err(failed) => return Err(self.after_failure(open, failed)),
        };
        let committed = match (known, request) {
            (Known::New, _) | (_, None) => self.end(open, level, results).await,
            (known, Some(id)) => self.repeated(known, id).await,
        };
        committed.map(Told::Committed).map_err(of_whole)
    }

    /// The failure of a message. The transaction goes on if it is known what was done; else it is over.
    fn after_failure(&mut self, open: Open, failure: Failure) -> Failure {
        if failure.error.code() == Code::DeadlinePassed {
            return of_whole(expired(true));
        }
        let goes_on = match failure.of {
            Part::Operation(_) => true,
            // Others advise to send the message again, whose operations are done.
            Part::Read => is_of_nothing(&failure.error),
            Part::Whole => false,
        };
        if goes_on {
            self.put_back(open);
        }
        failure
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
        self.service.writes.outcome(id, self.call.caller.name()).await?;
        let db = self.service.writes.blocking();
        let at = self.service.identity.of_seq(db.durability_status().durable, db);
        let receipt = v1::Receipt { at: Some(at), reached: v1::Level::Disk.into(), repeated: true };
        Ok(v1::Committed { receipt: Some(receipt), results: Vec::new() })
    }

    /// Does what a message asks for in the transaction, on a thread. The transaction goes on after an error
    /// of that; it is over if there is no thread, or no room for what it notes.
    async fn work(&mut self, mut open: Open, asked: Steps) -> std::result::Result<Worked, Failure> {
        let charge = self.take_room(&mut open, &asked).await.map_err(of_whole)?;
        let (caller, is_commit) = (self.call.caller.clone(), asked.commit.is_some());
        let run = move |db: &Db| {
            let done = open.work(db, asked, caller.name());
            drop(charge);
            Ok((open, done))
        };
        let (mut open, done) = self.service.writes.run(run).await.map_err(of_whole)?;
        // A commit that goes on ends what it notes.
        if !(is_commit && done.is_ok()) {
            // Others work while this one waits for room.
            self.call.give_place_back();
            open.charge(&self.call).await.map_err(of_whole)?;
        }
        Ok((open, done))
    }

    /// Room for a message as it was decoded and checked, and for what it writes; and a place for its work.
    async fn take_room(&mut self, open: &mut Open, asked: &Steps) -> Result<Charge> {
        let items = asked.operations.len() + asked.reads.len() + asked.marks.len();
        let parts = document::parts_of_operations(&asked.operations)?;
        let charge = self.call.hold(items * ITEM_BYTES + parts * document::PART_BYTES).await?;
        for operation in &asked.operations {
            open.written += operation.encoded_len();
            open.body.update(&operation.encode_length_delimited_to_vec());
        }
        if open.written > WRITTEN_BYTES_MAX {
            let what = format!("the writes of the transaction take more than {WRITTEN_BYTES_MAX} bytes");
            return Err(Error::new(Code::TooLarge, what).with_hint("make several transactions of it"));
        }
        open.charge(&self.call).await?;
        self.call.take_place().await?;
        Ok(charge)
    }
}

fn draining() -> Error {
    Error::new(Code::Draining, "the server is going down, and the transaction was rolled back")
        .with_hint("nothing was changed: begin again in a moment, when it is up again")
}

/// Whether an error says that there is nothing of the kind that a read asks for.
fn is_of_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) && error.code() != Code::TooLarge
}

fn of_whole(error: Error) -> Failure {
    Failure { error, of: Part::Whole }
}

/// A transaction after a message, and what that has done.
type Worked = (Open, std::result::Result<Done, Failure>);

/// The client sent nothing for too long.
fn expired(is_open: bool) -> Error {
    if !is_open {
        return crate::call::deadline_passed();
    }
    let what =
        "the transaction got no message for too long, or lasted longer than it may: it was rolled back";
    Error::new(Code::TransactionExpired, what).with_hint(
        "nothing was changed: begin again; a ping keeps a transaction open while its client computes",
    )
}
