//! Rows of NDJSON: one JSON object per line, exact integers, columns discovered on the way.

use std::collections::VecDeque;
use std::io::BufRead;

use duramen::{Document, RowBatch, Schema};

use super::RowDescription;
use super::columns_of_values::ColumnsOfValues;
use super::findings::Findings;
use super::pipeline::RowSource;
use super::progress::Progress;
use super::source::{Input, Reader, read_failure};
use crate::failure::{Failure, Result};
use crate::signals::Signals;

const SAMPLE_ROWS: usize = 10_000;
const LOOK_ROWS: u64 = 8192;

/// Rows of an NDJSON input, ready to be encoded.
pub(super) struct NdjsonRows {
    lines: Lines,
    sample: VecDeque<(u64, Document)>,
    schema: Schema,
    grew: bool,
}

/// Infers the types. The rows then begin at the first.
pub(super) fn prepare(
    mut input: Input,
    description: &RowDescription,
    progress: &Progress,
    signals: &Signals,
) -> Result<(Schema, NdjsonRows, Findings)> {
    let mut lines = Lines::open(&mut input)?;
    let mut columns = ColumnsOfValues::default();
    let mut sample = VecDeque::new();
    if input.is_regular() {
        let mut rows = 0_u64;
        while let Some((line, document)) = lines.next()? {
            columns.look(line, &document);
            rows += 1;
            if rows.is_multiple_of(LOOK_ROWS) {
                progress.reading();
                if let Some(number) = signals.received() {
                    return Err(Failure::signal(number));
                }
            }
        }
        lines = Lines::open(&mut input)?;
    } else {
        while sample.len() < SAMPLE_ROWS
            && let Some(row) = lines.next()?
        {
            columns.look(row.0, &row.1);
            sample.push_back(row);
        }
    }
    let rows_of_sample = Some(sample.len()).filter(|rows| *rows == SAMPLE_ROWS);
    let findings = columns.findings(description, rows_of_sample);
    findings.say(progress);
    let schema = description
        .settle(&columns.kinds(description))
        .map_err(|failure| findings.explain(failure, description))?;
    Ok((schema.clone(), NdjsonRows { lines, sample, schema, grew: false }, findings))
}

impl RowSource for NdjsonRows {
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>> {
        let next = match self.sample.pop_front() {
            Some(row) => Some(row),
            None => self.lines.next()?,
        };
        let Some((line, document)) = next else { return Ok(None) };
        match batch.push_document(&mut self.schema, document) {
            Ok(grew) => {
                self.grew |= grew;
                Ok(Some(line))
            }
            Err(error) => Err(Failure::data(
                format!("line {line}: {}", error.message()),
                "fix the line, or import into a new collection with --type COLUMN=any",
            )),
        }
    }

    fn grown(&mut self) -> Option<Schema> {
        std::mem::take(&mut self.grew).then(|| self.schema.clone())
    }
}

/// Documents of one reading, with the lines they are on.
struct Lines {
    name: String,
    reader: Reader,
    line: u64,
    bytes: Vec<u8>,
}

impl Lines {
    fn open(input: &mut Input) -> Result<Lines> {
        Ok(Lines { name: input.name(), reader: input.reader()?, line: 0, bytes: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<(u64, Document)>> {
        loop {
            self.bytes.clear();
            let count = self
                .reader
                .read_until(b'\n', &mut self.bytes)
                .map_err(|error| read_failure(&self.name, &error))?;
            if count == 0 {
                return Ok(None);
            }
            self.line += 1;
            let text = std::str::from_utf8(&self.bytes).map_err(|_| {
                Failure::data(
                    format!("line {}: not UTF-8", self.line),
                    "convert the input to UTF-8, or look whether it is NDJSON at all",
                )
            })?;
            if text.trim_ascii().is_empty() {
                continue;
            }
            let document = Document::from_json(text).map_err(|error| {
                Failure::data(
                    format!("line {}: {}", self.line, error.message()),
                    "NDJSON is one JSON object a line",
                )
            })?;
            return Ok(Some((self.line, document)));
        }
    }
}
