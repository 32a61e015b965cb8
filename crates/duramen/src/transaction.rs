//! Reads and writes that happen together or not at all.
//!
//! Owns what a transaction does to the catalogue and to single rows, and what is to be remembered, or done, once it is
//! committed. Documents are written by document_writes.rs and typed_writes.rs.

use std::any::TypeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use duramen_engine::Durability;

use crate::catalogue::{self, Entry, OpenView};
use crate::clock::Millis;
use crate::collection::Collection;
use crate::engine::{Direction, Shared, Source, TreeId};
use crate::error::{Code, Error, Result};
use crate::ids::{self, IdCounter};
use crate::known::{Fits, Known};
use crate::migrate;
use crate::reads::{Reads, sealed};
use crate::schema::Schema;
use crate::span::Span;
use crate::typed::Asked;
use crate::version;
use crate::view::{self, Step, ViewSpec, Walked};

/// A range is deleted so many documents at once.
const DELETED_AT_ONCE: u64 = 1_000;

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
    after: Vec<AfterCommit>,
    /// Whether there is something to do in the background once this is committed.
    makes_work: Cell<bool>,
    /// Whether a value was written that expires.
    expires: Cell<bool>,
    /// Writes of key-values, by namespace; in order, so that namespaces are swept in the same order every time.
    kv_writes: RefCell<BTreeMap<String, u64>>,
    /// Whether blobs came or went.
    blob_writes: Cell<bool>,
    now: OnceCell<Millis>,
    /// Why a write stopped halfway: the transaction must not commit, whatever its closure makes of the error.
    failed: RefCell<Option<Error>>,
}

/// What a program does once a transaction is committed.
type AfterCommit = Box<dyn FnOnce() + Send>;

/// What is to be done once a transaction is committed.
#[derive(Default)]
pub(crate) struct Committed {
    entries: HashMap<String, Arc<Entry>>,
    fitting: Vec<(TypeId, Arc<Entry>)>,
    bounds: Vec<(Arc<IdCounter>, u64)>,
    after: Vec<AfterCommit>,
    makes_work: bool,
    expires: bool,
    kv_writes: BTreeMap<String, u64>,
    pub(crate) wrote_blobs: bool,
}

impl Committed {
    /// Whether the program has asked to be called.
    #[cfg(feature = "async")]
    pub(crate) fn calls_program(&self) -> bool {
        !self.after.is_empty()
    }

