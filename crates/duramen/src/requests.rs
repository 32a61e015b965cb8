//! Requests with an id: a write that is tried again has its effect once, and gets the answer of the first
//! try.
//!
//! A caller that lost a connection, or whose process ended, does not know whether its write was committed. It
//! asks again under the same id. The transaction stores its answer beside its effects, in one commit, so the
//! second try finds either both or none.
//!
//! ```
//! use duramen::requests::{self, Outcome, Request, RequestId};
//! # use duramen::prelude::*;
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! // Made by the caller, once for the order, and sent again with each try.
//! let id = requests::new_id(&db)?;
//! let body = b"three apples";
//! let place = || {
//!     requests::once(&db, &Request::new(id, body), |tx| {
//!         let number = tx.kv("counters").increment("orders", 1)?;
//!         Ok(number.to_string().into_bytes())
//!     })
//! };
//! assert_eq!((place()?.answer, place()?.answer), (b"1".to_vec(), b"1".to_vec()));
//! assert_eq!(db.kv("counters").get("orders")?, Some(1));
//! assert_eq!(requests::outcome(&db, id, "")?, Outcome::Committed(b"1".to_vec()));
//! # Ok(()) }
//! ```
//!
//! # For how long
//! Answers are kept for ten minutes after the minute in which their id was made; beyond 1,048,576 of them for
//! less, at least for two. A request that is older is refused with `RequestTooOld` (E1105) and does not run:
//! nobody knows any more whether it did. That rests on rows of the database. Clocks only decide how long
//! answers are kept, so one that is wrong makes no request run twice. Where a retry may come after hours,
//! store a number of your own, such as that of the order, and insert it in the same transaction.
//!
//! # Time
//! An id holds the time at which it was made, by the clock of requests: [`time`]. That is the system's clock
//! as it was when the database was opened, and later only the time since. It never falls behind what has been
//! forgotten. Callers on other machines make their ids by it, not by their own clocks.

mod answer;
mod minutes;

use std::fmt;

use sha2::{Digest, Sha256};

use crate::access::handle::Db;
use crate::access::open_state::OpenState;
use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::store::error::{Code, Error, Result};
use crate::store::{Durability, Receipt, Source, TreeId};
use crate::value::clock::Millis;
use crate::value::time::Time;

use answer::Row;
pub(crate) use answer::problem_of;
pub(crate) use minutes::{
    FLOOR_TREE, after_writes, background_step, floor, forget_all, has_work, minute_of, problem_of_floor,
};

/// An answer may take this many bytes.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024;

/// An id may be this much ahead of the clock of requests.
const AHEAD_MAX_MS: u64 = 60_000;

const MINUTE_MS: u64 = 60_000;

/// The id of a request: a UUID of version 7, which holds the time at which it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// An id from its bytes.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it is no UUID of version 7.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<RequestId> {
        if bytes[6] >> 4 == 7 && bytes[8] >> 6 == 0b10 {
            return Ok(RequestId(bytes));
        }
        Err(Error::invalid(format!("{} is no UUID of version 7", RequestId(bytes))).with_hint(
            "make an id once for each request, by the clock of requests, and send it with each try",
        ))
    }

    /// An id made at a time, with random bits.
    fn of(time: Millis, random: u128) -> RequestId {
        let mut bytes = (u128::from(time.0) << 80 | random >> 48).to_be_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x70;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        RequestId(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// When it was made.
    #[must_use]
    pub fn time(&self) -> Time {
        self.made_at().to_time()
    }

    fn made_at(self) -> Millis {
        let bytes = u128::from_be_bytes(self.0) >> 80;
        Millis(u64::try_from(bytes).expect("48 bits"))
    }

    fn minute(self) -> u64 {
        self.made_at().0 / MINUTE_MS
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

/// A request: its id, who made it, and what it asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    id: RequestId,
    user: &'a str,
    digest: [u8; 32],
}

impl<'a> Request<'a> {
    /// A request under an id. `body` says what it asks for, and is the same with each try: another body under
    /// the same id is an error. It is hashed and not stored.
    #[must_use]
    pub fn new(id: RequestId, body: &[u8]) -> Request<'a> {
        Request { id, user: "", digest: Sha256::digest(body).into() }
    }

    /// The same request, for another thread.
    #[cfg(feature = "async")]
    pub(crate) fn to_stored(self) -> StoredRequest {
        StoredRequest { id: self.id, user: self.user.to_owned(), digest: self.digest }
    }

    fn row(&self, answer: &[u8]) -> Row {
        Row::Answer { digest: self.digest, answer: answer.to_vec() }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Made by a user, up to 1,000 bytes. Requests of different users are different ones, whatever their ids.
    #[must_use]
    pub fn by(self, user: &'a str) -> Request<'a> {
        Request { user, ..self }
    }
}

/// A request that owns its parts.
#[cfg(feature = "async")]
pub(crate) struct StoredRequest {
    id: RequestId,
    user: String,
    digest: [u8; 32],
}

#[cfg(feature = "async")]
impl StoredRequest {
    pub(crate) fn as_request(&self) -> Request<'_> {
        Request { id: self.id, user: &self.user, digest: self.digest }
    }
}

/// The answer of a request.
#[derive(Debug, Clone)]
pub struct Answered {
    /// What the closure returned when it was committed.
    pub answer: Vec<u8>,
    /// Whether an earlier try committed it.
    pub is_repeated: bool,
    /// The receipt of this try, at the level of the handle, and at least at `Process`. If it is repeated, it
    /// has waited until the first try is on disk.
    pub receipt: Receipt,
}

/// What has become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was committed, with this answer.
    Committed(Vec<u8>),
    /// It was not committed and never will be.
    Never,
}

/// What is known of a request, in the state of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// Nothing: it may run, and must then be [remembered](remember).
    New,
    /// It was committed, with this answer.
    Committed(Vec<u8>),
    /// It was settled by [`outcome`] that it never will.
    Never,
    /// Its id was used for another body.
    OtherBody,
    /// It is older than what is kept.
    TooOld,
}

