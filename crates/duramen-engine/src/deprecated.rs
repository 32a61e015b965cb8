//! Names of earlier releases. They go away with the next release.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use crate::engine::{DurabilityStatus, Engine, Hooks, Keep, Repair, RepairProgress};
use crate::error::{Code, Error, Result};
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

#[allow(non_upper_case_globals, reason = "they were variants")]
impl Code {
    /// Renamed to [`Code::CorruptData`].
    #[deprecated = "renamed to `CorruptData`"]
    pub const DamagedData: Code = Code::CorruptData;
    /// Renamed to [`Code::CorruptLog`].
    #[deprecated = "renamed to `CorruptLog`"]
    pub const DamagedLog: Code = Code::CorruptLog;
    /// Renamed to [`Code::CorruptSuperblock`].
    #[deprecated = "renamed to `CorruptSuperblock`"]
    pub const DamagedSuperblock: Code = Code::CorruptSuperblock;
    /// Renamed to [`Code::CorruptFeed`].
    #[deprecated = "renamed to `CorruptFeed`"]
    pub const DamagedFeed: Code = Code::CorruptFeed;
}

impl Error {
    /// Renamed to [`Error::is_corruption`].
    #[deprecated = "renamed to `is_corruption`"]
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.is_corruption()
    }

    /// Renamed to [`Error::corrupt_data`].
    #[deprecated = "renamed to `corrupt_data`"]
    #[must_use]
    pub fn damaged_data(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::corrupt_data(file, offset, what)
    }

    /// Renamed to [`Error::corrupt_log`].
    #[deprecated = "renamed to `corrupt_log`"]
    #[must_use]
    pub fn damaged_log(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::corrupt_log(file, offset, what)
    }
}
