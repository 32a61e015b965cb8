//! The walk from a path through every layer down to the disks.
//!
//! Owns the order of the layers and the steps from one to the next. It ends at a maximum depth
//! and a maximum number of layers, because the recording of another machine may contain a cycle. A layer that
//! cannot be followed becomes a gap in the report, never an error: only the path itself must exist.

use std::path::{Path, PathBuf};

use super::Host;
use super::device::{self, DeviceKind};
use super::fact::{DeviceNumber, Fact};
use super::kernel::PathFacts;
use super::machine::Machine;
use super::mounts::{FileSystemClass, MountLine, class_of, parse_mountinfo};
use super::report::{Layer, Mounted, Part};
use super::tree::{Tree, parse_number};

/// A stack deeper than this is not followed.
const DEPTH_MAX: u32 = 24;

/// More layers than this are not listed.
const LAYERS_MAX: usize = 256;

/// Options that put the log of a file system on a device of its own.
const LOG_DEVICE_OPTIONS: &[&str] = &["logdev", "journal_dev", "journal_path"];

/// The result of the walk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) layers: Vec<Layer>,
    pub(super) gaps: Vec<String>,
}

/// Walks down from `path`, whose facts are already known.
pub(super) fn walk(host: &Host, machine: &Machine, path: &Path, facts: &PathFacts) -> Found {
    let proc = host.proc();
    let mounts = proc.text("self/mountinfo").map(|text| parse_mountinfo(&text)).unwrap_or_default();
    let mut walk =
        Walk { host, sys: host.sys(), proc, machine, mounts, layers: Vec::new(), gaps: Vec::new() };
    walk.mounted(path, facts, 0);
    Found { layers: walk.layers, gaps: walk.gaps }
}

struct Walk<'a> {
    host: &'a Host,
    sys: Tree<'a>,
    proc: Tree<'a>,
    machine: &'a Machine,
    mounts: Vec<MountLine>,
    layers: Vec<Layer>,
    gaps: Vec<String>,
}

