//! A database that another process serves, used with the closures of the library.

mod asynchronous;
mod blobs;
mod calls;
mod collection;
mod consumer;
mod fits;
mod kv;
mod questions;
mod session;
mod streams;
mod transaction;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::Collection;
use duramen::error::{Code, Error, ErrorKind, Result};
use duramen::wire::StoredType;
use duramen_proto::v1;

use crate::Freshness;
use crate::address::Address;
use crate::client::Client;
use crate::stream::FailedStep;
use fits::Fits;
use session::Session;
use streams::Streams;

pub use asynchronous::AsyncRemote;
pub use blobs::{
    RemoteBlobIter, RemoteBlobReader, RemoteBlobWriter, RemoteBlobs, RemoteBlobsOf, RemoteUpload,
};
pub use collection::RemoteDocuments;
pub use consumer::RemoteConsumer;
pub use transaction::{RemoteSnapshot, RemoteTransaction};

/// How often a transaction runs again after a conflict.
const CONFLICTS_MAX: u32 = 32;

/// For how long a call goes on after lost connections and while the server takes no calls.
const WITHIN: Duration = Duration::from_secs(30);

/// How long a run of a closure may take.
const LASTS: Duration = Duration::from_secs(30);

/// How long a server keeps a snapshot.
const SNAPSHOT_LASTS: Duration = Duration::from_secs(120);

/// The longest wait before a transaction runs again.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A database that another process serves.
///
/// It is a [`Store`](duramen::Store): functions of that run on it and on a [`Db`](duramen::Db). Its reads are
/// those of [`Reads`](duramen::Reads), each of the newest state unless [`Remote::set_freshness`] allows an
/// older one; its transactions have the writes of [`Tx`](duramen::Tx). Its calls wait for the server on the
/// calling thread; [`AsyncRemote`] is for programs that await. Clones share the connection.
///
/// ```no_run
/// use duramen::prelude::*;
/// use duramen_client::Remote;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// #[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum)))]
/// struct Order { #[key] id: u64, city: String, cents: i64 }
///
/// # fn main() -> Result<()> {
/// let db = Remote::connect("shop.duramen")?;
/// db.put(&Order { id: 1, city: "Oslo".into(), cents: 1250 })?;
/// let (orders, cents) = db.view::<SalesByCity>().key("Oslo").reduce()?;
/// let left = db.transact(|tx| {
///     let left = tx.kv("stock").get::<i64>("apples")?.unwrap_or(10) - 1;
///     tx.kv("stock").put("apples", &left)?;
///     tx.modify::<Order>(1, |order| {
///         order.cents += 60;
///         Ok(())
///     })?;
///     Ok(left)
/// })?;
/// println!("{orders} order(s), {cents} cents; {left} apples are left");
/// # Ok(()) }
/// ```
///
/// # Types
/// The first read of a type asks for the definition of its collection, and checks that the type fits it. The
/// first write creates the collection or gives it what the type declares, before and outside of the
/// transaction that writes. A type of another version than the documents is refused: a migration runs in the
/// program that has the database open.
#[derive(Debug, Clone)]
pub struct Remote {
    client: Client,
    fits: Arc<Fits>,
    streams: Arc<Streams>,
    lasts: Duration,
}

impl From<Client> for Remote {
    fn from(client: Client) -> Remote {
        let (fits, streams) = (Fits::new(client.clone()), Streams::new(client.clone()));
        Remote { client, fits: Arc::new(fits), streams: Arc::new(streams), lasts: LASTS }
    }
}

/// How one run of a transaction ended.
enum Ended<T> {
    Committed(T, v1::Receipt),
    /// Nothing happened: it may run again.
    Again(Error),
    Failed(Error),
}

impl Remote {
    /// Connects to a server: by the directory of its database, `unix:PATH`, `HOST:PORT` or
    /// `duramen://TOKEN@HOST:PORT`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it is no address; those of [`Client::connect`].
    pub fn connect(address: &str) -> Result<Remote> {
        Ok(Remote::from(Client::connect(&Address::parse(address)?)?))
    }

