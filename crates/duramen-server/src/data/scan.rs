//! Scans: the documents of a range, or what a query finds, in messages of about 64 KiB.
//!
//! A thread makes one message when the stream asks for it, so a client that reads slowly holds one message
//! and the snapshot, no thread. The page token behind the last document lets another scan continue.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use duramen::error::{Code, Error, Result};
use duramen::tuple::{decode, encode};
use duramen::{AsyncDb, Db, Direction, LocalReads as _, Rows, Snapshot, Span};
use duramen_proto::{document, key, status, v1};
use prost::Message as _;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tokio_stream::Stream;
use tonic::Status;
use xxhash_rust::xxh3::xxh3_64;

use super::find::{self, MESSAGE_BYTES, Query};
use super::{DataService, rows};
use crate::call::Call;

type Documents = Pin<Box<dyn Stream<Item = Result<v1::ScanReply, Status>> + Send>>;

/// The next message, on its way.
type Making = Pin<Box<dyn Future<Output = Result<Option<v1::ScanReply>>> + Send>>;

/// Begins a scan.
pub(super) async fn run(service: &DataService, request: v1::ScanRequest, call: Call) -> Result<Documents> {
    if request.find.is_some() || request.rows.is_some() {
        check_only(&request)?;
    }
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
        Ok(match (&request.find, &request.rows) {
            (Some(query), _) => Scan::Query(Box::new(Query::new(&snapshot, query, request.form(), at)?)),
            (None, Some(of)) => Scan::Rows(Box::new(rows::Scan::new(&snapshot, of, at)?)),
            (None, None) => Scan::Range(Box::new(Range::new(&snapshot, &request, at)?)),
        })
    };
    let scan = service.scans.run(begin).await?;
    Ok(Box::pin(Scanning::new(service.scans.clone(), scan, call)))
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
enum Scan {
    Range(Box<Range>),
    Query(Box<Query>),
    Rows(Box<rows::Scan>),
}

impl Scan {
    /// The next message; `None` after the last. It is charged until the next one is made.
    fn message(&mut self, call: &Call) -> Result<Option<v1::ScanReply>> {
        call.charges.end_run();
        let made = match self {
            Scan::Range(range) => range.message()?,
            Scan::Query(query) => query.message()?,
            Scan::Rows(rows) => rows.message()?,
        };
        let Some((message, bytes)) = made else { return Ok(None) };
        call.charge_run(bytes)?;
        Ok(Some(message))
    }
}

/// The documents of a range.
struct Range {
    rows: Rows,
    left: u64,
    form: v1::DocumentForm,
    at: v1::Token,
    place: Place,
    /// The position to continue behind, until its document has been passed.
    behind: Option<Vec<u8>>,
}

impl Range {
    fn new(snapshot: &Snapshot, request: &v1::ScanRequest, at: v1::Token) -> Result<Range> {
        let documents = snapshot.documents(&request.collection);
        let place = Place::new(documents.tree_number()?, request);
        let mut span = key::span(request.range.as_ref())?;
        let behind = place.position(&request.page_token)?;
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
            place,
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
        let page_token = self.place.token(&last).into();
        let at = Some(self.at.clone());
        Ok(Some((v1::ScanReply { documents, page_token, at, ..v1::ScanReply::default() }, bytes)))
    }
}

/// What a page token is of: a tree, a range, a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    tree: u64,
    query: u64,
}

impl Place {
    fn new(tree: u64, request: &v1::ScanRequest) -> Place {
        let query = v1::ScanRequest {
            collection: request.collection.clone(),
            range: request.range.clone(),
            reverse: request.reverse,
            ..v1::ScanRequest::default()
        };
        Place { tree, query: xxh3_64(&query.encode_to_vec()) }
    }

    fn token(&self, key: &[u8]) -> Vec<u8> {
        [&self.tree.to_be_bytes(), &self.query.to_be_bytes(), key].concat()
    }

    /// The key in a token; `None` for an empty one.
    fn position(&self, token: &[u8]) -> Result<Option<Vec<u8>>> {
        let wrong = |why: &str| {
            Err(Error::invalid(format!("the page token cannot be used: {why}"))
                .with_hint("begin the scan again"))
        };
        if token.is_empty() {
            return Ok(None);
        }
        let Some((head, key)) = token.split_first_chunk::<16>() else { return wrong("it is too short") };
        if *head != self.token(&[])[..] {
            return wrong("it is of another collection, range or direction");
        }
        match decode(key).and_then(|elements| encode(&elements)) {
            Ok(encoded) if encoded == key && !key.is_empty() => Ok(Some(encoded)),
            _ => wrong("its position is no key"),
        }
    }
}

/// The stream of a scan: a thread works only for the message that is asked for.
struct Scanning {
    db: AsyncDb,
    call: Call,
    /// Taken by the thread that makes a message, and by the deadline.
    scan: Arc<Mutex<Option<Scan>>>,
    making: Option<Making>,
    is_over: bool,
    /// Ends the scan at its deadline, also if no more messages are asked for: it holds a snapshot.
    deadline: JoinHandle<()>,
}

impl Scanning {
    fn new(db: AsyncDb, scan: Scan, call: Call) -> Scanning {
        let scan = Arc::new(Mutex::new(Some(scan)));
        let (held, ending) = (Arc::clone(&scan), call.clone());
        let deadline = tokio::spawn(async move {
            sleep_until(ending.deadline).await;
            drop(take(&held));
            ending.give_place_back();
        });
        Scanning { db, call, scan, making: None, is_over: false, deadline }
    }

    fn make(&self) -> Making {
        let (db, held, call) = (self.db.clone(), Arc::clone(&self.scan), self.call.clone());
        Box::pin(async move {
            db.run(move |_| {
                let Some(mut scan) = take(&held).filter(|_| call.check_deadline().is_ok()) else {
                    return Err(ended());
                };
                let message = scan.message(&call)?;
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                // Else the deadline has come and found nothing to drop.
                if call.check_deadline().is_ok() {
                    *held = Some(scan);
                }
                Ok(message)
            })
            .await
        })
    }
}

fn take(scan: &Mutex<Option<Scan>>) -> Option<Scan> {
    scan.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn ended() -> Error {
    Error::new(Code::SnapshotExpired, "the scan took longer than its deadline").with_hint(
        "continue it in a new scan, behind the last page token; a query has none: ask for less at once",
    )
}

impl Stream for Scanning {
    type Item = Result<v1::ScanReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.making.is_none() {
            self.making = Some(self.make());
        }
        let making = self.making.as_mut().expect("a message is being made");
        let made = ready!(making.as_mut().poll(cx));
        self.making = None;
        self.is_over = !matches!(made, Ok(Some(_)));
        Poll::Ready(made.map_err(|error| status::of(&error)).transpose())
    }
}

impl Drop for Scanning {
    fn drop(&mut self) {
        self.deadline.abort();
    }
}
