//! Names of earlier releases. They go away with the next release.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use crate::access::handle::Db;
use crate::db::options::DbOptions;
use crate::db::repair::{RepairProgress, RepairReport};
use crate::store::DurabilityStatus;
use crate::store::error::Result;

/// Renamed to [`RepairProgress`].
#[deprecated = "renamed to `RepairProgress`"]
pub type RecoverProgress = RepairProgress;

/// Renamed to [`RepairReport`].
#[deprecated = "renamed to `RepairReport`"]
pub type RecoverReport = RepairReport;

/// Renamed to [`RepairStage`](crate::RepairStage).
#[deprecated = "renamed to `RepairStage`"]
pub type RecoverStage = crate::db::repair::RepairStage;

/// Renamed to [`Repaired`](crate::Repaired).
#[deprecated = "renamed to `Repaired`"]
pub type Recovered = crate::db::repair::Repaired;

/// Renamed to [`DurabilityStatus`].
#[deprecated = "renamed to `DurabilityStatus`"]
pub type Posture = DurabilityStatus;

/// Renamed to [`repair`](crate::repair).
///
/// # Errors
/// As [`DbOptions::repair`].
#[deprecated = "renamed to `repair`"]
pub fn recover(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: DbOptions,
    progress: impl FnMut(&RepairProgress) -> Result<()>,
) -> Result<RepairReport> {
    options.repair(from, to, progress)
}

impl DbOptions {
    /// Renamed to [`DbOptions::repair`].
    ///
    /// # Errors
    /// As [`DbOptions::repair`].
    #[deprecated = "renamed to `repair`"]
    pub fn recover(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<RepairReport> {
        self.repair(from, to, progress)
    }

    /// Renamed to [`DbOptions::repair_on`].
    ///
    /// # Errors
    /// As [`DbOptions::repair`].
    #[deprecated = "renamed to `repair_on`"]
    pub fn recover_on(
        self,
        disk: Arc<dyn Disk>,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<RepairReport> {
        self.repair_on(disk, from, to, progress)
    }

    /// Renamed to [`DbOptions::repair_without_log`].
    #[deprecated = "renamed to `repair_without_log`"]
    #[must_use]
    pub fn recover_without_log(self, without: bool) -> Self {
        self.repair_without_log(without)
    }
}

impl Db {
    /// Renamed to [`Db::durability_status`].
    #[deprecated = "renamed to `durability_status`"]
    #[must_use]
    pub fn posture(&self) -> DurabilityStatus {
        self.durability_status()
    }
}
