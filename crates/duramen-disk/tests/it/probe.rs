//! The probe on recorded machines (with layers that this machine does not have), on this one, and on garbage.

mod counting;
mod garbage;
mod live;
mod recording;
mod verdicts;

use std::path::Path;

use duramen_disk::probe::{
    DeviceKind, Fact, Layer, Medium, MemoryLimit, Part, Report, WeaknessKind, WriteCache,
};

use recording::Recording;

/// Each layer as `depth name kind`, so that a whole walk is easy to read.
fn outline(report: &Report) -> Vec<String> {
    report.layers.iter().map(layer_outline).collect()
}

fn layer_outline(layer: &Layer) -> String {
    let of = |fact: &Fact<String>| fact.value.clone().unwrap_or_else(|| "?".to_owned());
    let what = match &layer.part {
        Part::Mounted(mounted) => format!("{} at {}", of(&mounted.file_system), mounted.path.display()),
        Part::Device(device) => {
            let kind = match &device.kind {
                DeviceKind::Partition { .. } => "partition".to_owned(),
                DeviceKind::Loop { backing_file, .. } => {
                    format!("loop {}", backing_file.value.clone().unwrap_or_default().display())
                }
                DeviceKind::Mapper { name, purpose } => format!("{} {}", of(purpose), of(name)),
                DeviceKind::Md { level, .. } => of(level),
                DeviceKind::Bcache { cache_mode } => of(cache_mode),
                _ => of(&device.model),
            };
            format!("{} {kind}", device.name)
        }
    };
    format!("{} {what}", layer.depth)
}

fn kinds(report: &Report) -> Vec<WeaknessKind> {
    report.weaknesses.iter().map(|weakness| weakness.kind).collect()
}

/// Checks the layers from top to bottom, the weaknesses, and the number of gaps.
fn check(name: &str, path: &str, layers: &[&str], weak: &[WeaknessKind], gap_count: usize) -> Report {
    let report = Recording::load(name).report(path);
    assert_eq!(outline(&report), layers, "{name}");
    assert_eq!(kinds(&report), weak, "{name}: {:?}", report.weaknesses);
    assert_eq!(report.gaps.len(), gap_count, "{name}: {:?}", report.gaps);
    report
}

