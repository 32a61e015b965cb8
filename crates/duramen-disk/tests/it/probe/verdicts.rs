//! The witness on recorded machines, and the table of verdicts: each machine after each kind of burst.

use std::path::Path;

use duramen_disk::Disk;
use duramen_disk::probe::{
    Burst, Counted, DiskCount, Meter, Quantiles, Report, Trust, Verdict, Witness, judge, probe, witness,
};

use super::counting::{Behaviour, CountingDisk};
use super::recording::{Recording, Unpacked};

const COMMITS: u32 = 32;

/// The counts of every disk per sync, and the time of a sync.
#[derive(Clone, Copy)]
struct Seen {
    flushes: Option<u64>,
    writes: Option<u64>,
    sync_us: u64,
}

const HONEST: Seen = Seen { flushes: Some(32), writes: Some(64), sync_us: 500 };
const NO_FLUSH: Seen = Seen { flushes: Some(0), ..HONEST };
const UNCOUNTED: Seen = Seen { flushes: None, writes: None, ..HONEST };

fn burst(report: &Report, seen: Seen) -> Burst {
    let each_ns = seen.sync_us * 1000;
    let count = |disk: &duramen_disk::probe::Device| DiskCount {
        number: disk.number,
        name: disk.name.clone(),
        flushes: seen.flushes,
        writes: seen.writes,
        bytes: None,
    };
    Burst {
        commits: COMMITS,
        latency: Quantiles {
            min_ns: each_ns,
            p50_ns: each_ns,
            p90_ns: each_ns,
            p99_ns: each_ns,
            max_ns: each_ns,
        },
        disks: report.disks().map(count).collect(),
    }
}

fn check(recording: &Recording, path: &str, seen: Seen, trust: Trust, words: &str) {
    let report = recording.report(path);
    let Verdict { trust: found, reason } = judge(&report, Some(&burst(&report, seen)));
    assert_eq!(found, trust, "{path}: {reason}");
    assert!(reason.contains(words), "{reason} does not say {words}");
}

fn check_named(name: &str, seen: Seen, trust: Trust, words: &str) {
    check(&Recording::load(name), "/srv/db", seen, trust, words);
}

/// A physical chain with a flush for each sync is verified; nothing else is.
#[test]
fn physical_disks_are_believed_what_they_counted() {
    let few = Seen { flushes: Some(31), ..HONEST };
    check_named("crypt-lvm-nvme", HONEST, Trust::Verified, "32 flushes for 32 syncs");
    check_named("md-raid1-sata", HONEST, Trust::Verified, "32 flushes");
    check_named("bcache-writeback", Seen { sync_us: 9000, ..HONEST }, Trust::Verified, "32 flushes");
    check_named("btrfs-two-disks", HONEST, Trust::Verified, "32 flushes");
    check_named("crypt-lvm-nvme", UNCOUNTED, Trust::Unknown, "not counted");
    check_named("crypt-lvm-nvme", NO_FLUSH, Trust::Unknown, "FUA");
    check_named("md-raid1-sata", NO_FLUSH, Trust::Unsafe, "dropped on its way");
    check_named("btrfs-two-disks", few, Trust::Unsafe, "31 flushes for 32 syncs");
    check_named("btrfs-two-disks", Seen { writes: Some(15), ..HONEST }, Trust::Unsafe, "saw 30 writes");
    check_named("nvme-no-vwc", NO_FLUSH, Trust::Plausible, "no volatile cache");
    check_named("sas", NO_FLUSH, Trust::Plausible, "no volatile cache");
    check_named("nvme-multipath", UNCOUNTED, Trust::Unknown, "not counted");
}

/// The counters include all programs. If they count many more flushes than the burst's own, they show
/// nothing.
#[test]
fn flushes_of_others_verify_nothing() {
    let busy = Seen { flushes: Some(49), ..HONEST };
    check_named(
        "crypt-lvm-nvme",
        busy,
        Trust::Plausible,
        "other programs flush too; repeat when it is quiet",
    );
    check_named("crypt-lvm-nvme", Seen { flushes: Some(48), ..HONEST }, Trust::Verified, "48 flushes");
    check(&Recording::load("virtio"), "/work/main", busy, Trust::Plausible, "host's cache cannot be seen");
    check_named("md-raid1-sata", NO_FLUSH, Trust::Unsafe, "dropped on its way");
}

#[test]
fn a_sync_that_is_too_fast_is_not_believed() {
    let slow = Seen { sync_us: 8000, ..HONEST };
    check_named("sata-rotational", slow, Trust::Verified, "32 flushes");
    check_named("sata-rotational", HONEST, Trust::Unsafe, "rotates");
    check_named("crypt-lvm-nvme", Seen { sync_us: 3, ..HONEST }, Trust::Unsafe, "faster than any disk");
    // A host's disk may report rotation and be fast.
    let virtual_disk = Recording::load("virtio");
    check(&virtual_disk, "/work/main", HONEST, Trust::Plausible, "host's cache cannot be seen");
}

