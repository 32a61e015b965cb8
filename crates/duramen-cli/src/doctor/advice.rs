//! What to do about each weakness: the exact command, how to make it last, and what it costs.
//!
//! Owns one remedy a kind of weakness, and the advice on a volatile cache. Commands change the machine, so they are
//! told and never run.

use duramen::probe::{
    Device, DeviceKind, Effect, Medium, Mounted, Report, Trust, Verdict, Weakness, WeaknessKind, WriteCache,
};

/// What to do, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) about: String,
    /// Commands and lines of configuration, each by itself.
    pub(super) steps: Vec<String>,
    pub(super) cost: &'static str,
}

/// Advice on all that was found, the worst first.
pub(super) fn of(report: &Report, verdict: &Verdict) -> Vec<Advice> {
    let mut all: Vec<Advice> =
        report.weaknesses.iter().map(|weakness| on_weakness(report, weakness)).collect();
    all.extend(report.disks().filter_map(|disk| on_cache(disk, verdict)));
    all
}

fn on_weakness(report: &Report, weakness: &Weakness) -> Advice {
    let about = weakness.reason.clone();
    let (steps, cost) = remedy(report, weakness.kind);
    Advice { about, steps, cost }
}

/// Where the path is mounted, and what is mounted there.
struct Place {
    point: String,
    from: String,
}

type Remedy = (Vec<String>, &'static str);

fn steps(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn remedy(report: &Report, kind: WeaknessKind) -> Remedy {
    let top = report.mounts().next();
    let point = top.and_then(|mounted| mounted.mount_point.value.as_deref()).unwrap_or(&report.path);
    let place = Place { point: point.display().to_string(), from: mounted_from(top) };
    match kind.effect() {
        Effect::SyncIsWorthless => for_worthless(report, kind, &place),
        Effect::CannotBeSeen => for_unseen(kind, &place),
        Effect::Weaker => for_weaker(kind, &place),
        Effect::Costs => for_costly(kind, &place),
    }
}

fn for_worthless(report: &Report, kind: WeaknessKind, place: &Place) -> Remedy {
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
        WeaknessKind::HiddenCache => (hidden_cache(report), "each sync waits for the cache to be written"),
        _ => (steps(&["put the database on a file system that lies on a disk"]), "nothing"),
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
                format!("if it says disabled: zfs set sync=standard {from}"),
            ],
            "with sync=standard each sync waits for the intent log; a separate log device makes that faster",
        ),
        WeaknessKind::RemoteDisk => (
            steps(&["ask whoever runs the storage whether it keeps a flush when its own power fails"]),
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
            steps(&["replace the missing disk: mdadm --manage ARRAY --add DISK"]),
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
                "on btrfs Duramen asks for its own new files to be written in place (chattr +C); older ones stay as they are",
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

fn mounted_from(mounted: Option<&Mounted>) -> String {
    mounted.and_then(|mounted| mounted.mounted_from.value.clone()).unwrap_or_else(|| "DEVICE".to_owned())
}

fn short(device: &str) -> &str {
    device.rsplit('/').next().unwrap_or(device)
}

/// The kernel was told that there is no cache: undo that, at each layer that may have been told.
fn hidden_cache(report: &Report) -> Vec<String> {
    let devices = report.devices().filter(|device| device.write_cache.is(&WriteCache::WriteThrough));
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    let mut steps: Vec<String> = names
        .iter()
        .map(|name| format!("now: echo 'write back' > /sys/block/{name}/queue/write_cache"))
        .collect();
    steps.push(
        "to last: remove what writes 'write through' there (udev rules in /etc/udev/rules.d, boot scripts)"
            .to_owned(),
    );
    steps
}

/// What can be done about a drive's volatile cache. As a rule nothing should be: it is fast, and flushes empty it.
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
    //! Advice must be exact: for a drive's cache the command, the rule that lasts, and what never to do.
    #![allow(clippy::unwrap_used)]

    use duramen::probe::{Host, Layer, Part, probe};

    use super::*;

    fn with_disk(kind: DeviceKind, name: &str) -> Option<Report> {
        let mut report = probe(&Host::this(), std::path::Path::new(".")).unwrap();
        let mut disk = report.disks().next()?.clone();
        disk.kind = kind;
        disk.name = name.to_owned();
        disk.medium = duramen::probe::Fact::known(Medium::Physical, "test");
        disk.write_cache = duramen::probe::Fact::known(WriteCache::Volatile, "test");
        report.layers = vec![Layer { depth: 0, part: Part::Device(Box::new(disk)) }];
        report.weaknesses.clear();
        Some(report)
    }

    #[test]
    fn a_volatile_cache_has_its_commands() {
        let unknown = || duramen::probe::Fact::unknown("test");
        for (kind, name, wanted) in [
            (DeviceKind::Scsi { drive_cache: unknown() }, "sda", "hdparm -W0 /dev/sda"),
            (DeviceKind::Nvme { transport: unknown() }, "nvme0n1", "nvme set-feature /dev/nvme0 -f 6 -v 0"),
        ] {
            let Some(report) = with_disk(kind, name) else { return };
            let advice = of(&report, &Verdict { trust: Trust::Verified, reason: String::new() });
            let [advice] = &advice[..] else { unreachable!("one disk, one advice: {advice:?}") };
            assert!(advice.about.contains("leave it on"));
            assert!(advice.steps.iter().any(|step| step.contains(wanted)), "{advice:?}");
            assert!(advice.steps.iter().any(|step| step.contains("/etc/udev/rules.d/")));
            assert!(advice.steps.iter().any(|step| step.starts_with("never: ")));
        }
    }
}
