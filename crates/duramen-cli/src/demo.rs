//! `duramen demo`: the first command for a newcomer.
//!
//! Loads the January flights that are part of the binary, and answers three queries. Then it starts this
//! binary again as a child that writes with acknowledgements, kills it, and looks for every acknowledged row.
//! Everything shown was just read back.

mod mark;
mod questions;
mod victim;
pub(crate) mod writer;

use std::path::Path;
use std::time::Instant;

use duramen::cell::RowEncoder;
use duramen::schema::ColumnType;
use duramen::{Code, Db, Document, LocalReads, RowBatch, Schema, doc};

use crate::args::DemoArgs;
use crate::failure::{FAILED, Failure, Result};
use crate::file_system;
use crate::numbers::{grouped, rate, time};
use crate::output::Output;
use victim::Recovered;

/// Flights of January 2013 from New York, gzipped CSV: docs and licence in `data/nycflights`.
const JANUARY: &[u8] = include_bytes!("../data/flights-january.csv.gz");

/// Rows in the sample.
const JANUARY_ROWS: u64 = 27_004;

const BATCH_ROWS: usize = 1000;
const COLLECTION: &str = "flights";
const TEXT_COLUMNS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, out: Output) -> Result<()> {
    let full = "make room on the disk, or name another directory with --dir";
    show(args, out).map_err(|failure| failure.when_full(full))
}

fn show(args: &DemoArgs, out: Output) -> Result<()> {
    let begun = Instant::now();
    let dir = args.dir.as_path();
    let survives = file_system::check(dir, "name a directory on a disk with --dir, or use --allow-tmpfs");
    let is_on_disk = survives.is_ok();
    // A demo of durability on a file system that survives no power cut needs an explicit flag.
    if !args.allow_tmpfs {
        survives?;
    }
    let db = mark::open_emptied(dir)?;
    let loaded = load(&db, is_on_disk, out)?;
    let answers = questions::ask(&db, out)?;
    db.close()?;
    drop(db);
    let recovered = victim::kill_and_recover(dir, out)?;
    conclude(dir, &recovered, begun, out)?;
    // Not before: a database that lost rows is kept as evidence.
    mark::set(dir)?;
    if out.is_json() {
        let mut fields =
            doc! { "path": dir.display().to_string(), "rows": loaded.rows, "questions": answers };
        fields.set("acknowledged", recovered.acknowledged);
        fields.set("found", recovered.found);
        fields.set("in_flight", recovered.in_flight);
        fields.set("seconds", begun.elapsed().as_secs_f64());
        out.object("demo", fields)?;
    }
    Ok(())
}

/// Prints a line of the story; under `--json` the single object at the end replaces it.
fn say(out: Output, text: &str) -> Result<()> {
    if out.is_json() { Ok(()) } else { out.line(text) }
}

struct Loaded {
    rows: u64,
}

/// Loads January, a thousand rows per transaction, each synced before the next.
fn load(db: &Db, is_on_disk: bool, out: Output) -> Result<Loaded> {
    say(out, &format!("Loading {} flights of January 2013 from New York ...", grouped(JANUARY_ROWS)))?;
    let begun = Instant::now();
    let syncs = db.stats().log.sync_count;
    let mut reader = csv::Reader::from_reader(flate2::read::GzDecoder::new(JANUARY));
    let broken = |error: &dyn std::fmt::Display| {
        Failure::said(
            FAILED,
            Code::System,
            format!("the sample inside this binary is corrupt: {error}"),
            "install it again",
        )
    };
    let header: Vec<String> =
        reader.headers().map_err(|error| broken(&error))?.iter().map(str::to_owned).collect();
    let schema = schema(&header);
    let encoder = RowEncoder::new(&schema, &header, &["NA".to_owned()])?;
    db.transact(|tx| tx.create(&schema))?;
    let (mut rows, mut batches) = (0_u64, 0_u64);
    let mut batch = RowBatch::new();
    let mut record = csv::ByteRecord::new();
    loop {
        let more = reader.read_byte_record(&mut record).map_err(|error| broken(&error))?;
        if more {
            batch.push_cells(&encoder, |index| &record[index]).map_err(|bad| broken(&bad.problem))?;
        }
        if batch.len() == BATCH_ROWS || (!more && !batch.is_empty()) {
            db.write(|tx| tx.documents(COLLECTION).put_rows(&batch))?;
            rows += batch.len() as u64;
            batches += 1;
            batch = RowBatch::new();
        }
        if !more {
            break;
        }
    }
    let took = begun.elapsed();
    let each = if is_on_disk { "each on disk" } else { "each synced, to what survives no power cut," };
    say(
        out,
        &format!(
            "  {} rows in {batches} transactions, {each} before the next ({} syncs), in {}: {} rows/s\n",
            grouped(rows),
            db.stats().log.sync_count - syncs,
            time(took),
            grouped(rate(rows, took))
        ),
    )?;
    Ok(Loaded { rows })
}

fn schema(header: &[String]) -> Schema {
    let schema = Schema::new(COLLECTION)
        .key(["carrier", "time_hour", "flight", "origin"])
        .sum(["dep_delay", "distance"])
        .null_marker("NA");
    header.iter().fold(schema, |schema, name| {
        let kind = match name.as_str() {
            "time_hour" => ColumnType::Time,
            text if TEXT_COLUMNS.contains(&text) => ColumnType::Text,
            _ => ColumnType::Int,
        };
        schema.column(name, kind)
    })
}

fn conclude(dir: &Path, recovered: &Recovered, begun: Instant, out: Output) -> Result<()> {
    let whole = recovered.found == recovered.acknowledged;
    if !whole {
        return Err(Failure::said(
            crate::failure::CORRUPT,
            Code::CorruptData,
            format!(
                "{} of {} acknowledged rows are missing",
                recovered.acknowledged - recovered.found,
                recovered.acknowledged
            ),
            "this must never happen: please report it, with the directory",
        ));
    }
    let shown = dir.display();
    let lines = [
        format!("\nThat took {}. The database is the directory {shown}; try next:", time(begun.elapsed())),
        format!("  duramen reduce {shown} -c flights --prefix UA"),
        format!("  duramen scan {shown} -c flights --prefix UA,2013-01-31T10:00:00Z --limit 5"),
        format!("  duramen count {shown} -c flights --from AA --to B6 --json"),
        format!("  duramen check {shown}"),
        "  duramen import my.duramen FILE.csv --collection NAME --key COLUMN,...".to_owned(),
    ];
    lines.iter().try_for_each(|line| say(out, line))
}

/// An answer in the single JSON object.
fn answer(question: &str, fields: Document) -> Document {
    let mut answer = doc! { "question": question };
    for (name, value) in fields.iter() {
        answer.set(name, value.clone());
    }
    answer
}
