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

use duramen::find::{AccessPath, Condition, Find, FindIter, FindPlan, OrderBy, Sorting, Step};
use duramen::schema::{Column, ColumnType};
use duramen::{Document, Reads, Schema, Snapshot, Value, doc};

use crate::args::{FindArgs, RangeFlags};
use crate::database;
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped};
use crate::output::{Output, new_table, printable};
use crate::read::ViewQuery;
use crate::signals::Signals;
use crate::view;
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
    let db = database::open_to_read(&args.target.database)?;
    let snapshot = db.snapshot()?;
    let stored = database::schema(&snapshot, &args.target.collection)?;
    let (find, warnings) = find(&snapshot, &stored, args)?;
    let schema = find.schema()?;
    let plan = match groups::are_wanted(args) {
        true => groups::plan(&schema, &find, args)?,
        false => find.plan()?,
    };
    let suggestion = proposals::view_of_conditions(&stored, &plan, args);
    let others = proposals::others(&stored, &plan, args);
    let planned = Planned { plan, suggestion, others };
    if args.explain {
        return explain(&schema, &planned, &warnings, args, out);
    }
    warnings.iter().for_each(|warning| warning.say(out));
    if planned.plan.path == AccessPath::Scan && args.join.is_empty() && args.left_join.is_empty() {
        db.keep_few_pages()?;
    }
    if args.count {
        return count(&find, &planned, args, out);
    }
    check_reads(&planned, args)?;
    if groups::are_wanted(args) {
        return groups::show(&schema, &find, &planned.plan, args, out);
    }
    show(&schema, &find, &planned, args, out)
}

/// The query that the arguments describe, and what is doubtful about it.
fn find<'a>(snapshot: &'a Snapshot, schema: &'a Schema, args: &FindArgs) -> Result<(Find<'a>, Vec<Warning>)> {
    // After `--view`, a word that is no condition is the start of the view's key.
    let is_prefix =
        |text: &&String| args.view.is_some() && *text != "(" && Condition::field_of(text).is_none();
    let prefix = args.conditions.first().filter(is_prefix);
    let written = &args.conditions[usize::from(prefix.is_some())..];
    let words = written.iter();
    let find = joins::joined(snapshot, snapshot.documents(schema.name()).find([]), args)?;
    let fields = find.schema()?;
    hints::check_fields(&fields, args)?;
    for (flag, lists) in [("--sum", &args.aggregates.sum), ("--mean", &args.aggregates.mean)] {
        lists
            .iter()
            .flatten()
            .try_for_each(|field| text_numbers::check_sum(snapshot, schema, flag, field))?;
    }
    let mut warnings = joins::warnings(snapshot, schema, args)?;
    for text in words.clone() {
        warnings.extend(Warning::of(snapshot, schema, text)?);
        warnings.extend(Warning::of_any_type(snapshot, schema, text)?);
    }
    warnings.extend(Warning::of_flags(snapshot, schema, &fields, args)?);
    warnings.extend(paths::warnings(snapshot, schema, args, words.clone())?);
    let from = |text: &str| {
        let at = written.iter().position(|word| word == text).unwrap_or(written.len());
        &written[at..]
    };
    let find = find.and(Condition::parse_words(words, |text| hints::condition(&fields, text, from(text)))?);
    let find = if args.reverse { find.reverse() } else { find };
    let find = args.threads.map_or_else(|| find.clone(), |threads| find.threads(threads.into()));
    let find = match groups::are_wanted(args) {
        // The order and the limit are those of the groups.
        true => find,
        false => {
            let find = find.order_by(order(args)?);
            let find = args.limit.map_or_else(|| find.clone(), |limit| find.limit(limit));
            if args.fields.is_empty() { find } else { find.fields(args.fields.iter().flatten()) }
        }
    };
    let Some(view) = &args.view else { return Ok((find, warnings)) };
    let range = RangeFlags { prefix: prefix.cloned(), ..RangeFlags::default() };
    view::check_name(schema, view)?;
    let spec = snapshot.documents(schema.name()).view(view).spec()?;
    let query = ViewQuery::of(schema, &spec, &range)?;
    Ok((find.view(view).range(query.span), warnings))
}

/// The order that was asked for.
fn order(args: &FindArgs) -> Result<Vec<OrderBy>> {
    let order =
        args.order_by.iter().flatten().map(|text| OrderBy::parse(text)).collect::<duramen::Result<Vec<_>>>();
    order.map_err(|error| Failure::usage(error.message(), error.hint()))
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
    let Planned { plan, suggestion, others } = planned;
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
        let bytes = duramen::find::SORT_BYTES_DEFAULT / 1024;
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
fn count(find: &Find<'_>, planned: &Planned, args: &FindArgs, out: Output) -> Result<()> {
    check_reads(planned, args)?;
    let plan = &planned.plan;
    let count = if plan.is_exact { find.count()? } else { groups::count(find, out)? };
    if out.is_json() {
        return out.object("count", doc! { "collection": plan.collection.as_str(), "count": count });
    }
    out.line(&count.to_string())
}

fn show(schema: &Schema, find: &Find<'_>, planned: &Planned, args: &FindArgs, out: Output) -> Result<()> {
    let mut found = Found { documents: find.iter()?, signals: Signals::watch()? };
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
struct Found<'a> {
    documents: FindIter<'a>,
    signals: Signals,
}

impl Found<'_> {
    /// Fails if a signal ended the search after `count` documents.
    fn check_signal(&self, count: u64, out: Output) -> Result<()> {
        let Some(number) = self.signals.received() else { return Ok(()) };
        out.note(&format!("stopped by signal {number} after {}", counted(count, "row")));
        Err(Failure::signal(number))
    }

    fn next(&mut self) -> Result<Option<Document>> {
        loop {
            let since_look = self.documents.read_count() % LOOK_ROWS;
            if since_look == 0 && self.signals.received().is_some() {
                return Ok(None);
            }
            match self.documents.next_within(LOOK_ROWS - since_look)? {
                Step::Found(document) => return Ok(Some(document)),
                Step::Unfinished => {}
                Step::End => return Ok(None),
            }
        }
    }
}
