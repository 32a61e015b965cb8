//! `duramen find`: documents by their fields, by the key or a fitting view, else by a full scan if that was
//! allowed.
//!
//! Prints the access path, which the library chooses. Reading more than [`READ_MAX`] documents needs
//! `--scan`.

mod groups;
mod hints;
mod joins;
mod paths;
mod proposals;
mod results;
mod text_numbers;

use duramen::find::{AccessPath, Condition, FindPlan, OrderBy, Sorting, Step};
use duramen::schema::{Column, ColumnType};
use duramen::{Document, Schema, Value, doc};
use duramen_proto::{key, v1};

use crate::args::{FindArgs, RangeFlags};
use crate::backend::{self, Reading};
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped};
use crate::output::{Output, new_table, printable};
use crate::read::ViewQuery;
use crate::signals::Signals;
use text_numbers::Warning;

/// The maximum number of documents read without `--scan`.
const READ_MAX: u64 = 100_000;

/// Documents between two checks for signals.
const LOOK_ROWS: u64 = 1024;

/// The same for several threads together, which start after each check.
const THREADS_LOOK_ROWS: u64 = 64 * 1024;

/// As many for each of them, at least: with fewer they would not start.
const THREAD_LOOK_ROWS_MIN: u64 = 4 * 1024;

/// How a query is run, and how it would be cheaper.
struct Planned {
    plan: FindPlan,
    /// Beyond this much memory a temporary file is used.
    memory_bytes: u64,
    /// The command that adds a view with which it would read only its results.
    suggestion: Option<String>,
    /// Other ways to the same answer.
    others: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &FindArgs, out: Output) -> Result<()> {
    if args.threads.is_some() && !args.count && !groups::are_wanted(args) {
        return Err(Failure::usage(
            "--threads is for counts and groups: one thread reads documents that are shown",
            "leave --threads out, or ask for --count, --group-by or an aggregate",
        ));
    }
    let db = Reading::open(&args.target.database)?;
    let stored = db.schema(&args.target.collection)?;
    let Asked { query, schema, warnings } = Asked::of(&db, &stored, args)?;
    let backend::Planned { plan, memory_bytes } = db.plan(&query)?;
    let suggestion = proposals::view_of_conditions(&stored, &plan, args);
    let others = proposals::others(&stored, &plan, args);
    let planned = Planned { plan, memory_bytes, suggestion, others };
    if args.explain {
        return explain(&schema, &planned, &warnings, args, out);
    }
    warnings.iter().for_each(|warning| warning.say(out));
    if planned.plan.path == AccessPath::Scan && query.joins.is_empty() {
        db.keep_few_pages()?;
    }
    if args.count {
        return count(&db, &query, &planned, args, out);
    }
    check_reads(&planned, args)?;
    if groups::are_wanted(args) {
        return groups::show(&db, &schema, &query, &planned.plan, args, out);
    }
    show(&db, &schema, &query, &planned, args, out)
}

/// The query that the arguments describe.
struct Asked {
    query: v1::Find,
    /// Of what it finds.
    schema: Schema,
    /// What is doubtful about it.
    warnings: Vec<Warning>,
}

impl Asked {
    fn of(db: &Reading, stored: &Schema, args: &FindArgs) -> Result<Asked> {
        // After `--view`, a word that is no condition is the start of the view's key.
        let is_prefix =
            |text: &&String| args.view.is_some() && *text != "(" && Condition::field_of(text).is_none();
        let prefix = args.conditions.first().filter(is_prefix);
        let written = &args.conditions[usize::from(prefix.is_some())..];
        let mut query = v1::Find {
            collection: stored.name().to_owned(),
            joins: joins::of(db, args)?,
            ..v1::Find::default()
        };
        let fields = db.schema_of(stored, &query)?;
        hints::check_fields(&fields, args)?;
        for (flag, lists) in [("--sum", &args.aggregates.sum), ("--mean", &args.aggregates.mean)] {
            lists.iter().flatten().try_for_each(|field| text_numbers::check_sum(db, stored, flag, field))?;
        }
        let warnings = warnings(db, stored, &fields, args, written)?;
        let from = |text: &str| {
            let at = written.iter().position(|word| word == text).unwrap_or(written.len());
            &written[at..]
        };
        Condition::parse_words(written, |text| hints::condition(&fields, text, from(text)))?;
        query.conditions = written.to_vec();
        query.reverse = args.reverse;
        query.threads = args.threads.map_or(0, u32::from);
        query.order_by = order(args)?;
        query.limit = args.limit;
        if groups::are_wanted(args) {
            query.grouping = Some(groups::grouping(&fields, args)?);
        } else {
            query.fields = args.fields.iter().flatten().cloned().collect();
        }
        if let Some(view) = &args.view {
            let range = RangeFlags { prefix: prefix.cloned(), ..RangeFlags::default() };
            let spec = db.view(stored, view)?;
            query.range = Some(key::of_span(ViewQuery::of(stored, &spec, &range)?.span));
            query.view.clone_from(view);
        }
        Ok(Asked { query, schema: fields, warnings })
    }
}

