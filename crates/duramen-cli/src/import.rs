//! `duramen import`: rows of a file or a stream become documents, one transaction per batch.
//!
//! Owns the order of steps. The definition is compared with the stored one; the input is inspected before the
//! database is written; then rows flow through [`pipeline`]. Committed batches stay, whatever happens later.

mod assigned_ids;
mod columns_of_values;
mod csv_rows;
mod description;
mod document_rows;
mod findings;
mod flags;
mod format;
mod gunzip;
mod inference;
mod json_text;
mod line_numbers;
mod memory;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod pipeline;
mod records;
mod repeats;
mod report;
mod shapes;
mod source;
mod stream;

use std::sync::Arc;
use std::time::Instant;

use duramen::{Durability, Schema, Span};

use crate::args::{Format, ImportArgs};
use crate::backend::Writing;
use crate::database;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::signals::Signals;
use assigned_ids::AssignedIds;
use description::RowDescription;
use document_rows::Open;
use findings::Findings;
use flags::{drop_command, warn_of_any_in_csv, warn_of_null_lists, warn_of_null_without_csv};
use format::format_and_delimiter;
use json_text::Objects;
use memory::Memory;
#[cfg(feature = "parquet")]
use parquet_rows::ParquetRows;
use pipeline::{BatchSize, Loaded, RowSource, Terms};
use report::{Effect, Report};
use source::Input;

pub(crate) use findings::type_flag;
pub(crate) use format::check_built;
pub(crate) use inference::{is_null_word, null_flag};
pub(crate) use shapes::is_number_to_a_person;

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, out: Output) -> Result<()> {
    let mut description = RowDescription::of(args)?;
    warn_of_null_lists(&args.null, out);
    let input = Input::open(&args.file)?;
    let (format, delimiter) = format_and_delimiter(args)?;
    description.delimiter = delimiter;
    match format {
        Format::Csv => warn_of_any_in_csv(&description.types, out),
        _ => warn_of_null_without_csv(&args.null, out),
    }
    let signals = Signals::watch()?;
    let input = input.until(signals.clone());
    let level = args.durability;
    let target = existing(args, level)?;
    let stored = match &target {
        Some(target) => target.find_schema(&args.collection)?,
        None => None,
    };
    let ids = AssignedIds::of(args, target.as_ref(), stored.as_ref())?;
    description.fit(stored, ids.clone())?;
    let progress = Progress::new(out, input.bytes_read(), input.bytes_total());
    if let Some(ids) = &ids {
        progress.note(&format!("rows get the ids from {} on, in the column {}", ids.next, ids.column));
    }
    let first_id = ids.map(|ids| ids.next);
    let has_others = target.as_ref().is_some_and(|target| target.local().is_none());
    let report = Report {
        args,
        has_others,
        first_id,
        is_new: description.stored.is_none(),
        begun: Instant::now(),
        out,
    };
    let prepared = match prepare(format, input, &description, &progress, &signals) {
        Err(Failure::Exit(_)) => {
            progress.finish();
            let nothing = Loaded::default();
            report.say(&nothing, Some(Effect::default()), &Findings::default(), Some(0))?;
            return report.finish(nothing, &report.again(), &signals);
        }
        prepared => prepared?,
    };
    let target = match target {
        Some(target) => target,
        None => Writing::open_or_create(&args.database, level)?,
    };
    load(target, prepared, &description, &report, &signals, &progress)
}

/// Stores the rows, and reports what was stored.
fn load(
    target: Writing,
    prepared: Prepared,
    description: &RowDescription,
    report: &Report<'_>,
    signals: &Signals,
    progress: &Progress,
) -> Result<()> {
    let (args, Prepared { schema, rows, findings }) = (report.args, prepared);
    let syncs_before = target.sync_count();
    let batch = args.batch.map_or(BatchSize::DEFAULT, BatchSize::of_rows);
    let terms = Terms {
        schema,
        batch: if target.local().is_some() { batch } else { batch.for_server() },
        threads: usize::from(args.threads),
        replace: args.replace,
        level: args.durability,
        ack: args.ack,
        drop_command: drop_command(args),
        documents_before: description.stored.as_ref().map(|schema| documents(&target, schema)).transpose()?,
        assigns_ids: report.first_id.is_some(),
    };
    let memory = memory_of(args, &target)?;
    let target = Arc::new(target);
    let mut loaded = pipeline::run(&target, &terms, rows, memory, report.out, signals, progress);
    progress.finish();
    loaded.failure = loaded.failure.map(|failure| findings.beside_text(failure, description));
    let effect = Effect::of(&target, &terms, &loaded);
    let syncs = target.sync_count().zip(syncs_before).map(|(now, before)| now.saturating_sub(before));
    report.say(&loaded, effect, &findings, syncs)?;
    let closed = target.close();
    report.finish(loaded, &report.again(), signals)?;
    closed
}

/// The database, if it exists: one that does not is created once the input has been read.
fn existing(args: &ImportArgs, level: Durability) -> Result<Option<Writing>> {
    if args.database.at.is_none() {
        database::check_level(&args.database, level)?;
        if !args.database.db.exists() {
            return Ok(None);
        }
    }
    Writing::open_or_create(&args.database, level).map(Some)
}

/// The memory that the import begins with; `None` if another process has the database open.
fn memory_of(args: &ImportArgs, target: &Writing) -> Result<Option<Memory>> {
    let Some(db) = target.local() else { return Ok(None) };
    // The commands of a shell share its memory; several threads are there for speed.
    let is_small = args.threads == 1 && !db.is_shared();
    Ok(Some(if is_small { Memory::small(db)? } else { Memory::full(db) }))
}

/// How many documents a collection has.
fn documents(target: &Writing, schema: &Schema) -> Result<u64> {
    target.count(schema.name(), Span::all())
}

/// Rows ready to be stored, and what their columns are.
struct Prepared {
    schema: Schema,
    rows: Box<dyn RowSource>,
    findings: Findings,
}

/// Infers the types, and prepares the rows for reading from the start.
fn prepare(
    format: Format,
    input: Input,
    description: &RowDescription,
    progress: &Progress,
    signals: &Signals,
) -> Result<Prepared> {
    Ok(match format {
        Format::Csv => {
            let (schema, rows, findings) = csv_rows::prepare(input, description, progress, signals)?;
            Prepared { schema, rows: Box::new(rows), findings }
        }
        _ => {
            let open: &Open = match format {
                Format::Ndjson => &|input| Ok(Box::new(Objects::open(input, false)?)),
                #[cfg(feature = "parquet")]
                Format::Parquet => &|input| Ok(Box::new(ParquetRows::open(input)?)),
                _ => &|input| Ok(Box::new(Objects::open(input, true)?)),
            };
            let (schema, rows, findings) =
                document_rows::prepare(open, input, description, progress, signals)?;
            Prepared { schema, rows: Box::new(rows), findings }
        }
    })
}
