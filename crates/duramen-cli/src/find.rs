//! `duramen find`: documents by their fields, by the key or a fitting view, else by a full scan if that was
//! allowed.
//!
//! Prints the access path. Reading more than [`READ_MAX`] documents needs `--scan`.

mod condition;
mod plan;

use std::io::Write;

use duramen::{Direction, Document, ErrorKind, Reads, Schema, Snapshot, Span, Value, ViewSpec, doc};

use crate::args::{FindArgs, RangeFlags};
use crate::database;
use crate::failure::{Failure, Result};
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, flush, new_table, printable, shell_word};
use crate::read::{Asked, Grid};
use crate::signals::Signals;
use condition::Condition;
use plan::{Index, Way};

/// The maximum number of documents read without `--scan`.
const READ_MAX: u64 = 100_000;

/// Rows between two checks for signals.
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

/// The conditions, the access path, and its cost.
struct Plan<'a> {
    schema: &'a Schema,
    conditions: Vec<Condition>,
    way: Way,
    /// Documents along the access path.
    read_count: u64,
    /// All documents.
    document_count: u64,
}

impl<'a> Plan<'a> {
    fn of(snapshot: &Snapshot, schema: &'a Schema, args: &FindArgs) -> Result<Plan<'a>> {
        let documents = snapshot.documents(schema.name());
        let document_count = documents.count(Span::all())?;
        // After `--view`, a word without an operator is the start of the view's key.
        let is_prefix = |text: &&String| args.view.is_some() && !text.contains(['=', '<', '>']);
        let prefix = args.conditions.first().filter(is_prefix);
        let conditions = args.conditions.iter().skip(usize::from(prefix.is_some()));
        let conditions = conditions.map(|text| Condition::parse(schema, text)).collect::<Result<Vec<_>>>()?;
        let way = match &args.view {
            Some(name) => {
                let range = RangeFlags { prefix: prefix.cloned(), ..RangeFlags::default() };
                let asked = Asked::of(snapshot, schema, name, &range)?;
                let fields = asked.keyed.key_columns().to_vec();
                let index = Index { view: Some(name.clone()), fields, is_complete: true };
                plan::along(&index, &conditions, keys::span(&asked.keyed, &range)?)?
            }
            None => {
                let indices = indices(snapshot, schema, document_count)?;
                plan::choose(&indices, &conditions)?.expect("the key holds all documents")
            }
        };
        let read_count = match &way.index.view {
            Some(view) => documents.view(view).range(way.span.clone()).count()?,
            None => documents.count(way.span.clone())?,
        };
        Ok(Plan { schema, conditions, way, read_count, document_count })
    }

    /// The access path as text.
    fn way_shown(&self) -> String {
        let fields = self.way.fields();
        let index = match &self.way.index.view {
            Some(view) if fields.is_empty() => return format!("the view {view}"),
            Some(view) => format!("the view {view}"),
            None if fields.is_empty() => return "a scan of all".to_owned(),
            None => "the key".to_owned(),
        };
        let used = self.conditions.iter().filter(|condition| fields.contains(&condition.field));
        let used: Vec<String> = used.map(Condition::shown).collect();
        format!("{index}: {}", used.join(", "))
    }

    /// The command that adds a view with which this `find` would read only its results.
    fn suggestion(&self, args: &FindArgs) -> Option<String> {
        let fields = plan::helpful_view(&self.conditions);
        let is_best = fields == self.way.fields() || args.view.is_some();
        if self.way.is_exact(&self.conditions) || fields.is_empty() || is_best {
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
                Some(_) => "view",
                None if self.way.fields().is_empty() => "scan",
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

    /// All documents along the access path, in its order.
    fn documents<'s>(&self, snapshot: &'s Snapshot, is_reverse: bool) -> Result<InOrder<'s>> {
        let name = self.schema.name().to_owned();
        let Some(view) = &self.way.index.view else {
            let direction = if is_reverse { Direction::Reverse } else { Direction::Forward };
            let mut rows = snapshot.documents(&name).rows(self.way.span.clone(), direction)?;
            return Ok(Box::new(move || {
                let stored = rows.next()?;
                Ok(stored.map(|(_, stored)| Document::from_bytes(stored)).transpose()?)
            }));
        };
        let documents = snapshot.documents(&name);
        let view = documents.view(view).range(self.way.span.clone());
        let mut rows = if is_reverse { view.reverse() } else { view }.rows()?;
        Ok(Box::new(move || {
            let Some(row) = rows.next().transpose()? else { return Ok(None) };
            let document = snapshot.documents(&name).get(&row.document)?;
            document.map(Some).ok_or_else(|| {
                let shown = keys::listed(&row.document);
                Failure::data(
                    format!("{name} {shown} has a row and no document"),
                    "run `duramen check --deep`",
                )
            })
        }))
    }

    fn show(&self, snapshot: &Snapshot, args: &FindArgs, out: Output) -> Result<()> {
        let mut found = Found {
            documents: self.documents(snapshot, args.reverse)?,
            schema: self.schema,
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

/// The key, and the ready views whose rows are documents.
fn indices(snapshot: &Snapshot, schema: &Schema, document_count: u64) -> Result<Vec<Index>> {
    let documents = snapshot.documents(schema.name());
    let key = Index { view: None, fields: schema.key_columns().to_vec(), is_complete: true };
    let mut indices = vec![key];
    let mut names: Vec<&str> = schema.views().iter().map(ViewSpec::name).collect();
    names.dedup();
    for name in names {
        let view = documents.view(name);
        let spec = match view.spec() {
            Err(error) if error.kind() == ErrorKind::Expired => continue,
            spec => spec?,
        };
        if spec.is_each() || spec.code_version().is_some() {
            continue;
        }
        // A document has at most one row: if the counts are equal, every document has one.
        let is_complete = view.count()? == document_count;
        indices.push(Index { view: Some(name.to_owned()), fields: spec.key_fields().to_vec(), is_complete });
    }
    Ok(indices)
}

/// Documents in the order of the access path.
type InOrder<'a> = Box<dyn FnMut() -> Result<Option<Document>> + 'a>;

/// The documents along the access path that satisfy the conditions.
struct Found<'a> {
    documents: InOrder<'a>,
    schema: &'a Schema,
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
            let Some(document) = (self.documents)()? else { return Ok(None) };
            self.read_count += 1;
            if self.conditions.iter().all(|condition| condition.holds(self.schema, &document)) {
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
