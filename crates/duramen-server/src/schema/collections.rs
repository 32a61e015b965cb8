//! Collections as messages.

use duramen::error::{Code, Error, Result};
use duramen::view::KeyField;
use duramen::wire;
use duramen::{LocalReads, Schema, Snapshot};
use duramen_proto::{collection, v1};
use prost::Message as _;

use crate::auth::{Caller, Named, Right};
use crate::data::Room;

/// The collections of these names.
pub(super) fn all(snapshot: &Snapshot, names: &[String], room: &mut Room<'_>) -> Result<Vec<v1::Collection>> {
    let mut fits = |found: v1::Collection| room.take(found.encoded_len()).map(|()| found);
    names.iter().map(|name| fits(named(snapshot, name)?)).collect()
}

fn named(snapshot: &Snapshot, name: &str) -> Result<v1::Collection> {
    match snapshot.documents(name).schema() {
        Ok(schema) => message(snapshot, &schema),
        Err(error) if error.code() == Code::NoSuchTree => {
            let names: Vec<String> =
                snapshot.collections()?.iter().map(|schema| schema.name().to_owned()).collect();
            let hint = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            Err(Error::new(Code::NoSuchTree, error.message()).with_hint(format!("there is: {hint}")))
        }
        Err(error) => Err(error),
    }
}

/// Takes out why references do not hold, which names keys, unless the caller may read the collection.
///
/// # Errors
/// `Unauthenticated` (E1101).
pub(super) fn hide_keys(found: &mut v1::Collection, caller: &Caller) -> Result<()> {
    if !caller.has(Right::Reader, Some((Named::Collection, &found.name)))? {
        found.references.iter_mut().for_each(|reference| reference.failed.clear());
    }
    Ok(())
}

/// A collection as a message.
pub(super) fn message<S: LocalReads>(state: &S, schema: &Schema) -> Result<v1::Collection> {
    let views = schema.views().iter().map(|view| v1::View {
        name: view.name().to_owned(),
        key: view.key_fields().iter().map(KeyField::name).map(str::to_owned).collect(),
    });
    let references = state.documents(schema.name()).references()?;
    let definition = schema.to_bytes()?;
    Ok(v1::Collection {
        name: schema.name().to_owned(),
        key: schema.key_columns().to_vec(),
        columns: collection::columns(schema),
        sums: schema.sum_columns().to_vec(),
        views: views.collect(),
        mark: wire::mark_of(&definition).to_vec().into(),
        definition: definition.into(),
        references: references.iter().map(collection::of_reference).collect(),
    })
}
