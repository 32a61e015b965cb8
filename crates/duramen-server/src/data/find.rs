//! Queries: what they may cost, and their answers.
//!
//! A query reads for as long as its deadline allows, in steps, and sorts in a fixed amount of memory, which
//! is charged. Beyond it the library uses a temporary file.

use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen::find::{Find, FindCursor, FindIter, GroupIter, Grouped, Step};
use duramen::{Document, LocalReads, Snapshot};
use duramen_proto::{MESSAGE_BYTES_MAX, document, query, v1};
use prost::Message as _;

use super::read::Room;

/// The memory of a sort, or of groups.
const MEMORY_BYTES: usize = 8 << 20;

/// A query may take this many bytes.
const QUERY_BYTES_MAX: usize = 64 << 10;

/// What a byte of a query takes in memory at most: `,` and a digit of a list become a value, which is copied
/// with the query.
const PER_BYTE: usize = 320;

/// Each is work for every document, and what is joined is held beside it.
const CONDITIONS_MAX: usize = 512;
const JOINS_MAX: usize = 8;

/// Each is a value that is held for every document or group.
const ORDERS_MAX: usize = 8;
const FIELDS_MAX: usize = 256;
const GROUP_FIELDS_MAX: usize = 16;
const AGGREGATES_MAX: usize = 64;

/// Queries that read no more are short: they may run where reads do that end soon, and in a batch.
const SHORT_ROWS: u64 = 1_000;

/// Documents that are read between two looks at the deadline: by one thread, by each of several. With fewer
/// these would not start.
const LOOK_ROWS: u64 = 64;
const THREAD_LOOK_ROWS: u64 = 4 * 1_024;

/// A message ends once it has this many bytes of documents.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// Of a message, for the length of a document.
const PER_DOCUMENT: usize = 8;

/// A query that finds nothing for this long says how far it is.
const PROGRESS: Duration = Duration::from_millis(100);

/// What a query holds in memory before it reads.
///
/// # Errors
/// `TooLarge` (E0203) for a query of too many parts or bytes.
pub(super) fn cost(find: &v1::Find) -> Result<usize> {
    let bytes = find.encoded_len();
    let grouping = find.grouping.as_ref();
    for (what, count, max) in [
        ("bytes", bytes, QUERY_BYTES_MAX),
        ("conditions", find.conditions.len(), CONDITIONS_MAX),
        ("joins", find.joins.len(), JOINS_MAX),
        ("fields of its order", find.order_by.len(), ORDERS_MAX),
        ("fields", find.fields.len(), FIELDS_MAX),
        ("fields of its groups", grouping.map_or(0, |of| of.fields.len()), GROUP_FIELDS_MAX),
        ("aggregates", grouping.map_or(0, |of| of.aggregates.len()), AGGREGATES_MAX),
    ] {
        if count > max {
            let what = format!("the query has {count} {what}, at most {max} are taken");
            return Err(
                Error::new(Code::TooLarge, what).with_hint("ask in several queries, or join with the values")
            );
        }
    }
    Ok(bytes * PER_BYTE)
}

/// What a query holds in memory while it reads, beside [`cost`].
pub(super) fn working_bytes(find: &v1::Find) -> usize {
    let is_plain = find.order_by.is_empty() && find.grouping.is_none();
    if is_plain { MESSAGE_BYTES } else { MEMORY_BYTES }
}

/// Whether the queries of a call read few documents together, whatever there are.
pub(super) fn are_short(reads: &[v1::Read]) -> bool {
    let read_max = |read: &v1::Read| match &read.kind {
        // The groups of a view are made of no documents, and may be many.
        Some(v1::read::Kind::Find(find)) if find.read_max == 0 || find.grouping.is_some() => u64::MAX,
        Some(v1::read::Kind::Find(find)) => find.read_max,
        _ => 0,
    };
    reads.iter().map(read_max).fold(0, u64::saturating_add) <= SHORT_ROWS
}

/// Refuses queries in a batch that read many documents: the batch would keep a thread of writers, and all
/// that it has read may conflict.
///
/// # Errors
/// `InvalidArgument` (E0201).
pub(super) fn check_in_batch(reads: &[v1::Read]) -> Result<()> {
    if reads.iter().any(|read| matches!(read.kind, Some(v1::read::Kind::Explain(_)))) {
        return Err(Error::invalid("a batch explains no query").with_hint("ask in a read"));
    }
    if are_short(reads) {
        return Ok(());
    }
    let what =
        format!("the queries of a batch read at most {SHORT_ROWS} documents together, and make no groups");
    Err(Error::invalid(what).with_hint("set their `read_max`, or ask in a read"))
}

/// A query, bounded.
enum Bounded<'a> {
    Documents(Find<'a>),
    Groups(Grouped<'a>),
}

impl<'a> Bounded<'a> {
    fn of<S: LocalReads>(state: &'a S, find: &'a v1::Find) -> Result<Bounded<'a>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = usize::try_from(find.threads).unwrap_or(usize::MAX);
        let found = query::find(state, find)?.memory_bytes(MEMORY_BYTES).threads(wanted.min(threads));
        Ok(match query::grouped(&found, find)? {
            Some(grouped) => Bounded::Groups(grouped),
            None => Bounded::Documents(found),
        })
    }
}

