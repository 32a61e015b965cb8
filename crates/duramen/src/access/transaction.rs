//! Transactions: reads and writes that commit together or not at all.
//!
//! Owns the changes of the catalogue and of single rows. Documents are written by documents/writes.rs
//! and typed/writes.rs; after_commit.rs has the work that follows a commit.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::Arc;

use crate::access::after_commit::AfterCommit;
use crate::access::deadlines::{Deadline, Deadlines};
use crate::access::open_state::OpenState;
use crate::access::reads::{LocalReads, sealed};
use crate::access::references;
use crate::access::references::{Followed, Unsettled};
use crate::access::snapshot::Snapshot;
use crate::access::type_descriptor::TypeDescriptor;
use crate::access::type_registry::Fits;
use crate::access::views::build;
use crate::access::views::build::{Step, Walked};
use crate::access::views::failures;
use crate::access::views::maintain;
use crate::access::views::mend;
use crate::access::views::state;
use crate::catalog::entries::{self, Entry, OpenView, ViewOf};
use crate::catalog::ids;
use crate::catalog::progress;
use crate::catalog::schema::{Reference, Schema};
use crate::catalog::shapes::{LastShape, Layout, Shape};
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, Shared, Source, TreeId};
use crate::value::clock::Millis;
use crate::value::span::Span;
use crate::value::version;
use crate::view::spec::ViewSpec;

/// Documents of a range that are deleted at once.
const DELETED_AT_ONCE: u64 = 1_000;

/// What is stored under a key that is written.
#[derive(Clone, Copy)]
pub(crate) enum Before<'b> {
    /// Not read yet. A write reads it if views need it.
    Unread,
    /// Read in this transaction: nothing, or this document.
    Read(Option<&'b [u8]>),
}

/// A transaction: sees one state of the database and its own writes.
///
/// Its reads are the methods of [`Reads`](crate::Reads) and [`LocalReads`](crate::LocalReads). Typed
/// documents are written by the methods here, dynamic ones through
/// [`documents`](crate::LocalReads::documents).
pub struct Transaction<'e> {
    inner: Shared<'e>,
    state: &'e OpenState,
    noted: Noted,
}

/// What a transaction keeps beside the engine's: an [`OpenTransaction`](crate::OpenTransaction) carries it
/// from call to call.
#[derive(Default)]
pub(crate) struct Noted {
    effects: RefCell<AfterCommit>,
    now: OnceCell<Millis>,
    /// Why a write stopped halfway. The transaction must then not commit, even if its closure discards the
    /// error.
    failed: RefCell<Option<Error>>,
    /// What references need from the state in which this transaction commits.
    unsettled: RefCell<Unsettled>,
    deadlines: Deadlines,
}

impl Noted {
    /// The deadlines of the transaction.
    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// The work that is left once the transaction commits.
    pub(crate) fn into_effects(self) -> AfterCommit {
        self.effects.into_inner()
    }
}

impl<'e> Transaction<'e> {
    pub(crate) fn new(inner: &'e mut crate::store::Transaction, state: &'e OpenState, noted: Noted) -> Self {
        Transaction { inner: Shared::new(inner), state, noted }
    }

