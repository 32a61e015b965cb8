//! With any contents of the files, the probe and the verdict terminate, and unreadable facts are unknown.

use std::fs;
use std::path::Path;

use duramen_disk::probe::{Device, Report, Trust, judge, probe};

use super::recording::{Entry, Recording, Unpacked, all};

/// Contents that may replace valid ones.
const GARBAGE: &[&[u8]] = &[
    b"",
    b"\n\n",
    b"-1",
    b"99999999999999999999999999999999",
    b"18446744073709551615",
    b"0:0",
    b"4294967296:1",
    b"[",
    b"] [ ]",
    b"\xff\xfe\x00\x80",
    b"../../../..",
    b"a - b - c\n1 1 1:1 / / - \\9\\777 \\",
    b"flags\nMemTotal: kB\n0::/../..\nmemory:::",
];

fn probed(unpacked: &Unpacked, path: &Path) -> Report {
    let report = probe(&unpacked.host, path).unwrap();
    let verdict = judge(&report, None);
    assert!(verdict.trust <= Trust::Unknown, "{verdict:?}");
    report
}

/// The number of known facts of a disk.
fn known_count(device: &Device) -> usize {
    [
        device.model.value.is_some(),
        device.vendor.value.is_some(),
        device.size_bytes.value.is_some(),
        device.write_cache.value.is_some(),
        device.fua.value.is_some(),
        device.rotational.value.is_some(),
        device.logical_block_bytes.value.is_some(),
        device.physical_block_bytes.value.is_some(),
        device.minimum_io_bytes.value.is_some(),
        device.optimal_io_bytes.value.is_some(),
        device.atomic_write_bytes_max.value.is_some(),
        device.scheduler.value.is_some(),
        device.misaligned.value.is_some(),
    ]
    .iter()
    .filter(|known| **known)
    .count()
}

/// Every file gets each kind of garbage in some machine; most files occur in several machines.
#[test]
fn garbage_in_any_one_file_is_survived() {
    let mut turn = 0;
    for (name, asked) in all() {
        let recording = Recording::load(&name);
        let unpacked = recording.unpack();
        for (path, entry) in &recording.entries {
            let Entry::Text(text) = entry else { continue };
            let place = unpacked.root.path().join(path);
            // The mounts decide which other files are read.
            let garbage_count = if path.ends_with("mountinfo") { GARBAGE.len() } else { 3 };
            for _ in 0..garbage_count {
                fs::write(&place, GARBAGE[turn % GARBAGE.len()]).unwrap();
                probed(&unpacked, &asked);
                turn += 1;
            }
            fs::remove_file(&place).unwrap();
            probed(&unpacked, &asked);
            fs::create_dir(&place).unwrap();
            probed(&unpacked, &asked);
            fs::remove_dir(&place).unwrap();
            fs::write(&place, text).unwrap();
        }
    }
}

#[test]
fn links_that_lead_nowhere_or_in_a_circle_are_survived() {
    for (name, asked) in all() {
        let recording = Recording::load(&name);
        let unpacked = recording.unpack();
        for (path, entry) in &recording.entries {
            let Entry::Link(target) = entry else { continue };
            let place = unpacked.root.path().join(path);
            for wrong in ["nowhere", ".", "..", "../../../..", place.to_str().unwrap()] {
                fs::remove_file(&place).unwrap();
                std::os::unix::fs::symlink(wrong, &place).unwrap();
                probed(&unpacked, &asked);
            }
            fs::remove_file(&place).unwrap();
            std::os::unix::fs::symlink(target, &place).unwrap();
        }
    }
}

#[test]
fn a_machine_that_says_nothing_is_unknown() {
    for (name, asked) in all() {
        for garbage in [&b""[..], b"\xff\xff nonsense"] {
            let mut recording = Recording::load(&name);
            for (path, entry) in &mut recording.entries {
                // Without the mounts and links nothing would be found that could be unknown.
                let keeps = path == "proc/self/mountinfo" || path.ends_with("/dev");
                if let (Entry::Text(text), false) = (entry, keeps) {
                    *text = garbage.to_vec();
                }
            }
            let report = probed(&recording.unpack(), &asked);
            for device in report.devices() {
                let texts_known = if garbage.is_empty() { 0 } else { 2 };
                assert!(known_count(device) <= texts_known, "{name}: {device:?}");
            }
            let machine = &report.machine;
            assert_eq!((machine.memory_bytes.value, machine.memory_limit.value), (None, None), "{name}");
            assert_eq!(machine.hypervisor.value, None, "{name}");
        }
        let nothing = Recording { entries: Default::default(), ..Recording::load(&name) };
        let report = probed(&nothing.unpack(), &asked);
        assert_eq!(report.disks().filter(|disk| known_count(disk) > 0).count(), 0, "{name}");
    }
}
