//! `duramen find`: documents by their fields, along the key or a view that fits, else by reading all of them, if that was asked.
//!
//! Says which way it went. Reading more than [`READ_MAX`] documents to find some needs `--scan`.

mod condition;
mod plan;

use std::io::Write;

use duramen::{Direction, Document, Reads, Rows, Schema, Snapshot, Span, Value, doc};

use crate::args::FindArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped};
use crate::output::{Output, flush, new_table, printable, shell_word};
use crate::read::Grid;
use crate::signals::Signals;
use condition::Condition;
use plan::{Index, Way};

/// Documents that are read without `--scan` to find some among them.
const READ_MAX: u64 = 100_000;

/// Rows between two looks at signals.
const LOOK_ROWS: u64 = 1024;

/// Runs the command.
pub(crate) fn run(args: &FindArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(&args.target.database)?;
    let snapshot = db.snapshot()?;
    let schema = database::schema(&snapshot, &args.target.collection)?;
    let plan = Plan::of(&snapshot, &schema, args)?;
    if args.explain {
        return plan.explain(args, out);
    }
    plan.check_reads(args)?;
    plan.show(&snapshot, args, out)
}

/// What is asked, the way to it, and what that costs.
struct Plan<'a> {
    schema: &'a Schema,
    conditions: Vec<Condition>,
    way: Way,
    /// Documents that lie along the way.
    read_count: u64,
    /// All documents.
    document_count: u64,
}

impl<'a> Plan<'a> {
    fn of(snapshot: &Snapshot, schema: &'a Schema, args: &FindArgs) -> Result<Plan<'a>> {
        let conditions = args.conditions.iter().map(|text| Condition::parse(schema, text));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let document_count = snapshot.documents(schema.name()).count(Span::all())?;
        let key = Index { view: None, fields: schema.key_columns().to_vec(), is_complete: true };
        let way = plan::choose(&[key], &conditions)?.expect("the key holds all documents");
        let read_count = snapshot.documents(schema.name()).count(way.span.clone())?;
        Ok(Plan { schema, conditions, way, read_count, document_count })
    }

    /// The way in words.
    fn way_shown(&self) -> String {
        let fields = self.way.fields();
        if fields.is_empty() {
            return "a scan of all".to_owned();
        }
        let index = match &self.way.index.view {
            Some(view) => format!("the view {view}"),
            None => "the key".to_owned(),
        };
        let used = self.conditions.iter().filter(|condition| fields.contains(&condition.field));
        let used: Vec<String> = used.map(Condition::shown).collect();
        format!("{index}: {}", used.join(", "))
    }

    /// The command that would make this find read only what it shows.
    fn suggestion(&self, args: &FindArgs) -> Option<String> {
        let fields = plan::helpful_view(&self.conditions);
        if self.way.is_exact(&self.conditions) || fields.is_empty() || fields == self.way.fields() {
            return None;
        }
        let wal = args
            .target
            .database
            .wal
            .as_ref()
            .map(|wal| format!(" --wal {}", shell_word(&wal.to_string_lossy())));
        Some(format!(
            "duramen view add {}{} -c {} {} --key {}",
            shell_word(&args.target.database.db.to_string_lossy()),
            wal.unwrap_or_default(),
            shell_word(self.schema.name()),
            shell_word(&format!("by_{}", fields.join("_"))),
            shell_word(&fields.join(",")),
        ))
    }

    fn check_reads(&self, args: &FindArgs) -> Result<()> {
        if self.way.is_exact(&self.conditions) || self.read_count <= READ_MAX || args.scan {
            return Ok(());
        }
        let message = format!(
            "this reads {} of {}, by {}; without --scan at most {} are read",
            grouped(self.read_count),
            counted(self.document_count, "document"),
            self.way_shown(),
            grouped(READ_MAX)
        );
        let hint = match self.suggestion(args) {
            Some(command) => format!("`{command}` makes it a search; or say --scan"),
            None => "say --scan to read them".to_owned(),
        };
        Err(Failure::data(message, hint))
    }

    fn explain(&self, args: &FindArgs, out: Output) -> Result<()> {
        let suggestion = self.suggestion(args);
        if out.is_json() {
            let texts =
                |names: &[String]| names.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
            let way = match &self.way.index.view {
                _ if self.way.fields().is_empty() => "scan",
                Some(_) => "view",
                None => "key",
            };
            let fields = doc! {
                "collection": self.schema.name(),
                "way": way,
                "view": self.way.index.view.as_deref(),
                "fields": texts(self.way.fields()),
                "reads": self.read_count,
                "documents": self.document_count,
                "exact": self.way.is_exact(&self.conditions),
                "needs_scan": self.check_reads(args).is_err(),
                "suggestion": suggestion,
            };
            return out.object("find_plan", fields);
        }
        let mut table = new_table(&["", ""]);
        table.add_row(["way".to_owned(), printable(&self.way_shown())]);
        let reads = format!("{} of {}", grouped(self.read_count), counted(self.document_count, "document"));
        table.add_row(["reads".to_owned(), reads]);
        let exact =
            if self.way.is_exact(&self.conditions) { "all of them" } else { "those that are as asked" };
        table.add_row(["shows", exact]);
        out.table(&table)?;
        if let Some(command) = suggestion {
            out.note(&format!("a view would help: {command}"));
        }
        Ok(())
    }

    fn show(&self, snapshot: &Snapshot, args: &FindArgs, out: Output) -> Result<()> {
        let direction = if args.reverse { Direction::Reverse } else { Direction::Forward };
        let mut found = Found {
            rows: snapshot.documents(self.schema.name()).rows(self.way.span.clone(), direction)?,
            conditions: &self.conditions,
            signals: Signals::watch()?,
            read_count: 0,
        };
        let limit = args.limit.unwrap_or(u64::MAX);
        let count = if out.is_json() {
            lines(&mut found, limit, out)?
        } else {
            Grid::new(self.schema.columns()).show(|| found.next(), limit, out)?
        };
        if let Some(number) = found.signals.received() {
            out.note(&format!("stopped by signal {number} after {}", counted(count, "row")));
            return Err(Failure::signal(number));
        }
        let limited = if count == limit { ", the limit" } else { "" };
        let read = counted(found.read_count, "document");
        out.note(&format!(
            "{}{limited}; {read} read by {}",
            counted(count, "row"),
            printable(&self.way_shown())
        ));
        if found.read_count > count.saturating_mul(100).max(1000)
            && let Some(command) = self.suggestion(args)
        {
            out.note(&format!("a view would help: {command}"));
        }
        Ok(())
    }
}

/// The documents along the way that are as asked.
struct Found<'a> {
    rows: Rows,
    conditions: &'a [Condition],
    signals: Signals,
    read_count: u64,
}

impl Found<'_> {
    fn next(&mut self) -> Result<Option<Document>> {
        loop {
            if self.read_count.is_multiple_of(LOOK_ROWS) && self.signals.received().is_some() {
                return Ok(None);
            }
            let Some((_, stored)) = self.rows.next()? else { return Ok(None) };
            self.read_count += 1;
            let document = Document::from_bytes(stored)?;
            if self.conditions.iter().all(|condition| condition.holds(&document)) {
                return Ok(Some(document));
            }
        }
    }
}

fn lines(found: &mut Found<'_>, limit: u64, out: Output) -> Result<u64> {
    let mut stream = out.stream();
    let mut count = 0;
    while count < limit
        && let Some(document) = found.next()?
    {
        writeln!(stream, "{}", document.to_json()?).map_err(|error| Failure::output(&error))?;
        count += 1;
    }
    flush(&mut stream)?;
    Ok(count)
}
