//! One block device: its kind and its queue.
//!
//! Owns the reading of `/sys/dev/block/MAJOR:MINOR`. `walk.rs` follows a device to those under it, and other
//! modules judge. Meaning of the files: the kernel's `Documentation/ABI/stable/sysfs-block`.

use std::path::PathBuf;

use super::fact::{DeviceNumber, Fact};
use super::medium::{self, Medium};
use super::tree::{Tree, parse_chosen, parse_flag, parse_number, parse_text};

/// Bytes of a sector, the unit of sizes and starts in `/sys`, whatever the device's block size is.
const SECTOR_BYTES: u64 = 512;

/// A partition must begin at a multiple of this. Otherwise a write of one block touches two blocks of the
/// disk, even if the disk hides its block size.
const PARTITION_ALIGN_BYTES: u64 = 4096;

/// The kind of a block device, with facts of that kind only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceKind {
    /// A part of the disk that is listed next.
    Partition {
        /// Offset of its first byte on the disk.
        start_bytes: Fact<u64>,
    },
    /// A file that serves as a device.
    Loop {
        /// The file.
        backing_file: Fact<PathBuf>,
        /// Whether the file is read and written past the kernel's cache.
        direct: Fact<bool>,
    },
    /// Device mapper.
    Mapper {
        /// `vg-data`.
        name: Fact<String>,
        /// The beginning of its identifier: `LVM`, `CRYPT`, `mpath`, ...
        purpose: Fact<String>,
    },
    /// Software RAID.
    Md {
        /// `raid1`, `raid5`, `linear`, ...
        level: Fact<String>,
        /// The number of missing disks.
        degraded_count: Fact<u64>,
    },
    /// A cache in front of a disk; both are listed next.
    Bcache {
        /// `writethrough`, `writeback`, ...
        cache_mode: Fact<String>,
    },
    /// Compressed memory.
    Zram,
    /// Memory (`brd`).
    Ram,
    /// NVMe.
    Nvme {
        /// `pcie`, `tcp`, `rdma`, `fc`, `loop`.
        transport: Fact<String>,
    },
    /// SCSI, SAS, SATA, USB.
    Scsi {
        /// The drive's own report on its cache, in the kernel's words: `write back`, `write through`, ...
        drive_cache: Fact<String>,
    },
    /// The disk of a virtual machine (virtio-blk).
    Virtio,
    /// The disk of a virtual machine (Xen).
    Xen,
    /// SD card or eMMC.
    Mmc,
    /// Persistent memory.
    Pmem,
    /// A disk on another machine: nbd, rbd, drbd.
    NetworkDisk,
    /// Not known to this library.
    Other,
}

impl DeviceKind {
    /// Whether it rests on no other device. The counters of such a device show what reached a disk.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        !matches!(
            self,
            DeviceKind::Partition { .. }
                | DeviceKind::Loop { .. }
                | DeviceKind::Mapper { .. }
                | DeviceKind::Md { .. }
                | DeviceKind::Bcache { .. }
        )
    }
}

/// What the kernel knows of a device's write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// `write back`: a cache that a power cut empties; the kernel sends flushes.
    Volatile,
    /// `write through`: no cache that must be flushed; the kernel sends no flushes.
    WriteThrough,
}

/// A block device. A queue that reports 0 for "unknown" gives the fact 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub number: DeviceNumber,
    /// `sda`, `nvme0n1p2`, `dm-0`; its number if the kernel names it nowhere.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// What stores the bytes. For disks only.
    pub medium: Fact<Medium>,
    /// The model that the disk reports.
    pub model: Fact<String>,
    /// The maker, if the disk reports it apart from the model.
    pub vendor: Fact<String>,
    /// `size`.
    pub size_bytes: Fact<u64>,
    /// `ro`: the device refuses writes.
    pub read_only: Fact<bool>,
    /// `queue/write_cache`: the kernel's view, which root may have changed.
    pub write_cache: Fact<WriteCache>,
    /// `queue/fua`: a single write can pass the cache.
    pub fua: Fact<bool>,
    /// `queue/rotational`.
    pub rotational: Fact<bool>,
    /// `queue/logical_block_size`: the smallest write.
    pub logical_block_bytes: Fact<u64>,
    /// `queue/physical_block_size`: the smallest write that needs no read.
    pub physical_block_bytes: Fact<u64>,
    /// `queue/minimum_io_size`.
    pub minimum_io_bytes: Fact<u64>,
    /// `queue/optimal_io_size`; 0: not reported.
    pub optimal_io_bytes: Fact<u64>,
    /// Whether its first byte lies inside a physical block of the device under it.
    pub misaligned: Fact<bool>,
    /// `queue/atomic_write_unit_max_bytes`: the largest atomic write; 0 is none.
    pub atomic_write_bytes_max: Fact<u64>,
    /// `queue/scheduler`: the one in use.
    pub scheduler: Fact<String>,
    /// Whether `stat` counts its writes and flushes.
    pub statistics: Fact<bool>,
}

