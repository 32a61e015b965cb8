//! `duramen collections`, `inspect` and `check`.

use std::path::Path;

use duramen::{CheckReport, Document, DocumentReport, Schema, Unreadable, Value, ViewSpec, doc};

use crate::args::{CheckArgs, DatabaseArgs};
use crate::backend::{Reading, figures};
use crate::database;
use crate::failure::{CORRUPT, Failure, Result, Said};
use crate::keys;
use crate::numbers::{bytes, counted, grouped};
use crate::output::{Output, align_right, new_table, printable, shell_word};
use crate::read::shown;
use crate::reference;
use crate::view;

/// Every collection with its rows, key, columns and sums.
pub(crate) fn collections(args: &DatabaseArgs, out: Output) -> Result<()> {
    let reading = Reading::open(args)?;
    let schemas = reading.collections()?;
    if out.is_json() {
        let only: Vec<Schema> = schemas.iter().map(|(schema, _)| schema.clone()).collect();
        let (views, references) = (reading.views(&only)?, reading.references(&only)?);
        let all = schemas.iter().map(|(schema, rows)| {
            let views = views.iter().filter(|(state, _)| state.collection == schema.name());
            let references = references.iter().filter(|state| state.collection == schema.name());
            let views = views.map(|(state, rows)| view::as_json(state, *rows)).collect::<Vec<_>>();
            let references = references.map(reference::as_json).collect::<Vec<_>>();
            as_json(schema, *rows, views, references)
        });
        return out.object("collections", doc! { "collections": all.collect::<Vec<_>>() });
    }
    if schemas.is_empty() {
        out.note("no collections: `duramen import` makes one");
        return Ok(());
    }
    let refers = schemas.iter().any(|(schema, _)| !schema.references().is_empty());
    let mut table = match refers {
        true => new_table(&["collection", "rows", "key", "sums", "views", "references", "columns"]),
        false => new_table(&["collection", "rows", "key", "sums", "views", "columns"]),
    };
    for (schema, count) in &schemas {
        let columns =
            schema.columns().iter().map(|column| format!("{} {}", printable(&column.name), column.kind));
        let mut cells = vec![
            schema.name().to_owned(),
            grouped(*count),
            printable(&schema.key_columns().join(",")),
            printable(&schema.sum_columns().join(",")),
            printable(&schema.views().iter().map(ViewSpec::name).collect::<Vec<_>>().join(", ")),
            columns.collect::<Vec<_>>().join(", "),
        ];
        if refers {
            let references = schema.references().iter().map(reference::shown).collect::<Vec<_>>();
            cells.insert(5, printable(&references.join(", ")));
        }
        table.add_row(cells);
    }
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(120);
    align_right(&mut table, [1]);
    out.table(&table)
}

fn as_json(schema: &Schema, rows: u64, views: Vec<Value>, references: Vec<Value>) -> Value {
    let texts = |names: &[String]| Value::List(names.iter().map(|name| Value::from(name.as_str())).collect());
    let columns = schema
        .columns()
        .iter()
        .map(|column| Value::Map(doc! { "name": column.name.as_str(), "type": column.kind.name() }))
        .collect::<Vec<_>>();
    let referred_by = schema
        .referred_by()
        .iter()
        .map(|by| Value::Map(doc! { "collection": by.collection.as_str(), "field": by.field.as_str() }));
    Value::Map(doc! {
        "name": schema.name(), "rows": rows, "key": texts(schema.key_columns()),
        "sums": texts(schema.sum_columns()), "null": schema.null(), "columns": columns,
        "views": views,
        "references": references,
        "referred_by": referred_by.collect::<Vec<_>>(),
    })
}

/// Prints what the database consists of, and how durable it is.
pub(crate) fn inspect(args: &DatabaseArgs, out: Output) -> Result<()> {
    let (mut facts, stats) = Reading::open(args)?.facts()?;
    if out.is_json() {
        stats.iter().for_each(|stats| figures::add_to(&mut facts, stats));
        return out.object("inspect", facts);
    }
    show(&facts, stats.iter().flat_map(figures::as_text), out)
}

