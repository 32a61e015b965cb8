//! State that all handles, snapshots and transactions of an open database share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::access::expiry::Expiry;
use crate::access::find::spill::SpillPlace;
use crate::access::type_descriptor::{Circumstances, TypeDescriptor};
use crate::access::type_registry::{Fits, TypeRegistry};
use crate::access::uploads::Uploads;
use crate::access::user_rows::SeenUsers;
use crate::access::views::builds::Builds;
use crate::catalog::cache::CatalogCache;
use crate::catalog::entries::Entry;
use crate::catalog::ids::IdCounters;
use crate::catalog::schema::{Reference, Schema};
use crate::store::error::Result;
use crate::store::{Source, Worker};
use crate::value::clock::{Clock, SteadyClock};
use crate::value::version;
use crate::view::spec::ViewSpec;

/// Each part has its own lock. No thread holds two of them.
#[derive(Debug)]
pub(crate) struct OpenState {
    pub(crate) clock: Clock,
    /// A random number of this opening, drawn when it is asked for.
    pub(crate) opening: OnceLock<u64>,
    /// The clock by which ids of requests are made.
    pub(crate) requests: SteadyClock,
    pub(crate) catalog: CatalogCache,
    pub(crate) types: TypeRegistry,
    pub(crate) ids: IdCounters,
    pub(crate) expiry: Expiry,
    pub(crate) uploads: Uploads,
    /// Another number after a commit has changed users of a server.
    pub(crate) user_rows_version: Arc<AtomicU64>,
    pub(crate) users: SeenUsers,
    pub(crate) builds: Builds,
    /// Where sorts larger than their memory go.
    pub(crate) spill: SpillPlace,
    /// The database is small and must behave deterministically: background work takes steps of few documents.
    pub(crate) is_simulated: bool,
    worker: OnceLock<Worker>,
}

impl OpenState {
    /// The state of a newly opened database.
    pub(crate) fn new(clock: Clock, spill: SpillPlace, is_simulated: bool) -> OpenState {
        OpenState {
            clock,
            opening: OnceLock::new(),
            requests: SteadyClock::default(),
            catalog: CatalogCache::default(),
            types: TypeRegistry::default(),
            ids: IdCounters::default(),
            expiry: Expiry::default(),
            uploads: Uploads::default(),
            user_rows_version: Arc::default(),
            users: SeenUsers::default(),
            builds: Builds::default(),
            spill,
            is_simulated,
            worker: OnceLock::new(),
        }
    }

    /// Caches an entry of a published state.
    pub(crate) fn remember_entry(&self, entry: &Arc<Entry>) {
        if self.catalog.remember(entry) {
            self.types.forget_fits(entry.schema.name());
        }
    }

    /// The access that a type has to a collection as it is.
    ///
    /// # Errors
    /// As [`TypeDescriptor::fit`].
    pub(crate) fn fits(
        &self,
        source: &dyn Source,
        descriptor: TypeDescriptor,
        entry: &Entry,
    ) -> Result<Fits> {
        let grows = self.fit(source, descriptor, entry, &mut entry.schema.clone(), true)?;
        let is_unseen =
            || descriptor.looks_inside(&entry.schema) && !self.types.has_sampled(&descriptor, entry.tree);
        Ok(if grows || is_unseen() { Fits::Reads } else { Fits::Writes })
    }

    /// Changes a copy of an entry's schema so that a type fits it. Returns whether it changed.
    ///
    /// # Errors
    /// As [`TypeDescriptor::fit`].
    pub(crate) fn fit(
        &self,
        source: &dyn Source,
        descriptor: TypeDescriptor,
        entry: &Entry,
        schema: &mut Schema,
        writes: bool,
    ) -> Result<bool> {
        let is_declared = |known: &Reference| self.types.refers(descriptor.name, known);
        // A transaction that reads the first document conflicts with fewer writers than one that counts all.
        let is_empty = || Ok(source.nth(entry.tree, 0)?.is_none());
        descriptor.fit(schema, &Circumstances { is_declared: &is_declared, is_empty: &is_empty, writes })
    }

    /// Checks that no other type of the program gives a type's references other terms.
    ///
    /// # Errors
    /// As [`TypeDescriptor::check_references`].
    pub(crate) fn check_references(&self, descriptor: TypeDescriptor, entry: &Entry) -> Result<()> {
        descriptor.check_references(&entry.schema, |known| self.types.refers(descriptor.name, known))
    }

    /// Decodes a sample of a collection's documents as a type, unless it was done.
    ///
    /// # Errors
    /// As [`TypeDescriptor::read_sample`].
    pub(crate) fn sample(
        &self,
        source: &dyn Source,
        descriptor: TypeDescriptor,
        entry: &Entry,
    ) -> Result<()> {
        if !descriptor.looks_inside(&entry.schema) || self.types.has_sampled(&descriptor, entry.tree) {
            return Ok(());
        }
        descriptor.read_sample(source, entry)?;
        // Noted even if the transaction is rolled back: after a conflict it does not read the sample again.
        self.types.remember_sampled(&descriptor, entry.tree);
        Ok(())
    }

    /// Whether rows of a view can be computed. A view in code needs its code.
    pub(crate) fn can_make_rows(&self, collection: &str, view: &ViewSpec) -> bool {
        if view.code_version().is_none() {
            return true;
        }
        let version = self.catalog.entry(collection).map_or(version::FIRST, |entry| entry.schema.version());
        self.types.code(collection, version, view).is_some()
    }

    /// Sets the worker of the background thread, once.
    pub(crate) fn work_by(&self, worker: Worker) {
        self.worker.get_or_init(|| worker);
    }

    /// Wakes the background thread, because there is work.
    pub(crate) fn wake(&self) {
        if let Some(worker) = self.worker.get() {
            worker.wake();
        }
    }
}