fn warnings(
    db: &Reading,
    stored: &Schema,
    fields: &Schema,
    args: &FindArgs,
    conditions: &[String],
) -> Result<Vec<Warning>> {
    let mut warnings = joins::warnings(db, stored, args)?;
    for text in conditions {
        warnings.extend(Warning::of(db, stored, text)?);
        warnings.extend(Warning::of_any_type(db, stored, text)?);
    }
    warnings.extend(Warning::of_flags(db, stored, fields, args)?);
    warnings.extend(paths::warnings(db, stored, args, conditions)?);
    Ok(warnings)
}

/// The order that was asked for.
fn order(args: &FindArgs) -> Result<Vec<String>> {
    let checked = |text: &String| match OrderBy::parse(text) {
        Ok(_) => Ok(text.clone()),
        Err(error) => Err(Failure::usage(error.message(), error.hint())),
    };
    args.order_by.iter().flatten().map(checked).collect()
}

fn check_reads(Planned { plan, suggestion, .. }: &Planned, args: &FindArgs) -> Result<()> {
    if plan.is_exact || plan.read_count <= READ_MAX || args.scan {
        return Ok(());
    }
    let message = format!(
        "this reads {} of {}, by {}; without --scan at most {} are read",
        grouped(plan.read_count),
        counted(plan.document_count, "document"),
        plan.path_shown(),
        grouped(READ_MAX)
    );
    let hint = match suggestion {
        Some(command) => format!("`{command}` makes it a search; or use --scan"),
        None => "use --scan to read them".to_owned(),
    };
    Err(Failure::data(message, hint))
}

fn explain(
    schema: &Schema,
    planned: &Planned,
    warnings: &[Warning],
    args: &FindArgs,
    out: Output,
) -> Result<()> {
    let (group_by, aggregates) = match groups::are_wanted(args) {
        true => groups::names(schema, args)?,
        false => (Vec::new(), Vec::new()),
    };
    let joins = [args.join.as_slice(), &args.left_join].concat();
    let Planned { plan, memory_bytes, suggestion, others } = planned;
    let (read_count, returned) = reads(plan, args);
    if out.is_json() {
        let fields = plan.path.fields().iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
        let way = match &plan.path {
            AccessPath::Key { .. } => "key",
            AccessPath::View { .. } => "view",
            AccessPath::ViewReductions { .. } => "reductions",
            AccessPath::Scan => "scan",
        };
        let fields = doc! {
            "collection": plan.collection.as_str(),
            "way": way,
            "view": plan.path.view(),
            "fields": fields,
            "reads": read_count,
            "documents": plan.document_count,
            "exact": plan.is_exact,
            "sort": sort_word(plan.sorting),
            "joins": joins.into_iter().map(Value::from).collect::<Vec<_>>(),
            "group_by": group_by.into_iter().map(Value::from).collect::<Vec<_>>(),
            "aggregates": aggregates.into_iter().map(Value::from).collect::<Vec<_>>(),
            "needs_scan": check_reads(planned, args).is_err(),
            "suggestion": suggestion.as_deref(),
            "warnings": warnings.iter().map(|warning| Value::from(warning.message.as_str())).collect::<Vec<_>>(),
        };
        return out.object("find_plan", fields);
    }
    let mut table = new_table(&["", ""]);
    table.add_row(["access path".to_owned(), printable(&plan.path_shown())]);
    let reads = format!("{} of {}", grouped(read_count), counted(plan.document_count, "document"));
    table.add_row(["reads".to_owned(), reads]);
    table.add_row(["returns", returned]);
    for join in joins {
        table.add_row(["joins".to_owned(), format!("{}, a get for each document", printable(&join))]);
    }
    if !aggregates.is_empty() {
        let by = if group_by.is_empty() { "all".to_owned() } else { printable(&group_by.join(", ")) };
        table.add_row(["groups".to_owned(), format!("by {by}: {}", printable(&aggregates.join(", ")))]);
        let bytes = memory_bytes / 1024;
        table.add_row(["memory".to_owned(), format!("up to {bytes} KiB, then a temporary file")]);
    }
    if plan.sorting != Sorting::None {
        table.add_row(["sort".to_owned(), plan.sorting.to_string()]);
    }
    if let Some(limit) = plan.limit {
        table.add_row(["limit".to_owned(), grouped(limit)]);
    }
    out.table(&table)?;
    warnings.iter().for_each(|warning| warning.say(out));
    if let Some(command) = suggestion {
        out.note(&format!("a view would help: {command}"));
    }
    others.iter().for_each(|other| out.note(other));
    Ok(())
}

