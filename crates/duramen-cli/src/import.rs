//! `duramen import`: rows of a file or a stream become documents, one transaction per batch.
//!
//! Owns the order of steps. The definition is compared with the stored one; the input is inspected before the
//! database is written; then rows flow through [`pipeline`]. Committed batches stay, whatever happens later.

mod assigned_ids;
mod columns_of_values;
mod csv_rows;
mod document_rows;
mod findings;
mod gunzip;
mod inference;
mod json_text;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod pipeline;
mod records;
mod source;
mod stream;

use std::time::Instant;

use duramen::schema::ColumnType;
use duramen::{Document, Schema, doc};

use crate::args::{Format, ImportArgs, level_name};
use crate::database;
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped, rate, time};
use crate::output::Output;
use crate::progress::Progress;
use crate::signals::Signals;
use assigned_ids::AssignedIds;
use document_rows::Open;
use findings::Findings;
use json_text::Objects;
#[cfg(feature = "parquet")]
use parquet_rows::ParquetRows;
use pipeline::{Loaded, RowSource, Terms};
use source::Input;

/// The user's description of the rows, validated as far as possible without the database.
pub(crate) struct RowDescription {
    pub(crate) collection: String,
    pub(crate) key: Vec<String>,
    pub(crate) sum: Vec<String>,
    pub(crate) types: Vec<(String, ColumnType)>,
    pub(crate) null: Vec<String>,
    /// The character between the cells of CSV.
    pub(crate) delimiter: u8,
    /// Whether the fields of nested objects become columns.
    pub(crate) flatten: bool,
    /// The ids of rows without a natural key.
    ids: Option<AssignedIds>,
    /// The stored schema, if the collection exists.
    pub(crate) stored: Option<Schema>,
}

impl RowDescription {
    /// The resulting collection, without its columns.
    fn schema(&self) -> Result<Schema> {
        let mut schema = match &self.stored {
            Some(stored) => stored.clone(),
            None if self.key.is_empty() => {
                return Err(Failure::usage(
                    format!("the collection {} is not there yet, and needs a key", self.collection),
                    "name the columns that tell its rows apart, in the order to sort by: --key COLUMN,...; or give the rows ids: --assign-id id",
                ));
            }
            None => Schema::new(&self.collection).key(self.key.clone()).sum(self.sum.clone()),
        };
        let description = Schema::new(&self.collection)
            .key(if self.key.is_empty() { schema.key_columns().to_vec() } else { self.key.clone() })
            .sum(if self.sum.is_empty() { schema.sum_columns().to_vec() } else { self.sum.clone() });
        schema.check_same_terms(&description)?;
        if let (Some(marker), None) = (self.null.first(), schema.null()) {
            schema = schema.null_marker(marker);
        }
        Ok(schema)
    }

    /// The type that the user or the catalogue gives a column.
    pub(crate) fn given(&self, column: &str) -> Option<ColumnType> {
        let description = self.types.iter().find(|(name, _)| name == column).map(|(_, kind)| *kind);
        let stored = self.stored.as_ref().and_then(|stored| stored.kind(column));
        description.or(stored.filter(|kind| *kind != ColumnType::Unknown))
    }

    /// Whether a column is summed.
    pub(crate) fn sums(&self, column: &String) -> bool {
        self.sum.contains(column)
            || self.stored.as_ref().is_some_and(|stored| stored.sum_columns().contains(column))
    }

    /// Whether a column is part of the key. It then needs a value in every row.
    pub(crate) fn is_key(&self, column: &String) -> bool {
        self.key.contains(column)
            || self.stored.as_ref().is_some_and(|stored| stored.key_columns().contains(column))
    }

    /// The columns of the documents: that of the assigned ids, and those of the input.
    fn with_ids(&self, mut columns: Vec<(String, ColumnType)>) -> Vec<(String, ColumnType)> {
        if let Some(ids) = &self.ids {
            columns.insert(0, (ids.column.clone(), ColumnType::Int));
        }
        columns
    }