    /// Gives each run of a closure so much time, at most 300 s; 30 s without this. A run that takes longer is
    /// rolled back, and the closure runs again.
    #[must_use]
    pub fn lasting(self, lasts: Duration) -> Remote {
        Remote { lasts, ..self }
    }

    /// As [`Client::set_freshness`]: for this handle and all its clones. Transactions and snapshots are of
    /// the newest state.
    pub fn set_freshness(&self, freshness: Freshness) {
        self.client.set_freshness(freshness);
    }

    /// The connection, for calls of the protocol.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a transaction, and returns what the closure returned, once the commit is on disk.
    ///
    /// It is strictly serialisable. After a conflict the closure runs again, up to 32 times, so it should do
    /// nothing but read and write `tx`. What it returns is of the run that was committed: if the connection
    /// is lost during the commit, the server is asked for the outcome before the closure runs again. An error
    /// of the closure rolls back.
    ///
    /// Reads go to the server, each with the writes before it; the other writes go with the commit. So an
    /// error of a write, such as `AlreadyExists` (E0210), is returned by the next read, or by this call.
    ///
    /// # Errors
    /// What the closure returned, those of the writes and of a [commit](duramen::Error#commits).
    /// `WriteConflict` (E0101) after 32 conflicts; `Unreachable` (E1111), `Draining` (E1106) and `Overloaded`
    /// (E1103) after 30 seconds; `OutcomeUnknown` (E0401) if the server could not be asked for the outcome of
    /// a commit in that time.
    pub fn transact<T>(&self, run: impl FnMut(&mut RemoteTransaction) -> Result<T>) -> Result<T> {
        Ok(self.transact_with_receipt(run)?.0)
    }

    /// As [`Remote::transact`], with the receipt of the commit. If its answer was lost, and the server had to
    /// be asked for the outcome, the receipt is `repeated` and names no state.
    ///
    /// # Errors
    /// As [`Remote::transact`].
    pub fn transact_with_receipt<T>(
        &self,
        mut run: impl FnMut(&mut RemoteTransaction) -> Result<T>,
    ) -> Result<(T, v1::Receipt)> {
        let mut until = Instant::now() + WITHIN;
        let (mut conflicts, mut tries) = (0, 0);
        loop {
            let error = match self.run_once(&mut run) {
                Ended::Committed(out, receipt) => return Ok((out, receipt)),
                Ended::Failed(error) => return Err(error),
                Ended::Again(error) => error,
            };
            tries += 1;
            if error.kind() == ErrorKind::Conflict {
                // The server answers: conflicts have a limit of their own.
                until = Instant::now() + WITHIN;
            }
            conflicts += u32::from(error.kind() == ErrorKind::Conflict);
            if conflicts > CONFLICTS_MAX {
                return Err(error.with_hint(
                    "nothing was changed: a batch runs where the data is, and one on few keys always ends",
                ));
            }
            let wait = self.wait_before(tries);
            if Instant::now() + wait > until {
                return Err(error);
            }
            thread::sleep(wait);
        }
    }

    /// A snapshot of the newest state, which the server keeps for two minutes, or longer if a run of a
    /// closure may last longer. Each of its reads is a round trip.
    ///
    /// # Errors
    /// `Unreachable` (E1111), `Draining` (E1106) and `Overloaded` (E1103) after 30 seconds.
    pub fn snapshot(&self) -> Result<RemoteSnapshot> {
        self.again(|| {
            let mut session = Session::new(&self.streams, self.lasts.max(SNAPSHOT_LASTS), &self.fits);
            session.begin_now()?;
            Ok(RemoteSnapshot::new(session))
        })
    }

    /// Creates the collection of a type, or gives it what the type declares, as [`Db::register`] does. Views
    /// that are new are built by the server in the background.
    ///
    /// # Errors
    /// As [`Db::register`]; `Unsupported` (E0211) if the documents have another version than the type.
    ///
    /// [`Db::register`]: duramen::Db::register
    pub fn register<C: Collection>(&self) -> Result<()> {
        let of = StoredType::of::<C>();
        self.fits.forget(of.name());
        self.again(|| self.fits.writing(of)).map(drop)
    }