    /// Remembers what the catalogue says from now on, and calls what asked to be called. Returns the namespaces of key-values
    /// that are to be swept, and after how many writes.
    pub(crate) fn done(self, known: &Known, level: Durability) -> Vec<(String, u64)> {
        self.entries.values().for_each(|entry| known.remember_entry(entry));
        self.fitting
            .iter()
            .for_each(|(kind, entry)| known.remember_fitting(*kind, entry, Fits::Writes, None));
        // One at level `Memory` may still be dropped, and the row of its bound with it.
        if level > Durability::Memory {
            self.bounds.iter().for_each(|(counter, bound)| counter.bounded(*bound));
        }
        // Asked now: a sweeper that has looked before this was committed has said that it rests.
        if self.makes_work || self.expires && known.is_sweeper_resting() {
            known.wake();
        }
        self.after.into_iter().for_each(|run| run());
        let due = |(namespace, count): (String, u64)| {
            known.wrote_kv(&namespace, count).map(|writes| (namespace, writes))
        };
        self.kv_writes.into_iter().filter_map(due).collect()
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
            makes_work: Cell::default(),
            expires: Cell::default(),
            kv_writes: RefCell::default(),
            blob_writes: Cell::new(false),
            now: OnceCell::new(),
            failed: RefCell::default(),
        }
    }

    /// The engine's transaction.
    pub(crate) fn shared(&self) -> &Shared<'e> {
        &self.inner
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
    pub(crate) fn all_or_nothing<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.failed.borrow_mut().get_or_insert_with(|| error.clone());
        }
        done
    }

    /// A value was written that expires.
    pub(crate) fn gives_sweeper_work(&self) {
        self.expires.set(true);
    }

    /// Counts a write of a key-value.
    pub(crate) fn wrote_kv(&self, namespace: &str) {
        let mut writes = self.kv_writes.borrow_mut();
        match writes.get_mut(namespace) {
            Some(count) => *count += 1,
            None => {
                writes.insert(namespace.to_owned(), 1);
            }
        }
    }

    /// Notes that blobs come or go.
    pub(crate) fn wrote_blobs(&self) {
        self.blob_writes.set(true);
    }

    /// What is left to do if this transaction commits.
    pub(crate) fn into_committed(self) -> Committed {
        Committed {
            entries: self.entries.into_inner(),
            fitting: self.fitting.into_inner(),
            bounds: self.bounds.into_inner(),
            after: self.after,
            makes_work: self.makes_work.get(),
            expires: self.expires.get(),
            kv_writes: self.kv_writes.into_inner(),
            wrote_blobs: self.blob_writes.get(),
        }
    }

    /// Calls `run` once this transaction is committed at its level: in the committing thread, or one of an asynchronous handle's,
    /// in the order asked, and not at all if it is rolled back. A run that ended in a conflict is forgotten with what it asked.
    ///
    /// What must not be lost in a crash between the commit and the call belongs in the transaction instead.
    pub fn after_commit(&mut self, run: impl FnOnce() + Send + 'static) {
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

    /// Adds a view, which is built from the documents that are there beside whoever writes. One of its name with other terms answers
    /// until the new one holds every document, and is dropped then. Returns whether there was none with the same terms.
    ///
    /// # Errors
    /// `NoSuchTree` if the collection is not there; `InvalidArgument` for a view that cannot be.
    pub fn add_view(&mut self, collection: &str, view: &ViewSpec) -> Result<bool> {
        view.validate()?;
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let is_new = schema.adopt_view(view);
        if is_new {
            schema.validate()?;
            self.grow(&entry, schema)?;
        }
        Ok(is_new)
    }

    /// Builds a view anew beside the one there is, which answers meanwhile, and is dropped once the new one holds every document.
    ///
    /// # Errors
    /// `NoSuchTree` if the collection or the view is not there; `InvalidArgument` if the collection has no room for another view.
    pub fn rebuild_view(&mut self, collection: &str, view: &str) -> Result<()> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        if !schema.renew_view(view) {
            return Err(view::unknown(&entry, view));
        }
        schema.validate()?;
        self.grow(&entry, schema)?;
        Ok(())
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
        if schema.version() != entry.schema.version() {
            for view in &entry.views {
                catalogue::drop_view(&self.inner, schema.name(), &view.spec)?;
            }
            migrate::forget(&self.inner, schema.name())?;
            if self.inner.is_empty(entry.tree)? {
                schema.end_migration();
            }
        }
        let is_new = |spec: &ViewSpec| entry.views.iter().all(|view| !view.spec.same_rows(spec));
        if schema.views().iter().any(is_new) && self.inner.is_empty(entry.tree)? {
            for view in schema.views().to_vec().iter().filter(|spec| is_new(spec)) {
                self.swap(&mut schema, view)?;
            }
        }
        let mut views = Vec::with_capacity(schema.views().len());
        for spec in schema.views() {
            let known = entry.views.iter().find(|view| view.spec.same_rows(spec));
            views.push(match known {
                Some(view) => view.with_spec(spec),
                None => catalogue::create_view(&self.inner, schema.name(), spec)?,
            });
        }
        let stored = catalogue::store(&self.inner, &schema)?;
        let is_unready = |view: &OpenView| !view.spec.ready;
        self.makes_work.set(self.makes_work.get() || views.iter().any(is_unready));
        Ok(Entry { schema, tree: entry.tree, views, stored })
    }

    /// A view holds every document: it takes the place of older ones that no type still declares.
    fn swap(&self, schema: &mut Schema, view: &ViewSpec) -> Result<()> {
        let collection = schema.name().to_owned();
        let gone = schema.view_is_ready(view, |older| self.known.is_declared(&collection, older));
        gone.iter().try_for_each(|gone| catalogue::drop_view(&self.inner, &collection, gone))
    }

    /// A step of building a view, of at most so many documents. Returns what it did; `None` if somebody else has walked here, or
    /// there is nothing to build any more.
    pub(crate) fn build_step(&self, step: &Step, documents_max: u64) -> Result<Option<Walked>> {
        let Some(entry) = self.find(step.collection())? else { return Ok(None) };
        let Some(view) = entry.views.iter().find(|view| step.is_of(view)) else { return Ok(None) };
        let walked =
            self.all_or_nothing(step.walk((&self.inner, self.known), (&entry, view), documents_max))?;
        if walked.as_ref().is_some_and(|walked| walked.at_end) {
            let mut schema = entry.schema.clone();
            self.all_or_nothing(self.swap(&mut schema, &view.spec))?;
            self.grow(&entry, schema)?;
        }
        Ok(walked)
    }

    /// Stores why a view is not built, so that other programs can tell, too.
    pub(crate) fn note_failure(&self, collection: &str, spec: &ViewSpec, why: &str) -> Result<()> {
        match self.find(collection)? {
            Some(entry) if entry.views.iter().any(|view| view.spec.same_rows(spec)) => {
                view::note_failure(&self.inner, collection, spec, why)
            }
            _ => Ok(()),
        }
    }

    /// Maps a document that waits for the code of a view.
    pub(crate) fn map_again(&self, collection: &str, spec: &ViewSpec, key: &[u8]) -> Result<()> {
        let Some(entry) = self.find(collection)? else { return Ok(()) };
        let Some(view) = entry.views.iter().find(|view| view.spec.same_rows(spec)) else { return Ok(()) };
        let document = self.inner.get(entry.tree, key)?;
        let put = view::put_rows((&self.inner, self.known), (&entry, view), key, document.as_deref());
        self.all_or_nothing(put)?;
        view::forget_failure(&self.inner, collection, spec)
    }

    /// A type is used: what it declares is kept, and what waited for its code is done, whatever becomes of this transaction.
    fn declare(&self, asked: Asked) {
        if self.known.declare(asked) && !asked.codes().is_empty() {
            self.known.wake();
        }
    }

    /// A step of bringing reductions of a view to disk.
    pub(crate) fn put_rows_again(&self, entry: &Entry, view: &OpenView, rows: &[Vec<u8>]) -> Result<()> {
        self.all_or_nothing(view::put_again(&self.inner, entry, view, rows))
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
            self.declare(asked);
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
            None => {
                self.declare(asked);
                self.enter(self.all_or_nothing(catalogue::create(&self.inner, &asked.schema()))?)
            }
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

    /// Stores a document of the collection's version, given without the mark of it, or deletes one.
    pub(crate) fn write(&self, entry: &Entry, key: &[u8], document: Option<&[u8]>) -> Result<()> {
        let marked = document.map(|document| version::join(entry.schema.version(), document));
        let document = marked.as_deref();
        let changes = view::Changes::of((&self.inner, self.known), entry, key, document)?;
        let written = changes.apply(&self.inner).and_then(|()| match document {
            Some(document) => self.inner.put(entry.tree, key, document),
            None => self.inner.delete(entry.tree, key),
        });
        if changes.is_empty() { written } else { self.all_or_nothing(written) }
    }

    /// Deletes the first documents of a range, at most so many, and says how many there were.
    pub(crate) fn delete_span(&self, entry: &Entry, span: Span, at_most: u64) -> Result<u64> {
        // The cursor stands on a state of its own, which these deletes do not change.
        let mut cursor = self.inner.cursor(entry.tree, span.into_bytes(), Direction::Forward)?;
        let mut deleted = 0;
        loop {
            // Only one chunk of keys is in memory, and a range that is too large is refused before all of it
            // is read.
            let wanted = at_most.saturating_sub(deleted).min(DELETED_AT_ONCE);
            let mut keys = Vec::new();
            while (keys.len() as u64) < wanted
                && let Some(key) = cursor.next_key()?
            {
                keys.push(key.to_vec());
            }
            keys.iter().try_for_each(|key| self.write(entry, key, None))?;
            deleted += keys.len() as u64;
            if (keys.len() as u64) < DELETED_AT_ONCE {
                return Ok(deleted);
            }
        }
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

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn known(&self) -> &Known {
        self.known
    }

    fn may_change(&self) -> bool {
        true
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn now(&self) -> Millis {
        *self.now.get_or_init(|| self.known.clock().now())
    }
}

impl Reads for Transaction<'_> {}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
