//! Views: their states, new ones, and building them in steps.

use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen::view::Progress;
use duramen::{Db, Reads as _, Snapshot, Transaction, ViewSpec, ViewState};
use duramen_proto::{v1, view};
use prost::Message as _;

use crate::call::Call;
use crate::data::Room;

/// How long a call builds.
const STEP: Duration = Duration::from_millis(500);

/// The views of these collections; without any, of all.
pub(super) fn all(snapshot: &Snapshot, names: &[String], room: &mut Room<'_>) -> Result<Vec<v1::ViewState>> {
    let names: Vec<String> = match names {
        [] => snapshot.collections()?.iter().map(|schema| schema.name().to_owned()).collect(),
        names => names.to_vec(),
    };
    let mut found = Vec::new();
    for name in names {
        let documents = snapshot.documents(&name);
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

/// Adds a view. Returns whether it is new.
pub(super) fn add(
    tx: &mut Transaction<'_>,
    collection: &str,
    spec: &ViewSpec,
    replaces: bool,
) -> Result<bool> {
    let schema = tx.documents(collection).schema()?;
    let is_known = schema.views().iter().any(|view| view.name() == spec.name());
    let is_new = tx.add_view(collection, spec)?;
    if is_new && is_known && !replaces {
        let what = format!("{collection} has a view {} with other terms", spec.name());
        return Err(Error::new(Code::AlreadyExists, what).with_hint("replace it, or choose another name"));
    }
    Ok(is_new)
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
    if built.is_ok() || is_ready(db, request)? {
        return Ok(v1::BuildViewsReply { is_complete: true, ..v1::BuildViewsReply::default() });
    }
    match (built, reached) {
        (Err(_), Some(Progress { view, documents, of })) => {
            Ok(v1::BuildViewsReply { is_complete: false, view, documents, of })
        }
        (built, _) => built.map(|()| v1::BuildViewsReply::default()),
    }
}

/// Whether the view that is waited for is complete. Then the time and the errors that others take are not the
/// caller's.
fn is_ready(db: &Db, request: &v1::BuildViewsRequest) -> Result<bool> {
    let states = db.snapshot()?.documents(&request.collection).views()?;
    let mut own = states.iter().filter(|state| state.view.name() == request.view).peekable();
    Ok(own.peek().is_some() && own.all(ViewState::is_ready))
}