    /// Runs the closure once, and commits.
    fn run_once<T>(&self, run: &mut impl FnMut(&mut RemoteTransaction) -> Result<T>) -> Ended<T> {
        let mut transaction = RemoteTransaction::new(Session::new(&self.streams, self.lasts, &self.fits));
        let out = match run(&mut transaction) {
            Ok(out) => out,
            Err(error) => {
                let mut session = transaction.session();
                // An error that the server gave may be over the next time; those of the closure are final.
                let is_of_server = session.is_of_server(&error);
                let lost = session.lost().filter(is_transient);
                session.end();
                return match lost {
                    Some(lost) => Ended::Again(lost),
                    None if is_of_server => again_or_failed(error),
                    None => Ended::Failed(error),
                };
            }
        };
        let mut session = transaction.session();
        let id = match session.has_written().then(|| self.client.new_request_id()).transpose() {
            Ok(id) => id,
            Err(error) => return Ended::Failed(error),
        };
        let committed = session.commit(id.clone().unwrap_or_default());
        session.end();
        // What the closure returned may have cursors, which take it when they are dropped.
        drop(session);
        match committed {
            Ok(receipt) => Ended::Committed(out, receipt),
            Err(FailedStep { error, .. }) if is_in_doubt(&error) => match id {
                // It only read.
                None => Ended::Again(error),
                Some(id) => self.ask_outcome(id, error, out),
            },
            Err(FailedStep { error, .. }) if self.is_id_refused(&error, &id.unwrap_or_default()) => {
                Ended::Again(error)
            }
            Err(FailedStep { error, .. }) => again_or_failed(error),
        }
    }

    /// What has become of a commit without an answer.
    fn ask_outcome<T>(&self, id: Bytes, lost: Error, out: T) -> Ended<T> {
        let (mut tries, until) = (0, Instant::now() + WITHIN);
        loop {
            let asked = v1::OutcomeRequest { request_id: id.clone() };
            match self.client.outcome(asked) {
                Ok(outcome) if outcome.committed => {
                    let receipt = v1::Receipt { repeated: true, ..v1::Receipt::default() };
                    return Ended::Committed(out, receipt);
                }
                Ok(_) => {
                    let what = format!("the transaction was not committed: {}", lost.message());
                    let hint = "nothing was changed: look whether the server still runs, and try again";
                    return Ended::Again(Error::new(Code::Unreachable, what).with_hint(hint));
                }
                Err(error) => {
                    tries += 1;
                    let wait = self.wait_before(tries);
                    // A full disk has no room to note that the commit never happens.
                    let is_full = error.kind() == ErrorKind::Full;
                    let may_change = is_transient(&error) || is_in_doubt(&error) || is_full;
                    if !may_change || Instant::now() + wait > until {
                        let what = format!("the transaction may or may not survive: {}", lost.message());
                        let hint = "look whether the change is there before repeating it";
                        return Ended::Failed(Error::new(Code::OutcomeUnknown, what).with_hint(hint));
                    }
                    thread::sleep(wait);
                }
            }
        }
    }

    /// A while that grows with the number of tries, and is different for each client.
    fn wait_before(&self, tries: u32) -> Duration {
        let most = Duration::from_millis(1 << tries.min(7)).min(WAIT_MAX);
        let random = self.client.new_request_id().map_or(u8::MAX, |id| id[15]);
        most.mul_f64((f64::from(random) + 1.0) / 256.0)
    }
}

/// Whether a call that ended so has done nothing, and may succeed later.
fn is_transient(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Unavailable => true,
        _ => error.code() == Code::TransactionExpired,
    }
}

/// Whether a commit that ended so may have happened.
fn is_in_doubt(error: &Error) -> bool {
    error.kind() == ErrorKind::InDoubt
        || error.kind() == ErrorKind::Poisoned
        || error.code() == Code::Unreachable
}

/// The error of a call that can be repeated: if it is in doubt, another try finds out.
fn repeatable(error: Error) -> Error {
    match error.code() {
        Code::OutcomeUnknown => Error::new(Code::Unreachable, error.message()).with_hint(error.hint()),
        _ => error,
    }
}

fn again_or_failed<T>(error: Error) -> Ended<T> {
    if is_transient(&error) { Ended::Again(error) } else { Ended::Failed(error) }
}
