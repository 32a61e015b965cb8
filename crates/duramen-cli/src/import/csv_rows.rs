//! Rows of CSV: read for the types of their columns, then encoded.
//!
//! A regular file is read twice: first for the types, and for rows of the wrong width, before anything is
//! stored. A stream is inferred from its first 10,000 rows.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use csv::ByteRecord;
use duramen::cell::{self, BadCell, Misfit, RowEncoder};
use duramen::schema::ColumnType;
use duramen::{RowBatch, Schema};

use super::assigned_ids::AssignedIds;
use super::description::RowDescription;
use super::findings::{Findings, type_flag};
use super::inference::{Inference, is_null_word, null_flag};
use super::pipeline::RowSource;
use super::records::{Records, line_of};
use super::shapes::{Shape, is_number_to_a_person};
use super::source::Input;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::signals::Signals;

/// Rows of a stream that are inspected before the first is stored.
const SAMPLE_ROWS: usize = 10_000;

/// Rows that one thread reads and passes to another at once; fewer if they have more bytes than this.
const CHUNK_ROWS: usize = 256;
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that are read before the one that is inspected is done.
const CHUNKS_AHEAD: usize = 2;

/// Rows of a CSV input, ready to be encoded.
pub(super) struct CsvRows {
    records: Records,
    sample: VecDeque<ByteRecord>,
    encoder: RowEncoder,
    ids: Option<AssignedIds>,
    collection_existed: bool,
}

/// Reads the header and infers the types. The rows then begin at the first.
pub(super) fn prepare(
    mut input: Input,
    description: &RowDescription,
    progress: &Progress,
    signals: &Signals,
) -> Result<(Schema, CsvRows, Findings)> {
    let null_markers = null_markers(description);
    let (mut records, renamed) = open(&mut input, description)?;
    if !renamed.is_empty() {
        progress.note(&format!(
            "without the blanks around them, the names of columns are {}",
            renamed.join(", ")
        ));
    }
    if let Some(number) = records.header.first().filter(|name| is_number_to_a_person(name)) {
        progress.warning(
            &format!("the first line holds the names of the columns, and the first of them is {number}"),
            "if it is a row, put a line with names before it, and import again",
        );
    }
    let mut inference = Inference::new(description, &records.header, &null_markers);
    if let Some(ids) = description.ids.as_ref().filter(|ids| records.header.contains(&ids.column)) {
        return Err(ids.taken("the input"));
    }
    description.settle(&description.with_ids(inference.columns(description, false)))?;
    description.check_delimiter(&records.header)?;
    let mut sample = VecDeque::new();
    if input.is_regular() {
        if !inference.is_settled() {
            read_rows(&mut records, &mut inference, u64::MAX, progress, signals)?;
        } else if inference.checks_settled() {
            read_rows(&mut records, &mut inference, SAMPLE_ROWS as u64, progress, signals)?;
        }
        (records, _) = open(&mut input, description)?;
    } else {
        while sample.len() < SAMPLE_ROWS && records.advance()? {
            inference.look(&records.record, records.line());
            sample.push_back(records.record.clone());
        }
    }
    let may_go_on = sample.len() == SAMPLE_ROWS;
    inference.check_finite(description)?;
    let findings = inference.findings(description, may_go_on);
    findings.say(progress, description);
    let schema = description
        .settle(&description.with_ids(inference.columns(description, may_go_on)))
        .map_err(|failure| findings.explain(failure, description))?;
    let header: Vec<String> =
        description.ids.iter().map(|ids| &ids.column).chain(&records.header).cloned().collect();
    let encoder = RowEncoder::new(&schema, &header, &null_markers)?;
    let rows = CsvRows {
        records,
        sample,
        encoder,
        ids: description.ids.clone(),
        collection_existed: description.stored.is_some(),
    };
    Ok((schema, rows, findings))
}

/// Reads the header. Blanks around a name are no part of it, unless the collection has it with them.
/// Returns the names that this changed.
fn open(input: &mut Input, description: &RowDescription) -> Result<(Records, Vec<String>)> {
    let mut records = Records::open(input, description.delimiter)?;
    let is_stored =
        |name: &str| description.stored.as_ref().is_some_and(|stored| stored.kind(name).is_some());
    let mut renamed = Vec::new();
    for index in 0..records.header.len() {
        let name = records.header[index].trim().to_owned();
        let is_taken = name.is_empty() || records.header.contains(&name);
        if !is_taken && !is_stored(&records.header[index]) {
            renamed.push(name.clone());
            records.header[index] = name;
        }
    }
    Ok((records, renamed))
}

/// Looks at the rows of a file, which another thread reads a few chunks ahead.
fn read_rows(
    records: &mut Records,
    inference: &mut Inference,
    rows_max: u64,
    progress: &Progress,
    signals: &Signals,
) -> Result<()> {
    let (filled, chunks) = mpsc::sync_channel(CHUNKS_AHEAD);
    let (seen, spare) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || read_chunks(records, rows_max, &filled, &spare));
        // The thread of `read_chunks` ends when this loop drops the receiver, after an error or a signal too.
        for chunk in chunks {
            let chunk: Vec<ByteRecord> = chunk?;
            for record in &chunk {
                inference.look(record, line_of(record));
            }
            let _ = seen.send(chunk);
            progress.reading();
            if let Some(number) = signals.received() {
                return Err(Failure::signal(number));
            }
        }
        Ok(())
    })
}

