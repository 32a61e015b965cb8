//! A batch: conditions, operations and reads in one transaction.
//!
//! It is checked before a thread takes it. A conflict runs it again. After eight conflicts the engine would
//! run it alone, with all other commits waiting: only a small batch of single keys may, a large one gives up
//! with `WriteConflict`. No client can stop all commits for the time of a scan.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use duramen::error::{Code, Error, Result};
use duramen::requests::{ANSWER_BYTES_MAX, Request};
use duramen::tuple::{self, Element};
use duramen::wire::{self, KvWrite as _, Wanted};
use duramen::{
    CommitSeq, Document, IdOrder, LocalReads as _, Reads as _, Schema, Span, Transaction, Ttl, Value,
};
use duramen_proto::{collection, document, key, status, v1};
use prost::Message as _;
use tonic::Status;

use super::read::Room;
use super::{DataService, find, refused, request_id, rows};
use crate::auth::needs;
use crate::call::Call;
use crate::cluster::{self, Cluster};
use crate::schema::durability;

/// What a condition, operation or read takes in memory at most, as a message and once more as it is checked,
/// beside its own bytes.
pub(super) const ITEM_BYTES: usize = 1 << 10;

/// The most operations of a batch that may run alone.
const ALONE_MAX: usize = 256;

/// A batch whose keys and documents have been checked.
struct Batch {
    marks: Vec<v1::SchemaMark>,
    conditions: Vec<Condition>,
    operations: Vec<Operation>,
    reads: Vec<v1::Read>,
    form: v1::DocumentForm,
    /// It has few parts, each of a single key.
    is_small: bool,
}

enum Condition {
    Absent { collection: String, key: Vec<Element> },
    Present { collection: String, key: Vec<Element> },
    CountIs { collection: String, span: Span, count: u64 },
    KeyValueIs { namespace: String, key: Vec<Element>, value: Option<Value> },
}

pub(super) enum Operation {
    Put {
        collection: String,
        document: Document,
        want_before: Option<v1::DocumentForm>,
    },
    Insert {
        collection: String,
        document: Document,
    },
    Delete {
        collection: String,
        key: Vec<Element>,
    },
    DeleteRange {
        collection: String,
        span: Span,
        limit: u64,
    },
    /// The value as MessagePack.
    PutKeyValue {
        namespace: String,
        key: Vec<u8>,
        value: Vec<u8>,
        ttl: Ttl,
    },
    DeleteKeyValue {
        namespace: String,
        key: Vec<Element>,
    },
    Increment {
        namespace: String,
        key: Vec<Element>,
        by: i64,
    },
    Ensure(Box<Schema>),
    PutTyped {
        collection: String,
        key: bytes::Bytes,
        document: bytes::Bytes,
        wanted: Wanted,
    },
    AssignId {
        collection: String,
        order: IdOrder,
    },
    AdvanceConsumer {
        name: String,
        from: CommitSeq,
        to: CommitSeq,
    },
    AttachBlob {
        namespace: String,
        key: Vec<Element>,
        upload: bytes::Bytes,
    },
    DeleteBlob {
        namespace: String,
        key: Vec<Element>,
    },
    RenameBlob {
        namespace: String,
        from: Vec<Element>,
        to: Vec<Element>,
    },
}

/// What a batch has done, as it is remembered under its request id.
type Answer = v1::OutcomeReply;

/// The answer that was remembered.
pub(super) fn decode_answer(stored: &[u8]) -> Result<Answer> {
    Answer::decode(stored).map_err(|_| {
        Error::new(
            Code::InvalidArgument,
            "the request id was used by a program, not by a client of the server",
        )
        .with_hint("make an id once for each batch")
    })
}

/// Runs a batch. The status of an error of an operation names it by its number.
pub(super) async fn answer(
    service: &DataService,
    request: v1::BatchRequest,
    call: Call,
) -> std::result::Result<v1::BatchReply, Status> {
    let (course, of) = (Arc::new(Course::default()), call.clone());
    run(service, request, call, &course).await.map_err(|error| {
        let status = refused(of.may_see(error));
        match course.failed_operation.load(Ordering::Relaxed) {
            0 => status,
            number => status::of_operation(&status, number),
        }
    })
}

