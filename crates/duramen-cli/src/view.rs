//! `duramen view`: adds, drops, rebuilds and lists views. They are catalogue data, so every writer keeps them
//! current.

use std::time::{Duration, Instant};

use duramen::schema::ColumnType;
use duramen::view::{KeyField, Progress, Reduce};
use duramen::{Code, Error, Schema, Value, ViewPhase, ViewSpec, ViewState, doc};
use indicatif::ProgressBar;

use crate::args::{ViewAddArgs, ViewArgs, ViewCommand, ViewListArgs, ViewNamedArgs};
use crate::backend::Writing;
use crate::database::candidates;
use crate::definitions::{Change, Listing, missing, phase_and_failure};
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped};
use crate::output::{Output, align_right, new_table, printable};
use crate::signals::Signals;

/// A command that takes longer shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &ViewArgs, out: Output) -> Result<()> {
    match &args.what {
        ViewCommand::Add(args) => add(args, out),
        ViewCommand::Drop(args) => drop_view(args, out),
        ViewCommand::Rebuild(args) => rebuild(args, out),
        ViewCommand::List(args) => list(args, out),
    }
}

fn add(args: &ViewAddArgs, out: Output) -> Result<()> {
    let change = Change::open(&args.target, args.durability)?;
    let Change { db, schema, level } = &change;
    let collection = schema.name();
    let spec = spec(args, schema)?;
    let is_known = schema.views().iter().any(|view| view.name() == spec.name());
    let added = db.add_view(schema, &spec, args.replace, *level);
    let (is_new, seq) = added.map_err(|failure| match failure.code() {
        Some(Code::AlreadyExists) => failure.hinted("use --replace, or choose another name"),
        _ => failure,
    })?;
    let built = build(db, collection, spec.name(), out);
    // Left behind, it would refuse every later write of a document that it cannot hold.
    let refused = matches!(&built, Err(Failure::Said(said)) if is_of_documents(said.code));
    if refused && is_new {
        db.drop_view(collection, spec.name(), true, *level)?;
        db.close()?;
        let effect = if is_known { "; the view is as it was" } else { "; the view was not added" };
        return built.map_err(|failure| failure.and(effect));
    }
    let rows = built.and_then(|()| db.rows_of(collection, spec.name()));
    db.close()?;
    let verb = if is_new { "added" } else { "had already" };
    done(&change, ("view_add", verb), spec.name(), Some(rows?), seq, out)
}

/// Whether an error of building a view is about a document, which fails again at each attempt.
pub(crate) fn is_of_documents(code: Code) -> bool {
    matches!(
        code,
        Code::UniqueViolation
            | Code::MissingTarget
            | Code::InvalidArgument
            | Code::KeyTooLong
            | Code::TooLarge
            | Code::Unreadable
    )
}

/// How many of the largest values `--top` keeps.
const TOP: usize = 5;

/// The requested view. Its fields must exist.
fn spec(args: &ViewAddArgs, schema: &Schema) -> Result<ViewSpec> {
    let mut values: Vec<String> = Vec::new();
    let mut reduce = Vec::new();
    type Of = fn(usize) -> Reduce;
    let kinds = [
        (&args.sum, Reduce::Sum as Of),
        (&args.min, Reduce::Min),
        (&args.max, Reduce::Max),
        (&args.top, |value| Reduce::TopK(value, TOP)),
        (&args.distinct, Reduce::Distinct),
        (&args.quantiles, Reduce::Quantiles),
    ];
    for (fields, of) in kinds {
        for field in fields.iter().flatten() {
            let at = values.iter().position(|known| known == field).unwrap_or_else(|| {
                values.push(field.clone());
                values.len() - 1
            });
            reduce.push(of(at));
        }
    }
    let key = args.key.iter().flatten().map(|text| key_field(schema, text)).collect::<Result<Vec<_>>>()?;
    if let Some(field) = values.iter().find(|field| !is_field(schema, field)) {
        return Err(unknown(schema, field));
    }
    let mut spec = ViewSpec::new(args.name.as_str(), key).values(values).reduce(reduce);
    if args.each {
        spec = spec.each();
    }
    if args.nulls {
        spec = spec.nulls();
    }
    Ok(if args.unique { spec.unique() } else { spec })
}

