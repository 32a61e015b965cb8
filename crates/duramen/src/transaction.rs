//! Reads and writes that happen together or not at all.
//!
//! Owns what a transaction does to the catalogue and to single rows, and what is to be remembered, or done, once it is
//! committed. Documents are written by document_writes.rs and typed_writes.rs.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::catalogue::{self, Entry, OpenView};
use crate::collection::Collection;
use crate::engine::{Direction, Shared, Source, TreeId};
use crate::error::{Code, Error, Result};
use crate::ids::{self, IdCounter};
use crate::known::Known;
use crate::reads::{Reads, sealed};
use crate::schema::Schema;
use crate::span::Span;
use crate::typed::Asked;
use crate::view::{self, Step, ViewSpec};

/// A transaction: sees one state of the database and its own writes.
///
/// Its reads are the methods of [`Reads`]. Typed documents are written by the methods here, dynamic ones through
/// [`Reads::documents`].
pub struct Transaction<'e> {
    inner: Shared<'e>,
    known: &'e Known,
    /// Collections looked up so far; kept in step with what this transaction does to the catalogue.
    entries: RefCell<HashMap<String, Arc<Entry>>>,
    /// Types that fit what the catalogue says in this transaction.
    fitting: RefCell<Vec<(TypeId, Arc<Entry>)>>,
    bounds: RefCell<Vec<(Arc<IdCounter>, u64)>>,
    after: Vec<Box<dyn FnOnce()>>,
    /// Why a write stopped halfway: the transaction must not commit, whatever its closure makes of the error.
    failed: RefCell<Option<Error>>,
}

/// What is to be done once a transaction is committed.
#[derive(Default)]
pub(crate) struct Committed {
    entries: HashMap<String, Arc<Entry>>,
    fitting: Vec<(TypeId, Arc<Entry>)>,
    bounds: Vec<(Arc<IdCounter>, u64)>,
    after: Vec<Box<dyn FnOnce()>>,
}

impl Committed {
    /// Remembers what the catalogue says from now on, and calls what asked to be called.
    pub(crate) fn done(self, known: &Known) {
        self.entries.values().for_each(|entry| known.remember_entry(entry));
        self.fitting.iter().for_each(|(kind, entry)| known.remember_fitting(*kind, entry, None));
        self.bounds.iter().for_each(|(counter, bound)| counter.bounded(*bound));
        self.after.into_iter().for_each(|run| run());
    }
}

impl<'e> Transaction<'e> {
    pub(crate) fn new(inner: &'e mut duramen_engine::Transaction, known: &'e Known) -> Self {
        Transaction {
            inner: Shared::new(inner),
            known,
            entries: RefCell::default(),
            fitting: RefCell::default(),
            bounds: RefCell::default(),
            after: Vec::new(),
            failed: RefCell::default(),
        }
    }

    /// Why this transaction must not commit.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }

    /// Why running this transaction again may help, though its closure failed with an error of its own.
    pub(crate) fn wants_to_run_again(&self) -> Option<Error> {
        self.inner.wants_to_run_again()
    }

