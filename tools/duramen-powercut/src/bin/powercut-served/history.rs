//! Histories of transactions through sockets, and the check that they could have run one after the other.
//!
//! Clients run transactions of several messages, which rest between them, on few documents; some commit
//! batches. Each notes what it asked and was answered. Then all commits are run again in their order on a
//! model, and every answer must be the noted one. One that ended before another began comes before it. I1
//! through a server.

mod model;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use duramen::error::{Code, Error, ErrorKind};
use duramen::prelude::*;
use duramen::tuple::Element;
use duramen_client::{Address, Client, TransactionStream};
use duramen_powercut::random::Random;
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::{document, key, v1};

use crate::{Wrong, wrong};
use model::{Event, Fate, Step};

/// Few documents, so that transactions conflict.
const KEYS: u64 = 12;
const COLLECTIONS: [&str; 2] = ["left", "right"];

/// Numbers of a history.
#[derive(Debug, clap::Args)]
pub(crate) struct History {
    #[command(flatten)]
    of: crate::Of,
    /// Transactions that are begun, of all clients
    #[arg(long, default_value_t = 100_000)]
    transactions: u64,
    #[arg(long, default_value_t = 16)]
    clients: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the clients, and checks what they were answered.
pub(crate) fn run(args: &History) -> Result<(), Wrong> {
    let db = Db::open(&args.of.db)?;
    for collection in COLLECTIONS {
        db.ensure(&Schema::new(collection).key(["id"]).sum(["n"]))?;
    }
    let first = db.snapshot()?.seq().0;
    let server = duramen_server::local(&db)?;
    let address = Address::Directory(args.of.db.clone());
    let (clock, left) = (AtomicU64::new(0), AtomicU64::new(args.transactions));
    let one = |number: u64| -> Result<Vec<Event>> {
        let client = Client::connect(&address)?;
        let random = Random::new(args.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let mut worker = Worker { client: &client, random, clock: &clock, events: Vec::new() };
        worker.work(&left)?;
        Ok(worker.events)
    };
    let parts: Vec<Result<Vec<Event>>> = thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..args.clients).map(|number| scope.spawn(move || one(number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a client panicked")).collect()
    });
    let mut events = Vec::new();
    for part in parts {
        events.extend(part?);
    }
    drop(server);
    let (mut verdict, last) = model::check(&events, first);
    db.close()?;
    drop(db);
    // What was told is there, also once the database is opened again.
    model::compare(&Db::open(&args.of.db)?, &last, &mut verdict)?;
    println!("{} clients, seed {}: {verdict}", args.clients, args.seed);
    if verdict.committed == 0 || verdict.conflicts == 0 || verdict.read_only == 0 {
        return Err(wrong("a history without commits, conflicts or readers shows nothing"));
    }
    match verdict.violations.first() {
        None => Ok(()),
        Some(first) => Err(wrong(format!("{} violations, the first: {first}", verdict.violation_count))),
    }
}

/// One client.
struct Worker<'a> {
    client: &'a Client,
    random: Random,
    /// Ticks at begins and ends, of all clients.
    clock: &'a AtomicU64,
    events: Vec<Event>,
}

impl Worker<'_> {
    fn work(&mut self, left: &AtomicU64) -> Result<()> {
        let take = || {
            let less = |left: u64| left.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        let client = self.client;
        let mut stream = client.transactions()?;
        while take() {
            if self.random.below(8) == 0 {
                self.batch()?;
            } else if self.transaction(&mut stream)? {
                // Streams live for five minutes.
                stream = client.transactions()?;
            }
        }
        Ok(())
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// One transaction of several messages. Returns whether the stream is over.
    fn transaction(&mut self, stream: &mut TransactionStream) -> Result<bool> {
        let began = self.tick();
        let base = match stream.ask(Asked::Begin(v1::Begin::default())) {
            Ok(Told::Begun(v1::Begun { at: Some(at) })) => at.seq,
            Ok(_) => return Err(Error::invalid("the server has not begun")),
            Err(failed) => return passing(failed.error).map(|()| failed.is_stream_over),
        };
        let (mut steps, only_reads) = (Vec::new(), self.random.below(4) == 0);
        for _ in 0..1 + self.random.below(5) {
            let (message, asked) = self.message(only_reads);
            let answered = match stream.ask(Asked::Step(message)) {
                Ok(Told::StepDone(done)) => done,
                Ok(_) => return Err(Error::invalid("the server answered something else")),
                Err(failed) => {
                    if failed.goes_on {
                        drop(stream.ask(Asked::Rollback(v1::Rollback {})));
                    }
                    return passing(failed.error).map(|()| failed.is_stream_over);
                }
            };
            note(asked, answered.results, answered.reads, &mut steps)?;
            if self.random.below(4) == 0 {
                thread::yield_now();
            }
        }
        let has_written = steps.iter().any(Step::has_changed);
        let (seq, fate, is_over) = match stream.ask(Asked::Commit(v1::Commit::default())) {
            Ok(Told::Committed(v1::Committed { receipt: Some(receipt), .. })) => {
                let seq = receipt.at.map_or(0, |at| at.seq);
                (seq, if has_written { Fate::Committed } else { Fate::Read }, false)
            }
            Ok(_) => return Err(Error::invalid("the server has not committed")),
            Err(failed) if failed.error.code() == Code::WriteConflict => {
                (base, Fate::Conflicted, failed.is_stream_over)
            }
            Err(failed) => return passing(failed.error).map(|()| failed.is_stream_over),
        };
        let ended = self.tick();
        self.events.push(Event { began, ended, seq, fate, steps });
        Ok(is_over)
    }

    /// A batch of the same operations and reads.
    fn batch(&mut self) -> Result<()> {
        let began = self.tick();
        let (v1::Step { operations, reads, .. }, asked) = self.message(false);
        let request = v1::BatchRequest { operations, reads, ..v1::BatchRequest::default() };
        let reply = match self.client.batch(request) {
            Ok(reply) => reply,
            Err(error) => return passing(error),
        };
        let mut steps = Vec::new();
        note(asked, reply.results, reply.reads, &mut steps)?;
        let seq = reply.receipt.and_then(|receipt| receipt.at).map_or(0, |at| at.seq);
        let fate = if steps.iter().any(Step::has_changed) { Fate::Committed } else { Fate::Read };
        let ended = self.tick();
        self.events.push(Event { began, ended, seq, fate, steps });
        Ok(())
    }

    /// A message of one or two operations and as many reads, and what it asks for.
    fn message(&mut self, only_reads: bool) -> (v1::Step, Vec<Step>) {
        let (mut message, mut asked) = (v1::Step::default(), Vec::new());
        for _ in 0..if only_reads { 0 } else { self.random.below(3) } {
            let (collection, id) = self.place();
            let of = v1::DocumentKey {
                collection: name(collection),
                key: Some(key::of(&[Element::Int(id.into())])),
            };
            let (kind, step) = match self.random.below(3) {
                0 => (v1::operation::Kind::Delete(of), Step::Delete(collection, id, false)),
                _ => {
                    let n = i64::try_from(self.random.below(1_000)).expect("small");
                    (put(collection, id, n), Step::Put(collection, id, n))
                }
            };
            message.operations.push(v1::Operation { kind: Some(kind) });
            asked.push(step);
        }
        for _ in 0..1 + self.random.below(2) {
            let (collection, id) = self.place();
            let to = id + 1 + u32::try_from(self.random.below(6)).expect("small");
            let span = Span::from(i64::from(id)).and_then(|span| Ok(span.and(Span::to(i64::from(to))?)));
            let range = Some(key::of_span(span.expect("integers are keys")));
            let of_range = v1::RangeOf { collection: name(collection), range, ..v1::RangeOf::default() };
            let (kind, step) = match self.random.below(4) {
                0 => (v1::read::Kind::Count(of_range), Step::Count(collection, id, to, 0)),
                1 => (v1::read::Kind::Reduce(of_range), Step::Sum(collection, id, to, 0)),
                _ => {
                    let key = Some(key::of(&[Element::Int(id.into())]));
                    let get = v1::DocumentKey { collection: name(collection), key };
                    (v1::read::Kind::Get(get), Step::Get(collection, id, None))
                }
            };
            message.reads.push(v1::Read { kind: Some(kind) });
            asked.push(step);
        }
        (message, asked)
    }

    fn place(&mut self) -> (usize, u32) {
        let collection = usize::try_from(self.random.below(COLLECTIONS.len() as u64)).expect("small");
        (collection, u32::try_from(self.random.below(KEYS)).expect("small"))
    }
}

fn name(collection: usize) -> String {
    COLLECTIONS[collection].to_owned()
}

fn put(collection: usize, id: u32, n: i64) -> v1::operation::Kind {
    let stored = document::of(&doc! { "id": id, "n": n }, v1::DocumentForm::Msgpack);
    let document = Some(stored.expect("a document"));
    v1::operation::Kind::Put(v1::PutDocument { collection: name(collection), document, want_before: false })
}

/// Puts the answers into what was asked.
fn note(
    asked: Vec<Step>,
    results: Vec<v1::OperationResult>,
    reads: Vec<v1::ReadResult>,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let (mut results, mut reads) = (results.into_iter(), reads.into_iter());
    let missing = || Error::invalid("the server has left an answer out");
    for step in asked {
        let step = if step.writes() {
            let result = results.next().and_then(|result| result.kind).ok_or_else(missing)?;
            match (step, result) {
                (Step::Delete(collection, id, _), v1::operation_result::Kind::Deleted(deleted)) => {
                    Step::Delete(collection, id, deleted.count == 1)
                }
                (step, _) => step,
            }
        } else {
            let answer = reads.next().and_then(|answer| answer.kind).ok_or_else(missing)?;
            answered(step, answer)?
        };
        steps.push(step);
    }
    Ok(())
}

fn answered(step: Step, answer: v1::read_result::Kind) -> Result<Step> {
    use v1::read_result::Kind;
    Ok(match (step, answer) {
        (Step::Get(collection, id, _), Kind::Found(found)) => {
            let document =
                found.document.as_ref().map(|found| document::required(Some(found))).transpose()?;
            let n = document.and_then(|document| document.get("n").and_then(|n| n.to::<i64>().ok()));
            Step::Get(collection, id, n)
        }
        (Step::Count(collection, from, to, _), Kind::Number(count)) => {
            Step::Count(collection, from, to, count)
        }
        (Step::Sum(collection, from, to, _), Kind::Reduction(reduction)) => {
            let sum = reduction.sums.first().and_then(|sum| sum.sum.parse().ok()).unwrap_or(0);
            Step::Sum(collection, from, to, sum)
        }
        (step, answer) => return Err(Error::invalid(format!("{step:?} was answered by {answer:?}"))),
    })
}

/// Errors that a busy server may give: nothing was done.
fn passing(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Unavailable => Ok(()),
        _ if error.code() == Code::TransactionExpired => Ok(()),
        _ => Err(error),
    }
}
