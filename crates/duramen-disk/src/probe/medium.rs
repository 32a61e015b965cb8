//! What stores the bytes of a disk: a drive, a host, another machine, memory.
//!
//! Owns the signs that distinguish a virtual disk from a real one. The result is never `Physical` if there
//! may be a hypervisor, because a guest cannot see its host's cache.

use super::device::DeviceKind;
use super::fact::Fact;

/// What stores the bytes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A drive of this machine.
    Physical,
    /// A disk that a hypervisor provides; what is under it cannot be seen.
    Virtual,
    /// A disk that another machine provides: iSCSI, NVMe over a network, nbd, rbd, drbd.
    Remote,
    /// Memory, lost with the power.
    Memory,
}

/// Words in the vendor or model of disks of hypervisors and clouds, in lower case.
const VIRTUAL_WORDS: &[&str] = &[
    "qemu",
    "vmware",
    "vbox",
    "virtual",
    "virtio",
    "msft",
    "google",
    "persistentdisk",
    "nvme_card",
    "amazon",
    "bhyve",
    "kvm",
    "xen",
    "parallels",
];

/// Parts of the path in `/sys` that show a hypervisor's bus.
const VIRTUAL_PLACES: &[&str] = &["/virtio", "/vmbus", "/VMBUS", "/vbd-", "/vscsi"];

/// `place` is the target of the device's link in `/sys/dev/block`.
pub(super) fn of(
    kind: &DeviceKind,
    place: &str,
    model: &Fact<String>,
    vendor: &Fact<String>,
    hypervisor: &Fact<bool>,
) -> Fact<Medium> {
    let told = |medium, why: String| Fact::known(medium, why);
    match kind {
        DeviceKind::Zram | DeviceKind::Ram => return told(Medium::Memory, "its driver".to_owned()),
        DeviceKind::Virtio | DeviceKind::Xen => return told(Medium::Virtual, "its driver".to_owned()),
        DeviceKind::NetworkDisk => return told(Medium::Remote, "its driver".to_owned()),
        DeviceKind::Nvme { transport } if transport.value.as_ref().is_some_and(|name| name != "pcie") => {
            return told(Medium::Remote, transport.source.clone());
        }
        _ => {}
    }
    if is_session(place) {
        return told(Medium::Remote, format!("an iSCSI session: {place}"));
    }
    if VIRTUAL_PLACES.iter().any(|part| place.contains(part)) {
        return told(Medium::Virtual, format!("a virtual bus: {place}"));
    }
    for words in [vendor, model] {
        let text = words.value.as_deref().unwrap_or_default().to_lowercase();
        if VIRTUAL_WORDS.iter().any(|word| text.contains(word)) {
            return told(Medium::Virtual, words.source.clone());
        }
    }
    match (hypervisor.value, &model.value) {
        (Some(false), Some(_)) => told(
            Medium::Physical,
            format!("{} names no virtual disk, and no hypervisor: {}", model.source, hypervisor.source),
        ),
        (Some(false), None) => Fact::unknown(format!("no model: {}", model.source)),
        (Some(true), _) => Fact::unknown(format!("under a hypervisor ({})", hypervisor.source)),
        (None, _) => Fact::unknown(format!("there may be a hypervisor ({})", hypervisor.source)),
    }
}

/// `/session3/` is part of the path of a disk reached by iSCSI.
fn is_session(place: &str) -> bool {
    let number = |part: &str| part.strip_prefix("session").is_some_and(|rest| rest.parse::<u32>().is_ok());
    place.split('/').any(number)
}
