//! The counters of the disks under a path: writes, bytes and flushes.
//!
//! Owns the reading of the counters: fields 5 (writes), 7 (sectors of 512 bytes written) and 16 (flushes,
//! since Linux 5.5) of `/sys/dev/block/MAJOR:MINOR/stat`, as in the kernel's `Documentation/block/stat.rst`.
//! They count the work of all programs.

use super::Host;
use super::device::{self, Device};
use super::fact::Fact;
use super::report::Report;
use super::tree::Tree;

/// Bytes of a sector as the kernel counts them, whatever the device's sectors are.
const SECTOR_BYTES: u64 = 512;

/// The disks that a report found, to be read before and after some work.
#[derive(Debug)]
pub struct Meter<'a> {
    sys: Tree<'a>,
    disks: Vec<&'a Device>,
}

/// The counts of each disk at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading(Vec<Counters>);

/// The counts of one disk since it was attached; `None` is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub(super) flushes: Option<u64>,
    pub(super) writes: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// The counts of all disks together during some work; `None` is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Flushes, on the disk that got the fewest.
    pub flushes: Option<u64>,
    /// Writes of all disks: a mirror writes twice.
    pub writes: Option<u64>,
    /// Bytes of these writes.
    pub bytes: Option<u64>,
}

impl<'a> Meter<'a> {
    /// For the disks of a report.
    #[must_use]
    pub fn new(host: &'a Host, report: &'a Report) -> Meter<'a> {
        Meter { sys: host.sys(), disks: report.disks().collect() }
    }

    /// The files that are read, with the disks' names. Unknown if no disk was found, as below memory, a
    /// network or an overlay that hides it.
    #[must_use]
    pub fn source(&self) -> Fact<String> {
        let counts = |disk: &&&Device| Counters::read(&self.sys, disk).writes.is_some();
        let files: Vec<String> = self
            .disks
            .iter()
            .filter(counts)
            .map(|disk| format!("{} ({})", self.sys.name(&stat(disk)), disk.name))
            .collect();
        if self.disks.is_empty() {
            return Fact::unknown("no disk was found below");
        }
        if files.len() < self.disks.len() {
            return Fact::unknown("a disk below does not count its writes");
        }
        let files = files.join(", ");
        Fact::known(files.clone(), files)
    }

    /// The counts until now.
    #[must_use]
    pub fn read(&self) -> Reading {
        Reading(self.disks.iter().map(|disk| Counters::read(&self.sys, disk)).collect())
    }
}

impl Reading {
    /// The counts of each disk from `before` to this reading.
    pub(super) fn each_since(&self, before: &Reading) -> impl Iterator<Item = Counters> {
        let grown = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
        self.0.iter().zip(&before.0).map(move |(after, before)| Counters {
            flushes: grown(before.flushes, after.flushes),
            writes: grown(before.writes, after.writes),
            bytes: grown(before.bytes, after.bytes),
        })
    }

    /// The counts of all disks together from `before` to this reading; `None` without a disk.
    #[must_use]
    pub fn since(&self, before: &Reading) -> Counted {
        if self.0.is_empty() {
            return Counted::default();
        }
        Counted {
            flushes: self.each_since(before).map(|disk| disk.flushes).min().flatten(),
            writes: self.each_since(before).map(|disk| disk.writes).sum(),
            bytes: self.each_since(before).map(|disk| disk.bytes).sum(),
        }
    }
}

impl Counted {
    /// Both together; unknown if either is.
    #[must_use]
    pub fn and(self, other: Counted) -> Counted {
        let sum = |one: Option<u64>, other: Option<u64>| one?.checked_add(other?);
        Counted {
            flushes: sum(self.flushes, other.flushes),
            writes: sum(self.writes, other.writes),
            bytes: sum(self.bytes, other.bytes),
        }
    }
}

impl Counters {
    /// Counts nothing for a disk whose statistics are known to be off.
    fn read(sys: &Tree, disk: &Device) -> Counters {
        let text = sys.text(&stat(disk)).ok().filter(|_| !disk.statistics.is(&false)).unwrap_or_default();
        let field = |number: usize| text.split_whitespace().nth(number - 1)?.parse().ok();
        let bytes = field(7).and_then(|sectors: u64| sectors.checked_mul(SECTOR_BYTES));
        Counters { flushes: field(16), writes: field(5), bytes }
    }
}

fn stat(disk: &Device) -> String {
    format!("{}/stat", device::folder(disk.number))
}
