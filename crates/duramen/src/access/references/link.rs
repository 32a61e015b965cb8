//! References as the catalogue keeps them: at the collection that refers, and at the one referred to.

use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::catalog::entries::{self, Entry};
use crate::catalog::reference::{Reference, Referrer};
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Code, Error, Result};

/// Makes the catalogue entries of other collections fit the changed references of one.
///
/// # Errors
/// `NoSuchTree`, `InvalidArgument` for a reference that cannot be.
pub(crate) fn link(tx: &Transaction<'_>, entry: &Entry, schema: &mut Schema) -> Result<()> {
    if !entry.schema.refers() && !schema.refers() {
        return Ok(());
    }
    let own = schema.name().to_owned();
    for reference in schema.references().to_vec() {
        if entry.schema.references().iter().any(|known| known.generation == reference.generation) {
            continue;
        }
        let Target { elements, kind } = check_target(tx, schema, &reference)?;
        // Tools convert values to the type of their column: the reference then finds the key they mean.
        if let Some(kind) = kind.filter(|_| is_untyped(schema, &reference)) {
            schema.set_column(reference.field(), kind);
        }
        let is_this = |known: &&mut Reference| known.generation == reference.generation;
        schema.references_mut().filter(is_this).for_each(|known| known.elements = elements);
        if reference.to() == own {
            schema.add_referrer(&own, reference.field());
        } else {
            let target = tx.entry(reference.to())?;
            let mut changed = target.schema.clone();
            if changed.add_referrer(&own, reference.field()) {
                tx.grow(&target, changed)?;
            }
        }
    }
    for known in entry.schema.references() {
        let is_kept = |left: &Reference| left.field() == known.field() && left.to() == known.to();
        if !schema.references().iter().any(is_kept) {
            unlink(tx, schema, known)?;
        }
        let has_rows = schema.references().iter().any(|left| left.generation == known.generation);
        // A new version has dropped all views already.
        if !has_rows && schema.version() == entry.schema.version() {
            entries::drop_view(tx.shared(), &own, &known.view())?;
        }
    }
    Ok(())
}

/// Removes a reference of `schema` from the entry of the collection that it names.
fn unlink(tx: &Transaction<'_>, schema: &mut Schema, reference: &Reference) -> Result<()> {
    let own = schema.name().to_owned();
    if reference.to() == own {
        schema.remove_referrer(&own, reference.field());
        return Ok(());
    }
    let Some(target) = tx.find(reference.to())? else { return Ok(()) };
    let mut changed = target.schema.clone();
    if changed.remove_referrer(&own, reference.field()) {
        tx.grow(&target, changed)?;
    }
    Ok(())
}

/// The key of the collection that a reference names.
pub(crate) struct Target {
    /// How many elements it has.
    elements: usize,
    /// The type of the only one, if it is known.
    kind: Option<ColumnType>,
}

/// Whether a field of one key has no type yet, and no type of Rust that would give it one.
fn is_untyped(schema: &Schema, reference: &Reference) -> bool {
    let kind = schema.kind(reference.field()).unwrap_or_default();
    kind == ColumnType::Unknown && !reference.is_each() && !schema.is_typed()
}

/// Checks that a reference can name its collection. Returns what a key of that is.
///
/// # Errors
/// `NoSuchTree`; `InvalidArgument` for a field of another type than the key.
pub(crate) fn check_target(tx: &Transaction<'_>, schema: &Schema, reference: &Reference) -> Result<Target> {
    let entry;
    let target = if reference.to() == schema.name() {
        schema
    } else {
        entry = tx.entry(reference.to()).map_err(|error| match error.code() {
            Code::NoSuchTree => Error::new(
                Code::NoSuchTree,
                format!(
                    "{}.{} refers to {}, and there is no such collection",
                    schema.name(),
                    reference.field(),
                    reference.to()
                ),
            )
            .with_hint("create it first"),
            _ => error,
        })?;
        &entry.schema
    };
    let key = target.key_columns();
    let kind = |schema: &Schema, column: &str| {
        let kind = schema.kind(column).unwrap_or_default();
        (!matches!(kind, ColumnType::Any | ColumnType::Unknown)).then_some(kind)
    };
    let own = kind(schema, reference.field()).filter(|_| !reference.is_each());
    let (field, own_name, target_name) = (reference.field(), schema.name(), target.name());
    let unfit = match (own, key) {
        (Some(own), [column]) => kind(target, column)
            .filter(|theirs| own != *theirs)
            .map(|theirs| format!("holds {own}, and the key of {target_name} is {theirs}")),
        (Some(own), _) => {
            Some(format!("holds one {own}, and a key of {target_name} has {} elements", key.len()))
        }
        (None, _) => None,
    };
    if let Some(unfit) = unfit {
        return Err(Error::invalid(format!("the field {field} of {own_name} {unfit}"))
            .with_hint(format!("refer to a collection by its whole key: ({})", key.join(", "))));
    }
    let of_one = if let [column] = key { kind(target, column) } else { None };
    Ok(Target { elements: key.len(), kind: of_one })
}

/// Removes the references of a collection that is about to be dropped.
///
/// # Errors
/// `StillReferenced` if another collection refers to it.
pub(crate) fn unlink_dropped(tx: &Transaction<'_>, collection: &str) -> Result<()> {
    let Some(entry) = tx.find(collection)? else { return Ok(()) };
    let others: Vec<&Referrer> =
        entry.schema.referred_by().iter().filter(|referrer| referrer.collection != collection).collect();
    let Some(Referrer { collection: first, field }) = others.first() else {
        let mut schema = entry.schema.clone();
        let linked = entry.schema.references().iter().try_for_each(|known| unlink(tx, &mut schema, known));
        return tx.all_or_nothing(linked);
    };
    let named: Vec<String> =
        others.iter().map(|referrer| format!("{}.{}", referrer.collection, referrer.field)).collect();
    Err(Error::new(
        Code::StillReferenced,
        format!("the collection {collection} is referred to by {}", named.join(", ")),
    )
    .with_hint(format!(
        "drop these references or collections first: Transaction::drop_reference({first:?}, {field:?}), or \
         `duramen reference drop DB -c {first} {field}`"
    )))
}
