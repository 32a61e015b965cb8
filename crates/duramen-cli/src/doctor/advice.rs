//! Advice for each weakness: the exact command, how to make it permanent, and its cost.
//!
//! Owns one remedy per kind of weakness, and the advice on a volatile cache. The commands change the machine,
//! so they are shown and never run.

use duramen::probe::{
    Device, DeviceKind, Effect, Medium, Part, Report, Trust, Verdict, Weakness, WeaknessKind, WriteCache,
};

/// A remedy and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) about: String,
    /// Commands and lines of configuration, one each.
    pub(super) steps: Vec<String>,
    pub(super) cost: &'static str,
}

/// Advice on all findings, the worst first.
pub(super) fn of(report: &Report, verdict: &Verdict) -> Vec<Advice> {
    let mut all: Vec<Advice> =
        report.weaknesses.iter().map(|weakness| on_weakness(report, weakness)).collect();
    all.extend(report.disks().filter_map(|disk| on_cache(disk, verdict)));
    all
}

fn on_weakness(report: &Report, weakness: &Weakness) -> Advice {
    let about = weakness.reason.clone();
    let (steps, cost) = remedy(&Place::of(report, weakness), weakness.kind);
    Advice { about, steps, cost }
}

/// The weak layer: a command for another layer would change the wrong mount or the wrong disk.
struct Place {
    /// The mount point.
    point: String,
    /// The mounted device, or the device itself.
    from: String,
}

impl Place {
    fn of(report: &Report, weakness: &Weakness) -> Place {
        match weakness.layer.and_then(|index| report.layers.get(index)).map(|layer| &layer.part) {
            Some(Part::Mounted(mounted)) => Place {
                point: mounted.mount_point.value.as_deref().unwrap_or(&mounted.path).display().to_string(),
                from: mounted.mounted_from.value.clone().unwrap_or_else(|| "DEVICE".to_owned()),
            },
            Some(Part::Device(device)) => {
                Place { point: "DIR".to_owned(), from: format!("/dev/{}", device.name) }
            }
            None => Place { point: report.path.display().to_string(), from: "DEVICE".to_owned() },
        }
    }
}

