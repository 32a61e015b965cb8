//! A database that another process serves: what commands ask, as calls of the protocol.

use std::collections::VecDeque;
use std::time::Duration;

use duramen::find::Step;
use duramen::sums::FieldSum;
use duramen::tuple::Element;
use duramen::{
    Code, Direction, Document, Durability, Error, ErrorKind, Followed, ReferenceState, Schema, Span, ViewSpec,
};
use duramen_client::Client;
use duramen_proto::{collection, document, key, v1, view};

use super::queries::Sample;
use super::{Group, GroupPart, Reduced, Removed, Stored};
use crate::database::candidates;
use crate::failure::{FAILED, Failure, POISONED, Result};

/// What the figures of a server may take.
const STATS_WITHIN: Duration = Duration::from_secs(30);

/// A connection to a server.
pub(crate) struct Served {
    pub(super) client: Box<Client>,
}

/// The documents of a scan.
pub(crate) struct Scanned {
    messages: duramen_client::Scanned,
    waiting: VecDeque<v1::Document>,
    current: v1::Document,
    document: Document,
}

/// What a query finds.
pub(crate) struct FoundRows {
    messages: duramen_client::Scanned,
    waiting: VecDeque<v1::Document>,
    read_count: u64,
}

impl Served {
    pub(super) fn new(client: Client) -> Served {
        Served { client: Box::new(client) }
    }

    /// The definition of a collection.
    pub(super) fn definition(&self, name: &str) -> duramen::Result<Schema> {
        let found = self.client.collections(vec![name.to_owned()])?;
        let found = found.first().ok_or_else(|| Error::new(Code::NoSuchTree, "the server names none"))?;
        Schema::from_bytes(&found.definition)
    }

