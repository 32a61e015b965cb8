//! `duramen reference`: adds, drops and lists references between collections. They are catalogue data, so
//! every writer keeps them.

use duramen::{Code, Error, Reference, ReferenceState, Schema, Value, ViewPhase, doc};

use crate::args::{ReferenceAddArgs, ReferenceArgs, ReferenceCommand, ReferenceDropArgs, ReferenceListArgs};
use crate::backend::Reading;
use crate::database::candidates;
use crate::definitions::{Change, missing, phase_and_failure};
use crate::failure::{Failure, Result};
use crate::numbers::grouped;
use crate::output::{Output, new_table, printable};
use crate::view;

/// Runs the command.
pub(crate) fn run(args: &ReferenceArgs, out: Output) -> Result<()> {
    match &args.what {
        ReferenceCommand::Add(args) => add(args, out),
        ReferenceCommand::Drop(args) => drop_reference(args, out),
        ReferenceCommand::List(args) => list(args, out),
    }
}

fn add(args: &ReferenceAddArgs, out: Output) -> Result<()> {
    let change = Change::open_local(&args.target, args.durability)?;
    let (db, schema) = (change.opened(), &change.schema);
    let to = change.db.schema(&args.to)?;
    let reference = reference(args, schema, &to)?;
    let known = schema.references().iter().find(|known| known.field() == reference.field());
    let (is_new, receipt) = db.transact_with_receipt(|tx| {
        let is_new = tx.add_reference(schema.name(), &reference)?;
        if is_new && known.is_some() && !args.replace {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("{} has a reference of {} with other terms", schema.name(), reference.field()),
            )
            .with_hint("use --replace, or drop it first"));
        }
        Ok(is_new)
    })?;
    let checked = view::build(&change.db, schema.name(), "", out);
    let refused = matches!(&checked, Err(Failure::Said(said)) if view::is_of_documents(said.code));
    if refused && is_new {
        db.transact(|tx| {
            tx.drop_reference(schema.name(), reference.field())?;
            known.map_or(Ok(false), |known| tx.add_reference(schema.name(), known)).map(drop)
        })?;
        // Putting the earlier reference back began its check anew.
        let effect = match known {
            None => "; the reference was not added",
            Some(_) if view::build(&change.db, schema.name(), "", out).is_ok() => {
                "; the reference is as it was"
            }
            Some(_) => "; the earlier reference is back, and not every document is checked",
        };
        db.close()?;
        return checked.map_err(|failure| failure.and(effect).hinted(repair_hint(args, schema)));
    }
    db.close()?;
    checked?;
    let verb = if is_new { "added" } else { "had already" };
    done(&change, ("reference_add", verb), &reference, receipt.seq().0, out)
}

/// How to find and change the documents that break the reference.
fn repair_hint(args: &ReferenceAddArgs, schema: &Schema) -> String {
    format!(
        "put what is missing in {}, or change {} of these documents (`duramen put`) or delete them \
         (`duramen del DB -c {} --key KEY`); then run this command again",
        args.to,
        args.field,
        schema.name()
    )
}

/// The requested reference. Its field must exist.
fn reference(args: &ReferenceAddArgs, schema: &Schema, to: &Schema) -> Result<Reference> {
    // Documents of typed collections may have fields that are not columns.
    if !schema.is_typed() && schema.kind(&args.field).is_none() {
        let names: Vec<String> = schema.columns().iter().map(|column| column.name.clone()).collect();
        let message = format!("{} has no field {}", schema.name(), args.field);
        return Err(Failure::usage(message, candidates("fields", &args.field, &names)));
    }
    let reference = Reference::new(args.field.as_str(), to.name()).on_delete(args.on_delete.into());
    Ok(if args.each { reference.each() } else { reference })
}

fn drop_reference(args: &ReferenceDropArgs, out: Output) -> Result<()> {
    let change = Change::open_local(&args.target, args.durability)?;
    let (db, schema) = (change.opened(), &change.schema);
    let Some(known) = schema.references().iter().find(|known| known.field() == args.field) else {
        let names: Vec<String> = schema.references().iter().map(|known| known.field().to_owned()).collect();
        let adding = (Code::NoSuchKey, "FIELD COLLECTION");
        return Err(missing(schema, ("reference", "reference of"), &args.field, &names, adding));
    };
    let (_, receipt) = db.transact_with_receipt(|tx| tx.drop_reference(schema.name(), &args.field))?;
    db.close()?;
    done(&change, ("reference_drop", "dropped"), known, receipt.seq().0, out)
}

/// Reports a change of a reference: its kind in JSON, and the verb of the sentence.
fn done(
    change: &Change,
    (kind, verb): (&str, &str),
    reference: &Reference,
    seq: u64,
    out: Output,
) -> Result<()> {
    let collection = change.schema.name();
    let fields = doc! {
        "collection": collection, "field": reference.field(), "to": reference.to(),
        "on_delete": reference.action().name(), "each": reference.is_each(),
    };
    let sentence = format!("{verb} the reference {collection}.{}", shown(reference));
    change.done(kind, &sentence, fields, seq, out)
}

/// A reference in one line.
pub(crate) fn shown(reference: &Reference) -> String {
    let each = if reference.is_each() { " (each)" } else { "" };
    format!("{}{each} to {} ({})", reference.field(), reference.to(), reference.action().name())
}

fn list(args: &ReferenceListArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.database)?;
    let states = reading.references(&reading.schemas(args.collection.as_deref())?)?;
    if out.is_json() {
        return out
            .object("references", doc! { "references": states.iter().map(as_json).collect::<Vec<_>>() });
    }
    if states.is_empty() {
        out.note("no references: `duramen reference add` makes one");
        return Ok(());
    }
    let mut table = new_table(&["collection", "field", "to", "on delete", "state"]);
    for state in &states {
        let reference = &state.reference;
        let each = if reference.is_each() { " (each)" } else { "" };
        table.add_row([
            printable(&state.collection),
            printable(&format!("{}{each}", reference.field())),
            printable(reference.to()),
            reference.action().name().to_owned(),
            printable(&phase_shown(state)),
        ]);
    }
    out.table(&table)
}

fn phase_shown(state: &ReferenceState) -> String {
    let phase = match state.phase {
        ViewPhase::Building { documents, of } => format!("{} of {} checked", grouped(documents), grouped(of)),
        _ => "checked".to_owned(),
    };
    phase_and_failure(phase, state.failed.as_ref())
}

/// A reference as JSON.
pub(crate) fn as_json(state: &ReferenceState) -> Value {
    let (phase, documents, of) = match state.phase {
        ViewPhase::Building { documents, of } => ("checking", Some(documents), Some(of)),
        _ => ("checked", None, None),
    };
    Value::Map(doc! {
        "collection": state.collection.as_str(),
        "field": state.reference.field(),
        "to": state.reference.to(),
        "on_delete": state.reference.action().name(),
        "each": state.reference.is_each(),
        "state": phase,
        "documents": documents,
        "of": of,
        "failed": state.failed.as_deref(),
    })
}
