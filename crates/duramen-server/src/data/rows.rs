//! Rows by their encoded keys, for clients that know the types of their documents.

use bytes::Bytes;
use duramen::error::{Code, Error, Result};
use duramen::wire::{self, EncodedRows};
use duramen::{Direction, LocalReads};
use duramen_proto::{key, v1};

use super::find;
use super::read::Room;

/// An answer, and a message of a scan, has about so many bytes, or so many rows. A scan by messages of 64 KiB
/// takes a quarter more time: threads wake each other for each.
const ROWS_BYTES: usize = 256 << 10;
const ROWS_MAX: usize = 4_096;

/// The most marks of a message.
const MARKS_MAX: usize = 64;

/// What a row takes beside its bytes.
const PER_ROW: usize = size_of::<v1::Row>();

/// Checks that collections have the definitions to which a client has fitted its types.
///
/// # Errors
/// `SchemaChanged` (E1112).
pub(super) fn check_marks<S: LocalReads>(state: &S, marks: &[v1::SchemaMark]) -> Result<()> {
    if marks.len() > MARKS_MAX {
        let what = format!("a message has {} marks of collections, and {MARKS_MAX} are taken", marks.len());
        return Err(Error::new(Code::TooLarge, what).with_hint("name each collection once"));
    }
    marks.iter().try_for_each(|of| wire::check_mark(state, &of.collection, &of.mark))
}

/// Rows, as many as fit a message of this many bytes.
pub(super) fn some<S: LocalReads>(
    state: &S,
    of: &v1::RowsOf,
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<()>,
) -> Result<v1::Rows> {
    let Some(rows) = encoded(state, of)? else { return Ok(v1::Rows { rows: Vec::new(), is_complete: true }) };
    let limit = if of.limit == 0 { u64::MAX } else { of.limit };
    let mut found = Found::default();
    let (mut bytes, mut is_complete) = (0, true);
    rows.for_each(state, of.with_documents, |key, document| {
        let length = key.len() + document.len() + PER_ROW;
        let is_full = bytes + length > bytes_max && !found.ends.is_empty();
        if found.ends.len() == ROWS_MAX || is_full {
            is_complete = false;
            return Ok(false);
        }
        find::check_length(length)?;
        hold(length)?;
        bytes += length;
        found.push(key, document);
        Ok((found.ends.len() as u64) < limit)
    })?;
    Ok(v1::Rows { rows: found.into_rows(), is_complete })
}

/// Keys and documents, one after the other in a buffer that the rows share: a scan would spend much of its
/// time on two allocations for each row.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    /// Where the key and the document of each row end.
    ends: Vec<[usize; 2]>,
}

impl Found {
    fn push(&mut self, key: &[u8], document: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(document);
        self.ends.push([key_end, self.bytes.len()]);
    }

    fn into_rows(self) -> Vec<v1::Row> {
        let (bytes, mut start) = (Bytes::from(self.bytes), 0);
        let row = |[key_end, end]: [usize; 2]| {
            let (key, document) = (bytes.slice(start..key_end), bytes.slice(key_end..end));
            start = end;
            v1::Row { key, document }
        };
        self.ends.into_iter().map(row).collect()
    }
}

/// The rows of a read.
pub(super) fn read<S: LocalReads>(state: &S, of: &v1::RowsOf, room: &mut Room<'_>) -> Result<v1::Rows> {
    some(state, of, ROWS_BYTES, |bytes| room.hold(bytes))
}

fn rows_of<'a>(
    collection: &'a str,
    view: &'a str,
    generation: Option<u64>,
    range: Option<&v1::Range>,
    reverse: bool,
) -> Result<EncodedRows<'a>> {
    let direction = if reverse { Direction::Reverse } else { Direction::Forward };
    Ok(EncodedRows { collection, view, generation, range: key::span(range)?.into_bytes(), direction })
}