/// How many documents are read, and what is returned of them. The tree counts what its ranges hold.
fn reads(plan: &FindPlan, args: &FindArgs) -> (u64, &'static str) {
    if matches!(plan.path, AccessPath::ViewReductions { .. }) {
        return (0, "the groups, from two paths of the view's tree for each");
    }
    match plan.is_exact {
        true if args.count => (0, "their number, which the tree keeps"),
        true => (plan.read_count, "all of them"),
        false => (plan.read_count, "those that satisfy the conditions"),
    }
}

fn sort_word(sorting: Sorting) -> &'static str {
    match sorting {
        Sorting::None | Sorting::AlongPath => "none",
        Sorting::First { .. } => "first",
        Sorting::All { .. } => "all",
    }
}

/// The columns that are shown: those asked for, else all.
fn columns(schema: &Schema, args: &FindArgs) -> Vec<Column> {
    let column = |name: &String| {
        let kind = schema.kind(name).unwrap_or(ColumnType::Any);
        Column { name: name.clone(), kind }
    };
    if args.fields.is_empty() {
        schema.columns().to_vec()
    } else {
        args.fields.iter().flatten().map(column).collect()
    }
}

/// Prints how many documents satisfy the conditions.
fn count(db: &Reading, query: &v1::Find, planned: &Planned, args: &FindArgs, out: Output) -> Result<()> {
    check_reads(planned, args)?;
    let plan = &planned.plan;
    // The tree counts what its ranges hold.
    let count = if plan.is_exact { plan.read_count } else { groups::count(db, query, out)? };
    if out.is_json() {
        return out.object("count", doc! { "collection": plan.collection.as_str(), "count": count });
    }
    out.line(&count.to_string())
}

fn show(
    db: &Reading,
    schema: &Schema,
    query: &v1::Find,
    planned: &Planned,
    args: &FindArgs,
    out: Output,
) -> Result<()> {
    let mut found = Found { documents: db.find(query)?, signals: Signals::watch()? };
    let limit = args.limit.unwrap_or(u64::MAX);
    let count =
        results::write(schema, &columns(schema, args), &mut || found.next(), limit, args.format, out)?;
    found.check_signal(count, out)?;
    let limited = if count == limit { ", the limit" } else { "" };
    let read_count = found.documents.read_count();
    out.note(&format!(
        "{}{limited}; {} read by {}",
        counted(count, "row"),
        counted(read_count, "document"),
        printable(&planned.plan.path_shown())
    ));
    if read_count > count.saturating_mul(100).max(1000)
        && let Some(command) = &planned.suggestion
    {
        out.note(&format!("a view would help: {command}"));
    }
    Ok(())
}

/// The documents that satisfy the conditions, until a signal comes.
struct Found {
    documents: backend::Found,
    signals: Signals,
}

impl Found {
    /// Fails if a signal ended the search after `count` documents.
    fn check_signal(&self, count: u64, out: Output) -> Result<()> {
        let Some(number) = self.signals.received() else { return Ok(()) };
        out.note(&format!("stopped by signal {number} after {}", counted(count, "row")));
        Err(Failure::signal(number))
    }

    fn next(&mut self) -> Result<Option<Document>> {
        loop {
            if self.signals.received().is_some() {
                return Ok(None);
            }
            let since_look = self.documents.read_count() % LOOK_ROWS;
            match self.documents.next_within(LOOK_ROWS - since_look)? {
                Step::Found(document) => return Ok(Some(document)),
                Step::Unfinished => {}
                Step::End => return Ok(None),
            }
        }
    }
}
