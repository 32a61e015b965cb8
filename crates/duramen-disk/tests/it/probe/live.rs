//! The probe and the witness on this machine.
//!
//! On its own directory, on memory, and, with root and loop devices, on the file systems that can be created.

use std::path::{Path, PathBuf};
use std::process::Command;

use duramen_disk::OsDisk;
use duramen_disk::probe::{
    COMMITS_DEFAULT, DeviceKind, Effect, Host, Medium, Report, Trust, WeaknessKind, Witness, judge, probe,
    witness,
};

use super::kinds;

/// Something created on this machine, with the command that removes it, also when a test fails.
struct Made {
    at: PathBuf,
    undo: Vec<String>,
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = run(&self.undo.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// What the command printed, or why it failed.
fn run(command: &[&str]) -> Result<String, String> {
    let ended = Command::new(command[0]).args(&command[1..]).output();
    let ended = ended.map_err(|error| format!("{}: {error}", command[0]))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned());
    }
    Err(format!("{}: {}", command[0], String::from_utf8_lossy(&ended.stderr).trim()))
}

/// Prints what was not tested; see docs/testing.md.
fn skipped(what: &str, why: &str) {
    use std::io::Write;
    println!("skipped: {what} — {why}");
    if let Some(list) = std::env::var_os("DURAMEN_TEST_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).unwrap();
        writeln!(list, "{what} — {why}").unwrap();
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn has(program: &str) -> bool {
    run(&["sh", "-c", &format!("command -v {program}")]).is_ok()
}

fn is_root_with_loops() -> bool {
    Path::new("/dev/loop-control").exists() && run(&["test", "-w", "/dev/loop-control"]).is_ok()
}

fn mount(source: &str, at: &Path, args: &[&str]) -> Result<Made, String> {
    std::fs::create_dir_all(at).unwrap();
    let point = at.to_str().unwrap();
    run(&[&["mount"], args, &[source, point]].concat())?;
    Ok(Made { at: at.to_owned(), undo: ["umount", point].map(str::to_owned).to_vec() })
}

/// A file system of its own on a loop device; `None`, with a message, if this machine cannot.
fn on_loop(scratch: &Path, mkfs: &[&str], options: &str) -> Option<Made> {
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    let what = format!("probe of {} on a loop device", mkfs.join(" "));
    if !has(mkfs[0]) {
        skipped(&what, &format!("no {}", mkfs[0]));
        return None;
    }
    let image = image.to_str().unwrap();
    let made = run(&[mkfs, &[image]].concat());
    match made.and_then(|_| mount(image, &scratch.join("mounted"), &["-o", options])) {
        Ok(made) => Some(made),
        Err(why) => {
            let knows = std::fs::read_to_string("/proc/filesystems").unwrap();
            let system = mkfs[0].trim_start_matches("mkfs.");
            let can = is_root_with_loops() && knows.contains(system);
            assert!(!can, "this machine has root, loop devices and {system}, and yet: {why}");
            skipped(&what, &why);
            None
        }
    }
}

fn asked(path: &Path) -> (Report, Witness) {
    let host = Host::this();
    let report = probe(&host, path).unwrap();
    let told = witness(&host, &OsDisk::new(), &report, COMMITS_DEFAULT).unwrap();
    let left: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".duramen-witness-"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "the probe file is removed");
    (report, told)
}

/// Holds on every disk that honours flush: a volatile one gets a flush for each sync.
fn check_flushes(report: &Report, told: &Witness) {
    assert!(told.verdict.trust >= Trust::Unknown, "{:?}\n{report:#?}", told.verdict);
    if let Some(Medium::Virtual) = report.disks().next().and_then(|disk| disk.medium.value) {
        assert!(told.verdict.trust <= Trust::Plausible, "{:?}", told.verdict);
    }
    let latency = told.burst.latency;
    assert!(latency.min_ns <= latency.p50_ns && latency.p50_ns <= latency.max_ns && latency.p50_ns > 0);
}

fn system_of(report: &Report) -> String {
    report.mounts().next().unwrap().file_system.value.clone().unwrap_or_default()
}

#[test]
fn the_directory_of_the_build_is_known() {
    let scratch = scratch();
    let report = probe(&Host::this(), scratch.path()).unwrap();
    assert_eq!(judge(&report, None).trust.min(Trust::Unknown), judge(&report, None).trust);
    assert!(report.machine.kernel_release.value.is_some(), "{:?}", report.machine.kernel_release);
    assert!(report.machine.memory_bytes.value.is_some());
    assert!(report.space.free_bytes.value.is_some());
    // If the build is in memory, or on something that cannot be seen, nothing more can be checked.
    if report.weaknesses.iter().any(|weakness| weakness.effect() <= Effect::CannotBeSeen) {
        return;
    }
    let (report, told) = asked(scratch.path());
    check_flushes(&report, &told);
}

#[test]
fn shared_memory_is_unsafe() {
    let Ok(scratch) = tempfile::tempdir_in("/dev/shm") else {
        return skipped("probe of tmpfs", "no /dev/shm that can be written");
    };
    let (report, told) = asked(scratch.path());
    assert_eq!((system_of(&report).as_str(), told.verdict.trust), ("tmpfs", Trust::Unsafe));
    assert!(told.verdict.reason.contains("nothing survives a reboot"), "{}", told.verdict.reason);
    assert_eq!(report.devices().count(), 0);
}

/// The layers continue below the loop device, to the file system and the disk that hold the image.
#[test]
fn ext4_with_a_journal_on_a_loop_device() {
    let scratch = scratch();
    let Some(made) = on_loop(scratch.path(), &["mkfs.ext4", "-q", "-F"], "loop") else { return };
    let (report, told) = asked(&made.at);
    check_flushes(&report, &told);
    let top = report.mounts().next().unwrap();
    assert_eq!((top.journal.value, top.mount_point.value.as_deref()), (Some(true), Some(made.at.as_path())));
    let image = report.mounts().nth(1).unwrap();
    assert_eq!(image.path, scratch.path().join("image"));
    let device = report.devices().next().unwrap();
    assert!(matches!(&device.kind, DeviceKind::Loop { backing_file, .. } if backing_file.is(&image.path)));
    let direct = told.direct.value.map(|direct| direct.offset_bytes.is_power_of_two());
    assert!(direct.unwrap_or(true), "{:?}", told.direct);
}

#[test]
fn ext4_without_a_journal_and_without_barriers() {
    let scratch = scratch();
    let mkfs = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal"];
    let Some(made) = on_loop(scratch.path(), &mkfs, "loop") else { return };
    let (report, _) = asked(&made.at);
    assert!(kinds(&report).contains(&WeaknessKind::NoJournal), "{:?}", report.weaknesses);
    run(&["mount", "-o", "remount,nobarrier", made.at.to_str().unwrap()]).unwrap();
    let (report, told) = asked(&made.at);
    assert_eq!(report.weaknesses[0].kind, WeaknessKind::BarriersOff, "{:?}", report.weaknesses);
    assert_eq!(told.verdict.trust, Trust::Unsafe);
    run(&["mount", "-o", "remount,ro", made.at.to_str().unwrap()]).unwrap();
    let report = probe(&Host::this(), &made.at).unwrap();
    assert!(kinds(&report).contains(&WeaknessKind::ReadOnly));
    let error = witness(&Host::this(), &OsDisk::new(), &report, 4).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

/// A device configured to hide its cache passes no flush to the disk below, and the counter shows it.
#[test]
fn a_layer_that_hides_its_cache_is_caught() {
    let scratch = scratch();
    let Some(made) = on_loop(scratch.path(), &["mkfs.ext4", "-q", "-F"], "loop") else { return };
    let report = probe(&Host::this(), &made.at).unwrap();
    let device = report.devices().next().unwrap();
    let queue = format!("/sys/dev/block/{}/queue/write_cache", device.number);
    if let Err(error) = std::fs::write(&queue, "write through") {
        return skipped("a loop device that hides its cache", &format!("{queue}: {error}"));
    }
    let (report, told) = asked(&made.at);
    let honest = std::fs::write(&queue, "write back");
    honest.unwrap();
    assert_eq!((report.weaknesses[0].kind, told.verdict.trust), (WeaknessKind::HiddenCache, Trust::Unsafe));
}

#[test]
fn xfs_and_btrfs_on_loop_devices() {
    for mkfs in [&["mkfs.xfs", "-q", "-f"][..], &["mkfs.btrfs", "-q", "-f"]] {
        let scratch = scratch();
        let Some(made) = on_loop(scratch.path(), mkfs, "loop") else { continue };
        let (report, told) = asked(&made.at);
        check_flushes(&report, &told);
        assert_eq!(format!("mkfs.{}", system_of(&report)), mkfs[0]);
        let device = report.devices().next().unwrap();
        assert!(matches!(device.kind, DeviceKind::Loop { .. }), "{report:#?}");
        assert!(report.disks().count() > 0 || !report.gaps.is_empty(), "{report:#?}");
        if mkfs[0] == "mkfs.btrfs" {
            assert!(kinds(&report).contains(&WeaknessKind::CopyOnWrite));
            if run(&["chattr", "+C", made.at.to_str().unwrap()]).is_ok() {
                let report = probe(&Host::this(), &made.at).unwrap();
                assert_eq!(report.mounts().next().unwrap().no_copy_on_write.value, Some(true));
            }
        }
    }
}

#[test]
fn overlays_honest_and_volatile() {
    let scratch = scratch();
    let Some(base) = on_loop(scratch.path(), &["mkfs.ext4", "-q", "-F"], "loop") else { return };
    let folder = |name: &str| {
        let path = base.at.join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (lower, upper, work) = (folder("lower"), folder("upper"), folder("work"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let overlay =
        |options: &str| mount("overlay", &scratch.path().join("merged"), &["-t", "overlay", "-o", options]);
    let made = match overlay(&options) {
        Ok(made) => made,
        Err(why) => return skipped("probe of an overlay", &why),
    };
    let (report, told) = asked(&made.at);
    check_flushes(&report, &told);
    let systems: Vec<_> =
        report.mounts().filter_map(|mounted| mounted.file_system.value.as_deref()).collect();
    assert_eq!(systems[..2], ["overlay", "ext4"]);
    assert_eq!(report.mounts().nth(1).unwrap().path, Path::new(&upper));
    drop(made);
    let made = match overlay(&format!("{options},volatile")) {
        Ok(made) => made,
        Err(why) => return skipped("probe of a volatile overlay", &why),
    };
    let (report, told) = asked(&made.at);
    assert_eq!(
        (report.weaknesses[0].kind, told.verdict.trust),
        (WeaknessKind::VolatileOverlay, Trust::Unsafe)
    );
}

/// Uses a device of its own, so that one in use is not changed.
#[test]
fn compressed_memory_is_unsafe() {
    let scratch = scratch();
    let number = match std::fs::read_to_string("/sys/class/zram-control/hot_add") {
        Ok(number) => number.trim().to_owned(),
        Err(error) => return skipped("probe of zram", &format!("/sys/class/zram-control/hot_add: {error}")),
    };
    let remove = format!("echo {number} > /sys/class/zram-control/hot_remove");
    let device = format!("/dev/zram{number}");
    let undo = ["sh", "-c", &remove].map(str::to_owned).to_vec();
    let _device = Made { at: PathBuf::from(&device), undo };
    std::fs::write(format!("/sys/block/zram{number}/disksize"), "64M").unwrap();
    run(&["mkfs.ext4", "-q", "-F", &device]).unwrap();
    let made = mount(&device, &scratch.path().join("mounted"), &[]).unwrap();
    let (report, told) = asked(&made.at);
    assert_eq!(report.disks().next().unwrap().medium.value, Some(Medium::Memory));
    assert_eq!((report.weaknesses[0].kind, told.verdict.trust), (WeaknessKind::MemoryDevice, Trust::Unsafe));
}

#[test]
fn paths_that_cannot_be_asked_are_errors() {
    let missing = probe(&Host::this(), Path::new("/nowhere/at/all")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let report = probe(&Host::this(), Path::new("/proc")).unwrap();
    assert_eq!(judge(&report, None).trust, Trust::Unknown);
    assert!(witness(&Host::this(), &OsDisk::new(), &report, 4).is_err());
}
