//! Views: their states, and building them in steps.

use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen::view::Progress;
use duramen::{Db, LocalReads as _, Snapshot};
use duramen_proto::{v1, view};
use prost::Message as _;

use crate::auth::{Named, Right};
use crate::call::Call;
use crate::data::Room;

/// How long a call builds.
const STEP: Duration = Duration::from_millis(500);

/// The views of these collections.
pub(super) fn all(snapshot: &Snapshot, names: &[String], room: &mut Room<'_>) -> Result<Vec<v1::ViewState>> {
    let mut found = Vec::new();
    for name in names {
        let documents = snapshot.documents(name);
        let schema = documents.schema()?;
        for state in documents.views()? {
            let rows = if state.is_ready() { documents.view(state.view.name()).count()? } else { 0 };
            let message = view::of_state(&schema, &state, rows)?;
            room.take(message.encoded_len())?;
            found.push(message);
        }
    }
    Ok(found)
}

/// Builds the views of a collection for a while.
pub(super) fn build(db: &Db, request: &v1::BuildViewsRequest, call: &Call) -> Result<v1::BuildViewsReply> {
    call.check_deadline()?;
    let (begun, mut reached) = (Instant::now(), None);
    let collection = request.collection.as_str();
    let built = db.documents(collection).build_views(|progress: &Progress| {
        if begun.elapsed() < STEP && call.check_deadline().is_ok() {
            return Ok(());
        }
        reached = Some(progress.clone());
        Err(Error::invalid("the call has built for long enough"))
    });
    let Err(error) = built else { return Ok(complete()) };
    // Once the caller's view is complete, neither the time nor the errors of other views are the caller's.
    if view::is_complete(&db.documents(collection).views()?, &request.view) {
        return Ok(complete());
    }
    if let Some(Progress { view, documents, of }) = reached {
        return Ok(v1::BuildViewsReply { is_complete: false, view, documents, of });
    }
    if !names_documents(&error) || may_read(call, collection)? {
        return Err(error);
    }
    let what = format!("a view of {collection} cannot be built, for the sake of some documents");
    let hint = "someone who may read the collection is told which, and why";
    Err(Error::new(error.code(), what).with_hint(hint))
}

fn complete() -> v1::BuildViewsReply {
    v1::BuildViewsReply { is_complete: true, ..v1::BuildViewsReply::default() }
}

fn may_read(call: &Call, collection: &str) -> Result<bool> {
    call.caller.has(Right::Reader, Some((Named::Collection, collection)))
}

/// Whether an error names documents, or is of a program's code, which may name anything.
fn names_documents(error: &Error) -> bool {
    let codes = [
        Code::UniqueViolation,
        Code::MissingTarget,
        Code::StillReferenced,
        Code::Unreadable,
        Code::ReducerPanicked,
        Code::InvalidArgument,
        Code::KeyTooLong,
        Code::TooLarge,
        Code::CorruptData,
    ];
    codes.contains(&error.code())
}
