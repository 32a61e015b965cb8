//! Views: their states, and building them in steps.

use std::time::{Duration, Instant};

use duramen::error::{Error, Result};
use duramen::view::Progress;
use duramen::{Db, LocalReads as _, Snapshot};
use duramen_proto::{v1, view};
use prost::Message as _;

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
    // Once the caller's view is complete, neither the time nor the errors of other views are the caller's.
    let states = db.documents(collection).views()?;
    if built.is_ok() || view::is_complete(&states, &request.view) {
        return Ok(v1::BuildViewsReply { is_complete: true, ..v1::BuildViewsReply::default() });
    }
    match (built, reached) {
        (Err(_), Some(Progress { view, documents, of })) => {
            Ok(v1::BuildViewsReply { is_complete: false, view, documents, of })
        }
        (built, _) => built.map(|()| v1::BuildViewsReply::default()),
    }
}