/// Whether documents may have a field. Those of typed collections may have fields that are not columns.
fn is_field(schema: &Schema, name: &str) -> bool {
    schema.is_typed() || schema.kind(name).is_some()
}

fn unknown(schema: &Schema, field: &str) -> Failure {
    let names: Vec<String> = schema.columns().iter().map(|column| column.name.clone()).collect();
    Failure::usage(format!("{} has no field {field}", schema.name()), candidates("fields", field, &names))
}

/// The element of a key that a text means: a column of that name, else a part of one; `:desc` turns it.
fn key_field(schema: &Schema, text: &str) -> Result<KeyField> {
    let (name, is_descending) = match text.rsplit_once(':') {
        Some((name, "desc")) if schema.kind(text).is_none() => (name, true),
        Some((name, "asc")) if schema.kind(text).is_none() => (name, false),
        _ => (text, false),
    };
    let part = name.find(['.', '[']).map(|end| &name[..end]).filter(|_| schema.kind(name).is_none());
    let field = match part.and_then(|field| Some((field, schema.kind(field)?))) {
        Some((_, ColumnType::Any | ColumnType::Unknown)) => KeyField::path(name),
        Some((field, kind)) => {
            let message = format!("{name}: the field {field} is of type {kind}, which has no parts");
            return Err(Failure::usage(message, format!("name the whole field: {field}")));
        }
        None if is_field(schema, name) => KeyField::field(name),
        None => return Err(unknown(schema, name)),
    };
    Ok(if is_descending { field.descending() } else { field })
}