    /// The engine's transaction.
    pub(crate) fn shared(&self) -> &Shared<'e> {
        &self.inner
    }

    /// Why this transaction must not commit.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.noted.failed.borrow().clone()
    }

    /// What references need at the commit.
    pub(crate) fn unsettled(&self) -> &RefCell<Unsettled> {
        &self.noted.unsettled
    }

    /// How many documents of others the deletes of this transaction have deleted or changed so far, because
    /// they referred to what was deleted.
    #[must_use]
    pub fn followed(&self) -> Followed {
        self.noted.unsettled.borrow().followed
    }

    /// The error that running this transaction again may fix, even if the closure returned an error of its
    /// own.
    pub(crate) fn wants_to_run_again(&self) -> Option<Error> {
        self.inner.wants_to_run_again()
    }

    /// Wraps a write of several steps: if one step fails, the transaction must not commit.
    pub(crate) fn all_or_nothing<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.noted.failed.borrow_mut().get_or_insert_with(|| error.clone());
        }
        done
    }

    /// Notes that a value with an expiry was written.
    pub(crate) fn gives_expiry_work(&self) {
        self.noted.effects.borrow_mut().expires = true;
    }

    /// Holds something until the transaction has committed, or is dropped.
    pub(crate) fn hold(&self, held: Arc<dyn Send + Sync>) {
        self.noted.effects.borrow_mut().held.push(held);
    }

    /// Counts a write of a key-value.
    pub(crate) fn wrote_kv(&self, namespace: &str) {
        self.noted.effects.borrow_mut().count_kv_write(namespace);
    }

    /// Notes that its request is the first one of a minute. The background forgets the minute later.
    pub(crate) fn begins_minute(&self) {
        let mut effects = self.noted.effects.borrow_mut();
        (effects.begins_minute, effects.makes_work) = (true, true);
    }

    /// Notes that blobs are added or removed.
    pub(crate) fn wrote_blobs(&self) {
        self.noted.effects.borrow_mut().wrote_blobs = true;
    }

    /// What it keeps beside the engine's transaction.
    pub(crate) fn into_noted(self) -> Noted {
        self.noted
    }

    /// The deadline of the values that were written with a lifetime.
    pub(crate) fn written_until(&self) -> &Deadline {
        &self.noted.deadlines.written
    }

    /// Calls `condition` when this transaction takes its place in the order of commits. If it fails, nothing
    /// is committed, and the commit returns that error: a deadline that must not have passed, for example.
    ///
    /// It runs while no other transaction can be ordered, in any thread: it must return at once, and commits
    /// inside it are refused. A panic is an error of the commit. It may run more than once. A transaction
    /// that wrote nothing has no place of its own, and it does not run. A [`WriteConflict`](crate::Code) from
    /// it lets the closure run again.
    pub fn only_if(&mut self, condition: impl FnMut() -> Result<()> + Send + 'static) {
        self.inner.only_if(Box::new(condition));
    }

    /// Whether all other commits wait for this run of the closure, which happens after eight conflicts. A
    /// closure that takes long can give up then: any error but `WriteConflict` ends it.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        self.inner.runs_alone()
    }

    /// Whether it has written anything so far: one that has not becomes no commit.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.inner.writes()
    }

    /// Bounds the memory of the notes of what this transaction reads, in bytes; the database's memory target
    /// does not count it. Beyond the bound it counts as having read trees whole: more conflicts, never a
    /// wrong answer.
    pub fn limit_reads(&mut self, bytes: usize) {
        self.inner.limit_reads(bytes);
    }

    /// The memory that the notes of what was read take, in bytes, about.
    #[must_use]
    pub fn read_bytes(&self) -> usize {
        self.inner.read_bytes()
    }

    /// Calls `run` once this transaction has committed and reached its level.
    ///
    /// It runs in the committing thread, or in one of an asynchronous handle's threads, in the order of
    /// registration. A rollback discards it, and so does a conflict: the next run of the closure registers
    /// anew.
    ///
    /// Work that must not be lost in a crash between the commit and the call belongs in the transaction
    /// instead.
    pub fn after_commit(&mut self, run: impl FnOnce() + Send + 'static) {
        self.noted.effects.get_mut().callbacks.push(Box::new(run));
    }

    /// Creates a collection.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `AlreadyExists` (E0210) if there is one of that name;
    /// `InvalidArgument` (E0201) for an invalid schema; `ReducerMissing` (E0205) if a view is reduced by code
    /// that is not registered.
    pub fn create(&mut self, schema: &Schema) -> Result<()> {
        schema.validate()?;
        if entries::find(&self.inner, &self.state.catalog, schema.name())?.is_some() {
            return Err(Error::new(Code::AlreadyExists, format!("the collection {} exists", schema.name()))
                .with_hint("ensure() takes one that exists under the same terms"));
        }
        self.made(schema)?;
        Ok(())
    }

    /// Creates a collection with its references.
    fn made(&self, schema: &Schema) -> Result<Arc<Entry>> {
        let entry = self.created(schema)?;
        if !schema.refers() {
            return Ok(entry);
        }
        let mut with_references = entry.schema.clone();
        for reference in schema.references() {
            with_references.adopt_reference(reference);
        }
        self.grow(&entry, with_references)
    }

    /// Creates a collection, or adds the new columns to an existing one. Returns the resulting schema.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `InvalidArgument` (E0201) for an invalid schema, or if it
    /// exists with another key, other sums or another type for a column; `ReducerMissing` (E0205) if a view
    /// is reduced by code that is not registered.
    pub fn ensure(&mut self, schema: &Schema) -> Result<Schema> {
        schema.validate()?;
        let Some(entry) = entries::find(&self.inner, &self.state.catalog, schema.name())? else {
            return Ok(self.made(schema)?.schema.clone());
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
    /// Those of a [write](crate::Error#writes); `StillReferenced` (E0217) if another collection refers to it.
    pub fn drop_collection(&mut self, collection: &str) -> Result<bool> {
        references::unlink_dropped(self, collection)?;
        let effects = self.noted.effects.get_mut();
        effects.entries.remove(collection);
        effects.fitting.clear();
        self.all_or_nothing(entries::remove(&self.inner, collection))
    }

    /// Adds a view. Returns whether no view with the same definition existed.
    ///
    /// It is built from the existing documents, concurrently with writers. An existing view of the same name
    /// with another definition answers until the new one is complete, and is then dropped.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if the collection does not exist;
    /// `InvalidArgument` (E0201) for an invalid view, or one that sums a column that does not hold integers;
    /// `ReducerMissing` (E0205) if it is reduced by code that is not registered.
    pub fn add_view(&mut self, collection: &str, view: &ViewSpec) -> Result<bool> {
        view.validate()?;
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let is_new = schema.adopt_new_view(view)?;
        if is_new {
            schema.validate()?;
            self.grow(&entry, schema)?;
        }
        Ok(is_new)
    }

    /// Builds a view anew. The existing one answers until the new one is complete, and is then dropped.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if the collection or the view does not
    /// exist; `InvalidArgument` (E0201) if the collection has no room for another view;
    /// `ReducerMissing` (E0205) if it is reduced by code that is not registered.
    pub fn rebuild_view(&mut self, collection: &str, view: &str) -> Result<()> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        if !schema.renew_view(view) {
            return Err(state::unknown(&entry, view));
        }
        schema.validate()?;
        self.grow(&entry, schema)?;
        Ok(())
    }

    /// Drops a view with all its rows. Returns whether it was there.
    ///
    /// The next write through a type that still declares the view creates it again.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if the collection is not there.
    pub fn drop_view(&mut self, collection: &str, view: &str) -> Result<bool> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let gone = schema.remove_view(view);
        self.drop_generations(&entry, schema, &gone)
    }

    /// Drops what was built so far of a view that is not complete. A complete view of the same name, which it
    /// was to replace, stays. Returns whether anything was dropped.
    ///
    /// While a view is being built, a document that it cannot hold is refused. This ends that, if building
    /// the view failed.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if the collection is not there.
    pub fn drop_unfinished_view(&mut self, collection: &str, view: &str) -> Result<bool> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let gone = schema.remove_unfinished(view);
        self.drop_generations(&entry, schema, &gone)
    }

    /// Drops generations of views, and stores the schema without them. Returns whether there are any.
    fn drop_generations(&self, entry: &Entry, schema: Schema, gone: &[ViewSpec]) -> Result<bool> {
        if gone.is_empty() {
            return Ok(false);
        }
        let collection = schema.name().to_owned();
        let dropped = gone.iter().try_for_each(|spec| entries::drop_view(&self.inner, &collection, spec));
        self.all_or_nothing(dropped)?;
        self.grow(entry, schema)?;
        Ok(true)
    }

    /// Adds a reference. Returns whether its field had no reference with the same definition.
    ///
    /// Another reference of the field is replaced; the next write through a type that declares that one
    /// replaces this one in turn. From now on writes are checked. The existing documents are
    /// checked concurrently with writers; [`DocumentsOf::references`](crate::DocumentsOf::references) has the
    /// progress, or the documents that break it. Until all are checked, a delete of what they may refer
    /// to fails with `Rebuilding`.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if either collection does not exist;
    /// `InvalidArgument` (E0201) for an invalid reference, or a field of another type than the key.
    pub fn add_reference(&mut self, collection: &str, reference: &Reference) -> Result<bool> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let is_new = schema.adopt_reference(reference);
        if is_new {
            schema.validate()?;
            references::check_target(self, &schema, reference)?;
            self.grow(&entry, schema)?;
        }
        Ok(is_new)
    }

    /// Drops the reference of a field. Returns whether there was one.
    ///
    /// The next write through a type that still declares it adds it again.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if the collection is not there.
    pub fn drop_reference(&mut self, collection: &str, field: &str) -> Result<bool> {
        let entry = sealed::Readable::entry(self, collection)?;
        let mut schema = entry.schema.clone();
        let was_there = schema.remove_reference(field);
        if was_there {
            self.grow(&entry, schema)?;
        }
        Ok(was_there)
    }

    /// Stores a value in a tree of bytes. Creates the tree if it does not exist.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `InvalidArgument` (E0201) for a reserved name;
    /// `KeyTooLong` (E0202) for a key of more than 1,024 bytes.
    pub fn put_bytes(&mut self, tree: &str, key: &[u8], value: &[u8]) -> Result<()> {
        entries::check_users_name(tree)?;
        let tree = match self.inner.tree(tree)? {
            Some(tree) => tree,
            None => self.inner.create_tree(tree, None)?,
        };
        self.inner.put(tree, key, value)
    }

    /// Deletes a key of a tree of bytes. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `InvalidArgument` (E0201) for a reserved name.
    pub fn delete_bytes(&mut self, tree: &str, key: &[u8]) -> Result<bool> {
        if self.get_bytes(tree, key)?.is_none() {
            return Ok(false);
        }
        let tree = self.inner.tree(tree)?.expect("a value was found in it above");
        self.inner.delete(tree, key)?;
        Ok(true)
    }

    /// Stores a changed entry, and creates the trees of its new views. The views are then built, unless there
    /// are no documents.
    pub(crate) fn grow(&self, entry: &Entry, schema: Schema) -> Result<Arc<Entry>> {
        let grown = self.all_or_nothing(self.grown(entry, schema))?;
        self.noted.effects.borrow_mut().fitting.clear();
        Ok(self.enter(grown))
    }

    fn grown(&self, entry: &Entry, mut schema: Schema) -> Result<Entry> {
        if schema.version() != entry.schema.version() {
            for view in &entry.views {
                entries::drop_view(&self.inner, schema.name(), &view.spec)?;
            }
            progress::forget_migration(&self.inner, schema.name())?;
            if self.inner.is_empty(entry.tree)? {
                schema.end_migration();
            }
        }
        references::link(self, entry, &mut schema)?;
        let is_new = |spec: &ViewSpec| entry.views.iter().all(|view| !view.spec.same_rows(spec));
        let kept = schema.kept_views();
        if schema.views().iter().chain(&kept).any(is_new) && self.inner.is_empty(entry.tree)? {
            for view in schema.views().to_vec().iter().chain(&kept).filter(|spec| is_new(spec)) {
                self.swap(&mut schema, view)?;
            }
        }
        let mut views = Vec::with_capacity(schema.views().len());
        for spec in schema.views().iter().chain(&schema.kept_views()) {
            let known = entry.views.iter().find(|view| view.spec.same_rows(spec));
            views.push(match known {
                Some(view) => view.with_spec(spec),
                None => entries::create_view(&self.inner, schema.name(), spec)?,
            });
        }
        let stored = entries::store(&self.inner, &schema)?;
        let is_unready = |view: &OpenView| !view.spec.ready;
        self.noted.effects.borrow_mut().makes_work |= views.iter().any(is_unready);
        Ok(Entry { schema, tree: entry.tree, views, stored, last_shape: LastShape::default() })
    }

    /// Marks a view as complete, and drops the older ones that no type declares any more.
    fn swap(&self, schema: &mut Schema, view: &ViewSpec) -> Result<()> {
        if view.of_reference.is_some() {
            schema.reference_is_ready(view);
            return Ok(());
        }
        let collection = schema.name().to_owned();
        let gone = schema.view_is_ready(view, |older| self.state.types.is_declared(&collection, older));
        gone.iter().try_for_each(|gone| entries::drop_view(&self.inner, &collection, gone))
    }

    /// One step of building a view, of at most `documents_max` documents.
    ///
    /// Returns its progress; `None` if another thread advanced the walk meanwhile, or nothing is left to
    /// build.
    pub(crate) fn build_step(&self, step: &Step, documents_max: u64) -> Result<Option<Walked>> {
        let Some(entry) = self.find(step.collection())? else { return Ok(None) };
        let Some(view) = entry.views.iter().find(|view| step.is_of(view)) else { return Ok(None) };
        let walked = self.all_or_nothing(step.walk(self, ViewOf { entry: &entry, view }, documents_max))?;
        if walked.as_ref().is_some_and(|walked| walked.at_end) {
            let mut schema = entry.schema.clone();
            self.all_or_nothing(self.swap(&mut schema, &view.spec))?;
            self.grow(&entry, schema)?;
        }
        Ok(walked)
    }

    /// Stores the reason why a view is not built, so that other programs can report it too.
    pub(crate) fn note_failure(&self, collection: &str, spec: &ViewSpec, why: &str) -> Result<()> {
        match self.find(collection)? {
            Some(entry) if entry.views.iter().any(|view| view.spec.same_rows(spec)) => {
                failures::note(&self.inner, collection, spec, why)
            }
            _ => Ok(()),
        }
    }

    /// Computes the rows of a document that waited for the code of a view.
    pub(crate) fn map_again(&self, collection: &str, spec: &ViewSpec, key: &[u8]) -> Result<()> {
        let Some(entry) = self.find(collection)? else { return Ok(()) };
        let Some(view) = entry.views.iter().find(|view| view.spec.same_rows(spec)) else { return Ok(()) };
        let document = self.inner.get(entry.tree, key)?;
        let put = build::put_rows(self, ViewOf { entry: &entry, view }, key, document.as_deref());
        self.all_or_nothing(put)?;
        progress::forget_failure(&self.inner, collection, spec)
    }

    /// Registers a type's declarations, and wakes the background work that waited for its code. A rollback
    /// does not undo it.
    fn declare(&self, descriptor: TypeDescriptor) {
        if self.state.types.declare(descriptor) && !descriptor.codes().is_empty() {
            self.state.wake();
        }
    }

    /// One step of writing a view's missing reductions to disk.
    pub(crate) fn put_rows_again(&self, entry: &Entry, view: &OpenView, rows: &[Vec<u8>]) -> Result<()> {
        self.all_or_nothing(mend::put_again(&self.inner, entry, view, rows))
    }

    /// Creates a collection without its references.
    pub(crate) fn created(&self, schema: &Schema) -> Result<Arc<Entry>> {
        let created = entries::create(&self.inner, &self.state.catalog, schema);
        Ok(self.enter(self.all_or_nothing(created)?))
    }

    fn enter(&self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.noted.effects.borrow_mut().entries.insert(entry.schema.name().to_owned(), Arc::clone(&entry));
        entry
    }

    pub(crate) fn find(&self, collection: &str) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.noted.effects.borrow().entries.get(collection) {
            return Ok(Some(Arc::clone(entry)));
        }
        let found = entries::find(&self.inner, &self.state.catalog, collection)?;
        if let Some(entry) = &found {
            self.noted.effects.borrow_mut().entries.insert(collection.to_owned(), Arc::clone(entry));
        }
        Ok(found)
    }

    /// The entry of a type's collection, for reading; `None` if it does not exist.
    pub(crate) fn fits(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.fitted_already(descriptor, Fits::Reads) {
            return Ok(Some(entry));
        }
        let Some(entry) = self.find(descriptor.name)? else { return Ok(None) };
        let types = &self.state.types;
        let is_this = |known: &Arc<Entry>| Arc::ptr_eq(known, &entry);
        let fits = if types.fitting(descriptor.kind).as_ref().is_some_and(is_this) {
            Fits::Writes
        } else if types.readable(descriptor.kind).as_ref().is_some_and(is_this) {
            Fits::Reads
        } else {
            self.declare(descriptor);
            self.state.fits(&self.inner, descriptor, &entry)?
        };
        self.noted.effects.borrow_mut().fitting.push((descriptor.kind, Arc::clone(&entry), fits));
        Ok(Some(entry))
    }

    /// The entry of a type's collection, for writing. Creates the collection, or adds the type's columns, if
    /// needed.
    pub(crate) fn fitted(&self, descriptor: TypeDescriptor) -> Result<Arc<Entry>> {
        self.fitted_for(descriptor, true)
    }

    /// The entry of a type's collection with the type's columns and views. The type does not write yet.
    pub(crate) fn registered(&self, descriptor: TypeDescriptor) -> Result<Arc<Entry>> {
        self.fitted_for(descriptor, false)
    }

    fn fitted_for(&self, descriptor: TypeDescriptor, writes: bool) -> Result<Arc<Entry>> {
        if let Some(entry) = self.fitted_already(descriptor, Fits::Writes) {
            return Ok(entry);
        }
        let found = self.fits(descriptor)?;
        if let Some(entry) = self.fitted_already(descriptor, Fits::Writes) {
            return Ok(entry);
        }
        let entry = match found {
            None => {
                self.declare(descriptor);
                self.created(&descriptor.schema())?
            }
            Some(entry) => entry,
        };
        self.state.sample(&self.inner, descriptor, &entry)?;
        self.state.check_references(descriptor, &entry)?;
        let entry = self.with_targets(descriptor, entry)?;
        let mut schema = entry.schema.clone();
        let grew = self.state.fit(&self.inner, descriptor, &entry, &mut schema, writes)?;
        let entry = if grew { self.grow(&entry, schema)? } else { entry };
        let fits = if writes { Fits::Writes } else { Fits::Reads };
        self.noted.effects.borrow_mut().fitting.push((descriptor.kind, Arc::clone(&entry), fits));
        Ok(entry)
    }

    /// Creates the collections that a type's references name, where they do not exist. Returns the entry of
    /// the type's collection, which those may have changed.
    fn with_targets(&self, descriptor: TypeDescriptor, entry: Arc<Entry>) -> Result<Arc<Entry>> {
        for target in descriptor.targets() {
            if self.find(target.name)?.is_none() {
                self.registered(target)?;
            }
        }
        Ok(self.find(descriptor.name)?.unwrap_or(entry))
    }

    fn fitted_already(&self, descriptor: TypeDescriptor, wanted: Fits) -> Option<Arc<Entry>> {
        self.noted.effects.borrow().fitting_entry(descriptor.kind, wanted)
    }

    /// What is stored under a key.
    pub(crate) fn stored(&self, entry: &Entry, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(entry.tree, key)
    }

    /// Stores a document of the collection's version, given without version prefix; `None` deletes.
    ///
    /// What refers to a deleted document follows; such a delete reads the document itself.
    pub(crate) fn write(
        &self,
        entry: &Entry,
        key: &[u8],
        before: Before<'_>,
        document: Option<&[u8]>,
    ) -> Result<()> {
        if document.is_none() && entry.schema.is_referred_to() {
            return self.all_or_nothing(references::delete(self, entry, key)).map(drop);
        }
        self.write_one(entry, key, before, document)
    }

    /// As [`write`](Self::write), without those that refer to a deleted document.
    pub(crate) fn write_one(
        &self,
        entry: &Entry,
        key: &[u8],
        before: Before<'_>,
        document: Option<&[u8]>,
    ) -> Result<()> {
        let shaped = document.map(|document| self.shaped(entry, document)).transpose()?;
        let marked = shaped.as_deref().map(|document| version::join(entry.schema.version(), document));
        let document = marked.as_deref();
        let changes = maintain::Changes::of(self, entry, key, before, document)?;
        if entry.schema.refers() {
            references::require_targets(self, entry, &changes, key)?;
        }
        let written = changes.apply_to_write(self, entry, key).and_then(|()| match document {
            Some(document) => self.inner.put(entry.tree, key, document),
            None => self.inner.delete(entry.tree, key),
        });
        if changes.is_empty() { written } else { self.all_or_nothing(written) }
    }

    /// A document as it is stored: by its shape, if it has names.
    fn shaped<'d>(&self, entry: &Entry, document: &'d [u8]) -> Result<Cow<'d, [u8]>> {
        let shapes = &self.state.catalog.shapes;
        let of = entry.collection_shapes();
        let Some((shape, stored)) = shapes.shaped(&of, document)? else { return Ok(Cow::Borrowed(document)) };
        self.put_shape(shape)?;
        Ok(Cow::Owned(stored))
    }

    /// The shape of documents of this layout; `None` if they are to keep their names.
    pub(crate) fn shape_of(&self, entry: &Entry, layout: &Layout) -> Result<Option<&Shape>> {
        let of = entry.collection_shapes();
        let shape = self.state.catalog.shapes.of_layout(&of, layout)?;
        shape.map(|shape| self.put_shape(shape)).transpose()?;
        Ok(shape)
    }

    /// Makes sure that the row of a shape is in the state of this transaction.
    fn put_shape(&self, shape: &Shape) -> Result<()> {
        let is_put = || self.noted.effects.borrow().shapes.contains(&shape.number());
        if !shape.is_published() && !is_put() {
            self.all_or_nothing(shape.put(&self.inner))?;
            self.noted.effects.borrow_mut().shapes.push(shape.number());
        }
        Ok(())
    }

    /// Deletes the first documents of a range, at most `at_most`. Returns how many were deleted.
    pub(crate) fn delete_span(&self, entry: &Entry, span: Span, at_most: u64) -> Result<u64> {
        // The cursor reads a state of its own, which these deletes do not change.
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
            deleted += self.delete_keys(entry, &keys)?;
            if (keys.len() as u64) < wanted || deleted == at_most {
                return Ok(deleted);
            }
        }
    }

    /// Deletes documents. Returns how many there were: others may have taken some along through references.
    fn delete_keys(&self, entry: &Entry, keys: &[Vec<u8>]) -> Result<u64> {
        if !entry.schema.is_referred_to() {
            keys.iter().try_for_each(|key| self.write_one(entry, key, Before::Unread, None))?;
            return Ok(keys.len() as u64);
        }
        let mut deleted = 0;
        for key in keys {
            deleted += u64::from(self.all_or_nothing(references::delete(self, entry, key))?);
        }
        Ok(deleted)
    }

    /// A new id from the counter.
    pub(crate) fn spread_id(&self, collection: &str, rows: TreeId) -> Result<u64> {
        let counter = self.state.ids.of(collection);
        let new = counter.take(&self.inner, collection, rows)?;
        if let Some(bound) = new.bound {
            self.noted.effects.borrow_mut().bounds.push((counter, bound));
        }
        Ok(new.id)
    }

    /// The largest id of a stored document; 0 if there is none.
    pub(crate) fn last_id(&self, rows: TreeId) -> Result<u64> {
        ids::last_id(&self.inner, rows)
    }

    /// Moves the counter past the largest id, because a document already has the id that it gave.
    pub(crate) fn pass_ids(&self, collection: &str, rows: TreeId) -> Result<()> {
        self.state.ids.of(collection).pass(&self.inner, rows)
    }
}

impl sealed::Readable for Transaction<'_> {
    fn may_change(&self) -> bool {
        true
    }

    fn as_snapshot(&self) -> Option<&Snapshot> {
        None
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        self.find(collection)?.ok_or_else(|| entries::unknown(collection))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>> {
        self.fits(descriptor)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting_now(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>> {
        self.fits(descriptor)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn open_state(&self) -> &OpenState {
        self.state
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn relied_until(&self) -> Option<&Deadline> {
        Some(&self.noted.deadlines.read)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn now(&self) -> Millis {
        *self.noted.now.get_or_init(|| self.state.clock.now())
    }
}

impl LocalReads for Transaction<'_> {}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
