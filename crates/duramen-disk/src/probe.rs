//! The probe and the flush witness: what a disk promises, as far as it can be known without privileges.
//!
//! [`probe`] reads: from a directory through mount, overlay, loop device, device mapper, RAID and partition
//! down to the disks, each fact with its source. [`witness`] writes: a burst of commits, and whether the
//! disks counted a flush for each. [`judge`] combines both into a verdict. Nothing here prints, guesses or
//! needs root. On systems other than Linux most facts are unknown, and so is the verdict.
//!
//! The weakest layer decides: one volatile layer without a flush makes the whole chain unsafe. No verdict
//! states that a disk is safe, because a drive may ignore flushes and a guest cannot see its host. D1 rests
//! on a disk that honours flushes; this module checks for it.
//!
//! ```
//! use duramen_disk::probe::{Host, judge, probe};
//!
//! let host = Host::this();
//! let report = probe(&host, std::path::Path::new("."))?;
//! let verdict = judge(&report, None);
//! assert!(!verdict.reason.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

mod device;
mod fact;
mod kernel;
mod machine;
mod medium;
mod meter;
mod mounts;
mod report;
#[cfg(test)]
mod tests;
mod tree;
mod trust;
mod walk;
mod weakness;
mod witness;

use std::io;
use std::path::{Path, PathBuf};

pub use self::device::{Device, DeviceKind, WriteCache};
pub use self::fact::{DeviceNumber, Fact};
pub use self::kernel::{DirectAlign, Inodes, Kernel, PathFacts, RunningKernel};
pub use self::machine::{Machine, MemoryLimit};
pub use self::medium::Medium;
pub use self::meter::{Counted, Meter, Reading};
pub use self::mounts::FileSystemClass;
pub use self::report::{Layer, Mounted, Part, Report, Space};
pub use self::trust::{Trust, Verdict, judge};
pub use self::weakness::{Effect, Weakness, WeaknessKind};
pub use self::witness::{
    Burst, COMMITS_DEFAULT, COMMITS_MAX, DiskCount, Quantiles, WITNESS_PREFIX, Witness, witness,
};

use self::tree::Tree;

/// The directories in which a machine reports on itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Usually `/sys`.
    pub sys: PathBuf,
    /// Usually `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { sys: PathBuf::from("/sys"), proc: PathBuf::from("/proc") }
    }
}

/// The machine to examine: this one, or a recording of another.
#[derive(Debug)]
pub struct Host {
    roots: Roots,
    kernel: Box<dyn Kernel>,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn this() -> Host {
        Host { roots: Roots::default(), kernel: Box::new(RunningKernel) }
    }

    /// A recorded machine: its trees, and its kernel's results.
    #[must_use]
    pub fn recorded(roots: Roots, kernel: Box<dyn Kernel>) -> Host {
        Host { roots, kernel }
    }

    fn sys(&self) -> Tree<'_> {
        Tree::new(&self.roots.sys, "/sys")
    }

    fn proc(&self) -> Tree<'_> {
        Tree::new(&self.roots.proc, "/proc")
    }
}

/// Collects all that can be known of the disk under a directory, without writing.
///
/// Some hundred small reads of `/sys` and `/proc`: 1-10 ms. A network file system whose server is gone can
/// block it, like every call there.
///
/// # Errors
/// Only if the path itself cannot be examined: `NotFound`, `PermissionDenied`. All else becomes an unknown
/// fact or a gap.
pub fn probe(host: &Host, dir: &Path) -> io::Result<Report> {
    let facts = host.kernel.path_facts(dir)?;
    let machine = machine::read(host);
    let found = walk::walk(host, &machine, dir, &facts);
    let room = &facts.file_system;
    // A system that does not report space reports 0 for both.
    let space = |bytes: u64| {
        Fact::told(Some(bytes).filter(|_| room.total_bytes > 0), "statvfs", "statvfs counts no blocks here")
    };
    let file_only = "statx tells this of files, and not on every file system";
    let mut report = Report {
        path: dir.to_owned(),
        layers: found.layers,
        gaps: found.gaps,
        space: Space {
            free_bytes: space(room.free_bytes),
            total_bytes: space(room.total_bytes),
            block_bytes: space(room.block_bytes),
            inodes: Fact::told(facts.inodes, "statvfs", "statvfs counts no inodes here"),
        },
        direct: Fact::told(facts.direct, "statx", file_only),
        atomic_write_bytes_max: Fact::told(facts.atomic_write_bytes_max, "statx", file_only),
        machine,
        weaknesses: Vec::new(),
    };
    report.weaknesses = weakness::of(&report);
    Ok(report)
}
