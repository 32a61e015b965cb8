//! Rows that are documents, of JSON or Parquet: columns discovered on the way.

use std::collections::VecDeque;

use duramen::{Document, RowBatch, Schema};

use super::assigned_ids::AssignedIds;
use super::columns_of_values::ColumnsOfValues;
use super::description::RowDescription;
use super::findings::Findings;
use super::pipeline::RowSource;
use super::source::Input;
use crate::failure::{Failure, Result};
use crate::flatten::flattened;
use crate::progress::Progress;
use crate::signals::Signals;

/// Documents in the order of the input, each with its line; in Parquet the number of its row.
pub(super) trait DocumentSource: Send {
    /// The next document; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Document)>>;
}

/// Opens an input at its start.
pub(super) type Open = dyn Fn(&mut Input) -> Result<Box<dyn DocumentSource>>;

/// A reading of the input.
struct Source {
    documents: Box<dyn DocumentSource>,
    /// Whether the fields of nested objects become columns.
    flatten: bool,
}

impl Source {
    fn next(&mut self) -> Result<Option<(u64, Document)>> {
        let Some((line, document)) = self.documents.next()? else { return Ok(None) };
        if !self.flatten {
            return Ok(Some((line, document)));
        }
        let flat = flattened(&document).map_err(|name| {
            let message = format!("line {line}: two fields have the name {name} once they are flat");
            Failure::data(message, "rename one of them, or leave --flatten out")
        })?;
        Ok(Some((line, flat)))
    }
}

const SAMPLE_ROWS: usize = 10_000;
const LOOK_ROWS: u64 = 8192;

/// Rows of an input, ready to be encoded.
pub(super) struct DocumentRows {
    source: Source,
    sample: VecDeque<(u64, Document)>,
    schema: Schema,
    ids: Option<AssignedIds>,
    grew: bool,
}

/// Infers the types. The rows then begin at the first.
pub(super) fn prepare(
    open: &Open,
    mut input: Input,
    description: &RowDescription,
    progress: &Progress,
    signals: &Signals,
) -> Result<(Schema, DocumentRows, Findings)> {
    let flatten = description.flatten;
    let mut source = Source { documents: open(&mut input)?, flatten };
    let mut columns = ColumnsOfValues::default();
    let mut sample = VecDeque::new();
    if input.is_regular() {
        let mut rows = 0_u64;
        while let Some((line, document)) = source.next()? {
            columns.look(line, &document);
            rows += 1;
            if rows.is_multiple_of(LOOK_ROWS) {
                progress.reading();
                if let Some(number) = signals.received() {
                    return Err(Failure::signal(number));
                }
            }
        }
        source = Source { documents: open(&mut input)?, flatten };
    } else {
        while sample.len() < SAMPLE_ROWS
            && let Some(row) = source.next()?
        {
            columns.look(row.0, &row.1);
            sample.push_back(row);
        }
    }
    if let Some(ids) = description.ids.as_ref().filter(|ids| columns.has(&ids.column)) {
        return Err(ids.taken("the input"));
    }
    let rows_of_sample = Some(sample.len()).filter(|rows| *rows == SAMPLE_ROWS);
    let findings = columns.findings(description, rows_of_sample);
    findings.say(progress, description);
    let schema = description
        .settle(&description.with_ids(columns.kinds(description)))
        .map_err(|failure| findings.explain(failure, description))?;
    let ids = description.ids.clone();
    Ok((schema.clone(), DocumentRows { source, sample, schema, ids, grew: false }, findings))
}

/// A document with the next id as its first field.
fn with_id(ids: &mut AssignedIds, line: u64, document: &Document) -> Result<Document> {
    if document.get(&ids.column).is_some() {
        return Err(ids.taken(&format!("line {line}")));
    }
    let id = ids.take()?;
    let mut with_id = Document::new().with(ids.column.as_str(), id);
    document.iter().for_each(|(name, value)| with_id.set(name, value.clone()));
    Ok(with_id)
}

impl RowSource for DocumentRows {
    fn push_next(&mut self, batch: &mut RowBatch) -> Result<Option<u64>> {
        let next = match self.sample.pop_front() {
            Some(row) => Some(row),
            None => self.source.next()?,
        };
        let Some((line, mut document)) = next else { return Ok(None) };
        if let Some(ids) = &mut self.ids {
            document = with_id(ids, line, &document)?;
        }
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
