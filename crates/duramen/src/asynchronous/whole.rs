//! The methods of [`Db`](crate::Db) about a whole database, collection or store, on threads of the pool.
//!
//! Each takes a thread while it works: [`AsyncDb::with_threads`] sets how many there are. Dropping a future
//! before its call has begun does nothing; later, the call runs to its end.

use std::path::Path;

use super::AsyncDb;
use crate::access::collection::Collection;
use crate::access::snapshot::Snapshot;
use crate::catalog::schema::Schema;
use crate::db::backup::CopyProgress;
use crate::db::compact::{CompactProgress, Compacted};
use crate::db::migrate;
use crate::db::verify::DocumentReport;
use crate::feed::consumer::ConsumerState;
use crate::feed::outside::FeedPosition;
use crate::kv::KvStats;
use crate::store::error::Result;
use crate::store::{
    CheckReport, DurabilityStatus, FeedStats, HeldSnapshot, HotKey, SlowCommit, Stats, Timings,
};
use crate::view::{Progress, ViewState};

impl AsyncDb {
    /// Checks a type against its collection now instead of at its first call.
    ///
    /// # Errors
    /// As [`Db::register`](crate::Db::register).
    pub async fn register<C: Collection>(&self) -> Result<()> {
        self.run(|db| db.register::<C>()).await
    }

    /// Converts all documents of earlier versions.
    ///
    /// # Errors
    /// As [`Db::migrate`](crate::Db::migrate).
    pub async fn migrate<C: Collection>(
        &self,
        progress: impl FnMut(&migrate::Progress) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.run(|db| db.migrate::<C>(progress)).await
    }

    /// Builds the incomplete views of a collection, and returns once they are complete.
    ///
    /// # Errors
    /// As [`Db::build_views`](crate::Db::build_views).
    pub async fn build_views<C: Collection>(
        &self,
        progress: impl FnMut(&Progress) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.run(|db| db.build_views::<C>(progress)).await
    }

    /// Creates a collection of documents without a type, or checks that it has this definition.
    ///
    /// # Errors
    /// As [`Db::ensure`](crate::Db::ensure).
    pub async fn ensure(&self, schema: &Schema) -> Result<()> {
        let schema = schema.clone();
        self.run(move |db| db.ensure(&schema).map(drop)).await
    }

    /// Every collection, by name.
    ///
    /// # Errors
    /// As [`Db::collections`](crate::Db::collections).
    pub async fn collections(&self) -> Result<Vec<Schema>> {
        self.run(|db| db.collections()).await
    }

    /// Every view of every collection, and its build progress.
    ///
    /// # Errors
    /// As [`Db::view_states`](crate::Db::view_states).
    pub async fn view_states(&self) -> Result<Vec<ViewState>> {
        self.run(|db| db.view_states()).await
    }