/// How a query would be run.
pub(super) fn explain<S: LocalReads>(
    state: &S,
    find: &v1::Find,
    room: &mut Room<'_>,
) -> Result<v1::FindPlan> {
    let _working = room.working(cost(find)?)?;
    let schema = query::joined(state, find)?.schema()?;
    let plan = match Bounded::of(state, find)? {
        Bounded::Documents(find) => find.plan()?,
        Bounded::Groups(grouped) => grouped.plan()?,
    };
    query::of_plan(&plan, &schema, MEMORY_BYTES)
}

/// All that a query finds.
pub(super) fn all<S: LocalReads>(
    state: &S,
    find: &v1::Find,
    form: v1::DocumentForm,
    room: &mut Room<'_>,
) -> Result<v1::Documents> {
    let _working = room.working(cost(find)? + working_bytes(find))?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    let mut add = |found: Document, room: &mut Room<'_>| {
        let found = document::of(&found, form)?;
        bytes += found.encoded_len() + PER_DOCUMENT;
        room.check(bytes)?;
        room.hold(found.encoded_len() + size_of::<v1::Document>())?;
        documents.push(found);
        Ok(())
    };
    let read_max = if find.read_max == 0 { u64::MAX } else { find.read_max };
    let (read_count, is_complete) = match Bounded::of(state, find)? {
        Bounded::Documents(find) => {
            let mut found = find.iter()?;
            read(&mut found, read_max, room, &mut add)?
        }
        Bounded::Groups(grouped) => {
            let mut found = grouped.iter()?;
            read(&mut found, read_max, room, &mut add)?
        }
    };
    Ok(v1::Documents { documents, read_count, is_complete })
}

/// Results that come in steps.
trait Steps {
    fn next_within(&mut self, read_max: u64) -> Result<Step>;
    fn read_count(&self) -> u64;
    fn threads(&self) -> usize;
}

impl Steps for FindIter<'_> {
    fn next_within(&mut self, read_max: u64) -> Result<Step> {
        FindIter::next_within(self, read_max)
    }

    fn read_count(&self) -> u64 {
        FindIter::read_count(self)
    }

    fn threads(&self) -> usize {
        1
    }
}

impl Steps for GroupIter<'_> {
    fn next_within(&mut self, read_max: u64) -> Result<Step> {
        GroupIter::next_within(self, read_max)
    }

    fn read_count(&self) -> u64 {
        GroupIter::read_count(self)
    }

    fn threads(&self) -> usize {
        GroupIter::threads(self)
    }
}

/// Adds what is found in so many documents. Returns how many were read, and whether these are all.
fn read(
    found: &mut impl Steps,
    read_max: u64,
    room: &mut Room<'_>,
    add: &mut impl FnMut(Document, &mut Room<'_>) -> Result<()>,
) -> Result<(u64, bool)> {
    while found.read_count() < read_max {
        let left = read_max - found.read_count();
        match found.next_within(look_rows(found.threads()).min(left))? {
            Step::Found(document) => add(document, room)?,
            Step::Unfinished => room.look()?,
            Step::End => return Ok((found.read_count(), true)),
        }
    }
    Ok((found.read_count(), false))
}

fn look_rows(threads: usize) -> u64 {
    match threads {
        0 | 1 => LOOK_ROWS,
        threads => threads as u64 * THREAD_LOOK_ROWS,
    }
}

/// A query between two messages.
pub(super) struct Query {
    cursor: FindCursor,
    form: v1::DocumentForm,
    at: v1::Token,
    is_over: bool,
    /// The documents that had been read at the last message; `None` before the first.
    told: Option<u64>,
}

impl Query {
    pub(super) fn new(
        snapshot: &Snapshot,
        find: &v1::Find,
        form: v1::DocumentForm,
        at: v1::Token,
    ) -> Result<Query> {
        if find.read_max > 0 {
            return Err(
                Error::invalid("a scan reads to its end").with_hint("leave `read_max` out, or read instead")
            );
        }
        let cursor = match Bounded::of(snapshot, find)? {
            Bounded::Documents(find) => find.cursor()?,
            Bounded::Groups(grouped) => grouped.cursor()?,
        };
        Ok(Query { cursor, form, at, is_over: false, told: None })
    }

    /// The next message, and the bytes of its documents; `None` after the last.
    pub(super) fn message(&mut self) -> Result<Option<(v1::ScanReply, usize)>> {
        let (mut documents, mut bytes, begun) = (Vec::new(), 0, Instant::now());
        while !self.is_over && bytes < MESSAGE_BYTES && begun.elapsed() < PROGRESS {
            match self.cursor.next_within(look_rows(self.cursor.threads()))? {
                Step::Found(found) => {
                    let found = document::of(&found, self.form)?;
                    let length = found.encoded_len();
                    check_length(length)?;
                    bytes += length;
                    documents.push(found);
                }
                Step::Unfinished => {}
                Step::End => self.is_over = true,
            }
        }
        let read_count = self.cursor.read_count();
        if self.is_over && documents.is_empty() && self.told == Some(read_count) {
            return Ok(None);
        }
        self.told = Some(read_count);
        let at = Some(self.at.clone());
        Ok(Some((v1::ScanReply { documents, at, read_count, ..v1::ScanReply::default() }, bytes)))
    }
}

/// Refuses a document that fits no message.
///
/// # Errors
/// `TooLarge` (E0203).
pub(crate) fn check_length(length: usize) -> Result<()> {
    if length <= MESSAGE_BYTES_MAX - MESSAGE_BYTES {
        return Ok(());
    }
    let what = format!("a document of {length} bytes fits no message");
    Err(Error::new(Code::TooLarge, what).with_hint("read it in the process that has the database open"))
}