impl Known {
    /// The answer, if there is one; `None` if the request may run.
    ///
    /// # Errors
    /// `RequestCancelled` (E1110), `RequestTooOld` (E1105); `InvalidArgument` (E0201) for another body.
    pub fn into_answer(self, id: RequestId) -> Result<Option<Vec<u8>>> {
        match self {
            Known::New => Ok(None),
            Known::Committed(answer) => Ok(Some(answer)),
            Known::Never => Err(Error::new(
                Code::RequestCancelled,
                format!("the request {id} was asked for its outcome before it ran: it never will"),
            )
            .with_hint("nothing was changed: make the request anew, with another id")),
            Known::OtherBody => Err(Error::invalid(format!("the id {id} was used for another request"))
                .with_hint("make an id once for each request")),
            Known::TooOld => Err(too_old(id)),
        }
    }
}

pub(crate) fn too_old(id: RequestId) -> Error {
    let message = format!("the request {id} is older than the answers that are kept: it may have run before");
    Error::new(Code::RequestTooOld, message).with_hint(
        "a first try takes a new id, by the clock of requests; after an earlier try look whether it was done",
    )
}

/// Runs a request once: commits what `run` does together with the answer that it returns, or returns the
/// answer of an earlier try.
///
/// Of two tries at once one conflicts, runs again, and finds the answer of the other. What the closure itself
/// [remembers](remember) under the same id is replaced by the answer that it returns.
///
/// # Errors
/// What the closure returned, and those of a [commit](crate::Error#commits): nothing is remembered then, and
/// after `OutcomeUnknown` (E0401) a later try finds out. `RequestTooOld` (E1105); `RequestCancelled` (E1110);
/// `InvalidArgument` (E0201) if the id was used for another body, or is new and more than a minute ahead of
/// the clock of requests; `TooLarge` (E0203) for an answer of more than [`ANSWER_BYTES_MAX`].
pub fn once(
    db: &Db,
    request: &Request<'_>,
    mut run: impl FnMut(&mut Transaction<'_>) -> Result<Vec<u8>>,
) -> Result<Answered> {
    start_clock(db)?;
    // What was found is an answer, too, and is returned once it is on disk: it may be of a commit that a
    // crash still takes back.
    let seen = db.seen_by_all();
    let ((known, is_repeated), receipt) =
        with_room(db, || seen.transact_with_receipt(|tx| find_or_run(tx, request, &mut run)))?;
    if is_repeated {
        receipt.wait(Durability::Disk)?;
    }
    answered(known, request, is_repeated, receipt)
}

/// The answer of an earlier try, and `true`; else runs the request and remembers its answer.
pub(crate) fn find_or_run(
    tx: &mut Transaction<'_>,
    request: &Request<'_>,
    run: &mut impl FnMut(&mut Transaction<'_>) -> Result<Vec<u8>>,
) -> Result<(Known, bool)> {
    let place = Place::of(tx, request.id, request.user)?;
    let known = place.find(tx, request)?;
    if known != Known::New {
        return Ok((known, true));
    }
    let answer = run(tx)?;
    check_length(request, &answer)?;
    place.put(tx, request.id, &request.row(&answer))?;
    Ok((Known::Committed(answer), false))
}

/// The result of [`once`], after its receipt has waited.
pub(crate) fn answered(
    known: Known,
    request: &Request<'_>,
    is_repeated: bool,
    receipt: Receipt,
) -> Result<Answered> {
    let answer = known.into_answer(request.id)?.expect("it has run or was found");
    Ok(Answered { answer, is_repeated, receipt })
}

/// What is known of a request. For transactions that [`once`] does not run: if it is new, run it and
/// [`remember`] its answer in the same transaction.
///
/// What it returns is of the state of this transaction. It holds once the transaction has committed at level
/// `Disk`, also if it wrote nothing.
///
/// # Errors
/// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) if the id is new and more than a minute
/// ahead of the clock of requests; `KeyTooLong` (E0202) if the name of the user is.
pub fn find(tx: &mut Transaction<'_>, request: &Request<'_>) -> Result<Known> {
    Place::of(tx, request.id, request.user)?.find(tx, request)
}

/// Stores the answer of a request that [`find`] did not know.
///
/// # Errors
/// Those of a [write](crate::Error#writes); `TooLarge` (E0203) for an answer of more than
/// [`ANSWER_BYTES_MAX`]. If the request was not looked for, `RequestTooOld` (E1105), `RequestCancelled`
/// (E1110), or `AlreadyExists` (E0210) where it has an answer.
pub fn remember(tx: &mut Transaction<'_>, request: &Request<'_>, answer: &[u8]) -> Result<()> {
    check_length(request, answer)?;
    let place = Place::of(tx, request.id, request.user)?;
    match place.stored(tx, request.id)? {
        Stored::Nothing => {}
        Stored::TooOld => return Err(too_old(request.id)),
        Stored::Row(Row::Never) => return Known::Never.into_answer(request.id).map(drop),
        Stored::Row(Row::Answer { .. }) => {
            let what = format!("the request {} has an answer already", request.id);
            let hint = "look for it with find() in the same transaction, and run it only if it is new";
            return Err(Error::new(Code::AlreadyExists, what).with_hint(hint));
        }
    }
    place.put(tx, request.id, &request.row(answer))
}

fn check_length(request: &Request<'_>, answer: &[u8]) -> Result<()> {
    if answer.len() > ANSWER_BYTES_MAX {
        let message = format!("the answer of the request {} takes {} bytes", request.id, answer.len());
        let hint = format!(
            "an answer may take {ANSWER_BYTES_MAX} bytes: store more under a key, and answer with that"
        );
        return Err(Error::new(Code::TooLarge, message).with_hint(hint));
    }
    Ok(())
}

/// What has become of a request, at level `Disk`. It settles that: if the request was not committed, it is
/// remembered as one that never will, and a try that is still on its way is refused with `RequestCancelled`.
///
/// # Errors
/// Those of a [commit](crate::Error#commits); `RequestTooOld` (E1105) if it is older than what is kept;
/// `InvalidArgument` (E0201) if the id is new and more than a minute ahead of the clock of requests.
pub fn outcome(db: &Db, id: RequestId, user: &str) -> Result<Outcome> {
    start_clock(db)?;
    let durable = db.at(Durability::Disk);
    let settled = with_room(db, || durable.transact(|tx| settle(tx, id, user)))?;
    settled.ok_or_else(|| too_old(id))
}

/// What has become of a request, settled; `None` if it is older than what is kept.
pub(crate) fn settle(tx: &mut Transaction<'_>, id: RequestId, user: &str) -> Result<Option<Outcome>> {
    let place = Place::of(tx, id, user)?;
    Ok(match place.stored(tx, id)? {
        Stored::TooOld => None,
        Stored::Row(Row::Answer { answer, .. }) => Some(Outcome::Committed(answer)),
        Stored::Row(Row::Never) => Some(Outcome::Never),
        Stored::Nothing => {
            check_time(tx, id)?;
            place.put(tx, id, &Row::Never)?;
            Some(Outcome::Never)
        }
    })
}

/// Runs a commit. If a full disk has no room for it, forgets old requests and tries once more: they may have
/// filled it.
fn with_room<T>(db: &Db, mut commit: impl FnMut() -> Result<T>) -> Result<T> {
    match commit() {
        Err(error) if error.code() == Code::DiskFull => {
            after_writes(db);
            commit()
        }
        done => done,
    }
}

/// The clock of requests.
///
/// # Errors
/// Those of a [read](crate::Error#reads).
pub fn time(db: &Db) -> Result<Time> {
    Ok(time_now(db)?.to_time())
}

fn time_now(db: &Db) -> Result<Millis> {
    start_clock(db)?;
    let (state, takes_requests) = (db.open_state(), db.engine().takes_transactions());
    let now = now(state);
    // Of a node that does not lead: ids are made by it for the one that does, whose time goes on.
    Ok(if takes_requests.unwrap_or(true) { now } else { now.max(state.clock.wall()) })
}

/// A new id.
///
/// # Errors
/// Those of a [read](crate::Error#reads).
pub fn new_id(db: &Db) -> Result<RequestId> {
    Ok(RequestId::of(time_now(db)?, db.open_state().clock.random()))
}

/// What is stored of a request.
enum Stored {
    Row(Row),
    Nothing,
    TooOld,
}

/// Where the row of a request lies.
struct Place {
    /// The tree of its minute, if there is one.
    tree: Option<TreeId>,
    key: Vec<u8>,
}

impl Place {
    fn of(tx: &Transaction<'_>, id: RequestId, user: &str) -> Result<Place> {
        let tree = tx.shared().tree(&minutes::tree(id.minute()))?;
        Ok(Place { tree, key: answer::key(id, user) })
    }

    fn stored(&self, tx: &Transaction<'_>, id: RequestId) -> Result<Stored> {
        let Some(tree) = self.tree else {
            // What was forgotten has no tree. Reading the floor makes this transaction conflict with a job
            // that raises it.
            let is_kept = id.minute() >= minutes::floor(tx.shared())?;
            return Ok(if is_kept { Stored::Nothing } else { Stored::TooOld });
        };
        Ok(match tx.shared().get(tree, &self.key)? {
            Some(stored) => Stored::Row(Row::decode(&stored)?),
            None => Stored::Nothing,
        })
    }

    fn find(&self, tx: &Transaction<'_>, request: &Request<'_>) -> Result<Known> {
        Ok(match self.stored(tx, request.id)? {
            Stored::Nothing => {
                check_time(tx, request.id)?;
                Known::New
            }
            Stored::TooOld => Known::TooOld,
            Stored::Row(Row::Never) => Known::Never,
            Stored::Row(Row::Answer { digest, .. }) if digest != request.digest => Known::OtherBody,
            Stored::Row(Row::Answer { answer, .. }) => Known::Committed(answer),
        })
    }

    /// Stores the row of a request that is new in this transaction. Beside deletes it takes the room that a
    /// full disk keeps for them.
    fn put(&self, tx: &Transaction<'_>, id: RequestId, row: &Row) -> Result<()> {
        let only_deletes = tx.shared().is_for_deletes();
        let tree = match self.tree {
            Some(tree) => tree,
            None => Place::first_of_minute(tx, id)?,
        };
        tx.shared().put(tree, &self.key, &row.encode())?;
        if only_deletes {
            tx.shared().counts_as_deletes();
        }
        Ok(())
    }

    fn first_of_minute(tx: &Transaction<'_>, id: RequestId) -> Result<TreeId> {
        let name = minutes::tree(id.minute());
        // The transaction may have stored another request of the minute since.
        if let Some(tree) = tx.shared().tree(&name)? {
            return Ok(tree);
        }
        if id.minute() < minutes::floor(tx.shared())? {
            return Err(too_old(id));
        }
        tx.begins_minute();
        tx.shared().create_tree(&name, None)
    }
}

/// A clock that was set back makes no difference to what is known; only a new id must not be ahead of it.
fn check_time(tx: &Transaction<'_>, id: RequestId) -> Result<()> {
    // A node that does not lead has the time of the last commit, which may be long ago. This transaction is
    // not committed there.
    if !tx.shared().may_commit() {
        return Ok(());
    }
    let state = tx.open_state();
    state.requests.start(&state.clock, tx.shared().lineage(), || minutes::earliest(tx.shared()))?;
    let ahead_ms = id.made_at().0.saturating_sub(now(state).0);
    if ahead_ms <= AHEAD_MAX_MS {
        return Ok(());
    }
    let message = format!("the id {id} was made {ahead_ms} ms ahead of the clock of requests");
    Err(Error::invalid(message).with_hint("make ids by the clock of requests, which the database tells"))
}

fn now(state: &OpenState) -> Millis {
    state.requests.now(&state.clock)
}

/// Sets the clock of requests, once in each lineage.
pub(crate) fn start_clock(db: &Db) -> Result<()> {
    let state = db.open_state();
    let lineage = db.engine().lineage();
    state.requests.start(&state.clock, lineage, || minutes::earliest(db.snapshot()?.source()))
}

/// Whether that was done: then it costs nothing.
#[cfg(feature = "async")]
pub(crate) fn is_clock_started(db: &Db) -> bool {
    db.open_state().requests.is_started(db.engine().lineage())
}
