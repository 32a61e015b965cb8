//! Ids for rows without a natural key: whole numbers in the order of the input, in a column of their own.

use duramen::tuple::Element;
use duramen::{Schema, Value};

use crate::args::ImportArgs;
use crate::backend::Writing;
use crate::failure::{Failure, Result};

/// The ids of an import.
#[derive(Debug, Clone)]
pub(super) struct AssignedIds {
    pub(super) column: String,
    /// The next id.
    pub(super) next: u64,
}

impl AssignedIds {
    /// The ids that the arguments ask for, beginning after those of the stored documents.
    pub(super) fn of(
        args: &ImportArgs,
        target: Option<&Writing>,
        stored: Option<&Schema>,
    ) -> Result<Option<AssignedIds>> {
        let Some(column) = args.assign_id.clone() else { return Ok(None) };
        if args.replace && args.first_id.is_none() {
            return Err(Failure::usage(
                "--replace with --assign-id replaces nothing: every row gets a new id",
                "name the first id of the import to complete, which that import printed: --first-id ID",
            ));
        }
        let largest = match (target, stored) {
            (Some(target), Some(stored)) => largest(target, stored, &column)?,
            _ => 0,
        };
        let next = match args.first_id {
            Some(first) => first,
            None => largest.checked_add(1).ok_or_else(run_out)?,
        };
        Ok(Some(AssignedIds { column, next }))
    }

    /// Takes the next id.
    pub(super) fn take(&mut self) -> Result<u64> {
        let id = self.next;
        self.next = id.checked_add(1).ok_or_else(run_out)?;
        Ok(id)
    }

    /// The refusal of an input that has the column.
    pub(super) fn taken(&self, place: &str) -> Failure {
        let column = &self.column;
        Failure::data(
            format!("{place} has the column {column}, which --assign-id is to make"),
            format!("name another column, or use --key {column}"),
        )
    }
}

fn run_out() -> Failure {
    Failure::data("no id of 64 bits is left", "use --first-id, or another collection")
}

/// The largest id of a collection; 0 without documents.
fn largest(target: &Writing, stored: &Schema, column: &str) -> Result<u64> {
    if stored.is_typed() {
        return Err(Failure::data(
            format!("the ids of {} are assigned by a program", stored.name()),
            "import into a collection of its own, or give the rows their keys",
        ));
    }
    if stored.key_columns() != [column] {
        let key = stored.key_columns().join(",");
        return Err(Failure::usage(
            format!("{} has the key ({key}), and --assign-id names {column}", stored.name()),
            "name that column, or import into another collection",
        ));
    }
    let Some(last) = target.last(stored.name())? else { return Ok(0) };
    match last.get(column).and_then(Value::to_element) {
        Some(Element::Int(id)) => Ok(u64::try_from(id).unwrap_or(0)),
        _ => Err(Failure::usage(
            format!("the column {column} of {} holds other values than integers", stored.name()),
            "import into another collection, or give the rows their keys",
        )),
    }
}