#[test]
fn virtual_disks_are_at_best_plausible() {
    let mut recording = Recording::load("virtio");
    recording.set("sys/fs/ext4/vda/journal_task", "77");
    check(&recording, "/work/main", HONEST, Trust::Plausible, "host's cache cannot be seen");
    check(&recording, "/work/main", NO_FLUSH, Trust::Unsafe, "dropped on its way");
    let path = recording.path_of("queue/write_cache");
    recording.set(&path, "write through");
    check(&recording, "/work/main", NO_FLUSH, Trust::Plausible, "host's cache cannot be seen");
    recording.set(&path, "write sideways");
    check(&recording, "/work/main", HONEST, Trust::Unknown, "volatile is unknown");
    // A physical model does not prove a physical disk if there is a hypervisor.
    let mut recording = Recording::load("nvme-no-vwc");
    recording.set("proc/cpuinfo", "flags\t: fpu hypervisor");
    check(&recording, "/srv/db", HONEST, Trust::Plausible, "may be a virtual disk");
    let mut recording = Recording::load("crypt-lvm-nvme");
    let model = recording.path_of("device/model");
    recording.set(&model, "Amazon Elastic Block Store");
    check(&recording, "/srv/db", HONEST, Trust::Plausible, "virtual disk");
}

#[test]
fn weaknesses_rule_over_counters() {
    check_named("xfs-nobarrier-old", HONEST, Trust::Unsafe, "nobarrier");
    check_named("hidden-cache", HONEST, Trust::Unsafe, "was told that it has none");
    check(&Recording::load("overlay-volatile"), "/merged/db", HONEST, Trust::Unsafe, "skips every sync");
    check(&Recording::load("zram"), "/mnt/z", HONEST, Trust::Unsafe, "nothing survives a reboot");
    check(&Recording::load("overlay-container"), "/data", HONEST, Trust::Unknown, "container's host");
    check_named("nfs", HONEST, Trust::Unknown, "cannot be seen from here");
    check_named("nvme-tcp", HONEST, Trust::Unknown, "another machine's disk");
    check_named("loop-circle", HONEST, Trust::Unknown, "no disk was found");
    check_named("misaligned", HONEST, Trust::Plausible, "recorded 3 errors");
    let mut recording = Recording::load("crypt-lvm-nvme");
    recording.set("proc/self/environ", "LD_PRELOAD=/usr/lib/libeatmydata.so");
    check(&recording, "/srv/db", HONEST, Trust::Unsafe, "libeatmydata");
}

/// Each file system has its own name for the option.
#[test]
fn mount_options_that_turn_flushes_off_are_unsafe() {
    for (system, option) in [
        ("ext4", "nobarrier"),
        ("ext4", "barrier=0"),
        ("btrfs", "nobarrier"),
        ("f2fs", "fsync_mode=nobarrier"),
        ("reiserfs", "barrier=none"),
        ("bcachefs", "journal_flush_disabled"),
    ] {
        let mut recording = Recording::load("crypt-lvm-nvme");
        let line = format!("41 25 253:1 / /srv rw - {system} /dev/mapper/data_crypt rw,{option}");
        recording.set("proc/self/mountinfo", &line);
        check(&recording, "/srv/db", HONEST, Trust::Unsafe, option);
    }
}

#[test]
fn file_systems_that_answer_for_others_are_unknown() {
    for system in
        ["nfs", "cifs", "smb3", "ceph", "9p", "virtiofs", "fuse", "fuse.sshfs", "fuseblk", "zfs", "newfs"]
    {
        let mut recording = Recording::load("nfs");
        recording.set("proc/self/mountinfo", &format!("77 25 0:52 / /srv/db rw - {system} tank/db rw"));
        check(&recording, "/srv/db", UNCOUNTED, Trust::Unknown, "");
    }
    let mut recording = Recording::load("nfs");
    recording.set("proc/self/mountinfo", "77 25 0:52 / /srv/db rw - tmpfs none rw");
    check(&recording, "/srv/db", UNCOUNTED, Trust::Unsafe, "is memory");
}

/// Without a measurement nothing is trusted, and what is unsafe in any case stays unsafe.
#[test]
fn without_a_burst_the_verdict_is_unknown_or_unsafe() {
    let of = |name: &str, path: &str| judge(&Recording::load(name).report(path), None).trust;
    assert_eq!(of("crypt-lvm-nvme", "/srv/db"), Trust::Unknown);
    assert_eq!(of("sas", "/srv/db"), Trust::Unknown);
    assert_eq!(of("zram", "/mnt/z"), Trust::Unsafe);
}