/// The rows that are meant; `None` if fewer are there than are to be skipped.
fn encoded<'a, S: LocalReads>(state: &S, of: &'a v1::RowsOf) -> Result<Option<EncodedRows<'a>>> {
    let rows = rows_of(&of.collection, &of.view, of.generation, of.range.as_ref(), of.reverse)?;
    if of.skip == 0 { Ok(Some(rows)) } else { rows.skip(state, of.skip) }
}

/// How many rows a view has in a range.
pub(super) fn count<S: LocalReads>(state: &S, of: &v1::RangeOf) -> Result<u64> {
    rows_of(&of.collection, &of.view, of.generation, of.range.as_ref(), false)?.count(state)
}

/// The reductions of a view as the nodes of its tree keep them.
pub(super) fn reduce<S: LocalReads>(
    state: &S,
    of: &v1::ReduceView,
    room: &mut Room<'_>,
) -> Result<v1::ViewReductions> {
    let rows = rows_of(&of.collection, &of.view, of.generation, of.range.as_ref(), of.reverse)?;
    let mut groups = Vec::new();
    let mut add = |key: Vec<u8>, count: u64, reduction: Vec<u8>| {
        room.hold(key.len() + reduction.len() + size_of::<v1::ReductionGroup>())?;
        let key = Some(v1::Key { elements: Vec::new(), encoded: key.into() });
        groups.push(v1::ReductionGroup { key, count, parts: Vec::new(), encoded: reduction.into() });
        Ok(of.limit == 0 || (groups.len() as u64) < of.limit)
    };
    match usize::try_from(of.group_by).unwrap_or(usize::MAX) {
        0 => {
            let (count, reduction) = rows.reduce(state)?;
            add(Vec::new(), count, reduction)?;
        }
        elements => rows.for_each_group(state, elements, add)?,
    }
    Ok(v1::ViewReductions { groups })
}

/// A scan between two messages.
pub(super) struct Scan {
    state: duramen::Snapshot,
    /// The rest.
    of: v1::RowsOf,
    at: v1::Token,
    is_over: bool,
}

impl Scan {
    pub(super) fn new(state: &duramen::Snapshot, of: &v1::RowsOf, at: v1::Token) -> Result<Scan> {
        // An error of it is that of the call.
        encoded(state, of)?.map(|rows| rows.count(state)).transpose()?;
        Ok(Scan { state: state.clone(), of: of.clone(), at, is_over: false })
    }

    /// The next message, and the bytes of its rows; `None` after the last.
    pub(super) fn message(&mut self) -> Result<Option<(v1::ScanReply, usize)>> {
        if self.is_over {
            return Ok(None);
        }
        let mut bytes = 0;
        let found = some(&self.state, &self.of, ROWS_BYTES, |length| {
            bytes += length;
            Ok(())
        })?;
        self.is_over = found.is_complete;
        let Some(last) = found.rows.last() else { return Ok(None) };
        self.go_on_behind(&last.key.clone(), found.rows.len() as u64)?;
        let at = Some(self.at.clone());
        Ok(Some((v1::ScanReply { rows: found.rows, at, ..v1::ScanReply::default() }, bytes)))
    }

    fn go_on_behind(&mut self, key: &[u8], rows: u64) -> Result<()> {
        let mut range = key::span(self.of.range.as_ref())?.into_bytes();
        // The first key behind it is it with another byte, and no key is between them.
        match self.of.reverse {
            true => range.to = Some(key.to_vec()),
            false => range.from = [key, &[0]].concat(),
        }
        let encoded = v1::EncodedRange { from: range.from.into(), to: range.to.map(Into::into) };
        self.of.range = Some(v1::Range { encoded: Some(encoded), ..v1::Range::default() });
        self.of.skip = 0;
        if self.of.limit > 0 {
            self.of.limit = self.of.limit.saturating_sub(rows);
            self.is_over |= self.of.limit == 0;
        }
        Ok(())
    }
}