async fn run(
    service: &DataService,
    mut request: v1::BatchRequest,
    call: Call,
    course: &Arc<Course>,
) -> Result<v1::BatchReply> {
    let cluster = service.cluster.as_deref();
    // A leader need not ask a majority whether it leads before it commits. Reads may be answered in a later
    // state.
    let tries_at_once = |cluster: &dyn Cluster| request.reads.is_empty() && cluster.leads();
    let unconfirmed = cluster.filter(|cluster| tries_at_once(*cluster));
    if let (Some(cluster), None) = (cluster, unconfirmed) {
        cluster::catch_up(cluster, &call).await?;
    }
    let write = request.write.take().unwrap_or_default();
    let level = durability(write.level)?;
    let id = match write.request_id.as_ref() {
        [] => None,
        bytes => Some(request_id(bytes)?),
    };
    if let Err(error) = allowed(&call, &request, id.is_some(), course) {
        let Some(cluster) = unconfirmed else { return Err(error) };
        // It may have been allowed to meanwhile.
        cluster::catch_up(cluster, &call).await?;
        allowed(&call, &request, id.is_some(), course)?;
    }
    // The message as it was decoded and checked, and what its documents become.
    let items =
        request.conditions.len() + request.operations.len() + request.reads.len() + request.marks.len();
    let parts = document::parts_of(&request)?;
    call.charge(request.encoded_len() + items * ITEM_BYTES + parts * document::PART_BYTES).await?;
    call.take_place().await?;
    let caller = call.caller.clone();
    let request_of = id.map(|id| Request::new(id, &body_of(&mut request)).by(caller.name()));
    let db = service.writes.at(level);
    let batch = Batch::new(request, course)?;
    let running = Arc::new(Running { batch, call: call.clone(), course: Arc::clone(course) });
    let attempt = async || match &request_of {
        Some(request) => once(service, &db, request, Arc::clone(&running)).await,
        None => plain(service, &db, Arc::clone(&running)).await,
    };
    let mut done = attempt().await;
    if let Some(cluster) = unconfirmed
        && !stands(&done, id.is_some(), course)
    {
        // It has changed nothing, and is run again on everything that was acknowledged before it came.
        call.give_place_back();
        cluster::catch_up(cluster, &call).await?;
        call.take_place().await?;
        course.begin();
        done = attempt().await;
    }
    let stale = course.stale.lock().unwrap_or_else(PoisonError::into_inner).take();
    match done {
        Err(_) if stale.is_some() => Err(stale.unwrap_or_else(conflict)),
        Err(_) if course.gave_up.load(Ordering::Relaxed) => Err(conflict()),
        done => done,
    }
}

/// Fails unless the caller may do all of it.
fn allowed(call: &Call, request: &v1::BatchRequest, has_id: bool, course: &Course) -> Result<()> {
    needs::batch(&call.caller, request, |number| course.failed_operation.store(number, Ordering::Relaxed))?;
    if has_id { call.caller.needs_to_commit() } else { Ok(()) }
}

/// Whether the outcome of a batch stands, whatever else was acknowledged before it came: it has committed,
/// or is in doubt, or this node takes nothing now. What it has only read may be old.
fn stands(done: &Result<v1::BatchReply>, has_id: bool, course: &Course) -> bool {
    match done {
        // With a request id its answer is a row of the commit.
        Ok(_) => has_id || course.writes.load(Ordering::Relaxed),
        Err(error) => matches!(
            error.code(),
            Code::OutcomeUnknown
                | Code::EnginePoisoned
                | Code::NotLeader
                | Code::NoQuorum
                | Code::DeadlinePassed
                | Code::Overloaded
                | Code::Draining
        ),
    }
}

/// Without a request id.
async fn plain(
    service: &DataService,
    db: &duramen::AsyncDb,
    running: Arc<Running>,
) -> Result<v1::BatchReply> {
    let ((answer, reads), receipt) = db
        .transact_with_receipt(move |tx| {
            running.call.begin()?;
            let done = running.run(tx)?;
            running.call.give_place_back();
            Ok(done)
        })
        .await?;
    Ok(reply(answer, service.identity.receipt(&receipt, false), reads))
}

