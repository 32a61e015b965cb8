//! The catalogue of collections: which there are, and in which trees their documents lie.
//!
//! Owns the system tree and the names of all trees that belong to Duramen; the trees of users keep clear of them.

use std::any::TypeId;
use std::sync::{Arc, OnceLock};

use crate::engine::{Direction, KeyRange, Shared, Source, TreeId};
use crate::error::{Code, Error, Result};
use crate::known::Known;
use crate::schema::Schema;
use crate::tuple::encode;
use crate::view::{self, Reductions, View, ViewSpec};

/// The tree of catalogue entries: key is the encoded name, value the stored schema.
const ENTRIES: &str = "duramen/collections";

/// Every tree whose name begins so belongs to Duramen.
const OWN: &str = "duramen/";

/// A collection, found.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) schema: Schema,
    pub(crate) tree: TreeId,
    /// Its views, those that are being built among them.
    pub(crate) views: Vec<OpenView>,
    /// The entry's bytes.
    pub(crate) stored: Vec<u8>,
}

/// A view, and the tree of its rows.
#[derive(Debug, Clone)]
pub(crate) struct OpenView {
    pub(crate) spec: ViewSpec,
    pub(crate) tree: TreeId,
    /// What the tree keeps; `None` for a view that only counts.
    pub(crate) reductions: Option<Reductions>,
    /// A type that was found to be of this view's terms.
    asked_as: OnceLock<TypeId>,
}

impl OpenView {
    pub(crate) fn new(spec: ViewSpec, tree: TreeId) -> OpenView {
        let reductions = Reductions::of(&spec);
        OpenView { spec, tree, reductions, asked_as: OnceLock::new() }
    }

    /// Whether a type says of its view what the catalogue says of this one.
    pub(crate) fn is_of<V: View>(&self) -> bool {
        if self.asked_as.get() == Some(&TypeId::of::<V>()) {
            return true;
        }
        let same = self.spec.name() == V::NAME && self.spec.same_terms(&V::spec());
        if same {
            // Another type of the same terms may be there already.
            self.asked_as.get_or_init(TypeId::of::<V>);
        }
        same
    }
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

/// The tree of entries: while it is unchanged every entry is, with the trees it speaks of.
pub(crate) fn tree(source: &dyn Source) -> Result<Option<TreeId>> {
    source.tree(ENTRIES)
}

/// Looks a collection up. What is known already is not decoded again if the catalogue still says the same.
pub(crate) fn find(source: &dyn Source, known: &Known, name: &str) -> Result<Option<Arc<Entry>>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(None) };
    let Some(stored) = source.get(entries, &encode(&name)?)? else { return Ok(None) };
    let tree = tree_of(source, name, &rows_tree(name))?;
    if let Some(entry) = known.entry(name).filter(|entry| entry.tree == tree && entry.stored == stored) {
        return Ok(Some(entry));
    }
    let schema = Schema::from_bytes(&stored)?;
    let open =
        |spec: &ViewSpec| Ok(OpenView::new(spec.clone(), tree_of(source, name, &spec.tree_name(name))?));
    let views = schema.views().iter().map(open).collect::<Result<_>>()?;
    Ok(Some(Arc::new(Entry { schema, tree, views, stored })))
}

fn tree_of(source: &dyn Source, collection: &str, tree: &str) -> Result<TreeId> {
    source.tree(tree)?.ok_or_else(|| {
        Error::new(
            Code::DamagedData,
            format!("the collection {collection} is in the catalogue, and its tree {tree:?} is not there"),
        )
    })
}

/// The error of a collection that is not there.
#[cold]
pub(crate) fn unknown(name: &str) -> Error {
    Error::new(Code::NoSuchTree, format!("there is no collection {name}"))
        .with_hint("create it, or look at the names of those there are")
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

/// Stores an entry that has changed, and returns its bytes.
pub(crate) fn store(tx: &Shared<'_>, schema: &Schema) -> Result<Vec<u8>> {
    schema.validate()?;
    let entries = match tx.tree(ENTRIES)? {
        Some(tree) => tree,
        None => tx.create_tree(ENTRIES, None)?,
    };
    let stored = schema.to_bytes()?;
    tx.put(entries, &encode(schema.name())?, &stored)?;
    Ok(stored)
}

/// Creates a collection that is not there. Its views hold every document from the start.
pub(crate) fn create(tx: &Shared<'_>, schema: &Schema) -> Result<Entry> {
    let mut schema = schema.clone();
    schema.views_mut().for_each(|view| view.ready = true);
    let stored = store(tx, &schema)?;
    let reducer = schema.reducer()?;
    let spec = if reducer.fields().is_empty() { None } else { Some(reducer.spec()?) };
    let tree = tx.create_tree(&rows_tree(schema.name()), spec)?;
    let views =
        schema.views().iter().map(|spec| create_view(tx, schema.name(), spec)).collect::<Result<_>>()?;
    Ok(Entry { schema, tree, views, stored })
}

/// Creates the tree of a view.
pub(crate) fn create_view(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<OpenView> {
    let reducer = Reductions::of(spec).map(|reductions| reductions.spec()).transpose()?;
    Ok(OpenView::new(spec.clone(), tx.create_tree(&spec.tree_name(collection), reducer)?))
}

/// Drops a collection with all its documents. Returns whether it was there.
pub(crate) fn remove(tx: &Shared<'_>, name: &str) -> Result<bool> {
    let Some(entries) = tx.tree(ENTRIES)? else { return Ok(false) };
    let key = encode(name)?;
    let Some(stored) = tx.get(entries, &key)? else { return Ok(false) };
    for view in Schema::from_bytes(&stored)?.views() {
        drop_view(tx, name, view)?;
    }
    tx.delete(entries, &key)?;
    tx.drop_tree(&rows_tree(name))?;
    Ok(true)
}

/// Drops the rows of a view.
pub(crate) fn drop_view(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    view::forget(tx, collection, spec)?;
    tx.drop_tree(&spec.tree_name(collection))
}