    /// A collection. The error suggests similar names.
    pub(super) fn schema(&self, name: &str) -> Result<Schema> {
        match self.definition(name) {
            Ok(schema) => Ok(schema),
            Err(error) if error.code() == Code::NoSuchTree => {
                let names: Vec<String> =
                    self.client.collections(Vec::new())?.into_iter().map(|known| known.name).collect();
                let hint = match names.as_slice() {
                    [] => "the database has no collections: `duramen import` makes one".to_owned(),
                    names => candidates("collections", name, names),
                };
                let message = format!("there is no collection {name}");
                Err(Failure::said(FAILED, Code::NoSuchTree, message, hint))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn collections(&self) -> Result<Vec<(Schema, u64)>> {
        let found = self.client.collections(Vec::new())?;
        let count = |collection: &v1::Collection| v1::Read {
            kind: Some(v1::read::Kind::Count(v1::RangeOf {
                collection: collection.name.clone(),
                ..v1::RangeOf::default()
            })),
        };
        let counts = self.reads(found.iter().map(count).collect())?;
        let schema = |(collection, answer): (&v1::Collection, v1::read_result::Kind)| match answer {
            v1::read_result::Kind::Number(count) => Ok((Schema::from_bytes(&collection.definition)?, count)),
            _ => Err(unexpected("no count")),
        };
        found.iter().zip(counts).map(schema).collect()
    }

    pub(super) fn stats(&self) -> Result<v1::StatsReply> {
        Ok(self.client.stats(STATS_WITHIN)?)
    }

    /// All collections.
    pub(super) fn schemas(&self) -> Result<Vec<Schema>> {
        let found = self.client.collections(Vec::new())?;
        found.iter().map(|collection| Ok(Schema::from_bytes(&collection.definition)?)).collect()
    }

    /// The references of collections.
    pub(super) fn references(&self, collections: Vec<String>) -> Result<Vec<ReferenceState>> {
        let mut states = Vec::new();
        for found in self.client.collections(collections)? {
            states.extend(collection::references(&found)?);
        }
        Ok(states)
    }

    pub(super) fn views(&self, collections: Vec<String>) -> Result<Vec<v1::ViewState>> {
        Ok(self.client.views(collections)?)
    }

    pub(super) fn drop_collection(&self, name: &str, level: Durability) -> Result<(u64, u64)> {
        let request =
            v1::DropCollectionRequest { collection: name.to_owned(), level: level_of(level).into() };
        let v1::DropCollectionReply { receipt, count } = asked(self.client.drop_collection(request))?;
        Ok((count, seq_of(receipt)))
    }

    pub(super) fn add_view(
        &self,
        schema: &Schema,
        spec: &ViewSpec,
        replace: bool,
        level: Durability,
    ) -> Result<(bool, u64)> {
        let v1::AddViewReply { receipt, is_new } = asked(self.client.add_view(v1::AddViewRequest {
            collection: schema.name().to_owned(),
            view: Some(view::of(spec)?),
            replace,
            level: level_of(level).into(),
        }))?;
        Ok((is_new, seq_of(receipt)))
    }

    pub(super) fn drop_view(
        &self,
        collection: &str,
        view: &str,
        unfinished_only: bool,
        level: Durability,
    ) -> Result<u64> {
        let v1::DropViewReply { receipt, .. } = asked(self.client.drop_view(v1::DropViewRequest {
            collection: collection.to_owned(),
            view: view.to_owned(),
            unfinished_only,
            level: level_of(level).into(),
        }))?;
        Ok(seq_of(receipt))
    }

    pub(super) fn rebuild_view(&self, collection: &str, view: &str, level: Durability) -> Result<u64> {
        let v1::RebuildViewReply { receipt } = asked(self.client.rebuild_view(v1::RebuildViewRequest {
            collection: collection.to_owned(),
            view: view.to_owned(),
            level: level_of(level).into(),
        }))?;
        Ok(seq_of(receipt))
    }

    pub(super) fn build_views(&self, collection: &str, view: &str) -> Result<v1::BuildViewsReply> {
        asked(self.client.build_views(collection, view))
    }

    pub(super) fn get(&self, collection: &str, key: &[Element]) -> Result<Option<Document>> {
        let get = v1::DocumentKey { collection: collection.to_owned(), key: Some(key::of(key)) };
        match self.one(v1::read::Kind::Get(get))? {
            v1::read_result::Kind::Found(v1::Found { document }) => {
                Ok(document.as_ref().map(|document| document::required(Some(document))).transpose()?)
            }
            _ => Err(unexpected("no document")),
        }
    }

    pub(super) fn rows(
        &self,
        collection: &str,
        span: Span,
        direction: Direction,
        limit: u64,
    ) -> Result<Scanned> {
        let messages = self.client.scan(v1::ScanRequest {
            collection: collection.to_owned(),
            range: Some(key::of_span(span)),
            reverse: direction == Direction::Reverse,
            // A limit of 0 is none there, and asks for nothing here.
            limit: limit.max(1),
            ..v1::ScanRequest::default()
        })?;
        Ok(Scanned {
            messages,
            waiting: VecDeque::new(),
            current: v1::Document::default(),
            document: Document::new(),
        })
    }

    pub(super) fn count(&self, collection: &str, view: Option<&str>, span: Span) -> Result<u64> {
        self.counts(collection, vec![(view, span)])?.pop().ok_or_else(|| unexpected("no count"))
    }

    /// Counts of one state, in their order.
    pub(super) fn counts(&self, collection: &str, of: Vec<(Option<&str>, Span)>) -> Result<Vec<u64>> {
        let read = |(view, span): (Option<&str>, Span)| v1::Read {
            kind: Some(v1::read::Kind::Count(v1::RangeOf {
                collection: collection.to_owned(),
                range: Some(key::of_span(span)),
                view: view.unwrap_or_default().to_owned(),
                ..v1::RangeOf::default()
            })),
        };
        let count = |answer| match answer {
            v1::read_result::Kind::Number(count) => Ok(count),
            _ => Err(unexpected("no count")),
        };
        self.reads(of.into_iter().map(read).collect())?.into_iter().map(count).collect()
    }

    pub(super) fn reduce(&self, collection: &str, span: Span) -> Result<Reduced> {
        let range = Some(key::of_span(span));
        let of = v1::RangeOf { collection: collection.to_owned(), range, ..v1::RangeOf::default() };
        let v1::read_result::Kind::Reduction(reduction) = self.one(v1::read::Kind::Reduce(of))? else {
            return Err(unexpected("no reduction"));
        };
        let sum = |sum: v1::FieldSum| {
            let digits = sum.sum.parse().map_err(|_| unexpected("a sum that is no number"))?;
            Ok((sum.field, FieldSum { sum: digits, nulls: sum.nulls }))
        };
        let sums = reduction.sums.into_iter().map(sum).collect::<Result<_>>()?;
        Ok(Reduced { count: reduction.count, sums })
    }

    pub(super) fn groups(
        &self,
        collection: &str,
        view: &str,
        span: Span,
        elements: Option<usize>,
    ) -> Result<Vec<Group>> {
        let of = v1::ReduceView {
            collection: collection.to_owned(),
            view: view.to_owned(),
            range: Some(key::of_span(span)),
            group_by: u32::try_from(elements.unwrap_or(0)).unwrap_or(u32::MAX),
            ..v1::ReduceView::default()
        };
        match self.one(v1::read::Kind::ReduceView(of))? {
            // Groups of no elements: one of all rows, if there are any.
            v1::read_result::Kind::ViewReductions(reductions)
                if elements == Some(0) && reductions.groups.iter().all(|group| group.count == 0) =>
            {
                Ok(Vec::new())
            }
            v1::read_result::Kind::ViewReductions(reductions) => {
                reductions.groups.into_iter().map(group).collect()
            }
            _ => Err(unexpected("no reductions")),
        }
    }

    /// How a query is run.
    pub(super) fn explain(&self, find: v1::Find) -> Result<v1::FindPlan> {
        match self.one(v1::read::Kind::Explain(find))? {
            v1::read_result::Kind::Plan(plan) => Ok(plan),
            _ => Err(unexpected("no plan")),
        }
    }

    /// What a query finds in the first documents that it reads.
    pub(super) fn sample(&self, find: v1::Find) -> Result<Sample> {
        let v1::read_result::Kind::Documents(found) = self.one(v1::read::Kind::Find(find))? else {
            return Err(unexpected("no documents"));
        };
        let v1::Documents { documents, read_count, is_complete } = found;
        let documents = documents.iter().map(|document| document::required(Some(document)));
        Ok(Sample { documents: documents.collect::<duramen::Result<_>>()?, read_count, is_complete })
    }

    /// What a query finds.
    pub(super) fn find(&self, find: v1::Find) -> Result<FoundRows> {
        let request = v1::ScanRequest { find: Some(find), ..v1::ScanRequest::default() };
        Ok(FoundRows { messages: self.client.scan(request)?, waiting: VecDeque::new(), read_count: 0 })
    }

    /// Stores a document.
    pub(super) fn put(&self, collection: &str, document: &Document, level: Durability) -> Result<Stored> {
        let put = v1::PutDocument {
            collection: collection.to_owned(),
            document: Some(document::of(document, v1::DocumentForm::Msgpack)?),
            want_before: true,
        };
        match self.write(v1::operation::Kind::Put(put), level)? {
            (v1::operation_result::Kind::Stored(v1::Stored { before }), seq) => {
                let before = before.as_ref().map(|before| document::required(Some(before))).transpose()?;
                Ok(Stored { before, seq })
            }
            _ => Err(unexpected("nothing stored")),
        }
    }

    /// Deletes the document under a key.
    pub(super) fn delete(&self, collection: &str, key: &[Element], level: Durability) -> Result<Removed> {
        let delete = v1::DocumentKey { collection: collection.to_owned(), key: Some(key::of(key)) };
        self.remove(v1::operation::Kind::Delete(delete), level)
    }

    /// Deletes the first documents of a range.
    pub(super) fn delete_first(
        &self,
        collection: &str,
        span: Span,
        rows_max: u64,
        level: Durability,
    ) -> Result<Removed> {
        let range = Some(key::of_span(span));
        let delete = v1::DeleteRange { collection: collection.to_owned(), range, limit: rows_max };
        self.remove(v1::operation::Kind::DeleteRange(delete), level)
    }

    fn remove(&self, operation: v1::operation::Kind, level: Durability) -> Result<Removed> {
        match self.write(operation, level)? {
            (v1::operation_result::Kind::Deleted(v1::Deleted { count, cascaded, cleared }), seq) => {
                Ok(Removed { rows: count, followed: Followed { cascaded, cleared }, seq })
            }
            _ => Err(unexpected("nothing deleted")),
        }
    }

    /// One operation as a transaction.
    fn write(
        &self,
        operation: v1::operation::Kind,
        level: Durability,
    ) -> Result<(v1::operation_result::Kind, u64)> {
        let level = level_of(level);
        let reply = asked(self.client.batch(v1::BatchRequest {
            write: Some(v1::Write { level: level.into(), ..v1::Write::default() }),
            operations: vec![v1::Operation { kind: Some(operation) }],
            ..v1::BatchRequest::default()
        }))?;
        let seq = seq_of(reply.receipt);
        let result = reply.results.into_iter().next().and_then(|result| result.kind);
        Ok((result.ok_or_else(|| unexpected("no result"))?, seq))
    }

    fn one(&self, kind: v1::read::Kind) -> Result<v1::read_result::Kind> {
        let answers = self.reads(vec![v1::Read { kind: Some(kind) }])?;
        answers.into_iter().next().ok_or_else(|| unexpected("no answer"))
    }

    fn reads(&self, reads: Vec<v1::Read>) -> Result<Vec<v1::read_result::Kind>> {
        let reply = asked(self.client.read(v1::ReadRequest { reads, ..v1::ReadRequest::default() }))?;
        let kind = |result: v1::ReadResult| result.kind.ok_or_else(|| unexpected("an answer of no kind"));
        reply.results.into_iter().map(kind).collect()
    }
}

impl Scanned {
    /// The next document as it is stored.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        while self.waiting.is_empty() {
            let Some(message) = self.messages.next()? else { return Ok(None) };
            self.waiting.extend(message.documents);
        }
        self.current = self.waiting.pop_front().unwrap_or_default();
        match self.latest() {
            [] => Err(unexpected("a document in another form")),
            stored => Ok(Some(stored)),
        }
    }

    /// The next document, and whether it has the fields of the one before, in their order.
    pub(super) fn next_document(&mut self) -> Result<Option<(&Document, bool)>> {
        let Some(stored) = self.next()? else { return Ok(None) };
        let document = Document::from_bytes(stored)?;
        let names = document.iter().map(|(name, _)| name);
        let has_same_fields = names.eq(self.document.iter().map(|(name, _)| name));
        self.document = document;
        Ok(Some((&self.document, has_same_fields)))
    }

    /// The latest document, as it is stored; empty before the first.
    pub(super) fn latest(&self) -> &[u8] {
        match &self.current.form {
            Some(v1::document::Form::Msgpack(stored)) => stored,
            _ => &[],
        }
    }
}

impl FoundRows {
    pub(super) fn read_count(&self) -> u64 {
        self.read_count
    }

