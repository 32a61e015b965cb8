//! Names of earlier releases. They go away with the next release.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use crate::engine::{DurabilityStatus, Engine, Hooks, Keep, Repair, RepairProgress};
use crate::error::Result;
use crate::options::Options;

/// Renamed to [`Repair`].
#[deprecated = "renamed to `Repair`"]
pub type Salvage = Repair;

/// Renamed to [`RepairProgress`].
#[deprecated = "renamed to `RepairProgress`"]
pub type RecoverProgress = RepairProgress;

/// Renamed to [`DurabilityStatus`].
#[deprecated = "renamed to `DurabilityStatus`"]
pub type Posture = DurabilityStatus;

impl Engine {
    /// Renamed to [`Engine::repair`].
    ///
    /// # Errors
    /// As [`Engine::repair`].
    #[deprecated = "renamed to `repair`"]
    pub fn recover(
        disk: &Arc<dyn Disk>,
        from: &Path,
        to: &Path,
        options: &Options,
        hooks: Hooks,
        keep: &dyn Fn(&str) -> Keep,
        progress: &mut dyn FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<(Engine, Repair)> {
        Engine::repair(disk, from, to, options, hooks, keep, progress)
    }

    /// Renamed to [`Engine::finish_repair`].
    ///
    /// # Errors
    /// As [`Engine::finish_repair`].
    #[deprecated = "renamed to `finish_repair`"]
    pub fn finish_recovery(&self) -> Result<()> {
        self.finish_repair()
    }

    /// Renamed to [`Engine::durability_status`].
    #[deprecated = "renamed to `durability_status`"]
    #[must_use]
    pub fn posture(&self) -> DurabilityStatus {
        self.durability_status()
    }
}