    /// Adds inferred columns to the schema, in their order. `--type` and the catalogue take precedence.
    pub(crate) fn settle(&self, inferred: &[(String, ColumnType)]) -> Result<Schema> {
        let mut schema = self.schema()?;
        for (name, _) in &self.types {
            if !inferred.iter().any(|(column, _)| column == name) && schema.kind(name).is_none() {
                let names: Vec<&str> = inferred.iter().map(|(column, _)| column.as_str()).collect();
                return Err(Failure::usage(
                    format!("--type names {name}, and the input has no such column"),
                    format!("its columns are {}", names.join(",")),
                ));
            }
        }
        for (column, kind) in inferred {
            let kind = self.given(column).unwrap_or(*kind);
            if schema.kind(column).is_none_or(|stored| stored == ColumnType::Unknown) {
                schema = schema.column(column, kind);
            } else if schema.kind(column) != Some(kind) {
                return Err(Failure::usage(
                    format!(
                        "the column {column} of {} holds {}",
                        self.collection,
                        schema.kind(column).unwrap_or_default()
                    ),
                    "its type is settled: leave --type out, or import into another collection",
                ));
            }
        }
        for name in schema.key_columns().iter().chain(schema.sum_columns()) {
            if !inferred.is_empty() && !inferred.iter().any(|(column, _)| column == name) {
                let names: Vec<&str> = inferred.iter().map(|(column, _)| column.as_str()).collect();
                let hint = match probable_delimiter(&names) {
                    Some(delimiter) => {
                        format!("its only column is {:?}: use --delimiter {delimiter}", names[0])
                    }
                    None => format!("its columns are {}", names.join(",")),
                };
                let message = format!(
                    "the input has no column {name}, which the key or the sums of {} need",
                    self.collection
                );
                return Err(Failure::data(message, hint));
            }
        }
        schema.validate()?;
        Ok(schema)
    }
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, out: Output) -> Result<()> {
    let types = parse_types(&args.types)?;
    named_once("--key", &args.key)?;
    named_once("--sum", &args.sum)?;
    let input = Input::open(&args.file)?;
    let (format, delimiter) = format_and_delimiter(args)?;
    let signals = Signals::watch()?;
    let input = input.until(signals.clone());
    let level = args.durability.into();
    database::check_level(&args.database, level)?;
    let db =
        if args.database.db.exists() { Some(database::open_or_create(&args.database, level)?) } else { None };
    let stored = match &db {
        Some(db) => db.collections()?.into_iter().find(|schema| schema.name() == args.collection),
        None => None,
    };
    let ids = AssignedIds::of(args, db.as_deref(), stored.as_ref())?;
    let description = RowDescription {
        collection: args.collection.clone(),
        key: ids.as_ref().map_or_else(|| args.key.clone(), |ids| vec![ids.column.clone()]),
        sum: args.sum.clone(),
        types,
        null: args.null.clone(),
        delimiter,
        flatten: args.flatten,
        ids: ids.clone(),
        stored,
    };
    description.schema()?;
    let progress = Progress::new(out, input.bytes_read(), input.bytes_total());
    if let Some(ids) = &ids {
        progress.note(&format!("rows get the ids from {} on, in the column {}", ids.next, ids.column));
    }
    let first_id = ids.map(|ids| ids.next);
    let report = Report { args, first_id, begun: Instant::now(), out };
    let again = report.again();
    let Prepared { schema, rows, findings } = match prepare(format, input, &description, &progress, &signals)
    {
        Err(Failure::Exit(_)) => {
            progress.finish();
            let nothing = Loaded::default();
            report.say(&nothing, &Findings::default(), 0)?;
            return finish(nothing, args.threads, &again, &signals, out);
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
        batch_rows: args.batch as usize,
        threads: usize::from(args.threads),
        replace: args.replace,
        ack: args.ack,
    };
    let loaded = pipeline::run(&db, &terms, rows, out, &signals, &progress);
    progress.finish();
    report.say(&loaded, &findings, db.stats().log.sync_count.saturating_sub(syncs_before))?;
    let closed = db.close();
    finish(loaded, args.threads, &again, &signals, out)?;
    Ok(closed?)
}

/// Refuses a list that names a column twice.
fn named_once(flag: &str, columns: &[String]) -> Result<()> {
    match (1..columns.len()).find(|&at| columns[..at].contains(&columns[at])) {
        Some(at) => Err(Failure::usage(
            format!("{flag} names the column {} twice", columns[at]),
            "name each column once",
        )),
        None => Ok(()),
    }
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

struct Report<'a> {
    args: &'a ImportArgs,
    first_id: Option<u64>,
    begun: Instant,
    out: Output,
}

impl Report<'_> {
    /// The flags with which the same command completes the rows.
    fn again(&self) -> String {
        match self.first_id {
            Some(first) => format!("--replace --first-id {first}"),
            None => "--replace".to_owned(),
        }
    }

    /// Prints what is stored now, unless the failure will.
    fn say(&self, loaded: &Loaded, findings: &Findings, syncs: u64) -> Result<()> {
        let took = self.begun.elapsed();
        let level = level_name(self.args.durability.into());
        if loaded.failure.is_some() {
            return Ok(());
        }
        if self.out.is_json() {
            let mut fields: Document = doc! {
                "collection": self.args.collection.as_str(), "rows": loaded.rows, "batches": loaded.batches,
                "seq": loaded.seq, "syncs": syncs, "durability": level, "complete": loaded.complete,
            };
            fields.set("seconds", took.as_secs_f64());
            findings.write(&mut fields);
            if let Some(first) = self.first_id {
                fields.set("first_id", first);
            }
            return self.out.object("import", fields);
        }
        if loaded.rows == 0 && !loaded.complete {
            return Ok(());
        }
        self.out.note(&format!(
            "{} in {} into {} in {} ({} rows/s), seq {}, {}, durability {level}",
            counted(loaded.rows, "row"),
            counted(loaded.batches, "batch"),
            self.args.collection,
            time(took),
            grouped(rate(loaded.rows, took)),
            loaded.seq,
            counted(syncs, "sync"),
        ));
        Ok(())
    }
}

