//! Facts about this process and the machine: processor time, memory, bytes written, the device's own
//! counters.
//!
//! Reads `/proc` and `/sys`. Missing facts are unknown, and never guessed.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Clock ticks per second, as the kernel reports times to programs on every Linux.
const TICKS: f64 = 100.0;

/// Bytes of a sector in the counters of a block device.
const SECTOR_BYTES: u64 = 512;

/// Processor time of this process, all threads, user and system.
pub(crate) fn cpu_seconds() -> f64 {
    times_from(11)
}

/// Processor time of the processes that this one started and waited for.
pub(crate) fn children_cpu_seconds() -> f64 {
    times_from(13)
}

/// The sum of two times after the name of this process in its status.
fn times_from(field: usize) -> f64 {
    times_of(&fs::read_to_string("/proc/self/stat").unwrap_or_default(), field)
}

/// The sum of two times after the name of the process in a status.
fn times_of(stat: &str, field: usize) -> f64 {
    let times = after_name(stat).skip(field).take(2);
    times.filter_map(|time| time.parse::<f64>().ok()).sum::<f64>() / TICKS
}

fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Processor time of another process and of its children.
#[cfg(feature = "serve")]
pub(crate) fn cpu_seconds_of(process: u32) -> f64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let seconds = processes.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = after_name(&stat).nth(1)?.parse().ok()?;
        // Children that have ended count where their parent waited for them.
        match (number == process, parent == process) {
            (true, _) => Some(times_of(&stat, 11) + times_of(&stat, 13)),
            (_, true) => Some(times_of(&stat, 11)),
            _ => None,
        }
    });
    seconds.sum()
}

/// The peak resident memory of another process, in bytes.
pub(crate) fn resident_bytes_max_of(process: u32) -> Option<u64> {
    of_status(&process.to_string(), "VmHWM:")
}

/// The peak resident memory of this process, in bytes.
pub(crate) fn resident_bytes_max() -> Option<u64> {
    of_status("self", "VmHWM:")
}

/// The anonymous memory of this process, in bytes.
pub(crate) fn anonymous_bytes() -> Option<u64> {
    of_status("self", "RssAnon:")
}

/// A line of a process's status that counts KiB, in bytes.
fn of_status(process: &str, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes that this process has passed to write calls.
pub(crate) fn written_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// The block device under a directory, whole or part, by its folder in `/sys`.
pub(crate) fn device_of(dir: &Path) -> Option<PathBuf> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let rows = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        let (number, mount_point) = (fields.next()?, fields.nth(1)?);
        dir.starts_with(mount_point).then(|| (mount_point.len(), number, after.split(' ').nth(1)))
    });
    let (_, number, source) = rows.max_by_key(|(length, ..)| *length)?;
    let by_number = PathBuf::from(format!("/sys/dev/block/{number}"));
    if by_number.exists() {
        return Some(by_number);
    }
    // btrfs has a device number of its own; its mount names the device.
    let device = fs::metadata(source?).ok()?.st_rdev();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff);
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))).filter(|path| path.exists())
}

/// Bytes that a device has written since the machine started, by any process.
pub(crate) fn device_written_bytes(device: &Path) -> Option<u64> {
    let stat = fs::read_to_string(device.join("stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Syncs the file system of a directory, so that pending writes are counted now, and do not slow later
/// measurements.
pub(crate) fn settle(dir: &Path) {
    let _ = Command::new("sync").arg("-f").arg(dir).status();
}

/// Bytes that the blocks of all files below a directory take.
pub(crate) fn space_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => space_bytes(&path),
        Ok(found) => found.st_blocks() * SECTOR_BYTES,
        Err(_) => 0,
    };
    entries.map(|entry| size(entry.path())).sum()
}

/// The machine in a line: processors, their model, memory, kernel.
pub(crate) fn sentence() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": processor unknown");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{count} x {model}, {} GiB, Linux {}", kib >> 20, kernel.trim())
}

/// The load average over a minute.
pub(crate) fn load() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
