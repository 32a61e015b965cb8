//! Collections, between messages and the library.

use duramen::error::{Code, Error, Result};
use duramen::schema::{Column, ColumnType};
use duramen::{OnDelete, Reference, ReferenceState, Schema, ViewPhase};

use crate::v1;

/// The most columns of a message.
const COLUMNS_MAX: usize = 4_096;

/// The collection that a message asks for.
///
/// # Errors
/// `InvalidArgument` (E0201) for an unknown type; `TooLarge` (E0203) for too many columns.
pub fn asked(ensure: &v1::EnsureCollection) -> Result<Schema> {
    let columns = ensure.columns.len().max(ensure.key.len()).max(ensure.sums.len());
    if columns > COLUMNS_MAX {
        let what = format!("a collection of {columns} columns is asked for, and {COLUMNS_MAX} are taken");
        return Err(Error::new(Code::TooLarge, what)
            .with_hint("leave columns out: each gets its type from the first document that has it"));
    }
    let mut schema = Schema::new(&ensure.collection).key(&ensure.key).sum(&ensure.sums);
    if let Some(marker) = &ensure.null_marker {
        schema = schema.null_marker(marker);
    }
    let column = |v1::Column { name, r#type }: &v1::Column| {
        let kind = ColumnType::from_name(r#type).ok_or_else(|| {
            Error::invalid(format!("the column {name} has the type {type:?}"))
                .with_hint("the types are int, float, text, bool, time and any")
        })?;
        Ok(Column { name: name.clone(), kind })
    };
    Ok(schema.with_columns(ensure.columns.iter().map(column).collect::<Result<Vec<_>>>()?))
}

/// Asks for a collection with what documents without a Rust type need of it: no views, no references.
#[must_use]
pub fn ensure(schema: &Schema) -> v1::EnsureCollection {
    v1::EnsureCollection {
        collection: schema.name().to_owned(),
        key: schema.key_columns().to_vec(),
        columns: columns(schema),
        sums: schema.sum_columns().to_vec(),
        null_marker: schema.null().map(str::to_owned),
    }
}

/// The columns of a collection.
#[must_use]
pub fn columns(schema: &Schema) -> Vec<v1::Column> {
    let column = |column: &duramen::schema::Column| v1::Column {
        name: column.name.clone(),
        r#type: column.kind.name().to_owned(),
    };
    schema.columns().iter().map(column).collect()
}

/// The state of a reference as a message.
#[must_use]
pub fn of_reference(state: &ReferenceState) -> v1::ReferenceState {
    let (documents, of) = match state.phase {
        ViewPhase::Building { documents, of } => (documents, of),
        _ => (0, 0),
    };
    v1::ReferenceState {
        field: state.reference.field().to_owned(),
        to: state.reference.to().to_owned(),
        on_delete: state.reference.action().name().to_owned(),
        each: state.reference.is_each(),
        is_checked: state.is_checked(),
        documents,
        of,
        failed: state.failed.clone().unwrap_or_default(),
    }
}

/// The references of a collection from a message.
///
/// # Errors
/// `WrongVersion` (E1109) for what this release does not know.
pub fn references(collection: &v1::Collection) -> Result<Vec<ReferenceState>> {
    let state = |message: &v1::ReferenceState| {
        let action = OnDelete::from_name(&message.on_delete).ok_or_else(|| {
            Error::new(
                Code::WrongVersion,
                "the server's answer has a reference that this release does not know",
            )
            .with_hint("use a server and a client of the same release")
        })?;
        let reference = Reference::new(&message.field, &message.to).on_delete(action);
        let (documents, of) = (message.documents, message.of);
        Ok(ReferenceState {
            collection: collection.name.clone(),
            reference: if message.each { reference.each() } else { reference },
            phase: if message.is_checked { ViewPhase::Ready } else { ViewPhase::Building { documents, of } },
            failed: Some(message.failed.clone()).filter(|failed| !failed.is_empty()),
        })
    };
    collection.references.iter().map(state).collect()
}
