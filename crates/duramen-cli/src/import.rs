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

use std::time::Instant;

use duramen::{Db, Reads, Schema, Span};

use crate::args::{Format, ImportArgs};
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
    database::check_level(&args.database, level)?;
    let db =
        if args.database.db.exists() { Some(database::open_or_create(&args.database, level)?) } else { None };
    let stored = match &db {
        Some(db) => db.collections()?.into_iter().find(|schema| schema.name() == args.collection),
        None => None,
    };
    let ids = AssignedIds::of(args, db.as_deref(), stored.as_ref())?;
    description.fit(stored, ids.clone())?;
    let progress = Progress::new(out, input.bytes_read(), input.bytes_total());
    if let Some(ids) = &ids {
        progress.note(&format!("rows get the ids from {} on, in the column {}", ids.next, ids.column));
    }
    let first_id = ids.map(|ids| ids.next);
    let report = Report { args, first_id, is_new: description.stored.is_none(), begun: Instant::now(), out };
    let again = report.again();
    let Prepared { schema, rows, findings } = match prepare(format, input, &description, &progress, &signals)
    {
        Err(Failure::Exit(_)) => {
            progress.finish();
            let nothing = Loaded::default();
            report.say(&nothing, Effect::default(), &Findings::default(), 0)?;
            return report.finish(nothing, &again, &signals);
        }
        prepared => prepared?,
    };
    let db = match db {
        Some(db) => db,
        None => database::open_or_create(&args.database, level)?,
    };
    let syncs_before = db.stats().log.sync_count;
    let terms = Terms {
        schema,
        batch: args.batch.map_or(BatchSize::DEFAULT, BatchSize::of_rows),
        threads: usize::from(args.threads),
        replace: args.replace,
        ack: args.ack,
        drop_command: drop_command(args),
        documents_before: description.stored.as_ref().map(|schema| documents(&db, schema)).transpose()?,
    };
    let mut loaded = pipeline::run(&db, &terms, rows, memory_of(args, &db)?, out, &signals, &progress);
    progress.finish();
    loaded.failure = loaded.failure.map(|failure| findings.beside_text(failure, &description));
    let effect = Effect::of(&db, &terms, &loaded)?;
    let syncs = db.stats().log.sync_count.saturating_sub(syncs_before);
    report.say(&loaded, effect, &findings, syncs)?;
    let closed = db.close();
    report.finish(loaded, &again, &signals)?;
    Ok(closed?)
}

/// The memory that the import begins with.
fn memory_of(args: &ImportArgs, db: &database::Opened) -> Result<Memory> {
    // The commands of a shell share its memory; several threads are there for speed.
    let is_small = args.threads == 1 && !db.is_shared();
    if is_small { Memory::small(db) } else { Ok(Memory::full(db)) }
}

/// How many documents a collection has.
fn documents(db: &Db, schema: &Schema) -> Result<u64> {
    Ok(db.snapshot()?.documents(schema.name()).count(Span::all())?)
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
