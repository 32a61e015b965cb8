//! Scans: the documents of a range, or what a query finds, in messages of about 64 KiB; those of rows by
//! their encoded keys have 256 KiB.
//!
//! The page token behind the last document lets another scan continue.

use std::pin::Pin;
use std::sync::Arc;

use duramen::error::{Code, Error, Result};
use duramen::tuple::decode;
use duramen::{Db, Direction, LocalReads as _, Rows, Snapshot, Span};
use duramen_proto::{document, key, v1};
use prost::Message as _;
use tokio_stream::Stream;
use tonic::Status;

use super::find::{self, MESSAGE_BYTES, Query};
use super::{DataService, rows};
use crate::auth::{Caller, needs};
use crate::call::Call;
use crate::on_demand::{OnDemand, Source};
use crate::page::Pages;

type Documents = Pin<Box<dyn Stream<Item = Result<v1::ScanReply, Status>> + Send>>;

/// Begins a scan.
pub(super) async fn run(service: &DataService, request: v1::ScanRequest, call: Call) -> Result<Documents> {
    needs::scan(&call.caller, &request)?;
    if request.find.is_some() || request.rows.is_some() {
        check_only(&request)?;
    }
    service.identity.wait_for(request.at_least.as_ref(), &call).await?;
    if let Some(query) = &request.find {
        call.charge(find::cost(query)?).await?;
        call.charges.add(call.charge_work(find::working_bytes(query))?);
    }
    call.take_place().await?;
    let identity = Arc::clone(&service.identity);
    let begun = call.clone();
    let begin = move |db: &Db| {
        begun.check_deadline()?;
        let snapshot = db.snapshot()?;
        identity.check(request.at_least.as_ref(), &snapshot)?;
        rows::check_marks(&snapshot, &request.marks)?;
        let at = identity.at(&snapshot, db);
        let found = match (&request.find, &request.rows) {
            (Some(query), _) => Found::Query(Box::new(Query::new(&snapshot, query, request.form(), at)?)),
            (None, Some(of)) => Found::Rows(Box::new(rows::Scan::new(&snapshot, of, at)?)),
            (None, None) => Found::Range(Box::new(Range::new(&snapshot, &request, at)?)),
        };
        Ok(Scan { request, found })
    };
    let scan = service.scans.run(begin).await?;
    Ok(Box::pin(OnDemand::new(service.scans.clone(), scan, service.unread, call)))
}

/// A query has no range beside it, nor have rows by their keys.
fn check_only(request: &v1::ScanRequest) -> Result<()> {
    let query_only = v1::ScanRequest {
        at_least: request.at_least.clone(),
        find: request.find.clone(),
        rows: request.rows.clone().filter(|_| request.find.is_none()),
        marks: request.marks.clone(),
        form: request.form,
        ..v1::ScanRequest::default()
    };
    if *request == query_only {
        return Ok(());
    }
    Err(Error::invalid(
        "a scan of a query or of rows has no collection, range, direction, limit and page token beside it",
    )
    .with_hint("set them in the query or the rows; without page tokens, begin the scan again"))
}

/// A scan between two messages.
struct Scan {
    request: v1::ScanRequest,
    found: Found,
}

/// Where its messages come from.
enum Found {
    Range(Box<Range>),
    Query(Box<Query>),
    Rows(Box<rows::Scan>),
}

impl Source for Scan {
    type Message = v1::ScanReply;

    fn message(&mut self, _db: &Db, call: &Call) -> Result<Option<v1::ScanReply>> {
        let made = match &mut self.found {
            Found::Range(range) => range.message()?,
            Found::Query(query) => query.message()?,
            Found::Rows(rows) => rows.message()?,
        };
        let Some((message, bytes)) = made else { return Ok(None) };
        call.charge_run(bytes)?;
        Ok(Some(message))
    }

    fn check(&self, caller: &Caller) -> Result<()> {
        needs::scan(caller, &self.request)
    }

    fn ended() -> Error {
        Error::new(
            Code::SnapshotExpired,
            "the scan took longer than its deadline, or no message of it was taken for too long",
        )
        .with_hint(
            "continue it in a new scan, behind the last page token; a query has none: ask for less at once",
        )
    }
}

/// The documents of a range.
struct Range {
    rows: Rows,
    left: u64,
    form: v1::DocumentForm,
    at: v1::Token,
    pages: Pages,
    /// The position to continue behind, until its document has been passed.
    behind: Option<Vec<u8>>,
}

impl Range {
    fn new(snapshot: &Snapshot, request: &v1::ScanRequest, at: v1::Token) -> Result<Range> {
        let documents = snapshot.documents(&request.collection);
        let query = v1::ScanRequest {
            collection: request.collection.clone(),
            range: request.range.clone(),
            reverse: request.reverse,
            ..v1::ScanRequest::default()
        };
        let pages = Pages::of(documents.tree_number()?, &query);
        let mut span = key::span(request.range.as_ref())?;
        let behind = pages.position(&request.page_token)?;
        if let Some(behind) = &behind {
            let behind = decode(behind)?;
            let rest = if request.reverse { Span::to(behind)? } else { Span::from(behind)? };
            span = span.and(rest);
        }
        let direction = if request.reverse { Direction::Reverse } else { Direction::Forward };
        Ok(Range {
            rows: documents.rows(span, direction)?,
            left: if request.limit == 0 { u64::MAX } else { request.limit },
            form: request.form(),
            at,
            pages,
            behind,
        })
    }

    /// The next message, and the bytes of its documents; `None` after the last.
    fn message(&mut self) -> Result<Option<(v1::ScanReply, usize)>> {
        let (mut documents, mut bytes, mut last) = (Vec::new(), 0, None);
        while self.left > 0 && bytes < MESSAGE_BYTES {
            let Some((key, stored)) = self.rows.next()? else {
                self.left = 0;
                break;
            };
            if self.behind.take().is_some_and(|behind| behind == key) {
                continue;
            }
            let document = document::of_stored(stored, self.form)?;
            let length = document.encoded_len();
            find::check_length(length)?;
            bytes += length;
            documents.push(document);
            last = Some(key.to_vec());
            self.left -= 1;
        }
        let Some(last) = last else { return Ok(None) };
        let page_token = self.pages.token(&last).into();
        let at = Some(self.at.clone());
        Ok(Some((v1::ScanReply { documents, page_token, at, ..v1::ScanReply::default() }, bytes)))
    }
}