/// Builds unfinished views, this one among them, and checks references, until a signal comes.
pub(crate) fn build(db: &Writing, collection: &str, view: &str, out: Output) -> Result<()> {
    let signals = Signals::watch()?;
    let begun = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let mut reached = None;
    let built = db.build_views(collection, view, &mut |progress: &Progress| {
        reached = Some(progress.clone());
        if out.shows_progress() && begun.elapsed() > PATIENCE {
            let bar = bar.get_or_insert_with(|| ProgressBar::new(progress.of));
            bar.set_position(progress.documents);
            bar.set_message(progress.view.clone());
        }
        match signals.received() {
            Some(_) => Err(Error::invalid("stopped by a signal")),
            None => Ok(()),
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match (built, signals.received(), reached) {
        (Err(_), Some(number), Some(progress)) => {
            out.note(&format!(
                "stopped by signal {number}: {} has {} of {}; it is built on whenever a program has the database open to write",
                printable(&progress.view),
                grouped(progress.documents),
                counted(progress.of, "document"),
            ));
            Err(Failure::signal(number))
        }
        (built, _, _) => built,
    }
}

fn drop_view(args: &ViewNamedArgs, out: Output) -> Result<()> {
    let change = Change::open(&args.target, args.durability)?;
    check_name(&change.schema, &args.name)?;
    let seq = change.db.drop_view(change.schema.name(), &args.name, false, change.level)?;
    change.db.close()?;
    done(&change, ("view_drop", "dropped"), &args.name, None, seq, out)
}

fn rebuild(args: &ViewNamedArgs, out: Output) -> Result<()> {
    let change = Change::open(&args.target, args.durability)?;
    let Change { db, schema, level } = &change;
    check_name(schema, &args.name)?;
    let seq = db.rebuild_view(schema.name(), &args.name, *level)?;
    let rows = build(db, schema.name(), &args.name, out).and_then(|()| db.rows_of(schema.name(), &args.name));
    db.close()?;
    done(&change, ("view_rebuild", "rebuilt"), &args.name, Some(rows?), seq, out)
}

/// Reports a change of a view: its kind in JSON, and the verb of the sentence.
fn done(
    change: &Change,
    (kind, verb): (&str, &str),
    view: &str,
    rows: Option<u64>,
    seq: u64,
    out: Output,
) -> Result<()> {
    let collection = change.schema.name();
    let fields = doc! { "collection": collection, "view": view, "rows": rows };
    let rows = rows.map_or_else(String::new, |rows| format!(" with {}", counted(rows, "row")));
    change.done(kind, &format!("{verb} the view {view} of {collection}{rows}"), fields, seq, out)
}

/// Refuses a name that no view of the collection has.
pub(crate) fn check_name(schema: &Schema, name: &str) -> Result<()> {
    if schema.views().iter().any(|view| view.name() == name) {
        return Ok(());
    }
    let names: Vec<String> = schema.views().iter().map(|view| view.name().to_owned()).collect();
    let adding = (Code::NoSuchTree, "NAME --key FIELD,...");
    Err(missing(schema, ("view", "view"), name, &names, adding))
}

fn list(args: &ViewListArgs, out: Output) -> Result<()> {
    let Listing { db, schemas } = &Listing::open(&args.database, args.collection.as_deref())?;
    let states = db.views(schemas)?;
    if out.is_json() {
        let all = states.iter().map(|(state, rows)| as_json(state, *rows)).collect::<Vec<_>>();
        return out.object("views", doc! { "views": all });
    }
    if states.is_empty() {
        out.note("no views: `duramen view add` makes one");
        return Ok(());
    }
    let mut table = new_table(&["collection", "view", "key", "reductions", "rows", "state"]);
    for (state, rows) in &states {
        let each = if state.view.is_each() { " (each)" } else { "" };
        let unique = if state.view.is_unique() { " (unique)" } else { "" };
        let nulls = if state.view.has_nulls() { " (nulls)" } else { "" };
        table.add_row([
            printable(&state.collection),
            printable(state.view.name()),
            printable(&format!("{}{each}{nulls}{unique}", key_shown(&state.view))),
            printable(&reductions_shown(&state.view)),
            rows.map_or_else(String::new, grouped),
            printable(&phase_shown(state)),
        ]);
    }
    align_right(&mut table, [4]);
    out.table(&table)
}

fn key_shown(view: &ViewSpec) -> String {
    match view.code_version() {
        Some(version) => format!("made by code, version {version}"),
        None => view.key_fields().iter().map(KeyField::to_string).collect::<Vec<_>>().join(","),
    }
}

fn reductions_shown(view: &ViewSpec) -> String {
    let field = |at: usize| view.value_fields().get(at).map_or("", String::as_str);
    let shown = view.reductions().iter().map(|reduce| format!("{} {}", reduce.name(), field(reduce.value())));
    shown.collect::<Vec<_>>().join(", ")
}

fn phase_shown(state: &ViewState) -> String {
    let phase = match state.phase {
        ViewPhase::Ready => "ready".to_owned(),
        ViewPhase::Building { documents, of } => {
            format!("building, {} of {}", grouped(documents), grouped(of))
        }
        ViewPhase::Behind { documents } => format!("waits for its code, {} behind", grouped(documents)),
        _ => "unknown".to_owned(),
    };
    phase_and_failure(phase, state.failed.as_ref())
}

/// A view as JSON.
pub(crate) fn as_json(state: &ViewState, rows: Option<u64>) -> Value {
    let view = &state.view;
    let names = |is_wanted: fn(&KeyField) -> bool| {
        let wanted = view.key_fields().iter().filter(|field| is_wanted(field));
        wanted.map(|field| Value::from(field.name())).collect::<Vec<_>>()
    };
    let reductions = view.reductions().iter().map(|reduce| {
        let field = view.value_fields().get(reduce.value()).map(String::as_str);
        Value::Map(doc! { "reduce": reduce.name(), "field": field })
    });
    let (phase, documents, of) = match state.phase {
        ViewPhase::Ready => ("ready", None, None),
        ViewPhase::Building { documents, of } => ("building", Some(documents), Some(of)),
        ViewPhase::Behind { documents } => ("behind", Some(documents), None),
        _ => ("unknown", None, None),
    };
    Value::Map(doc! {
        "collection": state.collection.as_str(),
        "name": view.name(),
        "key": names(|_| true),
        "paths": names(KeyField::is_path),
        "descending": names(KeyField::is_descending),
        "code_version": view.code_version().map(u64::from),
        "each": view.is_each(),
        "unique": view.is_unique(),
        "nulls": view.has_nulls(),
        "reductions": reductions.collect::<Vec<_>>(),
        "state": phase,
        "documents": documents,
        "of": of,
        "failed": state.failed.as_deref(),
        "rows": rows,
    })
}