    /// The next result, or that the server reads on.
    pub(super) fn next(&mut self) -> Result<Step> {
        if let Some(document) = self.waiting.pop_front() {
            return Ok(Step::Found(document::required(Some(&document))?));
        }
        let Some(message) = self.messages.next()? else { return Ok(Step::End) };
        self.read_count = message.read_count;
        self.waiting.extend(message.documents);
        Ok(Step::Unfinished)
    }
}

fn group(group: v1::ReductionGroup) -> Result<Group> {
    let part = |part: v1::ReducedPart| {
        Ok(GroupPart {
            reduce: part.reduce,
            value_index: part.value_index as usize,
            field: Some(part.field).filter(|field| !field.is_empty()),
            seen: part.seen,
            value: document::required_value(part.value.as_ref())?,
        })
    };
    Ok(Group {
        key: group.key.as_ref().map(key::elements).transpose()?.unwrap_or_default(),
        count: group.count,
        parts: group.parts.into_iter().map(part).collect::<Result<Vec<GroupPart>>>()?,
    })
}

pub(super) fn level_of(level: Durability) -> v1::Level {
    if level == Durability::Disk { v1::Level::Disk } else { v1::Level::Process }
}

/// The number of a commit.
pub(super) fn seq_of(receipt: Option<v1::Receipt>) -> u64 {
    receipt.and_then(|receipt| receipt.at).map_or(0, |at| at.seq)
}

/// A server acknowledges nothing that the end of its process undoes.
pub(super) fn check_level(level: Durability) -> Result<()> {
    match level {
        Durability::Disk | Durability::Process => Ok(()),
        Durability::Memory => Err(Failure::usage(
            "--durability memory is not for a database that another process serves",
            "use process or disk",
        )),
    }
}

/// The failure of a call. A server that cannot commit any more has an exit code of its own.
pub(super) fn asked<T>(done: duramen::Result<T>) -> Result<T> {
    done.map_err(|error| match error.kind() {
        ErrorKind::Poisoned => {
            let hint = "restart the server: opening the database finds what is durable";
            Failure::said(POISONED, error.code(), error.message(), hint)
        }
        _ => error.into(),
    })
}

pub(crate) fn unexpected(what: &str) -> Failure {
    Failure::said(
        FAILED,
        Code::WrongVersion,
        format!("the server's answer has {what}"),
        "use a server and a command line of the same release",
    )
}

#[cfg(test)]
mod tests {
    //! Scripts tell by the exit code what to do about a server.
    use super::*;

    #[test]
    fn a_server_that_cannot_commit_has_an_exit_code_of_its_own() {
        let exit = |code: Code| asked::<()>(Err(Error::new(code, "why"))).expect_err("failed").exit();
        assert_eq!(exit(Code::EnginePoisoned), 8);
        assert_eq!(exit(Code::Unreachable), 6);
        assert_eq!(exit(Code::Forbidden), 7);
        assert_eq!(exit(Code::NoSuchTree), 1);
    }
}