    /// A snapshot of the newest state. Its own reads block the thread that makes them; [`AsyncDb::read`] runs
    /// them on the pool.
    ///
    /// # Errors
    /// As [`Db::snapshot`](crate::Db::snapshot).
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.run(|db| db.snapshot()).await
    }

    /// Copies the newest state into a new database.
    ///
    /// # Errors
    /// As [`Db::backup`](crate::Db::backup).
    pub async fn backup(&self, path: impl AsRef<Path>) -> Result<CopyProgress> {
        self.backup_with(path, |_| Ok(())).await
    }

    /// As [`AsyncDb::backup`], and reports its progress. An error from `progress` stops it.
    ///
    /// # Errors
    /// As [`Db::backup`](crate::Db::backup); errors of `progress`.
    pub async fn backup_with(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(&CopyProgress) -> Result<()> + Send + 'static,
    ) -> Result<CopyProgress> {
        let path = path.as_ref().to_owned();
        self.run(move |db| db.backup_with(path, progress)).await
    }

    /// Shortens the data file to what is left in it, while others read and write.
    ///
    /// # Errors
    /// As [`Db::compact`](crate::Db::compact).
    pub async fn compact(&self) -> Result<Compacted> {
        self.compact_with(|_| Ok(())).await
    }

    /// As [`AsyncDb::compact`], and reports its progress. An error from `progress` stops it.
    ///
    /// # Errors
    /// As [`Db::compact`](crate::Db::compact); errors of `progress`.
    pub async fn compact_with(
        &self,
        progress: impl FnMut(&CompactProgress) -> Result<()> + Send + 'static,
    ) -> Result<Compacted> {
        self.run(move |db| db.compact_with(progress)).await
    }

    /// Reads and verifies every page of the newest state, and the log after the newest checkpoint.
    ///
    /// # Errors
    /// As [`Db::check`](crate::Db::check).
    pub async fn check(&self) -> Result<CheckReport> {
        self.run(|db| db.check()).await
    }

    /// Reads and checks every document, key-value and blob.
    ///
    /// # Errors
    /// As [`Db::check_documents`](crate::Db::check_documents).
    pub async fn check_documents(&self) -> Result<DocumentReport> {
        self.run(|db| db.check_documents()).await
    }

    /// Deletes every expired value and frees its space. Returns how many there were.
    ///
    /// # Errors
    /// As [`Db::sweep_expired`](crate::Db::sweep_expired).
    pub async fn sweep_expired(&self) -> Result<u64> {
        self.run(|db| db.sweep_expired()).await
    }

    /// Frees the space of all unreferenced blobs. Returns how many pieces they had.
    ///
    /// # Errors
    /// As [`Db::sweep_blobs`](crate::Db::sweep_blobs).
    pub async fn sweep_blobs(&self) -> Result<u64> {
        self.run(|db| db.sweep_blobs()).await
    }

    /// The lag of expiry over all namespaces.
    ///
    /// # Errors
    /// As [`Db::kv_stats`](crate::Db::kv_stats).
    pub async fn kv_stats(&self) -> Result<KvStats> {
        self.run(|db| db.kv_stats()).await
    }

    /// Every consumer: its position, and whether changes it has not read are still kept.
    ///
    /// # Errors
    /// As [`Db::consumers`](crate::Db::consumers).
    pub async fn consumers(&self) -> Result<Vec<ConsumerState>> {
        self.run(|db| db.consumers()).await
    }

    /// Counters since the database was opened, and sizes now. Waits for nothing.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.blocking().stats()
    }

    /// What the change feed holds now, and the oldest change that can be read. Waits for nothing.
    #[must_use]
    pub fn feed(&self) -> FeedStats {
        self.blocking().feed()
    }

    /// As [`Db::feed_position`](crate::Db::feed_position). Waits for nothing.
    #[must_use]
    pub fn feed_position(&self) -> FeedPosition {
        self.blocking().feed_position()
    }

    /// As [`Db::timings`](crate::Db::timings).
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.blocking().timings()
    }

    /// As [`Db::slow_commits`](crate::Db::slow_commits).
    ///
    /// # Errors
    /// As [`Db::slow_commits`](crate::Db::slow_commits).
    pub async fn slow_commits(&self) -> Result<Vec<SlowCommit>> {
        self.run(|db| db.slow_commits()).await
    }

    /// As [`Db::hot_keys`](crate::Db::hot_keys).
    ///
    /// # Errors
    /// As [`Db::hot_keys`](crate::Db::hot_keys).
    pub async fn hot_keys(&self) -> Result<Vec<HotKey>> {
        self.run(|db| db.hot_keys()).await
    }

    /// As [`Db::held_snapshots`](crate::Db::held_snapshots).
    #[must_use]
    pub fn held_snapshots(&self) -> Vec<HeldSnapshot> {
        self.blocking().held_snapshots()
    }

    /// Changes the target for all memory of the engine. Waits for nothing.
    ///
    /// # Errors
    /// As [`Db::set_memory_bytes`](crate::Db::set_memory_bytes).
    pub fn set_memory_bytes(&self, bytes: usize) -> Result<()> {
        self.blocking().set_memory_bytes(bytes)
    }

    /// As [`Db::opening`](crate::Db::opening).
    #[must_use]
    pub fn opening(&self) -> u64 {
        self.blocking().opening()
    }

    /// How durable this database is, and why. Waits for nothing.
    #[must_use]
    pub fn durability_status(&self) -> DurabilityStatus {
        self.blocking().durability_status()
    }
}