type Remedy = (Vec<String>, &'static str);

fn steps(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn remedy(place: &Place, kind: WeaknessKind) -> Remedy {
    match kind.effect() {
        Effect::SyncIsWorthless => for_worthless(kind, place),
        Effect::CannotBeSeen => for_unseen(kind, place),
        Effect::Weaker => for_weaker(kind, place),
        Effect::Costs => for_costly(kind, place),
    }
}

fn for_worthless(kind: WeaknessKind, place: &Place) -> Remedy {
    match kind {
        WeaknessKind::VolatileOverlay => (
            steps(&["mount a volume for the database, or mount the overlay without `volatile`"]),
            "syncs take as long as the disk needs",
        ),
        WeaknessKind::BarriersOff => (
            vec![
                format!("now: mount -o remount,barrier {}", place.point),
                "to last: take `nobarrier` and `barrier=0` out of the options in /etc/fstab".to_owned(),
            ],
            "each sync waits for the disk's cache: what a durable commit costs",
        ),
        WeaknessKind::SyncSwallower => (
            steps(&[
                "start the program without eatmydata: unset LD_PRELOAD, and look into /etc/ld.so.preload",
            ]),
            "nothing that was promised",
        ),
        WeaknessKind::HiddenCache => (hidden_cache(place), "each sync waits for the cache to be written"),
        _ => (steps(&["put the database on a file system on a disk"]), "nothing"),
    }
}

fn for_unseen(kind: WeaknessKind, place: &Place) -> Remedy {
    let from = &place.from;
    match kind {
        WeaknessKind::NetworkFileSystem => (
            steps(&[
                "use a local disk, or make sure that the server exports with `sync` and has a disk that honours flush",
            ]),
            "the server's syncs take longer than a local disk's",
        ),
        WeaknessKind::SyncPropertyHidden => (
            vec![
                format!("look: zfs get sync,logbias,recordsize {from}"),
                format!("if it is disabled: zfs set sync=standard {from}"),
            ],
            "with sync=standard each sync waits for the intent log; a separate log device makes that faster",
        ),
        WeaknessKind::RemoteDisk => (
            steps(&["ask the operator of the storage whether flushed data survives a power failure there"]),
            "nothing",
        ),
        _ => (
            steps(&["use a disk that is handed through as a block device, or a local file system"]),
            "nothing that is known",
        ),
    }
}

fn for_weaker(kind: WeaknessKind, place: &Place) -> Remedy {
    let from = &place.from;
    match kind {
        WeaknessKind::NoJournal => (
            vec![format!("with the file system unmounted: tune2fs -O has_journal {from}")],
            "some percent of metadata speed; without it a power cut can need fsck before the next mount",
        ),
        WeaknessKind::DataWriteback => (
            steps(&["take `data=writeback` out of the options in /etc/fstab (the default is data=ordered)"]),
            "some speed of growing files; Duramen's log is made of written zeroes and does not grow",
        ),
        WeaknessKind::SoftMount => (
            steps(&["mount with `hard` in place of `soft`"]),
            "a program waits for as long as the server is away",
        ),
        WeaknessKind::RecordedErrors => (
            vec![
                format!("look: dmesg | grep -i {}", short(from)),
                format!("with the file system unmounted: e2fsck -f {from}"),
            ],
            "the time of the check",
        ),
        WeaknessKind::ContainerLayer => {
            (steps(&["mount a volume for the database (docker: -v NAME:/path)"]), "nothing")
        }
        _ => (
            vec![format!("replace the missing disk: mdadm --manage {from} --add DISK")],
            "reads and writes are slow meanwhile",
        ),
    }
}

fn for_costly(kind: WeaknessKind, place: &Place) -> Remedy {
    match kind {
        WeaknessKind::ReadOnly => (
            vec![
                format!("if that was not meant: mount -o remount,rw {}", place.point),
                "a kernel mounts read-only after an error of the disk: look at dmesg first".to_owned(),
            ],
            "nothing",
        ),
        WeaknessKind::Misaligned => (
            steps(&[
                "make the partition anew so that it begins at a multiple of 1 MiB (parted -a optimal), and copy",
            ]),
            "the time of copying; until then each write of a block touches two",
        ),
        WeaknessKind::CopyOnWrite => (
            steps(&[
                "on btrfs Duramen has its own new files written in place (chattr +C); older ones stay as they are",
                "to have it for a directory: mkdir DIR && chattr +C DIR, before the database is made",
            ]),
            "files written in place have no checksums of btrfs; Duramen has its own",
        ),
        _ => (
            steps(&[
                "make room: a full disk refuses commits (nothing is lost), and a disk nearly full is slow",
            ]),
            "nothing",
        ),
    }
}

fn short(device: &str) -> &str {
    device.rsplit('/').next().unwrap_or(device)
}

/// The kernel was configured to assume no cache: undoes that, at the configured layer.
fn hidden_cache(place: &Place) -> Vec<String> {
    vec![
        format!("now: echo 'write back' > /sys/block/{}/queue/write_cache", short(&place.from)),
        "to last: remove what writes 'write through' there (udev rules in /etc/udev/rules.d, boot scripts)"
            .to_owned(),
    ]
}

/// Advice on a drive's volatile cache. Usually nothing should change: it is fast, and flushes empty it.
fn on_cache(disk: &Device, verdict: &Verdict) -> Option<Advice> {
    if !disk.write_cache.is(&WriteCache::Volatile) || !disk.medium.is(&Medium::Physical) {
        return None;
    }
    let name = &disk.name;
    let (now, look, rule) = match &disk.kind {
        DeviceKind::Scsi { .. } => (
            format!("now: hdparm -W0 /dev/{name} (SATA), or sdparm --clear WCE /dev/{name} (SAS)"),
            format!("look: cat /sys/class/scsi_disk/*/cache_type; hdparm -W /dev/{name}"),
            "ACTION==\"add\", SUBSYSTEM==\"scsi_disk\", ATTR{cache_type}:=\"write through\"".to_owned(),
        ),
        DeviceKind::Nvme { .. } => {
            let controller = name.rsplit_once('n').map_or(name.as_str(), |(controller, _)| controller);
            (
                format!(
                    "now: nvme set-feature /dev/{controller} -f 6 -v 0 (with --save if the drive can keep it)"
                ),
                format!(
                    "look: nvme id-ctrl /dev/{controller} | grep vwc; nvme get-feature /dev/{controller} -f 6 -H"
                ),
                "ACTION==\"add\", SUBSYSTEM==\"nvme\", KERNEL==\"nvme[0-9]*\", \
                 RUN+=\"/usr/sbin/nvme set-feature /dev/%k -f 6 -v 0\""
                    .to_owned(),
            )
        }
        _ => return None,
    };
    let about = if verdict.trust == Trust::Unsafe {
        format!("{name} has a volatile cache and its flushes are in doubt: switch the cache off")
    } else {
        format!(
            "{name} has a volatile cache, and flushes empty it: leave it on, unless a power cut test loses data"
        )
    };
    let steps = vec![
        look,
        now,
        format!("to last: /etc/udev/rules.d/99-duramen-write-cache.rules with: {rule}"),
        "never: echo 'write through' > /sys/block/*/queue/write_cache (hides the cache from the kernel, and keeps it)"
            .to_owned(),
    ];
    let cost = "most drives without power-loss protection become slower and wear faster; those with it often become faster";
    Some(Advice { about, steps, cost })
}

#[cfg(test)]
mod tests {
    //! Advice must be exact: for a drive's cache the command, the permanent rule, and what never to do.
    #![allow(clippy::unwrap_used)]

    use duramen::probe::{
        DeviceNumber, Fact, FileSystemClass, Host, Layer, Mounted, Roots, RunningKernel, probe,
    };

    use super::*;

    /// The report of a machine that reveals nothing: the tests add the relevant facts.
    fn report() -> Report {
        let nowhere = || std::path::PathBuf::from("/nowhere");
        let host = Host::recorded(Roots { sys: nowhere(), proc: nowhere() }, Box::new(RunningKernel));
        let mut report = probe(&host, std::path::Path::new(".")).unwrap();
        report.layers.clear();
        report.weaknesses.clear();
        report
    }

    fn on_disk(kind: DeviceKind, name: &str, cache: WriteCache) -> Part {
        fn unknown<T>() -> Fact<T> {
            Fact::unknown("test")
        }
        Part::Device(Box::new(Device {
            number: DeviceNumber { major: 8, minor: 0 },
            name: name.to_owned(),
            kind,
            medium: Fact::known(Medium::Physical, "test"),
            write_cache: Fact::known(cache, "test"),
            model: unknown(),
            vendor: unknown(),
            size_bytes: unknown(),
            read_only: unknown(),
            fua: unknown(),
            rotational: unknown(),
            logical_block_bytes: unknown(),
            physical_block_bytes: unknown(),
            minimum_io_bytes: unknown(),
            optimal_io_bytes: unknown(),
            misaligned: unknown(),
            atomic_write_bytes_max: unknown(),
            scheduler: unknown(),
            statistics: unknown(),
        }))
    }

    fn at(point: &str, from: &str) -> Part {
        Part::Mounted(Box::new(Mounted {
            path: point.into(),
            file_system: Fact::known("ext4".to_owned(), "test"),
            class: FileSystemClass::Local,
            mount_point: Fact::known(point.into(), "test"),
            mounted_from: Fact::known(from.to_owned(), "test"),
            options: Fact::unknown("test"),
            read_only: Fact::unknown("test"),
            journal: Fact::unknown("test"),
            error_count: Fact::unknown("test"),
            no_copy_on_write: Fact::unknown("test"),
        }))
    }

    fn all_on(parts: Vec<Part>, weak: &[(WeaknessKind, usize)]) -> Vec<String> {
        let mut report = report();
        report.layers = parts.into_iter().zip(0..).map(|(part, depth)| Layer { depth, part }).collect();
        let weakness = |&(kind, layer): &(WeaknessKind, usize)| Weakness {
            kind,
            reason: String::new(),
            source: String::new(),
            layer: Some(layer),
        };
        report.weaknesses = weak.iter().map(weakness).collect();
        let verdict = Verdict { trust: Trust::Unsafe, reason: String::new() };
        of(&report, &verdict).into_iter().flat_map(|advice| advice.steps).collect()
    }

    /// A file system in a file on another one: each command is for the weak one of the two.
    #[test]
    fn commands_are_for_the_layer_that_is_weak() {
        fn unknown<T>() -> Fact<T> {
            Fact::unknown("test")
        }
        let parts = || {
            let inner = DeviceKind::Loop { backing_file: unknown(), direct: unknown() };
            vec![
                at("/inner", "/dev/loop1"),
                on_disk(inner, "loop1", WriteCache::WriteThrough),
                at("/outer", "/dev/sda1"),
                on_disk(DeviceKind::Scsi { drive_cache: unknown() }, "sda", WriteCache::WriteThrough),
            ]
        };
        for (kind, layer, wanted, other) in [
            (WeaknessKind::BarriersOff, 2, "mount -o remount,barrier /outer", "/inner"),
            (WeaknessKind::BarriersOff, 0, "mount -o remount,barrier /inner", "/outer"),
            (WeaknessKind::NoJournal, 2, "tune2fs -O has_journal /dev/sda1", "loop1"),
            (WeaknessKind::NoJournal, 0, "tune2fs -O has_journal /dev/loop1", "sda"),
            (WeaknessKind::RecordedErrors, 2, "e2fsck -f /dev/sda1", "loop1"),
            (WeaknessKind::SyncPropertyHidden, 2, "zfs set sync=standard /dev/sda1", "loop1"),
            (WeaknessKind::HiddenCache, 3, "/sys/block/sda/queue/write_cache", "loop1"),
            (WeaknessKind::HiddenCache, 1, "/sys/block/loop1/queue/write_cache", "sda"),
            (WeaknessKind::DegradedArray, 3, "mdadm --manage /dev/sda", "loop1"),
        ] {
            let steps = all_on(parts(), &[(kind, layer)]).join("\n");
            assert!(steps.contains(wanted), "{kind:?} of {layer}: {steps}");
            assert!(!steps.contains(other), "{kind:?} of {layer}: {steps}");
        }
    }

    #[test]
    fn a_volatile_cache_has_its_commands() {
        let unknown = || Fact::unknown("test");
        for (kind, name, wanted) in [
            (DeviceKind::Scsi { drive_cache: unknown() }, "sda", "hdparm -W0 /dev/sda"),
            (DeviceKind::Nvme { transport: unknown() }, "nvme0n1", "nvme set-feature /dev/nvme0 -f 6 -v 0"),
        ] {
            let mut report = report();
            report.layers = vec![Layer { depth: 0, part: on_disk(kind, name, WriteCache::Volatile) }];
            let advice = of(&report, &Verdict { trust: Trust::Verified, reason: String::new() });
            let [advice] = &advice[..] else { unreachable!("one disk, one advice: {advice:?}") };
            assert!(advice.about.contains("leave it on"));
            assert!(advice.steps.iter().any(|step| step.contains(wanted)), "{advice:?}");
            assert!(advice.steps.iter().any(|step| step.contains("/etc/udev/rules.d/")));
            assert!(advice.steps.iter().any(|step| step.starts_with("never: ")));
        }
    }
}