/// Reads records in chunks, into the memory of chunks that were seen.
fn read_chunks(
    records: &mut Records,
    mut rows_left: u64,
    filled: &SyncSender<Result<Vec<ByteRecord>>>,
    spare: &Receiver<Vec<ByteRecord>>,
) {
    while rows_left > 0 {
        let mut chunk = spare.try_recv().unwrap_or_default();
        let read = read_chunk(records, &mut rows_left, &mut chunk).map(|()| chunk);
        let is_failure = read.is_err();
        if filled.send(read).is_err() || is_failure {
            return;
        }
    }
}

/// Replaces a chunk by the next records. None are left after the last.
fn read_chunk(records: &mut Records, rows_left: &mut u64, chunk: &mut Vec<ByteRecord>) -> Result<()> {
    let (mut count, mut bytes) = (0, 0);
    while *rows_left > 0 && count < CHUNK_ROWS && bytes < CHUNK_BYTES {
        if !records.advance()? {
            *rows_left = 0;
            break;
        }
        *rows_left -= 1;
        bytes += records.record.as_slice().len();
        if count == chunk.len() {
            chunk.push(ByteRecord::new());
        }
        std::mem::swap(&mut chunk[count], &mut records.record);
        count += 1;
    }
    chunk.truncate(count);
    Ok(())
}

/// The null markers: those of the user, else those of the collection, else the empty cell.
fn null_markers(description: &RowDescription) -> Vec<String> {
    if !description.null.is_empty() {
        return description.null.clone();
    }
    let stored = description.stored.as_ref().and_then(Schema::null);
    vec![stored.unwrap_or_default().to_owned()]
}

impl RowSource for CsvRows {
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>> {
        match self.sample.pop_front() {
            Some(record) => self.records.record = record,
            None if self.records.advance()? => {}
            None => return Ok(None),
        }
        let line = self.records.line();
        let record = &self.records.record;
        let id = match &mut self.ids {
            Some(ids) => ids.take()?.to_string(),
            None => return push(batch, &self.encoder, line, self.collection_existed, |index| &record[index]),
        };
        push(batch, &self.encoder, line, self.collection_existed, |index| match index.checked_sub(1) {
            Some(index) => &record[index],
            None => id.as_bytes(),
        })
    }

    fn grown(&mut self) -> Option<Schema> {
        None
    }
}

/// Adds a row of cells to the batch. Returns its line.
fn push<'a>(
    batch: &mut RowBatch,
    encoder: &RowEncoder,
    line: u64,
    collection_existed: bool,
    cell: impl Fn(usize) -> &'a [u8],
) -> Result<Option<u64>> {
    match batch.push_cells(encoder, &cell) {
        Ok(()) => Ok(Some(line)),
        Err(bad) => Err(bad_cell(line, &bad, cell(bad.index), collection_existed)),
    }
}

fn bad_cell(line: u64, bad: &BadCell, cell: &[u8], collection_existed: bool) -> Failure {
    let hint = match bad.why {
        Misfit::NotUtf8 => "fix the line, or convert the input to UTF-8".to_owned(),
        Misfit::NullInKey => "fix the line, or choose another key".to_owned(),
        Misfit::KeyTooLong => "fix the line, or choose shorter columns as the key".to_owned(),
        Misfit::TooLarge => "leave that cell out".to_owned(),
        Misfit::OtherType if bad.wanted == ColumnType::Unknown => {
            let column = &bad.column;
            format!("the input has changed while it was read: import it again, or use --type {column}=TYPE")
        }
        Misfit::OtherType => other_type(bad, &String::from_utf8_lossy(cell), collection_existed),
    };
    Failure::data(format!("line {line}, column {}: {}", bad.column, bad.problem), hint)
}

/// What to do about a cell that is not of the type of its column.
fn other_type(bad: &BadCell, cell: &str, collection_existed: bool) -> String {
    let (column, wanted) = (&bad.column, bad.wanted);
    let is_of_numbers = matches!(wanted, ColumnType::Int | ColumnType::Float);
    let is_integer =
        !cell.is_empty() && cell.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    let place = if collection_existed { "import into a new collection with" } else { "import with" };
    let text = format!("{place} {}", type_flag(column, ColumnType::Text));
    if wanted == ColumnType::Int && cell::infer(cell.as_bytes()) == ColumnType::Float {
        return format!("to store such numbers, {place} {}", type_flag(column, ColumnType::Float));
    }
    if let Some(shape) = Shape::of(cell.as_bytes()).filter(|_| is_of_numbers) {
        return format!("{}; to keep the column text, {text}", shape.remedy());
    }
    if wanted == ColumnType::Float && is_integer && !cell.trim_start_matches('-').starts_with('0') {
        return format!(
            "no float is exactly this integer: {cell}.0 is read as the nearest one; to keep all digits, {text}"
        );
    }
    if is_of_numbers && is_number_to_a_person(cell) {
        return format!(
            "write it in its plain form, such as 5, -0.5 or 1e9; to keep the column text, {text}"
        );
    }
    if is_null_word(cell) || !cell.bytes().any(|byte| byte.is_ascii_digit()) {
        return format!("if it stands for null, use {}; if the column is text, {text}", null_flag(cell));
    }
    format!("fix the line; if the column is text, {text}")
}
