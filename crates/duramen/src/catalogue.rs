//! The catalogue of collections: which there are, and in which trees their documents lie.
//!
//! Owns the system tree and the names of all trees that belong to Duramen; the trees of users keep clear of them.

use std::sync::Arc;

use crate::engine::{Direction, KeyRange, Shared, Source, TreeId};
use crate::error::{Code, Error, Result};
use crate::schema::Schema;
use crate::tuple::encode;

/// The tree of catalogue entries: key is the encoded name, value the stored schema.
const ENTRIES: &str = "duramen/collections";

/// Every tree whose name begins so belongs to Duramen.
const OWN: &str = "duramen/";

/// A collection, found.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) schema: Schema,
    pub(crate) tree: TreeId,
}

fn rows_tree(name: &str) -> String {
    format!("{OWN}rows/{name}")
}

/// Refuses a name for a user's tree that belongs to Duramen.
pub(crate) fn check_users_name(name: &str) -> Result<()> {
    if name.starts_with(OWN) || name.is_empty() {
        return Err(Error::invalid(format!(
            "{name:?} cannot be the name of a tree: it is empty or begins with {OWN}"
        )));
    }
    Ok(())
}

/// Whether a tree is a user's own tree of bytes.
pub(crate) fn is_users(name: &str) -> bool {
    !name.starts_with(OWN)
}

/// Looks a collection up.
pub(crate) fn find(source: &dyn Source, name: &str) -> Result<Option<Arc<Entry>>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(None) };
    let Some(stored) = source.get(entries, &encode(&name)?)? else { return Ok(None) };
    let schema = Schema::from_bytes(&stored)?;
    let tree = source.tree(&rows_tree(name))?.ok_or_else(|| {
        Error::new(
            Code::DamagedData,
            format!("the collection {name} is in the catalogue, and its tree is not there"),
        )
    })?;
    Ok(Some(Arc::new(Entry { schema, tree })))
}

/// Looks a collection up, or fails.
pub(crate) fn get(source: &dyn Source, name: &str) -> Result<Arc<Entry>> {
    find(source, name)?.ok_or_else(|| {
        Error::new(Code::NoSuchTree, format!("there is no collection {name}"))
            .with_hint("create it, or look at the names of those there are")
    })
}

/// Every collection, by name.
pub(crate) fn all(source: &dyn Source) -> Result<Vec<Schema>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(Vec::new()) };
    let mut cursor = source.cursor(entries, KeyRange { from: Vec::new(), to: None }, Direction::Forward)?;
    let mut schemas = Vec::new();
    while let Some((_, stored)) = cursor.next()? {
        schemas.push(Schema::from_bytes(stored)?);
    }
    Ok(schemas)
}

/// Stores an entry that has changed.
pub(crate) fn store(tx: &Shared<'_>, schema: &Schema) -> Result<()> {
    schema.validate()?;
    let entries = match tx.tree(ENTRIES)? {
        Some(tree) => tree,
        None => tx.create_tree(ENTRIES, None)?,
    };
    tx.put(entries, &encode(schema.name())?, &schema.to_bytes()?)
}

/// Creates a collection that is not there.
pub(crate) fn create(tx: &Shared<'_>, schema: &Schema) -> Result<()> {
    store(tx, schema)?;
    let reducer = schema.reducer()?;
    let spec = if reducer.fields().is_empty() { None } else { Some(reducer.spec()?) };
    tx.create_tree(&rows_tree(schema.name()), spec)?;
    Ok(())
}

/// Drops a collection with all its documents. Returns whether it was there.
pub(crate) fn remove(tx: &Shared<'_>, name: &str) -> Result<bool> {
    let Some(entries) = tx.tree(ENTRIES)? else { return Ok(false) };
    let key = encode(name)?;
    if tx.get(entries, &key)?.is_none() {
        return Ok(false);
    }
    tx.delete(entries, &key)?;
    tx.drop_tree(&rows_tree(name))?;
    Ok(true)
}
