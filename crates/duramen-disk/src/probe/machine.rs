//! The machine around the disk: memory, container, hypervisor, and libraries that intercept syncs.
//!
//! Owns the reading of these from `/proc` and `/sys/fs/cgroup`. The environment is read from `/proc`, which
//! shows what was preloaded when the process began.

use std::path::Path;

use super::Host;
use super::fact::Fact;
use super::tree::{Tree, parse_text};

/// Names of libraries that disable syncs.
const SYNC_SWALLOWERS: &[&str] = &["eatmydata", "libnosync"];

/// Files that container engines create in a container.
const CONTAINER_FILES: &[&str] = &["/.dockerenv", "/run/.containerenv"];

/// Words in the control groups of a container's first process.
const CONTAINER_WORDS: &[&str] = &["docker", "kubepods", "containerd", "libpod", "/lxc"];

/// A limit of control groups version 1 of this many bytes or more means no limit.
const CGROUP_UNLIMITED_BYTES: u64 = 1 << 62;

/// The most memory a group of processes may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// None is set.
    Unlimited,
    /// Bytes.
    Bytes(u64),
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// `6.18.44`.
    pub kernel_release: Fact<String>,
    /// Memory in all.
    pub memory_bytes: Fact<u64>,
    /// Memory available without swapping.
    pub memory_available_bytes: Fact<u64>,
    /// The tightest limit of this process's control groups.
    pub memory_limit: Fact<MemoryLimit>,
    /// Inside a container.
    pub container: Fact<bool>,
    /// A virtual machine.
    pub hypervisor: Fact<bool>,
    /// Whether a library that disables syncs (libeatmydata) is loaded into this process.
    pub sync_swallower: Fact<bool>,
}

pub(super) fn read(host: &Host) -> Machine {
    let (sys, proc) = (host.sys(), host.proc());
    Machine {
        kernel_release: proc.fact("sys/kernel/osrelease", parse_text),
        memory_bytes: proc.fact("meminfo", |text| meminfo_bytes(text, "MemTotal:")),
        memory_available_bytes: proc.fact("meminfo", |text| meminfo_bytes(text, "MemAvailable:")),
        memory_limit: memory_limit(&sys, &proc),
        container: container(host, &proc),
        hypervisor: hypervisor(&sys, &proc),
        sync_swallower: sync_swallower(&proc),
    }
}

/// `MemTotal:       24684096 kB`
fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Every group up to the root can set a limit, and the tightest holds.
fn memory_limit(sys: &Tree, proc: &Tree) -> Fact<MemoryLimit> {
    let groups = match proc.text("self/cgroup") {
        Ok(groups) => groups,
        Err(error) => return Fact::unknown(format!("{}: {error}", proc.name("self/cgroup"))),
    };
    let mut tightest: Option<(u64, String)> = None;
    let mut seen = None;
    for (folder, file, group) in groups.lines().filter_map(memory_group) {
        for group in up_to_root(group) {
            let path = format!("{folder}{group}/{file}");
            let Some(limit) = sys.fact(&path, parse_limit).value else { continue };
            seen.get_or_insert_with(|| sys.name(&path));
            if let MemoryLimit::Bytes(bytes) = limit
                && tightest.as_ref().is_none_or(|(least, _)| bytes < *least)
            {
                tightest = Some((bytes, sys.name(&path)));
            }
        }
    }
    match (tightest, seen) {
        (Some((bytes, source)), _) => Fact::known(MemoryLimit::Bytes(bytes), source),
        (None, Some(source)) => Fact::known(MemoryLimit::Unlimited, source),
        (None, None) => Fact::unknown("no limit of a control group can be read"),
    }
}

/// Folder, file and group of a line about memory: `0::/a` (version 2) or `4:memory:/a` (version 1).
fn memory_group(line: &str) -> Option<(&'static str, &'static str, &str)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    if number == "0" && controllers.is_empty() {
        return Some(("fs/cgroup", "memory.max", group));
    }
    let is_memory = controllers.split(',').any(|name| name == "memory");
    is_memory.then_some(("fs/cgroup/memory", "memory.limit_in_bytes", group))
}

/// `/a/b`, `/a`, and the root as an empty text. For a group outside of what is visible (`/..`), only the
/// root.
fn up_to_root(group: &str) -> Vec<&str> {
    let group = group.trim_end_matches('/');
    if group.split('/').any(|part| part == "..") {
        return vec![""];
    }
    let mut groups = vec![group];
    let mut rest = group;
    while let Some((parent, _)) = rest.rsplit_once('/') {
        groups.push(parent);
        rest = parent;
    }
    groups
}

fn parse_limit(text: &str) -> Option<MemoryLimit> {
    if text == "max" {
        return Some(MemoryLimit::Unlimited);
    }
    let bytes: u64 = text.parse().ok()?;
    Some(if bytes >= CGROUP_UNLIMITED_BYTES { MemoryLimit::Unlimited } else { MemoryLimit::Bytes(bytes) })
}

fn container(host: &Host, proc: &Tree) -> Fact<bool> {
    if let Some(file) = CONTAINER_FILES.iter().find(|file| host.kernel.path_facts(Path::new(file)).is_ok()) {
        return Fact::known(true, *file);
    }
    match proc.text("1/cgroup") {
        Ok(groups) if CONTAINER_WORDS.iter().any(|word| groups.contains(word)) => {
            Fact::known(true, proc.name("1/cgroup"))
        }
        Ok(groups) if !groups.is_empty() => Fact::known(
            false,
            format!("no {}, nothing in {}", CONTAINER_FILES.join(" or "), proc.name("1/cgroup")),
        ),
        _ => Fact::unknown(format!(
            "no {}, and {} tells nothing",
            CONTAINER_FILES.join(" or "),
            proc.name("1/cgroup")
        )),
    }
}

/// x86 has a flag. On others some hypervisors report their name; without one nothing is known.
fn hypervisor(sys: &Tree, proc: &Tree) -> Fact<bool> {
    let flag = proc.fact("cpuinfo", |text| {
        let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'))?.1;
        (!flags.trim().is_empty()).then(|| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    if flag.value.is_some() {
        return flag;
    }
    let named = sys.fact("hypervisor/type", |text| parse_text(text).map(|_| true));
    if named.value.is_some() {
        named
    } else {
        Fact::unknown("no flags in /proc/cpuinfo, no /sys/hypervisor/type")
    }
}

/// Preloaded libraries are certain; mapped ones cover `/etc/ld.so.preload` too.
fn sync_swallower(proc: &Tree) -> Fact<bool> {
    let (environment, maps) = (proc.text("self/environ"), proc.text("self/maps"));
    let swallows = |name: &str| SYNC_SWALLOWERS.iter().any(|word| name.contains(word));
    let mut variables = environment.iter().flat_map(|text| text.split('\0'));
    if variables.any(|variable| variable.strip_prefix("LD_PRELOAD=").is_some_and(swallows)) {
        return Fact::known(true, format!("{}: LD_PRELOAD", proc.name("self/environ")));
    }
    match maps {
        Ok(text) if !text.is_empty() => {
            let files = text.lines().filter_map(|line| line.split_whitespace().nth(5)?.rsplit('/').next());
            Fact::known(files.into_iter().any(swallows), proc.name("self/maps"))
        }
        _ => Fact::unknown(format!("{} tells nothing", proc.name("self/maps"))),
    }
}
