//! The known weaknesses of a place's durability, before anything is written.
//!
//! Owns the list of weaknesses and their effects: a pure function of the layers, the space and the machine.
//! `trust.rs` adds what only a burst of syncs can show.

use super::device::{DeviceKind, WriteCache};
use super::medium::Medium;
use super::mounts::FileSystemClass;
use super::report::{Layer, Mounted, Part, Report};

/// Less free room than one part in this many is nearly full.
const NEARLY_FULL_PART: u64 = 10;

/// The effect of a weakness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// A returned sync promises nothing.
    SyncIsWorthless,
    /// What a sync promises cannot be seen from here.
    CannotBeSeen,
    /// A sync works, but something else is weaker than it could be.
    Weaker,
    /// Nothing is lost, but it costs time or will cause an error.
    Costs,
}

/// The kind of a weakness. Each kind has one remedy and one `effect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeaknessKind {
    /// tmpfs, ramfs: nothing survives a reboot.
    MemoryFileSystem,
    /// zram, a RAM disk: nothing survives a reboot.
    MemoryDevice,
    /// An overlay with the option to skip syncs.
    VolatileOverlay,
    /// A mount option keeps the file system from flushing the disk's cache.
    BarriersOff,
    /// A library disables syncs (libeatmydata).
    SyncSwallower,
    /// A volatile cache that the kernel does not know of: no flushes are sent to it.
    HiddenCache,
    /// On another machine.
    NetworkFileSystem,
    /// A folder of the host.
    HostFileSystem,
    /// A program implements the file system.
    UserSpaceFileSystem,
    /// zfs may be configured to ignore syncs, which only its own tools show.
    SyncPropertyHidden,
    /// The disk belongs to another machine.
    RemoteDisk,
    /// ext without a journal: a power cut can need a file system check.
    NoJournal,
    /// `data=writeback`: a file that was growing may show old blocks after a power cut.
    DataWriteback,
    /// `soft`: the mount returns errors instead of waiting.
    SoftMount,
    /// The file system has recorded errors in itself.
    RecordedErrors,
    /// The array has lost a disk.
    DegradedArray,
    /// Inside a container, on the layer that is removed with it.
    ContainerLayer,
    /// Read-only.
    ReadOnly,
    /// Less than a tenth of the bytes or inodes is free.
    NearlyFull,
    /// Blocks of the file system straddle blocks of the disk.
    Misaligned,
    /// Each overwrite takes new blocks and several writes.
    CopyOnWrite,
}

impl WeaknessKind {
    /// The effect of this kind.
    #[must_use]
    pub fn effect(self) -> Effect {
        match self {
            WeaknessKind::MemoryFileSystem
            | WeaknessKind::MemoryDevice
            | WeaknessKind::VolatileOverlay
            | WeaknessKind::BarriersOff
            | WeaknessKind::SyncSwallower
            | WeaknessKind::HiddenCache => Effect::SyncIsWorthless,
            WeaknessKind::NetworkFileSystem
            | WeaknessKind::HostFileSystem
            | WeaknessKind::UserSpaceFileSystem
            | WeaknessKind::SyncPropertyHidden
            | WeaknessKind::RemoteDisk => Effect::CannotBeSeen,
            WeaknessKind::NoJournal
            | WeaknessKind::DataWriteback
            | WeaknessKind::SoftMount
            | WeaknessKind::RecordedErrors
            | WeaknessKind::DegradedArray
            | WeaknessKind::ContainerLayer => Effect::Weaker,
            WeaknessKind::ReadOnly
            | WeaknessKind::NearlyFull
            | WeaknessKind::Misaligned
            | WeaknessKind::CopyOnWrite => Effect::Costs,
        }
    }
}

/// A weakness: its kind, a sentence, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weakness {
    /// The kind.
    pub kind: WeaknessKind,
    /// `ext4 on /data is mounted with nobarrier: it never flushes the disk's cache`.
    pub reason: String,
    /// The file or call that showed it.
    pub source: String,
    /// The index in [`Report::layers`] of the weak layer, for the remedy. `None` if the process is weak, not
    /// a layer.
    pub layer: Option<usize>,
}

impl Weakness {
    fn new(kind: WeaknessKind, reason: String, source: &str) -> Weakness {
        Weakness { kind, reason, source: source.to_owned(), layer: None }
    }

    /// Its effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.kind.effect()
    }
}

/// All weaknesses, the worst first.
pub(super) fn of(report: &Report) -> Vec<Weakness> {
    let mut found = Vec::new();
    for of_first in [of_mounted, of_device, of_hidden_cache] {
        for index in 0..report.layers.len() {
            let begun = found.len();
            of_first(&report.layers[index..], &mut found);
            for weakness in &mut found[begun..] {
                weakness.layer = Some(index);
            }
        }
    }
    of_place(report, &mut found);
    found.sort_by_key(Weakness::effect);
    found
}