    /// A write of several steps: if one fails, what the others did must not be committed.
    fn all_or_nothing<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.failed.borrow_mut().get_or_insert_with(|| error.clone());
        }
        done
    }

    /// What is left to do if this transaction commits.
    pub(crate) fn into_committed(self) -> Committed {
        Committed {
            entries: self.entries.into_inner(),
            fitting: self.fitting.into_inner(),
            bounds: self.bounds.into_inner(),
            after: self.after,
        }
    }

    /// Calls `run` once this transaction is committed at its level: in the committing thread, in the order asked, and
    /// not at all if it is rolled back. A run that ended in a conflict is forgotten with what it asked.
    ///
    /// What must not be lost in a crash between the commit and the call belongs in the transaction instead.
    pub fn after_commit(&mut self, run: impl FnOnce() + 'static) {
        self.after.push(Box::new(run));
    }

    /// Creates a collection.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a schema that cannot be.
    pub fn create(&mut self, schema: &Schema) -> Result<()> {
        schema.validate()?;
        if catalogue::find(&self.inner, self.known, schema.name())?.is_some() {
            return Err(Error::new(Code::AlreadyExists, format!("the collection {} exists", schema.name()))
                .with_hint("ensure() takes one that exists under the same terms"));
        }
        self.all_or_nothing(catalogue::create(&self.inner, schema))?;
        Ok(())
    }

    /// Creates a collection, or grows an existing one by the columns that are new. Returns what is stored then.
    ///
    /// # Errors
    /// `InvalidArgument` if it exists with another key, other sums or another type for a column.
    pub fn ensure(&mut self, schema: &Schema) -> Result<Schema> {
        schema.validate()?;
        let Some(entry) = catalogue::find(&self.inner, self.known, schema.name())? else {
            return Ok(self.all_or_nothing(catalogue::create(&self.inner, schema))?.schema);
        };
        let mut stored = entry.schema.clone();
        stored.check_same_terms(schema)?;
        if stored.merge(schema)? {
            return Ok(self.grow(&entry, stored)?.schema.clone());
        }
        Ok(stored)
    }

    /// Drops a collection with all its documents. Returns whether it was there.
    ///
    /// # Errors
    /// What the engine said.
    pub fn drop_collection(&mut self, collection: &str) -> Result<bool> {
        self.entries.get_mut().remove(collection);
        self.fitting.get_mut().clear();
        self.all_or_nothing(catalogue::remove(&self.inner, collection))
    }

    /// Drops a view with all its rows. Returns whether it was there. A type that still declares it makes it anew with its
    /// next write.
    ///
    /// # Errors
    /// `NoSuchTree` if the collection is not there.
    pub fn drop_view(&mut self, collection: &str, view: &str) -> Result<bool> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let gone = schema.remove_view(view);
        if gone.is_empty() {
            return Ok(false);
        }
        let dropped = gone.iter().try_for_each(|spec| catalogue::drop_view(&self.inner, collection, spec));
        self.all_or_nothing(dropped)?;
        self.grow(&entry, schema)?;
        Ok(true)
    }

    /// Stores a value in a tree of bytes, which is created if it is not there.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that belongs to Duramen; `KeyTooLong`; `TooLarge`.
    pub fn put_bytes(&mut self, tree: &str, key: &[u8], value: &[u8]) -> Result<()> {
        catalogue::check_users_name(tree)?;
        let tree = match self.inner.tree(tree)? {
            Some(tree) => tree,
            None => self.inner.create_tree(tree, None)?,
        };
        self.inner.put(tree, key, value)
    }

    /// Deletes a key of a tree of bytes. Returns whether it was there.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that belongs to Duramen.
    pub fn delete_bytes(&mut self, tree: &str, key: &[u8]) -> Result<bool> {
        if self.get_bytes(tree, key)?.is_none() {
            return Ok(false);
        }
        let tree = self.inner.tree(tree)?.expect("a value was found in it above");
        self.inner.delete(tree, key)?;
        Ok(true)
    }

    /// Stores a changed entry, and makes trees for its new views. They are to be built, unless there is nothing to build them
    /// from.
    pub(crate) fn grow(&self, entry: &Entry, schema: Schema) -> Result<Arc<Entry>> {
        let grown = self.all_or_nothing(self.grown(entry, schema))?;
        self.fitting.borrow_mut().clear();
        Ok(self.enter(grown))
    }

    fn grown(&self, entry: &Entry, mut schema: Schema) -> Result<Entry> {
        let is_new = |spec: &ViewSpec| entry.views.iter().all(|view| !view.spec.same_rows(spec));
        if schema.views().iter().any(is_new) && self.inner.is_empty(entry.tree)? {
            for view in schema.views().to_vec().iter().filter(|spec| is_new(spec)) {
                for gone in schema.view_is_ready(view) {
                    catalogue::drop_view(&self.inner, schema.name(), &gone)?;
                }
            }
        }
        let mut views = Vec::with_capacity(schema.views().len());
        for spec in schema.views() {
            let known = entry.views.iter().find(|view| view.spec.same_rows(spec));
            views.push(match known {
                Some(view) => OpenView::new(spec.clone(), view.tree),
                None => catalogue::create_view(&self.inner, schema.name(), spec)?,
            });
        }
        let stored = catalogue::store(&self.inner, &schema)?;
        Ok(Entry { schema, tree: entry.tree, views, stored })
    }

    /// A step of building a view. Returns the entry as it is then.
    pub(crate) fn build_step(&self, asked: Asked, spec: &ViewSpec, step: &Step) -> Result<Arc<Entry>> {
        let entry = self.fitted(asked)?;
        let building = |view: &&OpenView| view.spec.same_rows(spec) && !view.spec.ready;
        let Some(view) = entry.views.iter().find(building) else { return Ok(entry) };
        if self.all_or_nothing(step.walk(&self.inner, &entry, view))? != Some(true) {
            return Ok(entry);
        }
        let mut schema = entry.schema.clone();
        for gone in schema.view_is_ready(&view.spec) {
            self.all_or_nothing(catalogue::drop_view(&self.inner, schema.name(), &gone))?;
        }
        self.grow(&entry, schema)
    }

    fn enter(&self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.entries.borrow_mut().insert(entry.schema.name().to_owned(), Arc::clone(&entry));
        entry
    }

    fn find(&self, collection: &str) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.entries.borrow().get(collection) {
            return Ok(Some(Arc::clone(entry)));
        }
        let found = catalogue::find(&self.inner, self.known, collection)?;
        if let Some(entry) = &found {
            self.entries.borrow_mut().insert(collection.to_owned(), Arc::clone(entry));
        }
        Ok(found)
    }

    /// The collection of a type, to be read; `None` if it is not there.
    pub(crate) fn fits(&self, asked: Asked) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.fitted_already(asked) {
            return Ok(Some(entry));
        }
        let Some(entry) = self.find(asked.name)? else { return Ok(None) };
        if self.known.fitting(asked.kind).is_none_or(|known| !Arc::ptr_eq(&known, &entry)) {
            let grew = asked.fit(&mut entry.schema.clone())?;
            if grew {
                return Ok(Some(entry));
            }
        }
        self.fitting.borrow_mut().push((asked.kind, Arc::clone(&entry)));
        Ok(Some(entry))
    }

    /// The collection of a type, to be written: made, or grown by the type's columns, where it has to be.
    pub(crate) fn fitted(&self, asked: Asked) -> Result<Arc<Entry>> {
        if let Some(entry) = self.fitted_already(asked) {
            return Ok(entry);
        }
        let entry = match self.fits(asked)? {
            None => self.enter(self.all_or_nothing(catalogue::create(&self.inner, &asked.schema()))?),
            Some(entry) if self.fitted_already(asked).is_some() => return Ok(entry),
            Some(entry) => {
                let mut schema = entry.schema.clone();
                asked.fit(&mut schema)?;
                self.grow(&entry, schema)?
            }
        };
        self.fitting.borrow_mut().push((asked.kind, Arc::clone(&entry)));
        Ok(entry)
    }

    fn fitted_already(&self, asked: Asked) -> Option<Arc<Entry>> {
        let fitting = self.fitting.borrow();
        fitting.iter().find(|(kind, _)| *kind == asked.kind).map(|(_, entry)| Arc::clone(entry))
    }

    /// What is stored under a key.
    pub(crate) fn stored(&self, entry: &Entry, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(entry.tree, key)
    }

    /// Stores a document, or deletes it.
    pub(crate) fn write(&self, entry: &Entry, key: &[u8], document: Option<&[u8]>) -> Result<()> {
        let changes = view::Changes::of(&self.inner, entry, key, document)?;
        let written = changes.apply(&self.inner).and_then(|()| match document {
            Some(document) => self.inner.put(entry.tree, key, document),
            None => self.inner.delete(entry.tree, key),
        });
        if changes.is_empty() { written } else { self.all_or_nothing(written) }
    }

    /// Deletes the first documents of a range, at most so many, and says how many there were.
    pub(crate) fn delete_span(&self, entry: &Entry, span: Span, at_most: u64) -> Result<u64> {
        let mut keys = Vec::new();
        let mut cursor = self.inner.cursor(entry.tree, span.into_bytes(), Direction::Forward)?;
        while (keys.len() as u64) < at_most
            && let Some(key) = cursor.next_key()?
        {
            keys.push(key.to_vec());
        }
        keys.iter().try_for_each(|key| self.write(entry, key, None))?;
        Ok(keys.len() as u64)
    }

    /// An id that was not given before.
    pub(crate) fn spread_id<C: Collection>(&self, rows: TreeId) -> Result<u64> {
        let counter = self.known.counter(C::NAME);
        let new = counter.take(&self.inner, C::NAME, rows)?;
        if let Some(bound) = new.bound {
            self.bounds.borrow_mut().push((counter, bound));
        }
        Ok(new.id)
    }

    /// The largest id there is a document for; 0 without one.
    pub(crate) fn last_id(&self, rows: TreeId) -> Result<u64> {
        ids::last_id(&self.inner, rows)
    }

    /// A document was found under a new id: the next ones are behind the last.
    pub(crate) fn pass_ids<C: Collection>(&self, rows: TreeId) -> Result<()> {
        self.known.counter(C::NAME).pass(&self.inner, rows)
    }
}

impl sealed::Readable for Transaction<'_> {
    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        self.find(collection)?.ok_or_else(|| catalogue::unknown(collection))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting(&self, asked: Asked) -> Result<Option<Arc<Entry>>> {
        self.fits(asked)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting_now(&self, asked: Asked) -> Result<Option<Arc<Entry>>> {
        self.fits(asked)
    }
}

impl Reads for Transaction<'_> {}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