/// Reads one device. `hypervisor`: whether this machine is known to be a virtual one, or known not to be.
pub(super) fn read(sys: &Tree, number: DeviceNumber, hypervisor: &Fact<bool>) -> Device {
    let folder = folder(number);
    let name = name(sys, number);
    let kind = kind(sys, &folder, &name);
    let place = sys.link(&folder).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let model = text_of_any(sys, &folder, &["device/model", "device/name"]);
    // A number here belongs to the bus and is not a name.
    let vendor = sys.fact(&format!("{folder}/device/vendor"), |text| {
        (!text.starts_with("0x")).then(|| parse_text(text)).flatten()
    });
    let queue = Queue { sys, folder: &folder, is_partition: matches!(kind, DeviceKind::Partition { .. }) };
    let medium = if kind.is_disk() {
        medium::of(&kind, &place, &model, &vendor, hypervisor)
    } else {
        Fact::unknown("rests on the devices listed under it")
    };
    Device {
        medium,
        misaligned: misaligned(sys, &folder, &kind),
        size_bytes: sys.fact(&format!("{folder}/size"), parse_sectors),
        read_only: sys.fact(&format!("{folder}/ro"), parse_flag),
        write_cache: queue.fact("write_cache", parse_write_cache),
        fua: queue.fact("fua", parse_flag),
        rotational: rotational(&queue, &place),
        logical_block_bytes: queue.fact("logical_block_size", parse_number),
        physical_block_bytes: queue.fact("physical_block_size", parse_number),
        minimum_io_bytes: queue.fact("minimum_io_size", parse_number),
        optimal_io_bytes: queue.fact("optimal_io_size", parse_number),
        atomic_write_bytes_max: queue.fact("atomic_write_unit_max_bytes", parse_number),
        scheduler: queue.fact("scheduler", parse_chosen),
        statistics: statistics(&queue, &place),
        number,
        name,
        kind,
        model,
        vendor,
    }
}

/// The folder of a device in `/sys`.
pub(super) fn folder(number: DeviceNumber) -> String {
    format!("dev/block/{number}")
}

/// The last part of its link's target.
fn name(sys: &Tree, number: DeviceNumber) -> String {
    let target = sys.link(&folder(number)).unwrap_or_default();
    match target.file_name() {
        // A file name cannot contain a slash, so the kernel writes this instead.
        Some(name) => name.to_string_lossy().replace('!', "/"),
        None => number.to_string(),
    }
}

/// By the contents of the folder if they show it, else by name.
fn kind(sys: &Tree, folder: &str, name: &str) -> DeviceKind {
    let at = |file: &str| format!("{folder}/{file}");
    let names = sys.names(folder);
    let has = |name: &str| names.iter().any(|found| found == name);
    let is = |prefix: &str| name.starts_with(prefix);
    match () {
        () if has("partition") => {
            DeviceKind::Partition { start_bytes: sys.fact(&at("start"), parse_sectors) }
        }
        () if has("dm") || is("dm-") => DeviceKind::Mapper {
            name: sys.fact(&at("dm/name"), parse_text),
            purpose: sys.fact(&at("dm/uuid"), parse_purpose),
        },
        () if has("md") || is("md") => DeviceKind::Md {
            level: sys.fact(&at("md/level"), parse_text),
            degraded_count: sys.fact(&at("md/degraded"), parse_number),
        },
        () if is("bcache") => {
            DeviceKind::Bcache { cache_mode: sys.fact(&at("bcache/cache_mode"), parse_chosen) }
        }
        () if is("loop") => DeviceKind::Loop {
            backing_file: sys.fact(&at("loop/backing_file"), |text| parse_text(text).map(PathBuf::from)),
            direct: sys.fact(&at("loop/dio"), parse_flag),
        },
        () if is("zram") => DeviceKind::Zram,
        () if is("ram") => DeviceKind::Ram,
        () if is("nvme") => DeviceKind::Nvme { transport: transport(sys, folder) },
        () if is("sd") || is("sr") => DeviceKind::Scsi { drive_cache: drive_cache(sys, folder) },
        () if is("vd") => DeviceKind::Virtio,
        () if is("xvd") => DeviceKind::Xen,
        () if is("mmcblk") => DeviceKind::Mmc,
        () if is("pmem") => DeviceKind::Pmem,
        () if is("nbd") || is("rbd") || is("drbd") => DeviceKind::NetworkDisk,
        () => DeviceKind::Other,
    }
}