/// The weaknesses of the first of these layers, if it is a file system.
fn of_mounted(layers: &[Layer], found: &mut Vec<Weakness>) {
    if let [Layer { part: Part::Mounted(mounted), .. }, ..] = layers {
        of_class(mounted, found);
        of_options(mounted, found);
        of_ext(mounted, found);
    }
}

/// `ext4 on /data`.
fn title(mounted: &Mounted) -> String {
    let system = mounted.file_system.value.as_deref().unwrap_or("a file system of unknown type");
    let point = mounted.mount_point.value.as_deref().unwrap_or(&mounted.path);
    format!("{system} on {}", point.display())
}

fn of_class(mounted: &Mounted, found: &mut Vec<Weakness>) {
    let told = match mounted.class {
        FileSystemClass::Memory => Some((
            WeaknessKind::MemoryFileSystem,
            "is memory: a sync does nothing, and nothing survives a reboot",
        )),
        FileSystemClass::Network => Some((
            WeaknessKind::NetworkFileSystem,
            "is another machine's: whether it writes before it answers cannot be seen from here",
        )),
        FileSystemClass::Host => Some((
            WeaknessKind::HostFileSystem,
            "is a folder of the host: whether it passes syncs on cannot be seen from here",
        )),
        FileSystemClass::UserSpace => Some((
            WeaknessKind::UserSpaceFileSystem,
            "is answered by a program: whether it passes syncs on cannot be seen from here",
        )),
        FileSystemClass::Local | FileSystemClass::Union | FileSystemClass::Unknown => None,
    };
    let source = &mounted.file_system.source;
    if let Some((kind, reason)) = told {
        found.push(Weakness::new(kind, format!("{} {reason}", title(mounted)), source));
    }
    let system = mounted.file_system.value.as_deref().unwrap_or_default();
    if system == "zfs" {
        let reason = format!("{} may have sync=disabled, which only `zfs get sync` shows", title(mounted));
        found.push(Weakness::new(WeaknessKind::SyncPropertyHidden, reason, source));
    }
    let copies = match system {
        "zfs" | "bcachefs" => true,
        "btrfs" => !mounted.no_copy_on_write.is(&true) && !mounted.has_option("nodatacow"),
        _ => false,
    };
    if copies {
        let reason = format!(
            "{} copies on write: a durable overwrite of 4 KiB writes many times that",
            title(mounted)
        );
        found.push(Weakness::new(WeaknessKind::CopyOnWrite, reason, source));
    }
}

/// The option that turns flushes off; its name differs between file systems.
fn barrier_option(mounted: &Mounted) -> Option<&'static str> {
    const OPTIONS: &[&str] =
        &["nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier", "journal_flush_disabled"];
    OPTIONS.iter().find(|option| mounted.has_option(option)).copied()
}

fn of_options(mounted: &Mounted, found: &mut Vec<Weakness>) {
    let title = title(mounted);
    let mut push = |kind, reason: String| found.push(Weakness::new(kind, reason, &mounted.options.source));
    if let Some(option) = barrier_option(mounted) {
        let reason = format!("{title} is mounted with {option}: it never flushes the disk's cache");
        push(WeaknessKind::BarriersOff, reason);
    }
    let is_overlay = mounted.class == FileSystemClass::Union;
    if is_overlay && (mounted.has_option("volatile") || mounted.has_option("fsync=volatile")) {
        push(WeaknessKind::VolatileOverlay, format!("{title} is mounted volatile: it skips every sync"));
    }
    if mounted.has_option("data=writeback") {
        let reason = format!("{title} is mounted with data=writeback: a file that grew may show old blocks");
        push(WeaknessKind::DataWriteback, reason);
    }
    if mounted.class == FileSystemClass::Network && mounted.has_option("soft") {
        let reason = format!("{title} is mounted soft: it gives up on a slow server and fails writes");
        push(WeaknessKind::SoftMount, reason);
    }
}

fn of_ext(mounted: &Mounted, found: &mut Vec<Weakness>) {
    let title = title(mounted);
    if mounted.journal.is(&false) {
        let reason = format!("{title} has no journal: a power cut can need a file system check");
        found.push(Weakness::new(WeaknessKind::NoJournal, reason, &mounted.journal.source));
    }
    if let Some(count) = mounted.error_count.value.filter(|count| *count > 0) {
        let reason = format!("{title} has recorded {count} errors in itself: check it");
        found.push(Weakness::new(WeaknessKind::RecordedErrors, reason, &mounted.error_count.source));
    }
}