/// A cache in front of another disk may take the flush alone; that is not proof of a swallowed sync.
#[test]
fn a_flush_on_one_of_two_disks_is_unknown() {
    let report = Recording::load("bcache-writeback").report("/srv/db");
    let mut burst = burst(&report, Seen { sync_us: 9000, ..HONEST });
    burst.disks[1].flushes = Some(0);
    assert_eq!(judge(&report, Some(&burst)).trust, Trust::Unknown);
    assert_eq!(burst.flushes_per_sync(), Some(0.0));
    assert_eq!(burst.writes_per_sync(), Some(4.0));
}

/// A whole witness of a recorded machine: the syncs of a disk in memory advance its disks' counters.
fn ran(unpacked: &Unpacked, disk: &CountingDisk, path: &Path) -> std::io::Result<Witness> {
    let report = probe(&unpacked.host, path).unwrap();
    witness(&unpacked.host, disk, &report, COMMITS)
}

fn behaviour(recording: &Recording, unpacked: &Unpacked) -> Behaviour {
    let stat = unpacked.root.path().join(recording.path_of("nvme0n1/stat"));
    Behaviour { flushed: vec![stat.clone()], written: vec![stat], sync_ns: 70_000, fails_at: None }
}

#[test]
fn the_witness_counts_what_reached_the_disk_and_removes_its_file() {
    let path = Path::new("/srv/db");
    let recording = Recording::load("crypt-lvm-nvme");
    let unpacked = recording.unpack();
    let honest = behaviour(&recording, &unpacked);
    let disk = CountingDisk::new(path, honest.clone());
    let told = ran(&unpacked, &disk, path).unwrap();
    assert_eq!(told.verdict.trust, Trust::Verified, "{}", told.verdict.reason);
    assert_eq!((told.burst.flushes_per_sync(), told.burst.writes_per_sync()), (Some(1.0), Some(1.0)));
    assert_eq!(told.burst.bytes_per_sync(), Some(4096.0));
    assert_eq!((told.burst.latency.min_ns, told.burst.latency.max_ns), (70_000, 70_000));
    assert_eq!(disk.inner.list(path).unwrap(), Vec::<std::path::PathBuf>::new());

    let lying = Behaviour { flushed: Vec::new(), ..honest.clone() };
    let told = ran(&unpacked, &CountingDisk::new(path, lying), path).unwrap();
    assert_eq!((told.verdict.trust, told.burst.flushes_per_sync()), (Trust::Unknown, Some(0.0)));

    // The file is removed also when a sync in the middle of the burst fails.
    let failing = CountingDisk::new(path, Behaviour { fails_at: Some(9), ..honest });
    assert_eq!(ran(&unpacked, &failing, path).unwrap_err().to_string(), "the sync failed");
    assert_eq!(failing.inner.list(path).unwrap(), Vec::<std::path::PathBuf>::new());
}

/// A device's figures name their file; without the file they are unknown, not 0.
#[test]
fn what_disks_count_is_read_with_its_source() {
    let counted = |name: &str, work: &dyn Fn(&Recording, &Unpacked)| {
        let recording = Recording::load(name);
        let unpacked = recording.unpack();
        let report = probe(&unpacked.host, Path::new("/srv/db")).unwrap();
        let meter = Meter::new(&unpacked.host, &report);
        let before = meter.read();
        work(&recording, &unpacked);
        (meter.source(), meter.read().since(&before))
    };
    let write = |recording: &Recording, unpacked: &Unpacked| {
        let path = Path::new("/srv/db");
        let disk = CountingDisk::new(path, behaviour(recording, unpacked));
        ran(unpacked, &disk, path).unwrap();
    };
    let (source, told) = counted("crypt-lvm-nvme", &write);
    let (writes, bytes) = (u64::from(COMMITS) + 1, (u64::from(COMMITS) + 1) * 4096);
    assert!(source.value.is_some_and(|source| source.starts_with("/sys/") && source.contains("nvme0n1")));
    // One more than commits: the sync of the zeroes before them.
    assert_eq!(told, Counted { flushes: Some(writes), writes: Some(writes), bytes: Some(bytes) });
    let (source, told) = counted("nfs", &|_, _| {});
    assert_eq!((source.value, told), (None, Counted::default()));
    assert!(counted("nvme-multipath", &|_, _| {}).0.value.is_none(), "its statistics are off");
}

#[test]
fn a_burst_of_none_or_of_too_many_is_refused() {
    let unpacked = Recording::load("nfs").unpack();
    let report = probe(&unpacked.host, Path::new("/srv/db")).unwrap();
    for commits in [0, duramen_disk::probe::COMMITS_MAX + 1] {
        let error = witness(&unpacked.host, &duramen_disk::MemDisk::new(1), &report, commits).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}
