//! Chooses the better of the safe sync methods by measurements of their writes.
//!
//! Owns the rule of decision 0007 as a pure function, for the engine and for reports that predict its choice.

use crate::SyncMethod;

/// The prefix of the names of files for measurements. A killed measurement leaves its files behind.
pub const MEASURE_PREFIX: &str = ".duramen-measure-";

/// Names of the file systems on which DSYNC writes survived power cuts without loss (`powercut table`), as in
/// [`FileSystem::name`](crate::FileSystem::name).
const PROVEN: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Whether durable writes by this method are proven durable on a file system of this name.
///
/// `fdatasync` is, on every file system: without it no database works there. A file system may accept
/// `RWF_DSYNC` and ignore it, as ZFS on Linux did (openzfs 8452). Such a write is the fastest of all, so
/// measurements cannot reveal it.
#[must_use]
pub fn is_proven(method: SyncMethod, file_system: &str) -> bool {
    method == SyncMethod::Fdatasync || PROVEN.contains(&file_system)
}

/// Typical times of a method's writes, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Typical {
    /// The method.
    pub method: SyncMethod,
    /// Half were faster.
    pub p50: u64,
    /// Nine of ten were faster.
    pub p90: u64,
}

/// `fdatasync`, unless another is faster by more than a fifth and its slow writes are not slower.
///
/// Compares medians. `None` if `fdatasync` was not measured, or took no time: then the clock stands still
/// during writes.
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