/// The result of the command: its failure, the signal that came, or success.
fn finish(loaded: Loaded, threads: u16, again: &str, signals: &Signals, out: Output) -> Result<()> {
    let left = left(&loaded, threads, again);
    if let Some(failure) = loaded.failure {
        let hint = match loaded.rows {
            0 => "make room on the disk, and repeat".to_owned(),
            _ => format!("make room on the disk: then the same command with {again} completes the rows"),
        };
        return Err(failure.when_full(hint).when_batched().and(&format!("; {left}")));
    }
    let rows = counted(loaded.rows, "row");
    match signals.received() {
        Some(number) if !loaded.complete => {
            out.note(&match loaded.rows {
                0 => format!("stopped by signal {number}: nothing of this import is stored"),
                _ => format!(
                    "stopped by signal {number}: {rows} stored; the same command with {again} completes them"
                ),
            });
            Err(Failure::signal(number))
        }
        _ => Ok(()),
    }
}

/// What a failed import has stored, as text.
fn left(loaded: &Loaded, threads: u16, again: &str) -> String {
    let (rows, batches) = (counted(loaded.rows, "row"), counted(loaded.batches, "batch"));
    let doubt = if loaded.in_doubt { ", and what was being committed may be too" } else { "" };
    match loaded.rows {
        0 if loaded.in_doubt => "nothing of this import is known to be stored".to_owned(),
        0 => "nothing of this import is stored".to_owned(),
        _ if threads == 1 => format!("what came before is stored: {rows} in {batches}{doubt}"),
        _ => format!(
            "stored are {rows} in {batches}, with {threads} threads perhaps of later lines too{doubt}: once the cause is fixed, the same command with {again} completes them"
        ),
    }
}

fn parse_types(texts: &[String]) -> Result<Vec<(String, ColumnType)>> {
    let types = texts.iter().map(|text| parse_type(text)).collect::<Result<Vec<_>>>()?;
    named_once("--type", &types.iter().map(|(column, _)| column.clone()).collect::<Vec<_>>())?;
    Ok(types)
}

fn parse_type(text: &str) -> Result<(String, ColumnType)> {
    let names = || ColumnType::NAMED.map(ColumnType::name).join(", ");
    let Some((column, kind)) = text.rsplit_once('=') else {
        return Err(Failure::usage(format!("--type {text:?} names no type"), "write --type COLUMN=TYPE"));
    };
    match ColumnType::NAMED.into_iter().find(|known| known.name() == kind) {
        Some(kind) => Ok((column.to_owned(), kind)),
        None => {
            Err(Failure::usage(format!("--type: {kind:?} is no type"), format!("the types are {}", names())))
        }
    }
}

/// The format of the input and the delimiter of its cells.
fn format_and_delimiter(args: &ImportArgs) -> Result<(Format, u8)> {
    let guess = guess_format(args);
    let format = args.format.or(guess.map(|(format, _)| format)).ok_or_else(|| unknown_format(args))?;
    let delimiter = args.delimiter.or(guess.map(|(_, delimiter)| delimiter)).unwrap_or(b',');
    check_built(format)?;
    if args.delimiter.is_some() && format != Format::Csv {
        return Err(Failure::usage("--delimiter is for CSV", "leave it out, or use --format csv"));
    }
    if args.flatten && format == Format::Csv {
        return Err(Failure::usage("--flatten is for JSON", "leave it out: CSV has no nested objects"));
    }
    Ok((format, delimiter))
}

/// Refuses a format that this build leaves out.
pub(crate) fn check_built(format: Format) -> Result<()> {
    if format == Format::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "this build of duramen has no Parquet",
            "build it with `cargo build --release -p duramen-cli --features parquet`, or use another format",
        ));
    }
    Ok(())
}

/// The format and the delimiter that the name of the file tells.
fn guess_format(args: &ImportArgs) -> Option<(Format, u8)> {
    let name = args.file.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let by_end = [
        (".csv", (Format::Csv, b',')),
        (".tsv", (Format::Csv, b'\t')),
        (".ndjson", (Format::Ndjson, b',')),
        (".jsonl", (Format::Ndjson, b',')),
        (".json", (Format::Json, b',')),
        (".parquet", (Format::Parquet, b',')),
    ];
    by_end.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}

fn unknown_format(args: &ImportArgs) -> Failure {
    Failure::usage(
        format!("the name of {} does not tell its format", args.file.display()),
        "add --format csv, --format ndjson or --format json",
    )
}

/// The delimiter that a header with a single column probably has.
fn probable_delimiter(columns: &[&str]) -> Option<&'static str> {
    let [header] = columns else { return None };
    [(';', "';'"), ('\t', "tab"), ('|', "'|'"), (',', "','")]
        .into_iter()
        .find(|(delimiter, _)| header.contains(*delimiter))
        .map(|(_, flag)| flag)
}