impl Walk<'_> {
    /// Lists the file system of a path and goes on to the layer under it.
    fn mounted(&mut self, path: &Path, facts: &PathFacts, depth: u32) {
        if self.is_too_deep(depth) {
            return;
        }
        let line = self.mounts.iter().find(|line| Some(line.id) == facts.mount_id).cloned();
        let mut mounted = self.describe(path, facts, line.as_ref());
        let devices = match mounted.class {
            FileSystemClass::Local | FileSystemClass::Unknown => {
                self.devices_under(&mounted, facts, line.as_ref())
            }
            _ => Vec::new(),
        };
        if let Some(device) = devices.first() {
            self.ask_ext(&mut mounted, *device);
        }
        let upper = (mounted.class == FileSystemClass::Union).then(|| mounted.clone());
        self.layers.push(Layer { depth, part: Part::Mounted(Box::new(mounted)) });
        if let Some(overlay) = upper {
            self.upper(&overlay, depth + 1);
        }
        for number in devices {
            self.device(number, depth + 1);
        }
    }

    /// Bounds depth and number, because a recording may contain a cycle.
    fn is_too_deep(&mut self, depth: u32) -> bool {
        let too_deep = depth > DEPTH_MAX || self.layers.len() >= LAYERS_MAX;
        if too_deep {
            self.gap("more layers than are followed".to_owned());
        }
        too_deep
    }

    fn gap(&mut self, text: String) {
        if !self.gaps.contains(&text) {
            self.gaps.push(text);
        }
    }

    /// The kernel's facts and the mount's line. Found by number, because paths and invented devices mislead.
    fn describe(&self, path: &Path, facts: &PathFacts, line: Option<&MountLine>) -> Mounted {
        let source = self.proc.name("self/mountinfo");
        let why = match facts.mount_id {
            Some(id) => format!("{source}: no line for mount {id}"),
            None => "the kernel reports no mount id".to_owned(),
        };
        let magic = &facts.file_system.name;
        let file_system = match line {
            Some(line) => Fact::known(line.file_system.clone(), &source),
            None if magic.starts_with("unknown") => Fact::unknown(format!("statfs: {magic}")),
            None => Fact::known(magic.clone(), "statfs"),
        };
        let is_read_only = |line: &MountLine| line.options.iter().any(|option| option == "ro");
        let read_only = facts.file_system.read_only || line.is_some_and(is_read_only);
        let is_btrfs = file_system.is(&"btrfs".to_owned());
        let not_asked = "asked of ext2, ext3 and ext4 only";
        Mounted {
            path: path.to_owned(),
            class: file_system.value.as_deref().map_or(FileSystemClass::Unknown, class_of),
            file_system,
            mount_point: Fact::told(line.map(|line| line.point.clone()), &source, &why),
            mounted_from: Fact::told(line.map(|line| line.mounted_from.clone()), &source, &why),
            options: Fact::told(line.map(|line| line.options.clone()), &source, &why),
            read_only: Fact::known(read_only, if read_only { "mount options" } else { "statvfs" }),
            journal: Fact::unknown(not_asked),
            error_count: Fact::unknown(not_asked),
            no_copy_on_write: Fact::told(
                facts.no_copy_on_write.filter(|_| is_btrfs),
                "inode flags",
                if is_btrfs { "the inode's flags cannot be read" } else { "asked of btrfs only" },
            ),
        }
    }

    /// The file system under an overlay. Inside a container its path is one of the host and leads elsewhere.
    fn upper(&mut self, overlay: &Mounted, depth: u32) {
        let Some(upper) = overlay.option("upperdir").map(Path::new) else {
            return self.gap(format!("{}: the overlay names no upper directory", overlay.path.display()));
        };
        let is_root = overlay.mount_point.value.as_deref().is_none_or(|point| point == Path::new("/"));
        if is_root && !self.machine.container.is(&false) {
            return self.gap(format!("{} is a path of the container's host", upper.display()));
        }
        match self.host.kernel.path_facts(upper) {
            Ok(facts) => self.mounted(upper, &facts, depth),
            Err(error) => self.gap(format!("{}: {error}", upper.display())),
        }
    }

    /// The block devices of a file system.
    fn devices_under(
        &mut self,
        mounted: &Mounted,
        facts: &PathFacts,
        line: Option<&MountLine>,
    ) -> Vec<DeviceNumber> {
        for option in LOG_DEVICE_OPTIONS {
            if let Some(log) = mounted.option(option) {
                self.gap(format!(
                    "the log of {} lies on {log}, which is not followed",
                    mounted.path.display()
                ));
            }
        }
        let number = line.map(|line| line.device).or(facts.device);
        if let Some(number) = number.filter(|number| number.major != 0) {
            return vec![number];
        }
        let from = mounted.mounted_from.value.clone().unwrap_or_default();
        let devices: Vec<DeviceNumber> = from.split(':').filter_map(|part| self.named(part)).collect();
        if devices.is_empty() {
            let system = mounted.file_system.value.as_deref().unwrap_or("a file system of unknown type");
            self.gap(format!("{}: {system} does not name its devices", mounted.path.display()));
        }
        if mounted.file_system.is(&"btrfs".to_owned()) { self.btrfs(devices) } else { devices }
    }

    /// A device by its path, or, if that is missing (in a container), by the name in it.
    fn named(&self, source: &str) -> Option<DeviceNumber> {
        let name = source.strip_prefix("/dev/")?;
        let by_path =
            self.host.kernel.path_facts(Path::new(source)).ok().and_then(|facts| facts.special_device);
        let by_name = || {
            let text = self.sys.text(&format!("class/block/{}/dev", name.replace('/', "!"))).ok()?;
            DeviceNumber::parse(&text)
        };
        by_path.or_else(by_name)
    }

    /// The mount names one device; the file system's own folder lists all of them.
    fn btrfs(&self, devices: Vec<DeviceNumber>) -> Vec<DeviceNumber> {
        for system in self.sys.names("fs/btrfs") {
            let folder = format!("fs/btrfs/{system}/devices");
            let number =
                |name: String| DeviceNumber::parse(&self.sys.text(&format!("{folder}/{name}/dev")).ok()?);
            let all: Vec<DeviceNumber> = self.sys.names(&folder).into_iter().filter_map(number).collect();
            if devices.iter().any(|device| all.contains(device)) {
                return all;
            }
        }
        devices
    }

    /// What ext2, ext3 and ext4 report on themselves, under the name of their device.
    fn ask_ext(&self, mounted: &mut Mounted, number: DeviceNumber) {
        let system = mounted.file_system.value.as_deref().unwrap_or_default();
        if system == "ext2" {
            mounted.journal = Fact::known(false, "ext2 has none");
        }
        if !matches!(system, "ext3" | "ext4") {
            return;
        }
        let Ok(link) = self.sys.link(&device::folder(number)) else { return };
        let Some(name) = link.file_name().map(|name| name.to_string_lossy()) else { return };
        let task = self.sys.fact(&format!("fs/ext4/{name}/journal_task"), |text| match text {
            "<none>" => Some(false),
            _ => parse_number(text).map(|_| true),
        });
        let has_data_mode = |text: &str| text.lines().any(|line| line.starts_with("data="));
        mounted.journal = match task.value {
            Some(_) => task,
            // Kernels before 4.19 have no such file. The mount options name the journal's mode if there is
            // one.
            None => self.proc.fact(&format!("fs/ext4/{name}/options"), |text| {
                text.lines().any(|line| matches!(line, "rw" | "ro")).then(|| has_data_mode(text))
            }),
        };
        mounted.error_count = self.sys.fact(&format!("fs/ext4/{name}/errors_count"), parse_number);
    }

    /// Lists a device and goes on to those under it. A device that two layers share is listed once.
    fn device(&mut self, number: DeviceNumber, depth: u32) {
        let is_listed =
            |layer: &Layer| matches!(&layer.part, Part::Device(device) if device.number == number);
        if self.layers.iter().any(is_listed) || self.is_too_deep(depth) {
            return;
        }
        let device = device::read(&self.sys, number, &self.machine.hypervisor);
        let (name, kind) = (device.name.clone(), device.kind.clone());
        self.layers.push(Layer { depth, part: Part::Device(Box::new(device)) });
        match kind {
            DeviceKind::Partition { .. } => {
                match self.sys.fact(&format!("{}/../dev", device::folder(number)), DeviceNumber::parse).value
                {
                    Some(disk) if disk != number => self.device(disk, depth + 1),
                    _ => self.gap(format!("{name}: the disk of this partition is not told")),
                }
            }
            DeviceKind::Loop { backing_file, .. } => self.backing_file(&name, &backing_file, depth + 1),
            kind if !kind.is_disk() => self.slaves(&name, number, depth + 1),
            // A device that only has a number here is not in /sys.
            _ if name == number.to_string() => self.gap(format!("{name}: no such device in /sys")),
            _ => {}
        }
    }

    fn backing_file(&mut self, name: &str, file: &Fact<PathBuf>, depth: u32) {
        let Some(path) = &file.value else {
            return self.gap(format!("{name}: {}", file.source));
        };
        match self.host.kernel.path_facts(path) {
            Ok(facts) => self.mounted(path, &facts, depth),
            Err(error) => self.gap(format!("{name} reads {}: {error}", path.display())),
        }
    }

    fn slaves(&mut self, name: &str, number: DeviceNumber, depth: u32) {
        let folder = format!("{}/slaves", device::folder(number));
        let slaves = self.sys.names(&folder);
        if slaves.is_empty() {
            self.gap(format!("{name}: names no device under it"));
        }
        for slave in slaves {
            match self
                .sys
                .text(&format!("{folder}/{slave}/dev"))
                .ok()
                .and_then(|text| DeviceNumber::parse(&text))
            {
                Some(under) => self.device(under, depth),
                None => self.gap(format!("{name} rests on {slave}, which tells no number")),
            }
        }
    }
}
