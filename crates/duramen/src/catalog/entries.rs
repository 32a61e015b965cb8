//! The catalogue of collections: which collections exist, and the trees of their documents.
//!
//! Owns the system tree and the reserved names of trees; names of user trees must not begin like them.

use std::any::TypeId;
use std::sync::{Arc, OnceLock};

use crate::catalog::cache::CatalogCache;
use crate::catalog::progress;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::{CollectionShapes, LastShape, Shapes};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Shared, Source, TreeId};
use crate::value::tuple::{decode, encode};
use crate::view::reducer;
use crate::view::reducer::Reductions;
use crate::view::spec::ViewSpec;

/// The tree of catalogue entries: key is the encoded name, value the stored schema.
pub(crate) const ENTRIES: &str = "duramen/collections";

/// The prefix of reserved tree names.
pub(crate) const OWN: &str = "duramen/";

/// A collection with its trees.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) schema: Schema,
    pub(crate) tree: TreeId,
    /// Its views, including those being built.
    pub(crate) views: Vec<OpenView>,
    /// The entry's bytes.
    pub(crate) stored: Vec<u8>,
    pub(crate) last_shape: LastShape,
}

impl Entry {
    /// What the shapes of its documents depend on.
    pub(crate) fn collection_shapes(&self) -> CollectionShapes<'_> {
        let (collection, sums) = (self.schema.name(), self.schema.sum_columns());
        CollectionShapes { collection, sums, last: &self.last_shape }
    }
}

/// A view, and the tree of its rows.
#[derive(Debug, Clone)]
pub(crate) struct OpenView {
    pub(crate) spec: ViewSpec,
    pub(crate) tree: TreeId,
    /// The other trees of a view in code.
    pub(crate) coded: Option<CodedTrees>,
    /// The reductions that the tree keeps; `None` for a view that only counts.
    pub(crate) reductions: Option<Reductions>,
    /// A type whose definition was found equal to this view's.
    pub(crate) asked_as: OnceLock<TypeId>,
}

impl Entry {
    /// Its views without those that the database keeps for references.
    pub(crate) fn own_views(&self) -> impl Iterator<Item = &OpenView> {
        self.views.iter().filter(|view| view.spec.of_reference.is_none())
    }

    /// The view that the database keeps for the reference of a field.
    pub(crate) fn kept_view(&self, field: &str) -> Option<&OpenView> {
        self.views.iter().find(|view| view.spec.of_reference.is_some() && view.spec.name == field)
    }
}

/// A view of a collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewOf<'e> {
    pub(crate) entry: &'e Entry,
    pub(crate) view: &'e OpenView,
}

impl OpenView {
    /// A view, with trees that `tree` finds or creates, by their names and whether it is the tree of the
    /// rows.
    fn open(
        collection: &str,
        spec: &ViewSpec,
        mut tree: impl FnMut(&str, bool) -> Result<TreeId>,
    ) -> Result<OpenView> {
        let names = spec.tree_names(collection);
        let rows = tree(&names[0], true)?;
        let coded = match &names[1..] {
            [mapped, unmapped] => {
                Some(CodedTrees { mapped: tree(mapped, false)?, unmapped: tree(unmapped, false)? })
            }
            _ => None,
        };
        let reductions = Reductions::of(spec);
        Ok(OpenView { spec: spec.clone(), tree: rows, coded, reductions, asked_as: OnceLock::new() })
    }

    /// The same rows under a changed definition.
    pub(crate) fn with_spec(&self, spec: &ViewSpec) -> OpenView {
        OpenView { spec: spec.clone(), ..self.clone() }
    }
}

/// The additional trees of a view in code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodedTrees {
    /// The rows of each document.
    pub(crate) mapped: TreeId,
    /// Documents that wait for the code.
    pub(crate) unmapped: TreeId,
}

/// Trees with documents of collections, and trees with key-values.
pub(crate) const ROWS: &str = "duramen/rows/";
const KEY_VALUES: &str = "duramen/kv/";

/// The collection, namespace or tree that data belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A collection of documents, by name.
    Collection(String),
    /// A namespace of key-values, by name.
    KeyValues(String),
    /// A tree of bytes, by name.
    Bytes(String),
}

impl Origin {
    /// The store that a tree belongs to; `None` for derived and internal trees.
    pub(crate) fn of(tree: &str) -> Option<Origin> {
        if let Some(name) = tree.strip_prefix(ROWS) {
            return Some(Origin::Collection(name.to_owned()));
        }
        if let Some(name) = tree.strip_prefix(KEY_VALUES) {
            return Some(Origin::KeyValues(name.to_owned()));
        }
        is_users(tree).then(|| Origin::Bytes(tree.to_owned()))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Origin::Collection(name) | Origin::KeyValues(name) | Origin::Bytes(name) => name,
        }
    }
}

/// The tree with the documents of a collection.
pub(crate) fn rows_tree(name: &str) -> String {
    format!("{ROWS}{name}")
}

/// Returns an error for a reserved or empty tree name.
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

/// The tree of entries. While it is unchanged, every entry and the trees that it names are unchanged.
pub(crate) fn tree(source: &dyn Source) -> Result<Option<TreeId>> {
    source.tree(ENTRIES)
}

