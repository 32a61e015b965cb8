//! A memory cgroup for one child, version 1 or 2, if this user may create one.
//!
//! Owns the group's folder and removes it. It ends no process: a child that outgrows its group is killed by
//! the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Result;

/// For each version: its root, the file with the limit, and the file that counts kills.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
];

/// A group without members. Removed when dropped, once its members have ended.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    kills: &'static str,
}

impl Group {
    /// Creates a group with a memory limit in bytes, which includes the kernel's cache of its members' files.
    ///
    /// # Errors
    /// Why no group can be created.
    pub(crate) fn make(bytes: u64) -> Result<Group> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut why = "this system has none".to_owned();
        for (root, bound, kills) in VERSIONS {
            let folder = Path::new(root).join(format!("duramen-bench-{}-{number}", process::id()));
            // The root of the other version may be at this path.
            if !Path::new(root).join("cgroup.procs").exists() {
                continue;
            }
            if let Err(error) = fs::create_dir(&folder) {
                why = format!("{root}: {error}");
                continue;
            }
            let group = Group { folder, kills };
            match fs::write(group.folder.join(bound), bytes.to_string()) {
                Ok(()) => return Ok(group),
                Err(error) => why = format!("{root}: {bound}: {error}"),
            }
        }
        Err(why.into())
    }

    /// The file to which a process writes its id to join the group.
    pub(crate) fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// A remark if the kernel killed a member for lack of memory; else empty.
    pub(crate) fn why_killed(&self) -> &'static str {
        let said = fs::read_to_string(self.folder.join(self.kills)).unwrap_or_default();
        if counts_a_kill(&said) { "; it outgrew its memory cgroup" } else { "" }
    }
}

fn counts_a_kill(said: &str) -> bool {
    said.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

impl Drop for Group {
    fn drop(&mut self) {
        // A member that has just ended may still be counted. The empty folder then stays until the machine
        // restarts.
        drop(fs::remove_dir(&self.folder));
    }
}

#[cfg(test)]
mod tests {
    //! A point that was killed for its memory must not look like a bug of the engine, nor the reverse.
    use super::*;

    #[test]
    fn a_kill_is_read_from_either_version() {
        for (said, killed) in [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", true),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false),
            ("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n", true),
            ("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n", false),
            ("", false),
        ] {
            assert_eq!(counts_a_kill(said), killed, "{said}");
        }
    }
}
