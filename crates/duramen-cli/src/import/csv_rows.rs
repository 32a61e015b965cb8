//! Rows of CSV: their columns' types inferred, their cells encoded.
//!
//! A regular file is read twice: first for the types, and for rows of the wrong width, before anything is
//! stored. A stream is inferred from its first 10,000 rows.

use std::collections::VecDeque;

use csv::ByteRecord;
use duramen::cell::{self, BadCell, Misfit, RowEncoder};
use duramen::schema::ColumnType;
use duramen::{RowBatch, Schema};

use super::RowDescription;
use super::pipeline::RowSource;
use super::progress::Progress;
use super::records::Records;
use super::source::Input;
use crate::failure::{Failure, Result};
use crate::numbers::grouped;
use crate::signals::Signals;

/// Rows of a stream that are inspected before the first is stored.
const SAMPLE_ROWS: usize = 10_000;

/// Rows between two checks of the clock and of signals.
const LOOK_ROWS: u64 = 8192;

/// Rows of a CSV input, ready to be encoded.
pub(super) struct CsvRows {
    records: Records,
    sample: VecDeque<ByteRecord>,
    encoder: RowEncoder,
    collection_existed: bool,
}

/// Reads the header and infers the types. The rows then begin at the first.
pub(super) fn prepare(
    mut input: Input,
    description: &RowDescription,
    progress: &Progress,
    signals: &Signals,
) -> Result<(Schema, CsvRows)> {
    let null_markers = null_markers(description);
    let mut records = Records::open(&mut input)?;
    let mut inference = Inference::new(description, &records.header, &null_markers)?;
    let mut sample = VecDeque::new();
    if input.is_regular() {
        if !inference.is_settled() {
            inference.read_all(&mut records, progress, signals)?;
        }
        records = Records::open(&mut input)?;
    } else {
        while sample.len() < SAMPLE_ROWS && records.advance()? {
            inference.look(&records.record);
            sample.push_back(records.record.clone());
        }
        if sample.len() == SAMPLE_ROWS {
            inference.settle_as_text(description, progress);
        }
    }
    let schema = description.settle(&inference.columns(description))?;
    let encoder = RowEncoder::new(&schema, &records.header, &null_markers)?;
    Ok((schema, CsvRows { records, sample, encoder, collection_existed: description.stored.is_some() }))
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
        match batch.push_cells(&self.encoder, |index| &record[index]) {
            Ok(()) => Ok(Some(line)),
            Err(bad) => Err(bad_cell(line, &bad, self.collection_existed)),
        }
    }

    fn grown(&mut self) -> Option<Schema> {
        None
    }
}

fn bad_cell(line: u64, bad: &BadCell, collection_existed: bool) -> Failure {
    let (column, wanted) = (&bad.column, bad.wanted);
    let hint = match bad.why {
        Misfit::NotUtf8 => "fix the line, or convert the input to UTF-8".to_owned(),
        Misfit::NullInKey => "fix the line, or choose another key".to_owned(),
        Misfit::KeyTooLong => "fix the line, or choose shorter columns as the key".to_owned(),
        Misfit::TooLarge => "leave that cell out".to_owned(),
        Misfit::OtherType if wanted == ColumnType::Unknown => {
            format!("the input has changed while it was read: import it again, or use --type {column}=TYPE")
        }
        Misfit::OtherType if collection_existed => format!(
            "the collection holds {wanted} there: fix the line, or import into a new collection with --type {column}=text"
        ),
        Misfit::OtherType => {
            format!("if the column is text, import into a new collection with --type {column}=text")
        }
    };
    Failure::data(format!("line {line}, column {}: {}", bad.column, bad.problem), hint)
}

/// What is known about each column so far.
struct Inference {
    columns: Vec<Inferred>,
    null_markers: Vec<Vec<u8>>,
}

struct Inferred {
    name: String,
    kind: ColumnType,
    given: bool,
}

impl Inference {
    fn new(description: &RowDescription, header: &[String], null_markers: &[String]) -> Result<Inference> {
        let column = |name: &String| {
            let given = description.given(name);
            Inferred { name: name.clone(), kind: given.unwrap_or_default(), given: given.is_some() }
        };
        let inference = Inference {
            columns: header.iter().map(column).collect(),
            null_markers: null_markers.iter().map(|marker| marker.as_bytes().to_vec()).collect(),
        };
        description.settle(&inference.columns(description))?;
        Ok(inference)
    }

    /// Whether nothing is left to infer.
    fn is_settled(&self) -> bool {
        self.columns.iter().all(|column| column.given)
    }

    fn read_all(&mut self, records: &mut Records, progress: &Progress, signals: &Signals) -> Result<()> {
        let mut rows = 0_u64;
        while records.advance()? {
            self.look(&records.record);
            rows += 1;
            if rows.is_multiple_of(LOOK_ROWS) {
                progress.reading();
                if let Some(number) = signals.received() {
                    return Err(Failure::signal(number));
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, record: &ByteRecord) {
        for (column, cell) in self.columns.iter_mut().zip(record) {
            if column.given || column.kind == ColumnType::Text || cell::fits(column.kind, cell) {
                continue;
            }
            if !self.null_markers.iter().any(|marker| marker == cell) {
                column.kind = cell::widen(column.kind, cell::infer(cell));
            }
        }
    }

    /// Makes columns without a value text: more rows are to come, and text accepts everything.
    fn settle_as_text(&mut self, description: &RowDescription, progress: &Progress) {
        let mut settled = Vec::new();
        for column in self.columns.iter_mut().filter(|column| column.kind == ColumnType::Unknown) {
            if !description.sums(&column.name) {
                column.kind = ColumnType::Text;
                settled.push(column.name.as_str());
            }
        }
        if !settled.is_empty() {
            progress.note(&format!(
                "without a value in the first {} rows, and text from now on: {}; --type COLUMN=TYPE changes that",
                grouped(SAMPLE_ROWS as u64),
                settled.join(", ")
            ));
        }
    }

    /// The columns with their types.
    ///
    /// A column without a value is an integer if it is summed; otherwise its first later value decides.
    fn columns(&self, description: &RowDescription) -> Vec<(String, ColumnType)> {
        let columns = self.columns.iter().map(|column| {
            let kind = match column.kind {
                ColumnType::Unknown if description.sums(&column.name) => ColumnType::Int,
                known => known,
            };
            (column.name.clone(), kind)
        });
        columns.collect()
    }
}