/// With a request id: its effect is there once. If an earlier try has had it, the reads are answered anew, in
/// the newest state.
async fn once(
    service: &DataService,
    db: &duramen::AsyncDb,
    request: &Request<'_>,
    running: Arc<Running>,
) -> Result<v1::BatchReply> {
    let reads = Arc::new(Mutex::new(Vec::new()));
    // Before the answer of an earlier try is looked for: also that takes a commit, which may be in doubt.
    running.call.begin()?;
    let (of_run, found) = (Arc::clone(&running), Arc::clone(&reads));
    let answered = db
        .once(request, move |tx| {
            of_run.call.begin()?;
            let (answer, read) = of_run.run(tx)?;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = read;
            of_run.call.give_place_back();
            check_answer(answer.encoded_len())?;
            Ok(answer.encode_to_vec())
        })
        .await?;
    let answer = decode_answer(&answered.answer)?;
    let receipt = service.identity.receipt(&answered.receipt, answered.is_repeated);
    let mut reads = std::mem::take(&mut *reads.lock().unwrap_or_else(PoisonError::into_inner));
    if answered.is_repeated {
        // Those of a run that was not committed.
        reads.clear();
    }
    if answered.is_repeated && answer.failed_condition == 0 && !running.batch.reads.is_empty() {
        let again = move |at: &duramen::Snapshot| {
            running.call.begin()?;
            Room::new(&running.call).all(at, &running.batch.reads, running.batch.form)
        };
        reads = service.reads.read(again).await.map_err(|error| committed_before(&error))?;
    }
    Ok(reply(answer, receipt, reads))
}

/// Refuses an answer that is too long to be remembered.
pub(super) fn check_answer(bytes: usize) -> Result<()> {
    if bytes <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    let what = format!("the results take {bytes} bytes");
    Err(Error::new(Code::TooLarge, what).with_hint(format!(
        "with a request id they may take {ANSWER_BYTES_MAX}: send fewer operations, and want no documents before"
    )))
}

/// The effect is there, so the error of the reads must not say that nothing was changed.
fn committed_before(error: &Error) -> Error {
    let what =
        format!("an earlier try of the batch was committed; its reads failed now: {}", error.message());
    Error::new(Code::OutcomeUnknown, what)
        .with_hint("send it again without the reads, or ask for its outcome")
}

fn reply(answer: Answer, receipt: v1::Receipt, reads: Vec<v1::ReadResult>) -> v1::BatchReply {
    let Answer { failed_condition, results, .. } = answer;
    v1::BatchReply { failed_condition, receipt: Some(receipt), results, reads }
}

fn conflict() -> Error {
    let what = "another transaction changed what the batch read, eight times";
    Error::new(Code::WriteConflict, what).with_hint(
        "nothing was changed: send it again, or in parts; a batch of at most 256 operations on single keys always ends",
    )
}

/// What a request id stands for: a retry must ask for the same. The reads are no part of it.
fn body_of(request: &mut v1::BatchRequest) -> Vec<u8> {
    let (reads, form) = (std::mem::take(&mut request.reads), std::mem::take(&mut request.form));
    let body = request.encode_to_vec();
    (request.reads, request.form) = (reads, form);
    body
}

/// A batch on a thread.
struct Running {
    batch: Batch,
    call: Call,
    course: Arc<Course>,
}

/// What has become of the runs of a batch.
#[derive(Default)]
struct Course {
    /// It may not run alone, and conflicted until it would have.
    gave_up: AtomicBool,
    /// A type was fitted to another definition than a collection has.
    stale: Mutex<Option<Error>>,
    /// The last run has written something.
    writes: AtomicBool,
    /// The number of the operation that is checked or run, from 1: with its error the batch ends. 0: none is.
    failed_operation: AtomicUsize,
}

