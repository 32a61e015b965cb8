//! Clients that may see states of some age, each of one node. The state must have what was acknowledged that
//! long before, or the read is refused.
//!
//! They read the counts of the writers, which only grow.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen::error::{Error, Result};
use duramen::tuple::Element;
use duramen_client::{Freshness, Remote};
use duramen_proto::v1;

/// How old states may be, in milliseconds.
pub(crate) const AGES_MS: [u64; 4] = [50, 200, 1_000, 5_000];

/// What writers were told that their counts are, and since when.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    told: Mutex<BTreeMap<u64, Vec<(Instant, i64)>>>,
}

impl Counts {
    fn told(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<(Instant, i64)>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_told(&self, client: u64, count: i64) {
        self.told().entry(client).or_default().push((Instant::now(), count));
    }

    /// What a client had been told so long ago; 0 if that was nothing.
    pub(crate) fn before(&self, client: u64, age: Duration) -> i64 {
        let told = self.told();
        let of_client = told.get(&client).map(Vec::as_slice).unwrap_or_default();
        let is_old = |(at, _): &&(Instant, i64)| at.elapsed() >= age;
        of_client.iter().rev().find(is_old).map_or(0, |(_, count)| *count)
    }
}

/// A count at one node, in a call that is not repeated; 0 if there is none.
///
/// # Errors
/// That of the call.
pub(crate) fn count_of(remote: &Remote, namespace: &str, client: u64, age: Duration) -> Result<i64> {
    remote.client().set_freshness(Freshness::MaxAge(age));
    let key = Some(duramen_proto::key::of(&[Element::Int(client.into())]));
    let kind = v1::read::Kind::GetKeyValue(v1::KeyValueKey { namespace: namespace.to_owned(), key });
    let reads = vec![v1::Read { kind: Some(kind) }];
    let form = v1::DocumentForm::Json.into();
    let reply = remote.client().read(v1::ReadRequest { reads, form, ..v1::ReadRequest::default() })?;
    let found = match reply.results.into_iter().next().and_then(|result| result.kind) {
        Some(v1::read_result::Kind::Value(v1::FoundValue { value })) => value,
        other => return Err(Error::invalid(format!("an answer to something else: {other:?}"))),
    };
    let Some(value) = found else { return Ok(0) };
    match value.form {
        Some(v1::value::Form::Json(json)) => {
            json.parse().map_err(|why| Error::invalid(format!("a count is no number: {why}: {json}")))
        }
        other => Err(Error::invalid(format!("a count in another form: {other:?}"))),
    }
}