/// A table of names and values, and of more of them.
pub(crate) fn show(
    facts: &Document,
    more: impl IntoIterator<Item = (String, String)>,
    out: Output,
) -> Result<()> {
    let mut table = new_table(&["", ""]);
    flatten("", facts, &mut |name, value| {
        table.add_row([printable(name), printable(value)]);
    });
    for (name, value) in more {
        table.add_row([name, value]);
    }
    out.table(&table)
}

pub(crate) fn file_bytes(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|metadata| metadata.len())
}

pub(crate) fn directory_bytes(path: &Path) -> Option<u64> {
    let entries = path.read_dir().ok()?;
    Some(entries.flatten().filter_map(|entry| file_bytes(&entry.path())).sum())
}

/// Fields whose subfields are names given by users.
const OF_USERS: [&str; 3] = ["collections", "views", "byte trees"];

/// Calls `each` with each leaf, named by its path. Sizes get units.
fn flatten(path: &str, document: &Document, each: &mut impl FnMut(&str, &str)) {
    let is_users = OF_USERS.iter().any(|own| path.starts_with(own));
    for (name, value) in document.iter() {
        let shown_name = if is_users { name.to_owned() } else { name.replace('_', " ") };
        let path = if path.is_empty() { shown_name } else { format!("{path}: {shown_name}") };
        match value {
            Value::Map(inner) => flatten(&path, inner, each),
            Value::Int(count) if !is_users && name.contains("bytes") && *count >= 0 => {
                each(&path, &bytes(u64::try_from(*count).unwrap_or(u64::MAX)));
            }
            Value::Int(count) => each(&path, &grouped(*count)),
            other => each(&path, &shown(other)),
        }
    }
}

/// Verifies pages, and documents if requested or if corruption was found. Exit code 3 for corruption.
pub(crate) fn check(args: &CheckArgs, out: Output) -> Result<()> {
    let Checked { pages, documents, torn } = read_all(args).map_err(|failure| cannot_check(failure, args))?;
    // Unreadable documents are on bad pages, which were counted already.
    let found = |documents: &DocumentReport| {
        (pages.problem_count + documents.problem_count).max(documents.unreadable_count)
    };
    let problem_count = documents.as_ref().map_or(pages.problem_count, found);
    if out.is_json() {
        out.object("check", checked(&pages, documents.as_ref(), torn, problem_count))?;
    } else {
        let of_documents = documents.iter().flat_map(|documents| &documents.problems);
        for problem in pages.problems.iter().chain(of_documents) {
            out.line(&printable(problem))?;
        }
        for unreadable in documents.iter().flat_map(|documents| &documents.unreadable) {
            out.line(&printable(&stretch(unreadable)))?;
        }
        let unlisted = documents.as_ref().map_or(0, |documents| {
            documents.unreadable_count.saturating_sub(documents.unreadable.len() as u64)
        });
        if unlisted > 0 {
            out.line(&format!("{} more cannot be read, and are not listed", counted(unlisted, "range")))?;
        }
        tell_dangling(documents.as_ref(), out)?;
        out.line(&summary(&pages, documents.as_ref()))?;
        if pages.superblocks < 2 {
            out.line("one of the two superblocks cannot be read; the next checkpoint writes it anew")?;
        }
    }
    if torn && !out.is_json() {
        out.line(TORN)?;
    }
    if problem_count == 0 {
        return if torn || out.is_json() { Ok(()) } else { out.line("nothing is wrong") };
    }
    out.note(&format!(
        "{} found; restore a backup, or `duramen repair {} NEW` for what can still be read",
        counted(problem_count, "problem"),
        shell_word(&args.database.db.display().to_string()),
    ));
    Err(Failure::Exit(CORRUPT))
}

/// Prints the documents that refer to nothing, by references that were added to them or that a repair kept.
fn tell_dangling(documents: Option<&DocumentReport>, out: Output) -> Result<()> {
    let Some(documents) = documents.filter(|documents| documents.dangling_count > 0) else { return Ok(()) };
    for dangling in &documents.dangling {
        out.line(&printable(dangling))?;
    }
    out.line(&format!(
        "{} that a reference leads nowhere in: put what is missing, or change or delete them; `duramen reference list` \
         has the references that are not complete",
        counted(documents.dangling_count, "document")
    ))
}

/// What an unfinished write at the end of the log may mean.
pub(crate) const TORN: &str = "the log ends in an unfinished write. A crash leaves one, and loses no commit that was acknowledged on disk. Corruption \
     of the newest commits looks the same: docs/durability.md, D5";

