//! Which of the safe sync methods is better, by what was measured of them.
//!
//! Owns the rule of decision 0007, as a pure function, for the engine that lives by it and for reports that foretell it.

use crate::SyncMethod;

/// Names of the file systems, as [`FileSystem::name`](crate::FileSystem::name) has them, on which DSYNC writes were cut
/// short by the power and lost nothing (`powercut table`).
const PROVEN: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Whether a durable write by this method is proven to be durable on a file system of this name.
///
/// `fdatasync` is on every one: without it no database works there. A file system may take `RWF_DSYNC` and ignore it, as ZFS
/// on Linux did (openzfs 8452). Such a write is the fastest of all, so that no measurement finds it out.
#[must_use]
pub fn is_proven(method: SyncMethod, file_system: &str) -> bool {
    method == SyncMethod::Fdatasync || PROVEN.contains(&file_system)
}

/// What is typical of a method's writes, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Typical {
    /// Which.
    pub method: SyncMethod,
    /// Half were faster.
    pub p50: u64,
    /// Nine of ten were faster.
    pub p90: u64,
}

/// `fdatasync`, unless another one's median is more than a fifth below its median, and its slow writes are not slower;
/// `None` if `fdatasync` was not measured, or in no time: a disk whose clock stands still while it writes is none.
#[must_use]
pub fn preferred(measured: &[Typical]) -> Option<SyncMethod> {
    let first = measured.iter().find(|typical| typical.method == SyncMethod::Fdatasync)?;
    if first.p50 == 0 {
        return None;
    }
    let is_better = |other: &&Typical| other.p50 < first.p50 / 5 * 4 && other.p90 <= first.p90;
    let best = measured.iter().filter(is_better).min_by_key(|typical| typical.p50);
    Some(best.unwrap_or(first).method)
}
