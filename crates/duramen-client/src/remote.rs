//! A database that another process serves, used with the closures of the library.

mod collection;
mod key_values;
mod transaction;

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::error::{Code, Error, ErrorKind, Result};
use duramen_proto::v1;

use crate::address::Address;
use crate::client::Client;
use crate::stream::{FailedStep, TransactionStream};
pub use collection::RemoteDocuments;
pub use key_values::RemoteKv;
pub use transaction::RemoteTransaction;

/// How often a transaction runs again after a conflict.
const CONFLICTS_MAX: u32 = 32;

/// For how long a call goes on after lost connections and while the server takes no calls.
const WITHIN: Duration = Duration::from_secs(30);

/// How long a run of a closure may take.
const LASTS: Duration = Duration::from_secs(30);

/// The longest wait before a transaction runs again.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A database that another process serves.
///
/// ```no_run
/// use duramen_client::Remote;
/// use duramen::doc;
/// # fn main() -> duramen::error::Result<()> {
/// let db = Remote::connect("shop.duramen")?;
/// let left = db.transact(|tx| {
///     let left = tx.kv("stock").get::<i64>("apples")?.unwrap_or(10) - 1;
///     tx.kv("stock").put("apples", &left)?;
///     tx.documents("orders").insert(&doc! { "id": 7, "what": "an apple" })?;
///     Ok(left)
/// })?;
/// println!("{left} apples are left");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Remote {
    client: Client,
    lasts: Duration,
}

impl From<Client> for Remote {
    fn from(client: Client) -> Remote {
        Remote { client, lasts: LASTS }
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
    pub fn transact<T>(&self, run: impl FnMut(&mut RemoteTransaction<'_>) -> Result<T>) -> Result<T> {
        Ok(self.transact_with_receipt(run)?.0)
    }

    /// As [`Remote::transact`], with the receipt of the commit.
    ///
    /// # Errors
    /// As [`Remote::transact`].
    pub fn transact_with_receipt<T>(
        &self,
        mut run: impl FnMut(&mut RemoteTransaction<'_>) -> Result<T>,
    ) -> Result<(T, v1::Receipt)> {
        let mut until = Instant::now() + WITHIN;
        let (mut stream, mut conflicts, mut tries) = (None, 0, 0);
        loop {
            let error = match self.run_once(&mut stream, &mut run) {
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

    /// Runs the closure once, and commits.
    fn run_once<'c, T>(
        &'c self,
        stream: &mut Option<TransactionStream<'c>>,
        run: &mut impl FnMut(&mut RemoteTransaction<'_>) -> Result<T>,
    ) -> Ended<T> {
        let begun = match stream.take().map_or_else(|| self.client.transactions(), Ok) {
            Ok(stream) => RemoteTransaction::begin(stream, self.lasts),
            Err(error) => return again_or_failed(error),
        };
        let mut transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => return again_or_failed(error),
        };
        let out = match run(&mut transaction) {
            Ok(out) => out,
            Err(error) => {
                // An error that the server gave may be over the next time; those of the closure are final.
                let is_of_server = transaction.is_of_server(&error);
                let lost = transaction.lost().filter(is_transient);
                *stream = transaction.roll_back();
                return match lost {
                    Some(lost) => Ended::Again(lost),
                    None if is_of_server => again_or_failed(error),
                    None => Ended::Failed(error),
                };
            }
        };
        let id = match transaction.has_written().then(|| self.client.new_request_id()).transpose() {
            Ok(id) => id,
            Err(error) => return Ended::Failed(error),
        };
        let (committed, rest) = transaction.commit(id.clone().unwrap_or_default());
        *stream = rest;
        match committed {
            Ok(receipt) => Ended::Committed(out, receipt),
            Err(FailedStep { error, .. }) if is_in_doubt(&error) => match id {
                // It only read.
                None => Ended::Again(error),
                Some(id) => self.ask_outcome(id, error, out),
            },
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
                    let may_change = is_transient(&error) || is_in_doubt(&error);
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

fn again_or_failed<T>(error: Error) -> Ended<T> {
    if is_transient(&error) { Ended::Again(error) } else { Ended::Failed(error) }
}
