//! Reads of one state, in a snapshot or in the transaction of a batch.

use std::sync::Arc;

use duramen::error::{Code, Error, Result};
use duramen::tuple::{self, Element};
use duramen::view::{ReducedPart, ViewReduction};
use duramen::wire;
use duramen::{Document, LocalReads};
use duramen_proto::{MESSAGE_BYTES_MAX, document, key, v1};
use prost::Message as _;

use super::{DataService, find, rows};
use crate::auth::needs;
use crate::call::Call;
use crate::limit::budget::Charge;
use crate::limit::places::Class;
use crate::nice;

/// Answers a request of reads.
pub(super) async fn run(
    service: &DataService,
    request: v1::ReadRequest,
    call: Call,
) -> Result<v1::ReadReply> {
    needs::reads(&call.caller, &request.reads)?;
    // Threads and places of reads are for those that end soon.
    let (class, threads) = match find::are_short(&request.reads) {
        true => (Class::Calls, &service.reads),
        false => (Class::Bulk, &service.queries),
    };
    service.identity.wait_for(request.at_least.as_ref(), &call).await?;
    call.take_place_of(class).await?;
    let identity = Arc::clone(&service.identity);
    let read = move |db: &duramen::Db| {
        if class == Class::Bulk {
            nice::lower();
        }
        call.check_deadline()?;
        let snapshot = db.snapshot()?;
        identity.check(request.at_least.as_ref(), &snapshot)?;
        rows::check_marks(&snapshot, &request.marks)?;
        let results = Room::wanted(&call).all(&snapshot, &request.reads, request.form())?;
        Ok(v1::ReadReply { at: Some(identity.at(&snapshot, db)), results })
    };
    threads.run(read).await
}

/// Of a message, for what is not in its results.
const SPARE: usize = 64 << 10;

/// Of a message, for the length of a result.
const PER_RESULT: usize = 8;

/// The room of an answer, in its message and in the memory of the server.
pub(crate) struct Room<'a> {
    call: &'a Call,
    bytes_left: usize,
    /// Of what changes nothing: it ends once its client is gone.
    is_for_client: bool,
}

impl<'a> Room<'a> {
    pub(crate) fn new(call: &'a Call) -> Room<'a> {
        Room { call, bytes_left: MESSAGE_BYTES_MAX - SPARE, is_for_client: false }
    }

    /// Of reads, which only their client wants.
    pub(crate) fn wanted(call: &'a Call) -> Room<'a> {
        Room { is_for_client: true, ..Room::new(call) }
    }

    /// Room for bytes of a result.
    ///
    /// # Errors
    /// `TooLarge` (E0203) for more than a message may have; `Overloaded` (E1103) if the server has no room;
    /// `DeadlinePassed` (E1108).
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        self.call.check_deadline()?;
        self.bytes_left = self.bytes_left.checked_sub(bytes + PER_RESULT).ok_or_else(too_large)?;
        self.call.charge_run(bytes)
    }

    /// Holds bytes of a result that is being made.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) fn hold(&mut self, bytes: usize) -> Result<()> {
        self.look()?;
        self.call.charge_run(bytes)
    }

    /// Fails once the deadline has passed, or the client that only reads is gone.
    ///
    /// # Errors
    /// `DeadlinePassed` (E1108).
    pub(super) fn look(&self) -> Result<()> {
        self.call.check_deadline()?;
        if self.is_for_client { self.call.check_client() } else { Ok(()) }
    }

    /// Holds bytes for as long as the charge.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) fn working(&mut self, bytes: usize) -> Result<Charge> {
        self.look()?;
        self.call.charge_work(bytes)
    }

    /// Fails if a result of this length does not fit.
    ///
    /// # Errors
    /// `TooLarge` (E0203).
    pub(super) fn check(&self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes_left { Ok(()) } else { Err(too_large()) }
    }

    /// The answers of all reads.
    ///
    /// # Errors
    /// Those of the reads, and of [`Room::take`].
    pub(super) fn all<S: LocalReads>(
        &mut self,
        state: &S,
        reads: &[v1::Read],
        form: v1::DocumentForm,
    ) -> Result<Vec<v1::ReadResult>> {
        let mut results = Vec::with_capacity(reads.len());
        for read in reads {
            let result = v1::ReadResult { kind: Some(one(state, read, form, self)?) };
            self.take(result.encoded_len())?;
            results.push(result);
        }
        Ok(results)
    }
}

fn too_large() -> Error {
    let what = format!("the answer takes more than {MESSAGE_BYTES_MAX} bytes");
    Error::new(Code::TooLarge, what).with_hint("read less at once, or scan")
}