/// The recorded fixture: every fact of its one disk, with its source.
#[test]
fn the_virtual_disk_of_this_kind_of_machine_is_read_whole() {
    let layers = ["0 ext4 at /work/main", "1 vda ?"];
    let report = check("virtio", "/work/main", &layers, &[WeaknessKind::NoJournal], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!(disk.kind, DeviceKind::Virtio);
    assert_eq!(disk.write_cache, Fact::known(WriteCache::Volatile, "/sys/dev/block/254:0/queue/write_cache"));
    assert_eq!(disk.fua, Fact::known(false, "/sys/dev/block/254:0/queue/fua"));
    assert_eq!(disk.scheduler, Fact::known("mq-deadline".to_owned(), "/sys/dev/block/254:0/queue/scheduler"));
    assert_eq!((disk.logical_block_bytes.value, disk.physical_block_bytes.value), (Some(512), Some(4096)));
    assert_eq!((disk.size_bytes.value, disk.misaligned.value), (Some(256 << 30), Some(false)));
    assert_eq!((disk.medium.value, disk.rotational.value), (Some(Medium::Virtual), Some(true)));
    assert_eq!(disk.vendor.value, None, "a bus number is no maker: {}", disk.vendor.source);
    let mounted = report.mounts().next().unwrap();
    assert_eq!(mounted.journal, Fact::known(false, "/sys/fs/ext4/vda/journal_task"));
    assert_eq!(mounted.mount_point.value.as_deref(), Some(Path::new("/")));
    assert!(mounted.has_option("discard"));
    let machine = &report.machine;
    assert_eq!((machine.hypervisor.value, machine.container.value), (Some(true), Some(true)));
    assert_eq!(machine.container.source, "/.dockerenv");
    assert_eq!(machine.memory_bytes.value, Some(24_684_096 << 10));
    assert_eq!(machine.memory_limit.value, Some(MemoryLimit::Unlimited));
    assert_eq!(machine.kernel_release.value.as_deref(), Some("6.18.44-fc-v595"));
    assert_eq!(machine.sync_swallower.value, Some(false));
}

#[test]
fn layers_are_followed_down_to_the_disks() {
    let layers = [
        "0 ext4 at /srv/db",
        "1 dm-1 CRYPT data_crypt",
        "2 dm-0 LVM vg-data",
        "3 nvme0n1p2 partition",
        "4 nvme0n1 Samsung SSD 990 PRO 2TB",
    ];
    let report = check("crypt-lvm-nvme", "/srv/db", &layers, &[], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!((disk.medium.value, disk.fua.value), (Some(Medium::Physical), Some(true)));
    assert_eq!(report.mounts().next().unwrap().journal.value, Some(true));
    assert_eq!(
        report.machine.memory_limit.value,
        Some(MemoryLimit::Bytes(8 << 30)),
        "the parent's limit holds"
    );

    let layers = [
        "0 xfs at /srv/db",
        "1 md0 raid1",
        "2 sda2 partition",
        "3 sda CT1000MX500SSD1",
        "2 sdb2 partition",
        "3 sdb CT1000MX500SSD1",
    ];
    let report = check("md-raid1-sata", "/srv/db", &layers, &[], 0);
    assert_eq!(report.disks().map(|disk| disk.fua.value).collect::<Vec<_>>(), [Some(false), Some(true)]);
    let sda = report.disks().next().unwrap();
    assert!(
        matches!(&sda.kind, DeviceKind::Scsi { drive_cache } if drive_cache.is(&"write back".to_owned()))
    );
    assert_eq!(sda.vendor.value.as_deref(), Some("ATA"));

    let layers = [
        "0 ext4 at /srv/db",
        "1 bcache0 writeback",
        "2 nvme0n1 Samsung SSD 990 PRO 2TB",
        "2 sdb ST4000VN008-2DR1",
    ];
    check("bcache-writeback", "/srv/db", &layers, &[], 0);
}

#[test]
fn disks_say_what_they_are() {
    let layers = ["0 ext4 at /srv/db", "1 sda1 partition", "2 sda ST2000DM008-2FR1"];
    let report = check("sata-rotational", "/srv/db", &layers, &[], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!((disk.rotational.value, disk.scheduler.value.as_deref()), (Some(true), Some("bfq")));

    let report = check("sas", "/srv/db", &["0 xfs at /srv/db", "1 sda ST600MM0006"], &[], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!(
        (disk.vendor.value.as_deref(), disk.write_cache.value),
        (Some("SEAGATE"), Some(WriteCache::WriteThrough))
    );

    let layers = ["0 xfs at /srv/db", "1 nvme0n1p1 partition", "2 nvme0n1 SAMSUNG MZQL23T8HCLS-00A07"];
    let report = check("nvme-no-vwc", "/srv/db", &layers, &[], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!(
        (disk.write_cache.value, disk.atomic_write_bytes_max.value),
        (Some(WriteCache::WriteThrough), Some(131_072))
    );
    let part = report.devices().next().unwrap();
    assert_eq!(
        part.kind,
        DeviceKind::Partition { start_bytes: Fact::known(1 << 20, "/sys/dev/block/259:1/start") }
    );
    assert_eq!(part.write_cache.value, None, "{}", part.write_cache.source);

    let report =
        check("nvme-multipath", "/srv/db", &["0 xfs at /srv/db", "1 nvme0n1 INTEL SSDPE2KE016T8"], &[], 0);
    let disk = report.disks().next().unwrap();
    assert_eq!((disk.statistics.value, disk.medium.value), (Some(false), Some(Medium::Physical)));
}

/// `stat` returns 0:40, mountinfo 0:39, and neither is a device. The mount's source and the file system's own
/// list name the devices.
#[test]
fn btrfs_is_followed_to_all_of_its_devices() {
    let layers = [
        "0 btrfs at /srv/db",
        "1 sda2 partition",
        "2 sda CT1000MX500SSD1",
        "1 sdb1 partition",
        "2 sdb WDC WDS100T2B0A",
    ];
    check("btrfs-two-disks", "/srv/db", &layers, &[WeaknessKind::CopyOnWrite], 0);
    let mut in_place = Recording::load("btrfs-two-disks");
    in_place.kernel.0.get_mut(Path::new("/srv/db")).unwrap().no_copy_on_write = Some(true);
    assert_eq!(kinds(&in_place.report("/srv/db")), []);
    // In a container there is no /dev/sda2; its name is enough.
    in_place.kernel.0.remove(Path::new("/dev/sda2"));
    assert_eq!(in_place.report("/srv/db").disks().count(), 2);
}

#[test]
fn overlays_lead_to_their_upper_directory_unless_it_is_the_hosts() {
    let layers =
        ["0 overlay at /merged/db", "1 ext4 at /var/upper", "2 sda1 partition", "3 sda CT1000MX500SSD1"];
    check("overlay-volatile", "/merged/db", &layers, &[WeaknessKind::VolatileOverlay], 0);
    let weak = [WeaknessKind::ContainerLayer];
    let report = check("overlay-container", "/data", &["0 overlay at /data"], &weak, 1);
    assert_eq!(report.gaps, ["/var/lib/docker/overlay2/0a1b/diff is a path of the container's host"]);
}

#[test]
fn memory_and_other_machines_are_called_by_name() {
    let report =
        check("zram", "/mnt/z", &["0 ext4 at /mnt/z", "1 zram0 ?"], &[WeaknessKind::MemoryDevice], 0);
    assert_eq!(report.disks().next().unwrap().medium.value, Some(Medium::Memory));
    let weak = [WeaknessKind::NetworkFileSystem, WeaknessKind::SoftMount];
    let report = check("nfs", "/srv/db", &["0 nfs4 at /srv/db"], &weak, 0);
    assert_eq!(report.mounts().next().unwrap().mounted_from.value.as_deref(), Some("filer:/export/db"));
    let layers = ["0 xfs at /srv/db", "1 nvme0n1 Linux"];
    check("nvme-tcp", "/srv/db", &layers, &[WeaknessKind::RemoteDisk], 0);
}

#[test]
fn weak_mounts_caches_and_partitions_are_named() {
    let layers = ["0 xfs at /srv/db", "1 sda1 partition", "2 sda HGST HUS724020AL"];
    let report = check("xfs-nobarrier-old", "/srv/db", &layers, &[WeaknessKind::BarriersOff], 0);
    assert_eq!(report.disks().next().unwrap().fua.value, None);
    let layers = ["0 ext4 at /srv/db", "1 sda1 partition", "2 sda CT1000MX500SSD1"];
    let report =
        check("hidden-cache", "/srv/db", &layers, &[WeaknessKind::HiddenCache, WeaknessKind::NoJournal], 0);
    assert!(report.weaknesses[0].source.ends_with("scsi_disk/1:0:0:0/cache_type"));
    let weak = [WeaknessKind::RecordedErrors, WeaknessKind::Misaligned, WeaknessKind::NearlyFull];
    let layers = ["0 ext4 at /srv/db", "1 sda1 partition", "2 sda WDC WDS100T2B0A"];
    check("misaligned", "/srv/db", &layers, &weak, 0);
}

/// A remedy is for the weak layer, which need not be the topmost.
#[test]
fn a_weakness_names_its_layer() {
    let layers = |report: &Report| -> Vec<(WeaknessKind, Option<usize>)> {
        report.weaknesses.iter().map(|weakness| (weakness.kind, weakness.layer)).collect()
    };
    let mut recording = Recording::load("overlay-volatile");
    let told = String::from_utf8(match &recording.entries["proc/self/mountinfo"] {
        recording::Entry::Text(text) => text.clone(),
        recording::Entry::Link(_) => unreachable!("it is a text"),
    });
    let told = told.unwrap().replace("/dev/sda1 rw", "/dev/sda1 rw,nobarrier");
    recording.set("proc/self/mountinfo", &told);
    let found = layers(&recording.report("/merged/db"));
    assert_eq!(found, [(WeaknessKind::VolatileOverlay, Some(0)), (WeaknessKind::BarriersOff, Some(1))]);
    let report = Recording::load("hidden-cache").report("/srv/db");
    assert_eq!(layers(&report), [(WeaknessKind::HiddenCache, Some(2)), (WeaknessKind::NoJournal, Some(0))]);
    let report = Recording::load("misaligned").report("/srv/db");
    let wanted = [
        (WeaknessKind::RecordedErrors, Some(0)),
        (WeaknessKind::Misaligned, Some(1)),
        (WeaknessKind::NearlyFull, Some(0)),
    ];
    assert_eq!(layers(&report), wanted);
    let mut recording = Recording::load("crypt-lvm-nvme");
    recording.set("proc/self/environ", "LD_PRELOAD=libeatmydata.so");
    assert_eq!(layers(&recording.report("/srv/db")), [(WeaknessKind::SyncSwallower, None)]);
}

/// Weaknesses of the process and the array, added to recordings that have none.
#[test]
fn swallowed_syncs_and_lost_disks_are_seen() {
    let mut recording = Recording::load("crypt-lvm-nvme");
    let library = "7f00-7f01 r-xp 0 08:01 9    /usr/lib/x86_64-linux-gnu/libeatmydata.so.1.3.0";
    recording.set("proc/self/maps", library);
    assert_eq!(kinds(&recording.report("/srv/db")), [WeaknessKind::SyncSwallower]);
    let mut recording = Recording::load("crypt-lvm-nvme");
    recording.set("proc/self/environ", "A=1\0LD_PRELOAD=libeatmydata.so\0B=2\0");
    assert_eq!(kinds(&recording.report("/srv/db")), [WeaknessKind::SyncSwallower]);
    let mut recording = Recording::load("md-raid1-sata");
    recording.set("sys/devices/virtual/block/md0/md/degraded", "1");
    assert_eq!(kinds(&recording.report("/srv/db")), [WeaknessKind::DegradedArray]);
    let mut recording = Recording::load("crypt-lvm-nvme");
    recording.set("sys/devices/virtual/block/dm-0/queue/write_cache", "write through");
    let report = recording.report("/srv/db");
    assert_eq!(kinds(&report), [WeaknessKind::HiddenCache]);
    assert_eq!(report.weaknesses[0].reason, "dm-0 passes no flush on to nvme0n1, which has a volatile cache");
    let mut recording = Recording::load("crypt-lvm-nvme");
    recording.entries.remove("sys/fs/ext4/dm-1/journal_task");
    recording.set("proc/fs/ext4/dm-1/options", "rw\nbarrier\ndata=ordered");
    assert_eq!(recording.report("/srv/db").mounts().next().unwrap().journal.value, Some(true));
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let unpacked = Recording::load("nfs").unpack();
    let error = duramen_disk::probe::probe(&unpacked.host, Path::new("/nowhere")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