/// What a check has read.
struct Checked {
    pages: CheckReport,
    documents: Option<DocumentReport>,
    /// The log ends in an unfinished write.
    torn: bool,
}

fn read_all(args: &CheckArgs) -> Result<Checked> {
    let db = database::open_to_read(&args.database)?;
    let pages = db.check()?;
    let is_deep = args.deep || pages.problem_count > 0;
    let documents = if is_deep { Some(db.check_documents()?) } else { None };
    Ok(Checked { pages, documents, torn: db.stats().recovery.torn })
}

/// Corruption in the way of the check itself: another check would fail the same way.
fn cannot_check(failure: Failure, args: &CheckArgs) -> Failure {
    let advises_check = |said: &Said| said.hint.contains("`duramen check DB`");
    match &failure {
        Failure::Said(said) if said.exit == CORRUPT && advises_check(said) => failure.hinted(format!(
            "the database cannot be opened, so that what is lost cannot be listed; restore a backup, or `duramen repair {} NEW`, which lists it",
            shell_word(&args.database.db.display().to_string())
        )),
        _ => failure,
    }
}

fn checked(
    pages: &CheckReport,
    documents: Option<&DocumentReport>,
    torn: bool,
    problem_count: u64,
) -> Document {
    let of_documents = documents.into_iter().flat_map(|documents| &documents.problems);
    let problems = pages.problems.iter().chain(of_documents);
    let dangling = documents.into_iter().flat_map(|documents| &documents.dangling);
    let dangling = dangling.map(|dangling| Value::from(dangling.as_str()));
    let unreadable = documents.into_iter().flat_map(|documents| &documents.unreadable).map(|stretch| {
        Value::Map(doc! {
            "collection": stretch.collection.as_str(),
            "after": stretch.after.as_deref().map(keys::listed),
            "before": stretch.before.as_deref().map(keys::listed),
            "documents": stretch.documents,
            "why": stretch.why.as_str(),
        })
    });
    doc! {
        "ok": problem_count == 0,
        "seq": pages.seq.0,
        "trees": pages.trees,
        "entries": pages.entries,
        "pages": pages.pages,
        "big_values": pages.big_values,
        "reductions": pages.reductions,
        "log_commits": pages.log_commits,
        "log_torn": torn,
        "superblocks": pages.superblocks,
        "deep": documents.is_some(),
        "documents": documents.map(|documents| documents.documents),
        "dangling_count": documents.map(|documents| documents.dangling_count),
        "dangling": dangling.collect::<Vec<_>>(),
        "lost_extents": pages.unreached.len() as u64,
        "problem_count": problem_count,
        "problems": problems.map(|problem| Value::from(problem.as_str())).collect::<Vec<_>>(),
        "unreadable": unreadable.collect::<Vec<_>>(),
        "unreadable_count": documents.map(|documents| documents.unreadable_count),
    }
}

/// An unreadable range, by the keys around it.
fn stretch(unreadable: &Unreadable) -> String {
    let after = unreadable.after.as_deref().map_or("the start".to_owned(), keys::listed);
    let before = unreadable.before.as_deref().map_or("the end".to_owned(), keys::listed);
    let name = &unreadable.collection;
    let documents = match unreadable.documents {
        Some(documents) => format!(" ({})", counted(documents, "document")),
        None => String::new(),
    };
    format!("{name}: what is between {after} and {before} cannot be read{documents}: {}", unreadable.why)
}

/// What was checked, in one sentence.
fn summary(pages: &CheckReport, documents: Option<&DocumentReport>) -> String {
    let documents = match documents {
        None => "documents as they lie (--deep looks into each)".to_owned(),
        Some(documents) => {
            let in_part = if documents.unreadable_count == 0 { "" } else { " that can be read" };
            format!("{}{in_part}", counted(documents.documents, "document"))
        }
    };
    format!(
        "checked seq {}: {}, {}, {}, {}, {}, {} of the log, {documents}",
        pages.seq,
        counted(pages.trees, "tree"),
        counted(pages.entries, "entry"),
        counted(pages.pages, "page"),
        counted(pages.big_values, "big value"),
        counted(pages.reductions, "reduction"),
        counted(pages.log_commits, "commit"),
    )
}