/// Looks up a collection. A cached entry is reused if its bytes in the catalogue are the same, and its trees
/// are there. A view that was added by a commit that was dropped, and is added again, has the same bytes and
/// another tree.
pub(crate) fn find(source: &dyn Source, cache: &CatalogCache, name: &str) -> Result<Option<Arc<Entry>>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(None) };
    let Some(stored) = source.get(entries, &encode(&name)?)? else { return Ok(None) };
    let tree = tree_of(source, name, &rows_tree(name))?;
    let is_this = |entry: &Arc<Entry>| {
        entry.tree == tree
            && entry.stored == stored
            && entry.views.iter().all(|view| source.has_tree(view.tree))
    };
    if let Some(entry) = cache.entry(name).filter(is_this) {
        return Ok(Some(entry));
    }
    let schema = Schema::from_bytes(&stored)?.decoded_by(&cache.shapes);
    let open = |spec: &ViewSpec| OpenView::open(name, spec, |tree, _| tree_of(source, name, tree));
    let kept = schema.kept_views();
    let views = schema.views().iter().chain(&kept).map(open).collect::<Result<_>>()?;
    Ok(Some(Arc::new(Entry { schema, tree, views, stored, last_shape: LastShape::default() })))
}

fn tree_of(source: &dyn Source, collection: &str, tree: &str) -> Result<TreeId> {
    source.tree(tree)?.ok_or_else(|| {
        Error::new(
            Code::CorruptData,
            format!("the collection {collection} is in the catalogue, and its tree {tree:?} is not there"),
        )
    })
}

/// The error of a collection that is not there.
#[cold]
pub(crate) fn unknown(name: &str) -> Error {
    Error::new(Code::NoSuchTree, format!("there is no collection {name}"))
        .with_hint(
            "`collections` lists those that there are; `Db::register` or the first write of a type makes its collection",
        )
}

/// The names of all collections.
pub(crate) fn names(source: &dyn Source) -> Result<Vec<String>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(Vec::new()) };
    let mut cursor = source.cursor(entries, KeyRange { from: Vec::new(), to: None }, Direction::Forward)?;
    let mut names = Vec::new();
    while let Some(key) = cursor.next_key()? {
        names.extend(decode(key)?.pop().map(|name| name.to_string()));
    }
    Ok(names)
}

/// Every collection, by name.
pub(crate) fn all(source: &dyn Source, shapes: &Arc<Shapes>) -> Result<Vec<Schema>> {
    let Some(entries) = source.tree(ENTRIES)? else { return Ok(Vec::new()) };
    let mut cursor = source.cursor(entries, KeyRange { from: Vec::new(), to: None }, Direction::Forward)?;
    let mut schemas = Vec::new();
    while let Some((_, stored)) = cursor.next()? {
        schemas.push(Schema::from_bytes(stored)?.decoded_by(shapes));
    }
    Ok(schemas)
}

/// Stores a changed entry, and returns its bytes.
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

/// Creates a collection, without references. Its views are complete from the start.
pub(crate) fn create(tx: &Shared<'_>, cache: &CatalogCache, schema: &Schema) -> Result<Entry> {
    let mut schema = schema.clone().without_references().decoded_by(&cache.shapes);
    schema.views_mut().for_each(|view| view.ready = true);
    let stored = store(tx, &schema)?;
    let reducer = schema.reducer()?;
    let spec = if reducer.fields().is_empty() { None } else { Some(reducer.spec()?) };
    let tree = tx.create_tree(&rows_tree(schema.name()), spec)?;
    let views =
        schema.views().iter().map(|spec| create_view(tx, schema.name(), spec)).collect::<Result<_>>()?;
    Ok(Entry { schema, tree, views, stored, last_shape: LastShape::default() })
}

/// Creates the trees of a view.
pub(crate) fn create_view(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<OpenView> {
    let reducer = Reductions::of(spec).map(|reductions| reductions.spec()).transpose()?;
    let opened = OpenView::open(collection, spec, |tree, is_reduced| {
        tx.create_tree(tree, reducer.clone().filter(|_| is_reduced))
    });
    opened.map_err(|error| reducer::without_code(spec, error))
}

/// Drops a collection with all its documents. Returns whether it was there.
pub(crate) fn remove(tx: &Shared<'_>, name: &str) -> Result<bool> {
    let Some(entries) = tx.tree(ENTRIES)? else { return Ok(false) };
    let key = encode(name)?;
    let Some(stored) = tx.get(entries, &key)? else { return Ok(false) };
    let schema = Schema::from_bytes(&stored)?;
    for view in schema.views().iter().chain(&schema.kept_views()) {
        drop_view(tx, name, view)?;
    }
    progress::forget_migration(tx, name)?;
    tx.delete(entries, &key)?;
    tx.drop_tree(&rows_tree(name))?;
    Ok(true)
}

/// Drops the rows of a view.
pub(crate) fn drop_view(tx: &Shared<'_>, collection: &str, spec: &ViewSpec) -> Result<()> {
    progress::forget_build(tx, collection, spec)?;
    spec.tree_names(collection).iter().try_for_each(|tree| tx.drop_tree(tree))
}
