//! The work of a message in its transaction, on a thread.

use std::collections::HashSet;

use duramen::error::{Error, Result};
use duramen::requests::{self, Known, Request, RequestId};
use duramen::{Db, OpenTransaction, Transaction};
use duramen_proto::v1;
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use xxhash_rust::xxh3::Xxh3;

use super::{Failure, Part, of_whole};
use crate::auth::{Named, Right, needs};
use crate::call::Call;
use crate::data::batch::{self, Operation};
use crate::data::find;
use crate::data::read::Room;
use crate::data::rows;
use crate::limit::budget::Charge;

/// A transaction of a stream.
pub(super) struct Open {
    pub(super) transaction: OpenTransaction,
    /// The call, with the end of the transaction's time as its deadline.
    pub(super) call: Call,
    pub(super) form: v1::DocumentForm,
    /// All operations so far: what a request id stands for.
    pub(super) body: Xxh3,
    /// What its operations needed: it must still be granted at the commit.
    pub(super) needed: Needed,
    /// Bytes of the operations, and of the notes of its reads; so many of them are charged.
    pub(super) written: usize,
    pub(super) noted: usize,
    pub(super) charged: usize,
    pub(super) charges: Vec<Charge>,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// Rights on what has a name.
pub(super) type Needed = HashSet<(Right, Named, String)>;

/// What a message asks for.
pub(super) struct Steps {
    pub(super) marks: Vec<v1::SchemaMark>,
    pub(super) operations: Vec<v1::Operation>,
    pub(super) reads: Vec<v1::Read>,
    /// They are the last, and the commit is remembered under this id, if there is one.
    pub(super) commit: Option<Option<RequestId>>,
}

/// What a message has done.
pub(super) struct Done {
    pub(super) results: Vec<v1::OperationResult>,
    pub(super) reads: Vec<v1::ReadResult>,
    /// Of its request id.
    pub(super) known: Known,
}

impl Open {
    /// Charges what it has written and noted.
    pub(super) async fn charge(&mut self, call: &Call) -> Result<()> {
        let bytes = self.written + self.noted;
        if bytes > self.charged {
            self.charges.push(call.hold(bytes - self.charged).await?);
            self.charged = bytes;
        }
        Ok(())
    }

    /// What was written must still be granted.
    fn check_needed(&self) -> Result<()> {
        let caller = &self.call.caller;
        self.needed.iter().try_for_each(|(right, named, name)| caller.needs(*right, Some((*named, name))))
    }

    pub(super) fn work(&mut self, db: &Db, asked: Steps, user: &str) -> std::result::Result<Done, Failure> {
        self.call.begin().map_err(of_whole)?;
        if asked.commit.is_some() {
            self.check_needed().map_err(of_whole)?;
        }
        let id = asked.commit.flatten();
        if id.is_some() {
            // Its clock is started by the first look at it, outside of a transaction.
            requests::time(db).map_err(of_whole)?;
        }
        let (call, form, body) = (self.call.clone(), self.form, self.body.digest128().to_be_bytes());
        let request = id.map(|id| Request::new(id, &body).by(user));
        let mut done = Err(of_whole(Error::invalid("the transaction cannot go on")));
        let mut noted = self.noted;
        let needed = &mut self.needed;
        let went_on = self.transaction.with(|tx| {
            let mut room = if asked.commit.is_some() { Room::new(&call) } else { Room::wanted(&call) };
            done = rows::check_marks(tx, &asked.marks).map_err(of_whole).and_then(|()| {
                let asked = (asked.operations, &asked.reads[..], form);
                in_transaction(tx, (&call, needed), asked, &mut room, request.as_ref())
            });
            if asked.commit.is_some() && done.is_ok() {
                // As it is ordered: it only waits from then on.
                tx.only_if(move || {
                    call.give_place_back();
                    Ok(())
                });
            }
            noted = tx.read_bytes();
            Ok(())
        });
        self.noted = noted;
        went_on.map_err(of_whole)?;
        done
    }
}

fn in_transaction(
    tx: &mut Transaction<'_>,
    (call, needed): (&Call, &mut Needed),
    (operations, reads, form): (Vec<v1::Operation>, &[v1::Read], v1::DocumentForm),
    room: &mut Room<'_>,
    request: Option<&Request<'_>>,
) -> std::result::Result<Done, Failure> {
    let known = request.map_or(Ok(Known::New), |request| requests::find(tx, request)).map_err(of_whole)?;
    if known != Known::New {
        return Ok(Done { results: Vec::new(), reads: Vec::new(), known });
    }
    let mut results = Vec::with_capacity(operations.len());
    for (number, operation) in (1..).zip(operations) {
        let of_this = |error| Failure { error, of: Part::Operation(number) };
        if let Some((right, named, name)) = needs::of_operation(&operation) {
            call.caller.needs(right, Some((named, name))).map_err(of_this)?;
            if !call.caller.is_admin() {
                needed.insert((right, named, name.to_owned()));
            }
        }
        let operation = Operation::new(operation, form).map_err(of_this)?;
        let result = operation.run(tx, call).map_err(of_this)?;
        room.take(result.encoded_len()).map_err(of_whole)?;
        results.push(result);
    }
    if let Some(request) = request {
        remember(tx, request, &results).map_err(of_whole)?;
    }
    let of_read = |error| Failure { error, of: Part::Read };
    needs::reads(&call.caller, reads).map_err(of_read)?;
    find::check_in_batch(reads).map_err(of_read)?;
    let reads = room.all(tx, reads, form).map_err(of_read)?;
    Ok(Done { results, reads, known })
}

/// Stores the results under the request's id.
fn remember(tx: &mut Transaction<'_>, request: &Request<'_>, results: &[v1::OperationResult]) -> Result<()> {
    let answer = v1::OutcomeReply { committed: true, results: results.to_vec(), failed_condition: 0 };
    batch::check_answer(answer.encoded_len())?;
    requests::remember(tx, request, &answer.encode_to_vec())
}