impl Course {
    /// As if the batch had not run.
    fn begin(&self) {
        self.failed_operation.store(0, Ordering::Relaxed);
        self.gave_up.store(false, Ordering::Relaxed);
        self.writes.store(false, Ordering::Relaxed);
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Running {
    /// One run of the transaction's closure.
    fn run(&self, tx: &mut Transaction<'_>) -> Result<(Answer, Vec<v1::ReadResult>)> {
        self.course.failed_operation.store(0, Ordering::Relaxed);
        if tx.runs_alone() && !self.batch.may_run_alone(tx)? {
            self.course.gave_up.store(true, Ordering::Relaxed);
            return Err(Error::invalid("the batch may not run alone"));
        }
        let call = self.call.clone();
        tx.only_if(move || call.check_deadline());
        let batch = &self.batch;
        if let Err(error) = rows::check_marks(tx, &batch.marks) {
            // Told as it is, but not to the engine: run again, it would be the same.
            let what = Error::invalid(error.message());
            *self.course.stale.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            return Err(what);
        }
        for (number, condition) in (1..).zip(&batch.conditions) {
            if !condition.holds(tx)? {
                self.course.writes.store(false, Ordering::Relaxed);
                return Ok((
                    Answer { committed: true, failed_condition: number, results: Vec::new() },
                    Vec::new(),
                ));
            }
        }
        let mut room = Room::new(&self.call);
        let mut results = Vec::with_capacity(batch.operations.len());
        for (number, operation) in (1..).zip(&batch.operations) {
            self.course.failed_operation.store(number, Ordering::Relaxed);
            let result = operation.run(tx, &self.call)?;
            self.course.failed_operation.store(0, Ordering::Relaxed);
            room.take(result.encoded_len())?;
            results.push(result);
        }
        self.course.writes.store(tx.writes(), Ordering::Relaxed);
        let reads = room.all(tx, &batch.reads, batch.form)?;
        Ok((Answer { committed: true, failed_condition: 0, results }, reads))
    }
}

impl Batch {
    fn new(request: v1::BatchRequest, course: &Course) -> Result<Batch> {
        let form = request.form();
        let conditions = request.conditions.iter().map(Condition::new).collect::<Result<Vec<_>>>()?;
        let mut operations = Vec::with_capacity(request.operations.len());
        for (number, operation) in (1..).zip(request.operations) {
            course.failed_operation.store(number, Ordering::Relaxed);
            operations.push(Operation::new(operation, form)?);
        }
        course.failed_operation.store(0, Ordering::Relaxed);
        find::check_in_batch(&request.reads)?;
        let parts = conditions.len() + operations.len() + request.reads.len() + request.marks.len();
        let is_small = parts <= ALONE_MAX
            && conditions.iter().all(|condition| !matches!(condition, Condition::CountIs { .. }))
            && operations.iter().all(Operation::is_of_one_key)
            && request.reads.iter().all(is_single);
        let (marks, reads) = (request.marks, request.reads);
        Ok(Batch { marks, conditions, operations, reads, form, is_small })
    }

    /// Whether all other commits may wait for it: it is small, and no delete of it takes other documents
    /// along.
    fn may_run_alone(&self, tx: &Transaction<'_>) -> Result<bool> {
        for operation in &self.operations {
            if let Operation::Delete { collection, .. } = operation
                && !tx.documents(collection).schema()?.referred_by().is_empty()
            {
                return Ok(false);
            }
        }
        Ok(self.is_small)
    }
}

/// Whether a read is of one key.
fn is_single(read: &v1::Read) -> bool {
    use v1::read::Kind;
    matches!(read.kind, Some(Kind::Get(_) | Kind::GetKeyValue(_)))
}

impl Condition {
    fn new(condition: &v1::Condition) -> Result<Condition> {
        use v1::condition::Kind;
        let kind = condition
            .kind
            .as_ref()
            .ok_or_else(|| Error::invalid("a condition of the batch is of no kind"))?;
        Ok(match kind {
            Kind::Absent(of) => {
                Condition::Absent { collection: of.collection.clone(), key: key::required(of.key.as_ref())? }
            }
            Kind::Present(of) => {
                Condition::Present { collection: of.collection.clone(), key: key::required(of.key.as_ref())? }
            }
            Kind::CountIs(of) => Condition::CountIs {
                collection: of.collection.clone(),
                span: key::span(of.range.as_ref())?,
                count: of.count,
            },
            Kind::KeyValueIs(of) => Condition::KeyValueIs {
                namespace: of.namespace.clone(),
                key: key::required(of.key.as_ref())?,
                value: of.value.as_ref().map(|value| document::required_value(Some(value))).transpose()?,
            },
        })
    }

    fn holds(&self, tx: &Transaction<'_>) -> Result<bool> {
        Ok(match self {
            Condition::Absent { collection, key } => tx.documents(collection).get(key)?.is_none(),
            Condition::Present { collection, key } => tx.documents(collection).get(key)?.is_some(),
            Condition::CountIs { collection, span, count } => {
                tx.documents(collection).count(span.clone())? == *count
            }
            Condition::KeyValueIs { namespace, key, value } => tx.kv(namespace).get_value(key)? == *value,
        })
    }
}

impl Operation {
    pub(super) fn new(operation: v1::Operation, form: v1::DocumentForm) -> Result<Operation> {
        use v1::operation::Kind;
        let kind = operation.kind.ok_or_else(|| Error::invalid("an operation of the batch is of no kind"))?;
        Ok(match kind {
            Kind::Put(v1::PutDocument { collection, document, want_before }) => Operation::Put {
                collection,
                document: document::required(document.as_ref())?,
                want_before: want_before.then_some(form),
            },
            Kind::Insert(v1::PutDocument { collection, document, .. }) => {
                Operation::Insert { collection, document: document::required(document.as_ref())? }
            }
            Kind::Delete(v1::DocumentKey { collection, key }) => {
                Operation::Delete { collection, key: key::required(key.as_ref())? }
            }
            Kind::DeleteRange(v1::DeleteRange { collection, range, limit }) => Operation::DeleteRange {
                collection,
                span: key::span(range.as_ref())?,
                limit: if limit == 0 { u64::MAX } else { limit },
            },
            Kind::PutKeyValue(put) => put_key_value(&put)?,
            Kind::DeleteKeyValue(v1::KeyValueKey { namespace, key }) => {
                Operation::DeleteKeyValue { namespace, key: key::required(key.as_ref())? }
            }
            Kind::Increment(v1::Increment { namespace, key, by }) => {
                Operation::Increment { namespace, key: key::required(key.as_ref())?, by }
            }
            Kind::Ensure(asked) => Operation::Ensure(Box::new(collection::asked(&asked)?)),
            Kind::PutTyped(put) => {
                let wanted = match put.wanted() {
                    v1::PutWanted::Any => Wanted::Any,
                    v1::PutWanted::Absent => Wanted::Absent,
                    v1::PutWanted::Present => Wanted::Present,
                };
                let v1::PutTyped { collection, key, document, .. } = put;
                Operation::PutTyped { collection, key, document, wanted }
            }
            Kind::AssignId(v1::AssignId { collection, sequential }) => {
                let order = if sequential { IdOrder::Sequential } else { IdOrder::Spread };
                Operation::AssignId { collection, order }
            }
            Kind::AdvanceConsumer(v1::AdvanceConsumer { name, from, to }) => {
                Operation::AdvanceConsumer { name, from: CommitSeq(from), to: CommitSeq(to) }
            }
            Kind::AttachBlob(v1::AttachBlob { namespace, key, upload }) => {
                Operation::AttachBlob { namespace, key: key::required(key.as_ref())?, upload }
            }
            Kind::DeleteBlob(v1::BlobKey { namespace, key }) => {
                Operation::DeleteBlob { namespace, key: key::required(key.as_ref())? }
            }
            Kind::RenameBlob(v1::RenameBlob { namespace, from, to }) => Operation::RenameBlob {
                namespace,
                from: key::required(from.as_ref())?,
                to: key::required(to.as_ref())?,
            },
        })
    }

    /// Whether all that it needs is a key.
    fn is_of_one_key(&self) -> bool {
        !matches!(self, Operation::DeleteRange { .. } | Operation::Ensure(_))
    }

    pub(super) fn run(&self, tx: &mut Transaction<'_>, call: &Call) -> Result<v1::OperationResult> {
        use v1::operation_result::Kind;
        let deleted = |count: u64| Kind::Deleted(v1::Deleted { count, ..v1::Deleted::default() });
        let kind = match self {
            Operation::Put { collection, document, want_before } => {
                let before = match want_before {
                    Some(form) => before(tx, collection, document, *form)?,
                    None => None,
                };
                tx.documents(collection).put(document.clone())?;
                Kind::Stored(v1::Stored { before })
            }
            Operation::Insert { collection, document } => {
                tx.documents(collection).insert(document.clone())?;
                Kind::Stored(v1::Stored::default())
            }
            Operation::Delete { collection, key } => {
                following(tx, call, || Ok(u64::from(tx.documents(collection).delete(key)?)))?
            }
            Operation::DeleteRange { collection, span, limit } => {
                following(tx, call, || delete_first(tx, collection, span, *limit, call))?
            }
            Operation::PutKeyValue { namespace, key, value, ttl } => {
                tx.put_stored(namespace, key, value, *ttl)?;
                Kind::Stored(v1::Stored::default())
            }
            Operation::DeleteKeyValue { namespace, key } => deleted(u64::from(tx.kv(namespace).delete(key)?)),
            Operation::Increment { namespace, key, by } => {
                Kind::Incremented(tx.kv(namespace).increment(key, *by)?)
            }
            Operation::Ensure(schema) => {
                tx.ensure(schema)?;
                Kind::Stored(v1::Stored::default())
            }
            Operation::PutTyped { collection, key, document, wanted } => {
                wire::put_typed(tx, collection, key, document, *wanted)?;
                Kind::Stored(v1::Stored::default())
            }
            Operation::AssignId { collection, order } => {
                Kind::AssignedId(wire::new_id(tx, collection, *order)?)
            }
            Operation::AdvanceConsumer { name, from, to } => {
                wire::advance(tx, name, *from, *to)?;
                Kind::Stored(v1::Stored::default())
            }
            Operation::AttachBlob { namespace, key, upload } => {
                let kept = call.uploads.of(upload, call.caller.name(), namespace)?;
                tx.blobs(namespace).attach(key, &kept)?;
                let (uploads, upload) = (Arc::clone(&call.uploads), upload.clone());
                tx.after_commit(move || uploads.forget(&upload));
                Kind::Stored(v1::Stored::default())
            }
            Operation::DeleteBlob { namespace, key } => deleted(u64::from(tx.blobs(namespace).delete(key)?)),
            Operation::RenameBlob { namespace, from, to } => {
                Kind::Renamed(tx.blobs(namespace).rename(from, to)?)
            }
        };
        Ok(v1::OperationResult { kind: Some(kind) })
    }
}

/// A put of a key-value. Its value stays as it was sent: as MessagePack its maps may have keys that are no
/// texts.
fn put_key_value(put: &v1::PutKeyValue) -> Result<Operation> {
    let checked = document::required_value(put.value.as_ref())?;
    let value = match put.value.as_ref().and_then(|value| value.form.as_ref()) {
        Some(v1::value::Form::Msgpack(bytes)) => bytes.to_vec(),
        _ => checked.to_msgpack()?,
    };
    let ttl = match (&put.expires_at, put.keep_expiry, put.ttl_ms) {
        (Some(at), ..) => Ttl::until(key::to_time(at)?),
        (None, true, _) => Ttl::keep(),
        (None, false, 0) => Ttl::forever(),
        (None, false, ms) => Ttl::millis(ms),
    };
    let key = tuple::encode(&key::required(put.key.as_ref())?)?;
    Ok(Operation::PutKeyValue { namespace: put.namespace.clone(), key, value, ttl })
}

/// The stored document that another one replaces. If it cannot be stored, the put says why.
fn before(
    tx: &Transaction<'_>,
    collection: &str,
    document: &Document,
    form: v1::DocumentForm,
) -> Result<Option<v1::Document>> {
    let documents = tx.documents(collection);
    let (mut document, mut key) = (document.clone(), Vec::new());
    let schema = documents.schema()?;
    if schema.clone().admit(&mut document).is_err() || schema.write_key(&document, &mut key).is_err() {
        return Ok(None);
    }
    let stored = documents.get(duramen::tuple::decode(&key)?)?;
    stored.map(|stored| document::of(&stored, form)).transpose()
}

/// Between two looks at the deadline.
const DELETED_AT_ONCE: u64 = 1_000;

/// Deletes the first documents of a range, as long as the call may take.
fn delete_first(tx: &Transaction<'_>, collection: &str, span: &Span, limit: u64, call: &Call) -> Result<u64> {
    let mut deleted = 0;
    while deleted < limit {
        call.check_deadline()?;
        let wanted = DELETED_AT_ONCE.min(limit - deleted);
        let count = tx.documents(collection).delete_first(span.clone(), wanted)?;
        deleted += count;
        if count < wanted {
            break;
        }
    }
    Ok(deleted)
}

/// A delete, and what followed it.
fn following(
    tx: &Transaction<'_>,
    call: &Call,
    delete: impl FnOnce() -> Result<u64>,
) -> Result<v1::operation_result::Kind> {
    let before = tx.followed();
    let done = delete();
    let after = tx.followed();
    if done.is_err() || after != before {
        call.note_followed();
    }
    let count = done?;
    Ok(v1::operation_result::Kind::Deleted(v1::Deleted {
        count,
        cascaded: after.cascaded - before.cascaded,
        cleared: after.cleared - before.cleared,
    }))
}