/// From the controller, or from the first path to it if there may be several.
fn transport(sys: &Tree, folder: &str) -> Fact<String> {
    let direct = sys.fact(&format!("{folder}/device/transport"), parse_text);
    let paths = sys.names(&format!("{folder}/device"));
    let of_path = |path: &String| {
        let told = sys.fact(&format!("{folder}/device/{path}/transport"), parse_text);
        told.value.is_some().then_some(told)
    };
    let is_controller = |name: &&String| name.starts_with("nvme");
    if direct.value.is_some() {
        direct
    } else {
        paths.iter().filter(is_controller).find_map(of_path).unwrap_or(direct)
    }
}

fn drive_cache(sys: &Tree, folder: &str) -> Fact<String> {
    let disks = format!("{folder}/device/scsi_disk");
    match sys.names(&disks).first() {
        Some(disk) => sys.fact(&format!("{disks}/{disk}/cache_type"), parse_text),
        None => Fact::unknown(format!("{}: not there", sys.name(&disks))),
    }
}

fn text_of_any(sys: &Tree, folder: &str, files: &[&str]) -> Fact<String> {
    let mut facts = files.iter().map(|file| sys.fact(&format!("{folder}/{file}"), parse_text));
    let known = facts.clone().find(|fact| fact.value.is_some());
    known.or_else(|| facts.next()).unwrap_or_else(|| Fact::unknown("no file tells"))
}

/// The queue of a whole device.
struct Queue<'a> {
    sys: &'a Tree<'a>,
    folder: &'a str,
    is_partition: bool,
}

impl Queue<'_> {
    fn fact<T>(&self, file: &str, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        if self.is_partition {
            return Fact::unknown("a partition has the queue of its disk");
        }
        self.sys.fact(&format!("{}/queue/{file}", self.folder), parse)
    }
}

/// USB bridges report every disk as rotating.
fn rotational(queue: &Queue, place: &str) -> Fact<bool> {
    let told = queue.fact("rotational", parse_flag);
    if told.is(&true) && place.contains("/usb") {
        return Fact::unknown(format!("{} says 1, as USB bridges do of everything", told.source));
    }
    told
}

/// The head of a multipath NVMe disk does not count flushes. Its paths do, and have no number.
fn statistics(queue: &Queue, place: &str) -> Fact<bool> {
    let told = queue.fact("iostats", parse_flag);
    if place.contains("/nvme-subsystem/") {
        return Fact::known(false, "the joint head of several NVMe paths does not count flushes");
    }
    told
}

/// The kernel's own value if there is one; for partitions their start too.
fn misaligned(sys: &Tree, folder: &str, kind: &DeviceKind) -> Fact<bool> {
    let told = sys.fact(&format!("{folder}/alignment_offset"), |text| Some(text.parse::<i64>().ok()? != 0));
    let DeviceKind::Partition { start_bytes } = kind else { return told };
    let block = sys.fact(&format!("{folder}/../queue/physical_block_size"), parse_number);
    let align = block.value.unwrap_or(0).max(PARTITION_ALIGN_BYTES);
    match start_bytes.value {
        Some(start) if !start.is_multiple_of(align) => Fact::known(true, start_bytes.source.clone()),
        _ => told,
    }
}

fn parse_sectors(text: &str) -> Option<u64> {
    parse_number(text)?.checked_mul(SECTOR_BYTES)
}

fn parse_write_cache(text: &str) -> Option<WriteCache> {
    match text {
        "write back" => Some(WriteCache::Volatile),
        "write through" => Some(WriteCache::WriteThrough),
        _ => None,
    }
}

/// `CRYPT-LUKS2-...` is `CRYPT`; kpartx writes `part1-mpath-...`.
fn parse_purpose(text: &str) -> Option<String> {
    parse_text(text.split('-').next().unwrap_or_default())
}