fn one<S: LocalReads>(
    state: &S,
    read: &v1::Read,
    form: v1::DocumentForm,
    room: &mut Room<'_>,
) -> Result<v1::read_result::Kind> {
    use v1::read::Kind;
    use v1::read_result::Kind as Answer;
    let what = read.kind.as_ref().ok_or_else(|| Error::invalid("a read of the call is of no kind"))?;
    Ok(match what {
        Kind::Get(get) => {
            let key = tuple::encode(&key::required(get.key.as_ref())?)?;
            let named = wire::get_named(state, &get.collection, &key)?;
            let document = named.map(|named| document::of_stored(&named, form)).transpose()?;
            Answer::Found(v1::Found { document })
        }
        Kind::Nth(nth) => Answer::Found(found(state.documents(&nth.collection).nth(nth.index)?, form)?),
        Kind::Count(of) if of.generation.is_some() => Answer::Number(rows::count(state, of)?),
        Kind::Count(of) => {
            let span = key::span(of.range.as_ref())?;
            Answer::Number(match of.view.as_str() {
                "" => state.documents(&of.collection).count(span)?,
                view => state.documents(&of.collection).view(view).range(span).count()?,
            })
        }
        Kind::Rank(of) => {
            Answer::Number(state.documents(&of.collection).rank(key::required(of.key.as_ref())?)?)
        }
        Kind::Reduce(of) => {
            let reduction = state.documents(&of.collection).reduce(key::span(of.range.as_ref())?)?;
            let sums = reduction.sums().map(|(field, sum)| v1::FieldSum {
                field: field.to_owned(),
                sum: sum.sum.to_string(),
                nulls: sum.nulls,
            });
            Answer::Reduction(v1::Reduction { count: reduction.count(), sums: sums.collect() })
        }
        Kind::ReduceView(of) if of.encoded => Answer::ViewReductions(rows::reduce(state, of, room)?),
        Kind::ReduceView(of) => Answer::ViewReductions(reduce_view(state, of, form, room)?),
        Kind::Rows(of) => Answer::Rows(rows::read(state, of, room)?),
        Kind::Find(query) => Answer::Documents(find::all(state, query, form, room)?),
        Kind::Explain(query) => Answer::Plan(find::explain(state, query, room)?),
        Kind::GetKeyValue(of) => Answer::Value(v1::FoundValue { value: key_value(state, of, form)? }),
    })
}

/// The value of a key, as it is stored or as JSON.
fn key_value<S: LocalReads>(
    state: &S,
    of: &v1::KeyValueKey,
    form: v1::DocumentForm,
) -> Result<Option<v1::Value>> {
    let key = key::required(of.key.as_ref())?;
    if form == v1::DocumentForm::Json {
        let value = state.kv(&of.namespace).get_value(key)?;
        return value.map(|value| document::of_value(&value, form)).transpose();
    }
    let mut found = None;
    state.lend_value(&of.namespace, &tuple::encode(&key)?, &mut |stored| {
        found = Some(v1::Value { form: Some(v1::value::Form::Msgpack(stored.to_vec().into())) });
        Ok(())
    })?;
    Ok(found)
}

fn reduce_view<S: LocalReads>(
    state: &S,
    of: &v1::ReduceView,
    form: v1::DocumentForm,
    room: &mut Room<'_>,
) -> Result<v1::ViewReductions> {
    let documents = state.documents(&of.collection);
    let rows = documents.view(&of.view).range(key::span(of.range.as_ref())?);
    let mut groups = Vec::new();
    let mut add = |elements: Vec<Element>, reduction: ViewReduction| {
        let parts = reduction.parts.iter().map(|part| reduced(part, form)).collect::<Result<_>>()?;
        let (key, count) = (Some(key::of(&elements)), reduction.count);
        let group = v1::ReductionGroup { key, count, parts, ..v1::ReductionGroup::default() };
        // What it takes beside its bytes in the message.
        room.hold(group.encoded_len() + size_of::<v1::ReductionGroup>())?;
        groups.push(group);
        Ok(())
    };
    match usize::try_from(of.group_by).unwrap_or(usize::MAX) {
        0 => add(Vec::new(), rows.reduce()?)?,
        elements => rows.for_each_group(elements, add)?,
    }
    Ok(v1::ViewReductions { groups })
}

fn reduced(part: &ReducedPart, form: v1::DocumentForm) -> Result<v1::ReducedPart> {
    Ok(v1::ReducedPart {
        reduce: part.reduce.name().to_owned(),
        value_index: u32::try_from(part.reduce.value()).unwrap_or(u32::MAX),
        field: part.field.clone().unwrap_or_default(),
        seen: part.seen,
        value: Some(document::of_value(&part.value, form)?),
    })
}

fn found(document: Option<Document>, form: v1::DocumentForm) -> Result<v1::Found> {
    let document = document.map(|document| document::of(&document, form)).transpose()?;
    Ok(v1::Found { document })
}