/// The weaknesses of the first of these layers, if it is a device.
fn of_device(layers: &[Layer], found: &mut Vec<Weakness>) {
    let [Layer { part: Part::Device(device), .. }, ..] = layers else { return };
    let name = &device.name;
    let mut push = |kind, reason: String, source: &str| found.push(Weakness::new(kind, reason, source));
    match device.medium.value {
        Some(Medium::Memory) => {
            let reason = format!("{name} keeps its files in memory: nothing survives a reboot");
            push(WeaknessKind::MemoryDevice, reason, &device.medium.source);
        }
        Some(Medium::Remote) => {
            let reason = format!("{name} is another machine's disk: its cache cannot be seen from here");
            push(WeaknessKind::RemoteDisk, reason, &device.medium.source);
        }
        _ => {}
    }
    if let DeviceKind::Md { degraded_count, .. } = &device.kind
        && let Some(count) = degraded_count.value.filter(|count| *count > 0)
    {
        let reason = format!("{name} has lost {count} of its disks");
        push(WeaknessKind::DegradedArray, reason, &degraded_count.source);
    }
    if device.misaligned.is(&true) {
        let reason = format!("{name} begins inside a block of what is under it: each write touches two");
        push(WeaknessKind::Misaligned, reason, &device.misaligned.source);
    }
}

fn of_hidden_cache(layers: &[Layer], found: &mut Vec<Weakness>) {
    found.extend(hidden_cache(layers));
}

/// Whether the first of these layers reports no volatile cache although it has one. For a drive, its own
/// report shows it; for a loop device, the kernel's memory between it and its file; for others, a disk under
/// it.
fn hidden_cache(layers: &[Layer]) -> Option<Weakness> {
    let [Layer { depth, part: Part::Device(device) }, under @ ..] = layers else { return None };
    if !device.write_cache.is(&WriteCache::WriteThrough) || device.read_only.is(&true) {
        return None;
    }
    let name = &device.name;
    let (reason, source) = match &device.kind {
        DeviceKind::Scsi { drive_cache } => {
            drive_cache.value.as_ref().filter(|cache| cache.starts_with("write back"))?;
            (
                format!("{name} has a volatile cache, and the kernel was told that it has none"),
                &drive_cache.source,
            )
        }
        DeviceKind::Loop { direct, .. } if !direct.is(&true) => {
            let reason = format!("{name} keeps writes in memory, and the kernel was told that it does not");
            (reason, &device.write_cache.source)
        }
        _ => {
            let mut under = under.iter().take_while(|layer| layer.depth > *depth);
            let volatile = under.find_map(|layer| match &layer.part {
                Part::Device(other) if other.write_cache.is(&WriteCache::Volatile) => Some(&other.name),
                _ => None,
            })?;
            let reason = format!("{name} passes no flush on to {volatile}, which has a volatile cache");
            (reason, &device.write_cache.source)
        }
    };
    Some(Weakness::new(WeaknessKind::HiddenCache, reason, source))
}

/// Weaknesses of the probed path and of this process.
fn of_place(report: &Report, found: &mut Vec<Weakness>) {
    let machine = &report.machine;
    if machine.sync_swallower.is(&true) {
        let reason = "a library that turns every sync into nothing is loaded (libeatmydata)".to_owned();
        found.push(Weakness::new(WeaknessKind::SyncSwallower, reason, &machine.sync_swallower.source));
    }
    // The first layer is the file system of the path.
    let Some(Layer { part: Part::Mounted(top), .. }) = report.layers.first() else { return };
    let mut push = |kind, reason: String, source: &str| {
        found.push(Weakness { layer: Some(0), ..Weakness::new(kind, reason, source) });
    };
    if machine.container.is(&true) && top.class == FileSystemClass::Union {
        let reason = format!("{} is thrown away with the container: use a volume", title(top));
        push(WeaknessKind::ContainerLayer, reason, &machine.container.source);
    }
    if top.read_only.is(&true) {
        let reason = format!("{} is read-only", title(top));
        push(WeaknessKind::ReadOnly, reason, &top.read_only.source);
    }
    let space = &report.space;
    let is_low = |free: u64, total: u64| total > 0 && free < total / NEARLY_FULL_PART;
    if let (Some(free), Some(total)) = (space.free_bytes.value, space.total_bytes.value)
        && is_low(free, total)
    {
        let reason = format!("{}: {free} of {total} bytes are free", title(top));
        push(WeaknessKind::NearlyFull, reason, &space.free_bytes.source);
    }
    if let Some(inodes) = space.inodes.value.filter(|inodes| is_low(inodes.free, inodes.total)) {
        let reason = format!("{}: {} of {} inodes are free", title(top), inodes.free, inodes.total);
        push(WeaknessKind::NearlyFull, reason, &space.inodes.source);
    }
}
